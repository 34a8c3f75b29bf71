//! Compaction: what the model is shown afterwards, what is kept, and that it can be undone.

use std::sync::Arc;

use quipu::protocol::{
    Command, Compaction, CompactionReason, CompactionResult, Content, Ending, Event, Message, Model,
    ModelErrorKind, NodeId, Outcome, Part, StopReason, When,
};
use quipu::store::{Store, decode_nodes};
use quipu::{CompactionSettings, Refused, SessionOptions};
use serde_json::json;

use crate::support::{Gate, Live, Reply, World, call, messages_of, say, text_of};

/// A model with room for `window` tokens, a tenth of it kept free. At a compaction about 800 stay.
fn options(world: &World, window: u64) -> SessionOptions {
    let model = Model { context_window: window, ..(*crate::support::model()).clone() };
    let compaction =
        CompactionSettings { enabled: true, reserve_tokens: window / 10, keep_recent_tokens: 800 };
    SessionOptions { model: Arc::new(model), compaction, ..world.options() }
}

fn texts(body: &[u8]) -> Vec<String> {
    messages_of(body).iter().map(text_of).collect()
}

fn is_summary_request(body: &[u8]) -> bool {
    texts(body).last().is_some_and(|text| text.starts_with("<conversation>"))
}

fn compactions(live: &Live) -> Vec<(CompactionReason, Arc<CompactionResult>)> {
    live.all(|event| match event {
        Event::CompactionEnded { reason, result } => Some((*reason, result.clone())),
        _ => None,
    })
}

fn done(result: &CompactionResult) -> (NodeId, Compaction, u64) {
    match result {
        CompactionResult::Done { node, compaction, tokens_after } => {
            (*node, (**compaction).clone(), *tokens_after)
        }
        other => panic!("{other:?}"),
    }
}

