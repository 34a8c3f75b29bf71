//! What every store must do, written against the trait alone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quipu_protocol::{
    AssistantMessage, BlobId, ChunkId, Content, Entry, Json, Message, NodeId, RunId, SessionId,
};
use quipu_store::{
    Action, ActionQuery, Commit, Fence, Graph, InboxItem, LineageEnd, Local as _, NewChunk, Op, OpenJump,
    Owner, Piece, ReadModel as _, ReadParts, RefExpectation, RefMove, RefName, ReflogQuery, Reservation,
    ReserveId, ReserveRequest, Resolution, Scope, Seq, SeriesChunk, SessionQuery, Spelling, SpellingKind,
    SqliteStore, Step, StepCall, StepState, Store, StoreError, Upkeep, decode_all, decode_nodes,
};

use quipu_transcript::Lookup as _;

use crate::memory::MemoryStore;
use crate::retain::image;
use crate::support::*;

#[tokio::test]
async fn in_memory() {
    let store = SqliteStore::in_memory().unwrap();
    conform(&store).await;
    crate::jobs::conform(&store).await;
    answers(&store).await;
    upkeep(&store).await;
}

#[tokio::test]
async fn in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    conform(&store).await;
    crate::jobs::conform(&store).await;
    answers(&store).await;
    upkeep(&store).await;
}

/// The laws of the core hold for another implementation as well.
#[tokio::test]
async fn in_maps() {
    let store = MemoryStore::default();
    conform(&store).await;
    crate::jobs::conform(&store).await;
}

/// Every law of the core in turn, on one store.
async fn conform(store: &dyn Store) {
    objects(store).await;
    many_blobs(store).await;
    refs(store).await;
    refused_commits_leave_nothing(store).await;
    many_at_once(store).await;
    lineages(store).await;
    action_log(store).await;
    open_ends(store).await;
    leases(store).await;
    reservations(store).await;
    chunks(store).await;
    differences(store).await;
    entries_come_back(store).await;
    limits(store).await;
    changes(store).await;
}

/// Every law of the read model in turn, on the same store.
async fn answers(store: &dyn Graph) {
    walks(store).await;
    walks_side_by_side(store).await;
    in_order_of_writing(store).await;
    names(store).await;
    session_rows(store).await;
    moves_of_refs(store).await;
    meanings(store).await;
}

async fn upkeep(store: &(impl Graph + Upkeep)) {
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, []);
    assert!(report.nodes > 100 && report.chunks > 40 && report.sessions == 3, "{report:?}");
    let before = store.sessions(SessionQuery::default()).await.unwrap();
    store.rebuild().await.unwrap();
    assert_eq!(store.sessions(SessionQuery::default()).await.unwrap(), before);
    assert_eq!(store.check().await.unwrap().problems, []);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    assert!(matches!(store.backup(&copy).await, Err(StoreError::Io { .. })), "a backup overwrites nothing");
    let copy = open(&copy);
    assert_eq!(copy.sessions(SessionQuery::default()).await.unwrap(), before);
    assert_eq!(copy.check().await.unwrap().problems, []);
}

/// All that is read by place, in pieces of at most so many bytes of parts.
async fn by_place(store: &dyn Graph, seqs: &[Seq], parts: ReadParts, bytes: usize) -> Vec<NodeId> {
    let mut rest = seqs;
    let mut ids = Vec::new();
    while !rest.is_empty() {
        let Piece { read, nodes, objects } = store.written(rest, parts, bytes).await.unwrap();
        let read_parts: HashSet<_> = nodes.iter().flat_map(|written| &written.node.record.parts).collect();
        let sizes = read_parts.iter().filter_map(|part| Some(objects.blob(part)?.content.len()));
        let (total, largest) = (sizes.clone().sum::<usize>(), sizes.max().unwrap_or(0));
        // The first node comes whole.
        assert!(read > 0 && total <= bytes.saturating_add(3 * largest), "{read} {total}");
        for (written, seq) in nodes.iter().zip(rest) {
            assert_eq!(written.seq, *seq);
            let found = store.nodes(&[written.node.id]).await.unwrap();
            assert_eq!(found, [Some(written.node.clone())]);
            let all = &written.node.record.parts;
            let wanted = match parts {
                ReadParts::None => &all[all.len()..],
                ReadParts::Last => &all[all.len() - 1..],
                ReadParts::All => &all[..],
            };
            assert!(parts != ReadParts::None || read_parts.iter().all(|part| objects.blob(part).is_none()));
            for (part, blob) in wanted.iter().zip(store.blobs(wanted).await.unwrap()) {
                assert_eq!(objects.blob(part), blob.as_ref());
            }
            if parts == ReadParts::All
                && let Some(parent) = written.node.record.parent
            {
                let parent = store.nodes(&[parent]).await.unwrap().remove(0).unwrap();
                assert_eq!(written.follows, parent.record.external_id);
            }
            ids.push(written.node.id);
        }
        rest = &rest[read..];
    }
    ids
}

