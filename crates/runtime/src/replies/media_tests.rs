use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use quipu_outbound::{
    Acknowledgement, Block, BreakPreference, ChunkOptions, MediaCheck, SinkFuture, StreamOutput,
};
use quipu_testkit::{Answer, Gate};
use serde_json::json;
use tokio::sync::watch;

use super::flow::FlowWorld;
use super::tests::{answer_of, call_of, result_of_call};
use super::*;
use crate::queue::BusyMode;
use crate::run::RunRequest;
use crate::testing::{World, request, says};

/// A chat that keeps texts with their media, and gets each paragraph as a message.
struct Chat {
    taken: watch::Sender<Vec<(String, Vec<String>)>>,
    timing: ReplyTiming,
    /// A file that a link to the other one takes the place of when the first message comes.
    swapped: Mutex<Option<[PathBuf; 2]>>,
}

impl Chat {
    fn new(timing: ReplyTiming) -> Arc<Self> {
        Arc::new(Self { taken: watch::Sender::default(), timing, swapped: Mutex::default() })
    }

    /// Texts and media, joined.
    fn shown(&self) -> (String, Vec<String>) {
        let taken = self.taken.borrow();
        let texts: Vec<_> =
            taken.iter().map(|(text, _)| text.as_str()).filter(|text| !text.is_empty()).collect();
        (texts.join("\n"), taken.iter().flat_map(|(_, media)| media.clone()).collect())
    }
}

impl MessageSink for Chat {
    fn offer(&self, offer: Offer) -> SinkFuture<'_> {
        self.taken.send_modify(|all| all.push((offer.block.text, offer.block.media)));
        if let Some([file, other]) = lock(&self.swapped).take() {
            std::fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(other, file).unwrap();
        }
        Box::pin(async { Ok(Acknowledgement::default()) })
    }
}

struct Routes(Arc<Chat>);

impl ReplyRoutes for Routes {
    fn route(&self, _: &SessionKey, _: &Route) -> Option<ReplyRoute> {
        let preference = BreakPreference::Paragraph;
        let chunks = ChunkOptions { min: 1, max: 200, preference, flush_on_paragraph: true };
        let options = StreamOptions { chunks, ..StreamOptions::default() };
        Some(ReplyRoute { timing: self.0.timing, ..ReplyRoute::new(self.0.clone(), options) })
    }
}

async fn replies(world: &World, chat: &Arc<Chat>) -> Replies {
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    Replies::open(store, Arc::new(Routes(chat.clone()))).await.unwrap()
}

fn asks(text: &str) -> RunRequest {
    request("agent:main:main", text, BusyMode::Followup)
}

/// What a chat is shown of this answer, said in a workspace with some files.
async fn shown(answer: &str, timing: ReplyTiming) -> (String, Vec<String>) {
    let world = World::new([says(answer)]);
    let settings = world.here().with_file_name("home").join("settings.json");
    let rules = json!({ "defaultModel": "test-1", "permissions": { "deny": ["read(kept.png)"] } });
    std::fs::write(settings, rules.to_string()).unwrap();
    let here = world.here();
    std::fs::create_dir(here.join("out")).unwrap();
    std::fs::write(here.join("out/my plot.png"), "a plot").unwrap();
    std::fs::write(here.join("id_rsa"), "a key").unwrap();
    std::fs::write(here.join("kept.png"), "for nobody").unwrap();
    std::fs::write(here.with_file_name("outside.png"), "not here").unwrap();
    std::os::unix::fs::symlink("../outside.png", here.join("out/link.png")).unwrap();
    std::os::unix::fs::symlink("my plot.png", here.join("out/plot.png")).unwrap();
    let chat = Chat::new(timing);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            conversations.run(asks("one")).await.unwrap();
            kept.idle().await;
        })
        .await;
    let (text, media) = chat.shown();
    let here = here.canonicalize().unwrap().display().to_string();
    (text, media.iter().map(|path| path.replace(&here, "HERE")).collect())
}

