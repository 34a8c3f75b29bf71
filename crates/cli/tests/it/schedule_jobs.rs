//! Jobs with a schedule: prompts in sessions of their own, where their answers go, and what is refused.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use quipu_store::{ClaimOutcome, Jobs as _, Owner, RunnerLeaseOutcome};
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

const LATER: [&str; 2] = ["--at", "2100-01-01T00:00"];

/// What looks like a key, and is none.
const KEY_LIKE: &str = "ghp_R7mK2xQ9vT4nB8wL1zJ6cH3dF5gP0sYaUeXo";

/// Adds a job that is due in many years, unless it is made due.
pub(crate) fn add(world: &World, args: &[&str]) {
    let args = [&["schedule", "add", "prompt"], &LATER[..], &["--name", "job"], args].concat();
    assert_eq!(world.run(&args).ok().text(), "job\n");
}

pub(crate) fn jobs(world: &World) -> Vec<Value> {
    world.run(&["schedule", "list", "--json"]).ok().json_lines()
}

pub(crate) fn log(world: &World) -> Vec<Value> {
    world.run(&["schedule", "log", "--json"]).ok().json_lines()
}

#[test]
fn prompt_runs_in_its_own_session_and_tells_the_next_terminal() {
    let world = World::new([Answer::new().text("Nothing broke overnight.").reply()]);
    world.file("AGENTS.md", "Answer in one line.");
    let args = [
        "schedule",
        "add",
        "prompt",
        "--cron",
        "0 7 * * 1-5",
        "--zone",
        "Europe/Berlin",
        "--budget",
        "50",
        "Look at CI.",
    ];
    assert_eq!(world.run(&args).ok().text(), "prompt/1\n");
    let listed = world.run(&["schedule"]).ok().text();
    assert!(listed.contains("0 7 * * 1-5 (Europe/Berlin)") && listed.contains("Look at CI."), "{listed}");
    let ran = world.run(&["schedule", "run", "prompt/1", "--json"]).ok().json_lines();
    assert_eq!((&ran[0]["event"], &ran[1]["event"]), (&json!("began"), &json!("finished")));
    let next = jiff::Timestamp::from_millisecond(ran[1]["next"].as_i64().unwrap()).unwrap();
    assert_eq!(next.in_tz("Europe/Berlin").unwrap().strftime("%H:%M:%S").to_string(), "07:00:00");
    let request = &world.requests()[0];
    assert!(request.json().to_string().contains("Answer in one line."), "the rules of the project are there");
    assert_eq!(wire_text(&messages(request)[0]), "Look at CI.");
    let run = &log(&world)[0];
    assert_eq!(
        (&run["state"], &run["text"], &run["delivery"]),
        (&json!("done"), &json!("Nothing broke overnight."), &json!("pending"))
    );
    let session = run["session"].as_str().unwrap().to_owned();
    assert!(world.sessions().iter().any(|row| row["id"] == session.as_str()), "{session}");
    // One start shows it, and no second one. It would ask about the rules first.
    std::fs::remove_file(world.path("work/AGENTS.md")).unwrap();
    for shows in [true, false] {
        let mut terminal = Terminal::open(&world, &[]);
        terminal.shows("test-1");
        if shows {
            terminal.shows("Nothing broke overnight.");
        }
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        assert_eq!(log(&world)[0]["delivery"], "done");
    }
}

#[test]
fn due_job_runs_once_with_two_runners() {
    let world = World::says("Done.");
    world
        .run(&[
            "schedule", "add", "prompt", "--in", "1s", "--name", "soon", "--notify", "none", "--budget",
            "50", "x",
        ])
        .ok();
    let mut one = world.start(&["schedule", "run", "--json"]);
    let mut other = world.start(&["schedule", "run", "--json"]);
    // It is removed when it is done: both see that there is nothing left.
    let done = (0..600).any(|_| jobs(&world).is_empty());
    assert!(done, "{:?}", jobs(&world));
    for running in [&mut one, &mut other] {
        running.signal(Signal::SIGINT);
    }
    let said = format!("{}{}", one.wait().text(), other.wait().text());
    assert_eq!(said.matches("\"finished\"").count(), 1, "{said}");
    assert_eq!((world.requests().len(), log(&world).len()), (1, 1));
}

