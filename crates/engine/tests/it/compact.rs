//! Compaction: what the model is shown afterwards, what is kept, and that it can be undone.

use quipu_store::ReadModel as _;
use std::sync::Arc;

use quipu::protocol::{
    AbortTarget, Command, Compaction, CompactionReason, CompactionResult, Content, Ending, Entry, Event,
    Limit, Message, Model, ModelErrorKind, NodeId, Outcome, QueueMode, StopReason,
};
use quipu::store::{Store, decode_nodes};
use quipu::{CompactionSettings, Limits, Refusal, SessionOptions};
use serde_json::json;

use crate::support::{Gate, LiveSession, Reply, World, call, messages_of, say, text_of};

/// A model with room for `window` tokens, a tenth of it kept free. At a compaction about 800 stay.
pub(crate) fn options(world: &World, window: u64) -> SessionOptions {
    let model = Model { context_window: window, ..(*crate::support::model()).clone() };
    let compaction = CompactionSettings {
        enabled: true,
        reserve_tokens: window / 10,
        keep_recent_tokens: 800,
        safeguard: None,
    };
    SessionOptions { model: Arc::new(model), compaction, ..world.options() }
}

pub(crate) fn texts(body: &[u8]) -> Vec<String> {
    messages_of(body).iter().map(text_of).collect()
}

pub(crate) fn is_summary_request(body: &[u8]) -> bool {
    texts(body).last().is_some_and(|text| text.starts_with("<conversation>"))
}

fn compactions(live: &LiveSession) -> Vec<(CompactionReason, Arc<CompactionResult>)> {
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

pub(crate) fn long(word: &str) -> String {
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
    let fork = world.engine.fork(before, world.options()).await.unwrap().session;
    fork.ask("more").await.unwrap();
    fork.shutdown().await;
    let undone = texts(world.fake.bodies().last().unwrap());
    assert_eq!((undone.len(), undone[0].split(' ').next()), (10, Some("question-0")));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_compaction_updates_notes_also_after_resume() {
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
            LiveSession::of(world.engine.open(&id, options(&world, 4_000)).await.unwrap().session).await
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
        (Reply { text: " \n".into(), pieces: 1, ..Reply::default() }, "an empty summary"),
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
async fn overflow_is_compacted_and_the_call_repeated() {
    let too_long = || Reply { error: Some(ModelErrorKind::ContextOverflow), ..say("") };
    let world = World::with((0..3).map(|n| say(&long(&format!("answer-{n}")))));
    // The window is not known: nothing happens before the model complains.
    let live = world.create_with(options(&world, 0)).await;
    for n in 0..3 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    world.fake.push([too_long(), say("the notes"), say("well")]);
    assert_eq!(live.run("next").await, Outcome::Done);
    let ended = compactions(&live);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].0, CompactionReason::Overflow);
    done(&ended[0].1);
    let sent = texts(world.fake.bodies().last().unwrap());
    assert!(sent[0].contains("the notes") && sent.last().unwrap() == "next", "{sent:?}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_during_compaction_is_answered_afterwards() {
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
        assert_eq!(live.session.compact(None).await, Err(Refusal::Busy));
        live.session.prompt("now").await.unwrap();
        live.session
            .send(Command::Prompt { input: "later".into(), when: QueueMode::FollowUp })
            .await
            .unwrap();
        if abort {
            live.session.send(Command::Abort { target: AbortTarget::Compaction }).await.unwrap();
        }
        // Once opened, the answer could be faster than the abort.
        if !abort {
            gate.open();
        }
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
    let live = LiveSession::of(world.engine.open(&id, small).await.unwrap().session).await;
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
    assert_eq!(live.session.compact(None).await, Err(Refusal::NothingToCompact));
    live.run("short").await;
    assert_eq!(live.session.compact(None).await, Err(Refusal::NothingToCompact));
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
        Event::MessageEnded { message, ending: Ending::Committed(node), .. } => {
            Some((*node, text_of(message)))
        }
        _ => None,
    });
    let (_, compaction, _) = done(&compactions(&live)[0].1);
    let first = told.iter().find(|(node, _)| Some(*node) == compaction.first_kept).unwrap();
    assert!(first.1.starts_with("question-2"), "{first:?}");
    live.finish().await;
    world.check().await;
}

