//! A world of its own for each test: directories, a model's server, and the command run in them.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quipu_testkit::{Answer, CapturedRequest, FakeServer, Gate, Reply};
use serde_json::{Value, json};

/// The key in `models.json`. Nothing may ever print or store it.
pub(crate) const KEY: &str = "test-key-0123456789abcdef";
/// The model that is used when a test names none.
pub(crate) const MODEL: &str = "test-1";
/// A child that takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// A user without rights, for tests that the administrator would pass without meaning.
pub(crate) const NOBODY: u32 = 65534;

/// Directories, a server and the command. When it is dropped, the store must hold the bytes of every request that
/// the server was sent, `show NODE --request` must give them, and `doctor` must be content.
pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) server: FakeServer,
    /// Servers that are used no more.
    past: Vec<FakeServer>,
    /// Stores named with `--store`.
    stores: RefCell<Vec<PathBuf>>,
    checked: Cell<bool>,
    pub(crate) program: PathBuf,
    user: Option<u32>,
}

impl World {
    /// A world whose server answers with `script`.
    pub(crate) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        let dir = tempfile::Builder::new().prefix("quipu-cli-").tempdir().unwrap();
        let world = Self {
            dir,
            server: FakeServer::start(script),
            past: Vec::new(),
            stores: RefCell::default(),
            checked: Cell::new(true),
            program: env!("CARGO_BIN_EXE_quipu").into(),
            user: None,
        };
        for made in ["home/.quipu", "work", "tmp"] {
            std::fs::create_dir_all(world.path(made)).unwrap();
        }
        set_mode(&world.path("home/.quipu"), 0o700);
        world.configure(&world.server.url());
        // Failures that pass are tried again at once.
        std::fs::write(world.path("home/.quipu/settings.json"), r#"{"retry":{"baseDelayMs":1}}"#).unwrap();
        world
    }

    /// A world with one answer of plain text.
    pub(crate) fn says(text: &str) -> Self {
        Self::new([Answer::new().text(text).reply()])
    }

    /// A world that belongs to a user without rights, where we have the right to make one.
    pub(crate) fn unprivileged(script: impl IntoIterator<Item = Reply>) -> Self {
        let mut world = Self::new(script);
        if nix::unistd::geteuid().is_root() {
            for made in ["", "home", "home/.quipu", "work", "tmp"] {
                own(&world.path(made));
            }
            for file in ["models.json", "settings.json"] {
                own(&world.path("home/.quipu").join(file));
            }
            // The tester's own directories may be closed to others.
            let program = world.path("quipu");
            if std::fs::hard_link(env!("CARGO_BIN_EXE_quipu"), &program).is_err() {
                std::fs::copy(env!("CARGO_BIN_EXE_quipu"), &program).unwrap();
            }
            world.program = program;
            world.user = Some(NOBODY);
        }
        world
    }

    /// Sends the model's requests to `url`.
    pub(crate) fn configure(&self, url: &str) {
        let own = json!({
            "id": MODEL, "name": "Test One", "api": "anthropic-messages", "reasoning": false,
            "input": ["text", "image"], "contextWindow": 200_000, "maxTokens": 8_000,
            "cost": { "input": 1_000, "output": 1_000, "cacheRead": 0, "cacheWrite": 0 },
        });
        let thinker =
            json!({ "id": "thinker", "name": "Thinker", "reasoning": true, "api": "anthropic-messages" });
        let file = json!({
            "providers": {
                "testing": { "baseUrl": url, "apiKey": KEY, "api": "anthropic-messages", "models": [own, thinker] },
            },
        });
        std::fs::write(self.path("home/.quipu/models.json"), file.to_string()).unwrap();
    }

    /// The store is broken on purpose, or was not written on purpose: nothing is asked of it at the end.
    pub(crate) fn unchecked(&self) {
        self.checked.set(false);
    }

