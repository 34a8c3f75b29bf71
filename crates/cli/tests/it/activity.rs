//! What was done: tokens and cost, files, a log, whose each line is.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../archive/tests")
}

/// Session files of Pi, as text.
fn pi_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(fixtures().join("fixtures")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Those of other agents.
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".jsonl") {
            files.push((name, String::from_utf8(bytes).unwrap()));
        } else if let Some(name) = name.strip_suffix(".gz").filter(|name| name.ends_with(".jsonl")) {
            let mut text = String::new();
            flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
            files.push((name.to_owned(), text));
        }
    }
    files.sort();
    files
}

/// Calls, input, output, cache read, cache write of lines of JSON, and US dollars: added up without any of our code. What a
/// file has that was `seen` in another one was copied by a fork.
fn sums(text: &str, seen: &mut HashSet<(String, String)>) -> ([u64; 5], f64) {
    let (mut counts, mut cost) = ([0; 5], 0.0);
    let mut own = HashSet::new();
    for line in text.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        if let (Some(id), Some(at)) = (entry["id"].as_str(), entry["timestamp"].as_str()) {
            let name = (id.to_owned(), at.to_owned());
            if seen.contains(&name) {
                continue;
            }
            own.insert(name);
        }
        for usage in
            [&entry["usage"], &entry["message"]["usage"]].into_iter().filter(|usage| usage.is_object())
        {
            let before = counts;
            for (count, name) in counts[1..].iter_mut().zip(["input", "output", "cacheRead", "cacheWrite"]) {
                *count += usage[name].as_u64().unwrap_or(0);
            }
            cost += usage["cost"]["total"].as_f64().unwrap_or(0.0);
            // A call that failed before it was counted is none.
            counts[0] += u64::from(counts != before);
        }
    }
    seen.extend(own);
    (counts, cost)
}

/// The same as `quipu usage` tells it, in all.
fn used(world: &World, args: &[&str]) -> (Vec<Value>, [u64; 5], f64) {
    let args = [&["usage", "--json"], args].concat();
    let mut lines = world.run(&args).ok().json_lines();
    let end = lines.pop().unwrap();
    assert_eq!((&end["type"], &end["behind"]), (&json!("end"), &json!(0)));
    let counts =
        ["calls", "input", "output", "cacheRead", "cacheWrite"].map(|name| end[name].as_u64().unwrap());
    for (name, sum) in ["calls", "input", "output", "cacheRead", "cacheWrite"].iter().zip(counts) {
        assert_eq!(
            lines.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>(),
            sum,
            "{name} {args:?}"
        );
    }
    (lines, counts, end["cost"].as_f64().unwrap())
}

#[track_caller]
fn same_cents(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() < 0.000_001, "{ours} and {theirs}");
}

