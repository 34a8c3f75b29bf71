//! Keys in the keychain of the operating system: `quipu auth set --keychain`, with a program that behaves as
//! `secret-tool` does, and with the real one where a session of it can be had.

use std::fs::File;
use std::process::{Command, Stdio};

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{CommandOutput, RunningCommand, World, mode, set_mode};

const AUTH: &str = "home/.quipu/auth.json";
const SECRET: &str = "key-of-the-keychain-0123456789";

/// `secret-tool` with a directory behind it: an item is a file named by its attributes. It writes down its arguments.
const SECRET_TOOL: &str = r#"#!/bin/sh
items="$HOME/items"
mkdir -p "$items"
printf '%s\n' "$*" >> "$HOME/calls"
[ -e "$HOME/locked" ] && { echo 'secret-tool: Cannot get secret of a locked object' >&2; exit 1; }
verb=$1; shift
case "$1" in --label=*) shift ;; esac
name=$(printf '%s' "$*" | tr ' /' '__')
case $verb in
  store) cat > "$items/$name" ;;
  lookup) [ -f "$items/$name" ] || exit 1; cat "$items/$name" ;;
  clear) [ -f "$items/$name" ] || exit 1; rm "$items/$name" ;;
  *) exit 2 ;;
esac
"#;

/// A world with such a program.
fn world(count: usize) -> World {
    let world = World::new((0..count).map(|_| Answer::new().text("hello").reply()));
    std::fs::create_dir(world.path("home/programs")).unwrap();
    let program = world.path("home/programs/secret-tool");
    std::fs::write(&program, SECRET_TOOL).unwrap();
    set_mode(&program, 0o755);
    world
}

fn command(world: &World, args: &[&str]) -> Command {
    let mut command = world.quipu(args);
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", world.path("home/programs").display());
    command.env("PATH", path);
    command
}

/// Runs a command to its end with this as its stdin.
fn finish(world: &World, mut command: Command, input: &str) -> CommandOutput {
    let path = world.path("tmp/input");
    std::fs::write(&path, input).unwrap();
    command.stdin(File::open(&path).unwrap());
    let ran = RunningCommand::start(command).wait();
    std::fs::remove_file(path).unwrap();
    ran
}

fn stored(world: &World) -> Value {
    serde_json::from_str(&std::fs::read_to_string(world.path(AUTH)).unwrap()).unwrap()
}

fn items(world: &World) -> Vec<String> {
    let all = std::fs::read_dir(world.path("home/items")).unwrap();
    all.map(|item| std::fs::read_to_string(item.unwrap().path()).unwrap()).collect()
}

#[test]
fn key_in_the_keychain_is_used_and_removed() {
    let world = world(1);
    let set = |key: &str| finish(&world, command(&world, &["auth", "set", "testing", "--keychain"]), key);
    let ran = set(&format!("{SECRET}\n")).ok();
    assert!(ran.err.contains("Stored in the keychain;") && !ran.err.contains(SECRET), "{}", ran.err);
    let file = std::fs::read_to_string(world.path(AUTH)).unwrap();
    assert!(!file.contains(SECRET) && mode(&world.path(AUTH)) == 0o600, "{file}");
    let line = stored(&world)["testing"]["key"].as_str().unwrap().to_owned();
    assert!(line.starts_with("!secret-tool lookup service quipu account testing-"), "{line}");
    assert_eq!(items(&world), [SECRET]);

    let ran = finish(&world, command(&world, &["-p", "Hi"]), "").ok();
    assert_eq!(ran.text().trim(), "hello");
    assert_eq!(world.requests()[0].header("x-api-key"), Some(SECRET));
    let listed = finish(&world, command(&world, &["auth"]), "").ok();
    assert!(listed.text().contains("testing  from the keychain"), "{}", listed.text());

    // Another key takes its place, and the one before goes.
    set("another-key-0123456789").ok();
    assert_eq!(items(&world), ["another-key-0123456789"]);
    finish(&world, command(&world, &["auth", "remove", "testing"]), "").ok();
    assert_eq!((items(&world), stored(&world)), (Vec::new(), json!({})));
    // A key in the file takes the place of one in the keychain, too.
    set(SECRET).ok();
    finish(&world, command(&world, &["auth", "set", "testing"]), "plain-key-0123456789").ok();
    assert_eq!(
        (items(&world), &stored(&world)["testing"]["key"]),
        (Vec::new(), &json!("plain-key-0123456789"))
    );
    // No secret stood on a command line.
    let calls = std::fs::read_to_string(world.path("home/calls")).unwrap();
    assert!(!calls.contains(SECRET) && calls.contains("store --label=Key of Quipu"), "{calls}");
}

#[test]
fn keychain_that_fails_changes_nothing() {
    let world = world(0);
    let args = ["auth", "set", "testing", "--keychain"];
    // The machine has no such program.
    let ran = finish(&world, world.quipu(&args), SECRET);
    ran.fails(1, &["secret-tool was not found: install it (libsecret-tools"]);
    assert!(!world.path(AUTH).exists());
    std::fs::write(world.path("home/locked"), "").unwrap();
    let ran = finish(&world, command(&world, &args), SECRET);
    ran.fails(1, &["secret-tool could not store the key: secret-tool: Cannot get secret of a locked object"]);
    assert!(!world.path(AUTH).exists());
    std::fs::remove_file(world.path("home/locked")).unwrap();
    finish(&world, command(&world, &args), SECRET).ok();
    std::fs::write(world.path("home/locked"), "").unwrap();
    // The entry is gone, and the person knows what is left.
    let ran = finish(&world, command(&world, &["auth", "remove", "testing"]), "");
    ran.fails(
        1,
        &["the old key is still in the keychain", "remove it with `secret-tool clear service quipu"],
    );
    assert_eq!((stored(&world), items(&world)), (json!({}), vec![SECRET.to_owned()]));
}

#[test]
fn keychain_is_used_only_where_it_is_asked_for() {
    let world = world(1);
    finish(&world, command(&world, &["auth", "set", "testing"]), SECRET).ok();
    finish(&world, command(&world, &["-p", "Hi"]), "").ok();
    finish(&world, command(&world, &["auth"]), "").ok();
    finish(&world, command(&world, &["auth", "remove", "testing"]), "").ok();
    assert!(!world.path("home/calls").exists());
}

#[test]
fn real_secret_service_keeps_a_key() {
    let has = |program: &str| {
        let found =
            Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        found.unwrap().success()
    };
    let programs = ["secret-tool", "dbus-run-session", "gnome-keyring-daemon"];
    if !programs.into_iter().all(has) {
        println!("skipped: this machine has no {}", programs.join(", "));
        return;
    }
    let world = World::new([Answer::new().text("hello").reply()]);
    let line = format!(
        "echo -n pw | gnome-keyring-daemon --unlock --components=secrets >&2 && \
         echo {SECRET} | \"$0\" auth set testing --keychain && \"$0\" -p Hi && \"$0\" auth remove testing && \
         ! secret-tool search service quipu 2>&1 | grep -q account"
    );
    let mut command = world.command("dbus-run-session");
    command.args(["--", "sh", "-c", &line]).arg(&world.program);
    let ran = finish(&world, command, "").ok();
    assert_eq!(ran.text().trim(), "hello");
    assert_eq!(world.requests()[0].header("x-api-key"), Some(SECRET));
}
