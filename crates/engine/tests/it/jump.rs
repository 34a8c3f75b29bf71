//! Going to another node of a session: what is left behind is summed up, and nothing is lost.

use quipu_store::ReadModel as _;
use std::sync::Arc;

use quipu::protocol::{
    AbortTarget, Command, Ending, Entry, Event, JumpResult, Jumped, Message, ModelErrorKind, NodeId, Outcome,
    QueueMode, StopReason, Summarize, UserInput,
};
use quipu::store::{Commit, RefMove, RefName, Store, decode_nodes};
use quipu::{ChangeError, Limits, Refused, SessionOptions};
use serde_json::json;

use crate::compact::{is_summary_request, long, options, texts};
use crate::support::{Gate, Live, Reply, World, call, messages_of, say};

fn results(live: &Live) -> Vec<Arc<JumpResult>> {
    live.all(|event| match event {
        Event::JumpEnded { result } => Some(result.clone()),
        _ => None,
    })
}

fn done(result: &Arc<JumpResult>) -> Jumped {
    match &**result {
        JumpResult::Done(jumped) => (**jumped).clone(),
        other => panic!("{other:?}"),
    }
}

/// The node of a message that was told.
fn node_of(live: &Live, text: &str) -> NodeId {
    let told = live.all(|event| match event {
        Event::MessageEnded { message, ending: Ending::Kept(node), .. } => {
            Some((*node, crate::support::text_of(message)))
        }
        _ => None,
    });
    told.into_iter().find(|(_, said)| said == text).unwrap_or_else(|| panic!("{text} was not said")).0
}

async fn entry(world: &World, node: NodeId) -> quipu_transcript::Decoded {
    let nodes: Vec<_> = world.store.nodes(&[node]).await.unwrap().into_iter().flatten().collect();
    decode_nodes(&*world.store, &nodes).await.unwrap().remove(0)
}

/// Goes there and waits until it is over.
async fn jump(live: &Live, to: NodeId, summary: Option<&str>, label: Option<&str>) -> Arc<JumpResult> {
    let before = results(live).len();
    let summary = summary.map(|focus| Summarize { focus: Some(focus.to_owned()).filter(|f| !f.is_empty()) });
    live.session.jump(to, summary, label.map(str::to_owned)).await.unwrap();
    live.until(before + 1, |event| matches!(event, Event::JumpEnded { .. })).await;
    let log = live.events();
    let ended = log.iter().rposition(|one| matches!(one.event, Event::JumpEnded { .. })).unwrap();
    let settled = log[..ended].iter().filter(|one| matches!(one.event, Event::Settled)).count();
    live.settled(settled + 1).await;
    results(live).pop().unwrap()
}

