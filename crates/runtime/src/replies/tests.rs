use std::collections::{BTreeMap, BTreeSet, VecDeque as Queue};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use quipu::protocol::{Message, Outcome};
use quipu::store::Upkeep as _;
use quipu_host::{Home, OpenRequest};
use quipu_outbound::{Acknowledgement, BreakPreference, ChunkOptions, MediaCheck, SinkFuture, StreamOutput};
use quipu_testkit::{Answer, Gate, Reply, accepted_until_killed};
use tokio::sync::watch;

use super::flow::FlowWorld;
use super::*;
use crate::host_sessions::{HostSessionLimits, HostSessions};
use crate::lanes::{LaneSettings, Lanes};
use crate::queue::{BusyMode, DropRule, InboxError, MessageInbox, QueuePolicy};
use crate::run::{Acceptance, Conversations, RunEvent, RunRequest};
use crate::testing::{self, World, gated, request, says};

/// Each paragraph is a chunk.
const PARAGRAPHS: ChunkOptions =
    ChunkOptions { min: 1, max: 200, preference: BreakPreference::Paragraph, flush_on_paragraph: true };

/// A chat that can fail.
pub(super) struct Chat {
    pub(super) taken: watch::Sender<Vec<(String, u32, String)>>,
    faults: Mutex<Queue<SinkError>>,
    chunks: ChunkOptions,
    timing: ReplyTiming,
}

impl Chat {
    fn new(faults: impl IntoIterator<Item = SinkError>) -> Arc<Self> {
        let faults = Mutex::new(faults.into_iter().collect());
        let (chunks, timing) = (ChunkOptions::default(), ReplyTiming::Whole);
        Arc::new(Self { taken: watch::Sender::default(), faults, chunks, timing })
    }

    /// One that is sent each paragraph as it arrives.
    pub(super) fn streamed() -> Arc<Self> {
        let faults = Mutex::default();
        Arc::new(Self {
            taken: watch::Sender::default(),
            faults,
            chunks: PARAGRAPHS,
            timing: ReplyTiming::Streamed,
        })
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.taken.borrow().iter().map(|(_, _, text)| text.clone()).collect()
    }
}

impl MessageSink for Chat {
    fn offer(&self, offer: Offer) -> SinkFuture<'_> {
        let taken = (offer.key.to_string(), offer.part, offer.block.text);
        self.taken.send_modify(|all| all.push(taken));
        let fault = lock(&self.faults).pop_front();
        Box::pin(async move { fault.map_or(Ok(Acknowledgement::default()), Err) })
    }
}

struct Routes(Arc<Chat>);

impl ReplyRoutes for Routes {
    fn route(&self, _: &SessionKey, route: &Route) -> Option<ReplyRoute> {
        assert_eq!(route.channel, "irc");
        let options = StreamOptions { chunks: self.0.chunks, ..StreamOptions::default() };
        Some(ReplyRoute { timing: self.0.timing, ..ReplyRoute::new(self.0.clone(), options) })
    }

    fn sent(&self, tool: &str, _: &Json) -> Option<SentMessage> {
        let text = "There are two files here.".to_owned();
        (tool == "read").then(|| SentMessage { text, ..SentMessage::default() })
    }
}

pub(super) async fn replies(world: &World, chat: &Arc<Chat>) -> Replies {
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    Replies::open(store, Arc::new(Routes(chat.clone()))).await.unwrap()
}

pub(super) async fn rows(world: &World) -> usize {
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    store.pending(&REPLY_OUTBOX.into()).await.unwrap().inbox.len()
}

fn unavailable() -> SinkError {
    SinkError::Unavailable { reason: "no answer".to_owned(), retry_after: None }
}

#[tokio::test]
async fn answers_are_delivered_in_order_and_leave_the_store() {
    let long = "A sentence of this text. ".repeat(100);
    let called = Answer::new().text("Wait a moment.").tool_call("c", "read", "{}").reply();
    let world = World::new([called, says(&long), says("NO_REPLY"), says("last")]);
    let chat = Chat::new([]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            for text in ["one", "two", "three"] {
                let message = request("agent:main:main", text, BusyMode::Followup);
                conversations.run(message).await.unwrap();
            }
            kept.idle().await;
        })
        .await;
    let taken = chat.taken.borrow().clone();
    let texts = chat.texts();
    assert_eq!((texts.first().unwrap().as_str(), texts.last().unwrap().as_str()), ("Wait a moment.", "last"));
    let middle = &texts[1..texts.len() - 1];
    assert!(middle.len() > 1, "{middle:?}");
    assert_eq!(middle.join(" "), long.trim_end());
    let names: BTreeSet<_> = taken.iter().map(|(key, part, _)| (key, part)).collect();
    assert_eq!(names.len(), taken.len());
    assert_eq!(rows(&world).await, 0);
    assert_eq!(world.home.store().await.unwrap().check().await.unwrap().problems, []);
}