async fn in_order_of_writing(store: &dyn Graph) {
    let [root, other] = ["place", "elsewhere"].map(|name| text_commit(None, name, T));
    let (mut end, mut away) = (root.0, other.0);
    for (_, commit) in [root.clone(), other.clone()] {
        store.commit(commit).await.unwrap();
    }
    let (root, other) = (root.0, other.0);
    let (mut trunk, mut branch) = (Vec::new(), Vec::new());
    // A tree in turn with another one, and texts that were there before.
    for n in 0..60 {
        let answer = Message::Assistant(AssistantMessage {
            content: vec![Content::text(format!("place {n}")), Content::text(format!("again {}", n % 3))],
            ..AssistantMessage::default()
        });
        let (id, commit) = entry_commit(Some(end), &Entry::Message(answer), T + 7_000 + n);
        store.commit(commit).await.unwrap();
        (end, _) = (id, trunk.push(id));
        for _ in 0..if n % 20 == 0 { 30 } else { n % 3 } {
            let (id, commit) = text_commit(Some(away), &format!("elsewhere {n}"), T + n);
            store.commit(commit).await.unwrap();
            away = id;
        }
        if n > 30 {
            let from = branch.last().copied().unwrap_or(trunk[10]);
            let (id, commit) = entry_commit(Some(from), &user("again 1", T + n), T + 8_000 + n);
            store.commit(commit).await.unwrap();
            branch.push(id);
        }
    }
    let (leaf, middle) = (branch[branch.len() - 1], trunk[20]);
    let all = store.below(root, &[leaf, root, end, away, middle]).await.unwrap();
    assert!(all.is_sorted_by(|a, b| a < b));
    assert_eq!(store.below(root, &[away, root]).await.unwrap(), []);
    assert_eq!(store.below(leaf, &[end]).await.unwrap(), []);
    let missing = store.below(root, &[NodeId([7; 32])]).await;
    assert!(matches!(missing, Err(StoreError::Missing { .. })), "{missing:?}");
    let mut expect = trunk.clone();
    expect.extend(&branch);
    for parts in [ReadParts::All, ReadParts::Last, ReadParts::None] {
        for bytes in [usize::MAX, 900, 1] {
            let mut ids = by_place(store, &all, parts, bytes).await;
            let of_trunk = |id: &NodeId| trunk.contains(id);
            assert!(ids.iter().copied().filter(of_trunk).eq(trunk.iter().copied()));
            assert!(ids.iter().copied().filter(|id| !of_trunk(id)).eq(branch.iter().copied()));
            ids.sort_unstable();
            expect.sort_unstable();
            assert_eq!(ids, expect);
        }
    }
    let path = store.below(trunk[10], &[leaf]).await.unwrap();
    assert_eq!(by_place(store, &path, ReadParts::All, usize::MAX).await, branch);
    let back: Vec<Seq> = path.into_iter().rev().collect();
    let mut ids = by_place(store, &back, ReadParts::All, 900).await;
    ids.reverse();
    assert_eq!(ids, branch);
    assert_ne!(other, root);
}

async fn objects(store: &dyn Store) {
    let (node, blob) = text_node(None, "user", "objects \u{0}é😀", T);
    let mut full = node.clone();
    full.config = Some("{\"agent\":\"quipu\"}".to_owned());
    let commit = Commit { blobs: vec![blob.clone()], nodes: vec![full.clone()], ..Commit::default() };
    store.commit(commit.clone()).await.unwrap();
    // Again: the same objects are the same rows, and the first writer's stay.
    store.commit(Commit { nodes: vec![node.clone()], ..commit }).await.unwrap();
    let unknown = NodeId([7; 32]);
    assert_eq!(
        store.nodes(&[unknown, node.id, node.id]).await.unwrap(),
        [None, Some(full.clone()), Some(full)]
    );
    assert_eq!(store.blobs(&[blob.id, BlobId([7; 32])]).await.unwrap(), [Some(blob), None]);
    assert_eq!(store.nodes(&[]).await.unwrap(), []);
}

/// Many blobs come as they were asked for, wherever they lie, how often they are named, and whether they are there.
async fn many_blobs(store: &dyn Store) {
    let mut ids = Vec::new();
    for n in 0..100 {
        let (_, commit) = text_commit(None, &format!("blob {n}"), 1);
        ids.push(commit.blobs[0].id);
        store.commit(commit).await.unwrap();
    }
    let missing = BlobId([9; 32]);
    let scattered = (0..100).map(|n| ids[n * 37 % 100]).collect();
    let repeated = [&ids[..30], &[missing], &ids[10..20], &[missing], &ids[..1]].concat();
    let apart = ids.iter().step_by(25).copied().collect();
    for asked in [ids.clone(), ids.iter().rev().copied().collect(), scattered, repeated, apart] {
        let mut one_by_one = Vec::new();
        for id in &asked {
            one_by_one.extend(store.blobs(&[*id]).await.unwrap());
        }
        assert_eq!(store.blobs(&asked).await.unwrap(), one_by_one);
        let absent = asked.iter().filter(|id| **id == missing).count();
        assert_eq!(one_by_one.iter().flatten().count(), asked.len() - absent);
    }
}

async fn refs(store: &dyn Store) {
    let name = RefName::from("refs/one");
    assert_eq!(store.head(&name).await.unwrap(), None);
    let (a, mut commit) = text_commit(None, "ref a", T);
    commit.moves.push(RefMove::swap(name.clone(), None, a, "create"));
    store.commit(commit).await.unwrap();
    assert_eq!(store.head(&name).await.unwrap(), Some(a));

    let (b, mut commit) = text_commit(Some(a), "ref b", T + 1);
    commit.moves.push(RefMove::swap(name.clone(), None, b, "create twice"));
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert_eq!(error, StoreError::Conflict { name: name.clone(), found: Some(a) });
    commit.moves = vec![
        RefMove::swap(name.clone(), Some(a), b, "step"),
        RefMove::publish(RefName::PI_HEAD.into(), b, "publish"),
    ];
    store.commit(commit).await.unwrap();
    let heads = store.heads("refs/").await.unwrap();
    assert_eq!(
        heads.iter().map(|head| (head.name.as_str(), head.node)).collect::<Vec<_>>(),
        [("refs/one", b)]
    );
    assert_eq!(store.head(&RefName::PI_HEAD.into()).await.unwrap(), Some(b));
    // Nothing in a prefix has a meaning of its own.
    assert_eq!(store.heads("refs_").await.unwrap(), []);
    assert_eq!(store.heads("%").await.unwrap(), []);

    let moved = |expect, to| RefMove { name: name.clone(), expect, to, fence: None, why: String::new() };
    let remove = Commit { moves: vec![moved(RefExpectation::At(a), None)], ..Commit::default() };
    assert!(matches!(store.commit(remove).await, Err(StoreError::Conflict { .. })));
    let remove = Commit { moves: vec![moved(RefExpectation::At(b), None)], ..Commit::default() };
    store.commit(remove).await.unwrap();
    assert_eq!(store.head(&name).await.unwrap(), None);
    let nowhere =
        Commit { moves: vec![moved(RefExpectation::Any, Some(NodeId([9; 32])))], ..Commit::default() };
    assert!(matches!(store.commit(nowhere).await, Err(StoreError::Missing { .. })));
}

async fn refused_commits_leave_nothing(store: &dyn Store) {
    let (orphan, commit) = text_commit(Some(NodeId([3; 32])), "no parent", T);
    assert!(matches!(store.commit(commit.clone()).await, Err(StoreError::Missing { .. })));
    assert_eq!(store.nodes(&[orphan]).await.unwrap(), [None]);
    assert_eq!(store.blobs(&[commit.blobs[0].id]).await.unwrap(), [None]);

    let (partless, mut commit) = text_commit(None, "no part", T);
    commit.blobs.clear();
    assert!(matches!(store.commit(commit).await, Err(StoreError::Missing { .. })));
    assert_eq!(store.nodes(&[partless]).await.unwrap(), [None]);
}

