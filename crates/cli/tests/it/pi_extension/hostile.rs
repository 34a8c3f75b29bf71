//! The helper, spoken to as the extension never does.

use std::collections::BTreeSet;
use std::io::Write as _;

use quipu_testkit::{ProcessMemory, process_memory};
use serde_json::{Value, json};

use crate::support::*;

struct Helper {
    process: JsonProcess,
    next: u64,
}

impl Helper {
    fn start(world: &World) -> Self {
        Self { process: JsonProcess::start(world.quipu(&["pi-helper"])), next: 0 }
    }

    fn line(&mut self, line: &str) {
        self.process.send(line);
    }

    fn answer(&mut self) -> Value {
        self.process.next()
    }

    fn send(&mut self, op: &str, mut request: Value) -> u64 {
        self.next += 1;
        request["id"] = json!(self.next);
        request["op"] = json!(op);
        self.line(&request.to_string());
        self.next
    }

    fn ask(&mut self, op: &str, request: Value) -> Value {
        let id = self.send(op, request);
        let answer = self.answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn ends(self) {
        self.process.close().ok();
    }
}

fn header(session: &str) -> Value {
    json!({ "type": "session", "version": 3, "id": session, "timestamp": "2026-11-27T10:00:00.000Z", "cwd": "/w" })
}

fn entry(number: usize, parent: Option<usize>, text: &str) -> Value {
    let id = |number: usize| format!("{number:08x}");
    json!({ "type": "message", "id": id(number), "parentId": parent.map(id),
        "timestamp": "2026-11-27T10:00:01.000Z",
        "message": { "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 1 } })
}

#[test]
fn helper_answers_lines_that_are_no_requests() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    for line in
        ["nonsense", "{\"id\":1,", "7", "[]", "{}", "{\"id\":{},\"op\":\"hello\"}", "{\"id\":1}", "\u{1}"]
    {
        helper.line(line);
        let answer = helper.answer();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!("malformed")), "{line}");
    }
    helper.line(&format!("{{\"id\":1,\"op\":\"tool\",\"a\":{}", "[".repeat(100_000)));
    assert_eq!(helper.answer()["error"]["code"], "malformed");
    helper.line(&"a".repeat((16 << 20) + 1));
    let answer = helper.answer();
    assert!(answer["error"]["message"].as_str().unwrap().contains("16777216 bytes"), "{answer}");
    for (op, request, code) in [
        ("none", json!({}), "malformed"),
        ("open", json!({}), "malformed"),
        ("open", json!({ "header": 7 }), "file"),
        ("open", json!({ "header": { "type": "session", "id": "s" } }), "file"),
        ("append", json!({ "session": "s", "first": 0, "entries": [] }), "not-open"),
        ("append", json!({ "session": "s", "first": -1, "entries": [] }), "malformed"),
        ("tool", json!({ "session": "s", "name": "life", "arguments": {} }), "not-open"),
        ("restore", json!({ "session": "s", "file": "/nowhere/s.jsonl" }), "not-open"),
    ] {
        let answer = helper.ask(op, request.clone());
        assert_eq!(answer["error"]["code"], code, "{op} {request}: {answer}");
    }
    assert_eq!(helper.ask("hello", json!({}))["result"]["protocol"], 1);
    helper.ends();
}

#[test]
fn helper_ends_with_endless_garbage() {
    let world = World::new([]);
    Helper::start(&world).process.end_with_garbage().exits(2);
}

#[test]
fn thousand_requests_at_once_are_each_answered_once() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    let opened = helper.ask("open", json!({ "header": header("s1") }));
    assert_eq!(opened["result"]["count"], 0, "{opened}");
    let mut waiting = BTreeSet::new();
    let steps = 1_000_usize;
    for number in 0..steps {
        let parent = number.checked_sub(1);
        let request = json!({ "session": "s1", "first": number, "entries": [entry(number, parent, "x")],
            "leaf": format!("{number:08x}") });
        waiting.insert(helper.send("append", request));
        let request = json!({ "session": "s1", "name": "life", "arguments": {}, "leaf": null });
        waiting.insert(helper.send("tool", request));
    }
    let cancelled = helper.send("cancel", json!({ "target": helper.next }));
    waiting.insert(cancelled);
    while !waiting.is_empty() {
        let answer = helper.answer();
        assert!(waiting.remove(&answer["id"].as_u64().unwrap()), "{answer}");
        let code = &answer["error"]["code"];
        assert!(code.is_null() || code == "cancelled", "{answer}");
    }
    let state = helper.ask("state", json!({ "session": "s1" }));
    assert_eq!(state["result"]["count"], steps, "{state}");
    helper.ends();
    assert_eq!(super::pi::nodes(&world, "s1", &[]).len(), steps + 1);
}

