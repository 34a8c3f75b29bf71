//! Sessions of Gemini CLI: logs with all that its versions write into them.

use quipu_archive::{Agent, ProblemKind};
use quipu_protocol::{Entry, Message, StopReason, Usage};
use serde_json::{Value, json};

use crate::agents::{answers, grows, shorts};
use crate::support::{Archive, SECRET, archive, lines};

const AGENT: &str = "gemini-cli";
const A: &str = "0c1ed2ac-a681-49a6-b84d-512ed9aaddb5";
const PLACE: &str = ".gemini/tmp/w-rk-dir-1/chats";
/// SHA-256 of `/wörk dir.1`.
const HASH: &str = "bca89532ef4de04df755b3b1097a5f510f9d87973cbf7e64f6269526162de9c8";

fn time(number: u32) -> String {
    format!("2026-01-02T03:{:02}:{:02}.000Z", number / 60, number % 60)
}

fn name() -> String {
    format!("{PLACE}/session-2026-01-02T03-00-{}.jsonl", &A[..8])
}

fn header(number: u32) -> Value {
    json!({ "sessionId": A, "projectHash": HASH, "startTime": time(number), "lastUpdated": time(number), "kind": "main" })
}

fn message(number: u32, kind: &str, content: &Value) -> Value {
    json!({ "id": format!("m{number}"), "timestamp": time(number), "type": kind, "content": content })
}

fn user(number: u32, text: &str) -> Value {
    message(number, "user", &json!([{ "text": text }]))
}

fn preamble(id: &str, number: u32) -> Value {
    let mut message = user(number, "<session_context>\nThis is the Gemini CLI.\n</session_context>");
    message["id"] = json!(id);
    message
}

fn answer(number: u32, text: &str, thoughts: &Value) -> Value {
    let mut message = message(number, "gemini", &json!(text));
    let tokens = json!({ "input": 1000 + number, "output": 7 + number, "cached": 500 + number, "thoughts": 3, "tool": 2,
        "total": 1010 + 2 * number });
    let rest = json!({ "thoughts": thoughts, "tokens": tokens, "model": "gemini-2.5-flash" });
    message.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    message
}

fn response(call: &str, name: &str, response: &Value) -> Value {
    json!({ "functionResponse": { "id": call, "name": name, "response": response } })
}

fn set(members: &Value) -> Value {
    json!({ "$set": members })
}

const SHELL: &str =
    "<untrusted_context>\nOutput: Exit Code: 0\nExit Code: 3\nProcess Group PGID: 1669\n</untrusted_context>";

/// The same message as a list of all messages tells it when the session goes on.
fn as_list(message: &Value, number: u32) -> Value {
    let mut parts = match &message["content"] {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![json!({ "text": text })],
        other => other.as_array().unwrap().clone(),
    };
    for thought in message["thoughts"].as_array().into_iter().flatten() {
        parts.insert(0, json!({ "text": thought["description"], "thought": true }));
    }
    for call in message["toolCalls"].as_array().into_iter().flatten() {
        parts.push(
            json!({ "functionCall": { "id": call["id"], "name": call["name"], "args": call["args"] } }),
        );
    }
    json!({ "id": message["id"], "timestamp": time(number), "type": message["type"], "content": parts })
}

