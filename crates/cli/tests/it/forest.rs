//! `quipu tree`: sessions of every shape, on terminals and off them.

use std::fmt::Write as _;

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

const ID: &str = "0199aaaa-0000-7000-8000-000000000001";

/// A file of another program: its header, and these entries.
fn import(world: &World, entries: &[Value]) {
    let header = json!({ "type": "session", "version": 3, "id": ID, "timestamp": "2025-01-02T03:04:05.678Z",
        "cwd": world.path("work") });
    let mut text = format!("{header}\n");
    for entry in entries {
        writeln!(text, "{entry}").unwrap();
    }
    world.file("session.jsonl", text);
    world.run(&["import", "pi", "session.jsonl"]).ok();
}

fn entry(id: &str, parent: Option<&str>, rest: &Value) -> Value {
    let mut entry = json!({ "id": id, "parentId": parent, "timestamp": "2025-01-02T03:04:06.000Z" });
    entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    entry
}

fn user(id: &str, parent: Option<&str>, text: &str) -> Value {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 5 });
    entry(id, parent, &json!({ "type": "message", "message": message }))
}

/// The lines below the head of a tree, without the names of nodes.
fn lines(text: &str) -> Vec<String> {
    let body = text.split_once("\n\n").unwrap().1;
    body.lines().map(|line| line.chars().skip(14).collect()).collect()
}

fn tree(world: &World, args: &[&str]) -> Vec<String> {
    lines(&world.run(&[&["tree"], args].concat()).ok().text())
}

fn tree_json(world: &World, args: &[&str]) -> Value {
    world.run(&[&["tree", "--json"], args].concat()).ok().json()
}

#[test]
fn branches_stand_before_what_goes_on_and_the_head_stands_last() {
    let world = World::new([]);
    import(
        &world,
        &[
            user("u1", None, "Which way?"),
            user("u2", Some("u1"), "Left."),
            user("u3", Some("u2"), "Left again."),
            user("u4", Some("u2"), "Then right."),
            user("u5", Some("u4"), "On."),
            entry("l1", Some("u5"), &json!({ "type": "label", "targetId": "u3", "label": "first" })),
            user("u6", Some("u1"), "Right."),
            entry("n1", Some("u6"), &json!({ "type": "session_info", "name": "the way" })),
        ],
    );
    let drawn = [
        "user Which way?",
        "├─ user Left.",
        "│  ├─ user Left again.  [first]",
        "│  user Then right.",
        "│  user On.",
        "user Right.  <-- HEAD",
    ];
    assert_eq!(tree(&world, &[])[1..], drawn);
    assert_eq!(tree(&world, &["the way"])[1..], drawn);
    let head = world.run(&["tree", ID]).ok().text();
    assert!(head.starts_with(&format!("session {ID}\nnamed the way\nin ")), "{head}");
    // What only says something about others is drawn when everything is.
    let all = tree(&world, &["--all"]);
    assert_eq!(all.len(), 9);
    assert!(all[6].starts_with("│  entry {") && all[8].starts_with("entry {"), "{all:?}");

    // Sessions that go on from it stand where they do.
    world.run(&["fork", "ext:u5"]).ok();
    let behind = world.run(&["clone", "the way"]).ok().text().trim().to_owned();
    let drawn = tree(&world, &["the way"]);
    assert!(drawn[5].starts_with("│  ├─ session "), "{drawn:?}");
    assert!(drawn[8].starts_with(&format!("├─ session {behind}, 1 node")), "{drawn:?}");
    let forked = world.run(&["tree", &behind]).ok().text();
    assert!(forked.contains(&format!("forked from session {ID} at ")), "{forked}");

    let json = tree_json(&world, &["the way"]);
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 7);
    assert_eq!(
        (&nodes[3]["label"], &nodes[3]["level"], &nodes[3]["starts"]),
        (&json!("first"), &json!(2), &json!(true))
    );
    assert_eq!((&nodes[6]["head"], &json["forks"].as_array().unwrap().len()), (&json!(true), &2));
    assert_eq!((&json["more"], &json["mended"]), (&json!(false), &json!({})));

    world.run(&["rm", "--yes", ID]).ok();
    assert!(world.run(&["tree", ID]).ok().text().starts_with(&format!("session {ID}  (removed)\n")));
    world.run(&["tree", "ext:u1"]).fails(2, &["is a node, not a session"]);
    world.run(&["tree", "nothing"]).fails(2, &["is no node and no session"]);
}