#[test]
fn usage_is_the_sum_of_what_the_files_say() {
    let world = World::new([]);
    let (mut expect, mut cost) = ([0; 5], 0.0);
    let mut seen = HashSet::new();
    for (name, text) in pi_files() {
        let (counts, dollars) = sums(&text, &mut seen);
        expect.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
        cost += dollars;
        world.file(&name, text);
    }
    assert!(cost > 42.0, "{cost}");
    world.run(&["import", "pi", "."]).ok();
    // A second time, and a copy under another name: nodes count once.
    world.run(&["import", "pi", "."]).ok();
    let (name, text) = pi_files().pop().unwrap();
    std::fs::create_dir(world.path("work/copy")).unwrap();
    world.file(&format!("copy/again-{name}"), text);
    world.run(&["import", "pi", "copy"]).ok();
    for by in ["day", "project", "model", "agent", "session"] {
        let (lines, counts, dollars) = used(&world, &["--by", by]);
        assert_eq!(counts, expect, "by {by}");
        same_cents(dollars, cost);
        assert!(lines.iter().all(|line| line[by].is_string()), "{lines:?}");
    }
    let (lines, ..) = used(&world, &["--by", "agent"]);
    assert_eq!((lines.len(), &lines[0]["agent"]), (1, &json!("pi")));

    // Seven different messages of a quarter of a dollar each, one in two steps; a fork shares two more. A row holds no JSON.
    let database = fixtures().join("fixtures/hand-made.db");
    world.run(&["import", "opencode", database.to_str().unwrap()]).exits(1);
    let (lines, ..) = used(&world, &["--by", "agent"]);
    let theirs = lines.iter().find(|line| line["agent"] == "opencode").unwrap();
    same_cents(theirs["cost"].as_f64().unwrap(), 7.0 * 0.25);

    // No cost in the files, and a model that nobody knows: said, and never made up.
    let corpus = fixtures().join("it/__fuzz__/claude_code_files/corpus");
    world.run(&["import", "claude-code", corpus.to_str().unwrap()]);
    let (lines, ..) = used(&world, &["--by", "agent"]);
    let theirs = lines.iter().find(|line| line["agent"] == "claude-code").unwrap();
    assert_eq!((&theirs["cost"], &theirs["estimated"]), (&json!(0.0), &json!(0.0)));
    assert_eq!(theirs["unknown"], theirs["calls"]);

    // Days of before and after.
    let (_, counts, _) = used(&world, &["--since", "2999-01-01"]);
    assert_eq!(counts, [0; 5]);
    let (_, counts, _) = used(&world, &["--until", "2999-01-01", "--by", "model"]);
    assert!(counts[0] > expect[0]);

    let text = world.run(&["usage", "--by", "agent"]).ok().text();
    assert!(text.contains("together") && text.contains('█') && text.contains("$42.60"), "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn calls_of_a_file_without_cost_are_estimated_by_the_catalogue() {
    let world = World::new([]);
    let said = |n: u32| {
        json!({ "type": "message", "id": format!("a{n}"), "parentId": null, "timestamp": format!("2025-01-02T03:04:0{n}.000Z"),
            "message": { "role": "assistant", "content": [], "api": "x", "provider": "testing", "model": MODEL,
                "usage": { "input": 1_000_000, "output": 500_000, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0 },
                "stopReason": "stop", "timestamp": 5 } })
    };
    let header = json!({ "type": "session", "version": 3, "id": "0199aaaa-0000-7000-8000-000000000002", "timestamp": "2025-01-02T03:04:00.678Z", "cwd": "/elsewhere" });
    let text: String = [header, said(1), said(2)].iter().map(|line| format!("{line}\n")).collect();
    let file = world.file("one.jsonl", text);
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    let (lines, counts, cost) = used(&world, &["--by", "project"]);
    assert_eq!((counts[0], cost, &lines[0]["project"]), (2, 0.0, &json!("/elsewhere")));
    // A thousand dollars for a million tokens.
    same_cents(lines[0]["estimated"].as_f64().unwrap(), 3_000.0);
    let ran = world.run(&["usage"]).ok();
    assert!(ran.text().contains("estimated") && ran.err.contains("without a recorded cost"), "{}", ran.err);
}

/// A session of Pi's, its forks and a copy of it: what each file is called, and its lines.
fn forks_of_pi(work: &Path) -> Vec<(&'static str, String)> {
    let id = |n: u32| format!("0199aaaa-0000-7000-8000-00000000000{n}");
    let header = |n: u32, cwd: &Path, parent: Option<u32>| {
        let mut line = json!({ "type": "session", "version": 3, "id": id(n),
            "timestamp": format!("2025-01-02T0{n}:00:00.000Z"), "cwd": cwd });
        if let Some(parent) = parent {
            line["parentSession"] = format!("/s/2025-01-02T0{parent}-00-00-000Z_{}.jsonl", id(parent)).into();
        }
        line
    };
    let entry = |name: &str, parent: &str, more: Value| {
        let at = format!("2025-01-02T01:00:{:02}.000Z", 10 + name.as_bytes()[1] - b'0');
        let parent = if parent.is_empty() { Value::Null } else { parent.into() };
        let mut line = json!({ "id": name, "parentId": parent, "timestamp": at });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let user = |name: &str, parent: &str, text: &str| {
        let message = json!({ "role": "user", "content": text, "timestamp": 5 });
        entry(name, parent, json!({ "type": "message", "message": message }))
    };
    let answer = |name: &str, parent: &str, input: u64, content: Value| {
        let message = json!({ "role": "assistant", "content": content, "api": "x", "provider": "p", "model": "m",
            "usage": { "input": input, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": { "total": 0.5 } },
            "stopReason": "stop", "timestamp": 6 });
        entry(name, parent, json!({ "type": "message", "message": message }))
    };
    let says = |name: &str| json!([{ "type": "text", "text": format!("Answer {name}.") }]);
    let edit = json!([{ "type": "toolCall", "id": "c1", "name": "write", "arguments": { "path": work.join("a.txt"), "content": "purple line\n" } }]);
    let result = json!({ "role": "toolResult", "toolCallId": "c1", "toolName": "write", "content": [{ "type": "text", "text": "Done." }], "isError": false, "timestamp": 6 });
    let label = json!({ "type": "label", "targetId": "a2", "label": "good" });
    let summary = json!({ "type": "branch_summary", "fromId": "a2", "summary": "A purple summary.",
        "usage": { "input": 7000, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": { "total": 0.5 } } });
    let began = vec![
        entry("m0", "", json!({ "type": "model_change", "provider": "p", "modelId": "m" })),
        user("u1", "m0", "Count the purple cows."),
        answer("a1", "u1", 1, edit),
        entry("r1", "a1", json!({ "type": "message", "message": result })),
        answer("a2", "r1", 10, says("a2")),
    ];
    let with = |lines: &[Value], more: &[Value]| [lines, more].concat();
    // A label stood between, which its fork re-creates at the end.
    let whole = with(
        &began,
        &[
            entry("l3", "a2", label.clone()),
            entry("s3", "l3", summary.clone()),
            user("u3", "s3", "And the green ones?"),
            answer("a3", "u3", 100, says("a3")),
        ],
    );
    let chain = with(
        &began,
        &[
            entry("s3", "a2", summary),
            user("u3", "s3", "And the green ones?"),
            answer("a3", "u3", 100, says("a3")),
        ],
    );
    let fork = with(
        &chain,
        &[
            entry("l9", "a3", label),
            user("u4", "l9", "Only in the fork."),
            answer("a4", "u4", 1_000, says("a4")),
        ],
    );
    let elsewhere =
        with(&whole, &[user("u5", "a3", "Only elsewhere."), answer("a5", "u5", 10_000, says("a5"))]);
    let again = with(&fork, &[user("u6", "a4", "In a fork of it."), answer("a6", "u6", 100_000, says("a6"))]);
    let mut copy = header(1, work, None);
    copy["timestamp"] = "2025-01-02T07:00:00.000Z".into();
    let other = Path::new("/elsewhere");
    [
        ("whole", header(1, work, None), whole.clone()),
        ("fork", header(2, work, Some(1)), fork),
        ("elsewhere", header(3, other, Some(1)), elsewhere),
        ("again", header(4, work, Some(2)), again),
        ("copy", copy, chain),
    ]
    .into_iter()
    .map(|(name, header, lines)| {
        let lines = std::iter::once(header).chain(lines);
        (name, lines.map(|line| format!("{line}\n")).collect())
    })
    .collect()
}

#[test]
fn entries_copied_by_pi_forks_count_once() {
    let id = |n: u32| format!("0199aaaa-0000-7000-8000-00000000000{n}");
    let orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 0, 3, 4, 2], [3, 2, 4, 0, 1]];
    for order in orders {
        let world = World::new([Answer::new().text("Going on.").reply()]);
        let files_of_pi = forks_of_pi(&world.path("work"));
        world.file("a.txt", "purple line\n");
        let mut paths = Vec::new();
        for (at, place) in order.into_iter().enumerate() {
            let (name, text) = &files_of_pi[place];
            let path = world.file(&format!("{name}.jsonl"), text);
            world.run(&["import", "pi", path.to_str().unwrap()]).ok();
            let (_, [calls, ..], _) = used(&world, &[]);
            // What is in the first file counts, whichever it is.
            let first = [4, 5, 5, 6, 4][order[0]];
            assert!(calls >= first && (at > 0 || calls == first), "{order:?} {at} {calls}");
            paths.push((name, path));
        }
        let check = |what: &str| {
            let (lines, counts, dollars) = used(&world, &["--by", "session"]);
            assert_eq!(counts[..2], [7, 118_111], "{what} {order:?}");
            same_cents(dollars, 3.5);
            let mut by: Vec<(String, u64)> = lines
                .iter()
                .map(|line| (line["session"].as_str().unwrap().to_owned(), line["input"].as_u64().unwrap()))
                .collect();
            by.sort();
            let expect = [(id(1), 7_111), (id(2), 1_000), (id(3), 10_000), (id(4), 100_000)];
            assert_eq!(by, expect, "{what} {order:?}");
            let hits = |args: &[&str]| {
                let args = [&["search", "--json"], args].concat();
                let mut lines = world.run(&args).ok().json_lines();
                lines.pop();
                let of = |line: &Value| (line["session"].as_str().unwrap().to_owned(), line["role"].clone());
                let mut hits: Vec<_> = lines.iter().map(of).collect();
                hits.sort_by_key(|(session, role)| (session.clone(), role.to_string()));
                hits
            };
            let expect: Vec<_> = ["assistant", "pi_internal", "user"].map(|role| (id(1), json!(role))).into();
            for args in [&["purple"][..], &["purple", "--best"]] {
                assert_eq!(hits(args), expect, "{what} {order:?} {args:?}");
            }
            assert_eq!(hits(&["urple", "--part"]), expect[..1], "{what} {order:?}");
            // Where the original is not looked for, the copy is found.
            assert_eq!(hits(&["cows", "--project", "/elsewhere"]), [(id(3), json!("user"))]);
            assert_eq!(hits(&["cows", "--branch", &id(2)]), [(id(2), json!("user"))]);
            assert_eq!(hits(&["only", "fork"]), [(id(2), json!("user"))]);

            let work = format!("{}/", world.path("work").display());
            assert_eq!(short(&files(&world, &[&id(1)]), &work), ["a.txt r0 w1 e0 d0"], "{order:?}");
            for fork in 2..=4 {
                assert_eq!(files(&world, &[&id(fork)]), [] as [Value; 0], "{order:?}");
            }
            let logged = log(&world, &["--all", "--since", "2025-01-01"]);
            let mut asked: Vec<_> = logged
                .iter()
                .map(|one| (one["session"].as_str().unwrap().to_owned(), one["askedCount"].clone()))
                .collect();
            asked.sort_by_key(|(session, _)| session.clone());
            asked.dedup();
            assert_eq!(asked, [(id(1), json!(2)), (id(2), json!(1)), (id(3), json!(1)), (id(4), json!(1))]);
        };
        check("as imported");
        for (_, path) in &paths {
            world.run(&["import", "pi", path.to_str().unwrap()]).ok();
        }
        check("imported again");
        world.run(&["doctor", "--rebuild"]).ok();
        check("made anew");
        let lines = world.run(&["blame", "a.txt", "--json"]).ok().json_lines();
        assert_eq!(lines[0]["session"], json!(id(1)), "{order:?}");

        let fork = &paths.iter().find(|(name, _)| **name == "fork").unwrap().1;
        let model = format!("testing/{MODEL}");
        world.run(&["-p", "--session", fork.to_str().unwrap(), "--model", &model, "Go on."]).ok();
        let (_, [calls, ..], _) = used(&world, &[]);
        assert_eq!(calls, 8, "{order:?}");
        // Of a session that was removed, what the oldest fork copied is found.
        world.run(&["rm", "--yes", &id(1)]).ok();
        let found = world.run(&["search", "cows", "--json"]).ok().json_lines();
        assert_eq!((found.len(), &found[0]["session"]), (2, &json!(id(2))), "{order:?} {found:?}");
    }
}

#[test]
fn exported_entries_copied_by_a_pi_fork_count_once() {
    let world = World::new([
        call("c1", "write", &json!({ "path": "a.txt", "content": "x\n" })),
        Answer::new().text("Done.").reply(),
        Answer::new().text("In a file.").reply(),
    ]);
    world.run(&["-p", "Write a file."]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let exported = world.run(&["export", "--format", "pi", &session]).ok().text();
    world.run(&["-p", "--session", "own.jsonl", "Say something."]).ok();
    let own = std::fs::read_to_string(world.path("work/own.jsonl")).unwrap();
    let before = (used(&world, &[]), files(&world, &[&session]));
    assert_eq!(before.0.1[0], 3);
    // As Pi forks: a header of its own, and all entries as they were.
    for (name, text) in [("one.jsonl", exported), ("two.jsonl", own)] {
        let (_, entries) = text.split_once('\n').unwrap();
        let id =
            format!("0199aaaa-0000-7000-8000-0000000000{}", name.len() + usize::from(name == "one.jsonl"));
        let header = json!({ "type": "session", "version": 3, "id": id, "timestamp": "2020-01-02T03:04:05.678Z", "cwd": "/x" });
        let file = world.file(name, format!("{header}\n{entries}"));
        world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    }
    assert_eq!((used(&world, &[]), files(&world, &[&session])), before);
    let found = world.run(&["search", "something", "--json"]).ok().json_lines();
    assert_eq!((found.len(), &found[0]["agent"]), (2, &json!("quipu")), "{found:?}");
    world.run(&["doctor", "--rebuild"]).ok();
    assert_eq!((used(&world, &[]), files(&world, &[&session])), before);
}

#[test]
fn usage_includes_summaries_and_counts_forks_once() {
    let long = "word ".repeat(400);
    let world = World::new(
        [&long, &long, "## Goal\nTo count.", "## Goal\nTo branch."]
            .map(|text| Answer::new().text(text).reply()),
    );
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    let (_, before, spent) = used(&world, &[]);
    world.run(&["compact"]).ok();
    let (_, counts, cost) = used(&world, &[]);
    assert_eq!((before[0], counts[0]), (2, 3));
    assert!(cost > spent, "the summary's call");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let first =
        world.nodes().iter().find(|node| node["role"] == "user").unwrap()["id"].as_str().unwrap().to_owned();
    world.run(&["branch", &first, "--summarize"]).ok();
    world.run(&["clone", &session]).ok();
    let (lines, counts, cost) = used(&world, &["--by", "session"]);
    assert_eq!((counts[0], lines.len()), (4, 1), "a clone has called nobody: {lines:?}");
    same_cents(cost, world.sessions().iter().map(|row| row["cost"].as_f64().unwrap()).sum());
}

#[test]
fn usage_of_nothing_and_wrong_times() {
    let world = World::new([]);
    let ran = world.run(&["usage"]).ok();
    assert_eq!(
        (ran.text().as_str(), ran.err.trim()),
        ("", "There are no sessions yet. Try `quipu demo` or `quipu import`.")
    );
    world.run(&["usage", "--since", "yesterday"]).fails(2, &["--since yesterday"]);
    world.run(&["usage", "--until", "x"]).fails(2, &["--until x"]);
    world.run(&["usage", "--since", "1h", "--until", "2h"]).fails(2, &["--until must be after --since"]);
    world.run(&["usage", "--by", "moon"]).fails(2, &["moon"]);
    world.run(&["files"]).fails(2, &["there are no sessions yet"]);
}

fn files(world: &World, args: &[&str]) -> Vec<Value> {
    let args = [&["files", "--json"], args].concat();
    let mut lines = world.run(&args).ok().json_lines();
    let end = lines.pop().unwrap();
    assert_eq!(
        (&end["type"], &end["files"], &end["behind"]),
        (&json!("end"), &json!(lines.len()), &json!(0))
    );
    lines
}

/// Path below the directory, reads, writes, edits.
fn short(files: &[Value], dir: &str) -> Vec<String> {
    let mut short: Vec<String> = files
        .iter()
        .map(|file| {
            let path = file["path"].as_str().unwrap();
            let path = path.strip_prefix(dir).unwrap_or(path);
            format!("{path} r{} w{} e{} d{}", file["read"], file["written"], file["edited"], file["removed"])
        })
        .collect();
    short.sort();
    short
}

#[test]
fn files_of_a_session_of_ours() {
    let world = World::new([
        call("c1", "read", &json!({ "path": "a.txt" })),
        call("c2", "edit", &json!({ "path": "./a.txt", "edits": [{ "oldText": "one", "newText": "two" }] })),
        call("c3", "write", &json!({ "path": "./b.txt", "content": "b\n" })),
        call(
            "c4",
            "edit",
            &json!({ "path": "a.txt", "edits": [{ "oldText": "nothing", "newText": "two" }] }),
        ),
        Answer::new().text("Done.").reply(),
    ]);
    world.file("a.txt", "one\n");
    world.run(&["-p", "Work."]).ok();
    let work = format!("{}/", world.path("work").display());
    let found = files(&world, &[]);
    assert_eq!(
        short(&found, &work),
        ["a.txt r1 w0 e1 d0", "b.txt r0 w1 e0 d0"],
        "what failed does not count"
    );
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(files(&world, &[&session]), found);
    let node = found.iter().find(|file| file["path"].as_str().unwrap().ends_with("a.txt")).unwrap()["changed"]["node"]
        .as_str()
        .unwrap();
    let shown = world.run(&["show", node, "--json"]).ok().text();
    assert!(shown.contains("\"c2\""), "the node of the edit: {shown}");
    let text = world.run(&["files"]).ok().text();
    assert!(text.contains("read 1, edited 1") && text.contains("  b.txt\n"), "{text}");
    world.run(&["files", "nothing-here"]).fails(2, &["nothing-here"]);
    // Made anew, they say the same.
    world.run(&["doctor", "--repair"]).ok();
    assert_eq!(files(&world, &[&session]), found);
}

#[test]
fn changes_by_commands_are_in_files_log_and_diff() {
    let world = World::new([
        Answer::new().text("Ready.").reply(),
        bash(
            "c1",
            "cat kept.txt; echo b > new.txt; echo x >> kept.txt; rm gone.txt; mv from.txt sub/to.txt; exit 3",
        ),
        bash("c2", "echo c > new.txt; echo temporary > brief.txt; rm brief.txt"),
        call("c3", "write", &json!({ "path": "new.txt", "content": "d\n" })),
        call("c4", "edit", &json!({ "path": "kept.txt", "oldText": "nothing", "newText": "two" })),
        Answer::new().text("Done.").reply(),
    ]);
    std::fs::create_dir(world.path("work/sub")).unwrap();
    for name in ["kept.txt", "gone.txt", "from.txt"] {
        world.file(name, format!("{name}\n"));
    }
    world.run(&["-p", "Begin."]).ok();
    let left = world.run(&["life", "--json"]).ok().json()["focus"].as_str().unwrap().to_owned();
    world.run(&["-p", "-c", "Work."]).ok();
    let work = format!("{}/", world.path("work").display());
    let expect = [
        "from.txt r0 w0 e0 d1",
        "gone.txt r0 w0 e0 d1",
        "kept.txt r0 w0 e1 d0",
        "new.txt r0 w2 e1 d0",
        "sub/to.txt r0 w1 e0 d0",
    ];
    let found = files(&world, &[]);
    assert_eq!(short(&found, &work), expect);
    let node = |name: &str| {
        let file = found.iter().find(|file| file["path"].as_str().unwrap().ends_with(name)).unwrap();
        world.run(&["show", file["changed"]["node"].as_str().unwrap(), "--json"]).ok().text()
    };
    assert!(node("gone.txt").contains("\"c1\"") && node("new.txt").contains("\"c3\""));

    let logged = log(&world, &[]);
    let mut changed: Vec<&str> =
        logged[0]["changed"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    changed.sort_unstable();
    let names = ["from.txt", "gone.txt", "kept.txt", "new.txt", "sub/to.txt"];
    assert_eq!(changed, names.map(|name| format!("{work}{name}")));
    assert_eq!(logged[0]["changedCount"], json!(5));

    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let diff = world.run(&["diff", &left, &session, "--json"]).ok().json();
    let told: Vec<String> = diff["b"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| format!("{} {}", file["done"].as_str().unwrap(), file["path"].as_str().unwrap()))
        .collect();
    let did = ["removed", "removed", "edited", "edited", "wrote"].into_iter().zip(names);
    assert_eq!(told, did.map(|(did, name)| format!("{did} {work}{name}")).collect::<Vec<_>>());
    assert_eq!(diff["a"]["files"], json!([]));

    // Made anew, they say the same.
    world.run(&["doctor", "--rebuild"]).ok();
    assert_eq!(files(&world, &[&session]), found);

    // A restore of files is no operation of the session, and without a restore nothing differs.
    world.run(&["undo", &session, "--files", "--yes"]).ok();
    assert!(world.path("work/gone.txt").exists() && !world.path("work/new.txt").exists());
    assert_eq!(files(&world, &[&session]), found);
    let diff = world.run(&["diff", &left, &session, "--json"]).ok().json();
    assert_eq!((&diff["a"]["files"], &diff["b"]["files"]), (&json!([]), &json!([])));
}

#[test]
fn files_of_sessions_of_other_agents() {
    let world = World::new([]);
    let line = |value: Value| format!("{value}\n");
    let u = "00000000-0000-4000-8000-00000000000";
    let base = |n: u32| {
        json!({ "sessionId": "407c9a06-1c02-4aa6-828d-9f3bae2c2140", "cwd": "/p", "version": "2.1.329", "isSidechain": false,
        "uuid": format!("{u}{n}"), "parentUuid": if n == 1 { Value::Null } else { format!("{u}{}", n - 1).into() }, "timestamp": format!("2026-01-02T03:04:0{n}.000Z") })
    };
    let with = |n: u32, more: Value| {
        let mut record = base(n);
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line(record)
    };
    let tool = |id: &str, name: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": "ok" });
    let text = [
        with(1, json!({ "type": "user", "message": { "role": "user", "content": "Work." } })),
        with(2, json!({ "type": "assistant", "message": { "role": "assistant", "id": "msg_1", "model": "m", "usage": { "input_tokens": 5, "output_tokens": 2 }, "stop_reason": "tool_use",
            "content": [tool("t1", "Read", json!({ "file_path": "/p/a" })), tool("t2", "Edit", json!({ "file_path": "/p/a", "old_string": "x", "new_string": "y" })),
                tool("t3", "MultiEdit", json!({ "file_path": "/p/a", "edits": [{ "old_string": "x", "new_string": "y" }] })),
                tool("t4", "Write", json!({ "file_path": "/p/b", "content": "z" })), tool("t5", "NotebookEdit", json!({ "notebook_path": "/p/n.ipynb", "new_source": "1" }))] } })),
        with(3, json!({ "type": "user", "message": { "role": "user", "content": [result("t1"), result("t2"), result("t3"), result("t4"), result("t5")] } })),
        with(4, json!({ "type": "assistant", "message": { "role": "assistant", "id": "msg_2", "model": "m", "usage": { "input_tokens": 5, "output_tokens": 2 }, "stop_reason": "end_turn", "content": [{ "type": "text", "text": "Done." }] } })),
    ]
    .concat();
    let file = world.file("407c9a06-1c02-4aa6-828d-9f3bae2c2140.jsonl", text);
    world.run(&["import", "claude-code", file.to_str().unwrap()]).ok();
    let found = files(&world, &["407c9a06-1c02-4aa6-828d-9f3bae2c2140"]);
    assert_eq!(short(&found, "/p/"), ["a r1 w0 e2 d0", "b r0 w1 e0 d0", "n.ipynb r0 w0 e1 d0"]);

    let record = |n: usize, payload: Value| {
        line(
            json!({ "timestamp": format!("2026-01-02T03:04:0{n}.000Z"), "ordinal": n, "type": "response_item", "payload": payload }),
        )
    };
    let patch = "*** Begin Patch\n*** Update File: src/a\n@@\n-x\n+y\n*** Add File: b\n+z\n*** End Patch";
    let id = "0199bbbb-0000-7000-8000-000000000002";
    let text = [
        line(json!({ "timestamp": "2026-01-02T03:04:00.000Z", "ordinal": 0, "type": "session_meta", "payload": { "id": id, "cwd": "/q", "timestamp": "2026-01-02T03:04:00.000Z", "cli_version": "0.169.0" } })),
        record(1, json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Work." }] })),
        record(2, json!({ "type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c1" })),
        record(3, json!({ "type": "custom_tool_call_output", "call_id": "c1", "output": "Success." })),
        record(4, json!({ "type": "function_call", "name": "exec_command", "arguments": "{\"cmd\":\"cat b\",\"workdir\":\"/q/sub\"}", "call_id": "c2" })),
        record(5, json!({ "type": "function_call_output", "call_id": "c2", "output": "z" })),
        record(6, json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Done." }] })),
    ]
    .concat();
    let file = world.file(&format!("rollout-2026-01-02T03-04-00-{id}.jsonl"), text);
    world.run(&["import", "codex", file.to_str().unwrap()]).ok();
    let found = files(&world, &[id]);
    assert_eq!(short(&found, "/q/"), ["b r0 w1 e0 d0", "src/a r0 w0 e1 d0", "sub/b r1 w0 e0 d0"]);
}

/// The reasons of a file's lines, `-` for no agent.
fn reasons(world: &World, file: &str) -> Vec<String> {
    let mut lines = world.run(&["blame", file, "--json"]).ok().json_lines();
    let end = lines.pop().unwrap();
    assert_eq!(
        (&end["type"], &end["lines"], &end["behind"]),
        (&json!("end"), &json!(lines.len()), &json!(0))
    );
    let short = |line: &Value| match line["reason"].as_str() {
        Some(reason) => format!("{reason} | {}", line["text"].as_str().unwrap()),
        None => format!("- | {}", line["text"].as_str().unwrap()),
    };
    lines.iter().map(short).collect()
}

fn git(world: &World, args: &[&str]) -> String {
    let mut command = world.command("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Three turns, a human's edit, and a rebase in a real repository: each line names its turn and the reason.
#[test]
fn each_line_names_its_turn_after_a_humans_edit_and_a_rebase() {
    let first = "fn area(w: u32, h: u32) -> u32 {\n    w * h\n}\n\nfn main() {\n    println!(\"{}\", area(2, 3));\n}\n";
    let world = World::new([
        call("c1", "write", &json!({ "path": "main.rs", "content": first })),
        Answer::new().text("Made.").reply(),
        call(
            "c2",
            "edit",
            &json!({ "path": "main.rs", "edits": [{ "oldText": "    w * h\n}\n", "newText": "    w * h\n}\n\nfn around(w: u32, h: u32) -> u32 {\n    2 * (w + h)\n}\n" }] }),
        ),
        Answer::new().text("Added.").reply(),
        call(
            "c3",
            "edit",
            &json!({ "path": "main.rs", "edits": [{ "oldText": "area(2, 3)", "newText": "around(2, 3)" }] }),
        ),
        call(
            "c4",
            "edit",
            &json!({ "path": "main.rs", "edits": [{ "oldText": "this is not there", "newText": "fn main() {" }] }),
        ),
        Answer::new().text("Changed.").reply(),
    ]);
    git(&world, &["init", "-q"]);
    world.file("main.rs", "// nothing yet\n");
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "begin"]);
    git(&world, &["checkout", "-qb", "work"]);

    world.run(&["-p", "Make a program that prints an area."]).ok();
    git(&world, &["commit", "-qam", "first"]);
    world.run(&["-p", "-c", "Add the way around."]).ok();
    // By hand: a line changed, lines added between and in front.
    let path = world.path("work/main.rs");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("    2 * (w + h)\n", "    // twice both sides\n    w + w + h + h\n");
    std::fs::write(&path, format!("// Written by two.\n{text}\nfn by_hand() {{\n    todo!()\n}}\n")).unwrap();
    git(&world, &["commit", "-qam", "by hand"]);
    world.run(&["-p", "-c", "Print the way around instead."]).ok();
    git(&world, &["commit", "-qam", "third"]);
    let (area, around, print) =
        ("Make a program that prints an area.", "Add the way around.", "Print the way around instead.");
    let expect = |head: &[&str]| {
        let mut lines: Vec<String> = head.iter().map(|line| format!("- | {line}")).collect();
        lines.extend(
            [
                ("-", "// Written by two."),
                (area, "fn area(w: u32, h: u32) -> u32 {"),
                (area, "    w * h"),
                (area, "}"),
                (around, ""),
                (around, "fn around(w: u32, h: u32) -> u32 {"),
                ("-", "    // twice both sides"),
                ("-", "    w + w + h + h"),
                (around, "}"),
                (area, ""),
                (area, "fn main() {"),
                (print, "    println!(\"{}\", around(2, 3));"),
                (area, "}"),
                ("-", ""),
                ("-", "fn by_hand() {"),
                ("-", "    todo!()"),
                ("-", "}"),
            ]
            .map(|(why, line)| format!("{why} | {line}")),
        );
        lines
    };
    assert_eq!(reasons(&world, "main.rs"), expect(&[]));

    // Somebody changed the beginning of the file on main; the branch is rebased onto that.
    git(&world, &["checkout", "-q", "main"]);
    world.file("other.txt", "x\n");
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "other"]);
    git(&world, &["checkout", "-q", "work"]);
    git(&world, &["rebase", "-q", "main"]);
    assert_eq!(reasons(&world, "main.rs"), expect(&[]));
    // Another checkout and back, and lines from elsewhere in front.
    git(&world, &["checkout", "-q", "main"]);
    assert_eq!(reasons(&world, "main.rs"), ["- | // nothing yet"]);
    git(&world, &["checkout", "-q", "work"]);
    let text = std::fs::read_to_string(&path).unwrap();
    world.file("main.rs", format!("#![deny(missing_docs)]\n{text}"));
    assert_eq!(reasons(&world, "main.rs"), expect(&["#![deny(missing_docs)]"]));

    // One line, for people: node, session, time, the user's words, and what opens it.
    let text = world.run(&["blame", "main.rs:13"]).ok().text();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert!(text.starts_with("    println!") && text.contains(print) && text.contains(&session), "{text}");
    let node = text.split("quipu open ").nth(1).unwrap().trim().to_owned();
    let opened = world.run(&["open", &node]).ok().text();
    assert!(opened.contains("[call edit c3]") && opened.contains("around(2, 3)"), "{opened}");
    let text = world.run(&["blame", "main.rs:1"]).ok().text();
    assert!(text.contains("no agent"), "{text}");
    let text = world.run(&["blame", "main.rs"]).ok().text();
    assert!(text.lines().count() == 18 && text.contains("quipu") && !text.contains('\u{1b}'), "{text}");
    // Below a link, by another name of the same directory.
    std::os::unix::fs::symlink(world.path("work"), world.path("tmp/link")).unwrap();
    let linked = world.path("tmp/link/main.rs");
    assert_eq!(reasons(&world, linked.to_str().unwrap()), expect(&["#![deny(missing_docs)]"]));
}

#[test]
fn files_without_blame() {
    let world = World::says("Hello.");
    world.file("plain.txt", "one\ntwo\n");
    world.file("with:2", "name\n");
    world.file("binary", b"a\0b");
    world.file("latin", b"caf\xe9\n");
    world.file("empty", "");
    std::fs::File::create(world.path("work/huge")).unwrap().set_len(17 << 20).unwrap();
    // Before there is a store, and with one.
    for _ in 0..2 {
        assert_eq!(reasons(&world, "plain.txt"), ["- | one", "- | two"]);
        assert_eq!(reasons(&world, "with:2"), ["- | name"]);
        assert_eq!(reasons(&world, "empty"), <[&str; 0]>::default());
        let ran = world.run(&["blame", "plain.txt:2"]).ok();
        assert!(
            ran.text().contains("no agent") && ran.err.contains("No known session changed"),
            "{}",
            ran.err
        );
        world.run(&["blame", "plain.txt:3"]).fails(2, &["has 2 lines", "no line 3"]);
        world.run(&["blame", "plain.txt:0"]).fails(2, &["no line 0"]);
        world.run(&["blame", "plain.txt:x"]).fails(2, &["`x` is not a line number"]);
        world.run(&["blame", "missing.txt"]).fails(2, &["missing.txt", "cannot be read"]);
        world.run(&["blame", "missing.txt:4"]).fails(2, &["missing.txt", "cannot be read"]);
        world.run(&["blame", "binary"]).fails(2, &["is binary"]);
        world.run(&["blame", "latin"]).fails(2, &["not valid UTF-8"]);
        world.run(&["blame", "huge"]).fails(2, &["17825792 bytes", "16777216"]);
        world.run(&["blame", "."]).fails(2, &["is not a file"]);
        world.run(&["-p", "Hello?"]);
    }
}

fn log(world: &World, args: &[&str]) -> Vec<Value> {
    let args = [&["log", "--json"], args].concat();
    let mut lines = world.run(&args).ok().json_lines();
    let end = lines.pop().unwrap();
    assert_eq!(
        (&end["type"], &end["sessions"], &end["behind"]),
        (&json!("end"), &json!(lines.len()), &json!(0))
    );
    lines
}

#[test]
fn the_log_tells_what_was_done_here_today() {
    let world = World::new([
        call("c1", "write", &json!({ "path": "a.txt", "content": "x\n" })),
        call("c2", "read", &json!({ "path": "missing.txt" })),
        Answer::new().text("Done.").reply(),
        Answer::new().text("Elsewhere.").reply(),
    ]);
    world.run(&["-p", "\n  Write a file.\nAnd more."]).ok();
    std::fs::create_dir(world.path("work/sub")).unwrap();
    let mut command = world.quipu(&["-p", "Say something."]);
    command.current_dir(world.path("work/sub"));
    RunningCommand::start(command).wait().ok();
    // One of last year, of somebody else.
    let lines = [
        json!({ "type": "session", "version": 3, "id": "0199aaaa-0000-7000-8000-000000000002", "timestamp": "2025-01-02T03:04:05.678Z", "cwd": world.path("work") }),
        json!({ "type": "message", "id": "u1", "parentId": null, "timestamp": "2025-01-02T03:04:06.000Z",
            "message": { "role": "user", "content": "Long ago.", "timestamp": 5 } }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = world.file("one.jsonl", text);
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();

    let found = log(&world, &[]);
    assert_eq!(found.len(), 2, "{found:?}");
    let asked = |at: usize| found[at]["asked"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!((asked(0).as_str(), asked(1).as_str()), ("Say something.", "Write a file."));
    let first = &found[1];
    assert_eq!(
        first["tools"],
        json!([{ "tool": "read", "calls": 1, "failed": 1 }, { "tool": "write", "calls": 1, "failed": 0 }])
    );
    assert_eq!(first["changed"], json!([{ "path": world.path("work/a.txt"), "times": 1 }]));
    assert_eq!(
        (&first["ended"], &first["agent"], &first["calls"]),
        (&json!("answered"), &json!("quipu"), &json!(3))
    );
    assert_eq!(first["models"], json!([format!("testing/{MODEL}")]));
    let cost: f64 = found.iter().map(|entry| entry["cost"].as_f64().unwrap()).sum();
    same_cents(cost, used(&world, &["--since", "1d"]).2);

    let all = log(&world, &["--since", "2024-01-01"]);
    assert_eq!((all.len(), &all[2]["agent"], &all[2]["ended"]), (3, &json!("pi"), &json!("unfinished")));
    assert_eq!(log(&world, &["--since", "2024-01-01", "--agent", "pi"]).len(), 1);
    assert_eq!(log(&world, &["--since", "2024-01-01", "--limit", "1"]).len(), 1);
    assert_eq!(log(&world, &["--agent", "nobody"]).len(), 0);
    // From a directory that has none of it.
    let mut command = world.quipu(&["log", "--json"]);
    command.current_dir(world.path("tmp"));
    assert_eq!(RunningCommand::start(command).wait().ok().json_lines().len(), 1);
    let mut command = world.quipu(&["log", "--all"]);
    command.current_dir(world.path("tmp"));
    let text = RunningCommand::start(command).wait().ok().text();
    for part in ["› Write a file.", "tools: read 1 (1 failed), write 1", "changed: a.txt", "answered", MODEL]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'));
    world.run(&["log", "--since", "soon"]).fails(2, &["--since soon"]);
    let ran = world.run(&["log", "--since", "2999-01-01"]).ok();
    assert!(ran.text().is_empty() && ran.err.contains("No activity in"), "{}", ran.err);
}

#[test]
fn a_node_is_opened_whole() {
    let long = "a line of an answer\n".repeat(3_000);
    let world = World::says(&long);
    world.run(&["-p", "Say much."]).ok();
    let node = world.nodes().iter().find(|node| node["role"] == "assistant").unwrap().clone();
    let id = node["id"].as_str().unwrap();
    // No terminal, no pager: whatever it says.
    let mut command = world.quipu(&["open", &id[..12]]);
    command.env("PAGER", "false");
    let text = RunningCommand::start(command).wait().ok().text();
    assert_eq!(text.matches("a line of an answer").count(), 3_000);
    let external = format!("ext:{}", node["externalId"].as_str().unwrap());
    assert_eq!(world.run(&["open", &external]).ok().text(), text);
    assert_eq!(world.run(&["open", id, "--json"]).ok().json()["id"], node["id"]);
    world.run(&["open", "nothing"]).fails(2, &["nothing"]);

    // On a terminal, by the pager that is set; without one that runs, as it is.
    for (pager, expect) in [
        ("head -n 1 | sed s/^/paged:/", "paged:"),
        ("no-such-pager", "a line of an answer"),
        ("cat", "a line of an answer"),
    ] {
        let quoted = format!("{} open {id}", world.program.display());
        let mut command = world.command("script");
        command.args(["-qec", &quoted, "/dev/null"]).env("PAGER", pager).env("TERM", "xterm");
        let Ok(output) = command.output() else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(expect), "{pager}: {text:.300}");
        assert!(text.contains("\u{1b}["), "colours on a terminal");
    }
}
