//! What stays as it is when files go along: listed by each command before and after, and to the model.

use quipu_testkit::Answer;

use crate::archive::{ID, conversation, lines};
use crate::support::*;

const SPOILS: &str = "echo y >> big; echo k > kept; mkdir empty; git -c user.name=t -c user.email=t@t commit -q --allow-empty -m two";
/// What of that cannot be taken back.
const STAYS: [&str; 2] = ["? big  stays as it is: ", "? .git/refs/heads/main"];

/// A turn that changed nothing, and one in the same or in another session that changed what cannot be taken back; the end
/// of the first. `None` without git.
fn spoilt(fork: bool) -> Option<(World, String)> {
    let says = |text: &str| Answer::new().text(text).reply();
    let script = [bash("c1", "true"), says("One."), bash("c2", SPOILS), says("Two."), says("Three.")];
    let world = World::new(script);
    world.file(".gitignore", "big\n");
    let git = |args: &[&str]| {
        let mut command = world.command("git");
        let own = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"];
        command.args(own).args(args).status().is_ok_and(|status| status.success())
    };
    if !(git(&["init", "-q"]) && git(&["add", "."]) && git(&["commit", "-qm", "one"])) {
        eprintln!("note: git is not here, so this is not tested");
        return None;
    }
    world.file("big", "x".repeat(2 << 20));
    world.run(&["-p", "first"]).ok();
    let first = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    let how: &[&str] = if fork { &["--fork", &first] } else { &["-c"] };
    world.run(&[&["-p"], how, &["second"]].concat()).ok();
    Some((world, first))
}

#[track_caller]
fn lists(text: &str) {
    for part in STAYS {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn model_is_told_of_what_tobe_left() {
    let Some((world, first)) = spoilt(false) else { return };
    let tobe = |more: &str| world.run(&["tobe", "--files", more, &first, "Again."]).ok();
    lists(&tobe("--dry-run").text());
    let ran = tobe("--yes");
    lists(&[ran.text(), ran.err.clone()].concat());
    world.run(&["-p", "-c"]).ok();
    let told = world.requests().last().unwrap().json()["messages"].to_string();
    lists(&told);
    assert!(told.contains("Again.") && !told.contains("second"), "{told}");
}

#[test]
fn jump_lists_what_stays() {
    let Some((world, first)) = spoilt(false) else { return };
    let branch = |more: &str| world.run(&["branch", &first, "--files", more]).ok();
    lists(&branch("--dry-run").text());
    let ran = branch("--yes");
    lists(&[ran.text(), ran.err.clone()].concat());
    // It is no step, and nobody said it.
    let head = ran.text().trim().lines().last().unwrap_or_default().to_owned();
    assert_ne!(head, first, "{}", ran.text());
    is_told_with_what_is_said(&world);
    assert!(!world.requests().last().unwrap().json().to_string().contains("second"));
}

/// The next request says it once, and what is said.
#[track_caller]
fn is_told_with_what_is_said(world: &World) {
    world.run(&["-p", "-c", "third"]).ok();
    let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    let told: Vec<&String> = said.iter().filter(|text| text.contains("together with the files")).collect();
    assert_eq!(told.len(), 1, "{said:?}");
    lists(told[0]);
    assert!(said.last().unwrap().contains("third"), "{said:?}");
}

#[test]
fn undo_lists_what_stays() {
    let Some((world, _)) = spoilt(false) else { return };
    lists(&world.run(&["undo", "--files", "--dry-run"]).ok().text());
    let ran = world.run(&["undo", "--files", "--yes"]).ok();
    lists(&[ran.text(), ran.err.clone()].concat());
    assert!(!world.path("work/empty").exists() && !world.path("work/kept").exists());
    // What was told is no step of its own: redo goes forward, undo back again.
    world.run(&["redo", "--files", "--yes", "--overwrite"]).ok();
    assert!(world.path("work/kept").exists());
    world.run(&["undo", "--files", "--yes", "--overwrite"]).ok();
    assert!(!world.path("work/kept").exists());
    is_told_with_what_is_said(&world);
}

#[test]
fn merge_lists_what_does_not_come_along() {
    let Some((world, first)) = spoilt(true) else { return };
    let theirs = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let ours = world.sessions()[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.sessions()[1]["head"], first.as_str());
    std::fs::remove_file(world.path("work/kept")).unwrap();
    world.file("big", "x".repeat(2 << 20));
    let merge = |more: &str| world.run(&["merge", &theirs, "--into", &ours, "--files", more]).ok();
    let shown = merge("--dry-run").text();
    assert!(shown.contains("+ kept"), "{shown}");
    lists(&shown);
    let ran = merge("--yes");
    lists(&[ran.text(), ran.err.clone()].concat());
}

/// Each command on a session that was imported, and that no session of ours went on from: what it prints, or why not.
#[test]
fn commands_work_on_a_fresh_import() {
    let stays = "is written by pi and stays as it is; `quipu fork` starts a session from it";
    let table: &[(&[&str], Result<&str, &str>)] = &[
        (&["context", ID], Ok("together")),
        (&["context"], Ok("together")),
        (&["show", ID], Ok("Which way?")),
        (&["label", ID, "here"], Ok("")),
        (&["rename", ID, "The road"], Ok("")),
        (&["bookmark", "x", ID], Ok("")),
        (&["fork", ID], Ok("")),
        (&["clone", ID], Ok("")),
        (&["tobe", "--yes", "ext:a2", "Go."], Ok("")),
        (&["branch", "--yes", "ext:a2"], Err(stays)),
        (&["undo", "--yes", ID], Err(stays)),
        (&["redo", "--yes", ID], Err(stays)),
    ];
    for (args, expected) in table {
        let world = World::new([]);
        let path = world.file("s.jsonl", lines(&conversation(&world, ID)));
        world.run(&["import", "pi", path.to_str().unwrap()]).ok();
        match expected {
            Ok(part) => {
                let text = world.run(args).ok().text();
                assert!(text.contains(part), "{args:?}: {text}");
            }
            Err(why) => drop(world.run(args).fails(2, &[why])),
        }
    }
}
