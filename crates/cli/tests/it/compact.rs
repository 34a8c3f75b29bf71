//! `quipu compact`, and contexts that are compacted by themselves.

use quipu::protocol::{Json, SessionId};
use quipu::store::{Commit, Op, OpenJump, OpenOptions, SqliteStore, Store};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{World, messages, wire_text};

fn answers(texts: &[&str]) -> Vec<quipu_testkit::Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

/// Settings by which about the last exchange stays.
fn small(world: &World) {
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

#[test]
fn a_session_is_compacted_on_demand_and_that_is_undone() {
    let long = "word ".repeat(400);
    let world = World::new(answers(&[&long, &long, "## Goal\nTo count.", "three", "four"]));
    small(&world);
    world.file("AGENTS.md", "Count in whole numbers.");
    world.run(&["compact"]).fails(2, &["this directory has no session"]);
    world.run(&["-p", "one"]).ok();
    world.run(&["compact"]).fails(2, &["nothing to compact"]);
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["compact", "--undo"]).fails(2, &["was not compacted"]);

    let ran = world.run(&["compact", "--focus", "the numbers"]).ok();
    let node = ran.text();
    assert!(ran.err.contains("compacting (requested)") && ran.err.contains("tokens before"), "{}", ran.err);
    let asked = messages(&world.requests()[2]).iter().map(wire_text).collect::<String>();
    assert!(asked.contains("[User]: one") && asked.ends_with("Additional focus: the numbers"), "{asked}");
    let shown = world.run(&["show", node.trim()]).ok().text();
    assert!(shown.contains("## Goal\nTo count.\n\n<user-messages>\none\n</user-messages>"), "{shown}");
    world.run(&["show", node.trim(), "--request"]).ok();
    assert_eq!(world.run(&["show", node.trim(), "--json"]).ok().json()["compaction"]["reason"], "manual");

    world.run(&["-p", "-c", "three?"]).ok();
    // The project's rules and the tools stand as they stood.
    let [before, after] = [1, 3].map(|at| world.requests()[at].json());
    assert!(before["system"].to_string().contains("Count in whole numbers."), "{before}");
    let bare =
        |part: &serde_json::Value| part.to_string().replace(r#""cache_control":{"type":"ephemeral"},"#, "");
    assert_eq!(
        (bare(&before["system"]), bare(&before["tools"])),
        (bare(&after["system"]), bare(&after["tools"]))
    );
    let said: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert!(
        said[0].contains("To count.") && said[1..] == ["two", &long, "three?"].map(str::to_owned),
        "{said:?}"
    );
    // What was said since would be left behind, so another way is named.
    world.run(&["compact", "--undo"]).fails(2, &["continued after its compaction", "quipu -p --fork"]);
}

/// The node is what it was for everybody who looks at it, though its role is for other programs.
#[test]
fn a_compaction_is_found_shown_drawn_and_exported() {
    let long = "word ".repeat(400);
    let world = World::new(answers(&[&long, &long, "## Goal\nTo find the zebra.", "three"]));
    small(&world);
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    let node = world.run(&["compact"]).ok().text().trim().to_owned();
    world.run(&["-p", "-c", "three?"]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    for args in [&["search", "zebra", "--json"][..], &["search", "zebra", "--role", "summary", "--json"]] {
        let hits: Vec<Value> = world.run(args).ok().json_lines();
        let hits: Vec<_> = hits.iter().filter(|hit| hit.get("node").is_some()).collect();
        assert_eq!(hits.len(), 1, "once: {hits:?}");
        assert_eq!((&hits[0]["node"], &hits[0]["role"]), (&json!(node), &json!("compactionSummary")));
    }
    let shown = world.run(&["show", &node, "--json"]).ok().json();
    assert_eq!(shown["role"], "compactionSummary");
    assert!(shown["compaction"]["summary"].as_str().unwrap().contains("zebra"));
    // What comes after it is not hidden with it.
    let life = world.run(&["life", "--ancestors", "9"]).ok().text();
    assert!(life.contains("compactionSummary: \"## Goal To find the zebra."), "{life}");
    assert!(life.contains("user: \"three?\""), "{life}");
    let (asked, _) = node.split_at(12);
    let below = world.run(&["life", asked]).ok().text();
    assert!(below.contains("user: \"three?\""), "{below}");
    let recalled = world.run(&["recall", &node]).ok().text();
    assert!(recalled.contains("{ role: \"compactionSummary\", text: \"## Goal"), "{recalled}");
    let tree = world.run(&["tree", &id]).ok().text();
    assert!(tree.contains("zebra") || tree.contains("compact"), "{tree}");
    for (format, name) in [("markdown", "a.md"), ("html", "a.html"), ("pi", "a.jsonl")] {
        world.run(&["export", &id, "--format", format, "--output", name]).ok();
        let text = std::fs::read_to_string(world.path("work").join(name)).unwrap();
        assert!(text.contains("To find the zebra."), "{format}: {text}");
        if format == "pi" {
            let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let compactions: Vec<_> = entries.iter().filter(|entry| entry["type"] == "compaction").collect();
            let [compaction] = compactions[..] else { panic!("{text}") };
            assert!(entries.iter().any(|entry| entry["id"] == compaction["firstKeptEntryId"]), "{text}");
        }
    }
}

#[test]
fn undone_the_next_request_is_the_one_that_would_have_been_sent() {
    let long = "word ".repeat(400);
    let mut bodies = Vec::new();
    for compacts in [true, false] {
        let mut script = answers(&[&long, &long]);
        if compacts {
            script.extend(answers(&["In short."]));
        }
        script.extend(answers(&["three"]));
        let world = World::new(script);
        small(&world);
        world.run(&["-p", "one"]).ok();
        world.run(&["-p", "-c", "two"]).ok();
        if compacts {
            world.run(&["compact"]).ok();
            let node = world.run(&["compact", "--undo"]).ok().text();
            assert_eq!(node.trim().len(), 64);
            world.run(&["compact", "--undo"]).fails(2, &["was not compacted"]);
        }
        world.run(&["-p", "-c", "three?"]).ok();
        let body = world.requests().last().unwrap().body.clone();
        let text = String::from_utf8(body.to_vec()).unwrap();
        bodies.push(text.replace(&*world.path("").to_string_lossy(), "/"));
    }
    assert_eq!(bodies[0], bodies[1]);
}

/// A process that died while it put files back leaves a row; undoing a compaction brings it to its end, as any other move.
#[tokio::test]
async fn files_that_are_on_their_way_take_their_places_first() {
    let long = "word ".repeat(400);
    let world = World::new(answers(&[&long, &long, "In short."]));
    small(&world);
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["compact"]).ok();
    let session = SessionId::from(world.sessions()[0]["id"].as_str().unwrap());
    let (work, link) = (world.path("work"), |target: &str| json!({ "kind": "link", "target": target }));
    world.file("way", "by hand");
    let change =
        |path: &str, after: Value| json!({ "path": path, "before": { "kind": "absent" }, "after": after });
    let steps = json!([
        { "at": work.join("new"), "staged": work.join(".quipu-1.tmp"), "change": change("new", link("a")) },
        { "at": work.join("way"), "staged": work.join(".quipu-2.tmp"), "change": change("way", link("a")) },
    ]);
    let plan = Json::from(&json!({ "files": { "root": work, "steps": steps } }));
    let jump = OpenJump { stage: "moved".into(), plan };
    let ops = vec![Op::JumpPut { session: session.clone(), jump }];
    {
        let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
        store.commit(Commit { ops, ..Commit::default() }).await.unwrap();
    }
    let ran = world.run(&["compact", "--undo"]).ok();
    assert!(ran.err.contains("way: someone changed it meanwhile, so it was not restored"), "{}", ran.err);
    assert_eq!(std::fs::read_link(work.join("new")).unwrap(), std::path::Path::new("a"));
    assert_eq!(std::fs::read(work.join("way")).unwrap(), b"by hand");
    let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
    assert_eq!(store.pending(&session).await.unwrap().jump, None);
}

#[test]
fn a_summary_that_fails_is_told_and_changes_nothing() {
    let long = "word ".repeat(400);
    let world = World::new(
        answers(&[&long, &long])
            .into_iter()
            .chain([Answer::new().text("half").stop("max_tokens").reply()])
            .chain(answers(&["three"])),
    );
    small(&world);
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["compact"]).fails(1, &["not compacted, the context is unchanged", "cut off"]);
    world.run(&["-p", "-c", "three?"]).ok();
    let said: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert_eq!(said, ["one", &long, "two", &long, "three?"]);
}

