//! The careful compaction: parts, checks, failures, and what stands behind the summary.

use std::sync::Arc;

use quipu::protocol::{CompactionResult, Event, Message, Model, ModelErrorKind, Outcome};
use quipu::{CompactionSettings, Safeguard, SessionOptions};
use quipu_transcript::{SUMMARY_HEADINGS, empty_summary};
use serde_json::json;

use crate::compact::{is_summary_request, texts};
use crate::support::{Gate, LiveSession, Reply, World, call, say, text_of};

fn safeguard() -> Safeguard {
    Safeguard { retry_ms: 1, ..Safeguard::default() }
}

fn options(world: &World, window: u64, safeguard: Safeguard) -> SessionOptions {
    let model = Model { context_window: window, ..(*crate::support::model()).clone() };
    let compaction = CompactionSettings {
        enabled: true,
        reserve_tokens: window / 10,
        keep_recent_tokens: 800,
        safeguard: Some(safeguard),
    };
    SessionOptions { model: Arc::new(model), compaction, ..world.options() }
}

/// A summary that has all headings, and these words.
fn notes(words: &str) -> Reply {
    say(&format!("{}\n{words}", empty_summary()))
}

fn text(word: &str, characters: usize) -> String {
    format!("{word} {}", "x".repeat(characters))
}

async fn talk(world: &World, live: &LiveSession, turns: usize, characters: usize) {
    for n in 0..turns {
        world.fake.push([say(&text(&format!("answer-{n}"), characters))]);
        assert_eq!(live.run(&format!("question-{n}")).await, Outcome::Done);
    }
    // This turn stays.
    world.fake.push([say("ok")]);
    assert_eq!(live.run(&text("newest", 4_000)).await, Outcome::Done);
}

