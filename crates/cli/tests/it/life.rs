//! `quipu life`, `recall`, `trace` and `diff`: the graph, looked at.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn script() -> Vec<Reply> {
    let says = |text: &str| Answer::new().text(text).reply();
    vec![
        says("Left or right?"),
        Answer::new()
            .tool_call("c1", "read", r#"{"path":"f"}"#)
            .tool_call("c2", "read", r#"{"path":"gone"}"#)
            .reply(),
        says("Left it is."),
        says("Right it is."),
        says("On and on."),
    ]
}

/// A session with two branches: to the left with a tool, to the right without.
fn world() -> World {
    let world = World::new(script());
    world.file("f", "a file\n");
    world.run(&["-p", "Where to?"]).ok();
    world.run(&["-p", "-c", "Left <b>&\"'."]).ok();
    let left = node(&world, "Left <b>");
    world.run(&["branch", &left]).ok();
    world.run(&["-p", "-c", "Right."]).ok();
    world
}

/// The node of the user's message or the answer that says this.
fn node(world: &World, text: &str) -> String {
    let quoted = json!(text).to_string();
    let says = |node: &&Value| node.to_string().contains(quoted.trim_matches('"'));
    world.nodes().iter().find(says).unwrap()["id"].as_str().unwrap().to_owned()
}

fn lines(life: &Value) -> Vec<Value> {
    life["lines"].as_array().unwrap().clone()
}

#[test]
fn the_graph_around_a_node_is_drawn_and_told() {
    let world = world();
    let (question, left, end) =
        (node(&world, "Left or right?"), node(&world, "Left <b>"), node(&world, "Right it is."));
    let head = world.run(&["life"]).ok().text();
    assert!(
        head.contains("assistant: \"Right it is.\"  <-- FOCUS, HEAD") && !head.contains('\u{1b}'),
        "{head}"
    );
    let drawn = world.run(&["life", &question[..8]]).ok().text();
    for part in ["├── ", "└── ", "user: \"Right.\"", "[read]: \"a file \"", "  <-- FOCUS\n", "<-- HEAD"]
    {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
    // What is drawn is what is told, and who cannot be gone to is named with the reason.
    let told = world.run(&["life", &question, "--json"]).ok().json();
    assert_eq!((&told["focus"], &told["head"]), (&json!(question), &json!(end)));
    let of = |said: &str| {
        lines(&told).into_iter().find(|line| line["preview"].as_str().unwrap().contains(said)).unwrap()
    };
    let legal: BTreeSet<String> = lines(&told)
        .iter()
        .filter(|line| line["legalTarget"] == false)
        .map(|line| line["preview"].as_str().unwrap().to_owned())
        .collect();
    let calls = of("[read: {")["preview"].as_str().unwrap().to_owned();
    assert_eq!(
        legal,
        BTreeSet::from([calls, "[read]: \"a file \"".to_owned()]),
        "the first of two results is none"
    );
    assert!(of("a file")["why"].as_str().unwrap().contains("has no result at that point"));
    assert_eq!(of("Right it is.")["head"], true);

    // A sibling is counted and not shown whole.
    let beside = world.run(&["life", &node(&world, "Right."), "--json"]).ok().json();
    let counted = lines(&beside).into_iter().find(|line| line["node"] == json!(left)).unwrap();
    assert_eq!((&counted["descendants"], &counted["descendantsAreMore"]), (&json!(4), &json!(false)));
    let bare = world.run(&["life", &end, "--no-children", "--ancestors", "1", "--json"]).ok().json();
    assert_eq!((lines(&bare).len(), &bare["earlier"]), (2, &json!(true)));
    let asked =
        world.run(&["life", &question, "--filter", "user-only", "--ancestors", "0", "--json"]).ok().json();
    assert_eq!(lines(&asked).len(), 4, "two messages of the user, the focus and the head");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let named = world.run(&["life", &session, "--json"]).ok().json();
    assert_eq!((&named["focus"], &named["session"]), (&json!(end), &json!(session)));
}

#[test]
fn the_graph_is_a_picture_that_holds_its_text() {
    let world = world();
    let question = node(&world, "Left or right?");
    world.run(&["life", &question, "--svg", "life.svg"]).ok();
    let picture = std::fs::read_to_string(world.path("work/life.svg")).unwrap();
    let told = lines(&world.run(&["life", &question, "--json"]).ok().json()).len();
    assert_eq!((picture.matches("<circle ").count(), picture.matches("<text ").count()), (told, told));
    assert!(picture.contains("Left &lt;b&gt;&amp;&quot;&apos;."), "{picture}");
    assert!(
        !picture.contains("<b>") && !picture.contains("href") && !picture.contains("<script"),
        "{picture}"
    );
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    // Another file is never replaced.
    world.file("mine", "mine");
    let refused = ["life", "--svg", "mine"];
    world.run(&refused).fails(1, &["mine could not be written", "choose another file"]);
    assert_eq!(std::fs::read(world.path("work/mine")).unwrap(), b"mine");
    world.run(&["life", "--svg", "no/such/dir.svg"]).fails(1, &["could not be written"]);
}

#[test]
fn a_node_is_recalled_whole_page_by_page() {
    let long: String = (0..900).map(|n| format!("word {n} ")).collect();
    let world = World::new([Answer::new().text(&long).reply(), Answer::new().text("short").reply()]);
    world.run(&["-p", "say much"]).ok();
    let node = node(&world, "word 899");
    let (mut whole, mut offset, mut pages) = (String::new(), 0, 0);
    loop {
        let page = world
            .run(&["recall", &node, "--budget", "3000", "--offset", &offset.to_string(), "--json"])
            .ok()
            .json();
        whole.push_str(page["text"].as_str().unwrap());
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert!(pages > 2 && whole == long, "{pages} pages");
    let text = world.run(&["recall", &node]).ok().text();
    assert!(
        text.starts_with("--- archived node content ---\n") && text.ends_with("--- end of archive ---\n"),
        "{text}"
    );
    assert!(text.contains("{ role: \"user\", text: \"say much\" }  // archived,"), "{text}");
    world.run(&["recall", &node, "--offset", "999999"]).fails(2, &["nothing at offset 999999"]);
    let around = world.run(&["recall", "HEAD", "--siblings", "3", "--children", "3", "--json"]).ok().json();
    assert_eq!((&around["siblings"]["nodes"], &around["children"]["more"]), (&json!([]), &json!(false)));
    assert_eq!((&around["legalTarget"], &around["nearestLegalTarget"]), (&json!(true), &json!(node)));
}

#[test]
fn two_branches_are_compared_since_they_parted() {
    let world = world();
    let (question, end) = (node(&world, "Left or right?"), node(&world, "Right it is."));
    let left = node(&world, "Left it is.");
    let told = world.run(&["diff", &left, &end, "--json"]).ok().json();
    assert_eq!(told["ancestor"], json!(question));
    let expect = json!([
        { "tool": "read", "calls": 2, "failed": 1 },
    ]);
    assert_eq!((&told["a"]["tools"], &told["b"]["tools"]), (&expect, &json!([])));
    let file = world.path("work/f");
    assert_eq!(told["a"]["files"], json!([{ "path": file, "done": "read" }]));
    assert_eq!((&told["a"]["nodes"], &told["b"]["nodes"]), (&json!(5), &json!(2)));
    assert_eq!(
        (&told["a"]["asked"], &told["a"]["answers"], &told["b"]["answers"]),
        (&json!(1), &json!(2), &json!(1))
    );
    assert!(told["a"]["cost"].as_f64() > told["b"]["cost"].as_f64(), "{told}");
    let drawn = |columns: &str| {
        let mut command = world.quipu(&["diff", &left, &end]);
        command.env("COLUMNS", columns);
        RunningCommand::start(command).wait().ok().text()
    };
    let (narrow, wide) = (drawn("60"), drawn("160"));
    assert!(wide.lines().any(|line| line.starts_with("A ") && line.contains("│ B ")), "{wide}");
    assert!(!narrow.contains('│') && narrow.contains("2 × read, 1 failed"), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    // One is the beginning of the other: it did nothing since.
    let along = world.run(&["diff", &question, &end, "--json"]).ok().json();
    assert_eq!((&along["ancestor"], &along["a"]["nodes"]), (&json!(question), &json!(0)));
}

/// Where several sessions are here, a person is asked which; a program gets the newest.
#[test]
fn a_person_picks_among_sessions() {
    let world = world();
    world.run(&["-p", "Another."]).ok();
    let (code, shown) = on_terminal(&world, &["life"], "2\n", 100);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("1  now  Another.") && shown.contains("2  now  Where to?"), "{shown}");
    assert!(shown.contains("\u{1b}[1m  <-- FOCUS, HEAD") && shown.contains("Right it is."), "{shown}");
    let (code, shown) = on_terminal(&world, &["trace"], "\n", 100);
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = on_terminal(&world, &["life"], "7\n", 100);
    assert!(code == Some(2) && shown.contains("`7` is not a number from 1 to 2"), "{shown}");
    assert!(world.run(&["life"]).ok().text().contains("Another."));
}

#[test]
fn life_redraws_after_a_change() {
    let world = world();
    let mut watch = world.start(&["life", "--watch", "--no-children", "--ancestors", "0"]);
    let next = |watch: &mut RunningCommand, part: &str| loop {
        let line = watch.line().expect("a line");
        if line.contains(part) {
            break line;
        }
    };
    next(&mut watch, "Right it is.");
    world.run(&["-p", "-c", "Go."]).ok();
    let line = next(&mut watch, "On and on.");
    assert!(line.contains("<-- FOCUS, HEAD"), "{line}");
    watch.signal(Signal::SIGINT);
    assert_ne!(watch.wait().status.code(), Some(0));
}

#[test]
fn life_reports_an_unknown_name() {
    let world = world();
    let megabyte = "a".repeat(100_000);
    for bad in ["%", "____", "' OR 1=1 --", "\"", "zzzz", "\u{1b}[31m", megabyte.as_str()] {
        for command in ["life", "recall", "trace"] {
            world.run(&[command, bad]).fails(2, &["is no node and no session here"]);
        }
        world.run(&["diff", "HEAD", bad]).fails(2, &["is no node and no session here"]);
    }
    world.run(&["recall", "HEAD", "--budget", "0"]).fails(2, &["--budget"]);
    let empty = World::new([]);
    for command in [&["life"][..], &["trace"], &["recall", "HEAD"], &["diff", "HEAD", "HEAD"]] {
        empty.run(command).fails(2, &["there are no sessions yet", "quipu demo"]);
    }
}
