//! The store against a model of it: any sequence of writes, branches, crashes and openings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use quipu_protocol::NodeId;
use quipu_store::{
    Commit, LineageEnd, ReadModel as _, RefExpectation, RefMove, RefName, SqliteStore, Store, StoreError,
    Upkeep,
};

use crate::support::*;

/// One thing that happens. Numbers choose among what exists.
#[derive(Debug, Clone)]
enum StoreEvent {
    /// A node below another one; the ref moves if it stands there.
    Put { parent: usize, name: usize },
    /// Several nodes in a row in one commit.
    Chain { parent: usize, length: usize },
    /// Several such commits, gathered; a ref goes to the end of each.
    Gathered { parent: usize, lengths: Vec<usize>, name: usize },
    /// A move with a wrong expectation, together with a node.
    Refused { name: usize },
    /// A ref goes to any node.
    Branch { name: usize, to: usize },
    /// A ref is removed.
    Remove { name: usize },
    /// The process dies; the file is opened again.
    Crash,
    /// The store is closed and opened again.
    Reopen,
    /// Derived tables are made anew.
    Rebuild,
}

fn happening() -> impl Strategy<Value = StoreEvent> {
    prop_oneof![
        8 => (any::<usize>(), 0..4_usize).prop_map(|(parent, name)| StoreEvent::Put { parent, name }),
        2 => (any::<usize>(), 1..12_usize).prop_map(|(parent, length)| StoreEvent::Chain { parent, length }),
        2 => (any::<usize>(), prop::collection::vec(1..12_usize, 1..5), 0..4_usize)
            .prop_map(|(parent, lengths, name)| StoreEvent::Gathered { parent, lengths, name }),
        2 => (0..4_usize).prop_map(|name| StoreEvent::Refused { name }),
        2 => (0..4_usize, any::<usize>()).prop_map(|(name, to)| StoreEvent::Branch { name, to }),
        1 => (0..4_usize).prop_map(|name| StoreEvent::Remove { name }),
        1 => Just(StoreEvent::Crash),
        1 => Just(StoreEvent::Reopen),
        1 => Just(StoreEvent::Rebuild),
    ]
}

/// What the store should hold.
#[derive(Default)]
struct Model {
    /// Each node with its parent, in the order of writing.
    nodes: Vec<(NodeId, Option<NodeId>)>,
    refs: BTreeMap<String, NodeId>,
    clock: i64,
}

impl Model {
    fn choose(&self, number: usize) -> Option<NodeId> {
        // One more than there are: a new root.
        self.nodes.get(number % (self.nodes.len() + 1)).map(|(id, _)| *id)
    }

    fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.nodes.iter().find(|(node, _)| *node == id).and_then(|(_, parent)| *parent)
    }

    /// Root first.
    fn lineage(&self, id: NodeId) -> Vec<NodeId> {
        let mut lineage = vec![id];
        while let Some(parent) = self.parent(lineage[lineage.len() - 1]) {
            lineage.push(parent);
        }
        lineage.reverse();
        lineage
    }

    fn write(&mut self, parent: Option<NodeId>) -> (NodeId, Commit) {
        self.clock += 1;
        text_commit(parent, &format!("node {}", self.clock), T + self.clock)
    }
}

fn name(number: usize) -> RefName {
    RefName::from(format!("refs/{number}"))
}

/// The files as a process that dies leaves them. The log first: what a checkpoint moves meanwhile is in it still.
fn crash(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir_all(to).unwrap();
    let target = to.join("quipu.db");
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    if log(from).exists() {
        fs::copy(log(from), log(&target)).unwrap();
    }
    fs::copy(from, &target).unwrap();
    target
}

