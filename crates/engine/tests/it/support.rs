//! A world for one test: a store in a file, an engine over it, a model that is told what to answer, and checks
//! that hold for every session whatever happened in it.

use quipu_store::Store as _;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::protocol::{
    AssistantMessage, Attempt, CallId, Content, Delta, Entry, Envelope, Event, Json, Message, Model,
    ModelError, ModelErrorKind, ModelRequest, Notice, Outcome, SessionId, StopReason, ToolCall,
    ToolResultMessage, ToolSpec, Usage,
};
use quipu::store::{Graph, LineageEnd, OpenOptions, SqliteStore, Upkeep, decode_nodes};
use quipu::{
    Call, CallEnd, CallEvent, Delivery, Engine, HeaderChanges, Invocation, OpenedSession, Provider,
    ResponseHead, Sealer, Session, SessionOptions, Tool, ToolContext, ToolOutput, Touches,
};
use quipu_testkit::events::EventLaws;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A point where something waits for the test. Clones are the same gate.
#[derive(Clone)]
pub(crate) struct Gate {
    open: Arc<watch::Sender<bool>>,
    reached: Arc<watch::Sender<u32>>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { open: Arc::new(watch::Sender::new(false)), reached: Arc::new(watch::Sender::new(0)) }
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) async fn reached(&self) {
        drop(self.reached.subscribe().wait_for(|count| *count > 0).await);
    }

    pub(crate) async fn pass(&self) {
        self.reached.send_modify(|count| *count += 1);
        drop(self.open.subscribe().wait_for(|open| *open).await);
    }
}

/// One answer of the model.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) thinking: Option<String>,
    /// Id, tool, arguments.
    pub(crate) calls: Vec<(String, String, Json)>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) cost: f64,
    /// Tokens of the request, as it claims.
    pub(crate) input: u64,
    pub(crate) error: Option<ModelErrorKind>,
    /// Times that the call fails before it is answered; half of them in the middle of the text.
    pub(crate) retries: u32,
    /// Passed before the first piece.
    pub(crate) before: Option<Gate>,
    /// Passed before the last piece of the text.
    pub(crate) amid: Option<Gate>,
    /// Pieces of the text.
    pub(crate) pieces: usize,
    pub(crate) panics: bool,
    /// No pieces are reported, only the end.
    pub(crate) silent: bool,
    pub(crate) unknown: Vec<Json>,
}

pub(crate) fn say(text: &str) -> Reply {
    Reply { text: text.into(), pieces: 3, ..Reply::default() }
}

/// Calls with ids `c1`, `c2`, ….
pub(crate) fn call(calls: &[(&str, serde_json::Value)]) -> Reply {
    let calls = calls
        .iter()
        .enumerate()
        .map(|(at, (name, args))| (format!("c{}", at + 1), (*name).to_owned(), Json::from(args)));
    Reply { text: "calling".into(), pieces: 1, calls: calls.collect(), ..Reply::default() }
}

/// A model that answers what it is told, one reply a call, then `done`.
#[derive(Default)]
pub(crate) struct Fake {
    replies: Mutex<VecDeque<Reply>>,
    /// The body of every call, in order.
    pub(crate) bodies: Mutex<Vec<Bytes>>,
    /// What every call changed of the headers, in order.
    pub(crate) headers: Mutex<Vec<HeaderChanges>>,
    /// The messages of the last call.
    messages: Mutex<Vec<Arc<Message>>>,
    /// How many messages of each call are the very ones of the call before it.
    pub(crate) shared: Mutex<Vec<usize>>,
    /// Pieces that were taken from it.
    pub(crate) pieces: watch::Sender<usize>,
    /// The time that its answers have, in milliseconds; where it is 0 they have the first one.
    pub(crate) answered_at: AtomicI64,
}

