//! What an import leaves in the store.

use std::sync::Arc;

use quipu_archive::{ImportCache, ProblemKind, Report, pi};
use quipu_protocol::{Compaction, Entry, Message};
use quipu_store::{ActionQuery, OpenOptions, SqliteStore};
use quipu_transcript::{context, message_of};
use serde_json::json;

use crate::support::{Archive, FIXTURES, SECRET, archive, block_on, entry, fixture, header, lines, user};

#[test]
fn importing_again_adds_nothing() {
    let archive = archive();
    for name in FIXTURES {
        let text = fixture(name);
        let first = archive.import_text("a.jsonl", &text);
        let entries = text.lines().count() as u64 - 1;
        assert_eq!((first.added, first.lost, first.repaired), (entries, 0, 0), "{name}");
        let before = archive.all();
        assert!(archive.import_text("a.jsonl", &text).unchanged);
        let again = archive.import_text("another name.jsonl", &text);
        assert_eq!((again.added, again.present, again.changed), (0, entries, 0), "{name}");
        assert_eq!(archive.all(), before);
    }
    assert_eq!(archive.rows().len(), FIXTURES.len());
}

/// Files that nobody changed for a while are known by what the system says of them.
#[test]
fn unchanged_file_is_noted_with_its_stamp() {
    let corpus =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/__fuzz__/codex_files/corpus");
    let pi = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(FIXTURES[1]);
    for (agent, path) in
        [("codex", corpus.join("tools.jsonl")), ("codex", corpus.join("packed.jsonl.zst")), ("pi", pi)]
    {
        let archive = archive();
        let noted = || {
            let actions = block_on(archive.store.actions(ActionQuery::default())).unwrap();
            actions.into_iter().filter_map(|logged| logged.action.metadata).collect::<Vec<_>>()
        };
        archive.try_take(agent, &path).unwrap();
        let notes = noted();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let mark: serde_json::Value = serde_json::from_str(&notes[0]).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        assert_eq!((&mark["bytes"], &mark["stamp"]["bytes"]), (&json!(size), &json!(size)), "{mark}");
        assert!(archive.try_take(agent, &path).unwrap()[0].unchanged);
        assert_eq!(noted(), notes);
        // A copy has another one, and another size makes it another file.
        let copy = archive.file("rollout-copy.jsonl", std::fs::read(&path).unwrap());
        archive.try_take(agent, &copy).unwrap();
        let mut grown = std::fs::read(&path).unwrap();
        grown.push(b'\n');
        std::fs::write(&copy, grown).unwrap();
        assert!(!archive.try_take(agent, &copy).unwrap()[0].unchanged);
    }
}

#[test]
fn grown_file_adds_only_new_entries() {
    let (grown, whole) = (archive(), archive());
    let text = fixture(FIXTURES[0]);
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let mut added = 0;
    for count in [1, 2, 400, 700, ends.len()] {
        let report = grown.import_text("a.jsonl", &text[..ends[count - 1]]);
        assert_eq!(report.present, added);
        added += report.added;
        assert_eq!(added, count as u64 - 1);
    }
    whole.import_text("a.jsonl", &text);
    assert_eq!(grown.all(), whole.all());
}

/// What was read before is hashed and not read again, as long as it is as it was and the session has nothing else.
#[test]
fn appended_file_is_read_from_its_old_end() {
    let archive = archive();
    let mut text = lines(&[header("s"), user("n0", None, "none"), user("n1", Some("n0"), "first")]);
    text.push_str("{ no JSON }\n");
    assert_eq!(archive.import_text("a.jsonl", &text).lost, 1);
    text.push_str(&lines(&[user("n2", Some("n1"), "second"), user("n3", Some("n0"), "third")]));
    let report = archive.import_text("a.jsonl", &text);
    // The line that holds nothing was not looked at again.
    assert_eq!((report.read, report.present, report.added, report.lost), (4, 2, 2, 0));
    assert_eq!((report.bytes, report.branches), (text.len() as u64, 2));
    text.push_str("not this one either\n");
    text.push_str(&lines(&[user("n5", Some("n4"), "before its parent"), user("n4", Some("n3"), "fourth")]));
    text.push_str("{\"type\":\"custom\",\"id\":\"t\",\"parentId\":\"n5\"");
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!((report.added, report.lost, report.branches), (2, 2, 2));
    let told: Vec<u64> = report.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(told, [7, 10]);
    // It has no end, so what comes next is read from the beginning.
    text.push_str("}\n");
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!((report.read, report.added, report.lost), (7, 1, 2));
    let whole = whole_of(&text);
    assert_eq!(archive.all(), whole.all());
    assert_eq!(archive.export("s"), whole.export("s"));

    // A change before that, as long as what was there, is found.
    let mut edited = text.replace("first", "other");
    edited.push_str(&lines(&[user("n6", Some("n5"), "sixth")]));
    let report = archive.import_text("a.jsonl", &edited);
    assert_eq!((report.changed, report.added, report.lost), (1, 1, 2));
    // So is that another file has more of the session.
    let more = lines(&[header("s"), user("n0", None, "none"), user("x", Some("n0"), "elsewhere")]);
    assert_eq!(archive.import_text("b.jsonl", more).added, 1);
    edited.push_str(&lines(&[user("n7", Some("x"), "on the other file's")]));
    let report = archive.import_text("a.jsonl", &edited);
    assert_eq!((report.changed, report.added, report.lost), (1, 1, 2));
}

