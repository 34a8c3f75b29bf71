//! What holds whatever sources do: a session that is opened again sends what it would have sent, and each request begins
//! with what its lineage says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use quipu::protocol::{Entry, SessionId, Trust};
use quipu::store::{RefName, Store as _, Until, decode_nodes};
use quipu::{
    Context, ContextAsk, ContextSource, SessionOptions, SourceContext, SourceError, SourceVersion, Tool,
    ToolSource,
};

use crate::sources::{Bench, Notes, SourceReply, body, epochs, plug, prefix_of, section};
use crate::support::{Fake, LiveSession, World, engine_over, model, open_store, scratch, text_of};

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A source of tools has these, or fails in some way; it says so.
    Tools(u8),
    /// One of two sources of context has something, or fails in some way; it says so.
    Notes(bool, u8),
    Prompt,
    /// The session is closed and opened again; in one of two worlds only.
    Reopen(ReopenOptions),
}

/// With what a session is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReopenOptions {
    Whole,
    /// Without any source of context: nothing changes until it is opened with them.
    WithoutContext,
    /// Without a prompt of the program.
    Kept,
    /// The source of tools does not answer meanwhile.
    WithoutTools,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let reopened = prop_oneof![
        Just(ReopenOptions::Whole),
        Just(ReopenOptions::WithoutContext),
        Just(ReopenOptions::Kept),
        Just(ReopenOptions::WithoutTools),
    ];
    let one = prop_oneof![
        2 => any::<u8>().prop_map(Step::Tools),
        3 => (any::<bool>(), any::<u8>()).prop_map(|(which, what)| Step::Notes(which, what)),
        4 => Just(Step::Prompt),
        2 => reopened.prop_map(Step::Reopen),
    ];
    prop::collection::vec(one, 1..14)
}

pub(crate) fn tools(choice: u8) -> SourceReply<Vec<Arc<dyn Tool>>> {
    let some = |names: &[&str]| SourceReply::Give(names.iter().map(|name| plug(name)).collect());
    match choice % 8 {
        0 => some(&[]),
        1 => some(&["one"]),
        2 => some(&["one", "two"]),
        3 => some(&["two", "one"]),
        4 => some(&["three", "echo"]),
        5 => some(&["not a name"]),
        6 => SourceReply::Panic,
        _ => SourceReply::Fail("down"),
    }
}

pub(crate) fn context(choice: u8) -> SourceReply<Context> {
    let some = |texts: &[&str]| {
        let trust = [Trust::Owner, Trust::Untrusted][usize::from(choice) % 2];
        let sections = texts.iter().map(|text| section("id", text, trust)).collect();
        let keep_recent = choice.is_multiple_of(3).then_some(u64::from(choice));
        SourceReply::Give(Context { sections, keep_recent })
    };
    match choice % 7 {
        0 => some(&[]),
        1 => some(&["Ein Text."]),
        2 => some(&["Zwei\n\nAbsätze", "und mehr\n\n"]),
        3 => some(&["\n\nvorn", "</untrusted>"]),
        4 => SourceReply::Panic,
        5 => SourceReply::Fail("lost"),
        _ => some(&["x", "", "y"]),
    }
}

struct Sources {
    bench: Arc<Bench>,
    notes: [Arc<Notes>; 2],
}

impl Sources {
    fn new() -> Self {
        let notes = ["first", "second"].map(|name| Notes::new(name, Context::default()));
        Self { bench: Bench::new("bench", Vec::new()), notes }
    }

    fn options(&self, world: &World) -> SessionOptions {
        SessionOptions {
            tool_sources: vec![self.bench.clone()],
            context_sources: self.notes.iter().map(|notes| notes.clone() as Arc<dyn ContextSource>).collect(),
            system_end: Some("The end.".into()),
            ..world.options()
        }
    }
}