/// Compacts it, and gives what became of it with the requests for it.
async fn compact(world: &World, live: &LiveSession) -> (Arc<CompactionResult>, Vec<String>) {
    let before = world.fake.bodies().len();
    let ended = |event: &Event| match event {
        Event::CompactionEnded { result, .. } => Some(result.clone()),
        _ => None,
    };
    let count = live.all(ended).len();
    live.session.compact(None).await.unwrap();
    live.until(count + 1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    let bodies = world.fake.bodies();
    let asked = bodies[before..].iter().filter(|body| is_summary_request(body));
    (live.all(ended).pop().unwrap(), asked.map(|body| texts(body).remove(0)).collect())
}

fn summary(result: &CompactionResult) -> String {
    match result {
        CompactionResult::Done { compaction, .. } => compaction.summary.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_history_is_summarized_in_parts_that_are_merged() {
    let world = World::new();
    let live = world.create_with(options(&world, 60_000, safeguard())).await;
    talk(&world, &live, 6, 16_000).await;
    world.fake.push([notes("question half"), notes("question rest"), notes("question all")]);
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 3);
    assert!(asked[0].contains("question-0") && !asked[0].contains("question-5"), "the first half");
    assert!(asked[1].contains("question-5") && !asked[1].contains("question-0"), "the second one");
    assert!(asked[2].contains("<part number=\"1\">") && asked[2].contains("question rest"), "{}", asked[2]);
    assert!(SUMMARY_HEADINGS.iter().all(|heading| asked[0].contains(heading)));
    let summary = summary(&result);
    assert!(
        summary.starts_with(&format!("{}\nquestion all\n\n## Recent turns", empty_summary())),
        "{summary}"
    );
    let lines: Vec<&str> = summary.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(lines.len(), 6, "three turns: {lines:?}");
    assert_eq!(lines[0], "- User: question-3");
    assert!(lines[1].starts_with("- Assistant: answer-3 xxx") && lines[1].ends_with("more characters)"));
    assert!(summary.contains("<user-messages>\nquestion-0\n---\n"), "the user's words are there as well");
    // It goes on from there, and the next one continues the notes.
    live.run("and?").await;
    assert!(texts(world.fake.bodies().last().unwrap())[0].contains("question all"));
    talk(&world, &live, 3, 4_000).await;
    world.fake.push([notes("question second")]);
    let (result, asked) = compact(&world, &live).await;
    assert!(asked[0].contains("<previous-summary>\n## Decisions"), "{}", asked[0]);
    assert!(self::summary(&result).contains("question second"));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_shown_whole_are_not_summarized() {
    let world = World::new();
    let live = world.create_with(options(&world, 60_000, safeguard())).await;
    talk(&world, &live, 8, 400).await;
    world.fake.push([notes("question")]);
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains("question-4") && !asked[0].contains("question-5"), "{}", asked[0]);
    let summary = summary(&result);
    assert!((5..8).all(|n| summary.contains(&format!("- Assistant: answer-{n} xxx"))), "{summary}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_that_lacks_something_is_made_again() {
    let world = World::new();
    let live = world.create_with(options(&world, 60_000, Safeguard { recent_turns: 0, ..safeguard() })).await;
    world.fake.push([say("I see /srv/zoo/wombat.rs there")]);
    live.run("feed the wombat").await;
    talk(&world, &live, 1, 4_000).await;
    world.fake.push([say("## Decisions\nNone."), notes("question: nothing")]);
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 2);
    assert!(
        asked[1].contains("<previous-summary>\n## Decisions\nNone.\n</previous-summary>"),
        "{}",
        asked[1]
    );
    assert!(asked[1].contains("- The heading `## Open TODOs` is missing.\n"));
    assert!(asked[1].contains("- `/srv/zoo/wombat.rs` is named nowhere."));
    assert!(asked[1].contains("The user's last request is not in it: question-0"));
    // It still lacks the path, which is added.
    assert!(
        summary(&result).contains("question: nothing\n\n## More identifiers\n- /srv/zoo/wombat.rs\n\n<user-")
    );
    live.finish().await;

    // Nobody looks.
    let off = Safeguard { identifiers: quipu::IdentifierRule::Off, quality_retries: 0, ..safeguard() };
    let live = world.create_with(options(&world, 60_000, Safeguard { recent_turns: 0, ..off })).await;
    talk(&world, &live, 1, 4_000).await;
    world.fake.push([say("short")]);
    let (result, asked) = compact(&world, &live).await;
    assert!(asked.len() == 1 && !asked[0].contains("character by character"), "{asked:?}");
    assert!(summary(&result).starts_with("short\n\n<user-messages>"));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_calls_are_tried_again_and_gaps_are_named() {
    let failed = || Reply { error: Some(ModelErrorKind::Server), ..say("half") };
    let world = World::new();
    let live = world.create_with(options(&world, 60_000, safeguard())).await;
    talk(&world, &live, 6, 16_000).await;
    // Everything fails: nothing changes.
    world.fake.push((0..6).map(|_| failed()));
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 6, "two parts, three times each");
    assert!(
        matches!(&*result, CompactionResult::Failed(why) if why.contains("did not summarize")),
        "{result:?}"
    );
    live.run("still there?").await;
    assert!(texts(world.fake.bodies().last().unwrap())[0].starts_with("question-0"));
    // What no other call would mend is not tried again.
    world.fake.push([Reply { error: Some(ModelErrorKind::Auth), ..say("") }]);
    let (result, asked) = compact(&world, &live).await;
    assert!(asked.len() == 1 && matches!(&*result, CompactionResult::Failed(_)), "{result:?}");
    // A part that fails is named, and the other one is there.
    world.fake.push((0..3).map(|_| failed()));
    world.fake.push([failed(), notes("question rest")]);
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 5);
    let summary = summary(&result);
    let first = summary.lines().next().unwrap_or_default();
    assert!(first.ends_with(" messages could not be summarized.)"), "{summary}");
    assert!(summary.contains("question rest"));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_message_is_named_where_it_cannot_be_read() {
    let world = World::new();
    let live = world.create_with(options(&world, 60_000, safeguard())).await;
    world.fake.push([say("much")]);
    live.run(&text("huge", 110_000)).await;
    talk(&world, &live, 2, 4_000).await;
    let failed = || Reply { error: Some(ModelErrorKind::Malformed), ..say("") };
    world.fake.push([failed(), failed(), failed(), notes("question")]);
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 4);
    let summary = summary(&result);
    assert!(summary.starts_with("(user message of about 27504 tokens: left out of the notes)"), "{summary}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_that_takes_too_long_changes_nothing() {
    let world = World::new();
    let live =
        world.create_with(options(&world, 60_000, Safeguard { timeout_seconds: 1, ..safeguard() })).await;
    talk(&world, &live, 2, 4_000).await;
    world.fake.push([Reply { before: Some(Gate::new()), ..notes("question") }]);
    let (result, _) = compact(&world, &live).await;
    assert!(
        matches!(&*result, CompactionResult::Failed(why) if why.contains("longer than 1 seconds")),
        "{result:?}"
    );
    live.run("still there?").await;
    assert!(texts(world.fake.bodies().last().unwrap())[0].starts_with("question-0"));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_turn_and_failures_stand_behind_the_summary() {
    let world = World::new();
    let live = world.create_with(options(&world, 60_000, safeguard())).await;
    world.fake.push([say("answer-0")]);
    live.run(&text("question-0", 4_000)).await;
    world.fake.push([call(&[("nothing", json!({}))])]);
    world.fake.push((0..3).map(|_| call(&[("echo", json!({ "text": text("out", 4_000) }))])));
    world.fake.push([say("done")]);
    live.run("a long task").await;
    world.fake.push([notes("question"), say("the turn")]);
    let (result, asked) = compact(&world, &live).await;
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("[User]: a long task") && asked[1].contains("## Original Request"));
    let summary = summary(&result);
    assert!(
        summary.contains("**Start of the turn that continues below:**\n\nthe turn\n\n## Recent turns"),
        "{summary}"
    );
    assert!(summary.contains("\n## Tool Failures\n- nothing: "), "{summary}");
    live.run("and?").await;
    let sent = crate::support::messages_of(world.fake.bodies().last().unwrap());
    assert!(matches!(&sent[1], Message::Assistant(_)) && text_of(&sent[0]).contains("the turn"));
    live.finish().await;
    world.check().await;
}
