//! Commands under confinement, each run for real: a table of escapes, none of which may change anything outside,
//! and a table of everyday commands, each of which must work. Where the system cannot confine, what is tested is
//! that it says so and runs nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use quipu_workspace::*;
use tokio_util::sync::CancellationToken;

/// In the environment of a process outside; nobody inside may read it.
#[cfg(target_os = "linux")]
const VICTIMS_SECRET: &str = "a-secret-of-the-victim";

/// Names a directory for worlds that is not the one for temporary files.
pub(crate) const SHOWN: &str = "QUIPU_TEST_SHOWN";

/// Names the launcher, where the one that was built cannot be reached.
const LAUNCHER: &str = "QUIPU_TEST_LAUNCHER";
/// Set where all of this is done by a user without any rights.
pub(crate) const UNPRIVILEGED: &str = "QUIPU_TEST_UNPRIVILEGED";
const NOBODY: u32 = 65_534;

/// How the outside is named: what must be done before, the path of the file, that of the directory.
const ROUTES: &[(&str, &str)] = &[
    ("", "$OUT"),
    ("", "../out"),
    ("", "./../ws/../out"),
    ("", "outlink"),
    ("ln -s \"$OUT\" chain1; ln -s chain1 chain2;", "chain2"),
    ("", "/proc/self/cwd/../out"),
    ("", "/proc/self/root$OUT"),
    ("mkdir -p deep/er; cd deep/er;", "../../../out"),
];

pub(crate) struct World {
    pub(crate) way: Way,
    dir: Arc<tempfile::TempDir>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) registry: Arc<ProcessRegistry>,
    pub(crate) env: Vec<(String, Option<String>)>,
}

/// The ways to confine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Landlock,
    Namespaces,
}

/// The worlds in which each thing is tried, or none where the system cannot confine; then that is what is tested.
pub(crate) fn worlds() -> Vec<World> {
    let worlds = vec![world(Way::Landlock), world(Way::Namespaces)];
    if SandboxSupport::of_this_system().is_full() {
        return worlds;
    }
    eprintln!("note: this system cannot confine commands; tested is that none is run");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for world in worlds {
        let error = runtime.block_on(world.run("echo x > ran")).unwrap_err();
        assert!(matches!(error, ShellError::Sandbox(_)), "{error}");
        assert!(!world.path("ws/ran").exists());
    }
    Vec::new()
}

