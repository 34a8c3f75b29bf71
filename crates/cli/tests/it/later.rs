//! What later versions of Pi write: a session goes on with the context that they would build. The files are written by
//! hand, after the reference.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

/// Entries one behind the other, each with the id that it names or one of its own.
fn file(world: &World, entries: &[Value]) -> String {
    let mut lines = vec![json!({
        "type": "session", "version": 3, "id": "later-1", "timestamp": "2025-01-02T03:04:05.678Z",
        "cwd": world.path("work"),
    })];
    let mut before = Value::Null;
    for (at, rest) in entries.iter().enumerate() {
        let mut entry =
            json!({ "id": format!("e{at}"), "parentId": before, "timestamp": "2025-01-02T03:04:06.000Z" });
        entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        before = entry["id"].clone();
        lines.push(entry);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "type": "message", "message": {
        "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 5 } })
}

fn answer(id: &str, content: &Value) -> Value {
    json!({ "id": id, "type": "message", "message": {
        "role": "assistant", "content": content, "api": "x", "provider": "testing", "model": MODEL, "stopReason": "stop",
        "thinkingLevel": "high", "timestamp": 6, "usage": { "input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0,
            "totalTokens": 3, "cost": { "input": 0.5, "output": 0.5, "cacheRead": 0.5, "cacheWrite": 0.5, "total": 2.0 } } } })
}

fn says(id: &str, text: &str) -> Value {
    answer(id, &json!([{ "type": "text", "text": text }]))
}

fn edit(target: &str, replacement: &Value) -> Value {
    json!({ "type": "context_edit", "targetId": target, "replacement": replacement })
}

fn system(text: &str) -> Value {
    json!({ "type": "message", "message": { "role": "system", "content": text, "sections": { "preamble": null },
        "toolsAdded": [], "timestamp": 4 } })
}

/// What the next request says, beside the system prompt, when the session goes on; and once more when it is resumed.
fn check(entries: &[Value], expect: &[&str]) {
    let world = World::new(["One.", "Two."].map(|text| Answer::new().text(text).reply()));
    let text = file(&world, entries);
    let path = world.file("later.jsonl", &text);
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    world.run(&["-p", "--session", "later-1", "on"]).ok();
    let said = || messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<Vec<_>>();
    let mut expect: Vec<String> = expect.iter().map(|text| (*text).to_owned()).collect();
    expect.push("on".into());
    // In words of our own.
    let bare = |said: Vec<String>| -> Vec<String> {
        said.into_iter()
            .map(|text| {
                match text.split_once("<summary>\n").and_then(|(_, rest)| rest.split_once("\n</summary>")) {
                    Some((summary, _)) => format!("summary: {summary}"),
                    None => text,
                }
            })
            .collect()
    };
    assert_eq!(bare(said()), expect);
    world.run(&["-p", "-c", "and on"]).ok();
    expect.extend(["One.".into(), "and on".into()]);
    assert_eq!(bare(said()), expect);
    // What was imported is what is written.
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(world.run(&["export", "--format", "pi", "later-1"]).ok().json_lines(), lines);
}

#[test]
fn edits_of_the_context_are_made() {
    let call = answer(
        "a2",
        &json!([{ "type": "text", "text": "reading" },
            { "type": "toolCall", "id": "c1", "name": "read", "arguments": { "path": "f" } }]),
    );
    let result = json!({ "id": "r2", "type": "message", "message": { "role": "toolResult", "toolCallId": "c1",
        "toolName": "read", "content": [{ "type": "text", "text": "a long file" }], "isError": false,
        "nestedCalls": { "calls": [], "complete": true }, "durationMs": 5, "timestamp": 7 } });
    check(
        &[
            system("You are somebody else."),
            user("u1", "first"),
            says("a1", "answer one"),
            user("u2", "second"),
            call,
            result,
            says("a3", "read it"),
            json!({ "id": "n1", "type": "custom_message", "customType": "x", "content": "a note", "display": true }),
            edit("a1", &json!({ "content": "shorter" })),
            edit("r2", &json!({ "content": "(cleared)" })),
            edit("n1", &json!({ "content": "another note" })),
            edit("u1", &Value::Null),
            // The last one on the branch counts.
            edit("u1", &json!({ "content": [{ "type": "text", "text": "first, in short" }] })),
            edit("a3", &json!({ "content": "never shown" })),
            edit("a3", &Value::Null),
            json!({ "type": "usage", "kind": "cache_warm", "provider": "testing", "model": MODEL, "usage": {} }),
            system("You are somebody else, and patient."),
        ],
        &["first, in short", "shorter", "second", "reading\n", "(cleared)", "another note"],
    );
}

#[test]
fn edits_count_on_their_branch_only() {
    check(
        &[
            user("u1", "first"),
            says("a1", "answer one"),
            edit("u1", &Value::Null),
            user("u2", "left behind"),
            // Another branch, which has not seen the edit.
            json!({ "id": "u3", "parentId": "a1", "type": "message", "message": {
                "role": "user", "content": [{ "type": "text", "text": "other" }], "timestamp": 8 } }),
            says("a3", "answer three"),
        ],
        &["first", "answer one", "other", "answer three"],
    );
}

#[test]
fn entries_retained_by_a_compaction_follow_its_summary() {
    let tail = json!([
        { "role": "user", "content": [{ "type": "text", "text": "kept question" }], "timestamp": 9 },
        { "role": "system", "content": "dropped", "timestamp": 9 },
        answer("x", &json!([{ "type": "text", "text": "kept answer" }]))["message"],
    ]);
    for (first_kept, tail, kept) in [
        (json!("u1"), tail.clone(), &["kept question", "kept answer"][..]),
        (Value::Null, tail, &["kept question", "kept answer"]),
        (json!("u1"), json!([]), &[]),
    ] {
        let expect: Vec<&str> = [&["summary: in short"][..], kept, &["since", "answer two"]].concat();
        check(
            &[
                user("u1", "first"),
                says("a1", "answer one"),
                json!({ "type": "compaction", "summary": "in short", "firstKeptEntryId": first_kept, "tokensBefore": 10,
                    "retainedTail": tail, "systemMessage": { "role": "system", "content": "p", "timestamp": 1 } }),
                user("u2", "since"),
                says("a2", "answer two"),
            ],
            &expect,
        );
    }
}

#[test]
fn compaction_without_retained_entries_names_itself() {
    let compaction = |id: &str, kept: &str, summary: &str| json!({ "id": id, "type": "compaction", "summary": summary, "firstKeptEntryId": kept, "tokensBefore": 10 });
    check(
        &[
            user("u1", "first"),
            says("a1", "answer one"),
            compaction("k1", "k1", "all of it"),
            user("u2", "since"),
            says("a2", "answer two"),
        ],
        &["summary: all of it", "since", "answer two"],
    );
    // What the first kept is kept by the second, the first one itself and system messages are not.
    check(
        &[
            user("u1", "first"),
            says("a1", "answer one"),
            system("s"),
            user("u2", "second"),
            compaction("k1", "u2", "old"),
            says("a2", "answer two"),
            compaction("k2", "u2", "new"),
            user("u3", "third"),
            says("a3", "answer three"),
            edit("u2", &json!({ "content": "2nd" })),
        ],
        &["summary: new", "2nd", "answer two", "third", "answer three"],
    );
}

/// A context that begins with a retained tail is compacted by us: the tail goes as a whole.
#[test]
fn a_retained_tail_is_summed_up_as_a_whole() {
    let long = "word ".repeat(400);
    let world = World::new(["One.", "## Goal\nAll.", "Two."].map(|text| Answer::new().text(text).reply()));
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let tail = json!([
        { "role": "user", "content": format!("tail one {long}"), "timestamp": 9 },
        { "role": "user", "content": format!("tail two {long}"), "timestamp": 9 },
    ]);
    let entries = [
        user("u1", "first"),
        json!({ "type": "compaction", "summary": "in short", "firstKeptEntryId": "u1", "tokensBefore": 10,
            "retainedTail": tail }),
        user("u2", "since"),
    ];
    let path = world.file("later.jsonl", file(&world, &entries));
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    world.run(&["-p", "--session", "later-1", "on"]).ok();
    world.run(&["compact"]).ok();
    let asked: String = messages(&world.requests()[1]).iter().map(wire_text).collect();
    assert!(
        asked.contains("tail one") && asked.contains("tail two") && !asked.contains("[User]: since"),
        "{asked}"
    );
    assert!(asked.contains("<previous-summary>\nin short\n"), "{asked}");
    world.run(&["-p", "-c", "and on"]).ok();
    let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(said[0].contains("## Goal\nAll.") && said[0].contains("tail two"), "{said:?}");
    assert_eq!(said[1..], ["since", "on", "One.", "and on"].map(str::to_owned));
}

/// Where nothing but the beginning of a turn is summed up, the summary before it goes on.
#[test]
fn the_summary_before_survives_a_turn_that_is_cut() {
    let long = "word ".repeat(400);
    let world =
        World::new(["## Original Request\nWork.", "Well."].map(|text| Answer::new().text(text).reply()));
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let step = |n: usize| {
        let calls = json!([{ "type": "toolCall", "id": format!("c{n}"), "name": "read", "arguments": { "path": "f" } }]);
        let result = json!({ "type": "message", "message": { "role": "toolResult", "toolCallId": format!("c{n}"),
            "toolName": "read", "content": [{ "type": "text", "text": format!("out {n} {long}") }], "isError": false,
            "timestamp": 7 } });
        [answer(&format!("s{n}"), &calls), result]
    };
    let mut entries = vec![
        user("u1", "first"),
        says("a1", "answer one"),
        json!({ "id": "k1", "type": "compaction", "summary": "## Goal\nAs before.", "firstKeptEntryId": "k1",
            "tokensBefore": 10 }),
        user("u2", "a long task"),
    ];
    entries.extend((0..3).flat_map(step));
    let path = world.file("later.jsonl", file(&world, &entries));
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    let fork = world.run(&["fork", "later-1"]).ok().text();
    world.run(&["compact", fork.trim()]).ok();
    assert_eq!(world.requests().len(), 1, "there is nothing but the turn to sum up");
    let asked: String = messages(&world.requests()[0]).iter().map(wire_text).collect();
    assert!(
        asked.contains("[User]: a long task") && asked.contains("out 0") && !asked.contains("out 2"),
        "{asked}"
    );
    world.run(&["-p", "--session", fork.trim(), "on"]).ok();
    let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(said[0].contains("## Goal\nAs before.\n\n---\n\n"), "{said:?}");
    assert!(said[0].contains("## Original Request\nWork.") && said[0].contains("a long task"), "{said:?}");
}
