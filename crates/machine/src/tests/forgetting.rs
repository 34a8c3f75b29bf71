//! What a person had forgotten while something is under way.

use super::*;

#[test]
fn removal_of_an_unsent_call_spares_the_next_one() {
    let mut world = World::new();
    world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
    world.finish();
    world.finishing = false;
    world.command(Command::Prompt { input: "and on".into(), when: QueueMode::Now });
    let run = world.machine.run().cloned().unwrap();
    let row = (world.machine.session().clone(), run, String::new());
    let node = world.machine.nodes[0];
    world.forgotten.push(node);
    world.give(MachineInput::Forgotten(vec![node]));
    world.foreseen = None;
    assert_eq!(world.commits.len(), 2, "the prompt, and the removal of what it recorded");
    world.commit(255);
    assert!(world.call.is_some() && world.steps.contains(&row));
    world.commit(255);
    assert!(world.steps.contains(&row), "the call that was made has its row");
    world.finish();
    assert!(world.steps.is_empty());
    world.laws.finish().unwrap();
}
