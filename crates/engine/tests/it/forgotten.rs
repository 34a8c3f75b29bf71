//! What a person had forgotten is in no request that is made from then on: of a session at work, resumed, forked and compacted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quipu::protocol::{Command, CompactionResult, Event, JumpResult, Message, NodeId, Outcome, Summarize};
use quipu::store::{
    HiddenNodes, HiddenSnapshot, HiddenSource, LineageEnd, ReadModel as _, SearchQuery, SessionQuery,
    Store as _, Upkeep as _, decode_all, decode_nodes,
};
use quipu::{Context, ContextAsk, ContextSource, Section, SessionOptions, SourceError};
use quipu_history::{LifeQuery, RecallQuery, life, recall};
use quipu_transcript::{FORGOTTEN, check_conversation};
use serde_json::json;

use crate::before_compaction::{NoteSource, SourceBehaviour};
use crate::compact::{is_summary_request, long, options};
use crate::storage::{errors, failing};
use crate::support::{Gate, LiveSession, Reply, World, call, engine_over, say};

/// What is forgotten at one moment.
#[derive(Default, Clone)]
struct ListContent {
    nodes: HashSet<NodeId>,
    lines: HashSet<String>,
    version: u64,
    problem: Option<String>,
}

/// A list that a test adds to, as another process does to the file.
#[derive(Default)]
struct List {
    now: Mutex<ListContent>,
    /// How often it was read.
    reads: AtomicU64,
    /// What is forgotten when it was read so often from now on.
    later: Mutex<Option<(u64, Vec<NodeId>)>>,
}

impl List {
    fn forget(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let mut now = self.now.lock().unwrap();
        now.nodes.extend(nodes);
        now.version += 1;
    }

    /// Forgets them right after it was read so often.
    fn forget_after(&self, reads: u64, nodes: Vec<NodeId>) {
        *self.later.lock().unwrap() = Some((self.reads.load(Ordering::SeqCst) + reads, nodes));
    }

    fn is_forgotten_later(&self) -> bool {
        self.later.lock().unwrap().is_some()
    }

    fn remember_all(&self) {
        *self.later.lock().unwrap() = None;
        let mut now = self.now.lock().unwrap();
        now.nodes.clear();
        now.version += 1;
    }

    fn forget_line(&self, line: &str) {
        let mut now = self.now.lock().unwrap();
        now.lines.insert(line.to_owned());
        now.version += 1;
    }
}

impl HiddenSource for List {
    fn now(&self) -> HiddenSnapshot {
        let reads = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let now = HiddenSnapshot::of(Arc::new(self.now.lock().unwrap().clone()));
        if let Some((_, nodes)) = self.later.lock().unwrap().take_if(|(at, _)| reads >= *at) {
            self.forget(nodes);
        }
        now
    }
}

impl HiddenNodes for ListContent {
    fn is_empty(&self) -> bool {
        self.problem.is_none() && self.nodes.is_empty() && self.lines.is_empty()
    }

