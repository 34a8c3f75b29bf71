//! Hooks at the steps of a session beside inputs and tools: what they may return there, and what becomes of those that fail.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::protocol::{
    Ack, Answer, AskKind, AssistantMessage, Command, CompactionReason, CompactionResult, Content, Entry,
    Event, ImageContent, Json, Message, Model, ModelRequest, MoveFiles, NodeId, Outcome, SessionId,
    StopReason, ToolCall, ToolResultMessage, UserInput,
};
use quipu::store::{LineageEnd, Store as _, decode_nodes};
use quipu::{
    CallVerdict, CompactionRequest, CompactionSettings, CompactionVerdict, HOOK_IMAGES, HOOK_TEXT, Hook,
    HookContext, HookError, HookFailure, HookPoint, InputVerdict, MessageVerdict, MoveRequest, MoveVerdict,
    Payload, PayloadChange, Refusal, RequestVerdict, ResponseHead, ResultVerdict, RunEnd, RunEndVerdict,
    RunStart, RunStartVerdict, SendVerdict, SessionOptions, SessionOrigin, ShellLine, ShellVerdict,
    StartVerdict, ToolOutput, TravelSettings,
};
use serde_json::json;

use crate::hooks::{hooked, notes, records, words};
use crate::support::{Gate, LiveSession, Reply, World, call, gated, say, tool};

type PointFn<I, V> = Option<Box<dyn Fn(&I) -> V + Send + Sync>>;

/// A hook made of closures.
#[derive(Default)]
struct ClosureHook {
    start: PointFn<SessionOrigin, StartVerdict>,
    input: PointFn<UserInput, InputVerdict>,
    goes: PointFn<MoveRequest, MoveVerdict>,
    shell: PointFn<ShellLine, ShellVerdict>,
    compaction: PointFn<CompactionRequest, CompactionVerdict>,
    message: PointFn<AssistantMessage, MessageVerdict>,
    result: PointFn<ToolResultMessage, ResultVerdict>,
    run_start: PointFn<RunStart, RunStartVerdict>,
    request: PointFn<ModelRequest, RequestVerdict>,
    run_end: PointFn<RunEnd, RunEndVerdict>,
    /// What it saw that says nothing.
    seen: Arc<Mutex<Vec<String>>>,
}

impl ClosureHook {
    fn ready<'a, I, V: Send + 'a>(
        at: &PointFn<I, V>,
        seen: &I,
        pass: V,
    ) -> BoxFuture<'a, Result<V, HookError>> {
        let verdict = at.as_ref().map_or(pass, |hook| hook(seen));
        Box::pin(std::future::ready(Ok(verdict)))
    }
}

impl Hook for ClosureHook {
    fn name(&self) -> &str {
        "made"
    }

    fn input<'a>(
        &'a self,
        input: &'a UserInput,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        Self::ready(&self.input, input, InputVerdict::Pass)
    }

    fn tool_result<'a>(
        &'a self,
        _: &'a ToolCall,
        result: &'a ToolResultMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        Self::ready(&self.result, result, ResultVerdict::Pass)
    }

    fn session_start<'a>(
        &'a self,
        origin: SessionOrigin,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<StartVerdict, HookError>> {
        assert!(cx.session.is_some(), "it knows whose start it is");
        Self::ready(&self.start, &origin, StartVerdict::Pass)
    }

    fn session_end<'a>(&'a self, _: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        self.seen.lock().unwrap().push("session end".into());
        Box::pin(std::future::ready(Ok(())))
    }

    fn before_move<'a>(
        &'a self,
        request: &'a MoveRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<MoveVerdict, HookError>> {
        Self::ready(&self.goes, request, MoveVerdict::Pass)
    }

    fn before_run<'a>(
        &'a self,
        start: &'a RunStart,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        Self::ready(&self.run_start, start, RunStartVerdict::Pass)
    }

    fn changes_requests(&self) -> bool {
        self.request.is_some()
    }

    fn before_request<'a>(
        &'a self,
        request: &'a ModelRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RequestVerdict, HookError>> {
        Self::ready(&self.request, request, RequestVerdict::Pass)
    }

    fn shell_line<'a>(
        &'a self,
        line: &'a ShellLine,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ShellVerdict, HookError>> {
        Self::ready(&self.shell, line, ShellVerdict::Pass)
    }

    fn before_compaction<'a>(
        &'a self,
        request: &'a CompactionRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        Self::ready(&self.compaction, request, CompactionVerdict::Pass)
    }

    fn message_end<'a>(
        &'a self,
        message: &'a AssistantMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<MessageVerdict, HookError>> {
        Self::ready(&self.message, message, MessageVerdict::Pass)
    }

    fn turn_end<'a>(&'a self, turn: u32, cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        assert!(cx.run.is_some());
        self.seen.lock().unwrap().push(format!("turn {turn}"));
        Box::pin(std::future::ready(Ok(())))
    }

    fn run_end<'a>(
        &'a self,
        end: &'a RunEnd,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        Self::ready(&self.run_end, end, RunEndVerdict::Pass)
    }
}