impl Fake {
    pub(crate) fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.replies.lock().unwrap().extend(replies);
    }

    pub(crate) fn bodies(&self) -> Vec<Bytes> {
        self.bodies.lock().unwrap().clone()
    }

    pub(crate) fn last_messages(&self) -> Vec<Message> {
        messages_of(self.bodies().last().expect("a call"))
    }

    async fn answer(&self, call: &Call, reply: &Reply, said: &Mutex<AssistantMessage>) {
        let started = || {
            let message = AssistantMessage {
                content: Vec::new(),
                stop_reason: StopReason::Pending,
                ..blank(&call.request)
            };
            CallEvent::Started(Box::new(message))
        };
        let send = async |event| {
            if !reply.silent {
                drop(call.events.send(event).await);
            }
            self.pieces.send_modify(|count| *count += 1);
        };
        for attempt in 0..reply.retries {
            if attempt % 2 == 0 {
                send(started()).await;
                send(CallEvent::Delta(Delta::TextStarted { index: 0 })).await;
            }
            let error = ModelError::new(ModelErrorKind::Overloaded, "overloaded");
            send(CallEvent::Retry { attempt: attempt + 2, delay: std::time::Duration::ZERO, error }).await;
        }
        if let Some(gate) = &reply.before {
            gate.pass().await;
        }
        send(started()).await;
        let mut index = 0;
        let mut begin = |block: Content| {
            said.lock().unwrap().content.push(block);
            index += 1;
            index - 1
        };
        if let Some(thinking) = &reply.thinking {
            let block = Content::Thinking(quipu::protocol::ThinkingContent {
                thinking: thinking.clone(),
                thinking_signature: Some("sig".into()),
                redacted: None,
            });
            let index = begin(block);
            send(CallEvent::Delta(Delta::ThinkingStarted { index })).await;
            send(CallEvent::Delta(Delta::Thinking { index, text: thinking.clone() })).await;
            send(CallEvent::Delta(Delta::ThinkingEnded { index })).await;
        }
        if !reply.text.is_empty() {
            let index = begin(Content::text(""));
            send(CallEvent::Delta(Delta::TextStarted { index })).await;
            let characters: Vec<char> = reply.text.chars().collect();
            let pieces: Vec<String> = characters
                .chunks(characters.len().div_ceil(reply.pieces.max(1)))
                .map(|piece| piece.iter().collect())
                .collect();
            for (at, piece) in pieces.iter().enumerate() {
                if let (Some(gate), true) = (&reply.amid, at + 1 == pieces.len()) {
                    gate.pass().await;
                }
                if let Some(Content::Text(text)) = said.lock().unwrap().content.last_mut() {
                    text.text.push_str(piece);
                }
                send(CallEvent::Delta(Delta::Text { index, text: piece.clone() })).await;
            }
            send(CallEvent::Delta(Delta::TextEnded { index })).await;
        }
        for (id, name, arguments) in &reply.calls {
            let id = CallId::from(id.as_str());
            let block = Content::ToolCall(ToolCall {
                id: id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                thought_signature: None,
                namespace: None,
            });
            let index = begin(block);
            send(CallEvent::Delta(Delta::ToolCallStarted { index, id, name: name.clone() })).await;
            send(CallEvent::Delta(Delta::ToolCallArguments { index, json: arguments.to_string() })).await;
            send(CallEvent::Delta(Delta::ToolCallEnded { index })).await;
        }
    }
}

impl Provider for Fake {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        quipu_transcript::check_conversation(&request.messages)
            .expect("what is sent is a valid conversation");
        let messages: Vec<&Message> = request.messages.iter().map(|message| &**message).collect();
        let body =
            serde_json::json!({ "system": &*request.system, "tools": &*request.tools, "messages": messages });
        Ok(body.to_string().into())
    }

    fn is_local(&self) -> bool {
        true
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            self.bodies.lock().unwrap().push(call.body.clone());
            self.headers.lock().unwrap().push(call.headers.clone());
            if let Some(responses) = &call.responses {
                let headers = vec![("x-request-id".to_owned(), "r1".to_owned())];
                drop(responses.try_send(ResponseHead { attempt: 1, status: 200, headers }));
            }
            let before =
                std::mem::replace(&mut *self.messages.lock().unwrap(), call.request.messages.to_vec());
            let pairs = before.iter().zip(&*call.request.messages);
            self.shared.lock().unwrap().push(pairs.filter(|(old, new)| Arc::ptr_eq(old, new)).count());
            let reply = self.replies.lock().unwrap().pop_front().unwrap_or_else(|| say("done"));
            assert!(!reply.panics, "a provider that breaks down");
            let said = Mutex::new(blank(&call.request));
            let stopped = tokio::select! {
                biased;
                () = call.cancel.cancelled() => true,
                () = self.answer(&call, &reply, &said) => false,
            };
            let kind = if stopped { Some(ModelErrorKind::Aborted) } else { reply.error };
            let mut message = said.into_inner().unwrap();
            message.usage.cost.total = reply.cost;
            message.usage.output = 1;
            message.usage.input = reply.input;
            message.timestamp = self.answered_at.load(Ordering::SeqCst).max(1);
            message.stop_reason = reply.stop.unwrap_or(match reply.calls.is_empty() {
                true => StopReason::Stop,
                false => StopReason::ToolUse,
            });
            let error = kind.map(|kind| ModelError::new(kind, format!("the call failed: {kind:?}")));
            let transient = Some(ModelErrorKind::Overloaded);
            let mut attempts: Vec<Attempt> = (0..reply.retries)
                .map(|_| Attempt { at: 1, error: transient, status: Some(529), credential: None })
                .collect();
            attempts.push(Attempt { at: 1, error: kind, status: Some(200), credential: None });
            CallEnd { message, error, attempts, charges: Vec::new(), unknown: reply.unknown }
        }
        .boxed()
    }
}