#[test]
fn settings_that_make_no_sense_are_told() {
    let world = World::new(answers(&["hello"]));
    let settings = r#"{"compaction":{"reserveTokens":-1}}"#;
    std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
    let ran = world.run(&["-p", "hi"]).ok();
    assert!(ran.err.contains("settings.json: compaction.reserveTokens must be"), "{}", ran.err);
}

/// Where the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillPoint {
    /// The model was asked and has not answered.
    Asked,
    /// It answered the first of two calls, and was asked again.
    AskedAgain,
    /// It answers; the summary is being kept, or was.
    Answering,
    /// The summary is kept and told.
    Kept,
}

/// Killed with -9 while a context is summed up, on demand or before a call, a session goes on with all that was said,
/// and the call that was made stands in the store (which every world asks at its end).
#[test]
fn killed_at_any_moment_of_a_compaction_nothing_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let long = "word ".repeat(400);
    let mut compacted = [0, 0];
    for (manual, when) in [
        (true, KillPoint::Asked),
        (true, KillPoint::Answering),
        (true, KillPoint::Answering),
        (true, KillPoint::Kept),
        (false, KillPoint::Asked),
        // A turn is cut: what is before it and its beginning are summed up apart.
        (false, KillPoint::AskedAgain),
        (false, KillPoint::Answering),
        (false, KillPoint::Answering),
    ] {
        let gate = quipu_testkit::Gate::new();
        let notes = Answer::new().text("In short.");
        let gated = quipu_testkit::Reply::sse("").then_gate(&gate).then(notes.stream());
        // The second answer fills the window, for those who look at it.
        let full = Answer::new().text(&long).usage(199_000, 500, 0, 0).reply();
        let first = (when == KillPoint::AskedAgain).then(|| Answer::new().text("At first.").reply());
        let script = answers(&[&long]).into_iter().chain([full]).chain(first).chain([gated]);
        let mut world = World::new(script);
        small(&world);
        world.run(&["-p", "one"]).ok();
        world.run(&["-p", "-c", "two"]).ok();
        let mut running = if manual {
            world.start(&["compact"])
        } else {
            world.start(&["-p", "-c", "--mode", "json", "three"])
        };
        runtime.block_on(gate.reached());
        if !matches!(when, KillPoint::Asked | KillPoint::AskedAgain) {
            gate.open();
        }
        if when == KillPoint::Kept {
            assert_eq!(running.line().unwrap().len(), 64);
        }
        running.signal(nix::sys::signal::Signal::SIGKILL);
        running.wait();
        gate.open();

        let before = world.nodes();
        // What was summed up and did not arrive is summed up now, or is not.
        world.another_server(answers(&["In short again.", "On I go.", "On I go."]));
        world.run(&["-p", "-c", "go on"]).ok();
        let context = format!("{manual} {when:?}");
        let after = world.nodes();
        for node in &before {
            assert!(after.iter().any(|other| other["id"] == node["id"]), "{context}: {node} is lost");
        }
        let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        let mut words = vec!["one", "two", "go on"];
        if !manual {
            words.push("three");
        }
        for word in words {
            let stands = |text: &String| text.lines().any(|line| line == word);
            assert!(said.iter().any(stands), "{context}: {word} is lost: {said:?}");
        }
        let kept =
            |nodes: &[serde_json::Value]| nodes.iter().filter(|node| node["compaction"].is_object()).count();
        compacted[usize::from(manual)] += kept(&before);
        match when {
            KillPoint::Asked | KillPoint::AskedAgain => {
                assert_eq!(kept(&before), 0, "{context}");
                let open = after
                    .iter()
                    .filter(|node| node.to_string().contains("the process ended before the answer"));
                assert_eq!(open.count(), 1, "{context}: the call that was made is told");
            }
            KillPoint::Answering => {}
            KillPoint::Kept => assert_eq!(kept(&before), 1, "{context}"),
        }
        assert!(kept(&after) <= 1 + kept(&before), "{context}");
    }
    assert!(compacted[1] > 0, "some were killed after their commit");
}