/// A ref at a place that was left, so that the checks of every store find what was asked there.
async fn keep(world: &World, node: NodeId) {
    world.engine.fork_from(node, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_behind_is_summed_up_at_the_new_place() {
    let work = call(&[("read", json!({ "path": "r1" })), ("write", json!({ "path": "w1" }))]);
    let world = World::with([say("a0"), work, say("a1"), say("a2")]);
    let live = world.create().await;
    for question in ["q0", "q1", "q2"] {
        live.run(question).await;
    }
    let from = live.session.view().head.unwrap();
    let asked_before = texts(world.fake.bodies().last().unwrap());
    world.fake.push([Reply { cost: 0.5, ..say("## Goal\nThe other way.") }, say("a3"), say("a4"), say("a5")]);
    let jumped = done(&jump(&live, node_of(&live, "q1"), Some("the files"), Some(" the  way ")).await);

    // All that is left, nothing that stays, in words of its own.
    let bodies = world.fake.bodies();
    let request = texts(&bodies[4]).remove(0);
    assert!(
        request.starts_with(
            "<conversation>\n[User]: q1\n\n[Assistant]: calling\n\n[Assistant tool calls]: read(path=\"r1\"); write(path=\"w1\")"
        ),
        "{request}"
    );
    assert!(request.contains("[User]: q2\n\n[Assistant]: a2\n</conversation>"), "{request}");
    for heading in
        ["## Goal", "## Constraints & Preferences", "## Progress", "## Key Decisions", "## Next Steps"]
    {
        assert!(request.contains(heading), "{heading}: {request}");
    }
    assert!(!request.contains("Critical Context") && !request.contains("q0"), "{request}");
    assert!(request.ends_with("Additional focus: the files"), "{request}");

    // It stands before what was said, whose words are given back.
    let summary = jumped.summary.unwrap();
    assert_eq!((jumped.from, jumped.at), (from, node_of(&live, "a0")));
    assert_eq!(jumped.said, Some(UserInput::from("q1")));
    assert_eq!(jumped.usage.unwrap().cost.total, 0.5);
    assert_eq!(live.session.view().head, Some(jumped.head));
    let moved = live.all(|event| match event {
        Event::HeadMoved { from, to } => Some((*from, *to)),
        _ => None,
    });
    assert_eq!(moved, [(Some(from), jumped.head)]);

    // The entry, as it stands in session files.
    let node = entry(&world, summary).await;
    let Entry::Meta(json) = &node.entry else { panic!("{:?}", node.entry) };
    let kept = json.value();
    let note = "## Goal\nThe other way.\n\n<read-files>\nr1\n</read-files>\n\n<modified-files>\nw1\n</modified-files>";
    assert_eq!((&kept["type"], &kept["summary"]), (&json!("branch_summary"), &json!(note)));
    assert_eq!(kept["fromId"], from.to_string());
    assert_eq!(kept["details"], json!({ "readFiles": ["r1"], "modifiedFiles": ["w1"] }));
    assert_eq!(kept["usage"]["cost"]["total"], 0.5);
    assert!(node.step.call.is_some());
    assert_eq!(world.store.spent(0).await.unwrap(), 0.5);
    let labels = world.store.labels(&[live.id()]).await.unwrap();
    assert_eq!(
        labels.iter().map(|one| (one.target, &*one.text)).collect::<Vec<_>>(),
        [(Some(summary), "the way")]
    );

    // The next request holds it, live and resumed; the one after goes on from there.
    live.run("q3").await;
    let next = texts(world.fake.bodies().last().unwrap());
    assert_eq!((next.len(), &*next[0], &*next[1], &*next[3]), (4, "q0", "a0", "q3"));
    assert!(next[2].contains(note), "{}", next[2]);
    let id = live.id();
    live.finish().await;
    let (live, troubles) = world.open(&id).await;
    assert!(troubles.is_empty());
    live.run("q4").await;
    let resumed = texts(world.fake.bodies().last().unwrap());
    assert_eq!((&resumed[..4], &*resumed[4], &*resumed[5]), (&next[..], "a3", "q4"));

    // Going back over it: the whole of what was left is there again, and this is asked as it would have been.
    let there = jump(&live, from, None, None).await;
    assert_eq!((done(&there).at, done(&there).summary), (from, None));
    let left = live.session.view().head.unwrap();
    assert_eq!(left, from);
    let (here, before) = (done(&there).from, world.fake.bodies().len());
    live.run("q5").await;
    let body = world.fake.bodies().split_off(before).remove(0);
    let mut expect = asked_before;
    expect.extend(["a2".to_owned(), "q5".into()]);
    assert_eq!(texts(&body), expect);
    live.finish().await;
    keep(&world, here).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_fails_leaves_the_session_where_it_stands() {
    let bad = [
        (Reply { error: Some(ModelErrorKind::Server), cost: 0.25, ..say("half") }, "did not sum"),
        (Reply { stop: Some(StopReason::Length), cost: 0.25, ..say("half") }, "cut off"),
        (Reply { cost: 0.25, ..call(&[("echo", json!({"text": "x"}))]) }, "called a tool"),
        (Reply { text: " \n".into(), pieces: 1, cost: 0.25, ..Reply::default() }, "an empty summary"),
    ];
    for (reply, why) in bad {
        let world = World::with([say("a0"), say("a1"), reply, say("a2")]);
        let live = world.create().await;
        live.run("q0").await;
        live.run("q1").await;
        let result = jump(&live, node_of(&live, "q1"), Some(""), Some("here")).await;
        assert!(matches!(&*result, JumpResult::Failed(text) if text.contains(why)), "{result:?}");
        live.run("q2").await;
        assert_eq!(texts(world.fake.bodies().last().unwrap()), ["q0", "a0", "q1", "a1", "q2"]);
        assert!(world.store.labels(&[live.id()]).await.unwrap().is_empty());
        assert_eq!(world.store.spent(0).await.unwrap(), 0.25, "what was paid is kept");
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_summary_nobody_is_asked() {
    let world = World::with([say("a0"), say("a1")]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (first, last) = (node_of(&live, "a0"), node_of(&live, "a1"));
    let back = done(&jump(&live, first, None, None).await);
    assert_eq!((back.from, back.at, back.head, back.said), (last, first, first, None));
    // There and back again; ahead there is nothing to sum up, nor where it stands.
    let ahead = done(&jump(&live, last, Some(""), Some("end")).await);
    assert_eq!((ahead.at, ahead.summary), (last, None));
    assert_ne!(ahead.head, last, "the label is a node");
    let head = ahead.head;
    assert_eq!(done(&jump(&live, head, Some(""), None).await).head, head);
    assert_eq!(world.fake.bodies().len(), 2);
    live.run("q2").await;
    assert_eq!(texts(world.fake.bodies().last().unwrap()), ["q0", "a0", "q1", "a1", "q2"]);
    // To the very beginning.
    let start = jump(&live, node_of(&live, "q0"), None, None).await;
    assert_eq!(done(&start).said, Some(UserInput::from("q0")));
    live.run("anew").await;
    assert_eq!(texts(world.fake.bodies().last().unwrap()), ["anew"]);
    live.finish().await;
    keep(&world, done(&start).from).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_nodes_of_the_session_are_places_to_go() {
    let world = World::with([say("a0"), say("b0")]);
    let other = world.create().await;
    other.run("q0").await;
    let theirs = node_of(&other, "a0");
    other.finish().await;
    let live = world.create().await;
    assert_eq!(
        live.session.jump(theirs, None, None).await,
        Err(Refused::NotInSession { node: theirs }),
        "not begun yet"
    );
    let gate = Gate::new();
    world.fake.push([Reply { before: Some(gate.clone()), ..say("b1") }]);
    live.run("p0").await;
    let mine = node_of(&live, "b0");
    let nowhere = NodeId([7; 32]);
    for node in [theirs, nowhere] {
        assert_eq!(live.session.jump(node, None, None).await, Err(Refused::NotInSession { node }));
    }
    assert_eq!(
        live.session.jump(mine, None, Some("x".repeat(201))).await,
        Err(Refused::LabelTooLong { characters: 201 })
    );
    live.session.prompt("p1").await.unwrap();
    gate.reached().await;
    assert_eq!(live.session.jump(mine, None, None).await, Err(Refused::Busy));
    gate.open();
    live.until(2, |event| matches!(event, Event::RunEnded { .. })).await;
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_meanwhile_is_answered_at_the_place_that_was_reached() {
    for abort in [None, Some(AbortTarget::Compaction), Some(AbortTarget::Run)] {
        let gate = Gate::new();
        let world = World::with([say("a0"), say("a1")]);
        let live = world.create().await;
        live.run("q0").await;
        live.run("q1").await;
        let from = live.session.view().head.unwrap();
        world.fake.push([Reply { before: Some(gate.clone()), ..say("notes") }, say("yes")]);
        let to = node_of(&live, "a0");
        live.session.jump(to, Some(Summarize::default()), None).await.unwrap();
        gate.reached().await;
        assert_eq!(live.session.jump(to, None, None).await, Err(Refused::Busy));
        live.session.prompt("now").await.unwrap();
        match abort.clone() {
            Some(part) => drop(live.session.send(Command::Abort { target: part }).await.unwrap()),
            None => gate.open(),
        }
        live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
        let result = results(&live).remove(0);
        assert_eq!(matches!(&*result, JumpResult::Aborted), abort.is_some(), "{result:?}");
        if abort == Some(AbortTarget::Run) {
            // It waits, as after any run that somebody stopped.
            live.settled(3).await;
            live.session.send(Command::Continue).await.unwrap();
        }
        live.until(3, |event| matches!(event, Event::RunEnded { .. })).await;
        let sent = texts(world.fake.bodies().last().unwrap());
        assert_eq!(sent.last().unwrap(), "now");
        assert_eq!(sent.contains(&"q1".to_owned()), abort.is_some(), "{sent:?}");
        live.finish().await;
        keep(&world, from).await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_branch_is_read_in_pieces_that_fit_and_nothing_is_skipped() {
    let world = World::with([say("a0")]);
    let live = world.create_with(options(&world, 0)).await;
    live.run("q0").await;
    for n in 1..20 {
        world.fake.push([say(&format!("answer-{n} {}", "word ".repeat(1_000)))]);
        live.run(&format!("question-{n} {}", "äöü ".repeat(2_000))).await;
    }
    let (id, to, from) = (live.id(), node_of(&live, "a0"), live.session.view().head.unwrap());
    live.finish().await;
    let before = world.fake.bodies().len();
    world.fake.push((0..100).map(|n| Reply { cost: 0.125, ..say(&format!("notes {n}")) }));
    let live = Live::of(world.engine.open(&id, options(&world, 8_192)).await.unwrap().session).await;
    let jumped = done(&jump(&live, to, Some(""), None).await);
    let bodies = world.fake.bodies().split_off(before);
    assert!(bodies.len() > 10 && bodies.iter().all(|body| is_summary_request(body)), "{}", bodies.len());
    assert_eq!(jumped.usage.unwrap().cost.total, 0.125 * bodies.len() as f64);
    let mut whole = String::new();
    for (at, body) in bodies.iter().enumerate() {
        let messages = messages_of(body);
        let tokens: u64 = messages.iter().map(quipu_transcript::estimate_tokens).sum();
        assert!(tokens + 8_192 / 10 + 200 <= 8_192, "request {at} has {tokens} tokens");
        let text = texts(body).remove(0);
        assert_eq!(text.contains("<previous-summary>\nnotes "), at > 0);
        assert!(!text.contains("Critical Context"));
        whole.push_str(&text);
    }
    for n in 1..20 {
        assert!(whole.contains(&format!("question-{n} ")) && whole.contains(&format!("answer-{n} ")), "{n}");
    }
    live.finish().await;
    keep(&world, from).await;
    world.check().await;

    // What may be spent is looked at before each piece.
    let world = World::with([say("a0")]);
    let live = world.create_with(options(&world, 0)).await;
    live.run("q0").await;
    for _ in 0..3 {
        world.fake.push([say(&"word ".repeat(10_000))]);
        live.run("more").await;
    }
    let (id, to) = (live.id(), node_of(&live, "a0"));
    live.finish().await;
    world.fake.push((0..2).map(|_| Reply { cost: 0.5, ..say("half") }));
    for (max_cost, daily_budget, why) in
        [(Some(1.0), None, "cost limit is reached"), (None, Some(1.0), "today's budget")]
    {
        let limits = Limits { max_cost, daily_budget, ..Limits::default() };
        let settings = SessionOptions { limits, ..options(&world, 8_192) };
        let live = Live::of(world.engine.open(&id, settings).await.unwrap().session).await;
        let result = jump(&live, to, Some(""), None).await;
        assert!(matches!(&*result, JumpResult::Failed(text) if text.contains(why)), "{result:?}");
        live.finish().await;
    }
    assert_eq!(world.store.spent(0).await.unwrap(), 1.0);
    assert_eq!(world.fake.bodies().len(), 6);
    world.check().await;
}

/// A branch that was compacted is summed up from that summary, as far as it covers the branch and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_was_compacted_is_not_read_twice() {
    // 0: the compaction kept nothing of what both share. 1: it kept all of the branch.
    for shared in [0, 1] {
        let world = World::with((0..4).map(|n| say(&long(&format!("answer-{n}")))));
        let mut settings = options(&world, 0);
        if shared == 1 {
            settings.compaction.keep_recent_tokens = 1_700;
        }
        let live = world.create_with(settings).await;
        for n in 0..4 {
            live.run(&long(&format!("question-{n}"))).await;
        }
        let old = if shared == 0 { long("answer-0") } else { long("question-2") };
        let to = node_of(&live, &old);
        world.fake.push((0..=shared).map(|_| say("compacted")));
        world.fake.push([say("after")]);
        live.session.compact(None).await.unwrap();
        live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
        live.settled(5).await;
        live.run("more").await;
        let from = live.session.view().head.unwrap();
        world.fake.push([say("the branch")]);
        jump(&live, to, Some(""), None).await;
        let asked = texts(world.fake.bodies().last().unwrap()).remove(0);
        let has = |word: &str| asked.contains(word);
        assert_eq!(has("compacted"), shared == 0, "{asked}");
        assert!(has("question-3") && has("[User]: more\n\n[Assistant]: after"), "{asked}");
        assert_eq!(has("[User]: question-2"), shared == 1, "{asked}");
        assert!(!has("[Assistant]: answer-1"), "{asked}");
        live.finish().await;
        keep(&world, from).await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_branch_are_those_of_a_later_compaction() {
    let world = World::with([say("a0"), call(&[("edit", json!({ "path": "left" }))]), say("a1")]);
    let live = world.create_with(options(&world, 0)).await;
    live.run("q0").await;
    live.run("q1").await;
    let from = live.session.view().head.unwrap();
    world.fake.push([say("the branch"), call(&[("read", json!({ "path": "here" }))])]);
    world.fake.push((2..5).map(|n| say(&long(&format!("answer-{n}")))));
    jump(&live, node_of(&live, "a0"), Some(""), None).await;
    for n in 2..5 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    world.fake.push([say("notes")]);
    live.session.compact(None).await.unwrap();
    // Two questions, the jump, three more, and this.
    live.settled(7).await;
    let asked = texts(world.fake.bodies().last().unwrap()).remove(0);
    assert!(asked.contains("the branch"), "{asked}");
    live.run("and").await;
    let sent = texts(world.fake.bodies().last().unwrap()).remove(0);
    assert!(
        sent.contains("<read-files>\nhere\n</read-files>\n\n<modified-files>\nleft\n</modified-files>"),
        "{sent}"
    );
    live.finish().await;
    keep(&world, from).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_model_goes_along_and_is_recorded() {
    let world = World::with([say("a0"), say("a1")]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (id, to, from) = (live.id(), node_of(&live, "a0"), live.session.view().head.unwrap());
    live.finish().await;
    let other = quipu::protocol::Model { id: "other".into(), ..(*crate::support::model()).clone() };
    let settings = SessionOptions { model: Arc::new(other), ..world.options() };
    let live = Live::of(world.engine.open(&id, settings).await.unwrap().session).await;
    jump(&live, to, None, None).await;
    live.run("q2").await;
    assert_eq!(
        quipu::epoch_at(&*world.store, live.session.view().head.unwrap()).await.unwrap().model,
        "other"
    );
    live.finish().await;
    assert_eq!(quipu::epoch_at(&*world.store, from).await.unwrap().model, "test-model");
    keep(&world, from).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_over_a_summary_leaves_the_session_where_it_stood() {
    let gate = Gate::new();
    let world = World::with([say("a0"), say("a1"), Reply { before: Some(gate.clone()), ..say("never") }]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (id, to) = (live.id(), node_of(&live, "a0"));
    live.session.jump(to, Some(Summarize::default()), None).await.unwrap();
    gate.reached().await;
    live.session.kill();
    drop(live);
    // At rest again, it goes there all the same: what was left open is told where it stood.
    let jumped = loop {
        match world.engine.jump(to, Some("there")).await {
            Err(ChangeError::Busy(_)) => tokio::task::yield_now().await,
            other => break other.unwrap(),
        }
    };
    let open = entry(&world, jumped.from).await.entry;
    assert!(matches!(&open, Entry::Meta(json) if json.get().contains("process ended")), "{open:?}");
    let (live, troubles) = world.open(&id).await;
    assert!(troubles.is_empty(), "{troubles:?}");
    live.run("q2").await;
    assert_eq!(texts(world.fake.bodies().last().unwrap()), ["q0", "a0", "q2"]);
    let labels = world.store.labels(&[id]).await.unwrap();
    assert_eq!(labels.iter().map(|one| (one.target, &*one.text)).collect::<Vec<_>>(), [(Some(to), "there")]);
    live.finish().await;
    keep(&world, jumped.from).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_at_rest_goes_without_a_model() {
    let world = World::with([say("a0"), say("a1")]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (id, first, last) = (live.id(), node_of(&live, "q1"), node_of(&live, "a1"));
    assert!(matches!(world.engine.jump(first, None).await, Err(ChangeError::Busy(_))));
    live.finish().await;
    let jumped = world.engine.jump(first, None).await.unwrap();
    assert_eq!(
        (jumped.session, jumped.from, jumped.at),
        (id.clone(), last, node_of_text(&world, "a0").await)
    );
    assert_eq!((jumped.head, jumped.said), (jumped.at, Some(UserInput::from("q1"))));
    assert_eq!(world.store.head(&RefName::session(&id)).await.unwrap(), Some(jumped.head));
    let back = world.engine.jump(last, None).await.unwrap();
    assert_eq!((back.from, back.head), (jumped.at, last));
    assert!(matches!(world.engine.jump(last, Some(&"x".repeat(201))).await, Err(ChangeError::TooLong(201))));
    let (live, _) = world.open(&id).await;
    live.run("q2").await;
    assert_eq!(texts(world.fake.bodies().last().unwrap()), ["q0", "a0", "q1", "a1", "q2"]);
    live.finish().await;
    world.check().await;
}

async fn node_of_text(world: &World, text: &str) -> NodeId {
    let heads = world.store.heads("quipu/").await.unwrap();
    let nodes = world.store.lineage(heads[0].node, quipu::store::Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let says = |entry: &Entry| match entry {
        Entry::Message(message @ (Message::User(_) | Message::Assistant(_))) => {
            crate::support::text_of(message) == text
        }
        _ => false,
    };
    nodes[decoded.iter().position(|one| says(&one.entry)).unwrap()].id
}

/// Another program moves the ref while the branch is summed up: the session goes on as one of its own, at the place
/// that it wanted to reach.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_the_race_goes_there_in_a_session_of_its_own() {
    let gate = Gate::new();
    let world = World::with([say("a0"), say("a1"), Reply { before: Some(gate.clone()), ..say("notes") }]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (id, to, from) = (live.id(), node_of(&live, "a0"), live.session.view().head.unwrap());
    live.session.jump(to, Some(Summarize::default()), Some("mine".into())).await.unwrap();
    gate.reached().await;
    let moves = vec![RefMove::swap(RefName::session(&id), Some(from), to, "another program")];
    world.store.commit(Commit { moves, ..Commit::default() }).await.unwrap();
    live.session.send(Command::Prompt { input: "later".into(), when: QueueMode::FollowUp }).await.unwrap();
    gate.open();
    live.until(3, |event| matches!(event, Event::RunEnded { .. })).await;
    let jumped = done(&results(&live)[0]);
    assert_ne!(jumped.session, id);
    assert_eq!(live.id(), jumped.session);
    let sent = texts(world.fake.bodies().last().unwrap());
    assert!(sent.len() == 4 && sent[2].contains("notes") && sent[3] == "later", "{sent:?}");
    assert_eq!(live.outcomes().last(), Some(&Outcome::Done));
    let labels = world.store.labels(std::slice::from_ref(&jumped.session)).await.unwrap();
    assert_eq!(labels.first().and_then(|one| one.target), jumped.summary);
    live.finish().await;
    keep(&world, from).await;
    world.check().await;
}
