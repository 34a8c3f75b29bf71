//! Hooks of the settings: commands that read JSON and answer by their exit code or with JSON.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

fn settings(world: &World, hooks: &Value) {
    let file = json!({ "retry": { "baseDelayMs": 1 }, "hooks": hooks });
    std::fs::write(world.path("home/.quipu/settings.json"), file.to_string()).unwrap();
}

fn hook(command: &str) -> Value {
    json!({ "type": "command", "command": command })
}

/// The result of one call, as the model was told it, and what was printed for people.
fn call(world: &World, tool: &str, arguments: &Value) -> (String, String) {
    world.server.push(Answer::new().tool_call("c1", tool, &arguments.to_string()).reply());
    world.server.push(Answer::new().text("I see.").reply());
    let ran = world.run(&["-p", "go on"]).ok();
    let last = messages(world.requests().last().unwrap()).pop().unwrap();
    let blocks = last["content"].as_array().unwrap().clone();
    let result = blocks.iter().find(|block| block["type"] == "tool_result").unwrap();
    (wire_text(result), ran.err)
}

#[test]
fn command_reads_the_call_and_blocks_it() {
    let world = World::new([]);
    let guard = r#"cat > seen.json; grep -q secret seen.json && { echo "keep away" >&2; exit 2; }; exit 0"#;
    settings(&world, &json!({ "PreToolUse": [{ "matcher": "Read|Write", "hooks": [hook(guard)] }] }));
    let (told, _) = call(&world, "read", &json!({ "path": "secret.txt" }));
    assert!(told.contains("keep away"), "{told}");
    let seen: Value =
        serde_json::from_str(&std::fs::read_to_string(world.path("work/seen.json")).unwrap()).unwrap();
    assert_eq!((&seen["hook_event_name"], &seen["tool_name"]), (&json!("PreToolUse"), &json!("Read")));
    assert_eq!(seen["cwd"], json!(world.path("work")));
    assert_eq!(seen["tool_input"]["path"], "secret.txt");
    assert_eq!(seen["tool_input"]["file_path"], json!(world.path("work/secret.txt")));
    assert!(seen["session_id"].is_string() && seen["tool_use_id"] == "c1");
    // Other files, and other tools, are let pass.
    world.file("open.txt", "words");
    assert!(call(&world, "read", &json!({ "path": "open.txt" })).0.contains("words"));
    std::fs::remove_file(world.path("work/seen.json")).unwrap();
    call(
        &world,
        "edit",
        &json!({ "path": "open.txt", "edits": [{ "oldText": "words", "newText": "secret" }] }),
    );
    assert!(!world.path("work/seen.json").exists());
}

#[test]
fn command_answers_with_json() {
    let world = World::new([]);
    world.file("a.txt", "first");
    world.file("b.txt", "second");
    let answer =
        |specific: Value| hook(&format!("printf '%s' '{}'", json!({ "hookSpecificOutput": specific })));
    let before = |specific: Value| json!({ "PreToolUse": [{ "hooks": [answer(specific)] }] });
    let read = json!({ "path": "a.txt" });
    settings(&world, &before(json!({ "updatedInput": { "file_path": world.path("work/b.txt") } })));
    assert!(call(&world, "read", &read).0.contains("second"));
    settings(&world, &before(json!({ "permissionDecision": "deny", "permissionDecisionReason": "not now" })));
    assert!(call(&world, "read", &read).0.contains("not now"));
    // Nobody is here to be asked.
    settings(&world, &before(json!({ "permissionDecision": "ask", "permissionDecisionReason": "sure?" })));
    let (told, _) = call(&world, "read", &read);
    assert!(told.contains("nobody is here") && told.contains("sure?"), "{told}");
    // It opens nothing that the permissions close.
    settings(&world, &before(json!({ "permissionDecision": "allow" })));
    assert!(call(&world, "write", &json!({ "path": "../out", "content": "x" })).0.contains("nobody is here"));
    settings(
        &world,
        &json!({ "PostToolUse": [{ "hooks": [answer(json!({ "additionalContext": "It is old." }))] }] }),
    );
    let (told, _) = call(&world, "read", &read);
    assert!(told.contains("first") && told.contains("It is old."), "{told}");
}

#[test]
fn prompt_is_added_to_and_blocked() {
    let world = World::new([]);
    let command = r#"grep -q password && { echo "no passwords" >&2; exit 2; }; echo "Today is Monday.""#;
    settings(&world, &json!({ "UserPromptSubmit": [{ "hooks": [hook(command)] }] }));
    world.server.push(Answer::new().text("Hello.").reply());
    world.run(&["-p", "hello"]).ok();
    let said = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert!(said.contains("hello") && said.contains("Today is Monday."), "{said}");
    let requests = world.requests().len();
    world.run(&["-p", "my password is x"]).fails(1, &["no passwords"]);
    assert_eq!(world.requests().len(), requests, "nothing was sent");
}

#[test]
fn command_that_fails_has_no_effect_unless_it_guards() {
    for (command, word) in [
        ("exit 3", "ended with code 3"),
        ("kill -9 $$", "was killed"),
        ("yes | head -c 2000000", "more than"),
        ("printf '{\"hookSpecificOutput\": 7}'", "not the JSON of a hook answer"),
        ("sleep 60", "0.2 s"),
    ] {
        let world = World::new([]);
        world.file("a.txt", "first");
        for guards in [false, true] {
            let on_failure = if guards { "block" } else { "pass" };
            let one = json!({
                "type": "command", "command": command, "timeout": if word == "0.2 s" { 0.2 } else { 60.0 },
                "onFailure": on_failure,
            });
            settings(&world, &json!({ "PreToolUse": [{ "matcher": "*", "hooks": [one] }] }));
            let (told, printed) = call(&world, "read", &json!({ "path": "a.txt" }));
            assert_eq!(told.contains("first"), !guards, "{command}: {told}");
            assert!(printed.contains(word), "{command}: {printed}");
            assert_eq!(told.contains(word), guards, "{command}: {told}");
        }
    }
}

