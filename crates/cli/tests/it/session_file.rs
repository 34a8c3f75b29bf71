//! A session file of another agent as the session: taken in, gone on with and appended to.

use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::archive::{ID, as_script, conversation, entry, header, lines, peer, run_peer, said, user};
use crate::support::*;

pub(crate) fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn says(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

/// The entries of a file: ids once, each below one before it, and the lineage of the last one.
#[track_caller]
fn lineage(entries: &[Value]) -> Vec<Value> {
    let mut seen: HashMap<&str, &Value> = HashMap::new();
    assert_eq!(entries[0]["type"], "session");
    for entry in &entries[1..] {
        let parent = &entry["parentId"];
        assert!(parent.is_null() || seen.contains_key(parent.as_str().unwrap()), "no parent: {entry}");
        assert!(seen.insert(entry["id"].as_str().unwrap(), entry).is_none(), "twice: {entry}");
    }
    let mut at = entries.last();
    let mut lineage = Vec::new();
    while let Some(entry) = at {
        lineage.push(entry.clone());
        at = entry["parentId"].as_str().map(|parent| seen[parent]);
    }
    lineage.reverse();
    lineage
}

/// What is said on the lineage of the last entry.
#[track_caller]
pub(crate) fn texts(path: &Path) -> Vec<String> {
    let lineage = lineage(&read(path));
    let said = lineage.iter().filter(|entry| entry["type"] == "message");
    said.map(|entry| wire_text(&entry["message"])).collect()
}

/// The file and the graph agree: nothing of it is new, here or elsewhere, and it is what is exported.
#[track_caller]
pub(crate) fn agrees(world: &World, path: &Path) {
    let before = std::fs::read(path).unwrap();
    let name = path.to_str().unwrap();
    let report = world.run(&["import", "pi", name, "--json"]).ok().json_lines().remove(0);
    if report["unchanged"] == false {
        assert_eq!((&report["added"], &report["changed"]), (&json!(0), &json!(0)), "{report}");
    }
    let session = report["session"].as_str().unwrap();
    let export = world.run(&["export", "--format", "pi", session]).ok().json_lines();
    let export: Vec<Value> = export.iter().map(as_script).collect();
    let file: Vec<Value> = read(path).iter().map(as_script).collect();
    for (at, (export, file)) in export.iter().zip(&file).enumerate() {
        assert_eq!(export, file, "line {at}");
    }
    assert_eq!(export.len(), file.len());
    let elsewhere = World::new([]);
    for added in [file.len() - 1, 0] {
        let copy = elsewhere.file(&format!("{added}.jsonl"), &before);
        let report =
            elsewhere.run(&["import", "pi", copy.to_str().unwrap(), "--json"]).ok().json_lines().remove(0);
        assert_eq!(
            (&report["added"], &report["changed"], &report["repaired"]),
            (&json!(added), &json!(0), &json!(0)),
            "{report}"
        );
    }
    assert_eq!(std::fs::read(path).unwrap(), before, "nobody writes to it");
}

fn fixture(world: &World, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../archive/tests/fixtures").join(name);
    let packed = std::fs::read(path).unwrap();
    let mut text = String::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(packed).unwrap();
    }
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // The directory has to be there.
    let text = text.replacen(first["cwd"].as_str().unwrap(), world.path("work").to_str().unwrap(), 1);
    world.file("s.jsonl", text)
}

#[test]
fn a_new_file_is_begun_and_gone_on_with() {
    let world = World::new(says(&["One.", "Two.", "Three."]));
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    assert_eq!(mode(&path), 0o600);
    let entries = read(&path);
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["session", "model_change", "thinking_level_change", "message", "message"]);
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(entries[0]["id"], session);
    assert_eq!(entries[0]["cwd"], world.path("work").to_str().unwrap());
    agrees(&world, &path);

    let ran = world.run(&["-p", "--session", "./s.jsonl", "second"]).ok();
    assert_eq!(ran.err, "");
    assert_eq!(said(&world), ["first", "One.", "second"]);
    assert_eq!(texts(&path), ["first", "One.", "second", "Two."]);
    assert_eq!(read(&path).len(), 7);
    agrees(&world, &path);

    // What is said without the file is written to it at the next start.
    world.run(&["-p", "-c", "third"]).ok();
    assert_eq!(read(&path).len(), 7);
    world.server.push(Answer::new().text("Four.").reply());
    let ran = world.run(&["-p", "--session", "s.jsonl", "fourth"]).ok();
    assert!(ran.err.contains("added 2 entries"), "{}", ran.err);
    assert_eq!(texts(&path), ["first", "One.", "second", "Two.", "third", "Three.", "fourth", "Four."]);
    assert_eq!(world.sessions().len(), 1);
    agrees(&world, &path);
}

