//! What a task may do: by default, asked at a terminal, kept, listed and revoked.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// Whether commands can be confined here. Where they cannot, that is what is tested.
pub(crate) fn confined() -> bool {
    let world = World::new([]);
    let found = world.run(&["doctor", "--json"]).ok().json();
    let findings = found["findings"].as_array().unwrap().clone();
    let here = findings.iter().find(|finding| finding["what"] == "permissions").unwrap();
    let confined = here["detail"].as_str().unwrap().contains("commands are confined");
    if !confined {
        eprintln!("note: {}", here["detail"]);
    }
    confined
}

/// Whether they run in namespaces.
pub(crate) fn isolated() -> bool {
    let world = World::new([]);
    confined() && !world.run(&["doctor"]).text().contains("without namespaces")
}

/// The results that the model was told in the last request, failures first marked with `!`.
pub(crate) fn results(world: &World) -> Vec<String> {
    let last = messages(world.requests().last().unwrap()).pop().unwrap();
    let blocks = last["content"].as_array().unwrap().clone();
    let results = blocks.iter().filter(|block| block["type"] == "tool_result");
    results
        .map(|block| format!("{}{}", if block["is_error"] == true { "!" } else { "" }, wire_text(block)))
        .collect()
}

fn does(world: &World, args: &[&str], calls: &[(&str, Value)]) -> Vec<String> {
    let mut answer = Answer::new();
    for (at, (tool, arguments)) in calls.iter().enumerate() {
        answer = answer.tool_call(&format!("c{at}"), tool, &arguments.to_string());
    }
    world.server.push(answer.reply());
    world.server.push(Answer::new().text("I see.").reply());
    world.run(&[args, &["-p", "go on"]].concat()).ok();
    results(world)
}

fn file(path: &str) -> (&'static str, Value) {
    ("write", json!({ "path": path, "content": "x" }))
}

fn command(line: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": line }))
}

