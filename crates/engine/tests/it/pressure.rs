//! Subscribers that do not read. What bounds each queue: the mailbox 256 commands, the model's stream 256 pieces
//! twice, a subscription 256 events, its backlog one turn beside the stream and 4,096 events before new work is
//! refused, the queues of the session 256 messages, plans by the senders that wait for them.

use quipu::protocol::{Ack, Event, Outcome};
use quipu::{Delivery, Refusal, ToolOutput};
use serde_json::json;

use crate::support::{Gate, Reply, World, call, say, tool};

fn flood() -> Reply {
    Reply { pieces: 5_000, ..say(&"abcdefghij".repeat(1_000)) }
}

#[tokio::test]
async fn lossless_subscriber_pauses_stream_but_not_commands() {
    let world = World::with([flood(), say("next")]);
    let live = world.create().await;
    let (view, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    assert_eq!((view.run, view.steering.len() + view.follow_up.len()), (None, 0));
    live.session.prompt("go").await.unwrap();
    world.fake.pieces.subscribe().wait_for(|count| *count > 256).await.unwrap();
    // Commands are accepted and durable while the stream waits.
    assert!(matches!(live.session.follow_up("later").await, Ok(Ack::Queued(_))));
    assert!(matches!(live.session.steer("soon").await, Ok(Ack::Queued(_))));
    let Ok(Ack::Unqueued(items)) =
        live.session.send(quipu::protocol::Command::Unqueue { items: vec![] }).await
    else {
        panic!()
    };
    assert_eq!(items.len(), 2);
    assert!(*world.fake.pieces.borrow() < 1_000, "the provider is held back");
    live.session.abort().await.unwrap();
    // The run ends although nobody read.
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    let mut laws = quipu_testkit::events::EventLaws::default();
    let mut last = view.head.is_some();
    while let Some(envelope) = events.next().await {
        laws.take(&envelope.event).unwrap();
        last = matches!(envelope.event, Event::Settled);
        if last {
            break;
        }
    }
    assert!(last, "every event is there once it reads");
    laws.finish().unwrap();
    drop(events);
    assert_eq!(live.run("again").await, Outcome::Done);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_reader_that_comes_back_gets_the_rest_of_the_stream() {
    let world = World::with([flood()]);
    let live = world.create().await;
    let (_, mut slow) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    let (_, mut slower) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    live.session.prompt("go").await.unwrap();
    world.fake.pieces.subscribe().wait_for(|count| *count > 256).await.unwrap();
    let read = async |events: &mut quipu::Events| {
        let mut count = 0;
        while let Some(envelope) = events.next().await {
            count += 1;
            if matches!(envelope.event, Event::Settled) {
                break;
            }
        }
        count
    };
    let (one, two) = tokio::join!(read(&mut slow), read(&mut slower));
    assert!(one > 5_000 && one == two);
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Done]);
    drop((slow, slower));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_live_subscriber_lags_and_learns_of_it_even_at_the_end() {
    let world = World::with([flood()]);
    let live = world.create().await;
    let (_, mut events) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(live.run("go").await, Outcome::Done);
    let total = live.events().len() as u64;
    let (mut read, mut missed, mut last) = (0, 0, 0);
    while read + missed < total {
        let envelope = events.next().await.unwrap();
        match envelope.event {
            Event::Lagged { missed: more, .. } => missed += more,
            _ => read += 1,
        }
        assert!(envelope.seq > last);
        last = envelope.seq;
    }
    assert!((256..1_000).contains(&read) && missed > 4_000, "{read} {missed}");
    assert_eq!((live.session.view().run, last), (None, total));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn nothing_new_is_begun_for_a_subscriber_that_never_reads() {
    let world = World::new();
    let live = world.create().await;
    let (_, events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    // Each run is stopped by hand, so that events pile up beside the stream that is withheld.
    let mut runs = 0;
    let refused = loop {
        match live.session.prompt("go").await {
            Ok(_) => runs += 1,
            Err(refused) => break refused,
        }
        live.session.abort().await.unwrap();
        live.settled(runs).await;
    };
    assert_eq!(refused, Refusal::SlowSubscriber);
    assert!(runs < 1_000);
    drop(events);
    assert_eq!(live.run("free again").await, Outcome::Done);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_tool_that_prints_without_end_does_not_pile_up() {
    let gate = Gate::new();
    let printed = gate.clone();
    let mut world = World::with([call(&[("print", json!({}))])]);
    world.tools.push(tool("print", move |_, cx| {
        let printed = printed.clone();
        async move {
            for at in 0..20_000 {
                (cx.progress)(&format!("line {at}"));
                if at % 100 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            printed.pass().await;
            ToolOutput::text("printed")
        }
    }));
    let live = world.create().await;
    let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    gate.open();
    // The result comes, and the model's stream waits for the reader.
    live.until(1, |event| matches!(event, Event::ToolEnded { .. })).await;
    let mut outputs = 0;
    while let Some(envelope) = events.next().await {
        outputs += usize::from(matches!(envelope.event, Event::ToolOutput { .. }));
        if matches!(envelope.event, Event::Settled) {
            break;
        }
    }
    assert!(outputs < 1_000, "{outputs}");
    drop(events);
    live.finish().await;
    world.check().await;
}

/// Eight seconds of patience, so only in the full run.
#[tokio::test]
async fn shutting_down_does_not_wait_for_ever_for_a_reader() {
    if std::env::var_os("QUIPU_FULL").is_none() {
        return;
    }
    let world = World::with([flood()]);
    let session = world.engine.create(world.options()).await.unwrap();
    let (_, events) = session.subscribe(Delivery::Lossless).await.unwrap();
    session.prompt("go").await.unwrap();
    world.fake.pieces.subscribe().wait_for(|count| *count > 256).await.unwrap();
    session.shutdown().await;
    drop(events);
    world.check().await;
}
