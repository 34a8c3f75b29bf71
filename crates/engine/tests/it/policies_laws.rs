//! Random chains: what becomes of a call is the strictest of what each step alone says of it, and what fails denies.

use std::sync::Arc;

use proptest::prelude::*;
use quipu::protocol::Outcome;
use quipu::{ConfinementVerdict, Decision, SessionOptions, ToolOutput, ToolPolicy, ToolVerdict, Touches};
use serde_json::json;

use crate::policies::{Act, FixedPolicy, Step};
use crate::support::{World, call, say, touching};

/// From the least strict to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    NoOpinion,
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Clone, Copy)]
enum StepReply {
    Level(Level),
    Error,
    Panics,
    Hangs,
    Floods,
}

fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(vec![
        Level::NoOpinion,
        Level::NoOpinion,
        Level::Allow,
        Level::Allow,
        Level::Ask,
        Level::Deny,
    ])
}

fn said() -> impl Strategy<Value = StepReply> {
    prop_oneof![
        12 => level().prop_map(StepReply::Level),
        1 => Just(StepReply::Error),
        1 => Just(StepReply::Panics),
        1 => Just(StepReply::Hangs),
        1 => Just(StepReply::Floods),
    ]
}

fn step((said, confinement): (StepReply, Level)) -> Step {
    let act = match said {
        StepReply::Level(Level::NoOpinion) => Act::Say(ToolVerdict::NoOpinion),
        StepReply::Level(Level::Allow) => Act::Say(ToolVerdict::allow()),
        StepReply::Level(Level::Ask) => Act::Say(ToolVerdict::ask("Really?")),
        StepReply::Level(Level::Deny) => Act::Say(ToolVerdict::deny("no")),
        StepReply::Error => Act::Error,
        StepReply::Panics => Act::Panics,
        StepReply::Hangs => Act::Hangs,
        StepReply::Floods => Act::Floods,
    };
    let confinement = match confinement {
        Level::NoOpinion => ConfinementVerdict::NoOpinion,
        Level::Allow => ConfinementVerdict::Allow,
        Level::Ask => ConfinementVerdict::Ask { question: "Really?".into() },
        Level::Deny => ConfinementVerdict::Deny { reason: "no".into() },
    };
    Step::of("slow", act).confining(confinement)
}

/// What each step alone says of the two questions, in order: whether the call may be made, whether it may be unconfined.
fn levels((said, confinement): (StepReply, Level)) -> [Level; 2] {
    let said = match said {
        StepReply::Level(level) => level,
        StepReply::Error | StepReply::Panics | StepReply::Hangs | StepReply::Floods => Level::Deny,
    };
    [said, confinement]
}

async fn play(base: Level, steps: Vec<(StepReply, Level)>, is_unconfined: bool) {
    let touches = if is_unconfined { Touches::Anything } else { Touches::Nothing };
    let mut world = World::with([call(&[("act", json!({}))]), say("well")]);
    world.tools = vec![touching("act", touches, |_, _| async { ToolOutput::text("it ran") })];
    let decision = match base {
        Level::NoOpinion => Decision::NoOpinion,
        Level::Allow => Decision::Allow,
        Level::Ask => Decision::Ask { question: "Run it?".into(), subject: "it".into() },
        Level::Deny => Decision::Deny { reason: "no".into() },
    };
    let made: Vec<Arc<Step>> = steps.iter().map(|&one| Arc::new(step(one))).collect();
    let policies = made.iter().map(|step| Arc::clone(step) as Arc<dyn ToolPolicy>).collect();
    let policy = Arc::new(FixedPolicy(decision));
    let live = world.create_with(SessionOptions { policy, policies, ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);

    let questions = if is_unconfined { 2 } else { 1 };
    let strictest = |question: usize| {
        let said = steps.iter().map(|&one| levels(one)[question]).max().unwrap_or(Level::NoOpinion).max(base);
        if said == Level::NoOpinion { Level::Ask } else { said }
    };
    let expected = (0..questions).map(strictest).max().unwrap();
    let (_, text, is_error) = live.results().remove(0);
    let became = match (&*text, is_error) {
        ("it ran", false) => Level::Allow,
        (text, true) if text.contains("needs a person's permission") => Level::Ask,
        (_, true) => Level::Deny,
        other => panic!("{other:?}"),
    };
    assert_eq!(became, expected, "{base:?} {steps:?}: {text}");
    // A denial ends the chain; nothing else does.
    let denies = |&one: &(StepReply, Level)| levels(one)[..questions].contains(&Level::Deny);
    let last =
        if base == Level::Deny { 0 } else { steps.iter().position(denies).map_or(steps.len(), |at| at + 1) };
    let asked: Vec<usize> = made.iter().map(|step| step.asked().len()).collect();
    let expected: Vec<usize> = (0..steps.len()).map(|at| usize::from(at < last)).collect();
    assert_eq!(asked, expected, "{base:?} {steps:?}");
    live.finish().await;
    world.check().await;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn random_chains_decide_as_their_strictest_step(
        base in level(),
        steps in prop::collection::vec((said(), level()), 0..5),
        is_unconfined in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(base, steps, is_unconfined));
    }
}