async fn many_at_once(store: &dyn Store) {
    // A hundred commits that are queued together; each third is refused, and takes nobody with it.
    let commits: Vec<_> = (0..100)
        .map(|n| {
            let (id, mut commit) = text_commit(None, &format!("one of many {n}"), T + n);
            if n % 3 == 0 {
                commit.moves.push(RefMove::swap("refs/none".into(), Some(NodeId([1; 32])), id, ""));
            }
            (n, id, commit)
        })
        .collect();
    let results = join_all(commits.iter().map(|(_, _, commit)| store.commit(commit.clone()))).await;
    for ((n, id, _), result) in commits.iter().zip(results) {
        let kept = store.nodes(&[*id]).await.unwrap()[0].is_some();
        assert_eq!(kept, n % 3 != 0);
        match result {
            Ok(()) => assert!(kept),
            Err(error) => assert_eq!(error, StoreError::Conflict { name: "refs/none".into(), found: None }),
        }
    }
}

/// So many lineages that grow in turn: their nodes lie apart, in groups, or beside each other.
async fn walks_side_by_side(store: &dyn Graph) {
    for (lineages, together, length) in [(1, 1, 4_200), (3, 1, 40), (7, 1, 300), (7, 40, 200)] {
        let mut all: Vec<Vec<NodeId>> = vec![Vec::new(); lineages];
        let mut commit = Commit::default();
        while all.iter().any(|nodes| nodes.len() < length) {
            for (n, nodes) in all.iter_mut().enumerate() {
                for _ in 0..together {
                    let text = format!("{lineages} lineages, {together} together: {n} {}", nodes.len());
                    let (node, blob) = text_node(nodes.last().copied(), "user", &text, T);
                    nodes.push(node.id);
                    commit.blobs.push(blob);
                    commit.nodes.push(node);
                }
            }
        }
        store.commit(commit).await.unwrap();
        for indexed in [false, true] {
            for nodes in &all {
                let (end, far) = (nodes[nodes.len() - 1], nodes.len() / 3);
                for (until, from) in [
                    (LineageEnd::Root, 0),
                    (LineageEnd::Checkpoint, 0),
                    (LineageEnd::Node(nodes[far]), far),
                    (LineageEnd::Count(far), nodes.len() - far),
                ] {
                    let found = store.lineage(end, until).await.unwrap();
                    let found: Vec<NodeId> = found.iter().map(|node| node.id).collect();
                    assert!(
                        found == nodes[from..],
                        "{lineages} {together} {indexed} {until:?}: {}",
                        found.len()
                    );
                }
            }
            // Whoever asks for this has all nodes indexed first.
            store.ancestor(all[0][0], 0).await.unwrap();
        }
    }
}

/// A trunk of 40, a branch of 30 at its 20th node, a root elsewhere.
async fn a_tree(store: &dyn Store) -> (Vec<NodeId>, Vec<NodeId>, NodeId) {
    let mut trunk: Vec<NodeId> = Vec::new();
    for n in 0..40 {
        let role = if n == 10 { "compactionSummary" } else { "user" };
        let (node, blob) = text_node(trunk.last().copied(), role, &format!("trunk {n}"), T + n);
        trunk.push(node.id);
        store.commit(Commit { blobs: vec![blob], nodes: vec![node], ..Commit::default() }).await.unwrap();
    }
    let mut branch = trunk[..20].to_vec();
    let mut commit = Commit::default();
    for n in 0..30 {
        let (node, blob) = text_node(branch.last().copied(), "user", &format!("branch {n}"), T + n);
        branch.push(node.id);
        commit.blobs.push(blob);
        commit.nodes.push(node);
    }
    store.commit(commit).await.unwrap();
    let (alone, commit) = text_commit(None, "alone", T);
    store.commit(commit).await.unwrap();
    (trunk, branch, alone)
}

async fn lineages(store: &dyn Store) {
    let (trunk, branch, alone) = a_tree(store).await;
    let ids = |nodes: Vec<quipu_dag::Node>| nodes.iter().map(|node| node.id).collect::<Vec<_>>();
    let (top, tip) = (trunk[39], branch[49]);
    assert_eq!(ids(store.lineage(top, LineageEnd::Root).await.unwrap()), trunk);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Root).await.unwrap()), branch);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Count(31)).await.unwrap()), branch[19..]);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Count(0)).await.unwrap()), []);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Count(usize::MAX)).await.unwrap()), branch);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Node(trunk[7])).await.unwrap()), branch[7..]);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Node(tip)).await.unwrap()), [tip]);
    assert_eq!(ids(store.lineage(tip, LineageEnd::Checkpoint).await.unwrap()), branch[10..]);
    assert_eq!(ids(store.lineage(trunk[9], LineageEnd::Checkpoint).await.unwrap()), trunk[..10]);
    for end in [top, alone, NodeId([8; 32])] {
        assert!(matches!(store.lineage(tip, LineageEnd::Node(end)).await, Err(StoreError::Missing { .. })));
    }
    assert!(matches!(
        store.lineage(NodeId([8; 32]), LineageEnd::Root).await,
        Err(StoreError::Missing { .. })
    ));
    let edges = store.children(&[trunk[19], tip, alone, trunk[0]]).await.unwrap();
    let edges: Vec<_> = edges.iter().map(|edge| (edge.parent, edge.child)).collect();
    assert_eq!(edges, [(trunk[19], trunk[20]), (trunk[19], branch[20]), (trunk[0], trunk[1])]);
}

async fn walks(store: &dyn Graph) {
    let (trunk, branch, alone) = a_tree(store).await;
    let (top, tip) = (trunk[39], branch[49]);
    for depth in 0..50_u32 {
        assert_eq!(store.ancestor(tip, depth).await.unwrap(), Some(branch[depth as usize]));
    }
    assert_eq!(store.ancestor(tip, 50).await.unwrap(), None);
    assert_eq!(store.ancestor(NodeId([8; 32]), 0).await.unwrap(), None);

    for (a, b, expect) in [
        (top, tip, Some(trunk[19])),
        (tip, top, Some(trunk[19])),
        (tip, trunk[5], Some(trunk[5])),
        (trunk[5], tip, Some(trunk[5])),
        (tip, tip, Some(tip)),
        (tip, alone, None),
        (alone, tip, None),
        (tip, NodeId([8; 32]), None),
    ] {
        assert_eq!(store.fork_point(a, b).await.unwrap(), expect);
    }
}