fn too_long() -> Reply {
    Reply { error: Some(ModelErrorKind::ContextOverflow), ..say("") }
}

fn summary_requests(world: &World) -> Vec<String> {
    let bodies = world.fake.bodies();
    bodies.iter().filter(|body| is_summary_request(body)).map(|body| texts(body).remove(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_grows_too_long_again_is_compacted_again() {
    let work = || call(&[("echo", json!({ "text": long("out") }))]);
    let world = World::with([work(), work(), work(), too_long(), say("one"), work(), work()]);
    world.fake.push([work(), too_long(), say("two"), say("done")]);
    let live = world.create_with(options(&world, 0)).await;
    assert_eq!(live.run(&long("go")).await, Outcome::Done);
    let ended = compactions(&live);
    assert_eq!(ended.len(), 2, "{ended:?}");
    for (reason, result) in &ended {
        assert_eq!(*reason, CompactionReason::Overflow);
        done(result);
    }
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_message_that_is_too_long_is_summarized_too() {
    // The cut before the last answer would free next to nothing.
    let huge = format!("{} {}", "begin", "z".repeat(400_000));
    let world =
        World::with([call(&[("echo", json!({ "text": huge }))]), too_long(), say("the echo"), say("well")]);
    let live = world.create_with(options(&world, 0)).await;
    assert_eq!(live.run("look").await, Outcome::Done);
    done(&compactions(&live)[0].1);
    let sent = texts(world.fake.bodies().last().unwrap());
    assert!(sent.len() == 1 && sent[0].contains("the echo") && sent[0].contains("look"), "{sent:?}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_long_summary_request_is_split() {
    let world = World::with((0..3).map(|n| say(&format!("answer-{n} {}", "w".repeat(40_000)))));
    // Nobody knows the window, so all of it goes into one request at first.
    let live = world.create_with(options(&world, 0)).await;
    for n in 0..3 {
        live.run(&format!("question-{n}")).await;
    }
    world.fake.push([too_long(), too_long(), too_long()]);
    world.fake.push((0..4).map(|n| say(&format!("notes {n}"))));
    world.fake.push([say("well")]);
    assert_eq!(live.run("next").await, Outcome::Done);
    done(&compactions(&live)[0].1);
    let asked = summary_requests(&world);
    let lengths: Vec<usize> = asked.iter().map(String::len).collect();
    assert!(lengths[1] < lengths[0] * 2 / 3 && lengths[2] < lengths[1] * 2 / 3, "{lengths:?}");
    assert!(lengths[3..].iter().all(|length| *length <= lengths[2] + 2_000), "{lengths:?}");
    let whole = asked[2..].concat();
    assert!((0..3).all(|n| whole.contains(&format!("question-{n}"))), "nothing is skipped");
    live.finish().await;
    world.check().await;

    // A model that finds everything too long is not asked for ever.
    let world = World::with((0..2).map(|n| say(&format!("answer-{n} {}", "w".repeat(40_000)))));
    let live = world.create_with(options(&world, 0)).await;
    live.run("question-0").await;
    live.run("question-1").await;
    world.fake.push((0..100).map(|_| too_long()));
    assert!(
        matches!(live.run("next").await, Outcome::Failed(error) if error.kind == ModelErrorKind::ContextOverflow)
    );
    assert!(summary_requests(&world).len() < 10, "{}", summary_requests(&world).len());
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_cost_counts_before_the_next_call() {
    // Each message is 400 tokens or so; the summary takes two requests.
    let world = World::new();
    let replies = || (0..4).map(|n| Reply { cost: 0.125, ..say(&long(&format!("answer-{n}"))) });
    let cut = |limits: Limits| SessionOptions {
        limits,
        compaction: CompactionSettings { keep_recent_tokens: 850, ..options(&world, 4_000).compaction },
        ..options(&world, 4_000)
    };
    let summary = || Reply { cost: 0.5, ..say("half") };
    let check = async |limits: Limits, summaries: usize, calls: usize, outcome: Outcome| {
        let before = world.fake.bodies().len();
        world.fake.push(replies());
        world.fake.push((0..summaries).map(|_| summary()));
        let live = world.create_with(cut(limits)).await;
        let mut last = Outcome::Done;
        for n in 0..5 {
            last = live.run(&long(&format!("question-{n}"))).await;
        }
        assert_eq!(last, outcome);
        let bodies = world.fake.bodies().split_off(before);
        let asked = bodies.iter().filter(|body| is_summary_request(body)).count();
        assert_eq!((asked, bodies.len()), (summaries, calls), "{limits:?}");
        live.finish().await;
    };
    let cost = |max| Limits { max_cost: Some(max), ..Limits::default() };
    check(cost(2.0), 2, 7, Outcome::Done).await;
    // Reached by both requests, and by the first of them.
    check(cost(1.0), 2, 6, Outcome::Limit(Limit::Cost(1.0))).await;
    check(cost(0.5), 1, 5, Outcome::Limit(Limit::Cost(0.5))).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_the_day_is_looked_at_before_each_piece() {
    let world = World::with((0..4).map(|n| Reply { cost: 0.125, ..say(&long(&format!("answer-{n}"))) }));
    world.fake.push([Reply { cost: 1.0, ..say("half") }]);
    let limits = Limits { daily_budget: Some(1.0), ..Limits::default() };
    let mut settings = SessionOptions { limits, ..options(&world, 4_000) };
    settings.compaction.keep_recent_tokens = 850;
    let live = world.create_with(settings).await;
    for n in 0..4 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    let outcome = live.run(&long("question-4")).await;
    assert!(matches!(outcome, Outcome::Limit(Limit::Daily { spent, .. }) if spent == 1.5), "{outcome:?}");
    let ended = compactions(&live);
    assert!(
        matches!(&*ended[0].1, CompactionResult::Failed(why) if why.contains("today's budget")),
        "{ended:?}"
    );
    assert_eq!(world.fake.bodies().len(), 5);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_every_size() {
    // From one that cannot hold the summarizer's instructions to one that everything fits into.
    for (window, asked, compacted) in [
        (1, 0, true),
        (100, 0, true),
        (1_000, 0, true),
        (3_000, 3, true),
        (200_000, 0, false),
        (10_000_000, 0, false),
        (u64::MAX, 0, false),
    ] {
        let world = World::new();
        let live = world.create_with(options(&world, 0)).await;
        for n in 0..4 {
            world.fake.push([say(&long(&format!("answer-{n}")))]);
            live.run(&long(&format!("question-{n}"))).await;
        }
        let id = live.id();
        live.finish().await;
        let settings =
            SessionOptions { compaction: CompactionSettings::default(), ..options(&world, window) };
        let live = LiveSession::of(world.engine.open(&id, settings).await.unwrap().session).await;
        world.fake.push([say("notes"), say("notes"), say("notes")]);
        assert_eq!(live.run("short").await, Outcome::Done, "{window}");
        let ended = compactions(&live);
        assert_eq!(ended.len(), usize::from(compacted), "{window}: {ended:?}");
        assert_eq!(summary_requests(&world).len(), asked, "{window}");
        if compacted && asked == 0 {
            let why = format!("window of {window} tokens is too small");
            assert!(
                matches!(&*ended[0].1, CompactionResult::Failed(text) if text.contains(&why)),
                "{ended:?}"
            );
        }
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_too_large_for_smaller_model_are_summarized_again() {
    let world = World::with((0..3).map(|n| say(&long(&format!("answer-{n}")))));
    let live = world.create_with(options(&world, 0)).await;
    for n in 0..3 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    let notes = format!("FIRST {} LAST", "many words ".repeat(4_000));
    world.fake.push([say(&notes)]);
    live.session.compact(None).await.unwrap();
    live.settled(4).await;
    let id = live.id();
    live.finish().await;
    let live = LiveSession::of(world.engine.open(&id, options(&world, 8_192)).await.unwrap().session).await;
    let before = world.fake.bodies().len();
    world.fake.push((0..50).map(|n| say(&format!("small {n}"))));
    live.run("short").await;
    let (_, compaction, tokens_after) = done(&compactions(&live)[0].1);
    assert!(compaction.summary.starts_with("small ") && tokens_after < 8_192, "{tokens_after}");
    let bodies = world.fake.bodies().split_off(before);
    let asked: Vec<_> = bodies.iter().filter(|body| is_summary_request(body)).collect();
    for body in &asked {
        let tokens: u64 = messages_of(body).iter().map(quipu_transcript::estimate_tokens).sum();
        assert!(tokens < 8_192, "{tokens}");
    }
    let whole: String = asked.iter().map(|body| texts(body).remove(0)).collect();
    assert!(whole.contains("FIRST") && whole.contains("LAST"));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_cannot_be_true_is_not_believed() {
    // 10: what was not in the cache. The largest number: it must break nothing.
    for (claimed, compacts) in [(10, true), (1_500, false), (u64::MAX, true)] {
        let world = World::new();
        let replies = (0..4).map(|n| Reply { input: claimed, ..say(&long(&format!("answer-{n}"))) });
        world.fake.push(replies);
        let live = world.create_with(options(&world, 4_000)).await;
        for n in 0..5 {
            live.run(&long(&format!("question-{n}"))).await;
        }
        assert_eq!(!compactions(&live).is_empty(), compacts, "{claimed}");
        live.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_back_does_not_repeat_compaction() {
    let world = World::with((0..4).map(|n| Reply { input: 3_900, ..say(&long(&format!("answer-{n}"))) }));
    world.fake.push([say("notes")]);
    let live = world.create_with(options(&world, 0)).await;
    for n in 0..4 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    live.session.compact(None).await.unwrap();
    live.settled(5).await;
    let id = live.id();
    live.finish().await;
    // What was kept claims a time of its own and the size of the old context.
    let live = LiveSession::of(world.engine.open(&id, options(&world, 4_000)).await.unwrap().session).await;
    live.run("short").await;
    assert_eq!(compactions(&live), []);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_between_two_pieces_leaves_what_they_cost() {
    let world = World::with((0..4).map(|n| say(&long(&format!("answer-{n}")))));
    let gate = Gate::new();
    world.fake.push([
        Reply { cost: 0.25, ..say("half") },
        Reply { before: Some(gate.clone()), cost: 0.25, ..say("never") },
    ]);
    let mut settings = options(&world, 4_000);
    settings.compaction.keep_recent_tokens = 850;
    let live = world.create_with(settings.clone()).await;
    for n in 0..4 {
        live.run(&long(&format!("question-{n}"))).await;
    }
    let id = live.id();
    live.session.prompt(long("question-4")).await.unwrap();
    gate.reached().await;
    live.session.kill();
    drop(live);
    // Its task ends by itself and gives the session back.
    let live = loop {
        let live = LiveSession::of(world.engine.open(&id, settings.clone()).await.unwrap().session).await;
        if live.id() == id {
            break live;
        }
        live.finish().await;
        tokio::task::yield_now().await;
    };
    let head = live.session.view().head.unwrap();
    let nodes = world.store.nodes(&[head]).await.unwrap().into_iter().flatten().collect::<Vec<_>>();
    let node = decode_nodes(&*world.store, &nodes).await.unwrap().remove(0);
    assert!(
        matches!(&node.entry, Entry::Meta(json) if json.get().contains("process ended")),
        "{:?}",
        node.entry
    );
    let today = world.store.spent(0).await.unwrap();
    assert_eq!(today, 0.25, "the piece that was answered was paid for");
    world.fake.push([say("one"), say("two"), say("well")]);
    assert_eq!(live.run("go on").await, Outcome::Done);
    done(&compactions(&live)[0].1);
    assert!(texts(world.fake.bodies().last().unwrap()).iter().any(|text| text.starts_with("question-4")));
    live.finish().await;
    world.check().await;
}