fn whole_of(text: &str) -> Archive {
    let whole = archive();
    whole.import_text("a.jsonl", text);
    whole
}

/// Whatever becomes of a file that is followed, it is what an import of its own takes.
#[test]
fn followed_file_is_read_incrementally() {
    let (followed, alone) = (archive(), archive());
    let mut cache = ImportCache::default();
    cache.follow();
    let mut import = |name: &str, text: &str| {
        let path = followed.file(name, text);
        let report = block_on(async {
            cache.catch_up(&*followed.store).await.unwrap();
            let options = pi::ImportOptions { dry_run: false, progress: &|_| {} };
            pi::import(&followed.store, &followed.sealer, &path, &cache, &options).await.unwrap()
        });
        let expect = alone.import_text(name, text);
        let counts =
            |report: &Report| (report.read, report.added, report.present, report.changed, report.branches);
        assert_eq!(counts(&report), counts(&expect), "{report:?} {expect:?}");
        assert_eq!(followed.all(), alone.all());
    };
    let mut text = lines(&[header("s"), user("n0", None, "none"), user("n1", Some("n0"), "first")]);
    import("a.jsonl", &text);
    // Branches, an entry before its parent, one of an id that was there, and lines that are none.
    for more in [
        vec![user("n2", Some("n1"), "second")],
        vec![user("n3", Some("n0"), "third"), user("n5", Some("n4"), "before its parent")],
        vec![user("n4", Some("n3"), "fourth"), user("n2", Some("n4"), "again")],
        vec![user("n6", Some("n2"), "on the last of them"), user("n7", Some("nobody"), "alone")],
    ] {
        text.push_str(&lines(&more));
        text.push_str("no JSON\n");
        import("a.jsonl", &text);
    }
    // A line in two pieces.
    let line = lines(&[user("n8", Some("n6"), "eighth")]);
    for part in [&line[..30], &line[30..]] {
        text.push_str(part);
        import("a.jsonl", &text);
    }
    // Another file of the session, of which it knows nothing.
    import("b.jsonl", &lines(&[header("s"), user("n0", None, "none"), user("x", Some("n0"), "elsewhere")]));
    text.push_str(&lines(&[user("n9", Some("n8"), "ninth"), user("y", Some("x"), "on the other's")]));
    import("a.jsonl", &text);
    // Edited near its end while it grew, then shorter, then longer again.
    let mut edited = text.replace("eighth", "edited");
    edited.push_str(&lines(&[user("n10", Some("n9"), "tenth")]));
    import("a.jsonl", &edited);
    import("a.jsonl", &text[..400]);
    edited.push_str(&lines(&[user("n11", Some("n10"), "eleventh")]));
    import("a.jsonl", &edited);
    // Another session under its name.
    import("a.jsonl", &edited.replace("\"s\"", "\"t\""));
}

#[test]
fn resuming_at_any_line_gives_the_same() {
    for name in &FIXTURES[1..] {
        let text = fixture(name);
        let whole = whole_of(&text);
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        let archive = archive();
        for (count, end) in ends.iter().enumerate() {
            let report = archive.import_text("a.jsonl", &text[..*end]);
            assert_eq!((report.read, report.changed), (count as u64, 0), "{name} {count}");
        }
        assert_eq!(archive.all(), whole.all(), "{name}");
    }
}

