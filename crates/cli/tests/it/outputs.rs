//! Files of whole outputs: sealed, of one session, and gone with it.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal, says};
use crate::support::*;

/// Looks like a key of a common kind, and is none.
const TOKEN: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";
const PEM_LINE: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

fn done() -> Reply {
    Answer::new().text("Done.").reply()
}

/// Prints much, with what `secrets` holds in the middle.
fn prints(id: &str) -> Reply {
    bash(id, "seq 30000; cat secrets; seq 30000")
}

fn secrets() -> String {
    let key = format!(
        "-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----",
        format!("{PEM_LINE}\n").repeat(9)
    );
    format!("token {TOKEN}\n{key}\nown {KEY}\n")
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let below = entries.map(|entry| entry.unwrap().path());
    below.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn outputs(world: &World) -> Vec<PathBuf> {
    files(&world.path("home/.quipu/outputs"))
}

/// What the model was told of the last call.
fn told(world: &World) -> String {
    wire_text(messages(world.requests().last().unwrap()).last().unwrap())
}

fn named(result: &str) -> &str {
    result.split("Full output: ").nth(1).unwrap().split([']', ' ']).next().unwrap()
}

#[track_caller]
fn assert_sealed(bytes: &[u8]) {
    for secret in [TOKEN, KEY, &PEM_LINE[..20]] {
        assert!(!contains(bytes, secret.as_bytes()), "{secret}");
    }
}

/// What doctor says of outputs: state and detail.
fn doctor(world: &World, more: &[&str]) -> (String, String) {
    let found = world.run(&[&["doctor", "--json"], more].concat()).ok().json();
    let findings = found["findings"].as_array().unwrap();
    let of = findings.iter().find(|finding| finding["what"] == "outputs").unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&of["state"]), text(&of["detail"]))
}

#[test]
fn output_file_holds_no_secret() {
    let read =
        |id: &str, offset: u32| call(id, "read", &json!({ "path": "log", "offset": offset, "limit": 3 }));
    let ln = "ln -s \"$(ls \"$HOME\"/.quipu/outputs/*/quipu-bash-*.log)\" log";
    let world = World::new([
        prints("c1"),
        bash("c2", ln),
        read("c3", 30_001),
        bash("c4", "head -n 1 secrets; sed -n 30001p log"),
        done(),
    ]);
    world.file("secrets", secrets());
    world.run(&["-p", "print"]).ok();
    let requests = world.requests();
    let result = wire_text(messages(&requests[1]).last().unwrap());
    let path = PathBuf::from(named(&result));
    assert_eq!(outputs(&world), std::slice::from_ref(&path));
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(path.parent().unwrap(), world.path("home/.quipu/outputs").join(session));
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let bytes = std::fs::read(&path).unwrap();
    assert_sealed(&bytes);
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (token, own) =
        (lines[30_000].strip_prefix("token ").unwrap(), lines[30_002].strip_prefix("own ").unwrap());
    assert!(
        token.starts_with("[REDACTED:github-token:") && own.starts_with("[REDACTED:credential:"),
        "{token} {own}"
    );
    assert!(lines[30_001].starts_with("[REDACTED:private-key:") && lines.len() == 60_003, "{}", lines.len());
    // Whoever reads it sees what the file that was printed would show.
    let read = wire_text(messages(&requests[3]).last().unwrap());
    assert!(read.contains(&lines[30_000..30_003].join("\n")), "{read}");
    assert_eq!(told(&world).matches(token).count(), 2, "{}", told(&world));
}

#[test]
fn unkept_session_leaves_no_output() {
    let gate = Gate::new();
    let ln = "ln -s \"$(ls \"${TMPDIR%/*}\"/quipu-session-*/outputs/*/quipu-bash-*.log)\" log";
    let read = call("c3", "read", &json!({ "path": "log", "offset": 30_001, "limit": 3 }));
    let last = Reply::sse("").then_gate(&gate).then(Answer::new().text("Done.").stream());
    let world = World::new([prints("c1"), bash("c2", ln), read, last]);
    world.file("secrets", secrets());
    let running = world.start(&["-p", "--no-session", "print"]);
    reached(&gate);
    let result = wire_text(messages(&world.requests()[1]).last().unwrap());
    let path = PathBuf::from(named(&result));
    assert!(path.starts_with(world.path("tmp")), "{}", path.display());
    assert_sealed(&std::fs::read(&path).unwrap());
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let text = told(&world);
    assert!(text.starts_with("token [REDACTED:github-token:"), "{text}");
    gate.open();
    running.wait().ok();
    assert_eq!(files(&world.path("tmp")), Vec::<PathBuf>::new());
    assert!(!path.exists() && outputs(&world).is_empty());
    world.unchecked();
}

