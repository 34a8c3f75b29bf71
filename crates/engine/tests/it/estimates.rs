//! What was counted corrects what is estimated: when a context is compacted, and what is told of it.

use std::sync::Arc;

use quipu::protocol::{CompactionResult, Event, Model, Outcome};
use quipu::{CompactionSettings, PruneSettings, SessionOptions};

use crate::support::{LiveSession, Reply, World, say};

/// About 400 tokens, as they are estimated.
fn long(word: &str) -> String {
    format!("{word} {}", "x".repeat(1_596))
}

/// A window of 10,000 tokens, a tenth of it kept free.
async fn live(world: &World) -> LiveSession {
    let model = Model { context_window: 10_000, ..(*crate::support::model()).clone() };
    let compaction = CompactionSettings {
        enabled: true,
        reserve_tokens: 1_000,
        keep_recent_tokens: 1_000,
        safeguard: None,
    };
    let options = SessionOptions { model: Arc::new(model), compaction, ..world.options() };
    world.create_with(options).await
}

/// How many turns there are before the first compaction, its tokens before and after, and what `context_use` told of
/// the context before it.
async fn compacted(counts: u64) -> (usize, u64, u64, u64) {
    let world = World::new();
    let live = live(&world).await;
    let mut told = 0;
    for turn in 0..40 {
        // The system prompt, the tool and all that was said are counted so many times as high as they are estimated.
        let estimated = 33 + 800 * (turn + 1);
        world.fake.push([Reply { input: estimated * counts, ..say(&long("answer")) }]);
        assert_eq!(live.run(&long("question")).await, Outcome::Done);
        let ended = live.all(|event| match event {
            Event::CompactionEnded { result, .. } => Some(result.clone()),
            _ => None,
        });
        if let Some(result) = ended.first() {
            let CompactionResult::Done { node, compaction, tokens_after } = &**result else {
                panic!("{result:?}")
            };
            // Read back, its node tells the same.
            let read = world.engine.context_use(*node, &PruneSettings::default()).await.unwrap();
            assert!(
                read.counted.is_none() && read.tokens.abs_diff(*tokens_after) < 10,
                "{read:?} {tokens_after}"
            );
            let numbers = (usize::try_from(turn).unwrap(), compaction.tokens_before, *tokens_after, told);
            live.finish().await;
            return numbers;
        }
        let view = live.session.view();
        let used = world.engine.context_use(view.head.unwrap(), &PruneSettings::default()).await;
        told = used.unwrap().tokens;
    }
    panic!("never compacted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counted_tokens_correct_trigger_and_report() {
    let (one_turns, one_before, one_after, one_told) = compacted(1).await;
    let (two_turns, two_before, two_after, two_told) = compacted(2).await;
    assert_eq!((one_turns, two_turns), (11, 6));
    // What is said last, 400 tokens by its length, counts as what was counted.
    for (before, told, said) in [(one_before, one_told, 400), (two_before, two_told, 800)] {
        assert!(before > 9_000 && before < 10_600, "{before}");
        assert!((before - told).abs_diff(said) < 20, "{before} {told}");
    }
    // About 1,000 estimated tokens stay, with the notes and the user's words.
    assert!(one_after < 5_000 && two_after > one_after * 3 / 2, "{one_after} {two_after}");
}