async fn names(store: &dyn Graph) {
    let external = |parent, text: &str, id: &str, at| {
        let (node, blob) = text_node(parent, "user", text, at);
        let record = quipu_dag::NodeRecord { external_id: Some(id.to_owned()), ..node.record };
        let node = quipu_dag::Node::new(record, None, None);
        (node.id, Commit { blobs: vec![blob], nodes: vec![node], ..Commit::default() })
    };
    let (a, commit) = external(None, "first", "a1b2c3d4", T);
    store.commit(commit).await.unwrap();
    let (b, commit) = external(Some(a), "second", "a1b2c3d4", T + 5);
    store.commit(commit).await.unwrap();
    let (c, mut commit) = external(None, "third", "deadbeef%", T + 6);
    commit.moves.push(RefMove::publish("tags/third".into(), c, ""));
    store.commit(commit).await.unwrap();
    // An external id that is also the beginning of another node's hash.
    let (d, commit) = external(None, "fourth", &c.to_string()[..8], T + 7);
    store.commit(commit).await.unwrap();

    let ask = async |spelling: &str, head: Option<NodeId>| match store
        .resolve(&Spelling::from(spelling), &Scope { head })
        .await
        .unwrap()
    {
        Resolution::One(one) => vec![(one.node, one.by)],
        Resolution::Many(many) => many.iter().map(|one| (one.node, one.by)).collect(),
        Resolution::None => vec![],
    };
    let (hex_a, hex_c) = (a.to_string(), c.to_string());
    assert_eq!(ask("HEAD", None).await, []);
    assert_eq!(ask("HEAD", Some(a)).await, [(a, SpellingKind::Head)]);
    assert_eq!(ask(&hex_a, None).await, [(a, SpellingKind::Hash)]);
    assert_eq!(ask(&hex_a.to_uppercase(), None).await, [(a, SpellingKind::Hash)]);
    assert_eq!(ask(&hex_a[..12], None).await, [(a, SpellingKind::Hash)]);
    assert_eq!(ask(&hex_a[..3], None).await, [], "too short to mean anything");
    assert_eq!(ask("a1b2c3d4", None).await, [(b, SpellingKind::ExternalId)], "the newest of equals");
    assert_eq!(
        ask("a1b2c3d4", Some(a)).await,
        [(a, SpellingKind::ExternalId)],
        "the one on the head's lineage"
    );
    assert_eq!(ask("pi:a1b2c3d4", None).await, [(b, SpellingKind::ExternalId)]);
    assert_eq!(
        ask(&hex_c[..8], None).await,
        [(d, SpellingKind::ExternalId), (c, SpellingKind::Hash)],
        "ambiguous"
    );
    assert_eq!(ask(&format!("ext:{}", &hex_c[..8]), None).await, [(d, SpellingKind::ExternalId)]);
    assert_eq!(ask("tags/third", None).await, [(c, SpellingKind::Ref)]);
    for nothing in ["", "%", "____", "deadbeef", "pi:", "ffffffffffff", &"f".repeat(64), &"x".repeat(100_000)]
    {
        assert_eq!(ask(nothing, None).await, [], "{nothing:.20}");
    }
    assert_eq!(ask("deadbeef%", None).await, [(c, SpellingKind::ExternalId)]);
}

async fn action_log(store: &dyn Store) {
    let (a, mut commit) = text_commit(None, "logged a", T);
    let action = |kind: &str, from, to| Action {
        timestamp: T,
        kind: kind.to_owned(),
        from,
        to,
        metadata: Some("{\"note\":1}".to_owned()),
    };
    commit.actions.push(action("BOOT", None, Some(a)));
    store.commit(commit).await.unwrap();
    let (b, mut commit) = text_commit(Some(a), "logged b", T + 1);
    commit.actions.push(action("QUIPU_STEP", Some(a), Some(b)));
    commit.actions.push(action("INCARNATE", Some(b), None));
    store.commit(commit).await.unwrap();

    let ask = async |query: ActionQuery| {
        let found = store.actions(query).await.unwrap();
        found.into_iter().map(|row| (row.id, row.action.kind)).collect::<Vec<_>>()
    };
    let all = ask(ActionQuery::default()).await;
    assert_eq!(
        all.iter().map(|(_, kind)| kind.as_str()).collect::<Vec<_>>(),
        ["INCARNATE", "QUIPU_STEP", "BOOT"]
    );
    assert_eq!(ask(ActionQuery { limit: Some(1), ..ActionQuery::default() }).await, all[..1]);
    assert_eq!(ask(ActionQuery { before: Some(all[0].0), ..ActionQuery::default() }).await, all[1..]);
    assert_eq!(ask(ActionQuery { kinds: vec!["BOOT".to_owned()], ..ActionQuery::default() }).await, all[2..]);
    assert_eq!(ask(ActionQuery { lineage: Some(b), ..ActionQuery::default() }).await, all[1..]);
    assert_eq!(ask(ActionQuery { lineage: Some(a), ..ActionQuery::default() }).await, all[2..]);
    let newest = store.actions(ActionQuery { limit: Some(1), ..ActionQuery::default() }).await.unwrap();
    assert_eq!(newest[0].action, action("INCARNATE", Some(b), None));

    // A lineage is left from a node on it, or from a node below one; what goes on beside it does neither.
    let (c, mut commit) = text_commit(Some(a), "logged beside", T + 2);
    let (d, below) = text_commit(Some(b), "logged departure", T + 3);
    commit.blobs.extend(below.blobs);
    commit.nodes.extend(below.nodes);
    commit.actions.push(action("INCARNATE", Some(d), Some(c)));
    store.commit(commit).await.unwrap();
    let ask = async |lineage: NodeId, left: bool| {
        let query = ActionQuery { lineage: Some(lineage), left, ..ActionQuery::default() };
        let found = store.actions(query).await.unwrap();
        found.into_iter().map(|row| (row.action.kind, row.left)).collect::<Vec<_>>()
    };
    let row = |kind: &str, left| (kind.to_owned(), left);
    assert_eq!(ask(b, false).await, [row("QUIPU_STEP", false), row("BOOT", false)]);
    let with_departures =
        [row("INCARNATE", true), row("INCARNATE", true), row("QUIPU_STEP", false), row("BOOT", false)];
    assert_eq!(ask(b, true).await, with_departures);
    let beside =
        [row("INCARNATE", false), row("INCARNATE", true), row("QUIPU_STEP", true), row("BOOT", false)];
    assert_eq!(ask(c, true).await, beside);
}