#[test]
fn settings_of_another_shape_are_told() {
    let world = World::new([]);
    for (hooks, word) in [
        (json!(7), "must be an object"),
        (json!({ "PreToolUse": "x" }), "hooks.PreToolUse"),
        (json!({ "PreToolUse": [{ "hooks": [{ "type": "prompt" }] }] }), "\"prompt\" is not supported"),
        (json!({ "PreToolUse": [{ "hooks": [{ "type": "command" }] }] }), "no command"),
        (
            json!({ "PreToolUse": [{ "hooks": [{ "type": "command", "command": "x", "timeout": -1 }] }] }),
            "timeout",
        ),
        (
            json!({ "PreToolUse": [{ "hooks": [{ "type": "command", "command": "x", "onFailure": "y" }] }] }),
            "onFailure",
        ),
        (json!({ "Notification": [] }), "hooks.Notification is not a known event"),
    ] {
        settings(&world, &hooks);
        world.server.push(Answer::new().text("Hello.").reply());
        let ran = world.run(&["-p", "hello"]).ok();
        assert!(ran.err.contains(word), "{hooks}: {}", ran.err);
    }
}

/// What a command read from stdin and left in a file.
fn seen(world: &World, file: &str) -> Value {
    let text = std::fs::read_to_string(world.path(&format!("work/{file}"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn command_at_the_start_adds_to_the_first_prompt() {
    let world = World::new([]);
    let command = "cat > seen.json; echo 'Today is Monday.'";
    let only_resumed = json!({ "matcher": "resume", "hooks": [hook("cat > resumed.json")] });
    settings(&world, &json!({ "SessionStart": [{ "hooks": [hook(command)] }, only_resumed] }));
    world.server.push(Answer::new().text("Hello.").reply());
    world.run(&["-p", "hello"]).ok();
    let said = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert!(said.contains("hello") && said.contains("Today is Monday."), "{said}");
    let start = seen(&world, "seen.json");
    assert_eq!((&start["hook_event_name"], &start["source"]), (&json!("SessionStart"), &json!("startup")));
    assert!(!world.path("work/resumed.json").exists());
    world.server.push(Answer::new().text("Again.").reply());
    world.run(&["-c", "-p", "on"]).ok();
    assert_eq!(seen(&world, "resumed.json")["source"], "resume");
    assert_eq!(seen(&world, "resumed.json")["session_id"], start["session_id"]);
}

#[test]
fn command_at_the_end_runs_before_the_program_ends() {
    let world = World::new([]);
    settings(&world, &json!({ "SessionEnd": [{ "hooks": [hook("cat > seen.json")] }] }));
    world.server.push(Answer::new().text("Hello.").reply());
    world.run(&["-p", "hello"]).ok();
    let end = seen(&world, "seen.json");
    assert_eq!((&end["hook_event_name"], &end["reason"]), (&json!("SessionEnd"), &json!("other")));
}

#[test]
fn command_at_the_end_of_a_run_has_it_go_on() {
    let world = World::new([]);
    // By its exit code, by JSON, and with JSON that lets it end.
    let cases = [
        ("echo 'Run the tests.' >&2; exit 2", true),
        (r#"printf '{"decision":"block","reason":"Run the tests."}'"#, true),
        (r#"printf '{"continue":false,"decision":"block","reason":"Run the tests."}'"#, false),
        ("echo done", false),
    ];
    for (answer, continues) in cases {
        let command = format!("cat > seen.json; grep -q 'active.:true' seen.json && exit 0; {answer}");
        settings(&world, &json!({ "Stop": [{ "hooks": [hook(&command)] }] }));
        world.server.push(Answer::new().text("Written.").reply());
        if continues {
            world.server.push(Answer::new().text("Tested.").reply());
        }
        let before = world.requests().len();
        world.run(&["-p", "write"]).ok();
        let asked = world.requests()[before..].to_vec();
        assert_eq!(asked.len(), 1 + usize::from(continues), "{answer}");
        if continues {
            let said = wire_text(&messages(asked.last().unwrap()).pop().unwrap());
            assert!(said.contains("Run the tests."), "{answer}: {said}");
        }
        let end = seen(&world, "seen.json");
        assert_eq!(end["stop_hook_active"], continues, "{answer}");
        let last = if continues { "Tested." } else { "Written." };
        assert_eq!(end["last_assistant_message"], last, "{answer}");
    }
}

#[test]
fn command_before_a_compaction_cancels_it() {
    let world = World::new([]);
    let blocks =
        r#"cat > seen.json; grep -q '"trigger":"manual"' seen.json && { echo "keep it" >&2; exit 2; }"#;
    let auto = json!({ "matcher": "auto", "hooks": [hook("cat > auto.json")] });
    let hooks = json!({ "PreCompact": [{ "matcher": "manual", "hooks": [hook(blocks)] }, auto] });
    let file = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 }, "hooks": hooks });
    std::fs::write(world.path("home/.quipu/settings.json"), file.to_string()).unwrap();
    for said in [&["-p", "one"][..], &["-p", "-c", "two"]] {
        world.server.push(Answer::new().text(&"word ".repeat(400)).reply());
        world.run(said).ok();
    }
    let before = world.requests().len();
    world.run(&["compact", "--focus", "the numbers"]).fails(1, &["keep it"]);
    assert_eq!(world.requests().len(), before, "no model was asked");
    assert_eq!(seen(&world, "seen.json")["custom_instructions"], "the numbers");
    assert!(!world.path("work/auto.json").exists());
}
