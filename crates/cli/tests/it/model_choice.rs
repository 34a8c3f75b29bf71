//! The model and the level of thinking that were chosen in the terminal hold for sessions that begin later.

use serde_json::{Value, json};

use crate::pty::{Terminal, says};
use crate::slash::{after, answers, leave};
use crate::support::*;

const FILE: &str = "home/.quipu/model-choices.json";

/// The model of each request, and whether it thought.
fn asked(world: &World) -> Vec<(String, bool)> {
    let asked = |request: &quipu_testkit::CapturedRequest| {
        let body = request.json();
        (body["model"].as_str().unwrap().to_owned(), body["thinking"]["type"] == "enabled")
    };
    world.requests().iter().map(asked).collect()
}

fn settings(world: &World, more: &Value) {
    let mut text = json!({ "retry": { "baseDelayMs": 1 } });
    text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    std::fs::write(world.path("home/.quipu/settings.json"), text.to_string()).unwrap();
}

/// Runs a task in another directory of the world.
fn run_in(world: &World, directory: &str, prompt: &str) -> CommandOutput {
    std::fs::create_dir_all(world.path(directory)).unwrap();
    let mut command = world.quipu(&["-p", prompt]);
    command.current_dir(world.path(directory));
    RunningCommand::start(command).wait()
}

fn choose(world: &World, lines: &[&str]) {
    let mut terminal = Terminal::open(world, &[]);
    terminal.shows("test-1");
    for line in lines {
        terminal.types(&format!("{line}\r"));
        let last = line.rsplit(['/', ' ']).next().unwrap();
        terminal.until(last, |shown| !shown.contains(line) && shown.contains(last));
    }
    leave(terminal);
}

#[test]
fn choice_holds_after_a_restart_and_elsewhere() {
    let world = World::new((1..=4).map(|at| says(&format!("Answer {at}."))));
    choose(&world, &["/model testing/thinker", "/thinking high"]);
    world.run(&["-p", "here"]).ok();
    run_in(&world, "elsewhere", "there").ok();
    // A flag holds for its run alone.
    world.run(&["-p", "--model", "test-1", "once"]).ok();
    world.run(&["-p", "again"]).ok();
    let thinker = ("thinker".to_owned(), true);
    assert_eq!(asked(&world), [thinker.clone(), thinker.clone(), ("test-1".to_owned(), false), thinker]);
    assert_eq!(mode(&world.path(FILE)) & 0o777, 0o600);
}

#[test]
fn directory_comes_before_default_and_that_before_the_last() {
    let world = World::new((1..=4).map(|at| says(&format!("Answer {at}."))));
    settings(&world, &json!({ "defaultModel": "testing/test-1", "defaultThinkingLevel": "low" }));
    choose(&world, &["/model testing/thinker"]);
    world.run(&["-p", "here"]).ok();
    run_in(&world, "elsewhere", "there").ok();
    settings(&world, &json!({ "defaultThinkingLevel": "off" }));
    run_in(&world, "elsewhere", "the last").ok();
    settings(&world, &json!({ "defaultModel": "thinker:high" }));
    run_in(&world, "elsewhere", "a pattern with a level").ok();
    let found = asked(&world);
    let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["thinker", "test-1", "thinker", "thinker"]);
    assert_eq!(found.iter().map(|(_, thinks)| *thinks).collect::<Vec<_>>(), [true, false, false, true]);
}

#[test]
fn choice_that_cannot_be_used_is_an_error_that_names_it() {
    let world = answers(1);
    let write = |model: &str| {
        let directory = std::fs::canonicalize(world.path("work")).unwrap();
        let choice = json!({ directory.to_str().unwrap(): { "value": model, "at": 1 } });
        let text = json!({ "version": 1, "directories": choice }).to_string();
        std::fs::write(world.path(FILE), text).unwrap();
    };
    write("nobody/none");
    world.run(&["-p", "x"]).fails(2, &["The model chosen in this directory", "\"nobody/none\""]);
    // A provider of the request is asked for its own model.
    world.run(&["-p", "--provider", "testing", "x"]).ok();
    assert_eq!(asked(&world), [("test-1".to_owned(), false)]);
    settings(&world, &json!({ "defaultModel": "" }));
    std::fs::remove_file(world.path(FILE)).unwrap();
    world.run(&["-p", "x"]).fails(2, &["defaultModel", "text that is not empty"]);
}