#[test]
fn jump_that_was_not_planned_is_checked() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    helper.ask("open", json!({ "header": header("s1") }));
    let key = format!("sk-ant-api03-{}AA", "A1b2C3d4".repeat(11));
    let entries =
        [entry(0, None, "a"), entry(1, Some(0), "b"), entry(2, Some(0), "note"), entry(3, Some(1), "note")];
    let request = json!({ "session": "s1", "first": 0, "entries": entries, "leaf": "00000001" });
    assert_eq!(helper.ask("append", request)["result"]["count"], 4);
    let shown = super::pi::nodes(&world, "s1", &[]);
    let target = shown.iter().find(|node| node["externalId"] == "00000000").unwrap()["id"].clone();
    let jump = |target: &Value, carryover: &str, message: &str| {
        json!({ "session": "s1", "first": 4, "entries": [], "from": "00000001", "target": target,
            "carryover": carryover, "message": message })
    };
    for (request, code) in [
        (jump(&json!("ab".repeat(32)), "00000002", "Back."), "refused"),
        (jump(&target, "00000003", "Back."), "malformed"),
        (jump(&target, "00000002", "--- archived"), "refused"),
    ] {
        let answer = helper.ask("jump", request.clone());
        assert_eq!(answer["error"]["code"], code, "{request}: {answer}");
        helper.ask("open", json!({ "header": header("s1"), "reason": "again" }));
        let request = json!({ "session": "s1", "first": 0, "entries": entries, "leaf": "00000001" });
        assert_eq!(helper.ask("append", request)["result"]["count"], 4);
    }
    let kept = helper.ask("jump", jump(&target, "00000002", &format!("The key\u{202e} is {key}.")));
    assert!(kept["result"]["carryover"].is_string(), "{kept}");
    helper.ends();
    let trace = world.run(&["trace", "s1"]).ok().text();
    assert!(trace.contains("> The key is ") && !trace.contains(&key), "{trace}");
    assert_eq!(trace.matches("INCARNATE").count(), 1, "{trace}");
}

#[test]
fn session_that_is_new_is_switched_to_with_its_first_entry() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    let append = |session: &str, entries: &[Value], leaf: Option<&str>| json!({ "session": session, "first": 0, "entries": entries, "leaf": leaf });
    helper.ask("open", json!({ "header": header("s1"), "reason": "startup" }));
    helper.ask("append", append("s1", &[entry(0, None, "a")], Some("00000000")));
    for _ in 0..2 {
        helper.ask("open", json!({ "header": header("s2"), "reason": "new" }));
        helper.ask("append", append("s2", &[], None));
    }
    let done = helper.ask("append", append("s2", &[entry(1, None, "b")], Some("00000001")));
    assert_eq!(done["result"]["count"], 1, "{done}");
    helper.ends();
    let trace = world.run(&["trace", "s2", "--filter", "all"]).ok().text();
    assert_eq!((trace.matches("BOOT").count(), trace.matches("SESSION_SWITCH").count()), (0, 1), "{trace}");
}