#[test]
fn context_report_shows_shares_and_next_turn_cost() {
    let long = "word ".repeat(400);
    let script = [
        Answer::new().tool_call("c1", "read", r#"{"path":"f"}"#).reply(),
        Answer::new().text(&long).usage(2_000, 500, 1_000, 500).reply(),
        Answer::new().text("In short.").reply(),
    ];
    let world = World::new(script);
    small(&world);
    world.run(&["context"]).fails(2, &["this directory has no session"]);
    world.file("f", "line\n".repeat(100));
    world.file("AGENTS.md", "Be brief. ".repeat(40));
    world.run(&["-p", "one"]).ok();

    let told = world.run(&["context", "--json"]).ok().json();
    assert_eq!(
        (&told["window"], &told["counted"], &told["cached"]),
        (&json!(200_000), &json!(4_000), &json!(3_500))
    );
    let part = |told: &serde_json::Value, name: &str| {
        let parts = told["parts"].as_array().unwrap();
        let part = parts.iter().find(|part| part["part"] == name).unwrap().clone();
        (part["count"].as_u64().unwrap(), part["tokens"].as_u64().unwrap())
    };
    // What was counted is told among the parts as they were estimated.
    let tokens = told["tokens"].as_u64().unwrap();
    assert!((3_990..=4_000).contains(&tokens), "{told}");
    let ratio = told["ratio"].as_f64().unwrap();
    let close = |tokens: u64, estimated: f64| (tokens as f64 - estimated * ratio).abs() <= 8.0;
    assert!(part(&told, "rules").0 == 1 && part(&told, "system").1 > 0, "{told}");
    let sections = told["sections"].as_array().unwrap();
    let [section] = sections.as_slice() else { panic!("{told}") };
    assert_eq!((&section["source"], &section["trust"]), (&json!("rules"), &json!("project")));
    assert!(section["id"].as_str().unwrap().ends_with("/AGENTS.md") && section["tokens"].as_u64() > Some(0));
    assert!(part(&told, "tools").0 >= 4 && part(&told, "tools").1 > 0, "{told}");
    assert!(part(&told, "results").0 == 1 && close(part(&told, "results").1, 125.0), "{told}");
    assert!(part(&told, "answers").0 == 2 && close(part(&told, "answers").1, 504.0), "{told}");
    assert_eq!((part(&told, "user").0, part(&told, "summary"), part(&told, "images")), (1, (0, 0), (0, 0)));
    // $1000 for a million tokens, none for those that are read from the cache.
    let costs = &told["nextTurn"];
    assert!((costs["withoutCache"].as_f64().unwrap() - tokens as f64 / 1_000.0).abs() < 1e-6, "{costs}");
    assert!(
        (costs["withCache"].as_f64().unwrap() - (tokens - 3_500) as f64 / 1_000.0).abs() < 1e-6,
        "{costs}"
    );

    let shown = world.run(&["context"]).ok().text();
    for wanted in [
        "project's rules",
        "Sections of the system prompt",
        "tool results",
        "together",
        "free",
        "█",
        "The next turn: $",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    assert!(!shown.contains("images"), "{shown}");

    // Where nothing was counted since the context was compacted, all is estimated.
    world.run(&["compact"]).ok();
    let told = world.run(&["context", "--json"]).ok().json();
    assert_eq!((&told["counted"], &told["cached"]), (&json!(null), &json!(0)));
    assert_eq!(part(&told, "summary").0, 1);
}

#[test]
fn an_import_is_compacted_in_a_session_below_it() {
    use crate::archive::{ID, assistant, header, lines, user};
    let long = "word ".repeat(400);
    let said = |text: &str| json!([{ "type": "text", "text": text }]);
    let world = World::new(answers(&["## Goal\nTo count.", "three"]));
    small(&world);
    let file = world.file(
        "s.jsonl",
        lines(&[
            header(&world, ID),
            user("u1", "", "one"),
            assistant("a1", "u1", &said(&long), "stop"),
            user("u2", "a1", "two"),
            assistant("a2", "u2", &said(&long), "stop"),
        ])
        .replace("\"parentId\":\"\"", "\"parentId\":null"),
    );
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    let before = world.run(&["sessions", "--all", "--json"]).ok().json_lines();
    let ran = world.run(&["compact", ID, "--model", crate::support::MODEL]).ok();
    assert!(ran.err.contains("this conversation continues as session"), "{}", ran.err);
    let shown = world.run(&["show", ran.text().trim()]).ok().text();
    assert!(shown.contains("## Goal\nTo count."), "{shown}");
    let after = world.run(&["sessions", "--all", "--json"]).ok().json_lines();
    assert_eq!(after.len(), before.len() + 1);
    assert!(after.iter().any(|row| row["id"] == ID && row["head"] == before[0]["head"]), "it stays");
    let own = after.iter().find(|row| row["id"] != ID).unwrap()["id"].as_str().unwrap().to_owned();
    let again = world.run(&["import", "pi", file.to_str().unwrap(), "--json"]).ok().json_lines();
    assert_eq!((&again[0]["unchanged"], &again[0]["changed"]), (&json!(true), &json!(0)), "{again:?}");
    world.run(&["-p", "--session", &own, "three?"]).ok();
    let asked: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(asked[0].contains("To count.") && asked.last().unwrap() == "three?", "{asked:?}");
}

#[test]
fn summary_has_the_model_that_the_settings_name_for_it() {
    let long = "word ".repeat(400);
    let world = World::new(answers(&[&long, &long, "## Goal\nTo count.", &long, "## Goal\nTo go on."]));
    let set = |model: &str| {
        let settings = json!({
            "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 },
            "purposeModels": { "compaction": model, "No Purpose": "x" },
        });
        std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    };
    set("thinker:low");
    world.run(&["-p", "one"]).ok();
    let ran = world.run(&["-p", "-c", "two"]).ok();
    assert!(ran.err.contains("purposeModels.No Purpose is ignored: there is no such purpose"), "{}", ran.err);
    let node = world.run(&["compact"]).ok().text();
    let models = || -> Vec<String> {
        world.requests().iter().map(|request| request.json()["model"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(models(), ["test-1", "test-1", "thinker"]);
    let request = world.run(&["show", node.trim(), "--request"]).ok().text();
    assert!(request.contains("thinker"), "{request}");
    // One that cannot be used leaves the session's own, and says so.
    set("no-such-model");
    world.run(&["-p", "-c", "three"]).ok();
    let ran = world.run(&["compact"]).ok();
    assert!(ran.err.contains("The model set for `compaction` cannot be used"), "{}", ran.err);
    assert_eq!(models()[3..], ["test-1", "test-1"]);
}
