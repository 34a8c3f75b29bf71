//! What is left of a node when its content is erased.

use proptest::prelude::*;
use quipu_dag::{Blob, Node, Verdict};
use quipu_protocol::{
    AssistantMessage, Body, Compaction, Content, Entry, Json, Message, StepInfo, ToolCall, ToolResultMessage,
    Usage, UserMessage,
};
use quipu_transcript::{ERASED, EncodedEntry, decode, emptied_part, encode, erased_part, refs_of};

use crate::round_trip::{Objects, node};
use crate::strategies;

fn erased(encoded: &EncodedEntry) -> (Node, Objects, Vec<Blob>) {
    let left: Vec<Blob> = encoded.blobs.iter().map(erased_part).collect();
    let objects =
        Objects { blobs: left.iter().map(|blob| (blob.id, blob.clone())).collect(), ..Objects::default() };
    (node(&encoded.role, left.iter().map(|blob| blob.id).collect()), objects, left)
}

fn calls(content: &[Content]) -> Vec<(String, String)> {
    let of = |block: &Content| match block {
        Content::ToolCall(call) => Some((call.id.to_string(), call.name.clone())),
        _ => None,
    };
    content.iter().filter_map(of).collect()
}

/// That nothing but this is said.
fn says_nothing(content: &[Content]) -> Result<(), TestCaseError> {
    for block in content {
        match block {
            Content::Text(text) => prop_assert_eq!(&text.text, ERASED),
            Content::Thinking(thinking) => {
                prop_assert_eq!(&thinking.thinking, ERASED);
                prop_assert_eq!(&thinking.thinking_signature, &None);
            }
            Content::ToolCall(call) => prop_assert_eq!(call.arguments.get(), "{}"),
            Content::Image(_) | Content::Other(_) => prop_assert!(false, "{:?}", block),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn erased_node_keeps_its_kind_and_has_no_text(
        entry in strategies::entry(),
        step in strategies::step(),
    ) {
        let encoded = encode(&entry, &step);
        let (node, objects, left) = erased(&encoded);
        for (blob, left) in encoded.blobs.iter().zip(&left) {
            prop_assert_eq!(left.verify(), Verdict::Valid);
            prop_assert_eq!(&left.kind, &blob.kind);
            prop_assert_eq!(&erased_part(left).content, &left.content, "once more changes nothing");
            let before = refs_of(blob);
            prop_assert!(refs_of(left).iter().all(|hash| before.contains(hash)));
            let emptied = emptied_part(blob);
            prop_assert_eq!(&emptied_part(&emptied), &emptied);
        }
        let decoded = decode(&node, &objects);
        prop_assert_eq!(decoded.step.call.map(|call| call.body), step.call.as_ref().map(|call| call.body));
        prop_assert_eq!(decoded.step.merge, step.merge);
        prop_assert!(decoded.step.files.is_empty() && decoded.step.added.is_empty());
        match (&entry, &decoded.entry) {
            (Entry::Message(Message::User(_)), Entry::Message(Message::User(found))) => match &found.content {
                Body::Text(text) => prop_assert!(text.is_empty() || &**text == ERASED),
                Body::Blocks(blocks) => says_nothing(blocks)?,
            },
            (Entry::Message(Message::Assistant(said)), Entry::Message(Message::Assistant(found))) => {
                says_nothing(&found.content)?;
                prop_assert_eq!(calls(&found.content), calls(&said.content));
                prop_assert_eq!(&found.usage, &said.usage);
                prop_assert_eq!(&found.error_message, &None);
            }
            (Entry::Message(Message::ToolResult(said)), Entry::Message(Message::ToolResult(found))) => {
                says_nothing(&found.content)?;
                prop_assert_eq!((&found.tool_call_id, &found.tool_name), (&said.tool_call_id, &said.tool_name));
                prop_assert_eq!(found.is_error, said.is_error);
            }
            (Entry::Compaction(said), Entry::Compaction(found)) => {
                prop_assert_eq!(&found.summary, ERASED);
                prop_assert_eq!(found.first_kept, said.first_kept);
                prop_assert_eq!(&found.retained_tail, &None);
            }
            (Entry::Session(said), Entry::Session(found)) => prop_assert_eq!(&found.session, &said.session),
            (Entry::Epoch(said), Entry::Epoch(found)) => prop_assert_eq!(&found.model, &said.model),
            (Entry::Message(_) | Entry::Meta(_), Entry::Message(Message::Custom(found))) => {
                prop_assert_eq!(&found.details, &None);
            }
            (Entry::Message(_) | Entry::Meta(_), Entry::Meta(_)) => {}
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

/// A word that stands nowhere else.
const WORD: &str = "rambutan";

#[test]
fn erased_parts_of_any_kind_hold_no_text() {
    let arguments = Json::parse(&format!("{{\"path\":\"{WORD}.txt\"}}")).unwrap();
    let call = ToolCall {
        id: "c1".into(),
        name: "read".into(),
        arguments,
        thought_signature: Some(WORD.into()),
        namespace: None,
    };
    let result = ToolResultMessage {
        tool_call_id: "c1".into(),
        tool_name: "read".into(),
        content: vec![Content::text(WORD)],
        details: Some(Json::parse(&format!("{{\"diff\":\"{WORD}\"}}")).unwrap()),
        usage: None,
        is_error: false,
        timestamp: 1,
    };
    let assistant = AssistantMessage {
        content: vec![Content::text(WORD), Content::ToolCall(call)],
        error_message: Some(WORD.into()),
        usage: Usage::default(),
        ..AssistantMessage::default()
    };
    let compaction = Compaction {
        summary: WORD.into(),
        first_kept: None,
        retained_tail: Some(Json::parse(&format!("[\"{WORD}\"]")).unwrap()),
        tokens_before: 7,
        timestamp: 1,
        details: Some(Json::parse(&format!("{{\"files\":[\"{WORD}\"]}}")).unwrap()),
        usage: None,
        from_hook: None,
        reason: None,
        checkpoint: None,
    };
    let label = format!("{{\"type\":\"label\",\"targetId\":\"x\",\"label\":\"{WORD}\"}}");
    let line = format!(
        "{{\"role\":\"bashExecution\",\"command\":\"{WORD}\",\"output\":\"{WORD}\",\"timestamp\":1}}"
    );
    let entries = [
        Entry::Message(Message::User(UserMessage { content: Body::Text(WORD.into()), timestamp: 1 })),
        Entry::Message(Message::Assistant(assistant)),
        Entry::Message(Message::ToolResult(result)),
        Entry::Message(Json::parse(&line).unwrap().read().unwrap()),
        Entry::Compaction(compaction),
        Entry::Meta(Json::parse(&label).unwrap()),
    ];
    for entry in entries {
        let encoded = encode(&entry, &StepInfo::default());
        assert!(encoded.blobs.iter().any(|blob| blob.content.contains(WORD)), "{entry:?}");
        let (node, objects, left) = erased(&encoded);
        for blob in left {
            assert!(!blob.content.contains(WORD), "{blob:?}");
        }
        let decoded = format!("{:?}", decode(&node, &objects));
        assert!(!decoded.contains(WORD), "{decoded}");
    }
    for (kind, content) in [
        (
            "pi_entry",
            format!(
                "{{\"type\":\"message\",\"id\":\"e1\",\"message\":{{\"role\":\"user\",\"content\":\"{WORD}\"}}}}"
            ),
        ),
        ("pi_meta", format!("{{\"type\":\"branch_summary\",\"id\":\"e1\",\"summary\":\"{WORD}\"}}")),
        ("thinking", format!("\"{WORD}\"")),
        ("system_prompt", format!("\"{WORD}\"")),
        ("of another program", format!("{{\"anything\":\"{WORD}\"}}")),
        ("tool_call", format!("\"{WORD}, and no object\"")),
        ("quipu", format!("{{\"v\":2,\"entry\":\"message\",\"whole\":{{\"role\":\"{WORD}\"}}}}")),
    ] {
        let left = erased_part(&Blob::new(kind, content).unwrap());
        assert!(!left.content.contains(WORD), "{left:?}");
        assert_eq!(left.kind, kind);
    }
}

#[test]
fn checkpoint_of_a_compaction_keeps_no_text() {
    let opening = format!(r#"{{"source":"past","state":"{WORD}","text":"{WORD}"}}"#);
    let epoch = format!(r#"{{"context":{{"opening":{opening}}},"model":"m","provider":"p"}}"#);
    let compaction = format!(r#"{{"checkpoint":{{"epoch":{epoch},"session":"s1"}}}}"#);
    let own = format!(r#"{{"compaction":{compaction},"entry":"compaction","v":1}}"#);
    let left = erased_part(&Blob::new("quipu", own).unwrap()).content;
    let kept = r#""checkpoint":{"epoch":{"model":"m","provider":"p"},"session":"s1"}"#;
    assert!(left.contains(kept) && !left.contains(WORD), "{left}");
}

#[test]
fn headers_of_a_call_keep_their_names_alone() {
    let own = r#"{"entry":"message","step":{"call":{"headers":{"x-note":"a secret"},"model":"m"}},"v":1}"#;
    let left = erased_part(&Blob::new("quipu", own).unwrap()).content;
    assert!(left.contains(r#""headers":{"x-note":"[erased]"}"#) && !left.contains("a secret"), "{left}");
}