fn of<I, V>(hook: impl Fn(&I) -> V + Send + Sync + 'static) -> PointFn<I, V> {
    Some(Box::new(hook))
}

async fn made(world: &World, hook: ClosureHook) -> LiveSession {
    hooked(world, vec![Arc::new(hook)]).await
}

/// A compaction leaves little of what was said.
fn compacting(world: &World) -> SessionOptions {
    let compaction = CompactionSettings { keep_recent_tokens: 10, ..CompactionSettings::default() };
    SessionOptions { compaction, ..world.options() }
}

async fn shell(live: &LiveSession, line: &str) -> Result<Ack, Refusal> {
    live.session.send(Command::Shell { line: line.into(), hidden: false }).await
}

#[tokio::test]
async fn sources_see_words_of_the_user_without_those_of_hooks() {
    let world = World::with([say("a0"), say("a1"), say("a2")]);
    let chapters = crate::opening::Chapters::new(&["one"]);
    let start = of(|_: &SessionOrigin| StartVerdict::Add("It is Monday.".into()));
    let hook: Arc<dyn Hook> = Arc::new(ClosureHook { start, ..ClosureHook::default() });
    let (hooks, sources) = (vec![hook], vec![chapters.clone() as Arc<dyn quipu::ContextSource>]);
    let live = world.create_with(SessionOptions { hooks, context_sources: sources, ..world.options() }).await;
    // Who writes as a hook does is no hook.
    let own = "[Added by the hook x]\nThese are my words.";
    for text in ["first", own, "third"] {
        assert_eq!(live.run(text).await, Outcome::Done);
    }
    assert!(words(&world).join("\n").contains("It is Monday."));
    let asked = chapters.asked.lock().unwrap().last().unwrap().earlier.clone();
    let said: Vec<String> = asked.iter().map(|message| crate::support::text_of(message)).collect();
    assert_eq!(said, ["first", own]);
    live.finish().await;
}

#[tokio::test]
async fn start_of_a_session_adds_text_beside_the_first_prompt() {
    let world = World::with([say("a0"), say("a1"), say("a2"), say("a3")]);
    let origins = Arc::new(Mutex::new(Vec::new()));
    let hook = || {
        let origins = origins.clone();
        let start = of(move |origin: &SessionOrigin| {
            origins.lock().unwrap().push(*origin);
            StartVerdict::Add("It is Monday.".into())
        });
        let input = of(|input: &UserInput| match input.content[0].as_text() {
            Some("block") => InputVerdict::Block { reason: "no".into() },
            Some("handle") => InputVerdict::Handled,
            _ => InputVerdict::Pass,
        });
        Arc::new(ClosureHook { start, input, ..ClosureHook::default() }) as Arc<dyn Hook>
    };
    let live = hooked(&world, vec![hook()]).await;
    // It waits for a prompt that is said.
    assert!(matches!(live.session.prompt("block").await, Err(Refusal::Blocked { .. })));
    assert_eq!(live.session.prompt("handle").await, Ok(Ack::Handled));
    let id = live.id();
    assert_eq!(live.run("one").await, Outcome::Done);
    let said = words(&world).join("\n");
    assert_eq!(said.matches("[Added by the hook made]\nIt is Monday.").count(), 1, "{said}");
    assert_eq!(live.run("two").await, Outcome::Done);
    assert_eq!(words(&world).join("\n").matches("Monday").count(), 1, "once");
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let options = || SessionOptions { hooks: vec![hook()], ..world.options() };
    let live = LiveSession::of(world.engine.open(&id, options()).await.unwrap().session).await;
    assert_eq!(live.run("three").await, Outcome::Done);
    assert_eq!(words(&world).join("\n").matches("Monday").count(), 2);
    live.finish().await;
    let live = LiveSession::of(world.engine.fork(head, options()).await.unwrap().session).await;
    assert_eq!(live.run("four").await, Outcome::Done);
    live.finish().await;
    let expected = [SessionOrigin::New, SessionOrigin::Resumed, SessionOrigin::Forked];
    assert_eq!(*origins.lock().unwrap(), expected);
    world.check().await;
}