async fn session_rows(store: &dyn Graph) {
    let one = SessionId::from("0190a5c0-1111-7000-8000-000000000001");
    let two = SessionId::from("0190a5c0-1111-7000-8000-000000000002");
    let (base, mut commit) = entry_commit(None, &session_start(&one, "/work", None), T + 1000);
    commit.moves.push(RefMove::swap(RefName::session(&one), None, base, "start"));
    store.commit(commit).await.unwrap();
    let (asked, mut commit) = entry_commit(Some(base), &user("\n  fix\u{1b}[31m it \nplease", T), T + 1001);
    commit.moves.push(RefMove::swap(RefName::session(&one), Some(base), asked, "step"));
    store.commit(commit).await.unwrap();
    let mut answer = AssistantMessage {
        content: vec![Content::text("done")],
        api: String::new(),
        provider: String::new(),
        model: String::new(),
        usage: quipu_protocol::Usage::default(),
        stop_reason: quipu_protocol::StopReason::Stop,
        timestamp: T,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    };
    answer.usage.cost.total = 0.25;
    let answer = Entry::Message(Message::Assistant(answer));
    let (answered, mut commit) = entry_commit(Some(asked), &answer, T + 1002);
    commit.moves.push(RefMove::swap(RefName::session(&one), Some(asked), answered, "step"));
    store.commit(commit).await.unwrap();
    // A branch: another session below the question.
    let (fork, mut commit) =
        entry_commit(Some(asked), &session_start(&two, "/other", Some(one.clone())), T + 1003);
    commit.moves.push(RefMove::swap(RefName::session(&two), None, fork, "start"));
    store.commit(commit).await.unwrap();
    let (again, commit) = entry_commit(Some(fork), &user("another way", T), T + 1004);
    store.commit(commit).await.unwrap();

    let rows = store.sessions(SessionQuery::default()).await.unwrap();
    let [second, first] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((&first.id, first.head, first.base), (&one, Some(answered), base));
    assert_eq!(
        (first.title.as_str(), first.cwd.as_str(), first.agent.as_str()),
        ("fix[31m it", "/work", "quipu")
    );
    assert_eq!((first.model.as_str(), first.parent.as_ref()), ("demo-1", None));
    assert_eq!((first.entries, first.cost, first.created, first.updated), (2, 0.25, T + 1000, T + 1002));
    assert_eq!((&second.id, second.head, second.title.as_str()), (&two, Some(fork), "another way"));
    assert_eq!((second.entries, second.cost, second.parent.as_ref()), (1, 0.0, Some(&one)));

    let ask =
        async |query| store.sessions(query).await.unwrap().into_iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(
        ask(SessionQuery { cwd: Some("/work".to_owned()), ..SessionQuery::default() }).await,
        std::slice::from_ref(&one)
    );
    assert_eq!(ask(SessionQuery { cwd: Some("/wor%".to_owned()), ..SessionQuery::default() }).await, []);
    assert_eq!(
        ask(SessionQuery { limit: Some(1), ..SessionQuery::default() }).await,
        std::slice::from_ref(&two)
    );
    assert_eq!(
        ask(SessionQuery { id: Some(one.clone()), ..SessionQuery::default() }).await,
        std::slice::from_ref(&one)
    );

    let ask = async |spelling: &str| store.resolve(&spelling.into(), &Scope::default()).await.unwrap();
    match ask(one.as_str()).await {
        Resolution::One(found) => {
            assert_eq!((found.node, found.by), (answered, SpellingKind::Session));
            assert_eq!((found.role.as_str(), found.session), ("assistant", Some(one.clone())));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(ask("0190a5c0-1111").await, Resolution::Many(both) if both.len() == 2));
    assert!(
        matches!(ask("0190a5c0-1111-7000-8000-000000000002").await, Resolution::One(one) if one.node == fork)
    );
    assert!(
        matches!(ask(&again.to_string()).await, Resolution::One(one) if one.session == Some(two.clone()))
    );

    // A session is named by its first node once its ref is gone.
    let three = SessionId::from("short");
    let (base, commit) = entry_commit(None, &session_start(&three, "/work", None), T + 1005);
    store.commit(commit).await.unwrap();
    assert!(matches!(ask("short").await, Resolution::One(one) if one.node == base));

    let nodes = store.lineage(answered, LineageEnd::Root).await.unwrap();
    let entries = decode_nodes(store, &nodes).await.unwrap();
    assert_eq!(
        entries.iter().map(|read| &read.entry).collect::<Vec<_>>(),
        [&session_start(&one, "/work", None), &user("\n  fix\u{1b}[31m it \nplease", T), &answer]
    );
}

async fn open_ends(store: &dyn Store) {
    // One that exists, so that a check finds nothing orphaned.
    let session = SessionId::from("short");
    let run = RunId::from("run-1");
    assert_eq!(store.pending(&session).await.unwrap(), quipu_store::OpenWork::default());
    let item = |id: &str, text: &str| InboxItem {
        id: id.into(),
        queue: "steer".to_owned(),
        input: Json::of(text).unwrap(),
    };
    let put = |item: &InboxItem| Op::InboxPut { session: session.clone(), item: item.clone() };
    let take = |id: &str| Op::InboxTake { session: session.clone(), item: id.into() };
    let step = |call: StepCall, state, data: Option<&[u8]>| Step {
        run: run.clone(),
        call,
        state,
        data: data.map(<[u8]>::to_vec),
    };
    let put_step = |step: &Step| Op::StepPut { session: session.clone(), step: step.clone() };
    let tool = |call: &str| StepCall::Tool(call.into());
    let commit = async |ops: Vec<Op>| store.commit(Commit { ops, ..Commit::default() }).await;

    let (first, second) = (item("i1", "one"), item("i2", "two"));
    // A model may call its call anything.
    let model = step(StepCall::Model, StepState::Sent, Some(b"{}"));
    let tools =
        [step(tool("model"), StepState::Announced, None), step(tool("c2"), StepState::Announced, None)];
    commit(vec![put(&first), put(&second), put_step(&model)]).await.unwrap();
    commit(tools.iter().map(put_step).collect()).await.unwrap();
    let pending = store.pending(&session).await.unwrap();
    assert_eq!(pending.inbox, [first.clone(), second.clone()]);
    assert_eq!(pending.steps, [model.clone(), tools[0].clone(), tools[1].clone()]);
    assert_eq!(store.pending(&"other".into()).await.unwrap(), quipu_store::OpenWork::default());
    for (beginning, found) in [("", 1), ("sho", 1), ("short", 1), ("shorter", 0), ("S", 0), ("%", 0)] {
        let inboxes = store.inboxes(beginning).await.unwrap();
        assert_eq!(inboxes, vec![session.clone(); found], "{beginning:?}");
    }

    commit(vec![put(&item("i1", "put again"))]).await.unwrap();
    assert_eq!(store.pending(&session).await.unwrap().inbox, [first.clone(), second.clone()]);
    let done = step(tool("c2"), StepState::Done, Some(b"result\0"));
    // A removal that names what the row had does not meet what stands there now.
    let remove = |data: &[u8]| Op::StepRemove {
        session: session.clone(),
        run: run.clone(),
        call: StepCall::Model,
        data: Some(data.to_vec()),
    };
    let model = step(StepCall::Model, StepState::Sent, Some(b"the next call"));
    commit(vec![put_step(&model), remove(b"{}")]).await.unwrap();
    assert_eq!(store.pending(&session).await.unwrap().steps[0], model);
    commit(vec![remove(b"the next call")]).await.unwrap();
    assert_eq!(store.pending(&session).await.unwrap().steps, tools);
    commit(vec![
        put_step(&model),
        take("i1"),
        put_step(&step(tool("model"), StepState::Running, None)),
        put_step(&done),
        Op::StepRemove { session: session.clone(), run: run.clone(), call: StepCall::Model, data: None },
    ])
    .await
    .unwrap();
    let pending = store.pending(&session).await.unwrap();
    assert_eq!(pending.inbox, [second]);
    assert_eq!(pending.steps, [step(tool("model"), StepState::Running, None), done]);
    // An input leaves once; the commit that would take it again keeps nothing.
    let again = commit(vec![Op::RunRemove { session: session.clone(), run: run.clone() }, take("i1")]).await;
    assert!(matches!(again, Err(StoreError::Missing { .. })));
    assert_eq!(store.pending(&session).await.unwrap().steps.len(), 2);
    // Who lost the ref hears of that, not of inputs that the winner took.
    let lost = RefMove {
        name: "refs/lost".into(),
        expect: RefExpectation::At(NodeId([1; 32])),
        to: None,
        fence: None,
        why: String::new(),
    };
    let lost = Commit { moves: vec![lost], ops: vec![take("i1")], ..Commit::default() };
    assert!(matches!(store.commit(lost).await, Err(StoreError::Conflict { .. })));
    commit(vec![Op::RunRemove { session: session.clone(), run: run.clone() }, take("i2")]).await.unwrap();
    assert_eq!(store.pending(&session).await.unwrap(), quipu_store::OpenWork::default());

    // One jump a session; what is put again goes on.
    for stage in ["staged", "waits"] {
        let jump = OpenJump { stage: stage.into(), plan: Json::of(stage).unwrap() };
        commit(vec![Op::JumpPut { session: session.clone(), jump: jump.clone() }]).await.unwrap();
        assert_eq!(store.pending(&session).await.unwrap().jump, Some(jump));
    }
    for _ in 0..2 {
        commit(vec![Op::JumpRemove { session: session.clone() }]).await.unwrap();
        assert_eq!(store.pending(&session).await.unwrap(), quipu_store::OpenWork::default());
    }
}

async fn moves_of_refs(store: &dyn Graph) {
    let name = RefName::from("refs/moved");
    let mut nodes = Vec::new();
    for at in 0..3 {
        let (node, commit) =
            entry_commit(nodes.last().copied(), &user(&format!("moved {at}"), T), T + 2000 + at);
        store.commit(commit).await.unwrap();
        nodes.push(node);
    }
    let [a, b, c] = nodes[..] else { panic!("{nodes:?}") };
    let moved = async |from: Option<NodeId>, to: NodeId, why: &str| {
        let moves = vec![RefMove::swap(name.clone(), from, to, why)];
        store.commit(Commit { moves, ..Commit::default() }).await.unwrap();
    };
    moved(None, c, "append").await;
    moved(Some(c), a, "jump").await;
    moved(Some(a), b, "label").await;
    let drop = RefMove {
        name: name.clone(),
        expect: RefExpectation::Any,
        to: None,
        fence: None,
        why: "remove".into(),
    };
    store.commit(Commit { moves: vec![drop], ..Commit::default() }).await.unwrap();
    let query = ReflogQuery { name: name.clone(), before: None, moves_only: true, limit: None };
    let seen = async |query: &ReflogQuery| {
        let rows = store.reflog(query).await.unwrap();
        rows.into_iter().map(|row| (row.old, row.new, row.why)).collect::<Vec<_>>()
    };
    let gone = (Some(b), None, "remove".to_owned());
    let (jump, made) = ((Some(c), Some(a), "jump".to_owned()), (None, Some(c), "append".to_owned()));
    assert_eq!(seen(&query).await, [gone.clone(), jump.clone(), made.clone()]);
    let all = ReflogQuery { moves_only: false, ..query.clone() };
    let label = (Some(a), Some(b), "label".to_owned());
    assert_eq!(seen(&all).await, [gone.clone(), label, jump.clone(), made.clone()]);
    let newest = store.reflog(&ReflogQuery { limit: Some(1), ..query.clone() }).await.unwrap();
    assert_eq!(newest.len(), 1);
    assert_eq!(seen(&ReflogQuery { before: Some(newest[0].id), ..query.clone() }).await, [jump, made]);
    assert_eq!(seen(&ReflogQuery { name: "refs/none".into(), ..query }).await, []);
}

async fn leases(store: &dyn Store) {
    let name = RefName::from("refs/leased");
    let (me, you) = (Owner("me".to_owned()), Owner("you".to_owned()));
    let hour = Duration::from_secs(3600);
    let mine = store.lease(&name, &me, hour).await.unwrap();
    assert_eq!(store.lease(&name, &me, hour).await.unwrap(), mine, "renewed");
    let error = store.lease(&name, &you, hour).await.unwrap_err();
    assert_eq!(error, StoreError::Fenced { name: name.clone(), owner: "me".to_owned() });

    let (a, mut commit) = text_commit(None, "leased", T);
    let moved = |fence| RefMove { fence, ..RefMove::publish(name.clone(), a, "") };
    commit.moves = vec![moved(Some(Fence(mine.0 + 1)))];
    assert!(matches!(store.commit(commit.clone()).await, Err(StoreError::Fenced { .. })));
    commit.moves = vec![moved(Some(mine))];
    store.commit(commit.clone()).await.unwrap();

    store.lease(&name, &me, Duration::ZERO).await.unwrap();
    let yours = store.lease(&name, &you, hour).await.unwrap();
    assert!(yours > mine);
    let error = store.commit(commit).await.unwrap_err();
    assert_eq!(error, StoreError::Fenced { name: name.clone(), owner: "you".to_owned() });
    assert!(store.lease(&name, &me, Duration::ZERO).await.is_err(), "only the holder gives back");
}

/// What is reserved leaves less for others, until it is released or nobody renews it.
async fn reservations(store: &dyn Store) {
    let ask = async |id: &str, now: i64, full: i64, least: i64, settles: bool| {
        let (id, since, expires) = (ReserveId(id.to_owned()), T + 900_000, now + 100);
        let ask = ReserveRequest { id, since, now, expires, limit: 10, elsewhere: 1, full, least, settles };
        let Reservation { granted, spent, others } = store.reserve(ask).await.unwrap();
        (granted, spent, others)
    };
    let then = T + 1_000_000;
    assert_eq!(ask("a", then, 6, 2, false).await, (Some(6), 1, 0));
    assert_eq!(ask("a", then, 5, 2, false).await, (Some(5), 1, 0), "one of this name is replaced");
    assert_eq!(ask("b", then, 6, 5, false).await, (None, 1, 5));
    assert_eq!(ask("b", then, 6, 4, false).await, (None, 1, 5), "waiting would help");
    assert_eq!(ask("b", then, 6, 4, true).await, (Some(4), 1, 5));
    assert_eq!(ask("c", then, 30, 1, false).await, (None, 1, 9));
    let op = async |op: Op| store.commit(Commit { ops: vec![op], ..Commit::default() }).await.unwrap();
    op(Op::Release { id: ReserveId("b".into()), charged: 0 }).await;
    assert_eq!(
        ask("c", then, 30, 1, false).await,
        (Some(4), 1, 5),
        "less than it wants, where all would not do"
    );
    op(Op::Release { id: ReserveId("c".into()), charged: 2 }).await;
    assert_eq!(ask("d", then, 2, 2, false).await, (Some(2), 3, 5));
    op(Op::Renew { id: ReserveId("d".into()), expires: then + 1_000 }).await;
    // What nobody renewed counts as spent.
    assert_eq!(ask("e", then + 500, 1, 1, false).await, (None, 8, 2));
    for id in ["a", "d"] {
        op(Op::Release { id: ReserveId(id.into()), charged: 0 }).await;
    }
    assert_eq!(ask("e", then + 500, 7, 1, false).await, (Some(7), 3, 0));
    op(Op::Release { id: ReserveId("e".into()), charged: 0 }).await;
    op(Op::Release { id: ReserveId("c".into()), charged: 0 }).await;
}

async fn chunks(store: &dyn Store) {
    let all = 0..u64::MAX;
    let cases: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"x".to_vec(),
        b"text ".repeat(1000),
        noise(1, 10_000),
        noise(2, (4 << 20) + 1),
        b"a long line of a log\n".repeat(300_000),
        noise(3, 5 << 20),
    ];
    for bytes in cases {
        let id = chunk_id(&bytes);
        assert!(matches!(store.chunk(id, all.clone()).await, Err(StoreError::Missing { .. })));
        let chunk = NewChunk::Full { id, bytes: Arc::from(bytes.clone()) };
        store.commit(Commit { chunks: vec![chunk.clone(), chunk], ..Commit::default() }).await.unwrap();
        assert!(store.chunk(id, all.clone()).await.unwrap() == bytes);
        let size = bytes.len();
        for (from, to) in
            [(0, 0), (0, 1), (3, 7), (1 << 20, (1 << 20) + 5), ((2 << 20) - 3, (3 << 20) + 9), (9, 2)]
        {
            let expect =
                bytes.get(from.min(size)..to.clamp(from.min(size), size.max(from.min(size)))).unwrap_or(&[]);
            let got = store.chunk(id, from as u64..to as u64).await.unwrap();
            assert!(got == expect, "{from}..{to} of {size}");
        }
    }
    assert!(matches!(store.chunk(ChunkId([1; 32]), all).await, Err(StoreError::Missing { .. })));
}