#[tokio::test]
async fn answer_that_a_tool_sent_is_dropped() {
    let called = Answer::new().tool_call("c", "read", r#"{"path":"note"}"#).reply();
    let world = World::new([called, says("There are two files here."), says("something else")]);
    std::fs::write(world.here().join("note"), "a note").unwrap();
    let chat = Chat::new([]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            for text in ["one", "two"] {
                let message = request("agent:main:main", text, BusyMode::Followup);
                conversations.run(message).await.unwrap();
            }
            kept.idle().await;
        })
        .await;
    assert_eq!(chat.texts(), ["something else"]);
}

#[tokio::test]
async fn lost_acknowledgement_offers_the_same_key_again() {
    let world = World::new([says("one"), says("two")]);
    let refused = SinkError::Refused { reason: "too rude".to_owned() };
    let chat = Chat::new([unavailable(), refused]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            for text in ["one", "two"] {
                let message = request("agent:main:main", text, BusyMode::Followup);
                conversations.run(message).await.unwrap();
            }
            kept.idle().await;
            let refused = kept.take_refused();
            assert_eq!((refused.len(), &*refused[0].reason), (1, "too rude"));
        })
        .await;
    let taken = chat.taken.borrow().clone();
    assert_eq!(chat.texts(), ["one", "one", "two"]);
    assert_eq!((&taken[0].0, taken[0].1), (&taken[1].0, taken[1].1));
    assert_ne!(taken[1].0, taken[2].0);
    assert_eq!(rows(&world).await, 0);
}

#[tokio::test]
async fn undelivered_replies_are_offered_by_the_next_process() {
    let world = World::new([says("one")]);
    let silent = Chat::new(std::iter::repeat_n(unavailable(), 9));
    let first = replies(&world, &silent).await;
    world
        .serve_replies(&first, |conversations| async move {
            let message = request("agent:main:main", "hello", BusyMode::Followup);
            conversations.run(message).await.unwrap();
        })
        .await;
    assert_eq!(rows(&world).await, 1);
    let chat = Chat::new([]);
    let second = replies(&world, &chat).await;
    assert_eq!(second.len(), 1);
    let kept = second.clone();
    world.serve_replies(&second, |_| async move { kept.idle().await }).await;
    assert_eq!(chat.texts(), ["one"]);
    assert!(
        silent
            .taken
            .borrow()
            .iter()
            .chain(&*chat.taken.borrow())
            .all(|(key, _, _)| key == &chat.taken.borrow()[0].0)
    );
    assert_eq!(rows(&world).await, 0);
}

/// A process ended while a run was asking its model: the prompt is part of the session, and no answer. The next requests have these.
async fn ended_before_the_answer(answers: impl IntoIterator<Item = Reply>) -> (World, Arc<Chat>) {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "never")].into_iter().chain(answers));
    let chat = Chat::new([]);
    let first = replies(&world, &chat).await;
    world
        .serve_replies(&first, |conversations| async move {
            let message = request("agent:main:main", "hello", BusyMode::Followup);
            let run = conversations.start(message).await.unwrap();
            gate.reached().await;
            // Its session is closed.
            drop(run);
        })
        .await;
    assert_eq!((rows(&world).await, chat.texts().len()), (1, 0));
    (world, chat)
}

#[tokio::test]
async fn run_of_an_ended_process_is_continued_and_answered() {
    let (world, chat) = ended_before_the_answer([says("the answer")]).await;
    let second = replies(&world, &chat).await;
    let kept = second.clone();
    world.serve_replies(&second, |_| async move { kept.idle().await }).await;
    assert_eq!(chat.texts(), ["the answer"]);
    assert_eq!(rows(&world).await, 0);
}

fn interrupting() -> RunRequest {
    request("agent:main:main", "stop that and do this", BusyMode::Interrupt)
}