    /// A path in this world: `home/.quipu`, `work` (the current directory) and `tmp` are there.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        // On macOS the directory for temporary files is behind a link.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file in the current directory of the command.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("work").join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The default store.
    pub(crate) fn store(&self) -> PathBuf {
        self.path("home/.quipu/quipu.db")
    }

    /// The command in this world, with nothing of the tester's environment.
    pub(crate) fn quipu(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        if let Some(at) = args.iter().position(|arg| *arg == "--store") {
            let store = self.path("work").join(args[at + 1]);
            let mut stores = self.stores.borrow_mut();
            if !stores.contains(&store) {
                stores.push(store);
            }
        }
        command
    }

    /// Any program in this world.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            // These tests may run on a machine that has such a service.
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs the command to its end, without input.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        RunningCommand::start(self.quipu(args)).wait()
    }

    /// Runs the command to its end with this input.
    pub(crate) fn run_with(&self, args: &[&str], input: impl Into<Vec<u8>>) -> CommandOutput {
        let mut command = self.quipu(args);
        command.stdin(Stdio::piped());
        let mut running = RunningCommand::start(command);
        let mut stdin = running.child.stdin.take().unwrap();
        let input = input.into();
        let writer = std::thread::spawn(move || {
            // A program that does not read to the end is no fault of its writer.
            stdin.write_all(&input).ok();
        });
        let ran = running.wait();
        writer.join().unwrap();
        ran
    }

    /// Starts the command.
    pub(crate) fn start(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::start(self.quipu(args))
    }

    /// The sessions of the default store, newest first.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        self.sessions_of(&[])
    }

    fn sessions_of(&self, store: &[&str]) -> Vec<Value> {
        let args = [&["sessions", "--all", "--json", "--limit", "0"], store].concat();
        self.run(&args).ok().json_lines()
    }

    /// The nodes of the newest session here, in the order of the tree.
    pub(crate) fn nodes(&self) -> Vec<Value> {
        self.nodes_of(&[])
    }

    /// The nodes that `show ARGS --json` gives.
    pub(crate) fn nodes_of(&self, args: &[&str]) -> Vec<Value> {
        let shown = self.run(&[&["show", "--json"], args].concat()).ok().json();
        assert_eq!(shown["cut"], false);
        shown["nodes"].as_array().unwrap().clone()
    }

    /// From now on another server answers, with this script. What was under way to the one before does not reach
    /// it.
    pub(crate) fn another_server(&mut self, script: impl IntoIterator<Item = Reply>) {
        let before = std::mem::replace(&mut self.server, FakeServer::start(script));
        self.past.push(before);
        self.configure(&self.server.url());
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<CapturedRequest> {
        self.server.requests()
    }

    /// Asks the questions of the end now.
    pub(crate) fn check(&self) {
        let mut stores: Vec<Option<PathBuf>> = self.stores.borrow().iter().cloned().map(Some).collect();
        if self.store().exists() {
            stores.push(None);
        }
        let servers = self.past.iter().chain([&self.server]);
        let sent: HashSet<Vec<u8>> =
            servers.flat_map(FakeServer::requests).map(|request| request.body.to_vec()).collect();
        let (mut kept, mut earlier) = (HashSet::new(), HashSet::new());
        for store in stores {
            let named = store.map(|path| path.display().to_string());
            let flag: Vec<&str> = named.iter().flat_map(|path| ["--store", path]).collect();
            for session in self.sessions_of(&flag) {
                let id = session["id"].as_str().unwrap().to_owned();
                for node in self.nodes_of(&[&[id.as_str()], &flag[..]].concat()) {
                    let call = &node["step"]["call"];
                    if call["provider"] != "testing" {
                        continue;
                    }
                    let args = [&["show", node["id"].as_str().unwrap(), "--request"], &flag[..]].concat();
                    let body = self.run(&args).ok().out;
                    assert_eq!(call["bodyBytes"], body.len());
                    let answered = call["attempts"]
                        .as_array()
                        .is_some_and(|all| all.iter().any(|attempt| attempt["status"].is_number()));
                    assert!(!answered || sent.contains(&body), "a request that was never sent: {node}");
                    kept.insert(body);
                    // A summary in several calls stands in one node.
                    let others = node["step"]["extra"]["earlierCalls"].as_array();
                    earlier.extend(
                        others
                            .into_iter()
                            .flatten()
                            .filter_map(|call| Some(call["body"].as_str()?.to_owned())),
                    );
                }
            }
            let doctor = self.run(&[&["doctor", "--json"], &flag[..]].concat()).ok().json();
            assert_eq!(doctor["healthy"], true, "{doctor}");
        }
        for body in &sent {
            let is_earlier =
                || earlier.contains(&quipu_protocol::ChunkId(quipu_dag::sha256(body)).to_string());
            let is_kept = kept.contains(body) || is_earlier();
            assert!(is_kept, "not in the store: {}", String::from_utf8_lossy(body));
            assert!(!contains(body, KEY.as_bytes()), "the key is in a request");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.checked.get() && !std::thread::panicking() {
            self.check();
        }
    }
}

fn own(path: &Path) {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A child process of `quipu`, with its output read as it comes.
pub(crate) struct RunningCommand {
    pub(crate) child: Child,
    what: String,
    stdout: Stream,
    stderr: Stream,
}

/// One output of a command, read by a thread of its own.
struct Stream {
    lines: Receiver<Vec<u8>>,
    got: Vec<u8>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn new(from: Option<impl Read + Send + 'static>) -> Self {
        let (tx, lines) = channel();
        let reader = from.map(|from| {
            std::thread::spawn(move || {
                let mut from = BufReader::new(from);
                loop {
                    let mut line = Vec::new();
                    match from.read_until(b'\n', &mut line) {
                        Ok(0) | Err(_) => return,
                        Ok(_) => tx.send(line).unwrap_or_default(),
                    }
                }
            })
        });
        Self { lines, got: Vec::new(), reader }
    }

    /// The next line; `None` at the end.
    fn next(&mut self, until: Instant) -> Result<Option<Vec<u8>>, RecvTimeoutError> {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.got.extend_from_slice(&line);
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(RecvTimeoutError::Timeout),
        }
    }
}

impl RunningCommand {
    pub(crate) fn start(mut command: Command) -> Self {
        let what = format!("{:?}", command.get_args().collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Stream::new(child.stdout.take());
        let stderr = Stream::new(child.stderr.take());
        Self { child, what, stdout, stderr }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// The next line on stdout; `None` at its end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let until = Instant::now() + LIMIT;
        match self.stdout.next(until) {
            Ok(line) => line.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned()),
            Err(_) => self.hangs(),
        }
    }

    /// Waits for a line on stderr that holds `part`.
    pub(crate) fn says(&mut self, part: &str) {
        self.line_with(part);
    }

    /// The next line on stderr that holds `part`.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            match self.stderr.next(until) {
                Ok(Some(line)) => {
                    let line = String::from_utf8_lossy(&line).trim().to_owned();
                    if line.contains(part) {
                        return line;
                    }
                }
                Ok(None) => panic!("{} ended without {part:?}: {}", self.what, self.so_far()),
                Err(_) => self.hangs(),
            }
        }
    }

    fn hangs(&mut self) -> ! {
        self.child.kill().unwrap();
        panic!("{} hangs: {}", self.what, self.so_far());
    }

    fn so_far(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("\n--- stdout\n{}\n--- stderr\n{}", text(&self.stdout.got), text(&self.stderr.got))
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> CommandOutput {
        let until = Instant::now() + LIMIT;
        for stderr in [false, true] {
            loop {
                let stream = if stderr { &mut self.stderr } else { &mut self.stdout };
                match stream.next(until) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => self.hangs(),
                }
            }
        }
        // Both its outputs are closed, so it is as good as gone.
        let status = self.child.wait().unwrap();
        for stream in [&mut self.stdout, &mut self.stderr] {
            if let Some(reader) = stream.reader.take() {
                reader.join().unwrap();
            }
        }
        let err = String::from_utf8(std::mem::take(&mut self.stderr.got)).unwrap();
        assert!(!err.contains("panicked"), "{}: {err}", self.what);
        assert!(!err.contains(KEY), "the key is printed: {err}");
        CommandOutput { what: self.what, status, out: self.stdout.got, err }
    }
}

