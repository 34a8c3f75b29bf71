//! Two processes at the same time.

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{Entry, Message, NodeId};
use quipu_store::{Commit, LineageEnd, OpenOptions, RefMove, RefName, SqliteStore, Store, decode_nodes};
use quipu_testkit::{Answer, Gate, Neighbour, Reply};

use crate::support::*;

#[test]
fn the_second_on_one_session_is_told_and_gets_a_branch() {
    let gate = Gate::new();
    let answer = Answer::new().text("Two.").stream();
    let world = World::new([
        Answer::new().text("One.").reply(),
        Reply::sse("").then_gate(&gate).then(answer),
        Answer::new().text("Three.").reply(),
    ]);
    world.run(&["-p", "first"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let running = world.start(&["-p", "-c", "second"]);
    reached(&gate);
    let ran = world.run(&["-p", "-c", "--mode", "json", "third"]).ok();
    assert!(ran.err.contains("Another process is working on this session"), "{}", ran.err);
    let lines = ran.json_lines();
    crate::events::lawful(&lines);
    let branch = lines[0]["id"].as_str().unwrap();
    assert!(branch != session && ran.err.contains(branch));
    gate.open();
    assert_eq!(running.wait().ok().text(), "Two.\n");
    let requests = world.requests();
    let said = |n: usize| messages(&requests[n]).iter().map(wire_text).collect::<Vec<_>>();
    assert_eq!(said(1), ["first", "One.", "second"]);
    // What the first one had said was acknowledged, so it is there.
    assert_eq!(said(2), ["first", "One.", "second", "third"]);
    // Both are sessions of their own now, and both go on.
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 2);
    let row = sessions.iter().find(|row| row["id"] == branch).unwrap();
    assert_eq!(row["parentSession"], session);
    let continues = [
        (session.as_str(), vec!["first", "One.", "second", "Two.", "go on"]),
        (branch, vec!["first", "One.", "second", "third", "Three.", "go on"]),
    ];
    for (id, texts) in continues {
        world.server.push(Answer::new().text("On.").reply());
        let ran = world.run(&["-p", "--session", id, "go on"]).ok();
        assert!(!ran.err.contains("Another process"), "{}", ran.err);
        let texts_sent: Vec<String> =
            messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        assert_eq!(texts_sent, texts);
    }
}

#[test]
fn a_process_that_was_killed_holds_nothing() {
    let gate = Gate::new();
    let world = World::new([Reply::sse("").then_gate(&gate), Answer::new().text("On.").reply()]);
    let mut running = world.start(&["-p", "first"]);
    reached(&gate);
    running.child.kill().unwrap();
    running.wait();
    let ran = world.run(&["-p", "-c", "second"]).ok();
    assert!(ran.err.contains("The process that waited for a reply exited"), "{}", ran.err);
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn many_at_once_lose_nothing() {
    let world = World::new((0..8).map(|n| Answer::new().text(&format!("Answer {n}.")).reply()));
    let all: Vec<RunningCommand> = (0..8).map(|n| world.start(&["-p", &format!("prompt {n}")])).collect();
    for running in all {
        running.wait().ok();
    }
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 8);
    assert!(sessions.iter().all(|row| row["entries"] == 2));
}

/// A program that knows one head for the whole machine: its nodes go on from its own last one, and `PI_HEAD` follows.
async fn foreign_step(store: &SqliteStore, last: Option<NodeId>, at: i64) -> NodeId {
    let blob = Blob::string("text", &format!("foreign {at}"));
    let record = NodeRecord {
        parent: last,
        role: "user".into(),
        parts: vec![blob.id],
        timestamp: 1_700_000_000_000 + at,
        external_id: None,
        system_prompt: None,
    };
    let node = Node::new(record, Some(r#"{"agent":"other"}"#.into()), None);
    let id = node.id;
    let moves = vec![RefMove::publish(RefName::from(RefName::PI_HEAD), id, "other")];
    store.commit(Commit { blobs: vec![blob], nodes: vec![node], moves, ..Commit::default() }).await.unwrap();
    id
}

#[tokio::test]
async fn two_of_ours_and_another_program_never_weave_their_lineages() {
    let rounds = 3;
    let world = World::new((0..2 + 2 * rounds).map(|n| Answer::new().text(&format!("Answer {n}.")).reply()));
    let mut ids = Vec::new();
    for name in ["left", "right"] {
        world.run(&["-p", &format!("{name} begins")]).ok();
        ids.push(world.sessions()[0]["id"].as_str().unwrap().to_owned());
    }
    let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
    let mut foreign: Vec<NodeId> = Vec::new();
    for round in 0..rounds {
        let said = ["left", "right"].map(|name| format!("{name} goes on"));
        let start = |at: usize| world.start(&["-p", "--session", &ids[at], &said[at]]);
        let running = [start(0), start(1)];
        for step in 0..20 {
            foreign.push(foreign_step(&store, foreign.last().copied(), round * 100 + step).await);
        }
        running.into_iter().for_each(|one| drop(one.wait().ok()));
        // Nobody but it moved its head.
        assert_eq!(store.head(&RefName::from(RefName::PI_HEAD)).await.unwrap(), foreign.last().copied());
        foreign.push(foreign_step(&store, foreign.last().copied(), round * 100 + 99).await);
    }
    let mut seen = std::collections::HashSet::new();
    for (name, id) in ["left", "right"].iter().zip(&ids) {
        let head = store.head(&RefName::session(&id.as_str().into())).await.unwrap().unwrap();
        let nodes = store.lineage(head, LineageEnd::Root).await.unwrap();
        let first = nodes[0].config.as_deref().unwrap_or_default();
        assert!(first.contains(r#""agent":"quipu""#), "its first node names the writer: {first}");
        assert!(nodes.iter().all(|node| seen.insert(node.id) && !foreign.contains(&node.id)));
        let said: Vec<String> = messages_of(&store, &nodes).await;
        assert_eq!(said.len(), 2 + 2 * usize::try_from(rounds).unwrap(), "{said:?}");
        assert!(said.iter().step_by(2).all(|text| text.starts_with(name)), "{said:?}");
    }
    let theirs = store.lineage(*foreign.last().unwrap(), LineageEnd::Root).await.unwrap();
    assert_eq!(theirs.iter().map(|node| node.id).collect::<Vec<_>>(), foreign);
    assert!(theirs.iter().all(|node| node.config.as_deref() == Some(r#"{"agent":"other"}"#)));
}

#[test]
fn a_head_of_another_program_moves_where_settings_name_it() {
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    world.run(&["-p", "one"]).ok();
    let mut neighbour = Neighbour::open(&world.store());
    let theirs = neighbour.say("user", "theirs");
    world.run(&["-p", "-c", "two"]).ok();
    assert_eq!(neighbour.head("PI_HEAD").as_ref(), Some(&theirs));
    let next = neighbour.say("user", "and again");
    assert_eq!(neighbour.lineage(&next), [theirs, next.clone()]);
    let settings = world.path("home/.quipu/settings.json");
    std::fs::write(&settings, r#"{"publish":["quipu/x","PI_HEAD"]}"#).unwrap();
    let ran = world.run(&["-p", "-c", "three"]).ok();
    assert!(ran.err.contains("settings.json: publish[0] must be the name of another"), "{}", ran.err);
    assert_eq!(ran.err.matches("publish[0]").count(), 1, "{}", ran.err);
    assert_eq!(neighbour.head("PI_HEAD").unwrap(), world.sessions()[0]["head"]);
    assert_ne!(neighbour.head("PI_HEAD"), Some(next));
}

/// What the messages of a lineage say.
async fn messages_of(store: &SqliteStore, nodes: &[Node]) -> Vec<String> {
    let decoded = decode_nodes(store, nodes).await.unwrap();
    let said = decoded.iter().filter_map(|one| match &one.entry {
        Entry::Message(Message::User(user)) => Some(user.content.text()),
        Entry::Message(Message::Assistant(answer)) => Some(answer.text()),
        _ => None,
    });
    said.collect()
}
