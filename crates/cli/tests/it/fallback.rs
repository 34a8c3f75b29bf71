//! Several keys and fallback models, as the command has them.

use serde_json::{Value, json};

use crate::support::*;
use quipu_testkit::{Answer, Reply};

fn settings(world: &World, text: &Value) {
    std::fs::write(world.path("home/.quipu/settings.json"), text.to_string()).unwrap();
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

fn overloaded() -> Reply {
    Reply::error(529, "overloaded_error", "Overloaded")
}

fn asked(world: &World) -> Vec<String> {
    world.requests().iter().map(|it| it.json()["model"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn fallback_models_continue_a_run_and_the_next_returns() {
    let world = World::new([overloaded(), says("From the other."), says("Back again."), overloaded()]);
    let mut set = json!({ "fallbackModels": ["testing/thinker"], "retry": { "enabled": false } });
    settings(&world, &set);
    let ran = world.run(&["-p", "first"]).ok();
    assert!(ran.text().contains("From the other."), "{}", ran.text());
    assert!(ran.err.contains("continues with testing/thinker"), "{}", ran.err);
    // A session that is opened again begins with its own model.
    world.run(&["-p", "-c", "second"]).ok();
    assert_eq!(asked(&world), ["test-1", "thinker", "test-1"]);
    // Who names a model gets no other, unless the settings say so.
    world.run(&["-p", "--model", "test-1", "third"]).fails(1, &["529", "Overloaded"]);
    set["fallbackForNamedModel"] = json!(true);
    settings(&world, &set);
    for reply in [overloaded(), says("Named.")] {
        world.server.push(reply);
    }
    world.run(&["-p", "--model", "test-1", "fourth"]).ok();
    assert_eq!(asked(&world)[3..], ["test-1", "test-1", "thinker"]);
}

#[test]
fn error_names_all_models_that_failed() {
    let world = World::new([overloaded(), overloaded()]);
    let set = json!({ "fallbackModels": ["nobody/none", "testing/thinker"], "retry": { "enabled": false } });
    settings(&world, &set);
    let ran =
        world.run(&["-p", "first"]).fails(1, &["All models failed (2)", "testing/test-1", "testing/thinker"]);
    assert!(ran.err.contains("nobody/none cannot be used"), "{}", ran.err);
}

#[test]
fn keys_of_one_provider_are_stored_used_and_listed() {
    let refused = Reply::error(401, "authentication_error", "invalid x-api-key");
    let world = World::new([refused, says("With another key."), says("Again.")]);
    let set = |args: &[&str], key: &str| world.run_with(args, key);
    set(&["auth", "set", "testing", "--name", "work"], "work-key-1").ok();
    set(&["auth", "set", "testing", "--name", "no spaces"], "x-key-1").fails(2, &["invalid name"]);
    world.run(&["-p", "first"]).ok();
    let keys: Vec<_> =
        world.requests().iter().map(|it| it.header("x-api-key").unwrap_or_default().to_owned()).collect();
    assert_eq!((keys.len(), keys[0].as_str()), (2, "work-key-1"));
    assert_ne!(keys[1], "work-key-1");
    let listed = world.run(&["auth"]).ok();
    for words in ["models.json  ready", "testing:work  rests for", "after a refusal"] {
        assert!(listed.text().contains(words), "{}", listed.text());
    }
    let lines = world.run(&["auth", "--json"]).ok().json_lines();
    let testing = lines.iter().find(|line| line["provider"] == "testing").unwrap();
    assert_eq!(testing["keys"][1]["key"], "testing:work");
    assert_eq!(testing["keys"][1]["rest"]["after"], "a refusal");
    assert_eq!(mode(&world.path("home/.quipu/auth-state.json")) & 0o777, 0o600);
    world.run(&["auth", "remove", "testing:work"]).ok();
    let lines = world.run(&["auth", "--json"]).ok().json_lines();
    let testing = lines.iter().find(|line| line["provider"] == "testing").unwrap();
    assert!(testing.get("keys").is_none(), "{testing}");
}

#[test]
fn session_keeps_to_its_key_when_it_is_opened_again() {
    let world = World::new((0..6).map(|number| says(&format!("Answer {number}."))));
    for name in ["a", "b"] {
        world.run_with(&["auth", "set", "testing", "--name", name], format!("key-of-{name}")).ok();
    }
    let used = || world.requests().last().unwrap().header("x-api-key").unwrap_or_default().to_owned();
    world.run(&["-p", "first"]).ok();
    assert_eq!(used(), "key-of-a");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    for key in ["key-of-b", "key-of-a"] {
        world.run(&["-p", "another session"]).ok();
        assert_eq!(used(), key, "the one that was not used for the longest time");
    }
    // The other one is due, and the cache of this session is with its own.
    world.run(&["-p", "--session", &session, "second"]).ok();
    assert_eq!(used(), "key-of-a");
    settings(&world, &json!({ "keyOrder": ["testing:b"] }));
    world.run(&["-p", "--session", &session, "third"]).ok();
    assert_eq!(used(), "key-of-b");
    settings(&world, &json!({}));
    world.run(&["-p", "--session", &session, "fourth"]).ok();
    assert_eq!(used(), "key-of-b", "it keeps to the last one");
}
