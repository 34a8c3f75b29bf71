//! Random files: what is imported is exported, entry by entry, and importing again adds nothing.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use quipu_archive::ProblemKind;
use serde_json::{Map, Value, json};

use crate::support::{archive, assert_exports, header, lines};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z ]{0,12}",
        1 => any::<String>(),
        1 => Just("\u{2028}\"\\\n\u{0}😀".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(|n| json!(n)),
        any::<u32>().prop_map(|n| json!(f64::from(n) / 7.0)),
        Just(json!(0)),
        Just(json!(1e21)),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((text(), inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Members that nobody expects.
fn more() -> impl Strategy<Value = Vec<(String, Value)>> {
    prop_oneof![4 => Just(Vec::new()), 1 => vec(("[a-zA-Z_]{1,10}", any_json()), 1..3)]
}

fn with((mut value, more): (Value, Vec<(String, Value)>)) -> Value {
    if let Value::Object(members) = &mut value {
        members.extend(more);
    }
    value
}

fn block() -> impl Strategy<Value = Value> {
    let known = prop_oneof![
        text().prop_map(|text| json!({ "type": "text", "text": text })),
        (text(), text())
            .prop_map(|(text, sign)| json!({ "type": "text", "text": text, "textSignature": sign })),
        (text(), any::<bool>()).prop_map(
            |(text, redacted)| json!({ "type": "thinking", "thinking": text, "redacted": redacted })
        ),
        (text(), text(), any_json()).prop_map(
            |(id, name, args)| json!({ "type": "toolCall", "id": id, "name": name, "arguments": args })
        ),
        "[A-Za-z0-9+/]{0,8}"
            .prop_map(|data| json!({ "type": "image", "data": data, "mimeType": "image/png" })),
        any_json(),
    ];
    (known, more()).prop_map(with)
}

fn message() -> impl Strategy<Value = Value> {
    let content =
        || prop_oneof![vec(block(), 0..4).prop_map(Value::from), text().prop_map(Value::from), any_json()];
    let message = prop_oneof![
        content().prop_map(|content| json!({ "role": "user", "content": content, "timestamp": 5 })),
        (content(), number(), any_json()).prop_map(|(content, number, usage)| json!({
            "role": "assistant", "content": content, "api": "a", "provider": "p", "model": "m", "usage": usage,
            "stopReason": "toolUse", "timestamp": number,
        })),
        content().prop_map(|content| json!({
            "role": "assistant", "content": content, "api": "a", "provider": "p", "model": "m",
            "usage": { "input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10,
                "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.25 } },
            "stopReason": "stop", "timestamp": 5,
        })),
        (content(), any_json()).prop_map(|(content, details)| json!({
            "role": "toolResult", "toolCallId": "c", "toolName": "n", "content": content, "details": details,
            "isError": true, "timestamp": 5,
        })),
        text().prop_map(|text| json!({ "role": "bashExecution", "command": text, "output": text, "exitCode": 1,
            "cancelled": false, "truncated": false, "timestamp": 5 })),
        content().prop_map(|content| json!({ "role": "custom", "customType": "t", "content": content,
            "display": true, "timestamp": 5 })),
        any_json(),
    ];
    (message, more()).prop_map(with)
}

/// What an entry is, beside its place in the tree.
fn draft() -> impl Strategy<Value = Value> {
    let entry = prop_oneof![
        8 => message().prop_map(|message| json!({ "type": "message", "message": message })),
        1 => text().prop_map(|name| json!({ "type": "session_info", "name": name })),
        1 => (text(), text()).prop_map(|(id, label)| json!({ "type": "label", "targetId": id, "label": label })),
        1 => Just(json!({ "type": "model_change", "provider": "p", "modelId": "m" })),
        2 => (text(), any_json(), number(), 0..30).prop_map(|(summary, details, tokens, kept)| json!({
            "type": "compaction", "summary": summary, "details": details, "tokensBefore": tokens,
            "firstKeptEntryId": format!("e{kept}"), "firstKeptEntryIndex": kept, "fromHook": true })),
        1 => any_json().prop_map(|data| json!({ "type": "custom", "customType": "c", "data": data })),
        1 => vec(("[a-z]{1,5}", any_json()), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
    ];
    (entry, more()).prop_map(with)
}

/// Where an entry says that it hangs.
#[derive(Debug, Clone)]
enum ParentClaim {
    Last,
    Any(Index),
    Nothing,
    Nowhere,
    Silent,
}

fn hangs() -> impl Strategy<Value = ParentClaim> {
    prop_oneof![
        6 => Just(ParentClaim::Last),
        3 => any::<Index>().prop_map(ParentClaim::Any),
        1 => Just(ParentClaim::Nothing),
        1 => Just(ParentClaim::Nowhere),
        1 => Just(ParentClaim::Silent),
    ]
}

fn iso(ms: i64) -> Value {
    json!(format!("{:.3}", jiff::Timestamp::from_millisecond(ms).unwrap()))
}

fn file() -> impl Strategy<Value = Vec<Value>> {
    let times = prop_oneof![4 => (0_i64..2_000_000_000_000).prop_map(iso), 1 => any_json()];
    let twice = prop_oneof![9 => Just(false), 1 => Just(true)];
    (vec((draft(), hangs(), times, twice), 0..24), 1..4_u64, more()).prop_map(|(drafts, version, extra)| {
        let mut first = with((header("s"), extra));
        first["id"] = json!("s");
        first["type"] = json!("session");
        first["version"] = json!(version);
        if version == 1 {
            first.as_object_mut().unwrap().shift_remove("version");
        }
        let count = drafts.len();
        let mut entries = vec![first];
        for (at, (draft, hangs, time, twice)) in drafts.into_iter().enumerate() {
            let Value::Object(mut draft) = draft else { unreachable!() };
            for name in ["id", "parentId", "timestamp"] {
                draft.shift_remove(name);
            }
            let mut members = Map::new();
            if version > 1 {
                let id = if twice { at / 2 } else { at };
                members.insert("id".into(), json!(format!("e{id}")));
                let parent = match hangs {
                    ParentClaim::Last if at == 0 => Some(Value::Null),
                    ParentClaim::Last => Some(json!(format!("e{}", at - 1))),
                    ParentClaim::Any(index) => Some(json!(format!("e{}", index.index(count)))),
                    ParentClaim::Nothing => Some(Value::Null),
                    ParentClaim::Nowhere => Some(json!("nowhere")),
                    ParentClaim::Silent => None,
                };
                members.extend(parent.map(|parent| ("parentId".to_owned(), parent)));
            }
            members.insert("timestamp".into(), time);
            members.extend(draft);
            entries.push(Value::Object(members));
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn imported_file_is_exported_again(entries in file(), cut in any::<Index>()) {
        let text = lines(&entries);
        let whole = archive();
        let report = whole.import_text("a.jsonl", &text);
        prop_assert_eq!((report.added, report.lost), (entries.len() as u64 - 1, 0));
        let export = whole.export("s");
        assert_exports(&export, &text);

        let before = whole.all();
        let again = whole.import_text("b.jsonl", &text);
        let mended = |report: &quipu_archive::Report, kind| report.problems.iter().any(|one| one.kind == kind);
        let twins = mended(&report, ProblemKind::DuplicateId);
        prop_assert_eq!((again.added, again.changed), (0, 0));
        prop_assert_eq!(&whole.all(), &before);

        // In two pieces all entries are there as well; where one came before its parent, it may hang elsewhere. A circle
        // is cut at the end of what was read, so what its entries refer to depends on how much that was.
        let grown = archive();
        let end = lines(&entries[..1 + cut.index(entries.len())]).len();
        let first = grown.import_text("a.jsonl", &text[..end]);
        let second = grown.import_text("a.jsonl", &text);
        if !twins {
            prop_assert_eq!((first.added + second.added, second.changed), (report.added, 0));
        }
        let [orphans, circles] = [ProblemKind::Orphan, ProblemKind::Cycle].map(|kind| mended(&first, kind));
        if !orphans && !circles && !twins {
            prop_assert_eq!(grown.all(), before);
        }
    }
}