async fn differences(store: &dyn Store) {
    // Bodies that grow in the middle, as requests do; more of them than differences may follow each other.
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for n in 0..80_u64 {
        let mut body = noise(10, 20_000);
        for k in 0..n {
            body.extend_from_slice(&noise(100 + k, 300));
        }
        body.extend_from_slice(b"{\"tail\":true}");
        bodies.push(body);
    }
    let mut base = ChunkId([2; 32]);
    for body in &bodies {
        let id = chunk_id(body);
        // The first has no base that exists: it is kept whole.
        let chunk = NewChunk::Delta { id, base, bytes: Arc::from(body.clone()) };
        store.commit(Commit { chunks: vec![chunk], ..Commit::default() }).await.unwrap();
        base = id;
    }
    for body in bodies.iter().rev() {
        assert!(store.chunk(chunk_id(body), 0..u64::MAX).await.unwrap() == *body);
    }
    assert_eq!(store.chunk(base, 20_000..20_004).await.unwrap(), noise(100, 300)[..4]);
    // Many at once, in any order, with one that is not there; as many as fit, one at least.
    let mut ids: Vec<ChunkId> = bodies.iter().map(|body| chunk_id(body)).rev().collect();
    ids.insert(40, ChunkId([2; 32]));
    let whole = |found: Vec<Option<SeriesChunk>>| -> Vec<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let each = found.into_iter().map(|chunk| {
            chunk.as_ref()?.apply(&mut bytes);
            Some(bytes.clone())
        });
        each.collect()
    };
    let mut wanted: Vec<Option<Vec<u8>>> = bodies.iter().cloned().map(Some).rev().collect();
    wanted.insert(40, None);
    for _ in 0..2 {
        let mut from = 0;
        while from < ids.len() {
            let found = whole(store.chunk_series(&ids[from..], u64::MAX).await.unwrap());
            assert!(!found.is_empty() && found == wanted[from..from + found.len()], "{from}");
            from += found.len();
        }
        for (most, count) in
            [(0, 1), (wanted.iter().flatten().take(3).map(|bytes| bytes.len() as u64).sum(), 3)]
        {
            assert!(whole(store.chunk_series(&ids, most).await.unwrap()) == wanted[..count], "{most}");
        }
        ids.reverse();
        wanted.reverse();
    }
    assert!(store.chunk_series(&[], 9).await.unwrap().is_empty());
    // The same where it is known how much they share; the base of the first is not there.
    let mut base = (ChunkId([3; 32]), 0);
    for body in &mut bodies {
        body.push(b' ');
        let (id, prefix) = (chunk_id(body), base.1);
        let chunk = NewChunk::Grown { id, base: base.0, prefix, bytes: body.clone().into() };
        store.commit(Commit { chunks: vec![chunk], ..Commit::default() }).await.unwrap();
        base = (id, body.len() as u64 - 14);
    }
    for body in bodies.iter().rev() {
        assert!(store.chunk(chunk_id(body), 0..u64::MAX).await.unwrap() == *body);
    }
    // What is kept as a difference can be a piece of larger bytes as well, written later, at once or before.
    let piece = noise(11, 1 << 20);
    let mut like = piece.clone();
    like[500_000] ^= 1;
    let large = [piece.clone(), noise(12, 4 << 20)].concat();
    for (n, flip) in [(0, 0_u8), (1, 2), (2, 4)] {
        let change = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ flip).collect::<Vec<u8>>();
        let (base, piece, large) = (change(&like), change(&piece), change(&large));
        let full = |bytes: &[u8]| NewChunk::Full { id: chunk_id(bytes), bytes: Arc::from(bytes) };
        let difference =
            NewChunk::Delta { id: chunk_id(&piece), base: chunk_id(&base), bytes: Arc::from(&piece[..]) };
        store.commit(Commit { chunks: vec![full(&base)], ..Commit::default() }).await.unwrap();
        let commits = match n {
            0 => vec![vec![difference], vec![full(&large)]],
            1 => vec![vec![difference, full(&large)]],
            _ => vec![vec![full(&large)], vec![difference]],
        };
        for chunks in commits {
            store.commit(Commit { chunks, ..Commit::default() }).await.unwrap();
        }
        for bytes in [&base, &piece, &large] {
            assert!(store.chunk(chunk_id(bytes), 0..u64::MAX).await.unwrap() == *bytes, "{n}");
        }
        assert!(store.chunk(chunk_id(&large), 5..99).await.unwrap() == large[5..99], "{n}");
    }
    // Against something quite different, and against itself.
    let other = noise(77, 50_000);
    let id = chunk_id(&other);
    let chunk = |base| NewChunk::Delta { id, base, bytes: Arc::from(other.clone()) };
    store.commit(Commit { chunks: vec![chunk(id), chunk(base.0)], ..Commit::default() }).await.unwrap();
    assert!(store.chunk(id, 0..u64::MAX).await.unwrap() == other);
}

