//! Commands that are waited for, and go on in the background behind `yield`.

use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::BackgroundEnd;
use quipu_tools::{BackgroundEvent, MOST_BACKGROUND, ToolOutput};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::background::{act, appears, commands, heard, lives, start, text};
use crate::bench::Bench;

async fn yielding(bench: &Bench, command: &str, seconds: f64) -> ToolOutput {
    bench.run("bash", json!({ "command": command, "yield": seconds })).await
}

fn fifo(bench: &Bench) {
    nix::unistd::mkfifo(&bench.path("gate"), nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// What a command printed, in a result or a read.
fn printed(text: &str) -> &str {
    let text = text.rsplit_once("\n[").map_or(text, |(text, _)| text);
    if text.starts_with("(no ") { "" } else { text }
}

async fn ended(events: &mut UnboundedReceiver<BackgroundEvent>) -> BackgroundEnd {
    let next = tokio::time::timeout(Duration::from_secs(30), events.recv());
    match next.await.unwrap() {
        Some(BackgroundEvent::Ended { end, .. }) => end,
        other => panic!("{other:?}"),
    }
}

/// Waits until a process is gone.
async fn gone(pid: &str) {
    let look = async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look).await.unwrap();
}

#[tokio::test]
async fn command_that_ends_before_its_yield_is_a_foreground_one() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    for args in [
        json!({ "command": "echo a; echo b >&2; printf half" }),
        json!({ "command": "true" }),
        json!({ "command": "exit 3" }),
        json!({ "command": "echo x; kill -9 $$" }),
        json!({ "command": "seq 1 100000" }),
        json!({ "command": "seq 1 3000; exit 1" }),
        json!({ "command": "yes é | head -60000 | tr -d '\\n'" }),
        json!({ "command": "cat; echo no input" }),
        json!({ "command": "echo begun; sleep 1000", "timeout": 0.3 }),
        json!({ "command": "echo \0" }),
        json!({ "command": "true", "timeout": -1 }),
    ] {
        let mut waited = args.clone();
        waited["yield"] = 600.into();
        let [one, other] = [args.clone(), waited].map(|args| bench.run("bash", args));
        let [one, other] = [one.await, other.await].map(|output| {
            let details = output.details.as_ref().map(quipu_protocol::Json::value);
            let file =
                details.as_ref().and_then(|details| details["fullOutputPath"].as_str().map(str::to_owned));
            let shown = json!([text(&output), details, output.is_error, output.terminate]).to_string();
            let whole = file.as_deref().map(|file| std::fs::read(file).unwrap());
            (shown.replace(file.as_deref().unwrap_or("no file"), "FILE"), whole)
        });
        assert_eq!(one.0, other.0, "{args}");
        assert!(one.1 == other.1, "{args}");
    }
    assert_eq!(act(&bench, "list", "").await, "No background commands.");
    assert!(events.try_recv().is_err(), "nobody hears of them");
    assert!(text(&start(&bench, "true").await).contains("command b1."), "they take no ids");
}

#[tokio::test]
async fn command_behind_its_yield_goes_on_in_the_background() {
    let mut bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    fifo(&bench);
    let command = "echo one; read -r line < gate; echo $line; exit 3";
    let begun = yielding(&bench, command, 0.05).await;
    let said = text(&begun);
    assert!(!begun.is_error, "{said}");
    let last = "\n[Still running after 0.05s. It goes on as background command b1. You get a message when it ends. \
                `background` reads its output.]";
    assert!(said.ends_with(last), "{said}");
    assert_eq!(
        begun.details.unwrap().value(),
        json!({ "background": { "started": "b1", "command": command } })
    );
    assert!(
        matches!(events.try_recv(), Ok(BackgroundEvent::Started { id, .. }) if id.as_str() == "b1"),
        "it was told before the call returned"
    );
    let progress = Arc::downgrade(&bench.cx.progress);
    bench.cx.progress = Arc::new(|_| {});
    assert_eq!(progress.strong_count(), 0, "nothing of the call is kept");
    let list = act(&bench, "list", "").await;
    assert!(list.starts_with("b1 has been running for ") && list.contains(": echo one;"), "{list}");
    tokio::fs::write(bench.path("gate"), "two\n").await.unwrap();
    assert_eq!(ended(&mut events).await, BackgroundEnd::Exited(3));
    let rest = act(&bench, "output", "b1").await;
    assert!(rest.contains("[b1 exited with code 3 after "), "{rest}");
    assert_eq!([printed(said.trim_end_matches(last)), printed(&rest)].concat().trim_end(), "one\ntwo");
    assert!(act(&bench, "output", "b1").await.starts_with("(no new output)"));
    let log = act(&bench, "log", "b1").await;
    assert!(log.starts_with("one\ntwo\n"), "the log has what the call returned: {log}");
}