#[test]
fn interrupted_import_resumes() {
    let (cut, whole) = (archive(), archive());
    let mut text = lines(&[header("s"), user("n0", None, "0")]);
    for n in 1..5_000 {
        let back = if n % 1_000 == 0 { 7 } else { 1 };
        text.push_str(&format!("{}\n", user(&format!("n{n}"), Some(&format!("n{}", n - back)), "x")));
    }
    let path = cut.file("a.jsonl", &text);
    let stop = tokio::sync::Notify::new();
    let progress = |_: quipu_archive::Progress| stop.notify_one();
    block_on(async {
        let imports = quipu_archive::ImportCache::default();
        let options = pi::ImportOptions { dry_run: false, progress: &progress };
        tokio::select! {
            biased;
            () = stop.notified() => {}
            report = pi::import(&cut.store, &cut.sealer, &path, &imports, &options) => panic!("{report:?}"),
        }
    });
    assert!(cut.head("pi/s").is_none());
    let report = cut.import_text("a.jsonl", &text);
    assert!(report.present >= 400 && report.added >= 1_000, "{report:?}");
    assert_eq!((report.read, report.changed), (5_000, 0));
    whole.import_text("a.jsonl", &text);
    assert_eq!(cut.all(), whole.all());
}

/// So large that its batches are gathered: what was not written yet is read again.
#[test]
fn interrupted_large_import_resumes() {
    let (mut cut, whole) = (archive(), archive());
    cut.store =
        Arc::new(SqliteStore::open(&cut.dir.path().join("quipu.db"), &OpenOptions::default()).unwrap());
    let mut text = lines(&[header("s"), user("n0", None, "0")]);
    let filler = "words ".repeat(100);
    for n in 1..24_000 {
        let back = if n % 1_000 == 0 { 7 } else { 1 };
        text.push_str(&format!("{}\n", user(&format!("n{n}"), Some(&format!("n{}", n - back)), &filler)));
    }
    assert!(text.len() > 16 << 20);
    let path = cut.file("a.jsonl", &text);
    let stop = tokio::sync::Notify::new();
    let progress = |at: quipu_archive::Progress| {
        assert!(at.stored <= at.bytes && at.bytes <= at.total, "{at:?}");
        if at.entries > 20_500 {
            stop.notify_one();
        }
    };
    block_on(async {
        let imports = quipu_archive::ImportCache::default();
        let options = pi::ImportOptions { dry_run: false, progress: &progress };
        tokio::select! {
            biased;
            () = stop.notified() => {}
            report = pi::import(&cut.store, &cut.sealer, &path, &imports, &options) => panic!("{report:?}"),
        }
    });
    assert!(cut.head("pi/s").is_none());
    let report = cut.import(&path);
    assert!(report.present >= 14_000 && report.added >= 1, "{report:?}");
    assert_eq!((report.read, report.changed), (24_000, 0));
    assert!(cut.import(&path).unchanged);
    whole.import_text("a.jsonl", &text);
    assert_eq!(cut.all(), whole.all());
    let row = cut.row("s");
    assert_eq!((row.entries, row.head), (24_000, report.head));
}

#[test]
fn the_order_of_imports_does_not_matter() {
    let base = [header("s"), user("a", None, "1"), user("b", Some("a"), "2")];
    let one = lines(&[&base[..], &[user("c", Some("b"), "3"), user("d", Some("c"), "4")]].concat());
    let two = lines(&[&base[..], &[user("e", Some("a"), "5")]].concat());
    let base = lines(&base);
    let all = [[&one, &two, &base], [&two, &base, &one], [&base, &one, &two]].map(|order| {
        let archive = archive();
        for (at, text) in order.iter().enumerate() {
            archive.import_text(&format!("{at}.jsonl"), text);
        }
        archive.all()
    });
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
    assert_eq!(all[0].0.len(), 3, "the session and two ends");
}

#[test]
fn a_session_at_a_glance() {
    let archive = archive();
    let report = archive.import_text("a.jsonl", fixture(FIXTURES[3]));
    let row = archive.row("01a1f82f-0e12-725c-b6a2-648c8cfe0ab4");
    assert_eq!(
        (row.agent.as_str(), row.cwd.as_str(), row.title.as_str()),
        ("pi", "/home/user/proj", "hello there")
    );
    assert_eq!(row.parent.unwrap().as_str(), "01a1f82f-08c0-725c-b6a2-648bcb2a6533");
    assert_eq!(row.head, report.head);
    assert_eq!((row.entries, row.created), (6, 1_795_165_195_794));
    // The source's ids and times.
    let nodes = block_on(archive.store.nodes(&[row.head.unwrap()])).unwrap();
    let record = &nodes[0].as_ref().unwrap().record;
    assert_eq!(record.external_id.as_deref(), Some("0dd538b8"));
    assert_eq!(record.timestamp, 1_795_165_195_792);
}