/// Puts a message where the next process finds it.
async fn queue(world: &World, request: RunRequest) {
    let RunRequest { key, message, policy } = request;
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    let sealer = Arc::new(quipu::Sealer::new([7; 32]));
    let put: Result<_, InboxError> =
        MessageInbox::with(store, sealer, |inbox, _| async move { inbox.put(&key, message, policy).await })
            .await;
    put.unwrap().unwrap();
}

/// A process queued the message, and ended before it had aborted what ran.
#[tokio::test]
async fn message_that_interrupts_ends_a_run_also_behind_a_crash() {
    for (sender, expected) in [("anna", &["new"][..]), ("bob", &["old", "new"][..])] {
        let answers = expected.iter().map(|text| says(text)).collect::<Vec<_>>();
        let (world, chat) = ended_before_the_answer(answers).await;
        let mut message = interrupting();
        message.message.authority.sender = Some(sender.to_owned());
        message.message.authority.is_owner = sender == "anna";
        queue(&world, message).await;
        let second = replies(&world, &chat).await;
        let kept = second.clone();
        let texts = world
            .serve_replies(&second, |conversations| async move {
                let (_, run) = conversations.continued().await.pop().unwrap();
                let outcome = run.outcome().await.unwrap().outcome.clone();
                assert_eq!(outcome == Outcome::Aborted, sender == "anna", "{outcome:?}");
                let mut taken = chat.taken.subscribe();
                drop(taken.wait_for(|taken| taken.len() == expected.len()).await.unwrap());
                kept.idle().await;
                chat.texts()
            })
            .await;
        assert_eq!(texts, expected);
        assert_eq!(world.server.requests().len(), 1 + expected.len());
        assert_eq!(rows(&world).await, 0);
    }
}

/// The process of the run ended behind its answer, and before that was stored as a reply.
#[tokio::test]
async fn message_that_interrupts_drops_no_finished_answer() {
    let (world, chat) = (World::new([says("old"), says("new")]), Chat::new([]));
    let message = request("agent:main:main", "hello", BusyMode::Followup);
    let key = message.key.clone();
    let (route, authority) = (message.message.route.clone(), message.message.authority.clone());
    let (id, session) = world
        .serve(None, 0, |conversations, _| async move {
            let run = conversations.start(message).await.unwrap();
            (run.id.clone(), run.outcome().await.unwrap().session.clone())
        })
        .await;
    let turn = format!("turn-{id}").into();
    let owed = OwedReply { authority, members: vec![id], ..OwedReply::new(turn, session, route) };
    replies(&world, &chat).await.put_owed(&key, owed, Vec::new()).await.unwrap();
    queue(&world, interrupting()).await;
    let second = replies(&world, &chat).await;
    world
        .serve_replies(&second, |conversations| async move {
            let (_, run) = conversations.continued().await.pop().unwrap();
            assert_eq!(run.outcome().await.unwrap().outcome, Outcome::Done);
            let mut taken = chat.taken.subscribe();
            let taken = taken.wait_for(|taken| taken.len() == 2).await.unwrap();
            assert_eq!((taken[0].2.as_str(), taken[1].2.as_str()), ("old", "new"));
        })
        .await;
}

#[tokio::test]
async fn message_that_interrupts_aborts_a_continued_run() {
    let gate = Gate::new();
    let (world, chat) = ended_before_the_answer([gated(&gate, "old"), says("new")]).await;
    let second = replies(&world, &chat).await;
    let kept = second.clone();
    world
        .serve_replies(&second, |conversations| async move {
            let (_, run) = conversations.continued().await.pop().unwrap();
            gate.reached().await;
            let new = conversations.start(interrupting()).await.unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(60), run.outcome()).await;
            assert_eq!(ended.expect("it is aborted").unwrap().outcome, Outcome::Aborted);
            assert_eq!(new.outcome().await.unwrap().outcome, Outcome::Done);
            kept.idle().await;
        })
        .await;
    assert_eq!(chat.texts(), ["new"]);
    assert_eq!(rows(&world).await, 0);
}

