//! Parts plus our part give back the entry, to the byte of every JSON text.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use quipu_dag::{Blob, BlobId, ChunkId, Node, NodeRecord, Verdict, is_canonical};
use quipu_protocol::{
    AssistantMessage, Body, CallId, Compaction, Content, Entry, FileChange, FileState, ImageContent, Json,
    Message, StepInfo, StopReason, ToolCall, ToolResultMessage, Usage, UserMessage,
};
use quipu_transcript::{
    COMPACTION, EncodedEntry, INTERNAL, Listing, Lookup, chunks_of, decode, encode, encode_listed, files_of,
    listed_as, refs_of, role_of,
};

use crate::strategies;

#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) blobs: HashMap<BlobId, Blob>,
    pub(crate) chunks: HashMap<ChunkId, Vec<u8>>,
}

impl Lookup for Objects {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.blobs.get(id)
    }
    fn chunk(&self, id: &ChunkId) -> Option<&[u8]> {
        self.chunks.get(id).map(Vec::as_slice)
    }
}

pub(crate) fn node(role: &str, parts: Vec<BlobId>) -> Node {
    let record = NodeRecord {
        parent: None,
        role: role.into(),
        parts,
        timestamp: 1_700_000_000_000,
        external_id: None,
        system_prompt: None,
    };
    Node::new(record, None, None)
}

fn stored(encoded: &EncodedEntry) -> (Node, Objects) {
    let objects = Objects {
        blobs: encoded.blobs.iter().map(|blob| (blob.id, blob.clone())).collect(),
        chunks: encoded.chunks.iter().cloned().collect(),
    };
    (node(&encoded.role, encoded.blobs.iter().map(|blob| blob.id).collect()), objects)
}

