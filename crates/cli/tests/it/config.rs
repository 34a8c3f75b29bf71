//! `quipu config`, and what is said of files of settings that are wrong.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

fn write(world: &World, text: impl AsRef<[u8]>) {
    std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
}

fn written(world: &World) -> String {
    std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap()
}

fn project(world: &World, settings: &Value) {
    std::fs::create_dir_all(world.path("work/.quipu")).unwrap();
    std::fs::write(world.path("work/.quipu/settings.json"), settings.to_string()).unwrap();
}

/// Value and source of a setting, with this variable in the environment.
fn get(world: &World, key: &str, variable: &str, value: &str) -> (Value, String) {
    let mut command = world.quipu(&["config", "get", key, "--json"]);
    command.env(variable, value);
    let row = RunningCommand::start(command).wait().ok().json();
    assert_eq!(row["key"], key);
    (row["value"].clone(), row["source"].as_str().unwrap().to_owned())
}

#[test]
fn config_shows_each_value_and_its_source() {
    let world = World::new([]);
    let listed = world.run(&["config", "--json"]).ok().json_lines();
    assert!(listed.len() > 40);
    let row = |key: &str| listed.iter().find(|row| row["key"] == key).unwrap();
    let mine = world.path("home/.quipu/settings.json");
    assert_eq!(
        (&row("retry.baseDelayMs")["value"], &row("retry.baseDelayMs")["source"]),
        (&json!(1), &json!("user"))
    );
    assert_eq!(row("retry.baseDelayMs")["from"], json!(mine));
    assert_eq!((&row("theme")["value"], &row("theme")["source"]), (&Value::Null, &json!("built-in")));
    let shown = world.run(&["config", "list"]).ok().text();
    let line = shown.lines().find(|line| line.starts_with("retry.baseDelayMs")).unwrap();
    assert!(line.contains(" 1 ") && line.ends_with(mine.to_str().unwrap()), "{line}");
    assert_eq!(world.run(&["config", "get", "cacheRetention"]).ok().text(), "short\n");
    world.run(&["config", "get", "cacheRetension"]).fails(2, &["did you mean `cacheRetention`"]);
    assert_eq!(
        get(&world, "retry.maxRetries", "QUIPU_RETRY_MAX_RETRIES", "9"),
        (json!(9), "environment".into())
    );
    assert_eq!(get(&world, "retry.maxRetries", "QUIPU_RETRY_MAX_RETRIES", ""), (json!(3), "built-in".into()));
}

