use std::sync::Arc;

use quipu_protocol::Json;
use quipu_tools::{Bash, Invocation, Tool, ToolContext};
use quipu_workspace::{ProcessRegistry, Sandbox, SandboxSupport};
use serde_json::{Value, json};

use crate::bench::{Bench, text};

async fn runs(args: Value, expect: &str, details: Value) {
    let bench = Bench::new(&[]);
    let output = bench.run("bash", args.clone()).await;
    let (is_error, expect) = match expect.strip_prefix('!') {
        Some(expect) => (true, expect),
        None => (false, expect),
    };
    let spilled = std::fs::read_dir(bench.dir.path().join("spill"))
        .ok()
        .and_then(|mut files| files.next())
        .map(|file| file.unwrap().path().display().to_string());
    let spilled = spilled.unwrap_or_else(|| "none".into());
    assert_eq!(text(&output).replace(&spilled, "LOG"), expect, "{args}");
    assert_eq!(output.is_error, is_error, "{args}");
    let mut found = output.details.map_or(Value::Null, |details| details.value());
    if let Some(truncation) = found.get_mut("truncation").and_then(Value::as_object_mut) {
        truncation.retain(|name, _| {
            ["totalLines", "outputLines", "truncatedBy", "lastLinePartial"].contains(&name.as_str())
        });
    }
    if let Some(path) = found.get_mut("fullOutputPath") {
        assert_eq!(*path, spilled);
        *path = json!("LOG");
    }
    assert_eq!(found, details, "{args}");
}

#[tokio::test]
async fn results() {
    let none = || Value::Null;
    runs(json!({"command": "echo hi; echo there >&2"}), "hi\nthere\n", none()).await;
    runs(json!({"command": "true"}), "(no output)", none()).await;
    runs(json!({"command": "exit 3"}), "!(no output)\n\nCommand exited with code 3", json!({"exitCode": 3}))
        .await;
    runs(json!({"command": "printf a; false"}), "!a\n\nCommand exited with code 1", json!({"exitCode": 1}))
        .await;
    runs(
        json!({"command": "kill -9 $$"}),
        "!(no output)\n\nCommand exited with code 137",
        json!({"exitCode": 137}),
    )
    .await;
    let timed_out = || json!({"timedOut": true});
    runs(
        json!({"command": "sleep 1000", "timeout": 0.2}),
        "!Command timed out after 0.2 seconds",
        timed_out(),
    )
    .await;
    runs(
        json!({"command": "echo x; sleep 1000", "timeout": "1"}),
        "!x\n\n\nCommand timed out after 1 seconds",
        timed_out(),
    )
    .await;
    runs(json!({"command": "echo x", "timeout": 0}), "x\n", none()).await;
    runs(
        json!({"command": "echo x", "timeout": -1}),
        "!Invalid timeout: must be a finite number of seconds",
        none(),
    )
    .await;
    runs(
        json!({"command": "echo x", "timeout": 1e10}),
        "!Invalid timeout: maximum is 2147483.647 seconds",
        none(),
    )
    .await;
    runs(json!({"command": "printf '\\033[1mé\\xff'"}), "\u{1b}[1mé\u{fffd}", none()).await;
}

#[tokio::test]
async fn long_output_is_cut_to_its_end() {
    let numbers = |from: usize, to: usize| (from..=to).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    runs(json!({"command": "seq 2000"}), &(numbers(1, 2000) + "\n"), Value::Null).await;
    runs(
        json!({"command": "seq 2001"}),
        &format!("{}\n\n[Showing lines 2-2001 of 2001. Full output: LOG]", numbers(2, 2001)),
        json!({"truncation": {"truncatedBy": "lines", "totalLines": 2001, "outputLines": 2000, "lastLinePartial": false}, "fullOutputPath": "LOG"}),
    )
    .await;
    let line = "x".repeat(999);
    runs(
        json!({"command": "for i in $(seq 100); do printf '%0999d\\n' 0 | tr 0 x; done; exit 1"}),
        &format!(
            "!{}\n\n[Showing lines 50-100 of 100 (50.0KB limit). Full output: LOG]\n\nCommand exited with code 1",
            vec![line; 51].join("\n")
        ),
        json!({"truncation": {"truncatedBy": "bytes", "totalLines": 100, "outputLines": 51, "lastLinePartial": false}, "fullOutputPath": "LOG", "exitCode": 1}),
    )
    .await;
    runs(
        json!({"command": "echo a; yes é | head -60000 | tr -d '\\n'"}),
        &format!("{}\n\n[Showing last 50.0KB of line 2 (line is 117.2KB). Full output: LOG]", "é".repeat(25600)),
        json!({"truncation": {"truncatedBy": "bytes", "totalLines": 2, "outputLines": 1, "lastLinePartial": true}, "fullOutputPath": "LOG"}),
    )
    .await;
}

#[tokio::test]
async fn keys_are_not_handed_on() {
    let mut bench = Bench::new(&[]);
    // PATH stands for a provider's key: something that is there and must not be.
    bench.cx.env = Arc::new([("HOME".into(), None), ("GIVEN".into(), Some("yes".into()))]);
    let output = bench.run("bash", json!({"command": "echo ${HOME-gone} $GIVEN"})).await;
    assert_eq!(text(&output), "gone yes\n");
}

