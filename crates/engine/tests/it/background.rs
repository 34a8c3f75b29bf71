//! Background commands of sessions: the model hears of their ends, and what they change can be taken back.

use std::path::Path;
use std::time::Duration;

use quipu::protocol::{
    Ack, BackgroundEnd, Command, Event, FileChange, KillReason, Message, MoveFiles, Outcome,
};
use quipu::store::{LineageEnd, Store, decode_nodes};
use quipu::{BackgroundWake, Confinement, Delivery};
use serde_json::{Value, json};

use crate::support::{LiveSession, Reply, World, call, say};

fn world(replies: impl IntoIterator<Item = Reply>) -> World {
    let mut world = World::with(replies);
    world.tools = quipu::builtin_with_background(Confinement::None);
    world
}

fn begin(command: &str) -> Reply {
    call(&[("bash", json!({ "command": command, "run_in_background": true }))])
}

fn act(action: &str, id: &str) -> (&'static str, Value) {
    ("background", json!({ "action": action, "id": id }))
}

/// Waits until something holds.
async fn holds(what: impl Fn() -> bool) {
    let look = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look).await.unwrap();
}

fn ends(live: &LiveSession) -> Vec<BackgroundEnd> {
    live.all(|event| match event {
        Event::BackgroundEnded { end, .. } => Some(end.clone()),
        _ => None,
    })
}

/// The notes of the last request.
fn notes(messages: &[Message]) -> Vec<String> {
    let note = |message: &Message| match message {
        Message::Custom(custom) => Some(custom.content.text()),
        Message::User(user) => {
            Some(user.content.text()).filter(|text| text.to_lowercase().contains("background command"))
        }
        _ => None,
    };
    messages.iter().filter_map(note).collect()
}

/// The session of `b1`, `sleep 1000`, opened after a crash and a run that began another command, `b2`.
async fn after_crash(world: World, live: LiveSession, begins: Reply) -> (World, LiveSession) {
    let id = live.id();
    // As a crash would, but for the children.
    live.session.kill();
    drop(live.ended().await);
    let world = world.reopen();
    world.fake.push([begins, say("ok")]);
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("does it still run?").await, Outcome::Done);
    let notes = notes(&world.fake.last_messages());
    assert!(
        notes[0].contains("do not run in this session any more") && notes[0].contains("b1: sleep 1000"),
        "{notes:?}"
    );
    assert!(live.results().pop().unwrap().1.contains("command b2"), "ids are not used again");
    (world, live)
}