#[test]
fn config_set_says_when_members_of_agents_hold() {
    let world = World::new([]);
    let agents = r#"{"ops":{"budget":{"daily":2}}}"#;
    let ran = world.run(&["config", "set", "agents.byId", agents]).ok();
    for words in [
        "`budget` takes effect at once, also in open sessions",
        "`model` and `tools` in new sessions and in those that are opened again",
        "`workspace` in new sessions;",
        "`heartbeat` within a minute in a running `quipu serve`",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    // A value that is refused changes nothing, and nothing of what it would come to in a file is so.
    let before = written(&world);
    let refused = r#"{"ops":{"budget":{"daily":"much"}}}"#;
    world
        .run(&["config", "set", "agents.byId", refused])
        .fails(2, &["nothing is changed: agents.byId.ops.budget must be an object"]);
    assert_eq!(written(&world), before);
}

#[test]
fn config_sets_and_unsets_one_value() {
    let world = World::new([]);
    write(&world, "{\n  \"odd\": true,\n  \"theme\": \"dark\"\n}\n");
    let ran = world.run(&["config", "set", "compaction.reserveTokens", "2000"]).ok();
    assert!(
        ran.err.contains("compaction.reserveTokens is now 2000, in ") && ran.err.contains("new sessions"),
        "{}",
        ran.err
    );
    assert!(
        written(&world).starts_with("{\n  \"odd\": true,\n  \"theme\": \"dark\",\n  \"compaction\""),
        "{}",
        written(&world)
    );
    world
        .run(&["config", "set", "compaction.reserveTokens", "few"])
        .fails(2, &["a whole number of 1 or more"]);
    world
        .run(&["config", "set", "compaction.reservTokens", "1"])
        .fails(2, &["did you mean `compaction.reserveTokens`"]);
    world.run(&["config", "set", "enabledModels", "a,b"]).ok();
    assert_eq!(world.run(&["config", "get", "enabledModels"]).ok().text(), "[\"a\",\"b\"]\n");
    world.run(&["config", "unset", "odd"]).ok();
    world.run(&["config", "unset", "theme"]).ok();
    world.run(&["config", "unset", "thing"]).fails(2, &["there is no setting `thing`"]);
    let now: Value = serde_json::from_str(&written(&world)).unwrap();
    assert_eq!(now, json!({ "compaction": { "reserveTokens": 2000 }, "enabledModels": ["a", "b"] }));
    write(&world, "{ broken");
    world
        .run(&["config", "set", "theme", "dark"])
        .fails(2, &["line 1", "not valid JSON", "correct it first"]);
    assert_eq!(written(&world), "{ broken");
}

#[test]
fn config_edit_reports_what_is_wrong_afterwards() {
    let world = World::new([]);
    let edit = |text: &str| {
        let script = world.file("editor", format!("#!/bin/sh\nprintf '%s' '{text}' > \"$1\"\n"));
        set_mode(&script, 0o700);
        let mut command = world.quipu(&["config", "edit"]);
        command.env("EDITOR", &script);
        RunningCommand::start(command).wait()
    };
    let ran = edit(r#"{"theme":"dark"}"#).ok();
    assert!(ran.err.contains("settings.json is well"), "{}", ran.err);
    let ran = edit(r#"{"thene":"dark","files":7}"#).ok();
    for told in ["there is no setting thene. Did you mean theme?", "files must be an object", "2 problems"] {
        assert!(ran.err.contains(told), "{}", ran.err);
    }
    world.run(&["config", "edit"]).fails(2, &["VISUAL", "EDITOR"]);
}

#[test]
fn wrong_settings_are_told_at_start_and_by_doctor() {
    let world = World::says("Here.");
    write(&world, r#"{"retry":{"baseDelayMs":1},"thene":"dark","compaction":{"reserveTokens":"many"}}"#);
    let told = [
        "there is no setting thene. Did you mean theme?",
        "compaction.reserveTokens must be",
        "settings.json",
    ];
    let ran = world.run(&["-p", "hi"]).ok();
    assert_eq!(ran.text(), "Here.\n");
    let models = std::fs::read_to_string(world.path("home/.quipu/models.json")).unwrap();
    std::fs::write(
        world.path("home/.quipu/models.json"),
        models.replace(
            "\"providers\":{",
            r#""providers":{"p":{"baseUrl":"u","api":"anthropic-message","models":[{"id":"m"}]},"#,
        ),
    )
    .unwrap();
    let doctor = world.run(&["doctor"]).ok();
    for told in told {
        assert!(ran.err.contains(told), "{}", ran.err);
        assert!(doctor.text().contains(told), "{}", doctor.text());
    }
    assert_eq!(ran.err.matches("thene").count(), 1, "{}", ran.err);
    assert!(
        doctor.text().contains("there is no api \"anthropic-message\". Did you mean \"anthropic-messages\"?")
    );
    std::fs::write(world.path("home/.quipu/models.json"), models).unwrap();
}

#[test]
fn projects_hooks_run_after_yours_once_they_are_accepted() {
    let world = World::new([]);
    let hooks = |word: &str| {
        let hook = json!({ "type": "command", "command": format!("echo {word} >> said; echo {word}") });
        json!({ "UserPromptSubmit": [{ "hooks": [hook] }] })
    };
    write(&world, json!({ "retry": { "baseDelayMs": 1 }, "hooks": hooks("mine") }).to_string());
    project(&world, &json!({ "hooks": hooks("theirs"), "sandbox": { "network": "open" } }));
    let said = |args: &[&str]| {
        std::fs::remove_file(world.path("work/said")).ok();
        world.server.push(Answer::new().text("Yes.").reply());
        let ran = world.run(&[&["-p", "hi"], args].concat()).ok();
        (std::fs::read_to_string(world.path("work/said")).unwrap(), ran.err)
    };
    let (ran, told) = said(&[]);
    assert_eq!(ran, "mine\n");
    assert!(told.contains("work/.quipu/settings.json") && told.contains("quipu config trust"), "{told}");
    let trusted = world.run(&["config", "trust"]).ok();
    assert!(
        trusted.text().contains("echo theirs") && trusted.err.contains("is accepted in its current form")
    );
    let (ran, told) = said(&[]);
    assert_eq!(ran, "mine\ntheirs\n");
    assert!(told.contains("sandbox.network is ignored: it opens the sandbox"), "{told}");
    assert!(world.run(&["permissions"]).ok().text().contains("settings"));
    // Whoever changes it, it has to be accepted again.
    project(&world, &json!({ "hooks": hooks("others") }));
    assert_eq!(said(&[]).0, "mine\n");
    world.run(&["config", "set", "--project", "sandbox.network", "open"]).fails(2, &["it opens the sandbox"]);
    let ran = world.run(&["config", "set", "--project", "retry.maxRetries", "1"]).ok();
    assert!(ran.err.contains("it has no effect until you accept the file"), "{}", ran.err);
    assert_eq!(get(&world, "retry.maxRetries", "A", "").1, "built-in");
    world.run(&["config", "trust"]).ok();
    assert_eq!(get(&world, "retry.maxRetries", "A", "").1, "project");
}

#[test]
fn sandbox_settings_hold_for_the_next_command() {
    let world = World::new([]);
    write(&world, r#"{"retry":{"baseDelayMs":1},"travel":{"tools":true,"tobe":"deny"}}"#);
    assert_eq!(get(&world, "travel.tobe", "A", "").0, "deny");
    let ran = world.run(&["config", "set", "sandbox.network", "closed"]).ok();
    assert!(ran.err.contains("it takes effect at once, also in open sessions"), "{}", ran.err);
}
