//! Random hooks at random points, random sources and tools, and crashes: every law of a session holds, each body that was sent is
//! recorded, and what is asked after all that is what a session asks that is resumed without hooks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proptest::prelude::*;
use quipu::protocol::{
    Ack, AssistantMessage, ChunkId, Command, Content, Entry, Event, Json, Message, ModelErrorKind,
    ModelRequest, NodeId, ToolCall, ToolResultMessage, UserInput,
};
use quipu::store::{RefName, Store as _, Until, decode_nodes};
use quipu::{
    CallVerdict, CompactionRequest, CompactionSettings, CompactionVerdict, Context, ContextSource, HOOK_TEXT,
    Hook, HookContext, HookError, HookFailure, InputVerdict, MessageVerdict, MoveRequest, MoveVerdict,
    Payload, PayloadChange, RequestVerdict, ResponseHead, ResultVerdict, RunEnd, RunEndVerdict, RunStart,
    RunStartVerdict, SendVerdict, SessionOptions, SessionOrigin, ShellLine, ShellVerdict, StartVerdict,
    ToolSource,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::sources::{Bench, Notes};
use crate::sources_laws::{context, tools};
use crate::support::{LiveSession, Reply, World, call, messages_of, say};

/// Does something else each time.
struct Rolls {
    name: &'static str,
    state: AtomicU64,
    guards: bool,
    /// It is asked about requests.
    changes: bool,
    /// It does nothing any more.
    rests: Arc<Mutex<bool>>,
}

impl Rolls {
    fn roll(&self) -> u64 {
        if *self.rests.lock().unwrap() {
            return 0;
        }
        let next = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695));
        let state = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).unwrap_or_default();
        (state >> 33) % 12
    }

    /// Nothing, one of what it may return, or a failure.
    fn some<'a, T: Send + 'a>(
        &'a self,
        pass: T,
        of: impl FnOnce(u64) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T, HookError>> {
        Box::pin(async move {
            match self.roll() {
                0..6 => Ok(pass),
                at @ 6..10 => Ok(of(at)),
                10 => Err(HookError::new("it is out of order")),
                _ => std::future::pending().await,
            }
        })
    }
}

impl Hook for Rolls {
    fn name(&self) -> &str {
        self.name
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(5)
    }

    fn on_failure(&self) -> HookFailure {
        if self.guards { HookFailure::Block } else { HookFailure::Pass }
    }