#[test]
fn unkept_output_without_a_place_is_told() {
    let world = World::new([bash("c1", "seq 30000"), done()]);
    let mut command = world.quipu(&["-p", "--no-session", "--permissions", "full", "print"]);
    command.env("TMPDIR", world.path("nowhere"));
    RunningCommand::start(command).wait().ok();
    let text = told(&world);
    let why = "The full output was not kept: cannot create a temporary directory in ";
    assert!(
        text.contains("29999\n30000\n")
            && text.contains(&format!("{why}{}", world.path("nowhere").display())),
        "{text}"
    );
    assert!(outputs(&world).is_empty());
    world.unchecked();
}

#[test]
fn output_without_room_is_told_and_leaves_no_part() {
    let world = World::new([bash("c1", "seq 400000"), done()]);
    let mut command = world.command("/bin/sh");
    let program = world.program.display();
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f 2048; exec {program} -p print")]);
    RunningCommand::start(command).wait().ok();
    let text = told(&world);
    assert!(
        text.contains("400000\n") && text.contains("The full output was not kept: cannot write "),
        "{text}"
    );
    assert!(text.contains("File too large") && outputs(&world).is_empty(), "{text}");
}

#[test]
fn unkept_output_goes_on_a_signal_too() {
    let gate = Gate::new();
    let last = Reply::sse("").then_gate(&gate).then(Answer::new().text("Done.").stream());
    let world = World::new([prints("c1"), last]);
    world.file("secrets", secrets());
    let running = world.start(&["-p", "--no-session", "print"]);
    reached(&gate);
    let path = PathBuf::from(named(&told(&world)).to_owned());
    assert!(path.exists());
    running.signal(Signal::SIGTERM);
    running.wait();
    gate.open();
    assert!(!path.exists() && files(&world.path("tmp")).is_empty());
    world.unchecked();
}

#[test]
fn deleted_session_takes_its_outputs_along() {
    let world = World::new([prints("c1"), done(), prints("c2"), done()]);
    world.file("secrets", secrets());
    world.run(&["-p", "one"]).ok();
    let first = outputs(&world);
    world.run(&["-p", "two"]).ok();
    assert_eq!((first.len(), outputs(&world).len()), (1, 2));
    let session = first[0].parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    // A fork reads the file of the session that it is from, and has none.
    world.run(&["fork", &session]).ok();
    world.run(&["rm", "--yes", &session]).ok();
    assert!(!first[0].exists() && !first[0].parent().unwrap().exists());
    assert_eq!(outputs(&world).len(), 1);
    assert_eq!(doctor(&world, &[]).0, "good");
    world.unchecked();
}

#[test]
fn outputs_that_cannot_be_removed_are_told() {
    let world = World::unprivileged([prints("c1"), done()]);
    world.file("secrets", secrets());
    world.run(&["-p", "one"]).ok();
    let directory = outputs(&world)[0].parent().unwrap().to_owned();
    set_mode(&directory, 0o500);
    let session = directory.file_name().unwrap().to_str().unwrap().to_owned();
    world
        .run(&["rm", "--yes", &session])
        .fails(1, &["was removed, but some of its commands' output files were not", "quipu-bash-"]);
    set_mode(&directory, 0o700);
    let (state, detail) = doctor(&world, &[]);
    assert!(
        state == "note" && detail.contains("1 file, ") && detail.contains("of removed sessions"),
        "{detail}"
    );
    world.unchecked();
}