#[tokio::test]
async fn run_that_could_not_be_continued_is_tried_again() {
    let (world, chat) = ended_before_the_answer([says("the answer")]).await;
    let second = replies(&world, &chat).await;
    let of = second.clone();
    let with_replies = move |all: Conversations| all.with_replies(of);
    world
        .serve_with(None, 1, with_replies, |conversations, _| async move {
            let (_, mut run) = conversations.continued().await.pop().unwrap();
            let Some(RunEvent::Failing(why)) = run.next().await else { panic!("it began at once") };
            assert_eq!(why, "the session is not there today");
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(10)).await;
            tokio::time::resume();
            assert_eq!(run.outcome().await.unwrap().outcome, Outcome::Done);
            second.idle().await;
        })
        .await;
    assert_eq!(chat.texts(), ["the answer"]);
    assert_eq!(rows(&world).await, 0);
}

#[tokio::test]
async fn stop_word_aborts_the_run_and_owes_nothing() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "never")]);
    let chat = Chat::new([]);
    let replies = replies(&world, &chat).await;
    let kept = replies.clone();
    world
        .serve_replies(&replies, |conversations| async move {
            let message = |text| request("agent:main:main", text, BusyMode::Followup);
            let first = conversations.start(message("first")).await.unwrap();
            gate.reached().await;
            let second = conversations.start(message("second")).await.unwrap();
            let stopped = conversations.accept(message(" /Stop! ")).await.unwrap();
            assert!(matches!(stopped, Acceptance::Stopped));
            assert_eq!(first.outcome().await.unwrap().outcome, quipu::protocol::Outcome::Aborted);
            let dropped = crate::run::RunError::Dropped(crate::queue::DropReason::Stopped);
            assert_eq!(second.outcome().await, Err(dropped));
            kept.idle().await;
        })
        .await;
    assert_eq!((rows(&world).await, chat.texts().len()), (0, 0));
}

const ROLE: &str = "QUIPU_REPLIES_CHILD";
const TIMING: &str = "QUIPU_REPLIES_STREAMED";
const CHATS: [&str; 3] = ["agent:main:direct:a", "agent:main:direct:b", "agent:main:irc:group:g"];

/// A model that says again what was said since it spoke last.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // One that was broken off is asked again.
            std::thread::spawn(move || drop(answer(connection)));
        }
    });
    url
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let header = line.trim().to_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if header.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let Ok(asked) = serde_json::from_slice::<serde_json::Value>(&body) else {
        return connection
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    let said = asked["messages"].as_array().unwrap();
    let new: Vec<String> =
        said.iter().rev().take_while(|one| one["role"] == "user").map(ToString::to_string).collect();
    let new = new.join(" ");
    let mut numbers: Vec<&str> =
        new.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.starts_with("say")).collect();
    numbers.sort_unstable();
    let body = Answer::new().text(&numbers.join("\n\n")).stream();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    connection.write_all(head.as_bytes())?;
    let (one, other) = body.as_bytes().split_at(body.len() / 2);
    connection.write_all(one)?;
    connection.write_all(other)
}

/// Writes what it takes to a file, as other processes can see it.
struct FileChat(PathBuf);

impl MessageSink for FileChat {
    fn offer(&self, offer: Offer) -> SinkFuture<'_> {
        let text = offer.block.text.replace('\n', " ");
        let line = format!("{}\t{}\t{text}\n", offer.key, offer.part);
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
        file.write_all(line.as_bytes()).unwrap();
        Box::pin(async move {
            // The process may end here as well.
            tokio::task::yield_now().await;
            Ok(Acknowledgement::default())
        })
    }
}

struct FileRoutes(PathBuf, ReplyTiming);

impl ReplyRoutes for FileRoutes {
    fn route(&self, _: &SessionKey, _: &Route) -> Option<ReplyRoute> {
        let options = StreamOptions { chunks: PARAGRAPHS, ..StreamOptions::default() };
        Some(ReplyRoute { timing: self.1, ..ReplyRoute::new(Arc::new(FileChat(self.0.clone())), options) })
    }
}

fn numbered(n: u32) -> RunRequest {
    let mode = [BusyMode::Followup, BusyMode::Steer][n as usize % 2];
    let mut request = request(CHATS[n as usize % 3], &format!("say{n}"), mode);
    request.message.message_id = Some(n.to_string());
    request.policy = QueuePolicy { drop: DropRule::New, ..request.policy };
    request
}

