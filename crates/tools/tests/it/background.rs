//! Background commands: real processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quipu_protocol::{BackgroundEnd, KillReason};
use quipu_tools::{BackgroundCommands, BackgroundEvent, MOST_BACKGROUND, ToolOutput};
use serde_json::json;

use crate::bench::Bench;

pub(crate) fn text(output: &ToolOutput) -> String {
    output.content.iter().filter_map(quipu_protocol::Content::as_text).collect()
}

pub(crate) async fn start(bench: &Bench, command: &str) -> ToolOutput {
    bench.run("bash", json!({ "command": command, "run_in_background": true })).await
}

pub(crate) async fn act(bench: &Bench, action: &str, id: &str) -> String {
    text(&bench.run("background", json!({ "action": action, "id": id })).await)
}

pub(crate) fn commands(bench: &Bench) -> BackgroundCommands {
    bench.cx.background.clone().unwrap()
}

/// What is heard of commands.
pub(crate) fn heard(commands: &BackgroundCommands) -> tokio::sync::mpsc::UnboundedReceiver<BackgroundEvent> {
    let (tell, events) = tokio::sync::mpsc::unbounded_channel();
    commands.observe(Arc::new(move |event| {
        drop(tell.send(event));
        Box::pin(async {})
    }));
    events
}

/// Waits until a file is there, as a command makes it.
pub(crate) async fn appears(path: &std::path::Path) {
    let look = async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look).await.unwrap();
}

/// Whether a process runs; one that nobody waited for does not.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[tokio::test]
async fn background_command_returns_at_once_and_is_read_in_parts() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    let begun =
        start(&bench, "echo one; mkfifo gate; touch made; read -r line < gate; echo $line; exit 3").await;
    assert!(!begun.is_error && text(&begun).contains("b1"), "{begun:?}");
    assert!(matches!(events.recv().await, Some(BackgroundEvent::Started { .. })));
    appears(&bench.path("made")).await;
    let mut first = String::new();
    let read = async {
        while !first.starts_with("one\n") {
            // The output is read by a task of this same thread.
            tokio::task::yield_now().await;
            first = act(&bench, "output", "b1").await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.unwrap();
    assert!(first.contains("[b1 has been running for "), "{first}");
    let list = act(&bench, "list", "").await;
    assert!(list.starts_with("b1 has been running for ") && list.contains(": echo one;"), "{list}");
    tokio::fs::write(bench.path("gate"), "two\n").await.unwrap();
    let Some(BackgroundEvent::Ended { end, unread, .. }) = events.recv().await else { panic!() };
    assert_eq!((end, unread), (BackgroundEnd::Exited(3), 4));
    let second = act(&bench, "output", "b1").await;
    assert!(second.starts_with("two\n\n[b1 exited with code 3 after "), "{second}");
    assert!(act(&bench, "output", "b1").await.starts_with("(no new output)"));
}

#[tokio::test]
async fn killed_background_command_leaves_no_process() {
    let bench = Bench::with_background();
    let begun =
        start(&bench, "sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > far; touch made; wait")
            .await;
    assert!(!begun.is_error);
    appears(&bench.path("made")).await;
    let pids = ["child", "far"].map(|name| std::fs::read_to_string(bench.path(name)).unwrap());
    assert!(pids.iter().all(|pid| lives(pid)));
    let killed = act(&bench, "kill", "b1").await;
    assert!(killed.contains("b1 was killed by the model after "), "{killed}");
    assert!(!pids.iter().any(|pid| lives(pid)));
    assert_eq!(commands(&bench).running(), 0);
    let again = act(&bench, "kill", "b1").await;
    assert!(again.contains("was killed by the model"), "{again}");
}

#[tokio::test]
async fn background_commands_beyond_the_limit_are_refused_each() {
    let bench = Bench::with_background();
    let mut refused = 0;
    for _ in 0..1000 {
        let begun = start(&bench, "touch ran; sleep 1000").await;
        if begun.is_error {
            refused += 1;
            assert!(text(&begun).contains("16 background commands run already"), "{begun:?}");
        }
    }
    assert_eq!((refused, commands(&bench).running()), (1000 - MOST_BACKGROUND, MOST_BACKGROUND));
    assert_eq!(commands(&bench).close().await, MOST_BACKGROUND);
    assert_eq!(commands(&bench).running(), 0);
    let late = start(&bench, "touch late").await;
    assert!(late.is_error && text(&late).contains("The session is ending"), "{late:?}");
    assert!(!bench.path("late").exists());
}

#[tokio::test]
async fn wrong_ids_and_failures_to_start_say_so() {
    let mut bench = Bench::with_background();
    assert_eq!(act(&bench, "list", "").await, "No background commands.");
    assert_eq!(act(&bench, "output", "b7").await, "No background command b7 in this session: it has none.");
    let nul = start(&bench, "echo \0").await;
    assert!(nul.is_error && text(&nul).contains("NUL"), "{nul:?}");
    assert_eq!(commands(&bench).running(), 0);
    bench.cx.background = None;
    let off = start(&bench, "touch ran").await;
    assert!(off.is_error && text(&off).contains("are off here"), "{off:?}");
    assert!(!bench.path("ran").exists());
}

#[tokio::test]
async fn timeout_ends_a_background_command() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    let args = json!({ "command": "sleep 1000", "run_in_background": true, "timeout": 0.2 });
    assert!(!bench.run("bash", args).await.is_error);
    events.recv().await.unwrap();
    let Some(BackgroundEvent::Ended { end, .. }) = events.recv().await else { panic!() };
    assert_eq!(end, BackgroundEnd::TimedOut);
}