#[tokio::test]
async fn answers_send_files_of_their_workspace_alone() {
    for timing in [ReplyTiming::Whole, ReplyTiming::Streamed] {
        for refused in [
            "Here it is\nMEDIA:/etc/passwd",
            "See [[media: ~/.ssh/id_rsa]] here",
            "MEDIA: ./out/link.png",
            "MEDIA: ./id_rsa",
            "MEDIA: ./kept.png",
            "MEDIA: ./out",
            "MEDIA: out/nothing.png",
            "MEDIA: file:///etc/passwd",
            "Media: TV/radio 40 %, print 60 %",
        ] {
            assert_eq!(shown(refused, timing).await, (refused.to_owned(), vec![]), "{timing:?}");
        }
        let sent = "Look:\nMEDIA: ./out/my plot.png\nMEDIA: /etc/passwd\nand\nMEDIA: `out/plot.png`\nMEDIA: https://example.com/a.png";
        let (text, media) = shown(sent, timing).await;
        assert_eq!(text, "Look:\nMEDIA: /etc/passwd\nand", "{timing:?}");
        assert_eq!(media, ["HERE/out/my plot.png", "HERE/out/my plot.png", "https://example.com/a.png"]);
    }
}

#[tokio::test]
async fn streamed_answer_goes_on_though_its_file_is_gone() {
    let rest = "Still waters run deep.\n\nHaste makes waste.\n\nEasy come, easy go.\n\nTime will tell.\n\nNo pain, no gain.\n\nAll is well that ends well.";
    let answer =
        format!("First this.\n\nMEDIA: ./late.png\n\nThen.\n\nMEDIA: ./a.png\n\nAnd so on.\n\n{rest}");
    let (gate, chat) = (Gate::new(), Chat::new(ReplyTiming::Streamed));
    let world = World::new([Answer::new().text(&answer).halved(&gate), says(&answer), says("last")]);
    let file = world.here().join("a.png");
    std::fs::write(&file, "a picture").unwrap();
    let first = replies(&world, &chat).await;
    let seen = chat.clone();
    world
        .serve_replies(&first, |conversations| async move {
            drop(conversations.start(asks("one")).await.unwrap());
            seen.taken
                .subscribe()
                .wait_for(|taken| taken.iter().any(|one| one.0 == "And so on."))
                .await
                .unwrap();
        })
        .await;
    // What held for both of them when the answer began stays so.
    std::fs::rename(&file, world.here().join("late.png")).unwrap();
    let next = replies(&world, &chat).await;
    let kept = next.clone();
    world
        .serve_replies(&next, |conversations| async move {
            conversations.run(asks("two")).await.unwrap();
            kept.idle().await;
        })
        .await;
    chat.taken.send_modify(Vec::dedup);
    let (text, media) = chat.shown();
    let said = format!("{}\n\nlast", answer.replace("MEDIA: ./a.png\n\n", ""));
    assert_eq!(text.replace("\n\n", "\n"), said.replace("\n\n", "\n"));
    assert_eq!(media.len(), 1, "{media:?}");
}

#[tokio::test]
async fn file_that_a_link_replaces_while_its_reply_waits_is_not_sent() {
    let world = World::new([says("First this.\n\nLook:\nMEDIA: ./plot.png\nMEDIA: ./kept.png\n")]);
    let chat = Chat::new(ReplyTiming::Streamed);
    let (file, other) = (world.here().join("plot.png"), world.here().with_file_name("secret"));
    for file in [&file, &other, &world.here().join("kept.png")] {
        std::fs::write(file, "bytes").unwrap();
    }
    *lock(&chat.swapped) = Some([file, other]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            conversations.run(asks("one")).await.unwrap();
            kept.idle().await;
        })
        .await;
    let (text, media) = chat.shown();
    assert_eq!(text, "First this.\nLook:\n(`plot.png` is not sent: it is gone, or a link took its place.)");
    assert_eq!(media, [world.here().canonicalize().unwrap().join("kept.png").display().to_string()]);
}

