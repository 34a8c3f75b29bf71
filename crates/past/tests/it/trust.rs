//! Who has a say: what other programs, models and people write beside what builds make.

use jiff::tz::TimeZone;
use quipu_past::cover::{Charge, Choice, Exclusion, Fault, Verdict};
use quipu_past::{
    ChunkAuthor, ChunkDraft, ChunkFault, CoverStock, DraftAuthor, EvidenceKind, PAST_CHUNK, PastError,
    PastId, ReviewState, TimeRange, chunks_telling, evidence_of, read_chunks, replace_chunks,
    set_review_state, write_chunk,
};
use quipu_protocol::{
    AuthorClass, Body, CustomMessage, Entry, Json, Message, NodeId, Origin, Provenance, StepInfo,
};
use quipu_store::{Commit, RefExpectation, RefMove, RefName, decode_nodes};
use serde_json::{Value, json};

use crate::support::*;

const CHARGE: Charge = Charge { characters: 4, image: 1_600 };

async fn days(count: i64) -> World {
    let world = World::new();
    for day in 0..count {
        world.say(&format!("s{day}"), &turn(&format!("task{day}"), EPOCH + day * DAY)).await;
    }
    world
}

/// Puts a record into the past as any program could, with whatever it says of its author.
async fn forge(world: &World, summary: &str, record: &Value, from: Option<Provenance>) -> NodeId {
    let name = RefName::session(&world.scope.session());
    let stands = world.store.head(&name).await.unwrap();
    let message = CustomMessage {
        custom_type: PAST_CHUNK.into(),
        content: Body::Text(summary.into()),
        display: true,
        details: None,
        timestamp: NOW,
    };
    let extra = [(PAST_CHUNK.to_owned(), Json::from(record))].into();
    let step = StepInfo { provenance: from, extra, ..StepInfo::default() };
    world.put(&name, stands, &[(NOW, Entry::Message(Message::Custom(message)))], &step).await.remove(0)
}

/// What the node of a chunk says beside its summary.
async fn record_of(world: &World, node: NodeId) -> Value {
    let found = world.store.nodes(&[node]).await.unwrap().remove(0).unwrap();
    let decoded = decode_nodes(&*world.store, &[found]).await.unwrap().remove(0);
    decoded.step.extra[PAST_CHUNK].read().unwrap()
}

async fn faults(world: &World) -> Vec<ChunkFault> {
    world.index().await.faults.into_iter().map(|faulty| faulty.fault).collect()
}

fn extract() -> Option<Provenance> {
    Some(Provenance::new(Origin::Process, AuthorClass::Agent).named("extract"))
}

#[tokio::test]
async fn forged_work_does_not_count_as_made() {
    // The chunks of another store with the same sessions are known, work and all.
    let other = days(3).await;
    other.build().await;
    let wanted = other.live().await;
    let node = other.index().await.get(&wanted[1].id()).unwrap().node;
    let record = record_of(&other, node).await;
    let world = days(3).await;
    // The first node begins the session.
    forge(&world, "", &json!({}), None).await;
    // Without an author; of a less trusted one; with other sources; for another level.
    forge(&world, "All is lost.", &record, None).await;
    let untrusted = Provenance::new(Origin::Process, AuthorClass::Untrusted).named("extract");
    forge(&world, "All is lost!", &record, Some(untrusted)).await;
    let mut changed = record.clone();
    changed["sources"].as_array_mut().unwrap().pop();
    forge(&world, "All is lost?", &changed, extract()).await;
    let mut changed = record.clone();
    changed["method"] = json!({ "by": "model", "model": "m", "prompt": "p" });
    forge(&world, "All is lost …", &changed, extract()).await;
    let foreign = [ChunkFault::ForeignWork, ChunkFault::ForeignWork, ChunkFault::ForeignWork];
    assert_eq!(faults(&world).await, foreign, "only the second one has its work");
    let index = world.index().await;
    let by = |author| index.chunks().filter(|chunk| chunk.author == author).collect::<Vec<_>>();
    assert!(
        by(ChunkAuthor::Foreign)
            .iter()
            .all(|chunk| chunk.class == AuthorClass::Untrusted && chunk.work.is_none())
    );
    assert_eq!((by(ChunkAuthor::Foreign).len(), by(ChunkAuthor::Build).len()), (3, 1));
    // A build makes its own, and nothing of it twice.
    assert_eq!(world.build().await.leaves, 3);
    assert_eq!(world.build().await.leaves, 0);
    let ids: Vec<PastId> = world.live().await.iter().map(quipu_past::MemoryChunk::id).collect();
    assert!(wanted.iter().all(|chunk| ids.contains(&chunk.id())));
}