#[test]
fn each_fixture_is_gone_on_with() {
    for name in [
        "before-compaction.jsonl.gz",
        "2026-11-20T08-59-27-127Z_01a1f82e-9e12-74f0-ac41-f9b70e39de47.jsonl",
        "2026-11-20T08-59-54-432Z_01a1f82f-08c0-725c-b6a2-648bcb2a6533.jsonl",
        "2026-11-20T08-59-55-794Z_01a1f82f-0e12-725c-b6a2-648c8cfe0ab4.jsonl",
    ] {
        let world = World::new(says(&["One.", "Two."]));
        let path = fixture(&world, name);
        // As much as it holds.
        let settings = r#"{"compaction":{"enabled":false}}"#;
        std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
        set_mode(&path, 0o640);
        let before = std::fs::read(&path).unwrap();
        let args = |text| ["-p", "--session", "s.jsonl", "--model", MODEL, text];
        let ran = world.run(&args("on")).ok();
        assert!(ran.err.contains("imported "), "{}", ran.err);
        assert_eq!(mode(&path), 0o640);
        let first = said(&world);
        assert!(first.len() > 2, "{first:?}");
        if name.starts_with("before") {
            assert!(ran.err.contains("from version 1 to version 3"), "{}", ran.err);
        } else {
            assert!(std::fs::read(&path).unwrap().starts_with(&before), "{name} is only appended to");
        }
        agrees(&world, &path);
        world.run(&args("and on")).ok();
        let second = said(&world);
        assert_eq!(second[second.len() - 3..], ["on", "One.", "and on"]);
        assert_eq!(second[..second.len() - 3], first[..first.len() - 1]);
        let all = texts(&path);
        assert_eq!(all[all.len() - 4..], ["on", "One.", "and on", "Two."]);
        agrees(&world, &path);
        assert_eq!(world.sessions().len(), 2, "the file's and ours, both times the same");
    }
}

#[test]
fn back_and_forth_with_the_other_agent() {
    let Some(peer) = peer() else { return };
    let world = World::new([
        bash("c1", "echo from-the-tool"),
        Answer::new().text("One.").reply(),
        Answer::new().text("Two.").reply(),
        Answer::new().text("Three.").reply(),
        Answer::new().text("Four.").reply(),
        Answer::new().text("Five.").reply(),
    ]);
    world.unchecked();
    let path = world.path("work/s.jsonl");
    let file = path.to_str().unwrap();
    let mut before = Vec::new();
    let mut grown = |path: &Path| {
        let now = std::fs::read(path).unwrap();
        assert!(now.starts_with(&before), "only appended to");
        before = now;
    };
    world.run(&["-p", "--session", file, "first"]).ok();
    grown(&path);
    let mut expected = vec!["first", "", "from-the-tool", "One."];
    for (at, (prompt, answer)) in
        [("second", "Two."), ("third", "Three."), ("fourth", "Four."), ("fifth", "Five.")]
            .into_iter()
            .enumerate()
    {
        if at % 2 == 0 {
            run_peer(&peer, &world, &["--session", file, prompt]);
        } else {
            world.run(&["-p", "--session", file, prompt]).ok();
        }
        grown(&path);
        let sent = said(&world);
        assert_eq!(sent.len(), expected.len() + 1, "{sent:?}");
        assert_eq!((sent[0].as_str(), sent.last().unwrap().as_str()), ("first", prompt));
        expected.extend([prompt, answer]);
        let now = texts(&path);
        assert_eq!(now.iter().map(|text| text.trim()).collect::<Vec<_>>(), expected);
    }
    world.run(&["import", "pi", file]).ok();
    agrees(&world, &path);
    assert_eq!(world.sessions().len(), 1, "it is one session all the time");
}

#[test]
fn the_other_agent_begins() {
    let Some(peer) = peer() else { return };
    let world = World::new(says(&["One.", "Two.", "Three."]));
    world.unchecked();
    run_peer(&peer, &world, &["first"]);
    let dir =
        std::fs::read_dir(world.path("home/.pi/agent/sessions")).unwrap().next().unwrap().unwrap().path();
    let path = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let file = path.to_str().unwrap();
    world.run(&["-p", "--session", file, "second"]).ok();
    assert_eq!(said(&world), ["first", "One.", "second"]);
    agrees(&world, &path);
    run_peer(&peer, &world, &["--continue", "third"]);
    assert_eq!(said(&world), ["first", "One.", "second", "Two.", "third"]);
    assert_eq!(texts(&path), ["first", "One.", "second", "Two.", "third", "Three."]);
}

#[test]
fn earlier_foreign_lines_are_imported() {
    let world = World::new(says(&["One.", "Two.", "Three.", "Four."]));
    let path = world.file("s.jsonl", lines(&conversation(&world, ID)));
    world.run(&["-p", "--session", "s.jsonl", "on"]).ok();
    let last = read(&path).last().unwrap()["id"].as_str().unwrap().to_owned();
    let append = |line: &Value| {
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        writeln!(file, "{line}").unwrap();
    };
    // Below ours: the session goes on behind it.
    append(&user("x1", &last, "theirs"));
    let ran = world.run(&["-p", "--session", "s.jsonl", "and on"]).ok();
    assert!(ran.err.contains("imported 1 entry of another program"), "{}", ran.err);
    assert_eq!(
        said(&world),
        ["Which way?", "Left or right.", "Right.", "Right it is.", "on", "One.", "theirs", "and on"]
    );
    agrees(&world, &path);
    assert_eq!(world.sessions().len(), 2);
    // From an older entry: so does the file, and a session below it.
    append(&user("x2", "a2", "back"));
    let ran = world.run(&["-p", "--session", "s.jsonl", "--mode", "json", "there"]).ok();
    assert!(ran.text().contains("1 entry of another program"), "{}", ran.text());
    assert_eq!(said(&world), ["Which way?", "Left or right.", "Left.", "Left it is.", "back", "there"]);
    agrees(&world, &path);
    world.run(&["-p", "--session", "s.jsonl", "again"]).ok();
    assert_eq!(said(&world).last().unwrap(), "again");
    assert_eq!(world.sessions().len(), 3);
    assert_eq!(texts(&path)[3..], ["Left it is.", "back", "there", "Three.", "again", "Four."]);
    agrees(&world, &path);
}

