//! Other programs on the same store: whose head is whose, and what each sees of the other.

use quipu_store::ReadModel as _;
use std::collections::HashSet;
use std::path::PathBuf;

use quipu::protocol::{NodeId, Outcome, SessionId};
use quipu::store::{Commit, LineageEnd, RefMove, RefName, Store, Upkeep};

use quipu::{CompactionSettings, PublishSettings, SessionOptions};
use quipu_dag::{Node, NodeRecord};
use quipu_testkit::{Neighbour, context_of, path_of};

use crate::compact::long;
use crate::support::{LiveSession, World, engine_over, open_store, say};

pub(crate) fn file(world: &World) -> PathBuf {
    world.dir.path().join("quipu.db")
}

fn head(live: &LiveSession) -> NodeId {
    live.session.view().head.unwrap()
}

async fn newest(world: &World) -> Option<NodeId> {
    world.store.head(&RefName::from(RefName::NEWEST)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_lineages_are_whole_after_1000_commits_in_turn() {
    const TURNS: usize = 250;
    let world = World::with((0..TURNS).map(|n| say(&format!("answer {n}"))));
    let mut neighbour = Neighbour::open(&file(&world));
    let (tickets, taken) = std::sync::mpsc::sync_channel::<()>(2);
    let other = std::thread::spawn(move || {
        let said: Vec<String> =
            taken.iter().enumerate().map(|(n, ())| neighbour.say("user", &format!("theirs {n}"))).collect();
        (neighbour, said)
    });
    let live = world.create().await;
    for n in 0..TURNS {
        // One before a turn and one in the middle of it; never more than three ahead.
        for _ in 0..2 {
            tokio::task::block_in_place(|| tickets.send(()).unwrap());
        }
        assert_eq!(live.run(&format!("question {n}")).await, Outcome::Done);
    }
    drop(tickets);
    let (neighbour, theirs) = other.join().unwrap();
    assert_eq!(theirs.len(), 2 * TURNS);
    assert_eq!(neighbour.head("PI_HEAD").as_ref(), theirs.last(), "nobody but it moved its head");
    assert_eq!(neighbour.head("terminal_head"), None, "no head was made");
    assert_eq!(neighbour.lineage(theirs.last().unwrap()), theirs, "its lineage is what it said");
    assert_eq!(neighbour.entries(theirs.last().unwrap()).len(), 2 * TURNS);

    let ours = world.store.lineage(head(&live), LineageEnd::Root).await.unwrap();
    let theirs: HashSet<String> = theirs.into_iter().collect();
    assert!(ours.iter().all(|node| !theirs.contains(&node.id.to_string())));
    assert_eq!(ours.len(), 1 + 2 * TURNS);
    let expect: Vec<String> =
        (0..TURNS).flat_map(|n| [format!("user: question {n}"), format!("assistant: answer {n}")]).collect();
    assert_eq!(live.said(), expect);
    assert_eq!(newest(&world).await, Some(head(&live)));
    live.finish().await;
    world.check().await;
}

/// Heads of others, and where they must stand for ever.
struct ForeignHeads {
    neighbour: Neighbour,
    stand: [(&'static str, String); 2],
}

impl ForeignHeads {
    fn of(world: &World) -> Self {
        let mut pi = Neighbour::open(&file(world));
        let one = pi.say("user", "theirs");
        let mut terminal = Neighbour::open(&file(world)).with_head("terminal_head");
        let two = terminal.say("user", "of the terminal");
        Self { neighbour: pi, stand: [("PI_HEAD", one), ("terminal_head", two)] }
    }

    fn stay(&self, after: &str) {
        for (name, node) in &self.stand {
            assert_eq!(self.neighbour.head(name).as_ref(), Some(node), "{name} after {after}");
        }
    }
}

fn compacting(world: &World) -> SessionOptions {
    let compaction =
        CompactionSettings { enabled: true, reserve_tokens: 100, keep_recent_tokens: 300, safeguard: None };
    SessionOptions { compaction, ..world.options() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_move_of_a_session_touches_the_heads_of_others() {
    let world = World::with((0..9).map(|n| say(&long(&format!("answer-{n}")))));
    let watched = ForeignHeads::of(&world);
    let live = world.create_with(compacting(&world)).await;
    live.run(&long("one")).await;
    watched.stay("a turn");
    let first = head(&live);
    live.run(&long("two")).await;
    live.run(&long("three")).await;
    let second = head(&live);
    live.session.compact(None).await.unwrap();
    live.settled(4).await;
    watched.stay("a compaction");
    let (id, compacted) = (live.id(), head(&live));
    assert_ne!(compacted, second);
    assert_eq!(newest(&world).await, Some(compacted));
    live.finish().await;
    let at = async |what: &str, session: &SessionId| {
        watched.stay(what);
        let stands = world.store.head(&RefName::session(session)).await.unwrap();
        assert_eq!(newest(&world).await, stands, "{what}");
    };
    world.engine.undo_compaction(&id).await.unwrap();
    at("an undone compaction", &id).await;
    world.engine.jump(first, Some("here")).await.unwrap();
    at("a jump", &id).await;
    world.engine.undo(&id, 1).await.unwrap();
    at("undo", &id).await;
    world.engine.redo(&id, 1).await.unwrap();
    at("redo", &id).await;
    world.engine.tobe(first, "Begin again.").await.unwrap();
    at("tobe", &id).await;
    world.engine.rename(&id, "a name").await.unwrap();
    at("a name", &id).await;
    world.engine.label(first, "a label").await.unwrap();
    at("a label", &id).await;
    let fork = world.engine.fork_from(first, None).await.unwrap().session;
    at("a fork", &fork).await;
    world.engine.rename(&id, "another name").await.unwrap();
    at("the name of another session", &fork).await;
    world.engine.merge(second, &fork, "Bring it.", None).await.unwrap();
    at("a merge", &fork).await;
    let clone = world.engine.clone_session(&id).await.unwrap().session;
    at("a clone", &clone).await;
    world.engine.remove(&id).await.unwrap();
    at("the end of another session", &clone).await;
    world.engine.remove(&clone).await.unwrap();
    watched.stay("the end of the newest session");
    assert_eq!(newest(&world).await, None);
    world.engine.undo(&clone, 1).await.unwrap();
    at("the return of a session", &clone).await;
    let (live, _) = world.open(&fork).await;
    live.run("go on").await;
    at("a turn of another session", &fork).await;
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_published_follows_and_is_logged() {
    let mut world = World::with((0..4).map(|n| say(&format!("answer {n}"))));
    let watched = ForeignHeads::of(&world);
    let heads = vec!["PI_HEAD".into(), "bad/name".into(), RefName::NEWEST.into()];
    world.engine = world.engine.with_published_heads(&PublishSettings { heads });
    let live = world.create().await;
    live.run("one").await;
    let stands = |live: &LiveSession| Some(head(live).to_string());
    assert_eq!(watched.neighbour.head("PI_HEAD"), stands(&live));
    assert_eq!(watched.neighbour.head("terminal_head").as_ref(), Some(&watched.stand[1].1));
    assert_eq!(watched.neighbour.head("bad/name"), None);
    live.run("two").await;
    assert_eq!(watched.neighbour.head("PI_HEAD"), stands(&live));
    let acts = watched.neighbour.acts();
    let switches: Vec<_> = acts.iter().filter(|act| act.kind == "SESSION_SWITCH").collect();
    let [switch] = switches[..] else { panic!("{acts:?}") };
    assert_eq!(switch.from.as_ref(), Some(&watched.stand[0].1), "from where that program stood");
    let (id, last) = (live.id(), head(&live));
    live.finish().await;
    world.engine.undo(&id, 1).await.unwrap();
    let stood = world.store.head(&RefName::session(&id)).await.unwrap().map(|node| node.to_string());
    assert_ne!(stood, Some(last.to_string()));
    assert_eq!(watched.neighbour.head("PI_HEAD"), stood);
    // A session that ends takes no head of another program with it.
    world.engine.remove(&id).await.unwrap();
    assert_eq!(watched.neighbour.head("PI_HEAD"), stood);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_on_one_file_never_fail_for_the_newest_head() {
    let world = World::with((0..40).map(|n| say(&format!("answer {n}"))));
    let store = open_store(world.dir.path());
    let other = engine_over(store, world.dir.path());
    let (one, two) =
        (world.create().await, LiveSession::of(other.create(world.options()).await.unwrap()).await);
    let turns = async |live: &LiveSession| {
        for n in 0..20 {
            assert_eq!(live.run(&format!("question {n}")).await, Outcome::Done);
        }
    };
    tokio::join!(turns(&one), turns(&two));
    let stands = newest(&world).await.unwrap();
    assert!([head(&one), head(&two)].contains(&stands));
    for live in [one, two] {
        assert_eq!(world.store.lineage(head(&live), LineageEnd::Root).await.unwrap().len(), 41);
        live.finish().await;
    }
}

/// What the other program reads of a session of ours: every entry has an id, and names a parent that is there or none.
pub(crate) fn listed(world: &World, node: NodeId) -> Vec<serde_json::Value> {
    let entries = Neighbour::open(&file(world)).entries(&node.to_string());
    let mut ids: Vec<&str> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let parent = match at {
            0 => serde_json::Value::Null,
            _ => ids[at - 1].into(),
        };
        assert_eq!(entry["parentId"], parent, "{at}: {entry}");
        let id = entry["id"].as_str().unwrap_or_else(|| panic!("{at}: {entry}"));
        assert!(!ids.contains(&id), "{id} twice");
        ids.push(id);
    }
    assert_eq!(path_of(&entries), entries, "all of it is one path");
    entries
}

fn kinds(entries: &[serde_json::Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_is_read_by_other_programs() {
    let mut replies: Vec<_> = (0..3).map(|n| say(&long(&format!("answer-{n}")))).collect();
    replies.push(say("## Goal\nThe first summary."));
    replies.extend((3..6).map(|n| say(&long(&format!("answer-{n}")))));
    replies.push(say("## Goal\nThe second summary."));
    replies.push(say("after"));
    let world = World::with(replies);
    let mut options = compacting(&world);
    options.compaction.keep_recent_tokens = 800;
    let live = world.create_with(options.clone()).await;
    for n in 0..3 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    let before = head(&live);
    let asked = |live: &LiveSession| live.session.view().head;
    live.session.compact(None).await.unwrap();
    live.settled(4).await;
    let first = asked(&live).unwrap();

    // One node: what they know, then our part.
    let nodes = world.store.lineage(first, LineageEnd::Count(1)).await.unwrap();
    let blobs = world.store.blobs(&nodes[0].record.parts).await.unwrap();
    let types: Vec<String> = blobs.into_iter().map(|blob| blob.unwrap().kind).collect();
    assert_eq!(
        (nodes[0].record.role.as_str(), &types[..]),
        ("pi_internal", &["pi_meta".into(), "quipu".into()][..])
    );
    assert_eq!(nodes[0].record.parent, Some(before));
    // Nobody reads further back than to it.
    let nearest = world.store.lineage(first, LineageEnd::Checkpoint).await.unwrap();
    assert_eq!(nearest.iter().map(|node| node.id).collect::<Vec<_>>(), [first]);
    let entries = listed(&world, first);
    let last = entries.last().unwrap();
    assert_eq!(last["id"], serde_json::json!(nodes[0].record.external_id));
    assert_eq!((&last["type"], &last["fromHook"]), (&"compaction".into(), &serde_json::Value::Null));
    assert!(last["tokensBefore"].as_u64().unwrap() > 1_000, "{last}");

    // The summary, then what was kept, and nothing of what was before.
    let shown = context_of(&entries);
    assert!(shown[0].starts_with("compactionSummary: ## Goal\nThe first summary."), "{shown:?}");
    let kept: Vec<&str> = shown[1..].iter().map(|text| text.split_once(" x").unwrap().0).collect();
    assert_eq!(kept, ["user: question-2", "assistant: answer-2"]);

    // Another one goes on from that, and a message follows it.
    for n in 3..6 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    live.session.compact(None).await.unwrap();
    live.settled(8).await;
    let second = asked(&live).unwrap();
    live.run("and now").await;
    let shown = context_of(&listed(&world, head(&live)));
    assert!(shown[0].starts_with("compactionSummary: ## Goal\nThe second summary."), "{shown:?}");
    let kept: Vec<&str> =
        shown[1..].iter().map(|text| text.split_once(" x").map_or(text.as_str(), |(word, _)| word)).collect();
    assert_eq!(kept, ["user: question-5", "assistant: answer-5", "user: and now", "assistant: after"]);
    // Ours is the same, and so is it after the session is opened again.
    let sent = world.fake.bodies().last().unwrap().clone();
    let texts: Vec<String> = crate::support::messages_of(&sent).iter().map(crate::support::text_of).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(texts[0].contains("The second summary.") && texts[1].starts_with("question-5"), "{texts:?}");
    let id = live.id();
    live.finish().await;
    let world = world.reopen();
    world.fake.push([say("on")]);
    let live = LiveSession::of(
        world
            .engine
            .open(&id, SessionOptions { provider: world.fake.clone(), ..options })
            .await
            .unwrap()
            .session,
    )
    .await;
    live.run("once more").await;
    let again = world.fake.bodies().last().unwrap().clone();
    let again: Vec<String> =
        crate::support::messages_of(&again).iter().map(crate::support::text_of).collect();
    assert_eq!(again[..4], texts, "resumed, the same is sent");
    live.finish().await;

    // A fork below a compaction, and what an undone one leaves.
    let fork = world.engine.fork_from(second, None).await.unwrap();
    let shown = context_of(&listed(&world, fork.base));
    assert!(
        shown[0].starts_with("compactionSummary: ## Goal\nThe second summary.") && shown.len() == 3,
        "{shown:?}"
    );
    world.engine.remove(&fork.session).await.unwrap();
    world.engine.jump(second, None).await.unwrap();
    let (stands, _) = world.engine.undo_compaction(&id).await.unwrap();
    let shown = context_of(&listed(&world, stands));
    assert!(shown[0].starts_with("compactionSummary: ## Goal\nThe first summary."), "{shown:?}");
    assert_eq!(world.store.check().await.unwrap().problems, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_entry_of_a_session_has_a_parent_that_is_listed() {
    let world = World::with((0..8).map(|n| say(&format!("answer {n}"))));
    let live = world.create().await;
    live.run("one").await;
    let first = head(&live);
    let entries = listed(&world, first);
    assert_eq!(kinds(&entries), ["model_change", "message", "message"]);
    assert_eq!((&entries[0]["provider"], &entries[0]["modelId"]), (&"test".into(), &"test-model".into()));
    let id = live.id();
    live.finish().await;
    // Names and labels, another model, a note to itself, a fork, a merge.
    world.engine.rename(&id, "a name").await.unwrap();
    world.engine.label(first, "a label").await.unwrap();
    let stands = world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    let entries = listed(&world, stands);
    assert_eq!(kinds(&entries)[3..], ["session_info", "label"]);
    assert_eq!((&entries[3]["name"], &entries[4]["label"]), (&"a name".into(), &"a label".into()));
    let rows = world.store.sessions(quipu::store::SessionQuery::default()).await.unwrap();
    assert_eq!(rows[0].called, "a name", "ours is what it was");
    let system = Some("You are tested again.".to_owned());
    let options = SessionOptions { system, ..world.options() };
    let live = LiveSession::of(world.engine.open(&id, options).await.unwrap().session).await;
    live.run("two").await;
    let stands = head(&live);
    assert_eq!(kinds(&listed(&world, stands))[5..], ["model_change", "message", "message"]);
    live.finish().await;
    world.engine.tobe(first, "Begin again.").await.unwrap();
    let jumped = world.engine.jump(first, Some("here")).await.unwrap();
    assert_eq!(kinds(&listed(&world, jumped.head))[3..], ["label"]);
    let fork = world.engine.fork_from(stands, None).await.unwrap();
    let merged = world.engine.merge(first, &fork.session, "Nothing new.", None).await;
    assert!(merged.is_err(), "{merged:?}");
    let (live, _) = world.open(&fork.session).await;
    live.run("three").await;
    let entries = listed(&world, head(&live));
    assert_eq!(context_of(&entries).len(), 6, "all that was said, by one path");
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_below_the_nodes_of_others_names_what_they_list() {
    let world = World::with((0..4).map(|n| say(&format!("answer {n}"))));
    let mut neighbour = Neighbour::open(&file(&world));
    neighbour.say("user", "theirs");
    let said = neighbour.say("assistant", "their answer");
    // Without an id of its own, it is listed by its hash.
    let bare = neighbour.put(Some(said.clone()), "user", &[("text", "bare".into())], None, 1_700_000_900_000);
    for (parent, id) in [(&said, None), (&bare, Some(bare[..8].to_owned()))] {
        let live = world.engine.fork(parent.parse().unwrap(), world.options()).await.unwrap().session;
        let live = LiveSession::of(live).await;
        live.run("ours").await;
        let entries = Neighbour::open(&file(&world)).entries(&head(&live).to_string());
        let begins = entries.iter().position(|entry| entry["type"] == "model_change").unwrap();
        assert_eq!(entries[begins]["parentId"], entries[begins - 1]["id"]);
        if let Some(id) = id {
            assert_eq!(entries[begins]["parentId"], serde_json::json!(id));
        }
        assert_eq!(entries[begins + 1]["parentId"], entries[begins]["id"]);
        live.finish().await;
    }
}

/// A store in which an older version wrote the compaction: a message of its own role, and no ids in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_of_the_older_form_means_the_same() {
    let mut bodies = Vec::new();
    for is_old in [false, true] {
        let mut replies: Vec<_> = (0..3).map(|n| say(&long(&format!("answer-{n}")))).collect();
        replies.extend([say("## Goal\nA summary."), say("after")]);
        let world = World::with(replies);
        let live = world.create_with(compacting(&world)).await;
        for n in 0..3 {
            live.run(&long(&format!("question-{n}"))).await;
        }
        live.session.compact(None).await.unwrap();
        live.settled(4).await;
        let (id, stands) = (live.id(), head(&live));
        live.finish().await;
        if is_old {
            let nodes = world.store.lineage(stands, LineageEnd::Count(1)).await.unwrap();
            let decoded = quipu::store::decode_nodes(&*world.store, &nodes).await.unwrap().remove(0);
            let encoded = quipu_transcript::encode(&decoded.entry, &decoded.step);
            assert_eq!(encoded.role, "compactionSummary");
            let parts = encoded.blobs.iter().map(|blob| blob.id).collect();
            let record = NodeRecord { role: encoded.role, parts, ..nodes[0].record.clone() };
            let node = Node::new(record, None, None);
            let moves = vec![RefMove::swap(RefName::session(&id), Some(stands), node.id, "test")];
            let commit = Commit { blobs: encoded.blobs, nodes: vec![node], moves, ..Commit::default() };
            world.store.commit(commit).await.unwrap();
        }
        let live = LiveSession::of(world.engine.open(&id, compacting(&world)).await.unwrap().session).await;
        live.run("and now").await;
        bodies.push(world.fake.bodies().last().unwrap().clone());
        live.finish().await;
    }
    let texts = |body: &[u8]| -> Vec<String> {
        crate::support::messages_of(body).iter().map(crate::support::text_of).collect()
    };
    assert_eq!(texts(&bodies[0]), texts(&bodies[1]));
    assert!(texts(&bodies[1])[0].contains("A summary."));
}
