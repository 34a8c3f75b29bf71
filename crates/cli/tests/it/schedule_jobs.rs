//! Jobs with a schedule: prompts in sessions of their own, where their answers go, and what is refused.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use quipu_store::{ClaimOutcome, Jobs as _, Owner, RunnerLeaseOutcome};
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

const LATER: [&str; 2] = ["--at", "2100-01-01T00:00"];

/// Adds a job that is due in many years, unless it is made due.
fn add(world: &World, args: &[&str]) {
    let args = [&["schedule", "add", "prompt"], &LATER[..], &["--name", "job"], args].concat();
    assert_eq!(world.run(&args).ok().text(), "job\n");
}

fn jobs(world: &World) -> Vec<Value> {
    world.run(&["schedule", "list", "--json"]).ok().json_lines()
}

fn log(world: &World) -> Vec<Value> {
    world.run(&["schedule", "log", "--json"]).ok().json_lines()
}

/// Gives the model a price: a thousand tokens of an answer cost a dollar, and it answers with 2,000 at most.
fn price(world: &World) {
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let model = &mut file["providers"]["testing"]["models"][0];
    model["maxTokens"] = json!(2_000);
    model["cost"] = json!({ "input": 0, "output": 1_000, "cacheRead": 0, "cacheWrite": 0 });
    std::fs::write(&path, file.to_string()).unwrap();
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
fn nobody_is_asked_and_what_needs_a_person_is_refused() {
    let write = call("c1", "write", &json!({ "path": "../outside", "content": "x" }));
    let world = World::new([write, Answer::new().text("I could not.").reply()]);
    add(&world, &["--budget", "50", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    assert!(!world.path("outside").exists());
    let result = messages(&world.requests()[1]).last().unwrap().to_string();
    assert!(result.contains("nobody is here to give it"), "{result}");
}

/// Answers requests with these statuses; gives what each request was.
fn server(statuses: &'static [u16]) -> (String, std::thread::JoinHandle<Vec<(String, Value)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut bodies = Vec::new();
        for status in statuses {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\n\r\n"
            );
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            bodies.push((first, serde_json::from_slice(&body).unwrap()));
        }
        bodies
    });
    (format!("http://{address}/hook/SECRET-PATH"), thread)
}

#[test]
fn webhook_that_fails_is_called_again_without_another_run() {
    let world = World::says("Answer.");
    let (url, thread) = server(&[500, 307, 200]);
    let args = [
        "schedule",
        "add",
        "prompt",
        "--cron",
        "@yearly",
        "--name",
        "job",
        "--webhook",
        &url,
        "--budget",
        "50",
        "x",
    ];
    world.run(&args).ok();
    for status in ["500", "307"] {
        world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
        let listed = world.run(&["schedule", "list", "--json"]).ok().text();
        assert!(listed.contains(&format!("answered with status {status}")), "{listed}");
        assert!(!listed.contains("SECRET-PATH"), "{listed}");
    }
    world.run(&["schedule", "run", "job"]).ok();
    let posted = thread.join().unwrap();
    assert!(posted[0].0.starts_with("POST /hook/SECRET-PATH "), "{}", posted[0].0);
    assert_eq!(posted[0].1["text"], "Answer.");
    assert_eq!((&posted[0].1["id"], &posted[0].1["state"]), (&posted[2].1["id"], &json!("done")));
    assert_eq!((world.requests().len(), log(&world)[0]["delivery"].clone()), (1, json!("done")));
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    set_mode(path, 0o755);
}

#[test]
fn command_and_notification_get_the_answer() {
    let world = World::new([Answer::new().text("One.").reply(), Answer::new().text("-Two.").reply()]);
    add(
        &world,
        &[
            "--command",
            "cat > \"$QUIPU_HOME/../got\"; echo $QUIPU_JOB $QUIPU_JOB_STATE >> \"$QUIPU_HOME/../got\"",
            "--budget",
            "50",
            "x",
        ],
    );
    let home = world.path("home/.quipu");
    let run = |path: &str| {
        let mut command = world.quipu(&["schedule", "run", "job"]);
        command.env("QUIPU_HOME", &home).env("PATH", path);
        RunningCommand::start(command).wait()
    };
    run("/usr/bin:/bin").ok();
    assert_eq!(std::fs::read_to_string(world.path("home/got")).unwrap(), "One.job done\n");
    let bin = world.path("home/bin");
    std::fs::create_dir_all(&bin).unwrap();
    script(&bin.join("notify-send"), "#!/bin/sh\nfor word; do echo \"$word\"; done > \"$HOME/notified\"\n");
    add(&world, &["--notify", "desktop", "--budget", "50", "x"]);
    run(&format!("{}:/usr/bin:/bin", bin.display())).ok();
    let notified = std::fs::read_to_string(world.path("home/notified")).unwrap();
    assert_eq!(notified, "--app-name=Quipu\n--\nQuipu: job\n-Two.\n");
}

#[test]
fn paused_job_waits_and_a_removed_one_is_gone() {
    let world = World::says("Done.");
    world.run(&["schedule", "add", "prompt", "--cron", "@daily", "--name", "job", "x"]).ok();
    world.run(&["schedule", "pause", "job"]).ok();
    assert_eq!(jobs(&world)[0]["state"], "paused");
    assert!(world.run(&["schedule"]).ok().text().contains("paused"));
    world.run(&["schedule", "run", "--once"]).ok();
    assert_eq!(world.requests().len(), 0);
    world.run(&["schedule", "resume", "job"]).ok();
    let resumed = jobs(&world);
    assert_eq!((&resumed[0]["state"], &resumed[0]["due"]), (&json!("waiting"), &resumed[0]["next"]));
    world.run(&["schedule", "rm", "job"]).ok();
    assert_eq!(jobs(&world), Vec::<Value>::new());
    for verb in ["pause", "resume", "run"] {
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
    assert!(!world.store().exists(), "nothing was made");
}

#[test]
fn model_adds_a_job_only_when_a_person_allows_it() {
    let arguments = json!({ "action": "add", "key": "later", "prompt": "Look again.", "cron": "0 9 * * *" });
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
        title.contains("later") && title.contains("0 9 * * *") && title.contains("Look again."),
        "{title}"
    );
    let answer = json!({ "type": "extension_ui_response", "id": asked["id"], "value": "once" });
    writeln!(stdin, "{answer}").unwrap();
    running.wait().ok();
    drop(stdin);
    let listed = jobs(&world);
    assert_eq!((&listed[0]["key"], &listed[0]["state"]), (&json!("later"), &json!("waiting")), "{listed:?}");
    assert!(listed[0]["payload"].as_str().unwrap().contains("\"byModel\":true"), "{listed:?}");
}