#[test]
fn doctor_counts_outputs() {
    let world = World::new([prints("c1"), done(), prints("c2"), done()]);
    world.file("secrets", secrets());
    assert_eq!(
        doctor(&world, &[]),
        ("good".into(), "saved outputs of long commands: 0 files, 0 KiB, of 0 sessions".into())
    );
    world.run(&["-p", "one"]).ok();
    let (state, detail) = doctor(&world, &[]);
    let size = std::fs::metadata(&outputs(&world)[0]).unwrap().len().div_ceil(1024);
    assert_eq!(detail, format!("saved outputs of long commands: 1 file, {size} KiB, of 1 session"));
    assert_eq!(state, "good");
    // Those of another store are of no session here, and not gone.
    world.run(&["-p", "--store", "other.db", "two"]).ok();
    assert_eq!(outputs(&world).len(), 2);
    let both = (state.clone(), format!("{detail}; 1 file, {size} KiB of other stores (`--store`)"));
    assert_eq!(doctor(&world, &[]), both);
    assert_eq!(doctor(&world, &["--store", "../work/other.db"]), (state, detail.clone()));
    // What an earlier version left, and a session that is gone.
    let root = world.path("home/.quipu/outputs");
    std::fs::write(root.join("quipu-bash-aB3.log"), secrets()).unwrap();
    std::fs::create_dir(root.join("0193-gone")).unwrap();
    std::fs::write(root.join("0193-gone/quipu-bash-x.log"), "x").unwrap();
    let (state, more) = doctor(&world, &[]);
    assert_eq!(state, "note");
    for part in [
        &detail[..],
        "1 file, 1 KiB of removed sessions",
        "1 file, 1 KiB of an earlier version, unsealed, so they may contain secrets",
        "`quipu doctor --drop-outputs` removes",
    ] {
        assert!(more.contains(part), "{part} in {more}");
    }
    assert_eq!(doctor(&world, &["--drop-outputs"]), both);
    assert_eq!(outputs(&world).len(), 2);
    let dropped = world.run(&["doctor", "--drop-outputs"]).ok().text();
    assert!(dropped.contains("removed outputs that no session uses: 0 files, 0 KiB"), "{dropped}");
}

#[test]
fn output_of_an_earlier_version_is_read_by_its_path() {
    let world = World::new([]);
    let root = world.path("home/.quipu/outputs");
    std::fs::create_dir(&root).unwrap();
    let old = root.join("quipu-bash-aB3.log");
    std::fs::write(&old, format!("old {TOKEN}\n")).unwrap();
    world.server.push(call("c1", "read", &json!({ "path": old })));
    world.server.push(done());
    world.run(&["-p", "read it"]).ok();
    assert!(told(&world).starts_with("old [REDACTED:github-token:"), "{}", told(&world));
}

#[test]
fn fork_reads_the_output_of_the_session_that_it_is_from() {
    let world = World::new([prints("c1"), done()]);
    world.file("secrets", secrets());
    world.run(&["-p", "one"]).ok();
    let path = outputs(&world).remove(0);
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let read = || call("c2", "read", &json!({ "path": path, "limit": 2 }));
    let fork = world.run(&["fork", &session]).ok().text().trim().to_owned();
    for (has, text) in [(true, "1\n2"), (false, "no such file")] {
        world.server.push(read());
        world.server.push(done());
        world.run(&["-p", "--session", &fork, "read it"]).ok();
        assert!(told(&world).contains(text), "{has}: {}", told(&world));
        if has {
            world.run(&["rm", "--yes", &session]).ok();
        }
    }
    world.unchecked();
}

#[test]
fn output_of_a_line_of_the_user_is_sealed_and_of_the_session() {
    for unkept in [false, true] {
        let world = World::new([says("I see.")]);
        world.file("secrets", secrets());
        let mut terminal = Terminal::open(&world, if unkept { &["--no-session"] } else { &[] });
        terminal.shows("test-1");
        terminal.types("!seq 40000; cat secrets; seq 40000; echo ended-$((40+2))\r");
        terminal.shows("ended-42");
        terminal.hides("running");
        terminal.types("what was it?\r");
        terminal.settles("I see.");
        let sessions = if unkept { world.path("tmp") } else { world.path("home/.quipu/outputs") };
        let kept = files(&sessions);
        assert_eq!(kept.len(), 1, "{kept:?}");
        let bytes = std::fs::read(&kept[0]).unwrap();
        assert_sealed(&bytes);
        assert!(contains(&bytes, b"\ntoken [REDACTED:github-token:") && contains(&bytes, b"ended-42"));
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        if unkept {
            assert_eq!((files(&world.path("tmp")), outputs(&world)), (Vec::new(), Vec::new()));
            world.unchecked();
        } else {
            assert_eq!(doctor(&world, &[]).0, "good");
        }
    }
}
