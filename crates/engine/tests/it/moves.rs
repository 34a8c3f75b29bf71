//! Moves are commands of a session that is open, and go on where it stands then.

use quipu_store::ReadModel as _;
use std::path::Path;

use quipu::protocol::{
    Ack, Command, Event, JumpResult, MergeSide, MoveFiles, MoveReport, Notice, Outcome, Refusal, Summarize,
    Ui,
};
use quipu::store::{RefName, Store as _};
use quipu::{Delivery, Session};
use serde_json::json;

use crate::file_travel::tree;
use crate::support::{Gate, LiveSession, Reply, World, call, check_store, gated, say, text_of};

fn write(path: &str, content: &str) -> Reply {
    call(&[("write", json!({ "path": path, "content": content }))])
}

fn undo(steps: u32) -> Command {
    Command::Undo { steps, files: MoveFiles::Auto }
}

fn redo(steps: u32) -> Command {
    Command::Redo { steps, files: MoveFiles::Auto }
}

async fn moved(session: &Session, command: Command) -> MoveReport {
    match session.send(command).await {
        Ok(Ack::Moved(moved)) => moved,
        other => panic!("{other:?}"),
    }
}

fn words(world: &World) -> Vec<String> {
    world.fake.last_messages().iter().map(text_of).collect()
}

fn read(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(name)).ok()
}

#[tokio::test]
async fn turns_are_undone_and_done_again_in_an_open_session() {
    let world = World::with([say("a0"), say("a1"), say("a2"), say("other")]);
    let live = world.create().await;
    for question in ["q0", "q1", "q2"] {
        live.run(question).await;
    }
    let end = live.session.view().head.unwrap();
    let back =
        moved(&live.session, Command::Undo { steps: 2, files: MoveFiles::Restore { overwrite: false } })
            .await;
    assert_eq!((back.from, back.steps.len(), back.steps[0].kind.as_str()), (end, 2, "turn"));
    assert_eq!(live.session.view().head, Some(back.to));
    let again = moved(&live.session, redo(1)).await;
    assert_eq!(again.from, back.to);
    // More than there is: what there is.
    let all = moved(&live.session, redo(9)).await;
    assert_eq!((all.to, all.steps.len()), (end, 1));
    assert_eq!(live.session.send(redo(1)).await, Err(Refusal::NothingToRedo));
    moved(&live.session, undo(2)).await;
    assert_eq!(live.run("else").await, Outcome::Done);
    assert_eq!(words(&world), ["q0", "a0", "else"]);
    // What was said since leaves nothing to be done again; all of it can be undone.
    assert_eq!(live.session.send(redo(1)).await, Err(Refusal::NothingToRedo));
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(snapshot.head, live.session.view().head);
    let mut steps = 0;
    while let Ok(Ack::Moved(back)) = live.session.send(undo(1)).await {
        steps += back.steps.len();
        assert!(steps < 20);
    }
    assert_eq!(live.session.send(undo(1)).await, Err(Refusal::NothingToUndo));
    live.finish().await;
    // Calls of what was left stand where no session leads.
    check_store(&world.store).await;
}

#[tokio::test]
async fn files_go_along_with_a_jump_and_its_undo() {
    let mut world = World::with([write("a", "1"), say("a0"), write("a", "2"), say("a1")]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    let dir = world.cwd();
    live.run("q0").await;
    let first = live.session.view().head.unwrap();
    live.run("q1").await;
    let files = MoveFiles::Restore { overwrite: false };
    let jump = |files| Command::Jump { to: first, summary: None, label: Some("here".into()), files };
    live.session.send(jump(files)).await.unwrap();
    live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
    live.settled(3).await;
    assert_eq!(read(&dir, "a").as_deref(), Some("1"));
    let before = tree(&dir);
    let back = moved(&live.session, undo(1)).await;
    assert_eq!(read(&dir, "a").as_deref(), Some("2"), "{back:?}");
    moved(&live.session, redo(1)).await;
    assert_eq!(tree(&dir), before);
    // Somebody changed it since: it says so before, and nothing is changed.
    std::fs::write(dir.join("a"), "person").unwrap();
    let stands = live.session.view().head;
    match live.session.send(undo(1)).await {
        Err(Refusal::Files { conflicts, why }) => assert_eq!((conflicts.len(), why.is_empty()), (1, false)),
        other => panic!("{other:?}"),
    }
    assert_eq!((live.session.view().head, read(&dir, "a").as_deref()), (stands, Some("person")));
    let over = Command::Undo { steps: 1, files: MoveFiles::Restore { overwrite: true } };
    moved(&live.session, over).await;
    assert_eq!(read(&dir, "a").as_deref(), Some("2"));
    // Without them.
    live.session.send(jump(MoveFiles::Keep)).await.unwrap();
    live.until(2, |event| matches!(event, Event::JumpEnded { .. })).await;
    let keep = Command::Undo { steps: 1, files: MoveFiles::Auto };
    assert_eq!(read(&dir, "a").as_deref(), Some("2"));
    while live.session.send(keep.clone()).await == Err(Refusal::Busy) {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&dir, "a").as_deref(), Some("2"));
    assert_eq!(live.run("on").await, Outcome::Done);
    live.finish().await;
    // Calls of what was left stand where no session leads.
    check_store(&world.store).await;
}

