//! Plan mode and the to-do list: what runs, who decides, and what of both follows the conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quipu::protocol::{
    Answer, Ask, AskKind, Command, Event, Message, NodeId, Outcome, SessionId, Setting, Ui,
};
use quipu::{
    Delivery, OpenedSession, PlanningSettings, Refusal, SessionOptions, ToolOutput, Touches, builtin,
};
use serde_json::{Value, json};

use crate::compact::long;
use crate::support::{LiveSession, Reply, World, call, say, text_of, tool, touching};

const ALL: PlanningSettings = PlanningSettings { plan: true, start: None, named_model: false, todo: true };

fn options(world: &World, start: Option<bool>) -> SessionOptions {
    SessionOptions { planning: PlanningSettings { start, ..ALL }, ..world.options() }
}

async fn reopened(world: &World, id: &SessionId, options: SessionOptions) -> LiveSession {
    let OpenedSession { session, .. } = world.engine.open(id, options).await.unwrap();
    LiveSession::of(session).await
}

/// The question that was opened last, once there are this many.
async fn asked(live: &LiveSession, count: usize) -> Arc<Ask> {
    live.until(count, |event| matches!(event, Event::AskOpened { .. })).await;
    let asks = live.all(|event| match event {
        Event::AskOpened { ask } => Some(ask.clone()),
        _ => None,
    });
    asks[count - 1].clone()
}

/// Somebody who can answer is in front of it.
async fn person(live: &LiveSession) -> quipu::Events {
    live.session.subscribe_and_answer(Delivery::Live).await.unwrap().1
}

async fn answer(live: &LiveSession, ask: &Ask, answer: Answer) {
    live.session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
}

fn chooses(option: &str) -> Answer {
    Answer::Choose { option: option.into() }
}

async fn plan(live: &LiveSession, on: bool) {
    let before = modes(live).len();
    live.session.send(Command::Set { setting: Setting::Plan { on } }).await.unwrap();
    live.until(before + 1, |event| matches!(event, Event::PermissionsChanged { .. })).await;
}

fn modes(live: &LiveSession) -> Vec<String> {
    live.all(|event| match event {
        Event::PermissionsChanged { mode } => Some(mode.clone()),
        _ => None,
    })
}

fn widgets(live: &LiveSession) -> Vec<Vec<String>> {
    live.all(|event| match event {
        Event::Ui { ui: Ui::Widget { key, lines } } if key == "todo" => Some(lines.clone()),
        _ => None,
    })
}

fn last_result(live: &LiveSession) -> (String, bool) {
    let (_, text, is_error) = live.results().pop().unwrap();
    (text, is_error)
}