#[tokio::test]
async fn progress_is_told_and_abort_keeps_the_output() {
    let mut bench = Bench::new(&[]);
    let cancel = bench.cx.cancel.clone();
    let progress = bench.progress.clone();
    bench.cx.progress = Arc::new(move |text| {
        progress.lock().unwrap().push(text.to_owned());
        cancel.cancel();
    });
    let output = bench.run("bash", json!({"command": "trap '' TERM INT; echo begun; sleep 1000"})).await;
    assert_eq!((text(&output), output.is_error), ("begun\n\n\nCommand aborted", true));
    assert_eq!(*bench.progress.lock().unwrap(), ["begun\n"]);
}

#[tokio::test]
async fn a_directory_that_is_gone_is_told() {
    let mut bench = Bench::new(&[]);
    bench.cx.cwd = "/nonexistent".into();
    let output = bench.run("bash", json!({"command": "true"})).await;
    assert_eq!(
        (text(&output), output.is_error),
        ("Working directory does not exist: /nonexistent\nCannot execute bash commands.", true)
    );
}

fn call(id: &str, command: &str) -> Invocation {
    Invocation { id: id.into(), args: Json::from(json!({ "command": command })) }
}

/// Does all that is done before a call may run.
async fn prepare(bash: &Arc<Bash>, id: &str, command: &str, cx: &ToolContext) {
    let work = bash.prepare(&call(id, command), cx).unwrap();
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test]
async fn a_prepared_command_begins_when_it_is_run() {
    let mut bench = Bench::new(&[]);
    let confined = SandboxSupport::of_this_system().is_full();
    for sandbox in [None, confined.then(|| Arc::new(Sandbox::new(vec![bench.cx.cwd.clone()])))] {
        bench.cx.sandbox = sandbox;
        let registry = Arc::new(ProcessRegistry::new());
        let bash = Arc::new(Bash::new(registry.clone()));
        let cx = &bench.cx;
        let file = bench.path("file");
        let run = async |id: &str, command: &str| text(&bash.run(call(id, command), cx).await).to_owned();

        // What it finds is what was there when it was told to begin.
        std::fs::write(&file, "before").unwrap();
        prepare(&bash, "a", "cat file; cat; echo $LINENO", cx).await;
        assert_eq!(registry.alive(), 1);
        std::fs::write(&file, "after\n").unwrap();
        assert_eq!(run("a", "cat file; cat; echo $LINENO").await, "after\n1\n");
        assert_eq!(registry.alive(), 0);

        // Another command, as when a secret was put back; the shell that waits does nothing and goes.
        prepare(&bash, "b", "echo wrong > file", cx).await;
        assert_eq!(run("b", "echo right").await, "right\n");
        assert_eq!(registry.alive(), 0);
        // Another call; run twice; run first.
        prepare(&bash, "c", "echo once >> file", cx).await;
        assert_eq!(run("d", "echo other").await, "other\n");
        for _ in 0..2 {
            assert_eq!(run("c", "echo once >> file").await, "(no output)");
        }
        let late = bash.prepare(&call("e", "echo twice >> file"), cx).unwrap();
        assert_eq!(run("e", "echo twice >> file").await, "(no output)");
        tokio::task::spawn_blocking(late).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "after\nonce\nonce\ntwice\n");
        assert_eq!(registry.alive(), 0);
        // One that cannot be read never waits.
        prepare(&bash, "f", "echo )", cx).await;
        assert!(run("f", "echo )").await.contains("syntax error"));
        // Killed while it waits.
        prepare(&bash, "g", "echo g", cx).await;
        registry.kill_all();
        assert_eq!(run("g", "echo g").await, "g\n");
        // Never run: a few wait, and none outlives the tool.
        for id in ["h", "i", "j", "k", "l", "m"] {
            prepare(&bash, id, "echo wrong > file", cx).await;
        }
        assert_eq!(registry.alive(), 4);
        drop(bash);
        assert_eq!(registry.alive(), 0);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 4);
    }
}

#[tokio::test]
async fn a_prepared_command_can_be_stopped_and_has_its_time() {
    let bench = Bench::new(&[]);
    let registry = Arc::new(ProcessRegistry::new());
    let bash = Arc::new(Bash::new(registry.clone()));
    prepare(&bash, "a", "echo begun; sleep 1000", &bench.cx).await;
    let args = Json::from(json!({ "command": "echo begun; sleep 1000", "timeout": 0.3 }));
    let output = bash.run(Invocation { id: "a".into(), args }, &bench.cx).await;
    assert_eq!(text(&output), "begun\n\n\nCommand timed out after 0.3 seconds");
    prepare(&bash, "b", "echo wrong > file", &bench.cx).await;
    bench.cx.cancel.cancel();
    assert_eq!(text(&bash.run(call("b", "echo wrong > file"), &bench.cx).await), "Command aborted");
    assert!(!bench.path("file").exists());
    assert_eq!(registry.alive(), 0);
}
