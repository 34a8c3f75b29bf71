//! Semantic search: off unless the settings say what makes vectors, and what is sent where.

use quipu_testkit::{Answer, FakeServer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// Two sessions of one turn each.
fn filled() -> World {
    let world = World::new([
        Answer::new().text("The gate is green.").reply(),
        Answer::new().text("It barks at night.").reply(),
    ]);
    world.run(&["-p", &format!("Which colour has the gate? The key is {KEY}.")]).ok();
    world.run(&["-p", "What does the dog do?"]).ok();
    world
}

fn settings(world: &World, semantic: &Value) {
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "search": { "semantic": semantic } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

/// Points the settings at `server`.
fn ask(world: &World, server: &FakeServer, model: &str) {
    settings(world, &json!({ "endpoint": server.url(), "model": model }));
}

/// Vectors, and the tokens that they took.
fn vectors(rows: &[[f64; 2]]) -> Reply {
    let data: Vec<Value> =
        rows.iter().enumerate().map(|(n, row)| json!({ "index": n, "embedding": row })).collect();
    let body = json!({ "data": data, "usage": { "prompt_tokens": 3, "total_tokens": 3 } });
    Reply::new(200, "application/json", body.to_string())
}

fn search(world: &World, args: &[&str]) -> (Vec<Value>, Value) {
    let args: Vec<&str> = ["search", "--json"].iter().chain(args).copied().collect();
    let mut lines = world.run(&args).ok().json_lines();
    let end = lines.pop().unwrap();
    (lines, end)
}

fn texts(lines: &[Value]) -> Vec<(&str, &str)> {
    lines.iter().map(|hit| (hit["text"].as_str().unwrap(), hit["by"].as_str().unwrap())).collect()
}

/// What a server was asked for, request by request.
fn asked(server: &FakeServer) -> Vec<Vec<String>> {
    let inputs = server.requests();
    inputs
        .iter()
        .map(|request| {
            let input = request.json()["input"].as_array().unwrap().clone();
            input.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        })
        .collect()
}

#[test]
fn nothing_is_sent_unless_it_is_set_up_and_asked_for() {
    let world = filled();
    world
        .run(&["search", "dog", "--semantic"])
        .fails(2, &["\"semantic\"", "\"path\"", "endpoint", "settings.json"]);
    let server = FakeServer::start([]);
    ask(&world, &server, "m");
    assert_eq!(search(&world, &["dog"]).0.len(), 1);
    assert_eq!(search(&world, &["gate", "--best", "--wait"]).0.len(), 2);
    world.run(&["search", "--semantic"]).fails(2, &["give words or a filter"]);
    world.run(&["search", "x", "--semantic", "--best"]).fails(2, &["--best"]);
    assert_eq!(server.requests().len(), 0);
    settings(&world, &json!({ "path": 7 }));
    world
        .run(&["search", "dog", "--semantic"])
        .fails(2, &["settings.json", "search.semantic.path must be text"]);
    settings(&world, &json!({ "path": "models/none" }));
    world.run(&["search", "dog", "--semantic"]).fails(2, &["models/none/config.json", "it does not exist"]);
    settings(&world, &json!({ "provider": "nobody", "model": "m" }));
    world.run(&["search", "dog", "--semantic"]).fails(2, &["\"nobody\"", "search.semantic.endpoint"]);
}

#[test]
fn both_rankings_are_mixed_and_vectors_are_made_once() {
    let world = filled();
    // The newest text comes first: the dog's.
    let made = vectors(&[[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]]);
    let server = FakeServer::start([made, vectors(&[[0.1, 1.0]]), vectors(&[[0.1, 1.0]])]);
    ask(&world, &server, "m");
    let (lines, end) = search(&world, &["--semantic", "gate"]);
    // The texts with the word are in both rankings, and so before those that are only near.
    let expect = [
        ("The gate is green.", "words"),
        ("Which colour has the gate? The key is [REDACTED", "words"),
        ("What does the dog do?", "semantic"),
        ("It barks at night.", "semantic"),
    ];
    assert_eq!(lines.len(), expect.len());
    for ((text, by), (begins, expected)) in texts(&lines).into_iter().zip(expect) {
        assert!(text.starts_with(begins) && by == expected, "{text} {by}");
    }
    let scores: Vec<f64> = lines.iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(end["semantic"], json!({ "vectors": 4, "left": 0, "tokens": 6, "cost": 0.0 }));
    let requests = asked(&server);
    assert_eq!(requests[0][..3], ["It barks at night.", "What does the dog do?", "The gate is green."]);
    assert_eq!(requests[1], ["gate"]);
    // Sealed, as all else that leaves.
    assert!(requests[0][3].contains("[REDACTED:") && !requests[0][3].contains(KEY), "{requests:?}");
    assert_eq!(server.requests()[0].header("authorization"), None);

    // Again: nothing but the words is sent, and the answer is the same.
    let (again, end) = search(&world, &["--semantic", "gate"]);
    assert_eq!(again, lines);
    assert_eq!((&end["semantic"]["vectors"], asked(&server).len()), (&json!(0), 3));

    // What was said since; a secret among the words.
    world.server.push(Answer::new().text("A cat.").reply());
    world.run(&["-p", "And who meows?"]).ok();
    server.push(vectors(&[[0.5, 0.5], [0.5, 0.4]]));
    server.push(vectors(&[[0.5, 0.5]]));
    let ran = world.run(&["search", "--semantic", "meows", KEY]).ok();
    assert!(ran.err.contains("Built 2 vectors.") && ran.err.contains("took 6 tokens"), "{}", ran.err);
    let requests = asked(&server);
    assert_eq!(requests[3], ["And who meows?", "A cat."]);
    assert!(requests[4][0].starts_with("meows [REDACTED:"), "{requests:?}");

    // Another model makes all anew, and so does a rebuild; without words nothing is searched.
    for again in ["n", "n"] {
        server.push(vectors(&[[1.0, 1.0]; 6]));
        ask(&world, &server, again);
        let (lines, end) = search(&world, &["--semantic", "--wait"]);
        assert_eq!((lines.len(), &end["semantic"]["vectors"]), (0, &json!(6)));
        world.run(&["doctor", "--rebuild", "search"]).ok();
    }
    assert_eq!(asked(&server).len(), 7);
}

#[test]
fn a_server_that_fails_is_told_and_the_words_are_still_there() {
    let world = filled();
    let server = FakeServer::start([
        Reply::error(500, "api_error", "out of memory"),
        vectors(&[[1.0, 0.0]; 4]),
        Reply::error(401, "authentication_error", "no key"),
    ]);
    let settings = json!({
        "retry": { "enabled": false }, "search": { "semantic": { "endpoint": server.url(), "model": "m" } }
    });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["search", "--semantic", "dog"]).fails(1, &["semantic search failed", "500", "out of memory"]);
    // What was made before stays.
    world.run(&["search", "--semantic", "dog"]).fails(3, &["no key"]);
    assert_eq!(search(&world, &["dog"]).0.len(), 1);
    server.push(vectors(&[[1.0, 0.0]]));
    assert_eq!(search(&world, &["--semantic", "dog"]).0.len(), 4);
}

#[test]
fn a_model_on_disk_needs_no_server() {
    let world = filled();
    let directory = world.path("home/.quipu/models/tiny");
    std::fs::create_dir_all(&directory).unwrap();
    let pieces = ["[UNK]", "gate", "door", "dog", "cat", "bark", "##s", "meow"];
    let vocab: serde_json::Map<String, Value> =
        pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), json!(id))).collect();
    let tokenizer = json!({
        "normalizer": { "type": "BertNormalizer" }, "pre_tokenizer": { "type": "BertPreTokenizer" },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab },
    });
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(directory.join("config.json"), r#"{"normalize":true}"#).unwrap();
    let rows: [[f32; 2]; 8] =
        [[0.0, 0.0], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.0, 0.8], [0.0, 0.1], [0.1, 0.8]];
    let header = r#"{"embeddings":{"dtype":"F32","shape":[8,2],"data_offsets":[0,64]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(rows.iter().flatten().flat_map(|number| number.to_le_bytes()));
    std::fs::write(directory.join("model.safetensors"), &file).unwrap();
    settings(&world, &json!({ "path": "models/tiny" }));
    // No text has the word; the nearest are those of dogs.
    let (lines, end) = search(&world, &["--semantic", "meows"]);
    assert_eq!(
        texts(&lines)[..2],
        [("It barks at night.", "semantic"), ("What does the dog do?", "semantic")]
    );
    assert_eq!(end["semantic"]["tokens"], 0);
    let door = search(&world, &["--semantic", "door", "--limit", "1"]).0;
    assert!(door[0]["text"].as_str().unwrap().contains("gate"), "{door:?}");
    std::fs::write(directory.join("model.safetensors"), &file[..file.len() - 1]).unwrap();
    world
        .run(&["search", "--semantic", "door"])
        .fails(2, &["model.safetensors cannot be used", "does not fit"]);
}
