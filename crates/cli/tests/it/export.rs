//! A session written to be read: as Markdown, and as JSON for programs.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::archive::{ID, assistant, conversation, entry, lines, user};
use crate::support::*;

/// An imported session with two branches and content that wants to leave its place.
pub(crate) fn hostile(world: &World) -> Vec<Value> {
    let mut entries = conversation(world, ID);
    let long: String = (0..500).map(|n| format!("line {n} ```` <script>alert({n})</script>\n")).collect();
    let tool = json!({ "type": "message", "message": {
        "role": "toolResult", "toolCallId": "c1", "toolName": "ba`sh", "isError": true, "timestamp": 7,
        "content": [{ "type": "text", "text": long }, { "type": "image", "data": "AAAA", "mimeType": "image/png" }],
    } });
    let call = json!([
        { "type": "thinking", "thinking": "Hm.\n</details>\n# Big" },
        { "type": "text", "text": "See:\n```rust\nlet a = b < c;" },
        { "type": "toolCall", "id": "c1", "name": "ba`sh", "arguments": { "command": "echo '```'" } },
    ]);
    entries.extend([
        user("u4", "l1", "## Assistant\n<img src=x onerror=alert(1)> \u{202e}\u{1b}[2J"),
        assistant("a4", "u4", &call, "toolUse"),
        entry("r4", Some("a4"), &tool),
    ]);
    entries
}

pub(crate) fn import(world: &World, entries: &[Value]) {
    let path = world.file("s.jsonl", lines(entries));
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn every_node_of_every_branch_is_json() {
    let world = World::says("Hi.");
    let entries = hostile(&world);
    import(&world, &entries);
    let shown = world.run(&["export", "--format", "json", ID]).ok();
    let whole = shown.json();
    assert_eq!((&whole["session"]["id"], &whole["more"]), (&json!(ID), &json!(false)));
    assert_eq!(shown.text().lines().count(), entries.len() + 4, "a node a line");
    let nodes = whole["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), entries.len());
    let one = |id: &str| nodes.iter().find(|node| node["externalId"] == id).unwrap();
    assert_eq!(one("a1")["label"], "fork");
    assert_eq!((&one("u2")["level"], &one("u2")["starts"]), (&json!(1), &json!(true)));
    assert_eq!((&one("u3")["level"], &one("u3")["parent"]), (&json!(0), &one("a1")["id"]));
    assert_eq!(one("r4")["head"], true);
    assert_eq!(one("r4")["message"]["content"], entries.last().unwrap()["message"]["content"]);
    for (node, drawn) in
        nodes.iter().zip(world.run(&["tree", ID, "--all", "--json"]).ok().json()["nodes"].as_array().unwrap())
    {
        assert_eq!(
            (&node["id"], &node["step"], &node["level"]),
            (&drawn["id"], &drawn["step"], &drawn["level"])
        );
    }
}

#[test]
fn markdown_keeps_each_content_in_its_place() {
    let world = World::says("Hi.");
    import(&world, &hostile(&world));
    let page = world.run(&["export", "--format", "markdown", ID]).ok().text();
    let headings: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("## "))
        .map(|line| line.split(" · ").next().unwrap())
        .collect();
    assert_eq!(
        headings,
        [
            "## Session",
            "## Entry",
            "## Entry",
            "## User",
            "## Assistant `test-1`",
            "## User",
            "## Assistant `test-1`",
            "## User",
            "## Assistant `test-1`",
            "## User",
            "## Assistant `test-1`",
            "## Result of ``ba`sh`` (failed)",
        ]
    );
    for part in [
        " · label: fork\n",
        "*Branch at level 1 from `",
        "*The line to the head continues from `",
        "\n##### Assistant\n&lt;img src=x onerror=alert(1)> \\u{202e}\\u{1b}[2J\n",
        "<summary>Thinking</summary>\n\nHm.\n&lt;/details>\n#### Big\n\n</details>\n",
        // A fence that the answer left open is closed.
        "\n```rust\nlet a = b < c;\n```\n",
        "**Call** ``ba`sh``\n\n````json\n{\"command\":\"echo '```'\"}\n````\n",
        "<summary>Result, 500 lines, ",
        "\n`````\nline 0 ```` <script>alert(0)</script>\n",
        "line 499 ```` <script>alert(499)</script>\n`````\n\n</details>\n",
        "*Image `image/png`, 3 bytes*",
    ] {
        assert!(page.contains(part), "{part:?} is not in {page}");
    }
    assert!(!page.contains(['\u{202e}', '\u{1b}']));
}

#[test]
fn a_fork_is_written_with_its_past() {
    let world = World::new(
        ["Left or right?", "Left it is.", "Right."].map(|text| -> Reply { Answer::new().text(text).reply() }),
    );
    world.run(&["-p", "Where to?"]).ok();
    world.run(&["-p", "-c", "Left."]).ok();
    let first = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = world.nodes();
    let own = world.run(&["fork", nodes[2]["id"].as_str().unwrap()]).ok().text().trim().to_owned();
    world.run(&["-p", "--session", &own, "Other."]).ok();
    let whole = world.run(&["export", "--format", "json", &own]).ok().json();
    let past: Vec<bool> =
        whole["nodes"].as_array().unwrap().iter().map(|node| node["past"].as_bool().unwrap()).collect();
    assert_eq!(past, [true, true, true, false, false, false]);
    let page = world.run(&["export", "--format", "markdown", &own]).ok().text();
    let places: Vec<_> = ["Where to?", "Left or right?", "Other.", "Right."]
        .map(|text| page.find(&format!("\n{text}\n")))
        .into();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted() && !page.contains("\nLeft.\n"),
        "{page}"
    );
    // The other one tells of it.
    let page = world.run(&["export", "--format", "markdown", &first]).ok().text();
    assert!(
        page.contains(&format!("*Session {own} continues from here")) && !page.contains("\nOther.\n"),
        "{page}"
    );
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let world = World::says("Hi.");
    world.run(&["-p", "Hello."]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    for (format, name) in [("markdown", "s.md"), ("html", "s.html"), ("json", "s.json")] {
        let export = |more: &[&str]| world.run(&[&["export", "--format", format], more].concat());
        let ran = export(&[&id, "-o", name]).ok();
        assert!(ran.err.contains("3 entries, "), "{}", ran.err);
        let path = world.path(&format!("work/{name}"));
        assert_eq!(export(&[&id]).ok().out, std::fs::read(&path).unwrap());
        assert_eq!(mode(&path), 0o600);
        export(&[&id, "-o", name]).fails(1, &["exists"]);
        export(&[&id, "-o", "none/s"]).fails(1, &["none/s"]);
        export(&["nobody"]).fails(2, &["`nobody` is no node and no session"]);
        if std::path::Path::new("/dev/full").exists() {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let mut command = world.quipu(&["export", "--format", format, &id]);
            let done = command.stdout(full).output().unwrap();
            let err = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(1) && err.contains("No space left"), "{err}");
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = world.quipu(&["export", "--format", format, &id]).stdout(writer).output().unwrap();
        assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(1), ""));
    }
    let mut names: Vec<_> =
        std::fs::read_dir(world.path("work")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["s.html", "s.json", "s.md"]);
}
