//! Sessions in which each answer is a command.

use quipu_protocol::SessionProfile;
use quipu_transcript::project_messages_as;

use super::*;

/// What a model says: commands, what cannot be run, and the end.
pub(super) fn said(choice: u8) -> &'static str {
    match choice % 8 {
        0 | 4 => "exit",
        1..4 => "hello",
        5 => "",
        6 => "Look:\n```\nls\n```",
        _ => "patience 20m make",
    }
}

/// Whether a request has neither tools nor calls.
pub(super) fn is_plain(request: &ModelRequest) -> bool {
    let is_plain = |message: &Arc<Message>| match &**message {
        Message::Assistant(answer) => answer.tool_calls().next().is_none(),
        Message::User(_) => true,
        _ => false,
    };
    request.tools.is_empty() && request.messages.iter().all(is_plain)
}

fn world() -> World {
    let mut start = in_shell(start());
    start.limits.max_cost = None;
    start.prefix.model = Arc::new(Model { context_window: 40_000, ..(*start.prefix.model).clone() });
    World::of(start)
}

/// Lets the model answer with this, and commits it.
fn reply(world: &mut World, said: &str, stop_reason: StopReason) {
    let mut call = world.call.take().expect("the model is asked");
    let message =
        AssistantMessage { content: vec![Content::text(said)], stop_reason, ..AssistantMessage::default() };
    (call.left, call.end) = (VecDeque::new(), CallEnd { message, error: None, ..call.end });
    world.call = Some(call);
    world.stream();
    while !world.commits.is_empty() && world.call.is_none() {
        world.commit(255);
    }
}

/// Runs the command of the last answer.
fn run_command(world: &mut World) -> ToolCall {
    world.prepare(8);
    world.commit(255);
    let (_, _, call) = world.tools.last().cloned().expect("a command runs");
    world.touches.clear();
    world.tool(0);
    world.commit(255);
    call
}

fn begin() -> World {
    let mut world = world();
    world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
    world.commit(255);
    world
}

fn told(world: &World) -> String {
    match world.requests.last().and_then(|messages| messages.last()).map(|message| &**message) {
        Some(Message::User(user)) => user.content.text(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn command_is_a_call_and_its_result_the_next_message() {
    let mut world = begin();
    reply(&mut world, "patience 20m make", StopReason::Stop);
    let call = run_command(&mut world);
    assert_eq!((call.name.as_str(), call.id.as_str()), ("bash", "shell_r0_1"));
    assert_eq!(call.arguments.get(), r#"{"command":"make","timeout":1200}"#);
    assert_eq!(told(&world), "ok");
    let asked = world.requests.last().unwrap();
    assert!(matches!(&*asked[1], Message::Assistant(answer) if answer.text() == "patience 20m make"));
    reply(&mut world, "exit\nBuilt.", StopReason::Stop);
    assert!(world.machine.run().is_none());
    // What the node has is a valid conversation for who knows no profile.
    let plain = quipu_transcript::project_messages(world.machine.messages.iter().cloned());
    quipu_transcript::check_conversation(&plain).unwrap();
    assert!(matches!(&*plain[2], Message::ToolResult(result) if result.tool_call_id == call.id));
    world.laws.finish().unwrap();
}

#[test]
fn cut_command_is_not_run() {
    let mut world = begin();
    reply(&mut world, "rm -rf build/out", StopReason::Length);
    assert!(world.prepares.is_empty() && world.tools.is_empty());
    assert!(told(&world).contains("the output limit"), "{}", told(&world));
    world.finish();
    world.laws.finish().unwrap();
}

#[test]
fn unusable_replies_in_a_row_end_the_run() {
    let mut world = begin();
    for round in 0..4 {
        assert!(world.machine.run().is_some(), "{round}");
        reply(&mut world, if round == 1 { "Hm:\n```\nls\n```" } else { "" }, StopReason::Stop);
    }
    assert!(world.machine.run().is_none() && world.tools.is_empty());
    // A command between them begins the count anew.
    world.command(Command::Prompt { input: "again".into(), when: QueueMode::Now });
    world.commit(255);
    for _ in 0..2 {
        reply(&mut world, "", StopReason::Stop);
        reply(&mut world, "", StopReason::Stop);
        reply(&mut world, "ls", StopReason::Stop);
        run_command(&mut world);
    }
    assert!(world.machine.run().is_some());
    world.finish();
    world.laws.finish().unwrap();
    assert!(world.steps.is_empty());
}

#[test]
fn command_that_was_not_waited_for_says_how_to_wait() {
    let mut world = begin();
    reply(&mut world, "sleep 1000", StopReason::Stop);
    world.prepare(8);
    world.commit(255);
    let (run, slot, call) = world.tools.pop().unwrap();
    let result = ToolResultMessage {
        tool_call_id: call.id,
        tool_name: call.name,
        content: vec![Content::text("Command timed out after 300 seconds")],
        details: Some(Json::from(serde_json::json!({ "timedOut": true }))),
        usage: None,
        is_error: true,
        timestamp: 1_700_000_000_000,
    };
    let done = Box::new(FinishedCall {
        result,
        interventions: Interventions::default(),
        provenance: Provenance::tool(),
        added: Vec::new(),
        started: 0,
        duration_ms: 0,
        files: Vec::new(),
        note: Box::default(),
        states: Vec::new(),
        terminate: false,
        jump: None,
    });
    world.give(MachineInput::ToolDone { run, slot, done });
    world.commit(255);
    let told = told(&world);
    assert!(told.starts_with("2023-11-14T22:13:20Z\nCommand timed out after 300 seconds\n"), "{told}");
    assert!(told.contains("`patience 20m COMMAND`"), "{told}");
    world.finish();
    world.laws.finish().unwrap();
}

#[test]
fn projection_that_grows_is_the_one_made_at_once() {
    let mut world = begin();
    for said in ["ls", "", "pwd"] {
        reply(&mut world, said, StopReason::Stop);
        if !said.is_empty() {
            run_command(&mut world);
        }
    }
    let at_once = project_messages_as(Some(SessionProfile::Shell), world.machine.messages.iter().cloned());
    assert_eq!(**world.requests.last().unwrap(), at_once);
    world.finish();
}
