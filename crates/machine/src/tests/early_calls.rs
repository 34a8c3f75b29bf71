//! Calls of tools that begin before their answer is kept.

use super::*;

/// A world in which the model's answer with calls is being committed.
fn answered() -> World {
    let mut world = World::new();
    // An answer with two calls.
    world.seed = 63;
    world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
    world.commit(255);
    while world.commits.is_empty() {
        world.stream();
    }
    assert!(world.prepares.iter().all(|(_, calls)| calls.len() > 1) && !world.prepares.is_empty());
    world
}

#[test]
fn calls_that_only_read_begin_while_their_answer_is_committed() {
    let mut world = answered();
    world.prepare(READS);
    let begun = world.tools.len();
    assert!(begun > 1, "they do not wait for the commit");
    world.tool(0);
    world.finish();
    let conversation = quipu_transcript::project_messages(world.machine.messages.iter().cloned());
    let results = conversation.iter().filter(|one| matches!(***one, Message::ToolResult(_))).count();
    assert_eq!(results, begun, "each ran once");
    world.laws.finish().unwrap();

    let mut world = answered();
    world.prepare(0);
    assert!(world.tools.is_empty(), "what can have effects waits for the commit");
}

#[test]
fn calls_that_began_early_are_stopped_with_the_run() {
    let mut world = answered();
    world.prepare(READS);
    let begun = world.tools.len();
    world.tool(0);
    world.command(Command::Abort { target: AbortTarget::Run });
    world.finish();
    let conversation = quipu_transcript::project_messages(world.machine.messages.iter().cloned());
    let ok = |one: &&Arc<Message>| matches!(&***one, Message::ToolResult(result) if !result.is_error);
    assert_eq!(conversation.iter().filter(ok).count(), 1, "what came of the one that was done is kept");
    let results = conversation.iter().filter(|one| matches!(***one, Message::ToolResult(_))).count();
    assert_eq!(results, begun);
    world.laws.finish().unwrap();

    // The answer could not be stored: what came of its calls is nothing any more.
    let mut world = answered();
    world.prepare(READS);
    world.commit(0);
    assert!(world.machine.run().is_none());
    world.finish();
    world.laws.finish().unwrap();
}