pub(crate) fn world(way: Way) -> World {
    // Here and not at the start: the checkout may lie where only the administrator may go.
    if std::env::var_os(UNPRIVILEGED).is_some() && nix::unistd::geteuid().is_root() {
        nix::unistd::setgid(nix::unistd::Gid::from_raw(NOBODY)).unwrap();
        nix::unistd::setuid(nix::unistd::Uid::from_raw(NOBODY)).unwrap();
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix("quipu-confined-");
    let dir = match way {
        Way::Landlock => builder.tempdir(),
        Way::Namespaces => builder.tempdir_in(shown()),
    };
    let dir = dir.unwrap();
    let root = dir.path().canonicalize().unwrap();
    for made in ["ws", "out", "added", "home/.quipu", "home/.ssh", "home/.cache", "home/.npm"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    let env = vec![
        ("HOME".into(), Some(root.join("home").display().to_string())),
        ("OUT".into(), Some(root.join("out").display().to_string())),
        ("ADDED".into(), Some(root.join("added").display().to_string())),
        ("GIT_CONFIG_NOSYSTEM".into(), Some("1".into())),
        // The tester's own; `private_caches` sets one.
        ("CARGO_TARGET_DIR".into(), None),
    ];
    let mut write: Vec<PathBuf> = ["ws", "added", "home/not-there"].map(|name| root.join(name)).into();
    let sandbox = if way == Way::Namespaces {
        Sandbox::new(write)
            .with_caches(caches(Some(&root.join("home")), &|_| None))
            .with_cache_layers(Some(root.join("layers")))
            .with_namespaces(Some(namespaces(&root)))
    } else {
        write.extend(["home/.cache", "home/.npm"].map(|name| root.join(name)));
        Sandbox::new(write)
    };
    let sandbox = Arc::new(sandbox);
    if way == Way::Namespaces && SandboxSupport::of_this_system().is_full() {
        assert_eq!(sandbox.isolation().unwrap(), Ok(()));
    }
    World { way, dir: Arc::new(dir), sandbox, registry: Arc::default(), env }
}

/// Where namespaces show what is outside: not in the directory for temporary files, if that can be.
fn shown() -> PathBuf {
    let shown = std::env::var_os(SHOWN).map_or_else(|| "/opt".into(), PathBuf::from);
    if nix::unistd::access(&shown, nix::unistd::AccessFlags::W_OK).is_ok() {
        shown
    } else {
        std::env::temp_dir()
    }
}

pub(crate) fn namespaces(root: &Path) -> Namespaces {
    let program =
        std::env::var_os(LAUNCHER).map_or_else(|| env!("CARGO_BIN_EXE_quipu-sandbox").into(), PathBuf::from);
    Namespaces {
        launcher: Launcher { program, arguments: Vec::new() },
        home: Some(root.join("home")),
        hidden: vec![root.join("home/.quipu")],
        visible: Vec::new(),
        doors: Doors::default(),
    }
}

impl World {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// The same place with another sandbox and environment. It goes with the first.
    pub(crate) fn with(&self, sandbox: Arc<Sandbox>, env: Vec<(String, Option<String>)>) -> Self {
        Self { way: self.way, dir: self.dir.clone(), sandbox, registry: Arc::default(), env }
    }

    pub(crate) async fn run(&self, command: &str) -> Result<(ShellEnd, String), ShellError> {
        self.run_in(Some(&self.sandbox), CommandNeeds::default(), command).await
    }

    pub(crate) async fn run_in(
        &self,
        sandbox: Option<&Sandbox>,
        needs: CommandNeeds,
        command: &str,
    ) -> Result<(ShellEnd, String), ShellError> {
        let limits = OutputLimits { lines: 2000, bytes: 50 * 1024, spill_bytes: 1 << 20 };
        let mut output = OutputBuffer::new(limits, &OutputPlace::as_printed(self.path("spill")));
        let cwd = self.path("ws");
        let shell = ShellCommand {
            owner: "run",
            command,
            cwd: &cwd,
            env: &self.env,
            timeout: Some(std::time::Duration::from_secs(120)),
            sandbox,
            needs,
        };
        let end = run_shell(shell, &self.registry, &CancellationToken::new(), &mut output, &|_| ()).await?;
        Ok((end, output.tail().to_owned()))
    }

    /// The workspace as each escape finds it. The directory itself stays: rules name it, not its path.
    pub(crate) fn fresh(&self) {
        for entry in fs::read_dir(self.path("ws")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open_up(&path);
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            }
            .unwrap();
        }
        fs::write(self.path("ws/inside"), "inside\n").unwrap();
        symlink(self.path("out"), self.path("ws/outlink")).unwrap();
    }
}

/// A copy of what is hidden is closed to its owner.
fn open_up(dir: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.is_symlink() {
            open_up(&path);
        }
    }
}

/// Names, kinds and contents of everything below.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let content = if path.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if path.is_dir() {
                open.push(path.clone());
                "directory".into()
            } else if path.is_file() {
                format!("{:?}", fs::read(&path).unwrap())
            } else {
                "something else".into()
            };
            found.insert(path, content);
        }
    }
    found
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

pub(crate) fn lines(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
}

#[tokio::test]
async fn no_escape_changes_what_is_outside() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        no_escape_changes_what_is_outside_in(world).await;
    }
}

