//! The decoder over hand-made recordings, in every split.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use quipu_protocol::{Model, ModelErrorKind, Prices};
use quipu_providers::{CallEnd, CallEvent, laws};

use crate::code_assist;
use crate::wires::{WIRES, Wire, api, decoder};

fn model(wire: Wire) -> Arc<Model> {
    let cost = Prices { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75, ..Prices::default() };
    let (id, provider) = match wire {
        Wire::Messages => ("claude-test-1".into(), "anthropic".into()),
        Wire::Completions | Wire::Responses | Wire::Subscription | Wire::Chunks | Wire::Gateway => {
            ("test-1".into(), "testing".into())
        }
        Wire::Contents => ("gemini-3-test".into(), "google".into()),
        Wire::Envelope => ("gemini-3-test".into(), "google-gemini-cli".into()),
        Wire::Converse => ("anthropic.claude-test-1".into(), "amazon-bedrock".into()),
    };
    Arc::new(Model { id, provider, api: api(wire).into(), cost, ..Model::default() })
}

struct Recording {
    wire: Wire,
    name: String,
    bytes: Vec<u8>,
}

impl Recording {
    fn decode<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<CallEvent>, CallEnd) {
        decode(self.wire, pieces)
    }

    fn whole(&self) -> (Vec<CallEvent>, CallEnd) {
        self.decode([self.bytes.as_slice()])
    }
}

fn directory(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "tests/recordings",
        Wire::Completions => "tests/recordings/completions",
        Wire::Responses => "tests/recordings/responses",
        Wire::Contents => "tests/recordings/contents",
        Wire::Subscription => "tests/recordings/subscription",
        Wire::Chunks => "tests/recordings/chunks",
        // As text; what is decoded are its frames.
        Wire::Converse => "tests/recordings/converse",
        Wire::Gateway => "tests/recordings/gateway",
        Wire::Envelope => "tests/recordings/envelope",
    }
}

fn recordings() -> Vec<Recording> {
    let mut all = Vec::new();
    for wire in WIRES {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory(wire));
        let mut paths: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
            .collect();
        paths.sort();
        all.extend(paths.into_iter().map(|path| Recording {
            wire,
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            bytes: wire.bytes(&std::fs::read_to_string(&path).unwrap()),
        }));
    }
    assert_eq!(all.len(), 14 + 21 + 39 + 21 + 4 + 10 + 24 + 7 + 6);
    all
}

/// All of them, and those of the third wire with each event within another. What these mean is compared elsewhere.
fn recordings_and_nested() -> Vec<Recording> {
    let mut all = recordings();
    let nested: Vec<_> = all
        .iter()
        .filter(|recording| recording.wire == Wire::Contents)
        .map(|recording| Recording {
            wire: Wire::Envelope,
            name: format!("{} within", recording.name),
            bytes: code_assist::around(&String::from_utf8_lossy(&recording.bytes)).into_bytes(),
        })
        .collect();
    all.extend(nested);
    all
}

fn decode<'a>(wire: Wire, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<CallEvent>, CallEnd) {
    let mut decoder = decoder(wire, model(wire), 7);
    let mut events = Vec::new();
    let pushed = pieces.into_iter().try_for_each(|piece| decoder.push(piece, &mut events));
    let error = pushed.and_then(|()| decoder.end(&mut events)).err();
    let (message, unknown, error) = decoder.finish(error.as_ref());
    (events, CallEnd { message, error, attempts: Vec::new(), charges: Vec::new(), unknown })
}

/// What a recording means, as text.
fn describe(events: &[CallEvent], end: &CallEnd) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for event in events {
        match event {
            CallEvent::Started(message) => {
                writeln!(out, "Started {}", serde_json::to_string(message).unwrap())
            }
            CallEvent::Delta(delta) => writeln!(out, "{delta:?}"),
            CallEvent::Retry { .. } => panic!("a decoder never retries"),
        }
        .unwrap();
    }
    writeln!(out, "{}", serde_json::to_string_pretty(&end.message).unwrap()).unwrap();
    writeln!(out, "error: {:?}\nunknown: {:#?}", end.error, end.unknown).unwrap();
    out
}

#[test]
fn recordings_mean_what_they_say() {
    for recording in recordings() {
        let name = &recording.name;
        let (events, end) = recording.whole();
        laws::check(&events, &end).unwrap_or_else(|broken| panic!("{name}: {broken}"));
        let path = Path::new("..").join(Path::new(directory(recording.wire)).strip_prefix("tests").unwrap());
        insta::with_settings!({ snapshot_path => path, prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name.as_str(), describe(&events, &end));
        });
    }
}

