//! Turns that requests leave out: how many of them a request has.

use std::num::NonZeroU32;

use quipu::protocol::{Event, Message, Outcome};
use quipu::{LiveChanges, TurnLimit};
use serde_json::json;

use crate::support::{LiveSession, World, call, messages_of, say, text_of, tool};

async fn limit(live: &LiveSession, turns: u32) {
    let turns = NonZeroU32::new(turns).map_or(TurnLimit::All, TurnLimit::Newest);
    live.session.tune(LiveChanges { turns: Some(turns), ..LiveChanges::default() }).await.unwrap();
}

/// What the last request says.
fn sent(world: &World) -> Vec<String> {
    messages_of(world.fake.bodies().last().unwrap()).iter().map(text_of).collect()
}

fn left_out(live: &LiveSession) -> Vec<u64> {
    live.all(|event| match event {
        Event::ContextPruned { results, .. } => Some(*results),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_before_the_newest_are_left_out_and_stay_so() {
    let mut world = World::new();
    world.tools = vec![tool("print", |_, _| async move { quipu::ToolOutput::text("printed") })];
    let live = world.create().await;
    limit(&live, 2).await;
    world.fake.push([say("A1"), call(&[("print", json!({}))]), say("A2"), say("A3"), say("A4")]);
    for text in ["one", "two", "three"] {
        assert_eq!(live.run(text).await, Outcome::Done);
    }
    // The turn of `two` with its call, and the new one.
    let last = sent(&world);
    assert_eq!((last[0].as_str(), last.last().unwrap().as_str()), ("two", "three"), "{last:?}");
    assert!(last.contains(&"printed".to_owned()) && !last.contains(&"one".to_owned()), "{last:?}");
    assert_eq!(left_out(&live), [0]);
    limit(&live, 1).await;
    live.run("four").await;
    assert_eq!(sent(&world), ["four"]);
    // What was left out stays so, also without a limit and in a session that is opened again.
    let id = live.id();
    live.finish().await;
    let live = LiveSession::of(world.engine.open(&id, world.options()).await.unwrap().session).await;
    world.fake.push([say("A5")]);
    live.run("five").await;
    assert_eq!(sent(&world), ["four", "A4", "five"]);
    assert_eq!(left_out(&live), [0; 0]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_turn_is_never_left_out() {
    let mut world = World::new();
    world.tools = vec![tool("print", |_, _| async move { quipu::ToolOutput::text("printed") })];
    let live = world.create().await;
    limit(&live, 1).await;
    world.fake.push([say("A1"), call(&[("print", json!({}))]), call(&[("print", json!({}))]), say("A2")]);
    live.run("one").await;
    live.run("two").await;
    let last = messages_of(world.fake.bodies().last().unwrap());
    assert_eq!(text_of(&last[0]), "two");
    let results = last.iter().filter(|message| matches!(message, Message::ToolResult(_)));
    assert_eq!((results.count(), left_out(&live).len()), (2, 1));
    live.finish().await;
    world.check().await;
}