#[tokio::test]
async fn ends_of_turns_and_sessions_are_seen() {
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let live = made(&world, ClosureHook { seen: seen.clone(), ..ClosureHook::default() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    // Nothing waits for them.
    while seen.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    live.finish().await;
    let mut seen = seen.lock().unwrap().clone();
    assert_eq!(seen.pop().as_deref(), Some("session end"));
    seen.sort();
    assert_eq!(seen, ["turn 1", "turn 2"]);
    world.check().await;
}

#[tokio::test]
async fn every_move_of_a_person_can_be_cancelled() {
    let world = World::with([say("a0"), say("a1")]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let goes = of(move |request: &MoveRequest| {
        noted.lock().unwrap().push(request.clone());
        MoveVerdict::Block { reason: "stay".into() }
    });
    let live = made(&world, ClosureHook { goes, ..ClosureHook::default() }).await;
    live.run("one").await;
    live.run("two").await;
    let head = live.session.view().head.unwrap();
    let files = MoveFiles::Keep;
    let moves = [
        Command::Jump { to: head, summary: None, label: None, files },
        Command::Undo { steps: 1, files },
        Command::Redo { steps: 2, files },
        Command::Merge { from: head, note: String::new(), side: None, files },
        Command::UndoCompaction,
        Command::Fork { at: head },
    ];
    let is_blocked = |answer: Result<(), Refusal>| match answer {
        Err(Refusal::Blocked { why }) => assert!(why.contains("made") && why.contains("stay"), "{why}"),
        other => panic!("{other:?}"),
    };
    for command in moves {
        is_blocked(live.session.send(command).await.map(|_| ()));
    }
    let other = SessionId::from("other");
    is_blocked(live.session.before_switch(Some(other.clone())).await);
    is_blocked(live.session.before_switch(None).await);
    // Labels and names are no moves.
    live.session.send(Command::Rename { name: "name".into() }).await.unwrap();
    let expected = [
        MoveRequest::Jump { to: head },
        MoveRequest::Undo { steps: 1 },
        MoveRequest::Redo { steps: 2 },
        MoveRequest::Merge { from: head },
        MoveRequest::UndoCompaction,
        MoveRequest::Fork { at: head },
        MoveRequest::Switch { to: Some(other) },
        MoveRequest::Switch { to: None },
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
    assert_eq!(live.run("three").await, Outcome::Done);
    assert_eq!(words(&world).len(), 5, "nothing was taken back");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn move_of_the_model_can_be_cancelled() {
    let world = World::with([say("a0")]);
    let goes = of(|request: &MoveRequest| match request {
        MoveRequest::Tobe { .. } => MoveVerdict::Block { reason: "stay".into() },
        _ => MoveVerdict::Pass,
    });
    let hooks: Vec<Arc<dyn Hook>> = vec![Arc::new(ClosureHook { goes, ..ClosureHook::default() })];
    let options = SessionOptions { hooks, travel: TravelSettings { tools: true }, ..world.options() };
    let live = world.create_with(options).await;
    live.run("one").await;
    let to = live.session.view().head.unwrap();
    let go = json!({ "target_node_hash": to.short(), "carryover_message": "back" });
    world.fake.push([say("a1"), call(&[("tobe", go)]), say("well")]);
    live.run("two").await;
    assert_eq!(live.run("three").await, Outcome::Done);
    let (_, text, is_error) = live.results().remove(0);
    assert!(is_error && text.contains("made") && text.contains("stay"), "{text}");
    let kept = records(&world, &live).await;
    assert_eq!((&kept[0][0]["point"], &kept[0][0]["did"]), (&json!("beforeMove"), &json!("blocked")));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_line_is_replaced_and_blocked() {
    let world = World::with([say("I see.")]);
    let hook = of(|line: &ShellLine| match line.line.as_str() {
        "rm x" => ShellVerdict::Block { reason: "not that".into() },
        "echo one" => ShellVerdict::Replace("echo two".into()),
        _ => ShellVerdict::Pass,
    });
    let live = made(&world, ClosureHook { shell: hook, ..ClosureHook::default() }).await;
    match shell(&live, "rm x").await {
        Err(Refusal::Blocked { why }) => assert!(why.contains("made") && why.contains("not that"), "{why}"),
        other => panic!("{other:?}"),
    }
    for (count, line) in [(1, "echo one"), (2, "echo three")] {
        shell(&live, line).await.unwrap();
        live.until(count, |event| matches!(event, Event::ShellEnded { .. })).await;
    }
    assert_eq!(live.run("go").await, Outcome::Done);
    let said = words(&world).join("\n");
    assert!(said.contains("echo two") && said.contains("echo three") && !said.contains("echo one"), "{said}");
    let kept = records(&world, &live).await;
    assert_eq!((kept.len(), &kept[0][0]["did"]), (1, &json!("replaced")));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn placeholders_in_a_shell_line_are_resolved() {
    const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let world = World::new();
    let hook = of(|line: &ShellLine| {
        assert!(!line.line.contains(SECRET), "it sees a placeholder: {}", line.line);
        ShellVerdict::Replace(format!("{} > told", line.line))
    });
    let live = made(&world, ClosureHook { shell: hook, ..ClosureHook::default() }).await;
    shell(&live, &format!("echo {SECRET}")).await.unwrap();
    live.until(1, |event| matches!(event, Event::ShellEnded { .. })).await;
    assert_eq!(std::fs::read_to_string(world.cwd().join("told")).unwrap().trim(), SECRET);
    live.finish().await;
    world.check().await;
}

/// What came of the compactions so far.
fn compactions(live: &LiveSession) -> Vec<(CompactionReason, Arc<CompactionResult>)> {
    live.all(|event| match event {
        Event::CompactionEnded { reason, result } => Some((*reason, result.clone())),
        _ => None,
    })
}

#[tokio::test]
async fn compaction_is_cancelled_and_supplied() {
    let world = World::with([say("a0"), say("a1"), say("a2")]);
    let hook = of(|request: &CompactionRequest| {
        assert_eq!(request.reason, CompactionReason::Manual);
        assert!(!request.messages.is_empty());
        match request.focus.as_deref() {
            Some("no") => CompactionVerdict::Block { reason: "keep it".into() },
            _ => CompactionVerdict::Supply("They counted.".into()),
        }
    });
    let hooks: Vec<Arc<dyn Hook>> =
        vec![Arc::new(ClosureHook { compaction: hook, ..ClosureHook::default() })];
    let live = world.create_with(SessionOptions { hooks, ..compacting(&world) }).await;
    live.run(&"one ".repeat(100)).await;
    live.run(&"two ".repeat(100)).await;
    live.session.compact(Some("no".into())).await.unwrap();
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    match &*compactions(&live)[0].1 {
        CompactionResult::Failed(why) => assert!(why.contains("made") && why.contains("keep it"), "{why}"),
        other => panic!("{other:?}"),
    }
    live.settled(3).await;
    live.session.compact(None).await.unwrap();
    live.until(2, |event| matches!(event, Event::CompactionEnded { .. })).await;
    let ended = compactions(&live).remove(1).1;
    let CompactionResult::Done { node, compaction, .. } = &*ended else { panic!("{ended:?}") };
    assert!(compaction.summary.contains("They counted."));
    assert_eq!(compaction.from_hook, Some(true));
    let nodes = world.store.lineage(*node, LineageEnd::Root).await.unwrap();
    let step = decode_nodes(&*world.store, &nodes).await.unwrap().pop().unwrap().step;
    assert_eq!(step.extra["hooks"].value()[0]["hook"], "made");
    assert_eq!(world.fake.bodies().len(), 2, "no model was asked");
    live.settled(4).await;
    assert_eq!(live.run("three").await, Outcome::Done);
    assert!(words(&world)[0].contains("They counted."), "{:?}", words(&world));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn hook_goes_on_with_a_run_three_times_in_a_row() {
    let world = World::with((0..9).map(|n| say(&format!("a{n}"))));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let run_end = of(move |end: &RunEnd| {
        noted.lock().unwrap().push((end.outcome.clone(), end.answer.clone(), end.again));
        RunEndVerdict::Continue { prompt: "Run the tests.".into() }
    });
    let live = made(&world, ClosureHook { run_end, ..ClosureHook::default() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let expected: Vec<_> = (0..4).map(|n| (Outcome::Done, format!("a{n}"), n)).collect();
    assert_eq!(*asked.lock().unwrap(), expected);
    let said = words(&world);
    assert_eq!(said.len(), 7, "{said:?}");
    assert_eq!(said[2], "[Added by the hook made]\nRun the tests.");
    assert!(notes(&live).iter().any(|note| note.contains("3 times in a row")), "{:?}", notes(&live));
    let kept = records(&world, &live).await;
    assert_eq!((kept.len(), &kept[0][0]["point"]), (3, &json!("runEnd")));
    // Somebody else's word begins a new row.
    assert_eq!(live.run("on").await, Outcome::Done);
    assert_eq!(asked.lock().unwrap().len(), 8);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_is_stopped_does_not_go_on() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({}))]), say("well")]);
    world.tools = vec![gated("wait", &gate)];
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let run_end = of(move |end: &RunEnd| {
        noted.lock().unwrap().push(end.outcome.clone());
        RunEndVerdict::Continue { prompt: "Go on.".into() }
    });
    let live = made(&world, ClosureHook { run_end, ..ClosureHook::default() }).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    while asked.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*asked.lock().unwrap(), [Outcome::Aborted]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn answer_is_replaced_before_it_is_stored() {
    let world = World::with([
        call(&[("echo", json!({ "text": "a" })), ("echo", json!({ "text": "b" }))]),
        call(&[("echo", json!({ "text": "c" }))]),
        say("well"),
    ]);
    let hook = of(|message: &AssistantMessage| {
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        let text = Content::text(format!("{} (checked)", message.text()));
        match calls.len() {
            // One call is left out.
            2 => MessageVerdict::Replace(vec![text, Content::ToolCall(calls[1].clone())]),
            // All are.
            1 => MessageVerdict::Replace(vec![text]),
            _ => MessageVerdict::Pass,
        }
    });
    let live = made(&world, ClosureHook { message: hook, ..ClosureHook::default() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    assert_eq!((results.len(), results[0].1.as_str()), (1, "b"));
    let said = live.said();
    assert!(said.iter().any(|one| one.ends_with("calling (checked)")), "{said:?}");
    assert_eq!(world.fake.bodies().len(), 2, "without a call the run is over");
    let kept = records(&world, &live).await;
    assert_eq!((&kept[0][0]["point"], &kept[0][0]["did"]), (&json!("messageEnd"), &json!("replaced")));
    assert_eq!(live.run("on").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    // Resumed with no hook there, the request holds what the hook left.
    world.fake.push([say("again")]);
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("last").await, Outcome::Done);
    assert_eq!(words(&world).iter().filter(|text| text.contains("(checked)")).count(), 2);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn run_begins_with_text_of_a_hook_beside_its_prompt() {
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("a1"), say("a2")]);
    let run_start = of(|start: &RunStart| {
        let said = start.prompt.first().and_then(Content::as_text).unwrap_or("nothing");
        RunStartVerdict::beside(format!("You were asked: {said}"))
    });
    let live = made(&world, ClosureHook { run_start, ..ClosureHook::default() }).await;
    assert_eq!(live.run("one").await, Outcome::Done);
    let said = words(&world);
    assert_eq!(said[0], "one\n[Added by the hook made]\nYou were asked: one", "{said:?}");
    assert_eq!(said.join("\n").matches("You were asked").count(), 1, "once for a run: {said:?}");
    let kept = records(&world, &live).await;
    assert_eq!((&kept[0][0]["point"], &kept[0][0]["did"]), (&json!("beforeRun"), &json!("added")));
    let id = live.id();
    live.finish().await;
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("two").await, Outcome::Done);
    assert_eq!(words(&world)[..2], said[..2], "with no hook there it is what it was");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn messages_are_replaced_for_one_request() {
    const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let world = World::with([Reply { retries: 2, ..say("a0") }, say("a1"), say("a2")]);
    let request = of(|request: &ModelRequest| match &request.messages[..] {
        [_] => RequestVerdict::Replace(vec![Arc::new(Message::user(format!("short {SECRET}"), 1))]),
        _ => RequestVerdict::Pass,
    });
    let live = made(&world, ClosureHook { request, ..ClosureHook::default() }).await;
    assert_eq!(live.run("a long story").await, Outcome::Done);
    let said = words(&world);
    assert!(said.len() == 1 && said[0].starts_with("short ") && !said[0].contains(SECRET), "{said:?}");
    let kept = records(&world, &live).await;
    assert_eq!((&kept[0][0]["point"], &kept[0][0]["did"]), (&json!("beforeRequest"), &json!("replaced")));
    // The conversation is what it was.
    assert_eq!(live.run("two").await, Outcome::Done);
    assert_eq!(words(&world), ["a long story", "a0", "two"]);
    let id = live.id();
    live.finish().await;
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("three").await, Outcome::Done);
    assert_eq!(words(&world)[..3], ["a long story", "a0", "two"]);
    live.finish().await;
    // Each body that was sent is recorded to the byte, and was before it was sent.
    let head = world.store.head(&quipu::store::RefName::session(&id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let bodies: Vec<_> = decoded.iter().filter_map(|one| Some(one.step.call.as_ref()?.body)).collect();
    let sent = world.fake.bodies();
    assert_eq!(bodies.len(), sent.len());
    for (id, sent) in bodies.iter().zip(sent) {
        assert_eq!(world.store.chunk(*id, 0..u64::MAX).await.unwrap(), sent);
    }
}

fn picture(bytes: usize) -> Content {
    Content::Image(ImageContent { data: "A".repeat(bytes), mime_type: "image/png".into() })
}

#[tokio::test]
async fn huge_image_of_a_hook_has_no_effect() {
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let result = of(|_: &ToolResultMessage| ResultVerdict::Replace {
        content: vec![picture(HOOK_IMAGES + 4)],
        is_error: false,
    });
    let live = made(&world, ClosureHook { result, ..ClosureHook::default() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.results()[0].1, "a");
    assert!(notes(&live).iter().any(|note| note.contains("bytes of images")), "{:?}", notes(&live));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn result_that_hooks_made_too_large_is_left_out() {
    let mut world = World::with([call(&[("draw", json!({}))]), say("well")]);
    world.tools = vec![tool("draw", |_, _| async {
        // As much as a tool may return.
        let content = vec![picture((64 << 20) - 100)];
        ToolOutput { content, details: None, is_error: false, terminate: false }
    })];
    let result = of(|_: &ToolResultMessage| ResultVerdict::Append("x".repeat(1_000)));
    let live = made(&world, ClosureHook { result, ..ClosureHook::default() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let (_, text, is_error) = live.results().remove(0);
    assert!(is_error && text.contains("hooks changed its result"), "{} bytes", text.len());
    live.finish().await;
}

/// How a hook fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Error,
    Panic,
    Hang,
    Flood,
    AsksTwice,
}

/// Fails at one point.
struct FaultyHook {
    at: HookPoint,
    fault: Fault,
    guards: bool,
    called: AtomicUsize,
}

impl FaultyHook {
    fn fail<'a, T: Send + 'a>(
        &'a self,
        at: HookPoint,
        pass: T,
        flood: impl FnOnce(String) -> T + Send + 'a,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<T, HookError>> {
        Box::pin(async move {
            if at != self.at {
                return Ok(pass);
            }
            self.called.fetch_add(1, Ordering::SeqCst);
            match self.fault {
                Fault::Error => Err(HookError::new("it is out of order")),
                Fault::Panic => panic!("a bug of a hook"),
                Fault::Hang => std::future::pending().await,
                Fault::Flood => Ok(flood("x".repeat(HOOK_TEXT + 1))),
                Fault::AsksTwice => {
                    let kind = || AskKind::Confirm { title: "Now?".into(), text: String::new() };
                    let first = cx.ask(kind(), Answer::Confirm { yes: false }, None);
                    let second = cx.ask(kind(), Answer::Confirm { yes: false }, None);
                    let (_, second) = tokio::join!(first, second);
                    Err(HookError::new(second.unwrap_err()))
                }
            }
        })
    }
}

impl Hook for FaultyHook {
    fn name(&self) -> &str {
        "faulty"
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(if self.fault == Fault::Hang { 20 } else { 60_000 })
    }

    fn on_failure(&self) -> HookFailure {
        if self.guards { HookFailure::Block } else { HookFailure::Pass }
    }

    fn input<'a>(
        &'a self,
        _: &'a UserInput,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        self.fail(HookPoint::Input, InputVerdict::Pass, InputVerdict::Add, cx)
    }

    fn tool_call<'a>(
        &'a self,
        _: &'a ToolCall,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        self.fail(HookPoint::ToolCall, CallVerdict::Pass, |reason| CallVerdict::Block { reason }, cx)
    }

    fn tool_result<'a>(
        &'a self,
        _: &'a ToolCall,
        _: &'a ToolResultMessage,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        self.fail(HookPoint::ToolResult, ResultVerdict::Pass, ResultVerdict::Append, cx)
    }

    fn session_start<'a>(
        &'a self,
        _: SessionOrigin,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<StartVerdict, HookError>> {
        self.fail(HookPoint::SessionStart, StartVerdict::Pass, StartVerdict::Add, cx)
    }

    fn before_run<'a>(
        &'a self,
        _: &'a RunStart,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        self.fail(HookPoint::BeforeRun, RunStartVerdict::Pass, RunStartVerdict::beside, cx)
    }

    fn changes_requests(&self) -> bool {
        true
    }

    fn before_request<'a>(
        &'a self,
        _: &'a ModelRequest,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RequestVerdict, HookError>> {
        // Too long, and no conversation.
        let flood = |text: String| {
            let answer = Message::Assistant(AssistantMessage::of(&Model::default(), StopReason::Stop, 1));
            RequestVerdict::Replace(vec![Arc::new(Message::user(text, 1)), Arc::new(answer)])
        };
        self.fail(HookPoint::BeforeRequest, RequestVerdict::Pass, flood, cx)
    }

    fn changes_payloads(&self) -> bool {
        true
    }

    fn before_send<'a>(
        &'a self,
        _: &'a Payload,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<SendVerdict, HookError>> {
        let flood = |text: String| {
            let set_headers = [("x-long".to_owned(), text)].into();
            SendVerdict::Change(PayloadChange { set_headers, ..PayloadChange::default() })
        };
        self.fail(HookPoint::BeforeSend, SendVerdict::Pass, flood, cx)
    }

    fn response<'a>(
        &'a self,
        _: &'a ResponseHead,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        self.fail(HookPoint::Response, (), |_| (), cx)
    }

    fn before_move<'a>(
        &'a self,
        _: &'a MoveRequest,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<MoveVerdict, HookError>> {
        self.fail(HookPoint::BeforeMove, MoveVerdict::Pass, |reason| MoveVerdict::Block { reason }, cx)
    }

    fn shell_line<'a>(
        &'a self,
        _: &'a ShellLine,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ShellVerdict, HookError>> {
        self.fail(HookPoint::ShellLine, ShellVerdict::Pass, ShellVerdict::Replace, cx)
    }

    fn before_compaction<'a>(
        &'a self,
        _: &'a CompactionRequest,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        self.fail(HookPoint::BeforeCompaction, CompactionVerdict::Pass, CompactionVerdict::Supply, cx)
    }

    fn message_end<'a>(
        &'a self,
        _: &'a AssistantMessage,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<MessageVerdict, HookError>> {
        let flood = |text: String| MessageVerdict::Replace(vec![Content::text(text)]);
        self.fail(HookPoint::MessageEnd, MessageVerdict::Pass, flood, cx)
    }

    fn turn_end<'a>(&'a self, _: u32, cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        self.fail(HookPoint::TurnEnd, (), |_| (), cx)
    }

    fn run_end<'a>(
        &'a self,
        _: &'a RunEnd,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        self.fail(HookPoint::RunEnd, RunEndVerdict::Pass, |prompt| RunEndVerdict::Continue { prompt }, cx)
    }
}