#[tokio::test]
async fn output_before_the_yield_is_shown_and_counts_as_read() {
    // However slow the machine is, the last of these waits long enough.
    for seconds in [0.2, 2.0, 30.0] {
        let bench = Bench::with_background();
        let begun = yielding(&bench, "echo one; printf tw; sleep 1000", seconds).await;
        let said = text(&begun);
        assert_eq!(commands(&bench).running(), 1);
        if said.starts_with("(no output yet)\n\n[Still running ") {
            continue;
        }
        assert!(said.starts_with("one\n\n[Still running after "), "{said}");
        let shown = bench.progress.lock().unwrap().len();
        assert!(shown > 0, "progress is told while the call waits");
        let killed = act(&bench, "kill", "b1").await;
        assert!(killed.starts_with("tw\n\n[b1 was killed by the model after "), "{killed}");
        assert_eq!(bench.progress.lock().unwrap().len(), shown, "and not behind it");
        return;
    }
    panic!("nothing was printed in 30 s");
}

#[tokio::test]
async fn cancelled_call_kills_the_command_that_it_waits_for() {
    let mut bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    let (cancel, progress) = (bench.cx.cancel.clone(), bench.progress.clone());
    bench.cx.progress = Arc::new(move |text| {
        progress.lock().unwrap().push(text.to_owned());
        cancel.cancel();
    });
    let command = "setsid sleep 1000 & echo $! > far; echo begun; sleep 1000";
    let output = yielding(&bench, command, 600.0).await;
    assert_eq!((text(&output).as_str(), output.is_error), ("begun\n\n\nCommand aborted", true));
    assert_eq!(*bench.progress.lock().unwrap(), ["begun\n"]);
    assert!(!lives(&std::fs::read_to_string(bench.path("far")).unwrap()));
    assert_eq!(commands(&bench).list(), []);
    assert!(events.try_recv().is_err());
    let late = yielding(&bench, "touch late", 600.0).await;
    assert_eq!((text(&late).as_str(), bench.path("late").exists()), ("Command aborted", false));
}

#[tokio::test]
async fn dropped_call_kills_the_command_that_it_waits_for() {
    let bench = Bench::with_background();
    let ready = bench.path("ready");
    tokio::select! {
        output = yielding(&bench, "echo $$ > pid; touch ready; sleep 1000", 600.0) => panic!("{output:?}"),
        () = appears(&ready) => {}
    }
    gone(&std::fs::read_to_string(bench.path("pid")).unwrap()).await;
    assert_eq!(commands(&bench).list(), []);
}

#[tokio::test]
async fn closing_kills_a_command_that_a_call_waits_for() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    for _ in 1..MOST_BACKGROUND {
        start(&bench, "sleep 1000").await;
        assert!(matches!(events.recv().await, Some(BackgroundEvent::Started { .. })));
    }
    let (output, ()) =
        tokio::join!(yielding(&bench, "echo $$ > pid; touch ready; sleep 1000", 600.0), async {
            appears(&bench.path("ready")).await;
            let more = start(&bench, "touch ran").await;
            assert!(text(&more).contains("16 background commands run already"), "it counts: {more:?}");
            assert_eq!(commands(&bench).list().len(), MOST_BACKGROUND - 1, "it is in no list");
            assert_eq!(commands(&bench).close().await, MOST_BACKGROUND);
        });
    assert_eq!((text(&output).as_str(), output.is_error), ("Command aborted", true));
    assert!(!lives(&std::fs::read_to_string(bench.path("pid")).unwrap()));
    for _ in 1..MOST_BACKGROUND {
        assert!(matches!(ended(&mut events).await, BackgroundEnd::Killed(_)));
    }
    assert!(events.try_recv().is_err());
    let late = yielding(&bench, "touch ran", 600.0).await;
    assert!(late.is_error && text(&late).contains("The session is ending"), "{late:?}");
    assert!(!bench.path("ran").exists());
}

