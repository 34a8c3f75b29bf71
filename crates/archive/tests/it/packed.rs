//! Rollouts that are packed: the same session, the same ids, and what may be wrong with what is packed.

use quipu_archive::{Agent, ProblemKind, Report};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use crate::support::{archive, lines};

const AGENT: &str = "codex";

fn record(ordinal: u64, kind: &str, payload: &Value) -> Value {
    json!({ "timestamp": format!("2026-01-02T03:{:02}:{:02}.000Z", ordinal / 60 % 60, ordinal % 60),
        "ordinal": ordinal, "type": kind, "payload": payload })
}

fn head(ordinal: u64, id: &str, parent: Option<&str>) -> Value {
    let mut payload = json!({ "id": id, "timestamp": "2026-01-02T03:00:00.000Z", "cwd": "/p" });
    if let Some(parent) = parent {
        payload["forked_from_id"] = json!(parent);
        payload["forked_from_ordinal_exclusive"] = json!(ordinal);
    }
    record(ordinal, "session_meta", &payload)
}

fn prompt(ordinal: u64, text: &str) -> Value {
    let payload = json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }],
        "internal_chat_message_metadata_passthrough": { "content_item_kinds": ["user.text"] } });
    record(ordinal, "response_item", &payload)
}

/// A session of many prompts, of about 500 KB.
fn long(id: &str) -> String {
    let text =
        |n: u64| (0..100).map(|m| (n * 101 + m).wrapping_mul(2_654_435_761).to_string()).collect::<Vec<_>>();
    let prompts = (1..500).map(|n| prompt(n, &text(n).join(" ")));
    lines(&std::iter::once(head(0, id, None)).chain(prompts).collect::<Vec<_>>())
}