/// Whether each step of a session went through, by its point.
async fn taken(world: &World, live: &LiveSession) -> HashMap<&'static str, bool> {
    let mut taken = HashMap::new();
    let prompt = format!("go {}", "on ".repeat(100));
    let said = live.session.prompt(prompt.as_str()).await;
    taken.insert("input", said.is_ok());
    if said.is_err() {
        return taken;
    }
    live.settled(1).await;
    let sent = live.outcomes() == [Outcome::Done];
    taken.extend([("beforeRequest", sent), ("beforeSend", sent)]);
    if !sent {
        return taken;
    }
    taken.insert("messageEnd", live.said().iter().any(|one| one.ends_with("calling")));
    if let Some((_, text, _)) = live.results().first() {
        // A call that is blocked has no result to be changed.
        let (ran, blocked) = (text == "a", text.contains("blocked this"));
        taken.extend([("toolCall", ran || !blocked), ("toolResult", ran)]);
    }
    // Enough for a compaction.
    live.session.prompt(prompt.as_str()).await.unwrap();
    live.settled(2).await;
    taken.insert("shellLine", shell(live, "true").await.is_ok());
    if taken["shellLine"] {
        live.until(1, |event| matches!(event, Event::ShellEnded { .. })).await;
    }
    let node = some_answer(world, live).await;
    let jumps = live.session.jump(node, None, None).await;
    taken.insert("beforeMove", jumps.is_ok());
    if jumps.is_ok() {
        live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
    }
    while live.session.view().run.is_some() {
        tokio::task::yield_now().await;
    }
    if live.session.compact(None).await.is_err() {
        return taken;
    }
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    let compacted = matches!(&*compactions(live)[0].1, CompactionResult::Done { .. });
    taken.insert("beforeCompaction", compacted);
    taken
}

