//! Lines that the user runs in the shell beside the agent: kept before they begin, and nodes once they are done.

use quipu::Session;
use quipu::protocol::{Ack, BashExecutionMessage, Command, Entry, Message, Outcome, RunId, SessionId};
use quipu::store::{RefName, Store, Until, decode_nodes};
use serde_json::json;

use crate::support::{Gate, World, call, gated, messages_of, say};

fn ran(command: &str, output: &str) -> BashExecutionMessage {
    BashExecutionMessage {
        command: command.into(),
        output: output.into(),
        exit_code: Some(0),
        cancelled: false,
        truncated: false,
        full_output_path: None,
        exclude_from_context: None,
        timestamp: 1,
    }
}

async fn begins(session: &Session, line: &str) -> RunId {
    match session.send(Command::ShellBegins { line: line.into(), hidden: false }).await {
        Ok(Ack::Started(run)) => run,
        other => panic!("it was not kept: {other:?}"),
    }
}

/// The conversation that is stored, in a word each.
async fn stored(world: &World, id: &SessionId) -> Vec<String> {
    let head = world.store.head(&RefName::session(id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let word = |entry: &Entry| match entry {
        Entry::Message(Message::BashExecution(shell)) => {
            Some(format!("!{}: {}", shell.command, shell.output))
        }
        Entry::Message(Message::ToolResult(_)) => Some("result".into()),
        Entry::Message(Message::User(said)) => Some(said.content.text()),
        Entry::Message(Message::Assistant(answer)) => Some(answer.text()),
        _ => None,
    };
    decoded.iter().filter_map(|one| word(&one.entry)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_a_node_and_the_model_is_told_with_the_next_message() {
    let world = World::with([say("I see.")]);
    let live = world.create().await;
    let run = begins(&live.session, "echo one").await;
    assert!(live.session.view().head.is_some(), "a session that is killed now can be found");
    let ended = live.session.send(Command::ShellEnds { run, shell: ran("echo one", "one") }).await;
    assert_eq!(ended, Ok(Ack::Handled));
    assert_eq!(stored(&world, &live.id()).await, ["!echo one: one"]);
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
async fn one_that_ends_while_the_agent_works_comes_behind_the_run() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("slow", json!({"text": "t"}))]), say("done"), say("again")]);
    world.tools = vec![gated("slow", &gate)];
    let live = world.create().await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    let run = begins(&live.session, "make").await;
    let ended = live.session.send(Command::ShellEnds { run, shell: ran("make", "made") }).await;
    assert_eq!(ended, Ok(Ack::Handled));
    let pending = world.store.pending(&live.id()).await.unwrap();
    assert!(pending.steps.iter().any(|step| step.call == quipu::store::StepCall::Tool("shell".into())));
    gate.open();
    // Of the run, and of the node behind it.
    live.settled(2).await;
    assert_eq!(stored(&world, &live.id()).await, ["go", "calling", "result", "done", "!make: made"]);
    assert_eq!(live.run("and?").await, Outcome::Done);
    live.finish().await;
    world.check().await;
}
