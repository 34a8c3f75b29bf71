//! Chats of VS Code: exports, and the files that it keeps itself.

use quipu_archive::{Agent, ProblemKind};
use quipu_protocol::{Message, StopReason, Usage};
use quipu_store::{LineageEnd, decode_nodes};
use serde_json::{Value, json};

use crate::agents::{answers, shorts};
use crate::support::{Archive, SECRET, archive, block_on};

const AGENT: &str = "vscode-chat";

fn request(number: u64, text: &str, response: &Value, more: &Value) -> Value {
    let mut request = json!({ "requestId": format!("request_{number}"), "responseId": format!("response_{number}"),
        "message": { "text": text, "parts": [{ "range": {}, "text": text, "kind": "text" }] }, "variableData": { "variables": [] },
        "response": response, "timestamp": 1_767_322_800_000 + number * 1_000, "modelId": "copilot/gpt-5", "agent": { "id": "editsAgent" },
        "isCanceled": false, "result": { "timings": { "totalElapsed": 7 } }, "followups": [] });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn export(requests: &[Value]) -> Value {
    json!({ "requesterUsername": "me", "responderUsername": "GitHub Copilot", "initialLocation": "panel", "requests": requests })
}

fn tool(id: &str, tool: &str, more: &Value) -> Value {
    let mut part = json!({ "kind": "toolInvocationSerialized", "toolCallId": id, "toolId": tool, "isComplete": true,
        "isConfirmed": { "type": 1 }, "invocationMessage": { "value": "Doing it" }, "pastTenseMessage": { "value": "Did it" } });
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    part
}

/// A turn of which the screen tells, one of which the rounds tell, one that was undone, one that failed and one that was stopped.
fn chat() -> Vec<Value> {
    let attached = json!({ "variableData": { "variables": [
        { "kind": "file", "name": "a.rs", "value": { "path": "/p/a.rs" } },
        { "kind": "image", "mimeType": "image/png", "value": { "$base64": "aWNvbg==" } }] }, "vote": 1,
        "contentReferences": [{ "kind": "reference", "reference": { "path": "/p/a.rs" } }] });
    let shown = json!([
        { "kind": "mcpServersStarting", "didStartServerIds": [] },
        { "kind": "thinking", "value": ["h", "m"], "id": "t" },
        { "value": "See ", "supportThemeIcons": false },
        { "kind": "inlineReference", "inlineReference": { "path": "/p/a.rs", "scheme": "file" } },
        { "kind": "markdownContent", "content": { "value": "." } },
        tool("t1", "copilot_readFile", &json!({ "toolSpecificData": { "kind": "input", "rawInput": { "b": 1.0, "a": "x" } },
            "resultDetails": { "output": [{ "value": "alpha" }], "isError": true } })),
        tool("t2", "run_in_terminal", &json!({ "toolSpecificData": { "kind": "terminal", "commandLine": { "original": "false" },
            "terminalCommandState": { "exitCode": 1 }, "terminalCommandOutput": { "text": "out" } } })),
        tool("t3", "think", &json!({})),
        { "value": "Done." },
        { "kind": "textEditGroup", "uri": { "path": "/p/a.rs" }, "edits": [[{ "text": "beta" }]] },
    ]);
    let rounds = json!([
        { "id": "1", "response": "Reading.", "thinking": { "text": "more", "id": "x" }, "toolInputRetry": 0, "timestamp": 1_767_322_899_000_u64,
          "toolCalls": [{ "id": "c1", "name": "read_file", "arguments": "{\"b\":1.0,\"a\":\"x\"}" },
                        { "id": "c2", "name": "grep", "arguments": "not json" }],
          "usage": { "prompt_tokens": 1001, "completion_tokens": 11, "prompt_tokens_details": { "cached_tokens": 501 } } },
        { "id": "2", "response": "Done.", "toolCalls": [] },
    ]);
    let tree = json!({ "node": { "type": 1, "children": [{ "type": 2, "text": "one" }, { "type": 1, "children":
        [{ "type": 2, "text": "two", "lineBreakBefore": true }] }] } });
    let results = json!({ "c1": { "content": [{ "$mid": 21, "value": "alpha" }] }, "c2": { "content": [{ "$mid": 23, "value": tree }] } });
    let metadata = json!({ "toolCallRounds": rounds, "toolCallResults": results, "resolvedModel": "gpt-5-1", "sessionId": "s" });
    let response = json!([{ "value": "Reading." }, tool("c1", "copilot_readFile", &json!({ "isConfirmed": { "type": 0 } })), { "value": "Done." }]);
    vec![
        request(1, "Look.", &shown, &attached),
        request(2, "Go.", &response, &json!({ "result": { "timings": {}, "metadata": metadata } })),
        request(
            3,
            "Undone.",
            &json!([{ "value": "Wrong." }]),
            &json!({ "shouldBeRemovedOnSend": { "requestId": "x" } }),
        ),
        request(
            4,
            "Fails.",
            &json!([]),
            &json!({ "result": { "errorDetails": { "message": "quota", "isQuotaExceeded": true } } }),
        ),
        request(5, "Stops.", &json!([{ "value": "Half of" }]), &json!({ "isCanceled": true })),
        request(
            6,
            "On.",
            &json!([{ "value": "Good." }]),
            &json!({ "modelId": "own/model",
            "result": { "metadata": { "promptTokens": 900, "outputTokens": 9 } } }),
        ),
    ]
}

impl Archive {
    /// What the nodes of a session keep that has no place in their entries.
    fn extra(&self, id: &str) -> String {
        let head = self.row(id).head.unwrap();
        block_on(async {
            let nodes = self.store.lineage(head, LineageEnd::Root).await.unwrap();
            let decoded = decode_nodes(&*self.store, &nodes).await.unwrap();
            decoded.iter().map(|one| format!("{:?}", one.step.extra)).collect()
        })
    }
}

fn session(archive: &Archive) -> String {
    archive.rows()[0].id.to_string()
}

#[test]
fn an_export_of_a_chat() {
    let archive = archive();
    let text = serde_json::to_string_pretty(&export(&chat())).unwrap();
    let report = archive.take(AGENT, "chat.json", &text);
    assert_eq!((report.lost, report.repaired, report.branches), (0, 0, 2), "{report:?}");
    assert_eq!(report.skipped.get("vote"), Some(&1));
    let id = session(&archive);
    let messages = archive.messages(&id);
    let expect = [
        "u Look. <image/png>",
        "a (hm) See a.rs. t1=copilot_readFile t2=run_in_terminal t3=think",
        "r t1=copilot_readFile! alpha",
        "r t2=run_in_terminal! out",
        "r t3=think Did it",
        "a Done.",
        "u Go.",
        "a (more) Reading. c1=read_file c2=grep",
        "r c1=read_file! alpha",
        "r c2=grep one\ntwo",
        "a Done.",
        "u Fails.",
        "e quota",
        "u Stops.",
        "aborted",
        "u On.",
        "a Good.",
    ];
    assert_eq!(shorts(&messages), expect);
    archive.shown(&id);
    let answers = answers(&messages);
    let calls: Vec<&str> =
        answers.iter().flat_map(|answer| answer.tool_calls()).map(|call| call.arguments.get()).collect();
    let expect = [
        r#"{"b":1.0,"a":"x"}"#,
        r#"{"command":"false"}"#,
        r#"{"message":"Doing it"}"#,
        r#"{"b":1.0,"a":"x"}"#,
        r#""not json""#,
    ];
    assert_eq!(calls, expect);
    let counted = Usage { input: 500, output: 11, cache_read: 501, total_tokens: 1012, ..Usage::default() };
    assert_eq!((&answers[2].usage, answers[2].timestamp), (&counted, 1_767_322_899_000));
    let last = Usage { input: 900, output: 9, total_tokens: 909, ..Usage::default() };
    let of: Vec<(&str, &str)> =
        answers.iter().map(|answer| (answer.provider.as_str(), answer.model.as_str())).collect();
    assert_eq!((&answers[6].usage, of[0], of[6]), (&last, ("github-copilot", "gpt-5"), ("own", "model")));
    assert_eq!(answers[2].response_model.as_deref(), Some("gpt-5-1"));
    assert_eq!((answers[4].stop_reason, answers[5].stop_reason), (StopReason::Error, StopReason::Aborted));
    assert_eq!(answers[5].text(), "Half of");
    assert_eq!(archive.row(&id).created, 1_767_322_801_000);
    let Message::ToolResult(result) = &messages[2] else { panic!("{:?}", messages[2]) };
    assert!(result.details.as_ref().unwrap().get().contains("\"resultDetails\""));
    // What the screen showed besides is kept.
    let kept = archive.extra(&id);
    for word in [
        "textEditGroup",
        "mcpServersStarting",
        "contentReferences",
        "/p/a.rs",
        "isQuotaExceeded",
        "editsAgent",
    ] {
        assert!(kept.contains(word), "{word}: {kept}");
    }

    assert!(archive.take(AGENT, "chat.json", &text).unchanged);
    // Exported again later, by another version that lays it out otherwise.
    let mut grown = chat();
    grown.push(request(7, "More.", &json!([{ "value": "Yes." }]), &json!({})));
    let again = archive.take(AGENT, "again.json", export(&grown).to_string());
    assert_eq!((again.added, again.changed), (2, 0), "{again:?}");
    assert_eq!(session(&archive), id);
}

#[test]
fn vscode_chat_is_imported() {
    let archive = archive();
    let workspace = archive.dir.path().join("Code/User/workspaceStorage/hash");
    std::fs::create_dir_all(&workspace).unwrap();
    std::fs::write(workspace.join("workspace.json"), "{\"folder\":\"file:///w%C3%B6rk%20dir\"}").unwrap();
    let mut chat = export(&chat());
    let more = json!({ "version": 3, "sessionId": "sess-1", "creationDate": 1_767_322_800_000_u64, "customTitle": "A title" });
    chat.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let name = "Code/User/workspaceStorage/hash/chatSessions/sess-1.json";
    archive.take(AGENT, name, chat.to_string());
    std::fs::write(workspace.join("other.json"), "{}").unwrap();
    let agent = Agent::named(AGENT).unwrap();
    let kept = agent.files(&archive.dir.path().join("Code")).unwrap().files;
    assert_eq!(kept.len(), 1);
    assert_eq!(agent.look(&kept[0]).unwrap()[0].project.as_deref(), Some("/wörk dir"));
    let row = archive.row("sess-1");
    assert_eq!((row.cwd.as_str(), row.called.as_str()), ("/wörk dir", "A title"));
}

#[test]
fn an_answer_that_is_still_written() {
    let archive = archive();
    let mut requests = vec![request(1, "Look.", &json!([{ "value": "Half" }]), &json!({ "result": null }))];
    let report = archive.take(AGENT, "chat.json", export(&requests).to_string());
    let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!((report.added, kinds), (1, vec![ProblemKind::Unfinished]));
    requests[0] = request(1, "Look.", &json!([{ "value": "Half and half." }]), &json!({}));
    let report = archive.take(AGENT, "chat.json", export(&requests).to_string());
    assert_eq!((report.added, report.changed), (1, 0));
    assert_eq!(shorts(&archive.messages(&session(&archive))), ["u Look.", "a Half and half."]);
}

#[test]
fn a_log_of_changes() {
    let requests = chat();
    let whole = {
        let mut chat = export(&requests);
        let more = json!({ "version": 3, "sessionId": "sess-2", "creationDate": 1_767_322_800_000_u64 });
        chat.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chat
    };
    let mut first = whole.clone();
    first["requests"] = json!([requests[0]]);
    first["requests"][0]["response"] = json!([]);
    first["hasPendingEdits"] = json!(true);
    let changes = [
        json!({ "kind": 0, "v": first }),
        json!({ "kind": 2, "k": ["requests", 0, "response"], "v": requests[0]["response"] }),
        json!({ "kind": 2, "k": ["requests"], "v": requests[1..2] }),
        // Two prompts that are sent anew, and so is the second of those.
        json!({ "kind": 2, "k": ["requests"], "v": [request(7, "Wrong.", &json!([{ "value": "No." }]), &json!({})),
            request(8, "Worse.", &json!([{ "value": "No!" }]), &json!({}))] }),
        json!({ "kind": 2, "k": ["requests"], "i": 2, "v": [request(9, "Again.", &json!([{ "value": "Hm." }]), &json!({}))] }),
        json!({ "kind": 2, "k": ["requests"], "i": 2 }),
        json!({ "kind": 2, "k": ["requests"], "v": requests[2..] }),
        json!({ "kind": 1, "k": ["requests", 5, "modelId"], "v": "own/model" }),
        json!({ "kind": 3, "k": ["hasPendingEdits"] }),
    ];
    let text = crate::support::lines(&changes);
    let log = archive();
    let report = log.take(AGENT, "sess-2.jsonl", &text);
    assert_eq!((report.lost, report.repaired, report.branches), (0, 0, 4), "{report:?}");
    let plain = archive();
    plain.take(AGENT, "sess-2.json", whole.to_string());
    assert_eq!(shorts(&log.messages("sess-2")), shorts(&plain.messages("sess-2")));
    log.shown("sess-2");
    let nodes = log.all().1;
    assert!(plain.all().1.iter().all(|node| nodes.contains(node)), "the same nodes, and what was cut off");
    let tips = log.all().0.into_iter().filter(|(name, _)| name.starts_with("vscode-chat/sess-2/"));
    let said: Vec<Vec<String>> = tips.map(|(_, node)| shorts(&log.branch(node))).collect();
    assert!(
        said.iter()
            .any(|said| said.ends_with(&["u Wrong.", "a No.", "u Worse.", "a No!"].map(str::to_owned))),
        "{said:?}"
    );
    assert!(
        said.iter().any(|said| said.ends_with(&["a Done.", "u Again.", "a Hm."].map(str::to_owned))),
        "{said:?}"
    );
    // It grows: the same nodes whenever it is read.
    let grown = archive();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    for end in &ends[1..] {
        let report = grown.take(AGENT, "sess-2.jsonl", &text[..*end]);
        assert!(end == ends.last().unwrap() || report.lost == 0, "{report:?}");
    }
    assert_eq!(grown.all().1, log.all().1);
    // Changes of what is not there are told, and the rest is done.
    let odd = [
        "{\"kind\":1,\"k\":[\"requests\",99,\"x\"],\"v\":1}",
        "{\"kind\":7,\"k\":[\"x\"]}",
        "{\"kind\":2}",
        "{\"kind\":1,\"k\":[\"requests\",999999999],\"v\":{}}",
    ];
    let report = archive().take(AGENT, "sess-2.jsonl", format!("{text}{}\n", odd.join("\n")));
    assert_eq!((report.lost, report.read), (4, log.all().1.len() as u64 - 1), "{report:?}");
}

/// Each change leads deeper into what the one before it brought: what is too deep is told, and no stack is too small.
#[test]
fn deeply_nested_changes_are_limited() {
    const STEP: usize = 100;
    let value = format!("{}1{}", "{\"a\":".repeat(STEP), "}".repeat(STEP));
    let mut text = format!(
        "{}\n",
        json!({ "kind": 0, "v": export(&[request(1, "Look.", &json!([{ "value": "Yes." }]), &json!({}))]) })
    );
    for n in 0..100 {
        let path = vec!["\"a\""; n * STEP];
        let path = std::iter::once("\"deep\"").chain(path).collect::<Vec<_>>().join(",");
        text.push_str(&format!("{{\"kind\":1,\"k\":[{path}],\"v\":{value}}}\n"));
    }
    let report = archive().take(AGENT, "deep.jsonl", text);
    assert_eq!((report.lost, report.added), (98, 2), "{report:?}");
}

#[test]
fn damaged_files_are_imported_as_far_as_possible() {
    let archive = archive();
    // Older exports: the prompt is a text, and there are no ids and no times.
    let odd = json!([{ "message": format!("a {SECRET}"), "response": [{ "value": "Yes." }], "isCanceled": false },
        7, { "requestId": "r", "message": 5, "response": { "x": 1 }, "result": "x" }, { "requestId": "r", "response": [1, null, "x"] }]);
    let mut text = export(odd.as_array().unwrap()).to_string().into_bytes();
    let at = text.windows(4).position(|window| window == b"Yes.").unwrap();
    text[at] = 0xff;
    let report = archive.take(AGENT, "chat.json", &text);
    assert!(report.problems.iter().any(|problem| problem.kind == ProblemKind::Encoding), "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.kind == ProblemKind::NotAnEntry), "{report:?}");
    let id = session(&archive);
    let said = shorts(&archive.messages(&id));
    assert!(said[0].starts_with("u a [REDACTED:") && said[1] == "a \u{fffd}es.", "{said:?}");
    archive.shown(&id);
    let again = archive.take(AGENT, "again.json", &text);
    assert_eq!((again.added, again.changed), (0, 0), "{:?}", again.problems);
    let whole = export(&chat()).to_string();
    for (content, expect) in [
        (String::new(), "it is empty"),
        ("{}".into(), "not a complete JSON object"),
        (whole[..whole.len() - 9].into(), "not a complete JSON object"),
        (format!("{whole}{whole}"), "not a complete JSON object"),
        (export(&[]).to_string(), "non-empty"),
    ] {
        let error = archive.try_take(AGENT, &archive.file("a.json", content)).unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
    }
}
