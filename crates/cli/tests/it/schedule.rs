//! `quipu schedule`: jobs are added, listed, run by long-lived processes, and removed.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use quipu_store::{JobTime, Jobs as _, NewJob};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::archive::{ID, conversation, lines, user};
use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

const KEY_OF_PI: &str = "import-watch/pi";

/// A session file of another agent, where that agent keeps it.
fn session_file(world: &World) -> PathBuf {
    let dir = world.path("home/.pi/agent/sessions/--work--");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("s.jsonl");
    std::fs::write(&file, lines(&conversation(world, ID))).unwrap();
    file
}

fn jobs(world: &World) -> Vec<Value> {
    world.run(&["schedule", "list", "--json"]).ok().json_lines()
}

/// What the runner says next of this event.
fn event(running: &mut RunningCommand, event: &str) -> Value {
    loop {
        let line = running.line().expect("an event");
        let value: Value = serde_json::from_str(&line).unwrap();
        if value["event"] == event {
            return value;
        }
    }
}

fn sessions_imported(world: &World) -> usize {
    world.run(&["sessions", "--all", "--json"]).ok().json_lines().len()
}

/// Looks until so many sessions are there. Each look is a process of its own.
fn until_imported(world: &World, count: usize) {
    let looks = (0..300).find(|_| sessions_imported(world) >= count);
    assert!(looks.is_some(), "{:?}", jobs(world));
}

#[test]
fn watched_agent_is_imported_by_a_job() {
    let world = World::new([]);
    world.unchecked();
    let file = session_file(&world);
    assert_eq!(world.run(&["schedule", "add", "import-watch", "pi"]).ok().text(), format!("{KEY_OF_PI}\n"));
    let mut run = world.start(&["schedule", "run", "--json"]);
    let began = event(&mut run, "began");
    assert_eq!(began, json!({ "event": "began", "key": KEY_OF_PI, "attempt": 1 }));
    assert!(event(&mut run, "finished")["next"].is_i64());
    assert_eq!(sessions_imported(&world), 1);
    // What is written meanwhile comes in the next time.
    let mut written = std::fs::File::options().append(true).open(&file).unwrap();
    written
        .write_all(lines(&[user("u4", "a3", "And now for something completely different.")]).as_bytes())
        .unwrap();
    event(&mut run, "finished");
    let found = world.run(&["search", "completely different", "--json"]).ok().json_lines();
    assert_eq!(found[0]["session"], ID, "{found:?}");
    // Nobody else runs jobs while one is at it, and it lets go of them between two.
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait().status.code(), Some(130));
    let listed = jobs(&world);
    assert_eq!(listed.len(), 1);
    let of = |name: &str| listed[0][name].clone();
    assert_eq!(
        (of("key"), of("kind"), of("state")),
        (json!(KEY_OF_PI), json!("import-watch"), json!("waiting"))
    );
    assert_eq!((of("attempts"), of("attemptLimit"), of("error")), (json!(0), json!(8), Value::Null));
    assert!(world.run(&["schedule"]).ok().text().starts_with(KEY_OF_PI));
}

#[test]
fn once_runs_what_is_due_and_ends() {
    let world = World::new([]);
    world.unchecked();
    session_file(&world);
    world.run(&["schedule", "run", "--once"]).ok();
    world.run(&["schedule", "add", "import-watch", "pi", "codex"]).ok();
    let again = world.run(&["schedule", "add", "import-watch", "pi"]).ok();
    assert!(again.err.contains("already exists"), "{}", again.err);
    let ran = world.run(&["schedule", "run", "--once"]).ok();
    assert!(ran.err.contains(&format!("Job {KEY_OF_PI} is done until its next time.")), "{}", ran.err);
    assert_eq!(sessions_imported(&world), 1);
    // Not before ten seconds are over, unless it is asked for.
    assert_eq!(world.run(&["schedule", "run", "--once", "--json"]).ok().text(), "");
    world.run(&["schedule", "retry", KEY_OF_PI]).ok();
    assert_eq!(world.run(&["schedule", "run", "--once", "--json"]).ok().json_lines().len(), 2);
    world.run(&["schedule", "remove", KEY_OF_PI]).ok();
    assert_eq!(jobs(&world).len(), 1);
}

#[test]
fn names_that_are_not_there_are_refused() {
    let world = World::new([]);
    world.run(&["schedule", "add", "import-watch", "pi", "nobody"]).fails(2, &["nobody", "codex"]);
    world.run(&["schedule", "add", "import-watch"]).fails(2, &["AGENT"]);
    world.run(&["schedule", "add", "import-watch", "chatgpt"]).fails(2, &["FILE"]);
    for verb in ["remove", "retry"] {
        world.run(&["schedule", verb, "nothing"]).fails(2, &["there is no job `nothing`", "schedule list"]);
    }
    assert!(!world.store().exists(), "nothing was made");
    let listed = world.run(&["schedule"]).ok();
    assert!(listed.err.contains("There are no jobs."), "{}", listed.err);
    assert_eq!(listed.text(), "");
}

#[test]
fn job_that_fails_is_listed_with_its_error() {
    let world = World::new([]);
    world.unchecked();
    let home = quipu_host::Home::at(world.path("home/.quipu"), Arc::new(quipu_host::SilentObserver));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let broken = NewJob {
        key: "broken".into(),
        kind: "import-watch".into(),
        payload: json!({ "agent": "nobody" }).to_string(),
        due: JobTime::After(Duration::ZERO),
        attempt_limit: 1,
    };
    runtime.block_on(async {
        let store = home.store().await.unwrap();
        store.put_job(broken, quipu_host::now()).await.unwrap();
    });
    world.run(&["schedule", "run", "--once"]).fails(1, &["1 job failed"]);
    let listed = jobs(&world);
    assert_eq!((&listed[0]["state"], &listed[0]["attempts"]), (&json!("failed"), &json!(1)));
    assert!(listed[0]["error"].as_str().unwrap().contains("`nobody` is not an agent"), "{listed:?}");
    assert!(world.run(&["schedule", "list"]).ok().text().contains("1 of 1 attempts"));
    // It stays failed until somebody wants it tried again.
    assert_eq!(world.run(&["schedule", "run", "--once", "--json"]).ok().text(), "");
    world.run(&["schedule", "retry", "broken"]).ok();
    assert_eq!(jobs(&world)[0]["state"], "waiting");
}

#[test]
fn serve_runs_jobs_and_a_printed_task_does_not() {
    let world = World::new([Answer::new().text("Done.").reply()]);
    world.unchecked();
    session_file(&world);
    world.run(&["schedule", "add", "import-watch", "pi"]).ok();
    world.run(&["-p", "Hello."]).ok();
    let before = jobs(&world);
    assert_eq!((&before[0]["state"], &before[0]["attempts"]), (&json!("waiting"), &json!(0)));
    assert_eq!(before[0]["due"], before[0]["next"]);
    assert_eq!(sessions_imported(&world), 1, "that of the task");

    let mut command = world.quipu(&["serve"]);
    command.stdin(std::process::Stdio::piped());
    let mut serve = RunningCommand::start(command);
    let stdin = serve.child.stdin.take();
    until_imported(&world, 2);
    drop(stdin);
    serve.wait().ok();
    assert_eq!(jobs(&world)[0]["state"], "waiting");
}

#[test]
fn open_terminal_runs_jobs_and_leaves_at_once() {
    let world = World::new([]);
    world.unchecked();
    session_file(&world);
    world.run(&["schedule", "add", "import-watch", "pi"]).ok();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    until_imported(&world, 1);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(jobs(&world)[0]["state"], "waiting");
}