#[tokio::test]
async fn long_background_output_is_in_a_file_and_cut() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    start(&bench, "seq 1 100000").await;
    events.recv().await.unwrap();
    events.recv().await.unwrap();
    let read = act(&bench, "output", "b1").await;
    assert!(
        read.contains("100000\n\n[b1 exited with code 0") && read.contains("skipped. Full output: "),
        "{}",
        &read[read.len() - 300..]
    );
    assert!(read.len() < 60_000);
    let file = read.rsplit_once("Full output: ").unwrap().1.trim_end_matches(']');
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 100_000);
}

#[tokio::test]
async fn last_handle_takes_its_commands_along() {
    let mut bench = Bench::with_background();
    let ended = Arc::new(Mutex::new(Vec::new()));
    let told = ended.clone();
    let over = tokio_util::sync::CancellationToken::new();
    let fires = over.clone();
    commands(&bench).observe(Arc::new(move |event| {
        if let BackgroundEvent::Ended { end, .. } = event {
            told.lock().unwrap().push(end);
            fires.cancel();
        }
        Box::pin(async {})
    }));
    start(&bench, "sleep 1000").await;
    bench.cx.background = None;
    tokio::time::timeout(Duration::from_secs(30), over.cancelled()).await.unwrap();
    assert_eq!(*ended.lock().unwrap(), [BackgroundEnd::Killed(KillReason::Close)]);
}

/// One action with more than an id.
async fn with(bench: &Bench, arguments: serde_json::Value) -> String {
    text(&bench.run("background", arguments).await)
}

#[tokio::test]
async fn wait_returns_with_output_or_with_the_end() {
    let bench = Bench::with_background();
    start(&bench, "mkfifo gate; echo half; cat gate; exit 2").await;
    let first = with(&bench, json!({ "action": "wait", "id": "b1", "timeout": 30 })).await;
    assert!(first.starts_with("half\n\n[b1 has been running for "), "{first}");
    let nothing = with(&bench, json!({ "action": "wait", "id": "b1", "timeout": 0.01 })).await;
    assert!(nothing.starts_with("(no new output)\n\n[b1 has been running for "), "{nothing}");
    let gate = bench.path("gate");
    let (last, ()) =
        tokio::join!(with(&bench, json!({ "action": "wait", "id": "b1", "timeout": 30 })), async {
            tokio::fs::write(gate, "").await.unwrap();
        });
    assert!(last.starts_with("(no new output)\n\n[b1 exited with code 2 after "), "{last}");
    let again = with(&bench, json!({ "action": "wait", "id": "b1" })).await;
    assert_eq!(again, last, "what has ended is not waited for");
    let wrong = with(&bench, json!({ "action": "wait", "id": "b9" })).await;
    assert!(wrong.contains("No background command b9"), "{wrong}");
}

#[tokio::test]
async fn wait_ends_with_its_call() {
    let bench = Bench::with_background();
    start(&bench, "cat").await;
    bench.cx.cancel.cancel();
    let told = with(&bench, json!({ "action": "wait", "id": "b1", "timeout": 30 })).await;
    assert!(told.starts_with("(no new output)"), "{told}");
}

#[tokio::test]
async fn log_shows_lines_by_number_and_reads_nothing() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    start(&bench, "seq 1 300").await;
    events.recv().await;
    events.recv().await;
    let log = |arguments: serde_json::Value| with(&bench, arguments);
    let last = log(json!({ "action": "log", "id": "b1" })).await;
    assert!(last.starts_with("101\n") && last.contains("\n300\n\n[b1 exited with code 0 after "), "{last}");
    assert!(last.contains(" Lines 101-300 of 300. `offset` and `limit` choose other lines.]"), "{last}");
    let part = log(json!({ "action": "log", "id": "b1", "offset": 5, "limit": 2 })).await;
    assert!(
        part.starts_with("5\n6\n\n[") && part.contains("Lines 5-6 of 300. Continue with `offset` 7."),
        "{part}"
    );
    let beyond = log(json!({ "action": "log", "id": "b1", "offset": 301 })).await;
    assert!(beyond.starts_with("(no lines)\n") && beyond.contains(" No lines of 300."), "{beyond}");
    assert!(act(&bench, "output", "b1").await.starts_with("1\n2\n"), "it is unread still");
    // A long one is read from its file.
    start(&bench, "seq 1 100000").await;
    events.recv().await;
    events.recv().await;
    let part = log(json!({ "action": "log", "id": "b2", "offset": 70_000, "limit": 1 })).await;
    assert!(part.starts_with("70000\n\n[") && part.contains("Lines 70000-70000 of 100000."), "{part}");
}

