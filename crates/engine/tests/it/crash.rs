//! A process that is killed with -9 in the middle of a run, at each of its moments in turn.
//!
//! The child is this test binary once more. It says each moment on its output and waits there for a word on its
//! input, so that the parent chooses the moment without waiting for time to pass.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::protocol::{
    Ack, Entry, Event, FileChange, FileState, Message, ModelError, ModelRequest, Notice, Outcome, StopReason,
};
use quipu::store::{RefName, Store, Until, decode_nodes};
use quipu::{Call, CallEnd, Delivery, Provider, SessionOptions, Tool, ToolOutput, Touches};
use serde_json::json;

use crate::support::{
    Fake, World, call, engine_over, model, open_store, result_text, say, scratch, text_of, touching,
};

const SESSION: &str = "crash";

/// Says a moment and waits for the parent.
fn moment(text: &str) {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap();
    let mut out = std::io::stdout().lock();
    // After a newline of its own: the test harness writes on the same output.
    writeln!(out, "\n@{text}").unwrap();
    out.flush().unwrap();
    drop(out);
    let mut word = String::new();
    std::io::stdin().lock().read_line(&mut word).unwrap();
}

async fn moment_beside(text: String) {
    tokio::task::spawn_blocking(move || moment(&text)).await.unwrap();
}

/// The model of the child: says when a call was sent.
struct ReportingProvider(Fake);

impl Provider for ReportingProvider {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.0.encode(request)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            moment_beside("sent".into()).await;
            let end = self.0.send(call).await;
            moment_beside("answered".into()).await;
            end
        }
        .boxed()
    }
}

/// Says when it begins and ends, and leaves a trace outside of the session for each time that it ran.
fn tools(dir: &std::path::Path) -> Vec<Arc<dyn Tool>> {
    let file = dir.canonicalize().unwrap().join("file");
    let make = |name: &str, touches| {
        let (trace, file) = (dir.join("trace"), Some(file.clone()).filter(|_| name == "file"));
        touching(name, touches, move |args, _| {
            let (trace, file) = (trace.clone(), file.clone());
            let text = args["text"].as_str().unwrap().to_owned();
            async move {
                moment_beside(format!("begin {text}")).await;
                let mut trace = std::fs::OpenOptions::new().append(true).create(true).open(trace).unwrap();
                writeln!(trace, "{text}").unwrap();
                if let Some(file) = file {
                    std::fs::write(file, &text).unwrap();
                }
                moment_beside(format!("ran {text}")).await;
                ToolOutput::text(format!("result of {text}"))
            }
        })
    };
    vec![make("free", Touches::Nothing), make("file", Touches::Writes(vec![file.clone()]))]
}

fn script() -> [crate::support::Reply; 4] {
    [
        call(&[
            ("free", json!({"text": "t1"})),
            ("file", json!({"text": "t2"})),
            ("file", json!({"text": "t3"})),
        ]),
        call(&[("free", json!({"text": "t4"}))]),
        say("first done"),
        say("second done"),
    ]
}

/// Not a test: the child's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(dir) = std::env::var_os("QUIPU_CRASH_DIR") else { return };
    let dir = std::path::PathBuf::from(dir);
    let engine = engine_over(open_store(&dir), &dir);
    let fake = Fake::default();
    fake.push(script());
    let options = SessionOptions {
        tools: tools(&dir),
        system: Some("You are tested.".into()),
        id: Some(SESSION.into()),
        ..SessionOptions::new(dir.join("work"), model(), Arc::new(ReportingProvider(fake)))
    };
    let session = Arc::new(engine.create(options).await.unwrap());
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.unwrap();
    session.prompt("go").await.unwrap();
    moment_beside("prompted go".into()).await;
    let mut steered = false;
    while let Some(envelope) = events.next().await {
        match &envelope.event {
            Event::MessageEnded { message, ending: quipu::protocol::Ending::Committed(node), .. } => {
                moment_beside(format!("kept {node} {}", message.role().unwrap())).await;
            }
            Event::ToolStarted { .. } if !steered => {
                steered = true;
                for (text, ack) in [("s1", session.steer("s1").await), ("f1", session.follow_up("f1").await)]
                {
                    assert!(matches!(ack, Ok(Ack::Queued(_))));
                    moment_beside(format!("queued {text}")).await;
                }
            }
            Event::ToolEnded { result, .. } => moment_beside(format!("ended {}", result_text(result))).await,
            Event::Settled => break,
            _ => {}
        }
    }
    moment_beside("settled".into()).await;
}

struct KillReport {
    moments: Vec<String>,
    /// Whether it was over before.
    finished: bool,
}