/// Plays the steps; gives what each request held, without its times. `reopens` says whether the session is opened again
/// where the steps say so.
async fn play(steps: &[Step], reopens: bool) -> Vec<(serde_json::Value, serde_json::Value, Vec<String>)> {
    let world = World::new();
    let sources = Sources::new();
    let mut live = world.create_with(sources.options(&world)).await;
    let mut tools_now = SourceReply::Give(Vec::new());
    live.run("begin").await;
    for step in steps {
        match *step {
            Step::Tools(choice) => {
                tools_now = tools(choice);
                sources.bench.put(tools_now.clone());
            }
            Step::Notes(which, choice) => sources.notes[usize::from(which)].put(context(choice)),
            Step::Prompt => drop(live.run("go on").await),
            Step::Reopen(how) => {
                // What was said to have changed is said before, so that both worlds have heard it.
                live.run("before").await;
                if !reopens {
                    live.run("after").await;
                    continue;
                }
                let id = live.id();
                live.finish().await;
                let mut options = sources.options(&world);
                match how {
                    ReopenOptions::Whole => {}
                    ReopenOptions::WithoutContext => options.context_sources.clear(),
                    ReopenOptions::Kept => (options.system, options.system_end) = (None, None),
                    ReopenOptions::WithoutTools => sources.bench.does(SourceReply::Fail("gone for a while")),
                }
                live = open(&world, &id, options).await;
                live.run("after").await;
                sources.bench.does(tools_now.clone());
                if how == ReopenOptions::WithoutContext {
                    live.finish().await;
                    live = open(&world, &id, sources.options(&world)).await;
                }
            }
        }
        begins_as_recorded(&world, &live).await;
    }
    live.finish().await;
    let held = |bytes: &bytes::Bytes| {
        let (system, tools) = prefix_of(bytes);
        (system, tools, crate::support::messages_of(bytes).iter().map(text_of).collect())
    };
    let held = world.fake.bodies().iter().map(held).collect();
    world.check().await;
    held
}

async fn open(world: &World, id: &SessionId, options: SessionOptions) -> LiveSession {
    LiveSession::of(world.engine.open(id, options).await.unwrap().session).await
}

/// The last request begins with what the epoch says in which its answer stands.
async fn begins_as_recorded(world: &World, live: &LiveSession) {
    let epoch = epochs(world, live.session.view().head.unwrap()).await.pop().unwrap();
    let bodies = world.fake.bodies();
    let body = body(bodies.last().unwrap());
    assert_eq!(body["tools"], serde_json::to_value(&epoch.tools).unwrap());
    let blob = world.store.blobs(&[epoch.system.unwrap()]).await.unwrap().remove(0).unwrap();
    assert_eq!(body["system"], serde_json::from_str::<serde_json::Value>(&blob.content).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn live_and_resumed_requests_are_the_same(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (live, resumed) = runtime.block_on(async {
            (play(&steps, false).await, play(&steps, true).await)
        });
        prop_assert_eq!(live, resumed);
    }
}

// A process that is killed.

/// Says a moment and waits for the parent.
fn moment(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{text}").unwrap();
    out.flush().unwrap();
    drop(out);
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

/// Gives something else each time, and says when it is asked.
struct CountingSource(SourceVersion, std::sync::atomic::AtomicUsize);

impl CountingSource {
    fn new() -> Self {
        Self(SourceVersion::new(), std::sync::atomic::AtomicUsize::new(0))
    }

    fn count(&self, what: &str) -> usize {
        let count = self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        moment(&format!("asked {what} {count}"));
        count
    }
}

impl ToolSource for CountingSource {
    fn name(&self) -> &str {
        "counting tools"
    }

    fn version(&self) -> SourceVersion {
        self.0.clone()
    }

    fn tools<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<Arc<dyn Tool>>, SourceError>> {
        async move {
            let count = tokio::task::block_in_place(|| self.count("tools"));
            Ok((0..=count).map(|at| plug(&format!("plug{at}"))).collect())
        }
        .boxed()
    }
}

impl ContextSource for CountingSource {
    fn name(&self) -> &str {
        "counting notes"
    }

    fn version(&self) -> SourceVersion {
        self.0.clone()
    }

    fn context<'a>(&'a self, _: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        async move {
            let text = format!("Note {}.", tokio::task::block_in_place(|| self.count("notes")));
            Ok(Context { sections: vec![section("n", &text, Trust::Owner)], keep_recent: None })
        }
        .boxed()
    }
}

const SESSION: &str = "killed";

/// Not a test: the child's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child() {
    let Some(dir) = std::env::var_os("QUIPU_SOURCES_DIR") else { return };
    let dir = std::path::PathBuf::from(dir);
    let engine = engine_over(open_store(&dir), &dir);
    let (tools, notes) = (Arc::new(CountingSource::new()), Arc::new(CountingSource::new()));
    let options = SessionOptions {
        tools: Vec::new(),
        system: Some("You are tested.".into()),
        id: Some(SESSION.into()),
        tool_sources: vec![tools.clone()],
        context_sources: vec![notes.clone()],
        ..SessionOptions::new(dir.join("work"), model(), Arc::new(Fake::default()))
    };
    let session = engine.create(options).await.unwrap();
    for text in ["a", "b", "c"] {
        session.ask(text).await.unwrap();
        tokio::task::block_in_place(|| moment(&format!("answered {text}")));
        tools.0.change();
        notes.0.change();
    }
}

