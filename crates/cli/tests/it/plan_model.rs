//! The model for plans, from the settings to the wire, and the sandbox of plan mode.

use quipu_testkit::Answer;
use serde_json::json;

use crate::pty::{CTRL_C, CTRL_D, Terminal, says};
use crate::support::*;

fn world(plans: &str, replies: usize) -> World {
    let world = World::new((0..replies).map(|n| Answer::new().text(&format!("Answer {n}.")).reply()));
    let settings = json!({ "purposeModels": { "plans": plans }, "retry": { "enabled": false } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world
}

fn models(world: &World) -> Vec<String> {
    world.requests().iter().map(|request| request.json()["model"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn plan_mode_asks_the_model_for_plans() {
    let world = world("thinker:low", 7);
    let ran = world.run(&["-p", "--plan", "plan it"]).ok();
    assert!(
        ran.err.contains("testing/thinker plans (`purposeModels.plans` in the settings); test-1 continues"),
        "{}",
        ran.err
    );
    // A restart keeps the mode and the model; a fork as well.
    world.run(&["-p", "-c", "plan on"]).ok();
    let planned = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "--fork", &planned, "plan in another way"]).ok();
    assert_eq!(models(&world), ["thinker"; 3]);
    let session = world.sessions().pop().unwrap()["id"].as_str().unwrap().to_owned();
    // Out of plan mode the session has its own model again.
    world.run(&["-p", "--session", &session, "--permissions", "workspace", "work"]).ok();
    world.run(&["-p", "--session", &session, "work on"]).ok();
    assert_eq!(models(&world)[3..], ["test-1", "test-1"]);
    // Who names a model wants that one.
    world.run(&["-p", "--plan", "--model", "test-1", "plan it"]).ok();
    assert_eq!(models(&world)[5..], ["test-1"]);
    world.check();
    world.run(&["-p", "--plan", "--no-session", "plan it"]).ok();
    assert_eq!(models(&world)[6..], ["thinker"]);
    // What is not kept is in no store.
    world.unchecked();
}

#[test]
fn unusable_model_for_plans_leaves_the_own_one() {
    let world = world("no-such-model", 2);
    let ran = world.run(&["-p", "--plan", "plan it"]).ok();
    assert!(ran.err.contains("The model set for `plans` cannot be used, so test-1 plans"), "{}", ran.err);
    assert_eq!(models(&world), ["test-1"]);
    let settings = json!({ "purposeModels": { "memory": "thinker", "plan": "thinker" } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let ran = world.run(&["-p", "hi"]).ok();
    for unknown in ["purposeModels.memory", "purposeModels.plan"] {
        let line = format!(
            "{unknown}: nothing in Quipu has this purpose; there are compaction, branch_summary, plans, sub-agents"
        );
        assert!(ran.err.contains(&line), "{}", ran.err);
    }
    world.check();
}

#[test]
fn terminal_changes_the_model_with_plan_mode() {
    let world = world("thinker", 4);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("before\r");
    terminal.settles("Answer 0.");
    terminal.types("/plan\r");
    terminal.shows("testing/thinker plans");
    terminal.shows("Permissions are now `plan`");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    // No message followed the switch: it holds all the same.
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("Answer 0.");
    terminal.types("plan it\r");
    terminal.settles("Answer 1.");
    // The user's own choice counts from then on.
    terminal.types("/model testing/test-1\r");
    terminal.until("the model", |shown| shown.contains("test-1"));
    terminal.types("plan on\r");
    terminal.settles("Answer 2.");
    terminal.types("/plan\r");
    terminal.shows("Permissions are now `workspace`");
    terminal.types("work\r");
    terminal.settles("Answer 3.");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(models(&world), ["test-1", "thinker", "test-1", "test-1"]);
    world.check();
}

/// What git is configured to run writes where the commands of plan mode may not, though they count as reading.
#[test]
fn commands_of_plan_mode_cannot_write_in_the_workspace() {
    if !crate::permissions::confined() {
        return;
    }
    let world = World::new([]);
    let git = |args: &[&str]| {
        let mut command = world.command("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args);
        RunningCommand::start(command).wait().ok();
    };
    git(&["init", "-q"]);
    world.file("tracked", "one\n");
    let differ = world.file("differ.sh", "#!/bin/sh\necho compared\ntouch \"$PWD/leaked\" && echo wrote\n: > \"$TMPDIR/own\" && echo temporary\n");
    set_mode(&differ, 0o755);
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    git(&["config", "diff.external", differ.to_str().unwrap()]);
    world.file("tracked", "two\n");
    let index = || std::fs::metadata(world.path("work/.git/index")).unwrap().modified().unwrap();
    let before = index();
    let ran = |args: &[&str]| {
        world.server.push(bash("a", "git status --short && git diff"));
        world.server.push(says("Seen."));
        world.run(&[&["-p"], args, &["look"]].concat()).ok();
        wire_text(messages(world.requests().last().unwrap()).last().unwrap())
    };
    let told = ran(&["--plan"]);
    assert!(told.contains("M tracked") && told.contains("compared") && told.contains("temporary"), "{told}");
    assert!(!told.contains("wrote") && !world.path("work/leaked").exists(), "{told}");
    assert_eq!(index(), before, "git status leaves the index as it is");
    let told = ran(&[]);
    assert!(told.contains("wrote") && world.path("work/leaked").exists(), "{told}");
    world.check();
}

#[test]
fn note_of_plan_mode_is_not_shown_as_words_of_the_user() {
    let world = World::new([says("A plan."), says("Done.")]);
    world.run(&["-p", "--plan", "find the parser"]).ok();
    world.run(&["-p", "-c", "--permissions", "workspace", "go"]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let hits = |words: &[&str]| {
        let ran = world.run(&[&["search", "--json", "--wait"], words].concat());
        ran.text().lines().filter(|line| line.contains("\"node\"")).count()
    };
    assert_eq!(
        (hits(&["parser"]), hits(&["hand", "in", "your", "plan"]), hits(&["only", "read"])),
        (1, 0, 0)
    );
    for words in [&["tree", &id][..], &["log"], &["sessions"]] {
        let shown = world.run(words).ok().text();
        assert!(shown.contains("find the parser") && !shown.contains("Plan mode is"), "{shown}");
    }
    for format in ["markdown", "html"] {
        let page = world.run(&["export", "--format", format, &id]).ok().text();
        let (before, note) = page.split_once("Note of plan mode").expect("the note is marked");
        assert!(before.contains("find the parser") && !before.contains("Plan mode is on"), "{page}");
        assert!(note.contains("Plan mode is on"), "{page}");
    }
    world.check();
}