fn packed(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

fn name(id: &str, end: &str) -> String {
    format!("sessions/2026/01/02/rollout-2026-01-02T03-00-00-{id}.{end}")
}

fn kinds(report: &Report) -> Vec<ProblemKind> {
    report.problems.iter().map(|problem| problem.kind).collect()
}

#[test]
fn a_packed_rollout_is_the_session_that_it_was() {
    // By the program that made the format.
    let fixture = include_bytes!("../fixtures/codex/rollout-2026-01-02T03-04-00-s.jsonl.zst");
    let text = include_str!("__fuzz__/codex_files/corpus/tools.jsonl");
    let (plain, archive) = (archive(), archive());
    plain.take(AGENT, &name("s", "jsonl"), text);
    let report = archive.take(AGENT, &name("s", "jsonl.zst"), fixture);
    assert!(report.added > 5 && report.lost == 0 && report.bytes == text.len() as u64, "{report:?}");
    assert_eq!(archive.all(), plain.all());
    // As it lies there it is known again, and so is what it was packed from.
    assert!(archive.take(AGENT, &name("s", "jsonl.zst"), fixture).unchanged);
    let again = archive.take(AGENT, &name("s", "jsonl"), text);
    assert_eq!((again.added, again.changed, again.read), (0, 0, report.read), "{again:?}");
    let again = archive.take(AGENT, &name("s", "jsonl.zst"), fixture);
    assert!(again.unchanged && archive.all() == plain.all(), "{again:?}");
    // And the other way round, and by any name.
    let again = plain.take(AGENT, "copy", fixture);
    assert_eq!((again.added, again.changed), (0, 0), "{again:?}");
}

#[test]
fn long_rollouts_are_read_in_one_way_packed_or_not() {
    let text = long("l");
    let (plain, archive) = (archive(), archive());
    plain.take(AGENT, &name("l", "jsonl"), &text);
    // In frames, as who appends to such a file leaves them.
    let (first, rest) = text.split_at(text.len() / 3);
    let report = archive.take(AGENT, &name("l", "jsonl.zst"), [packed(first), packed(rest)].concat());
    assert_eq!((report.lost, report.bytes), (0, text.len() as u64), "{report:?}");
    assert_eq!(archive.all(), plain.all());
}

#[test]
fn a_torn_end_is_read_up_to_it_and_told() {
    let text = long("t");
    let bytes = packed(&text);
    let archive = archive();
    let torn = archive.take(AGENT, &name("t", "jsonl.zst"), &bytes[..bytes.len() - 100]);
    assert_eq!(kinds(&torn), [ProblemKind::Damaged], "{torn:?}");
    assert_eq!(torn.problems[0].detail, "it ends too early");
    assert_eq!((torn.lost, torn.problems[0].line), (1, torn.read + 2), "{torn:?}");
    assert!(torn.added > 300 && torn.head.is_some(), "{torn:?}");
    // Nothing says that it is known: the same is told again, and once it is whole, the rest comes.
    let again = archive.take(AGENT, &name("t", "jsonl.zst"), &bytes[..bytes.len() - 100]);
    assert_eq!((again.unchanged, again.added, kinds(&again)), (false, 0, kinds(&torn)));
    let whole = archive.take(AGENT, &name("t", "jsonl.zst"), &bytes);
    assert_eq!(
        (whole.added, whole.present, whole.lost),
        (whole.read - torn.added, torn.added, 0),
        "{whole:?}"
    );
    assert!(archive.take(AGENT, &name("t", "jsonl.zst"), &bytes).unchanged);
    // Of one whose first block is torn there is nothing to be read.
    let error = archive.try_take(AGENT, &archive.file("none.jsonl.zst", &bytes[..40])).unwrap_err();
    assert!(error.to_string().contains("it ends too early"), "{error}");
}

#[test]
fn bombs_and_damage_end_a_file_early() {
    // A prompt, and then 500 MB of blanks in 16 KB.
    let archive = archive();
    let mut bytes = packed(&lines(&[head(0, "b", None), prompt(1, "hi")]));
    bytes.extend([0x28, 0xb5, 0x2f, 0xfd, 0, 0x58]);
    for _ in 0..4_000 {
        bytes.extend([0b010, 0, 0b1_0000, b' ']);
    }
    bytes.extend([1, 0, 0]);
    let report = archive.take(AGENT, "bomb.jsonl.zst", &bytes);
    assert_eq!((report.added, kinds(&report)), (1, vec![ProblemKind::Damaged]), "{report:?}");
    assert!(report.problems[0].detail.contains("compression ratio is above 200"), "{report:?}");
    let mut bytes = packed(&long("d"));
    let end = bytes.len() - 2;
    bytes[end] ^= 1;
    let report = archive.take(AGENT, "damaged.jsonl.zst", &bytes);
    assert_eq!((report.added, kinds(&report)), (499, vec![ProblemKind::Damaged]), "{report:?}");
    assert!(report.problems[0].detail.contains("checksum"), "{report:?}");
}

#[test]
fn packed_rollouts_are_found_and_hung_on() {
    let archive = archive();
    let agent = Agent::named(AGENT).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = archive.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        archive.file(name, bytes)
    };
    let parent = put(&name("p", "jsonl.zst"), &packed(&lines(&[head(0, "p", None), prompt(1, "hi")])));
    let fork = put(&name("f", "jsonl"), lines(&[head(2, "f", Some("p")), prompt(3, "on")]).as_bytes());
    put("sessions/2026/01/02/rollout-x.tar.zst", &packed("{}"));
    put("sessions/2026/01/02/notes.jsonl.zst", &packed("{}"));
    let files = agent.files(&archive.dir.path().join("sessions")).unwrap().files;
    assert_eq!(files, [fork.clone(), parent.clone()]);
    assert_eq!(agent.look(&parent).unwrap()[0].project.as_deref(), Some("/p"));
    // The fork is asked for, and what it was forked from comes first.
    let reports = archive.try_take(AGENT, &fork).unwrap();
    let paths: Vec<_> = reports.iter().map(|report| &report.path).collect();
    assert_eq!(paths, [&parent, &fork]);
    assert_eq!(archive.messages("f").len(), 2, "{reports:?}");
}