#[test]
fn the_context_of_a_real_session() {
    let archive = archive();
    let report = archive.import_text("a.jsonl", fixture(FIXTURES[0]));
    let lineage = archive.lineage(report.session.as_str());
    assert_eq!(lineage.len(), 1_003);
    let mut counts = [0; 5];
    for at in context(&lineage) {
        let Some(message) = message_of(&lineage[at].1) else { continue };
        counts[match &*message {
            Message::CompactionSummary(_) => 0,
            Message::User(_) => 1,
            Message::Assistant(_) => 2,
            Message::ToolResult(_) => 3,
            Message::BashExecution(_) => 4,
            other => panic!("{other:?}"),
        }] += 1;
    }
    assert_eq!(counts, [1, 31, 219, 192, 3]);
}

#[test]
fn a_compaction_names_the_node_that_it_keeps() {
    let archive = archive();
    let compaction = json!({
        "type": "compaction", "summary": "before", "firstKeptEntryId": "b", "tokensBefore": 12_345,
        "details": { "readFiles": ["x"] }, "fromHook": true, "more": 1,
    });
    let entries = [user("a", None, "1"), user("b", Some("a"), "2"), entry("k", Some("b"), &compaction)];
    archive.import_text("a.jsonl", lines(&[&[header("s")], &entries[..]].concat()));
    let lineage = archive.lineage("s");
    let Entry::Compaction(Compaction { summary, first_kept, tokens_before, from_hook, .. }) = &lineage[3].1
    else {
        panic!("{:?}", lineage[3]);
    };
    assert_eq!((summary.as_str(), *tokens_before, *from_hook), ("before", 12_345, Some(true)));
    assert_eq!(*first_kept, Some(lineage[2].0));
    assert_eq!(context(&lineage), [3, 2]);
}

#[test]
fn every_branch_has_a_ref() {
    let archive = archive();
    let text = lines(&[
        header("s"),
        user("a", None, "1"),
        user("b", Some("a"), "2"),
        user("c", Some("a"), "3"),
        user("d", None, "4"),
        user("e", Some("c"), "5"),
    ]);
    let report = archive.import_text("a.jsonl", text);
    assert_eq!(report.branches, 3);
    let (refs, nodes) = archive.all();
    assert_eq!((refs.len(), nodes.len()), (4, 6));
    let head = report.head.unwrap();
    assert_eq!(archive.head("pi/s"), Some(head));
    assert_eq!(archive.head(&format!("pi/s/{head}")), Some(head));
}

#[test]
fn secrets_are_sealed() {
    let archive = archive();
    let thinking = json!({
        "role": "assistant", "api": "x", "provider": "y", "model": "z", "stopReason": "stop", "timestamp": 1,
        "content": [
            { "type": "thinking", "thinking": format!("it is {SECRET}"), "thinkingSignature": "signed" },
            { "type": "thinking", "thinking": "or not", "thinkingSignature": "signed too" },
        ],
        "usage": {},
    });
    let entries = [
        header("s"),
        user("a", None, &format!("password: {SECRET}")),
        entry("b", Some("a"), &json!({ "type": "message", "message": thinking })),
        entry("c", Some("b"), &json!({ "type": "label", "targetId": "a", "label": SECRET })),
        user("d", Some("c"), "nothing"),
    ];
    let report = archive.import_text("a.jsonl", lines(&entries));
    assert_eq!((report.added, report.sealed), (4, 3));
    assert!(!archive.export("s").contains(SECRET));
    let Entry::Message(Message::Assistant(answer)) = &archive.lineage("s")[2].1 else { panic!() };
    let text = serde_json::to_string(&answer.content).unwrap();
    // No model would take a signature of other words.
    assert!(!text.contains("\"signed\"") && text.contains("\"signed too\""), "{text}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let archive = archive();
    let path = archive.file("a.jsonl", fixture(FIXTURES[1]));
    let report = block_on(async {
        let options = pi::ImportOptions { dry_run: true, progress: &|_| {} };
        let imports = quipu_archive::ImportCache::default();
        pi::import(&archive.store, &archive.sealer, &path, &imports, &options).await.unwrap()
    });
    assert_eq!((report.added, report.head), (10, None));
    assert_eq!(archive.all(), (Vec::new(), Vec::new()));
}

#[test]
fn a_session_that_was_rewritten_is_the_same_session() {
    let archive = archive();
    let text = lines(&[header("s"), user("a", None, "1"), user("b", Some("a"), "2")]);
    archive.import_text("a.jsonl", &text);
    let head = archive.head("pi/s");
    // Shorter than before, as after a crash of another program.
    let report = archive.import_text("a.jsonl", lines(&[header("s"), user("a", None, "1")]));
    assert_eq!((report.added, report.present), (0, 1));
    assert_eq!(report.problems, []);
    assert_eq!(archive.head("pi/s"), head);
    assert!(!report.problems.iter().any(|problem| problem.kind == ProblemKind::Changed));
}
