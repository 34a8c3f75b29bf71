//! The model goes back and the files go along, through `kill -9`.

use quipu_testkit::{Answer, Reply};
use serde_json::json;

use crate::support::*;

pub(crate) const FILES: usize = 120;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// Writes every file.
pub(crate) fn writes(text: &str) -> Reply {
    let command = format!("for at in $(seq {FILES}); do printf {text} > f$at; done");
    bash("c1", &command)
}

fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

/// How many files hold this text.
pub(crate) fn with(world: &World, text: &str) -> usize {
    let at = |at: &usize| world.path(&format!("work/f{at}"));
    (1..=FILES).filter(|file| std::fs::read_to_string(at(file)).is_ok_and(|found| found == text)).count()
}

/// Files that wait beside their targets.
pub(crate) fn staged(world: &World) -> usize {
    let entries = std::fs::read_dir(world.path("work")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp")).count()
}

fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

#[test]
fn killed_anywhere_it_left_with_its_files_or_not_at_all() {
    let (mut stayed, mut left) = (0, 0);
    // Moments that can be seen from outside: so many files are staged; so many of them have taken their places.
    for (waits, placed) in [(1, 0), (FILES / 2, 0), (FILES, 0), (0, 1), (0, FILES / 2), (0, FILES - 1)] {
        let mut world = World::new([writes("one"), says("One."), writes("two"), says("Two.")]);
        let settings = json!({ "retry": { "baseDelayMs": 1 }, "travel": { "tools": true, "tobe": "allow" } });
        std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
        world.run(&["-p", "first"]).ok();
        let target = head(&world);
        world.run(&["-p", "-c", "second"]).ok();
        assert_eq!(with(&world, "two"), FILES);
        let arguments =
            json!({ "target_node_hash": target, "carryover_message": "Not this way.", "files": true });
        world.another_server([call("c1", "tobe", &arguments), says("Here I am.")]);
        let mut running = world.start(&["-p", "-c", "third"]);
        loop {
            let ended = running.child.try_wait().unwrap().is_some();
            let reached = if placed > 0 { with(&world, "one") >= placed } else { staged(&world) >= waits };
            if ended || reached {
                break;
            }
        }
        running.child.kill().unwrap();
        drop(running.wait());

        world.another_server((0..2).map(|at| says(&format!("Answer {at}."))));
        world.run(&["-p", "-c", "on"]).ok();
        let said = said(&world);
        let note = said.iter().position(|text| text.contains("INCARNATION NOTE]: Not this way."));
        assert_eq!(staged(&world), 0, "{waits} {placed}");
        match note {
            Some(at) => {
                left += 1;
                assert_eq!(with(&world, "one"), FILES, "{waits} {placed}");
                let after = &said[at + 1..];
                assert!(after.len() == 2 && after[1] == "on", "answered once: {after:?}");
            }
            None => {
                stayed += 1;
                assert_eq!(with(&world, "two"), FILES, "{waits} {placed}");
                assert!(said.concat().contains("The session did not move"), "{said:?}");
            }
        }
        let doctor = world.run(&["doctor", "--json"]).ok().json();
        assert_eq!(doctor["healthy"], true, "{doctor}");
        // And back, wherever it stands.
        world.run(&["branch", &target, "--files", "--yes"]).ok();
        assert_eq!(with(&world, "one"), FILES);
    }
    assert!(stayed > 0 && left > 0, "{stayed} {left}");
}
