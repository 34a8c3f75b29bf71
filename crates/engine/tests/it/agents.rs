//! Sub-agents by the SDK: one that never ends, levels, and an abort.

use std::sync::Arc;
use std::time::Duration;

use quipu::protocol::{Answer, ChildOutcome, Command, Event, Outcome};
use quipu::store::{ReadModel as _, SessionQuery};
use quipu::{
    AgentDefinition, AgentLimits, AgentSettings, Decision, Delivery, Policy, Proposal, SessionOptions,
};
use serde_json::json;

use crate::support::{Gate, Reply, World, call, say};

fn with_agents(world: &World, limits: AgentLimits) -> SessionOptions {
    let agent =
        AgentDefinition { name: "helper".into(), description: "Helps.".into(), ..AgentDefinition::default() };
    let settings = AgentSettings { agents: vec![agent], limits, worktrees: None };
    SessionOptions { agents: Some(Arc::new(settings)), ..world.options() }
}

fn task(prompt: &str) -> Reply {
    call(&[("task", json!({ "prompt": prompt }))])
}

#[tokio::test]
async fn sub_agent_that_never_answers_is_stopped_in_time() {
    let gate = Gate::new();
    let world = World::with([
        task("Take for ever"),
        Reply { before: Some(gate.clone()), ..say("late") },
        say("Going on."),
    ]);
    let limits = AgentLimits { longest: Duration::from_millis(300), ..AgentLimits::default() };
    let live = world.create_with(with_agents(&world, limits)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    let (_, text, is_error) = &results[0];
    assert!(is_error, "{text}");
    assert!(text.starts_with("The sub-agent was stopped: it had not finished after"), "{text}");
    assert!(text.contains("`agents.maxMinutes`") && text.contains("[session child-"), "{text}");
    assert!(live.session.agents().is_empty());
    gate.open();
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn abort_of_the_parent_ends_its_sub_agent() {
    let gate = Gate::new();
    let world = World::with([task("Take long"), Reply { before: Some(gate.clone()), ..say("late") }]);
    let live = world.create_with(with_agents(&world, AgentLimits::default())).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    let [agent] = &*live.session.agents() else { panic!("one is at work") };
    assert_eq!((&*agent.agent, agent.session.view().run.is_some()), ("sub-agent", true));
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert!(live.outcomes().contains(&Outcome::Aborted));
    assert!(live.session.agents().is_empty(), "it is closed");
    gate.open();
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn sub_agents_send_others_down_to_the_last_level() {
    let world = World::with([task("One"), task("Two"), say("Two done."), say("One done."), say("All done.")]);
    let limits = AgentLimits { max_depth: 2, ..AgentLimits::default() };
    let live = world.create_with(with_agents(&world, limits)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let offers = |at: usize| {
        let body: serde_json::Value = serde_json::from_slice(&world.fake.bodies()[at]).unwrap();
        body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "task")
    };
    assert_eq!([offers(0), offers(1), offers(2)], [true, true, false]);
    let id = live.id();
    let below = |parent| SessionQuery { parent: Some(parent), children: true, ..SessionQuery::default() };
    let first = world.store.sessions(below(id)).await.unwrap();
    let second = world.store.sessions(below(first[0].id.clone())).await.unwrap();
    assert_eq!((first.len(), second.len()), (1, 1));
    let tails = live.all(|event| match event {
        Event::ToolOutput { tail, .. } => Some(tail.to_string()),
        _ => None,
    });
    assert!(tails.iter().any(|tail| tail.contains("sub-agent in session child-")), "{tails:?}");
    live.finish().await;
    world.check().await;
}

/// Asks about every command.
struct AskCommands;

impl Policy for AskCommands {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        match proposal.text("command") {
            Some(subject) => Decision::Ask { question: "Run it?".into(), subject },
            None => Decision::Allow,
        }
    }
}

#[tokio::test]
async fn time_of_a_sub_agent_stands_still_while_it_asks() {
    let world = World::with([
        task("Run it"),
        call(&[("bash", json!({ "command": "true" }))]),
        say("Ran."),
        say("Good."),
    ]);
    // What it does by itself takes far less, on a busy machine as well.
    let longest = Duration::from_secs(10);
    let limits = AgentLimits { longest, ..AgentLimits::default() };
    let (policy, tools) = (Arc::new(AskCommands), quipu::builtin());
    let options = SessionOptions { policy, tools, ..with_agents(&world, limits) };
    let live = world.create_with(options).await;
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    live.session.prompt("go").await.unwrap();
    let ask = loop {
        match &events.next().await.unwrap().event {
            Event::AskOpened { ask } => break ask.id.clone(),
            Event::Settled => panic!("nothing was asked"),
            _ => {}
        }
    };
    // A person takes longer than it may work.
    let late = tokio::time::Instant::now() + longest + Duration::from_millis(300);
    tokio::time::timeout_at(late, std::future::pending::<()>()).await.unwrap_err();
    live.session.send(Command::Answer { ask, answer: Answer::once() }).await.unwrap();
    live.settled(1).await;
    let results = live.results();
    assert!(results.iter().any(|(_, text, is_error)| !is_error && text.starts_with("Ran.")), "{results:?}");
    let seen = live.all(|event| match event {
        Event::ChildStarted { child, .. } => Some((child.clone(), None)),
        Event::ChildEnded { child, outcome, .. } => Some((child.clone(), Some(*outcome))),
        _ => None,
    });
    let child = seen[0].0.clone();
    assert_eq!(seen, [(child.clone(), None), (child, Some(ChildOutcome::Done))]);
    live.finish().await;
    world.check().await;
}
