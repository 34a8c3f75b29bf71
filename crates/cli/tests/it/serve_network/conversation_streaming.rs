//! Answers that leave in blocks while they arrive.

use quipu_testkit::Gate;

use super::conversations::*;
use super::*;

const LINES: [&str; 6] = [
    "The first line has all that is known so far.",
    "The second line says where it was found.",
    "Of the third line half arrives for now.",
    "The fourth line waits for the gate to open.",
    "The fifth line is not needed to understand.",
    "The last line says that this is all there is.",
];

fn set(world: &World, streaming: &Value) {
    configure(world, &json!({ "messages": { "streaming": streaming } }));
}

fn asks(server: &Server, text: &str) -> String {
    queued(server, MAIN, &json!({ "text": text, "queue": { "mode": "followup", "debounceMs": 0 } }))
}

#[test]
fn answer_leaves_in_blocks_as_the_settings_say_now() {
    let (text, gate) = (LINES.join("\n\n"), Gate::new());
    let world = world([Answer::new().text(&text).halved(&gate), says(&text), says(&text)]);
    world.unchecked();
    let small = json!({ "mode": "blocks", "minChars": 10, "maxChars": 60, "joinMs": 0 });
    set(&world, &small);
    let server = Server::start(&world);
    let id = asks(&server, "one");
    let mut reader = Reader::of(&server, MAIN);
    // The answer has not ended.
    let first = reader.reply();
    assert_eq!((first["text"].as_str(), first["part"].as_u64()), (Some(LINES[0]), Some(0)), "{first}");
    assert_eq!(first["key"], format!("turn-{id}/0"));
    assert_eq!(acknowledge(&server, &first).status, 204);
    gate.open();
    for (part, line) in (1..).zip(&LINES[1..]) {
        let reply = reader.reply();
        assert_eq!((reply["part"].as_u64(), &reply["key"]), (Some(part), &first["key"]));
        assert_eq!(reply["text"], *line);
        assert_eq!(acknowledge(&server, &reply).status, 204);
    }
    // A channel of its own, and a change while the server runs.
    set(&world, &json!({ "mode": "blocks", "minChars": 10, "maxChars": 60, "byChannel": { "http": "off" } }));
    asks(&server, "two");
    assert_eq!(taken(&server, &mut reader), text);
    set(&world, &small);
    asks(&server, "three");
    assert_eq!(taken(&server, &mut reader), LINES[0]);
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn streamed_answer_goes_on_under_its_key_after_a_kill() {
    let (text, gate) = (LINES.join("\n\n"), Gate::new());
    let world = world([Answer::new().text(&text).halved(&gate), says(&text)]);
    world.unchecked();
    set(&world, &json!({ "mode": "blocks", "minChars": 10, "maxChars": 60, "joinMs": 0 }));
    let server = Server::start(&world);
    asks(&server, "one");
    let first = Reader::of(&server, MAIN).reply();
    assert_eq!(acknowledge(&server, &first).status, 204);
    drop(server);
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let mut texts = vec![first["text"].as_str().unwrap().to_owned()];
    while texts.len() < LINES.len() {
        let reply = reader.reply();
        assert_eq!(reply["key"], first["key"]);
        assert_eq!(acknowledge(&server, &reply).status, 204);
        texts.push(reply["text"].as_str().unwrap().to_owned());
    }
    assert_eq!(texts, LINES);
    server.ends(Signal::SIGTERM, 0);
}