/// A lineage of 2,500 entries, enough for several pieces, with images in each.
async fn many_entries(store: &dyn Store, from: i64) -> (Vec<Entry>, Vec<quipu_dag::Node>) {
    let said = |n: i64| user(&format!("meaning {n}"), T + n);
    let entry = |n: i64| if n % 500 == 7 { image(&noise(n.unsigned_abs(), 300)) } else { said(n) };
    let entries: Vec<Entry> = (from..from + 2_500).map(entry).collect();
    let (mut parent, mut all) = (None, Commit::default());
    for (entry, at) in entries.iter().zip(T + 2_000..) {
        let (id, commit) = entry_commit(parent, entry, at);
        all.blobs.extend(commit.blobs);
        all.chunks.extend(commit.chunks);
        all.nodes.extend(commit.nodes);
        parent = Some(id);
    }
    store.commit(all).await.unwrap();
    let nodes = store.lineage(parent.unwrap(), LineageEnd::Root).await.unwrap();
    (entries, nodes)
}

async fn entries_come_back(store: &dyn Store) {
    let (entries, nodes) = many_entries(store, 0).await;
    let read = decode_nodes(store, &nodes).await.unwrap();
    assert!(read.iter().map(|read| &read.entry).eq(&entries));
}

async fn meanings(store: &dyn Graph) {
    let (entries, nodes) = many_entries(store, 10_000).await;
    let together = decode_all(store, nodes.clone()).await.unwrap();
    let read: Vec<&Entry> = together.iter().map(|(_, decoded)| &decoded.entry).collect();
    assert_eq!(read, entries.iter().collect::<Vec<_>>());
    assert!(together.iter().map(|(node, _)| node).eq(&nodes));
    let some = decode_all(store, nodes[..3].to_vec()).await.unwrap();
    assert_eq!(some, together[..3]);
    assert!(decode_all(store, Vec::new()).await.unwrap().is_empty());
}