async fn changes(world: &World, live: &LiveSession) -> Vec<FileChange> {
    let nodes = world.store.lineage(live.session.view().head.unwrap(), LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    decoded.into_iter().flat_map(|one| one.step.files).collect()
}

fn fifo(world: &World) -> std::path::PathBuf {
    let gate = world.dir.path().join("gate");
    nix_mkfifo(&gate);
    gate
}

fn nix_mkfifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

async fn open_gate(gate: &Path) {
    tokio::fs::write(gate, "go\n").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_a_background_command_wakes_an_idle_session() {
    let world = world([]);
    let gate = fifo(&world);
    let command = format!("read -r line < {}; echo $line; exit 3", gate.display());
    world.fake.push([begin(&command), say("it runs"), call(&[act("output", "b1")]), say("I saw it end.")]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!((snapshot.background.len(), snapshot.background[0].command.as_str()), (1, command.as_str()));
    open_gate(&gate).await;
    live.until(2, |event| matches!(event, Event::RunEnded { .. })).await;
    assert_eq!(world.fake.bodies().len(), 4);
    assert_eq!(ends(&live), [BackgroundEnd::Exited(3)]);
    let told = notes(&world.fake.last_messages());
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("Background command b1 exited with code 3 after "), "{told:?}");
    let read = live.results().pop().unwrap().1;
    assert!(read.starts_with("go\n\n[b1 exited with code 3"), "{read}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_within_a_run_is_told_between_two_turns() {
    let world = world([]);
    let gate = fifo(&world);
    let opens = format!("echo go > {}; while [ ! -e over ]; do :; done", gate.display());
    let command = format!("read -r line < {}; touch over", gate.display());
    world.fake.push([begin(&command), call(&[("bash", json!({ "command": opens }))])]);
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    live.until(1, |event| matches!(event, Event::BackgroundEnded { .. })).await;
    holds(|| notes(&world.fake.last_messages()).len() == 1).await;
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_session_notes_the_end_and_asks_no_model() {
    let world = world([]);
    let gate = fifo(&world);
    world.fake.push([begin(&format!("read -r line < {}; echo x > made", gate.display())), say("it runs")]);
    let mut options = world.options();
    options.background = BackgroundWake::Never;
    let live = world.create_with(options).await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    let calls = world.fake.bodies().len();
    let before = live.session.view().head;
    open_gate(&gate).await;
    live.until(1, |event| matches!(event, Event::BackgroundEnded { .. })).await;
    holds(|| live.session.view().head != before && live.session.view().run.is_none()).await;
    assert_eq!(world.fake.bodies().len(), calls);
    let changed: Vec<String> = changes(&world, &live).await.into_iter().map(|change| change.path).collect();
    assert_eq!(changed, ["made"], "what it changed stands with its end");
    world.fake.push([say("I know.")]);
    assert_eq!(live.run("well?").await, Outcome::Done);
    assert_eq!(notes(&world.fake.last_messages()).len(), 1);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_ends_background_commands_and_takes_their_files_back() {
    let world = world([]);
    std::fs::write(world.cwd().join("old"), "as it was\n").unwrap();
    let command = "echo changed > old; echo new > new; touch ready; sleep 1000";
    world.fake.push([say("hello"), begin(command), say("it runs")]);
    let live = world.create().await;
    assert_eq!(live.run("hello").await, Outcome::Done);
    assert_eq!(live.run("start it").await, Outcome::Done);
    holds(|| world.cwd().join("ready").exists()).await;
    let undo = Command::Undo { steps: 1, files: MoveFiles::Restore { overwrite: false } };
    let undone = live.session.send(undo).await.unwrap();
    assert!(matches!(undone, Ack::Moved(_)), "{undone:?}");
    assert_eq!(ends(&live), [BackgroundEnd::Killed(KillReason::Move)]);
    assert_eq!(std::fs::read_to_string(world.cwd().join("old")).unwrap(), "as it was\n", "{undone:?}");
    assert!(!world.cwd().join("new").exists() && !world.cwd().join("ready").exists());
    assert!(live.session.background().iter().all(|one| one.end.is_some()));
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_session_hears_of_commands_that_run_no_more() {
    let world = world([begin("sleep 1000"), say("it runs")]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    let id = live.id();
    let (world, live) = after_crash(world, live, begin("true")).await;
    live.finish().await;
    let world = world.reopen();
    let (live, _) = world.open(&id).await;
    world.fake.push([say("ok")]);
    assert_eq!(live.run("and now?").await, Outcome::Done);
    let again = notes(&world.fake.last_messages());
    assert_eq!(again.iter().filter(|note| note.contains("b1: sleep")).count(), 1, "said once: {again:?}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_background_commands_and_records_it() {
    let world = world([begin("sleep 1000"), say("it runs")]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    let id = live.id();
    live.session.shutdown().await;
    assert_eq!(ends(&live), [BackgroundEnd::Killed(KillReason::Close)]);
    drop(live.ended().await);
    let world = world.reopen();
    let (live, _) = world.open(&id).await;
    world.fake.push([say("ok")]);
    assert_eq!(live.run("does it still run?").await, Outcome::Done);
    let told = notes(&world.fake.last_messages());
    assert!(told.len() == 1 && told[0].contains("was killed because the session ended"), "{told:?}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_background_commands_and_of_edits_stand_once() {
    let world = world([]);
    let gate = fifo(&world);
    let command = format!(
        "echo 1 > a; touch ready; read -r line < {}; echo 2 > b; echo 3 > c; touch second; sleep 1000",
        gate.display()
    );
    world.fake.push([begin(&command), say("it runs")]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    holds(|| world.cwd().join("ready").exists()).await;
    open_gate(&gate).await;
    holds(|| world.cwd().join("second").exists()).await;
    world.fake.push([call(&[("write", json!({ "path": "b", "content": "mine\n" }))]), say("written")]);
    assert_eq!(live.run("write").await, Outcome::Done);
    world.fake.push([call(&[act("kill", "b1")]), say("killed")]);
    assert_eq!(live.run("kill").await, Outcome::Done);
    let changed = changes(&world, &live).await;
    let mut paths: Vec<&str> = changed.iter().map(|change| change.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["a", "b", "c", "ready", "second"], "each once");
    assert_eq!(ends(&live), [BackgroundEnd::Killed(KillReason::Model)]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_kills_records_what_the_command_changed() {
    let world = world([]);
    let gate = fifo(&world);
    let command = format!("read -r line < {}; echo x > made; touch ready; sleep 1000", gate.display());
    world.fake.push([begin(&command), say("it runs")]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    open_gate(&gate).await;
    holds(|| world.cwd().join("ready").exists()).await;
    world.fake.push([call(&[act("kill", "b1")]), say("killed")]);
    assert_eq!(live.run("kill").await, Outcome::Done);
    let paths: Vec<String> = changes(&world, &live).await.into_iter().map(|change| change.path).collect();
    assert_eq!(paths, ["made", "ready"]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_command_of_a_person_is_killed_and_noted() {
    let world = world([
        begin("echo ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o; touch ready; sleep 1000"),
        say("it runs"),
    ]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    holds(|| world.cwd().join("ready").exists()).await;
    holds(|| !live.session.background_output("b1").unwrap().is_empty()).await;
    let shown = format!("{:?} {}", live.session.background(), live.session.background_output("b1").unwrap());
    assert!(shown.contains("[REDACTED:github-token:") && !shown.contains("ghp_Zk3v"), "{shown}");
    let calls = world.fake.bodies().len();
    live.session.kill_background("b1").await.unwrap();
    live.until(1, |event| matches!(event, Event::BackgroundEnded { .. })).await;
    assert_eq!(ends(&live), [BackgroundEnd::Killed(KillReason::Person)]);
    holds(|| live.session.view().run.is_none()).await;
    assert_eq!(world.fake.bodies().len(), calls, "a person who kills it wakes nobody");
    assert!(live.session.kill_background("b9").await.is_err());
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_of_a_command_is_refused_where_nobody_allows_it() {
    struct NoInput;
    impl quipu::Policy for NoInput {
        fn decide(&self, proposal: &quipu::Proposal<'_>) -> quipu::Decision {
            match proposal.touches {
                quipu::Touches::Input(input) if input.text.starts_with("no") => quipu::Decision::Ask {
                    question: format!("Write to `{}`?", input.command.as_deref().unwrap_or_default()),
                    subject: input.text.clone(),
                },
                _ => quipu::Decision::Allow,
            }
        }
    }
    let begin = json!({ "command": "cat > read", "run_in_background": true, "input": true });
    let write = |text: &str, eof: bool| {
        call(&[("background", json!({ "action": "write", "id": "b1", "text": text, "eof": eof }))])
    };
    let world = world([]);
    world.fake.push([call(&[("bash", begin)]), write("yes", false), write("no", false), write("end", true)]);
    world.fake.push([call(&[act("wait", "b1")]), say("done")]);
    let mut options = world.options();
    options.policy = std::sync::Arc::new(NoInput);
    options.background = BackgroundWake::Never;
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    live.until(1, |event| matches!(event, Event::BackgroundEnded { .. })).await;
    let results = live.results();
    assert!(results[1].1.starts_with("Wrote 4 bytes"), "{results:?}");
    assert!(results[2].1.contains("permission"), "{results:?}");
    let read = std::fs::read_to_string(world.cwd().join("read")).unwrap();
    assert_eq!(read, "yes\nend\n");
    live.finish().await;
    world.check().await;
}

fn yielding(command: &str, seconds: f64) -> Reply {
    call(&[("bash", json!({ "command": command, "yield": seconds }))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yielded_command_is_told_of_and_one_that_ended_is_not() {
    let world = world([]);
    let gate = fifo(&world);
    let long = format!("touch ready; read -r line < {}; echo $line; echo 2 > late; exit 3", gate.display());
    world.fake.push([yielding("echo quick > made", 600.0), yielding(&long, 0.05), say("it runs")]);
    world.fake.push([call(&[act("output", "b1")]), say("I saw it end.")]);
    let live = world.create().await;
    assert_eq!(live.run("start them").await, Outcome::Done);
    let results = live.results();
    assert_eq!(results[0].1, "(no output)");
    assert!(results[1].1.contains("It goes on as background command b1. You get a message"), "{results:?}");
    let order = live.all(|event| match event {
        Event::BackgroundStarted { id, .. } => Some(id.as_str().to_owned()),
        Event::ToolEnded { .. } => Some("result".to_owned()),
        _ => None,
    });
    assert_eq!(order, ["result", "b1", "result"]);
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!((snapshot.background.len(), snapshot.background[0].command.as_str()), (1, long.as_str()));
    open_gate(&gate).await;
    live.until(2, |event| matches!(event, Event::RunEnded { .. })).await;
    assert_eq!(ends(&live), [BackgroundEnd::Exited(3)]);
    let told = notes(&world.fake.last_messages());
    assert!(told.len() == 1 && told[0].starts_with("Background command b1 exited with code 3"), "{told:?}");
    let read = live.results().pop().unwrap().1;
    assert!(read.starts_with("go\n\n[b1 exited with code 3"), "{read}");
    let mut paths: Vec<String> = changes(&world, &live).await.into_iter().map(|change| change.path).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["late", "made", "ready"], "each once");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yielded_command_ends_with_its_session_and_is_named() {
    let world = world([yielding("sleep 1000", 0.05), say("it runs")]);
    let live = world.create().await;
    assert_eq!(live.run("start it").await, Outcome::Done);
    let (world, live) = after_crash(world, live, yielding("sleep 1000", 0.05)).await;
    live.session.shutdown().await;
    assert_eq!(ends(&live), [BackgroundEnd::Killed(KillReason::Close)]);
    drop(live.ended().await);
    world.check().await;
}