fn long(word: &str) -> String {
    format!("{word} {}", "x".repeat(1_596))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_near_its_window_is_summed_up_before_the_next_call() {
    // Each message is 400 tokens or so.
    let mut replies: Vec<Reply> = (0..4).map(|n| say(&long(&format!("answer-{n}")))).collect();
    // Too long for one request beside the instructions: in two pieces.
    replies.push(Reply { cost: 0.25, ..say("half") });
    replies.push(Reply { cost: 0.25, ..say("## Goal\nCounting.") });
    replies.extend((4..7).map(|n| say(&long(&format!("answer-{n}")))));
    let world = World::with(replies);
    let mut settings = options(&world, 4_000);
    settings.compaction.keep_recent_tokens = 850;
    let live = world.create_with(settings).await;
    for n in 0..6 {
        assert_eq!(live.run(&long(&format!("question-{n}"))).await, Outcome::Done);
    }
    let bodies = world.fake.bodies();
    let asked: Vec<usize> = (0..bodies.len()).filter(|at| is_summary_request(&bodies[*at])).collect();
    assert_eq!(asked, [4, 5], "{}", bodies.len());
    let (one, two) = (texts(&bodies[4]).remove(0), texts(&bodies[5]).remove(0));
    assert!(one.contains("[User]: question-0") && !one.contains("previous-summary"), "{one}");
    assert!(two.contains("[Assistant]: answer-2") && two.contains("<previous-summary>\nhalf\n"), "{two}");
    assert!(!two.contains("question-0") && !two.contains("question-3"), "{two}");

    let ended = compactions(&live);
    let [(CompactionReason::Threshold, result)] = ended.as_slice() else { panic!("{ended:?}") };
    let (node, compaction, tokens_after) = done(result);
    assert!(compaction.tokens_before > 3_000 && tokens_after < 3_000, "{compaction:?} {tokens_after}");
    assert_eq!(compaction.usage.unwrap().cost.total, 0.5);

    // The next request: the notes with the user's own words, then what was kept; and from there it grows.
    let next = texts(&bodies[6]);
    assert!(
        next[0].contains(
            "## Goal\nCounting.\n\n<user-messages>\n(2 earlier messages are left out)\n---\nquestion-2 xxx"
        ),
        "{}",
        next[0]
    );
    let heads: Vec<&str> = next[1..].iter().filter_map(|text| text.split(' ').next()).collect();
    assert_eq!(heads, ["question-3", "answer-3", "question-4"]);
    assert!(
        bodies[7].starts_with(&bodies[6][..bodies[6].len() - 30]),
        "what was sent stays: the cache is warm"
    );

    // The node before it has the old context: going on from there asks what would have been asked.
    let before = world.store.nodes(&[node]).await.unwrap().remove(0).unwrap().record.parent.unwrap();
    let decoded = decode_nodes(
        &*world.store,
        &world.store.nodes(&[node]).await.unwrap().into_iter().flatten().collect::<Vec<_>>(),
    )
    .await
    .unwrap();
    assert_eq!(decoded[0].step.call.as_ref().unwrap().attempts.len(), 1);
    live.finish().await;
    let fork = world.engine.fork(before, world.options()).await.unwrap();
    fork.ask("more").await.unwrap();
    fork.shutdown().await;
    let undone = texts(world.fake.bodies().last().unwrap());
    assert_eq!((undone.len(), undone[0].split(' ').next()), (10, Some("question-0")));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compacted_again_the_notes_carry_on_and_so_does_a_resumed_session() {
    for restart in [false, true] {
        let world = World::with((0..3).map(|n| say(&long(&format!("answer-{n}")))));
        let live = world.create_with(options(&world, 4_000)).await;
        for n in 0..3 {
            live.run(&long(&format!("question-{n}"))).await;
        }
        let read = |path: &str| call(&[("read", json!({ "path": path })), ("write", json!({ "path": "w" }))]);
        world.fake.push([say("first notes"), read("r1"), say(&long("answer-3")), say(&long("answer-4"))]);
        live.session.compact(Some("the counting".into())).await.unwrap();
        live.settled(4).await;
        assert!(texts(world.fake.bodies().last().unwrap())[0].ends_with("Additional focus: the counting"));
        live.run("look").await;
        live.run(&long("question-4")).await;
        let live = if restart {
            let id = live.id();
            live.finish().await;
            Live::of(world.engine.open(&id, options(&world, 4_000)).await.unwrap().session).await
        } else {
            live
        };
        world.fake.push([say("second notes"), say("at last")]);
        live.session.compact(None).await.unwrap();
        live.settled(if restart { 1 } else { 7 }).await;
        let ended = compactions(&live);
        let (_, compaction, _) = done(&ended.last().unwrap().1);
        let request = texts(world.fake.bodies().last().unwrap()).remove(0);
        assert!(request.contains("<previous-summary>\nfirst notes\n</previous-summary>"), "{request}");
        assert!(
            request.contains("[Assistant tool calls]: read(path=\"r1\"); write(path=\"w\")"),
            "{request}"
        );
        let (notes, rest) = compaction.summary.split_once("\n\n<user-messages>\n").unwrap();
        assert!(notes.contains("second notes"));
        assert!(rest.contains("question-2") && rest.contains("\n---\nlook\n"), "{rest}");
        assert!(
            rest.ends_with("<read-files>\nr1\n</read-files>\n\n<modified-files>\nw\n</modified-files>"),
            "{rest}"
        );
        live.run("and?").await;
        let next = texts(world.fake.bodies().last().unwrap());
        assert!(next[0].contains("second notes") && !next[0].contains("first notes"));
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_fails_leaves_the_context_as_it_was() {
    let bad = [
        (Reply { error: Some(ModelErrorKind::Server), ..say("half") }, "did not sum"),
        (Reply { stop: Some(StopReason::Length), ..say("half") }, "cut off"),
        (call(&[("echo", json!({"text": "x"}))]), "called a tool"),
        (Reply { text: " \n".into(), pieces: 1, ..Reply::default() }, "in no words"),
    ];
    for (reply, why) in bad {
        for manual in [true, false] {
            let world =
                World::with((0..if manual { 3 } else { 4 }).map(|n| say(&long(&format!("answer-{n}")))));
            let live = world.create_with(options(&world, 4_000)).await;
            for n in 0..if manual { 3 } else { 4 } {
                live.run(&long(&format!("question-{n}"))).await;
            }
            world.fake.push([reply.clone(), say("on and on")]);
            if manual {
                live.session.compact(None).await.unwrap();
                live.settled(4).await;
            }
            live.run(&long("next")).await;
            let ended = compactions(&live);
            assert!(
                matches!(&*ended[0].1, CompactionResult::Failed(text) if text.contains(why)),
                "{ended:?}"
            );
            let sent = texts(world.fake.bodies().last().unwrap());
            assert_eq!(sent.len(), if manual { 7 } else { 9 }, "{sent:?}");
            assert!(sent[0].starts_with("question-0"));
            live.finish().await;
            // The failed call is in the store all the same.
            world.check().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_model_calls_too_long_is_compacted_once() {
    let too_long = || Reply { error: Some(ModelErrorKind::ContextOverflow), ..say("") };
    for mended in [true, false] {
        let world = World::with((0..3).map(|n| say(&long(&format!("answer-{n}")))));
        // The window is not known: nothing happens before the model complains.
        let live = world.create_with(options(&world, 0)).await;
        for n in 0..3 {
            live.run(&long(&format!("question-{n}"))).await;
        }
        world.fake.push([too_long(), say("the notes"), if mended { say("well") } else { too_long() }]);
        let outcome = live.run("next").await;
        let ended = compactions(&live);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, CompactionReason::Overflow);
        done(&ended[0].1);
        assert_eq!(matches!(outcome, Outcome::Done), mended, "{outcome:?}");
        let sent = texts(world.fake.bodies().last().unwrap());
        assert!(sent[0].contains("the notes") && sent.last().unwrap() == "next", "{sent:?}");
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_meanwhile_is_answered_afterwards() {
    for abort in [false, true] {
        let world = World::with((0..3).map(|n| say(&long(&format!("answer-{n}")))));
        let live = world.create_with(options(&world, 4_000)).await;
        for n in 0..3 {
            live.run(&long(&format!("question-{n}"))).await;
        }
        let gate = Gate::new();
        world.fake.push([
            Reply { before: Some(gate.clone()), ..say("the notes") },
            say("yes"),
            say("of course"),
        ]);
        live.session.compact(None).await.unwrap();
        gate.reached().await;
        assert_eq!(live.session.compact(None).await, Err(Refused::Busy));
        live.session.prompt("now").await.unwrap();
        live.session.send(Command::Prompt { input: "later".into(), when: When::FollowUp }).await.unwrap();
        if abort {
            live.session.send(Command::Abort(Part::Compaction)).await.unwrap();
        }
        gate.open();
        live.settled(4).await;
        let sent = texts(world.fake.bodies().last().unwrap());
        assert_eq!(sent[sent.len() - 3..], ["now", "yes", "later"], "{sent:?}");
        assert_eq!(sent[0].contains("the notes"), !abort);
        let ended = compactions(&live);
        assert_eq!(matches!(&*ended[0].1, CompactionResult::Aborted), abort, "{ended:?}");
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_is_read_in_pieces_that_fit() {
    let world = World::new();
    // Made while the window was not known, then opened with a small one.
    let live = world.create_with(options(&world, 0)).await;
    for n in 0..20 {
        let answer = format!("answer-{n} {}", "word ".repeat(if n == 7 { 30_000 } else { 1_000 }));
        world.fake.push([say(&answer)]);
        live.run(&format!("question-{n} {}", "äöü ".repeat(2_000))).await;
    }
    let id = live.id();
    live.finish().await;
    let before = world.fake.bodies().len();
    world.fake.push((0..200).map(|n| say(&format!("notes {n}"))));
    let small = SessionOptions { compaction: CompactionSettings::default(), ..options(&world, 8_192) };
    let live = Live::of(world.engine.open(&id, small).await.unwrap().session).await;
    live.run("short").await;
    let bodies = world.fake.bodies();
    let requests: Vec<_> = bodies[before..].iter().filter(|body| is_summary_request(body)).collect();
    assert!(requests.len() > 10, "{}", requests.len());
    for (at, body) in requests.iter().enumerate() {
        let messages = messages_of(body);
        let tokens: u64 = messages.iter().map(quipu_transcript::estimate_tokens).sum();
        // The answer has a fifth of the window, the summarizer's own prompt next to nothing.
        assert!(tokens + 8_192 / 5 + 200 <= 8_192, "request {at} has {tokens} tokens");
        let again = text_of(&messages[0]).contains("<previous-summary>\nnotes ");
        assert_eq!(again, at > 0 && !text_of(&messages[0]).contains("## Original Request"));
    }
    let whole: String = requests.iter().map(|body| texts(body).remove(0)).collect();
    for n in 0..19 {
        assert!(whole.contains(&format!("question-{n} ")) && whole.contains(&format!("answer-{n} ")), "{n}");
    }
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_little_is_not_compacted() {
    let world = World::new();
    let live = world.create_with(options(&world, 4_000)).await;
    assert_eq!(live.session.compact(None).await, Err(Refused::NothingToCompact));
    live.run("short").await;
    assert_eq!(live.session.compact(None).await, Err(Refused::NothingToCompact));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_cut_and_its_beginning_noted() {
    let world = World::new();
    let live = world.create_with(options(&world, 4_000)).await;
    world.fake.push([say(&long("answer-0"))]);
    live.run(&long("question-0")).await;
    let work =
        |n: usize| Reply { text: format!("step-{n}"), ..call(&[("echo", json!({ "text": long("out") }))]) };
    world.fake.push((0..4).map(work));
    world.fake.push([say("the history"), say("half a turn"), say("the turn"), work(4), say("done")]);
    live.run("a long task").await;
    let bodies = world.fake.bodies();
    let asked: Vec<String> =
        bodies.iter().filter(|body| is_summary_request(body)).map(|body| texts(body).remove(0)).collect();
    assert_eq!(asked.len(), 3);
    assert!(asked[0].contains("question-0") && !asked[0].contains("step-0"), "{}", asked[0]);
    assert!(asked[1].contains("[User]: a long task") && asked[1].contains("## Original Request"));
    assert!(asked[2].contains("<previous-summary>\nhalf a turn\n") && !asked[2].contains("step-3"));
    let sent: Vec<Message> = messages_of(bodies.last().unwrap());
    let first = text_of(&sent[0]);
    assert!(first.contains("the history\n\n---\n\n") && first.contains("the turn"), "{first}");
    assert!(
        first.contains("question-0") && first.contains("\n---\na long task\n</user-messages>"),
        "{first}"
    );
    assert!(
        matches!(&sent[1], Message::Assistant(answer) if answer.content.iter().any(|block| matches!(block, Content::ToolCall(_))))
    );
    live.finish().await;
    world.check().await;
}

/// Nodes of messages are told, so that a front can name them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_node_that_is_kept_is_one_that_was_told() {
    let world = World::with((0..3).map(|n| say(&long(&format!("answer-{n}")))));
    let live = world.create_with(options(&world, 4_000)).await;
    for n in 0..3 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    world.fake.push([say("the notes")]);
    live.session.compact(None).await.unwrap();
    live.settled(4).await;
    let told = live.all(|event| match event {
        Event::MessageEnded { message, ending: Ending::Kept(node), .. } => Some((*node, text_of(message))),
        _ => None,
    });
    let (_, compaction, _) = done(&compactions(&live)[0].1);
    let first = told.iter().find(|(node, _)| Some(*node) == compaction.first_kept).unwrap();
    assert!(first.1.starts_with("question-2"), "{first:?}");
    live.finish().await;
    world.check().await;
}