#[tokio::test]
async fn summary_and_label_go_along_with_files() {
    let mut world = World::with([
        write("a", "1"),
        say("a0"),
        write("a", "2"),
        say("a1"),
        say("what was left"),
        say("on"),
    ]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    live.run("q0").await;
    let first = live.session.view().head.unwrap();
    live.run("q1").await;
    let files = MoveFiles::Restore { overwrite: false };
    let summary = Some(Summarize::default());
    let jump = Command::Jump { to: first, summary, label: Some("left".into()), files };
    live.session.send(jump).await.unwrap();
    live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
    let results = live.all(|event| match event {
        Event::JumpEnded { result } => Some(match &**result {
            JumpResult::Done(jumped) => jumped.summary,
            _ => None,
        }),
        _ => None,
    });
    assert_eq!((results.len(), read(&world.cwd(), "a").as_deref()), (1, Some("1")));
    // The label is for the summary, and what that cost is in its node: no step is open.
    let labels = world.store.labels(std::slice::from_ref(&live.id())).await.unwrap();
    assert_eq!(labels.first().and_then(|label| label.target), results[0]);
    assert!(results[0].is_some());
    let steps = world.store.pending(&live.id()).await.unwrap().steps;
    assert!(steps.iter().all(|step| step.run.as_str() == "listing"), "{steps:?}");
    live.settled(3).await;
    assert_eq!(live.run("go on").await, Outcome::Done);
    assert!(words(&world).iter().any(|text| text.contains("what was left")), "{:?}", words(&world));
    live.finish().await;
    // Calls of what was left stand where no session leads.
    check_store(&world.store).await;
}

#[tokio::test]
async fn branch_comes_into_the_open_session() {
    let mut world = World::with([
        write("a", "1"),
        say("base"),
        write("a", "ours"),
        say("our end"),
        write("a", "theirs"),
        say("their end"),
        say("together"),
    ]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    live.run("q0").await;
    let base = live.session.view().head.unwrap();
    live.run("ours").await;
    let forked = match live.session.send(Command::Fork { at: base }).await {
        Ok(Ack::Forked { session, prompt: None }) => session,
        other => panic!("{other:?}"),
    };
    let (branch, _) = world.open(&forked).await;
    branch.run("theirs").await;
    let from = branch.session.view().head.unwrap();
    branch.finish().await;
    let merge = |side, files| Command::Merge { from, note: "take it".into(), side, files };
    match live.session.send(merge(None, MoveFiles::Keep)).await {
        Err(Refusal::MergeConflict { files }) => assert_eq!(files.len(), 1),
        other => panic!("{other:?}"),
    }
    std::fs::write(world.cwd().join("a"), "ours").unwrap();
    let files = MoveFiles::Restore { overwrite: false };
    moved(&live.session, merge(Some(MergeSide::Theirs), files)).await;
    assert_eq!(read(&world.cwd(), "a").as_deref(), Some("theirs"));
    let nothing = Command::Merge { from: base, note: String::new(), side: None, files };
    assert!(matches!(live.session.send(nothing).await, Err(Refusal::NotMoved { .. })));
    live.run("on").await;
    assert!(words(&world).iter().any(|text| text.contains("take it") && text.contains("their end")));
    // And back, with what it did to files.
    let back =
        moved(&live.session, Command::Undo { steps: 2, files: MoveFiles::Restore { overwrite: false } })
            .await;
    assert_eq!(read(&world.cwd(), "a").as_deref(), Some("ours"), "{back:?}");
    live.finish().await;
    // Calls of what was left stand where no session leads.
    check_store(&world.store).await;
}

#[tokio::test]
async fn names_and_labels_wait_for_the_end_of_a_run() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({ "text": "x" }))]), say("done"), say("on")]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    let rename = |name: &str| Command::Rename { name: name.into() };
    assert!(matches!(live.session.send(rename("early")).await, Err(Refusal::NotMoved { .. })));
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    let head = live.session.view().head.unwrap();
    assert_eq!(live.session.send(undo(1)).await, Err(Refusal::Busy));
    let session = live.session.clone();
    let naming = tokio::spawn(async move { session.send(rename("a \n name")).await });
    let session = live.session.clone();
    let label = Command::Label { node: head, text: Some("there".into()) };
    let labelling = tokio::spawn(async move { session.send(label).await });
    tokio::task::yield_now().await;
    gate.open();
    assert_eq!(naming.await.unwrap(), Ok(Ack::Handled));
    assert_eq!(labelling.await.unwrap(), Ok(Ack::Handled));
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(snapshot.name, "a name");
    assert_eq!(live.all(|event| matches!(event, Event::Renamed { .. }).then_some(())).len(), 1);
    assert_eq!(live.run("on").await, Outcome::Done);
    let id = live.id();
    assert_eq!(
        live.session.send(rename(&"x".repeat(201))).await,
        Err(Refusal::LabelTooLong { characters: 201 })
    );
    live.finish().await;
    let labels = world.store.labels(std::slice::from_ref(&id)).await.unwrap();
    assert_eq!((labels.len(), labels[0].target), (1, Some(head)));
    let (live, _) = world.open(&id).await;
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!(snapshot.name, "a name");
    live.session.send(rename("")).await.unwrap();
    live.session.send(Command::Label { node: head, text: None }).await.unwrap();
    live.finish().await;
    assert!(world.store.labels(&[id]).await.unwrap().is_empty());
    world.check().await;
}

