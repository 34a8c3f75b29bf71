//! A text of the user's own before the system prompt.

use quipu::store::{OpenOptions, SqliteStore};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

/// A world with so many answers, whose settings name this file.
fn world(file: &str, answers: usize) -> World {
    let world = World::new((0..answers).map(|at| Answer::new().text(&format!("answer {at}")).reply()));
    set(&world, file);
    world
}

fn set(world: &World, file: &str) {
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "identity": { "file": file } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

fn write(world: &World, text: &str) {
    std::fs::write(world.path("home/.quipu/me.md"), text).unwrap();
}

/// The system prompt of the last request.
fn system(world: &World) -> String {
    let body = world.requests().last().unwrap().json();
    match &body["system"] {
        Value::String(text) => text.clone(),
        blocks => blocks.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect(),
    }
}

/// The blob of the identity text that the session's epoch names.
async fn recorded(world: &World) -> Option<String> {
    let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
    let query = quipu::store::SessionQuery { limit: Some(1), ..Default::default() };
    let row = quipu::store::ReadModel::sessions(&store, query).await.unwrap().remove(0);
    let epoch = quipu::last_epoch(&store, &row).await.unwrap().unwrap();
    quipu::identity_text(&store, &epoch).await.unwrap()
}

#[tokio::test]
async fn session_keeps_its_identity_text_unless_replaced() {
    let world = world("me.md", 9);
    write(&world, "\u{feff}I am Ada.\nI am brief.\n\n");
    world.run(&["-p", "one"]).ok();
    let began = system(&world);
    assert!(began.starts_with("I am Ada.\nI am brief.\n\n"), "{began}");
    assert!(began.len() > 100, "the system prompt stands behind it: {began}");
    assert_eq!(recorded(&world).await.as_deref(), Some("I am Ada.\nI am brief."));
    assert!(!world.run(&["-p", "-c", "two"]).ok().err.contains("me.md"));
    assert_eq!(system(&world), began);

    // Without a person the old text goes on, and that is said.
    write(&world, "I am Eve.\nI am brief.\n");
    let ran = world.run(&["-p", "-c", "three"]).ok();
    for part in ["me.md has changed since", "-1 I am Ada.", "+1 I am Eve.", "keeps the text it started with"]
    {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(system(&world), began);
    // With one, what the person says.
    let (code, seen) = on_terminal(&world, &["-p", "-c", "four"], "n\n", 100);
    assert!(code == Some(0) && seen.contains("Use the new text? [y/N]"), "{seen}");
    assert_eq!(system(&world), began);
    // That holds for this text, and is not asked again; another one is.
    let (code, seen) = on_terminal(&world, &["-p", "-c", "five"], "", 100);
    assert!(code == Some(0) && !seen.contains("me.md"), "{seen}");
    assert!(!world.run(&["-p", "-c", "more"]).ok().err.contains("me.md"));
    assert_eq!(system(&world), began);
    write(&world, "I am Eve.\nI am bold.\n");
    let (code, seen) = on_terminal(&world, &["-p", "-c", "and more"], "y\n", 100);
    assert!(code == Some(0) && seen.contains("Use the new text? [y/N]"), "{seen}");
    let now = began.replace("Ada", "Eve").replace("I am brief", "I am bold");
    assert_eq!(system(&world), now);
    assert_eq!(recorded(&world).await.as_deref(), Some("I am Eve.\nI am bold."));

    // That is what it goes on with now; also where the file is gone, or no longer named.
    std::fs::remove_file(world.path("home/.quipu/me.md")).unwrap();
    let ran = world.run(&["-p", "-c", "six"]).ok();
    assert!(
        ran.err.contains("could not read the identity file") && ran.err.contains("keeps the text"),
        "{}",
        ran.err
    );
    assert_eq!(system(&world), now);
    std::fs::remove_file(world.path("home/.quipu/settings.json")).unwrap();
    world.run(&["-p", "-c", "seven"]).ok();
    assert_eq!(system(&world), now);

    let told = world.run(&["context", "--json"]).ok().json();
    let part =
        |name: &str| told["parts"].as_array().unwrap().iter().find(|part| part["part"] == name).cloned();
    assert_eq!(part("identity").unwrap()["count"], 1);
    assert!(world.run(&["context"]).ok().text().contains("identity text"));
}

#[tokio::test]
async fn session_without_identity_text_stays_without_one() {
    let world = world("me.md", 3);
    std::fs::remove_file(world.path("home/.quipu/settings.json")).unwrap();
    world.run(&["-p", "one"]).ok();
    let without = system(&world);
    set(&world, "me.md");
    write(&world, &format!("My key is {KEY}.\n"));
    let ran = world.run(&["-p", "-c", "two"]).ok();
    assert!(!ran.err.contains("me.md"), "{}", ran.err);
    assert_eq!((system(&world), recorded(&world).await), (without, None));
    world.run(&["-p", "three"]).ok();
    assert!(system(&world).starts_with("My key is [REDACTED:credential:"), "{}", system(&world));
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_reason() {
    let world = world("~/me.md", 1);
    let path = world.path("home/me.md");
    let check = |words: &[&str]| {
        let words: Vec<&str> =
            words.iter().chain(&["me.md", "remove `identity.file` from"]).copied().collect();
        world.run(&["-p", "x"]).fails(2, &words);
    };
    check(&["could not read the identity file"]);
    std::fs::write(&path, "").unwrap();
    check(&["is empty"]);
    std::fs::write(&path, b"\xff\xfe").unwrap();
    check(&["is not UTF-8"]);
    std::fs::write(&path, "x".repeat((64 << 10) + 1)).unwrap();
    check(&["larger than 65536 bytes"]);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    check(&["is not a regular file"]);
    std::fs::remove_dir(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    check(&["is not a regular file"]);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "I am Ada.").unwrap();
    world.run(&["-p", "x"]).ok();
    assert!(system(&world).starts_with("I am Ada.\n\n"));
}