#[test]
fn every_split_means_the_same() {
    for recording in recordings_and_nested() {
        let (name, bytes) = (&recording.name, &recording.bytes);
        let whole = recording.whole();
        for at in 0..bytes.len() {
            let (start, rest) = bytes.split_at(at);
            let split = recording.decode([start, rest]);
            assert_eq!(split, whole, "{name} split at {at}");
        }
        assert_eq!(recording.decode(bytes.chunks(1)), whole, "{name} byte by byte");
    }
}

#[test]
fn every_beginning_ends_as_cut_and_keeps_the_laws() {
    for recording in recordings_and_nested() {
        let name = &recording.name;
        let (_, whole) = recording.whole();
        for at in 0..recording.bytes.len() {
            let (events, end) = recording.decode([&recording.bytes[..at]]);
            laws::check(&events, &end).unwrap_or_else(|broken| panic!("{name} cut at {at}: {broken}"));
            let kind = end.error.as_ref().map(|error| error.kind);
            let as_whole = kind == whole.error.as_ref().map(|error| error.kind);
            assert!(kind == Some(ModelErrorKind::StreamEnded) || as_whole, "{name} cut at {at}: {kind:?}");
        }
    }
}

/// An event in place of the answer's second, and the kind of error that comes of it.
#[test]
fn messages_stream_with_invalid_events_is_malformed() {
    let start = r#"{"type":"message_start","message":{"id":"m"}}"#;
    let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text"}}"#;
    let check = |events: &[&str], kind: ModelErrorKind| {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let (streamed, end) = decode(Wire::Messages, [stream.as_bytes()]);
        laws::check(&streamed, &end).unwrap();
        assert_eq!(end.error.map(|error| error.kind), Some(kind), "{events:?}");
    };
    let malformed = |events: &[&str]| check(events, ModelErrorKind::Malformed);
    malformed(&["{"]);
    malformed(&["[DONE]"]);
    malformed(&[text]);
    malformed(&[r#"{"type":"message_stop"}"#]);
    malformed(&[start, text, text]);
    malformed(&[start, r#"{"type":"content_block_start","content_block":{"type":"text"}}"#]);
    malformed(&[start, r#"{"type":"content_block_stop","index":0}"#]);
    malformed(&[
        start,
        text,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}"#,
    ]);
    malformed(&[
        start,
        text,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":1}}"#,
    ]);
    malformed(&[start, text, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}"#]);
    malformed(&[
        start,
        text,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"a"}}"#,
    ]);
    malformed(&[
        start,
        text,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta"}}"#,
    ]);
    let call = |id: usize, name: usize| {
        let (id, name) = ("i".repeat(id), "n".repeat(name));
        format!(
            r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"{id}","name":"{name}"}}}}"#
        )
    };
    check(&[start, &call(4_096, 4_096)], ModelErrorKind::StreamEnded);
    check(&[start, &call(4_097, 1)], ModelErrorKind::TooLarge);
    check(&[start, &call(1, 4_097)], ModelErrorKind::TooLarge);
    let large = "x".repeat(5 << 20);
    let redacted = |index| {
        format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"redacted_thinking","data":"{large}"}}}}"#
        )
    };
    check(&[start, &redacted(0), &redacted(1)], ModelErrorKind::TooLarge);
    let odd = format!(r#"{{"type":"new","data":"{large}"}}"#);
    check(&[start, &odd, &odd], ModelErrorKind::TooLarge);
    let unknown = vec!["1"; 10_001];
    check(&unknown, ModelErrorKind::TooLarge);
    check(&[], ModelErrorKind::StreamEnded);
    check(&[start, r#"{"type":"error"}"#], ModelErrorKind::Server);
}

#[test]
fn completions_stream_with_invalid_events_fails() {
    let check = |events: &[String], kind: Option<ModelErrorKind>| {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let (streamed, end) = decode(Wire::Completions, [stream.as_bytes()]);
        laws::check(&streamed, &end).unwrap();
        assert_eq!(end.error.map(|error| error.kind), kind, "{stream:.200}");
    };
    let delta = |delta: &str| format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
    let stop = || r#"{"choices":[{"finish_reason":"stop"}]}"#.to_owned();
    let done = || "[DONE]".to_owned();
    use ModelErrorKind as K;
    check(&["{".into()], Some(K::Malformed));
    check(&[done()], Some(K::StreamEnded));
    check(&[], Some(K::StreamEnded));
    check(&[stop()], None);
    check(&[stop(), done()], None);
    check(&[r#"{"error":"busy","type":"overloaded_error"}"#.into()], Some(K::Overloaded));
    check(&[r#"{"object":"error","message":"no such model","code":404}"#.into()], Some(K::UnknownModel));
    check(&[r#"{"error":{"code":"insufficient_quota","message":"no"}}"#.into()], Some(K::Quota));
    check(&[delta(r#"{"content":"\x"}"#)], Some(K::Malformed));
    let large = "x".repeat(5 << 20);
    for member in ["content", "reasoning"] {
        let piece = delta(&format!(r#"{{"{member}":"{large}"}}"#));
        check(&[piece.clone(), piece], Some(K::TooLarge));
    }
    // What waits for a name or an id counts, too.
    let nameless =
        delta(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{large}"}}}}]}}"#));
    check(&[nameless.clone(), nameless], Some(K::TooLarge));
    let detail = delta(&format!(r#"{{"reasoning_details":[{{"type":"new","data":"{large}"}}]}}"#));
    check(&[detail.clone(), detail], Some(K::TooLarge));
    let call = |n: usize| {
        delta(&format!(r#"{{"tool_calls":[{{"index":{n},"id":"c","function":{{"name":"n"}}}}]}}"#))
    };
    check(&(0..1_000).map(call).chain([stop()]).collect::<Vec<_>>(), None);
    check(&(0..1_001).map(call).collect::<Vec<_>>(), Some(K::TooLarge));
}

#[test]
fn responses_stream_with_invalid_events_fails() {
    let check = |events: &[String], kind: Option<ModelErrorKind>| {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let (streamed, end) = decode(Wire::Responses, [stream.as_bytes()]);
        laws::check(&streamed, &end).unwrap();
        assert_eq!(end.error.map(|error| error.kind), kind, "{stream:.200}");
    };
    let event = |kind: &str, more: &str| format!(r#"{{"type":"response.{kind}","output_index":0{more}}}"#);
    let added = |item: &str| event("output_item.added", &format!(r#","item":{item}"#));
    let delta = |kind: &str, text: &str| event(&format!("{kind}.delta"), &format!(r#","delta":{text}"#));
    let completed = || event("completed", r#","response":{}"#);
    use ModelErrorKind as K;
    check(&["{".into()], Some(K::Malformed));
    check(&["[DONE]".into()], Some(K::StreamEnded));
    check(&[], Some(K::StreamEnded));
    check(&[completed()], None);
    check(&[r#"{"error":{"code":"insufficient_quota","message":"no"}}"#.into()], Some(K::Quota));
    check(
        &[r#"{"type":"error","code":"server_is_overloaded","message":"busy"}"#.into()],
        Some(K::Overloaded),
    );
    let failed = |error: &str| event("failed", &format!(r#","response":{{"error":{error}}}"#));
    check(&[failed(r#"{"code":"server_error","message":"boom"}"#)], Some(K::Server));
    check(&[failed(r#"{"code":"invalid_prompt","message":"no"}"#)], Some(K::InvalidRequest));
    let message = added(r#"{"type":"message"}"#);
    let call = added(r#"{"type":"function_call","call_id":"c","name":"n"}"#);
    let text_call = added(r#"{"type":"custom_tool_call","call_id":"c","name":"n"}"#);
    check(&[message.clone(), message.clone()], Some(K::Malformed));
    check(&[message.clone(), delta("output_text", "1")], Some(K::Malformed));
    check(&[message.clone(), event("output_text.delta", "")], Some(K::Malformed));
    check(&[message.clone(), delta("reasoning_text", r#""a""#)], Some(K::Malformed));
    check(&[delta("function_call_arguments", r#""a""#)], Some(K::Malformed));
    check(&[text_call.clone(), delta("custom_tool_call_input", "1")], Some(K::Malformed));
    let done = event("custom_tool_call_input.done", r#","input":"a""#);
    check(&[text_call.clone(), done.clone(), completed()], None);
    check(&[text_call.clone(), done, delta("custom_tool_call_input", r#""b""#)], Some(K::Malformed));
    let other = event("output_item.done", r#","item":{"type":"reasoning"}"#);
    check(&[message.clone(), other], Some(K::Malformed));
    let large = format!("\"{}\"", "x".repeat(5 << 20));
    for (start, kind) in [
        (&message, "output_text"),
        (&call, "function_call_arguments"),
        (&text_call, "custom_tool_call_input"),
    ] {
        check(&[start.clone(), delta(kind, &large), delta(kind, &large)], Some(K::TooLarge));
    }
    let sealed = |kind: &str| format!(r#"{{"type":"{kind}","encrypted_content":{large}}}"#);
    for kind in ["reasoning", "compaction", "new"] {
        let events: Vec<String> = (0..2)
            .map(|at| {
                let item = sealed(kind);
                format!(r#"{{"type":"response.output_item.done","output_index":{at},"item":{item}}}"#)
            })
            .collect();
        check(&events, Some(K::TooLarge));
    }
    let many =
        |at: usize| format!(r#"{{"type":"response.output_text.delta","output_index":{at},"delta":"a"}}"#);
    check(&(0..10_000).map(many).chain([completed()]).collect::<Vec<_>>(), None);
    check(&(0..10_001).map(many).collect::<Vec<_>>(), Some(K::TooLarge));
}

#[test]
fn contents_stream_with_invalid_events_fails() {
    let check = |events: &[String], kind: Option<ModelErrorKind>| {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let (streamed, end) = decode(Wire::Contents, [stream.as_bytes()]);
        laws::check(&streamed, &end).unwrap();
        assert_eq!(end.error.map(|error| error.kind), kind, "{stream:.200}");
    };
    let parts = |parts: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}}}}]}}"#);
    let ended = |word: &str| format!(r#"{{"candidates":[{{"finishReason":"{word}"}}]}}"#);
    use ModelErrorKind as K;
    check(&["{".into()], Some(K::Malformed));
    check(&["[DONE]".into()], Some(K::Malformed));
    check(&[], Some(K::StreamEnded));
    check(&[ended("")], Some(K::StreamEnded));
    check(&[r#"{"candidates":[]}"#.into()], Some(K::StreamEnded));
    for (word, kind) in [
        ("STOP", None),
        ("MAX_TOKENS", None),
        ("SAFETY", Some(K::Refused)),
        ("RECITATION", Some(K::Refused)),
        ("SPII", Some(K::Refused)),
        ("MALFORMED_FUNCTION_CALL", Some(K::Server)),
        ("OTHER", Some(K::Server)),
        ("MISSING_THOUGHT_SIGNATURE", Some(K::InvalidRequest)),
        ("stop", Some(K::Malformed)),
    ] {
        check(&[parts(r#"{"text":"a"}"#), ended(word)], kind);
    }
    check(
        &[r#"{"error":{"code":400,"message":"Bad.","status":"INVALID_ARGUMENT"}}"#.into()],
        Some(K::InvalidRequest),
    );
    check(&[r#"{"error":{"code":500,"message":"Oops.","status":"INTERNAL"}}"#.into()], Some(K::Server));
    check(&[parts(r#"{"text":"\x"}"#)], Some(K::Malformed));
    let large = "x".repeat(5 << 20);
    for part in [
        format!(r#"{{"text":"{large}"}}"#),
        format!(r#"{{"text":"{large}","thought":true}}"#),
        format!(r#"{{"text":"","thoughtSignature":"{large}"}}"#),
        format!(r#"{{"functionCall":{{"name":"a","args":{{"b":"{large}"}}}}}}"#),
        format!(r#"{{"new":"{large}"}}"#),
    ] {
        check(&[parts(&part), parts(&part)], Some(K::TooLarge));
    }
    let call = |size: usize| parts(&format!(r#"{{"functionCall":{{"name":"{}"}}}}"#, "n".repeat(size)));
    check(&[call(4_096), ended("STOP")], None);
    check(&[call(4_097)], Some(K::TooLarge));
    let many = vec![r#"{"functionCall":{"name":"n"}}"#; 10_001];
    check(&[parts(&many[1..].join(",")), ended("STOP")], None);
    check(&[parts(&many.join(","))], Some(K::TooLarge));
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_splits_mean_the_same(cuts in proptest::collection::vec(0..1_000_usize, 0..20)) {
        for recording in recordings() {
            let bytes = &recording.bytes;
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut * bytes.len() / 1_000).collect();
            places.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for place in places {
                pieces.push(&bytes[from..place]);
                from = place;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(recording.decode(pieces), recording.whole(), "{}", recording.name);
        }
    }

    #[test]
    fn damaged_streams_keep_the_laws(
        damage in proptest::collection::vec((0..1_000_usize, any::<u8>(), 0..3_u8), 1..6)
    ) {
        for recording in recordings() {
            let mut bytes = recording.bytes.clone();
            for &(place, byte, how) in &damage {
                let place = place * bytes.len() / 1_000;
                if bytes.is_empty() {
                    break;
                }
                match how {
                    0 => bytes[place] = byte,
                    1 => bytes.insert(place, byte),
                    _ => drop(bytes.drain(place..(place + usize::from(byte)).min(bytes.len()))),
                }
            }
            let (events, end) = recording.decode([bytes.as_slice()]);
            prop_assert_eq!(laws::check(&events, &end), Ok(()), "{}", recording.name);
        }
    }
}