    fn hides(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    fn hides_line(&self, line: &str) -> bool {
        self.lines.contains(line)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

fn world(replies: impl IntoIterator<Item = Reply>) -> (World, Arc<List>) {
    let (world, list) = (World::with(replies), Arc::<List>::default());
    world.store.hide(list.clone());
    (world, list)
}

/// The nodes of a session whose text has a word.
async fn with_word(world: &World, head: NodeId, word: &str) -> Vec<NodeId> {
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let says = |one: &quipu_transcript::DecodedEntry| format!("{:?}", one.entry).contains(word);
    nodes.iter().zip(&decoded).filter(|(_, one)| says(one)).map(|(node, _)| node.id).collect()
}

/// The last request: valid, without the word, and with so many placeholders.
fn is_without(world: &World, word: &str) -> usize {
    let body = String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
    assert!(!body.contains(word), "{body}");
    let messages: Vec<Arc<Message>> = world.fake.last_messages().into_iter().map(Arc::new).collect();
    assert_eq!(check_conversation(&messages), Ok(()));
    body.matches(FORGOTTEN).count()
}

fn script() -> [Reply; 2] {
    let told = Reply { thinking: Some("wombat?".into()), ..call(&[("echo", json!({ "text": "wombat" }))]) };
    [told, say("The wombat it is.")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_nodes_leave_requests_of_a_session_at_work() {
    let (world, list) = world(script());
    let live = world.create().await;
    assert_eq!(live.run("Tell of the wombat.").await, Outcome::Done);
    assert_eq!(live.run("And the fox.").await, Outcome::Done);
    let head = live.session.view().head.unwrap();
    let nodes = with_word(&world, head, "wombat").await;
    assert_eq!(nodes.len(), 4, "prompt, call, result, answer");
    list.forget(nodes.clone());
    world.fake.push([say("Go on.")]);
    assert_eq!(live.run("What else?").await, Outcome::Done);
    assert_eq!(is_without(&world, "wombat"), 4);
    // In the middle of a run, while the model answers.
    let gate = Gate::new();
    let waits = Reply { before: Some(gate.clone()), ..call(&[("echo", json!({ "text": "a badger" }))]) };
    world.fake.push([waits, say("Fine.")]);
    let (running, ()) = tokio::join!(live.run("Tell of the owl."), async {
        gate.reached().await;
        let head = live.session.view().head.unwrap();
        list.forget(with_word(&world, head, "owl").await);
        gate.open();
    });
    assert_eq!(running, Outcome::Done);
    assert_eq!(is_without(&world, "owl"), 5);
    // Resumed after a restart, and forked.
    let id = live.id();
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let world = world.reopen();
    world.store.hide(list.clone());
    let (live, _) = world.open(&id).await;
    world.fake.push([say("Yes.")]);
    assert_eq!(live.run("Still there?").await, Outcome::Done);
    assert_eq!(is_without(&world, "wombat"), 5);
    is_without(&world, "owl");
    // What is summed up has it not either.
    world.fake.push([say("## Goal\nTo count.")]);
    live.session.send(Command::Compact { focus: None }).await.ok();
    live.finish().await;
    is_without(&world, "wombat");
    let forked = world.engine.fork(head, world.options()).await.unwrap();
    let forked = crate::support::LiveSession::of(forked.session).await;
    world.fake.push([say("Yes.")]);
    assert_eq!(forked.run("And here?").await, Outcome::Done);
    assert_eq!(is_without(&world, "wombat"), 5);
    forked.finish().await;
    // The nodes are as they were.
    assert_eq!(world.store.check().await.unwrap().problems, []);
    let whole = world.store.nodes(&nodes).await.unwrap().into_iter().flatten().collect::<Vec<_>>();
    let whole = quipu::store::decode_whole(&*world.store, &whole).await.unwrap();
    assert!(whole.iter().all(|one| format!("{:?}", one.entry).contains("wombat")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_do_not_continue_while_the_list_is_unreadable() {
    let (world, list) = world([say("Well.")]);
    let live = world.create().await;
    assert_eq!(live.run("Hello.").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    list.now.lock().unwrap().problem = Some("it is broken".into());
    let error = world.engine.open(&id, world.options()).await.unwrap_err().to_string();
    assert!(error.contains("no session is continued") && error.contains("it is broken"), "{error}");
}

/// Notes that were read when the session began.
struct Notes(&'static str);

impl ContextSource for Notes {
    fn name(&self) -> &str {
        "notes"
    }

    fn context<'a>(
        &'a self,
        _: &'a ContextAsk,
    ) -> futures_util::future::BoxFuture<'a, Result<Context, SourceError>> {
        let section =
            Section { id: "n".into(), text: self.0.into(), trust: quipu::protocol::Trust::Untrusted };
        Box::pin(std::future::ready(Ok(Context { sections: vec![section], keep_recent: None })))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_lines_leave_the_prompts_of_open_sessions() {
    let (world, list) = world([say("Well."), say("Well."), say("Well.")]);
    let mut options = world.options();
    options.context_sources = vec![Arc::new(Notes("one stays\nthe wombat\nthe vole\ntwo stays"))];
    let live = world.create_with(options.clone()).await;
    assert_eq!(live.run("Hello.").await, Outcome::Done);
    let last = || String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
    assert!(last().contains("the wombat"));
    list.forget_line("the wombat");
    assert_eq!(live.run("Again.").await, Outcome::Done);
    assert!(!last().contains("wombat") && last().contains("one stays\\n[forgotten"), "{}", last());
    let id = live.id();
    live.finish().await;
    // Without the source, by what is recorded.
    list.forget_line("the vole");
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("And again.").await, Outcome::Done);
    assert!(!last().contains("vole") && last().contains("two stays"), "{}", last());
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_stands_where_its_prompt_is_as_it_was() {
    let (world, list) = world([say("Well.")]);
    let mut options = world.options();
    options.system = Some("You are tested.\nthe wombat".into());
    let live = world.create_with(options).await;
    list.forget_line("the wombat");
    assert_eq!(live.run("Hello.").await, Outcome::Done);
    let gate = Gate::new();
    world.fake.push([Reply { before: Some(gate.clone()), ..say("Fine.") }]);
    let (outcome, ()) = tokio::join!(live.run("And on?"), async {
        gate.reached().await;
        list.forget_line("the vole");
        gate.open();
    });
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(world.fake.bodies().len(), 2, "one for each prompt");
    live.finish().await;
}

/// A session whose first prompt has the word, and where it stood behind the answer.
async fn with_a_past(world: &World) -> (LiveSession, NodeId) {
    let live = world.create_with(options(world, 4_000)).await;
    assert_eq!(live.run("Hello.").await, Outcome::Done);
    let begin = live.session.view().head.unwrap();
    for text in ["the wombat", "question-1"] {
        assert_eq!(live.run(&long(text)).await, Outcome::Done);
    }
    (live, begin)
}

/// Holds the answer to the request that is made next while the word is forgotten.
async fn forget_meanwhile(world: &World, list: &List, live: &LiveSession, gate: &Gate) {
    gate.reached().await;
    let nodes = with_word(world, live.session.view().head.unwrap(), "wombat").await;
    assert!(!nodes.is_empty());
    list.forget(nodes);
    gate.open();
}

fn summaries(world: &World) -> Vec<String> {
    let bodies = world.fake.bodies();
    let summaries = bodies.iter().filter(|body| is_summary_request(body));
    summaries.map(|body| String::from_utf8(body.to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_of_what_is_forgotten_meanwhile_is_made_anew() {
    for jumps in [false, true] {
        let answers = (0..3).map(|n| say(&long(&format!("answer-{n}"))));
        let (world, list) = world(answers);
        let (live, begin) = with_a_past(&world).await;
        let gate = Gate::new();
        let first = Reply { before: Some(gate.clone()), cost: 0.25, ..say("A wombat came up.") };
        world.fake.push([first, say("Somebody came up."), say("Yes.")]);
        match jumps {
            true => {
                let summary = Some(Summarize { focus: None });
                live.session.jump(begin, summary, None).await.unwrap();
            }
            false => drop(live.session.compact(None).await.unwrap()),
        }
        forget_meanwhile(&world, &list, &live, &gate).await;
        let is_over =
            |event: &Event| matches!(event, Event::CompactionEnded { .. } | Event::JumpEnded { .. });
        live.until(1, is_over).await;
        let done = live.all(|event| match event {
            Event::CompactionEnded { result, .. } => Some(matches!(**result, CompactionResult::Done { .. })),
            Event::JumpEnded { result } => Some(matches!(**result, JumpResult::Done(_))),
            _ => None,
        });
        assert_eq!(done, [true]);
        let made = summaries(&world);
        assert_eq!(made.len(), 2);
        assert!(made[0].contains("wombat") && !made[1].contains("wombat"), "{}", made[1]);
        assert_eq!(live.run("And now?").await, Outcome::Done);
        is_without(&world, "wombat");
        let last = String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
        assert!(last.contains("Somebody came up."), "{last}");
        // What was paid for the first one is in the graph.
        assert!(live.session.spent() >= 0.25);
        live.finish().await;
        assert_eq!(world.store.check().await.unwrap().problems, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_of_other_nodes_is_used_whatever_is_forgotten() {
    let answers = (0..3).map(|n| say(&long(&format!("answer-{n}"))));
    let (world, list) = world(answers);
    let (live, _) = with_a_past(&world).await;
    let gate = Gate::new();
    world.fake.push([Reply { before: Some(gate.clone()), ..say("A wombat came up.") }]);
    live.session.compact(None).await.unwrap();
    gate.reached().await;
    // It stays as it is.
    list.forget(with_word(&world, live.session.view().head.unwrap(), "answer-2").await);
    gate.open();
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    live.finish().await;
    assert_eq!(summaries(&world).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_what_is_forgotten_meanwhile_is_asked_again() {
    for streams in [false, true] {
        let (world, list) = world([say("Well.")]);
        let live = world.create().await;
        assert_eq!(live.run("Tell of the wombat.").await, Outcome::Done);
        let gate = Gate::new();
        let answer = say("The wombat, again and again.");
        let answer = match streams {
            true => Reply { amid: Some(gate.clone()), pieces: 2, cost: 0.25, ..answer },
            false => Reply { before: Some(gate.clone()), cost: 0.25, ..answer },
        };
        world.fake.push([answer, say("Well, well."), say("Yes.")]);
        let meanwhile = forget_meanwhile(&world, &list, &live, &gate);
        let (outcome, ()) = tokio::join!(live.run("And on?"), meanwhile);
        assert_eq!(outcome, Outcome::Done);
        is_without(&world, "wombat");
        assert!(live.said().iter().all(|text| !text.contains("again and again")), "{:?}", live.said());
        assert_eq!(live.run("And now?").await, Outcome::Done);
        is_without(&world, "wombat");
        let last = String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
        assert!(last.contains("Well, well."), "{last}");
        assert!(live.session.spent() >= 0.25);
        live.finish().await;
        assert_eq!(world.store.check().await.unwrap().problems, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_is_read_as_often_for_many_nodes_as_for_few() {
    let mut counts = Vec::new();
    for turns in [4, 32] {
        let (world, list) = world(None);
        let live = world.create().await;
        for turn in 0..turns {
            assert_eq!(live.run(&format!("prompt {turn} of the fox")).await, Outcome::Done);
        }
        let (id, head) = (live.id(), live.session.view().head.unwrap());
        live.finish().await;
        list.forget([head]);
        let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
        assert!(nodes.len() > 2 * turns);
        let mut counted = Vec::new();
        let mut count = |what: &'static str| {
            counted.push((what, list.reads.swap(0, Ordering::SeqCst)));
        };
        count("before");
        decode_nodes(&*world.store, &nodes).await.unwrap();
        count("decode_nodes");
        decode_all(&*world.store, nodes.clone()).await.unwrap();
        count("decode_all");
        let query = SearchQuery { words: "fox".into(), limit: 1_000, ..SearchQuery::default() };
        assert!(world.store.search(query).await.unwrap().hits.len() >= turns);
        count("search");
        world.store.sessions(SessionQuery::default()).await.unwrap();
        count("sessions");
        let query = LifeQuery { ancestors: 1_000, most: 1_000, ..LifeQuery::new(head) };
        assert!(life(&*world.store, &query).await.unwrap().lines.len() >= turns);
        count("life");
        recall(&*world.store, &RecallQuery::new(head)).await.unwrap();
        count("recall");
        let (live, _) = world.open(&id).await;
        count("open");
        live.finish().await;
        counts.push(counted.split_off(1));
    }
    // What else happens while a session is opened reads it now and then.
    let opened: Vec<u64> = counts.iter_mut().filter_map(Vec::pop).map(|(_, reads)| reads).collect();
    assert!(opened.iter().all(|reads| (1..32).contains(reads)), "{opened:?}");
    assert_eq!(counts[0], counts[1]);
    let once = counts[0].iter().filter(|(what, _)| matches!(*what, "decode_nodes" | "decode_all" | "search"));
    assert!(once.map(|(_, reads)| *reads).eq([1, 1, 1]), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_forgotten_while_they_are_read_are_not_shown() {
    let (world, list) = world([say("The wombat it is.")]);
    let live = world.create().await;
    assert_eq!(live.run("Tell of the wombat.").await, Outcome::Done);
    let (id, head) = (live.id(), live.session.view().head.unwrap());
    live.finish().await;
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let store = failing(&world.store, 0, 0, errors()[1].clone());
    let forget = {
        let (list, ids) = (list.clone(), ids.clone());
        Box::new(move || list.forget(ids))
    };
    *store.meanwhile.lock().unwrap() = Some((0, forget));
    let decoded = decode_nodes(&*store, &nodes).await.unwrap();
    assert!(store.meanwhile.lock().unwrap().is_none() && !format!("{decoded:?}").contains("wombat"));
    list.remember_all();
    // A list that becomes unreadable while a session is read: it is continued as it was, or not at all.
    for reads in 0.. {
        let broken = {
            let list = list.clone();
            Box::new(move || list.now.lock().unwrap().problem = Some("it is broken".into()))
        };
        *store.meanwhile.lock().unwrap() = Some((reads, broken));
        let engine = engine_over(store.clone(), world.dir.path());
        let opened = engine.open(&id, world.options()).await;
        let is_whole = store.meanwhile.lock().unwrap().take().is_some();
        list.now.lock().unwrap().problem = None;
        if let Ok(opened) = opened {
            let live = LiveSession::of(opened.session).await;
            world.fake.push([say("Yes.")]);
            assert_eq!(live.run("And on?").await, Outcome::Done);
            let body = String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
            assert!(body.contains("wombat") && !body.contains(FORGOTTEN), "{reads}: {body}");
            live.finish().await;
        }
        if is_whole {
            assert!(reads > 0);
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branch_forgotten_on_its_way_is_in_no_summary() {
    for reads in 1.. {
        let answers = (0..3).map(|n| say(&long(&format!("answer-{n}"))));
        let (world, list) = world(answers);
        let (live, begin) = with_a_past(&world).await;
        let nodes = with_word(&world, live.session.view().head.unwrap(), "wombat").await;
        let gate = Gate::new();
        // Whichever of them is asked for: a call that is stopped at once has an answer, too.
        let gated = || Reply { before: Some(gate.clone()), ..say("Somebody came up.") };
        world.fake.push([gated(), gated(), gated()]);
        list.forget_after(reads, nodes);
        live.session.jump(begin, Some(Summarize { focus: None }), None).await.unwrap();
        gate.reached().await;
        let is_later = list.is_forgotten_later();
        gate.open();
        live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
        live.finish().await;
        if is_later {
            assert!(reads > 2, "it is read on the way");
            break;
        }
        assert!(!summaries(&world).last().unwrap().contains("wombat"), "{reads}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn place_forgotten_on_its_way_is_in_no_request() {
    let (world, list) = world(None);
    let live = world.create().await;
    assert_eq!(live.run("Hello.").await, Outcome::Done);
    let begin = live.session.view().head.unwrap();
    assert_eq!(live.run("Tell of the wombat.").await, Outcome::Done);
    // More than what is looked at again wherever the session stands.
    for turn in 0..40 {
        assert_eq!(live.run(&format!("prompt {turn} of the fox")).await, Outcome::Done);
    }
    let end = live.session.view().head.unwrap();
    let nodes = with_word(&world, end, "wombat").await;
    let is_over = |event: &Event| matches!(event, Event::JumpEnded { .. });
    for (reads, jumps) in (1..).zip((1..).step_by(2)) {
        live.session.jump(begin, None, None).await.unwrap();
        live.until(jumps, is_over).await;
        list.forget_after(reads, nodes.clone());
        live.session.jump(end, None, None).await.unwrap();
        live.until(jumps + 1, is_over).await;
        let is_later = list.is_forgotten_later();
        *list.later.lock().unwrap() = None;
        assert_eq!(live.run("And now?").await, Outcome::Done);
        let body = String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
        assert!(body.contains("prompt 0 of the fox"));
        if is_later {
            assert!(reads > 2 && body.contains("wombat"), "it is read on the way");
            break;
        }
        assert!(!body.contains("wombat"), "{reads}");
        list.remember_all();
    }
    live.finish().await;
}

/// Tells a node before the conversation, as long as nobody forgot it.
struct Teller {
    list: Arc<List>,
    node: Mutex<Option<NodeId>>,
}

impl ContextSource for Teller {
    fn name(&self) -> &str {
        "teller"
    }

    fn wants(&self, reason: quipu::EpochReason) -> bool {
        reason == quipu::EpochReason::Run
    }

    fn opening<'a>(
        &'a self,
        _: &'a quipu::OpeningAsk,
    ) -> futures_util::future::BoxFuture<'a, Result<Option<quipu::Opening>, SourceError>> {
        let hidden = self.list.now();
        let told = self.node.lock().unwrap().filter(|node| !hidden.hides(node));
        let text = if told.is_some() { "it was a wombat" } else { "it was somebody" };
        let nodes = told.into_iter().collect();
        let opening = quipu::Opening { text: text.into(), boundary: None, nodes, state: None };
        Box::pin(std::future::ready(Ok(Some(opening))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_forgotten_on_its_way_is_in_no_request() {
    for commits in 0.. {
        let (world, list) = world([say("Well.")]);
        let teller = Arc::new(Teller { list: list.clone(), node: Mutex::default() });
        let store = failing(&world.store, 0, 0, errors()[1].clone());
        let engine = engine_over(store.clone(), world.dir.path());
        let wanted = SessionOptions { context_sources: vec![teller.clone()], ..world.options() };
        let live = LiveSession::of(engine.create(wanted).await.unwrap()).await;
        assert_eq!(live.run("Hello.").await, Outcome::Done);
        let node = NodeId([7; 32]);
        *teller.node.lock().unwrap() = Some(node);
        let gate = Gate::new();
        let gated = || Reply { before: Some(gate.clone()), ..say("Yes.") };
        world.fake.push([gated(), gated(), gated()]);
        // At one of the writes on the way to the request.
        let forget = {
            let list = list.clone();
            Box::new(move || list.forget([node]))
        };
        *store.at_commit.lock().unwrap() = Some((commits, forget));
        let (outcome, is_later) = tokio::join!(live.run("Who was it?"), async {
            gate.reached().await;
            let is_later = store.at_commit.lock().unwrap().take().is_some();
            gate.open();
            is_later
        });
        assert_eq!(outcome, Outcome::Done);
        live.finish().await;
        let bodies = world.fake.bodies();
        let told: Vec<bool> =
            bodies.iter().map(|body| String::from_utf8_lossy(body).contains("wombat")).collect();
        assert_eq!(told, [false, is_later], "{commits}");
        let last = String::from_utf8_lossy(&bodies[1]).into_owned();
        assert!(is_later || last.contains("it was somebody"), "{commits}: {last}");
        assert_eq!(world.store.check().await.unwrap().problems, []);
        if is_later {
            assert!(commits > 1, "the prompt and the epoch are written on the way");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_forgotten_right_before_a_request_are_not_sent() {
    for commits in 0.. {
        let (world, list) = world([say("Well.")]);
        let live = world.create().await;
        assert_eq!(live.run("Tell of the wombat.").await, Outcome::Done);
        let (id, head) = (live.id(), live.session.view().head.unwrap());
        let nodes = with_word(&world, head, "wombat").await;
        live.finish().await;
        let store = failing(&world.store, 0, 0, errors()[1].clone());
        let engine = engine_over(store.clone(), world.dir.path());
        let opened = engine.open(&id, world.options()).await.unwrap();
        let live = LiveSession::of(opened.session).await;
        let gate = Gate::new();
        let gated = || Reply { before: Some(gate.clone()), ..say("Yes.") };
        world.fake.push([gated(), gated(), gated()]);
        // At one of the writes on the way to the request.
        let forget = {
            let (list, nodes) = (list.clone(), nodes.clone());
            Box::new(move || list.forget(nodes))
        };
        *store.at_commit.lock().unwrap() = Some((commits, forget));
        let (outcome, is_later) = tokio::join!(live.run("And on?"), async {
            gate.reached().await;
            let is_later = store.at_commit.lock().unwrap().take().is_some();
            gate.open();
            is_later
        });
        assert_eq!(outcome, Outcome::Done);
        live.finish().await;
        if is_later {
            assert!(commits > 0, "something is written on the way");
            break;
        }
        for body in &world.fake.bodies()[1..] {
            assert!(!String::from_utf8_lossy(body).contains("wombat"), "{commits}");
        }
        assert_eq!(world.store.check().await.unwrap().problems, []);
    }
}

/// Sums up by lines of nodes.
struct Liner(Mutex<Vec<quipu::SummaryPart>>);

impl ContextSource for Liner {
    fn name(&self) -> &str {
        "liner"
    }

    fn compaction<'a>(
        &'a self,
        _: &'a quipu::CompactionAsk,
    ) -> futures_util::future::BoxFuture<'a, Result<Option<quipu::SourceSummary>, SourceError>> {
        let told = self.0.lock().unwrap().clone();
        let text = told.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("\n");
        let summary = quipu::SourceSummary { text, author: None, parts: told };
        Box::pin(std::future::ready(Ok(Some(summary))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_a_summary_go_with_their_nodes() {
    let answers = (0..3).map(|n| say(&long(&format!("answer-{n}"))));
    let (world, list) = world(answers);
    let liner = Arc::new(Liner(Mutex::default()));
    let wanted = SessionOptions { context_sources: vec![liner.clone()], ..options(&world, 4_000) };
    let live = world.create_with(wanted.clone()).await;
    for text in ["question-0", "question-1", "question-2"] {
        assert_eq!(live.run(&long(text)).await, Outcome::Done);
    }
    let head = live.session.view().head.unwrap();
    let (first, second) =
        (with_word(&world, head, "question-0").await[0], with_word(&world, head, "question-1").await[0]);
    let part = |text: &str, node| quipu::SummaryPart { text: text.into(), nodes: vec![node] };
    *liner.0.lock().unwrap() = vec![part("[1] an otter", first), part("[2] a heron", second)];
    live.session.compact(None).await.unwrap();
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    let last = || String::from_utf8(world.fake.bodies().last().unwrap().to_vec()).unwrap();
    world.fake.push([say("Yes."), say("Yes."), say("Yes.")]);
    assert_eq!(live.run("And now?").await, Outcome::Done);
    assert!(last().contains("an otter") && last().contains("a heron"), "{}", last());
    list.forget([first]);
    assert_eq!(live.run("And then?").await, Outcome::Done);
    let of_live = last();
    assert!(!of_live.contains("an otter") && of_live.contains("a heron"), "{of_live}");
    // The words of the user that were carried over, too.
    assert!(!of_live.contains("question-0") && of_live.contains("question-1"), "{of_live}");
    let id = live.id();
    live.finish().await;
    let opened = world.engine.open(&id, wanted).await.unwrap();
    let live = LiveSession::of(opened.session).await;
    assert_eq!(live.run("And then?").await, Outcome::Done);
    let begins = |body: &str| body.find("And then?").map(|end| body[..end].to_owned());
    assert_eq!(begins(&last()), begins(&of_live), "resumed as it was live");
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_before_a_compaction_are_made_again_after_a_forget() {
    for concerns in [true, false] {
        let answers = (0..3).map(|n| say(&long(&format!("answer-{n}"))));
        let (world, list) = world(answers);
        let keeper = NoteSource::new(SourceBehaviour::AsksAModel);
        let live = world
            .create_with(SessionOptions { context_sources: vec![keeper.clone()], ..options(&world, 4_000) })
            .await;
        for text in ["the wombat", "question-1", "question-2"] {
            assert_eq!(live.run(&long(text)).await, Outcome::Done);
        }
        let gate = Gate::new();
        let first = Reply { before: Some(gate.clone()), ..say("A wombat came up.") };
        world.fake.push([first, say("Somebody came up."), say("## Goal\nTo count."), say("Yes.")]);
        live.session.compact(None).await.unwrap();
        match concerns {
            true => forget_meanwhile(&world, &list, &live, &gate).await,
            false => {
                gate.reached().await;
                list.forget([NodeId([9; 32])]);
                gate.open();
            }
        }
        live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
        let asked = keeper.asked();
        assert_eq!(asked.len(), 2, "{concerns}");
        let says = |at: usize| format!("{:?}", asked[at].messages).contains("the wombat");
        assert_eq!((says(0), says(1)), (true, !concerns));
        assert_eq!(keeper.answers.lock().unwrap().last().unwrap(), "Somebody came up.");
        let made = summaries(&world);
        assert_eq!(made.len(), 1, "no summary was asked for of what was forgotten");
        assert_eq!(made[0].contains("wombat"), !concerns);
        live.finish().await;
        assert_eq!(world.store.check().await.unwrap().problems, []);
    }
}
