//! Abort at every event of a run.

use std::sync::Arc;

use quipu::Delivery;
use quipu::protocol::{Event, Outcome};
use serde_json::json;

use crate::support::{Reply, World, call, say};

/// A run with a retry, tools that run, wait, fail, are refused, and print.
fn script() -> [Reply; 3] {
    [
        Reply {
            retries: 1,
            thinking: Some("hm".into()),
            ..call(&[("echo", json!({"text": "a"})), ("bash", json!({"command": "echo one; echo two"}))])
        },
        call(&[
            ("bash", json!({"command": "echo 1 >> f"})),
            ("read", json!({"path": "f"})),
            ("nope", json!({})),
            ("echo", json!({"text": "b"})),
        ]),
        say("finished"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_every_event_the_conversation_stays_valid() {
    let mut at = 0;
    let mut aborted = 0;
    loop {
        let mut world = World::with(script());
        world.tools.extend(quipu::builtin());
        let live = world.create().await;
        let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
        let session = Arc::clone(&live.session);
        let aborter = tokio::spawn(async move {
            let mut seen = 0;
            while let Some(envelope) = events.next().await {
                if seen == at {
                    session.abort().await.unwrap();
                }
                seen += 1;
                if matches!(envelope.event, Event::Settled) {
                    break;
                }
            }
            seen
        });
        let outcome = live.run("go").await;
        let total = aborter.await.unwrap();
        assert!(matches!(outcome, Outcome::Done | Outcome::Aborted), "{outcome:?}");
        aborted += usize::from(outcome == Outcome::Aborted);
        world.fake.push([say("still here")]);
        // The script may not be over; it is answered until it is.
        assert_eq!(live.run("next").await, Outcome::Done);
        live.finish().await;
        world.check().await;
        at += 1;
        if at >= total {
            break;
        }
    }
    assert!(at > 30 && aborted > 20, "{at} {aborted}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_child_process_is_left() {
    // Told apart from any other by its number.
    let marker = format!("3600.{}", std::process::id());
    let command = format!("sh -c 'sleep {marker}' & trap '' TERM; echo up; sleep {marker}");
    let mut world = World::with([call(&[("bash", json!({ "command": command }))]), say("next")]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::ToolOutput { tail, .. } if tail.contains("up"))).await;
    assert!(processes_with(&marker) > 0);
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    assert_eq!(live.run("again").await, Outcome::Done);
    live.finish().await;
    world.tools.clear();
    let world = world.check().await;
    drop(world);
    assert_eq!(processes_with(&marker), 0);
}

#[cfg(target_os = "linux")]
fn processes_with(marker: &str) -> usize {
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    lines
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(marker))
        .count()
}