/// The last answer of the model.
async fn some_answer(world: &World, live: &LiveSession) -> NodeId {
    let nodes = world.store.lineage(live.session.view().head.unwrap(), LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let at = decoded.iter().rposition(|one| matches!(&one.entry, Entry::Message(Message::Assistant(_))));
    nodes[at.unwrap()].id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_hook_ends_only_its_own_effect_at_every_point() {
    let points = [
        HookPoint::Input,
        HookPoint::ToolCall,
        HookPoint::ToolResult,
        HookPoint::SessionStart,
        HookPoint::BeforeRun,
        HookPoint::BeforeRequest,
        HookPoint::BeforeSend,
        HookPoint::Response,
        HookPoint::BeforeMove,
        HookPoint::ShellLine,
        HookPoint::BeforeCompaction,
        HookPoint::MessageEnd,
        HookPoint::TurnEnd,
        HookPoint::RunEnd,
    ];
    let faults = [Fault::Error, Fault::Panic, Fault::Hang, Fault::Flood, Fault::AsksTwice];
    for (at, fault) in points.into_iter().flat_map(|at| faults.map(|fault| (at, fault))) {
        if matches!(at, HookPoint::TurnEnd | HookPoint::Response) && fault == Fault::Flood {
            continue;
        }
        for guards in [false, true] {
            let world = World::with([
                call(&[("echo", json!({ "text": "a" }))]),
                say("well"),
                say("more"),
                say("short"),
            ]);
            let hook = Arc::new(FaultyHook { at, fault, guards, called: AtomicUsize::new(0) });
            let hooks: Vec<Arc<dyn Hook>> = vec![hook.clone()];
            let live = world.create_with(SessionOptions { hooks, ..compacting(&world) }).await;
            let taken = taken(&world, &live).await;
            let case = format!("{at:?} {fault:?} {guards}: {taken:?}");
            let point = Json::of(&at).unwrap().value().as_str().unwrap().to_owned();
            let has_step = !matches!(
                at,
                HookPoint::SessionStart
                    | HookPoint::BeforeRun
                    | HookPoint::Response
                    | HookPoint::TurnEnd
                    | HookPoint::RunEnd
            );
            for (step, went) in &taken {
                // Where the call or the answer does not go through, what follows from it has nothing to do.
                let follows = matches!(
                    (at, *step),
                    (HookPoint::ToolCall, "toolResult")
                        | (HookPoint::ToolResult, "toolCall")
                        | (HookPoint::BeforeRequest, "beforeSend")
                        | (HookPoint::BeforeSend, "beforeRequest")
                );
                assert_eq!(
                    *went,
                    !(guards && has_step && *step == point || guards && follows),
                    "{step} {case}"
                );
            }
            assert!(hook.called.load(Ordering::SeqCst) > 0, "{case}");
            let blocked =
                guards && matches!(at, HookPoint::Input | HookPoint::BeforeMove | HookPoint::ShellLine);
            if !(blocked || guards && at == HookPoint::BeforeCompaction) {
                live.until(1, |event| format!("{event:?}").contains("hook faulty had no effect")).await;
            }
            live.ended().await.finish().unwrap();
        }
    }
}

#[tokio::test]
async fn failing_hook_does_not_hold_up_the_end_of_a_session() {
    struct EndHook(Fault);
    impl Hook for EndHook {
        fn name(&self) -> &str {
            "ends"
        }

        fn deadline(&self) -> Duration {
            Duration::from_millis(20)
        }

        fn session_end<'a>(&'a self, cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
            Box::pin(async move {
                match self.0 {
                    Fault::Panic => panic!("a bug of a hook"),
                    Fault::Hang => std::future::pending().await,
                    // Nobody is asked any more.
                    _ => {
                        let kind = AskKind::Confirm { title: "Now?".into(), text: String::new() };
                        let asked = cx.ask(kind, Answer::Confirm { yes: false }, None).await;
                        Err(HookError::new(asked.unwrap_err()))
                    }
                }
            })
        }
    }
    for fault in [Fault::Error, Fault::Panic, Fault::Hang] {
        let world = World::with([say("a0")]);
        let live = hooked(&world, vec![Arc::new(EndHook(fault))]).await;
        assert_eq!(live.run("go").await, Outcome::Done);
        live.session.shutdown().await;
        live.until(1, |event| format!("{event:?}").contains("hook ends had no effect")).await;
        drop(live);
        world.check().await;
    }
}
