//! Old states of files are dropped by the command: shown while it lasts, killed while it lasts, and the room is given back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quipu_testkit::{Answer, Reply};
use serde_json::Value;

use crate::support::*;

/// One transaction drops fewer.
const FILES: usize = 1_200;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// A session whose commands wrote all of its files three times, and where it stood after the first.
fn thrice() -> (World, String) {
    let writes = |text: &str| {
        let line =
            format!("for at in $(seq {FILES}); do echo {text}-$at-$((at * 7919 % 104729)) > f$at; done");
        bash("c1", &line)
    };
    let script = ["one", "two", "three"].into_iter().flat_map(|text| [writes(text), says("Done.")]);
    let world = World::new(script);
    world.run(&["-p", "first"]).ok();
    let first = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "-c", "second"]).ok();
    world.run(&["-p", "-c", "third"]).ok();
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"files":{"storeBytes":1}}"#).unwrap();
    (world, first)
}

/// What going back to the first state would do to files: how many would be changed, and how many stay.
fn plan(world: &World, first: &str) -> (usize, usize) {
    let plan = world.run(&["branch", first, "--files", "--dry-run", "--json"]).ok().json();
    let count = |list: &Value| list.as_array().unwrap().len();
    (count(&plan["files"]["changes"]), count(&plan["files"]["left"]))
}

#[test]
fn pruning_shows_its_progress() {
    let (world, first) = thrice();
    assert_eq!(plan(&world, &first), (FILES, 0));
    let (code, shown) = on_terminal(&world, &["doctor", "--prune"], "", 200);
    assert_eq!(code, Some(0), "{shown}");
    let parts = [
        "room: dropped 0 of 1200 old",
        " 500 of 1200 old",
        " 1000 of 1200 old",
        "dropped 1200 old file states",
    ];
    for part in parts {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(plan(&world, &first), (0, FILES), "each is named as no longer kept");
    let (_, shown) = on_terminal(&world, &["doctor", "--prune"], "", 200);
    assert!(shown.contains("dropped 0 old file states") && !shown.contains(" of 1200"), "{shown}");
}

#[test]
fn killed_at_any_moment_it_goes_on_where_it_was() {
    let (world, first) = thrice();
    let mut moments = Vec::new();
    let mut until = Duration::from_millis(30);
    loop {
        let began = Instant::now();
        let mut running = world.start(&["doctor", "--prune"]);
        while began.elapsed() < until && running.child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let ended = running.child.try_wait().unwrap().is_some();
        running.child.kill().unwrap();
        drop(running.wait());
        let (changes, left) = plan(&world, &first);
        assert_eq!(changes + left, FILES, "after {until:?}");
        moments.push(left);
        // Later each time, until it has done all.
        until = until * 4 / 3;
        let doctor = world.run(&["doctor", "--json"]).ok().json();
        assert_eq!(doctor["healthy"], true, "{doctor}");
        if ended {
            break;
        }
    }
    assert!(moments.is_sorted() && moments.last() == Some(&FILES), "{moments:?}");
    let told = world.run(&["doctor"]).ok().text();
    assert!(told.contains("1200 older ones, "), "{told}");
}

#[test]
fn the_room_is_given_back_when_that_is_asked_for() {
    let (world, first) = thrice();
    // What is written may still stand in the log beside the file.
    let size = || {
        let log = PathBuf::from(format!("{}-wal", world.store().display()));
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        bytes(&world.store()) + bytes(&log)
    };
    world.run(&["doctor", "--prune"]).ok();
    // What indexes lag behind is written in a quiet moment, which would count against what is given back.
    world.run(&["doctor", "--rebuild", "all"]).ok();
    let (nodes, before) = (world.nodes(), size());
    let told = world.run(&["doctor", "--shrink"]).ok().text();
    assert!(told.contains("the store file is ") && told.contains(" KiB smaller"), "{told}");
    assert!(size() < before, "{} {before}: {told}", size());
    assert_eq!(world.nodes(), nodes);
    assert_eq!(plan(&world, &first), (0, FILES));
    assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
}
