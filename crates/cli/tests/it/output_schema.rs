//! `--output-schema`: JSON of a form on stdout, and nothing else.

use quipu_testkit::{Answer, Reply, Wire};
use serde_json::{Value, json};

use crate::support::*;

const SCHEMA: &str = r#"{"type":"object","properties":{"files":{"type":"array","items":{"type":"string"}},"done":{"type":"boolean"}},"required":["files","done"]}"#;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

#[test]
fn answer_is_the_only_thing_on_stdout() {
    let read = call("c1", "read", &json!({ "path": "a" }));
    let world = World::new([read, says("```json\n{\"files\": [\"a\"], \"done\": true}\n```")]);
    world.file("a", "text");
    world.file("schema.json", SCHEMA);
    let ran = world.run(&["-p", "--output-schema", "schema.json", "list"]).ok();
    assert_eq!(ran.text(), "{\"files\": [\"a\"], \"done\": true}\n");
    let prompt = wire_text(&messages(&world.requests()[0])[0]);
    assert!(
        prompt.contains("list") && prompt.contains("fits this JSON Schema") && prompt.contains(SCHEMA),
        "{prompt}"
    );
}

#[test]
fn wrong_answers_are_asked_for_again() {
    let world = World::new([
        says("Done!"),
        says("{\"files\": \"a\", \"done\": 1}"),
        says("{\"files\":[],\"done\":false}"),
    ]);
    world.file("schema.json", SCHEMA);
    let ran = world.run(&["-p", "--output-schema", "schema.json", "list"]).ok();
    assert_eq!(ran.text(), "{\"files\":[],\"done\":false}\n");
    assert_eq!(ran.err.matches("asking again").count(), 2, "{}", ran.err);
    let requests = world.requests();
    assert!(wire_text(messages(&requests[1]).last().unwrap()).contains("it is not JSON"));
    let told = wire_text(messages(&requests[2]).last().unwrap());
    assert!(told.contains("files: ") && told.contains("done: "), "{told}");
    world.check();

    let world = World::new((0..3).map(|_| says("No.")));
    world.file("schema.json", SCHEMA);
    let ran = world.run(&["-p", "--output-schema", "schema.json", "list"]);
    assert_eq!(ran.text(), "");
    ran.fails(9, &["the answer does not fit --output-schema", "it is not JSON"]);
    assert_eq!(world.requests().len(), 3);
}

#[test]
fn events_end_with_the_structured_output() {
    let world = World::new([says("{\"files\":[],\"done\":true}")]);
    world.file("schema.json", SCHEMA);
    let lines =
        world.run(&["-p", "--mode", "json", "--output-schema", "schema.json", "list"]).ok().json_lines();
    let last = lines.last().unwrap();
    let expect: Value = json!({ "type": "quipu_output", "output": { "files": [], "done": true } });
    assert_eq!(*last, expect);
}

/// A model on this wire, and the body of its first request.
fn first_body(api: &str, wire: Wire, compat: &Value) -> Value {
    let world = World::new([Answer::on(wire).text("{\"files\":[],\"done\":true}").reply()]);
    let model = json!({
        "id": MODEL, "api": api, "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text"], "compat": compat,
    });
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model],
        "headers": { "chatgpt-account-id": "account-of-test" } });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    if wire == Wire::Envelope {
        name_project(&world);
    }
    world.file("schema.json", SCHEMA);
    world.run(&["-p", "--output-schema", "schema.json", "list"]).ok();
    world.requests()[0].json()
}

#[test]
fn servers_that_know_schemas_are_sent_them() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let format = json!({ "name": "output", "schema": schema, "strict": false });
    let mut typed = format.clone();
    typed["type"] = "json_schema".into();
    let body = first_body("openai-responses", Wire::Responses, &json!({}));
    assert_eq!(body["text"], json!({ "format": typed }));
    let off = first_body("openai-responses", Wire::Responses, &json!({ "supportsOutputSchema": false }));
    assert!(off.get("text").is_none(), "{off}");
    let known = first_body("openai-completions", Wire::Completions, &json!({ "supportsOutputSchema": true }));
    assert_eq!(known["response_format"], json!({ "type": "json_schema", "json_schema": format }));
    let body = first_body("openai-completions", Wire::Completions, &json!({}));
    assert!(body.get("response_format").is_none(), "{body}");
}

#[test]
fn listed_models_of_other_servers_are_sent_schemas() {
    let known = json!({ "supportsOutputSchema": true });
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut closed = schema.clone();
    closed["additionalProperties"] = false.into();
    let body = first_body("anthropic-messages", Wire::Messages, &known);
    assert_eq!(body["output_config"], json!({ "format": { "type": "json_schema", "schema": closed } }));
    let body = first_body("anthropic-messages", Wire::Messages, &json!({}));
    assert!(body.get("output_config").is_none(), "{body}");

    let body = first_body("google-generative-ai", Wire::Contents, &known);
    let config = &body["generationConfig"];
    assert_eq!(
        (&config["responseMimeType"], &config["responseJsonSchema"]),
        (&json!("application/json"), &schema)
    );
    let body = first_body("google-generative-ai", Wire::Contents, &json!({}));
    assert!(body["generationConfig"].get("responseJsonSchema").is_none(), "{body}");
    let body = first_body("google-gemini-cli", Wire::Envelope, &known);
    assert_eq!(body["request"]["generationConfig"]["responseJsonSchema"], schema);

    let format = json!({ "type": "json_schema", "name": "output", "schema": schema, "strict": false });
    let body = first_body("openai-codex-responses", Wire::Subscription, &json!({}));
    assert_eq!(body["text"], json!({ "verbosity": "low", "format": format }));
}

#[test]
fn bad_schemas_end_the_run_before_a_model_is_called() {
    let world = World::new([]);
    world.file("list.json", "[]");
    world.file("broken.json", "{");
    world.file("wrong.json", "{\"type\":\"thing\"}");
    world.file("long.json", " ".repeat(2 << 20));
    for (file, words) in [
        ("none.json", "No such file"),
        (".", "not a regular file"),
        ("list.json", "not a JSON object"),
        ("broken.json", "not JSON"),
        ("wrong.json", "no JSON Schema"),
        ("long.json", "longer than 256 KiB"),
    ] {
        world.run(&["-p", "--output-schema", file, "x"]).fails(2, &["--output-schema", file, words]);
    }
    world.run(&["-p", "--stream", "--output-schema", "list.json", "x"]).exits(2);
    assert_eq!(world.requests().len(), 0);
}