#[tokio::test]
async fn chunk_of_others_supersedes_nothing() {
    let world = days(3).await;
    world.build().await;
    let before = world.live().await;
    let taken = before[1].id();
    let record = json!({
        "kind": "chunk", "scope": { "kind": "all" }, "level": 0, "start": EPOCH, "end": EPOCH + 1,
        "method": { "by": "agent" }, "supersedes": [taken],
    });
    forge(&world, "Not that.", &record, None).await;
    forge(&world, "Nor that.", &record, Some(Provenance::model())).await;
    assert_eq!(faults(&world).await, [ChunkFault::NoAuthority, ChunkFault::NoAuthority]);
    assert!(world.live().await.iter().any(|chunk| chunk.id() == taken));
    // Nor does a copy bring back what a person took the place of.
    let draft = ChunkDraft {
        author: DraftAuthor::Person,
        summary: "As I remember it.".into(),
        span: None,
        children: Vec::new(),
        sources: Vec::new(),
        supersedes: vec![taken],
    };
    write_chunk(&*world.store, &world.scope, draft, NOW).await.unwrap();
    let node = world.index().await.get(&taken).unwrap().node;
    let copy = record_of(&world, node).await;
    forge(&world, &before[1].summary, &copy, extract()).await;
    assert!(world.live().await.iter().all(|chunk| chunk.id() != taken));
}

#[tokio::test]
async fn foreign_parent_takes_no_children() {
    let world = days(5).await;
    // It is there before the parent that the build makes.
    let plan = world.plan().await;
    assert_eq!(plan.size().leaves, 5);
    world.build().await;
    let name = RefName::session(&world.scope.session());
    let head = world.store.head(&name).await.unwrap();
    let index = world.index().await;
    let parent = index.live().find(|chunk| chunk.level == 1).unwrap().clone();
    let before = world.store.lineage(head.unwrap(), quipu_store::LineageEnd::Root).await.unwrap();
    let at = before.iter().position(|node| node.id == parent.node).unwrap();
    let mut commit = quipu_store::Commit::default();
    commit.moves.push(quipu_store::RefMove::swap(name, head, before[at - 1].id, "test"));
    world.store.commit(commit).await.unwrap();
    let record = json!({
        "kind": "chunk", "scope": { "kind": "all" }, "level": 1, "start": EPOCH, "end": NOW,
        "method": { "by": "agent" }, "children": parent.children,
    });
    forge(&world, "All five are mine.", &record, None).await;
    world.build().await;
    let index = world.index().await;
    assert_eq!(index.get(&parent.id).unwrap().children, parent.children);
    let foreign = index.live().find(|chunk| chunk.author == ChunkAuthor::Foreign).unwrap();
    assert!(foreign.children.is_empty() && foreign.lost == parent.children);
    // What it named is still shown as what it stands on.
    let evidence = evidence_of(&*world.store, &world.scope, &index, foreign).await.unwrap();
    assert_eq!(evidence.count(EvidenceKind::Explicit), 10);
}

#[tokio::test]
async fn cover_splits_no_chunk_that_lost_a_child() {
    let world = days(5).await;
    world.build().await;
    let index = world.index().await;
    let parent = index.live().find(|chunk| chunk.level == 1).unwrap();
    let mut children: Vec<String> = parent.children.iter().take(2).map(PastId::digits).collect();
    children.push(PastId([9; 32]).digits());
    // A chunk of a model with two children that are there, and one that is not; nobody else has them.
    set_review_state(&*world.store, &world.scope, parent.id, ReviewState::Retracted, NOW).await.unwrap();
    let record = json!({
        "kind": "chunk", "scope": { "kind": "all" }, "level": 1, "start": EPOCH, "end": NOW,
        "method": { "by": "agent" }, "children": children,
    });
    let node = forge(&world, "Three days.", &record, Some(Provenance::model())).await;
    let forged = world.index().await.chunks().find(|chunk| chunk.node == node).unwrap().id;
    // It is served, though nobody can look for its words in what is not there.
    set_review_state(&*world.store, &world.scope, forged, ReviewState::Reviewed, NOW).await.unwrap();
    let index = world.index().await;
    assert_eq!(index.chunks().find(|chunk| chunk.node == node).unwrap().lost, [PastId([9; 32])]);
    let stock = CoverStock::read(&*world.store, &world.scope, &index, CHARGE).await.unwrap();
    let cover = stock.cover(1_000_000, None).cover;
    assert!(cover.members.iter().any(|member| member.id == node), "{cover:?}");
    let decided = cover.decisions.iter().find(|decision| decision.id == node).unwrap();
    assert_eq!(decided.verdict, Verdict::Chosen(Choice::ChildrenIncomplete));
    assert!(
        cover.faults.contains(&Fault::MissingChild { id: node, child: NodeId([9; 32]) }),
        "{:?}",
        cover.faults
    );
    let retracted = cover.decisions.iter().find(|decision| decision.id == parent.node).unwrap();
    let cause = quipu_past::cover::SplitCause::Excluded(Exclusion::Retracted);
    assert_eq!(retracted.verdict, Verdict::Split(cause));
}

