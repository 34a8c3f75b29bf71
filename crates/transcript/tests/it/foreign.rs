//! Nodes of other programs.

use quipu_dag::Blob;
use quipu_protocol::{Entry, Json};
use quipu_transcript::decode;

use crate::round_trip::{Objects, node};

struct Case<'a> {
    role: &'a str,
    config: Option<&'a str>,
    signatures: Option<&'a str>,
    parts: &'a [(&'a str, &'a str)],
}

fn read(case: &Case<'_>) -> Entry {
    let blobs: Vec<Blob> = case
        .parts
        .iter()
        .map(|(kind, content)| {
            Blob::new(*kind, *content).unwrap_or_else(|error| panic!("{content}: {error}"))
        })
        .collect();
    let mut node = node(case.role, blobs.iter().map(|blob| blob.id).collect());
    node.config = case.config.map(Into::into);
    node.thought_signatures = case.signatures.map(Into::into);
    let objects =
        Objects { blobs: blobs.into_iter().map(|blob| (blob.id, blob)).collect(), ..Objects::default() };
    let decoded = decode(&node, &objects);
    assert_eq!(decoded.step, quipu_protocol::StepInfo::default());
    decoded.entry
}

#[track_caller]
fn check_case(case: &Case<'_>, expect: &str) {
    let text = match read(case) {
        Entry::Message(message) => serde_json::to_string(&message).unwrap_or_default(),
        Entry::Meta(json) => format!("meta {json}"),
        other => format!("{other:?}"),
    };
    let text = text.replace(",\"timestamp\":1700000000000", "");
    assert_eq!(text, expect);
}

#[track_caller]
fn check(role: &str, parts: &[(&str, &str)], expect: &str) {
    check_case(&Case { role, config: None, signatures: None, parts }, expect);
}

const ASSISTANT: &str = r#""api":"chat","provider":"unknown","model":"unknown","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0.0,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.0}}"#;

