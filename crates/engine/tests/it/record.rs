//! Recordings: kept while a real wire is spoken, played against real tools, and what a bad file is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quipu::protocol::{ModelErrorKind, Outcome};
use quipu::{Engine, Sealer, SessionOptions};
use quipu_providers::{CallOptions, Settings};
use quipu_replay::{Places, Recorder, RecordingError, Replay};
use quipu_testkit::{Answer, FakeServer, Reply};
use serde_json::json;

use crate::support::{KEY, LiveSession, World};

const API_KEY: &str = "a-key-that-nobody-may-see";
const SECRET: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";

fn places(world: &World) -> Places {
    Places::of(world.cwd())
}

fn file(world: &World) -> PathBuf {
    world.dir.path().join("session.rec")
}

/// Options over the wire, recorded into `session.rec` of the world.
fn recorded(world: &World, server: &FakeServer) -> (SessionOptions, Arc<Recorder>) {
    let models = json!({ "providers": { "fake": {
        "baseUrl": server.url(),
        "api": "anthropic-messages",
        "apiKey": API_KEY,
        "headers": { "x-extra": "a-header-that-nobody-may-see" },
        "models": [{ "id": "test-model", "name": "Test", "contextWindow": 100_000, "maxTokens": 1_000,
            "cost": { "input": 10.0, "output": 10.0 } }],
    } } });
    let home = world.dir.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("models.json"), models.to_string()).unwrap();
    let (settings, warnings) = Settings::load(&home, &|_| None);
    assert_eq!(warnings, []);
    let call = CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() };
    let settings = settings.with_call_options(call);
    let model = settings.models_of("fake")[0].clone();
    let provider = settings.provider_for(&model, None).unwrap();
    let sealer = world.engine.sealer().clone();
    let recorder = Arc::new(Recorder::create(&file(world), provider, sealer, places(world)).unwrap());
    let options = SessionOptions {
        tools: quipu::builtin(),
        system: Some(format!("You are tested in {}.", world.cwd().display())),
        ..SessionOptions::new(world.cwd(), model, recorder.clone())
    };
    (options, recorder)
}

fn replayed(world: &World, recording: &Path) -> (SessionOptions, Arc<Replay>) {
    let replay = Arc::new(Replay::open(recording, places(world)).unwrap());
    let options = SessionOptions {
        tools: quipu::builtin(),
        system: Some(format!("You are tested in {}.", world.cwd().display())),
        thinking: replay.thinking(),
        ..SessionOptions::new(world.cwd(), replay.model(), replay.clone())
    };
    (options, replay)
}

/// Records a session whose user says these words.
async fn record(world: World, server: &FakeServer, prompts: &[&str]) -> (World, Vec<String>, PathBuf) {
    let (options, recorder) = recorded(&world, server);
    let live = world.create_with(options).await;
    for prompt in prompts {
        live.run(prompt).await;
    }
    let said = live.said();
    live.finish().await;
    recorder.finish().unwrap();
    let recording = file(&world);
    let world = world.check().await;
    (world, said, recording)
}

/// Plays a recording to its end in a world of its own.
async fn replay(world: World, recording: &Path) -> (World, Vec<String>, Vec<Outcome>, Arc<Replay>) {
    let (options, replay) = replayed(&world, recording);
    let live = world.create_with(options).await;
    for (at, prompt) in replay.prompts().into_iter().enumerate() {
        match prompt {
            Some(input) => drop(live.session.prompt(input).await.unwrap()),
            None => drop(live.session.send(quipu::protocol::Command::Continue).await.unwrap()),
        }
        live.settled(at + 1).await;
    }
    let (said, outcomes) = (live.said(), live.outcomes());
    live.finish().await;
    (world.check().await, said, outcomes, replay)
}

