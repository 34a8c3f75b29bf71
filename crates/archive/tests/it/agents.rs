//! Sessions of agents whose files share one intake: what is kept, and that nothing is taken in twice.

use std::path::Path;
use std::sync::Arc;

use quipu_archive::{Agent, ArchiveError, ImportOptions, ProblemKind, Report, Seen};
use quipu_protocol::{AssistantMessage, Content, Entry, Message, StopReason, Usage};
use quipu_transcript::{check_conversation, context, message_of, project};
use serde_json::{Value, json};

use crate::support::{Archive, SECRET, archive, block_on, lines};

const A: &str = "407c9a06-1c02-4aa6-828d-9f3bae2c2140";
const B: &str = "3a862ac0-0d5e-4bae-ac66-efb0e682f451";

impl Archive {
    pub(crate) fn try_take(&self, agent: &str, path: &Path) -> Result<Vec<Report>, ArchiveError> {
        block_on(async {
            let seen = Seen::load(&*self.store).await?;
            let options = ImportOptions { dry_run: false, progress: &|_| {} };
            Agent::named(agent).unwrap().import(&self.store, &self.sealer, path, &seen, &options).await
        })
    }

    /// Imports a file of this content; the report of the file itself.
    pub(crate) fn take(&self, agent: &str, name: &str, content: impl AsRef<[u8]>) -> Report {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let report = self.try_take(agent, &self.file(name, content)).unwrap().pop().unwrap();
        assert!(
            report.unchanged || report.read == report.added + report.present + report.changed,
            "{report:?}"
        );
        report
    }

    /// The conversation of a session as a model would be shown it, which must be a valid one.
    #[track_caller]
    pub(crate) fn shown(&self, id: &str) -> Vec<Arc<Message>> {
        let lineage = self.lineage(id);
        let entries: Vec<Entry> = context(&lineage).into_iter().map(|at| lineage[at].1.clone()).collect();
        let messages = project(&entries);
        check_conversation(&messages).unwrap();
        messages
    }

    pub(crate) fn messages(&self, id: &str) -> Vec<Message> {
        let entries = self.lineage(id).into_iter().map(|(_, entry)| entry);
        entries.filter_map(|entry| message_of(&entry).map(std::borrow::Cow::into_owned)).collect()
    }
}