/// Two turns with tools, gone on from, a prompt that failed and vanished, and one more turn.
fn conversation() -> Vec<Value> {
    let call = |id: &str, name: &str, status: &str, result: &Value, display: &Value| {
        json!({ "id": id, "name": name, "args": { "b": 1.0, "a": id }, "result": result, "status": status,
            "timestamp": time(6), "resultDisplay": display, "displayName": "X", "renderOutputAsMarkdown": false })
    };
    let results = json!([
        response("c1", "run_shell_command", &json!({ "output": SHELL })),
        response("c2", "read_file", &json!({ "error": "File not found: /nope" })),
    ]);
    let before = answer(5, "Reading.", &json!([]));
    let mut after = before.clone();
    after["toolCalls"] = json!([
        call("c1", "run_shell_command", "success", &json!([results[0]]), &json!("out")),
        // Results of both may stand in each.
        call("c2", "read_file", "error", &results, &json!("File not found.")),
    ]);
    let said = [
        preamble("pre", 1),
        user(2, "Look."),
        answer(3, "", &json!([{ "subject": "Plan", "description": "hm", "timestamp": time(3) }])),
        user(4, "Go."),
        after.clone(),
    ];
    let mut copied = message(7, "user", &results);
    copied["id"] = json!("m5_response");
    // A call and its copied result may also share an id.
    let mut same = message(7, "user", &results);
    same["id"] = json!("m5");
    let again = |number: u32| {
        let mut list: Vec<Value> = said.iter().map(|message| as_list(message, number)).collect();
        list.extend([
            copied.clone(),
            same.clone(),
            message(7, "user", &results),
            as_list(&answer(8, "Done.", &json!([])), number),
        ]);
        set(&json!({ "messages": list, "lastUpdated": time(number) }))
    };
    vec![
        header(1),
        set(&json!({ "messages": [said[0]], "lastUpdated": time(1) })),
        said[1].clone(),
        set(&json!({ "lastUpdated": time(2) })),
        said[2].clone(),
        set(&json!({ "lastUpdated": time(3) })),
        said[3].clone(),
        before,
        set(&json!({ "lastUpdated": time(5) })),
        after,
        message(7, "user", &results),
        answer(8, "Done.", &json!([])),
        set(&json!({ "directories": ["/other"], "lastUpdated": time(8) })),
        header(10),
        set(&json!({ "messages": [preamble("pre", 10)], "lastUpdated": time(10) })),
        set(&json!({ "sessionId": A })),
        again(11),
        user(12, "Fails."),
        set(&json!({ "lastUpdated": time(12) })),
        again(13),
        user(14, "Again."),
        answer(15, "Good.", &json!([])),
        set(&json!({ "summary": "A title", "lastUpdated": time(15) })),
        header(16),
        // Another day, another preamble.
        set(&json!({ "messages": [preamble("pre2", 16)] })),
    ]
}

fn place(archive: &Archive) {
    let home = archive.dir.path().join(".gemini");
    std::fs::create_dir_all(home.join("tmp/w-rk-dir-1/chats")).unwrap();
    std::fs::write(home.join("tmp/w-rk-dir-1/.project_root"), "/wörk dir.1\n").unwrap();
    std::fs::write(
        home.join("projects.json"),
        "{\"projects\":{\"/wörk dir.1\":\"w-rk-dir-1\",\"/p\":\"p\"}}",
    )
    .unwrap();
}

