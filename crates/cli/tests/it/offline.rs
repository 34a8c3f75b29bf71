//! What `--no-network` takes from a session beside the network of its commands.

use quipu_testkit::{Answer, FakeServer};
use serde_json::{Value, json};

use crate::support::*;

fn names(world: &World) -> Vec<String> {
    let body: Value = serde_json::from_slice(&world.requests().last().unwrap().body).unwrap();
    body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_network_leaves_out_every_web_tool_and_says_so() {
    if !crate::permissions::confined() {
        return;
    }
    let world = World::new((0..5).map(|_| Answer::new().text("Hi.").reply()));
    let service = FakeServer::start([]);
    let set = |more: Value| {
        let mut settings = json!({ "web": { "searchService": "searxng", "searchUrl": service.url() } });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    };
    set(json!({}));
    let web = |world: &World| names(world).into_iter().filter(|name| name.starts_with("web_")).count();
    let tools = ["-p", "--tools", "read,web_fetch"];
    world.run(&[&tools[..], &["hi"]].concat()).ok();
    assert_eq!(web(&world), 2, "{:?}", names(&world));
    let ran = world.run(&[&tools[..], &["--no-network", "hi"]].concat()).ok();
    assert_eq!(web(&world), 0, "{:?}", names(&world));
    assert!(
        ran.err.contains("kept off the network, so it has no web tools (`web_fetch`, `web_search`)")
            && ran.err.contains("leave --no-network out"),
        "{}",
        ran.err
    );
    // The same by the setting; who wants none of them gets no line.
    set(json!({ "sandbox": { "network": "closed" } }));
    let ran = world.run(&[&tools[..], &["hi"]].concat()).ok();
    assert!(
        ran.err.contains("`sandbox.network` is `closed`, so the session has no web tools"),
        "{}",
        ran.err
    );
    assert_eq!(web(&world), 0);
    set(json!({ "web": { "searchService": "off" } }));
    let ran = world.run(&["-p", "--no-network", "hi"]).ok();
    assert!(!ran.err.contains("web tools"), "{}", ran.err);
    // The search of the provider as well.
    let model = json!({
        "id": MODEL, "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text"],
        "compat": { "supportsWebSearch": true },
    });
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model] });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    let ran = world.run(&["-p", "--web-search", "--no-network", "hi"]).ok();
    assert_eq!(web(&world), 0, "{:?}", names(&world));
    assert!(ran.err.contains("the web search of the model's provider"), "{}", ran.err);
    world.check();
}
