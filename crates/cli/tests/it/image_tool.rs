//! Images for a model that sees none: `image` asks one that does.

use base64::Engine as _;
use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// A PNG file of one pixel, in Base64.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// A world in which `test-1` is blind and costs nothing, `thinker` sees and has a price, and `named` answers about images.
fn world(script: impl IntoIterator<Item = Reply>, named: Option<&str>) -> World {
    let world = World::new(script);
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let models = &mut file["providers"]["testing"]["models"];
    models[0]["input"] = json!(["text"]);
    models[0]["cost"] = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 });
    models[1]["input"] = json!(["text", "image"]);
    models[1]["cost"] = json!({ "input": 5, "output": 5, "cacheRead": 0, "cacheWrite": 0 });
    std::fs::write(path, file.to_string()).unwrap();
    name(&world, named);
    let dot = base64::engine::general_purpose::STANDARD.decode(DOT).unwrap();
    world.file("dot.png", &dot);
    std::fs::create_dir_all(world.path("work/sub")).unwrap();
    world.file("sub/other.png", &dot);
    std::fs::create_dir_all(world.path("home/.ssh")).unwrap();
    std::fs::write(world.path("home/.ssh/key.png"), &dot).unwrap();
    world
}

fn name(world: &World, named: Option<&str>) {
    let mut settings = json!({ "retry": { "enabled": false } });
    if let Some(named) = named {
        settings["purposeModels"] = json!({ "image": named });
    }
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

fn last(world: &World, at: usize) -> String {
    wire_text(messages(&world.requests()[at]).last().unwrap())
}

fn is_offered(world: &World, at: usize) -> bool {
    let tools = world.requests()[at].json()["tools"].clone();
    tools.as_array().unwrap().iter().any(|tool| tool["name"] == "image")
}

#[test]
fn blind_model_asks_one_that_sees() {
    let question = json!({ "prompt": "Which colour?", "path": "dot.png", "paths": ["sub/other.png"] });
    let script = [
        call("c1", "read", &json!({ "path": "dot.png" })),
        call("c2", "image", &question),
        says("Both are red."),
        says("Red."),
    ];
    let world = world(script, Some("testing/thinker"));
    world.run(&["-p", "Look."]).ok();
    let requests = world.requests();
    assert!(is_offered(&world, 0));
    assert!(last(&world, 1).contains("does not support images"), "{}", last(&world, 1));
    let asked = requests[2].json();
    assert_eq!(asked["model"], "thinker", "{}", last(&world, 2));
    assert_eq!(asked["messages"].as_array().unwrap().len(), 1, "it knows nothing else");
    let blocks = asked["messages"][0]["content"].as_array().unwrap().clone();
    assert_eq!(blocks.iter().filter(|block| block["type"] == "image").count(), 2, "{blocks:?}");
    let text = wire_text(&asked["messages"][0]);
    for part in ["Which colour?", "[Image dot.png]", "[Image sub/other.png]"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(requests[3].json()["model"], "test-1");
    assert!(last(&world, 3).contains("Both are red."), "{}", last(&world, 3));
    let sent = |at: usize| String::from_utf8_lossy(&requests[at].body).contains(DOT);
    assert!(sent(2) && !sent(1) && !sent(3), "the blind model gets no image");
    // It is paid for by the run, and counted.
    let calls: Vec<Value> =
        world.nodes().into_iter().filter(|node| node.to_string().contains("\"purpose\":\"image\"")).collect();
    assert_eq!(calls.len(), 1);
    let usage = world.run(&["usage", "--json"]).ok().json_lines().pop().unwrap();
    assert_eq!(usage["calls"], 4);
    assert!(usage["cost"].as_f64().unwrap() > 0.0, "the session's own model is free: {usage}");
}

#[test]
fn call_that_would_cost_too_much_is_not_made() {
    let script = [call("c1", "image", &json!({ "prompt": "What?", "path": "dot.png" })), says("Never mind.")];
    let world = world(script, Some("testing/thinker"));
    world.run(&["-p", "--max-cost", "0.01", "Look."]).ok();
    assert_eq!(world.requests().len(), 2);
    assert!(last(&world, 1).contains("may exceed what is left"), "{}", last(&world, 1));
}

#[test]
fn questions_that_cannot_be_answered_say_why() {
    let ask = |at: usize, arguments: &Value| call(&format!("c{at}"), "image", arguments);
    let secret = "../home/.ssh/key.png";
    let many: Vec<&str> = vec!["dot.png"; 9];
    let cases = [
        (json!({ "prompt": "What?", "path": "text.txt" }), "is no image"),
        (json!({ "prompt": "What?", "path": "gone.png" }), "gone.png"),
        (json!({ "prompt": "What?", "path": "broken.png" }), "cannot be shown"),
        (json!({ "prompt": " ", "path": "dot.png" }), "`prompt` is empty"),
        (json!({ "prompt": "What?", "path": "https://example.com/dot.png" }), "is an address"),
        (json!({ "prompt": "What?" }), "No image is named"),
        (json!({ "prompt": "What?", "paths": many }), "9 images are named; the limit is 8"),
        (json!({ "prompt": "x".repeat(40_000), "path": "dot.png" }), "the limit is 32768"),
        (json!({ "prompt": "What?", "paths": ["dot.png", secret] }), "key.png"),
    ];
    let replies = cases.iter().enumerate().map(|(at, (arguments, _))| ask(at, arguments));
    let world = world(replies.chain([says("Done.")]), Some("testing/thinker"));
    world.file("text.txt", "no image");
    world.file("broken.png", [&b"\x89PNG\r\n\x1a\n"[..], &[7; 200]].concat());
    world.run(&["-p", "Look."]).ok();
    let requests = world.requests();
    assert_eq!(requests.len(), cases.len() + 1, "no model was asked");
    for (at, (_, why)) in cases.iter().enumerate() {
        assert!(last(&world, at + 1).contains(why), "{why}: {}", last(&world, at + 1));
    }
    assert!(requests.iter().all(|request| !String::from_utf8_lossy(&request.body).contains(DOT)));
}

#[test]
fn model_that_is_named_must_see() {
    let question = || call("c1", "image", &json!({ "prompt": "What?", "path": "dot.png" }));
    let world = world([question(), says("a"), question(), says("b")], Some("testing/test-1"));
    world.run(&["-p", "Look."]).ok();
    assert!(
        last(&world, 1).contains("testing/test-1") && last(&world, 1).contains("not known to see images")
    );
    name(&world, Some("nowhere/none"));
    world.run(&["-p", "Look."]).ok();
    assert!(last(&world, 3).contains("cannot be used"), "{}", last(&world, 3));
    assert_eq!(world.requests().len(), 4);
}

#[test]
fn tool_is_offered_where_a_model_is_named() {
    let world = world(["a", "b", "c", "d"].map(says), None);
    world.run(&["-p", "Look."]).ok();
    assert!(!is_offered(&world, 0));
    // A session that began without it goes on as it was.
    name(&world, Some("testing/thinker"));
    world.run(&["-p", "-c", "Look."]).ok();
    assert!(!is_offered(&world, 1));
    world.run(&["-p", "Look."]).ok();
    assert!(is_offered(&world, 2));
    world.run(&["config", "set", "tools.deny", "[\"image\"]"]).ok();
    world.run(&["-p", "Look."]).ok();
    assert!(!is_offered(&world, 3));
}
