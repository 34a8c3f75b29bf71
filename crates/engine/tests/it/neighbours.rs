//! Other programs on the same store: whose head is whose, and what each sees of the other.

use std::collections::HashSet;
use std::path::PathBuf;

use quipu::protocol::{NodeId, Outcome, SessionId};
use quipu::store::{RefName, Store, Until};
use quipu::{CompactionSettings, PublishSettings, SessionOptions};
use quipu_testkit::Neighbour;

use crate::compact::long;
use crate::support::{Live, World, engine_over, open_store, say};

pub(crate) fn file(world: &World) -> PathBuf {
    world.dir.path().join("quipu.db")
}

fn head(live: &Live) -> NodeId {
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

    let ours = world.store.lineage(head(&live), Until::Root).await.unwrap();
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
struct Watched {
    neighbour: Neighbour,
    stand: [(&'static str, String); 2],
}

impl Watched {
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
    let compaction = CompactionSettings { enabled: true, reserve_tokens: 100, keep_recent_tokens: 300 };
    SessionOptions { compaction, ..world.options() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_move_of_a_session_touches_the_heads_of_others() {
    let world = World::with((0..9).map(|n| say(&long(&format!("answer-{n}")))));
    let watched = Watched::of(&world);
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
    let watched = Watched::of(&world);
    let heads = vec!["PI_HEAD".into(), "bad/name".into(), RefName::NEWEST.into()];
    world.engine = world.engine.with_published_heads(&PublishSettings { heads });
    let live = world.create().await;
    live.run("one").await;
    let stands = |live: &Live| Some(head(live).to_string());
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
    let (one, two) = (world.create().await, Live::of(other.create(world.options()).await.unwrap()).await);
    let turns = async |live: &Live| {
        for n in 0..20 {
            assert_eq!(live.run(&format!("question {n}")).await, Outcome::Done);
        }
    };
    tokio::join!(turns(&one), turns(&two));
    let stands = newest(&world).await.unwrap();
    assert!([head(&one), head(&two)].contains(&stands));
    for live in [one, two] {
        assert_eq!(world.store.lineage(head(&live), Until::Root).await.unwrap().len(), 41);
        live.finish().await;
    }
}
