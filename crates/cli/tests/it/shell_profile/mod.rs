//! `--profile shell`: each reply of the model is one command, and its result is the next message.

mod crossings;
mod deaths;
mod replies;

use quipu_testkit::{Answer, Reply};
use serde_json::Value;

use crate::support::*;

/// A reply of this text.
fn reply(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// A world whose model gives these replies.
fn world<'a>(replies: impl IntoIterator<Item = &'a str>) -> World {
    World::new(replies.into_iter().map(reply))
}

/// Runs a task in a new session of the profile, with these arguments.
fn run(world: &World, args: &[&str]) -> CommandOutput {
    world.run(&[&["-p", "--profile", "shell", "--permissions", "full"], args].concat())
}

/// The messages of a request: role and text.
fn said(world: &World, request: usize) -> Vec<(String, String)> {
    let role = |message: &Value| message["role"].as_str().unwrap().to_owned();
    messages(&world.requests()[request]).iter().map(|one| (role(one), wire_text(one))).collect()
}

/// What the model was told last.
fn told(world: &World) -> String {
    said(world, world.requests().len() - 1).pop().unwrap().1
}

/// A result without its time, which must be there.
#[track_caller]
fn untimed(told: &str) -> &str {
    let (time, rest) = told.split_once('\n').unwrap();
    assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{told}");
    rest
}