#[tokio::test]
async fn retracted_leaf_stays_so_when_its_session_continues() {
    let world = days(5).await;
    world.build().await;
    let leaf = world.live().await.into_iter().find(|chunk| chunk.summary.contains("task2")).unwrap();
    set_review_state(&*world.store, &world.scope, leaf.id(), ReviewState::Retracted, NOW).await.unwrap();
    world.build().await;
    // A minute later, in what would be the same segment.
    world.say("s2", &turn("addition", EPOCH + 2 * DAY + MINUTE)).await;
    let size = world.build().await;
    assert_eq!((size.leaves, size.retracted), (1, 1));
    let live = world.live().await;
    assert!(live.iter().all(|chunk| !chunk.summary.contains("task2")), "{live:?}");
    let new = live.iter().find(|chunk| chunk.level == 0 && chunk.summary.contains("addition")).unwrap();
    assert_eq!(new.sources.len(), 2);
    // The check says what has no summary because of that.
    let check = world.plan().await.check();
    assert_eq!((check.gaps.len(), check.retracted.len()), (0, 1));
    assert_eq!((check.retracted[0].span, check.retracted[0].nodes), (leaf.span, 2));
    // Once it is good again, both are one.
    set_review_state(&*world.store, &world.scope, leaf.id(), ReviewState::Reviewed, NOW).await.unwrap();
    let size = world.build().await;
    assert_eq!((size.leaves, size.retracted), (1, 0));
    assert!(world.live().await.iter().any(|chunk| chunk.sources.len() == 4));
}