#[test]
fn killed_run_is_interrupted_and_runs_again() {
    let gate = Gate::new();
    let held = Reply::sse("").then_gate(&gate);
    let world = World::new([held, Answer::new().text("Second.").reply()]);
    add(&world, &["--notify", "none", "--budget", "50", "x"]);
    let mut running = world.start(&["schedule", "run", "job", "--json"]);
    assert!(running.line().unwrap().contains("began"));
    reached(&gate);
    running.signal(Signal::SIGKILL);
    drop(running.wait());
    assert_eq!(log(&world)[0]["state"], "running");
    // Its leases end: half a minute that nobody has to wait for, as time is an argument.
    let home = quipu_host::Home::at(world.path("home/.quipu"), Arc::new(quipu_host::SilentObserver));
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let store = home.store().await.unwrap();
        let (later, ttl) = (quipu_host::now() + 60_000, Duration::from_millis(1));
        let led = store.lead_jobs(&Owner("test".into()), later, ttl).await.unwrap();
        let RunnerLeaseOutcome::Granted(lease) = led else { panic!("{led:?}") };
        let claimed = store.claim_job(&lease, &["scheduled"], later, ttl).await.unwrap();
        let ClaimOutcome::Job(claim) = claimed else { panic!("{claimed:?}") };
        assert_eq!(claim.job.attempts, 2, "the one that was lost counts");
        store.release_job(&claim, quipu_host::now()).await.unwrap();
        store.resign_jobs(&lease).await.unwrap();
    });
    world.run(&["schedule", "run", "--once"]).ok();
    let states: Vec<Value> = log(&world).iter().map(|run| run["state"].clone()).collect();
    assert_eq!(states, ["done", "interrupted"]);
    assert_eq!(log(&world)[0]["attempt"], 2);
    world.unchecked();
}

