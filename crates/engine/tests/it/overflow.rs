//! What is tried when the model finds the context too long, and in which order.

use std::sync::Arc;

use quipu::protocol::{CompactionReason, CompactionResult, Event, Message, Model, ModelErrorKind, Outcome};
use quipu::store::{LineageEnd, RefName, Store as _, decode_nodes};
use quipu::{CompactionSettings, SessionOptions};
use serde_json::json;

use crate::compact::is_summary_request;
use crate::support::{LiveSession, Reply, World, call, messages_of, result_text, say};

fn options(world: &World, window: u64) -> SessionOptions {
    let model = Model { context_window: window, ..(*crate::support::model()).clone() };
    let compaction = CompactionSettings { keep_recent_tokens: 8_000, ..CompactionSettings::default() };
    SessionOptions { model: Arc::new(model), compaction, ..world.options() }
}

fn too_long() -> Reply {
    Reply { error: Some(ModelErrorKind::ContextOverflow), ..say("") }
}

fn long(word: &str, characters: usize) -> String {
    format!("{word} {}", "x".repeat(characters))
}

fn ended(live: &LiveSession) -> Vec<(CompactionReason, bool)> {
    live.all(|event| match event {
        Event::CompactionEnded { reason, result } => {
            Some((*reason, matches!(**result, CompactionResult::Done { .. })))
        }
        _ => None,
    })
}

fn results(body: &[u8]) -> Vec<String> {
    let messages = messages_of(body);
    let results = messages.iter().filter_map(|message| match message {
        Message::ToolResult(result) => Some(result_text(result).to_owned()),
        _ => None,
    });
    results.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_is_compacted_three_times_and_each_time_less_is_kept() {
    let world = World::new();
    let live = world.create_with(options(&world, 0)).await;
    for n in 0..12 {
        world.fake.push([say(&format!("answer-{n}"))]);
        live.run(&long(&format!("question-{n}"), 8_000)).await;
    }
    for _ in 0..3 {
        world.fake.push([too_long(), say("the notes")]);
    }
    world.fake.push([say("well")]);
    let before = world.fake.bodies().len();
    assert_eq!(live.run("next").await, Outcome::Done);
    assert_eq!(ended(&live), [(CompactionReason::Overflow, true); 3]);
    let bodies = world.fake.bodies();
    let calls = bodies[before..].iter().filter(|body| !is_summary_request(body));
    let counts: Vec<usize> = calls.map(|body| messages_of(body).len()).collect();
    assert!(counts.len() == 4 && counts.windows(2).all(|pair| pair[0] > pair[1]), "{counts:?}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_results_are_shortened_where_compaction_fails() {
    let huge = long("begin", 30_000);
    let world = World::with([call(&[("echo", json!({ "text": huge }))]), say("seen")]);
    let live = world.create_with(options(&world, 0)).await;
    live.run("look").await;
    // The summary fails, so the result is shortened, and the call is made once more.
    world.fake.push([too_long(), Reply { error: Some(ModelErrorKind::Server), ..say("") }, say("well")]);
    assert_eq!(live.run("and?").await, Outcome::Done);
    assert_eq!(ended(&live), [(CompactionReason::Overflow, false)]);
    let sent = results(world.fake.bodies().last().unwrap());
    assert!(sent[0].starts_with("begin xxx") && sent[0].len() < 16_200, "{}", sent[0].len());
    assert!(
        sent[0].ends_with("[This result is shortened: its first 12000 and last 4000 of 30006 characters.]")
    );
    // The graph has it whole, and a session that is opened again has the same context.
    let id = live.id();
    live.finish().await;
    let head = world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let whole = decoded.iter().any(|one| match &one.entry {
        quipu::protocol::Entry::Message(Message::ToolResult(result)) => result_text(result) == huge,
        _ => false,
    });
    assert!(whole);
    let session = world.engine.open(&id, options(&world, 0)).await.unwrap().session;
    let live = LiveSession::of(session).await;
    live.run("again").await;
    assert_eq!(results(world.fake.bodies().last().unwrap()), sent);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overflow_that_nothing_mends_ends_with_a_clear_error() {
    let world = World::with([call(&[("echo", json!({ "text": long("out", 30_000) }))]), say("seen")]);
    let live = world.create_with(options(&world, 0)).await;
    live.run("look").await;
    let before = world.fake.bodies().len();
    world.fake.push((0..100).map(|_| too_long()));
    let outcome = live.run("and?").await;
    let Outcome::Failed(error) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind, ModelErrorKind::ContextOverflow);
    assert!(error.message.contains("a model with a larger window (the call failed"), "{error:?}");
    let bodies = world.fake.bodies();
    let calls = bodies[before..].iter().filter(|body| !is_summary_request(body)).count();
    assert!(calls <= 5, "{calls} calls: three compactions and one shortening at most");
    live.finish().await;
    world.check().await;
}
