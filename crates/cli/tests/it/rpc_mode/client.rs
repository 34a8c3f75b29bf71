//! Pi's own client, from its package, with Quipu at the other end.

use std::collections::BTreeMap;

use quipu_testkit::{Answer, Reply, peer_files};
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn client_of_pi_drives_a_session_by_all_its_methods() {
    let places = ["node/bin/node", "@earendil-works/pi-coding-agent/dist/modes/rpc/rpc-client.js"];
    let Some([node, module]) = peer_files(places) else { return };
    let world = World::new([
        Answer::new().text("All done.").reply(),
        Reply::sse(Answer::new().text("Half").unfinished()).then_hang(),
        Answer::new().text("Again.").reply(),
    ]);
    let script = world.file("client.mjs", include_str!("client.mjs"));
    let shim = world.file("shim.mjs", include_str!("shim.mjs"));
    let mut command = world.command(&node);
    let bin = node.parent().unwrap().display().to_string();
    command
        .arg(script)
        .args([module, shim])
        .arg(MODEL)
        .env("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin"))
        .env("QUIPU", &world.program);
    let ran = RunningCommand::start(command).wait().ok();
    let got: BTreeMap<String, Value> = ran
        .json_lines()
        .into_iter()
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line["value"].clone()))
        .collect();
    assert_eq!(got["unused"], json!([]), "a method of the client was not called");
    let of = |name: &str| got.get(name).unwrap_or_else(|| panic!("{name}: {got:#?}"));
    let check = |name: &str, expect: Value| assert_eq!(*of(name), expect, "{name}");

    let state = of("state");
    assert_eq!((&state["model"]["id"], &state["isStreaming"]), (&json!(MODEL), &json!(false)), "{state}");
    assert_eq!(
        (&state["steeringMode"], &state["messageCount"]),
        (&json!("one-at-a-time"), &json!(0)),
        "{state}"
    );
    assert!(of("commands").as_array().unwrap().iter().any(|command| command["name"] == "init"));
    assert_eq!(of("models").as_array().unwrap().len(), 2);
    assert_eq!(of("setModel")["id"], "thinker");
    check("noModel", json!({ "error": "Model not found: testing/missing" }));
    check("levels", json!(["off", "minimal", "low", "medium", "high"]));
    check("setLevel", Value::Null);
    check("cycleLevel", json!({ "level": "off" }));
    assert_eq!(
        (&of("cycleModel")["model"]["id"], &of("cycleModel")["isScoped"]),
        (&json!(MODEL), &json!(false))
    );
    assert_eq!(of("backToModel")["id"], MODEL);
    // What was changed before may be told of late.
    let is_of_the_run = |kind: &&str| !kind.starts_with("quipu_") && *kind != "thinking_level_changed";
    let kinds =
        of("promptAndWait").as_array().unwrap_or_else(|| panic!("{got:#?}")).iter().filter_map(Value::as_str);
    let kinds: Vec<&str> = kinds.filter(is_of_the_run).collect();
    assert!(kinds.starts_with(&["agent_start", "turn_start", "message_start", "message_end"]), "{kinds:?}");
    assert!(kinds.ends_with(&["turn_end", "agent_end", "agent_settled"]), "{kinds:?}");
    let messages = of("messages").as_array().unwrap();
    assert_eq!(messages[0]["content"], json!([{ "type": "text", "text": "hello" }]));
    assert_eq!(messages[1]["content"], json!([{ "type": "text", "text": "All done." }]));
    check("lastText", json!("All done."));
    let entries = of("entries")["entries"].as_array().unwrap();
    let types: Vec<&str> = entries.iter().filter_map(|entry| entry["type"].as_str()).collect();
    assert_eq!(types, ["model_change", "thinking_level_change", "message", "message"]);
    assert_eq!(of("entries")["leafId"], entries[3]["id"]);
    assert_eq!(of("since")["entries"], json!([entries[3]]));
    assert_eq!(of("tree")["tree"][0]["children"][0]["children"][0]["entry"], entries[2]);
    let stats = of("stats");
    assert_eq!((&stats["userMessages"], &stats["assistantMessages"]), (&json!(1), &json!(1)), "{stats}");
    assert_eq!(stats["tokens"]["total"], 15, "{stats}");
    check("bash", json!({ "output": "a\nb", "exitCode": 2, "cancelled": false, "truncated": false }));
    for done in
        ["name", "steering", "following", "autoCompaction", "autoRetry", "abortRetry", "steer", "followUp"]
    {
        check(done, Value::Null);
    }
    check("compact", json!({ "error": "Nothing to compact (session too small)" }));
    check("queue", json!({ "steering": ["steered"], "followUp": ["followed"] }));
    check("abort", Value::Null);
    check("idle", Value::Null);
    let collected = of("collected").as_array().unwrap();
    assert_eq!(collected.last(), Some(&json!("agent_settled")), "{collected:?}");
    assert_eq!((&of("slept")["output"], &of("slept")["cancelled"]), (&json!("up\n"), &json!(true)));
    let page = of("exported")["path"].as_str().unwrap();
    assert!(std::fs::read_to_string(page).unwrap().contains("All done."));
    check("clone", json!({ "cancelled": false }));
    let fork_messages = of("forkMessages").as_array().unwrap();
    assert_eq!(fork_messages[0]["text"], "hello");
    check("fork", json!({ "text": "hello", "cancelled": false }));
    check("new", json!({ "cancelled": false }));
    check("switch", json!({ "cancelled": false }));
    check("switched", json!(true));
    let kinds = of("kinds").to_string();
    for kind in ["session_info_changed", "thinking_level_changed", "queue_update", "compaction_end"] {
        assert!(kinds.contains(kind), "{kinds}");
    }
}