async fn run(happenings: &[StoreEvent]) {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().join("quipu.db");
    let mut store = open(&path);
    let mut model = Model::default();
    for (at, happening) in happenings.iter().enumerate() {
        match happening {
            StoreEvent::Put { parent, name: number } => {
                let parent = model.choose(*parent);
                let (id, mut commit) = model.write(parent);
                let stands = model.refs.get(name(*number).as_str()).copied();
                commit.moves.push(RefMove::swap(name(*number), parent, id, "put"));
                let result = store.commit(commit).await;
                if stands == parent {
                    result.unwrap();
                    model.nodes.push((id, parent));
                    model.refs.insert(name(*number).to_string(), id);
                } else {
                    assert_eq!(result, Err(StoreError::Conflict { name: name(*number), found: stands }));
                }
            }
            StoreEvent::Chain { parent, length } => {
                let mut parent = model.choose(*parent);
                let mut whole = Commit::default();
                for _ in 0..*length {
                    let (id, commit) = model.write(parent);
                    whole.blobs.extend(commit.blobs);
                    whole.nodes.extend(commit.nodes);
                    model.nodes.push((id, parent));
                    parent = Some(id);
                }
                store.commit(whole).await.unwrap();
            }
            StoreEvent::Gathered { parent, lengths, name: number } => {
                let mut parent = model.choose(*parent);
                let mut bulk = crate::bulk::gather(dir.path());
                for length in lengths {
                    let mut whole = Commit::default();
                    for _ in 0..*length {
                        let (id, commit) = model.write(parent);
                        whole.blobs.extend(commit.blobs);
                        whole.nodes.extend(commit.nodes);
                        model.nodes.push((id, parent));
                        parent = Some(id);
                        whole.moves = vec![RefMove::publish(name(*number), id, "gathered")];
                        model.refs.insert(name(*number).to_string(), id);
                    }
                    bulk.add(whole).unwrap();
                }
                crate::bulk::write(&store, bulk.end()).await.unwrap();
            }
            StoreEvent::Refused { name: number } => {
                let (id, mut commit) = model.write(None);
                commit.moves.push(RefMove::swap(name(*number), Some(NodeId([0; 32])), id, "refused"));
                assert!(matches!(store.commit(commit).await, Err(StoreError::Conflict { .. })));
                assert_eq!(store.nodes(&[id]).await.unwrap(), [None]);
            }
            StoreEvent::Branch { name: number, to } => {
                let Some(to) = model.choose(*to) else { continue };
                let moves = vec![RefMove::publish(name(*number), to, "branch")];
                store.commit(Commit { moves, ..Commit::default() }).await.unwrap();
                model.refs.insert(name(*number).to_string(), to);
            }
            StoreEvent::Remove { name: number } => {
                let moved = RefMove {
                    name: name(*number),
                    expect: RefExpectation::Any,
                    to: None,
                    fence: None,
                    why: String::new(),
                };
                store.commit(Commit { moves: vec![moved], ..Commit::default() }).await.unwrap();
                model.refs.remove(name(*number).as_str());
            }
            StoreEvent::Crash => {
                path = crash(&path, &dir.path().join(at.to_string()));
                drop(std::mem::replace(&mut store, open(&path)));
            }
            StoreEvent::Reopen => {
                drop(store);
                store = open(&path);
            }
            StoreEvent::Rebuild => store.rebuild().await.unwrap(),
        }
    }
    compare(&store, &model).await;
}

async fn compare(store: &SqliteStore, model: &Model) {
    let heads = store.heads("").await.unwrap();
    let heads: BTreeMap<String, NodeId> =
        heads.into_iter().map(|head| (head.name.to_string(), head.node)).collect();
    assert_eq!(heads, model.refs);
    for (id, parent) in &model.nodes {
        let expect = model.lineage(*id);
        let found = store.lineage(*id, LineageEnd::Root).await.unwrap();
        assert_eq!(found.iter().map(|node| node.id).collect::<Vec<_>>(), expect);
        assert_eq!(found[found.len() - 1].record.parent, *parent);
        for (depth, ancestor) in expect.iter().enumerate() {
            let depth = u32::try_from(depth).unwrap();
            assert_eq!(store.ancestor(*id, depth).await.unwrap(), Some(*ancestor));
        }
        let edges = store.children(&[*id]).await.unwrap();
        let children: Vec<NodeId> =
            model.nodes.iter().filter(|(_, parent)| *parent == Some(*id)).map(|(child, _)| *child).collect();
        assert_eq!(edges.iter().map(|edge| edge.child).collect::<Vec<_>>(), children);
    }
    // Each with one other, so that the work stays linear.
    for (a, b) in model.nodes.iter().zip(model.nodes.iter().rev()) {
        let (left, right) = (model.lineage(a.0), model.lineage(b.0));
        let shared = left.iter().zip(&right).take_while(|(a, b)| a == b).last().map(|(id, _)| *id);
        assert_eq!(store.fork_point(a.0, b.0).await.unwrap(), shared);
    }
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.nodes, model.nodes.len() as u64, "nothing of refused commits is left");
}

#[test]
fn delta_is_what_differs() {
    let check = |base: &str, bytes: &str, prefix, middle: &str, suffix| {
        let found = quipu_store::delta(base.as_bytes(), bytes.as_bytes());
        assert_eq!((found.prefix, found.middle, found.suffix), (prefix, middle.as_bytes(), suffix));
    };
    check("", "", 0, "", 0);
    check("abc", "abc", 3, "", 0);
    check("abc", "", 0, "", 0);
    check("", "abc", 0, "abc", 0);
    check("ac", "abc", 1, "b", 1);
    // What both begin with is not counted again at the end.
    check("aaa", "aaaaa", 3, "aa", 0);
    check("aaaaa", "aaa", 3, "", 0);
    check("x-y", "x=y", 1, "=", 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
    ) })]

    #[test]
    fn long_bytes_are_compared_like_short_ones(
        same in prop::collection::vec(0_u8..2, 0..1_500),
        old in prop::collection::vec(0_u8..2, 0..600),
        new in prop::collection::vec(0_u8..2, 0..600),
        at in any::<prop::sample::Index>(),
    ) {
        let (start, end) = same.split_at(at.index(same.len() + 1));
        let (base, bytes) = ([start, &old, end].concat(), [start, &new, end].concat());
        let prefix = base.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
        let ends = base[prefix..].iter().rev().zip(bytes[prefix..].iter().rev());
        let suffix = ends.take_while(|(a, b)| a == b).count();
        let found = quipu_store::delta(&base, &bytes);
        let middle = &bytes[prefix..bytes.len() - suffix];
        prop_assert_eq!((found.prefix, found.middle, found.suffix), (prefix, middle, suffix));
    }

    #[test]
    fn store_agrees_with_the_model(happenings in prop::collection::vec(happening(), 1..40)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(&happenings));
    }
}
