//! Sessions that are opened again: the same bytes, branches, and what other writers do meanwhile.

use quipu_store::Store as _;
use std::sync::Arc;

use quipu::protocol::{
    Checkpoint, Command, Compaction, Ending, Entry, Event, NodeId, Notice, Outcome, SessionId, StepInfo,
};
use quipu::store::{
    Commit, ContentHolder as _, Durability, EraseTargets, Graph, LineageEnd, Op, OwnerDeathCheck, RefMove,
    RefName, Selection, StoreHolder,
};
use quipu::{Engine, OpenError};
use serde_json::json;

use crate::support::{Gate, Reply, World, call, check_store, engine_over, gated, open_store, say, text_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_and_resumed_bodies_are_the_same_bytes() {
    let script = || {
        let calls = [
            ("echo", json!({"text": "one", "b": 1.0, "a": null})),
            ("echo", json!({"text": "zwei\u{1f600}"})),
        ];
        [Reply { thinking: Some("hm".into()), cost: 0.1, ..call(&calls) }, say("first"), say("second")]
    };
    // The same conversation, with and without a restart between its prompts. Times stand in the messages, so
    // they are held still.
    let mut bodies = Vec::new();
    for restart in [false, true] {
        let mut world = World::with(script());
        world.engine = world.engine.with_clock(Arc::new(FixedClock));
        let live = world.create().await;
        assert_eq!(live.run("a").await, Outcome::Done);
        let id = live.id();
        let live = if restart {
            live.finish().await;
            world = world.reopen();
            world.engine = world.engine.with_clock(Arc::new(FixedClock));
            let (live, notices) = world.open(&id).await;
            assert_eq!(notices, []);
            live
        } else {
            live
        };
        assert_eq!(live.run("b").await, Outcome::Done);
        live.finish().await;
        let world = world.check().await;
        bodies.push(world.fake.bodies());
    }
    assert_eq!(bodies[0].len(), 3);
    assert_eq!(without_cwd(&bodies[0]), without_cwd(&bodies[1]));
}

struct FixedClock;

impl quipu::Clock for FixedClock {
    fn now(&self) -> i64 {
        1_700_000_000_000
    }
}

fn without_cwd(bodies: &[bytes::Bytes]) -> Vec<String> {
    bodies.iter().map(|body| String::from_utf8(body.to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_turns_keep_every_body() {
    let turns = |count| {
        (0..count).map(|at| call(&[("echo", json!({"text": format!("turn {at} {}", "x".repeat(200))}))]))
    };
    let world = World::with(turns(150));
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    let world = world.check().await;
    world.fake.push(turns(50));
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("on").await, Outcome::Done);
    live.finish().await;
    let world = world.check().await;
    let bodies = world.fake.bodies();
    assert_eq!(bodies.len(), 202);
    let sent: usize = bodies.iter().map(bytes::Bytes::len).sum();
    let kept = std::fs::metadata(world.dir.path().join("quipu.db")).unwrap().len();
    assert!(kept < sent as u64 / 4, "differences are small: {sent} bytes sent, {kept} kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_copies_nothing_of_those_before_it() {
    let mut turns: Vec<_> = (0..20).map(|at| call(&[("echo", json!({"text": at.to_string()}))])).collect();
    for (at, turn) in turns.iter_mut().enumerate() {
        turn.calls[0].0 = format!("c{at}");
    }
    let world = World::with(turns);
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    live.finish().await;
    let shared = world.fake.shared.lock().unwrap().clone();
    assert_eq!(shared, [0].into_iter().chain((0..20).map(|at| 2 * at + 1)).collect::<Vec<_>>());
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_options_begin_an_epoch() {
    let world = World::new();
    let live = world.create().await;
    assert_eq!(live.run("a").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    let options = quipu::SessionOptions { system: Some("Other words.".into()), ..world.options() };
    let opened = world.engine.open(&id, options.clone()).await.unwrap();
    assert_eq!(opened.session.ask("b").await.unwrap().0, Outcome::Done);
    opened.session.shutdown().await;
    // What the options leave open stays as it was.
    let options = quipu::SessionOptions { system: None, ..options };
    let opened = world.engine.open(&id, options).await.unwrap();
    assert_eq!(opened.session.ask("c").await.unwrap().0, Outcome::Done);
    let head = opened.session.view().head.unwrap();
    opened.session.shutdown().await;
    let systems: Vec<_> = world
        .fake
        .bodies()
        .iter()
        .map(|body| serde_json::from_slice::<serde_json::Value>(body).unwrap()["system"].clone())
        .collect();
    assert_eq!(systems, ["You are tested.", "Other words.", "Other words."]);
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    assert_eq!(nodes.len(), 8, "session, two messages, epoch, two, two");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erased_prompt_is_lost_and_not_sent() {
    let world = World::new();
    let live = world.create().await;
    assert_eq!(live.run("a").await, Outcome::Done);
    let id = live.id();
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let epoch = quipu::epoch_at(&*world.store, head).await.unwrap();
    assert!(!quipu::has_lost_prompt(&*world.store, &epoch).await.unwrap());
    let selection = Selection { blobs: vec![epoch.system.unwrap()], ..Selection::default() };
    let is_dead: OwnerDeathCheck = Arc::new(|_| false);
    let graph = StoreHolder::all(&world.store, &is_dead).swap_remove(0);
    let erased = graph.erase(&EraseTargets { selection, why: "a test".into() }).await.unwrap();
    assert_eq!((erased.count, erased.kept_count), (1, 0));
    assert!(quipu::has_lost_prompt(&*world.store, &epoch).await.unwrap());
    let options = quipu::SessionOptions { system: None, ..world.options() };
    let opened = world.engine.open(&id, options).await.unwrap();
    let told = |notice: &Notice| matches!(notice, Notice::Note { text } if text.contains("is missing from the store"));
    assert!(opened.notices.iter().any(told), "{:?}", opened.notices);
    assert_eq!(opened.session.ask("b").await.unwrap().0, Outcome::Done);
    opened.session.shutdown().await;
    let bodies = world.fake.bodies();
    let sent: serde_json::Value = serde_json::from_slice(&bodies[1]).unwrap();
    let system = sent["system"].as_str().unwrap();
    assert!(!system.contains("[erased]") && system.len() > 20, "{system}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_writer_is_told_and_gets_a_branch() {
    let world = World::with([say("to one"), say("to two"), say("to one again")]);
    let one = world.create().await;
    assert_eq!(one.run("first").await, Outcome::Done);
    let id = one.id();
    // As another process: a store and an engine of its own over the same file.
    let store = open_store(world.dir.path());
    let other = engine_over(store.clone(), world.dir.path());
    let opened = other.open(&id, world.options()).await.unwrap();
    let branch = opened.session.view().session;
    assert_eq!(opened.notices, [Notice::Branched { session: branch.clone() }]);
    assert_ne!(branch, id);
    assert_eq!(opened.session.ask("from two").await.unwrap().1, "to two");
    assert_eq!(one.run("from one").await, Outcome::Done);
    assert!(
        one.all(|event| matches!(event, Event::Ui { ui: quipu::protocol::Ui::Notice { notice: _ } })
            .then_some(()))
            .is_empty()
    );
    opened.session.shutdown().await;
    assert_eq!(texts(&*store, &id).await, ["first", "to one", "from one", "to one again"]);
    assert_eq!(texts(&*store, &branch).await, ["first", "to one", "from two", "to two"]);
    one.finish().await;
    // Now that nobody holds it, it is opened itself.
    let opened = other.open(&id, world.options()).await.unwrap();
    assert_eq!((opened.notices, opened.session.view().session), (vec![], id));
    opened.session.shutdown().await;
    drop((other, store));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefetch_is_used_when_the_head_is_unchanged() {
    let world = World::with([say("one"), say("two"), say("three"), say("four"), say("five")]);
    let mut ids = Vec::new();
    for text in ["a", "b"] {
        let live = world.create().await;
        assert_eq!(live.run(text).await, Outcome::Done);
        ids.push(live.id());
        live.finish().await;
    }
    let [a, b] = [&ids[0], &ids[1]];
    let head = async |id| world.store.head(&RefName::session(id)).await.unwrap().unwrap();
    let asked = async |id: &SessionId| {
        let opened = world.engine.open(id, world.options()).await.unwrap();
        assert_eq!(opened.session.ask("on").await.unwrap().0, Outcome::Done);
        opened.session.shutdown().await;
        let said: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
        said
    };
    world.engine.read_ahead(a, head(a).await);
    assert_eq!(asked(a).await, ["a", "one", "on"]);
    // Another session was meant, and one that went on meanwhile.
    world.engine.read_ahead(a, head(a).await);
    assert_eq!(asked(b).await, ["b", "two", "on"]);
    world.engine.read_ahead(b, head(b).await);
    go_on_elsewhere(&*world.store, b).await;
    assert_eq!(asked(b).await, ["b", "two", "on", "four", "from elsewhere", "on"]);
    world.check().await;
}

/// What another program does to a session that is open here: it takes what waits and goes on.
pub(crate) async fn go_on_elsewhere(store: &dyn Graph, id: &SessionId) -> quipu::protocol::NodeId {
    let name = RefName::session(id);
    let head = store.head(&name).await.unwrap().unwrap();
    let pending = store.pending(id).await.unwrap();
    let entry = quipu::protocol::Entry::Message(quipu::protocol::Message::user("from elsewhere", 5));
    let encoded = quipu_transcript::encode(&entry, &quipu::protocol::StepInfo::default());
    let parent = store.nodes(&[head]).await.unwrap().remove(0).unwrap();
    let record = quipu_dag::NodeRecord {
        parent: Some(head),
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp: parent.record.timestamp + 1,
        external_id: None,
        system_prompt: None,
    };
    let node = quipu_dag::Node::new(record, None, None);
    let to = node.id;
    let take = |item: quipu::store::InboxItem| Op::InboxTake { session: id.clone(), item: item.id };
    let commit = Commit {
        blobs: encoded.blobs,
        nodes: vec![node],
        moves: vec![RefMove::swap(name, Some(head), to, "test")],
        ops: pending.inbox.into_iter().map(take).collect(),
        durability: Durability::Process,
        ..Commit::default()
    };
    store.commit(commit).await.unwrap();
    to
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loser_of_race_gets_a_branch_without_mixing() {
    // The other program writes at each of these moments.
    for moment in ["idle", "calling", "tools"] {
        let (before, tools) = (Gate::new(), Gate::new());
        let mut first = call(&[("wait", json!({"text": "ran"}))]);
        first.before = Some(before.clone());
        let mut world = World::with([first, say("end")]);
        world.tools.push(gated("wait", &tools));
        let live = world.create().await;
        let id = live.id();
        if moment == "idle" {
            world.fake.push([say("unused")]);
            before.open();
            tools.open();
            assert_eq!(live.run("first").await, Outcome::Done);
            let theirs = go_on_elsewhere(&*world.store, &id).await;
            assert_eq!(live.run("second").await, Outcome::Done);
            assert_eq!(world.store.head(&RefName::session(&id)).await.unwrap(), Some(theirs));
        } else {
            live.session.prompt("first").await.unwrap();
            before.reached().await;
            live.session.follow_up("waits").await.unwrap();
            if moment == "calling" {
                go_on_elsewhere(&*world.store, &id).await;
            }
            before.open();
            tools.reached().await;
            if moment == "tools" {
                live.session.steer("waits too").await.unwrap();
                go_on_elsewhere(&*world.store, &id).await;
            }
            tools.open();
            live.settled(1).await;
        }
        let branch = live.id();
        assert_ne!(branch, id);
        let notices = live.all(|event| match event {
            Event::Ui { ui: quipu::protocol::Ui::Notice { notice: trouble } } => Some(trouble.clone()),
            _ => None,
        });
        assert_eq!(notices, [Notice::Branched { session: branch.clone() }], "{moment}");
        assert_eq!(live.outcomes().last(), Some(&Outcome::Done), "{moment}");
        live.finish().await;
        assert!(texts(&*world.store, &id).await.contains(&"from elsewhere".to_owned()));
        let ours = texts(&*world.store, &branch).await;
        assert!(!ours.contains(&"from elsewhere".to_owned()), "{ours:?}");
        assert_eq!(ours.iter().filter(|text| *text == "ran").count(), 1);
        if moment != "idle" {
            assert!(ours.contains(&"waits".to_owned()), "what waited goes along: {moment} {ours:?}");
        }
        for session in [&id, &branch] {
            let pending = world.store.pending(session).await.unwrap();
            assert_eq!((pending.inbox, pending.steps), (vec![], vec![]), "{moment}");
        }
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_during_lease_wait_are_read() {
    let dir = crate::support::scratch();
    let mut world = World::with([say("one"), say("two")]);
    let live = world.create().await;
    assert_eq!(live.run("first").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    let store = crate::storage::failing(&world.store, usize::MAX, 0, crate::storage::errors()[0].clone());
    *store.continues.lock().unwrap() = Some(id.clone());
    world.engine = engine_over(store.clone(), dir.path());
    let (live, notices) = world.open(&id).await;
    assert_eq!((live.id(), notices), (id, vec![]));
    assert_eq!(live.run("second").await, Outcome::Done);
    let shown: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
    assert!(shown.iter().any(|text| text.contains("from elsewhere")), "{shown:?}");
    live.finish().await;
    world.engine = engine_over(world.store.clone(), dir.path());
    drop(store);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_was_taken_before_the_first_message() {
    let world = World::new();
    let options = quipu::SessionOptions { id: Some("mine".into()), ..world.options() };
    let (one, two) = (world.create_with(options.clone()).await, world.create_with(options.clone()).await);
    assert_eq!(one.run("one").await, Outcome::Done);
    assert_eq!(two.run("two").await, Outcome::Done);
    assert_eq!((one.id().as_str(), two.id() == one.id()), ("mine", false));
    let head = two.session.view().head.unwrap();
    assert_eq!(
        world.store.lineage(head, LineageEnd::Root).await.unwrap().len(),
        3,
        "one session node, two messages"
    );
    one.finish().await;
    two.finish().await;
    assert!(matches!(world.engine.create(options).await, Err(OpenError::Exists(_))));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_open_reports_error_and_holds_no_lease() {
    let world = World::new();
    let live = world.create().await;
    assert_eq!(live.run("a").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    let twice = quipu::SessionOptions {
        tools: vec![crate::support::echo(), crate::support::echo()],
        ..world.options()
    };
    assert!(matches!(world.engine.open(&id, twice).await, Err(OpenError::BadTool(_))));
    assert!(matches!(
        world.engine.open(&"none".into(), world.options()).await,
        Err(OpenError::NoSuchSession(_))
    ));
    let bad = quipu::SessionOptions { id: Some("../x".into()), ..world.options() };
    assert!(matches!(world.engine.create(bad).await, Err(OpenError::BadId(_))));
    let (live, notices) = world.open(&id).await;
    assert_eq!(notices, [], "the tries before left no lease");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_dropped_keeps_what_was_acknowledged() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({"text": "x"}))])]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    let id = live.id();
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.session.steer("and this").await.unwrap();
    live.session.kill();
    drop(live);
    // Its task ends by itself and gives the session back.
    let (live, notices) = loop {
        let (live, notices) = world.open(&id).await;
        match notices.as_slice() {
            [Notice::Branched { .. }] => live.finish().await,
            _ => break (live, notices),
        };
        tokio::task::yield_now().await;
    };
    assert_eq!(
        notices,
        [Notice::Interrupted { calls: vec![("wait".into(), "c1".into())], model_call: false }]
    );
    assert_eq!(live.session.view().waiting, 1);
    live.session.send(Command::Continue).await.unwrap();
    live.settled(1).await;
    let texts: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
    assert!(texts[2].contains("Interrupted") && texts[3] == "and this", "{texts:?}");
    live.finish().await;
    world.check().await;
}

async fn texts(store: &dyn Graph, id: &SessionId) -> Vec<String> {
    let head = store.head(&RefName::session(id)).await.unwrap().unwrap();
    let nodes = store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = quipu::store::decode_nodes(store, &nodes).await.unwrap();
    quipu_transcript::project(decoded.iter().map(|one| &one.entry))
        .iter()
        .map(|message| text_of(message))
        .collect()
}

#[expect(dead_code, reason = "keeps the engine shareable between threads")]
fn engines_are_shared(engine: Engine) -> impl Send + Sync + Clone {
    engine
}

/// A compaction that another program made of a session of ours: from `first_kept` on the context stays.
async fn compacted(world: &World, id: &SessionId, first_kept: Option<NodeId>, checkpoint: bool) {
    let name = RefName::session(id);
    let head = world.store.head(&name).await.unwrap().unwrap();
    let epoch = quipu::last_epoch(&*world.store, &world.engine.newest(&world.cwd()).await.unwrap().unwrap())
        .await
        .unwrap()
        .unwrap();
    let compaction = Compaction {
        summary: "they counted".into(),
        first_kept,
        tokens_before: 100,
        checkpoint: checkpoint.then(|| Checkpoint { session: id.clone(), epoch }),
        ..Compaction::default()
    };
    let encoded = quipu_transcript::encode(&Entry::Compaction(compaction), &StepInfo::default());
    let node = quipu_dag::Node::new(
        quipu_dag::NodeRecord {
            parent: Some(head),
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: 4_000_000_000_000,
            external_id: None,
            system_prompt: None,
        },
        None,
        None,
    );
    let moves = vec![RefMove::swap(name, Some(head), node.id, "compact")];
    let commit = Commit { blobs: encoded.blobs, nodes: vec![node], moves, ..Commit::default() };
    world.store.commit(commit).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_session_goes_on_from_its_summary() {
    for (kept, checkpoint) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::with((0..6).map(|n| say(&format!("answer {n}"))));
        let live = world.create().await;
        for text in ["one", "two", "three"] {
            live.run(text).await;
        }
        let id = live.id();
        let three = live
            .all(|event| match event {
                Event::MessageEnded { message, ending: Ending::Committed(node), .. } => {
                    Some((text_of(message), *node))
                }
                _ => None,
            })
            .into_iter()
            .find_map(|(text, node)| (text == "three").then_some(node));
        live.finish().await;
        compacted(&world, &id, three.filter(|_| kept), checkpoint).await;

        let world = world.reopen();
        let (live, notices) = world.open(&id).await;
        assert_eq!(notices, []);
        live.run("four").await;
        let tail: &[&str] = if kept { &["three", "answer 2", "four"] } else { &["four"] };
        let texts: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
        assert!(texts[0].contains("they counted"), "{texts:?}");
        assert_eq!(texts[1..], *tail);
        live.finish().await;

        // And again below it, also from the node before it, as if it had not been made.
        let (live, _) = world.open(&id).await;
        live.run("five").await;
        assert_eq!(world.fake.last_messages().len(), tail.len() + 3);
        live.finish().await;
        let fork = world.engine.fork(three.unwrap(), world.options()).await.unwrap().session;
        fork.ask("instead").await.unwrap();
        fork.shutdown().await;
        let texts: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
        assert_eq!(texts, ["one", "answer 0", "two", "answer 1", "three", "instead"]);
        check_store(&world.store).await;
    }
}
