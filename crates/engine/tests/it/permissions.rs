//! The built-in policy in a session: what a person approved is what runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use quipu::protocol::{Answer, Command, Event, Outcome, Scope};
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

#[tokio::test]
async fn missing_namespaces_are_told_once() {
    if !SandboxSupport::of_this_system().is_full() {
        return;
    }
    let echo = |text: &str| call(&[("bash", json!({ "command": format!("echo {text}") }))]);
    let mut world = World::with([echo("one"), echo("two"), say("ok")]);
    world.tools = quipu::builtin_isolated();
    let rules = PermissionRules {
        cwd: world.cwd(),
        own: world.cwd().join("../own"),
        namespaces: Some(quipu::Namespaces {
            launcher: quipu::Launcher { program: "/nowhere/launcher".into(), arguments: Vec::new() },
            home: None,
            hidden: Vec::new(),
            visible: Vec::new(),
            doors: quipu::Doors::default(),
        }),
        ..PermissionRules::default()
    };
    let policy = Arc::new(Permissions::new(rules, []));
    let live = world.create_with(SessionOptions { policy, ..world.options() }).await;
    let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    let told = tokio::spawn(async move {
        let mut told = Vec::new();
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::Ui {
                    ui: quipu::protocol::Ui::Notice { notice: quipu::protocol::Notice::Note { text } },
                } => told.push(text.clone()),
                Event::Settled => break,
                _ => {}
            }
        }
        told
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    let told = told.await.unwrap();
    let told: Vec<_> = told.iter().filter(|text| text.contains("do not run in namespaces")).collect();
    assert!(matches!(told[..], [text] if text.contains("/nowhere/launcher")), "{told:?}");
    live.finish().await;
    world.check().await;
}

fn world(paths: &[&str]) -> World {
    let calls: Vec<_> =
        paths.iter().map(|path| ("write", json!({ "path": path, "content": "new" }))).collect();
    let mut world = World::with([call(&calls), say("ok")]);
    world.tools = quipu::builtin();
    world
}

#[tokio::test]
async fn approved_call_is_what_runs() {
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
                Event::AskOpened { ask } => {
                    subjects.push(ask.permission().unwrap().subject.to_string());
                    // While the person thinks, the name comes to mean another file.
                    if ask.permission().unwrap().subject.ends_with("/b") {
                        fs::remove_file(cwd.join("changes")).unwrap();
                        symlink(&other, cwd.join("changes")).unwrap();
                    }
                    // What it means by then is asked in its turn.
                    let answer = if ask.permission().unwrap().subject.ends_with("/c") {
                        assert!(
                            ask.permission().unwrap().question.contains("asked again"),
                            "{}",
                            ask.permission().unwrap().question
                        );
                        Answer::Deny { reason: None }
                    } else {
                        Answer::once()
                    };
                    session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
                }
                Event::Settled => break,
                _ => {}
            }
        }
        subjects
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    let real = outside.path().canonicalize().unwrap();
    let asked = ["a", "b", "c"].map(|name| real.join(name).display().to_string());
    assert_eq!(person.await.unwrap(), asked, "the true path is asked, not the name");
    let results = live.results();
    assert!(!results[0].2 && results[1].2 && !results[2].2, "{results:?}");
    assert!(results[1].1.contains("did not allow"), "{}", results[1].1);
    let content = |name: &str| fs::read_to_string(outside.path().join(name)).unwrap();
    assert_eq!((content("a"), content("b"), content("c")), ("new".into(), "old".into(), "old".into()));
    live.finish().await;
    world.check().await;
}

/// What happens to a file while it is asked whether it may be changed.
struct Swap {
    mode: PermissionMode,
    /// As the model names it; the directory of the session is `work`, beside it is `out`.
    path: &'static str,
    swap: fn(&Path),
    /// Whether the first answer is for good.
    always: bool,
    /// What is in the question that follows.
    again: &'static str,
    /// The file that would be changed by a tool that went by the first answer.
    victim: &'static str,
}