/// Runs the child up to its `at`th moment and kills it there; says whether it was over before.
fn kill_at(dir: &std::path::Path, at: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["sources_laws::child", "--exact", "--nocapture"])
        .env("QUIPU_SOURCES_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (mut moments, mut finished) = (0, true);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        if !line.starts_with('@') {
            continue;
        }
        moments += 1;
        if moments > at {
            finished = false;
            break;
        }
        writeln!(input).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    finished
}

#[test]
fn killed_at_any_moment_the_recorded_prefix_stands() {
    let mut prefixes = std::collections::BTreeSet::new();
    let mut at = 0;
    loop {
        let dir = scratch();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        let finished = kill_at(dir.path(), at);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        prefixes.extend(runtime.block_on(resume(dir)));
        if finished {
            break;
        }
        at += 1;
    }
    assert!(at > 6, "{at}");
    assert_eq!(prefixes.len(), 3, "each epoch was met: {prefixes:?}");
}

/// The session goes on with the prefix of its last epoch, though its sources are gone or do not answer.
async fn resume(dir: tempfile::TempDir) -> Option<String> {
    let world = World::in_dir(dir);
    let id = SessionId::from(SESSION);
    let head = world.store.head(&RefName::session(&id)).await.unwrap()?;
    let last = epochs(&world, head).await.pop().unwrap();
    let bench = Bench::new("counting tools", Vec::new());
    bench.does(SourceReply::Hang);
    let options =
        SessionOptions { tools: Vec::new(), system: None, tool_sources: vec![bench], ..world.options() };
    let live = open(&world, &id, options).await;
    live.run("on").await;
    begins_as_recorded(&world, &live).await;
    let head = live.session.view().head.unwrap();
    assert_eq!(epochs(&world, head).await.last(), Some(&last));
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    // What the dead process sent last, where it sent something in this epoch, began with the same bytes.
    let at =
        decoded.iter().rposition(|one| matches!(one.entry, Entry::Epoch(_) | Entry::Session(_))).unwrap();
    let calls = decoded[at..].iter().filter_map(|one| one.step.call.as_ref());
    let mut began = std::collections::BTreeSet::new();
    for call in calls {
        let bytes = world.store.chunk(call.body, 0..u64::MAX).await.unwrap();
        began.insert(format!("{:?}", prefix_of(&bytes)));
    }
    assert_eq!(began.len(), 1, "{began:?}");
    live.finish().await;
    world.check().await;
    began.pop_first()
}
