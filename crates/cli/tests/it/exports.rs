//! Exports of accounts: whose they are is told by what is in them, and their conversations go on.

use std::path::PathBuf;

use quipu_testkit::{Answer, Wire};
use serde_json::json;

use crate::archive::said;
use crate::support::*;

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../archive/tests").join(name)
}

/// A model on each wire, which says as much as is asked of it.
pub(crate) fn two_wires(sessions: usize) -> World {
    let answers = |wire: Wire| (0..sessions).map(move |_| Answer::on(wire).text("Yes.").reply());
    let world = World::new(answers(Wire::Messages).chain(answers(Wire::Completions)));
    let model =
        |id: &str, api: &str| json!({ "id": id, "api": api, "contextWindow": 200_000, "maxTokens": 8_000 });
    let models = [model("blocks-1", "anthropic-messages"), model("chat-1", "openai-completions")];
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": models });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    world
}

#[test]
fn conversations_of_exports_go_on_on_both_wires() {
    let chat = "6939aaaa-0000-4000-8000-000000000001";
    let other = "7a39aaaa-0000-4000-8000-000000000001";
    let sessions = [
        ("it/__fuzz__/chatgpt_files/corpus/export.zip", chat, "One.", &["a6", "b0"][..]),
        ("fixtures/claude-ai/conversations.json", other, "Right.", &["toolu_1", "toolu_2"]),
        ("it/__fuzz__/gemini_takeout_files/corpus/takeout.zip", "gemini-2026-01-02", "Guten Tag.", &[]),
    ];
    let world = two_wires(sessions.len());
    for (path, session, ..) in &sessions {
        let ran = world.run(&["import", fixture(path).to_str().unwrap(), "--json"]);
        let reports = ran.json_lines();
        let lost = reports.iter().any(|report| report["lost"] != 0);
        assert_eq!(ran.status.code(), Some(i32::from(lost)), "{reports:?}");
        assert!(reports.iter().any(|report| report["session"] == *session), "{reports:?}");
        assert_eq!(reports.last().unwrap()["session"], "", "{reports:?}");
    }
    for model in ["blocks-1", "chat-1"] {
        for (_, session, word, ids) in &sessions {
            world.run(&["-p", "--model", model, "--session", session, "--cwd", ".", "on"]).ok();
            let told = said(&world).join("\n");
            assert!(told.contains("Look.") && told.contains(word) && told.ends_with("on"), "{told}");
            let body = String::from_utf8_lossy(&world.requests().last().unwrap().body).into_owned();
            for id in *ids {
                assert_eq!(
                    body.matches(&format!("\"{id}\"")).count(),
                    2,
                    "the call {id} and its result: {body}"
                );
            }
        }
    }
}

#[test]
fn import_detects_the_owner_of_an_export() {
    let world = World::new([]);
    let text = std::fs::read(fixture("fixtures/chatgpt/conversations.json")).unwrap();
    std::fs::create_dir_all(world.path("work/export")).unwrap();
    std::fs::write(world.path("work/export/conversations.json"), text).unwrap();
    std::fs::write(world.path("work/notes.json"), "{}").unwrap();
    let dry = world.run(&["import", "export", "--dry-run"]).ok();
    assert!(dry.text().contains("would be added") && world.sessions().is_empty(), "{}", dry.text());
    let ran = world.run(&["import", "export"]).ok();
    assert!(ran.text().contains("session 6939aaaa"), "{}", ran.text());
    assert!(world.run(&["import", "chatgpt", "export"]).ok().text().contains("unchanged"));
    assert_eq!(world.sessions().len(), 2);
    for (args, expect) in [
        (&["import", "notes.json"][..], "no account export"),
        (&["import", "nobody"], "nor an agent whose sessions Quipu can import"),
        (&["import", "nobody", "export"], "nor an agent whose sessions Quipu can import"),
        (&["import", "claude-ai"], "name the file"),
    ] {
        let ran = world.run(args);
        assert!(ran.status.code() == Some(2) && ran.err.contains(expect), "{}", ran.err);
    }
    let ran = world.run(&["import", "claude-ai", "export/conversations.json"]);
    assert!(ran.status.code() == Some(1) && ran.err.contains("could not be imported"), "{}", ran.err);
}