fn task(world: &World) -> FakeServer {
    let cwd = world.cwd().display().to_string();
    let write = json!({ "path": format!("{cwd}/f"), "content": "hi\n⟦workspace⟧\n" }).to_string();
    FakeServer::start([
        Answer::new().thinking("Look first.", "sig").tool_call("c1", "write", &write).reply(),
        Answer::new()
            .tool_call("c2", "read", r#"{ "path" : "f" }"#)
            .tool_call("c3", "bash", r#"{"command":"pwd; echo took 0.$$ s; mktemp -u; exit 3"}"#)
            .reply(),
        Answer::new().text(&format!("See {cwd}/f.")).reply(),
        Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1"),
        Answer::new().text("Nothing more.").reply(),
    ])
}

#[tokio::test]
async fn recording_replays_in_another_directory() {
    let world = World::new();
    let server = task(&world);
    let (world, said, recording) = record(world, &server, &["make it", "and now?"]).await;
    drop(server);
    let text = std::fs::read_to_string(&recording).unwrap();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(!text.contains(&world.cwd().display().to_string()), "{text}");
    assert!(text.contains("took ⟦duration⟧\\n⟦tmp⟧\\n"), "{text}");
    {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(std::fs::metadata(&recording).unwrap().mode() & 0o777, 0o600);
    }
    let there = World::new();
    let (there, again, outcomes, played) = replay(there, &recording).await;
    assert_eq!(outcomes, [Outcome::Done, Outcome::Done]);
    assert_eq!((played.left(), played.notes()), (0, vec![]));
    let here = |said: &[String], world: &World| -> Vec<String> {
        let said = said.iter().filter(|text| !text.contains("took 0."));
        said.map(|text| text.replace(&world.cwd().display().to_string(), "HERE")).collect()
    };
    assert_eq!(here(&again, &there), here(&said, &world));
    assert_eq!(again.len(), 9);
    assert_eq!(std::fs::read_to_string(there.cwd().join("f")).unwrap(), "hi\n⟦workspace⟧\n");
}

#[tokio::test]
async fn the_first_departure_is_named_and_nothing_is_done_after_it() {
    let world = World::new();
    std::fs::write(world.cwd().join("f"), "one\ntwo\nthree\n").unwrap();
    let server = FakeServer::start([
        Answer::new()
            .tool_call("c1", "read", r#"{"path":"f"}"#)
            .tool_call("c2", "bash", r#"{"command":"cat f"}"#)
            .reply(),
        Answer::new().tool_call("c3", "bash", r#"{"command":"touch done"}"#).reply(),
        Answer::new().text("Done.").reply(),
    ]);
    let (_world, _, recording) = record(world, &server, &["go"]).await;
    let there = World::new();
    std::fs::write(there.cwd().join("f"), "one\n2\nthree\n").unwrap();
    let (there, _, outcomes, played) = replay(there, &recording).await;
    let Outcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(error.kind, ModelErrorKind::ReplayMismatch);
    assert_eq!(
        error.message,
        "the result of `read` (call c1) differs from the recording.\nexpected: two\ngot:      2"
    );
    assert_eq!(played.left(), 2);
    assert!(!there.cwd().join("done").exists());
}

#[tokio::test]
async fn other_words_and_more_calls_than_recorded_are_departures() {
    let world = World::new();
    let server = FakeServer::start([Answer::new().text("Hello.").reply()]);
    let (_world, _, recording) = record(world, &server, &["hello"]).await;
    let there = World::new();
    let (options, _) = replayed(&there, &recording);
    let live = there.create_with(options).await;
    assert_eq!(live.run("hello").await, Outcome::Done);
    let Outcome::Failed(error) = live.run("more").await else { panic!("it ends") };
    assert!(error.message.contains("the recording ends here, after 1 call"), "{error}");
    live.finish().await;
    let (options, replay) = replayed(&there, &recording);
    let options = SessionOptions { system: Some("Other.".into()), tools: Vec::new(), ..options };
    let live = there.create_with(options).await;
    let Outcome::Failed(error) = live.run("good bye").await else { panic!("it differs") };
    assert!(error.message.contains("before call 1 differs") && error.message.contains("got:      good bye"));
    assert_eq!(replay.notes().len(), 2, "{:?}", replay.notes());
    live.finish().await;
    there.check().await;
}

#[tokio::test]
async fn failures_and_retries_come_again() {
    let world = World::new();
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1");
    let cut = Reply::sse(Answer::new().text("The beginning.").unfinished());
    let server = FakeServer::start([
        busy(),
        cut,
        Answer::new().text("Well.").reply(),
        Reply::error(401, "authentication_error", "no"),
        Answer::new().text("Again.").reply(),
    ]);
    let (_world, said, recording) = record(world, &server, &["a", "b", "c"]).await;
    let there = World::new();
    let (_there, again, outcomes, played) = replay(there, &recording).await;
    assert_eq!(again, said);
    assert!(
        matches!(&outcomes[..], [Outcome::Done, Outcome::Failed(error), Outcome::Done] if error.kind == ModelErrorKind::Auth),
        "{outcomes:?}"
    );
    assert_eq!(played.left(), 0);
}

#[tokio::test]
async fn no_secret_is_in_the_file() {
    let mut world = World::new();
    let sealer = Arc::new(Sealer::new(KEY));
    sealer.know("credential", API_KEY);
    world.engine = Engine::new(world.store.clone(), sealer, world.dir.path().join("spill"));
    std::fs::write(world.cwd().join("f"), format!("token = {SECRET}\n{API_KEY}\n")).unwrap();
    let say = format!("I know {SECRET} and {API_KEY}.");
    let server = FakeServer::start([
        Answer::new()
            .text(&say)
            .tool_call("c1", "read", r#"{"path":"f"}"#)
            .tool_call("c2", "bash", &json!({ "command": format!("echo {SECRET}") }).to_string())
            .reply(),
        Reply::error(400, "invalid_request_error", &say),
    ]);
    let (options, recorder) = recorded(&world, &server);
    // Pieces go to fronts as they come, so the law of deltas does not hold here.
    let session = world.engine.create(options).await.unwrap();
    session.ask(format!("use {SECRET}").as_str()).await.unwrap();
    session.shutdown().await;
    assert_eq!(recorder.finish().unwrap(), 2);
    let text = std::fs::read_to_string(file(&world)).unwrap();
    for part in [SECRET, API_KEY, "a-header-that-nobody-may-see", &server.url()] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert!(text.matches("[REDACTED:").count() >= 6, "{text}");
    world.check().await;
}

/// A recording of one call.
async fn small() -> String {
    let world = World::new();
    let server = FakeServer::start([Answer::new().text("Hello.").reply()]);
    let (_world, _, recording) = record(world, &server, &["hello"]).await;
    std::fs::read_to_string(recording).unwrap()
}

#[tokio::test]
async fn a_bad_file_is_told_apart() {
    let good = small().await;
    let parse = |bytes: &[u8]| Replay::parse("rec", bytes, Places::default());
    parse(good.as_bytes()).unwrap();
    let check = |what: &str, bytes: Vec<u8>, message: &str| {
        let error = parse(&bytes).expect_err(what);
        assert!(error.to_string().contains(message), "{what}: {error}");
    };
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let edit = |from: &str, to: &str| good.replacen(from, to, 1).into_bytes();
    check("empty", vec![], "is not a recording");
    check("text", b"hello\n".to_vec(), "is not a recording");
    check("binary", vec![0xff, 0, 1], "is not a recording");
    check("other JSON", b"{\"a\":1}\n".to_vec(), "is not a recording");
    check("no version", b"{\"quipuRecording\":}\n".to_vec(), "is not a recording");
    check("version 0", edit("Recording\":1", "Recording\":0"), "is not a recording");
    check(
        "newer",
        edit("Recording\":1", "Recording\":2"),
        "version 2; this program replays versions up to 1",
    );
    check("torn", good.as_bytes()[..good.len() - 1].to_vec(), "incomplete: line 2");
    check("torn early", lines[0].as_bytes()[..40].to_vec(), "incomplete: line 1");
    check("edited answer", edit("Hello.", "Hullo."), "the hash of line 2");
    check("edited header", edit("\"Test\"", "\"Best\""), "the hash of line 1");
    check("no chain", b"{\"quipuRecording\":1}\n".to_vec(), "the hash of line 1");
    check("twice", [&good, lines[1]].concat().into_bytes(), "the hash of line 3");
    check("no header", lines[1].as_bytes().to_vec(), "is not a recording");
    check("header only", lines[0].as_bytes().to_vec(), "contains no calls");
    check("blank line", [&good, "\n"].concat().into_bytes(), "the hash of line 3");
    check("bytes behind", [good.as_bytes(), b"\xff\n"].concat(), "the hash of line 3");
    check("half a character", [good.as_bytes(), b"\xc3"].concat(), "incomplete: line 3");
    check("deep", [good.as_bytes(), "[".repeat(1 << 20).as_bytes(), b"\n"].concat(), "the hash of line 3");
    // A chain is no signature: anyone can make one.
    let header = lines[0].split(",\"chain\"").next().unwrap();
    for (what, line, message) in [
        ("not an object", "[1", "line 2 is not a recorded call"),
        ("no members", "{\"call\":1", "line 2 is not a recorded call"),
        (
            "another number",
            &*open_line(lines[1]).replacen("\"call\":1", "\"call\":2", 1),
            "expected call 1, got call 2",
        ),
        (
            "a number too large",
            &*open_line(lines[1]).replacen("\"call\":1", "\"call\":99999999999", 1),
            "line 2 is not a recorded call",
        ),
        (
            "an unknown stop",
            &*open_line(lines[1]).replacen("\"stop\"", "\"stoop\"", 1),
            "line 2 is not a recorded call",
        ),
    ] {
        check(what, forge(&[header, line]).into_bytes(), message);
    }
    check(
        "a header without model",
        forge(&["{\"quipuRecording\":1"]).into_bytes(),
        "line 1 is not a recorded call",
    );
    let world = World::new();
    let open = |path: &Path| Replay::open(path, Places::default()).expect_err("no recording").to_string();
    assert!(open(world.dir.path()).contains("not a regular file"));
    assert!(open(&world.dir.path().join("none")).contains("none: "));
    assert!(open(Path::new("/dev/zero")).contains("not a regular file"));
}

/// A line without its end.
fn open_line(line: &str) -> String {
    line.split(",\"chain\"").next().unwrap().to_owned()
}

/// A file whose chain is right, of lines without their ends.
fn forge(lines: &[&str]) -> String {
    use sha2::{Digest as _, Sha256};
    let mut sum = [0_u8; 32];
    let mut out = String::new();
    for line in lines {
        sum = Sha256::new().chain_update(sum).chain_update(line).finalize().into();
        let hex = quipu_protocol::hex(&sum);
        out.push_str(&format!("{line},\"chain\":\"{hex}\"}}\n"));
    }
    out
}

#[tokio::test]
async fn a_forged_answer_is_a_model_that_misbehaves() {
    let good = small().await;
    let lines: Vec<&str> = good.lines().collect();
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let calls = [
        ("read", deep.as_str()),
        ("read", r#"{"path":"../../../../etc/none"}"#),
        ("no such tool", "{}"),
        ("bash", r#"{"command":5}"#),
        ("", "\"x\""),
    ];
    for (tool, arguments) in calls {
        let call = format!(r#"{{"type":"toolCall","id":"c","name":"{tool}","arguments":{arguments}}}"#);
        let line =
            open_line(lines[1]).replacen("[{\"type\":\"text\"", &format!("[{call},{{\"type\":\"text\""), 1);
        assert!(line.contains("toolCall"), "{line}");
        let file = forge(&[&open_line(lines[0]), &line]);
        let world = World::new();
        let replay = Arc::new(Replay::parse("rec", file.as_bytes(), places(&world)).unwrap());
        let options = SessionOptions {
            tools: quipu::builtin(),
            ..SessionOptions::new(world.cwd(), replay.model(), replay.clone())
        };
        let session = world.engine.create(options).await.unwrap();
        let (outcome, _) = session.ask("hello").await.unwrap();
        assert!(matches!(outcome, Outcome::Failed(_) | Outcome::Done), "{tool}: {outcome:?}");
        session.shutdown().await;
        world.check().await;
    }
}

#[tokio::test]
async fn a_recorder_spares_what_is_there() {
    let world = World::new();
    std::fs::write(file(&world), "mine").unwrap();
    let (model, sealer) = (world.fake.clone(), world.engine.sealer().clone());
    let error = Recorder::create(&file(&world), model.clone(), sealer.clone(), places(&world)).err().unwrap();
    assert!(matches!(error, RecordingError::Exists(_)), "{error}");
    assert_eq!(std::fs::read_to_string(file(&world)).unwrap(), "mine");
    let other = world.dir.path().join("unused");
    let recorder = Recorder::create(&other, model, sealer, places(&world)).unwrap();
    assert!(other.exists());
    assert_eq!(recorder.finish().unwrap(), 0);
    assert!(!other.exists(), "a recording without calls is none");
}

#[tokio::test]
async fn a_session_that_goes_on_is_recorded_from_there() {
    let world = World::new();
    let server = FakeServer::start([
        Answer::new().text("One.").reply(),
        Answer::new().tool_call("c1", "bash", r#"{"command":"echo two"}"#).reply(),
        Answer::new().text("Two.").reply(),
    ]);
    let (options, recorder) = recorded(&world, &server);
    let live = world.create_with(options).await;
    live.run("one").await;
    let id = live.id();
    live.finish().await;
    recorder.finish().unwrap();
    std::fs::remove_file(file(&world)).unwrap();
    let (options, recorder) = recorded(&world, &server);
    let live = LiveSession::of(world.engine.open(&id, options).await.unwrap().session).await;
    live.run("two").await;
    live.finish().await;
    assert_eq!(recorder.finish().unwrap(), 2);
    let there = World::new();
    let (_, again, outcomes, _) = replay(there, &file(&world)).await;
    assert_eq!(outcomes, [Outcome::Done]);
    assert_eq!(again, ["user: two", "assistant: ", "toolResult: two\n", "assistant: Two."]);
}

/// Answers of a session whose context is summed up twice: before a call, and when the model finds it too long.
fn compacting() -> FakeServer {
    let long = "word ".repeat(900);
    FakeServer::start([
        Answer::new().text(&long).reply(),
        Answer::new().text(&long).usage(3_900, 500, 0, 0).reply(),
        Answer::new().text("The notes.").reply(),
        Answer::new().text("And on the turn.").reply(),
        Answer::new().tool_call("c1", "bash", r#"{"command":"echo out"}"#).usage(900, 10, 0, 0).reply(),
        Reply::error(400, "invalid_request_error", "prompt is too long: 5000 tokens > 4500 maximum"),
        Answer::new().text("More notes.").reply(),
        Answer::new().text("And on the turn.").reply(),
        Answer::new().text("Well.").reply(),
        Answer::new().text("Bye.").reply(),
    ])
}

#[tokio::test]
async fn a_session_that_was_compacted_is_played_to_its_end() {
    let small = |options: SessionOptions| {
        let model = quipu::protocol::Model { context_window: 4_500, ..(*options.model).clone() };
        let compaction = quipu::CompactionSettings {
            enabled: true,
            reserve_tokens: 900,
            keep_recent_tokens: 400,
            safeguard: None,
        };
        SessionOptions { model: Arc::new(model), compaction, ..options }
    };
    let world = World::new();
    let server = compacting();
    let (options, recorder) = recorded(&world, &server);
    let live = world.create_with(small(options)).await;
    for prompt in ["one", "two", "three", "four"] {
        assert_eq!(live.run(prompt).await, Outcome::Done);
    }
    live.finish().await;
    assert_eq!(recorder.finish().unwrap(), 10);
    let recording = file(&world);
    let text = std::fs::read_to_string(&recording).unwrap();
    assert_eq!(text.matches("\"summary\":true").count(), 4);

    let compacts = async |compaction: bool| {
        let there = World::new();
        let (options, played) = replayed(&there, &recording);
        let prompts = played.prompts();
        let said: Vec<String> =
            prompts.iter().map(|one| words(one.as_ref().expect("somebody spoke"))).collect();
        assert_eq!(said, ["one", "two", "three", "four"]);
        let mut options = small(options);
        options.compaction.enabled = compaction;
        let live = there.create_with(options).await;
        let mut outcomes = Vec::new();
        for prompt in said {
            outcomes.push(live.run(&prompt).await);
        }
        live.finish().await;
        there.check().await;
        (outcomes, played.left())
    };
    let (outcomes, left) = compacts(true).await;
    assert_eq!((outcomes, left), (vec![Outcome::Done; 4], 0));
    // Played where nothing is compacted, the first summary is passed over; what was too long fails, as it would have.
    let (outcomes, _) = compacts(false).await;
    assert_eq!(outcomes[..2], [Outcome::Done, Outcome::Done]);
    let Outcome::Failed(error) = &outcomes[2] else { panic!("{outcomes:?}") };
    assert_eq!(error.kind, ModelErrorKind::ContextOverflow);
}

fn words(input: &quipu::protocol::UserInput) -> String {
    input.content.iter().filter_map(quipu::protocol::Content::as_text).collect()
}