/// A child process that reads and writes lines of JSON.
pub(crate) struct JsonProcess {
    pub(crate) running: RunningCommand,
    /// `None` once it is closed, or somebody else writes to it.
    pub(crate) input: Option<ChildStdin>,
}

impl JsonProcess {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        let mut running = RunningCommand::start(command);
        let input = running.child.stdin.take();
        Self { running, input }
    }

    /// Writes a line, JSON or not.
    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// The next line that it writes.
    pub(crate) fn next(&mut self) -> Value {
        let line = self.running.line().unwrap_or_else(|| panic!("it ended: {}", self.running.so_far()));
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }

    /// Writes lines that say nothing until it stops reading, and waits for its end, its input open.
    pub(crate) fn end_with_garbage(mut self) -> CommandOutput {
        self.input.as_mut().unwrap().write_all("garbage\n".repeat(100_000).as_bytes()).ok();
        self.running.wait()
    }

    /// Closes its input and waits for its end.
    pub(crate) fn close(self) -> CommandOutput {
        drop(self.input);
        self.running.wait()
    }
}

/// The exit status and the output of a command.
pub(crate) struct CommandOutput {
    what: String,
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl CommandOutput {
    /// It must have ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.exits(0)
    }

    /// It must have ended with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        let Self { what, status, err, .. } = &self;
        assert_eq!(
            status.code(),
            Some(code),
            "{what}: {status} {:?}\n{}\n{err}",
            status.signal(),
            self.text()
        );
        self
    }

    /// It must have failed with this code and one message that holds all these words.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        let ran = self.exits(code);
        let message = ran.message();
        for word in words {
            assert!(message.contains(word), "{word:?} is not in: {message}");
        }
        ran
    }

    /// The one message of a failure: what stands behind `quipu:` or `error:`.
    #[track_caller]
    pub(crate) fn message(&self) -> String {
        let starts: Vec<usize> = ["quipu: ", "error: "]
            .iter()
            .flat_map(|mark| self.err.match_indices(mark).map(|(at, _)| at))
            .filter(|at| *at == 0 || self.err.as_bytes()[at - 1] == b'\n')
            .collect();
        assert_eq!(starts.len(), 1, "not one message: {:?}", self.err);
        self.err[starts[0]..].to_owned()
    }

    #[track_caller]
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap()
    }

    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Runs the command on a terminal of this width, on which `input` is typed; its exit code and all that is shown.
