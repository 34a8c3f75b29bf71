//! What a person had forgotten while something is under way.

use quipu_protocol::{EpochContext, EpochOpening};

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

#[test]
fn answer_is_outdated_where_the_opening_told_what_goes() {
    let told = NodeId([7; 32]);
    let opening = EpochOpening { text: "the past".into(), nodes: vec![told], ..EpochOpening::default() };
    let mut start = start();
    start.prefix.epoch.context = Some(EpochContext { opening: Some(opening), ..EpochContext::default() });
    let mut world = World::of(start);
    world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
    while world.call.is_none() {
        assert!(!world.commits.is_empty());
        world.commit(255);
    }
    let is_outdated = |world: &World| world.machine.run.as_ref().is_some_and(|run| run.is_outdated);
    world.machine.on(1_000, MachineInput::Forgotten(vec![NodeId([8; 32])]));
    assert!(!is_outdated(&world));
    world.machine.on(1_000, MachineInput::Forgotten(vec![told]));
    assert!(is_outdated(&world));
}

#[test]
fn summary_that_is_being_stored_is_kept_and_said() {
    let mut start = start();
    start.compaction.keep_recent_tokens = 1;
    let mut world = World::of(start);
    for text in ["go", "and on", "and further on"] {
        world.command(Command::Prompt { input: text.into(), when: QueueMode::Now });
        world.finish();
    }
    let before = world.summaries.0;
    world.command(Command::Compact { focus: None });
    // The summary arrives, and its node is about to be written.
    while !matches!(world.commits.front(), Some((Tag::Compacted, ..))) {
        assert!(world.summary.is_some() || !world.commits.is_empty());
        match world.summary.is_some() {
            true => world.stream(),
            false => world.commit(255),
        }
    }
    let node = world.machine.nodes[0];
    world.forgotten.push(node);
    let effects = world.machine.on(1_000, MachineInput::Forgotten(vec![node]));
    let said = format!("{effects:?}");
    assert!(said.contains("while a summary of it was being stored"), "{said}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::CancelCall)));
    for effect in effects {
        world.perform(effect);
    }
    world.finish();
    assert!(world.machine.compacted.is_some());
    assert_eq!(world.summaries.0, before + 1, "it is not made again");
    world.laws.finish().unwrap();
}

#[test]
fn sources_are_asked_again_where_their_answer_is_outdated() {
    let mut world = World::of(with_sources(start()));
    world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
    world.finish();
    world.finishing = false;
    world.command(Command::Prompt { input: "and on".into(), when: QueueMode::Now });
    while world.refresh.is_none() {
        assert!(!world.commits.is_empty());
        world.commit(255);
    }
    world.machine.on(1_000, MachineInput::PromptForgotten);
    // They give what they gave before.
    world.refresh(1);
    assert!(world.refresh.is_some() && world.call.is_none());
    world.refresh(1);
    assert!(world.refresh.is_none());
    world.finish();
    world.laws.finish().unwrap();
}
