//! Old results that are left out once the provider's cache has expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quipu::protocol::{Entry, Event, Message, Model, Outcome};
use quipu::store::{LineageEnd, RefName, Store as _, decode_nodes};
use quipu::{CacheExpiry, Clock, SessionOptions, ToolGlobs, ToolOutput};
use serde_json::json;

use crate::support::{LiveSession, Reply, World, call, messages_of, result_text, say, tool};

const MINUTE: i64 = 60_000;
const BEGIN: i64 = 1_700_000_000_000;
const TRIMMED: &str = "[This result is shortened: its first 1500 and last 1500 of 8004 characters.]";

struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A session at work: 12 results of 2,000 tokens each in a window of 60,000.
struct Work {
    world: World,
    clock: Arc<Hands>,
    expiry: CacheExpiry,
}

impl Work {
    fn new(expiry: CacheExpiry) -> Self {
        let clock = Arc::new(Hands(BEGIN.into()));
        let mut world = World::new();
        world.engine = world.engine.with_clock(clock.clone());
        let print = |args: serde_json::Value, _| async move {
            let number = args["number"].as_u64().unwrap_or_default();
            ToolOutput::text(format!("{number:02}: {}", "y".repeat(8_000)))
        };
        world.tools = vec![tool("print", print)];
        world.fake.answered_at.store(BEGIN, Ordering::SeqCst);
        Self { world, clock, expiry }
    }

    fn options(&self) -> SessionOptions {
        let model = Model { context_window: 60_000, ..(*crate::support::model()).clone() };
        let cache_expiry = Some(Arc::new(self.expiry.clone()));
        SessionOptions { model: Arc::new(model), cache_expiry, ..self.world.options() }
    }

    /// Answers have this time from now on, too.
    fn set(&self, at: i64) {
        self.clock.0.store(at, Ordering::SeqCst);
        self.world.fake.answered_at.store(at, Ordering::SeqCst);
    }

    async fn begin(&self) -> LiveSession {
        let print = |n: usize| -> Reply { call(&[("print", json!({ "number": n }))]) };
        self.world.fake.push((0..12).map(print));
        self.world.fake.push([say("done")]);
        let live = self.world.create_with(self.options()).await;
        assert_eq!(live.run("go").await, Outcome::Done);
        live
    }

    async fn open(&self, id: &quipu::protocol::SessionId) -> LiveSession {
        LiveSession::of(self.world.engine.open(id, self.options()).await.unwrap().session).await
    }

    /// The results of the last request.
    fn results(&self) -> Vec<String> {
        let messages = messages_of(self.world.fake.bodies().last().unwrap());
        let results = messages.iter().filter_map(|message| match message {
            Message::ToolResult(result) => Some(result_text(result).to_owned()),
            _ => None,
        });
        results.collect()
    }

    fn trimmed(&self) -> usize {
        self.results().iter().filter(|result| result.ends_with(TRIMMED)).count()
    }
}

fn steps(live: &LiveSession) -> usize {
    live.all(|event| matches!(event, Event::ContextPruned { .. }).then_some(())).len()
}

fn messages(body: &[u8]) -> Vec<serde_json::Value> {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_shortened_once_the_cache_has_expired() {
    let work = Work::new(CacheExpiry::default());
    let live = work.begin().await;
    work.set(BEGIN + 5 * MINUTE - 1);
    live.run("soon").await;
    assert_eq!((work.trimmed(), steps(&live)), (0, 0), "the cache is warm");
    work.set(BEGIN + 11 * MINUTE);
    live.run("later").await;
    // The last three answers are `soon`'s, `go`'s and the call before it.
    assert_eq!((work.trimmed(), work.results().len(), steps(&live)), (11, 12, 1));
    let sent = work.results();
    assert!(sent[0].starts_with("00: yyy") && sent[0].contains("y\n...\ny") && sent[0].len() < 3_200);
    assert!(sent[11].len() == 8_004);
    let last = messages(work.world.fake.bodies().last().unwrap());
    live.run("at once").await;
    assert!(messages(work.world.fake.bodies().last().unwrap()).starts_with(&last), "and so it stays");
    // The graph has them whole.
    let id = live.id();
    live.finish().await;
    let head = work.world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    let nodes = work.world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*work.world.store, &nodes).await.unwrap();
    let whole = decoded.iter().filter(|one| match &one.entry {
        Entry::Message(Message::ToolResult(result)) => result_text(result).len() == 8_004,
        _ => false,
    });
    assert_eq!(whole.count(), 12);
    // A session that is opened again sends the same.
    let live = work.open(&id).await;
    live.run("again").await;
    assert!(messages(work.world.fake.bodies().last().unwrap()).starts_with(&last));
    live.finish().await;
    work.world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiry_counts_from_the_last_answer_across_restarts_and_jumps() {
    let work = Work::new(CacheExpiry::default());
    let live = work.begin().await;
    let id = live.id();
    live.finish().await;
    // The clock jumped back by years: nobody waits for years.
    work.clock.0.store(MINUTE, Ordering::SeqCst);
    let live = work.open(&id).await;
    live.run("back").await;
    assert_eq!(work.trimmed(), 0);
    live.finish().await;
    // Of another time, the newest answer counts alone.
    work.set(BEGIN + 6 * MINUTE);
    let live = work.open(&id).await;
    live.run("after a restart").await;
    assert!(work.trimmed() > 0);
    live.finish().await;
    work.world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oldest_results_are_replaced_where_that_is_not_enough() {
    let expiry = CacheExpiry {
        soft_percent: 10,
        hard_percent: 15,
        min_clear_characters: 1_000,
        ..CacheExpiry::default()
    };
    let gone = expiry.placeholder.clone().unwrap();
    let work = Work::new(expiry);
    let live = work.begin().await;
    work.set(BEGIN + 6 * MINUTE);
    live.run("later").await;
    assert_eq!(steps(&live), 2);
    let sent = work.results();
    let cleared = sent.iter().take_while(|result| **result == gone).count();
    assert!((1..11).contains(&cleared), "{cleared}");
    assert!(sent[cleared..].iter().all(|result| *result != gone), "the oldest ones");
    live.finish().await;
    work.world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_out_of_what_is_protected() {
    let default = CacheExpiry::default();
    for expiry in [
        CacheExpiry { soft_percent: 90, ..default.clone() },
        CacheExpiry { keep_answers: 14, ..default.clone() },
        CacheExpiry {
            tools: ToolGlobs { deny: vec!["pr*".into()], ..ToolGlobs::default() },
            ..default.clone()
        },
        CacheExpiry {
            tools: ToolGlobs { allow: vec!["read".into()], ..ToolGlobs::default() },
            ..default.clone()
        },
        CacheExpiry { placeholder: None, trim_characters: 9_000, hard_percent: 1, ..default },
    ] {
        let work = Work::new(expiry);
        let live = work.begin().await;
        work.set(BEGIN + 60 * MINUTE);
        live.run("later").await;
        assert_eq!((steps(&live), work.trimmed()), (0, 0), "{:?}", work.expiry);
        live.finish().await;
        work.world.check().await;
    }
}