#[test]
fn sessions_beyond_the_limit_move_nothing() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    for number in 0..64 {
        let opened = helper.ask("open", json!({ "header": header(&format!("s{number}")) }));
        assert!(opened["error"].is_null(), "{opened}");
    }
    let refused = helper.ask("open", json!({ "header": header("more") }));
    assert_eq!(refused["error"]["code"], "limit", "{refused}");
    // One that is open is opened again.
    assert!(helper.ask("open", json!({ "header": header("s7") }))["error"].is_null());
    helper.ends();
    assert_eq!(super::pi::nodes(&world, "more", &[]), [Value::Null; 0]);
}

#[test]
fn long_requests_that_wait_are_bounded_together() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    helper.ask("open", json!({ "header": header("s1") }));
    let lock = super::pi::lock_writes(&world);
    let count = 40;
    let mut input = helper.process.input.take().unwrap();
    let writer = std::thread::spawn(move || {
        let text = "y".repeat(15 << 20);
        for number in 0..count {
            let entries = [entry(number, None, &text)];
            let request =
                json!({ "id": number, "op": "append", "session": "s1", "first": number, "entries": entries });
            writeln!(input, "{request}").unwrap();
        }
        input
    });
    // The first waits for the store, and is refused; the others come to a session that was given up.
    let codes: Vec<Value> = (0..count).map(|_| helper.answer()["error"]["code"].clone()).collect();
    assert!(codes[0] == "store" && codes.iter().all(Value::is_string), "{codes:?}");
    drop(lock);
    let peak = memory(&helper).peak;
    assert!(peak < 400_000, "{peak} kB");
    helper.process.input = Some(writer.join().unwrap());
    helper.ends();
}

#[test]
fn entries_twice_and_entries_too_late_are_told_apart() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    helper.ask("open", json!({ "header": header("s1") }));
    let first: Vec<Value> = vec![entry(0, None, "a"), entry(1, Some(0), "b")];
    let append = |first: usize, entries: &[Value]| json!({ "session": "s1", "first": first, "entries": entries, "leaf": null });
    assert_eq!(helper.ask("append", append(0, &first))["result"]["count"], 2);
    assert_eq!(helper.ask("append", append(0, &first))["result"]["count"], 2);
    let gap = helper.ask("append", append(5, &[entry(5, None, "f")]));
    assert_eq!(gap["error"]["code"], "gap", "{gap}");
    // What was opened again begins anew, and what is there is recognized.
    helper.ask("open", json!({ "header": header("s1") }));
    let state = helper.ask("state", json!({ "session": "s1" }));
    assert_eq!((&state["result"]["count"], &state["result"]["lacking"]), (&json!(0), &json!(2)));
    let third = [first.clone(), vec![entry(2, Some(1), "sk-ant-api03-not a whole line\u{2028}")]].concat();
    assert_eq!(helper.ask("append", append(0, &third))["result"]["count"], 3);
    let state = helper.ask("state", json!({ "session": "s1" }));
    assert_eq!((&state["result"]["count"], &state["result"]["lacking"]), (&json!(3), &json!(0)));
    helper.ends();
    let lines: Vec<String> = [header("s1")].iter().chain(&third).map(ToString::to_string).collect();
    let file = world.file("s1.jsonl", lines.join("\n") + "\n");
    super::pi::agrees_with_import(&world, "s1", &file);
}

fn memory(helper: &Helper) -> ProcessMemory {
    process_memory(helper.process.running.child.id()).unwrap()
}