fn todo(items: &[(&str, &str)]) -> Reply {
    let items: Vec<Value> =
        items.iter().map(|(text, status)| json!({ "text": text, "status": status })).collect();
    call(&[("todo", json!({ "items": items }))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_mode_runs_only_what_reads() {
    let mut world = World::new();
    let ran = Arc::new(AtomicU32::new(0));
    let counted = |name: &'static str, touches: Touches| {
        let ran = ran.clone();
        touching(name, touches, move |_, _| {
            ran.fetch_add(1, Ordering::SeqCst);
            std::future::ready(ToolOutput::text("ran"))
        })
    };
    world.tools = builtin();
    world.tools.push(counted("anything", Touches::Anything));
    world.tools.push(counted("nothing", Touches::Nothing));
    std::fs::write(world.cwd().join("a.txt"), "text of a\n").unwrap();
    world.fake.push([
        call(&[("bash", json!({ "command": "cat a.txt | wc -l" }))]),
        call(&[("bash", json!({ "command": "cat a.txt > b.txt" }))]),
        call(&[("bash", json!({ "command": "cat a.txt; touch b.txt" }))]),
        call(&[("write", json!({ "path": "b.txt", "content": "x" }))]),
        call(&[("edit", json!({ "path": "a.txt", "edits": [{ "oldText": "text", "newText": "x" }] }))]),
        call(&[("anything", json!({}))]),
        call(&[("nothing", json!({}))]),
        call(&[("read", json!({ "path": "a.txt" }))]),
        say("planned"),
    ]);
    let live = world.create_with(options(&world, Some(true))).await;
    assert!(live.session.is_planning());
    assert_eq!(live.run("Look.").await, Outcome::Done);
    let results = live.results();
    let errors: Vec<bool> = results.iter().map(|(_, _, is_error)| *is_error).collect();
    assert_eq!(errors, [false, true, true, true, true, true, false, false], "{results:#?}");
    assert!(results[0].1.starts_with('1') && results[7].1.contains("text of a"), "{results:#?}");
    for (at, why) in [(1, "> b.txt"), (2, "touch b.txt"), (3, "changes files"), (5, "can change anything")] {
        assert!(
            results[at].1.contains("Plan mode is on") && results[at].1.contains(why),
            "{}",
            results[at].1
        );
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1, "the call that touches nothing alone");
    assert!(!world.cwd().join("b.txt").exists());
    assert_eq!(std::fs::read_to_string(world.cwd().join("a.txt")).unwrap(), "text of a\n");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_plan_ends_plan_mode() {
    let mut world = World::with([
        call(&[("plan", json!({ "text": "1. Write b." }))]),
        call(&[("change", json!({}))]),
        say("done"),
    ]);
    world.tools.push(touching("change", Touches::Anything, |_, _| async { ToolOutput::text("changed") }));
    let live = world.create_with(options(&world, None)).await;
    let person = person(&live).await;
    plan(&live, true).await;
    assert_eq!(modes(&live), ["plan"]);
    live.session.prompt("Go.").await.unwrap();
    let ask = asked(&live, 1).await;
    let AskKind::Choose { options: offered, .. } = &ask.kind else { panic!("{ask:?}") };
    assert_eq!(offered[0].detail.as_deref(), Some("1. Write b."), "the plan is in the question");
    answer(&live, &ask, chooses("accept")).await;
    live.settled(1).await;
    assert_eq!(last_result(&live), ("changed".into(), false), "the work starts in the same run");
    assert!(!live.session.is_planning());
    assert_eq!(modes(&live), ["plan", ""]);
    let id = live.id();
    drop(person);
    live.finish().await;
    let live = reopened(&world, &id, options(&world, None)).await;
    assert!(!live.session.is_planning(), "an accepted plan ended it for good");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_plan_is_what_the_model_gets() {
    let world = World::with([call(&[("plan", json!({ "text": "Cut all." }))]), say("done")]);
    let live = world.create_with(options(&world, Some(true))).await;
    let person = person(&live).await;
    live.session.prompt("Go.").await.unwrap();
    answer(&live, &*asked(&live, 1).await, chooses("edit")).await;
    // Whoever thinks better of writing is asked again.
    answer(&live, &*asked(&live, 2).await, Answer::Cancel).await;
    answer(&live, &*asked(&live, 3).await, chooses("edit")).await;
    let ask = asked(&live, 4).await;
    assert!(matches!(&ask.kind, AskKind::Edit { text, .. } if text == "Cut all."));
    answer(&live, &ask, Answer::Text { text: "Cut half.".into() }).await;
    live.settled(1).await;
    let (text, _) = last_result(&live);
    assert!(text.contains("Cut half.") && !text.contains("Cut all."), "{text}");
    assert!(!live.session.is_planning());
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_plan_goes_back_with_the_comment() {
    let world = World::with([
        call(&[("plan", json!({ "text": "First." }))]),
        call(&[("plan", json!({ "text": "Second." }))]),
        say("done"),
    ]);
    let live = world.create_with(options(&world, Some(true))).await;
    let person = person(&live).await;
    live.session.prompt("Go.").await.unwrap();
    answer(&live, &*asked(&live, 1).await, chooses("refuse")).await;
    answer(&live, &*asked(&live, 2).await, Answer::Text { text: "Too large".into() }).await;
    let ask = asked(&live, 3).await;
    let (text, _) = last_result(&live);
    assert!(text.contains("Too large") && live.session.is_planning(), "{text}");
    answer(&live, &ask, chooses("accept")).await;
    live.settled(1).await;
    assert!(!live.session.is_planning());
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_nobody_answers_ends_the_run() {
    let world = World::with([call(&[("plan", json!({ "text": "The plan." }))])]);
    // Nobody is there.
    let options_of = || options(&world, Some(true));
    let session = world.engine.create(options_of()).await.unwrap();
    let (outcome, _) = session.ask("Go.").await.unwrap();
    assert_eq!((outcome, session.is_planning()), (Outcome::Done, true));
    session.shutdown().await;
    assert_eq!(world.fake.bodies().len(), 1, "the model is not asked again");
    // Somebody is there and never answers.
    world.fake.push([call(&[("plan", json!({ "text": "The plan." }))])]);
    let hurried = SessionOptions { ask_deadline: Duration::from_millis(20), ..options_of() };
    let live = world.create_with(hurried).await;
    let person = person(&live).await;
    assert_eq!(live.run("Go.").await, Outcome::Done);
    drop(person);
    assert!(live.session.is_planning() && last_result(&live).0.contains("Nobody accepted"));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_mode_survives_a_restart_and_a_fork() {
    let world = World::with([say("one"), say("two"), say("three"), say("four")]);
    let live = world.create_with(options(&world, None)).await;
    live.run("Before.").await;
    let before = live.session.view().head.unwrap();
    plan(&live, true).await;
    live.run("Plan.").await;
    let (id, planned) = (live.id(), live.session.view().head.unwrap());
    live.finish().await;
    let notes = world.fake.last_messages();
    assert!(text_of(notes.last().unwrap()).contains("Plan mode is on"), "{notes:?}");

    let live = reopened(&world, &id, options(&world, None)).await;
    assert!(live.session.is_planning());
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(snapshot.permissions, "plan");
    plan(&live, false).await;
    live.run("Work.").await;
    assert!(text_of(world.fake.last_messages().last().unwrap()).contains("Plan mode is off"));
    live.run("More.").await;
    assert_eq!(text_of(world.fake.last_messages().last().unwrap()), "More.", "said once");
    live.finish().await;
    let live = reopened(&world, &id, options(&world, None)).await;
    assert!(!live.session.is_planning());
    live.finish().await;
    let is_planning = async |at: NodeId| {
        let session = world.engine.fork(at, options(&world, None)).await.unwrap().session;
        let on = session.is_planning();
        session.shutdown().await;
        on
    };
    assert!(!is_planning(before).await && is_planning(planned).await, "a fork is as its node was");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_switch_leaves_the_prefix_of_requests() {
    let world = World::with([say("one"), say("two")]);
    let live = world.create_with(options(&world, None)).await;
    live.run("One.").await;
    plan(&live, true).await;
    live.run("Two.").await;
    let bodies = world.fake.bodies();
    let [one, two] = &bodies[..] else { panic!() };
    let of = |body: &[u8], name: &str| serde_json::from_slice::<Value>(body).unwrap()[name].clone();
    assert_eq!(of(one, "tools"), of(two, "tools"));
    assert_eq!(of(one, "system"), of(two, "system"));
    assert!(live.all(|event| matches!(event, Event::EpochChanged { .. }).then_some(())).is_empty());
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_without_plan_mode_refuse_the_switch() {
    let world = World::with([say("one")]);
    let live = world.create().await;
    let refused = live.session.send(Command::Set { setting: Setting::Plan { on: true } }).await;
    assert!(matches!(refused, Err(Refusal::Blocked { .. })), "{refused:?}");
    live.run("One.").await;
    let id = live.id();
    live.finish().await;
    // What was begun without the tools goes on without them, and has the mode all the same.
    world.fake.push([call(&[("plan", json!({ "text": "x" }))]), say("done")]);
    let live = reopened(&world, &id, options(&world, Some(true))).await;
    live.run("Go.").await;
    assert!(live.session.is_planning() && last_result(&live).1);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_during_a_run_counts_for_the_next_call() {
    let gate = crate::support::Gate::new();
    let mut world = World::with([call(&[("waits", json!({}))]), call(&[("change", json!({}))]), say("done")]);
    world.tools.push(crate::support::gated("waits", &gate));
    world.tools.push(touching("change", Touches::Anything, |_, _| async { ToolOutput::text("changed") }));
    let live = world.create_with(options(&world, None)).await;
    live.session.prompt("Go.").await.unwrap();
    gate.reached().await;
    plan(&live, true).await;
    gate.open();
    live.settled(1).await;
    let (text, is_error) = last_result(&live);
    assert!(is_error && text.contains("Plan mode is on"), "{text}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_todo_list_is_shown_and_folds_when_done() {
    let world = World::with([
        todo(&[("read", "in_progress"), ("write", "pending")]),
        todo(&[("read", "done"), ("write", "in_progress")]),
        todo(&[("read", "done"), ("write", "done")]),
        say("done"),
    ]);
    let live = world.create_with(options(&world, None)).await;
    live.run("Go.").await;
    assert_eq!(
        widgets(&live),
        [
            vec!["To do: 0 of 2 done".to_owned(), "[>] read".into(), "[ ] write".into()],
            vec!["To do: 1 of 2 done".to_owned(), "[>] write".into()],
            vec![],
        ]
    );
    let many: Vec<Value> = (0..51).map(|n| json!({ "text": n.to_string(), "status": "pending" })).collect();
    world.fake.push([
        call(&[("todo", json!({ "items": many }))]),
        todo(&[(&"x".repeat(301), "pending")]),
        todo(&[(" \n", "pending")]),
        todo(&[("a", "someday")]),
        say("done"),
    ]);
    live.run("More.").await;
    let results = live.results();
    let errors: Vec<&str> = results[3..].iter().map(|(_, text, _)| text.as_str()).collect();
    assert!(results[3..].iter().all(|(_, _, is_error)| *is_error), "{errors:?}");
    assert!(
        errors[0].contains("50") && errors[1].contains("300") && errors[2].contains("no text"),
        "{errors:?}"
    );
    assert_eq!(widgets(&live).len(), 3, "what is refused changes nothing");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_todo_list_follows_the_lineage() {
    let world =
        World::with([todo(&[("first", "pending")]), say("one"), todo(&[("second", "pending")]), say("two")]);
    let live = world.create_with(options(&world, None)).await;
    live.run("One.").await;
    let first = live.session.view().head.unwrap();
    live.run("Two.").await;
    let (id, second) = (live.id(), live.session.view().head.unwrap());
    live.session.jump(first, None, None).await.unwrap();
    live.settled(3).await;
    assert_eq!(widgets(&live).pop().unwrap()[1], "[ ] first");
    live.session.jump(second, None, None).await.unwrap();
    live.settled(4).await;
    assert_eq!(widgets(&live).pop().unwrap()[1], "[ ] second");
    live.finish().await;
    let live = reopened(&world, &id, options(&world, None)).await;
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(snapshot.widgets["todo"][1], "[ ] second");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_keeps_open_items_and_plan_mode() {
    let mut replies = vec![todo(&[("early", "done"), ("late", "pending")]), say("listed")];
    replies.extend((0..4).map(|n| say(&long(&format!("answer-{n}")))));
    let world = World::with(replies);
    let settings = || SessionOptions {
        compaction: quipu::CompactionSettings { keep_recent_tokens: 500, ..Default::default() },
        ..options(&world, None)
    };
    let live = world.create_with(settings()).await;
    plan(&live, true).await;
    live.run("List.").await;
    for n in 0..4 {
        live.run(&long(&format!("prompt-{n}"))).await;
    }
    world.fake.push([say("## Goal\nThe summary.")]);
    live.session.compact(None).await.unwrap();
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    live.settled(6).await;
    let id = live.id();
    live.finish().await;
    let live = reopened(&world, &id, settings()).await;
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(snapshot.widgets["todo"], ["To do: 1 of 2 done", "[ ] late"]);
    assert!(live.session.is_planning());
    live.run("Next.").await;
    let messages = world.fake.last_messages();
    let Some(Message::User(summary)) = messages.first() else { panic!("{messages:?}") };
    let summary = summary.content.text();
    assert!(summary.contains("[x] early\n[ ] late") && summary.contains("Plan mode is on"), "{summary}");
    assert_eq!(summary.matches("Plan mode is on").count(), 1, "no words of a person: {summary}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_the_program_keep_their_names() {
    let mut world = World::with([call(&[("todo", json!({ "text": "mine" }))]), say("done")]);
    world.tools.push(tool("todo", |_, _| async { ToolOutput::text("of the program") }));
    let live = world.create_with(options(&world, None)).await;
    live.run("Go.").await;
    assert_eq!(last_result(&live), ("of the program".into(), false));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_are_in_plan_mode_too() {
    let mut world = World::with([
        call(&[("task", json!({ "prompt": "Change it.", "description": "change" }))]),
        call(&[("change", json!({})), ("plan", json!({ "text": "x" })), ("todo", json!({ "items": [] }))]),
        say("of the agent"),
        say("done"),
    ]);
    let ran = Arc::new(AtomicU32::new(0));
    let counts = ran.clone();
    world.tools.push(touching("change", Touches::Anything, move |_, _| {
        counts.fetch_add(1, Ordering::SeqCst);
        std::future::ready(ToolOutput::text("changed"))
    }));
    let agents = Some(Arc::new(quipu::AgentSettings::default()));
    let live = world.create_with(SessionOptions { agents, ..options(&world, Some(true)) }).await;
    assert_eq!(live.run("Go.").await, Outcome::Done);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let results: Vec<String> =
        world.fake.bodies().iter().map(|body| String::from_utf8_lossy(body).into()).collect();
    assert!(results[2].contains("Plan mode is on, so only what reads may run"), "{}", results[2]);
    let body: Value = serde_json::from_slice(&world.fake.bodies()[1]).unwrap();
    assert!(!body["tools"].to_string().contains("\"plan\""), "an agent hands in no plan: {}", body["tools"]);
    assert!(live.session.is_planning());
    live.finish().await;
    world.check().await;
}