const SWAPS: [Swap; 7] = [
    Swap {
        mode: PermissionMode::Ask,
        path: "file",
        swap: |root| {
            fs::remove_file(root.join("work/file")).unwrap();
            fs::hard_link(root.join("out/victim"), root.join("work/file")).unwrap();
        },
        always: false,
        again: "hard links",
        victim: "out/victim",
    },
    Swap {
        mode: PermissionMode::Workspace,
        path: "../out/file",
        swap: |root| {
            fs::remove_file(root.join("out/file")).unwrap();
            fs::hard_link(root.join("out/victim"), root.join("out/file")).unwrap();
        },
        always: false,
        again: "outside",
        victim: "out/victim",
    },
    Swap {
        mode: PermissionMode::Workspace,
        path: "../out/file",
        swap: |root| {
            fs::remove_file(root.join("out/file")).unwrap();
            fs::hard_link(root.join("out/victim"), root.join("out/file")).unwrap();
        },
        always: true,
        again: "hard links",
        victim: "out/victim",
    },
    // Nothing was exchanged, and yet there is another name by which it is changed.
    Swap {
        mode: PermissionMode::Ask,
        path: "file",
        swap: |root| fs::hard_link(root.join("work/file"), root.join("out/other")).unwrap(),
        always: false,
        again: "hard links",
        victim: "out/other",
    },
    Swap {
        mode: PermissionMode::Workspace,
        path: "linked",
        swap: |root| {
            fs::remove_file(root.join("work/linked")).unwrap();
            fs::hard_link(root.join("out/victim"), root.join("work/linked")).unwrap();
        },
        always: false,
        again: "hard links",
        victim: "out/victim",
    },
    Swap {
        mode: PermissionMode::Ask,
        path: "file",
        swap: |root| {
            fs::remove_file(root.join("work/file")).unwrap();
            symlink("../out/victim", root.join("work/file")).unwrap();
        },
        always: false,
        again: "outside",
        victim: "out/victim",
    },
    Swap {
        mode: PermissionMode::Ask,
        path: "dir/victim",
        swap: |root| {
            fs::rename(root.join("work/dir"), root.join("work/aside")).unwrap();
            symlink("../out", root.join("work/dir")).unwrap();
        },
        always: false,
        again: "outside",
        victim: "out/victim",
    },
];