#[test]
fn helper_of_a_long_session_keeps_little_in_memory() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    helper.ask("hello", json!({}));
    let before = memory(&helper).own;
    helper.ask("open", json!({ "header": header("s1") }));
    let words = "words ".repeat(200);
    for number in 0..1_000_usize {
        let entries = [entry(number, number.checked_sub(1), &words)];
        let leaf = format!("{number:08x}");
        let request = json!({ "session": "s1", "first": number, "entries": entries, "leaf": leaf });
        assert_eq!(helper.ask("append", request)["result"]["count"], number + 1);
        if number % 20 == 19 {
            for (name, arguments) in [("life", json!({})), ("recall", json!({ "hash": "HEAD" }))] {
                let request = json!({ "session": "s1", "name": name, "arguments": arguments, "leaf": leaf });
                assert!(helper.ask("tool", request)["error"].is_null());
            }
        }
    }
    let grown = memory(&helper).own.saturating_sub(before);
    assert!(grown < 20_000, "{grown} kB");
    helper.ends();
}

#[test]
fn restore_removes_what_killed_helpers_left() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    let file = world.file("s1.jsonl", format!("{}\n", header("s1")));
    helper.ask("open", json!({ "header": header("s1"), "file": file }));
    let append = json!({ "session": "s1", "first": 0, "entries": [entry(0, None, "a")], "leaf": null });
    assert_eq!(helper.ask("append", append)["result"]["count"], 1);
    let own = helper.process.running.child.id();
    // Of helpers that are gone, one of which had the number of this one; of one that is at work; and of nobody.
    let gone = [world.file("s1.jsonl.77.tmp", "x"), world.file(&format!("s1.jsonl.{own}.tmp"), "x")];
    let others =
        ["s1.jsonl.78.tmp", "s1.jsonl.notes.tmp", "s2.jsonl.77.tmp"].map(|name| world.file(name, "x"));
    let at_work = std::fs::File::open(&others[0]).unwrap();
    at_work.lock().unwrap();
    let restored = helper.ask("restore", json!({ "session": "s1", "file": file }));
    assert_eq!(restored["result"]["entries"], 1, "{restored}");
    assert!(gone.iter().all(|file| !file.exists()) && others.iter().all(|file| file.exists()));
    // One that cannot take the place of the file leaves nothing either.
    let directory = world.path("work/s1.d");
    std::fs::create_dir_all(directory.join("full")).unwrap();
    let refused = helper.ask("restore", json!({ "session": "s1", "file": directory }));
    assert_eq!(refused["error"]["code"], "file", "{refused}");
    helper.ends();
    let names = std::fs::read_dir(world.path("work")).unwrap();
    let mut names: Vec<String> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let wanted =
        ["s1.d", "s1.jsonl", "s1.jsonl.78.tmp", "s1.jsonl.notes.tmp", "s1.jsonl.torn-1", "s2.jsonl.77.tmp"];
    assert_eq!(names, wanted);
}

/// Between two looks of the helper a file can be made and removed; what Pi writes then goes to one without a header.
#[test]
fn file_that_begins_without_its_header_is_reported_as_gone() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    let line = |value: &Value| format!("{value}\n");
    let (first, second) = (entry(0, None, "a"), entry(1, Some(0), "b"));
    for (session, begins, is_gone) in [
        ("s1", line(&header("s1")), false),
        ("s2", line(&first), true),
        ("s3", line(&header("s1")), true),
        ("s4", "nonsense\n".to_owned(), true),
        // Still being written.
        ("s5", String::new(), false),
        ("s6", header("s6").to_string(), false),
    ] {
        let file = world.path(&format!("work/{session}.jsonl"));
        helper.ask("open", json!({ "header": header(session), "file": file }));
        let mut append = |at: usize, entries: &[&Value]| {
            let request = json!({ "session": session, "first": at, "entries": entries, "leaf": null });
            helper.ask("append", request)["result"]["file_is_gone"].clone()
        };
        assert_eq!(append(0, &[&first]), false, "{session}");
        std::fs::write(&file, &begins).unwrap();
        assert_eq!(append(1, &[&second]), is_gone, "{session}");
        assert_eq!(append(2, &[]), false, "{session}");
        if !begins.ends_with('\n') {
            std::fs::write(&file, line(&first)).unwrap();
            assert_eq!(append(2, &[]), true, "{session}");
        }
    }
    helper.ends();
}