pub(crate) fn on_terminal(world: &World, args: &[&str], input: &str, width: u16) -> (Option<i32>, String) {
    let size = nix::pty::Winsize { ws_row: 40, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    let ends = nix::pty::openpty(&size, None).unwrap();
    let (mut ours, theirs) = (std::fs::File::from(ends.master), ends.slave);
    let mut command = world.quipu(args);
    command.env("TERM", "xterm");
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // It holds their end, and the terminal ends with the last one.
    drop(command);
    ours.write_all(input.as_bytes()).unwrap();
    let mut shown = Vec::new();
    // Ends with an error where the other side is gone.
    ours.read_to_end(&mut shown).ok();
    (child.wait().unwrap().code(), String::from_utf8(shown).unwrap().replace("\r\n", "\n"))
}

/// Waits until the server has come to this gate.
pub(crate) fn reached(gate: &Gate) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(LIMIT, gate.reached()).await });
    waited.expect("the server comes to the gate");
}

/// An answer that calls one tool.
pub(crate) fn call(id: &str, tool: &str, arguments: &Value) -> Reply {
    Answer::new().tool_call(id, tool, &arguments.to_string()).reply()
}

/// An answer that runs a command.
pub(crate) fn bash(id: &str, command: &str) -> Reply {
    call(id, "bash", &json!({ "command": command }))
}

