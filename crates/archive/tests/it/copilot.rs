//! Sessions of GitHub Copilot's command line: chains of events with all that its versions write into them.

use quipu_archive::{Agent, ProblemKind};
use quipu_protocol::{Content, Entry, Message, StopReason, Usage};
use serde_json::{Value, json};

use crate::agents::{answers, grows, shorts};
use crate::support::{SECRET, archive, lines};

const AGENT: &str = "copilot-cli";
const A: &str = "fd1fbd40-009d-4322-bfce-0ff1daeb997a";

fn name() -> String {
    format!(".copilot/session-state/{A}/events.jsonl")
}

/// Events, each after the one before.
struct Log(Vec<Value>);

impl Log {
    fn new() -> Self {
        let mut log = Self(Vec::new());
        let start = json!({ "sessionId": A, "version": 1, "copilotVersion": "1.0.102", "startTime": "2026-01-02T03:00:00.000Z",
            "selectedModel": "gpt-5", "context": { "cwd": "/p q" } });
        log.event("session.start", &start);
        log
    }

    fn event(&mut self, kind: &str, data: &Value) {
        let number = self.0.len();
        let parent = self.0.last().map_or(Value::Null, |event| event["id"].clone());
        self.0.push(json!({ "type": kind, "data": data, "id": format!("e{number}"),
            "timestamp": format!("2026-01-02T03:00:{number:02}.000Z"), "parentId": parent }));
    }

    fn user(&mut self, text: &str) {
        let sent = format!("<current_datetime>x</current_datetime>\n\n{text}");
        self.event(
            "user.message",
            &json!({ "content": text, "transformedContent": sent, "interactionId": "i", "turnId": "0" }),
        );
    }

    fn answer(&mut self, number: u64, text: &str, calls: &Value, more: &Value) {
        self.event("assistant.turn_start", &json!({ "turnId": "0", "interactionId": "i" }));
        self.event("session.usage_record", &json!({ "usage": { "model": "gpt-5", "inputTokens": 1000 + number, "outputTokens": 10 + number,
            "cacheReadTokens": 500 + number, "cacheWriteTokens": 7, "reasoningTokens": 3, "apiCallId": format!("r{number}"),
            "apiEndpoint": "/responses", "finishReason": "stop", "cost": 1.0 } }));
        let mut data = json!({ "messageId": "m", "model": "gpt-5", "content": text, "toolRequests": calls, "turnId": "0",
            "apiCallId": format!("r{number}") });
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.event("assistant.message", &data);
    }

    fn turn_end(&mut self) {
        self.event("assistant.turn_end", &json!({ "turnId": "0" }));
    }
}

fn call(id: &str, tool: &str) -> Value {
    json!({ "toolCallId": id, "name": tool, "arguments": { "b": 1.0, "a": id }, "type": "function", "toolTitle": "X" })
}

fn usage(number: u64) -> Usage {
    Usage {
        input: 493,
        output: 10 + number,
        cache_read: 500 + number,
        cache_write: 7,
        reasoning: Some(3),
        total_tokens: 1010 + 2 * number,
        ..Usage::default()
    }
}

fn conversation() -> Log {
    let mut log = Log::new();
    log.user("Look.");
    log.event("system.message", &json!({ "role": "system", "content": "the prompt" }));
    let block = json!({ "type": "reasoning", "id": "rs", "summary": [{ "type": "summary_text", "text": "hm" }],
        "encrypted_content": "enc" });
    let reasoning = json!({ "reasoningText": "hm", "reasoningOpaque": "rs", "encryptedContent": "enc",
        "reasoningBlocks": { "provider": "openai-responses", "blocks": [block] } });
    log.answer(
        1,
        "Reading.",
        &json!([call("c1", "bash"), call("c2", "view"), call("c3", "view")]),
        &reasoning,
    );
    for id in ["c1", "c2", "c3"] {
        log.event("tool.execution_start", &json!({ "toolCallId": id, "arguments": { "b": 1.0, "a": id } }));
    }
    // They are done in another order.
    log.event(
        "tool.execution_complete",
        &json!({ "toolCallId": "c2", "success": false, "toolTelemetry": { "x": 1 },
        "error": { "message": "Path does not exist", "code": "failure" } }),
    );
    log.event(
        "tool.execution_complete",
        &json!({ "toolCallId": "c3", "success": true,
        "result": { "content": "alpha\n", "detailedContent": "a diff",
            "contents": [{ "type": "image", "mimeType": "image/png", "data": "aWNvbg==" }] } }),
    );
    log.event(
        "tool.execution_complete",
        &json!({ "toolCallId": "c1", "success": true, "shellExecution": { "exitCode": 3 },
        "result": { "content": "out\n<shellId: 0 completed with exit code 3>" } }),
    );
    log.turn_end();
    let thinking = json!({ "reasoningBlocks": { "provider": "anthropic-messages",
        "blocks": [{ "type": "thinking", "thinking": "more", "signature": "sig" }] } });
    log.answer(2, "", &json!([call("c4", "edit")]), &thinking);
    log.event(
        "tool.execution_complete",
        &json!({ "toolCallId": "c4", "success": true, "fileEdits": [{ "path": "/p", "kind": "edit" }],
        "result": { "content": "Edited." } }),
    );
    log.turn_end();
    log.answer(3, "Done.", &json!([]), &json!({}));
    log.turn_end();
    log.event("session.shutdown", &json!({ "modelMetrics": {} }));
    log.event("session.resume", &json!({ "eventCount": 20 }));
    log.user("Fails.");
    log.event("assistant.turn_start", &json!({ "turnId": "0" }));
    log.turn_end();
    log.event(
        "session.error",
        &json!({ "errorType": "query", "message": "400 scripted failure", "statusCode": 400 }),
    );
    log
}