#[test]
fn the_version_that_says_most_is_taken() {
    let archive = archive();
    place(&archive);
    let report = archive.take(AGENT, &name(), lines(&conversation()));
    assert_eq!((report.lost, report.repaired, report.branches), (0, 0, 3), "{report:?}");
    let messages = archive.messages(A);
    let expect = [
        "u Look.".to_owned(),
        "a (**Plan** hm)".into(),
        "u Go.".into(),
        "a Reading. c1=run_shell_command c2=read_file".into(),
        format!("r c1=run_shell_command! {SHELL}"),
        "r c2=read_file! File not found: /nope".into(),
        "a Done.".into(),
        "u Again.".into(),
        "a Good.".into(),
    ];
    assert_eq!(shorts(&messages), expect);
    assert_eq!(archive.shown(A).len(), 9);
    let answers = answers(&messages);
    let usage = |number: u64| Usage {
        input: 502,
        output: 10 + number,
        cache_read: 500 + number,
        reasoning: Some(3),
        total_tokens: 1012 + 2 * number,
        ..Usage::default()
    };
    for (answer, number) in answers.iter().zip([3, 5, 8, 15]) {
        assert_eq!((&answer.usage, answer.model.as_str()), (&usage(number), "gemini-2.5-flash"));
    }
    assert_eq!((answers[1].stop_reason, answers[2].stop_reason), (StopReason::ToolUse, StopReason::Stop));
    assert_eq!(answers[1].tool_calls().next().unwrap().arguments.get(), r#"{"b":1.0,"a":"c1"}"#);
    let Message::ToolResult(result) = &messages[4] else { panic!("{:?}", messages[4]) };
    let details: Value = serde_json::from_str(result.details.as_ref().unwrap().get()).unwrap();
    assert_eq!((&details["status"], &details["resultDisplay"]), (&json!("success"), &json!("out")));
    assert_eq!(result.timestamp, 1_767_322_806_000);
    let row = archive.row(A);
    assert_eq!(
        (row.agent.as_str(), row.cwd.as_str(), row.called.as_str()),
        (AGENT, "/wörk dir.1", "A title")
    );
    assert_eq!(row.created, 1_767_322_801_000);
    // Each line is an entry, or is counted.
    let counts = |kind: &str| report.skipped.get(kind).copied().unwrap_or(0);
    assert_eq!((counts("header"), counts("$set messages"), counts("$set")), (2, 5, 7));
    assert_eq!((counts("functionResponse"), counts("repeated message")), (4, 19));
    assert!(archive.take(AGENT, &name(), lines(&conversation())).unchanged);
    let again = archive.take(AGENT, &format!("copy/{}", name()), lines(&conversation()));
    assert_eq!((again.added, again.changed), (0, 0));
}

#[test]
fn a_file_that_grows() {
    let mut all = conversation();
    all.extend([
        user(20, "Another way."),
        answer(21, "Left.", &json!([])),
        json!({ "$rewindTo": "m20" }),
        user(22, "No, this way."),
        answer(23, "Right.", &json!([])),
        user(24, "And?"),
    ]);
    grows(AGENT, &name(), &lines(&all), 0);
    let archive = archive();
    let report = archive.take(AGENT, &name(), lines(&all));
    assert_eq!(report.branches, 4);
    assert_eq!(shorts(&archive.messages(A))[9..], ["u No, this way.", "a Right.", "u And?"]);
}

/// The same session in the files of older versions: one value on many lines, in a folder named by the hash.
#[test]
fn older_files_and_what_they_become() {
    let archive = archive();
    place(&archive);
    let list = json!([
        user(2, "Look."),
        answer(3, "Seen.", &json!([])),
        message(4, "info", &json!("An update.")),
        message(5, "error", &json!("[API Error: quota]")),
        user(6, "On."),
    ]);
    let mut old = header(1);
    old.as_object_mut().unwrap().remove("kind");
    old["messages"] = list.clone();
    old["summary"] = json!("A title");
    let text = serde_json::to_string_pretty(&old).unwrap();
    let old_name = format!(".gemini/tmp/{HASH}/chats/session-2026-01-02T03-00-{}.json", &A[..8]);
    let report = archive.take(AGENT, &old_name, &text);
    assert_eq!((report.added, report.lost, report.repaired), (6, 0, 0), "{report:?}");
    assert_eq!(shorts(&archive.messages(A)), ["u Look.", "a Seen.", "e [API Error: quota]", "u On."]);
    assert_eq!((archive.row(A).cwd, archive.row(A).called), ("/wörk dir.1".into(), "A title".into()));
    assert!(archive.take(AGENT, &old_name, &text).unchanged);
    // Gone on from, all of it is written anew, line by line.
    let mut new = vec![header(1)];
    new.extend(list.as_array().unwrap().iter().cloned());
    new.push(answer(7, "Good.", &json!([])));
    new.push(user(8, "Thanks."));
    let again = archive.take(AGENT, &format!("{old_name}l"), lines(&new));
    assert_eq!((again.added, again.present, again.changed), (2, 5, 0), "{again:?}");
    let kept = Agent::named(AGENT).unwrap().files(&archive.dir.path().join(".gemini/tmp")).unwrap();
    assert_eq!(kept.files.len(), 2);
    let found = Agent::named(AGENT).unwrap().look(&kept.files[0]).unwrap();
    assert_eq!(found[0].project.as_deref(), Some("/wörk dir.1"));
    // A torn one is told, and says nothing of the rest.
    let torn = archive.try_take(AGENT, &archive.file("torn.json", &text[..text.len() / 2]));
    assert!(torn.unwrap_err().to_string().contains("header"));
}

#[test]
fn summaries_and_subagents_and_empty_twins() {
    let archive = archive();
    place(&archive);
    let twin =
        lines(&[header(30), set(&json!({ "messages": [preamble("pre", 30)], "lastUpdated": time(30) }))]);
    let twin_name = format!("{PLACE}/session-2026-01-02T03-30-{}.jsonl", &A[..8]);
    let report = archive.take(AGENT, &twin_name, &twin);
    assert_eq!((report.added, report.lost, report.head), (0, 0, None));
    let mut summary = user(20, "<state_snapshot>all of it</state_snapshot>");
    summary["id"] = json!("sum");
    let mut thanks = message(20, "gemini", &json!([{ "text": "Got it." }]));
    thanks["id"] = json!("ack");
    let kept = as_list(&answer(15, "Good.", &json!([])), 20);
    let mut all = conversation();
    all.truncate(all.len() - 2);
    all.push(set(
        &json!({ "messages": [preamble("pre", 20), summary, kept, thanks], "lastUpdated": time(20) }),
    ));
    all.push(user(21, "On."));
    let report = archive.take(AGENT, &name(), lines(&all));
    assert_eq!((report.lost, report.repaired), (0, 0), "{report:?}");
    let messages = archive.messages(A);
    let end = ["a Good.", "s <state_snapshot>all of it</state_snapshot>", "a Got it.", "u On."];
    assert_eq!(shorts(&messages)[8..], end);
    let shown = archive.shown(A);
    let shown = shorts(shown.iter().map(|message| &**message));
    assert!(shown[0].contains("<state_snapshot>all of it</state_snapshot>"), "{shown:?}");
    assert_eq!(shown[1..], ["a Good.", "a Got it.", "u On."]);
    let before = archive.all();
    archive.take(AGENT, &twin_name, &twin);
    assert_eq!(archive.all(), before);

    let mut inner = header(40);
    inner["sessionId"] = json!("sub-1");
    inner["kind"] = json!("subagent");
    let name = format!("{PLACE}/{A}/sub-1.jsonl");
    archive.take(AGENT, &name, lines(&[inner, user(41, "Get Started!")]));
    let row = archive.row("sub-1");
    assert_eq!((row.parent.unwrap().as_str(), row.cwd.as_str()), (A, "/wörk dir.1"));
}

#[test]
fn files_that_are_not_as_they_should_be() {
    let archive = archive();
    let mut text = lines(&[header(1), user(2, "Look."), answer(3, "Seen.", &json!([]))]).into_bytes();
    text.extend(b"{\"torn\":\n[]\n{\"payload\":{}}\n");
    text.extend(lines(&[header(1), user(2, "Look.")]).into_bytes());
    text.extend(b"{\"id\":\"m9\",\"type\":\"user\",\"content\":[{\"text\":\"\xff\"}]}{\"id\":\"m10\"}\n");
    text.extend(
        format!("{{\"id\":\"m11\",\"type\":\"user\",\"content\":\"a {SECRET} \\ud800\"}}\n").into_bytes(),
    );
    text.extend(
        b"{\"id\":\"m12\",\"type\":\"user\",\"content\":[{\"strange\":1}],\"timestamp\":\"later\"}\n",
    );
    text.extend(
        b"{\"id\":\"m13\",\"type\":\"user\",\"content\":\"\xff\",\"timestamp\":\"2026-01-02T03:04:05Z\"}\n",
    );
    text.extend(lines(&[answer(14, "Being wr", &json!([]))]).into_bytes());
    text.extend(b"{\"id\":\"m15\",");
    let report = archive.take(AGENT, &name(), &text);
    use ProblemKind::{Encoding, Malformed, NoTime, NotAnEntry, Torn, Unfinished};
    let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [Malformed, NotAnEntry, Malformed, Encoding, Torn, Unfinished, NoTime, NoTime]);
    assert_eq!(report.sealed, 1);
    let said = shorts(&archive.messages(A));
    assert_eq!(said[..2], ["u Look.", "a Seen."]);
    assert!(said[2].starts_with("u a [REDACTED:") && said[2].ends_with('\u{fffd}'), "{}", said[2]);
    assert_eq!(said[3..], ["u {\"strange\":1}", "u \u{fffd}"]);
    assert!(archive.lineage(A).iter().all(|(_, entry)| !matches!(entry, Entry::Epoch(_))));
    let again = archive.take(AGENT, &format!("again/{}", name()), &text);
    assert_eq!((again.added, again.changed), (0, 0), "{:?}", again.problems);
    archive.shown(A);
    for (content, expect) in [
        ("", "it is empty"),
        ("{}\n", "none of its lines is a header"),
        ("x\n", "none of its lines is a header"),
    ] {
        let error = archive.try_take(AGENT, &archive.file("a.jsonl", content)).unwrap_err();
        assert!(error.to_string().contains(expect), "{content:?}: {error}");
    }
}