#[tokio::test]
async fn compaction_is_undone_in_an_open_session() {
    let world = World::with([say("a0"), say("a1"), say("sum"), say("on")]);
    let mut options = world.options();
    options.compaction.keep_recent_tokens = 1;
    let live = world.create_with(options).await;
    for text in ["q0", "q1"] {
        live.run(&format!("{text} {}", "long ".repeat(2_000))).await;
    }
    assert_eq!(live.session.send(Command::UndoCompaction).await, Err(Refusal::NoCompaction));
    let before = live.session.view().head.unwrap();
    live.session.compact(None).await.unwrap();
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    live.settled(3).await;
    assert_ne!(live.session.view().head, Some(before));
    let back = moved(&live.session, Command::UndoCompaction).await;
    assert_eq!(back.to, before);
    live.run("on").await;
    assert_eq!(words(&world).len(), 5);
    live.finish().await;
    // Calls of what was left stand where no session leads.
    check_store(&world.store).await;
}

#[tokio::test]
async fn move_against_another_process_changes_nothing() {
    let world = World::with([say("a0"), say("a1"), say("on")]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (id, head) = (live.id(), live.session.view().head.unwrap());
    // Another program moves the ref without a word.
    let parent = world.store.nodes(&[head]).await.unwrap()[0].clone().unwrap().record.parent.unwrap();
    let swap = quipu::store::RefMove::swap(RefName::session(&id), Some(head), parent, "else");
    let commit = quipu::store::Commit { moves: vec![swap], ..quipu::store::Commit::default() };
    world.store.commit(commit).await.unwrap();
    assert!(matches!(live.session.send(undo(1)).await, Err(Refusal::NotMoved { .. })));
    // What is said then makes a branch, as ever.
    live.run("on").await;
    let branched = live.all(|event| match event {
        Event::Ui { ui: Ui::Notice { notice: Notice::Branched { .. } } } => Some(()),
        _ => None,
    });
    assert_eq!(branched.len(), 1);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn prompt_behind_a_move_is_answered_where_it_leads() {
    let world = World::with([say("a0"), say("a1"), say("there")]);
    let live = world.create().await;
    live.run("q0").await;
    live.run("q1").await;
    let (session, other) = (live.session.clone(), live.session.clone());
    let (undone, said) = tokio::join!(session.send(undo(1)), other.prompt("meanwhile"));
    drop((session, other));
    assert!(matches!(undone, Ok(Ack::Moved(_))) && said.is_ok(), "{undone:?} {said:?}");
    live.until(3, |event| matches!(event, Event::RunEnded { .. })).await;
    assert_eq!(words(&world), ["q0", "a0", "meanwhile"]);
    LiveSession::finish(live).await;
    // Calls of what was left stand where no session leads.
    check_store(&world.store).await;
}