#[test]
fn a_folder_may_hold_exports_of_several_services() {
    let world = World::new([]);
    std::fs::create_dir_all(world.path("work/all/claude")).unwrap();
    let put = |name: &str, from: &str| {
        std::fs::copy(fixture(from), world.path(&format!("work/all/{name}"))).unwrap();
    };
    put("a.zip", "it/__fuzz__/chatgpt_files/corpus/export.zip");
    put("claude/conversations.json", "fixtures/claude-ai/conversations.json");
    put("takeout.zip", "it/__fuzz__/gemini_takeout_files/corpus/takeout.zip");
    std::fs::write(world.path("work/all/conversations.json"), "[{\"about\":\"something else\"}]").unwrap();
    std::fs::write(world.path("work/all/torn.zip"), "PK\x03\x04").unwrap();
    // Two of them hold what is no conversation.
    let ran = world.run(&["import", "all", "--json"]).fails(1, &["parts of 2 files could not be imported"]);
    let reports = ran.json_lines();
    let wholes: Vec<&str> = reports
        .iter()
        .filter(|report| report["session"] == "")
        .map(|report| report["path"].as_str().unwrap().rsplit_once("all/").unwrap().1)
        .collect();
    assert_eq!(wholes, ["a.zip", "claude/conversations.json", "takeout.zip"], "{reports:?}");
    for session in
        ["6939aaaa-0000-4000-8000-000000000001", "7a39aaaa-0000-4000-8000-000000000001", "gemini-2026-01-02"]
    {
        assert!(reports.iter().any(|report| report["session"] == session), "{session}: {reports:?}");
    }
    // One service alone, of the same folder; and all of it again.
    let ran = world.run(&["import", "claude-ai", "all", "--json"]).ok();
    let unchanged = |report: &serde_json::Value| report["unchanged"] == true || report["added"] == 0;
    assert_eq!(ran.json_lines().len(), 1, "{}", ran.text());
    assert!(ran.json_lines().iter().all(unchanged), "{}", ran.text());
    // What says that it is an entry, and is none, is told each time.
    let again = world.run(&["import", "all", "--json"]).fails(1, &["parts of 1 file "]).json_lines();
    assert!(again.iter().all(unchanged), "{again:?}");
}

/// A graph of another program where that keeps it.
fn graph(world: &World) -> PathBuf {
    let place = world.path("home/.playfilo/playfilo.db");
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(fixture("fixtures/playfilo/playfilo.db"), &place).unwrap();
    place
}

#[test]
fn a_graph_of_another_program_goes_on_on_both_wires() {
    let world = two_wires(1);
    graph(&world);
    let found = world.run(&["import", "--json"]).ok().json_lines();
    assert_eq!((&found[0]["agent"], &found[0]["sessions"]), (&json!("playfilo"), &json!(2)));
    let ran = world.run(&["import", "--yes"]).ok();
    assert!(ran.text().contains("10 added"), "{}", ran.text());
    // Its last answer but two, whose id is that in the other store.
    let node = "e40cd624ec3bd30aa1cccf45bf8f35b41e14db0b6a7205a2b5a49729c84cfbc6";
    for model in ["blocks-1", "chat-1"] {
        world.run(&["-p", "--model", model, "--fork", node, "on"]).ok();
        let said = said(&world);
        let expect = ["Please fix the parser bug", "The bug is in main.", "on"];
        assert!(expect.iter().all(|expect| said.iter().any(|one| one.contains(expect))), "{said:?}");
        let body = String::from_utf8_lossy(&world.requests().last().unwrap().body).into_owned();
        assert_eq!(body.matches("\"call_1\"").count(), 2, "the call and its result: {body}");
    }
    assert!(world.run(&["show", node]).ok().text().contains("The bug is in main."));
    assert!(world.run(&["search", "approach"]).ok().text().contains("Try approach A"));
    assert!(world.run(&["import", "playfilo"]).ok().text().contains("unchanged"));
}