#[test]
fn import_repairs_are_shown_at_their_node() {
    let world = World::new([]);
    let mut nameless = user("x", None, "nameless");
    nameless.as_object_mut().unwrap().remove("id");
    nameless.as_object_mut().unwrap().remove("parentId");
    let second =
        json!({ "type": "session", "version": 3, "id": "other", "timestamp": "2025-01-02T03:04:05.678Z" });
    import(
        &world,
        &[
            user("o1", Some("nowhere"), "orphan"),
            user("o2", Some("o1"), "below it"),
            user("c1", Some("c2"), "round"),
            user("c2", Some("c1"), "and round"),
            user("s1", Some("s1"), "myself"),
            second,
            nameless,
            user("u1", None, "one"),
            user("u2", Some("u1"), "between"),
            user("u1", Some("u2"), "two"),
            user("u3", Some("u1"), "three"),
        ],
    );
    let text = world.run(&["tree"]).ok().text();
    let mut drawn = lines(&text);
    drawn[1..].sort();
    for (line, repaired) in [
        ("├─ user orphan", "what it follows is missing"),
        ("├─ user round", "it follows itself in a circle, cut here"),
        ("├─ user myself", "it follows itself in a circle, cut here"),
        ("├─ user nameless", "it has no id, and nothing follows it"),
        ("user two", "another entry has its id"),
    ] {
        let line = format!("{line}  (repaired: {repaired})");
        assert!(drawn.contains(&line), "{line} is not in {drawn:?}");
    }
    for line in ["│  user below it", "│  user and round", "user one", "user three  <-- HEAD"] {
        assert!(drawn.iter().any(|drawn| drawn == line), "{line} is not in {drawn:?}");
    }
    assert!(text.contains("(repaired: a second header, kept separately)"), "{text}");
    assert!(text.contains("Repaired on import, among the nodes shown: 6\n"), "{text}");
    let mended = &tree_json(&world, &[])["mended"];
    assert_eq!(mended["it follows itself in a circle, cut here"], 2);
    assert_eq!(mended.as_object().unwrap().len(), 5);
    // It can be gone on from all the same.
    world.run(&["label", "ext:c2", "here"]).ok();
    world.run(&["fork", "ext:o2"]).ok();
    assert!(tree(&world, &[ID]).iter().any(|line| line == "│  user and round  [here]"));
}

#[test]
fn of_a_long_session_what_stands_out_is_drawn() {
    let world = World::new([]);
    let mut entries = vec![user("e0", None, "begin")];
    for n in 1..1000 {
        entries.push(user(&format!("e{n}"), Some(&format!("e{}", n - 1)), &format!("say {n}")));
    }
    // A branch of 50 from the 500th, and a hundred more from the 700th.
    for n in 0..50 {
        let parent = if n == 0 { "e500".to_owned() } else { format!("b{}", n - 1) };
        entries.push(user(&format!("b{n}"), Some(&parent), &format!("beside {n}")));
    }
    for n in 0..150 {
        entries.push(user(&format!("m{n}"), Some("e700"), &format!("many {n}")));
    }
    entries.push(entry(
        "l1",
        Some("e999"),
        &json!({ "type": "label", "targetId": "e250", "label": "quarter" }),
    ));
    entries.push(user("last", Some("l1"), "the end"));
    import(&world, &entries);
    let text = world.run(&["tree"]).ok().text();
    let drawn = lines(&text);
    for line in [
        "user say 250  [quarter]",
        "user say 700",
        "├─ user many 149",
        "user say 999",
        "user the end  <-- HEAD",
    ] {
        assert!(drawn.iter().any(|drawn| drawn == line), "{line} is not in {text}");
    }
    // The first of the branches from one node are too many.
    assert!(!text.contains("user many 0\n") && text.contains("--all shows more"), "{text}");
    assert!(drawn.iter().any(|line| line.starts_with("⋮ ") && line.ends_with(" nodes")), "{text}");
    assert!(drawn.len() < 150, "{} lines", drawn.len());

    let all = tree(&world, &["--all"]);
    assert_eq!(all.len(), 1 + entries.len());
    let at = all.iter().position(|line| line == "├─ user beside 0").unwrap();
    assert_eq!(all[at + 49], "│  user beside 49");
    assert_eq!(all[at + 50], "user say 501");
    let count = |json: &Value| -> (usize, u64) {
        let nodes = json["nodes"].as_array().unwrap();
        (nodes.len(), nodes.iter().map(|node| node["between"].as_u64().unwrap()).sum())
    };
    assert_eq!(count(&tree_json(&world, &["--all"])), (1 + entries.len(), 0));
    let (nodes, between) = count(&tree_json(&world, &[]));
    assert!(nodes < 150 && between > 500, "{nodes} {between}");
    // A pipe that is closed is the end, and nothing to complain about loudly.
    let ran = RunningCommand::start({
        let mut command = world.command("/bin/sh");
        let program = world.program.display().to_string();
        command.args(["-c", &format!("{program} tree --all | head -n 1")]);
        command
    });
    assert_eq!(ran.wait().ok().text(), format!("session {ID}\n"));
}

