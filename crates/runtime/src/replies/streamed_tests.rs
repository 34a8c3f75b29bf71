use quipu_testkit::{Answer, Gate, Reply};

use super::tests::{Chat, replies};
use super::*;
use crate::queue::BusyMode;
use crate::run::RunRequest;
use crate::testing::{World, request, says};

/// Six paragraphs. When half of it has arrived, two of its lines have ended.
const PROVERBS: &str = "Still waters run deep.\n\nHaste makes waste.\n\nEasy come, easy go.\n\nTime will tell.\n\nNo pain, no gain.\n\nAll is well that ends well.";

fn asks(text: &str) -> RunRequest {
    request("agent:main:main", text, BusyMode::Followup)
}

/// The rows that are left in the store.
async fn left(world: &World) -> Vec<String> {
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    let rows = store.pending(&REPLY_OUTBOX.into()).await.unwrap().inbox;
    rows.iter().map(|row| row.input.to_string()).collect()
}

async fn says_first(chat: &Chat) {
    chat.taken.subscribe().wait_for(|taken| !taken.is_empty()).await.unwrap();
}

fn keys(chat: &Chat) -> Vec<String> {
    let mut keys: Vec<_> = chat.taken.borrow().iter().map(|(key, ..)| key.clone()).collect();
    keys.dedup();
    keys
}

#[tokio::test]
async fn streamed_answer_leaves_in_blocks_before_it_is_whole() {
    let (gate, chat) = (Gate::new(), Chat::streamed());
    let world = World::new([Answer::new().text(PROVERBS).halved(&gate), says("last")]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    let seen = chat.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            let run = conversations.start(asks("one")).await.unwrap();
            says_first(&seen).await;
            assert_eq!(seen.texts()[0], "Still waters run deep.");
            assert_eq!(kept.len(), 1, "it has not ended");
            gate.open();
            run.outcome().await.unwrap();
            conversations.run(asks("two")).await.unwrap();
            kept.idle().await;
        })
        .await;
    let texts = chat.texts();
    assert_eq!(texts[..6].join("\n\n"), PROVERBS);
    assert_eq!(texts[6..], ["last"]);
    assert_eq!(keys(&chat).len(), 2);
    let parts: Vec<u32> = chat.taken.borrow().iter().map(|(_, part, _)| *part).collect();
    assert_eq!(parts, [0, 1, 2, 3, 4, 5, 0]);
    assert_eq!(left(&world).await, [] as [String; 0]);
}

/// What a chat is sent where the process ends in the middle of an answer, and the next one gives this.
async fn sent_after_an_end(second: &str) -> Vec<String> {
    let (gate, chat) = (Gate::new(), Chat::streamed());
    let world = World::new([Answer::new().text(PROVERBS).halved(&gate), says(second), says("last")]);
    let first = replies(&world, &chat).await;
    let seen = chat.clone();
    world
        .serve_replies(&first, |conversations| async move {
            drop(conversations.start(asks("one")).await.unwrap());
            says_first(&seen).await;
        })
        .await;
    let next = replies(&world, &chat).await;
    assert_eq!(next.len(), 1, "it was begun and has not ended");
    let kept = next.clone();
    world
        .serve_replies(&next, |conversations| async move {
            conversations.run(asks("two")).await.unwrap();
            kept.idle().await;
        })
        .await;
    assert_eq!(left(&world).await, [] as [String; 0]);
    let mut texts = chat.texts();
    assert_eq!(texts.pop().unwrap(), "last");
    assert_eq!(keys(&chat).len(), 2, "one for each answer");
    texts
}

#[tokio::test]
async fn streamed_answer_goes_on_behind_an_end_of_its_process() {
    let mut texts = sent_after_an_end(PROVERBS).await;
    // One whose acknowledgement was not stored is offered again.
    texts.dedup();
    assert_eq!(texts.join("\n\n"), PROVERBS);
}

#[tokio::test]
async fn another_answer_behind_an_end_is_sent_whole() {
    for other in ["Something else.\n\nEntirely.", "Still waters."] {
        let texts = sent_after_an_end(other).await.join("\n\n");
        assert!(texts.starts_with("Still waters run deep.") && texts.ends_with(other), "{texts}");
    }
}

#[tokio::test]
async fn stopped_run_ends_the_reply_that_it_began() {
    let (gate, chat) = (Gate::new(), Chat::streamed());
    let world = World::new([Answer::new().text(PROVERBS).halved(&gate), says("next")]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    let seen = chat.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            let run = conversations.start(asks("one")).await.unwrap();
            says_first(&seen).await;
            let key = SessionKey::parse("agent:main:main").unwrap();
            conversations.stop(&key, asks("stop").message.authority).await.unwrap();
            drop(run.outcome().await);
            conversations.run(asks("two")).await.unwrap();
            kept.idle().await;
        })
        .await;
    assert_eq!(chat.texts().last().unwrap(), "next");
    assert!(!chat.texts().iter().any(|text| text.contains("All is well")));
    assert_eq!(left(&world).await, [] as [String; 0]);
}

#[tokio::test]
async fn answer_that_breaks_off_goes_on_under_its_key() {
    let chat = Chat::streamed();
    let (first, _) = Answer::new().text(PROVERBS).halves();
    let world = World::new([Reply::sse(first), says(PROVERBS)]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            conversations.run(asks("one")).await.unwrap();
            kept.idle().await;
        })
        .await;
    assert_eq!(chat.texts().join("\n\n"), PROVERBS);
    assert_eq!(keys(&chat).len(), 1);
    assert_eq!(left(&world).await, [] as [String; 0]);
}

#[tokio::test]
async fn secrets_do_not_leave_in_blocks() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let text = format!("The token is {token} here.\n\n{PROVERBS}");
    let (gate, chat) = (Gate::new(), Chat::streamed());
    let world = World::new([Answer::new().text(&text).halved(&gate)]);
    gate.open();
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            conversations.run(asks("one")).await.unwrap();
            kept.idle().await;
        })
        .await;
    let texts = chat.texts().join("\n\n");
    assert!(!texts.contains(&token) && texts.contains("[REDACTED:"), "{texts}");
    assert!(texts.ends_with(PROVERBS), "{texts}");
}