#[test]
fn concurrent_foreign_lines_stay_and_are_imported() {
    let gate = Gate::new();
    let answer = Answer::new().text("Two.").stream();
    let world = World::new([
        Answer::new().text("One.").reply(),
        Reply::sse("").then_gate(&gate).then(answer),
        Answer::new().text("Three.").reply(),
    ]);
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let last = read(&path).last().unwrap()["id"].as_str().unwrap().to_owned();
    let running = world.start(&["-p", "--session", "s.jsonl", "second"]);
    reached(&gate);
    question_is_written(&world);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    // Its end has not come yet.
    file.write_all(user("x1", &last, "theirs").to_string().as_bytes()).unwrap();
    gate.open();
    let ran = running.wait().ok();
    assert!(ran.err.contains("imported 1 entry of another program"), "{}", ran.err);
    assert_eq!(texts(&path), ["first", "One.", "second", "Two."]);
    assert!(read(&path).iter().any(|entry| entry["id"] == "x1"));
    agrees(&world, &path);
    world.run(&["-p", "--session", "s.jsonl", "third"]).ok();
    assert_eq!(texts(&path), ["first", "One.", "second", "Two.", "third", "Three."]);
    agrees(&world, &path);
}

/// Waits for the question in the file, where it is written beside the run.
fn question_is_written(world: &World) {
    let until = Instant::now() + LIMIT;
    while !contains(&std::fs::read(world.path("work/s.jsonl")).unwrap(), b"second") {
        assert!(Instant::now() < until, "the question does not come");
        std::thread::yield_now();
    }
}

/// Runs a prompt, and `change` while the model has not answered.
fn meanwhile(world: &World, gate: &Gate, change: impl FnOnce()) -> CommandOutput {
    let running = world.start(&["-p", "--session", "s.jsonl", "second"]);
    reached(gate);
    question_is_written(world);
    change();
    gate.open();
    running.wait()
}

fn gated(gate: &Gate) -> World {
    let answer = Answer::new().text("Two.").stream();
    World::new([
        Answer::new().text("One.").reply(),
        Reply::sse("").then_gate(gate).then(answer),
        Answer::new().text("Three.").reply(),
    ])
}

#[test]
fn a_file_that_shrinks_is_left_alone_and_healed() {
    let gate = Gate::new();
    let world = gated(&gate);
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let ran = meanwhile(&world, &gate, || {
        let text = std::fs::read_to_string(&path).unwrap();
        let cut: String = text.split_inclusive('\n').take(4).collect();
        std::fs::write(&path, cut).unwrap();
    });
    ran.fails(4, &["s.jsonl lacks 1 entries", "cut it from", "in the store", "the next start"]);
    assert_eq!(read(&path).len(), 4);
    let ran = world.run(&["-p", "--session", "s.jsonl", "third"]).ok();
    assert!(ran.err.contains("added 3 entries of the store"), "{}", ran.err);
    assert_eq!(said(&world), ["first", "One.", "second", "Two.", "third"]);
    assert_eq!(texts(&path), ["first", "One.", "second", "Two.", "third", "Three."]);
    agrees(&world, &path);
}

#[test]
fn a_file_that_is_replaced_is_left_alone_and_healed() {
    for removed in [false, true] {
        let gate = Gate::new();
        let world = gated(&gate);
        let path = world.path("work/s.jsonl");
        world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
        let first = std::fs::read(&path).unwrap();
        let ran = meanwhile(&world, &gate, || {
            if removed {
                std::fs::remove_file(&path).unwrap();
            } else {
                let aside = world.file("aside", &first);
                std::fs::rename(aside, &path).unwrap();
            }
        });
        ran.fails(4, &["s.jsonl lacks 1 entries", "replaced or removed"]);
        if removed {
            assert!(!path.exists());
            continue;
        }
        assert_eq!(std::fs::read(&path).unwrap(), first);
        world.run(&["-p", "--session", "s.jsonl", "third"]).ok();
        assert_eq!(texts(&path), ["first", "One.", "second", "Two.", "third", "Three."]);
        agrees(&world, &path);
    }
}