#[tokio::test]
async fn announced_base_chunk_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let bodies: [Vec<u8>; 3] = std::array::from_fn(|n| [noise(1, 9_000), noise(2 + n as u64, 40)].concat());
    let put = |n: usize, base| {
        let chunk = NewChunk::Delta { id: chunk_id(&bodies[n]), base, bytes: Arc::from(&bodies[n][..]) };
        Commit { chunks: vec![chunk], ..Commit::default() }
    };
    for n in 0..bodies.len() {
        let store = open(&path);
        store.warm_up();
        let base = chunk_id(&bodies[n.saturating_sub(1)]);
        store.will_build_on(base);
        store.commit(put(n, base)).await.unwrap();
        for body in &bodies[..=n] {
            assert!(store.chunk(chunk_id(body), 0..u64::MAX).await.unwrap() == *body, "{n}");
        }
    }
    // Kept as what they add, though each process met the one before only as foreseen.
    let rows = rusqlite::Connection::open(&path).unwrap();
    let sizes: i64 = rows
        .query_row("SELECT count(*) FROM quipu_chunk WHERE length(bytes) < 200", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sizes, 2);
}

async fn limits(store: &dyn Store) {
    let (a, commit) = text_commit(None, "limits", T);
    store.commit(commit).await.unwrap();
    let long = RefName::from("x".repeat(2000));
    let commit = Commit { moves: vec![RefMove::publish(long, a, "")], ..Commit::default() };
    match store.commit(commit).await {
        Err(StoreError::TooLarge { size: 2000, limit: 1024, .. }) => {}
        other => panic!("{other:?}"),
    }
}

async fn changes(store: &dyn Store) {
    let changed = store.changed();
    let (_, commit) = text_commit(None, "changed", T);
    store.commit(commit).await.unwrap();
    changed.await.unwrap();
}