#[test]
fn a_task_is_confined_to_its_workspace() {
    let world = World::new([]);
    std::fs::create_dir(world.path("added")).unwrap();
    let calls = [
        command("echo x > in; cat in"),
        command("echo x > ../out"),
        command("echo '{}' > ~/.quipu/permissions.json"),
        file("in2"),
        file("../out2"),
        file("../added/f"),
        file("../home/.quipu/permissions.json"),
        ("read", json!({ "path": "../home/.quipu/models.json" })),
    ];
    let told = does(&world, &[], &calls);
    if confined() {
        assert_eq!(told[0], "x\n");
    } else {
        assert!(told[0].contains("nobody is here") && told[0].contains("--permissions full"), "{}", told[0]);
    }
    for refused in [1, 2, 4, 5, 6, 7] {
        assert!(told[refused].starts_with('!'), "{}", told[refused]);
    }
    assert!(told[4].contains("nobody is here") && told[4].contains("outside the workspace"), "{}", told[4]);
    assert!(told[6].contains("Quipu's own files"), "{}", told[6]);
    assert!(!told[3].starts_with('!'));
    for absent in ["out", "out2", "added/f", "home/.quipu/permissions.json"] {
        assert!(!world.path(absent).exists(), "{absent}");
    }
    let left: Vec<_> = std::fs::read_dir(world.path("tmp")).unwrap().collect();
    assert!(left.is_empty(), "the directory for temporary files goes with the session: {left:?}");
    // An added directory is kept for this workspace, and for this one alone.
    let told = does(&world, &["--add-dir", "../added"], &[file("../added/f")]);
    assert!(!told[0].starts_with('!'), "{}", told[0]);
    let told = does(&world, &[], &[file("../added/g"), command("echo x > ../added/h")]);
    assert!(!told[0].starts_with('!'), "{}", told[0]);
    assert_eq!(world.path("added/h").exists(), confined());
    let mode = std::fs::metadata(world.path("home/.quipu/permissions.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let listed = world.run(&["permissions", "--json"]).ok().json_lines();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["mode"], &listed[0]["entries"][0]["id"]), (&json!("workspace"), &json!("p1")));
    world.run(&["permissions", "revoke", "p1"]).ok();
    let told = does(&world, &[], &[file("../added/g")]);
    assert!(told[0].starts_with('!'), "{}", told[0]);
    world.run(&["permissions", "revoke", "p1"]).fails(2, &["p1", "quipu permissions list"]);
}

#[test]
fn modes_are_kept_for_their_directory() {
    let world = World::new([]);
    let outside = [file("../out"), command("echo x > ../out2")];
    let told = does(&world, &["--permissions", "full"], &outside);
    assert!(told.iter().all(|told| !told.starts_with('!')), "{told:?}");
    assert!(world.path("out").exists() && world.path("out2").exists());
    assert!(!does(&world, &[], &outside)[0].starts_with('!'), "it is kept");
    assert!(world.run(&["doctor"]).ok().text().contains("full in "));
    let told = does(
        &world,
        &["--permissions", "ask"],
        &[file("in"), command("true"), ("read", json!({ "path": "in" }))],
    );
    assert!(told[0].contains("asks before every change") && told[1].contains("nobody is here"), "{told:?}");
    assert!(told[2].contains("ENOENT"), "reading is free: {}", told[2]);
    world.run(&["permissions", "set", "workspace"]).ok();
    assert!(does(&world, &[], &outside)[0].starts_with('!'));
    // A run that keeps nothing keeps no permission either.
    does(&world, &["--no-session", "--permissions", "full"], &outside);
    world.unchecked();
    assert!(does(&world, &[], &outside)[0].starts_with('!'));
    world.run(&["permissions", "set", "all"]).exits(2);
    world
        .run(&["-p", "x", "--add-dir", "nowhere"])
        .fails(2, &["nowhere is not a directory that can be added"]);
}

#[test]
fn a_damaged_file_of_permissions_stops_a_task() {
    let world = World::new([]);
    let path = world.path("home/.quipu/permissions.json");
    for text in ["{", "[]", r#"{"version":2,"projects":{}}"#, "\u{0}"] {
        std::fs::write(&path, text).unwrap();
        world.run(&["-p", "x"]).fails(1, &["permissions.json", "correct it"]);
        world.run(&["permissions", "set", "full"]).fails(1, &["permissions.json"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is left as it is");
    }
    assert!(world.requests().is_empty());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn nothing_is_kept_for_a_directory_whose_name_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new([]);
    let dir = world.path("work").join(std::ffi::OsStr::from_bytes(b"\xff"));
    if std::fs::create_dir(&dir).is_err() {
        eprintln!("note: this file system takes only text; not tested");
        return;
    }
    let mut quipu = world.quipu(&["permissions", "set", "full"]);
    quipu.current_dir(&dir);
    RunningCommand::start(quipu).wait().fails(2, &["not text"]);
    let mut quipu = world.quipu(&["doctor"]);
    quipu.current_dir(&dir);
    assert!(RunningCommand::start(quipu).wait().ok().text().contains("workspace in"));
}

#[test]
fn the_workspace_may_not_hold_our_own_files() {
    let world = World::new([]);
    world.server.push(bash("c1", "echo x > ran"));
    world.server.push(Answer::new().text("I see.").reply());
    let mut quipu = world.quipu(&["-p", "go on"]);
    quipu.current_dir(world.path("home"));
    let ran = RunningCommand::start(quipu).wait().ok();
    assert!(ran.err.contains("own files") || !confined(), "{}", ran.err);
    assert!(results(&world)[0].contains("nobody is here"));
    assert!(!world.path("home/ran").exists());
}

/// Runs a task at a terminal of its own and types these lines; what was shown.
pub(crate) fn at_terminal(world: &World, calls: Vec<Reply>, typed: &str) -> Option<String> {
    let script = ["/usr/bin/script", "/bin/script"].iter().find(|path| std::path::Path::new(path).exists());
    let Some(script) = script.filter(|_| cfg!(target_os = "linux")) else {
        eprintln!("note: `script` of util-linux is not here; asking at a terminal is not tested");
        return None;
    };
    for reply in calls {
        world.server.push(reply);
    }
    let program = format!("{} -p 'go on'", world.program.display());
    let mut command = world.command(script);
    command.args(["-qec", &program, "/dev/null"]).stdin(Stdio::piped());
    let mut running = RunningCommand::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    // Each answer is typed when its question is there: what was typed before does not count.
    for line in typed.lines() {
        loop {
            let shown = running.line().expect("a question");
            if shown.contains("y once") {
                break;
            }
        }
        std::io::Write::write_all(&mut stdin, format!("{line}\r").as_bytes()).unwrap();
    }
    let ran = running.wait().ok();
    drop(stdin);
    Some(ran.text())
}

#[test]
fn a_person_at_the_terminal_decides() {
    let world = World::new([]);
    let write = |path: &str| call("c1", "write", &json!({ "path": path, "content": "x" }));
    let done = || Answer::new().text("I see.").reply();
    if at_terminal(&world, vec![write("../once"), done()], "what?\ny").is_none() {
        return;
    }
    assert!(world.path("once").exists());
    at_terminal(&world, vec![write("../no"), done()], "n not there").unwrap();
    assert!(!world.path("no").exists());
    assert!(
        results(&world)[0].contains("The user did not allow this call: not there"),
        "{:?}",
        results(&world)
    );
    // For this session: asked once, and again by the next.
    at_terminal(&world, vec![write("../session"), write("../session"), done()], "s").unwrap();
    assert!(does(&world, &[], &[file("../session")])[0].starts_with('!'));
    // For good, and exactly that.
    at_terminal(&world, vec![write("../always"), done()], "a").unwrap();
    let told = does(&world, &[], &[file("../always"), file("../always2")]);
    assert!(!told[0].starts_with('!') && told[1].starts_with('!'), "{told:?}");
    let listed = world.run(&["permissions", "list"]).ok().text();
    assert!(listed.contains("p1") && listed.contains("write") && listed.contains("/always"), "{listed}");
    world.run(&["permissions", "revoke", "p1"]).ok();
    assert!(does(&world, &[], &[file("../always")])[0].starts_with('!'));
    // Secrets are never allowed for good.
    std::fs::create_dir(world.path("home/.ssh")).unwrap();
    std::fs::write(world.path("home/.ssh/config"), "Host h").unwrap();
    let read = call("c1", "read", &json!({ "path": "~/.ssh/config" }));
    let shown = at_terminal(&world, vec![read, done()], "a\ny").unwrap();
    assert!(shown.contains("Programs keep secrets there.") && !shown.contains("a always"), "{shown}");
    assert!(results(&world)[0].contains("Host h"));
    assert!(does(&world, &[], &[("read", json!({ "path": "~/.ssh/config" }))])[0].starts_with('!'));
}

#[test]
fn later_command_can_stop_an_earlier_server() {
    let world = World::new([]);
    if !confined() {
        return;
    }
    world.server.push(bash("c1", "sleep 1000 & echo $! > pid"));
    let told = does(&world, &[], &[command("kill $(cat pid) && echo stopped")]);
    assert_eq!(told, ["stopped\n"]);
}

#[test]
fn the_list_of_what_commands_may_write_is_a_setting() {
    let world = World::new([]);
    if !confined() {
        return;
    }
    for made in ["home/.cache", "extra"] {
        std::fs::create_dir(world.path(made)).unwrap();
    }
    let both =
        [command("echo x > ~/.cache/f"), command(&format!("echo x > {}/f", world.path("extra").display()))];
    let told = does(&world, &[], &both);
    assert!(!told[0].starts_with('!') && told[1].starts_with('!'), "{told:?}");
    let settings = |write: Value| {
        let text = json!({ "retry": { "baseDelayMs": 1 }, "sandbox": { "write": write } }).to_string();
        std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
    };
    settings(json!([world.path("extra")]));
    let told = does(&world, &[], &both);
    assert!(told[0].starts_with('!') && !told[1].starts_with('!'), "{told:?}");
    settings(json!(["default", "~/../extra", 7, "relative"]));
    let told = does(&world, &[], &both);
    assert!(told.iter().all(|told| !told.starts_with('!')), "{told:?}");
}

#[test]
fn commands_can_be_kept_off_the_network() {
    let world = World::new([]);
    let connect = command(&format!(
        "echo x > /dev/tcp/127.0.0.1/{}",
        world.server.url().rsplit(':').next().unwrap().trim_end_matches('/')
    ));
    if confined() {
        let set = |sandbox: Value| {
            std::fs::write(
                world.path("home/.quipu/settings.json"),
                json!({ "sandbox": sandbox }).to_string(),
            )
            .unwrap();
        };
        let connects =
            |args: &[&str]| !does(&world, args, std::slice::from_ref(&connect))[0].starts_with('!');
        set(json!({ "namespaces": false }));
        assert!(connects(&[]));
        assert!(!connects(&["--no-network"]));
        assert!(connects(&[]), "nothing is kept of it");
        set(json!({ "namespaces": false, "network": "closed" }));
        assert!(!connects(&[]));
        set(json!({ "network": "open" }));
        assert!(connects(&[]));
        set(json!({ "network": "everything" }));
        assert!(!connects(&[]) || !isolated());
    }
    world
        .run(&["-p", "x", "--no-network", "--allow", "network"])
        .fails(2, &["--no-network", "--allow network"]);
    world.run(&["-p", "x", "--no-network", "--permissions", "full"]).fails(2, &["--no-network", "full"]);
}

#[test]
fn first_command_makes_caches_in_a_fresh_home() {
    let world = World::new([]);
    if !confined() {
        return;
    }
    let cache = world.path("home/.cache");
    does(&world, &[], &[file("in")]);
    assert!(!cache.exists(), "only commands need it");
    assert_eq!(does(&world, &["--permissions", "full"], &[command("ls -A ~")]), [".quipu\n"]);
    let told =
        does(&world, &["--permissions", "workspace"], &[command("echo x > ~/.cache/f; cat ~/.cache/f")]);
    assert_eq!((told[0].as_str(), mode(&cache)), ("x\n", 0o700));
    assert!(!world.path("home/.bun").exists() || Command::new("bun").output().is_ok());
    // A list of one's own is made by oneself.
    std::fs::remove_dir_all(&cache).unwrap();
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"sandbox":{"write":["~/.cache"]}}"#).unwrap();
    assert!(does(&world, &[], &[command("echo x > ~/.cache/f")])[0].starts_with('!'));
    assert!(!cache.exists());
}

#[test]
fn no_command_chooses_what_later_commands_may_write() {
    for caches in ["shared", "private"] {
        no_command_chooses_what_later_commands_may_write_with(caches);
    }
}

fn no_command_chooses_what_later_commands_may_write_with(caches: &str) {
    let world = World::new([]);
    if !confined() {
        return;
    }
    let settings = json!({ "sandbox": { "caches": caches } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    for made in ["home/secret", "shared/added"] {
        std::fs::create_dir_all(world.path(made)).unwrap();
    }
    let run = |dir: &str, args: &[&str], line: &str| {
        world.server.push(bash("c1", line));
        world.server.push(Answer::new().text("I see.").reply());
        let mut quipu = world.quipu(&[args, &["-p", "go on"]].concat());
        quipu.current_dir(world.path(dir));
        quipu.env("GOCACHE", world.path("home/.cache/go-build")).env("CARGO_HOME", world.path("work/.cargo"));
        RunningCommand::start(quipu).wait().ok()
    };
    // A cache below another one, one in the workspace, and a directory that was added, each exchanged for a link.
    run(
        "work",
        &["--add-dir", "../shared/added"],
        "mkdir .cargo ~/.cache/go-build; echo x > ../shared/added/f",
    );
    assert!(world.path("shared/added/f").exists());
    run("shared", &[], "rm -r added; ln -s ~/secret added");
    run(
        "work",
        &[],
        "rm -r .cargo ~/.cache/go-build; ln -s ~/secret .cargo; ln -s ~/secret ~/.cache/go-build",
    );
    assert_eq!(world.path("home/.cache/go-build").is_symlink(), caches == "shared");
    assert!(world.path("shared/added").is_symlink());
    let ran = run(
        "work",
        &[],
        "for d in .cargo/registry .cargo ~/.cache/go-build ../shared/added; do mkdir -p $d; echo x > $d/f; done",
    );
    assert!(
        ran.err.contains("shared/added now leads to") && ran.err.contains("quipu permissions revoke p1"),
        "{}",
        ran.err
    );
    let left: Vec<_> = std::fs::read_dir(world.path("home/secret")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A command that asks for more.
fn asking(line: &str, more: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": line, more: true, "reason": "the registry" }))
}

#[test]
fn network_is_asked_and_can_be_allowed_beforehand() {
    if !isolated() {
        return;
    }
    let world = World::new([]);
    let port = world.server.url().rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let line = format!("echo x > /dev/tcp/127.0.0.1/{port}");
    let told = does(
        &world,
        &[],
        &[command(&line), asking(&line, "network"), command("getent hosts example.invalid; exit 2")],
    );
    assert!(told[0].starts_with('!'), "{}", told[0]);
    assert!(told[1].contains("nobody is here") && told[1].contains("use the network"), "{}", told[1]);
    assert!(told[1].contains("the registry"), "{}", told[1]);
    let told = does(&world, &["--allow", "network"], &[command(&line), asking(&line, "network")]);
    assert!(told[0].starts_with('!') && !told[1].starts_with('!'), "{told:?}");
    let told = does(&world, &["--no-network"], &[asking(&line, "network")]);
    assert!(told[0].contains("keeps commands off the network"), "{}", told[0]);
    // It is told when it was met.
    let told = does(&world, &[], &[command("echo 'curl: (6) Could not resolve host: example.com'; exit 6")]);
    assert!(told[0].contains("`network` asks"), "{}", told[0]);
    let told = does(&world, &[], &[command("touch ~/new")]);
    assert!(told[0].contains("Read-only") && told[0].contains("`protected`"), "{}", told[0]);
}

#[test]
fn configuration_files_need_permission_in_every_tool() {
    let world = World::new([]);
    world.file("AGENTS.md", "mine\n");
    std::fs::create_dir_all(world.path("work/.git/hooks")).unwrap();
    let edit = ("edit", json!({ "path": "AGENTS.md", "edits": [{ "oldText": "mine", "newText": "yours" }] }));
    let told = does(
        &world,
        &[],
        &[
            file("AGENTS.md"),
            edit.clone(),
            file(".git/hooks/pre-commit"),
            file(".vscode/tasks.json"),
            file("src/a"),
        ],
    );
    for refused in &told[..4] {
        assert!(refused.contains("nobody is here") && refused.contains("configures"), "{refused}");
    }
    assert!(!told[4].starts_with('!'));
    if isolated() {
        let lines = ["echo x > AGENTS.md", "echo x > .git/hooks/pre-commit"];
        let told = does(&world, &[], &[command(lines[0]), command(lines[1]), asking(lines[0], "protected")]);
        assert!(told.iter().all(|told| told.starts_with('!')), "{told:?}");
        assert!(told[2].contains("A person can allow that in advance"), "{}", told[2]);
        let told = does(
            &world,
            &["--allow", "protected"],
            &[edit, command(lines[0]), asking(lines[1], "protected")],
        );
        assert!(
            !told[0].starts_with('!') && told[1].starts_with('!') && !told[2].starts_with('!'),
            "{told:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(world.path("work/AGENTS.md")).unwrap() == "yours\n", isolated());
}

#[test]
fn own_files_and_secrets_are_hidden_from_commands() {
    if !isolated() {
        return;
    }
    let world = World::new([]);
    std::fs::create_dir(world.path("home/.ssh")).unwrap();
    std::fs::write(world.path("home/.ssh/key"), "the-private-key").unwrap();
    let look = "cat ~/.ssh/key; cat ~/.quipu/models.json; ls ~/.quipu ~/.ssh; true";
    let told = does(&world, &[], &[command(look), command("seq 100000")]);
    assert!(!told[0].contains("private-key") && !told[0].contains("quipu.db"), "{}", told[0]);
    let path = told[1].split("Full output: ").nth(1).unwrap().trim_end_matches(']').to_owned();
    let told = does(&world, &["-c"], &[command(&format!("wc -l < {path}"))]);
    assert_eq!(told[0], "100000\n", "kept outputs can be read");
}

#[test]
fn model_reads_what_was_closed_and_how_to_ask() {
    if !isolated() {
        return;
    }
    let world = World::new([]);
    std::fs::create_dir(world.path("home/.ssh")).unwrap();
    let makes = "git init -q . && git config user.email a@b && git config user.name a && echo 1 > AGENTS.md && git add . && git \
         commit -qm 1 && git checkout -qb other && echo 2 > AGENTS.md && git commit -qam 2";
    assert_eq!(does(&world, &[], &[command(makes)])[0], "(no output)");
    let lines = [
        "git checkout -q -; git log --oneline | wc -l",
        "git config a.b c",
        "unshare -U true",
        "cat ~/.ssh/key",
        "cat < /dev/tcp/127.0.0.1/1",
        "echo 'curl: (6) Could not resolve host: a' | tail -1",
        "echo '    \"ENOTFOUND\", \"EROFS\"'",
        "echo 'fatal: Authentication failed'; false",
        "echo 'Cannot connect to the Docker daemon at unix:///run/docker.sock'; false",
    ];
    let told = does(&world, &[], &lines.map(command));
    let says = [
        "`protected` asks",
        "`protected` asks",
        "namespaces of their own",
        "are hidden",
        "On localhost",
        "`network` asks",
        "",
        "are hidden",
        "`sandbox.services`",
    ];
    for ((line, told), says) in lines.iter().zip(&told).zip(says) {
        assert!(if says.is_empty() { !told.contains("[Co") } else { told.contains(says) }, "{line}: {told}");
    }
    let settings = |network: &str| {
        let settings = json!({ "sandbox": { "network": network } }).to_string();
        std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
    };
    let fails = "echo 'curl: (6) Could not resolve host: a'; false";
    settings("open");
    let told = does(&world, &[], &[command(fails)]);
    assert!(!told[0].contains('['), "{}", told[0]);
    settings("closed");
    let told = does(&world, &[], &[command(fails), asking("true", "network")]);
    assert!(told[0].contains("denies commands the network") && !told[0].contains("asks"), "{}", told[0]);
    assert!(told[1].contains("sandbox.network"), "{}", told[1]);
}

#[test]
fn ports_and_services_pass_when_they_are_set() {
    if !isolated() {
        return;
    }
    let world = World::new([]);
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap();
    let answer = std::thread::spawn(move || {
        let (mut connected, _) = service.accept().unwrap();
        std::io::Write::write_all(&mut connected, b"from the host").unwrap();
    });
    let socket = world.path("tmp/service");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let set = |sandbox: Value| {
        std::fs::write(world.path("home/.quipu/settings.json"), json!({ "sandbox": sandbox }).to_string())
            .unwrap();
    };
    let connect = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{}\")'",
        socket.display()
    );
    let told = does(&world, &[], &[command(&connect)]);
    assert!(told[0].starts_with('!') && listener.accept().is_err(), "{told:?}");
    // Taken and given back, so that it is free.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    set(json!({ "services": [address.to_string(), socket], "ports": [port] }));
    // A server may listen on either address of `localhost`.
    let serve = |address: &str, family: &str| {
        format!(
            "rm -f up done; python3 -c 'import socket\ns=socket.create_server((\"{address}\",{port}),family=socket.{family})\nopen(\"up\",\"w\")\nc,_=s.accept()\nc.sendall(b\"from inside\")\nc.close()' & while ! test -e up; do sleep 0.01; done; while ! test -e done; do sleep 0.01; done"
        )
    };
    let (up, done) = (world.path("work/up"), world.path("work/done"));
    let reader = move || {
        while !up.exists() {
            std::thread::yield_now();
        }
        let mut said = String::new();
        let mut connected = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::io::Read::read_to_string(&mut connected, &mut said).unwrap();
        std::fs::write(&done, "").unwrap();
        said
    };
    let reads = std::thread::spawn(reader.clone());
    let told = does(
        &world,
        &[],
        &[
            command(&connect),
            command(&format!("cat < /dev/tcp/127.0.0.1/{}", address.port())),
            command(&serve("127.0.0.1", "AF_INET")),
        ],
    );
    assert_eq!(told[1], "from the host", "{told:?}");
    assert!(!told[0].starts_with('!') && listener.accept().is_ok(), "{told:?}");
    assert_eq!(reads.join().unwrap(), "from inside");
    answer.join().unwrap();
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        std::fs::remove_file(world.path("work/up")).unwrap();
        let reads = std::thread::spawn(reader);
        does(&world, &[], &[command(&serve("::1", "AF_INET6"))]);
        assert_eq!(reads.join().unwrap(), "from inside");
    }
    set(json!({ "services": ["/nowhere/socket"], "port": [3000] }));
    let ran = world.run(&["doctor"]).ok();
    for words in [
        "there is no setting sandbox.port. Did you mean sandbox.ports?",
        "/nowhere/socket, which does not exist",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    set(json!({ "services": ["nonsense", 7], "ports": [0, "x", 70_000] }));
    let ran = world.run(&["doctor"]).ok();
    assert!(ran.err.matches("it is ignored").count() >= 5, "{}", ran.err);
}

#[test]
fn rules_that_a_command_made_count_once_they_are_accepted() {
    let world = World::new([]);
    if !confined() {
        return;
    }
    let system = |world: &World| world.requests().last().unwrap().json()["system"].to_string();
    let asked = |world: &World| {
        world.server.push(Answer::new().text("Hello.").reply());
        let ran = world.run(&["-p", "hello"]).ok();
        (system(world).contains("planted-rule"), ran.err)
    };
    does(&world, &[], &[command("echo planted-rule > AGENTS.md")]);
    let (reads, said) = asked(&world);
    assert!(
        !reads && said.contains("AGENTS.md was created by a command") && said.contains("permissions accept"),
        "{said}"
    );
    world.run(&["permissions", "accept", "nowhere.md"]).fails(2, &["nowhere.md"]);
    world.run(&["permissions", "accept", "AGENTS.md"]).ok();
    assert!(world.run(&["permissions"]).ok().text().contains("rules"));
    assert!(asked(&world).0);
    // As it was then, and not as a command makes it later.
    std::fs::remove_file(world.path("work/AGENTS.md")).unwrap();
    does(&world, &[], &[command("echo another planted-rule > AGENTS.md")]);
    assert!(!asked(&world).0);
    // What a person wrote counts, also where a command wrote before.
    world.file("AGENTS.md", "planted-rule by hand");
    let (reads, said) = asked(&world);
    assert!(reads && !said.contains("created by a command"), "{said}");
    // So does what was asked.
    std::fs::remove_file(world.path("work/AGENTS.md")).unwrap();
    does(
        &world,
        &["--permissions", "full"],
        &[("write", json!({ "path": "AGENTS.md", "content": "planted-rule asked" }))],
    );
    assert!(asked(&world).0);
}