/// Columns that text takes, colours left out.
fn columns(line: &str) -> usize {
    let mut plain = String::new();
    let mut rest = line.trim_end();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert!(!plain.contains(|c: char| c.is_control() || c == '\u{202e}'), "{plain:?}");
    plain.chars().map(|c| if c >= '\u{2e80}' { 2 } else { 1 }).sum()
}

#[test]
fn lines_fit_the_terminal_and_nothing_steers_it() {
    let world = World::new([]);
    let long = "絵文字".repeat(100);
    let mut entries = vec![
        user("u1", None, "\u{1b}[2J\u{1b}]0;title\u{7}gone\u{202e}back\r\nnew\tline\0"),
        user("u2", Some("u1"), &long),
        entry(
            "l1",
            Some("u2"),
            &json!({ "type": "label", "targetId": "u2", "label": format!("{long}\u{1b}[31m") }),
        ),
        entry("n1", Some("l1"), &json!({ "type": "session_info", "name": format!("\u{9b}31m{long}") })),
    ];
    // Each next one on the branch of the one before: as deep as it gets.
    for n in 0..40 {
        let parent = if n == 0 { "u2".to_owned() } else { format!("d{}", n - 1) };
        for kind in ["d", "e"] {
            entries.push(user(&format!("{kind}{n}"), Some(&parent), &long));
        }
    }
    entries.push(user("u3", Some("n1"), "end"));
    import(&world, &entries);
    for args in [&["tree"][..], &["tree", "--all"], &["sessions", "--all"]] {
        let plain = world.run(args).ok().text();
        assert!(!plain.contains('\u{1b}') && !plain.contains('\u{202e}'), "{plain}");
    }
    for width in [60, 100, 200] {
        let (code, text) = on_terminal(&world, &["tree"], "", width);
        assert_eq!(code, Some(0));
        assert!(text.contains("\u{1b}[36m"), "in colour: {text}");
        for line in text.lines() {
            assert!(columns(line) <= usize::from(width), "{width}: {line:?}");
        }
    }
    // However narrow, something is shown.
    let (_, text) = on_terminal(&world, &["tree"], "", 10);
    assert!(text.contains("絵文"), "{text}");
}

#[test]
fn a_session_without_a_word_has_a_tree() {
    let world = World::new([Answer::new().text("One.").reply()]);
    world.run(&["tree"]).fails(2, &["no sessions yet"]);
    import(&world, &[]);
    assert_eq!(tree(&world, &[]).len(), 1);
    let json = tree_json(&world, &[]);
    assert_eq!((json["nodes"].as_array().unwrap().len(), &json["nodes"][0]["head"]), (1, &json!(true)));
    world.run(&["-p", "--no-session", "a"]).ok();
    world.unchecked();
    assert_eq!(world.run(&["tree", "--all", "--json"]).ok().json()["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn sessions_that_could_be_meant_are_listed_as_sessions() {
    let world = World::new(["One.", "Two."].map(|text| -> Reply { Answer::new().text(text).reply() }));
    world.run(&["-p", "first words"]).ok();
    world.run(&["-p", "other words"]).ok();
    let rows = world.sessions();
    let (second, first) = (rows[0]["id"].as_str().unwrap(), rows[1]["id"].as_str().unwrap());
    let alike = first.chars().zip(second.chars()).take_while(|(a, b)| a == b).count();
    let ran = world.run(&["tree", &first[..alike]]).fails(2, &["could be any of these", "first words"]);
    assert!(ran.err.contains(&format!("  session {second}  ")), "{}", ran.err);
    // A name is found however its words are spaced.
    world.run(&["rename", first, "a  name"]).ok();
    assert_eq!(tree_json(&world, &[" a\tname "])["session"]["id"], first);
    assert_eq!(tree_json(&world, &[first])["session"]["id"], first);
}
