//! Lines that a person runs in the shell beside the agent: recorded before they begin, and nodes once they are done.

use quipu::protocol::{
    AbortTarget, Ack, BashExecutionMessage, Command, Entry, Event, Message, Outcome, Refusal, RunId,
    SessionId,
};
use quipu::store::{RefName, Store, Until, decode_nodes};
use quipu::{Delivery, Events, Session};
use serde_json::json;

use crate::support::{Gate, World, call, gated, messages_of, say};

async fn begins(session: &Session, line: &str) -> RunId {
    match session.send(Command::Shell { line: line.into(), hidden: false }).await {
        Ok(Ack::Started(run)) => run,
        other => panic!("it was not taken: {other:?}"),
    }
}

/// What came of a line, and why it was lost.
async fn end(events: &mut Events, run: &RunId) -> (BashExecutionMessage, Option<String>) {
    while let Some(envelope) = events.next().await {
        if let Event::ShellEnded { id, result, store_error } = &envelope.event
            && id == run
        {
            return (BashExecutionMessage::clone(result), store_error.clone());
        }
    }
    panic!("the session ended before the line");
}

/// The conversation that is stored, in a word each.
async fn stored(world: &World, id: &SessionId) -> Vec<String> {
    let head = world.store.head(&RefName::session(id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let word = |entry: &Entry| match entry {
        Entry::Message(Message::BashExecution(shell)) => {
            Some(format!("!{}: {}", shell.command, shell.output.trim()))
        }
        Entry::Message(Message::ToolResult(_)) => Some("result".into()),
        Entry::Message(Message::User(said)) => Some(said.content.text()),
        Entry::Message(Message::Assistant(answer)) => Some(answer.text()),
        _ => None,
    };
    decoded.iter().filter_map(|one| word(&one.entry)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_is_a_node_and_the_model_is_told_with_the_next_message() {
    let world = World::with([say("I see.")]);
    let live = world.create().await;
    let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    let run = begins(&live.session, "echo one; pwd").await;
    assert!(live.session.view().head.is_some(), "a session that is killed now can be found");
    let (done, store_error) = end(&mut events, &run).await;
    let cwd = live.session.cwd().canonicalize().unwrap();
    let printed = format!("one\n{}", cwd.display());
    assert_eq!((done.output.trim(), done.exit_code, store_error), (printed.as_str(), Some(0), None));
    assert_eq!(stored(&world, &live.id()).await, [format!("!echo one; pwd: {printed}")]);
    assert_eq!(live.run("what was it?").await, Outcome::Done);
    let body = &world.fake.bodies()[0];
    let told = format!("{:?}", messages_of(body));
    assert!(told.contains("echo one") && told.contains("what was it?"), "{told}");
    let pending = world.store.pending(&live.id()).await.unwrap();
    assert!(pending.steps.is_empty(), "what is a node is a row no more");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_that_ends_while_the_agent_works_comes_behind_the_run() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("slow", json!({"text": "t"}))]), say("done"), say("again")]);
    world.tools = vec![gated("slow", &gate)];
    let live = world.create().await;
    let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    let run = begins(&live.session, "echo made").await;
    assert_eq!(end(&mut events, &run).await.1, None);
    let pending = world.store.pending(&live.id()).await.unwrap();
    assert!(pending.steps.iter().any(|step| step.call == quipu::store::StepCall::Tool("shell".into())));
    gate.open();
    // Of the run, and of the node behind it.
    live.settled(2).await;
    assert_eq!(stored(&world, &live.id()).await, ["go", "calling", "result", "done", "!echo made: made"]);
    assert_eq!(live.run("and?").await, Outcome::Done);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_streams_sealed_and_is_in_the_snapshot() {
    let world = World::with([]);
    let live = world.create().await;
    let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let run = begins(&live.session, &format!("echo t={secret}; sleep 600")).await;
    let tail = loop {
        let envelope = events.next().await.unwrap();
        match &envelope.event {
            Event::ShellStarted { id, line, hidden: false } => {
                assert!(*id == run && !line.contains(secret), "{line}");
            }
            Event::ShellOutput { tail, .. } if tail.contains("t=") => break tail.clone(),
            _ => {}
        }
    };
    assert!(tail.contains("[REDACTED:"), "{tail}");
    let (snapshot, _again) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    let [shell] = &snapshot.shells[..] else { panic!("{:?}", snapshot.shells) };
    assert_eq!((&shell.id, &*shell.tail), (&run, &*tail));
    // One that is not there is nobody's.
    let abort = |run: RunId| Command::Abort { target: AbortTarget::Shell(run) };
    live.session.send(abort("none".into())).await.unwrap();
    live.session.send(abort(run.clone())).await.unwrap();
    let (done, store_error) = end(&mut events, &run).await;
    assert!(done.cancelled && done.exit_code.is_none() && store_error.is_none(), "{done:?}");
    assert!(done.output.contains("[REDACTED:") && !done.output.contains(secret), "{}", done.output);
    let (snapshot, _) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    assert_eq!(snapshot.shells, []);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_run_end_with_the_session_and_are_kept() {
    let world = World::with([]);
    let live = world.create().await;
    let lines = ["echo one; sleep 600", "echo two; sleep 600"];
    let (_, mut events) = live.session.subscribe(Delivery::Lossless).await.unwrap();
    for line in lines {
        let run = begins(&live.session, line).await;
        loop {
            match &events.next().await.unwrap().event {
                Event::ShellOutput { id, tail } if *id == run && !tail.is_empty() => break,
                _ => {}
            }
        }
    }
    assert_eq!(
        live.session.send(Command::Shell { line: " \n".into(), hidden: true }).await,
        Err(Refusal::Empty)
    );
    let id = live.id();
    assert_eq!(live.session.send(Command::Close).await, Ok(Ack::Handled));
    let mut kept = stored(&world, &id).await;
    kept.sort();
    assert_eq!(kept, ["!echo one; sleep 600: one", "!echo two; sleep 600: two"]);
    assert!(world.store.pending(&id).await.unwrap().steps.is_empty());
    let late = live.session.send(Command::Shell { line: "echo late".into(), hidden: false }).await;
    assert_eq!(late, Err(Refusal::Closed));
    live.finish().await;
    world.check().await;
}
