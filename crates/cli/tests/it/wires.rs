//! Tasks on the second wire, sessions that change wires, and servers on this machine that nobody has set up.

use quipu_testkit::{Answer, FakeServer, Reply, Wire};
use serde_json::{Value, json};

use crate::support::*;

/// A model on each wire, behind the same server.
fn two_wires(world: &World) {
    let model = |id: &str, api: &str| {
        json!({
            "id": id, "api": api, "reasoning": true, "input": ["text", "image"],
            "contextWindow": 200_000, "maxTokens": 8_000,
        })
    };
    let models = [model("chat-1", "openai-completions"), model("blocks-1", "anthropic-messages")];
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": models });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
}

fn chat() -> Answer {
    Answer::on(Wire::Completions)
}

#[test]
fn a_session_changes_its_wire_and_back() {
    let image =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";
    let read = |path: &str| json!({ "path": path }).to_string();
    let world = World::new([
        // Ids that are used again in the next answer, and twice in one.
        chat().thinking("Thought one.", "").tool_call("call_0", "read", &read("a.txt")).reply(),
        chat()
            .text("And now both.")
            .tool_call("call_0", "read", &read("dot.png"))
            .tool_call("call_0", "bash", r#"{"command":"echo from bash"}"#)
            .reply(),
        chat().text("Done here.").usage(10, 5, 30, 0).reply(),
    ]);
    two_wires(&world);
    world.file("a.txt", "the text of a");
    world.file("dot.png", base64(image));
    let ran = world.run(&["-p", "--model", "chat-1", "first"]).ok();
    assert!(ran.text().ends_with("Done here.\n"), "{}", ran.text());
    let requests = world.requests();
    assert!(requests.iter().all(|request| request.path == "/v1/chat/completions"));
    let bearer = format!("Bearer {KEY}");
    assert_eq!(requests[0].header("authorization"), Some(bearer.as_str()));
    let last = messages(&requests[2]);
    let roles: Vec<&str> = last.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool", "tool", "user"]);
    assert_eq!(last[2]["reasoning_content"], "Thought one.");
    assert_eq!(last[3]["content"], "the text of a");
    assert_eq!(last[4]["content"], "And now both.");
    assert!(wire_text(&last[6]).contains("from bash"), "{}", last[6]);
    assert!(last[7].to_string().contains("data:image/png;base64,"), "{}", last[7]);
    // Each body goes on where the one before it ended.
    for pair in requests.windows(2) {
        let shared = pair[0].body.iter().zip(&pair[1].body).take_while(|(a, b)| a == b).count();
        assert!(shared + 40 > pair[0].body.len(), "{shared} of {}", pair[0].body.len());
    }

    // The same session on the other wire ...
    world.server.push(
        Answer::new()
            .thinking("Thought two.", "proof")
            .tool_call("toolu_1", "bash", r#"{"command":"true"}"#)
            .reply(),
    );
    world.server.push(Answer::new().text("Still here.").reply());
    assert_eq!(world.run(&["-p", "-c", "--model", "blocks-1", "second"]).ok().text(), "Still here.\n");
    let requests = world.requests();
    assert_eq!((requests.len(), requests[3].path.as_str()), (5, "/v1/messages"));
    let said = requests[3].json()["messages"].to_string();
    assert!(!said.contains("Thought one.") && said.contains("And now both."), "{said}");
    let ids: Vec<&str> =
        said.split("\"tool_use_id\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");

    // ... and back: its own thinking is there again, the other model's is not.
    world.server.push(chat().text("Home.").reply());
    assert_eq!(world.run(&["-p", "-c", "--model", "chat-1", "third"]).ok().text(), "Home.\n");
    let said = world.requests()[5].json()["messages"].to_string();
    for part in ["Thought one.", "Still here.", "toolu_1", "third"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("Thought two."), "{said}");
    assert_eq!(world.sessions().len(), 1);
}

/// The bytes of a text in base64.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(digit).collect();
    let bits = digits.iter().flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
}

#[test]
fn completions_failure_is_reported_in_one_message() {
    let check = |reply: Reply, code: i32, words: &[&str]| {
        let world = World::new([reply, chat().text("Here I am.").reply()]);
        two_wires(&world);
        world.run(&["-p", "--model", "chat-1", "first"]).fails(code, words);
        assert_eq!(world.run(&["-p", "-c", "second"]).ok().text(), "Here I am.\n");
    };
    let error = |status: u16, kind: &str, message: &str| {
        let body = json!({ "error": { "message": message, "type": kind, "code": null } });
        Reply::new(status, "application/json", body.to_string())
    };
    check(
        error(401, "invalid_request_error", "Incorrect API key provided"),
        3,
        &["Incorrect API key", "credential"],
    );
    check(error(429, "insufficient_quota", "You exceeded your current quota"), 1, &["quota", "balance"]);
    let long =
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    check(error(400, "invalid_request_error", long), 1, &["maximum context length", "Shorten"]);
    check(error(404, "invalid_request_error", "The model does not exist"), 2, &["does not exist", "model"]);
}

#[test]
fn a_server_on_this_machine_is_offered_and_used() {
    let list = json!({ "object": "list", "data": [{ "id": "small:1b" }] }).to_string();
    let list = || Reply::new(200, "application/json", list.clone());
    let world = World::new([]);
    std::fs::remove_file(world.path("home/.quipu/models.json")).unwrap();
    let server = FakeServer::start([
        list(),
        list(),
        list(),
        chat().text("I am small.").reply(),
        list(),
        chat().text("Still small.").reply(),
    ]);
    let settings = json!({ "localServers": { "ollama": format!("{}/v1", server.url()), "llama.cpp": null, "lmstudio": null,
        "vllm": null, "sglang": null, "jan": null, "koboldcpp": null, "docker": null } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let address = server.url().replace("http://", "");
    world
        .run(&["-p", "hello"])
        .fails(3, &["Ollama", &address, "the model ollama/small:1b", "quipu auth set"]);
    let shown = world.run(&["models"]).ok().text();
    assert!(shown.starts_with("ollama/small:1b  "), "{shown}");
    assert_eq!(world.run(&["-p", "--model", "ollama/small:1b", "hello"]).ok().text(), "I am small.\n");
    assert_eq!(world.run(&["-p", "-c", "and now"]).ok().text(), "Still small.\n");
    let requests = server.requests();
    assert_eq!(requests.len(), 6);
    assert_eq!(
        (requests[3].path.as_str(), requests[3].header("authorization")),
        ("/v1/chat/completions", None)
    );
    let body: Value = requests[5].json();
    assert_eq!(body["model"], "small:1b");
}
