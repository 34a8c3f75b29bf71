//! A model takes its session to an earlier node, and the files go along.

use std::sync::Arc;

use quipu::history::legal_target;
use quipu::protocol::{Answer, Command, Entry, Event, Message, NodeId, Outcome, QueueMode};
use quipu::store::{ActionQuery, LineageEnd, Store, decode_nodes};
use quipu::{
    Decision, Delivery, FileSettings, Policy, Proposal, RestoreFiles, SessionOptions, TravelSettings,
};
use serde_json::{Value, json};

use crate::file_travel::{Tree, tree};
use crate::support::{LiveSession, World, call, messages_of, say, text_of};

fn options(world: &World) -> SessionOptions {
    SessionOptions { travel: TravelSettings { tools: true }, ..world.options() }
}

fn go(to: NodeId) -> (&'static str, Value) {
    let hash = to.short();
    ("tobe", json!({ "target_node_hash": hash, "carryover_message": "Not this way.", "files": true }))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write", json!({ "path": path, "content": content }))
}

fn bash(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command }))
}

fn head(live: &LiveSession) -> NodeId {
    live.session.view().head.unwrap()
}

/// A session that wrote one file; the node of its answer, and the files then.
async fn begun(change: impl FnOnce(&mut SessionOptions)) -> (World, LiveSession, NodeId, Tree) {
    let mut world = World::new();
    world.tools.extend(quipu::builtin());
    let mut options = options(&world);
    change(&mut options);
    std::fs::write(world.cwd().join("mine"), "a person's").unwrap();
    let live = world.create_with(options).await;
    world.fake.push([call(&[write("a", "one\n")]), say("a0")]);
    assert_eq!(live.run("q0").await, Outcome::Done);
    let (target, files) = (head(&live), tree(&world.cwd()));
    (world, live, target, files)
}

/// The departures in the log that other programs read.
async fn departures(world: &World) -> Vec<NodeId> {
    let query = ActionQuery { kinds: vec!["INCARNATE".into()], ..ActionQuery::default() };
    let rows = world.store.actions(query).await.unwrap();
    rows.into_iter().filter_map(|row| row.action.from).collect()
}