#[test]
fn offered_block_has_the_files_that_are_there() {
    let world = World::new([]);
    let here = world.here().canonicalize().unwrap();
    std::fs::create_dir(here.join("out")).unwrap();
    for name in ["out/a.png", "b.png"] {
        std::fs::write(here.join(name), "a picture").unwrap();
    }
    let path = |name: &str| here.join(name).display().to_string();
    let all = ["https://example.com/a.png".to_owned(), path("out/a.png"), path("b.png"), "id:7".to_owned()];
    let offered = |most: usize| {
        let block = Block { text: "Look:".to_owned(), media: all.to_vec(), ..Block::default() };
        let block = offered_block(block, most);
        (block.text, block.media)
    };
    assert_eq!(offered(1_000), ("Look:".to_owned(), all.to_vec()));
    // A folder on the way to it that becomes a link.
    std::fs::rename(here.join("out"), here.join("moved")).unwrap();
    std::os::unix::fs::symlink("moved", here.join("out")).unwrap();
    std::fs::remove_file(here.join("b.png")).unwrap();
    std::fs::create_dir(here.join("b.png")).unwrap();
    let line = |name: &str| format!("(`{name}` is not sent: it is gone, or a link took its place.)");
    let left = vec![all[0].clone(), all[3].clone()];
    assert_eq!(offered(1_000), (format!("Look:\n{}\n{}", line("a.png"), line("b.png")), left.clone()));
    assert_eq!(offered(70), (format!("Look:\n{}", line("a.png")), left.clone()));
    assert_eq!(offered(20), ("Look:".to_owned(), left));
    // A message that would say nothing says this.
    let alone = Block { media: vec![path("b.png")], ..Block::default() };
    assert_eq!(offered_block(alone, 20).text, line("b.png"));
}

#[tokio::test]
async fn answer_that_repeats_files_of_a_message_is_not_sent() {
    let (world, chat) = (World::new([]), Chat::new(ReplyTiming::Whole));
    let replies = replies(&world, &chat).await;
    let key = SessionKey::parse("agent:main:main").unwrap();
    let owed = OwedReply::new("turn".into(), "s".into(), Route { channel: "irc".into(), ..Route::default() });
    // What is sent for an answer behind a call, where the plot is made by another call before it.
    let sent = |call: &str, answer: &str, is_made: bool| {
        let is_there = Arc::new(AtomicBool::new(false));
        let there = is_there.clone();
        let files = MediaCheck::new(move |name| {
            let is_plot = name.ends_with("plot.png") && there.load(Ordering::Relaxed);
            is_plot.then(|| "/work/out/plot.png".to_owned())
        });
        let mut flow = ReplyFlow::of(&replies, &key, &owed, files).unwrap();
        let (seal, progress) = (|text: &str| text.to_owned(), |_: &ReplyKey| None);
        let flowing = FlowWorld { routes: &*replies.0.routes, progress: &progress, seal: &seal, at: 0 };
        assert!(
            flow.said(&call_of(call), &flowing).iter().all(|one| !matches!(one, StreamOutput::Block { .. }))
        );
        is_there.store(is_made, Ordering::Relaxed);
        flow.said(&result_of_call(false), &flowing);
        is_there.store(true, Ordering::Relaxed);
        let outputs = flow.said(&answer_of(answer), &flowing);
        let blocks = outputs.into_iter().filter_map(|output| match output {
            StreamOutput::Block { block, .. } => Some((block.text, block.media)),
            _ => None,
        });
        blocks.collect::<Vec<_>>()
    };
    let text = "Here is your plot.\nMEDIA: ./out/plot.png";
    assert_eq!(sent(text, text, true), []);
    assert_eq!(sent(text, "MEDIA: /work/out/plot.png", true), []);
    let (plot, other) = ("/work/out/plot.png".to_owned(), "MEDIA: ./out/plot.png");
    assert_eq!(sent("I make a plot for you.", other, true), [(String::new(), vec![plot.clone()])]);
    // It was not there when the message was sent: its line was text.
    assert_eq!(sent(text, other, false), [(String::new(), vec![plot])]);
}