#[test]
fn provider_with_a_key_says_what_else_is_missing() {
    let world = World::new([]);
    let ask = |provider: &str, variables: &[(&str, &str)]| {
        let mut command = world.quipu(&["-p", "--provider", provider, "x"]);
        command.envs(variables.iter().copied());
        RunningCommand::start(command).wait()
    };
    let region = ask("amazon-bedrock", &[("AWS_BEARER_TOKEN_BEDROCK", "key"), ("AWS_REGION", "a/b")]);
    region.fails(2, &["\"a/b\" from AWS_REGION is not a region"]);
    let azure = ask("azure", &[("AZURE_OPENAI_API_KEY", "key")]);
    azure.fails(2, &["no model of `azure` can be used", "AZURE_OPENAI_RESOURCE_NAME"]);
    ask("groq", &[]).fails(3, &["no model of `groq` can be used", "quipu auth set groq"]);
}

#[test]
fn broken_file_of_choices_is_reported_and_left_alone() {
    let broken = ["{", r#"{"version":7}"#, r#"{"version":1,"directories":[]}"#];
    let world = answers(broken.len() + 1);
    for text in broken {
        std::fs::write(world.path(FILE), text).unwrap();
        let output = world.run(&["-p", "x"]).ok();
        let message = output.err;
        assert!(message.contains("model-choices.json cannot be used: "), "{message}");
        assert!(message.contains("remove it to forget which models you chose"), "{message}");
    }
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/model testing/thinker\r");
    terminal.until("the refusal", |shown| shown.matches("cannot be used").count() > 1);
    terminal.types("one\r");
    terminal.settles("Answer 4.");
    leave(terminal);
    assert_eq!(asked(&world)[3].0, "thinker", "the session has it all the same");
    assert_eq!(std::fs::read_to_string(world.path(FILE)).unwrap(), broken[2]);
}

#[test]
fn refused_model_and_unsaved_session_leave_no_choice() {
    let world = answers(1);
    let mut terminal = after(&world, &["one"]);
    terminal.types("/model nobody/nothing\r");
    terminal.shows("The session did not change.");
    leave(terminal);
    let mut terminal = Terminal::open(&world, &["--no-session"]);
    terminal.shows("test-1");
    terminal.types("/model testing/thinker\r");
    terminal.until("the model", |shown| !shown.contains("/model") && shown.contains("thinker"));
    leave(terminal);
    assert!(!world.path(FILE).exists());
}

#[test]
fn level_that_a_model_does_not_have_is_announced() {
    let world = World::new((1..=4).map(|at| says(&format!("Answer {at}."))));
    let told = |args: &[&str], words: &str| {
        let ran = world.run(&[&["-p"], args, &["hello"]].concat()).ok();
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    };
    told(&["--model", "testing/test-1:high"], "testing/test-1 does not think; the level high is not used.");
    told(
        &["--model", "thinker", "--thinking", "max"],
        "testing/thinker has no level of thinking max; it is called with high.",
    );
    // What was not asked for by name is not worth a line.
    let ran = world.run(&["-p", "hello"]).ok();
    assert!(!ran.err.contains("level"), "{}", ran.err);
    world.run(&["-p", "--model", "test-1:ultra", "x"]).fails(2, &["no level of thinking \"ultra\""]);
    world.run(&["-p", "--model", "testing/*", "x"]).fails(2, &["is a pattern", "It matches testing/"]);
    assert_eq!(world.requests().len(), 3);
}

#[test]
fn choices_of_processes_at_once_are_all_kept() {
    let world = World::new([]);
    let directories: Vec<String> = (0..4).map(|at| format!("work/place-{at}")).collect();
    let open = |directory: &String| {
        std::fs::create_dir_all(world.path(directory)).unwrap();
        let mut command = world.quipu(&[]);
        command.current_dir(world.path(directory));
        Terminal::start(command, 100, 30)
    };
    let mut terminals: Vec<Terminal> = directories.iter().map(open).collect();
    for terminal in &mut terminals {
        terminal.shows("test-1");
    }
    for terminal in &mut terminals {
        terminal.types("/model testing/thinker\r");
    }
    for terminal in &mut terminals {
        terminal.until("thinker", |shown| !shown.contains("/model") && shown.contains("thinker"));
    }
    for terminal in &mut terminals {
        terminal.types("/thinking low\r");
    }
    for mut terminal in terminals {
        terminal.until("low", |shown| !shown.contains("/thinking") && shown.contains("low"));
        leave(terminal);
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(world.path(FILE)).unwrap()).unwrap();
    for directory in &directories {
        let path = world.path(directory);
        let choice = &kept["directories"][path.canonicalize().unwrap().to_str().unwrap()]["value"];
        assert_eq!(choice, "testing/thinker", "{kept}");
    }
    assert_eq!(
        (&kept["last"], &kept["thinking"]["testing/thinker"]["value"]),
        (&json!("testing/thinker"), &json!("low"))
    );
}