/// Does something with conversations in a directory, whose replies go to a file.
async fn with_files<T, F: Future<Output = T>>(
    dir: &Path,
    url: &str,
    timing: ReplyTiming,
    work: impl FnOnce(Conversations, Replies) -> F,
) -> T {
    let home: Home = testing::home(dir, url);
    let here = dir.canonicalize().unwrap().join("work");
    let store: Arc<dyn Graph> = home.store().await.unwrap();
    let open = move |_: &SessionKey| OpenRequest { here: here.clone(), ..OpenRequest::default() };
    let sessions = HostSessions::new(home, HostSessionLimits::default(), Arc::new(open)).await.unwrap();
    let sessions = Arc::new(sessions);
    let sealer = Arc::new(quipu::Sealer::new([7; 32]));
    let (of, file) = (store.clone(), dir.join("chat"));
    let all = sessions.clone();
    let done: Result<T, InboxError> = MessageInbox::with(store, sealer, |inbox, mut events| async move {
        let replies = Replies::open(of, Arc::new(FileRoutes(file, timing))).await.unwrap();
        let lanes = Lanes::new(LaneSettings::default());
        let conversations = Conversations::new(inbox, lanes, sessions, None).with_replies(replies.clone());
        let work = work(conversations.clone(), replies);
        tokio::select! {
            served = conversations.serve(&mut events) => panic!("{served:?}"),
            done = work => Ok(done),
        }
    })
    .await;
    all.close().await;
    done.unwrap()
}

