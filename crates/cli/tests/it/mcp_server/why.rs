//! The tool `why` of a server that is asked again and again: what it remembers is as good as what it would find out.

use quipu_testkit::Answer;
use serde_json::json;

use super::client::{Client, text};
use crate::support::*;

fn edit(id: &str, from: &str, to: &str) -> quipu_testkit::Reply {
    call(id, "edit", &json!({ "path": "gate.md", "edits": [{ "oldText": from, "newText": to }] }))
}

#[test]
fn why_follows_the_file_and_the_store() {
    let says = || Answer::new().text("Done.").reply();
    let world = World::new([
        call("c1", "write", &json!({ "path": "gate.md", "content": "One.\nTwo.\n" })),
        says(),
        edit("c2", "By hand.", "By the model."),
        says(),
        edit("c3", "By the model.", "By hand."),
        says(),
    ]);
    let prompt = |words: &str| drop(world.run(&["-p", words, "--permissions", "full"]).ok());
    let file = world.path("work/gate.md");
    prompt("Plan the gate");
    let mut client = Client::started(&world);
    let mut why = || text(&client.call("why", &json!({ "file": "gate.md" })));
    for _ in 0..2 {
        let found = why();
        assert!(found.contains("1-2: ") && found.contains("asked: Plan the gate"), "{found}");
    }
    std::fs::write(&file, "One.\nTwo.\nBy hand.\n").unwrap();
    for _ in 0..2 {
        let found = why();
        assert!(found.contains("\n3: no agent"), "{found}");
    }
    prompt("Sign it");
    let found = why();
    assert!(found.lines().any(|line| line.starts_with("3: ") && line.ends_with("asked: Sign it")), "{found}");
    // The same bytes as before, by somebody else.
    prompt("Unsign it");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "One.\nTwo.\nBy hand.\n");
    let found = why();
    assert!(
        found.lines().any(|line| line.starts_with("3: ") && line.ends_with("asked: Unsign it")),
        "{found}"
    );
    client.ends(0);
}

#[test]
fn why_follows_the_files_that_lines_were_copied_from() {
    let world = World::new([
        call("c1", "bash", &json!({ "command": "cp notes.txt copy.txt" })),
        Answer::new().text("Done.").reply(),
    ]);
    std::fs::write(world.path("work/notes.txt"), "The paint is in the shed.\nThe key is on the nail.\n")
        .unwrap();
    world.run(&["-p", "Copy the notes", "--permissions", "full"]).ok();
    let mut client = Client::started(&world);
    let mut why = || text(&client.call("why", &json!({ "file": "copy.txt" })));
    for _ in 0..2 {
        let found = why();
        assert!(found.contains("\n1-2: no agent"), "{found}");
    }
    // Nobody can tell any more where the second line is from.
    std::fs::write(world.path("work/notes.txt"), "The paint is in the shed.\n").unwrap();
    let found = why();
    assert!(
        found.contains("\n1: no agent") && found.contains("\n2: unknown: a command copied it"),
        "{found}"
    );
    client.ends(0);
}
