//! Sessions as trees: random ones, and ones of every shape that is large.

use quipu_store::ReadModel as _;
use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use quipu::history::{SessionTree, TreeItem, TreeQuery, session_tree};
use quipu::protocol::{Entry, Epoch, Json, Message, NodeId, SessionId, SessionStart, StepInfo};
use quipu::store::{Commit, LineageEnd, RefMove, RefName, SessionQuery, SessionRow, SqliteStore, Store};
use quipu_dag::{Node, NodeRecord};

use crate::support::{engine_over, open_store, scratch};

const ID: &str = "0199aaaa-0000-7000-8000-000000000001";
/// Nodes of one commit.
const TOGETHER: usize = 2_000;

/// Puts a session into a store: for each node the place of its parent among those before it, 0 being the session's own.
/// The head is the node at `head`. Gives the nodes by place.
async fn put(store: &SqliteStore, parents: impl Iterator<Item = usize>, head: usize) -> Vec<NodeId> {
    let start = SessionStart {
        session: ID.into(),
        cwd: "/nowhere".into(),
        agent: quipu::AGENT.into(),
        parent_session: None,
        epoch: Epoch::default(),
    };
    let mut ids: Vec<NodeId> = Vec::new();
    let mut batch = Commit::default();
    let says = |at: usize, parent: Option<NodeId>, entry: &Entry| {
        let encoded = quipu_transcript::encode(entry, &StepInfo::default());
        let record = NodeRecord {
            parent,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: i64::try_from(at).unwrap() + 1,
            external_id: Some(format!("e{at}")),
            system_prompt: None,
        };
        (Node::new(record, None, None), encoded.blobs)
    };
    let add = |ids: &mut Vec<NodeId>, batch: &mut Commit, parent: Option<usize>, entry: &Entry| {
        let (node, blobs) = says(ids.len(), parent.map(|at| ids[at]), entry);
        ids.push(node.id);
        batch.nodes.push(node);
        batch.blobs.extend(blobs);
    };
    add(&mut ids, &mut batch, None, &Entry::Session(start));
    for parent in parents {
        let entry = Entry::Message(Message::user(format!("say {}", ids.len() % 10), 0));
        add(&mut ids, &mut batch, Some(parent), &entry);
        if batch.nodes.len() >= TOGETHER {
            store.commit(std::mem::take(&mut batch)).await.unwrap();
        }
    }
    batch.moves.push(RefMove::swap(RefName::session(&SessionId::from(ID)), None, ids[head], "test"));
    store.commit(batch).await.unwrap();
    ids
}

async fn row(store: &SqliteStore, id: &str) -> SessionRow {
    let query = SessionQuery { id: Some(id.into()), ..SessionQuery::default() };
    store.sessions(query).await.unwrap().remove(0)
}

async fn tree(store: &SqliteStore, query: &TreeQuery) -> SessionTree {
    session_tree(store, &row(store, ID).await, query).await.unwrap()
}

/// What every drawing keeps to; the nodes that it shows and those that it only counts.
async fn check(
    store: &SqliteStore,
    tree: &SessionTree,
    ids: &[NodeId],
) -> (HashSet<NodeId>, HashSet<NodeId>) {
    let nodes = store.nodes(ids).await.unwrap();
    let parents: HashMap<NodeId, Option<NodeId>> =
        nodes.into_iter().flatten().map(|node| (node.id, node.record.parent)).collect();
    let (mut shown, mut counted) = (HashSet::new(), HashSet::new());
    // The node that was last on each level.
    let mut last: Vec<NodeId> = Vec::new();
    for line in &tree.lines {
        let nodes = match &line.item {
            TreeItem::Node(id) => {
                assert!(shown.insert(*id), "twice");
                vec![*id]
            }
            TreeItem::Folded { below, depth, count } => {
                let first = store.ancestor(*below, u32::try_from(*depth).unwrap()).await.unwrap().unwrap();
                let nodes = store.lineage(*below, LineageEnd::Node(first)).await.unwrap();
                let nodes: Vec<NodeId> = nodes.iter().map(|node| node.id).filter(|id| id != below).collect();
                assert_eq!(nodes.len() as u64, *count);
                assert!(nodes.iter().all(|id| counted.insert(*id)), "twice");
                nodes
            }
            TreeItem::Session(_) => continue,
        };
        // What a line goes on from is the last thing on its level; where a branch starts, on the level before.
        let from = match (line.level, line.starts) {
            (0, _) => last.first(),
            (level, true) => last.get(level - 1),
            (level, false) => last.get(level),
        };
        assert_eq!(parents[&nodes[0]], from.copied(), "{line:?}");
        last.truncate(line.level);
        assert_eq!(last.len(), line.level, "a level is left out");
        last.extend(nodes.last());
    }
    assert!(shown.is_disjoint(&counted));
    assert_eq!(last.first(), Some(&tree.head), "the head is the end of the first level");
    (shown, counted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_node_has_its_place_in_a_tree(
        seeds in prop::collection::vec((any::<u32>(), 0..4_u8), 1..500),
        head in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = scratch();
            let store = open_store(dir.path());
            // Mostly the one before, now and then any: chains with branches.
            let parents = seeds.iter().enumerate().map(|(at, (seed, kind))| match kind {
                0 => usize::try_from(*seed).unwrap() % (at + 1),
                1 => at.saturating_sub(usize::try_from(*seed).unwrap() % 3),
                _ => at,
            });
            let ids = put(&store, parents, head.index(seeds.len()) + 1).await;
            for query in [
                TreeQuery { whole: true, recent: 0, most: usize::MAX - 1 },
                TreeQuery { whole: false, recent: 10, most: 1_000 },
            ] {
                let tree = tree(&store, &query).await;
                let (shown, counted) = check(&store, &tree, &ids).await;
                assert_eq!(shown.len() + counted.len(), ids.len());
                assert!(!tree.more);
            }
            // With fewer branches less is drawn, and it is told.
            let few = tree(&store, &TreeQuery { whole: false, recent: 3, most: 2 }).await;
            let (shown, counted) = check(&store, &few, &ids).await;
            assert_eq!(few.more, shown.len() + counted.len() < ids.len());
        });
    }
}