#[test]
fn a_database_that_is_locked_is_told_and_the_rest_goes_on() {
    use std::os::fd::AsFd as _;
    let world = World::new([]);
    let place = graph(&world);
    let dir = world.path("home/.codex/sessions/2025/01/02");
    std::fs::create_dir_all(&dir).unwrap();
    let meta = json!({ "id": "0199bbbb", "timestamp": "2025-01-02T03:04:05.678Z", "cwd": "/p" });
    let text =
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Look." }] });
    let record = |kind: &str, payload: &serde_json::Value| json!({ "timestamp": "2025-01-02T03:04:06.000Z", "type": kind, "payload": payload });
    let rollout = crate::archive::lines(&[record("session_meta", &meta), record("response_item", &text)]);
    std::fs::write(dir.join("rollout-x-0199bbbb.jsonl"), rollout).unwrap();
    // As SQLite locks a file that is being written: a byte a gigabyte behind its beginning, and those after it.
    let file = std::fs::File::options().read(true).write(true).open(&place).unwrap();
    let lock = nix::libc::flock {
        l_type: i16::try_from(nix::libc::F_WRLCK).unwrap(),
        l_whence: i16::try_from(nix::libc::SEEK_SET).unwrap(),
        l_start: 0x4000_0000,
        l_len: 512,
        l_pid: 0,
    };
    nix::fcntl::fcntl(file.as_fd(), nix::fcntl::FcntlArg::F_SETLK(&lock)).unwrap();
    let ran = world.run(&["import", "--yes", "--json"]);
    assert_eq!(ran.status.code(), Some(1));
    let reports = ran.json_lines();
    assert!(reports.iter().any(|report| report["session"] == "0199bbbb"), "{reports:?}");
    let told = reports.iter().find_map(|report| report["error"].as_str()).unwrap();
    assert!(told.contains("playfilo.db") && told.contains("locked"), "{told}");
    assert!(told.contains("import it again when that is done"), "{told}");
    drop(file);
    assert!(world.run(&["import", "--yes"]).ok().text().contains("10 added"));
}

/// Neither an import nor a command on it as a store waits for the end of what has none.
#[test]
fn endless_databases_are_refused() {
    let world = World::new([]);
    world.unchecked();
    let session: (&str, &[&str]) =
        ("session", &["id", "parent_id", "directory", "title", "version", "time_created"]);
    let message: (&str, &[&str]) = ("message", &["id", "session_id", "time_created", "data"]);
    let part: (&str, &[&str]) = ("part", &["id", "message_id", "session_id", "time_created", "data"]);
    let node: (&str, &[&str]) = ("nodes", &["id", "parent_id", "role", "parts_list", "timestamp"]);
    let name: (&str, &[&str]) = ("refs", &["name", "node_id"]);
    let blob: (&str, &[&str]) = ("blobs", &["hash", "type", "content"]);
    for (agent, tables) in [("opencode", vec![session, message, part]), ("playfilo", vec![node, name, blob])]
    {
        let path = world.path(&format!("{agent}.db"));
        quipu_testkit::endless_database(&path, &tables);
        let ran = world.run(&["import", agent, path.to_str().unwrap()]).exits(1);
        assert!(ran.err.contains("is a view or a virtual table"), "{}", ran.err);
        world.run(&["sessions", "--all", "--store", path.to_str().unwrap()]).fails(4, &[]);
    }
}

/// Beside one that can be read.
#[test]
fn a_database_of_a_later_version_is_told_and_the_rest_goes_on() {
    let world = World::new([]);
    world.unchecked();
    graph(&world);
    let place = world.path("home/.local/share/opencode");
    std::fs::create_dir_all(&place).unwrap();
    let known = std::fs::read(fixture("fixtures/hand-made.db")).unwrap();
    let mut later = known.clone();
    let at = later.windows(14).position(|part| part == b"parent_id text").unwrap();
    later[at..at + 14].copy_from_slice(b"ancestors text");
    std::fs::write(place.join("opencode-later.db"), later).unwrap();
    std::fs::write(place.join("opencode.db"), known).unwrap();
    let ran = world.run(&["import", "--yes"]);
    assert_eq!(ran.status.code(), Some(1), "{}", ran.err);
    for part in ["opencode-later.db could not be read: its table `session`", "`parent_id`", "a newer Quipu"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let text = ran.text();
    assert!(text.contains("session ses_one") && text.contains("15 added"), "{text}");
    assert!(text.contains("10 added"), "the graph: {text}");
    // As it is after an update, or without it.
    std::fs::remove_file(place.join("opencode-later.db")).unwrap();
    world.run(&["import", "--yes"]).ok();
}