/// The text of all blocks of a message on the wire.
pub(crate) fn wire_text(message: &Value) -> String {
    if let Some(parts) = message["parts"].as_array() {
        let result = |part: &Value| {
            let response = &part["functionResponse"]["response"];
            response["output"].as_str().or(response["error"].as_str()).unwrap_or_default().to_owned()
        };
        let texts = parts.iter().map(|part| part["text"].as_str().map_or_else(|| result(part), String::from));
        return texts.collect::<Vec<_>>().join("\n");
    }
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str() {
                Some("tool_result") => wire_text(block),
                None if block["toolResult"].is_object() => wire_text(&block["toolResult"]),
                _ => block["text"].as_str().unwrap_or_default().to_owned(),
            })
            .collect::<Vec<_>>()
            .join("\n"),
        // A result where each has an item of its own.
        _ => message["output"].as_str().unwrap_or_default().to_owned(),
    }
}

/// The messages of a request on the wire, or the items of its input.
pub(crate) fn messages(request: &CapturedRequest) -> Vec<Value> {
    let body = request.json();
    let members = ["/messages", "/input", "/contents", "/context/messages", "/request/contents"];
    let list = members.iter().find_map(|member| body.pointer(member)?.as_array());
    list.unwrap().clone()
}

/// Gives the model a price: a thousand tokens of an answer cost a dollar, and it answers with 2,000 at most.
pub(crate) fn price(world: &World) {
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let model = &mut file["providers"]["testing"]["models"][0];
    model["maxTokens"] = json!(2_000);
    model["cost"] = json!({ "input": 0, "output": 1_000, "cacheRead": 0, "cacheWrite": 0 });
    std::fs::write(&path, file.to_string()).unwrap();
}

/// Names the project of calls to the provider `testing`, which one wire wants.
pub(crate) fn name_project(world: &World) {
    let entry = json!({ "type": "api_key", "env": { "GOOGLE_CLOUD_PROJECT": "project-7" } });
    let file = world.path("home/.quipu/auth.json");
    std::fs::write(&file, json!({ "testing": entry }).to_string()).unwrap();
    set_mode(&file, 0o600);
}

/// Whether a process lives. A zombie does not.
pub(crate) fn lives(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat[stat.rfind(')').unwrap()..].starts_with(") Z"),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => kill(Pid::from_raw(pid), None).is_ok(),
    }
}

/// Waits until no command of a task lives. Their own numbers say nothing outside of their namespaces, so they are known by their
/// directory.
#[track_caller]
pub(crate) fn no_command_lives(world: &World) {
    use std::os::unix::fs::MetadataExt as _;
    let here = std::fs::metadata(world.path("work")).unwrap();
    let is_here = |entry: std::fs::DirEntry| {
        std::fs::metadata(entry.path().join("cwd"))
            .is_ok_and(|cwd| (cwd.dev(), cwd.ino()) == (here.dev(), here.ino()))
    };
    let until = Instant::now() + Duration::from_secs(20);
    while std::fs::read_dir("/proc").is_ok_and(|all| all.flatten().any(is_here)) {
        assert!(Instant::now() < until, "a command lives on");
        std::thread::yield_now();
    }
}

/// Waits until a process is gone, which its killer may not wait for.
#[track_caller]
pub(crate) fn gone(pid: i32) {
    let until = Instant::now() + Duration::from_secs(20);
    while lives(pid) {
        assert!(Instant::now() < until, "process {pid} lives on");
        std::thread::yield_now();
    }
}
