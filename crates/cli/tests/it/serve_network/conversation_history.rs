//! How much of a conversation requests have.

use super::conversations::*;
use super::*;

fn set(world: &World, history: &Value) {
    let settings = json!({
        "defaultModel": MODEL, "session": { "history": history },
    });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

/// What the last request says.
fn sent(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

/// A message that is answered.
fn answered(server: &Server, key: &str, text: &str) {
    queued(server, key, &json!({ "text": text, "queue": { "mode": "followup", "debounceMs": 0 } }));
    taken(server, &mut Reader::of(server, key));
}

#[test]
fn history_limit_holds_by_kind_and_channel_and_as_set_now() {
    let world = world((0..20).map(|at| says(&format!("A{at}"))));
    world.unchecked();
    set(
        &world,
        &json!({ "byKind": { "direct": 2 }, "byChannel": { "irc": { "group": 1, "people": { "7": 0 } } } }),
    );
    let server = Server::start(&world);
    for text in ["one", "two", "three"] {
        answered(&server, MAIN, text);
    }
    let last = sent(&world);
    assert!(last.len() == 3 && last[0].ends_with("two") && last[1] == "A1" && last[2] == "three", "{last:?}");
    for (key, count) in
        [("agent:main:irc:group:g", 1), ("agent:main:irc:direct:7", 3), ("agent:main:sms:group:g", 3)]
    {
        answered(&server, key, "first");
        answered(&server, key, "second");
        assert_eq!(sent(&world).len(), count, "{key}");
    }
    // A change holds from the next run on, also for a completion.
    set(&world, &json!({ "turns": 1 }));
    answered(&server, MAIN, "four");
    let last = sent(&world);
    assert!(last.len() == 1 && last[0].ends_with("four"), "{last:?}");
    let asks = |text: &str| {
        let messages = json!([{ "role": "user", "content": text }]);
        let body = json!({ "model": "quipu", "user": "agent:main:sms:group:g", "messages": messages });
        assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
    };
    asks("third");
    let last = sent(&world);
    assert!(last.len() == 1 && last[0].ends_with("third"), "{last:?}");
    // Without a limit, what was left out stays so.
    set(&world, &json!({}));
    answered(&server, MAIN, "five");
    let last = sent(&world);
    assert!(last.len() == 3 && last[0].ends_with("four") && last[2] == "five", "{last:?}");
    server.ends(Signal::SIGTERM, 0);
    let server = Server::start(&world);
    answered(&server, MAIN, "six");
    assert_eq!(sent(&world).len(), 5);
    server.ends(Signal::SIGTERM, 0);
}