/// Not a test: the child's part. Accepts messages and answers them until it is killed, and says what it accepted.
#[tokio::test]
async fn child() {
    let Ok(first) = std::env::var(ROLE) else { return };
    let first: u32 = first.parse().unwrap();
    let (dir, url) =
        (std::env::var("QUIPU_REPLIES_DIR").unwrap(), std::env::var("QUIPU_REPLIES_URL").unwrap());
    let timing = std::env::var(TIMING).map_or(ReplyTiming::Whole, |_| ReplyTiming::Streamed);
    // The test harness has begun a line.
    println!();
    with_files(Path::new(&dir), &url, timing, |conversations, _| async move {
        let mut runs = Queue::new();
        for n in first.. {
            if let Ok(run) = conversations.start(numbered(n)).await {
                let mut out = std::io::stdout().lock();
                writeln!(out, "accepted {n}").unwrap();
                out.flush().unwrap();
                runs.push_back(run);
            }
            if runs.len() > 5 {
                runs.pop_front().unwrap().outcome().await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_loses_no_reply_and_sends_none_under_two_keys() {
    processes_are_killed(ReplyTiming::Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_loses_nothing_of_a_streamed_reply() {
    processes_are_killed(ReplyTiming::Streamed).await;
}

async fn processes_are_killed(timing: ReplyTiming) {
    let rounds = match ["QUIPU_FULL", "CI"].map(|name| std::env::var_os(name).is_some()) {
        [true, _] => 1_000,
        [false, true] => 20,
        [false, false] => 6,
    };
    let dir = tempfile::tempdir().unwrap();
    let url = echo();
    let mut accepted = Vec::new();
    for round in 0..rounds {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program
            .args(["--exact", "replies::tests::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, (round * 100_000).to_string())
            .env("QUIPU_REPLIES_DIR", dir.path())
            .env("QUIPU_REPLIES_URL", &url);
        if timing == ReplyTiming::Streamed {
            program.env(TIMING, "1");
        }
        accepted.extend(accepted_until_killed(&mut program, 1 + round * 7919 % 31));
    }
    with_files(dir.path(), &url, timing, |conversations, replies| async move {
        for n in 0..3 {
            conversations.run(numbered(4_000_000_000 + n)).await.unwrap();
        }
        replies.idle().await;
    })
    .await;
    let file = std::fs::read_to_string(dir.path().join("chat")).unwrap();
    let (mut keys, mut texts) = (BTreeMap::<u32, BTreeSet<&str>>::new(), BTreeMap::new());
    for line in file.lines() {
        let [key, part, text] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(*texts.entry((key, part)).or_insert(text), text, "{key} {part} says one thing");
        for word in text.split_whitespace() {
            keys.entry(word.strip_prefix("say").unwrap().parse().unwrap()).or_default().insert(key);
        }
    }
    let twice: Vec<_> = keys.iter().filter(|(_, keys)| keys.len() != 1).collect();
    assert!(twice.is_empty(), "under two keys: {twice:?}");
    let lost: Vec<_> = accepted.iter().filter(|n| !keys.contains_key(n)).collect();
    assert_eq!(lost, [] as [&u32; 0], "lost");
    println!("{} accepted, {} replies", accepted.len(), texts.len());
}

fn answer_with(content: &serde_json::Value) -> Message {
    let answer = serde_json::json!({
        "role": "assistant", "content": content, "timestamp": 1, "api": "x", "provider": "x", "model": "x",
        "stopReason": "stop",
        "usage": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
            "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 } },
    });
    serde_json::from_value(answer).unwrap()
}

/// An answer that says this.
pub(super) fn answer_of(text: &str) -> Message {
    answer_with(&serde_json::json!([{ "type": "text", "text": text }]))
}

/// An answer that calls the tool `message` with this text, as the call `c`.
pub(super) fn call_of(text: &str) -> Message {
    let arguments = serde_json::json!({ "text": text });
    let call =
        serde_json::json!({ "type": "toolCall", "id": "c", "name": "message", "arguments": arguments });
    answer_with(&serde_json::json!([call]))
}

/// What comes back for the call of [`call_of`], which has nothing to say.
pub(super) fn result_of_call(is_error: bool) -> Message {
    let result = serde_json::json!({
        "role": "toolResult", "toolCallId": "c", "toolName": "message", "content": [], "isError": is_error, "timestamp": 1,
    });
    serde_json::from_value(result).unwrap()
}

#[tokio::test]
async fn message_of_an_interrupted_call_counts_as_sent() {
    let (says, calls, interrupted) = (answer_of, call_of, result_of_call(true));
    let (world, chat) = (World::new([]), Chat::new([]));
    let first = replies(&world, &chat).await;
    let key = SessionKey::parse("agent:main:main").unwrap();
    let route = Route { channel: "irc".into(), ..Route::default() };
    let owed = OwedReply::new("turn".into(), "s".into(), route);
    first.put_owed(&key, owed, Vec::new()).await.unwrap();
    let posted = |run: &str, text: &str| PostedMessage {
        call: (run.into(), "c".into()),
        text: text.to_owned(),
        media: Vec::new(),
        names: Vec::new(),
        to: None,
    };
    let (report, other) = ("The report is on its way.", "Something else happened.");
    let sent = first.post_of_tool(&key, posted("one", report), MediaCheck::no_files()).await.unwrap();
    assert_eq!(sent, ToolPost::Sent { parts: 1 });
    drop(first);
    let second = replies(&world, &chat).await;
    let said = |messages: &[Message]| {
        let mut flow =
            ReplyFlow::of(&second, &key, &second.owed(&key).unwrap(), MediaCheck::no_files()).unwrap();
        let (seal, progress) = (|text: &str| text.to_owned(), |_: &ReplyKey| None);
        let flowing = FlowWorld { routes: &*second.0.routes, progress: &progress, seal: &seal, at: 0 };
        let outputs = messages.iter().flat_map(|one| flow.said(one, &flowing));
        outputs.filter(|output| matches!(output, StreamOutput::Block { .. })).count()
    };
    assert_eq!(said(&[calls(report), interrupted.clone(), says(report)]), 0);
    // Of a call that did not get so far, nothing was sent.
    assert_eq!(said(&[calls(other), interrupted.clone(), says(other)]), 1);
    assert_eq!(said(&[calls(report), interrupted, calls(other), says(other)]), 1);
    // Another run of the turn in one process, as a message that was handed over has, may say the same again.
    let same = second.post_of_tool(&key, posted("beside", report), MediaCheck::no_files()).await.unwrap();
    assert_eq!(same, ToolPost::Sent { parts: 1 });
    assert!(second.continues(&key, &"turn".into()).await.unwrap());
    let again = second.post_of_tool(&key, posted("two", report), MediaCheck::no_files()).await.unwrap();
    assert_eq!(again, ToolPost::Repeated);
    let new = second.post_of_tool(&key, posted("two", other), MediaCheck::no_files()).await.unwrap();
    let twice = second.post_of_tool(&key, posted("two", other), MediaCheck::no_files()).await.unwrap();
    assert_eq!((new, twice), (ToolPost::Sent { parts: 1 }, ToolPost::Sent { parts: 1 }));
    assert_eq!(rows(&world).await, 5);
    second.finish(&key, &"turn".into()).await.unwrap();
    assert!(matches!(
        second.post_of_tool(&key, posted("two", "late"), MediaCheck::no_files()).await,
        Err(PostError::NoChat)
    ));
}