/// The same, as one on another machine.
pub(crate) struct FarProvider(pub(crate) Arc<Fake>);

impl Provider for FarProvider {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.0.encode(request)
    }

    fn is_local(&self) -> bool {
        false
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        self.0.send(call)
    }
}

fn blank(request: &ModelRequest) -> AssistantMessage {
    AssistantMessage {
        content: Vec::new(),
        api: request.model.api.clone(),
        provider: request.model.provider.clone(),
        model: request.model.id.clone(),
        usage: Usage::default(),
        stop_reason: StopReason::Stop,
        timestamp: 1,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    }
}

pub(crate) fn messages_of(body: &[u8]) -> Vec<Message> {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    serde_json::from_value(body["messages"].clone()).unwrap()
}

pub(crate) fn text_of(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text(),
        Message::Assistant(answer) => answer.text(),
        Message::ToolResult(result) => result_text(result),
        other => panic!("not in these tests: {other:?}"),
    }
}

pub(crate) fn result_text(result: &ToolResultMessage) -> String {
    result.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

type Work = dyn Fn(serde_json::Value, ToolContext) -> BoxFuture<'static, ToolOutput> + Send + Sync;

/// A tool made of a closure.
pub(crate) struct ClosureTool {
    spec: ToolSpec,
    touches: Touches,
    work: Box<Work>,
}

pub(crate) fn tool<F>(
    name: &str,
    work: impl Fn(serde_json::Value, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = ToolOutput> + Send + 'static,
{
    touching(name, Touches::Nothing, work)
}

pub(crate) fn touching<F>(
    name: &str,
    touches: Touches,
    work: impl Fn(serde_json::Value, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = ToolOutput> + Send + 'static,
{
    let parameters = Json::parse(r#"{"type":"object","properties":{"text":{"type":"string"}}}"#).unwrap();
    let spec = ToolSpec { name: name.into(), description: "For tests.".into(), parameters };
    Arc::new(ClosureTool { spec, touches, work: Box::new(move |args, cx| work(args, cx).boxed()) })
}

impl Tool for ClosureTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, _: &ToolContext) -> Touches {
        assert!(args["text"] != "break touches", "a tool that breaks down");
        self.touches.clone()
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> std::pin::Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        (self.work)(call.args.value(), cx.clone())
    }
}

/// Gives its text back.
pub(crate) fn echo() -> Arc<dyn Tool> {
    tool("echo", |args, _| async move { ToolOutput::text(args["text"].as_str().unwrap_or("nothing")) })
}

/// Waits at a gate, then gives its text back; aborted when the call is.
pub(crate) fn gated(name: &str, gate: &Gate) -> Arc<dyn Tool> {
    let gate = gate.clone();
    tool(name, move |args, cx| {
        let gate = gate.clone();
        async move {
            tokio::select! {
                () = gate.pass() => ToolOutput::text(args["text"].as_str().unwrap_or("nothing")),
                () = cx.cancel.cancelled() => ToolOutput::error("Operation aborted"),
            }
        }
    })
}

/// Store, engine, model and directory of one test.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) engine: Engine,
    pub(crate) fake: Arc<Fake>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
}

pub(crate) const KEY: [u8; 32] = [7; 32];

/// A directory in memory where there is one: these tests sync to disk tens of thousands of times.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn open_store(dir: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&dir.join("quipu.db"), &OpenOptions::default()).unwrap())
}

pub(crate) fn engine_over(store: Arc<dyn Graph>, dir: &Path) -> Engine {
    Engine::new(store, Arc::new(Sealer::new(KEY)), dir.join("spill"))
}

pub(crate) fn model() -> Arc<Model> {
    Arc::new(Model {
        id: "test-model".into(),
        api: "test".into(),
        provider: "test".into(),
        ..Model::default()
    })
}

impl World {
    pub(crate) fn new() -> Self {
        Self::in_dir(scratch())
    }

    pub(crate) fn in_dir(dir: tempfile::TempDir) -> Self {
        let store = open_store(dir.path());
        let engine = engine_over(store.clone(), dir.path());
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        Self { store, engine, fake: Arc::default(), tools: vec![echo()], dir }
    }

    pub(crate) fn with(replies: impl IntoIterator<Item = Reply>) -> Self {
        let world = Self::new();
        world.fake.push(replies);
        world
    }

    pub(crate) fn cwd(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    pub(crate) fn options(&self) -> SessionOptions {
        SessionOptions {
            tools: self.tools.clone(),
            system: Some("You are tested.".into()),
            ..SessionOptions::new(self.cwd(), model(), self.fake.clone())
        }
    }

    pub(crate) async fn create(&self) -> LiveSession {
        self.create_with(self.options()).await
    }

    pub(crate) async fn create_with(&self, options: SessionOptions) -> LiveSession {
        LiveSession::of(self.engine.create(options).await.unwrap()).await
    }

    pub(crate) async fn open(&self, id: &SessionId) -> (LiveSession, Vec<Notice>) {
        let OpenedSession { session, notices } = self.engine.open(id, self.options()).await.unwrap();
        (LiveSession::of(session).await, notices)
    }

    /// The same store, as another process would open it: nothing of the old engine is left.
    pub(crate) fn reopen(self) -> Self {
        let Self { dir, store, engine, fake, tools } = self;
        drop((store, engine));
        let mut world = Self::in_dir(dir);
        (world.fake, world.tools) = (fake, tools);
        world
    }

    /// What must hold of every store after every test: see [`check_store`]. Also each body that was sent is
    /// recorded, before and after the store is opened again.
    pub(crate) async fn check(self) -> Self {
        let recorded = check_store(&self.store).await;
        let world = self.reopen();
        assert_eq!(check_store(&world.store).await, recorded);
        for body in world.fake.bodies() {
            let id = quipu::protocol::ChunkId(Sha256::digest(&body).into());
            assert!(recorded.contains(&id), "each call that was sent stands in a node");
            assert_eq!(world.store.chunk(id, 0..u64::MAX).await.unwrap(), body, "a body is kept to the byte");
        }
        world
    }
}

/// Every session of a store is a valid conversation, each recorded call has its body, a body extends the one
/// before it as long as the prefix is the same, and the store is sound. Gives the recorded bodies.
pub(crate) async fn check_store(store: &SqliteStore) -> HashSet<quipu::protocol::ChunkId> {
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, [], "the store is sound");
    let mut recorded = HashSet::new();
    for head in store.heads("quipu/").await.unwrap() {
        let nodes = store.lineage(head.node, LineageEnd::Root).await.unwrap();
        let decoded = decode_nodes(store, &nodes).await.unwrap();
        let conversation = quipu_transcript::project(decoded.iter().map(|one| &one.entry));
        quipu_transcript::check_conversation(&conversation).unwrap();
        let mut before: Vec<serde_json::Value> = Vec::new();
        let mut opening = None;
        let mut parents = HashMap::new();
        for (node, one) in nodes.iter().zip(&decoded) {
            parents.insert(node.id, node.record.parent);
            // Where the context becomes another.
            match &one.entry {
                Entry::Compaction(_) => before.clear(),
                Entry::Meta(json) if quipu_transcript::Prune::of_entry(json).is_some() => before.clear(),
                Entry::Session(quipu::protocol::SessionStart { epoch, .. }) | Entry::Epoch(epoch) => {
                    let now = epoch.context.as_ref().and_then(|context| context.opening.as_ref());
                    let now = now.map(|opening| (opening.text.clone(), opening.boundary.clone()));
                    if std::mem::replace(&mut opening, now.clone()) != now {
                        before.clear();
                    }
                }
                _ => {}
            }
            if let Some(earlier) = one.step.extra.get("earlierCalls") {
                let earlier: Vec<quipu::protocol::CallRecord> = earlier.read().unwrap();
                recorded.extend(earlier.iter().map(|call| call.body));
            }
            let Some(call) = &one.step.call else { continue };
            let body = store.chunk(call.body, 0..u64::MAX).await.unwrap();
            assert_eq!(
                (Sha256::digest(&body)[..] == call.body.0, body.len() as u64),
                (true, call.body_bytes)
            );
            // A branch is summed up for a lineage that it is not part of.
            let of_branch =
                matches!(&one.entry, Entry::Meta(json) if json.get().contains("\"branch_summary\""));
            assert!(
                of_branch || parents.contains_key(&call.head),
                "the head that was sent is on the lineage"
            );
            assert!(
                recorded.insert(call.body)
                    || call.attempts.is_empty()
                    || matches!(&one.entry, Entry::Message(_))
            );
            // Only the bodies of these tests' own wire are read.
            let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let compacts = matches!(&one.entry, Entry::Compaction(_) | Entry::Meta(_));
            if parsed.get("max_tokens").is_none() && !compacts && call.before_hooks.is_none() {
                let messages = parsed["messages"].as_array().unwrap().clone();
                assert!(messages.starts_with(&before), "a body extends the one before it");
                before = messages;
            }
        }
    }
    recorded
}

/// A session at work, with everything that it said.
pub(crate) struct LiveSession {
    pub(crate) session: Arc<Session>,
    log: watch::Receiver<Vec<Arc<Envelope>>>,
    reader: JoinHandle<EventLaws>,
}

impl LiveSession {
    pub(crate) async fn of(session: Session) -> Self {
        let (_, mut events) = session.subscribe(Delivery::Lossless).await.unwrap();
        let (tx, log) = watch::channel(Vec::new());
        let reader = tokio::spawn(async move {
            let mut laws = EventLaws::default();
            let mut seq = None;
            while let Some(envelope) = events.next().await {
                assert!(seq.is_none_or(|seq| envelope.seq == seq + 1), "no event is missing");
                seq = Some(envelope.seq);
                if let Err(law) = laws.take(&envelope.event) {
                    panic!("{law}");
                }
                tx.send_modify(|log: &mut Vec<_>| log.push(envelope));
            }
            laws
        });
        Self { session: Arc::new(session), log, reader }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.session.view().session
    }

    pub(crate) fn events(&self) -> Vec<Arc<Envelope>> {
        self.log.borrow().clone()
    }

    /// Waits until this many events fit.
    pub(crate) async fn until(&self, count: usize, fits: impl Fn(&Event) -> bool) {
        let mut log = self.log.clone();
        let found = log.wait_for(|log| log.iter().filter(|one| fits(&one.event)).count() >= count).await;
        assert!(found.is_ok(), "the session ended before that event");
    }

    pub(crate) async fn settled(&self, times: usize) {
        self.until(times, |event| matches!(event, Event::Settled)).await;
    }

    /// Prompts and waits until everything settled; gives the outcome.
    pub(crate) async fn run(&self, text: &str) -> Outcome {
        let before = self.outcomes().len();
        self.session.prompt(text).await.unwrap();
        // What settled before may be told only now.
        self.until(before + 1, |event| matches!(event, Event::RunEnded { .. })).await;
        let mut log = self.log.clone();
        let is_settled = |events: &Vec<Arc<Envelope>>| {
            let last = |fits: fn(&Event) -> bool| events.iter().rposition(|one| fits(&one.event));
            last(|event| matches!(event, Event::RunEnded { .. }))
                < last(|event| matches!(event, Event::Settled))
        };
        let found = log.wait_for(is_settled).await;
        assert!(found.is_ok(), "the session ended before it settled");
        self.outcomes().pop().unwrap()
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.all(|event| match event {
            Event::RunEnded { outcome } => Some(outcome.clone()),
            _ => None,
        })
    }

    pub(crate) fn all<T>(&self, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.events().iter().filter_map(|one| pick(&one.event)).collect()
    }

    /// The results that were reported, in the order of their nodes: call, text, whether an error.
    pub(crate) fn results(&self) -> Vec<(String, String, bool)> {
        self.all(|event| match event {
            Event::MessageEnded { message, .. } => match &**message {
                Message::ToolResult(result) => {
                    Some((result.tool_call_id.to_string(), result_text(result), result.is_error))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// The messages that ended, as `role: text`.
    pub(crate) fn said(&self) -> Vec<String> {
        self.all(|event| match event {
            Event::MessageEnded { message, .. } => {
                Some(format!("{}: {}", message.role().unwrap(), text_of(message)))
            }
            _ => None,
        })
    }

    /// Ends the session, also one that was killed; gives what its events say of the laws, which they kept.
    pub(crate) async fn ended(self) -> EventLaws {
        let Self { session, reader, .. } = self;
        session.shutdown().await;
        drop(session);
        reader.await.unwrap()
    }

    /// Ends the session; its events kept every law.
    pub(crate) async fn finish(self) -> Vec<Arc<Envelope>> {
        let Self { session, log, reader } = self;
        let session = Arc::try_unwrap(session).expect("nobody else has the session");
        session.shutdown().await;
        let laws = reader.await.unwrap();
        laws.finish().unwrap();
        let events = log.borrow().clone();
        let told = events.iter().rfind(|one| !matches!(one.event, Event::Appended { .. }));
        assert!(
            matches!(told.map(|one| &one.event), None | Some(Event::Settled)),
            "settled is the last word"
        );
        events
    }
}
