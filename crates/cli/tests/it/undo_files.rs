//! Files go along with `tobe`, `undo` and `redo`.

use std::collections::BTreeMap;

use quipu_testkit::{Answer, Reply};
use serde_json::json;

use crate::support::*;

fn write(path: &str, content: &str) -> Reply {
    call("c1", "write", &json!({ "path": path, "content": content }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// The files in the directory of the command.
fn files(world: &World) -> BTreeMap<String, String> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    std::fs::read_dir(world.path("work")).unwrap().map(read).collect()
}

fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

#[test]
fn files_go_back_with_a_message_and_with_undo_and_forward_again() {
    let world =
        World::new([write("a", "one\n"), says("One."), write("a", "two\n"), says("Two."), says("Back.")]);
    world.file("mine", "not an agent's\n");
    world.run(&["-p", "first"]).ok();
    let (first, one) = (head(&world), files(&world));
    world.run(&["-p", "-c", "second"]).ok();
    let (second, two) = (head(&world), files(&world));

    // Shown, and refused without somebody who agrees.
    let shown = world.run(&["tobe", "--files", "--dry-run", "--json", &first, "Again."]).ok().json();
    assert_eq!(shown["files"]["changes"][0]["path"], "a");
    world.run(&["tobe", "--files", &first, "Again."]).fails(2, &["go back to", "add --yes"]);
    assert_eq!((head(&world), files(&world)), (second.clone(), two.clone()));

    let told = world.run(&["tobe", "--files", "--yes", "--json", &first, "Again."]).ok().json();
    assert_eq!(told["problems"], json!([]));
    assert_eq!(files(&world), one);
    world.run(&["-p", "-c"]).ok();
    let said = messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<Vec<_>>();
    assert!(said.last().unwrap().contains("Again.\n[SYSTEM WARNING]: "), "{said:?}");
    assert!(said.last().unwrap().contains("are again what they were here"), "{said:?}");

    // The message and its answer go, and the files are what they were.
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(files(&world), two);
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(files(&world), one);
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(files(&world).keys().collect::<Vec<_>>(), ["mine"]);
    world.run(&["redo", "--files", "--yes", "--steps", "2"]).ok();
    assert_eq!(files(&world), two);

    // What somebody changed since is not overwritten, and nothing moved.
    world.file("a", "by hand\n");
    let stood = head(&world);
    world.run(&["undo", "--files", "--yes"]).fails(1, &["1 of the files", "`--overwrite` replaces them"]);
    assert_eq!((head(&world), &*files(&world)["a"]), (stood, "by hand\n"));
    world.run(&["undo", "--files", "--overwrite", "--yes"]).ok();
    assert_eq!(files(&world), one);
}

#[test]
fn many_moves_undone_by_another_process_give_equal_files() {
    let turns = 12;
    let mut script = Vec::new();
    for turn in 0..turns {
        script.extend([write(["a", "b", "c"][turn % 3], &format!("turn {turn}\n")), says("Done.")]);
    }
    let world = World::new(script);
    world.run(&["-p", "turn 0"]).ok();
    let mut states = vec![files(&world)];
    let mut heads = vec![head(&world)];
    let (mut seed, mut turn) = (11_usize, 1);
    while states.len() <= 20 {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
        if turn < turns && seed.is_multiple_of(2) {
            world.run(&["-p", "-c", &format!("turn {turn}")]).ok();
            turn += 1;
        } else {
            let to = heads[(seed >> 8) % heads.len()].clone();
            world.run(&["branch", "--files", "--yes", &to]).ok();
        }
        // Going where it stands is no step.
        if heads.last() != Some(&head(&world)) {
            states.push(files(&world));
            heads.push(head(&world));
        }
    }
    for (at, state) in states.iter().enumerate().rev().skip(1) {
        world.run(&["undo", "--files", "--yes"]).ok();
        assert_eq!(&files(&world), state, "after {at} moves");
    }
    let steps = (states.len() - 1).to_string();
    world.run(&["redo", "--files", "--yes", "--steps", &steps]).ok();
    assert_eq!(Some(&files(&world)), states.last());
    world.run(&["undo", "--files", "--yes", "--steps", &steps]).ok();
    assert_eq!(files(&world), states[0]);
}