#[tokio::test]
async fn person_puts_a_chunk_in_the_place_of_others() {
    let world = days(6).await;
    world.build().await;
    let index = world.index().await;
    let leaf = index.live().find(|chunk| chunk.level == 0).unwrap().clone();
    let parent = index.live().find(|chunk| chunk.level == 1).unwrap().clone();
    let draft = |supersedes: &[PastId], summary: &str| ChunkDraft {
        author: DraftAuthor::Person,
        summary: summary.into(),
        span: None,
        children: Vec::new(),
        sources: Vec::new(),
        supersedes: supersedes.to_vec(),
    };
    let written =
        write_chunk(&*world.store, &world.scope, draft(&[leaf.id], "It was otherwise."), NOW).await.unwrap();
    assert_eq!(written.class, AuthorClass::Owner);
    // It is of the same time and nodes, and no build makes the other again.
    let size = world.build().await;
    assert_eq!((size.leaves, size.restored, size.retracted), (0, 0, 1));
    assert!(world.plan().await.check().retracted.is_empty(), "nothing is missed there");
    let index = world.index().await;
    let own = index.get(&written.id).unwrap();
    assert_eq!((own.author, own.span, own.sources), (ChunkAuthor::Person, leaf.span, leaf.sources));
    assert!(index.get(&leaf.id).unwrap().is_replaced);
    assert_eq!(index.find(&written.key, NOW, &TimeZone::UTC, &world.scope).unwrap().id, written.id);
    assert!(index.live().all(|chunk| chunk.id != parent.id), "its words are in no parent any more");
    // What it was made of is forgotten with it.
    let source = read_chunks(&*world.store, &world.scope, &[own.node]).await.unwrap()[0].sources[0].node;
    assert!(chunks_telling(&*world.store, &[source].into()).await.unwrap().contains(&own.node));
    // In the place of a parent it has the children.
    let parent = index.live().find(|chunk| chunk.level == 1).unwrap().clone();
    let whole =
        write_chunk(&*world.store, &world.scope, draft(&[parent.id], "A week of work."), NOW).await.unwrap();
    let index = world.index().await;
    assert_eq!(index.get(&whole.id).unwrap().children, parent.children);
    assert!(world.build().await.parents <= 1);
    // A chunk that is there can take the place, and what a person finds good comes back.
    replace_chunks(&*world.store, &world.scope, vec![whole.id], written.id, NOW).await.unwrap();
    assert!(!world.index().await.get(&whole.id).unwrap().is_live());
    set_review_state(&*world.store, &world.scope, leaf.id, ReviewState::Reviewed, NOW).await.unwrap();
    assert!(world.index().await.get(&leaf.id).unwrap().is_live());
    for (of, by) in [(leaf.id, leaf.id), (leaf.id, whole.id)] {
        let refused = replace_chunks(&*world.store, &world.scope, vec![of], by, NOW).await;
        assert!(matches!(refused, Err(PastError::BadDraft(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn draft_goes_around_what_was_taken_back() {
    let world = days(5).await;
    world.build().await;
    let parent = world.index().await.live().find(|chunk| chunk.level == 1).unwrap().clone();
    let retract = async |id| {
        set_review_state(&*world.store, &world.scope, id, ReviewState::Retracted, NOW).await.unwrap();
    };
    retract(parent.children[0]).await;
    let draft = ChunkDraft {
        author: DraftAuthor::Person,
        summary: "A week of work.".into(),
        span: None,
        children: Vec::new(),
        sources: Vec::new(),
        supersedes: vec![parent.id],
    };
    let written = write_chunk(&*world.store, &world.scope, draft.clone(), NOW).await.unwrap();
    assert_eq!(world.index().await.get(&written.id).unwrap().children, parent.children[1..]);
    // The same words once more do not bring it back.
    retract(written.id).await;
    let refused = write_chunk(&*world.store, &world.scope, draft, NOW).await;
    assert!(matches!(refused, Err(PastError::BadDraft(_))), "{refused:?}");
}

#[tokio::test]
async fn chunk_of_a_model_is_marked_and_of_what_it_names() {
    let world = days(4).await;
    let said = [
        asked("Run it.", EPOCH + 9 * DAY),
        called("c", EPOCH + 9 * DAY + 1),
        result("c", "?", EPOCH + 9 * DAY + 2),
    ];
    let nodes = world.say("tool", &said).await;
    world.build().await;
    let index = world.index().await;
    let leaves: Vec<PastId> = index.live().filter(|chunk| chunk.level == 0).map(|chunk| chunk.id).collect();
    let draft = ChunkDraft {
        author: DraftAuthor::Agent(AuthorClass::Agent),
        summary: "Two days.".into(),
        span: None,
        children: leaves[..2].to_vec(),
        sources: Vec::new(),
        supersedes: vec![leaves[3]],
    };
    let write = |draft: ChunkDraft| async { write_chunk(&*world.store, &world.scope, draft, NOW).await };
    let written = write(draft.clone()).await.unwrap();
    assert_eq!(written.class, AuthorClass::Agent);
    assert_eq!(write(draft.clone()).await.unwrap(), written, "the same once more changes nothing");
    let index = world.index().await;
    let entry = index.get(&written.id).unwrap();
    assert_eq!((entry.author, entry.level), (ChunkAuthor::Agent, 1));
    assert_eq!(entry.span, TimeRange::new(EPOCH, EPOCH + DAY + 1_001).unwrap());
    assert!(index.get(&leaves[3]).unwrap().is_live(), "it stands in nobody's place");
    // Of what a tool printed, it is as untrusted as that.
    let of_nodes = ChunkDraft { children: Vec::new(), sources: nodes.clone(), ..draft.clone() };
    assert_eq!(write(of_nodes).await.unwrap().class, AuthorClass::Untrusted);
    for (draft, why) in [
        (ChunkDraft { children: vec![], ..draft.clone() }, "no time, no chunk and no node"),
        (ChunkDraft { children: vec![PastId([3; 32])], ..draft.clone() }, "no chunk of all sessions"),
        (ChunkDraft { sources: vec![NodeId([3; 32])], ..draft.clone() }, "in no session of all sessions"),
        (ChunkDraft { sources: vec![entry.node], ..draft.clone() }, "in no session of all sessions"),
        (ChunkDraft { summary: " \n".into(), ..draft.clone() }, "1 to 65536 bytes"),
        (ChunkDraft { summary: "x".repeat(70_000), ..draft.clone() }, "1 to 65536 bytes"),
        (ChunkDraft { span: TimeRange::new(EPOCH, EPOCH + 5), ..draft.clone() }, "reaches beyond"),
        (ChunkDraft { span: TimeRange::new(-9, NOW), ..draft.clone() }, "1970 or later"),
        (
            ChunkDraft { children: vec![], span: TimeRange::new(NOW + 1, NOW + DAY), ..draft.clone() },
            "begins in the future",
        ),
    ] {
        let refused = write(draft).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn chunk_of_what_a_fast_clock_dated_may_lie_in_the_future() {
    let world = days(1).await;
    let nodes = world.say("fast", &turn("later", NOW + DAY)).await;
    let draft = ChunkDraft {
        author: DraftAuthor::Person,
        summary: "Of a clock that was wrong.".into(),
        span: TimeRange::new(NOW + 1, NOW + 2 * DAY),
        children: Vec::new(),
        sources: nodes,
        supersedes: Vec::new(),
    };
    let written = write_chunk(&*world.store, &world.scope, draft, NOW).await.unwrap();
    assert!(world.index().await.get(&written.id).unwrap().is_live());
}

#[tokio::test]
async fn chunks_of_models_about_a_removed_session_are_not_shown() {
    let world = days(4).await;
    let nodes = world.say("s9", &turn("task9", EPOCH + 9 * DAY)).await;
    world.build().await;
    let write = async |author, summary: &str, children: Vec<PastId>, sources: &[NodeId]| {
        let (summary, sources) = (summary.to_owned(), sources.to_vec());
        let draft = ChunkDraft { author, summary, span: None, children, sources, supersedes: Vec::new() };
        write_chunk(&*world.store, &world.scope, draft, NOW).await.unwrap().id
    };
    let agent = DraftAuthor::Agent(AuthorClass::Agent);
    let told = write(agent, "It did task9.", Vec::new(), &nodes).await;
    let above = write(agent, "Of task9, too.", vec![told], &[]).await;
    let own = write(DraftAuthor::Person, "I remember task9.", Vec::new(), &nodes).await;
    let live = async || {
        let index = world.index().await;
        [told, above, own].map(|id| index.get(&id).unwrap().is_live())
    };
    assert_eq!(live().await, [true; 3]);
    let (name, expect) = (RefName::session(&"s9".into()), RefExpectation::Any);
    let mut commit = Commit::default();
    commit.moves.push(RefMove { name, expect, to: None, fence: None, why: "rm".into() });
    world.store.commit(commit).await.unwrap();
    assert_eq!(live().await, [false, false, true]);
}

#[tokio::test]
async fn evidence_has_undated_nodes_and_no_time_of_1970() {
    let world = World::new();
    let said = [asked("Dated.", EPOCH), answered("Undated.", 7)];
    let nodes = world.say("a", &said).await;
    world.build().await;
    // Before the first that has a time, nobody knows when; behind it, at the same time.
    let late = [asked("Never dated.", 0), asked("Dated.", EPOCH + 1), answered("Undated, too.", 0)];
    world.say_as("c", "other", "/work", &late).await;
    let index = world.index().await;
    let chunk = index.live().next().unwrap();
    let evidence = evidence_of(&*world.store, &world.scope, &index, chunk).await.unwrap();
    let of = |node: &NodeId| evidence.nodes.iter().find(|one| one.node == *node).unwrap();
    assert_eq!((of(&nodes[0]).at, of(&nodes[1]).at), (Some(EPOCH), None));
    assert_eq!(evidence.coverage(), 100, "what was said a moment later is not in it");
    let wide = ChunkDraft {
        author: DraftAuthor::Person,
        summary: "A day.".into(),
        span: TimeRange::new(EPOCH, EPOCH + DAY),
        children: Vec::new(),
        sources: Vec::new(),
        supersedes: Vec::new(),
    };
    let written = write_chunk(&*world.store, &world.scope, wide, NOW).await.unwrap();
    let index = world.index().await;
    let evidence =
        evidence_of(&*world.store, &world.scope, &index, index.get(&written.id).unwrap()).await.unwrap();
    let times: Vec<_> = evidence.nodes.iter().map(|one| one.at).collect();
    assert_eq!(times, [Some(EPOCH), Some(EPOCH), Some(EPOCH + 1), Some(EPOCH + 1)]);
    assert_eq!(evidence.count(EvidenceKind::Overlap), 4, "undated nodes are no less evidence");
}