#[tokio::test]
async fn timeout_of_a_yielded_command_counts_from_its_start() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    let args = json!({ "command": "sleep 1000", "yield": 0.05, "timeout": 2 });
    let output = bench.run("bash", args).await;
    assert!(text(&output).contains("It goes on as background command b1."), "{output:?}");
    assert!(matches!(events.recv().await, Some(BackgroundEvent::Started { .. })));
    assert_eq!(ended(&mut events).await, BackgroundEnd::TimedOut);
}

#[tokio::test]
async fn yield_beyond_the_limit_of_commands_runs_nothing() {
    let bench = Bench::with_background();
    for _ in 0..MOST_BACKGROUND {
        start(&bench, "sleep 1000").await;
    }
    let refused = yielding(&bench, "touch ran", 600.0).await;
    assert!(refused.is_error && text(&refused).contains("16 background commands run already"), "{refused:?}");
    assert!(!bench.path("ran").exists());
    commands(&bench).close().await;
}

#[tokio::test]
async fn yield_without_background_commands_waits_for_the_end() {
    let mut bench = Bench::with_background();
    bench.cx.background = None;
    let output = yielding(&bench, "echo begun; exit 3", 0.000_001).await;
    assert_eq!(text(&output), "begun\n\n\nCommand exited with code 3");
}

#[tokio::test]
async fn yield_of_another_kind_runs_nothing() {
    let bench = Bench::with_background();
    for value in [json!(0), json!(-1), json!(3600.5), json!(1e300), json!("soon")] {
        for in_background in [false, true] {
            let args = json!({ "command": "touch ran", "yield": value, "run_in_background": in_background });
            let output = bench.run("bash", args).await;
            let said = text(&output);
            let is_told = match value {
                Value::String(_) => said.contains("yield"),
                _ => {
                    said == "Invalid yield: must be a number of seconds above 0 and at most 3600. Nothing was run."
                }
            };
            assert!(output.is_error && is_told, "{value}: {said}");
        }
    }
    let args = json!({ "command": "touch ran", "yield": 5, "input": true });
    let input = bench.run("bash", args).await;
    assert!(input.is_error && text(&input).contains("`input` needs `run_in_background`"), "{input:?}");
    assert!(!bench.path("ran").exists());
    let args = json!({ "command": "sleep 1000", "yield": 600, "run_in_background": true });
    assert!(text(&bench.run("bash", args).await).starts_with("Started background command b1."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_in_the_moment_of_the_yield_is_told_once() {
    let bench = Bench::with_background();
    let mut events = heard(&commands(&bench));
    let mut went_on = 0;
    for round in 0..60 {
        let output = yielding(&bench, "echo x; exit 3", 0.000_1 * f64::from(1 + round)).await;
        let said = text(&output);
        if !said.contains("[Still running after ") {
            assert_eq!(said, "x\n\n\nCommand exited with code 3");
            continue;
        }
        went_on += 1;
        let id = format!("b{went_on}");
        assert!(said.contains(&format!("background command {id}.")), "{said}");
        assert!(
            matches!(events.recv().await, Some(BackgroundEvent::Started { id: told, .. }) if told.as_str() == id)
        );
        assert_eq!(ended(&mut events).await, BackgroundEnd::Exited(3));
        let rest = act(&bench, "output", &id).await;
        let said = said.split("\n[Still").next().unwrap();
        assert_eq!([printed(said), printed(&rest)].concat().trim_end(), "x", "{said}{rest}");
    }
    assert!(events.try_recv().is_err());
    assert_eq!(commands(&bench).running(), 0);
}

#[tokio::test]
async fn process_left_by_an_awaited_command_ends_with_its_run() {
    let bench = Bench::with_background();
    let output = yielding(&bench, "sleep 1000 > log 2>&1 & echo $! > pid", 600.0).await;
    assert_eq!(text(&output), "(no output)");
    let pid = std::fs::read_to_string(bench.path("pid")).unwrap();
    assert!(lives(&pid), "as with any call");
    let (bash, run) = (bench.tool("bash"), bench.cx.run.clone());
    tokio::task::spawn_blocking(move || bash.end_run(&run)).await.unwrap();
    gone(&pid).await;
}