/// A message in short: who, and what.
fn short(message: &Message) -> String {
    let blocks = |content: &[Content]| {
        let word = |block: &Content| match block {
            Content::Text(text) => text.text.clone(),
            Content::Thinking(thinking) => format!("({})", thinking.thinking),
            Content::Image(image) => format!("<{}>", image.mime_type),
            Content::ToolCall(call) => format!("{}={}", call.id, call.name),
            Content::Other(json) => json.to_string(),
        };
        content.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    match message {
        Message::User(user) => format!("u {}", blocks(&user.content.blocks())),
        Message::Assistant(one) if one.stop_reason == StopReason::Error => {
            format!("e {}", one.error_message.as_deref().unwrap_or_default())
        }
        Message::Assistant(one) if one.stop_reason == StopReason::Aborted => "aborted".into(),
        Message::Assistant(one) => format!("a {}", blocks(&one.content)),
        Message::ToolResult(one) => {
            let mark = if one.is_error { "!" } else { "" };
            format!("r {}={}{mark} {}", one.tool_call_id, one.tool_name, blocks(&one.content))
        }
        Message::Custom(custom) => format!("c {} {}", custom.custom_type, blocks(&custom.content.blocks())),
        Message::CompactionSummary(one) => format!("s {}", one.summary),
        Message::BashExecution(_) | Message::BranchSummary(_) | Message::Other(_) => format!("{message:?}"),
    }
}

pub(crate) fn shorts<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<String> {
    messages.into_iter().map(short).collect()
}

pub(crate) fn answers(messages: &[Message]) -> Vec<&AssistantMessage> {
    let answer = |message: &'_ Message| matches!(message, Message::Assistant(_));
    messages
        .iter()
        .filter(|message| answer(message))
        .map(|message| match message {
            Message::Assistant(answer) => answer,
            _ => unreachable!(),
        })
        .collect()
}

/// Imports ever longer beginnings of a text, then all of it: what comes of it must be what the whole gives at once.
#[track_caller]
pub(crate) fn grows(agent: &str, name: &str, text: &str, from: usize) {
    let whole = archive();
    whole.take(agent, name, text);
    let first = text.split_inclusive('\n').take(from).collect::<String>();
    assert!(archive().try_take(agent, &whole.file("beginning.jsonl", first)).is_err());
    let grown = archive();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let mut added = 0;
    for end in &ends[from..] {
        let report = grown.take(agent, name, &text[..*end]);
        assert_eq!(report.changed, 0, "{report:?}");
        assert_eq!(report.present, added, "{report:?}");
        added += report.added;
    }
    assert_eq!(grown.all(), whole.all());
}

mod claude_code {
    use super::*;

    const AGENT: &str = "claude-code";

    /// A record of the tree; the second of the minute is its number.
    fn record(kind: &str, session: &str, id: &str, parent: Option<&str>, rest: &Value) -> Value {
        let number: u32 = id.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
        let mut record = json!({
            "parentUuid": parent, "isSidechain": false, "type": kind, "uuid": id, "sessionId": session, "cwd": "/p q",
            "timestamp": format!("2026-01-02T03:{:02}:{:02}.000Z", number / 60, number % 60), "version": "2.1.0",
        });
        record.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        record
    }

    fn prompt(session: &str, id: &str, parent: Option<&str>, text: &str) -> Value {
        record(
            "user",
            session,
            id,
            parent,
            &json!({ "message": { "role": "user", "content": text }, "promptId": session }),
        )
    }

    fn block(session: &str, id: &str, parent: &str, message: &str, block: &Value) -> Value {
        let usage = json!({ "input_tokens": 1001, "cache_read_input_tokens": 501, "cache_creation_input_tokens": 7,
            "output_tokens": 11, "cache_creation": { "ephemeral_1h_input_tokens": 2 } });
        let stop = if block["type"] == "tool_use" { "tool_use" } else { "end_turn" };
        let message = json!({ "id": message, "type": "message", "role": "assistant", "model": "claude-x",
            "content": [block], "stop_reason": stop, "usage": usage });
        record("assistant", session, id, Some(parent), &json!({ "message": message, "requestId": "req" }))
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    fn call(id: &str) -> Value {
        json!({ "type": "tool_use", "id": id, "name": "Read", "input": { "b": 1.0, "a": id } })
    }

    fn result(session: &str, id: &str, parent: &str, call: &str, error: bool) -> Value {
        let content = json!([{ "type": "tool_result", "tool_use_id": call, "content": format!("of {call}"), "is_error": error }]);
        let rest =
            json!({ "message": { "role": "user", "content": content }, "toolUseResult": { "of": call } });
        record("user", session, id, Some(parent), &rest)
    }

    fn books(session: &str) -> Value {
        json!({ "type": "last-prompt", "lastPrompt": "x", "sessionId": session })
    }

    /// Two calls at once; the second is done first, and the conversation goes on below it alone.
    fn conversation(session: &str) -> Vec<Value> {
        vec![
            json!({ "type": "queue-operation", "operation": "enqueue", "timestamp": "2026-01-02T03:00:00.000Z", "sessionId": session }),
            prompt(session, "n1", None, "Look."),
            record(
                "attachment",
                session,
                "n2",
                Some("n1"),
                &json!({ "attachment": { "type": "date", "date": "x" }, "rendered": [{ "content": "a reminder" }] }),
            ),
            json!({ "type": "api-request-blob", "hash": "x", "message": "the whole context again" }),
            block(
                session,
                "n3",
                "n2",
                "msg_1",
                &json!({ "type": "thinking", "thinking": "hm", "signature": "sig" }),
            ),
            block(session, "n4", "n3", "msg_1", &text("Reading.")),
            block(session, "n5", "n4", "msg_1", &call("t1")),
            block(session, "n6", "n5", "msg_1", &call("t2")),
            json!({ "type": "tools-used", "tools": ["Read"], "sessionId": session }),
            result(session, "n7", "n6", "t2", true),
            result(session, "n8", "n5", "t1", false),
            record(
                "attachment",
                session,
                "n9",
                Some("n7"),
                &json!({ "attachment": { "type": "total_tokens_reminder" } }),
            ),
            block(session, "n10", "n9", "msg_2", &text("Done.")),
            books(session),
        ]
    }

    #[test]
    fn what_belongs_together_is_put_together() {
        let archive = archive();
        let report = archive.take(AGENT, &format!("{A}.jsonl"), lines(&conversation(A)));
        assert_eq!((report.added, report.lost, report.repaired, report.branches), (7, 0, 0, 1));
        assert_eq!(report.skipped.values().sum::<u64>(), 4);
        let messages = archive.messages(A);
        assert_eq!(
            shorts(&messages),
            ["u Look.", "a (hm) Reading. t1=Read t2=Read", "r t2=Read! of t2", "r t1=Read of t1", "a Done."]
        );
        let shown = archive.shown(A);
        assert_eq!(
            shorts(shown.iter().map(|message| &**message)),
            ["u Look.", "a (hm) Reading. t1=Read t2=Read", "r t1=Read of t1", "r t2=Read! of t2", "a Done."]
        );
        let answers = answers(&messages);
        let expect = Usage {
            input: 1001,
            output: 11,
            cache_read: 501,
            cache_write: 7,
            cache_write_1h: Some(2),
            total_tokens: 1520,
            ..Usage::default()
        };
        assert_eq!((&answers[0].usage, answers[0].stop_reason), (&expect, StopReason::ToolUse));
        assert_eq!((answers[0].model.as_str(), answers[1].stop_reason), ("claude-x", StopReason::Stop));
        let arguments = answers[0].tool_calls().next().unwrap().arguments.get().to_owned();
        assert_eq!(arguments, r#"{"b":1.0,"a":"t1"}"#);
        let Message::ToolResult(result) = &messages[2] else { panic!("{:?}", messages[2]) };
        assert_eq!(result.details.as_ref().unwrap().get(), r#"{"of":"t2"}"#);
        let row = archive.row(A);
        assert_eq!((row.agent.as_str(), row.cwd.as_str(), row.title.as_str()), (AGENT, "/p q", "Look."));
        assert_eq!(row.created, 1_767_322_801_000);
        assert!(archive.take(AGENT, &format!("{A}.jsonl"), lines(&conversation(A))).unchanged);
        let again = archive.take(AGENT, &format!("copy/{A}.jsonl"), lines(&conversation(A)));
        assert_eq!((again.added, again.present), (0, 7));
    }

    #[test]
    fn a_file_that_grows() {
        let mut all = conversation(A);
        all.extend([
            prompt(A, "n20", Some("n10"), "Another way."),
            block(A, "n21", "n20", "msg_3", &text("Left.")),
            prompt(A, "n22", Some("n10"), "No, this way."),
            block(A, "n23", "n22", "msg_4", &text("Right.")),
            books(A),
        ]);
        grows(AGENT, &format!("{A}.jsonl"), &lines(&all), 1);
        let archive = archive();
        let report = archive.take(AGENT, &format!("{A}.jsonl"), lines(&all));
        assert_eq!(report.branches, 2);
        assert_eq!(shorts(&archive.messages(A))[5..], ["u No, this way.", "a Right."]);
    }

    /// The first two turns of the other session, then its own.
    fn fork() -> Vec<Value> {
        let mut copied = conversation(B);
        copied[0]["timestamp"] = json!("2026-01-02T03:04:00.000Z");
        for record in &mut copied[1..] {
            if record["type"] == "assistant" {
                record["requestSessionId"] = json!(A);
            }
            record["promptId"] = json!("one for all");
        }
        copied.pop();
        copied.extend([
            // Was copied, and no answer comes after it.
            prompt(B, "n11", Some("n10"), "cut off"),
            prompt(B, "n300", Some("n11"), "In the fork."),
            block(B, "n301", "n300", "msg_9", &text("Forked.")),
            books(B),
        ]);
        copied
    }

    #[test]
    fn a_fork_shares_the_nodes_of_what_it_was_forked_from() {
        let mut original = conversation(A);
        original.extend([
            prompt(A, "n11", Some("n10"), "cut off"),
            prompt(A, "n50", Some("n11"), "On."),
            block(A, "n51", "n50", "msg_8", &text("Gone on.")),
            books(A),
        ]);
        let files = [(format!("{A}.jsonl"), lines(&original)), (format!("{B}.jsonl"), lines(&fork()))];
        let [forth, back] = [[0, 1], [1, 0]].map(|order| {
            let archive = archive();
            for at in order {
                archive.take(AGENT, &files[at].0, &files[at].1);
            }
            for (name, text) in &files {
                let again = archive.take(AGENT, &format!("again/{name}"), text);
                assert_eq!((again.added, again.changed, again.repaired), (0, 0, 0), "{again:?}");
            }
            archive
        });
        assert_eq!(forth.all(), back.all());
        // 8 items are shared, 2 are of each, and there are two first nodes.
        assert_eq!(forth.all().1.len(), 14);
        let row = forth.row(B);
        assert_eq!((row.parent.unwrap().as_str(), row.entries), (A, 2));
        assert_eq!(shorts(&forth.messages(B))[5..], ["u cut off", "u In the fork.", "a Forked."]);
        assert_eq!(shorts(&forth.messages(A))[5..], ["u cut off", "u On.", "a Gone on."]);
    }

    #[test]
    fn compactions_and_errors_and_what_the_user_did_not_say() {
        let archive = archive();
        let error = json!({ "message": { "id": "e", "model": "<synthetic>", "role": "assistant", "content": [text("API Error: 400")],
            "usage": { "input_tokens": 0, "output_tokens": 0 } }, "isApiErrorMessage": true, "apiErrorStatus": 400 });
        let mut all = conversation(A);
        all.extend([
            record("assistant", A, "n12", Some("n10"), &error),
            record("user", A, "n13", Some("n12"), &json!({ "isMeta": true, "message": { "role": "user", "content": "a caveat" } })),
            record("attachment", A, "n14", Some("n13"), &json!({ "attachment": { "type": "queued_command", "prompt": "said meanwhile" } })),
            record("system", A, "n15", None, &json!({ "subtype": "compact_boundary", "logicalParentUuid": "n14",
                "compactMetadata": { "trigger": "manual", "preTokens": 12345 } })),
            record("user", A, "n16", Some("n15"), &json!({ "isCompactSummary": true, "message": { "role": "user", "content": "In short: read." } })),
            prompt(A, "n17", Some("n16"), "Go on."),
            record("user", A, "n18", Some("n17"), &json!({ "message": { "role": "user", "content": [
                { "type": "text", "text": "see" },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } },
                { "type": "document", "source": { "type": "text", "data": "x" } },
            ] } })),
            json!({ "type": "custom-title", "customTitle": "The name", "sessionId": A }),
            json!({ "type": "something-new", "x": 1.0, "sessionId": A }),
            books(A),
        ]);
        let report = archive.take(AGENT, &format!("{A}.jsonl"), lines(&all));
        assert_eq!((report.lost, report.repaired, report.branches), (0, 0, 2), "{report:?}");
        assert_eq!(
            shorts(&archive.messages(A))[5..],
            [
                "e API Error: 400",
                "c meta a caveat",
                "u said meanwhile",
                "s In short: read.",
                "u Go on.",
                "u see <image/png> {\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":\"x\"}}",
            ]
        );
        assert_eq!(archive.shown(A).len(), 3, "the summary, and what came after it");
        assert_eq!(archive.row(A).called, "The name");
        let Some((_, Entry::Compaction(compaction))) =
            archive.lineage(A).into_iter().find(|(_, entry)| matches!(entry, Entry::Compaction(_)))
        else {
            panic!("no compaction")
        };
        assert_eq!((compaction.tokens_before, compaction.first_kept), (12_345, None));
    }

    #[test]
    fn subagents_beside_and_within() {
        let archive = archive();
        let mut all = conversation(A);
        let side = |mut record: Value| {
            record["isSidechain"] = json!(true);
            record
        };
        // Two at once, one line each in turn.
        all.splice(
            9..9,
            [
                side(prompt(A, "s1", None, "Sub one.")),
                side(prompt(A, "s2", None, "Sub two.")),
                side(block(A, "s3", "s1", "msg_s1", &text("One"))),
                side(block(A, "s4", "s2", "msg_s2", &text("Two"))),
                side(block(A, "s5", "s3", "msg_s1", &text("more."))),
                side(prompt(A, "s6", Some("s5"), "End.")),
            ],
        );
        let report = archive.take(AGENT, &format!("{A}.jsonl"), lines(&all));
        assert_eq!((report.branches, report.repaired), (3, 0), "the other answer is still open: {report:?}");
        assert_eq!(shorts(&archive.messages(A)).len(), 5);
        let sub = lines(&[
            side(prompt(A, "x1", None, "Do.")),
            side(block(A, "x2", "x1", "m", &text("Did."))),
            books(A),
        ]);
        archive.take(AGENT, &format!("{A}/subagents/agent-abc.jsonl"), sub);
        let row = archive.row(&format!("{A}.agent-abc"));
        assert_eq!((row.parent.unwrap().as_str(), row.title.as_str()), (A, "Do."));
    }

    #[test]
    fn files_that_are_not_as_they_should_be() {
        use ProblemKind::{Cycle, DuplicateId, Malformed, NoTime, NotAnEntry, Orphan, Torn, Unfinished};
        let archive = archive();
        let mut timeless = prompt(A, "n60", Some("n10"), "when?");
        timeless["timestamp"] = json!("yesterday");
        let mut text_of = lines(&[
            prompt(A, "n61", Some("nowhere"), "lost parent"),
            prompt(A, "n62", Some("n63"), "a"),
            prompt(A, "n63", Some("n62"), "circle"),
            prompt(A, "n1", None, "another of the same id"),
            prompt(A, "n65", Some("n1"), "follows the last of them"),
            timeless,
            json!({ "type": "user", "uuid": "n66", "parentUuid": 5, "message": "odd", "sessionId": A }),
            json!([1]),
        ]);
        text_of.insert_str(0, &lines(&conversation(A)));
        text_of.push_str("{\"half\":\n");
        // A second file behind the first, and an answer that is being written.
        text_of.push_str(&lines(&[prompt(A, "n70", Some("n10"), &format!("it is {SECRET}"))]));
        let mut open = block(A, "n71", "n70", "msg_7", &text("Being wr"));
        open["message"]["stop_reason"] = Value::Null;
        text_of.push_str(&lines(&[open]));
        text_of.push_str("{\"type\":\"us");
        let report = archive.take(AGENT, &format!("{A}.jsonl"), &text_of);
        let mut kinds: Vec<_> = report.problems.iter().map(|problem| (problem.line, problem.kind)).collect();
        kinds.sort_by_key(|(line, _)| *line);
        assert_eq!(
            kinds,
            [
                (15, Orphan),
                (16, Cycle),
                (18, DuplicateId),
                (20, NoTime),
                (21, NoTime),
                (22, NotAnEntry),
                (23, Malformed),
                (25, Unfinished),
                (26, Torn)
            ]
        );
        assert_eq!((report.sealed, report.added), (1, 15));
        let before = archive.all();
        let again = archive.take(AGENT, &format!("again/{A}.jsonl"), &text_of);
        assert_eq!((again.added, again.changed, again.present), (0, 0, 15));
        assert_eq!(archive.all(), before);
        archive.shown(A);
    }

    #[test]
    fn an_edited_file_adds_only_what_is_new() {
        let archive = archive();
        archive.take(AGENT, &format!("{A}.jsonl"), lines(&conversation(A)));
        let mut edited = conversation(A);
        edited[1]["message"]["content"] = json!("Look elsewhere.");
        edited.remove(2);
        edited.extend([prompt(A, "n90", Some("n10"), "More."), books(A)]);
        let report = archive.take(AGENT, &format!("{A}.jsonl"), lines(&edited));
        assert_eq!((report.added, report.changed, report.present), (1, 1, 5));
        assert_eq!(shorts(&archive.messages(A))[0], "u Look.");
        assert_eq!(shorts(&archive.messages(A))[5], "u More.");
        // A stale copy does not move the session back.
        let head = archive.row(A).head;
        archive.take(AGENT, &format!("old/{A}.jsonl"), lines(&conversation(A)));
        assert_eq!(archive.row(A).head, head);
    }

    #[test]
    fn files_that_hold_no_session() {
        let archive = archive();
        for (content, expect) in [
            ("", "it is empty"),
            ("hello\n", "none of its records has a session id"),
            ("{\"type\":\"mode\",\"sessionId\":\"x\"}\n", "it has no record with a `uuid`"),
        ] {
            let error = archive.try_take(AGENT, &archive.file("a.jsonl", content)).unwrap_err();
            assert!(error.to_string().contains(expect), "{content:?}: {error}");
        }
    }
}

mod codex {
    use super::*;

    const AGENT: &str = "codex";

    fn record(ordinal: u64, kind: &str, payload: &Value) -> Value {
        json!({ "timestamp": format!("2026-01-02T03:04:{:02}.000Z", ordinal % 60), "ordinal": ordinal, "type": kind, "payload": payload })
    }

    fn message(ordinal: u64, role: &str, text: &str, kind: &str) -> Value {
        record(
            ordinal,
            "response_item",
            &json!({ "type": "message", "role": role,
            "content": [{ "type": if role == "assistant" { "output_text" } else { "input_text" }, "text": text }],
            "internal_chat_message_metadata_passthrough": { "content_item_kinds": [kind] } }),
        )
    }

    fn call(ordinal: u64, id: &str) -> Value {
        let payload = json!({ "type": "function_call", "name": "exec_command", "arguments": "{\"cmd\": \"x\", \"a\": 1.0}", "call_id": id });
        record(ordinal, "response_item", &payload)
    }

    fn output(ordinal: u64, id: &str, output: &Value) -> Value {
        record(
            ordinal,
            "response_item",
            &json!({ "type": "function_call_output", "call_id": id, "output": output }),
        )
    }

    fn usage(ordinal: u64, output: u64) -> Value {
        let usage = json!({ "input_tokens": 1000, "cached_input_tokens": 500, "output_tokens": output,
            "reasoning_output_tokens": 3, "total_tokens": 1000 + output });
        record(ordinal, "token_usage_record", &json!({ "response_id": "resp", "usage": usage }))
    }

    fn event(ordinal: u64, payload: &Value) -> Value {
        record(ordinal, "event_msg", payload)
    }

    fn conversation() -> Vec<Value> {
        vec![
            record(
                0,
                "session_meta",
                &json!({ "id": A, "timestamp": "2026-01-02T03:04:00.000Z", "cwd": "/p q", "model_provider": "openai",
                "base_instructions": { "text": "long" } }),
            ),
            event(1, &json!({ "type": "task_started", "turn_id": "1" })),
            message(2, "developer", "be good", "permissions.instructions"),
            message(3, "user", "<environment_context>", "environments.environment_context"),
            record(4, "turn_context", &json!({ "turn_id": "1", "model": "gpt-x", "cwd": "/p q" })),
            message(5, "user", "Look.", "user.text"),
            record(
                6,
                "response_item",
                &json!({ "type": "reasoning", "id": "rs", "summary": [{ "type": "summary_text", "text": "hm" }],
                "content": null, "encrypted_content": "enc" }),
            ),
            message(7, "assistant", "Reading.", "unknown"),
            call(8, "c1"),
            call(9, "c2"),
            usage(10, 20),
            event(
                11,
                &json!({ "type": "item_completed", "item": { "type": "CommandExecution", "id": "c1", "status": "failed", "exit_code": 3,
                "duration": { "secs": 1, "nanos": 5_000_000 } } }),
            ),
            output(12, "c1", &json!("Process exited with code 3\nOutput:\nx")),
            output(
                13,
                "c2",
                &json!([{ "type": "input_text", "text": "two" }, { "type": "input_image", "image_url": "data:image/png;base64,AAAA" }]),
            ),
            event(
                14,
                &json!({ "type": "token_count", "info": { "total_token_usage": { "input_tokens": 1000 } } }),
            ),
            message(15, "assistant", "Done.", "unknown"),
            usage(16, 21),
            event(17, &json!({ "type": "task_complete", "last_agent_message": "Done." })),
            record(18, "turn_context", &json!({ "turn_id": "2", "model": "gpt-x", "cwd": "/p q" })),
            message(19, "user", "Fail.", "user.text"),
            event(
                20,
                &json!({ "type": "task_complete", "last_agent_message": null, "error": { "message": "scripted failure" } }),
            ),
            message(21, "user", "Again.", "user.text"),
            message(22, "assistant", "Good.", "unknown"),
            usage(23, 22),
            event(24, &json!({ "type": "task_complete", "last_agent_message": "Good." })),
        ]
    }

    fn name(session: &str) -> String {
        format!("sessions/2026/01/02/rollout-2026-01-02T03-04-00-{session}.jsonl")
    }

    #[test]
    fn what_a_model_answered_at_once_is_one_message() {
        let archive = archive();
        let report = archive.take(AGENT, &name(A), lines(&conversation()));
        assert_eq!((report.lost, report.repaired, report.branches, report.added), (0, 0, 1, 12));
        let messages = archive.messages(A);
        assert_eq!(
            shorts(&messages),
            [
                "u Look.",
                "a (hm) Reading. c1=exec_command c2=exec_command",
                "r c1=exec_command! Process exited with code 3\nOutput:\nx",
                "r c2=exec_command two <image/png>",
                "a Done.",
                "u Fail.",
                "e scripted failure",
                "u Again.",
                "a Good."
            ]
        );
        let answers = answers(&messages);
        let expect = Usage {
            input: 500,
            output: 20,
            cache_read: 500,
            reasoning: Some(3),
            total_tokens: 1020,
            ..Usage::default()
        };
        assert_eq!((&answers[0].usage, answers[0].model.as_str()), (&expect, "gpt-x"));
        let outputs: Vec<u64> = answers.iter().map(|answer| answer.usage.output).collect();
        assert_eq!(outputs, [20, 21, 0, 22]);
        let Content::Thinking(thinking) = &answers[0].content[0] else { panic!("{:?}", answers[0]) };
        assert!(thinking.thinking_signature.as_deref().unwrap().contains("\"encrypted_content\":\"enc\""));
        assert_eq!(answers[0].tool_calls().next().unwrap().arguments.get(), "{\"cmd\": \"x\", \"a\": 1.0}");
        let Message::ToolResult(result) = &messages[2] else { panic!("{:?}", messages[2]) };
        assert!(result.details.as_ref().unwrap().get().contains("\"exit_code\":3"));
        assert_eq!(archive.row(A).title, "Look.");
        archive.shown(A);
        let again =
            archive.take(AGENT, &name(A).replace("sessions", "archived_sessions"), lines(&conversation()));
        assert_eq!((again.added, again.present), (0, 12));
    }

    #[test]
    fn a_file_that_grows() {
        grows(AGENT, &name(A), &lines(&conversation()), 0);
        grows(AGENT, &name(A), &lines(&older()), 0);
    }

    fn fork() -> Vec<Value> {
        vec![
            record(
                19,
                "session_meta",
                &json!({ "id": B, "timestamp": "2026-01-02T04:00:00.000Z", "cwd": "/p q", "model_provider": "openai",
                "forked_from_id": A, "forked_from_ordinal_exclusive": 19 }),
            ),
            message(20, "user", "In the fork.", "user.text"),
            message(21, "assistant", "Forked.", "unknown"),
            usage(22, 30),
        ]
    }

    #[test]
    fn a_fork_hangs_on_what_it_was_forked_from() {
        let files = [(name(A), lines(&conversation())), (name(B), lines(&fork()))];
        let [forth, back] = [[0, 1], [1, 0]].map(|order| {
            let archive = archive();
            for (name, text) in &files {
                std::fs::create_dir_all(archive.dir.path().join(name).parent().unwrap()).unwrap();
                archive.file(name, text);
            }
            for at in order {
                archive.take(AGENT, &files[at].0, &files[at].1);
            }
            archive
        });
        assert_eq!(forth.all(), back.all());
        assert_eq!(forth.all().1.len(), 16);
        let messages = forth.messages(B);
        assert_eq!(shorts(&messages)[4..], ["a Done.", "u In the fork.", "a Forked."]);
        assert_eq!(forth.row(B).parent.unwrap().as_str(), A);
        // Alone it has no beginning, which is told.
        let alone = archive();
        let report = alone.take(AGENT, &name(B), lines(&fork()));
        assert_eq!((report.added, report.repaired), (2, 1));
        assert_eq!(report.problems[0].kind, ProblemKind::Orphan);
    }

    /// As version 0.40 wrote it: no ordinals, usage in events.
    fn older() -> Vec<Value> {
        let strip = |mut record: Value| {
            record.as_object_mut().unwrap().shift_remove("ordinal");
            record
        };
        let count = |total: u64, last: u64| {
            let tokens =
                |count: u64| json!({ "input_tokens": 0, "output_tokens": count, "total_tokens": count });
            strip(event(
                0,
                &json!({ "type": "token_count", "info": { "total_token_usage": tokens(total), "last_token_usage": tokens(last) } }),
            ))
        };
        vec![
            strip(record(
                0,
                "session_meta",
                &json!({ "id": A, "timestamp": "2026-01-02T03:04:00.000Z", "cwd": "/p" }),
            )),
            strip(message(1, "user", "<user_instructions>x", "unknown")),
            strip(message(2, "user", "Look.", "unknown")),
            strip(event(2, &json!({ "type": "user_message", "message": "Look." }))),
            strip(call(3, "c1")),
            strip(output(4, "c1", &json!("{\"output\":\"x\",\"metadata\":{\"exit_code\":1}}"))),
            count(5, 5),
            strip(message(6, "assistant", "Done.", "unknown")),
            count(5, 5),
            count(12, 7),
            strip(message(7, "user", "Wrong.", "unknown")),
            strip(message(8, "assistant", "Sorry.", "unknown")),
            count(13, 1),
            strip(event(9, &json!({ "type": "thread_rolled_back", "num_turns": 1 }))),
            strip(message(10, "user", "Right.", "unknown")),
            strip(message(11, "assistant", "Yes.", "unknown")),
            count(14, 1),
            strip(event(12, &json!({ "type": "turn_aborted", "reason": "interrupted" }))),
            strip(record(13, "compacted", &json!({ "message": "In short." }))),
            strip(message(14, "user", "On.", "unknown")),
        ]
    }

    #[test]
    fn what_stands_around_a_record_is_kept_with_it() {
        let [one, other] = [1, 2].map(|trace| {
            let archive = archive();
            let mut records = conversation();
            let said = records.iter().position(|record| record["ordinal"] == 19).unwrap();
            records[said]["trace"] = json!({ "within": { "it": trace } });
            assert_eq!(archive.take(AGENT, &name(A), lines(&records)).lost, 0);
            archive.all().1
        });
        assert_ne!(one, other);
    }

    #[test]
    fn older_files() {
        let archive = archive();
        let report = archive.take(AGENT, &name(A), lines(&older()));
        assert_eq!((report.lost, report.repaired, report.branches), (0, 0, 2), "{report:?}");
        let messages = archive.messages(A);
        assert_eq!(
            shorts(&messages),
            [
                "u Look.",
                "a c1=exec_command",
                "r c1=exec_command! {\"output\":\"x\",\"metadata\":{\"exit_code\":1}}",
                "a Done.",
                "u Right.",
                "a Yes.",
                "aborted",
                "s In short.",
                "u On."
            ]
        );
        let outputs: Vec<u64> = answers(&messages).iter().map(|answer| answer.usage.output).collect();
        assert_eq!(outputs, [5, 7, 1, 0]);
        assert_eq!(archive.shown(A).len(), 2);
    }

    #[test]
    fn the_oldest_files() {
        let archive = archive();
        let text = lines(&[
            json!({ "id": A, "timestamp": "2025-05-07T17:24:21.500Z", "instructions": null }),
            json!({ "record_type": "state" }),
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Look." }] }),
            json!({ "type": "function_call", "name": "shell", "arguments": "not json", "call_id": "c" }),
            json!({ "type": "function_call_output", "call_id": "c", "output": { "content": "x", "success": false } }),
            json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Done." }] }),
            json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Thanks." }] }),
        ]);
        let report = archive.take(AGENT, "rollout-x.jsonl", &text);
        assert_eq!((report.lost, report.repaired, report.added), (0, 0, 5), "{report:?}");
        assert_eq!(
            shorts(&archive.messages(A)),
            ["u Look.", "a c=shell", "r c=shell! x", "a Done.", "u Thanks."]
        );
        archive.shown(A);
        // Before that, all of it was one value.
        let mut records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let whole = json!({ "session": records.remove(0), "items": records });
        for (name, text) in [
            ("rollout-x.json", whole.to_string()),
            ("rollout-y.json", serde_json::to_string_pretty(&whole).unwrap()),
        ] {
            let other = super::archive();
            let report = other.take(AGENT, name, &text);
            assert_eq!((report.lost, report.added), (0, 5), "{report:?}");
            assert_eq!(other.all(), archive.all());
            assert!(other.take(AGENT, name, &text).unchanged);
            assert!(other.try_take(AGENT, &other.file("rollout-z.json", &text[..text.len() - 9])).is_err());
        }
        let found = Agent::named(AGENT).unwrap().files(other_files(&archive).path()).unwrap();
        assert_eq!(found.files.len(), 2);
    }

    /// A folder with files of both kinds, and others.
    fn other_files(archive: &Archive) -> tempfile::TempDir {
        let dir = tempfile::tempdir_in(archive.dir.path()).unwrap();
        for name in ["rollout-a.json", "rollout-b.jsonl", "history.json", "rollout-c.txt"] {
            std::fs::write(dir.path().join(name), "{}").unwrap();
        }
        dir
    }

    #[test]
    fn files_that_are_not_as_they_should_be() {
        let archive = archive();
        let mut text = lines(&conversation()).into_bytes();
        text.extend(b"{\"torn\":\n[]\n{\"payload\":{}}\n");
        text.extend(lines(&conversation()).into_bytes());
        text.extend(lines(&[message(40, "assistant", "Being wr", "unknown")]).into_bytes());
        text.extend(b"{\"type\":\"resp");
        let report = archive.take(AGENT, &name(A), &text);
        use ProblemKind::{Malformed, NoTime, NotAnEntry, SecondHeader, Torn, Unfinished};
        let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
        assert_eq!(kinds, [Malformed, NotAnEntry, NoTime, SecondHeader, Torn, Unfinished]);
        let again = archive.take(AGENT, "rollout-again.jsonl", &text);
        assert_eq!((again.added, again.changed), (0, 0), "{:?}", again.problems);
        archive.shown(A);
        for (content, expect) in
            [("", "it is empty"), ("{}\n", "not a `session_meta`"), ("x\n", "not a `session_meta`")]
        {
            let error = archive.try_take(AGENT, &archive.file("a.jsonl", content)).unwrap_err();
            assert!(error.to_string().contains(expect), "{content:?}: {error}");
        }
    }
}

mod opencode {
    use super::*;

    const AGENT: &str = "opencode";

    fn fixture() -> Vec<u8> {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hand-made.db")).unwrap()
    }

    #[test]
    fn a_database_of_sessions() {
        let archive = archive();
        let path = archive.file("opencode.db", fixture());
        let agent = Agent::named(AGENT).unwrap();
        let found = agent.look(&path).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.project.as_deref(), one.sessions)).collect();
        assert_eq!(found, [(None, 1), (Some("/other"), 1), (Some("/p q"), 3)]);
        assert_eq!(agent.files(archive.dir.path()).unwrap().files, std::slice::from_ref(&path));

        let reports = archive.try_take(AGENT, &path).unwrap();
        let told: Vec<_> = reports
            .iter()
            .map(|report| {
                (report.session.as_str(), report.added, report.present, report.lost, report.changed)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("ses_one", 15, 0, 0, 0),
                ("ses_three", 1, 0, 0, 0),
                // The first seven are those of the session that it was forked from.
                ("ses_two", 3, 7, 0, 0),
                ("ses_four", 2, 0, 2, 0),
                ("ses_five", 0, 0, 0, 0),
            ]
        );
        let messages = archive.messages("ses_one");
        let shared = [
            "u Look. <image/png>",
            "a (hm) c1=bash c2=bash",
            "r c1=bash! out",
            "r c2=bash! no such file",
            "a Then. c3=bash",
            "r c3=bash ok",
            "a Done.",
        ];
        let own = ["s In short: done.", "u More.", "e scripted failure", "aborted", "u Go on.", "a c4=bash"];
        assert_eq!(shorts(&messages), [&shared[..], &own].concat());
        assert_eq!(
            shorts(&archive.messages("ses_two")),
            [&shared[..], &["u In the fork.", "a Forked."]].concat()
        );
        let answers = answers(&messages);
        let usage = |input, output, reasoning, cache_read, cache_write, total| {
            let mut usage = Usage {
                input,
                output,
                reasoning,
                cache_read,
                cache_write,
                total_tokens: input + output + cache_read + cache_write,
                ..Usage::default()
            };
            usage.cost.total = total;
            usage
        };
        // Of an answer in steps each has its own.
        assert_eq!(answers[0].usage, usage(4, 2, None, 0, 0, 0.125));
        assert_eq!(answers[2].usage, usage(10, 7, Some(2), 3, 1, 0.25));
        assert_eq!(shorts(archive.shown("ses_one").iter().map(|message| &**message)).len(), 5);
        for id in ["ses_two", "ses_three", "ses_four"] {
            archive.shown(id);
        }
        assert_eq!(archive.row("ses_one").called, "A title");
        assert_eq!(archive.row("ses_two").parent.unwrap().as_str(), "ses_one");
        assert_eq!(archive.row("ses_three").parent.unwrap().as_str(), "ses_one");
        assert_eq!(archive.row("ses_four").called, "");

        assert!(archive.try_take(AGENT, &path).unwrap()[0].unchanged);
        let before = archive.all();
        let copy = archive.file("copy.db", fixture());
        let again = archive.try_take(AGENT, &copy).unwrap();
        assert!(again.iter().all(|report| report.added + report.changed == 0), "{again:?}");
        assert_eq!(archive.all(), before);
    }

    /// The rows of the database as the files that earlier versions wrote.
    fn files(archive: &Archive) -> std::path::PathBuf {
        use quipu_store::{ForeignDatabase, ForeignRows};
        let database = ForeignDatabase::open(&archive.file("rows.db", fixture())).unwrap();
        let root = archive.dir.path().join("opencode/storage");
        let write = |path: String, text: String| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            // Long ago: nobody writes to it any more.
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        let rows = |table: &str, columns: &[&str], each: &dyn Fn(&[String])| {
            let rows = ForeignRows { table, columns, only: None, order: &[], most: None };
            database
                .rows(rows, &mut |row| {
                    let value = |one: &quipu_store::ForeignValue<'_>| match one.integer() {
                        Some(number) => number.to_string(),
                        None => one.text().unwrap_or_default().into_owned(),
                    };
                    each(&row.iter().map(value).collect::<Vec<_>>());
                    true
                })
                .unwrap();
        };
        // What is no object stays as it is.
        let with = |data: &str, more: Value| match serde_json::from_str::<Value>(data) {
            Ok(Value::Object(members)) => {
                let mut all = more.as_object().unwrap().clone();
                all.extend(members);
                serde_json::to_string_pretty(&all).unwrap()
            }
            _ => data.to_owned(),
        };
        let columns = ["id", "project_id", "parent_id", "directory", "title", "version", "time_created"];
        rows("session", &columns, &|row| {
            let parent = Some(&row[2]).filter(|parent| !parent.is_empty());
            let session = json!({ "id": row[0], "parentID": parent, "directory": row[3], "title": row[4], "version": row[5],
                "time": { "created": row[6].parse::<i64>().unwrap() } });
            write(format!("session/{}/{}.json", row[1], row[0]), session.to_string());
        });
        rows("message", &["id", "session_id", "data", "time_created"], &|row| {
            let data = with(&row[2], json!({ "id": row[0], "sessionID": row[1] }));
            write(format!("message/{}/{}.json", row[1], row[0]), data);
        });
        rows("part", &["id", "session_id", "message_id", "data"], &|row| {
            let more = json!({ "id": row[0], "sessionID": row[1], "messageID": row[2] });
            write(format!("part/{}/{}.json", row[2], row[0]), with(&row[3], more));
        });
        root
    }

    #[test]
    fn the_files_of_earlier_versions() {
        let expect = archive();
        expect.try_take(AGENT, &expect.file("opencode.db", fixture())).unwrap();
        let archive = archive();
        let root = files(&archive);
        let agent = Agent::named(AGENT).unwrap();
        for place in [root.parent().unwrap(), &root] {
            assert_eq!(agent.files(place).unwrap().files, std::slice::from_ref(&root));
        }
        let found = agent.look(&root).unwrap();
        assert_eq!(found.iter().map(|one| one.sessions).sum::<u64>(), 5);
        let reports = archive.try_take(AGENT, &root).unwrap();
        assert_eq!(reports.iter().map(|report| report.lost).sum::<u64>(), 2, "{reports:?}");
        // What has no time of its own has that of its row, and no row is here.
        let but_one = |archive: &Archive| {
            let heads = archive.all().0.into_iter();
            heads.filter(|(name, _)| !name.contains("ses_four")).collect::<Vec<_>>()
        };
        assert_eq!(but_one(&archive), but_one(&expect));
        assert!(archive.try_take(AGENT, &root).unwrap()[0].unchanged);
        // The database that the program made of them later has the same.
        let again = archive.try_take(AGENT, &archive.file("opencode.db", fixture())).unwrap();
        assert!(again.iter().all(|report| report.added + report.changed == 0), "{again:?}");
        // A link to another file is none of them, and nor is a session that leads elsewhere.
        let message = root.join("message/ses_three");
        let file = std::fs::read_dir(&message).unwrap().next().unwrap().unwrap().path();
        std::os::unix::fs::symlink(&file, message.join("msg_zz.json")).unwrap();
        std::fs::write(root.join("session/x.json"), "{}").unwrap();
        std::os::unix::fs::symlink(&root, root.join("session/loop")).unwrap();
        let reports = archive.try_take(AGENT, &root).unwrap();
        assert_eq!(
            reports
                .iter()
                .map(|report| (report.added, report.lost))
                .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
            (0, 3)
        );
    }

    #[test]
    fn forks_of_forks_share_what_they_repeat() {
        let archive = archive();
        let root = archive.dir.path().join("opencode/storage");
        let write = |path: String, value: Value| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value.to_string()).unwrap();
        };
        let session = |name: &str, at: i64, said: &[(i64, &str)]| {
            let id = format!("ses_{name}");
            let row = json!({ "id": id, "directory": "/p", "time": { "created": at } });
            write(format!("session/global/{id}.json"), row);
            for (number, (time, text)) in said.iter().enumerate() {
                let message = format!("msg_{name}{number}");
                write(
                    format!("message/{id}/{message}.json"),
                    json!({ "role": "user", "time": { "created": time } }),
                );
                let part = json!({ "type": "text", "text": text });
                write(format!("part/{message}/prt_{name}{number}.json"), part);
            }
        };
        session("a", 1, &[(1, "one"), (2, "two"), (3, "three"), (4, "four")]);
        session("b", 2, &[(1, "one"), (2, "two"), (5, "five"), (6, "six")]);
        // What the second repeats is the first's.
        session("c", 3, &[(1, "one"), (2, "two"), (5, "five"), (7, "seven")]);
        session("d", 4, &[(1, "one"), (2, "two"), (8, "eight")]);
        // The times of the first, and other words from the second message on.
        session("e", 5, &[(1, "one"), (2, "other"), (3, "three")]);
        // Nothing is shared with a session that begins otherwise.
        session("f", 6, &[(1, "another"), (2, "two")]);
        session("g", 7, &[(9, "one"), (2, "two")]);
        // The times of the third, and other words from where the second has its own.
        session("h", 8, &[(1, "one"), (2, "two"), (5, "not five"), (7, "seven")]);
        let reports = archive.try_take(AGENT, &root).unwrap();
        let told: Vec<_> =
            reports.iter().map(|report| (report.session.as_str(), report.added, report.present)).collect();
        assert_eq!(
            told,
            [
                ("ses_a", 4, 0),
                ("ses_b", 2, 2),
                ("ses_c", 1, 3),
                ("ses_d", 1, 2),
                ("ses_e", 2, 1),
                ("ses_f", 2, 0),
                ("ses_g", 2, 0),
                ("ses_h", 2, 2),
            ]
        );
        let parents = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| {
            let parent = archive.row(&format!("ses_{name}")).parent;
            parent.map(|parent| parent.to_string()).unwrap_or_default()
        });
        assert_eq!(parents, ["", "ses_a", "ses_b", "ses_a", "ses_a", "", "", "ses_a"]);
        assert_eq!(shorts(&archive.messages("ses_c")), ["u one", "u two", "u five", "u seven"]);
    }

    /// With other words of the same length in the definitions of its tables.
    #[test]
    fn a_database_of_a_later_version() {
        let archive = archive();
        let with = |from: &str, to: &str| {
            let mut bytes = fixture();
            let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            archive.try_take(AGENT, &archive.file("opencode.db", bytes))
        };
        let told = with("parent_id text", "ancestors text").unwrap_err().to_string();
        assert!(told.contains("its table `session` has no column `parent_id`"), "{told}");
        assert!(told.contains("opencode.db") && told.contains("newer Quipu"), "{told}");
        assert_eq!(archive.all(), (Vec::new(), Vec::new()));
        // Columns that nobody reads may be others.
        let reports = with("project_id text", "workspaces text").unwrap();
        assert_eq!(reports.iter().map(|report| report.added).sum::<u64>(), 21);
    }

    /// Sessions of one file are read while those before them are committed.
    #[test]
    fn sessions_that_come_at_once_are_what_they_are_one_by_one() {
        let (at_once, one_by_one) = (archive(), archive());
        at_once.try_take(AGENT, &files(&at_once)).unwrap();
        let root = files(&one_by_one);
        let folders = std::fs::read_dir(root.join("session")).unwrap().map(|folder| folder.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let mut sessions: Vec<(i64, std::path::PathBuf, String)> = files
            .map(|file| {
                let path = file.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap();
                std::fs::remove_file(&path).unwrap();
                let value: Value = serde_json::from_str(&text).unwrap();
                (value["time"]["created"].as_i64().unwrap(), path, text)
            })
            .collect();
        sessions.sort();
        for (_, path, text) in sessions {
            std::fs::write(path, text).unwrap();
            one_by_one.try_take(AGENT, &root).unwrap();
        }
        assert_eq!(one_by_one.all(), at_once.all());
    }

    /// Whoever comes second to a ref looks again where it stands.
    #[test]
    fn two_imports_at_the_same_time_are_as_one() {
        let (alone, twice) = (archive(), archive());
        alone.try_take(AGENT, &files(&alone)).unwrap();
        let root = files(&twice);
        let agent = Agent::named(AGENT).unwrap();
        let seen = Seen::default();
        let options = ImportOptions { dry_run: false, progress: &|_| {} };
        let import = || agent.import(&twice.store, &twice.sealer, &root, &seen, &options);
        let (one, other) = block_on(async { tokio::join!(import(), import()) });
        let stands = |reports: Vec<Report>| {
            let heads = reports.into_iter().map(|report| (report.session, report.head));
            heads.collect::<Vec<_>>()
        };
        assert_eq!(stands(one.unwrap()), stands(other.unwrap()));
        assert_eq!(twice.all(), alone.all());
    }

    #[test]
    fn files_that_are_no_such_database() {
        let archive = archive();
        for content in [&b""[..], b"hello", &fixture()[..3_000], &[0; 5_000]] {
            let error = archive.try_take(AGENT, &archive.file("opencode.db", content)).unwrap_err();
            assert!(matches!(error, ArchiveError::File { .. }), "{error}");
        }
    }
}