/// Nobody wrote for so long that the answer counted as whole, and then its calls came.
#[test]
fn calls_that_come_late() {
    let archive = archive();
    let all = conversation();
    let path = archive.dir.path().join(name());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, lines(&all[..8])).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    std::fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
    let report = archive.try_take(AGENT, &path).unwrap().pop().unwrap();
    assert_eq!((report.added, report.lost), (5, 0), "{report:?}");
    let report = archive.take(AGENT, &name(), lines(&all));
    assert_eq!(report.changed, 1, "{report:?}");
    let said = shorts(&archive.messages(A));
    assert!(said.contains(&"r c2=read_file! File not found: /nope".to_owned()), "{said:?}");
    archive.shown(A);
}

#[test]
fn a_line_beyond_the_limit_is_passed_by() {
    let archive = archive();
    let mut text = lines(&[header(1), user(2, "Look.")]).into_bytes();
    text.extend(b"{\"id\":\"m3\",\"type\":\"user\",\"content\":\"");
    text.resize(text.len() + (128 << 20), b'x');
    text.extend(b"\"}\n");
    text.extend(lines(&[user(4, "On.")]).into_bytes());
    let report = archive.take(AGENT, &name(), &text);
    let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!((kinds, report.lost), (vec![ProblemKind::TooLong], 1));
    assert_eq!(shorts(&archive.messages(A)), ["u Look.", "u On."]);
}