#[test]
fn events_that_say_something_are_a_chain() {
    let archive = archive();
    let report = archive.take(AGENT, &name(), lines(&conversation().0));
    assert_eq!((report.added, report.lost, report.repaired, report.branches), (11, 0, 0, 1), "{report:?}");
    assert_eq!(report.skipped.values().sum::<u64>(), 16);
    let messages = archive.messages(A);
    let expect = [
        "u Look.",
        "a (hm) Reading. c1=bash c2=view c3=view",
        "r c2=view! Path does not exist",
        "r c3=view alpha\n <image/png>",
        "r c1=bash! out\n<shellId: 0 completed with exit code 3>",
        "a (more) c4=edit",
        "r c4=edit Edited.",
        "a Done.",
        "u Fails.",
        "e 400 scripted failure",
    ];
    assert_eq!(shorts(&messages), expect);
    assert_eq!(archive.shown(A).len(), 9);
    let answers = answers(&messages);
    for (answer, number) in answers.iter().zip(1..=3) {
        assert_eq!((&answer.usage, answer.model.as_str()), (&usage(number), "gpt-5"));
    }
    let apis: Vec<&str> = answers.iter().map(|answer| answer.api.as_str()).collect();
    assert_eq!(apis, ["openai-responses", "anthropic-messages", "openai-responses", "copilot"]);
    let signatures: Vec<String> = answers
        .iter()
        .flat_map(|answer| &answer.content)
        .filter_map(|block| match block {
            Content::Thinking(thinking) => thinking.thinking_signature.clone(),
            _ => None,
        })
        .collect();
    assert!(
        signatures[0].contains("\"encrypted_content\":\"enc\"") && signatures[1] == "sig",
        "{signatures:?}"
    );
    assert_eq!((answers[0].stop_reason, answers[3].stop_reason), (StopReason::ToolUse, StopReason::Error));
    assert_eq!(answers[0].tool_calls().next().unwrap().arguments.get(), r#"{"b":1.0,"a":"c1"}"#);
    let Message::ToolResult(result) = &messages[3] else { panic!("{:?}", messages[3]) };
    let details: Value = serde_json::from_str(result.details.as_ref().unwrap().get()).unwrap();
    assert_eq!(details["result"]["detailedContent"], "a diff");
    let row = archive.row(A);
    assert_eq!((row.agent.as_str(), row.cwd.as_str(), row.title.as_str()), (AGENT, "/p q", "Look."));
    assert_eq!(row.created, 1_767_322_800_000);
    assert!(archive.take(AGENT, &name(), lines(&conversation().0)).unchanged);
    let again = archive.take(AGENT, &format!("copy/{}", name()), lines(&conversation().0));
    assert_eq!((again.added, again.present, again.changed), (0, 11, 0));
    let agent = Agent::named(AGENT).unwrap();
    let kept = agent.files(&archive.dir.path().join(".copilot")).unwrap().files;
    assert_eq!(kept.len(), 1);
    assert_eq!(agent.look(&kept[0]).unwrap()[0].project.as_deref(), Some("/p q"));
}

#[test]
fn a_file_that_grows_and_one_that_was_wound_back() {
    let mut log = conversation();
    log.user("Another way.");
    log.answer(4, "Left.", &json!([]), &json!({}));
    grows(AGENT, &name(), &lines(&log.0), 0);
    let archive = archive();
    archive.take(AGENT, &name(), lines(&log.0));
    // The events after a rewind are gone from the file, and others stand in their place.
    let mut back = conversation();
    let parent = back.0.last().unwrap()["id"].clone();
    back.event("user.message", &json!({ "content": "No, this way." }));
    let last = back.0.last_mut().unwrap();
    (last["id"], last["parentId"], last["timestamp"]) =
        (json!("f1"), parent, json!("2026-01-02T03:05:00.000Z"));
    let report = archive.take(AGENT, &name(), lines(&back.0));
    assert_eq!((report.added, report.changed, report.branches), (1, 0, 2), "{report:?}");
    assert_eq!(shorts(&archive.messages(A))[10..], ["u No, this way."]);
}

#[test]
fn subagents_and_summaries_and_what_the_user_did_not_say() {
    let archive = archive();
    let mut log = Log::new();
    log.event("user.message", &json!({ "content": "See.", "attachments": [
        { "type": "blob", "mimeType": "image/png", "data": "aWNvbg==" }, { "type": "file", "path": "/p/a" }] }));
    log.answer(1, "", &json!([call("c1", "task")]), &json!({}));
    for (kind, data) in [
        ("subagent.started", json!({ "toolCallId": "c1" })),
        (
            "assistant.message",
            json!({ "content": "Within.", "toolRequests": [call("s1", "view")], "model": "m" }),
        ),
        (
            "tool.execution_complete",
            json!({ "toolCallId": "s1", "success": true, "result": { "content": "x" } }),
        ),
    ] {
        log.event(kind, &data);
        log.0.last_mut().unwrap()["agentId"] = json!("sub");
    }
    log.event(
        "tool.execution_complete",
        &json!({ "toolCallId": "c1", "success": true, "result": { "content": "did it" } }),
    );
    log.event("user.message", &json!({ "content": "A reminder.", "source": "system" }));
    log.event(
        "tool.execution_complete",
        &json!({ "toolCallId": "own", "isUserRequested": true, "success": true }),
    );
    log.event("session.compaction_start", &json!({}));
    log.event(
        "session.compaction_complete",
        &json!({ "success": true, "preCompactionTokens": 12345, "summaryContent": "In short." }),
    );
    log.event("session.compaction_complete", &json!({ "success": false, "error": "x" }));
    log.event("session.title_changed", &json!({ "title": "A title" }));
    log.event("abort", &json!({ "reason": "user initiated" }));
    log.event("something.new", &json!({ "x": 1 }));
    log.event("assistant.message_delta", &json!({ "deltaContent": "x" }));
    log.0.last_mut().unwrap()["ephemeral"] = json!(true);
    log.user("On.");
    let report = archive.take(AGENT, &name(), lines(&log.0));
    assert_eq!((report.lost, report.repaired, report.branches), (0, 0, 2), "{report:?}");
    let expect = [
        "u See. <image/png>",
        "a c1=task",
        "r c1=task did it",
        "c system A reminder.",
        "s In short.",
        "aborted",
        "u On.",
    ];
    assert_eq!(shorts(&archive.messages(A)), expect);
    let compaction = archive.lineage(A).into_iter().find_map(|(_, entry)| match entry {
        Entry::Compaction(compaction) => Some(compaction.tokens_before),
        _ => None,
    });
    assert_eq!((compaction, archive.row(A).called.as_str()), (Some(12345), "A title"));
    archive.shown(A);
}

#[test]
fn a_name_that_the_user_gave_stands_beside_the_file() {
    for (yaml, expect) in [
        ("name: Look.\nuser_named: false\n", ""),
        ("id: x\nname: 'It''s mine'\nuser_named: true\n", "It's mine"),
    ] {
        let archive = archive();
        let path = archive.dir.path().join(name()).with_file_name("workspace.yaml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, yaml).unwrap();
        archive.take(AGENT, &name(), lines(&conversation().0));
        assert_eq!(archive.row(A).called, expect);
        assert_eq!(archive.messages(A).len(), 10);
    }
}

#[test]
fn files_that_are_not_as_they_should_be() {
    let archive = archive();
    let mut log = Log::new();
    log.user(&format!("a {SECRET}"));
    let mut text = lines(&log.0).into_bytes();
    text.extend(b"{\"torn\":\n[]\n{\"payload\":{}}\n");
    text.extend(lines(&log.0).into_bytes());
    text.extend(b"{\"type\":\"user.message\",\"data\":{\"content\":\"\xff \\ud800\"},\"id\":\"x1\",\"parentId\":\"gone\"}{\"id\":\"x2\"}\n");
    text.extend(b"{\"type\":\"user.message\",\"data\":{\"content\":\"\xff \\ud800\"},\"id\":\"x3\",\"parentId\":\"gone\",\"timestamp\":\"later\"}\n");
    text.extend(b"{\"type\":\"assistant.message\",\"data\":{\"content\":7,\"toolRequests\":{}},\"id\":\"x4\",\"parentId\":\"x3\"}\n");
    text.extend(b"{\"type\":\"user.me");
    let report = archive.take(AGENT, &name(), &text);
    use ProblemKind::{Encoding, Malformed, NoId, NoTime, NotAnEntry, Relinked, Torn};
    let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    let expect = [Malformed, NotAnEntry, NoId, NoTime, Malformed, Encoding, Relinked, NoTime, NoTime, Torn];
    assert_eq!(kinds, expect, "{:?}", report.problems);
    let again = archive.take(AGENT, &format!("again/{}", name()), &text);
    assert_eq!((again.added, again.changed), (0, 0), "{:?}", again.problems);
    assert!(report.sealed > 0);
    archive.shown(A);
    for (content, expect) in
        [("", "it is empty"), ("{}\n", "does not start with"), ("x\n", "does not start with")]
    {
        let error = archive.try_take(AGENT, &archive.file("a.jsonl", content)).unwrap_err();
        assert!(error.to_string().contains(expect), "{content:?}: {error}");
    }
}
