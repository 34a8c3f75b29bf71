//! Active memory in sessions of the command: notes stand beside the prompts that they fit.

use quipu_testkit::Answer;

use crate::support::*;

#[test]
fn note_stands_beside_the_prompt_that_it_fits() {
    let answers = ["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply());
    let world = World::new(answers);
    world.run(&["memory", "on"]).ok();
    let status = world.run(&["memory", "status", "--json"]).ok().json();
    let root = status["memories"][0]["root"].as_str().expect("a memory").to_owned();
    // The system prompt has the beginnings of notes already; this one is too old for it.
    let notes = std::path::Path::new(&root).join("memory");
    std::fs::create_dir_all(&notes).unwrap();
    std::fs::write(notes.join("2020-01-02.md"), "- The staging deploy needs the blue token.\n").unwrap();
    world.run(&["memory", "review", "--accept-all"]).ok();
    world.run(&["-p", "What does the staging deploy need?"]).ok();
    let request = &world.requests()[0];
    let text = messages(request).iter().map(wire_text).collect::<String>();
    assert!(text.contains("<active_memory>") && text.contains("blue token"), "{text}");
    assert!(text.contains("memory/2020-01-02.md#L1"), "{text}");
    // What stood beside a prompt was not said in it.
    let found = world.run(&["memory", "search", "--json", "--", "What does the staging deploy need?"]).ok();
    let found = String::from_utf8_lossy(&found.out);
    assert!(found.contains(r#""kind":"user""#) && !found.contains("Added by the hook"), "{found}");
    world.run(&["-p", "Which colours does the terminal support?"]).ok();
    let text = messages(&world.requests()[1]).iter().map(wire_text).collect::<String>();
    assert!(!text.contains("<active_memory>"), "{text}");
    world.run(&["config", "set", "memory.active.mode", "off"]).ok();
    world.run(&["-p", "What does the staging deploy need?"]).ok();
    let text = messages(&world.requests()[2]).iter().map(wire_text).collect::<String>();
    assert!(!text.contains("<active_memory>"), "{text}");
}
