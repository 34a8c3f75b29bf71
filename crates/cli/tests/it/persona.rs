//! The prompt of a personal agent, from the files of its workspace.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

/// A world with so many answers, whose new sessions have the prompt of a personal agent.
fn world(answers: usize) -> World {
    let world = World::new((0..answers).map(|at| Answer::new().text(&format!("answer {at}")).reply()));
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "prompt": { "persona": true } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world
}

/// The system prompt of the last request.
fn system(world: &World) -> String {
    let body: Value = world.requests().last().unwrap().json();
    match &body["system"] {
        Value::String(text) => text.clone(),
        blocks => blocks.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect(),
    }
}

/// The parts of a text in this order.
fn assert_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part} behind what is before it in {text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn persona_prompt_is_made_of_the_files_of_the_workspace() {
    let world = world(1);
    world.file("HEARTBEAT.md", "- look at the mail");
    world.file("SOUL.md", "Calm and brief.");
    world.file(
        "AGENTS.md",
        format!("Begin.\n{}Never push.\n{}End.", "filler\n".repeat(1_000), "filler\n".repeat(1_000)),
    );
    world.file("MEMORY.md", "Ann likes tea.");
    let ran = world.run(&["-p", "hello"]).ok();
    let text = system(&world);
    assert_order(
        &text,
        &[
            "You are a person's own assistant",
            "## Tools",
            "- read: ",
            "- bash: ",
            "## Workspace",
            "Shortened below: AGENTS.md.",
            "<workspace_file name=\"AGENTS.md\" characters=\"14023\" shown=\"1",
            "Begin.",
            "Never push.",
            "End.",
            "<workspace_file name=\"SOUL.md\"",
            "Calm and brief.",
            "[IDENTITY.md: no such file in ",
            "Ann likes tea.",
            "- look at the mail",
            "os=",
            "Working directory: ",
        ],
    );
    assert_eq!(text.matches("Never push.").count(), 1, "{text}");
    assert!(!text.contains("coding agent") && !text.contains("BOOTSTRAP.md"), "{text}");
    // As for other files of a project.
    for name in ["AGENTS.md", "SOUL.md", "MEMORY.md", "HEARTBEAT.md"] {
        assert!(
            ran.err.contains(name) && ran.err.contains("you have not accepted the project"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn persona_prompt_is_frozen_until_the_next_session() {
    let world = world(6);
    world.file("SOUL.md", "Calm.");
    world.run(&["-p", "one"]).ok();
    let first = system(&world);
    assert!(first.contains("\nCalm.\n"), "{first}");
    world.file("SOUL.md", "Wild.");
    world.file("USER.md", "Ann.");
    world.run(&["-p", "-c", "two"]).ok();
    assert_eq!(system(&world), first);
    // Also where the setting is another one by then.
    let settings = json!({ "retry": { "baseDelayMs": 1 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["-p", "-c", "three"]).ok();
    assert_eq!(system(&world), first);
    // Where something is added to its prompt, it is made anew of the same kind.
    world.run(&["-p", "-c", "--append-system-prompt", "Speak German.", "more"]).ok();
    let more = system(&world);
    assert!(
        more.starts_with("You are a person's own assistant") && more.contains("\n\nSpeak German.\n\n"),
        "{more}"
    );
    world.run(&["-p", "four"]).ok();
    assert!(system(&world).contains("You are Quipu, a coding agent."));
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "prompt": { "persona": true } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["-p", "five"]).ok();
    let next = system(&world);
    assert!(next.contains("\nWild.\n") && next.contains("\nAnn.\n"), "{next}");
}

/// The texts of the blocks of a request's system prompt.
fn system_blocks(request: &quipu_testkit::CapturedRequest) -> Vec<String> {
    let body: Value = request.json();
    let blocks = body["system"].as_array().unwrap();
    assert!(blocks.iter().all(|block| block["cache_control"].is_object()), "{blocks:?}");
    blocks.iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn provider_is_told_where_the_persona_begins_to_change() {
    let world = world(3);
    world.file("SOUL.md", "Calm.");
    world.file("HEARTBEAT.md", "- look at the mail");
    world.run(&["-p", "hello"]).ok();
    world.run(&["-p", "-c", "again"]).ok();
    let requests = world.requests();
    let first = system_blocks(&requests[0]);
    assert_eq!(first.len(), 2, "{first:?}");
    assert!(first[0].contains("Calm.") && first[1].contains("- look at the mail"), "{first:?}");
    assert!(!first[0].contains("os=") && first[1].contains("Working directory: "), "{first:?}");
    assert_eq!(system_blocks(&requests[1]), first, "also where the session is continued");
    // Another session has the same beginning, whatever changes.
    world.file("HEARTBEAT.md", "- look at the garden");
    world.run(&["-p", "hello"]).ok();
    let second = system_blocks(&world.requests()[2]);
    assert!(second[0] == first[0] && second[1] != first[1], "{second:?}");
}

#[test]
fn sub_agents_of_a_persona_have_the_minimal_sections() {
    let task = |id: &str| call(id, "task", &json!({ "prompt": "Look around.", "description": "Look" }));
    let says = |text: &str| Answer::new().text(text).reply();
    let world = World::new([task("c1"), says("seen"), says("done"), task("c2"), says("seen"), says("done")]);
    let settings =
        json!({ "retry": { "baseDelayMs": 1 }, "prompt": { "persona": true }, "agents": { "tool": "on" } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.file("SOUL.md", "Calm.");
    world.file("MEMORY.md", "Ann likes tea.");
    world.file("HEARTBEAT.md", "- look at the mail");
    world.run(&["-p", "hello"]).ok();
    // Also where the session is continued.
    world.run(&["-p", "-c", "again"]).ok();
    let requests = world.requests();
    for (parent, child) in [(0, 1), (3, 4)] {
        let parent = system_blocks(&requests[parent]).concat();
        assert!(parent.contains("Ann likes tea.") && parent.contains("- look at the mail"), "{parent}");
        let child = system_blocks(&requests[child]).concat();
        assert!(child.contains("You are a person's own assistant") && child.contains("Calm."), "{child}");
        assert!(!child.contains("Ann likes tea.") && !child.contains("look at the mail"), "{child}");
    }
}

#[test]
fn refused_project_gives_the_persona_no_files() {
    let world = world(2);
    world.file("SOUL.md", "Calm.");
    world.file("AGENTS.md", "Rules.");
    world.run(&["config", "trust", "--refuse"]).ok();
    world.run(&["-p", "hello"]).ok();
    let text = system(&world);
    assert!(text.starts_with("You are a person's own assistant"), "{text}");
    assert!(
        !text.contains("Calm.") && !text.contains("Rules.") && !text.contains("workspace_file"),
        "{text}"
    );
    // Nor those that lead out of the workspace, where it is accepted.
    world.run(&["config", "trust"]).ok();
    std::fs::remove_file(world.path("work/SOUL.md")).unwrap();
    world.file("../secret.txt", "secret");
    std::os::unix::fs::symlink("../secret.txt", world.path("work/SOUL.md")).unwrap();
    let ran = world.run(&["-p", "hello"]).ok();
    assert!(ran.err.contains("SOUL.md is not used: it is a link out of the workspace"), "{}", ran.err);
    let text = system(&world);
    assert!(text.contains("Rules.") && !text.contains("secret"), "{text}");
}

#[test]
fn report_names_sections_files_tools_and_the_boundary() {
    let world = world(2);
    let long = "x".repeat(13_000);
    world.file("SOUL.md", &long);
    world.file("HEARTBEAT.md", "- mail");
    let skill = world.path("home/.quipu/skills/tidy/SKILL.md");
    std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
    std::fs::write(&skill, "---\nname: tidy\ndescription: Tidies up.\n---\n").unwrap();
    world.run(&["-p", "hello"]).ok();
    let text = system(&world);
    let report = world.run(&["context", "--report", "--json"]).ok().json();
    assert_eq!(report["systemPrompt"]["bytes"], json!(text.len()));
    let boundary = usize::try_from(report["cacheBoundary"]["byte"].as_u64().unwrap()).unwrap();
    let (stable, changing) = text.split_at(boundary);
    assert!(stable.contains("tidy: Tidies up.") && !stable.contains("- mail"), "{stable}");
    assert!(changing.trim_start().starts_with("<workspace_file name=\"HEARTBEAT.md\""), "{changing}");
    let sections = report["sections"].as_array().unwrap();
    for section in sections {
        let start = usize::try_from(section["start"].as_u64().unwrap()).unwrap();
        let characters = usize::try_from(section["characters"].as_u64().unwrap()).unwrap();
        assert!(text[start..].chars().take(characters).count() == characters && characters > 0, "{section}");
    }
    assert_eq!((&sections[0]["id"], &sections.last().unwrap()["id"]), (&json!("beginning"), &json!("end")));
    let file =
        |name: &str| report["files"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    let soul = file("SOUL.md").unwrap();
    assert_eq!(soul["raw"], json!(13_000));
    let injected = soul["injected"].as_u64().unwrap();
    assert!((11_900..=12_000).contains(&injected), "{soul}");
    assert_eq!(file("USER.md").unwrap()["raw"], json!(null));
    assert_eq!(report["skills"], json!([{ "name": "tidy", "characters": 18 }]));
    let tools = report["tools"].as_array().unwrap();
    let bash = tools.iter().find(|tool| tool["name"] == "bash").unwrap();
    assert!(bash["schema"].as_u64().unwrap() > 50 && bash["description"].as_u64().unwrap() > 20, "{bash}");
    let shown = world.run(&["context", "--report"]).ok().text();
    for part in [
        "cache boundary after ",
        "-- cache boundary --",
        "13,000",
        "SOUL.md",
        "tidy",
        "bash",
        "persona: safety (owner)",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn report_is_of_the_coding_agent_too() {
    let world = World::says("Well.");
    world.file("AGENTS.md", "Use tabs.");
    world.run(&["-p", "hello"]).ok();
    let text = system(&world);
    let report = world.run(&["context", "--report", "--json"]).ok().json();
    let boundary = usize::try_from(report["cacheBoundary"]["byte"].as_u64().unwrap()).unwrap();
    assert!(text[boundary..].trim_start().starts_with("Working directory: "), "{}", &text[boundary..]);
    let path = world.path("work/AGENTS.md").canonicalize().unwrap();
    assert_eq!(report["files"], json!([{ "name": path, "raw": 9, "injected": 9 }]));
    world.run(&["context", "--report", "--at", "HEAD"]).fails(2, &["--at"]);
}
