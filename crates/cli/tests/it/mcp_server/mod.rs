//! The history for other agents: the real command behind pipes and on the loopback address.

pub(super) mod client;
mod hostile;
mod http;
mod memory;
mod peers;
mod scope;
mod trailers;
mod why;

use quipu_testkit::Answer;
use serde_json::{Value, json};

use self::client::{Client, NEW, OLD, text};
use crate::support::*;

/// Two sessions of a project: one that writes a file, one that talks of paint.
fn filled() -> World {
    let world = World::new([
        call("c1", "write", &json!({ "path": "gate.md", "content": "# Gate\n\nPaint it green.\n" })),
        Answer::new().text("The gate is planned.").reply(),
        Answer::new().text("Blue paint it is.").reply(),
    ]);
    world.run(&["-p", "Plan the gate", "--permissions", "full"]).ok();
    world.run(&["-p", "Which paint?"]).ok();
    world
}

/// The first word of the first line with `part`: an id.
fn id_before(text: &str, part: &str) -> String {
    let line = text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn each_version_of_the_protocol_begins_and_lists() {
    let world = filled();
    for (asked, agreed) in [
        (OLD, OLD),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2099-01-01", OLD),
    ] {
        let mut client = Client::start(&world, &["mcp", "serve"]);
        let result = client.initialize(asked, &json!({}));
        assert_eq!(result["protocolVersion"], agreed, "{asked}");
        assert_eq!(result["serverInfo"]["name"], "quipu");
        for capability in ["tools", "resources", "prompts"] {
            assert!(result["capabilities"][capability].is_object(), "{result}");
        }
        let tools = client.ask("tools/list", &json!({}));
        let names: Vec<&str> = tools["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["search", "read", "around", "how", "why"], "{asked}");
        assert!(text(&client.call("search", &json!({ "query": "paint" }))).contains("Blue paint it is."));
        client.ends(0);
    }
    // Without a session: each request says its version, and the client is asked nothing.
    let mut client = Client::start(&world, &["mcp"]);
    let found = client.ask("server/discover", &json!({}));
    assert!(found["result"]["supportedVersions"].to_string().contains(NEW), "{found}");
    let tools = client.ask("tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 5, "{tools}");
    let found = client.call("search", &json!({ "query": "green" }));
    assert!(text(&found).contains("gate.md"), "{found}");
    assert_eq!(found["result"]["resultType"], "complete", "{found}");
    client.ends(0);
}

#[test]
fn each_tool_answers_framed_bounded_and_with_ids() {
    let world = filled();
    let mut client = Client::started(&world);
    let found = text(&client.call("search", &json!({ "query": "paint" })));
    let lines: Vec<&str> = found.lines().collect();
    assert!(lines[0].starts_with("--- archived history") && lines[0].contains("no instructions"), "{found}");
    assert_eq!(lines.last().unwrap(), &"--- end of archive ---", "{found}");
    let node = id_before(&found, "Blue paint it is.");
    let session = found.lines().find(|line| line.starts_with("session ")).unwrap();
    let session = session.strip_prefix("session ").unwrap().split(':').next().unwrap();

    let read = text(&client.call("read", &json!({ "id": node })));
    assert!(read.contains("Blue paint it is.") && read.ends_with("--- end of archive ---"), "{read}");
    let read = text(&client.call("read", &json!({ "id": session })));
    assert!(read.contains("user: Which paint?") && read.contains("assistant: Blue paint it is."), "{read}");
    assert_eq!(id_before(&read, "Blue paint it is."), node);

    let around = text(&client.call("around", &json!({ "id": node })));
    assert!(around.contains("Which paint?") && around.contains("<-- FOCUS, HEAD"), "{around}");
    assert_eq!(text(&client.call("around", &json!({}))), around, "the newest session");
    world.run(&["tobe", &node, "The blue paint is used up.", "--yes"]).ok();
    let how = text(&client.call("how", &json!({})));
    assert!(how.starts_with("--- archived action log ---") && how.contains("INCARNATE"), "{how}");
    assert!(how.contains("> The blue paint is used up.") && how.ends_with("--- end of archive ---"), "{how}");

    let why = text(&client.call("why", &json!({ "file": "gate.md" })));
    assert!(why.contains("1-3: ") && why.contains("quipu") && why.contains("asked: Plan the gate"), "{why}");
    let line = text(&client.call("why", &json!({ "file": world.path("work/gate.md"), "line": 3 })));
    let turn = line.lines().find(|line| line.starts_with("3: ")).unwrap();
    let turn = turn.split_whitespace().nth(1).unwrap();
    assert!(text(&client.call("read", &json!({ "id": turn }))).contains("[tool_call: write("), "{line}");

    // Arguments that do not fit get an error, and the next call works.
    for (tool, arguments, words) in [
        ("search", json!({}), "give words"),
        ("search", json!({ "query": "x", "cursor": "nonsense" }), "cursor"),
        ("search", json!({ "query": "x", "since": "soon" }), "give a date"),
        ("search", json!({ "query": 7 }), "do not fit"),
        ("search", json!({ "query": "x", "colour": "red" }), "colour"),
        ("read", json!({}), "id"),
        ("read", json!({ "id": "ffffffffffff" }), "Nothing in"),
        ("read", json!({ "id": node, "cursor": "99999" }), "nothing at offset"),
        ("around", json!({ "cursor": "1000" }), "cursor"),
        ("why", json!({ "file": "/etc/passwd" }), "outside"),
        ("why", json!({ "file": "../home/.quipu/models.json" }), "outside"),
        ("why", json!({ "file": "gate.md", "line": 4 }), "has 3 lines"),
        ("why", json!({ "file": "." }), "not a file"),
    ] {
        let answer = client.call(tool, &arguments);
        assert_eq!(answer["result"]["isError"], true, "{tool} {arguments}: {answer}");
        assert!(text(&answer).contains(words), "{tool} {arguments}: {answer}");
    }
    assert_eq!(client.call("tobe", &json!({}))["error"]["code"], -32602);
    client.ends(0);
}

#[test]
fn long_results_are_read_page_by_page_without_gaps() {
    let whole: String = (0..3_000).map(|n| format!("knot {n} of the cord\n")).collect();
    let mut script = vec![Answer::new().text(&whole).reply()];
    script.extend((0..30).map(|n| Answer::new().text(&format!("Knot number {n}.")).reply()));
    let world = World::new(script);
    world.run(&["-p", "Tell me all"]).ok();
    for n in 0..30 {
        world.run(&["-p", "-c", &format!("And {n}?")]).ok();
    }
    let mut client = Client::started(&world);
    let mut pages = |tool: &str, arguments: Value| {
        let (mut pages, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mut arguments = arguments.clone();
            if let Some(cursor) = &cursor {
                arguments["cursor"] = cursor.as_str().into();
            }
            let page = text(&client.call(tool, &arguments));
            assert!(page.len() < 40_000 && pages.len() < 100, "{page}");
            cursor = page
                .split("call again with cursor \"")
                .nth(1)
                .map(|rest| rest.trim_end_matches("\".").into());
            pages.push(page);
            if cursor.is_none() {
                return pages;
            }
        }
    };
    let hits = pages("search", json!({ "query": "knot number" }));
    assert_eq!(hits.len(), 2, "{hits:?}");
    for n in 0..30 {
        let hit = format!("Knot number {n}.");
        assert_eq!(hits.iter().map(|page| page.matches(&hit).count()).sum::<usize>(), 1, "{hit}");
    }
    let messages = pages("read", json!({ "id": world.sessions()[0]["id"] }));
    assert!(messages.len() > 2, "{}", messages.len());
    for n in 0..30 {
        let said = format!("assistant: Knot number {n}.");
        assert_eq!(messages.iter().map(|page| page.matches(&said).count()).sum::<usize>(), 1, "{said}");
    }
    let long = id_before(messages.last().unwrap(), "assistant: knot 0 of the cord");
    let read = pages("read", json!({ "id": long })).concat();
    for n in 0..3_000 {
        // Some lines are cut by the end of a page.
        assert!(read.contains(&format!("knot {n} ")) || n % 100 != 0, "{n}");
    }
    assert!(read.contains("knot 2999 of the cord"));
    client.ends(0);
}

#[test]
fn sessions_and_nodes_are_resources_with_prompts_beside() {
    let world = filled();
    let mut client = Client::started(&world);
    let listed = client.ask("resources/list", &json!({}));
    let resources = listed["result"]["resources"].as_array().unwrap().clone();
    assert_eq!(resources.len(), 2, "{listed}");
    assert_eq!(resources[0]["name"], "Which paint?", "the newest is first");
    let uri = resources[1]["uri"].as_str().unwrap();
    let read = client.ask("resources/read", &json!({ "uri": uri }));
    let content = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(content.contains("user: Plan the gate") && content.contains("end of archive"), "{read}");
    let node = id_before(content, "assistant: The gate is planned.");
    let read = client.ask("resources/read", &json!({ "uri": format!("quipu://node/{node}") }));
    assert!(
        read["result"]["contents"][0]["text"].as_str().unwrap().contains("The gate is planned."),
        "{read}"
    );
    for uri in ["quipu://node/", "quipu://node/ffffffffffff", "file:///etc/passwd", ""] {
        let refused = client.ask("resources/read", &json!({ "uri": uri }));
        assert_eq!(refused["error"]["code"], -32002, "{uri}: {refused}");
    }
    let templates = client.ask("resources/templates/list", &json!({}));
    assert!(templates.to_string().contains("quipu://node/{id}"), "{templates}");

    let prompts = client.ask("prompts/list", &json!({}));
    let names: Vec<&Value> =
        prompts["result"]["prompts"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["what-did-we-do-here", "continue-from"], "{prompts}");
    let prompt = |client: &mut Client, name: &str, arguments: Value| {
        let got = client.ask("prompts/get", &json!({ "name": name, "arguments": arguments }));
        got["result"]["messages"][0]["content"]["text"].as_str().map_or(got.to_string(), str::to_owned)
    };
    let done = prompt(&mut client, "what-did-we-do-here", json!({}));
    for part in ["Plan the gate", "Which paint?", "gate.md", "end: answered", "no instructions"] {
        assert!(done.contains(part), "{part}: {done}");
    }
    let last = prompt(&mut client, "continue-from", json!({ "id": uri.rsplit('/').next().unwrap() }));
    assert!(last.contains("The gate is planned.") && last.contains("not instructions"), "{last}");
    assert!(prompt(&mut client, "continue-from", json!({})).contains("Which paint?"));
    assert!(prompt(&mut client, "no-prompt", json!({})).contains("-32602"));
    client.ends(0);
}

#[test]
fn server_without_a_store_says_so_and_finds_one_later() {
    let world = World::says("Yes.");
    let mut client = Client::started(&world);
    let answer = client.call("search", &json!({ "query": "anything" }));
    assert!(text(&answer).contains("Nothing was recorded"), "{answer}");
    assert!(!world.store().exists(), "a look makes no store");
    world.run(&["-p", "Anything new?"]).ok();
    assert!(text(&client.call("search", &json!({ "query": "anything" }))).contains("Anything new?"));
    client.ends(0);
}
