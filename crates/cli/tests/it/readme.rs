//! The transcripts of the README: three agents worked on one program, and Quipu goes on.

use std::path::Path;
use std::time::{Duration, SystemTime};

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::documents::runs_as_written;
use crate::support::*;

const PAGE: &str = "README.md";

/// What the model answers, in order.
fn script() -> Vec<Reply> {
    let says = |text: &str| Answer::new().text(text).reply();
    let edit = |old: &str, new: &str| {
        call("c1", "edit", &json!({ "path": "discount.sh", "edits": [{ "oldText": old, "newText": new }] }))
    };
    let cap = "[ \"$percent\" -le 50 ] || percent=50\n";
    vec![
        says("No, for the same reason: store credit is money."),
        edit("percent=$2\n", &format!("percent=$2\n{cap}")),
        says("A discount ends at 50 percent now."),
        call("c2", "write", &json!({ "path": "cap.txt", "content": "50\n" })),
        edit(cap, "cap=$(cat cap.txt)\n[ \"$percent\" -le \"$cap\" ] || percent=$cap\n"),
        says("The cap is in cap.txt now."),
    ]
}

/// Writes a session file that nobody writes to any more.
fn put(path: &Path, lines: &[Value]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
}

/// Claude Code writes the program.
fn first(world: &World) {
    const ID: &str = "407c9a06-1c02-4aa6-828d-9f3bae2c2140";
    let record = |at: u32, role: &str, message: Value| {
        json!({
            "type": role, "uuid": format!("u{at}"), "parentUuid": at.checked_sub(1).map(|at| format!("u{at}")),
            "sessionId": ID, "cwd": world.path("work"), "timestamp": format!("2026-10-05T09:12:0{at}.000Z"), "message": message,
        })
    };
    let answer = |id: &str, stop: &str, content: Value| {
        json!({
            "id": id, "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": stop, "content": [content],
            "usage": { "input_tokens": 900, "output_tokens": 60 },
        })
    };
    let content = "price=$1\npercent=$2\necho \"$((price - price * percent / 100))\"\n";
    let write = json!({ "type": "tool_use", "id": "t1", "name": "Write",
        "input": { "file_path": world.path("work/discount.sh"), "content": content } });
    let result = json!({ "type": "tool_result", "tool_use_id": "t1", "content": "ok" });
    put(
        &world.path(&format!("home/.claude/projects/-shop/{ID}.jsonl")),
        &[
            record(
                0,
                "user",
                json!({ "role": "user", "content": "A discount is a percentage of the price. Write discount.sh." }),
            ),
            record(1, "assistant", answer("m1", "tool_use", write)),
            record(2, "user", json!({ "role": "user", "content": [result] })),
            record(
                3,
                "assistant",
                answer(
                    "m2",
                    "end_turn",
                    json!({ "type": "text", "text": "It prints the price that is left." }),
                ),
            ),
        ],
    );
}

/// Codex changes it.
fn second(world: &World) {
    const ID: &str = "0199bbbb-0000-7000-8000-000000000002";
    let record = |at: u32, kind: &str, payload: Value| json!({ "timestamp": format!("2026-10-19T14:03:0{at}.000Z"), "ordinal": at, "type": kind, "payload": payload });
    let message = |role: &str, kind: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] });
    let patch = "*** Begin Patch\n*** Update File: discount.sh\n@@\n-echo \"$((price - price * percent / 100))\"\n\
                 +# Half a cent counts as one.\n+echo \"$(((price * (100 - percent) + 50) / 100))\"\n*** End Patch";
    let asked = message("user", "input_text", "The bank rounds half a cent up, so a discount is off by one.");
    put(
        &world.path(&format!("home/.codex/sessions/2026/10/19/rollout-2026-10-19T14-03-00-{ID}.jsonl")),
        &[
            record(
                0,
                "session_meta",
                json!({ "id": ID, "cwd": world.path("work"), "timestamp": "2026-10-19T14:03:00.000Z", "cli_version": "0.169.0" }),
            ),
            record(1, "response_item", asked),
            record(
                2,
                "response_item",
                json!({ "type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c1" }),
            ),
            record(
                3,
                "response_item",
                json!({ "type": "custom_tool_call_output", "call_id": "c1", "output": "Success." }),
            ),
            record(4, "response_item", message("assistant", "output_text", "It rounds half a cent up now.")),
        ],
    );
    world.file(
        "discount.sh",
        "price=$1\npercent=$2\n# Half a cent counts as one.\necho \"$(((price * (100 - percent) + 50) / 100))\"\n",
    );
}

/// Pi is asked something.
fn third(world: &World) {
    const ID: &str = "0199cccc-0000-7000-8000-000000000003";
    let entry = |id: &str, parent: Value, at: u32, message: Value| json!({ "type": "message", "id": id, "parentId": parent, "timestamp": format!("2026-11-02T08:30:0{at}.000Z"), "message": message });
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    put(
        &world.path(&format!("home/.pi/agent/sessions/--shop--/2026-11-02T08-30-00-000Z_{ID}.jsonl")),
        &[
            json!({ "type": "session", "version": 3, "id": ID, "timestamp": "2026-11-02T08:30:00.000Z", "cwd": world.path("work") }),
            entry(
                "aaaaaaaa",
                Value::Null,
                1,
                json!({ "role": "user", "content": text("May gift cards get a discount?"), "timestamp": 1_793_608_201_000_u64 }),
            ),
            entry(
                "bbbbbbbb",
                json!("aaaaaaaa"),
                5,
                json!({
                    "role": "assistant", "content": text("No: a gift card is money, and money has no discount."),
                    "api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5", "stopReason": "stop",
                    "usage": { "input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15,
                        "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 } },
                    "timestamp": 1_793_608_205_000_u64,
                }),
            ),
        ],
    );
}

#[test]
fn transcripts_of_the_readme_are_real() {
    let world = World::new(script());
    let models = world.path("home/.quipu/models.json");
    let text = std::fs::read_to_string(&models).unwrap().replace("\"test-1\"", "\"example-large\"");
    std::fs::write(&models, text).unwrap();
    first(&world);
    second(&world);
    third(&world);
    runs_as_written(PAGE, &world, "/shop", 8);
    assert_eq!(world.requests().len(), script().len(), "all of the script is used");
}
