//! What servers get wrong: each time one message, the right exit code, and a session that goes on.

use std::time::Instant;

use quipu_testkit::{Answer, Reply};

use crate::support::*;

/// One attempt fails for good with `code` and these words, and the session goes on.
#[track_caller]
fn check(reply: Reply, code: i32, words: &[&str]) {
    fails(vec![reply], code, words);
}

/// The same for failures that are tried again: the first try and three more.
#[track_caller]
fn check_again(reply: &Reply, code: i32, words: &[&str]) {
    fails(vec![reply.clone(); 4], code, words);
}

#[track_caller]
fn fails(script: Vec<Reply>, code: i32, words: &[&str]) {
    let count = script.len();
    let world = World::new(script);
    let host = world.server.url().replace("http://", "");
    let ran = world.run(&["-p", "first"]).fails(code, words);
    for word in [host.as_str(), "quipu -p -c"] {
        assert!(ran.message().contains(word), "{word} is not in: {}", ran.err);
    }
    assert_eq!(world.requests().len(), count, "{}", ran.err);
    goes_on(&world);
}

/// The newest session goes on, and its first prompt is still there.
#[track_caller]
fn goes_on(world: &World) {
    let before = world.requests().len();
    world.server.push(Answer::new().text("Here I am.").reply());
    assert_eq!(world.run(&["-p", "-c", "second"]).ok().text(), "Here I am.\n");
    let request = &world.requests()[before];
    let said: String = messages(request).iter().map(wire_text).collect();
    assert!(said.starts_with("first") && said.ends_with("second"), "{said}");
    assert_eq!(world.sessions().len(), 1);
}

fn text_stream() -> String {
    Answer::new().text("Hello, this is an answer.").stream()
}

#[test]
fn a_wrong_key() {
    check(
        Reply::error(401, "authentication_error", "invalid x-api-key"),
        3,
        &["401", "invalid x-api-key", "Check the credential"],
    );
    // Some servers repeat the key.
    check(
        Reply::error(403, "permission_error", &format!("the key {KEY} is bad")),
        3,
        &["403", "[credential]"],
    );
}

#[test]
fn refusals() {
    check(
        Reply::error(404, "not_found_error", "model: test-1"),
        2,
        &["404", "model: test-1", "Check the model"],
    );
    check(
        Reply::error(400, "invalid_request_error", "prompt is too long: 9 > 8"),
        1,
        &["too long", "Shorten"],
    );
    check(Reply::error(402, "billing_error", "no money"), 1, &["402", "no money", "balance"]);
    let later = Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "86400");
    check(later, 1, &["slow down", "86400 s", "limit of 60 s"]);
    check_again(&Reply::error(500, "api_error", "boom"), 1, &["500", "boom", "4 attempts"]);
}

#[test]
fn nobody_answers() {
    let world = World::new([]);
    // A port that nobody listens on any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.configure(&format!("http://127.0.0.1:{port}"));
    let words = [&format!("127.0.0.1:{port}"), "could not be reached", "base URL", "quipu -p -c"];
    world.run(&["-p", "first"]).fails(1, &words);
    // A name that cannot exist: its first part is longer than names may be.
    world.configure(&format!("http://{}.invalid", "long".repeat(20)));
    world.run(&["-p", "-c", "again"]).fails(1, &["longlong", "could not be reached", "connection"]);
    for (url, word) in [("ftp://127.0.0.1", "models.json"), ("nonsense", "models.json")] {
        world.configure(url);
        let ran = world.run(&["-p", "-c", "again"]);
        assert!(matches!(ran.status.code(), Some(2 | 3)), "{}: {}", ran.status, ran.err);
        assert!(ran.message().contains(word), "{}", ran.err);
    }
    world.configure(&world.server.url());
    goes_on(&world);
}

#[test]
fn connections_that_break() {
    check_again(&Reply::reset(), 1, &["4 attempts"]);
    let half = text_stream();
    check_again(&Reply::sse(half[..half.len() / 2].to_owned()).then_reset(), 1, &["4 attempts"]);
    check_again(&Reply::sse(half[..half.len() / 2].to_owned()).then_cut(), 1, &["4 attempts"]);
    // Closed in good order, in the middle of an event, and between two.
    check_again(&Reply::sse(half[..half.len() / 2].to_owned()), 1, &["ended", "4 attempts"]);
    check_again(&Reply::sse(Answer::new().text("Half").unfinished()), 1, &["ended", "4 attempts"]);
    check_again(&Reply::sse(""), 1, &["4 attempts"]);
}

#[test]
fn a_server_that_falls_silent() {
    let world = World::new([Reply::never(), Reply::sse(Answer::new().text("Half").unfinished()).then_hang()]);
    std::fs::write(
        world.path("home/.quipu/settings.json"),
        r#"{"retry":{"maxRetries":1,"baseDelayMs":1},"httpIdleTimeoutMs":100}"#,
    )
    .unwrap();
    world.run(&["-p", "first"]).fails(1, &["silent for 0.1 s", "2 attempts", "quipu -p -c"]);
    goes_on(&world);
}