async fn no_escape_changes_what_is_outside_in(world: World) {
    fs::write(world.path("out/file"), "content\n").unwrap();
    fs::create_dir(world.path("out/emptydir")).unwrap();
    fs::write(world.path("home/.bashrc"), "# mine\n").unwrap();
    let outside = |world: &World| {
        let mut all = snapshot(&world.path("out"));
        all.extend(snapshot(&world.path("home/.quipu")));
        all.insert(
            "root".into(),
            format!(
                "{:?}",
                fs::read_dir(world.path(""))
                    .unwrap()
                    .map(|e| e.unwrap().file_name())
                    .collect::<std::collections::BTreeSet<_>>()
            ),
        );
        all.insert("rc".into(), fs::read_to_string(world.path("home/.bashrc")).unwrap());
        all
    };
    world.fresh();
    // Makes the spill directory, if anything does, and shows that a command runs at all.
    assert_eq!(
        world.run("echo x > ran; echo y > $TMPDIR/t; cat ran $TMPDIR/t").await.unwrap(),
        (ShellEnd::Exited(0), "x\ny\n".into())
    );
    let before = outside(&world);
    let (mut tried, mut missing) = (0, Vec::new());
    for (program, escape) in lines(include_str!("escapes.txt")) {
        if !is_installed(program) {
            missing.push(program);
            continue;
        }
        for (prepare, out) in ROUTES {
            world.fresh();
            let command = escape.replace("{d}", out).replace("{}", &format!("{out}/file"));
            let (_, output) = world.run(&format!("{prepare} {command}")).await.unwrap();
            assert_eq!(outside(&world), before, "escaped: {prepare} {command}\n{output}");
            tried += 1;
        }
    }
    eprintln!("{tried} escapes tried; not installed: {missing:?}");
    assert!(tried >= 200, "{tried}");
}

#[cfg(target_os = "linux")]
struct Victim(std::process::Child);

#[cfg(target_os = "linux")]
impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_escape_reaches_other_processes() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        no_escape_reaches_other_processes_in(world).await;
    }
}

#[cfg(target_os = "linux")]
async fn no_escape_reaches_other_processes_in(world: World) {
    if SandboxSupport::of_this_system() != (SandboxSupport::Full { scoped: true }) {
        eprintln!("note: this kernel cannot confine signals; not tested");
        return;
    }
    let mut victim = Victim(
        Command::new("sleep").arg("1000").env("SECRET", VICTIMS_SECRET).stdin(Stdio::null()).spawn().unwrap(),
    );
    let name = format!("quipu-test-{}", std::process::id());
    use std::os::linux::net::SocketAddrExt as _;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (pid, us) = (victim.0.id(), std::process::id());
    let attack = |code: &str| format!("python3 -c '{code}'");
    let mut attacks: Vec<String> = Vec::new();
    for target in [pid, us] {
        attacks.extend(
            ["TERM", "KILL", "STOP", "HUP", "USR1", "INT"].map(|signal| format!("kill -{signal} {target}")),
        );
        attacks.push(format!("cat /proc/{target}/environ"));
        attacks.push(format!("cat /proc/{target}/mem"));
        attacks.push(format!("ls -l /proc/{target}/fd; cat /proc/{target}/fd/*; cat /proc/{target}/maps"));
        attacks.push(format!("echo x > /proc/{target}/fd/1"));
        attacks.push(format!("ls /proc/{target}/root/; echo x > /proc/{target}/cwd/escaped"));
        attacks.push(format!("for t in /proc/{target}/task/*; do cat $t/environ $t/mem; done"));
        attacks.push(format!("echo x > /proc/{target}/comm; echo 1000 > /proc/{target}/oom_score_adj"));
    }
    attacks.push("pkill -KILL -f 'sleep 1000'".into());
    attacks.push("kill -KILL -1".into());
    attacks.push(attack(&format!(
        "import ctypes,os; r=ctypes.CDLL(None).ptrace(16,{pid},0,0); print(\"traced\" if r==0 else \"no\")"
    )));
    attacks.push(attack(&format!("import ctypes,os; [print(\"traced\") for t in os.listdir(\"/proc/{us}/task\") if ctypes.CDLL(None).ptrace(16,int(t),0,0)==0]")));
    attacks.push(attack(&format!(
        "import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\"); print(\"connected\")"
    )));
    let tried = attacks.len();
    for attack in attacks {
        let (_, output) = world.run(&attack).await.unwrap();
        // The kernel lets the administrator read any environment, whatever a sandbox says.
        let readable = nix::unistd::geteuid().is_root() && attack.contains("environ");
        for word in [VICTIMS_SECRET, "traced", "connected"] {
            assert!(readable || !output.contains(word), "{attack}\n{output}");
        }
        assert!(victim.0.try_wait().unwrap().is_none(), "killed by: {attack}");
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(!state.contains(") T "), "stopped by: {attack}");
        assert!(listener.accept().is_err(), "{attack}");
    }
    eprintln!("{tried} attacks tried");
}

