//! What servers get wrong, on each wire: each time one message, the right exit code, and a session that goes on.

use std::time::Instant;

use quipu_testkit::{Answer, Reply, Wire, process_memory};
use serde_json::{Value, json};

use crate::support::*;

/// Each test once for each wire.
macro_rules! on_every_wire {
    ($($test:ident),* $(,)?) => {
        mod messages {
            $(#[test] fn $test() { super::$test(super::Wire::Messages); })*
        }
        mod completions {
            $(#[test] fn $test() { super::$test(super::Wire::Completions); })*
        }
        mod responses {
            $(#[test] fn $test() { super::$test(super::Wire::Responses); })*
        }
        mod contents {
            $(#[test] fn $test() { super::$test(super::Wire::Contents); })*
        }
        mod subscription {
            $(#[test] fn $test() { super::$test(super::Wire::Subscription); })*
        }
        mod chunks {
            $(#[test] fn $test() { super::$test(super::Wire::Chunks); })*
        }
        mod envelope {
            $(#[test] fn $test() { super::$test(super::Wire::Envelope); })*
        }
    };
}

on_every_wire!(
    a_wrong_key,
    refusals,
    nobody_answers,
    connections_that_break,
    a_server_that_falls_silent,
    answers_that_are_none,
    an_answer_without_words,
    errors_in_the_middle_of_an_answer,
    two_503_and_a_wait_that_the_server_asks_for,
    a_reply_of_a_hundred_megabytes,
    a_drip,
    an_answer_said_twice,
    events_that_are_repeated,
    a_model_that_changes_its_name,
    two_reasons_for_the_end,
    one_id_for_two_calls,
    arguments_in_pieces,
    arguments_that_are_no_json,
    counts_that_shrink,
);

/// The stream of gateways does not name the model.
mod gateway {
    use super::Wire::Gateway;

    macro_rules! tests {
        ($($test:ident),* $(,)?) => { $(#[test] fn $test() { super::$test(Gateway); })* };
    }

    tests!(
        a_wrong_key,
        refusals,
        nobody_answers,
        connections_that_break,
        a_server_that_falls_silent,
        answers_that_are_none,
        an_answer_without_words,
        errors_in_the_middle_of_an_answer,
        two_503_and_a_wait_that_the_server_asks_for,
        a_reply_of_a_hundred_megabytes,
        a_drip,
        an_answer_said_twice,
        events_that_are_repeated,
        two_reasons_for_the_end,
        one_id_for_two_calls,
        arguments_in_pieces,
        arguments_that_are_no_json,
        counts_that_shrink,
    );
}

/// The wire of frames has no text to break, numbers that grow, or a name of the model in its stream: what it does with those is
/// tried where frames are made. It also refuses to send a key to another machine in the open.
mod converse {
    use super::Wire::Converse;

    macro_rules! tests {
        ($($test:ident),* $(,)?) => { $(#[test] fn $test() { super::$test(Converse); })* };
    }

    tests!(
        a_wrong_key,
        refusals,
        connections_that_break,
        a_server_that_falls_silent,
        errors_in_the_middle_of_an_answer,
        two_503_and_a_wait_that_the_server_asks_for,
        a_drip,
        an_answer_said_twice,
        one_id_for_two_calls,
        arguments_in_pieces,
        arguments_that_are_no_json,
    );
}

/// A world whose model speaks this wire.
fn world(wire: Wire, script: impl IntoIterator<Item = Reply>) -> World {
    let world = World::new(script);
    configure(&world, wire, &world.server.url());
    world
}

fn configure(world: &World, wire: Wire, url: &str) {
    world.configure(url);
    let api = match wire {
        Wire::Messages => return,
        Wire::Completions => "openai-completions",
        Wire::Responses => "openai-responses",
        Wire::Contents => "google-generative-ai",
        Wire::Subscription => "openai-codex-responses",
        Wire::Chunks => "mistral-conversations",
        Wire::Converse => "bedrock-converse-stream",
        Wire::Gateway => "pi-messages",
        Wire::Envelope => {
            name_project(world);
            "google-gemini-cli"
        }
    };
    let file = world.path("home/.quipu/models.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut file_of_wire: Value = serde_json::from_str(&text.replace("anthropic-messages", api)).unwrap();
    if wire == Wire::Subscription {
        file_of_wire["providers"]["testing"]["headers"] = json!({ "chatgpt-account-id": "account-of-test" });
    }
    std::fs::write(&file, file_of_wire.to_string()).unwrap();
}

/// Whether an answer comes as parts of one candidate.
fn has_parts(wire: Wire) -> bool {
    matches!(wire, Wire::Contents | Wire::Envelope)
}

/// One attempt fails for good with `code` and these words, and the session goes on.
#[track_caller]
fn check(wire: Wire, reply: Reply, code: i32, words: &[&str]) {
    fails(wire, vec![reply], code, words);
}

/// The same for failures that are tried again: the first try and three more.
#[track_caller]
fn check_again(wire: Wire, reply: &Reply, code: i32, words: &[&str]) {
    fails(wire, vec![reply.clone(); 4], code, words);
}

#[track_caller]
fn fails(wire: Wire, script: Vec<Reply>, code: i32, words: &[&str]) {
    let count = script.len();
    let world = world(wire, script);
    let host = world.server.url().replace("http://", "");
    let ran = world.run(&["-p", "first"]).fails(code, words);
    for word in [host.as_str(), "quipu -p -c"] {
        assert!(ran.message().contains(word), "{word} is not in: {}", ran.err);
    }
    assert_eq!(world.requests().len(), count, "{}", ran.err);
    continues(wire, &world);
}

/// One answer is good and is this text, and the session goes on.
#[track_caller]
fn works(wire: Wire, reply: Reply, text: &str) -> World {
    let world = world(wire, [reply]);
    assert_eq!(world.run(&["-p", "first"]).ok().text(), format!("{text}\n"));
    continues(wire, &world);
    world
}

/// The newest session goes on, and its first prompt is still there.
#[track_caller]
fn continues(wire: Wire, world: &World) {
    let before = world.requests().len();
    world.server.push(Answer::on(wire).text("Here I am.").reply());
    assert_eq!(world.run(&["-p", "-c", "second"]).ok().text(), "Here I am.\n");
    let request = &world.requests()[before];
    let said = messages(request)
        .iter()
        .filter(|message| message["role"] != "system")
        .map(wire_text)
        .collect::<String>();
    assert!(said.starts_with("first") && said.ends_with("second"), "{said}");
    assert_eq!(world.sessions().len(), 1);
}

/// The answers of the newest session, in order.
fn answers(world: &World) -> Vec<Value> {
    let nodes = world.nodes();
    let messages = nodes.into_iter().map(|node| node["message"].clone());
    messages.filter(|message| message["role"] == "assistant").collect()
}

fn text_stream(wire: Wire) -> String {
    Answer::on(wire).text("Hello, this is an answer.").stream()
}

fn a_wrong_key(wire: Wire) {
    let error = |status, kind: &str, message: &str| Reply::error_on(wire, status, kind, message);
    let words = ["401", "invalid x-api-key", "Check the credential"];
    check(wire, error(401, "authentication_error", "invalid x-api-key"), 3, &words);
    // Some servers repeat the key.
    let echo = error(403, "permission_error", &format!("the key {KEY} is bad"));
    check(wire, echo, 3, &["403", "[credential]"]);
}

fn refusals(wire: Wire) {
    let error = |status, kind: &str, message: &str| Reply::error_on(wire, status, kind, message);
    let unknown = error(404, "not_found_error", "model: test-1");
    check(wire, unknown, 2, &["404", "model: test-1", "Check the model"]);
    let long = error(400, "invalid_request_error", "prompt is too long: 9 > 8");
    check(wire, long, 1, &["too long", "Shorten"]);
    check(wire, error(402, "billing_error", "no money"), 1, &["402", "no money", "balance"]);
    let later = error(429, "rate_limit_error", "slow down").header("retry-after", "86400");
    check(wire, later, 1, &["slow down", "86400 s", "limit of 60 s"]);
    check_again(wire, &error(500, "api_error", "boom"), 1, &["500", "boom", "4 attempts"]);
}

fn nobody_answers(wire: Wire) {
    let world = World::new([]);
    // A port that nobody listens on any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configure(&world, wire, &format!("http://127.0.0.1:{port}"));
    let words = [&format!("127.0.0.1:{port}"), "could not be reached", "base URL", "quipu -p -c"];
    world.run(&["-p", "first"]).fails(1, &words);
    // A name that cannot exist: its first part is longer than names may be.
    configure(&world, wire, &format!("http://{}.invalid", "long".repeat(20)));
    world.run(&["-p", "-c", "again"]).fails(1, &["longlong", "could not be reached", "connection"]);
    for (url, word) in [("ftp://127.0.0.1", "models.json"), ("nonsense", "models.json")] {
        configure(&world, wire, url);
        let ran = world.run(&["-p", "-c", "again"]);
        assert!(matches!(ran.status.code(), Some(2 | 3)), "{}: {}", ran.status, ran.err);
        assert!(ran.message().contains(word), "{}", ran.err);
    }
    configure(&world, wire, &world.server.url());
    continues(wire, &world);
}

fn connections_that_break(wire: Wire) {
    check_again(wire, &Reply::reset(), 1, &["4 attempts"]);
    let half = wire.bytes(&text_stream(wire));
    // In the middle of an event.
    let half = || Reply::sse(half[..half.len() / 3].to_vec());
    check_again(wire, &half().then_reset(), 1, &["4 attempts"]);
    check_again(wire, &half().then_cut(), 1, &["4 attempts"]);
    // Closed in good order, in the middle of an event, and between two.
    check_again(wire, &half(), 1, &["ended", "4 attempts"]);
    let between = Reply::stream_on(wire, &Answer::on(wire).text("Half").unfinished());
    check_again(wire, &between, 1, &["ended", "4 attempts"]);
    check_again(wire, &Reply::sse(""), 1, &["4 attempts"]);
}

/// It takes the request and never answers, or stops in the middle of its answer.
fn a_server_that_falls_silent(wire: Wire) {
    let half = Reply::stream_on(wire, &Answer::on(wire).text("Half").unfinished()).then_hang();
    let world = world(wire, [Reply::never(), half]);
    let settings = r#"{"retry":{"maxRetries":1,"baseDelayMs":1},"httpIdleTimeoutMs":100}"#;
    std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
    world.run(&["-p", "first"]).fails(1, &["silent for 0.1 s", "2 attempts", "quipu -p -c"]);
    let patient = r#"{"retry":{"baseDelayMs":1}}"#;
    std::fs::write(world.path("home/.quipu/settings.json"), patient).unwrap();
    continues(wire, &world);
}

fn answers_that_are_none(wire: Wire) {
    let page = "<!DOCTYPE html><html><head><title>Log in</title></head></html>";
    check(wire, Reply::new(200, "text/html", page), 1, &["HTML page", "Log in", "base URL"]);
    check(wire, Reply::new(200, "text/event-stream", page), 1, &["HTML page", "base URL"]);
    let plain = Reply::new(200, "application/json", "{}");
    check(wire, plain, 1, &["not with an event stream", "base URL"]);
    check(wire, Reply::new(200, "application/json", ""), 1, &["empty body", "base URL"]);
    let words = Reply::sse("just some words\n\nand more\n\n");
    check(wire, words, 1, &["not answer with an event stream", "just some words"]);
    check(wire, Reply::sse(vec![0xff; 4096]), 1, &["not answer with an event stream"]);
    let half = match wire {
        Wire::Messages => "event: message_start\ndata: {\"type\":\"message_start\",\n\n",
        Wire::Completions | Wire::Chunks => "data: {\"id\":\"c-1\",\"choices\":[\n\n",
        Wire::Responses | Wire::Subscription => "data: {\"type\":\"response.created\",\n\n",
        Wire::Contents => "data: {\"candidates\":[\n\n",
        Wire::Envelope => "data: {\"response\":{\"candidates\":[\n\n",
        Wire::Converse => panic!("not among these"),
        Wire::Gateway => "data: {\"type\":\"start\",\n\n",
    };
    check(wire, Reply::sse(half), 1, &["base URL"]);
    // An event that nobody knows, and no other.
    check_again(wire, &Reply::sse("data: [1,2]\n\n"), 1, &["ended", "4 attempts"]);
    check_again(wire, &Reply::raw("SSH-2.0-OpenSSH_9.9\r\n"), 1, &["4 attempts"]);
    let moved = Reply::new(302, "text/html", "").header("location", "http://127.0.0.1:1/");
    check(wire, moved, 1, &["302", "redirect", "not followed"]);
}

fn an_answer_without_words(wire: Wire) {
    let world = world(wire, [Answer::on(wire).reply()]);
    assert_eq!(world.run(&["-p", "first"]).ok().text(), "");
    continues(wire, &world);
}

fn errors_in_the_middle_of_an_answer(wire: Wire) {
    let error = |kind: &str, message: &str| {
        let begin = Answer::on(wire).text("Half an answer").unfinished();
        let event = json!({ "type": "error", "error": { "type": kind, "message": message } });
        let text = match wire {
            Wire::Messages | Wire::Responses | Wire::Subscription | Wire::Gateway => {
                format!("{begin}event: error\ndata: {event}\n\n")
            }
            Wire::Completions | Wire::Contents | Wire::Chunks | Wire::Envelope => {
                format!("{begin}data: {{\"error\":{}}}\n\n", event["error"])
            }
            Wire::Converse => {
                let name = if kind == "overloaded_error" { "serviceUnavailable" } else { "validation" };
                format!("{begin}exception: {name}Exception\ndata: {}\n\n", event["error"])
            }
        };
        Reply::stream_on(wire, &text)
    };
    check_again(wire, &error("overloaded_error", "Overloaded"), 1, &["Overloaded", "4 attempts"]);
    check(wire, error("invalid_request_error", "nonsense"), 1, &["nonsense"]);
    // One try fails and the next one works: what broke off is not printed, unless it is to stream.
    let whole = || Answer::on(wire).text("Whole.").reply();
    for (flags, printed) in [(&["-p"][..], "Whole.\n"), (&["-p", "--stream"], "Half an answer\nWhole.\n")] {
        let world = world(wire, [error("overloaded_error", "Overloaded"), whole()]);
        let ran = world.run(&[flags, &["first"]].concat()).ok();
        assert_eq!(ran.text(), printed);
        assert!(ran.err.contains("broke off") && ran.err.contains("try 2"), "{}", ran.err);
        continues(wire, &world);
    }
}

fn two_503_and_a_wait_that_the_server_asks_for(wire: Wire) {
    let busy = || Reply::error_on(wire, 503, "overloaded_error", "Overloaded").header("retry-after-ms", "30");
    let world = world(wire, [busy(), busy(), Answer::on(wire).text("Here.").reply()]);
    assert_eq!(world.run(&["-p", "first"]).ok().text(), "Here.\n");
    let requests = world.requests();
    assert_eq!(requests.len(), 3);
    for pair in requests.windows(2) {
        assert!((pair[1].at - pair[0].at).as_millis() >= 30 && pair[0].body == pair[1].body);
    }
    assert_eq!(answers(&world).len(), 1);
    continues(wire, &world);
}

/// The most memory of its own that a process had, in MiB, watched until its end. `None` where the system does not say.
fn watch(running: &RunningCommand) -> std::thread::JoinHandle<Option<u64>> {
    let process = running.child.id();
    std::thread::spawn(move || {
        let mut most = None;
        while let Some(memory) = process_memory(process) {
            most = most.max(Some(memory.peak / 1024));
            std::thread::yield_now();
        }
        most
    })
}

fn a_reply_of_a_hundred_megabytes(wire: Wire) {
    let begin = || Answer::on(wire).text("Here it comes.").unfinished();
    let large = |piece: Vec<u8>| {
        let times = (100 << 20) / piece.len() as u64;
        Reply::sse(begin()).then_repeat(piece, times)
    };
    let words = "words ".repeat(2_000);
    let (start, delta) = match wire {
        Wire::Messages => (
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            json!({
                "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": words },
            }),
        ),
        Wire::Completions | Wire::Chunks => {
            (r#"{"choices":[]}"#, json!({ "choices": [{ "delta": { "content": words } }] }))
        }
        Wire::Responses | Wire::Subscription => (
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message"}}"#,
            json!({ "type": "response.output_text.delta", "output_index": 1, "delta": words }),
        ),
        Wire::Gateway => (
            r#"{"type":"text_start","contentIndex":1}"#,
            json!({ "type": "text_delta", "contentIndex": 1, "delta": words }),
        ),
        Wire::Contents => {
            let content = json!({ "parts": [{ "text": words }] });
            (r#"{"candidates":[]}"#, json!({ "candidates": [{ "content": content }] }))
        }
        Wire::Envelope => {
            let candidates = json!([{ "content": { "parts": [{ "text": words }] } }]);
            (r#"{"response":{"candidates":[]}}"#, json!({ "response": { "candidates": candidates } }))
        }
        Wire::Converse => panic!("not among these"),
    };
    let text = {
        let piece = format!("data: {delta}\n\n");
        let times = (100 << 20) / piece.len() as u64;
        Reply::sse(format!("{}data: {start}\n\n", begin())).then_repeat(piece, times)
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
        let world = world(wire, script);
        let began = Instant::now();
        let running = world.start(&["-p", "first"]);
        let memory = watch(&running);
        let ran = running.wait().fails(1, &[word, "quipu -p -c"]);
        let most = memory.join().unwrap();
        println!("{:?}, {most:?} MiB: {}", began.elapsed(), ran.message());
        assert!(most.is_none_or(|most| most < 120), "{most:?} MiB: {}", ran.err);
        assert_eq!(world.requests().len(), count);
        continues(wire, &world);
    }
}

/// Byte by byte: an answer like any other. That a slow one is no silence is tried where time can be short.
fn a_drip(wire: Wire) {
    let stream = Answer::on(wire).thinking("Hm.", "").text("Grüße 😀 drop by drop").stream();
    works(wire, Reply::sse("").then_drip(wire.bytes(&stream)), "Grüße 😀 drop by drop");
}

/// The first answer is the answer. What follows it is not read, but where the reason for the end may come in each event.
fn an_answer_said_twice(wire: Wire) {
    let stream = text_stream(wire);
    let text = "Hello, this is an answer.";
    let text = if has_parts(wire) { text.repeat(2) } else { text.to_owned() };
    let world = works(wire, Reply::stream_on(wire, &format!("{stream}{stream}")), &text);
    assert_eq!(answers(&world).len(), 2);
}

/// Each event twice. A wire that numbers its blocks can tell; the others cannot, since a model may say a word twice.
fn events_that_are_repeated(wire: Wire) {
    let twice = |stream: String| -> String {
        stream.split_inclusive("\n\n").flat_map(|frame| [frame, frame]).collect()
    };
    let said = Reply::sse(twice(Answer::on(wire).text("Ha").stream()));
    match wire {
        Wire::Messages | Wire::Gateway => check(wire, said, 1, &["started block 0 twice", "base URL"]),
        Wire::Completions | Wire::Contents | Wire::Chunks | Wire::Envelope => drop(works(wire, said, "HHaa")),
        Wire::Responses | Wire::Subscription => check(wire, said, 1, &["began item 0 twice", "base URL"]),
        Wire::Converse => panic!("not among these"),
    }
    // What ends an answer may be said again on all.
    let stream = Answer::on(wire).text("Once").stream();
    let begin = Answer::on(wire).text("Once").unfinished();
    let end = twice(stream[begin.len()..].to_owned());
    let world = works(wire, Reply::sse(begin + &end), "Once");
    assert_eq!(answers(&world)[0]["usage"]["totalTokens"], 15);
    if has_parts(wire) {
        // Calls come whole there: two are two.
        return;
    }
    // A call whose beginning comes again is one call; what it is to do is not guessed.
    let call = Answer::on(wire).tool_call("t1", "bash", r#"{"command":"touch made"}"#);
    let world = self::world(wire, [Reply::sse(twice(call.stream())), Answer::on(wire).text("Well.").reply()]);
    let ran = world.run(&["-p", "first"]);
    assert!(!world.path("work/made").exists());
    match wire {
        Wire::Messages | Wire::Gateway => drop(ran.fails(1, &["started block 0 twice"])),
        Wire::Responses | Wire::Subscription => drop(ran.fails(1, &["began item 0 twice"])),
        Wire::Completions | Wire::Chunks => {
            assert_eq!(ran.ok().text(), "Well.\n");
            let result = wire_text(messages(&world.requests()[1]).last().unwrap());
            assert!(result.contains("not valid JSON"), "{result}");
        }
        Wire::Contents | Wire::Converse | Wire::Envelope => {}
    }
    if !matches!(wire, Wire::Completions | Wire::Chunks) {
        // The answer that was meant for the tool's result.
        world.run(&["-p", "-c", "again"]).ok();
    }
    continues(wire, &world);
}

/// The name that it began with is kept beside ours.
fn a_model_that_changes_its_name(wire: Wire) {
    let mut name = 0;
    let frames = text_stream(wire);
    let mut frames: Vec<String> = frames.split_inclusive("\n\n").map(String::from).collect();
    if wire == Wire::Messages {
        frames.insert(2, frames[0].clone());
    }
    for frame in frames.iter_mut().filter(|frame| frame.contains("\"test-model\"")) {
        name += 1;
        *frame = frame.replace("test-model", &format!("model-{name}"));
    }
    assert!(name > 1);
    let world = works(wire, Reply::sse(frames.concat()), "Hello, this is an answer.");
    let answer = &answers(&world)[0];
    assert_eq!((&answer["model"], &answer["responseModel"]), (&json!(MODEL), &json!("model-1")));
}

/// The first reason counts.
fn two_reasons_for_the_end(wire: Wire) {
    // On one wire the whole last event says it.
    let limited = Answer::on(wire).text("Hello, this is an answer.").stop("max_output_tokens").stream();
    let ends = [text_stream(wire), limited]
        .map(|stream| stream.split_inclusive("\n\n").last().unwrap_or_default().to_owned());
    let (natural, limit) = match wire {
        Wire::Messages => ("\"stop_reason\":\"end_turn\"", "\"stop_reason\":\"max_tokens\""),
        Wire::Completions | Wire::Chunks => ("\"finish_reason\":\"stop\"", "\"finish_reason\":\"length\""),
        Wire::Responses | Wire::Subscription => (ends[0].as_str(), ends[1].as_str()),
        Wire::Gateway => ("\"reason\":\"stop\"", "\"reason\":\"length\""),
        Wire::Contents | Wire::Envelope => ("\"finishReason\":\"STOP\"", "\"finishReason\":\"MAX_TOKENS\""),
        Wire::Converse => panic!("not among these"),
    };
    for (first, second, reason) in [(natural, limit, "stop"), (limit, natural, "length")] {
        let mut stream = String::new();
        for frame in text_stream(wire).split_inclusive("\n\n") {
            if frame.contains(natural) {
                stream.push_str(&frame.replace(natural, first));
                stream.push_str(&frame.replace(natural, second));
            } else {
                stream.push_str(frame);
            }
        }
        let world = world(wire, [Reply::sse(stream)]);
        assert_eq!(world.run(&["-p", "first"]).text(), "Hello, this is an answer.\n");
        assert_eq!(answers(&world)[0]["stopReason"], reason);
        continues(wire, &world);
    }
}

/// Both run, and each has its own result under an id of its own.
fn one_id_for_two_calls(wire: Wire) {
    let command = |text: &str| json!({ "command": format!("echo {text}") }).to_string();
    let both = Answer::on(wire)
        .tool_call("same", "bash", &command("one"))
        .tool_call("same", "bash", &command("two"))
        .reply();
    let world = world(wire, [both, Answer::on(wire).text("Done.").reply()]);
    assert_eq!(world.run(&["-p", "first"]).ok().text(), "Done.\n");
    let request = &world.requests()[1];
    let results: Vec<(String, String)> = match wire {
        Wire::Messages => {
            let last = messages(request).last().unwrap().clone();
            let blocks = last["content"].as_array().unwrap().clone();
            blocks.iter().map(|block| (block["tool_use_id"].to_string(), wire_text(block))).collect()
        }
        Wire::Responses | Wire::Subscription => messages(request)
            .iter()
            .filter(|item| item["type"] == "function_call_output")
            .map(|item| (item["call_id"].to_string(), wire_text(item)))
            .collect(),
        Wire::Completions | Wire::Chunks => messages(request)
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| (message["tool_call_id"].to_string(), wire_text(message)))
            .collect(),
        Wire::Converse => {
            let last = messages(request).last().unwrap().clone();
            let blocks = last["content"].as_array().unwrap().iter().map(|block| block["toolResult"].clone());
            blocks.map(|result| (result["toolUseId"].to_string(), wire_text(&result))).collect()
        }
        Wire::Gateway => messages(request)
            .iter()
            .filter(|message| message["role"] == "toolResult")
            .map(|message| (message["toolCallId"].to_string(), wire_text(message)))
            .collect(),
        // The calls of older models have no ids; results are in the order of the calls.
        Wire::Contents | Wire::Envelope => {
            let last = messages(request).last().unwrap().clone();
            let parts = last["parts"].as_array().unwrap().iter().enumerate();
            parts.map(|(at, part)| (at.to_string(), wire_text(&json!({ "parts": [part] })))).collect()
        }
    };
    let [(first, one), (second, two)] = results.as_slice() else { panic!("{results:?}") };
    assert!(one.contains("one") && two.contains("two") && first != second, "{results:?}");
    continues(wire, &world);
}

/// Cut in the middle of escapes, of characters and of pairs of surrogates.
fn arguments_in_pieces(wire: Wire) {
    let arguments = r#"{"command":"printf '%s\n' 'caf\u00e9 \ud83d\ude00 \"q\" \\ /' é😀"}"#;
    let chars: Vec<String> = arguments.chars().map(String::from).collect();
    let whole = Answer::on(wire).text("Seen.").reply();
    let split = Answer::on(wire).tool_call_in("t1", "bash", chars.iter().map(String::as_str)).reply();
    let world = world(wire, [split, whole]);
    assert_eq!(world.run(&["-p", "first"]).ok().text(), "Seen.\n");
    let request = &world.requests()[1];
    let result = wire_text(messages(request).last().unwrap());
    assert!(result.contains("café 😀 \"q\" \\ /\né😀"), "{result}");
    continues(wire, &world);
}

/// Nothing runs, the model is told what it wrote, and the run goes on.
fn arguments_that_are_no_json(wire: Wire) {
    for arguments in ["{\"command\": \"touch made", "touch made", "[\"touch made\"]", "{\"command\":}"] {
        let bad = Answer::on(wire).tool_call("t1", "bash", arguments).reply();
        let world = world(wire, [bad, Answer::on(wire).text("Sorry.").reply()]);
        assert_eq!(world.run(&["-p", "first"]).ok().text(), "Sorry.\n");
        let result = wire_text(messages(&world.requests()[1]).last().unwrap());
        assert!(result.contains("bash") && result.contains(arguments), "{arguments}: {result}");
        assert!(!world.path("work/made").exists());
        continues(wire, &world);
    }
}

/// No count is less than it was seen.
fn counts_that_shrink(wire: Wire) {
    let stream = Answer::on(wire).text("Less").usage(50, 9, 20, 4).stream();
    let mut frames: Vec<&str> = stream.split_inclusive("\n\n").collect();
    let less = match wire {
        Wire::Messages => {
            r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":0,"cache_creation_input_tokens":0}}"#
        }
        Wire::Completions | Wire::Chunks => {
            r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}"#
        }
        Wire::Responses | Wire::Subscription => {
            r#"{"type":"response.in_progress","response":{"usage":{"input_tokens":1,"output_tokens":2}}}"#
        }
        // Counts come once, with the end.
        Wire::Gateway => r#"{"type":"start"}"#,
        Wire::Contents => {
            r#"{"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2,"cachedContentTokenCount":0}}"#
        }
        Wire::Envelope => {
            r#"{"response":{"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2,"cachedContentTokenCount":0}}}"#
        }
        Wire::Converse => panic!("not among these"),
    };
    let less = format!("data: {less}\n\n");
    frames.insert(frames.len() - usize::from(!has_parts(wire)), &less);
    let world = works(wire, Reply::sse(frames.concat()), "Less");
    let usage = &answers(&world)[0]["usage"];
    let counts: Vec<_> = ["input", "output", "cacheRead", "cacheWrite", "totalTokens"]
        .into_iter()
        .map(|name| usage[name].as_u64().unwrap())
        .collect();
    // The third one counts no writing to the cache.
    let expect = if has_parts(wire) { [54, 9, 20, 0, 83] } else { [50, 9, 20, 4, 83] };
    assert_eq!(counts, expect);
}
