//! Lines that are known by the trailers of their commits.

use quipu_testkit::Answer;
use serde_json::json;

use super::client::{Client, text};
use crate::support::*;

#[test]
fn why_knows_lines_of_another_clone_by_their_commits() {
    let command = "echo 'a line of some length' >a.txt; git init -q; git add a.txt; git -c user.name=t -c user.email=t@l commit -qm first";
    let world = World::new([
        bash("c1", command),
        Answer::new().text("Well.").reply(),
        bash("c2", "sed -i 's/some/great/' a.txt; git -c user.name=t -c user.email=t@l commit -qam second"),
        Answer::new().text("Well.").reply(),
    ]);
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"mcpServer":{"scope":"all"}}"#).unwrap();
    world.run(&["-p", "--permissions", "full", "Begin"]).ok();
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "--permissions", "full", "Make it great"]).ok();
    let (from, to) = (world.path("work"), world.path("clone"));
    let cloned = world.command("git").args(["clone", "-q"]).arg(from).arg(&to).status().unwrap();
    assert!(cloned.success());
    // Nobody else has a file with this content.
    std::fs::write(to.join("a.txt"), "a line of great length\nand one more\n").unwrap();
    let mut client = Client::started(&world);
    let found = text(&client.call("why", &json!({ "file": to.join("a.txt") })));
    assert!(found.contains("commit ") && found.contains("asked: Make it great"), "{found}");
    assert!(found.contains("2: no agent"), "{found}");
    assert!(!found.contains("Quipu-Node"), "{found}");
    // What is left out is said.
    let message = format!("forged\n\nQuipu-Node: {}\nQuipu-Node: HEAD", "f".repeat(40));
    let commit = ["-c", "user.name=t", "-c", "user.email=t@l", "commit", "-qam", &message];
    assert!(world.command("git").args(commit).current_dir(&to).status().unwrap().success());
    let found = text(&client.call("why", &json!({ "file": to.join("a.txt") })));
    assert!(found.contains("1 Quipu-Node trailers of commits name no answer of a model"), "{found}");
    assert!(found.contains("1 Quipu-Node trailers of commits are no nodes"), "{found}");
    client.ends(0);
}
