//! `kill -9` at each point of a turn: thought, request, result, command, result of the command.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply};

use super::*;
use crate::kill::{Random, effects, ids};

const TASK: [&str; 5] = ["-p", "--profile", "shell", "--permissions", "full"];

/// What a command leaves, once for each time that it ran.
fn ran(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.path("work/ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn waits_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

/// The process is killed.
fn killed(running: RunningCommand) {
    running.signal(Signal::SIGKILL);
    running.wait();
}

/// It goes on with these replies; what the model is told first.
fn continues(world: &mut World, replies: &[&str]) -> Vec<(String, String)> {
    world.another_server(replies.iter().map(|text| reply(text)));
    let ran = world.run(&["-p", "-c"]).ok();
    assert_eq!(ran.text(), "Back.\n", "{}", ran.err);
    said(world, 0)
}

#[test]
fn killed_in_thought_it_asks_the_model() {
    let mut world = World::new([]);
    // Who takes no connection never reads a request.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    world.configure(&format!("http://{}", deaf.local_addr().unwrap()));
    let mut running = world.start(&[&TASK[..], &["--mode", "json", "task"]].concat());
    while !running.line().unwrap().contains("\"message_end\"") {}
    killed(running);
    let told = continues(&mut world, &["echo once >> ran", "exit\nBack."]);
    assert_eq!(told, [("user".to_owned(), "task".to_owned())]);
    assert_eq!(ran(&world), ["once"]);
}

#[test]
fn killed_in_a_request_half_a_reply_is_not_run() {
    for half in ["", "echo half >> ran"] {
        let gate = Gate::new();
        let begun = Answer::new().text(half).unfinished();
        let mut world = World::new([Reply::sse(begun).then_gate(&gate)]);
        let running = world.start(&[&TASK[..], &["task"]].concat());
        reached(&gate);
        killed(running);
        let told = continues(&mut world, &["echo once >> ran", "exit\nBack."]);
        assert_eq!(told, [("user".to_owned(), "task".to_owned())], "{half}");
        assert_eq!(ran(&world), ["once"], "{half}");
    }
}

#[test]
fn killed_with_a_reply_its_command_is_not_run() {
    let mut world = world(["echo once >> ran"]);
    let task =
        ["-p", "--profile", "shell", "--permissions", "ask", "--mode", "json", "--ask-on-stdin", "task"];
    let mut process = JsonProcess::start(world.quipu(&task));
    // The reply is kept, and nobody has allowed its command yet.
    while !process.next()["type"].as_str().unwrap().contains("extension_ui_request") {}
    process.running.signal(Signal::SIGKILL);
    process.close();
    let told = continues(&mut world, &["exit\nBack."]);
    assert_eq!(told[1], ("assistant".to_owned(), "echo once >> ran".to_owned()));
    assert!(untimed(&told[2].1).starts_with("Interrupted: "), "{told:?}");
    assert!(ran(&world).is_empty());
}

#[test]
fn killed_with_a_command_it_is_not_run_again() {
    let mut world = world(["echo once >> ran; sleep 1000"]);
    let running = world.start(&[&TASK[..], &["task"]].concat());
    waits_for("the command runs", || !ran(&world).is_empty());
    killed(running);
    no_command_lives(&world);
    let told = continues(&mut world, &["exit\nBack."]);
    assert!(untimed(&told[2].1).contains("Whether it took effect is unknown"), "{told:?}");
    assert_eq!(ran(&world), ["once"]);
}

#[test]
fn killed_with_a_result_the_model_gets_it() {
    let gate = Gate::new();
    let mut world = World::new([
        reply("echo once | tee -a ran"),
        Reply::sse(Answer::new().unfinished()).then_gate(&gate),
    ]);
    let running = world.start(&[&TASK[..], &["task"]].concat());
    reached(&gate);
    killed(running);
    let told = continues(&mut world, &["exit\nBack."]);
    assert_eq!(untimed(&told[2].1), "once\n");
    assert_eq!((told.len(), ran(&world)), (3, vec!["once".to_owned()]));
}

#[test]
fn killed_at_any_moment_nothing_is_lost_or_run_twice() {
    let rounds: u64 = if std::env::var_os("QUIPU_FULL").is_some() { 200 } else { 12 };
    let seed = match std::env::var("QUIPU_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from(std::process::id()) << 20 | 1,
    };
    println!("QUIPU_SEED={seed}");
    let mut random = Random(seed);
    let mut world = World::new([]);
    for round in 0..rounds {
        let commands = ["a", "b", "c"].map(|name| format!("echo {name}-{round} >> ran; echo {name}"));
        world.another_server(commands.iter().map(|text| reply(text)).chain([reply("exit\nDone.")]));
        let args: &[&str] = if round.is_multiple_of(4) { &TASK } else { &["-p", "-c"] };
        let mut running = world.start(&[args, &["--mode", "json", "do it"]].concat());
        for _ in 0..random.below(60) {
            if running.line().is_none() {
                break;
            }
        }
        running.signal(Signal::SIGKILL);
        let killed = running.wait();
        let named: Vec<String> = killed
            .text()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|event| event["node"].as_str().map(str::to_owned))
            .collect();
        let kept = if world.store().exists() { ids(&world) } else { Default::default() };
        assert!(named.iter().all(|node| kept.contains(node)), "round {round}: an acknowledged node is lost");
        let before = effects(&world);
        world.another_server([reply("exit\nBack.")]);
        // The very first may have died before there was a session of the profile.
        let flags: &[&str] = if kept.is_empty() { &TASK } else { &["-p", "-c"] };
        assert_eq!(world.run(&[flags, &["go on"]].concat()).ok().text(), "Back.\n", "round {round}");
        assert_eq!(effects(&world), before, "round {round}: something ran again");
        assert!(before.values().all(|times| *times == 1), "round {round}: {before:?}");
        let roles: Vec<String> = said(&world, 0).into_iter().map(|(role, _)| role).collect();
        assert_eq!(roles.first().map(String::as_str), Some("user"), "round {round}");
    }
}