#[test]
fn messages_of_pi() {
    check("user", &[("text", "\"hi\"")], r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#);
    check(
        "user",
        &[("text", r#""a\ud800""#)],
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\u{fffd}\"}]}",
    );
    check("user", &[], r#"{"role":"user","content":[]}"#);
    // The published reader gives up the text of such a node.
    check(
        "user",
        &[("text", "\"hi\""), ("pi_meta", r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#)],
        r#"{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}"#,
    );
    check(
        "user",
        &[("pi_meta", r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#)],
        r#"{"role":"user","content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}"#,
    );
    // Plain-string content is stored as the whole message.
    check(
        "user",
        &[("pi_meta", r#"{"role":"user","content":"hi","timestamp":7}"#)],
        r#"{"role":"user","content":"hi","timestamp":7}"#,
    );
    check(
        "bashExecution",
        &[(
            "pi_meta",
            r#"{"role":"bashExecution","command":"ls","output":"a","cancelled":false,"truncated":false,"timestamp":7}"#,
        )],
        r#"{"role":"bashExecution","command":"ls","output":"a","cancelled":false,"truncated":false,"timestamp":7}"#,
    );
    check(
        "assistant",
        &[("thinking", "\"hm\""), ("tool_call", r#"{"id":"c","name":"read","arguments":{"b":1.0,"a":2}}"#)],
        &format!(
            r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"hm"}},{{"type":"toolCall","id":"c","name":"read","arguments":{{"b":1.0,"a":2}}}}],{ASSISTANT},"stopReason":"toolUse"}}"#
        ),
    );
    check(
        "assistant",
        &[("tool_call", r#"{"name":"life"}"#)],
        &format!(
            r#"{{"role":"assistant","content":[{{"type":"toolCall","id":"{}","name":"life","arguments":{{}}}}],{ASSISTANT},"stopReason":"toolUse"}}"#,
            quipu_dag::BlobId(quipu_dag::hash_json(r#"{"name":"life"}"#).unwrap_or_default())
        ),
    );
    check(
        "toolResult",
        &[(
            "tool_result",
            r#"{"toolCallId":"c","toolName":"read","content":[{"type":"text","text":"ok"}],"isError":true}"#,
        )],
        r#"{"role":"toolResult","toolCallId":"c","toolName":"read","content":[{"type":"text","text":"ok"}],"isError":true}"#,
    );
    // Another variant stores the whole message as the result.
    check(
        "toolResult",
        &[(
            "tool_result",
            r#"{"role":"toolResult","toolCallId":"c","toolName":"read","content":"ok","details":{"x":1},"isError":false,"timestamp":3}"#,
        )],
        r#"{"role":"toolResult","toolCallId":"c","toolName":"read","content":[{"type":"text","text":"ok"}],"details":{"x":1},"isError":false}"#,
    );
    check(
        "toolResult",
        &[],
        r#"{"role":"toolResult","toolCallId":"unknown","toolName":"unknown","content":[],"isError":false}"#,
    );
}

#[test]
fn entries_that_are_no_messages() {
    let change =
        r#"{"type":"model_change","id":"00000000","parentId":null,"provider":"anthropic","modelId":"x"}"#;
    check("pi_internal", &[("pi_meta", change)], &format!("meta {change}"));
    check("model_change", &[("pi_meta", change)], &format!("meta {change}"));
    check("user", &[("pi_meta", change)], &format!("meta {change}"));
    check("pi_internal", &[], "meta {}");
    check("pi_internal", &[("pi_entry", change)], &format!("meta {change}"));
    check(
        "user",
        &[(
            "pi_entry",
            r#"{"type":"message","id":"a","message":{"role":"user","content":"old","timestamp":1}}"#,
        )],
        r#"{"role":"user","content":"old","timestamp":1}"#,
    );
    check("oracle", &[("text", "\"?\"")], r#"{"role":"oracle","content":[{"type":"text","text":"?"}]}"#);
}

#[test]
fn terminal_agents() {
    let google = ASSISTANT.replace(
        "\"provider\":\"unknown\",\"model\":\"unknown\"",
        "\"provider\":\"google\",\"model\":\"gemini-x\"",
    );
    let case = |parts| Case {
        role: "model",
        config: Some(r#"{"model":"gemini-x","config":{}}"#),
        signatures: None,
        parts,
    };
    check_case(
        &case(&[
            ("text", "\"a\""),
            ("note", "\"b\""),
            ("call", r#"{"name":"read","args":{"p":1}, "id":"c"}"#),
        ]),
        &format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"a"}},{{"type":"text","text":"b"}},{{"type":"toolCall","id":"c","name":"read","arguments":{{"p":1}}}}],{google},"stopReason":"toolUse"}}"#
        ),
    );
    check(
        "user",
        &[
            ("inline_data", r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"}}"#),
            ("inline_data", r#"{"mime_type":"i","data":"A"}"#),
        ],
        r#"{"role":"user","content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"image","data":"A","mimeType":"i"}]}"#,
    );
    for role in ["tool", "function", "user"] {
        check(
            role,
            &[("tool_result", r#"{"toolCallId":"c","toolName":"t","content":[]}"#)],
            r#"{"role":"toolResult","toolCallId":"c","toolName":"t","content":[],"isError":false}"#,
        );
    }
}

#[test]
fn models_and_signatures_from_the_columns() {
    let parts: &[(&str, &str)] = &[("thinking", "\"hm\""), ("text", "\"a\"")];
    let config =
        r#"{"agent":"pi","model":{"provider":"anthropic","id":"claude-x"},"thinkingLevel":"off","tools":[]}"#;
    let usage = ASSISTANT.replace(
        "\"provider\":\"unknown\",\"model\":\"unknown\"",
        "\"provider\":\"anthropic\",\"model\":\"claude-x\"",
    );
    let hash = Blob::string("thinking", "hm").id;
    for (signatures, thinking) in [
        (r#"["s1",null]"#.to_owned(), r#","thinkingSignature":"s1""#),
        (
            r#"[{"sig":"s1","kind":"thinking","redacted":true}]"#.to_owned(),
            r#","thinkingSignature":"s1","redacted":true"#,
        ),
        (format!(r#"{{"{hash}":"s1"}}"#), r#","thinkingSignature":"s1""#),
        ("opaque".to_owned(), ""),
    ] {
        check_case(
            &Case { role: "assistant", config: Some(config), signatures: Some(&signatures), parts },
            &format!(
                r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"hm"{thinking}}},{{"type":"text","text":"a"}}],{usage},"stopReason":"stop"}}"#
            ),
        );
    }
}

#[test]
fn a_block_that_is_not_json_is_left_out() {
    let blobs = [
        Blob { kind: "playtiss".into(), content: "AAEC".into(), ..Blob::text("") },
        Blob { kind: "text".into(), content: "broken".into(), ..Blob::text("1") },
        Blob::text("hi"),
    ];
    let node = node("user", blobs.iter().map(|blob| blob.id).collect());
    let objects =
        Objects { blobs: blobs.into_iter().map(|blob| (blob.id, blob)).collect(), ..Objects::default() };
    let Entry::Message(message) = decode(&node, &objects).entry else { panic!("a message") };
    assert_eq!(
        Json::of(&message).unwrap().get(),
        r#"{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":1700000000000}"#
    );
}