#[test]
fn budget_stops_a_job_and_without_one_nothing_paid_runs() {
    let read = json!({ "path": "a" }).to_string();
    let first = Answer::new().tool_call("c1", "read", &read).usage(10, 1_000, 0, 0).reply();
    let world = World::new([first, Answer::new().text("Never.").reply()]);
    world.file("a", "x");
    price(&world);
    add(&world, &["x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    let listed = jobs(&world);
    assert!(listed[0]["error"].as_str().unwrap().contains("give the job a budget"), "{listed:?}");
    assert_eq!(world.requests().len(), 0, "nothing was sent");
    // The first call can cost all of it, and nothing is left for a second one.
    add(&world, &["--budget", "1.5", "--tools", "read", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    let requests = world.requests();
    assert_eq!(requests[0].json()["max_tokens"], 1_500);
    let tools = requests[0].json()["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect::<Vec<_>>();
    assert!(tools.contains(&json!("read")) && !tools.contains(&json!("bash")), "{tools:?}");
    let run = &log(&world)[0];
    let text = run["text"].as_str().unwrap().to_owned();
    assert!(run["state"] == "limit" && text.contains("budget of $1.5"), "{run} after {}", requests.len());
    let listed = jobs(&world);
    let stands = (&listed[0]["state"], &listed[0]["attempts"]);
    assert_eq!(stands, (&json!("waiting"), &json!(0)), "it is not tried again, and keeps its time");
}

#[test]
fn call_that_needs_a_person_is_refused() {
    let write = call("c1", "write", &json!({ "path": "../outside", "content": "x" }));
    let world = World::new([write, Answer::new().text("I could not.").reply()]);
    add(&world, &["--budget", "50", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    assert!(!world.path("outside").exists());
    let result = messages(&world.requests()[1]).last().unwrap().to_string();
    assert!(result.contains("nobody is here to give it"), "{result}");
}

#[test]
fn paused_job_waits_and_a_removed_one_is_gone() {
    let world = World::says("Done.");
    world.run(&["schedule", "add", "prompt", "--cron", "@daily", "--name", "job", "x"]).ok();
    world.run(&["schedule", "pause", "job"]).ok();
    assert_eq!(jobs(&world)[0]["state"], "paused");
    assert!(world.run(&["schedule"]).ok().text().contains("paused"));
    world.run(&["schedule", "run", "--once"]).ok();
    // It stays so until a person ends that.
    for verb in ["run", "retry"] {
        world.run(&["schedule", verb, "job"]).fails(2, &["is paused", "quipu schedule resume job"]);
    }
    let changed = ["schedule", "add", "prompt", "--cron", "@daily", "--name", "job", "y"];
    assert!(world.run(&changed).ok().err.contains("stays paused"));
    assert_eq!((&jobs(&world)[0]["state"], world.requests().len()), (&json!("paused"), 0));
    world.run(&["schedule", "resume", "job"]).ok();
    let resumed = jobs(&world);
    assert_eq!((&resumed[0]["state"], &resumed[0]["due"]), (&json!("waiting"), &resumed[0]["next"]));
    world.run(&["schedule", "rm", "job"]).ok();
    assert_eq!(jobs(&world), Vec::<Value>::new());
    for verb in ["pause", "resume", "run", "log"] {
        world.run(&["schedule", verb, "job"]).fails(2, &["there is no job `job`"]);
    }
}

#[test]
fn schedules_that_cannot_be_are_refused() {
    let world = World::new([]);
    let refused = |args: &[&str], words: &[&str]| {
        world.run(&[&["schedule", "add", "prompt"], args, &["x"]].concat()).fails(2, words);
    };
    refused(&["--cron", "0 0 30 2 *"], &["never fires"]);
    refused(&["--cron", "99 * * * *"], &["99 is not between 0 and 59"]);
    refused(&["--cron", "@daily", "--zone", "Europe/Atlantis"], &["no time zone"]);
    refused(&["--every", "1s"], &["at least 10 s"]);
    refused(&["--at", "2001-01-01T00:00"], &["in the past"]);
    refused(&[], &["--cron"]);
    refused(&["--in", "1m", "--every", "1m"], &["cannot be used with"]);
    refused(&["--in", "1m", "--webhook", "http://example.com/"], &["https://"]);
    refused(&["--in", "1m", "--webhook", "https://user:pass@example.com/"], &["https://"]);
    refused(&["--in", "1m", "--budget", "0"], &["above 0"]);
    refused(&["--in", "1m", "--tools", "fly"], &["`fly` is not a built-in tool"]);
    refused(&["--in", "1m", "--cwd", "nowhere"], &["not a directory"]);
    refused(&["--in", "99999999d"], &["at most 36500d"]);
    refused(&["--in", "1m", "--name", ""], &["one line of text"]);
    refused(&["--in", "1m", "--name", "a\u{1b}[2J"], &["one line of text"]);
    refused(&["--in", "1m", "--model", "nowhere/at-all"], &["--model: ", "nowhere"]);
    refused(&["--in", "1m", "--model", "testing/test-1"], &["testing/test-1 is not free", "--budget"]);
    // A key would stand in the store as it is.
    let key = format!("--command=curl -H 'x-api-key: {KEY_LIKE}' https://example.com");
    let refusal =
        world.run(&["schedule", "add", "prompt", "--in", "1m", &key, "x"]).fails(2, &["looks like a key"]);
    assert!(!refusal.err.contains(KEY_LIKE), "{}", refusal.err);
    let prompt = format!("The key is {KEY_LIKE}.");
    world
        .run(&["schedule", "add", "prompt", "--in", "1m", &prompt])
        .fails(2, &["the prompt holds what looks like"]);
    assert!(!world.store().exists(), "nothing was made");
}

#[test]
fn model_adds_a_job_only_when_a_person_allows_it() {
    let prompt = format!("Look again.{} Then stop.", " And again.".repeat(100));
    let arguments = json!({ "action": "add", "key": "later", "prompt": prompt, "cron": "0 9 * * *" });
    let world = World::new([
        Answer::new().text("No tool.").reply(),
        call("c1", "schedule", &arguments),
        Answer::new().text("Refused.").reply(),
        call("c1", "schedule", &arguments),
        Answer::new().text("Added.").reply(),
    ]);
    let has_tool =
        |request: &Value| request["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "schedule");
    world.run(&["-p", "x"]).ok();
    assert!(!has_tool(&world.requests()[0].json()));
    world.run(&["config", "set", "schedule.tool", "true"]).ok();
    world.run(&["-p", "x"]).ok();
    assert!(has_tool(&world.requests()[1].json()));
    assert_eq!(jobs(&world), Vec::<Value>::new(), "nobody was there");
    let mut command = world.quipu(&["-p", "--mode", "json", "--ask-on-stdin", "x"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = RunningCommand::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    let asked = loop {
        let line: Value = serde_json::from_str(&running.line().expect("a question")).unwrap();
        if line["type"] == "extension_ui_request" {
            break line;
        }
    };
    let title = asked["title"].as_str().unwrap();
    assert!(
        title.contains("later") && title.contains("0 9 * * *") && title.contains("Then stop."),
        "all of the prompt is shown: {title}"
    );
    assert!(title.contains("testing/test-1") && title.contains("bash"), "{title}");
    let answer = json!({ "type": "extension_ui_response", "id": asked["id"], "value": "once" });
    writeln!(stdin, "{answer}").unwrap();
    running.wait().ok();
    drop(stdin);
    let listed = jobs(&world);
    assert_eq!((&listed[0]["key"], &listed[0]["state"]), (&json!("later"), &json!("waiting")), "{listed:?}");
    let payload = listed[0]["payload"].as_str().unwrap();
    assert!(
        payload.contains("\"byModel\":true") && payload.contains("\"model\":\"testing/test-1\""),
        "{payload}"
    );
}

#[test]
fn jobs_added_at_once_are_all_there() {
    let world = World::new([]);
    let args = ["schedule", "add", "prompt", "--in", "1h", "--budget", "1", "x"];
    let running: Vec<RunningCommand> = (0..6).map(|_| world.start(&args)).collect();
    let mut keys: Vec<String> = running.into_iter().map(|running| running.wait().ok().text()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), jobs(&world).len()), (6, 6), "{keys:?}");
}

#[test]
fn named_job_that_is_added_again_stays_as_it_is() {
    let world = World::new([]);
    let args = ["schedule", "add", "prompt", "--every", "1d", "--name", "job", "--budget", "1", "x"];
    world.run(&args).ok();
    let before = jobs(&world);
    assert!(world.run(&args).ok().err.contains("already exists"));
    assert_eq!(jobs(&world), before);
    // Sunday ends a week as well.
    world.run(&["schedule", "add", "prompt", "--cron", "0 9 * * sat-sun", "--budget", "1", "x"]).ok();
}

#[test]
fn run_of_a_removed_job_ends_in_the_log() {
    let gate = Gate::new();
    let held = Reply::sse("").then_gate(&gate);
    let world = World::new([held]);
    add(&world, &["--budget", "50", "x"]);
    let mut running = world.start(&["schedule", "run", "job", "--json"]);
    assert!(running.line().unwrap().contains("began"));
    reached(&gate);
    world.run(&["schedule", "rm", "job"]).ok();
    // It learns of that when it renews its lease.
    assert!(running.line().unwrap().contains("\"lost\""));
    running.wait().ok();
    let run = &log(&world)[0];
    assert_eq!(run["state"], "interrupted");
    assert!(run["ended"].is_i64() && run["text"].as_str().unwrap().contains("removed"), "{run}");
    world.unchecked();
}

#[test]
fn import_of_an_agent_without_sessions_is_no_failure() {
    let world = World::new([]);
    world.run(&["schedule", "add", "import", "--every", "6h", "--name", "job", "pi"]).ok();
    world.run(&["schedule", "run", "job"]).ok();
    assert_eq!(log(&world)[0]["state"], "done");
}

#[test]
fn model_cannot_add_what_a_person_does_not_see_or_often() {
    let add = |id: &str, prompt: &str, every: &str| {
        call(id, "schedule", &json!({ "action": "add", "key": "k", "prompt": prompt, "every": every }))
    };
    let long = "x".repeat(2_001);
    let world =
        World::new([add("c1", &long, "1h"), add("c2", "x", "30s"), Answer::new().text("No.").reply()]);
    world.run(&["config", "set", "schedule.tool", "true"]).ok();
    world.run(&["-p", "--permissions", "full", "x"]).ok();
    let requests = world.requests();
    let result = |at: usize| messages(&requests[at]).last().unwrap().to_string();
    assert!(result(1).contains("more than 2000 characters"), "{}", result(1));
    assert!(result(2).contains("at least 10 minutes apart"), "{}", result(2));
    assert_eq!(jobs(&world), Vec::<Value>::new());
}

#[test]
fn changes_of_jobs_are_objects_for_programs() {
    let world = World::new([]);
    let change = |args: &[&str]| {
        let mut args = [&["schedule"], args].concat();
        args.push("--json");
        let said = world.run(&args).ok();
        assert_eq!(said.err, "", "{args:?}");
        said.json()
    };
    let add = ["add", "prompt", "--cron", "@daily", "--name", "job", "--budget", "1", "x"];
    let added = change(&add);
    assert_eq!(
        (&added["change"], &added["key"], &added["kind"]),
        (&json!("added"), &json!("job"), &json!("scheduled"))
    );
    let mut listed = jobs(&world).remove(0);
    listed["change"] = json!("unchanged");
    assert_eq!(change(&add), listed, "as the list has it");
    assert_eq!(change(&[&add[..8], &["y"]].concat())["change"], "changed");
    let stands = |said: &Value| (said["change"].clone(), said["state"].clone());
    assert_eq!(stands(&change(&["pause", "job"])), (json!("paused"), json!("paused")));
    assert_eq!(stands(&change(&["pause", "job"])), (json!("unchanged"), json!("paused")));
    assert_eq!(stands(&change(&["resume", "job"])), (json!("resumed"), json!("waiting")));
    let due = change(&["retry", "job"]);
    assert_eq!(stands(&due), (json!("due"), json!("waiting")));
    assert!(due["next"].as_i64().unwrap() <= quipu_host::now());
    assert_eq!(stands(&change(&["rm", "job"])), (json!("removed"), json!("waiting")));
    let watches = ["schedule", "add", "import-watch", "pi", "codex", "--json"];
    let watches = world.run(&watches).ok().json_lines();
    assert_eq!(
        watches.iter().map(|job| &job["key"]).collect::<Vec<_>>(),
        ["import-watch/pi", "import-watch/codex"]
    );
}

#[test]
fn calls_of_a_job_have_a_purpose_of_their_own() {
    let world = World::says("Done.");
    add(&world, &["--budget", "50", "--notify", "none", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    world.server.push(Answer::new().text("Yes.").reply());
    world.run(&["-p", "is it?"]).ok();
    let usage = world.run(&["usage", "--by", "purpose", "--json"]).ok().json_lines();
    let calls =
        |purpose: &str| usage.iter().find(|row| row["purpose"] == purpose).map(|row| row["calls"].clone());
    assert_eq!((calls("schedule"), calls("answer")), (Some(json!(1)), Some(json!(1))), "{usage:?}");
}

#[test]
fn long_job_holds_up_neither_prompts_nor_imports() {
    let gate = Gate::new();
    let held = Reply::sse("").then_gate(&gate);
    let world = World::new([held, Answer::new().text("Quick.").reply()]);
    world.unchecked();
    add(&world, &["--notify", "none", "--budget", "50", "slow"]);
    let mut running = world.start(&["schedule", "run", "--json"]);
    world.run(&["schedule", "retry", "job"]).ok();
    assert!(running.line().unwrap().contains("\"began\""));
    reached(&gate);
    // They are added while it runs, and are done before it is.
    let args = [
        "schedule", "add", "prompt", "--in", "1s", "--name", "quick", "--notify", "none", "--budget", "50",
        "x",
    ];
    world.run(&args).ok();
    world.run(&["schedule", "add", "import-watch", "pi"]).ok();
    let mut done = std::collections::BTreeSet::new();
    while done.len() < 2 {
        let line: Value = serde_json::from_str(&running.line().unwrap()).unwrap();
        if line["event"] == "finished" {
            done.insert(line["key"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(done.into_iter().collect::<Vec<_>>(), ["import-watch/pi", "quick"]);
    let slow = jobs(&world).into_iter().find(|job| job["key"] == "job").unwrap();
    assert_eq!(slow["state"], "running");
    running.signal(Signal::SIGINT);
    drop(running.wait());
}
