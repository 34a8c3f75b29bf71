//! Going on from an older node.

use quipu::protocol::{Command, Entry, Message, NodeId, Outcome};
use quipu::store::{SessionQuery, Store, Until, decode_nodes};
use quipu::{OpenError, SessionOptions};
use quipu_store::ReadModel as _;
use serde_json::json;

use crate::support::{LiveSession, World, call, say, text_of};

async fn lineage(world: &World, head: NodeId) -> Vec<(NodeId, Entry)> {
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    nodes.iter().map(|node| node.id).zip(decoded.into_iter().map(|one| one.entry)).collect()
}

fn texts(lineage: &[(NodeId, Entry)]) -> Vec<String> {
    lineage
        .iter()
        .map(|(_, entry)| match entry {
            Entry::Message(message) => text_of(message),
            Entry::Session(_) => "session".into(),
            Entry::Epoch(_) => "epoch".into(),
            Entry::Compaction(_) => "compaction".into(),
            Entry::Meta(_) => "entry".into(),
        })
        .collect()
}

#[tokio::test]
async fn another_way_from_an_older_node() {
    let world = World::with([say("Left or right?"), say("Left it is."), say("Right it is.")]);
    let live = world.create().await;
    live.run("Where to?").await;
    let at = live.session.view().head.unwrap();
    live.run("Left.").await;
    let (first, first_head) = (live.id(), live.session.view().head.unwrap());
    live.finish().await;
    let before = lineage(&world, first_head).await;

    let forked = world.engine.fork(at, world.options()).await.unwrap().session;
    let second = forked.view().session;
    assert!(
        world
            .store
            .sessions(SessionQuery { id: Some(second.clone()), ..SessionQuery::default() })
            .await
            .unwrap()
            .is_empty(),
        "nothing is stored before the first message"
    );
    let live = LiveSession::of(forked).await;
    assert_eq!(live.run("Right.").await, Outcome::Done);
    let head = live.session.view().head.unwrap();
    live.finish().await;

    let world = world.check().await;
    assert_eq!(lineage(&world, first_head).await, before, "the first way is as it was");
    let after = lineage(&world, head).await;
    let words = ["session", "Where to?", "Left or right?", "session", "Right.", "Right it is."];
    assert_eq!(texts(&after), words);
    assert_eq!(after[..3], before[..3]);
    assert!(
        matches!(&after[3].1, Entry::Session(start) if start.session == second && start.parent_session.as_ref() == Some(&first))
    );
    let said: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
    assert_eq!(said, ["Where to?", "Left or right?", "Right."]);
    let query = SessionQuery { id: Some(second.clone()), ..SessionQuery::default() };
    assert_eq!(world.store.sessions(query).await.unwrap()[0].parent, Some(first));

    // It is a session as any other: it can be opened, and forked again.
    let (live, notices) = world.open(&second).await;
    assert_eq!((live.run("On.").await, notices), (Outcome::Done, vec![]));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn fork_needs_a_complete_conversation() {
    let two = call(&[("echo", json!({"text": "a"})), ("echo", json!({"text": "b"}))]);
    let world = World::with([two, say("Both.")]);
    let live = world.create().await;
    live.run("go").await;
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let nodes = lineage(&world, head).await;
    assert_eq!(nodes.len(), 6);
    for (at, (node, entry)) in nodes.iter().enumerate() {
        let forked = world.engine.fork(*node, world.options()).await;
        match (at, forked) {
            // The call itself, and its first result.
            (2 | 3, Err(OpenError::Incomplete { node: refused, calls })) => {
                assert_eq!((refused, calls.len()), (*node, 4 - at));
            }
            (0 | 1 | 4 | 5, Ok(quipu::OpenedSession { session, .. })) => {
                let text = format!("from {at}");
                // Nothing new is said where the user's word waits for its answer.
                if matches!(entry, Entry::Message(Message::User(_))) {
                    session.send(Command::Continue).await.unwrap();
                    session.abort().await.unwrap();
                } else {
                    assert_eq!(session.ask(text.as_str()).await.unwrap(), (Outcome::Done, "done".into()));
                }
                session.shutdown().await;
            }
            (at, other) => panic!("{at}: {other:?}"),
        }
    }
    let none = NodeId([9; 32]);
    let error = world.engine.fork(none, world.options()).await.unwrap_err();
    assert!(matches!(error, OpenError::NoSuchNode(node) if node == none), "{error}");
    let bad = SessionOptions { id: Some("a/b".into()), ..world.options() };
    assert!(matches!(world.engine.fork(head, bad).await, Err(OpenError::BadId(_))));
    world.check().await;
}

#[tokio::test]
async fn fork_takes_missing_options_from_the_node() {
    let world = World::new();
    let live = world.create().await;
    live.run("a").await;
    let at = live.session.view().head.unwrap();
    let id = live.id();
    live.finish().await;
    let options = SessionOptions { system: Some("Other words.".into()), ..world.options() };
    let opened = world.engine.open(&id, options).await.unwrap().session;
    opened.ask("b").await.unwrap();
    opened.shutdown().await;
    let options = SessionOptions { system: None, ..world.options() };
    let forked = world.engine.fork(at, options).await.unwrap().session;
    forked.ask("c").await.unwrap();
    forked.shutdown().await;
    let body: serde_json::Value = serde_json::from_slice(world.fake.bodies().last().unwrap()).unwrap();
    assert_eq!(body["system"], "You are tested.");
    world.check().await;
}
