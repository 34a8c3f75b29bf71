//! Caches of tools: what commands write there is kept separate for each directory, unless a person decides otherwise.

use quipu_testkit::{Answer, Reply};

use crate::pty::{CTRL_C, CTRL_D, DOWN, ENTER, Terminal};
use crate::support::*;

fn done() -> Reply {
    Answer::new().text("Done.").reply()
}

/// A world whose user has set the directory of Cargo's builds, and built there.
fn named(script: impl IntoIterator<Item = Reply>) -> (World, String) {
    let world = World::new(script);
    let target = world.path("target");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(target.join("built"), "by the user").unwrap();
    let target = target.display().to_string();
    (world, target)
}

fn run(world: &World, target: &str, args: &[&str]) -> CommandOutput {
    let mut command = world.quipu(args);
    command.env("CARGO_TARGET_DIR", target);
    RunningCommand::start(command).wait()
}

fn told(world: &World) -> String {
    wire_text(messages(world.requests().last().unwrap()).last().unwrap())
}

#[test]
fn writes_to_caches_are_kept_for_the_directory() {
    let (world, target) = named([
        bash(
            "c1",
            "cat $CARGO_TARGET_DIR/built; echo one > $CARGO_TARGET_DIR/made; mkdir -p ~/.cache/tool; echo x > ~/.cache/tool/made; cat $CARGO_TARGET_DIR/made",
        ),
        done(),
        bash("c2", "cat $CARGO_TARGET_DIR/made ~/.cache/tool/made"),
        done(),
        bash("c3", "ls $CARGO_TARGET_DIR ~/.cache"),
        done(),
    ]);
    run(&world, &target, &["-p", "build"]).ok();
    assert!(told(&world).contains("by the userone"), "{}", told(&world));
    assert!(!world.path("target/made").exists() && !world.path("home/.cache/tool").exists());
    // A session later.
    run(&world, &target, &["-p", "again"]).ok();
    assert!(told(&world).contains("one\nx"), "{}", told(&world));
    // In another directory.
    let other = world.path("other");
    std::fs::create_dir_all(&other).unwrap();
    let mut command = world.quipu(&["-p", "there"]);
    RunningCommand::start({
        command.env("CARGO_TARGET_DIR", &target).current_dir(&other);
        command
    })
    .wait()
    .ok();
    assert!(told(&world).contains("built") && !told(&world).contains("made"), "{}", told(&world));
    let finding = |args: &[&str], what: &str| {
        let found = world.run(&[&["doctor", "--json"], args].concat()).ok().json();
        let findings = found["findings"].as_array().unwrap().clone();
        findings.iter().find(|one| one["what"] == what).map(|one| one["detail"].as_str().unwrap().to_owned())
    };
    assert!(finding(&[], "caches").unwrap().starts_with("written by commands to caches: 2 projects, "));
    assert_eq!(finding(&["--drop-caches"], "drop").unwrap(), "removed what commands wrote to caches");
    assert_eq!(finding(&[], "caches"), None);
}

#[test]
fn shared_caches_are_written_as_they_are() {
    let (world, target) =
        named([bash("c1", "echo one > $CARGO_TARGET_DIR/made; echo x > ~/.cache/made"), done(), done()]);
    let settings = world.path("home/.quipu/settings.json");
    std::fs::write(&settings, r#"{"sandbox": {"caches": "shared"}}"#).unwrap();
    run(&world, &target, &["-p", "build"]).ok();
    assert!(world.path("target/made").exists() && world.path("home/.cache/made").exists());
    std::fs::write(&settings, r#"{"sandbox": {"caches": 1}}"#).unwrap();
    let ran = run(&world, &target, &["-p", "build"]).ok();
    assert_eq!(ran.err.matches("sandbox.caches must be private or shared").count(), 1, "{}", ran.err);
}

#[test]
fn place_that_a_variable_names_is_offered_once() {
    let write = |id: &str, name: &str| bash(id, &format!("echo x > $CARGO_TARGET_DIR/{name}"));
    let (world, target) =
        named([write("c1", "first"), done(), write("c2", "second"), done(), write("c3", "third"), done()]);
    let open = || Terminal::telling(&world, &[], 100, 30, &[("CARGO_TARGET_DIR", &target)]);
    let work = |terminal: &mut Terminal, task: &str| {
        terminal.types(&format!("{task}\r"));
        terminal.shows("Done.");
        terminal.types(&format!("{CTRL_C}{CTRL_D}"));
        assert_eq!(terminal.ends(), Some(0));
    };
    // Not before it can be answered, and not for one run.
    run(&world, &target, &["sessions"]).ok();
    let mut terminal = open();
    terminal.shows("Let commands write to these directories?");
    terminal.shows(&format!("CARGO_TARGET_DIR={}", &target[..20]));
    terminal.types(ENTER);
    terminal.shows("test-1");
    work(&mut terminal, "one");
    assert!(!world.path("target/first").exists());
    let mut terminal = open();
    terminal.shows("test-1");
    work(&mut terminal, "two");
    assert!(!world.path("target/second").exists());
    let list = world.run(&["permissions"]).ok().text();
    assert!(list.contains("CARGO_TARGET_DIR=") && list.contains("(kept separate)"), "{list}");
    world.run(&["permissions", "revoke", "p1"]).ok();
    let mut terminal = open();
    terminal.shows("Let commands write to these directories?");
    terminal.types(DOWN);
    terminal.types(ENTER);
    terminal.shows("test-1");
    work(&mut terminal, "three");
    assert!(world.path("target/third").exists());
    assert!(world.run(&["permissions"]).ok().text().contains("(written by commands)"));
}