/// Runs the child up to its `at`th moment and kills it there.
fn kill_at(dir: &std::path::Path, at: usize) -> KillReport {
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--nocapture"])
        .env("QUIPU_CRASH_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input: ChildStdin = child.stdin.take().unwrap();
    let mut moments = Vec::new();
    let mut finished = true;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        let Some(moment) = line.strip_prefix('@') else { continue };
        moments.push(moment.to_owned());
        if moments.len() > at {
            finished = false;
            break;
        }
        writeln!(input).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    KillReport { moments, finished }
}

#[test]
fn kill_at_any_moment_loses_and_repeats_nothing() {
    let mut at = 0;
    let mut kinds = std::collections::BTreeSet::new();
    loop {
        let dir = scratch();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        let killed = kill_at(dir.path(), at);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        kinds.extend(runtime.block_on(check(dir, &killed)));
        if killed.finished {
            break;
        }
        at += 1;
    }
    assert!(at > 30, "{at}");
    let kinds: Vec<_> = kinds.into_iter().collect();
    assert_eq!(kinds, ["calls", "model call", "nothing"], "each kind of interruption was met");
}

async fn check(dir: tempfile::TempDir, killed: &KillReport) -> Option<&'static str> {
    let said = |prefix: &str| -> Vec<&str> {
        killed.moments.iter().filter_map(|moment| moment.strip_prefix(prefix)).collect()
    };
    let mut world = World::in_dir(dir);
    world.tools = tools(world.dir.path());
    let id = SESSION.into();
    if world.store.head(&RefName::session(&id)).await.unwrap().is_none() {
        assert!(said("prompted ").is_empty() && said("kept ").is_empty());
        return None;
    }
    let pending = world.store.pending(&id).await.unwrap();
    let had_steps = !pending.steps.is_empty();
    let (live, notices) = world.open(&id).await;
    assert_eq!(live.id(), id, "the dead owner's lease is taken over: {:?}", killed.moments);
    let nodes = world.store.lineage(live.session.view().head.unwrap(), Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    for kept in said("kept ") {
        let node = kept.split(' ').next().unwrap();
        assert!(nodes.iter().any(|one| one.id.to_string() == node), "{kept} is on the lineage");
    }
    let results: Vec<String> = decoded
        .iter()
        .filter_map(|one| match &one.entry {
            Entry::Message(Message::ToolResult(result)) => Some(result_text(result)),
            _ => None,
        })
        .collect();
    for ended in said("ended ") {
        assert_eq!(results.iter().filter(|text| *text == ended).count(), 1, "{ended}: {results:?}");
    }
    let calls = decoded.iter().filter_map(|one| match &one.entry {
        Entry::Message(Message::Assistant(answer)) => Some(answer.tool_calls().count()),
        _ => None,
    });
    assert_eq!(results.len(), calls.sum::<usize>(), "each call has its result, once");
    // What the file was before a call can be put back wherever the process died, and nothing is missing between.
    let changes: Vec<FileChange> = decoded.iter().flat_map(|one| one.step.files.clone()).collect();
    let path = world.dir.path().canonicalize().unwrap().join("file");
    let mut state = FileState::Absent;
    for change in &changes {
        assert_eq!(path.to_str(), Some(change.path.as_str()));
        assert_eq!((&change.before, change.before == change.after), (&state, false), "{changes:?}");
        state = change.after.clone();
    }
    match state {
        FileState::Absent => assert!(!path.exists()),
        FileState::File { content, .. } => {
            let kept = world.store.chunk(content, 0..u64::MAX).await.unwrap();
            assert_eq!(kept, std::fs::read(&path).unwrap(), "{:?}", killed.moments);
        }
        other => panic!("{other:?}"),
    }
    let unknown = results.iter().filter(|text| text.starts_with("Interrupted")).count();
    let in_flight = decoded.iter().rfind(|one| one.step.call.is_some()).is_some_and(
        |one| matches!(&one.entry, Entry::Message(Message::Assistant(answer)) if answer.stop_reason == StopReason::Error),
    );
    let kind = match notices.as_slice() {
        [] => {
            assert!(unknown == 0 && !in_flight);
            "nothing"
        }
        [Notice::Interrupted { calls, model_call }] => {
            assert!(
                had_steps && calls.len() == unknown && *model_call == in_flight,
                "{calls:?} {unknown} {in_flight}"
            );
            if in_flight { "model call" } else { "calls" }
        }
        other => panic!("{other:?}"),
    };
    if killed.moments.last().is_some_and(|last| last == "sent") {
        assert!(in_flight, "the call that was sent is recorded as unknown");
    }
    // The session goes on: with what waits, and nothing runs a second time.
    let before = trace(&world);
    world.fake.push([say("after"), say("after"), say("after")]);
    assert_eq!(live.run("again").await, Outcome::Done);
    assert_eq!(trace(&world), before);
    let mut once = before.clone();
    once.dedup();
    assert_eq!(once.len(), before.len(), "{before:?}");
    let shown: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
    for queued in said("queued ") {
        assert_eq!(
            shown.iter().filter(|text| *text == queued).count(),
            1,
            "{queued} is delivered once: {shown:?}"
        );
    }
    assert_eq!(live.session.view().waiting, 0);
    let pending = world.store.pending(&id).await.unwrap();
    assert_eq!((pending.inbox, pending.steps), (vec![], vec![]));
    live.finish().await;
    world.check().await;
    Some(kind)
}

fn trace(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.dir.path().join("trace")).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