/// What a session can look like.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Each node follows the one before.
    Chain,
    /// All follow the same one.
    Star,
    /// A chain with a node beside each of its own.
    Comb,
}

impl Shape {
    fn parent(self, at: usize) -> usize {
        match self {
            Self::Chain => at,
            Self::Star => at.min(1),
            Self::Comb if at.is_multiple_of(2) => at,
            Self::Comb => at - 1,
        }
    }
}

/// What a large session costs to draw must not depend on its size; with `QUIPU_FULL` it has a million nodes.
#[tokio::test]
async fn a_large_session_is_drawn_forked_and_labelled_as_a_small_one() {
    let large = if std::env::var_os("QUIPU_FULL").is_some() { 1_000_000 } else { 3_000 };
    for shape in [Shape::Chain, Shape::Star, Shape::Comb] {
        let mut drawn = Vec::new();
        for count in [1_000, large] {
            let dir = scratch();
            let store = open_store(dir.path());
            let ids = put(&store, (0..count).map(|at| shape.parent(at)), count).await;
            let lines = tree(&store, &TreeQuery::default()).await;
            assert_eq!(lines.more, !matches!(shape, Shape::Chain), "{shape:?}");
            drawn.push(lines.lines.len());

            let engine = engine_over(store.clone(), dir.path());
            let middle = ids[count / 2];
            let fork = engine.fork_from(middle, None).await.unwrap();
            assert_eq!(fork.text.as_deref(), Some(&*format!("say {}", count / 2 % 10)));
            let clone = engine.clone_session(&ID.into()).await.unwrap();
            assert_eq!(clone.at, Some(ids[count]));
            engine.label(middle, "the middle").await.unwrap();
            engine.rename(&ID.into(), "a name").await.unwrap();
            let lines = tree(&store, &TreeQuery::default()).await;
            assert_eq!(lines.labels[&middle], "the middle");
            assert!(lines.lines.iter().any(|line| line.item == TreeItem::Node(middle)), "{shape:?}");
            let forks = lines.lines.iter().filter(|line| matches!(line.item, TreeItem::Session(_))).count();
            assert_eq!((forks, lines.head), (2, ids[count]), "{shape:?}");
            engine.remove(&ID.into()).await.unwrap();
            assert_eq!(tree(&store, &TreeQuery::default()).await.head, ids[count]);
        }
        assert_eq!(drawn[0], drawn[1], "{shape:?}");
    }
}

#[tokio::test]
async fn labels_that_say_nothing_of_a_tree_do_not_hide_it() {
    let dir = scratch();
    let store = open_store(dir.path());
    let ids = put(&store, 0..300, 300).await;
    let engine = engine_over(store.clone(), dir.path());
    // Each becomes a node behind the head, and none of them is the head that is drawn.
    for text in 0..40 {
        engine.label(ids[100], &format!("label {text}")).await.unwrap();
    }
    let tree = tree(&store, &TreeQuery::default()).await;
    assert_eq!((tree.head, tree.labels.len()), (ids[300], 1));
    assert_eq!(tree.labels[&ids[100]], "label 39");
    assert_eq!(tree.lines.last().unwrap().item, TreeItem::Node(ids[300]));
    let note = Entry::Meta(Json::from(&serde_json::json!({ "type": "label", "targetId": "x" })));
    let other = Entry::Meta(Json::from(&serde_json::json!({ "type": "custom", "data": "label \"label\"" })));
    assert!(quipu::history::is_note(&note) && !quipu::history::is_note(&other));
}