/// Swaps a file while its change is asked, and answers the question that follows; what the tool said.
async fn swapped(swap: &'static Swap, tool: &'static str, answer: Answer) -> (bool, String, String) {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().canonicalize().unwrap().join(name);
    for made in ["work/dir", "out", "own"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    for file in ["work/file", "work/linked", "work/dir/victim", "out/file", "out/victim"] {
        fs::write(at(file), "old").unwrap();
    }
    fs::hard_link(at("work/linked"), at("work/linked-too")).unwrap();
    let args = match tool {
        "write" => json!({ "path": swap.path, "content": "new" }),
        "read" => json!({ "path": swap.path }),
        _ => json!({ "path": swap.path, "edits": [{ "oldText": "old", "newText": "new" }] }),
    };
    let mut world = World::with([call(&[(tool, args)]), say("ok")]);
    world.tools = quipu::builtin();
    let rules = PermissionRules {
        mode: swap.mode,
        cwd: at("work"),
        own: at("own"),
        support: Some(SandboxSupport::Missing),
        ..PermissionRules::default()
    };
    let policy = Arc::new(Permissions::new(rules, []));
    let options = SessionOptions { policy, cwd: at("work"), ..world.options() };
    let live = world.create_with(options).await;
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let (session, base) = (live.session.clone(), at(""));
    let person = tokio::spawn(async move {
        let mut asked: Vec<String> = Vec::new();
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::AskOpened { ask } => {
                    let answer = match asked.len() {
                        0 => {
                            (swap.swap)(&base);
                            // For longer: for what was shown.
                            let offered = &ask.permission().unwrap().scopes;
                            let lasts = swap.always && offered.contains(&Scope::Session);
                            Answer::Allow { scope: if lasts { Scope::Session } else { Scope::Once } }
                        }
                        _ => answer.clone(),
                    };
                    asked.push(ask.permission().unwrap().question.clone());
                    session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
                }
                Event::Settled => break,
                _ => {}
            }
        }
        asked
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    let asked = person.await.unwrap();
    let what = format!("{tool} {} ({:?})", swap.path, swap.mode);
    assert_eq!(asked.len(), 2, "{what}: {asked:?}");
    assert!(!asked[0].contains("asked again"), "{what}: {asked:?}");
    assert!(asked[1].contains("asked again") && asked[1].contains(swap.again), "{what}: {asked:?}");
    let (_, said, failed) = live.results().remove(0);
    live.finish().await;
    world.check().await;
    (failed, said, fs::read_to_string(at(swap.victim)).unwrap())
}

#[tokio::test]
async fn file_linked_while_asked_is_asked_again() {
    for swap in &SWAPS {
        for tool in ["write", "edit"] {
            let (failed, said, victim) = swapped(swap, tool, Answer::Deny { reason: None }).await;
            assert!(failed && said.contains("did not allow"), "{tool} {}: {said}", swap.path);
            assert_eq!(victim, "old", "{tool} {}", swap.path);
            // Who says yes to that means it.
            let (failed, said, victim) = swapped(swap, tool, Answer::once()).await;
            assert!(!failed, "{tool} {}: {said}", swap.path);
            assert_eq!(victim, "new", "{tool} {}", swap.path);
        }
    }
}

#[tokio::test]
async fn file_linked_while_its_reading_is_asked_is_asked_again() {
    for swap in SWAPS.iter().filter(|swap| swap.path == "../out/file") {
        let (failed, said, _) = swapped(swap, "read", Answer::Deny { reason: None }).await;
        assert!(failed && said.contains("did not allow") && !said.contains("old"), "{said}");
        let (failed, said, _) = swapped(swap, "read", Answer::once()).await;
        assert!(!failed && said.contains("old"), "{said}");
    }
}

/// An editor that saves the file meanwhile puts a new one in its place.
#[tokio::test]
async fn file_saved_anew_while_asked_is_not_asked_again() {
    let world = world(&["../file"]);
    let outside = world.cwd().join("../file");
    fs::write(&outside, "old").unwrap();
    let live = world.create_with(options(&world, SandboxSupport::Missing)).await;
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let (session, saved) = (live.session.clone(), outside.clone());
    let person = tokio::spawn(async move {
        let mut asked = 0;
        while let Some(envelope) = events.next().await {
            match &envelope.event {
                Event::AskOpened { ask } => {
                    asked += 1;
                    fs::write(saved.with_extension("tmp"), "saved").unwrap();
                    fs::rename(saved.with_extension("tmp"), &saved).unwrap();
                    let answer = Command::Answer { ask: ask.id.clone(), answer: Answer::once() };
                    session.send(answer).await.unwrap();
                }
                Event::Settled => break,
                _ => {}
            }
        }
        asked
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(person.await.unwrap(), 1);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "new");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn call_without_answerer_is_refused_with_setting_to_change() {
    let mut world = World::with([call(&[("bash", json!({ "command": "touch ran" }))]), say("ok")]);
    world.tools = quipu::builtin();
    let live = world.create_with(options(&world, SandboxSupport::Missing)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let cwd = world.cwd();
    assert_eq!(
        live.results()[0].1,
        format!(
            "This call needs a person's permission and nobody is here to give it, so it was not run. The \
             question: Allow running this command in {}? It would run without a sandbox, because this system has no Landlock \
             (needs Linux 5.13 or later with Landlock enabled); permissions `full` run commands without a sandbox \
             and without asking.",
            cwd.display()
        )
    );
    assert!(!cwd.join("ran").exists());
    live.finish().await;
    world.check().await;
}

/// A script that changes between the question and its beginning is asked about once more, whatever was answered.
#[tokio::test]
async fn program_changed_while_asked_is_asked_again() {
    for answer in [Answer::once(), Answer::Allow { scope: Scope::Session }] {
        let mut world = World::with([call(&[("bash", json!({ "command": "sh run.sh" }))]), say("ok")]);
        world.tools = quipu::builtin();
        let script = world.cwd().join("run.sh");
        fs::write(&script, "echo one").unwrap();
        let live = world.create_with(options(&world, SandboxSupport::Missing)).await;
        let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
        let (session, first) = (live.session.clone(), answer.clone());
        let person = tokio::spawn(async move {
            let mut questions = Vec::new();
            while let Some(envelope) = events.next().await {
                match &envelope.event {
                    Event::AskOpened { ask } => {
                        let answer = match questions.len() {
                            0 => first.clone(),
                            _ => Answer::Deny { reason: None },
                        };
                        questions.push(ask.permission().unwrap().question.clone());
                        // While the person thinks.
                        fs::write(&script, "echo two").unwrap();
                        session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
                    }
                    Event::Settled => break,
                    _ => {}
                }
            }
            questions
        });
        assert_eq!(live.run("go").await, Outcome::Done);
        let questions = person.await.unwrap();
        assert_eq!(questions.len(), 2, "{answer:?}: {questions:?}");
        assert!(questions[1].contains("This is asked again, because"), "{questions:?}");
        assert!(questions[1].contains("run.sh changed after it was decided"), "{questions:?}");
        let (_, text, is_error) = live.results().pop().unwrap();
        assert!(is_error && text.contains("did not allow"), "{text}");
        live.finish().await;
        world.check().await;
    }
}