/// What an agent does all day. A line is a program that must be there and a command that must succeed.
#[tokio::test]
async fn everyday_commands_work() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        everyday_commands_work_in(world).await;
    }
}

async fn everyday_commands_work_in(world: World) {
    let home = world.path("home");
    fs::write(
        home.join(".gitconfig"),
        "[user]\nname = T\nemail = t@example.com\n[init]\ndefaultBranch = main\n",
    )
    .unwrap();
    let (mut tried, mut missing, mut failed) = (0, Vec::new(), Vec::new());
    for (program, command) in lines(include_str!("everyday.txt")) {
        if !is_installed(program) {
            missing.push(program);
            continue;
        }
        world.fresh();
        let (end, output) = world.run(&format!("set -e; {command}")).await.unwrap();
        if end != ShellEnd::Exited(0) {
            failed.push(format!("{end:?}: {command}\n{output}"));
        }
        tried += 1;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    missing.dedup();
    eprintln!("{tried} commands tried; not installed: {missing:?}");
    assert!(tried >= 40, "{tried}");
}

/// What makes a command wait until it may begin is not to be seen in what it does.
#[tokio::test]
async fn a_confined_command_is_the_same_command() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        a_confined_command_is_the_same_command_in(world).await;
    }
}

async fn a_confined_command_is_the_same_command_in(mut world: World) {
    let prepared = world.path("home/prepare");
    fs::write(&prepared, "prepared=yes\nread() { echo not this one; }\nexport -f read\n").unwrap();
    let commands = [
        "",
        "echo $LINENO $0 $# $? [$prepared]; cat; unset x; read -r x; echo $? $x",
        "not-a-command",
        "\n\nnot-a-command; exit 3",
        "echo a\nif",
        "# a comment\necho a",
        "false",
        "! true",
        "set -e; false; echo b",
        "set -x; echo a",
        "set -u; echo $unset",
        "cat <<X\n$LINENO\nX",
        "trap 'echo bye' EXIT; echo hi",
        "f() { echo $LINENO; }\nf",
        "kill -TERM $$",
        "exec sh -c 'exit 7'",
        "echo $(( 1 + ",
        "echo \"open",
    ];
    let function = ("BASH_FUNC_read%%".to_owned(), Some("() { return 1; }".to_owned()));
    let file = ("BASH_ENV".to_owned(), Some(prepared.display().to_string()));
    let options = ("SHELLOPTS".to_owned(), Some("verbose:nounset".to_owned()));
    for more in [None, Some(function), Some(file), Some(options)] {
        let plain = more.is_none();
        world.env.truncate(5);
        world.env.extend(more);
        for command in commands {
            let (end, output) = world.run(command).await.unwrap();
            let (free_end, free_output) = world.run_in(None, CommandNeeds::default(), command).await.unwrap();
            assert_eq!((end, &output), (free_end, &free_output), "{command:?} {:?}", world.env.get(5));
            assert!(!output.contains("QUIPU"), "{output}");
        }
        // The one thing that is to be seen: bash shows the line that it cannot read.
        let (end, output) = world.run("echo )").await.unwrap();
        assert_eq!(end, ShellEnd::Exited(2));
        assert!(output.contains("line 1: syntax error near unexpected token `)'"), "{output}");
        assert!(!plain || output.contains("exit; echo )'"), "{output}");
    }
}