    fn input<'a>(
        &'a self,
        _: &'a UserInput,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        self.some(InputVerdict::Pass, |at| match at {
            6 => InputVerdict::Replace("other words".into()),
            7 => InputVerdict::Add("beside".into()),
            8 => InputVerdict::Handled,
            _ => InputVerdict::Block { reason: "no".into() },
        })
    }

    fn tool_call<'a>(
        &'a self,
        _: &'a ToolCall,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        self.some(CallVerdict::Pass, |at| match at {
            6 => CallVerdict::Replace(Json::from(&json!({ "text": "other" }))),
            7 => CallVerdict::Replace(Json::from(&json!({ "text": 7 }))),
            8 => CallVerdict::Ask { question: "?".into() },
            _ => CallVerdict::Block { reason: "no".into() },
        })
    }

    fn tool_result<'a>(
        &'a self,
        _: &'a ToolCall,
        _: &'a ToolResultMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        self.some(ResultVerdict::Pass, |at| match at {
            6 => ResultVerdict::Append("more".into()),
            7 => ResultVerdict::Append("x".repeat(HOOK_TEXT + 1)),
            _ => ResultVerdict::Replace { content: vec![Content::text("other")], is_error: at == 8 },
        })
    }

    fn session_start<'a>(
        &'a self,
        _: SessionOrigin,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<StartVerdict, HookError>> {
        self.some(StartVerdict::Pass, |_| StartVerdict::Add("begun".into()))
    }

    fn before_run<'a>(
        &'a self,
        _: &'a RunStart,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        self.some(RunStartVerdict::Pass, |at| match at {
            6 | 7 => RunStartVerdict::beside("beside"),
            8 => RunStartVerdict::system("what a hook says"),
            _ => RunStartVerdict::system(["", "something else"][usize::from(self.guards)]),
        })
    }

    fn changes_requests(&self) -> bool {
        self.changes
    }

    fn before_request<'a>(
        &'a self,
        request: &'a ModelRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RequestVerdict, HookError>> {
        self.some(RequestVerdict::Pass, |at| {
            let mut messages = request.messages.to_vec();
            match at {
                6 | 7 => messages = vec![Arc::new(Message::user("in short", 1))],
                8 => messages.insert(0, Arc::new(Message::user("first of all", 1))),
                // No conversation.
                _ => messages.clear(),
            }
            RequestVerdict::Replace(messages)
        })
    }

    fn changes_payloads(&self) -> bool {
        self.changes
    }

    fn before_send<'a>(
        &'a self,
        payload: &'a Payload,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<SendVerdict, HookError>> {
        self.some(SendVerdict::Pass, |at| {
            let mut body = payload.body.value();
            body["mark"] = json!(self.roll());
            let name = if at == 9 { "host" } else { "x-mark" };
            SendVerdict::Change(PayloadChange {
                body: (at != 8).then(|| Json::from(&body)),
                set_headers: [(name.to_owned(), at.to_string())].into(),
                remove_headers: Vec::new(),
            })
        })
    }

    fn response<'a>(
        &'a self,
        _: &'a ResponseHead,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        self.some((), |_| ())
    }

    fn before_move<'a>(
        &'a self,
        _: &'a MoveRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<MoveVerdict, HookError>> {
        self.some(MoveVerdict::Pass, |_| MoveVerdict::Block { reason: "no".into() })
    }

    fn shell_line<'a>(
        &'a self,
        _: &'a ShellLine,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ShellVerdict, HookError>> {
        self.some(ShellVerdict::Pass, |at| match at {
            6 | 7 => ShellVerdict::Replace("echo other".into()),
            _ => ShellVerdict::Block { reason: "no".into() },
        })
    }

    fn before_compaction<'a>(
        &'a self,
        _: &'a CompactionRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        self.some(CompactionVerdict::Pass, |at| match at {
            6 | 7 => CompactionVerdict::Supply("in short".into()),
            _ => CompactionVerdict::Block { reason: "no".into() },
        })
    }

    fn message_end<'a>(
        &'a self,
        message: &'a AssistantMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<MessageVerdict, HookError>> {
        self.some(MessageVerdict::Pass, |at| {
            let mut content = message.content.clone();
            match at {
                6 => content.retain(|block| !matches!(block, Content::ToolCall(_))),
                7 => content.truncate(1),
                8 => content.clear(),
                _ => content.push(Content::Other(Json::object())),
            }
            MessageVerdict::Replace(content)
        })
    }

    fn turn_end<'a>(&'a self, _: u32, _: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        self.some((), |_| ())
    }

    fn run_end<'a>(
        &'a self,
        _: &'a RunEnd,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        self.some(RunEndVerdict::Pass, |_| RunEndVerdict::Continue { prompt: "go on".into() })
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Prompt(u8),
    Shell,
    Jump(u8),
    Compact,
    Crash(u8),
    Abort,
    /// The last call fails, and the session goes on.
    Fail,
    /// A source of tools has these, or fails.
    Tools(u8),
    /// A source of context has this, or fails.
    Notes(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        6 => any::<u8>().prop_map(Step::Prompt),
        1 => Just(Step::Shell),
        2 => any::<u8>().prop_map(Step::Jump),
        1 => Just(Step::Compact),
        2 => any::<u8>().prop_map(Step::Crash),
        1 => Just(Step::Abort),
        2 => Just(Step::Fail),
        2 => any::<u8>().prop_map(Step::Tools),
        2 => any::<u8>().prop_map(Step::Notes),
    ];
    prop::collection::vec(one, 1..10)
}

struct Stage {
    world: World,
    rests: Arc<Mutex<bool>>,
    bench: Arc<Bench>,
    notes: Arc<Notes>,
    seed: u64,
    /// Bodies that were sent and stand in no node any more: where the session went elsewhere.
    left: bool,
}

