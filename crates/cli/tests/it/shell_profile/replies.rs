//! What the model replies, and what it is told.

use quipu_testkit::{Answer, Wire};
use serde_json::json;

use super::*;

#[test]
fn commands_run_and_exit_answers_on_each_wire() {
    for (wire, api) in [
        (Wire::Messages, "anthropic-messages"),
        (Wire::Completions, "openai-completions"),
        (Wire::Responses, "openai-responses"),
    ] {
        let command = "printf 'one\\n' > made; printf 'out\\n'; printf 'err\\n' >&2; exit 3";
        let answers = [command, "```bash\ncat made\n```", "exit\nMade it."];
        let world = World::new(answers.map(|text| Answer::on(wire).text(text).reply()));
        let model = json!({ "id": "m", "api": api, "contextWindow": 200_000, "maxTokens": 8_000 });
        let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model] });
        let models = json!({ "providers": { "testing": provider } });
        std::fs::write(world.path("home/.quipu/models.json"), models.to_string()).unwrap();
        let ran = run(&world, &["--model", "m", "make it"]).ok();
        assert_eq!(ran.text(), "Made it.\n", "{}", ran.err);
        assert!(ran.err.contains("• bash printf"), "{}", ran.err);
        assert_eq!(std::fs::read_to_string(world.path("work/made")).unwrap(), "one\n");

        let last = world.requests()[2].json();
        assert!(last.get("tools").is_none_or(|tools| *tools == json!([])), "{api}: {last}");
        let text = last.to_string();
        for part in ["tool_use", "tool_result", "tool_call", "function_call"] {
            assert!(!text.contains(part), "{api}: {part}: {text}");
        }
        assert!(text.contains("Your whole reply is one command"), "{api}: {text}");
        let told: Vec<String> = messages(&world.requests()[2])
            .iter()
            .filter(|message| message["role"] != "system" && message["role"] != "developer")
            .map(wire_text)
            .collect();
        let [task, first, result, second, output] = told.as_slice() else { panic!("{api}: {told:?}") };
        assert_eq!((task.as_str(), first.as_str()), ("make it", command), "{api}");
        assert_eq!(untimed(result), "out\nerr\n\n\nCommand exited with code 3", "{api}");
        assert_eq!((second.as_str(), untimed(output)), (answers[1], "one\n"), "{api}");
        // Each request begins as the one before it.
        let all = |at: usize| messages(&world.requests()[at]).iter().map(wire_text).collect::<Vec<_>>();
        assert_eq!(all(1), all(2)[..all(1).len()], "{api}");
    }
}

#[test]
fn exit_without_words_prints_what_the_last_command_did() {
    let world = world(["printf 'a\\nb\\n' > x; wc -l < x", "EXIT"]);
    let ran = run(&world, &["how many lines?"]).ok();
    assert_eq!(ran.text(), "2\n");
    // Of a command that printed nothing, or failed, there is nothing to print.
    let world = self::world(["true", "exit", "echo no; false", "exit"]);
    assert_eq!(run(&world, &["do it"]).ok().text(), "");
    assert_eq!(run(&world, &["do it"]).ok().text(), "");
}

#[test]
fn cut_reply_is_told_and_not_run() {
    let world =
        World::new([Answer::new().text("touch ran").stop("max_tokens").reply(), reply("exit\nI stop.")]);
    assert_eq!(run(&world, &["go"]).ok().text(), "I stop.\n");
    assert!(!world.path("work/ran").exists());
    assert!(untimed(&told(&world)).starts_with("The reply reached the output limit"), "{}", told(&world));
}

#[test]
fn reply_that_is_no_command_is_told_why_and_not_run() {
    let fenced = "I make a file:\n```bash\ntouch ran\n```\nIt is there now.";
    let world = World::new([
        reply(fenced),
        Answer::new().thinking("Hm.", "c2ln").reply(),
        bash("c1", "touch ran"),
        reply("patience soon touch ran"),
        reply("touch made"),
        reply("exit"),
    ]);
    // Three in a row, and the fourth ends the run.
    let ran = run(&world, &["go"]).fails(1, &["4 times in a row", "nothing that can be run"]);
    assert!(ran.text().is_empty());
    let told = said(&world, 3);
    let results: Vec<&str> =
        told.iter().filter(|(role, _)| role == "user").skip(1).map(|(_, text)| untimed(text)).collect();
    for (result, part) in results.iter().zip(["more than one command", "was empty", "no tools to call"]) {
        assert!(result.contains(part), "{part}: {told:?}");
    }
    assert_eq!(results.len(), 3, "{told:?}");
    assert!(told.iter().any(|(role, text)| role == "assistant" && text == fenced), "{told:?}");
    // It goes on when it is told to.
    world.run(&["-p", "-c", "one command each"]).ok();
    assert!(world.path("work/made").exists() && !world.path("work/ran").exists());
}

#[test]
fn patience_ends_a_command_and_the_model_can_ask_for_more() {
    let world = world([
        "patience 1 echo begun; sleep 300",
        "reason 'it is slow' patience 2m echo late",
        "exit\nYes.",
    ]);
    run(&world, &["go"]).ok();
    let told = said(&world, 2);
    let first = untimed(&told[2].1);
    assert!(first.starts_with("begun\n\n\nCommand timed out after 1 seconds\n"), "{first}");
    assert!(first.contains("`patience 20m COMMAND`"), "{first}");
    assert_eq!(untimed(&told[4].1), "late\n");
    no_command_lives(&world);
    let nodes = world.nodes();
    let calls: Vec<&Value> = nodes
        .iter()
        .flat_map(|node| node["message"]["content"].as_array().into_iter().flatten())
        .filter(|block| block["type"] == "toolCall")
        .collect();
    assert_eq!(calls[0]["arguments"], json!({ "command": "echo begun; sleep 300", "timeout": 1 }));
    assert_eq!(
        calls[1]["arguments"],
        json!({ "command": "echo late", "timeout": 120, "reason": "it is slow" })
    );
    assert_ne!(calls[0]["id"], calls[1]["id"]);
}

#[test]
fn long_output_is_cut_and_kept_in_a_file() {
    let world = world(["seq 100000", "exit"]);
    run(&world, &["count"]).ok();
    let told = told(&world);
    assert!(told.len() < 60_000 && told.contains("\n100000\n"), "{}", told.len());
    let (_, file) = told.split_once("Full output: ").unwrap();
    let file = std::fs::read_to_string(file.trim_end_matches(']')).unwrap();
    assert_eq!(file.lines().count(), 100_000);
}

#[test]
fn turns_and_errors_of_the_model_end_a_run_as_elsewhere() {
    let world = world(["echo one", "echo two", "exit"]);
    run(&world, &["--max-turns", "1", "go"]).fails(5, &["stopped after 1 turns"]);
    // It goes on where it was, with the result of the command.
    world.run(&["-p", "-c"]).ok();
    assert_eq!(untimed(&said(&world, 1)[2].1), "one\n");
    let world = World::new([Reply::error(400, "invalid_request_error", "no"), reply("exit\nNow.")]);
    run(&world, &["go"]).exits(1);
    assert_eq!(world.run(&["-p", "-c"]).ok().text(), "Now.\n");
}