#[tokio::test]
async fn commands_of_a_session_can_signal_each_other_and_end_with_it() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        commands_of_a_session_can_signal_each_other_and_end_with_it_in(world).await;
    }
}

async fn commands_of_a_session_can_signal_each_other_and_end_with_it_in(world: World) {
    world.run("sleep 1000 & echo $! > pid").await.unwrap();
    assert_eq!(world.registry.alive(), 1);
    let (end, output) = world.run("kill $(cat pid) && echo done").await.unwrap();
    assert_eq!((end, output.as_str()), (ShellEnd::Exited(0), "done\n"));
    world.run("setsid sleep 1000 & sleep 1000 & echo $! > pid").await.unwrap();
    world.registry.kill_all();
    assert_eq!(world.registry.alive(), 0);
    let (_, state) = world.run("cat /proc/$(cat pid)/stat || true").await.unwrap();
    assert!(state.contains("No such file") || state.contains(") Z "), "{state}");
    let temporary = world.sandbox.temporary().unwrap();
    assert!(temporary.is_dir());
    drop(world);
    assert!(!temporary.exists(), "the directory for temporary files goes with the sandbox");
}

#[tokio::test]
async fn git_works_in_worktrees_and_cannot_be_lured() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        git_works_in_worktrees_and_cannot_be_lured_in(world).await;
    }
}

async fn git_works_in_worktrees_and_cannot_be_lured_in(world: World) {
    if !is_installed("git") {
        eprintln!("note: git is not installed");
        return;
    }
    let root = world.path("");
    let git = |args: &[&str], dir: &str| {
        let status = Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"])
            .args(args)
            .current_dir(root.join(dir))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{args:?}");
    };
    fs::create_dir_all(root.join("main/below")).unwrap();
    git(&["init", "-q"], "main");
    fs::write(root.join("main/below/f"), "1").unwrap();
    git(&["add", "."], "main");
    git(&["commit", "-qm", "one"], "main");
    git(&["worktree", "add", "-q", "../tree"], "main");
    fs::create_dir(root.join("super")).unwrap();
    git(&["init", "-q"], "super");
    git(&["submodule", "add", "-q", "../main", "sub"], "super");
    let check = async |dir: &str, works: bool| {
        let cwd = root.join(dir);
        let mut write = vec![cwd.clone()];
        write.extend(git_directories(&cwd));
        let sandbox = Sandbox::new(write);
        let limits = OutputLimits { lines: 2000, bytes: 50 * 1024, spill_bytes: 1 << 20 };
        let mut output = OutputBuffer::new(limits, &OutputPlace::as_printed(world.path("spill")));
        let command = "git config user.name; echo x >> g && git add g && git -c user.name=T -c user.email=t@e commit -qm two";
        let shell = ShellCommand {
            owner: "run",
            command,
            cwd: &cwd,
            env: &world.env,
            timeout: None,
            sandbox: Some(&sandbox),
            needs: CommandNeeds::default(),
        };
        let end =
            run_shell(shell, &world.registry, &CancellationToken::new(), &mut output, &|_| ()).await.unwrap();
        assert_eq!(end == ShellEnd::Exited(0), works, "{dir}: {}", output.tail());
    };
    check("main", true).await;
    check("main/below", true).await;
    check("tree", true).await;
    check("super/sub", true).await;

    // A `.git` file that names something which does not point back grants nothing.
    fs::create_dir_all(root.join("lure/fake")).unwrap();
    for text in [
        "gitdir: ../out\n",
        "gitdir: ../main/.git\n",
        "gitdir: ../main/.git/worktrees/tree\n",
        "gitdir: /\n",
        "gitdir: fake\n",
        "nonsense",
        "",
    ] {
        fs::write(root.join("lure/.git"), text).unwrap();
        assert_eq!(git_directories(&root.join("lure")), Vec::<PathBuf>::new(), "{text}");
    }
    fs::write(root.join("lure/.git"), "gitdir: fake\n").unwrap();
    fs::write(root.join("lure/fake/gitdir"), root.join("lure/.git").display().to_string()).unwrap();
    fs::write(root.join("lure/fake/commondir"), root.join("out").display().to_string()).unwrap();
    fs::write(root.join("lure/fake/config"), "[core]\n\tworktree = ..\n").unwrap();
    assert_eq!(git_directories(&root.join("lure")), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn the_network_can_be_closed() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        the_network_can_be_closed_in(world).await;
    }
}