async fn end(world: World, live: LiveSession) {
    // A ref at each place that was left, so that the checks of every store find what was asked there.
    for node in departures(&world).await {
        world.engine.fork_from(node, None).await.unwrap();
    }
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_what_they_were_there_and_undo_brings_them_back() {
    let (world, live, target, then) = begun(|_| {}).await;
    let busy = bash("printf c > c; mkdir d; printf x > d/x; chmod 600 a; sleep 1000 > /dev/null 2>&1 &");
    world.fake.push([
        call(&[write("a", "two\n"), write("new/b", "b")]),
        call(&[busy]),
        call(&[go(target)]),
        say("There."),
    ]);
    assert_eq!(live.run("q1").await, Outcome::Done);
    assert_eq!(tree(&world.cwd()), then, "{:?}", live.results());
    let said: Vec<String> = messages_of(world.fake.bodies().last().unwrap()).iter().map(text_of).collect();
    let note = said.last().unwrap();
    assert!(
        note.contains("Not this way.") && note.contains("made in the working directory since are undone"),
        "{note}"
    );
    let from = departures(&world).await[0];
    assert_eq!(legal_target(&*world.store, from).await.unwrap().illegal, None);
    let (id, last) = (live.id(), head(&live));
    live.finish().await;
    assert_eq!(world.store.pending(&id).await.unwrap().jump, None);

    let how = RestoreFiles::default();
    let (undone, problems) = world.engine.undo_with_files(&id, 1, Some(&how)).await.unwrap();
    assert_eq!((undone[0].kind.as_str(), undone[0].from, problems.as_slice()), ("tobe", Some(last), &[][..]));
    let mut expect = then.clone();
    expect.insert("a".into(), (0o600, b"two\n".to_vec()));
    let plain = then["a"].0;
    expect.extend(
        [("new/b", "b"), ("c", "c"), ("d/x", "x")].map(|(path, text)| (path.into(), (plain, text.into()))),
    );
    assert_eq!(tree(&world.cwd()), expect);
    world.engine.redo_with_files(&id, 1, Some(&how)).await.unwrap();
    assert_eq!(tree(&world.cwd()), then);
    world.engine.fork_from(from, None).await.unwrap();
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unapproved_file_plan_is_not_carried_out() {
    let (world, live, target, _) = begun(|_| {}).await;
    world.fake.push([call(&[write("a", "two\n")]), say("a1")]);
    assert_eq!(live.run("q1").await, Outcome::Done);
    // Somebody else changed it since.
    std::fs::write(world.cwd().join("a"), "by hand\n").unwrap();
    world.fake.push([call(&[go(target)]), say("Well.")]);
    assert_eq!(live.run("q2").await, Outcome::Done);
    let refused = live.results().pop().unwrap();
    assert!(refused.2 && refused.1.ends_with("let the user decide.\n~ a"), "{refused:?}");
    assert_eq!(tree(&world.cwd())["a"].1, b"by hand\n");
    assert_eq!(departures(&world).await, []);
    end(world, live).await;

    let off = |options: &mut SessionOptions| options.files = FileSettings { enabled: false, ..options.files };
    let (world, live, target, _) = begun(off).await;
    world.fake.push([call(&[go(target)]), say("Well.")]);
    assert_eq!(live.run("q1").await, Outcome::Done);
    let refused = live.results().pop().unwrap();
    assert!(refused.2 && refused.1.contains("go back without `files`"), "{refused:?}");
    end(world, live).await;
}

/// Asks about every departure, as the built-in policy does.
struct Asks;

impl Policy for Asks {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        match proposal.travel {
            None => Decision::Allow,
            Some(travel) => Decision::Ask { question: travel.question(), subject: travel.subject() },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tobe_changes_only_the_files_shown_for_approval() {
    let (world, live, target, then) = begun(|options| options.policy = Arc::new(Asks)).await;
    world.fake.push([call(&[write("a", "two\n"), write("new/b", "b")]), say("a1")]);
    assert_eq!(live.run("q1").await, Outcome::Done);
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    for changes in [true, false] {
        world.fake.push([call(&[go(target)]), say("Then.")]);
        live.session.send(Command::Prompt { input: "q2".into(), when: QueueMode::Now }).await.unwrap();
        loop {
            match &events.next().await.unwrap().event {
                Event::AskOpened { ask } => {
                    assert!(
                        ask.permission().unwrap().question.ends_with("; 2 file(s) are restored."),
                        "{ask:?}"
                    );
                    assert_eq!(&*ask.permission().unwrap().subject, "Not this way.\n\n~ a\n- new/b");
                    if changes {
                        std::fs::write(world.cwd().join("new/b"), "changed meanwhile").unwrap();
                    }
                    let ask = ask.id.clone();
                    live.session.send(Command::Answer { ask, answer: Answer::once() }).await.unwrap();
                }
                Event::Settled => break,
                _ => {}
            }
        }
        let text = live.results().pop().unwrap().1;
        let expect = if changes { "files changed after the list of changes was made" } else { "Incarnation" };
        assert!(text.contains(expect), "{text}");
        if changes {
            assert_eq!(tree(&world.cwd())["new/b"].1, b"changed meanwhile");
            std::fs::write(world.cwd().join("new/b"), "b").unwrap();
        }
    }
    assert_eq!(tree(&world.cwd()), then);
    drop(events);
    let nodes = world.store.lineage(head(&live), LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let put_back =
        decoded.iter().filter(|one| matches!(&one.entry, Entry::Meta(_)) && !one.step.files.is_empty());
    assert_eq!(put_back.count(), 1, "a node says what was done to files");
    let results = decoded.iter().filter(|one| matches!(&one.entry, Entry::Message(Message::ToolResult(_))));
    assert_eq!(results.count(), 1, "what was left is elsewhere");
    end(world, live).await;
}