/// Starts a command with input.
async fn start_with_input(bench: &Bench, command: &str) {
    let args = json!({ "command": command, "run_in_background": true, "input": true });
    let begun = bench.run("bash", args).await;
    assert!(!begun.is_error, "{begun:?}");
}

async fn write(bench: &Bench, more: serde_json::Value) -> ToolOutput {
    let mut args = json!({ "action": "write", "id": "b1" });
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    bench.run("background", args).await
}

#[tokio::test]
async fn input_reaches_a_command_line_by_line_until_its_end() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    start_with_input(&bench, "read -r one; echo got $one; cat; echo over").await;
    assert!(matches!(events.recv().await, Some(BackgroundEvent::Started { .. })));
    assert!(act(&bench, "list", "").await.contains(" and takes input"), "an open input is listed");
    let wrote = write(&bench, json!({ "text": "first" })).await;
    assert!(text(&wrote).starts_with("Wrote 6 bytes to b1."), "{wrote:?}");
    let first = act(&bench, "wait", "b1").await;
    assert!(first.starts_with("got first\n"), "{first}");
    assert!(!write(&bench, json!({ "text": "ha", "newline": false })).await.is_error);
    let last = write(&bench, json!({ "text": "lf\n", "eof": true })).await;
    assert!(text(&last).contains("Its input has ended"), "{last:?}");
    let Some(BackgroundEvent::Ended { end, .. }) = events.recv().await else { panic!() };
    assert_eq!(end, BackgroundEnd::Exited(0));
    let rest = act(&bench, "output", "b1").await;
    assert!(rest.starts_with("half\nover\n"), "{rest}");
    let late = write(&bench, json!({ "text": "x" })).await;
    assert_eq!((late.is_error, text(&late)), (true, "b1 exited with code 0, so it reads no input.".into()));
}

#[tokio::test]
async fn input_of_a_command_that_never_reads_is_cut_off() {
    let bench = Bench::with_background();
    start_with_input(&bench, "sleep 1000").await;
    let more = json!({ "text": "x".repeat(60_000), "timeout": 0.2 });
    assert!(!write(&bench, more.clone()).await.is_error, "the pipe has room");
    let full = write(&bench, more).await;
    assert!(full.is_error && text(&full).contains("did not read its input within 0.2 s"), "{full:?}");
    let long = write(&bench, json!({ "text": "x".repeat(70_000) })).await;
    assert!(text(&long).contains("The limit is 65536. Nothing was written."), "{long:?}");
    bench.cx.cancel.cancel();
    let stopped = write(&bench, json!({ "text": "x".repeat(60_000) })).await;
    assert!(stopped.is_error && text(&stopped).starts_with("Aborted: "), "{stopped:?}");
}

#[tokio::test]
async fn input_that_cannot_be_written_says_why() {
    let bench = Bench::with_background();
    let foreground = bench.run("bash", json!({ "command": "touch ran", "input": true })).await;
    assert!(foreground.is_error && !bench.path("ran").exists(), "{foreground:?}");
    assert!(text(&write(&bench, json!({ "text": "x" })).await).contains("No background command b1"));
    start(&bench, "cat; sleep 1000").await;
    let none = write(&bench, json!({ "text": "x" })).await;
    assert!(none.is_error && text(&none).contains("b1 has no input. Start it with `input`"), "{none:?}");
    assert!(text(&write(&bench, json!({})).await).contains("needs `text`"));
    let keys = write(&bench, json!({ "keys": ["ctrl-c"] })).await;
    assert!(keys.is_error && text(&keys).contains("have no terminal"), "{keys:?}");
    let args =
        json!({ "command": "exec <&-; touch closed; sleep 1000", "run_in_background": true, "input": true });
    assert!(!bench.run("bash", args).await.is_error);
    appears(&bench.path("closed")).await;
    let closed = bench.run("background", json!({ "action": "write", "id": "b2", "text": "x" })).await;
    assert_eq!((closed.is_error, text(&closed)), (true, "The input of b2 is closed.".into()));
}

#[tokio::test]
async fn writes_to_commands_name_the_command_and_the_text() {
    use quipu_protocol::Touches;
    let bench = Bench::with_background();
    start_with_input(&bench, "cat").await;
    let tool = bench.tool("background");
    let touches = |args: serde_json::Value| tool.touches(&args, &bench.cx);
    let Touches::Input(input) =
        touches(json!({ "action": "write", "id": "b1", "text": "rm x", "eof": true }))
    else {
        panic!()
    };
    assert_eq!((input.command.as_deref(), &*input.text, input.is_last), (Some("cat"), "rm x\n", true));
    assert!(!input.is_confined && !input.network);
    let Touches::Input(unknown) = touches(json!({ "action": "write", "id": "b2", "text": "rm x" })) else {
        panic!()
    };
    assert_eq!(unknown.command, None, "one that starts in the same answer is not known when it is decided");
    assert_eq!(touches(json!({ "action": "output", "id": "b1" })), Touches::Nothing);
}
