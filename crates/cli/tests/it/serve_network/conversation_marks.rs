//! Marks in answers behind a server: what they answer, and the files that go with them.

use super::conversations::*;
use super::*;

/// The reply to a message, acknowledged.
fn reply(server: &Server, reader: &mut Reader, message: &Value) -> Value {
    queued(server, MAIN, message);
    let reply = reader.reply();
    assert_eq!(acknowledge(server, &reply).status, 204);
    reply
}

#[test]
fn reply_marks_reach_the_chat_and_nothing_is_added() {
    let world = world(
        ["Hi [[reply_to: 123]] there", "[[reply_to_current]] Yes.", "[[reply_to_current]] No.", "Plain."]
            .map(says),
    );
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    let message = |id: &str| {
        let queue = json!({ "mode": "followup", "debounceMs": 0 });
        json!({ "text": "hello", "messageId": id, "queue": queue })
    };
    let unnamed = json!({ "text": "hello", "queue": { "mode": "followup", "debounceMs": 0 } });
    for (message, text, target) in [
        (message("m1"), "Hi there", json!({ "id": "123" })),
        (message("m2"), "Yes.", json!({ "id": "m2" })),
        (unnamed, "No.", json!("current")),
        (message("m4"), "Plain.", Value::Null),
    ] {
        let reply = reply(&server, &mut reader, &message);
        assert_eq!((&reply["text"], &reply["replyTo"]), (&json!(text), &target), "{reply}");
    }
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn answer_names_files_of_its_workspace_alone() {
    let lines = "Here it is\nMEDIA:/etc/passwd\nMedia: TV/radio 40 %, print 60 %";
    let script = || [says(lines), says("Look\nMEDIA: ./plot.png")];
    for mode in ["off", "blocks"] {
        let world = world(script());
        configure(&world, &json!({ "messages": { "streaming": { "mode": mode } } }));
        let server = Server::start(&world);
        let mut reader = Reader::of(&server, MAIN);
        let message = json!({ "text": "hello", "queue": { "mode": "followup", "debounceMs": 0 } });
        let refused = reply(&server, &mut reader, &message);
        assert_eq!((&refused["text"], &refused["media"]), (&json!(lines), &json!([])), "{mode}");
        let plot = world.path("work/plot.png");
        std::fs::write(&plot, "a plot").unwrap();
        let sent = reply(&server, &mut reader, &message);
        let plot = plot.canonicalize().unwrap();
        assert_eq!((&sent["text"], &sent["media"]), (&json!("Look"), &json!([plot])), "{mode}");
        server.ends(Signal::SIGTERM, 0);
    }
}
