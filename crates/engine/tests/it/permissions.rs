//! The built-in policy in a session: what a person approved is what runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use quipu::protocol::{Answer, Command, Event, Outcome};
use quipu::{Delivery, PermissionMode, PermissionRules, Permissions, SandboxSupport, SessionOptions};
use serde_json::json;

use crate::support::{World, call, say};

fn options(world: &World, support: SandboxSupport) -> SessionOptions {
    let rules = PermissionRules {
        mode: PermissionMode::Workspace,
        cwd: world.cwd(),
        own: world.cwd().join("../own"),
        support: Some(support),
        ..PermissionRules::default()
    };
    SessionOptions { policy: Arc::new(Permissions::new(rules, [])), ..world.options() }
}

fn world(paths: &[&str]) -> World {
    let calls: Vec<_> =
        paths.iter().map(|path| ("write", json!({ "path": path, "content": "new" }))).collect();
    let mut world = World::with([call(&calls), say("ok")]);
    world.tools = quipu::builtin();
    world
}

#[tokio::test]
async fn what_was_approved_is_what_runs() {
    let world = world(&["stays", "changes", "inside"]);
    let outside = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(outside.path().join(name), "old").unwrap();
    }
    symlink(outside.path().join("a"), world.cwd().join("stays")).unwrap();
    symlink(outside.path().join("b"), world.cwd().join("changes")).unwrap();
    let live = world.create_with(options(&world, SandboxSupport::Missing)).await;
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let (session, cwd, other) = (live.session.clone(), world.cwd(), outside.path().join("c"));
    let person = tokio::spawn(async move {
        let mut subjects = Vec::new();
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::Asked(ask) => {
                    subjects.push(ask.subject.to_string());
                    // While the person thinks, the name comes to mean another file.
                    if ask.subject.ends_with("/b") {
                        fs::remove_file(cwd.join("changes")).unwrap();
                        symlink(&other, cwd.join("changes")).unwrap();
                    }
                    let answer = Command::Answer { ask: ask.id.clone(), answer: Answer::Allow };
                    session.send(answer).await.unwrap();
                }
                Event::Settled => break,
                _ => {}
            }
        }
        subjects
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    let real = outside.path().canonicalize().unwrap();
    let asked = ["a", "b"].map(|name| real.join(name).display().to_string());
    assert_eq!(person.await.unwrap(), asked, "the true path is asked, not the name");
    let results = live.results();
    assert!(!results[0].2 && results[1].2 && !results[2].2, "{results:?}");
    assert!(results[1].1.contains("was not allowed"), "{}", results[1].1);
    let content = |name: &str| fs::read_to_string(outside.path().join(name)).unwrap();
    assert_eq!((content("a"), content("b"), content("c")), ("new".into(), "old".into(), "old".into()));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn without_anyone_to_ask_it_is_refused_and_the_model_is_told_what_to_set() {
    let mut world = World::with([call(&[("bash", json!({ "command": "touch ran" }))]), say("ok")]);
    world.tools = quipu::builtin();
    let live = world.create_with(options(&world, SandboxSupport::Missing)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let cwd = world.cwd();
    assert_eq!(
        live.results()[0].1,
        format!(
            "This call needs a person's permission and nobody is here to give it, so it was not run (run this in \
             {}: it would not be confined, because this system has no Landlock (Linux 5.13 and later, unless it is \
             turned off); `--permissions full` runs commands unconfined and unasked).",
            cwd.display()
        )
    );
    assert!(!cwd.join("ran").exists());
    live.finish().await;
    world.check().await;
}