#[test]
fn invalid_session_file_is_refused_at_once() {
    let world = World::new([]);
    nix::unistd::mkfifo(&world.path("work/fifo.jsonl"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(world.path("work/dir.jsonl")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(world.path("work/socket.jsonl")).unwrap();
    for name in ["fifo.jsonl", "dir.jsonl", "socket.jsonl", "/dev/null", "/dev/zero", "/dev/tty", "../work"] {
        world
            .run(&["-p", "--session", name, "hi"])
            .fails(2, &["is not a session file: it is not a regular file"]);
    }
    drop(socket);
    let words = world.file("words.jsonl", "just some words\n");
    world.run(&["-p", "--session", "words.jsonl", "hi"]).fails(2, &["words.jsonl", "it contains no JSON"]);
    assert_eq!(std::fs::read_to_string(words).unwrap(), "just some words\n");
    let other = world.file("other.jsonl", "{\"type\":\"message\"}\n");
    world.run(&["-p", "--session", "other.jsonl", "hi"]).fails(2, &["not a header"]);
    assert_eq!(std::fs::read_to_string(other).unwrap(), "{\"type\":\"message\"}\n");
    symlink("nowhere", world.path("work/link.jsonl")).unwrap();
    world.run(&["-p", "--session", "link.jsonl", "hi"]).fails(2, &["link.jsonl could not be made"]);
    world.run(&["-p", "--session", "none/s.jsonl", "hi"]).fails(2, &["none/s.jsonl could not be made"]);
    assert!(world.sessions().is_empty());
    // A run that does not begin leaves no file.
    world.run(&["-p", "--session", "new.jsonl", "--model", "nobody", "hi"]).exits(2);
    assert!(!world.path("work/new.jsonl").exists());
}

#[test]
fn a_file_that_cannot_be_written_lacks_what_the_store_has() {
    let world = World::unprivileged(says(&["One.", "Two.", "Three."]));
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let first = std::fs::read(&path).unwrap();
    set_mode(&path, 0o400);
    let ran = world.run(&["-p", "--session", "s.jsonl", "second"]);
    assert_eq!(ran.text(), "Two.\n");
    ran.fails(4, &["s.jsonl lacks 2 entries", "denied", "in the store", "the next start"]);
    assert_eq!(std::fs::read(&path).unwrap(), first);
    set_mode(&path, 0o600);
    world.run(&["-p", "--session", "s.jsonl", "third"]).ok();
    assert_eq!(texts(&path), ["first", "One.", "second", "Two.", "third", "Three."]);
    agrees(&world, &path);
}

#[test]
fn a_full_disk_keeps_nothing_from_the_store() {
    let world = World::new(says(&["One.", "Two.", "Three."]));
    // Large for the limit on files, and small in the store: lines that hold nothing.
    let text = lines(&conversation(&world, ID)) + &"\n".repeat(24 << 20);
    let path = world.file("s.jsonl", &text);
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let before = std::fs::metadata(&path).unwrap().len();
    let mut command = world.command("/bin/sh");
    // Room for the beginning of a line.
    let limit = format!("ulimit -f {}; exec \"$0\" \"$@\"", before / 512 + 1);
    command.args(["-c", &limit]).arg(&world.program).args(["-p", "--session", "s.jsonl"]);
    command.arg("long words ".repeat(400));
    let ran = RunningCommand::start(command).wait();
    assert_eq!(ran.text(), "Two.\n");
    ran.fails(4, &["s.jsonl lacks 2 entries", "in the store", "the next start"]);
    world.run(&["-p", "--session", "s.jsonl", "third"]).ok();
    // Without what holds nothing it is as any other.
    let whole: String = std::fs::read_to_string(&path)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect();
    let texts = texts(&world.file("short.jsonl", whole));
    assert_eq!((texts.len(), texts.last().unwrap().as_str()), (10, "Three."));
    assert_eq!(said(&world).len(), 9);
}

#[test]
fn a_second_one_is_refused() {
    let gate = Gate::new();
    let world = gated(&gate);
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let ran = meanwhile(&world, &gate, || {
        world.run(&["-p", "--session", "s.jsonl", "no"]).fails(2, &["s.jsonl is in use by another Quipu"]);
        // Its session without the file: a branch, as ever.
        let ran = world.run(&["-p", "-c", "aside"]).ok();
        assert!(ran.err.contains("Another process is working on this session"), "{}", ran.err);
    });
    ran.ok();
    assert_eq!(texts(&path), ["first", "One.", "second", "Two."]);
    assert_eq!(read(&path).len(), 7);
    // A new one, both at once.
    let gate = Gate::new();
    world.server.push(Reply::sse("").then_gate(&gate).then(Answer::new().text("New.").stream()));
    let running = world.start(&["-p", "--session", "new.jsonl", "begin"]);
    reached(&gate);
    world.run(&["-p", "--session", "new.jsonl", "no"]).fails(2, &["in use"]);
    gate.open();
    running.wait().ok();
    assert_eq!(texts(&world.path("work/new.jsonl")), ["begin", "New."]);
}

#[test]
fn secrets_are_sealed_in_the_file_too() {
    let world = World::new([
        call("c1", "bash", &json!({ "command": format!("echo {KEY}") })),
        Answer::new().text(&format!("It is {KEY}.")).reply(),
    ]);
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", &format!("Say {KEY}.")]).ok();
    let file = std::fs::read(&path).unwrap();
    assert!(!contains(&file, KEY.as_bytes()));
    assert!(contains(&file, b"[REDACTED:"));
    assert_eq!(read(&path).len(), 7);
    agrees(&world, &path);
}

#[test]
fn session_changes_reach_the_session_file() {
    let world = World::new(says(&["One.", "Two.", "# Summary\nAll of it.", "Three.", "Four."]));
    let path = world.file("s.jsonl", lines(&conversation(&world, ID)));
    world.run(&["-p", "--session", "s.jsonl", &"on and on ".repeat(12_000)]).ok();
    let own = world.sessions().iter().find(|row| row["agent"] == "quipu").unwrap()["id"].clone();
    let own = own.as_str().unwrap();
    // Beside the other program's part, and in ours.
    world.run(&["label", "ext:a2", "the left"]).ok();
    world.run(&["rename", ID, "ways"]).ok();
    world.run(&["rename", own, "our way"]).ok();
    let node = world.nodes_of(&[own]).last().unwrap()["id"].as_str().unwrap().to_owned();
    world.run(&["label", &node, "here"]).ok();
    let ran = world.run(&["-p", "--session", "s.jsonl", "more"]).ok();
    assert!(ran.err.contains("entries of the store that were missing"), "{}", ran.err);
    let entries = read(&path);
    let find = |name: &str, value: &str| entries.iter().filter(|entry| entry[name] == value).count();
    assert_eq!((find("label", "the left"), find("label", "here")), (1, 1));
    assert_eq!((find("name", "ways"), find("name", "our way")), (1, 1));
    let label = entries.iter().find(|entry| entry["label"] == "the left").unwrap();
    assert_eq!(label["targetId"], "a2");
    agrees(&world, &path);

    // A compaction, and back.
    let before = said(&world).len();
    world.run(&["compact", own]).ok();
    let compacted = world.sessions().iter().find(|row| row["id"] == own).unwrap()["head"].clone();
    world.run(&["compact", own, "--undo"]).ok();
    let ran = world.run(&["-p", "--session", "s.jsonl", "whole"]).ok();
    assert_eq!(ran.err, "", "{compacted}");
    assert_eq!(said(&world).len(), before + 2);
    world.server.push(Answer::new().text("# Summary\nAgain.").reply());
    world.run(&["compact", own]).ok();
    world.server.push(Answer::new().text("Five.").reply());
    world.run(&["-p", "--session", "s.jsonl", "short"]).ok();
    let kinds: Vec<Value> = lineage(&read(&path)).iter().map(|entry| entry["type"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "compaction").count(), 1);
    agrees(&world, &path);
    // One that is in the file already is taken back in the graph; the next line says so.
    let length = said(&world).len();
    world.server.push(Answer::new().text("# Summary\nOnce more.").reply());
    world.run(&["-p", "--session", "s.jsonl", &"and so on ".repeat(12_000)]).ok();
    world.server.push(Answer::new().text("# Summary\nOnce more.").reply());
    world.run(&["compact", own]).ok();
    world.run(&["-p", "--session", "s.jsonl", "--model", "nobody", "no"]).exits(2);
    assert_eq!(read(&path).last().unwrap()["type"], "compaction");
    world.run(&["compact", own, "--undo"]).ok();
    world.server.push(Answer::new().text("Whole.").reply());
    world.run(&["-p", "--session", "s.jsonl", "whole again"]).ok();
    assert_eq!(said(&world).len(), length + 4);
    assert!(lineage(&read(&path)).iter().filter(|entry| entry["type"] == "compaction").count() == 1);
}

#[test]
fn a_torn_last_line_is_neither_glued_nor_lost() {
    let world = World::new(says(&["One.", "Two.", "Three.", "Four.", "Five."]));
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let whole = std::fs::read_to_string(&path).unwrap();
    // One of ours, in the middle of a letter: it is completed.
    for cut in [1, 20, 200] {
        std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        let ran = world.run(&["-p", "--session", "s.jsonl", "on"]).ok();
        assert!(cut == 1 || ran.err.contains("entries of the store that were missing"), "{}", ran.err);
        assert!(!ran.err.contains("could not be read"), "{}", ran.err);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(&whole), "{cut}");
        agrees(&world, &path);
    }
    // One of another program: it is set off and stays.
    let mut text = std::fs::read_to_string(&path).unwrap();
    text += "{\"type\":\"custom\",\"customType\":\"thei";
    std::fs::write(&path, &text).unwrap();
    let ran = world.run(&["-p", "--session", "s.jsonl", "last"]).ok();
    assert!(ran.err.contains("1 line could not be read and stays"), "{}", ran.err);
    let now = std::fs::read_to_string(&path).unwrap();
    assert!(now.starts_with(&(text + "\n{")), "{now}");
    assert_eq!(said(&world).last().unwrap(), "last");
    assert_eq!(said(&world)[..2], ["first", "One."]);
}

#[test]
fn a_directory_that_is_gone_and_another_one() {
    let world = World::new(says(&["One.", "Two."]));
    std::fs::create_dir(world.path("work/other")).unwrap();
    let text = lines(&conversation(&world, ID));
    let path = world.file("s.jsonl", text.replace(world.path("work").to_str().unwrap(), "/nowhere/at/all"));
    world
        .run(&["-p", "--session", "s.jsonl", "on"])
        .fails(2, &["/nowhere/at/all", "--session s.jsonl --cwd ."]);
    world.run(&["-p", "--session", "s.jsonl", "--cwd", "other", "on"]).ok();
    assert_eq!(said(&world).last().unwrap(), "on");
    assert_eq!(texts(&path).last().unwrap(), "One.");
    world.run(&["-p", "--session", "s.jsonl", "again"]).ok();
    assert_eq!(texts(&path)[4..], ["on", "One.", "again", "Two."]);
    agrees(&world, &path);
}

#[test]
fn killed_at_any_moment() {
    let rounds = if std::env::var_os("QUIPU_FULL").is_some() { 300 } else { 24 };
    let mut world = World::new([]);
    let path = world.path("work/s.jsonl");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    println!("seed {seed}");
    for round in 0..rounds {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        world.another_server([
            bash("c1", "echo one"),
            bash("c2", "echo two"),
            Answer::new().text("Done.").reply(),
        ]);
        let mut running = world.start(&["-p", "--session", "s.jsonl", "--mode", "json", "do it"]);
        for _ in 0..seed % 24 {
            if running.line().is_none() {
                break;
            }
        }
        let until = std::time::Instant::now() + std::time::Duration::from_micros((seed >> 20) % 3_000);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        kill(running.pid(), Signal::SIGKILL).unwrap();
        running.wait();
        let before = std::fs::read(&path).unwrap_or_default();
        world.another_server(says(&["On."]));
        world.run(&["-p", "--session", "s.jsonl", "go on"]).ok();
        let after = std::fs::read(&path).unwrap();
        assert!(after.starts_with(&before), "round {round}");
        let lineage = lineage(&read(&path));
        let ids: HashSet<&str> = lineage.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
        // All of the graph is there, in one line.
        for row in world.sessions() {
            for node in world.nodes_of(&[row["id"].as_str().unwrap()]) {
                let id = node["externalId"].as_str().unwrap();
                assert!(ids.contains(id), "round {round}: {node} is not in the file");
            }
        }
        assert_eq!(wire_text(&lineage.last().unwrap()["message"]), "On.", "round {round}");
    }
    agrees(&world, &path);
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn a_header_of_another_and_an_old_one() {
    // A second version, with a message that has another name since.
    let world = World::new(says(&["One."]));
    let mut first = header(&world, ID);
    first["version"] = json!(2);
    let hook = json!({ "role": "hookMessage", "customType": "x", "content": "hooked", "display": true, "timestamp": 1 });
    let entries = [
        first,
        user("u1", "none", "early"),
        entry("h1", Some("u1"), &json!({ "type": "message", "message": hook })),
    ];
    let path = world.file("s.jsonl", lines(&entries) + "\n{broken\n");
    let inode = std::fs::metadata(&path).unwrap().ino();
    symlink("s.jsonl", world.path("work/link.jsonl")).unwrap();
    world.run(&["-p", "--session", "link.jsonl", "--model", MODEL, "on"]).ok();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\n{broken\n"), "{text}");
    let now: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!((&now[0]["version"], &now[2]["message"]["role"]), (&json!(3), &json!("custom")));
    assert_ne!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert!(world.path("work/link.jsonl").is_symlink());
    assert_eq!(said(&world), ["early", "hooked", "on"]);
}

#[test]
fn a_copy_a_moved_file_and_a_removed_session() {
    let world = World::new(says(&["One.", "Two.", "Three.", "Four."]));
    let path = world.file("s.jsonl", lines(&conversation(&world, ID)));
    std::fs::copy(&path, world.path("work/copy.jsonl")).unwrap();
    world.run(&["-p", "--session", "s.jsonl", "in the first"]).ok();
    // The copy has the same header, and goes its own way.
    let ran = world.run(&["-p", "--session", "copy.jsonl", "in the copy"]).ok();
    assert!(!ran.err.contains("that were missing"), "{}", ran.err);
    assert_eq!(texts(&world.path("work/copy.jsonl"))[4..], ["in the copy", "Two."]);
    assert_eq!(texts(&path)[4..], ["in the first", "One."]);
    // One that was moved is known by what it holds; what is said meanwhile is added.
    let moved = world.path("work/moved.jsonl");
    std::fs::rename(&path, &moved).unwrap();
    let rows = world.sessions();
    let own = rows.iter().find(|row| row["title"] == "in the first").unwrap()["id"].as_str().unwrap();
    world.run(&["-p", "--session", own, "aside"]).ok();
    let ran = world.run(&["-p", "--session", "moved.jsonl", "on"]).ok();
    assert!(ran.err.contains("added 2 entries"), "{}", ran.err);
    assert_eq!(texts(&moved)[4..], ["in the first", "One.", "aside", "Three.", "on", "Four."]);
    assert_eq!(world.sessions().len(), rows.len());
    world.check();
    world.unchecked();
    // A session of ours that is removed: another goes on behind what it said.
    world.run(&["rm", own, "--yes"]).ok();
    world.server.push(Answer::new().text("Five.").reply());
    world.run(&["-p", "--session", "moved.jsonl", "still"]).ok();
    assert_eq!(said(&world)[4..], ["in the first", "One.", "aside", "Three.", "on", "Four.", "still"]);
    assert_eq!(texts(&moved)[8..], ["on", "Four.", "still", "Five."]);
}

#[test]
fn a_session_that_went_back_goes_on_there_in_the_file_too() {
    let world = World::new(says(&["One.", "Two.", "Three."]));
    let path = world.path("work/s.jsonl");
    world.run(&["-p", "--session", "s.jsonl", "first"]).ok();
    let answer = world.nodes().last().unwrap()["id"].as_str().unwrap().to_owned();
    world.run(&["-p", "--session", "s.jsonl", "second"]).ok();
    world.run(&["branch", &answer]).ok();
    world.run(&["-p", "--session", "s.jsonl", "another"]).ok();
    assert_eq!(said(&world), ["first", "One.", "another"]);
    assert_eq!(texts(&path), ["first", "One.", "another", "Three."]);
    assert_eq!(read(&path).len(), 9, "what was left stays");
    agrees(&world, &path);
}

/// Its format has no place for where a session stands, so only what is said there takes it along.
#[test]
fn undo_reaches_the_file_with_what_is_said_next() {
    let world = World::new(says(&["One.", "Two.", "Three.", "Four."]));
    let path = world.path("work/s.jsonl");
    let file = path.to_str().unwrap();
    world.run(&["-p", "--session", file, "first"]).ok();
    world.run(&["-p", "--session", file, "second"]).ok();
    let before = std::fs::read(&path).unwrap();
    world.run(&["undo", "--yes"]).ok();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let copy = world.file("copy.jsonl", &before);
    world.run(&["-p", "--session", file, "third"]).ok();
    assert_eq!(said(&world), ["first", "One.", "third"]);
    assert_eq!(texts(&path), ["first", "One.", "third", "Three."]);
    agrees(&world, &path);

    let Some(peer) = peer() else { return };
    world.unchecked();
    run_peer(&peer, &world, &["--session", copy.to_str().unwrap(), "fourth"]);
    assert_eq!(said(&world), ["first", "One.", "second", "Two.", "fourth"]);
    world.server.push(Answer::new().text("Five.").reply());
    run_peer(&peer, &world, &["--session", file, "fifth"]);
    assert_eq!(said(&world), ["first", "One.", "third", "Three.", "fifth"]);
}

#[test]
fn the_other_agent_goes_on_from_our_compaction() {
    let Some(peer) = peer() else { return };
    let world = World::new(says(&["Zero.", "One.", "Two.", "# Summary\nAll of it.", "Three.", "Four."]));
    world.unchecked();
    let path = world.path("work/s.jsonl");
    let file = path.to_str().unwrap();
    world.run(&["-p", "--session", file, "early"]).ok();
    world.run(&["-p", "--session", file, &"on and on ".repeat(12_000)]).ok();
    world.run(&["-p", "--session", file, "short"]).ok();
    world.run(&["compact"]).ok();
    world.run(&["-p", "--session", file, "third"]).ok();
    let ours = said(&world);
    assert!(ours[0].contains("All of it."), "{ours:?}");
    run_peer(&peer, &world, &["--session", file, "fourth"]);
    let theirs = said(&world);
    assert!(theirs[0].contains("All of it."), "{theirs:?}");
    assert_eq!(theirs[theirs.len() - 3..], ["third", "Three.", "fourth"]);
    assert!(theirs.iter().all(|text| !text.contains("Zero.")), "{theirs:?}");
    world.run(&["import", "pi", file]).ok();
    agrees(&world, &path);
}

fn tobe(target: &str) -> Reply {
    call("c9", "tobe", &json!({ "target_node_hash": target, "carryover_message": "Left is closed." }))
}

/// A session in a file that can go back, with two turns; the file, and the node of the first answer.
fn two_turns(more: Vec<Reply>) -> (World, PathBuf, String) {
    let world = World::new(says(&["Left or right?", "Left it is."]).into_iter().chain(more));
    let settings = json!({ "travel": { "tools": true, "tobe": "allow" } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["-p", "--session", "s.jsonl", "Where to?"]).ok();
    let target = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "--session", "s.jsonl", "Left."]).ok();
    let path = world.path("work/s.jsonl");
    (world, path, target)
}

#[test]
fn departure_note_and_answer_stand_in_the_file() {
    let (mut world, path, target) = two_turns(Vec::new());
    world.another_server([tobe(&target), Answer::new().text("Right, then.").reply()]);
    world.run(&["-p", "--session", "s.jsonl", "Further."]).ok();
    world.unchecked();
    let there = texts(&path);
    assert_eq!(there.len(), 4, "{there:?}");
    assert_eq!((&*there[0], &*there[1], &*there[3]), ("Where to?", "Left or right?", "Right, then."));
    assert!(there[2].contains("INCARNATION NOTE]: Left is closed."), "{there:?}");
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whole.matches("Incarnation initiated").count(), 1, "the departure");
    assert_eq!(world.sessions().len(), 1);
    agrees(&world, &path);

    let Some(peer) = peer() else { return };
    world.server.push(Answer::new().text("On.").reply());
    run_peer(&peer, &world, &["--session", path.to_str().unwrap(), "And now?"]);
    let sent = said(&world);
    assert_eq!(sent.len(), 5, "{sent:?}");
    assert!(sent[2].contains("Left is closed.") && sent.iter().all(|text| !text.contains("Left it is")));
    assert_eq!(sent[3..], ["Right, then.", "And now?"]);
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    agrees(&world, &path);
}

/// All branches, each entry behind what it follows, no label of what is not there; and the end is where the session stands.
#[test]
fn export_of_a_session_of_ours_has_all_branches() {
    let world = World::new(says(&["Left or right?", "Left it is.", "Right it is.", "Home.", "On."]));
    let head = || world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "Where to?"]).ok();
    let fork = head();
    world.run(&["-p", "-c", "Left."]).ok();
    let left = head();
    world.run(&["label", &left, "the left"]).ok();
    world.run(&["label", &fork, "the fork"]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let first = world.run(&["show", &id]).ok().text();
    let first = first.lines().nth(2).unwrap().split_whitespace().next().unwrap().to_owned();
    // The session's own first node: its lines are those of the model and the level of thinking.
    world.run(&["label", &first, "the beginning"]).ok();
    world.run(&["branch", &fork, "--yes"]).ok();
    world.run(&["-p", "-c", "Right."]).ok();
    world.run(&["branch", &left, "--yes"]).ok();
    world.run(&["-p", "-c", "And then?"]).ok();
    let export = world.run(&["export", "--format", "pi", &id]).ok();
    let lines = export.json_lines();
    let ids: Vec<&str> = lines.iter().skip(1).map(|line| line["id"].as_str().unwrap()).collect();
    assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)), "{ids:?}");
    for (at, line) in lines.iter().enumerate().skip(1) {
        let is_before = |id: &str| ids[..at - 1].contains(&id);
        assert!(line["parentId"].as_str().is_none_or(is_before), "{line}");
        assert!(line["targetId"].as_str().is_none_or(is_before), "{line}");
    }
    assert_eq!(
        lines.iter().filter(|line| line["parentId"].is_null() && line["type"] != "session").count(),
        1
    );
    let labels: Vec<_> = lines.iter().filter_map(|line| line["label"].as_str()).collect();
    assert_eq!(labels, ["the left", "the fork", "the beginning"]);
    let texts = |chain: &[&Value]| -> Vec<String> {
        let text = |line: &&Value| {
            let content = &line["message"]["content"];
            content.as_str().or_else(|| content[0]["text"].as_str()).map(str::to_owned)
        };
        chain.iter().filter_map(text).collect()
    };
    let all: Vec<&Value> = lines.iter().collect();
    let said = texts(&all);
    for text in ["Where to?", "Left.", "Left it is.", "Right.", "Right it is.", "And then?", "Home."] {
        assert_eq!(said.iter().filter(|said| *said == text).count(), 1, "{text}: {said:?}");
    }
    let mut chain: Vec<&Value> = Vec::new();
    let mut next = lines.last();
    while let Some(line) = next {
        chain.insert(0, line);
        next = lines.iter().find(|other| other["id"] == line["parentId"] && other["type"] != "session");
    }
    let road = ["Where to?", "Left or right?", "Left.", "Left it is.", "And then?", "Home."];
    assert_eq!(texts(&chain), road);

    // Elsewhere it is the same tree, and comes out as it is.
    let file = world.file("export.jsonl", &export.out);
    let elsewhere = World::new([]);
    elsewhere.unchecked();
    let copy = elsewhere.file("s.jsonl", &export.out);
    elsewhere.run(&["import", "pi", copy.to_str().unwrap()]).ok();
    assert_eq!(elsewhere.run(&["export", "--format", "pi", &id]).ok().text(), export.text());

    let Some(peer) = peer() else { return };
    world.unchecked();
    run_peer(&peer, &world, &["--session", file.to_str().unwrap(), "Farther?"]);
    let sent = crate::support::messages(world.requests().last().unwrap());
    let sent: Vec<String> = sent.iter().map(wire_text).collect();
    assert_eq!(sent, [&road[..], &["Farther?"]].concat());
}

#[test]
fn tobe_without_the_file_is_added_at_the_next_start_once() {
    let (mut world, path, target) = two_turns(Vec::new());
    world.another_server(says(&["Right, then.", "On."]));
    world.run(&["tobe", "--yes", &target, "Left is closed."]).ok();
    world.run(&["-p", "-c"]).ok();
    let ran = world.run(&["-p", "--session", "s.jsonl", "And now?"]).ok();
    assert!(ran.err.contains("added 2 entries"), "{}", ran.err);
    let there = texts(&path);
    assert_eq!(there.len(), 6, "{there:?}");
    assert_eq!(there[3..], ["Right, then.", "And now?", "On."]);
    agrees(&world, &path);
}
