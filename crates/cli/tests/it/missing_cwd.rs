//! Sessions that come from what is not there any more: a directory, a model, a provider.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn answers(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

/// A session of a directory that was removed then.
pub(crate) fn in_a_directory_that_is_gone(world: &World) -> String {
    let gone = world.path("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut command = world.quipu(&["-p", "a"]);
    command.current_dir(&gone);
    RunningCommand::start(command).wait().ok();
    std::fs::remove_dir(&gone).unwrap();
    world.sessions()[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_of_a_missing_directory_says_so_and_offers_this_one() {
    let world = World::new(answers(&["One.", "Two.", "Three."]));
    let session = in_a_directory_that_is_gone(&world);
    let list = world.run(&["sessions", "--all"]).ok().text();
    assert!(list.contains("/gone  (no longer exists)\n"), "{list}");
    assert_eq!(world.sessions()[0]["cwdGone"], true);
    // Without a terminal: what to type.
    let typed = format!("quipu -p --session {session} --cwd . \"…\"");
    world.run(&["-p", "--session", &session, "b"]).fails(2, &["no longer exists", &typed]);
    let ran = world.run(&["-p", "--mode", "json", "--session", &session, "b"]).fails(2, &[&typed]);
    assert_eq!(ran.text(), "");
    // On one it is asked.
    let (code, text) = on_terminal(&world, &["-p", "--session", &session, "b"], "\n", 100);
    assert!(code == Some(2) && text.contains("in a copy of the session? [y/N]"), "{text}");
    assert_eq!(world.requests().len(), 1);
    // A clone works where the session did, and the way on is told.
    let cloned = world.run(&["clone", &session]).ok();
    assert!(cloned.err.contains(&format!("--session {} --cwd . ", cloned.text().trim())), "{}", cloned.err);
    world.run(&["rm", "--yes", cloned.text().trim()]).ok();
    let (code, text) = on_terminal(&world, &["-p", "--session", &session, "b"], "y\n", 100);
    assert!(code == Some(0) && text.contains("Two.") && text.contains("continues in"), "{text}");
    assert_eq!(said(&world), ["a", "One.", "b"]);
    let rows = world.sessions();
    assert_eq!((&rows[0]["parentSession"], &rows[0]["cwdGone"]), (&json!(session), &json!(false)));
    world.run(&["-p", "-c", "c"]).ok();
    assert_eq!(said(&world), ["a", "One.", "b", "Two.", "c"]);
}

#[test]
fn new_directory_hints_at_a_session_that_lost_its_own() {
    let world = World::new(answers(&["One.", "Two.", "Three."]));
    let session = in_a_directory_that_is_gone(&world);
    // As when the directory was moved.
    let ran = world.run(&["-p", "-c", "b"]).ok();
    assert!(ran.err.contains("No session in this directory yet"), "{}", ran.err);
    assert!(ran.err.contains(&format!("quipu -p --session {session} --cwd .")), "{}", ran.err);
    assert_eq!(said(&world), ["b"]);
    let ran = world.run(&["-p", "-c", "c"]).ok();
    assert!(!ran.err.contains("--cwd"), "{}", ran.err);
}

/// `models.json` with these models of the tests' server.
fn models(world: &World, provider: &str, ids: &[&str]) {
    let path = world.path("home/.quipu/models.json");
    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut testing = file["providers"].as_object().unwrap().values().next().unwrap().clone();
    let model = |id: &&str| json!({ "id": id, "api": "anthropic-messages" });
    testing["models"] = ids.iter().map(model).collect();
    std::fs::write(path, json!({ "providers": { provider: testing } }).to_string()).unwrap();
}

#[test]
fn a_session_keeps_its_model_or_says_why_not() {
    let world = World::new(answers(&["One.", "Two.", "Three.", "Four."]));
    world.run(&["-p", "a"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    // One whose name holds its name is another.
    models(&world, "testing", &["test-1-mini", "test-10"]);
    let ran = world.run(&["-p", "-c", "b"]).ok();
    assert!(
        ran.err.contains("testing/test-1, is not a known model") && ran.err.contains("--model"),
        "{}",
        ran.err
    );
    assert_eq!(world.requests().last().unwrap().json()["model"], MODEL);
    world.run(&["-p", "-c", "--model", "test-10", "c"]).ok();
    assert_eq!(world.requests().last().unwrap().json()["model"], "test-10");
    // A provider that is gone is not replaced by one that happens to be there.
    models(&world, "another", &["big"]);
    for args in [&["-p", "-c", "d"][..], &["-p", "--session", &session, "d"]] {
        let words = ["last used testing/test-10", "no provider", "`--model another/big`"];
        world.run(args).fails(2, &words);
    }
    assert_eq!(world.requests().len(), 3);
    assert!(world.run(&["context"]).ok().err.contains("testing/test-10"));
    world.run(&["-p", "-c", "--model", "another/big", "d"]).ok();
    assert_eq!(said(&world).last().unwrap(), "d");
    // The last question knows one provider.
    world.unchecked();
}