async fn the_network_can_be_closed_in(mut world: World) {
    if world.way == Way::Namespaces {
        // See `namespaces`.
        return;
    }
    if let Some(why) = Sandbox::network_stays_open() {
        eprintln!("note: {why}; not tested");
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reach = [
        ("bash", format!("echo x > /dev/tcp/127.0.0.1/{port}")),
        ("bash", format!("echo x > /dev/udp/127.0.0.1/{port}")),
        ("python3", format!("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\",{port}))'")),
        ("python3", "python3 -c 'import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)'".into()),
        ("python3", "python3 -c 'import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)'".into()),
        ("python3", "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(425,8,ctypes.create_string_buffer(256)) < 0)'".into()),
        ("perl", "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) or die'".into()),
    ];
    let (end, _) = world.run(&reach[0].1).await.unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "it is open first");
    world.sandbox = Arc::new(Sandbox::new(vec![world.path("ws")]).with_network(Network::Closed));
    for (program, command) in &reach {
        if is_installed(program) {
            let (end, output) = world.run(command).await.unwrap();
            assert_ne!(end, ShellEnd::Exited(0), "{command}: {output}");
        }
    }
    let local = "python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"s\"); s.listen(); socket.socket(socket.AF_UNIX).connect(\"s\")'";
    for command in ["echo x > f; cat f | grep x", "sleep 0.01 & wait", local] {
        assert_eq!(world.run(command).await.unwrap().0, ShellEnd::Exited(0), "{command}");
    }
}

#[tokio::test]
async fn device_nodes_cannot_be_made() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        device_nodes_cannot_be_made_in(world).await;
    }
}

async fn device_nodes_cannot_be_made_in(world: World) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("note: only an administrator could make device nodes, so this is not tested");
        return;
    }
    for place in [".", "$TMPDIR", "/dev/shm"] {
        for node in ["c 1 3", "b 7 0"] {
            let (end, text) = world.run(&format!("mknod {place}/made-here {node}")).await.unwrap();
            assert!(!matches!(end, ShellEnd::Exited(0)), "{place} {node}: {text}");
        }
    }
    let (end, text) = world.run("mkfifo pipe && test -p pipe && rm pipe").await.unwrap();
    assert!(matches!(end, ShellEnd::Exited(0)), "{text}");
}

#[tokio::test]
async fn temporary_directory_is_private_whatever_the_umask() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        temporary_directory_is_private_whatever_the_umask_in(world).await;
    }
}

async fn temporary_directory_is_private_whatever_the_umask_in(world: World) {
    let (_, text) = world.run("umask 0; stat -c %a \"$TMPDIR\"").await.unwrap();
    assert_eq!(text.trim(), "700");
}

/// An administrator tries all of this, and what is in namespaces, as a user without any rights, too.
#[test]
fn confinement_tests_pass_for_a_normal_user() {
    use std::os::unix::fs::PermissionsExt as _;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let base = tempfile::Builder::new().prefix("quipu-normal-").tempdir_in(shown()).unwrap();
    let launcher = base.path().join("quipu-sandbox");
    fs::copy(env!("CARGO_BIN_EXE_quipu-sandbox"), &launcher).unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "confined::",
            "namespaces::",
            "private_caches::",
            "--skip",
            "confinement_tests_pass_for_a_normal_user",
        ])
        .env(UNPRIVILEGED, "1")
        .env(LAUNCHER, &launcher)
        .env(SHOWN, base.path())
        .env("HOME", base.path())
        // That user's own one lets nobody in.
        .env("SHELL", "/bin/sh")
        .env_remove("CARGO_HOME")
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