#[test]
fn answers_that_are_none() {
    let page = "<!DOCTYPE html><html><head><title>Log in</title></head></html>";
    check(Reply::new(200, "text/html", page), 1, &["HTML page", "Log in", "base URL"]);
    check(Reply::new(200, "text/event-stream", page), 1, &["HTML page", "base URL"]);
    check(Reply::new(200, "application/json", "{}"), 1, &["not with an event stream", "base URL"]);
    check(Reply::new(200, "application/json", ""), 1, &["empty body", "base URL"]);
    check(Reply::sse("just some words\n\nand more\n\n"), 1, &["no event stream", "just some words"]);
    check(Reply::sse(vec![0xff; 4096]), 1, &["no event stream"]);
    check(Reply::sse("event: message_start\ndata: {\"type\":\"message_start\",\n\n"), 1, &["base URL"]);
    // An event that nobody knows, and no other.
    check_again(&Reply::sse("data: [1,2]\n\n"), 1, &["ended", "4 attempts"]);
    check_again(&Reply::raw("SSH-2.0-OpenSSH_9.9\r\n"), 1, &["4 attempts"]);
    check(
        Reply::new(302, "text/html", "").header("location", "http://127.0.0.1:1/"),
        1,
        &["302", "redirect", "not followed"],
    );
}

#[test]
fn an_answer_without_words() {
    let world = World::new([Answer::new().reply()]);
    let ran = world.run(&["-p", "first"]).ok();
    assert_eq!(ran.text(), "");
    goes_on(&world);
}

#[test]
fn errors_in_the_middle_of_an_answer() {
    let error = |kind: &str, message: &str| {
        let event = serde_json::json!({ "type": "error", "error": { "type": kind, "message": message } });
        let begin = Answer::new().text("Half an answer").unfinished();
        Reply::sse(format!("{begin}event: error\ndata: {event}\n\n"))
    };
    check_again(&error("overloaded_error", "Overloaded"), 1, &["Overloaded", "4 attempts"]);
    check(error("invalid_request_error", "nonsense"), 1, &["nonsense"]);
    // One try fails and the next one works: the text of both is told apart.
    let world = World::new([error("overloaded_error", "Overloaded"), Answer::new().text("Whole.").reply()]);
    let ran = world.run(&["-p", "first"]).ok();
    assert_eq!(ran.text(), "Half an answer\nWhole.\n");
    assert!(ran.err.contains("broke off") && ran.err.contains("try 2"), "{}", ran.err);
    goes_on(&world);
}

#[test]
fn two_503_and_a_wait_that_the_server_asks_for() {
    let busy = || Reply::error(503, "overloaded_error", "Overloaded").header("retry-after-ms", "30");
    let world = World::new([busy(), busy(), Answer::new().text("Here.").reply()]);
    assert_eq!(world.run(&["-p", "first"]).ok().text(), "Here.\n");
    let requests = world.requests();
    assert_eq!(requests.len(), 3);
    for pair in requests.windows(2) {
        assert!((pair[1].at - pair[0].at).as_millis() >= 30 && pair[0].body == pair[1].body);
    }
    assert_eq!(world.nodes().iter().filter(|node| node["message"]["role"] == "assistant").count(), 1);
    goes_on(&world);
}

/// The most memory that a process had, in MiB, watched until its end. `None` where the system does not say.
fn watch(running: &Running) -> std::thread::JoinHandle<Option<u64>> {
    let status = format!("/proc/{}/status", running.child.id());
    std::thread::spawn(move || {
        let mut most = None;
        while let Ok(text) = std::fs::read_to_string(&status) {
            let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) else { break };
            most = Some(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024);
            std::thread::yield_now();
        }
        most
    })
}

#[test]
fn a_reply_of_a_hundred_megabytes() {
    let large = |piece: Vec<u8>| {
        let begin = Answer::new().text("Here it comes.").unfinished();
        let times = (100 << 20) / piece.len() as u64;
        Reply::sse(begin).then_repeat(piece, times)
    };
    let delta = |text: &str| {
        let event = serde_json::json!({
            "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": text },
        });
        format!("event: content_block_delta\ndata: {event}\n\n")
    };
    let text = {
        let start = r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#;
        let begin = Answer::new().text("Here it comes.").unfinished();
        let piece = delta(&"words ".repeat(2_000));
        let times = (100 << 20) / piece.len() as u64;
        Reply::sse(format!("{begin}event: content_block_start\ndata: {start}\n\n")).then_repeat(piece, times)
    };
    let error = Reply::new(500, "text/plain", "").then_repeat(vec![b'x'; 64 << 10], 1600);
    let cases = [
        // One event without end, comments, unknown events, and an answer that is too long.
        (vec![large(vec![b'x'; 64 << 10])], "larger than 16 MiB"),
        (vec![large([b": ".as_slice(), &[b'x'; 8000], b"\n"].concat())], "bytes"),
        (vec![large(b"event: new\ndata: {\"type\":\"new\"}\n\n".repeat(100))], "more than"),
        (vec![text], "more than 8 MiB of content"),
        (vec![error; 4], "500"),
    ];
    for (script, word) in cases {
        let count = script.len();
        let world = World::new(script);
        let began = Instant::now();
        let running = world.start(&["-p", "first"]);
        let memory = watch(&running);
        let ran = running.wait().fails(1, &[word, "quipu -p -c"]);
        let most = memory.join().unwrap();
        println!("{:?}, {most:?} MiB: {}", began.elapsed(), ran.message());
        assert!(most.is_none_or(|most| most < 150), "{most:?} MiB: {}", ran.err);
        assert_eq!(world.requests().len(), count);
        goes_on(&world);
    }
}
