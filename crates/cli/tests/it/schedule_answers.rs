//! Where the answers of jobs go, and what happens when they cannot get there.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal};
use crate::schedule_jobs::{add, jobs, log};
use crate::support::*;

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

/// Adds a job that is due once a year.
fn yearly(world: &World, args: &[&str]) {
    let args = [&["schedule", "add", "prompt", "--cron", "@yearly", "--name", "job", "--budget", "50"], args]
        .concat();
    world.run(&args).ok();
}

#[test]
fn webhook_that_fails_is_called_again_without_another_run() {
    let long = "A long answer. ".repeat(2_000);
    let world = World::says(&long);
    let (url, thread) = server(&[500, 503, 200]);
    yearly(&world, &["--webhook", &url, "x"]);
    for status in ["500", "503"] {
        world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
        let listed = world.run(&["schedule", "list", "--json"]).ok().text();
        assert!(listed.contains(&format!("answered with status {status}")), "{listed}");
        assert!(!listed.contains("SECRET-PATH"), "{listed}");
    }
    world.run(&["schedule", "run", "job"]).ok();
    let posted = thread.join().unwrap();
    assert!(posted[0].0.starts_with("POST /hook/SECRET-PATH "), "{}", posted[0].0);
    assert!(posted[0].1["text"].as_str().unwrap().starts_with("A long answer. A long"));
    assert_eq!((&posted[0].1["truncated"], &posted[0].1["state"]), (&json!(true), &json!("done")));
    assert_eq!((&posted[0].1, &posted[1].1), (&posted[2].1, &posted[2].1), "the same each time");
    assert_eq!((world.requests().len(), log(&world)[0]["delivery"].clone()), (1, json!("done")));
}

#[test]
fn answer_that_cannot_be_delivered_stops_no_job() {
    let world = World::new(["One.", "Two."].map(|text| Answer::new().text(text).reply()));
    let (url, thread) = server(&[404, 200]);
    yearly(&world, &["--webhook", &url, "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    let listed = &jobs(&world)[0];
    let error = listed["error"].as_str().unwrap();
    assert!(error.contains("not delivered") && error.contains("status 404"), "{error}");
    assert_eq!(
        (&listed["state"], &listed["attempts"]),
        (&json!("waiting"), &json!(0)),
        "its next time is new"
    );
    assert_eq!(log(&world)[0]["delivery"], "failed");
    // The terminal says so, and the next time does its work.
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("not delivered to the webhook");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    world.run(&["schedule", "run", "job"]).ok();
    assert_eq!(thread.join().unwrap()[1].1["text"], "Two.");
    let delivered: Vec<Value> = log(&world).iter().map(|run| run["delivery"].clone()).collect();
    assert_eq!((world.requests().len(), delivered), (2, vec![json!("done"), json!("failed")]));
}

#[test]
fn paused_job_delivers_its_answer_before_it_runs_again() {
    let world = World::new(["One.", "Two."].map(|text| Answer::new().text(text).reply()));
    let (url, thread) = server(&[500, 200, 200]);
    yearly(&world, &["--webhook", &url, "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    for verb in ["pause", "resume", "run"] {
        world.run(&["schedule", verb, "job"]).ok();
    }
    let texts: Vec<Value> = thread.join().unwrap().iter().map(|(_, body)| body["text"].clone()).collect();
    assert_eq!(texts, ["One.", "One.", "Two."]);
    assert!(log(&world).iter().all(|run| run["delivery"] == "done"), "{:?}", log(&world));
}

/// The process whose number a command wrote.
fn written_pid(world: &World) -> i32 {
    std::fs::read_to_string(world.path("home/pid")).unwrap().trim().parse().unwrap()
}

#[test]
fn child_of_a_command_that_ended_well_holds_nothing_up() {
    let world = World::says("Answer.");
    let line = "cat >> \"$HOME/got\"; sleep 300 & echo $! > \"$HOME/pid\"";
    add(&world, &["--budget", "50", "--command", line, "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    let pid = written_pid(&world);
    assert!(lives(pid));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    assert_eq!(std::fs::read_to_string(world.path("home/got")).unwrap(), "Answer.");
    assert_eq!(log(&world)[0]["delivery"], "done");
}

#[test]
fn command_that_fails_leaves_no_processes() {
    let world = World::new(["One.", "Two."].map(|text| Answer::new().text(text).reply()));
    let line = "sleep 300 & echo $! > \"$HOME/pid\"; echo broken >&2; exit 3";
    add(&world, &["--budget", "50", "--command", line, "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    gone(written_pid(&world));
    assert!(jobs(&world)[0]["error"].as_str().unwrap().contains("broken"));
    // One that is not there is not tried again.
    add(&world, &["--budget", "50", "--command", "no-such-command-at-all", "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    assert_eq!(
        (&jobs(&world)[0]["state"], &log(&world)[0]["delivery"]),
        (&json!("waiting"), &json!("failed"))
    );
}

#[test]
fn last_failure_is_told_to_the_next_terminal() {
    let world = World::new([Reply::error(400, "invalid_request_error", "no such thing")]);
    add(&world, &["--budget", "50", "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    let (job, run) = (&jobs(&world)[0], &log(&world)[0]);
    assert_eq!((&job["state"], &job["attempts"]), (&json!("waiting"), &json!(0)), "it waits for its time");
    assert_eq!((&run["state"], &run["delivery"]), (&json!("failed"), &json!("pending")));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("no such thing");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
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
