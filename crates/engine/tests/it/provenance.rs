//! Each input, result and added text says in its node where it came from.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::protocol::{
    Ack, AuthorClass, Command, Entry, Event, Message, Notice, Origin, Outcome, Provenance, ToolCall,
    ToolResultMessage, UserInput,
};
use quipu::store::{RefName, Store as _, Until, decode_nodes};
use quipu::{Hook, HookContext, HookError, InputVerdict, ResultVerdict, SessionOptions};
use serde_json::json;

use crate::support::{Gate, LiveSession, World, call, gated, say};

fn process() -> Provenance {
    Provenance::new(Origin::Process, AuthorClass::Untrusted).named("build server")
}

/// What the nodes of a session say: kind, source, and place and source of what was added.
async fn sources(
    world: &World,
    live: &LiveSession,
) -> Vec<(&'static str, Option<Provenance>, Vec<(u32, Provenance)>)> {
    let head = world.store.head(&RefName::session(&live.id())).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let kind = |entry: &Entry| match entry {
        Entry::Message(Message::User(_)) => Some("user"),
        Entry::Message(Message::ToolResult(_)) => Some("result"),
        Entry::Message(Message::BashExecution(_)) => Some("shell"),
        _ => None,
    };
    let rows = decoded.into_iter().filter_map(|one| {
        let added = one.step.added.into_iter().map(|added| (added.block, added.provenance)).collect();
        Some((kind(&one.entry)?, one.step.provenance, added))
    });
    rows.collect()
}

struct Desk;

impl Hook for Desk {
    fn name(&self) -> &str {
        "desk"
    }

    fn input<'a>(
        &'a self,
        input: &'a UserInput,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        let verdict = match input.content[0].as_text() {
            Some("beside") => InputVerdict::Add("It is Monday.".into()),
            Some("replace") => InputVerdict::Replace("other words".into()),
            _ => InputVerdict::Pass,
        };
        Box::pin(std::future::ready(Ok(verdict)))
    }

    fn tool_result<'a>(
        &'a self,
        call: &'a ToolCall,
        result: &'a ToolResultMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        let verdict = match call.arguments.get() {
            text if text.contains("append") => ResultVerdict::Append("seen".into()),
            text if text.contains("replace") => {
                ResultVerdict::Replace { content: result.content.clone(), is_error: false }
            }
            _ => ResultVerdict::Pass,
        };
        Box::pin(std::future::ready(Ok(verdict)))
    }
}

#[tokio::test]
async fn inputs_results_and_additions_name_their_source() {
    let echo = |text: &str| ("echo", json!({ "text": text }));
    let world = World::with([
        say("a0"),
        say("a1"),
        say("a2"),
        call(&[echo("plain"), echo("append"), echo("replace"), ("none", json!({}))]),
        say("well"),
    ]);
    let live = world.create_with(SessionOptions { hooks: vec![Arc::new(Desk)], ..world.options() }).await;
    live.run("beside").await;
    live.run("replace").await;
    let told = UserInput::from("The build failed.").from_source(process());
    assert!(matches!(live.session.prompt(told).await, Ok(Ack::Started(_))));
    live.settled(3).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let hook = Provenance::hook("desk");
    assert_eq!(
        sources(&world, &live).await,
        [
            ("user", Some(Provenance::default()), vec![(1, hook.clone())]),
            ("user", Some(hook.clone()), vec![]),
            ("user", Some(process()), vec![]),
            ("user", Some(Provenance::default()), vec![]),
            ("result", Some(Provenance::tool()), vec![]),
            ("result", Some(Provenance::tool()), vec![(1, hook.clone())]),
            ("result", Some(hook), vec![]),
            // No tool made it.
            ("result", Some(Provenance::quipu()), vec![]),
        ]
    );
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_of_a_queued_input_survives_a_kill() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({"text": "x"}))]), say("well")]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    let id = live.id();
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.session.steer(UserInput::from("The build failed.").from_source(process())).await.unwrap();
    live.session.kill();
    drop(live);
    let live = loop {
        let (live, notices) = world.open(&id).await;
        match notices.as_slice() {
            [Notice::Branched { .. }] => live.finish().await,
            _ => break live,
        };
        tokio::task::yield_now().await;
    };
    live.session.send(Command::Continue).await.unwrap();
    live.settled(1).await;
    let kept: Vec<_> =
        sources(&world, &live).await.into_iter().map(|(kind, source, _)| (kind, source)).collect();
    assert_eq!(
        kept,
        [
            ("user", Some(Provenance::default())),
            // It was interrupted: Quipu says so.
            ("result", Some(Provenance::quipu())),
            ("user", Some(process())),
        ]
    );
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_line_and_output_are_of_a_process() {
    let world = World::new();
    let live = world.create().await;
    let line = Command::Shell { line: "echo one".into(), hidden: false };
    assert!(matches!(live.session.send(line).await, Ok(Ack::Started(_))));
    live.until(1, |event| matches!(event, Event::ShellEnded { .. })).await;
    let shell = Provenance::new(Origin::Process, AuthorClass::Untrusted);
    assert_eq!(sources(&world, &live).await, [("shell", Some(shell), vec![])]);
    live.finish().await;
    world.check().await;
}