fn check(entry: &Entry, step: &StepInfo, listing: Option<&Listing<'_>>) -> Result<(), TestCaseError> {
    let encoded = match listing {
        Some(listing) => encode_listed(entry, step, listing),
        None => encode(entry, step),
    };
    let (mut node, objects) = stored(&encoded);
    if let Some(Listing { id, .. }) = listing {
        node = Node::new(NodeRecord { external_id: Some((*id).to_owned()), ..node.record }, None, None);
        let listed = listed_as(&node, &objects);
        match entry {
            // What has an id already, or no type, is listed by it or not at all; and so is what others cannot read.
            Entry::Meta(_) | Entry::Message(Message::Other(_)) => {}
            _ => prop_assert_eq!(listed.as_deref(), Some(*id)),
        }
    }
    if let Entry::Compaction(_) = entry {
        prop_assert_eq!(node.record.role == INTERNAL, listing.is_some());
        prop_assert_eq!(role_of(&node, &objects), COMPACTION);
    } else {
        prop_assert_eq!(role_of(&node, &objects), node.record.role.as_str());
    }
    let decoded = decode(&node, &objects);
    prop_assert_eq!(&decoded.entry, entry);
    prop_assert_eq!(&decoded.step, step);
    for blob in &encoded.blobs {
        prop_assert_eq!(blob.verify(), Verdict::Valid);
    }
    let (own, shared) = encoded.blobs.split_last().ok_or_else(|| TestCaseError::fail("no part of ours"))?;
    prop_assert_eq!(&own.kind, "quipu");
    prop_assert!(is_canonical(&own.content), "{}", own.content);
    prop_assert!(shared.iter().all(|blob| blob.kind != "quipu"));

    let chunks: BTreeSet<ChunkId> = encoded.chunks.iter().map(|(id, _)| *id).collect();
    prop_assert_eq!(chunks_of(&node, &objects).into_iter().collect::<BTreeSet<_>>(), chunks.clone());
    let mut refs: BTreeSet<[u8; 32]> = chunks.iter().map(|chunk| chunk.0).collect();
    if let Some(call) = &step.call {
        refs.extend([call.head.0, call.tools.0, call.body.0]);
        refs.extend(call.system.map(|system| system.0));
    }
    let states = step.files.iter().flat_map(|change| [&change.before, &change.after]);
    refs.extend(states.filter_map(|state| Some(state.content()?.0)));
    refs.extend(step.merge.iter().map(|parent| parent.0));
    prop_assert_eq!(&files_of(own), &step.files);
    if let Entry::Epoch(epoch) | Entry::Session(quipu_protocol::SessionStart { epoch, .. }) = entry {
        refs.extend([epoch.system, epoch.identity].into_iter().flatten().map(|blob| blob.0));
    }
    if let Entry::Compaction(Compaction { first_kept, checkpoint, .. }) = entry {
        refs.extend(first_kept.map(|node| node.0));
        let epoch = checkpoint.as_ref().map(|point| &point.epoch);
        refs.extend(epoch.and_then(|epoch| Some(epoch.system?.0)));
        refs.extend(epoch.and_then(|epoch| Some(epoch.identity?.0)));
    }
    prop_assert_eq!(refs_of(own), refs.into_iter().collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_is_the_inverse_of_encoding(entry in strategies::entry(), step in strategies::step()) {
        check(&entry, &step, None)?;
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding_for_others(
        entry in strategies::entry(),
        step in strategies::step(),
        parent in proptest::option::of(".*"),
        kept in proptest::option::of(".*"),
        at in any::<i64>(),
    ) {
        let id = "0190a5c0-2222-7000-8000-000000000001";
        check(&entry, &step, Some(&Listing { id, parent: parent.as_deref(), first_kept: kept.as_deref(), at }))?;
    }

    /// Whatever is missing, the rest is read, in order.
    #[test]
    fn missing_objects_are_skipped(message in strategies::message(), missing in any::<u64>()) {
        let encoded = encode(&Entry::Message(message), &StepInfo::default());
        let (node, mut objects) = stored(&encoded);
        let mut bits = missing;
        let mut keep = || { bits = bits.rotate_left(1); bits & 1 == 0 };
        let ids: Vec<_> = encoded.blobs.iter().map(|blob| blob.id).collect();
        objects.blobs.retain(|id, _| ids.last() == Some(id) || keep());
        objects.chunks.retain(|_, _| keep());
        decode(&node, &objects);
        objects.blobs.retain(|id, _| ids.last() != Some(id));
        decode(&node, &objects);
    }

    /// A store may hold anything.
    #[test]
    fn hostile_parts_do_no_harm(
        role in prop_oneof![Just("user"), Just("assistant"), Just("toolResult"), Just("custom"), Just("pi_internal"), Just("x")],
        parts in proptest::collection::vec((0..9_usize, hostile()), 0..5),
        own in prop_oneof![Just(None), hostile().prop_map(Some), own().prop_map(Some)],
        columns in proptest::option::of(hostile()),
    ) {
        const KINDS: [&str; 9] = [
            "text", "thinking", "tool_call", "tool_result", "pi_meta", "pi_entry", "inline_data", "quipu", "new",
        ];
        let mut blobs: Vec<Blob> = parts.into_iter().map(|(kind, content)| blob(KINDS[kind], content)).collect();
        blobs.extend(own.map(|content| blob("quipu", content)));
        let mut node = node(role, blobs.iter().map(|blob| blob.id).collect());
        node.config.clone_from(&columns);
        node.thought_signatures = columns;
        let objects = Objects { blobs: blobs.into_iter().map(|blob| (blob.id, blob)).collect(), ..Objects::default() };
        let decoded = decode(&node, &objects);
        chunks_of(&node, &objects);
        // What was read can be written again.
        check(&decoded.entry, &decoded.step, None)?;
    }
}

fn blob(kind: &str, content: String) -> Blob {
    Blob { id: BlobId(quipu_dag::sha256(format!("{kind} {content}").as_bytes())), kind: kind.into(), content }
}

fn hostile() -> BoxedStrategy<String> {
    prop_oneof![
        strategies::json().prop_map(|json| json.get().to_owned()),
        strategies::text(),
        (strategies::json(), any::<proptest::sample::Index>()).prop_map(|(json, at)| {
            let characters: Vec<char> = json.get().chars().collect();
            characters[..at.index(characters.len())].iter().collect()
        }),
        Just("{\"type\":\"image\",\"data\":5}".into()),
        Just("{\"role\":\"user\",\"content\":{\"a\":[]}}".into()),
        Just("{\"toolCallId\":1,\"content\":\"plain\",\"isError\":\"x\"}".into()),
        Just("{\"id\":null,\"name\":7}".into()),
    ]
    .boxed()
}

/// Our part with members of any shape.
fn own() -> BoxedStrategy<String> {
    let member = prop_oneof![
        Just("message"),
        Just("whole"),
        Just("plain"),
        Just("other"),
        Just("marks"),
        Just("images"),
        Just("others"),
        Just("session"),
        Just("epoch"),
        Just("step"),
        Just("extra"),
        Just("refs"),
    ];
    let value = prop_oneof![
        2 => strategies::json().prop_map(|json| json.get().to_owned()),
        1 => Just("true".into()),
        1 => Just("[{\"index\":1,\"signature\":\"s\"},{\"index\":0,\"redacted\":true}]".into()),
        1 => Just("[{\"index\":18446744073709551615,\"mimeType\":\"i\",\"data\":\"x\"},{\"index\":0,\"block\":null}]".into()),
        1 => Just("{\"=\":\"]}\"}".into()),
    ];
    let entry = prop_oneof![Just("message"), Just("session"), Just("epoch"), Just("meta"), Just("next")];
    (entry, proptest::collection::btree_map(member, value, 0..5))
        .prop_map(|(entry, members)| {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!(",\"{name}\":{value}")).collect();
            format!("{{\"entry\":\"{entry}\",\"v\":1{}}}", members.concat())
        })
        .boxed()
}

fn rendered(entry: &Entry, step: &StepInfo) -> Vec<(String, String)> {
    let encoded = encode(entry, step);
    std::iter::once(("role".to_owned(), encoded.role))
        .chain(encoded.blobs.into_iter().map(|blob| (blob.kind, blob.content)))
        .collect()
}

#[track_caller]
fn check_parts(entry: &Entry, expect: &[(&str, &str)]) {
    let rendered = rendered(entry, &StepInfo::default());
    let rendered: Vec<(&str, &str)> =
        rendered.iter().map(|(kind, content)| (kind.as_str(), content.as_str())).collect();
    assert_eq!(rendered, expect);
}

/// Entries that are no messages stand in a part for others as they are in a session file.
#[test]
fn entries_are_listed_with_their_ids() {
    let listing = Listing { id: "i", parent: Some("p\"q"), first_kept: Some("k"), at: 1_700_000_000_123 };
    let part = |entry: &Entry, listing: &Listing<'_>| {
        let encoded = encode_listed(entry, &StepInfo::default(), listing);
        assert_eq!(encoded.blobs.last().unwrap().kind, "quipu");
        let [part, _] = &encoded.blobs[..] else { panic!("{encoded:?}") };
        assert_eq!(part.kind, "pi_meta");
        (encoded.role, part.content.clone())
    };
    let place = r#""id":"i","parentId":"p\"q","timestamp":"2023-11-14T22:13:20.123Z""#;
    let details = Some(Json::parse(r#"{"readFiles":["a"]}"#).unwrap());
    let compaction = Compaction { summary: "S\n".into(), tokens_before: 7, details, ..Compaction::default() };
    let (role, text) = part(&Entry::Compaction(compaction.clone()), &listing);
    let expect = format!(
        r#"{{"type":"compaction",{place},"summary":"S\n","firstKeptEntryId":"k","tokensBefore":7,"details":{{"readFiles":["a"]}}}}"#
    );
    assert_eq!((role.as_str(), text), ("pi_internal", expect));
    let alone = Listing { parent: None, first_kept: None, ..listing };
    let (_, text) = part(&Entry::Compaction(compaction), &alone);
    assert!(text.contains(r#""parentId":null"#) && text.contains(r#""firstKeptEntryId":"i""#), "{text}");
    let epoch = quipu_protocol::Epoch { provider: "P".into(), model: "M".into(), ..Default::default() };
    let (role, text) = part(&Entry::Epoch(epoch), &listing);
    let expect = format!(r#"{{"type":"model_change",{place},"provider":"P","modelId":"M"}}"#);
    assert_eq!((role.as_str(), text), ("pi_internal", expect));
    let (_, text) = part(&Entry::Epoch(quipu_protocol::Epoch::default()), &listing);
    assert_eq!(text, format!(r#"{{"type":"custom",{place},"customType":"quipu.epoch"}}"#));
    let meta = |text: &str| part(&Entry::Meta(Json::parse(text).unwrap()), &listing).1;
    assert_eq!(meta(r#"{"type":"label","label":"x"}"#), format!(r#"{{{place},"type":"label","label":"x"}}"#));
    // What came with an id has it already.
    assert_eq!(meta(r#"{"type":"label","id":"7"}"#), r#"{"type":"label","id":"7"}"#);
    assert_eq!(meta(r#"{"kind":1}"#), r#"{"kind":1}"#);
    let run = Message::BashExecution(quipu_protocol::BashExecutionMessage {
        command: "ls".into(),
        ..serde_json::from_str(
            r#"{"command":"","output":"","cancelled":false,"truncated":false,"timestamp":5}"#,
        )
        .unwrap()
    });
    let (role, text) = part(&Entry::Message(run), &listing);
    assert!(text.starts_with(&format!(r#"{{"type":"message",{place},"message":{{"#)), "{text}");
    assert_eq!(role, "bashExecution");
}

#[test]
fn other_programs_find_their_parts() {
    let image = || Content::Image(ImageContent { data: "AAAA".into(), mime_type: "image/png".into() });
    check_parts(
        &Entry::Message(Message::User(UserMessage { content: Body::Text("hi".into()), timestamp: 5 })),
        &[
            ("role", "user"),
            ("text", "\"hi\""),
            ("quipu", r#"{"entry":"message","message":{"timestamp":5},"plain":true,"refs":[],"v":1}"#),
        ],
    );
    // An image is in our part only, so that a reader that does not know it keeps the text.
    check_parts(
        &Entry::Message(Message::User(UserMessage {
            content: Body::Blocks(vec![Content::text("look"), image(), Content::text("here")]),
            timestamp: 5,
        })),
        &[
            ("role", "user"),
            ("text", "\"look\""),
            ("text", "\"here\""),
            (
                "quipu",
                r#"{"entry":"message","images":[{"chunk":"709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c","index":1,"mimeType":"image/png"}],"message":{"timestamp":5},"refs":["709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c"],"v":1}"#,
            ),
        ],
    );
    let arguments = r#"{"path": "a", "offset": 1.0, "__proto__": 12345678901234567890}"#;
    check_parts(
        &Entry::Message(Message::Assistant(AssistantMessage {
            content: vec![
                Content::Thinking(quipu_protocol::ThinkingContent {
                    thinking: "hm".into(),
                    thinking_signature: Some("sig".into()),
                    redacted: None,
                }),
                Content::ToolCall(ToolCall {
                    id: CallId::from("c"),
                    name: "read".into(),
                    arguments: Json::parse(arguments).unwrap(),
                    thought_signature: None,
                    namespace: None,
                }),
            ],
            api: "a".into(),
            provider: "p".into(),
            model: "m".into(),
            usage: Usage { input: 1, total_tokens: 1, ..Usage::default() },
            stop_reason: StopReason::ToolUse,
            timestamp: 5,
            response_model: None,
            response_id: Some("r".into()),
            error_message: None,
            raw_stop_reason: None,
        })),
        &[
            ("role", "assistant"),
            ("thinking", "\"hm\""),
            ("tool_call", &format!(r#"{{"arguments":{arguments},"id":"c","name":"read"}}"#)),
            (
                "quipu",
                r#"{"entry":"message","marks":[{"index":0,"signature":"sig"}],"message":{"api":"a","model":"m","provider":"p","responseId":"r","stopReason":"toolUse","timestamp":5,"usage":{"cacheRead":0,"cacheWrite":0,"cost":{"cacheRead":0,"cacheWrite":0,"input":0,"output":0,"total":0},"input":1,"output":0,"totalTokens":1}},"refs":[],"v":1}"#,
            ),
        ],
    );
    check_parts(
        &Entry::Message(Message::ToolResult(ToolResultMessage {
            tool_call_id: CallId::from("c"),
            tool_name: "read".into(),
            content: vec![Content::text("ok"), image()],
            details: Some(Json::parse(r#"{"b":1,"a":2}"#).unwrap()),
            usage: None,
            is_error: false,
            timestamp: 5,
        })),
        &[
            ("role", "toolResult"),
            (
                "tool_result",
                r#"{"content":[{"text":"ok","type":"text"}],"isError":false,"toolCallId":"c","toolName":"read"}"#,
            ),
            (
                "quipu",
                r#"{"entry":"message","images":[{"chunk":"709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c","index":1,"mimeType":"image/png"}],"message":{"details":{"=":"{\"b\":1,\"a\":2}"},"isError":false,"timestamp":5,"toolCallId":"c","toolName":"read"},"refs":["709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c"],"v":1}"#,
            ),
        ],
    );
    check_parts(
        &Entry::Meta(Json::parse(r#"{"type":"label","id":"x"}"#).unwrap()),
        &[
            ("role", "pi_internal"),
            ("pi_meta", r#"{"type":"label","id":"x"}"#),
            ("quipu", r#"{"entry":"meta","refs":[],"v":1,"whole":true}"#),
        ],
    );
}

#[test]
fn the_hash_of_a_shared_part_is_that_of_other_writers() {
    let result = Message::ToolResult(ToolResultMessage {
        tool_call_id: CallId::from("call_1"),
        tool_name: "read".into(),
        content: vec![Content::text("ok")],
        details: None,
        usage: None,
        is_error: false,
        timestamp: 5,
    });
    let encoded = encode(&Entry::Message(result), &StepInfo::default());
    assert_eq!(
        encoded.blobs[0].id.to_string(),
        "e3119dbb3e8ff40d578fb88467e6d51c722b2f11fbcfecc005553b87197af67e"
    );
}

#[test]
fn a_pair_survives_the_erasing_of_its_result() {
    let result = ToolResultMessage {
        tool_call_id: CallId::from("c"),
        tool_name: "read".into(),
        content: vec![Content::text("a secret")],
        details: None,
        usage: None,
        is_error: true,
        timestamp: 5,
    };
    let (node, mut objects) =
        stored(&encode(&Entry::Message(Message::ToolResult(result.clone())), &StepInfo::default()));
    let blob = objects.blobs.get_mut(&node.record.parts[0]).unwrap();
    blob.content = "\"[erased]\"".into();
    let expect =
        |content| Entry::Message(Message::ToolResult(ToolResultMessage { content, ..result.clone() }));
    assert_eq!(decode(&node, &objects).entry, expect(vec![Content::text("[erased]")]));
    objects.blobs.remove(&node.record.parts[0]);
    assert_eq!(decode(&node, &objects).entry, expect(vec![]));
}

#[test]
fn another_version_of_our_part_is_left_unread() {
    let blobs = [Blob::text("hi"), Blob::from_canonical("quipu", r#"{"entry":"meta","v":2,"whole":true}"#)];
    let node = node("user", blobs.iter().map(|blob| blob.id).collect());
    let objects =
        Objects { blobs: blobs.into_iter().map(|blob| (blob.id, blob)).collect(), ..Objects::default() };
    assert_eq!(decode(&node, &objects).entry, Entry::Message(Message::user("hi", 1_700_000_000_000)));
}

/// A later version may know states that this one does not; what else stands there is read.
#[test]
fn changes_of_files_that_cannot_be_read_are_left_out() {
    let known = FileChange {
        path: "a".into(),
        before: FileState::Absent,
        after: FileState::Link { target: "b".into() },
    };
    let step = StepInfo { run: Some("r".into()), files: vec![known.clone()], ..StepInfo::default() };
    let mut encoded = encode(&Entry::Meta(Json::object()), &step);
    let own = encoded.blobs.last_mut().unwrap();
    let change = r#"{"after":{"kind":"link","target":"b"},"before":{"kind":"absent"},"path":"a"}"#;
    let more =
        format!(r#"[{{"path":"c","before":{{"kind":"spirit"}},"after":{{"kind":"absent"}}}},7,{change}]"#);
    let content = own.content.replace(&format!("[{change}]"), &more);
    assert_ne!(content, own.content);
    *own = blob("quipu", content);
    let (node, objects) = stored(&encoded);
    let decoded = decode(&node, &objects);
    assert_eq!(decoded.step, step);
}