impl Stage {
    fn options(&mut self, with_hooks: bool) -> SessionOptions {
        self.seed = self.seed.wrapping_mul(31).wrapping_add(7);
        let mut hook = |name: &'static str, guards: bool| -> Arc<dyn Hook> {
            self.seed += 1;
            let (state, changes) = (AtomicU64::new(self.seed), !self.seed.is_multiple_of(3));
            Arc::new(Rolls { name, state, guards, changes, rests: self.rests.clone() })
        };
        let hooks = if with_hooks { vec![hook("one", false), hook("two", true)] } else { Vec::new() };
        let compaction = CompactionSettings { keep_recent_tokens: 40, ..CompactionSettings::default() };
        let tool_sources: Vec<Arc<dyn ToolSource>> = vec![self.bench.clone()];
        let context_sources: Vec<Arc<dyn ContextSource>> = vec![self.notes.clone()];
        SessionOptions { hooks, compaction, tool_sources, context_sources, ..self.world.options() }
    }

    async fn nodes(&self, live: &LiveSession) -> Vec<NodeId> {
        let Some(head) = self.world.store.head(&RefName::session(&live.id())).await.unwrap() else {
            return Vec::new();
        };
        let nodes = self.world.store.lineage(head, Until::Root).await.unwrap();
        let decoded = decode_nodes(&*self.world.store, &nodes).await.unwrap();
        let said = |entry: &Entry| matches!(entry, Entry::Message(Message::User(_) | Message::Assistant(_)));
        nodes.iter().zip(&decoded).filter(|(_, one)| said(&one.entry)).map(|(node, _)| node.id).collect()
    }

    async fn take(&mut self, live: LiveSession, step: Step) -> LiveSession {
        match step {
            Step::Prompt(choice) => {
                let echo = |n: usize| ("echo", json!({ "text": format!("t{n}") }));
                let replies: Vec<Reply> = match choice % 4 {
                    0 => vec![say("a")],
                    1 => vec![call(&[echo(1)]), say("b")],
                    2 => vec![call(&[echo(1), echo(2)]), call(&[echo(3)]), say("c")],
                    _ => vec![call(&[echo(1)]), call(&[("none", json!({}))]), say("d")],
                };
                self.world.fake.push(replies);
                drop(live.session.prompt(format!("say {}", "word ".repeat(20)).as_str()).await);
            }
            Step::Shell => {
                let ends = |event: &Event| matches!(event, Event::ShellEnded { .. });
                let before = live.events().iter().filter(|one| ends(&one.event)).count();
                let line = Command::Shell { line: "echo hi".into(), hidden: false };
                if let Ok(Ack::Started(_)) = live.session.send(line).await {
                    live.until(before + 1, ends).await;
                }
            }
            Step::Jump(which) => {
                let nodes = self.nodes(&live).await;
                if let Some(to) = nodes.get(usize::from(which) % nodes.len().max(1)) {
                    self.left = true;
                    drop(live.session.jump(*to, None, None).await);
                }
            }
            Step::Fail => {
                self.world.fake.push([Reply { error: Some(ModelErrorKind::Overloaded), ..say("") }]);
                drop(live.session.prompt("fail").await);
                rest(&live).await;
                self.world.fake.push([say("after all")]);
                drop(live.session.send(Command::Continue).await);
            }
            Step::Tools(choice) => self.bench.put(tools(choice)),
            Step::Notes(choice) => self.notes.put(context(choice)),
            Step::Compact => drop(live.session.compact(None).await),
            Step::Abort => {
                self.world.fake.push([call(&[("echo", json!({ "text": "x" }))])]);
                drop(live.session.prompt("stop me").await);
                drop(live.session.abort().await);
            }
            Step::Crash(wait) => {
                self.world.fake.push([call(&[("echo", json!({ "text": "x" }))]), say("e")]);
                drop(live.session.prompt("crash").await);
                for _ in 0..u32::from(wait) * 4 {
                    tokio::task::yield_now().await;
                }
                return self.crash(live).await;
            }
        }
        rest(&live).await;
        live
    }

    async fn crash(&mut self, live: LiveSession) -> LiveSession {
        let id = live.id();
        live.session.kill();
        live.ended().await;
        let options = self.options(true);
        match self.world.store.head(&RefName::session(&id)).await.unwrap() {
            Some(_) => LiveSession::of(self.world.engine.open(&id, options).await.unwrap().session).await,
            None => self.world.create_with(options).await,
        }
    }
}

/// Until nothing is under way.
async fn rest(live: &LiveSession) {
    while live.session.view().run.is_some() {
        tokio::task::yield_now().await;
    }
}

async fn play(steps: Vec<Step>, seed: u64) {
    let (bench, notes) = (Bench::new("bench", Vec::new()), Notes::new("notes", Context::default()));
    let (world, rests) = (World::new(), Arc::default());
    let mut stage = Stage { world, rests, bench, notes, seed, left: false };
    let options = stage.options(true);
    let mut live = stage.world.create_with(options).await;
    for step in steps {
        live = stage.take(live, step).await;
    }
    // What hooks left to be said at the start is said.
    *stage.rests.lock().unwrap() = true;
    stage.bench.put(tools(2));
    stage.notes.put(context(1));
    stage.world.fake.push([say("f")]);
    rest(&live).await;
    live.session.prompt("to begin with").await.unwrap();
    rest(&live).await;
    let head = live.session.view().head.unwrap();
    let before = stage.world.fake.bodies().len();
    live.session.prompt("on").await.unwrap();
    rest(&live).await;
    live.ended().await.finish().unwrap();
    // Before another session has nodes of this one, too.
    let recorded = crate::support::check_store(&stage.world.store).await;
    for body in stage.world.fake.bodies() {
        let id = ChunkId(Sha256::digest(&body).into());
        assert!(stage.left || recorded.contains(&id), "each call that was sent stands in a node");
        assert_eq!(stage.world.store.chunk(id, 0..u64::MAX).await.unwrap(), body, "to the byte");
    }
    let bodies = stage.world.fake.bodies();
    let options = stage.options(false);
    let resumed = LiveSession::of(stage.world.engine.fork(head, options).await.unwrap().session).await;
    resumed.session.prompt("on").await.unwrap();
    rest(&resumed).await;
    resumed.ended().await.finish().unwrap();
    let after = stage.world.fake.bodies();
    let (asked, again) = (&bodies[before], &after[bodies.len()]);
    let (mut live_messages, mut resumed_messages) = (messages_of(asked), messages_of(again));
    // Said at another time.
    for messages in [&mut live_messages, &mut resumed_messages] {
        assert!(matches!(messages.pop(), Some(Message::User(_))));
    }
    assert_eq!(live_messages, resumed_messages);
    let prefix = |body: &[u8]| {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        (body["system"].clone(), body["tools"].clone())
    };
    assert_eq!(prefix(asked), prefix(again));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn random_hooks_and_crashes_keep_the_laws(steps in steps(), seed in any::<u64>()) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), play(steps, seed)).await.unwrap();
        });
    }
}
