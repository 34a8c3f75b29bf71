//! Files that are not what they should be: what fits is kept, and the rest is counted.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use quipu_archive::{ArchiveError, ProblemKind, Report, pi};
use quipu_store::Until;
use serde_json::{Value, json};

use crate::support::{Archive, archive, assert_exports, block_on, entry, exported, header, lines, user};

/// The kinds of all problems, with their lines.
fn problems(report: &Report) -> Vec<(u64, ProblemKind)> {
    report.problems.iter().map(|problem| (problem.line, problem.kind)).collect()
}

#[test]
fn malformed_lines_are_counted() {
    use ProblemKind::{Encoding, Malformed, NotAnEntry, Torn};
    let archive = archive();
    let mut text = b"not json\n\n".to_vec();
    text.extend(lines(&[header("s"), user("a", None, "1")]).into_bytes());
    text.extend(b"{\"type\":\n5\nnull\n[]\n   \n");
    let mut bad = user("b", Some("a"), "X").to_string().into_bytes();
    let at = bad.iter().position(|byte| *byte == b'X').unwrap();
    bad[at] = 0xff;
    text.extend(bad);
    text.extend(b"\r\n");
    let torn = text.len();
    let last = user("c", Some("b"), "3").to_string();
    text.extend(&last.as_bytes()[..40]);
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!(
        problems(&report),
        [
            (1, Malformed),
            (5, Malformed),
            (6, NotAnEntry),
            (7, NotAnEntry),
            (8, NotAnEntry),
            (10, Encoding),
            (11, Torn)
        ]
    );
    assert_eq!((report.read, report.added, report.lost, report.repaired), (2, 2, 6, 1));
    assert!(archive.export("s").contains('\u{fffd}'));
    // The line comes to its end, and is read.
    text.truncate(torn);
    text.extend(last.as_bytes());
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!((report.added, report.present), (1, 2));
    assert_eq!(exported(&archive.export("s"), false).len(), 4);
}

#[test]
fn trees_that_are_none_are_mended_and_kept() {
    use ProblemKind::{Cycle, DuplicateId, NoId, NoTime, Orphan, SecondHeader};
    let archive = archive();
    let mut nameless = user("x", Some("a"), "no id");
    nameless.as_object_mut().unwrap().shift_remove("id");
    let mut silent = user("q", None, "no parent");
    silent.as_object_mut().unwrap().shift_remove("parentId");
    let mut timeless = user("t", Some("a"), "no time");
    timeless["timestamp"] = json!("yesterday");
    let text = lines(&[
        header("s"),
        user("a", None, "1"),
        user("child", Some("later"), "before its parent"),
        user("grandchild", Some("child"), "and so on"),
        user("later", Some("a"), "2"),
        user("orphan", Some("nowhere"), "3"),
        user("x", Some("z"), "a circle"),
        user("y", Some("x"), "of"),
        user("z", Some("y"), "three"),
        user("self", Some("self"), "4"),
        user("a", Some("a"), "itself again"),
        user("a", Some("later"), "twice"),
        user("after", Some("a"), "follows the last"),
        nameless,
        silent,
        timeless,
        header("second"),
        user("end", Some("second"), "a header is no parent"),
    ]);
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!(
        problems(&report),
        [
            (10, Cycle),
            (11, Cycle),
            (11, DuplicateId),
            (12, DuplicateId),
            (14, NoId),
            (15, Orphan),
            (16, NoTime),
            (17, SecondHeader),
            (6, Orphan),
            (18, Orphan),
            (7, Cycle),
        ]
    );
    assert_eq!((report.added, report.lost, report.repaired), (17, 0, 11));
    assert_exports(&archive.export("s"), &text);
    let before = archive.all();
    let again = archive.import_text("b.jsonl", &text);
    assert_eq!((again.added, again.present, again.changed), (0, 17, 0));
    assert_eq!(archive.all(), before);
    let lineage = block_on(archive.store.lineage(again.head.unwrap(), Until::Root)).unwrap();
    assert_eq!(lineage.len(), 2, "the last entry begins a branch");
}

#[test]
fn an_entry_that_was_changed_stays_as_it_was() {
    let archive = archive();
    let file = |text: &str| [header("s"), user("a", None, text), user("b", Some("a"), "2")];
    archive.import_text("a.jsonl", lines(&file("1")));
    let changed = lines(&[&file("other")[..], &[user("c", Some("b"), "3")]].concat());
    let report = archive.import_text("a.jsonl", changed);
    assert_eq!((report.added, report.present, report.changed), (1, 1, 1));
    assert_eq!(problems(&report), [(2, ProblemKind::Changed)]);
    assert!(!archive.export("s").contains("other"));
}

#[test]
fn files_that_hold_no_session() {
    let archive = archive();
    for (content, expect) in [
        ("", "it is empty"),
        ("\n \n", "it is empty"),
        ("hello\n", "it contains no JSON"),
        ("{}\n", "its first line is not a header"),
        ("{\"type\":\"message\",\"id\":\"a\"}\n", "its first line is not a header"),
        ("{\"type\":\"session\",\"id\":5}\n", "its first line is not a header"),
        ("[\"session\"]", "its first line is not a header"),
    ] {
        let error = archive.try_import(&archive.file("a.jsonl", content)).unwrap_err();
        assert!(error.to_string().contains(expect), "{content:?}: {error}");
    }
    let missing = archive.try_import(&archive.dir.path().join("none.jsonl")).unwrap_err();
    assert!(matches!(missing, ArchiveError::File { .. }));
    // Whoever waits for a pipe waits for ever.
    let pipe = archive.dir.path().join("pipe.jsonl");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [&pipe, archive.dir.path(), Path::new("/dev/null")] {
        let error = archive.try_import(path).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
    let socket = archive.dir.path().join("socket.jsonl");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(archive.try_import(&socket).unwrap_err(), ArchiveError::File { .. }));
    assert_eq!(archive.all(), (Vec::new(), Vec::new()));
}

#[test]
fn halves_of_surrogate_pairs_are_kept() {
    let archive = archive();
    let line = |id: &str, rest: &str| {
        format!(
            "{{\"type\":\"message\",\"id\":{id},\"parentId\":null,\"timestamp\":\"2026-01-02T03:04:06.000Z\",{rest}}}\n"
        )
    };
    let say = |text: &str| {
        format!(
            "\"message\":{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"timestamp\":5}}"
        )
    };
    let text = [
        format!("{}\n", header("s")),
        line("\"a\"", &say("half \\ud800 of it")),
        line("\"b\"", &format!("{},\"\\udc00\":1", say("x"))),
        line("\"\\ud83d\"", &say("y")),
        line("\"c\"", "\"message\":{\"role\":\"\\ud800\"}"),
    ]
    .concat();
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!((report.added, report.lost), (4, 0), "{report:?}");
    let export = archive.export("s");
    for half in ["half \\ud800 of it", "\"\\udc00\":1", "\"\\ud83d\"", "{\"role\":\"\\ud800\"}"] {
        assert!(export.contains(half), "{half}: {export}");
    }
    assert_eq!(archive.import_text("b.jsonl", &text).present, 4);
    assert_eq!(archive.import_text("c.jsonl", &export).present, 4);
}

#[test]
fn long_lines() {
    let archive = archive();
    let long = "x".repeat(8 << 20);
    let text = lines(&[header("s"), user("a", None, &long)]);
    let path = archive.file("a.jsonl", &text);
    // Longer than the limit: a hole, which nobody has to hold in memory. What comes behind it is read.
    let mut file = std::fs::File::options().write(true).open(&path).unwrap();
    let end = text.len() as u64 + pi::LINE_LIMIT as u64 + 1;
    file.set_len(end).unwrap();
    file.seek(SeekFrom::Start(end)).unwrap();
    file.write_all(format!("\n{}\n", user("b", Some("a"), "2")).as_bytes()).unwrap();
    let report = archive.import(&path);
    assert_eq!((report.added, report.lost), (2, 1));
    assert_eq!(problems(&report), [(3, ProblemKind::TooLong)]);
    assert_exports(&archive.export("s"), &(text + &user("b", Some("a"), "2").to_string()));
}

/// A file of many entries, and what `meanwhile` makes of it once the first of them are stored.
fn while_it_is_read(
    archive: &Archive,
    text: &str,
    meanwhile: impl Fn(&Path) + Sync,
) -> Result<Report, ArchiveError> {
    let path = archive.file("a.jsonl", text);
    let once = std::sync::Once::new();
    let progress = |_| once.call_once(|| meanwhile(&path));
    block_on(async {
        let imports = quipu_archive::Seen::default();
        let options = pi::ImportOptions { dry_run: false, progress: &progress };
        pi::import(&archive.store, &archive.sealer, &path, &imports, &options).await
    })
}

#[test]
fn files_that_change_while_they_are_read() {
    let mut text = lines(&[header("s"), user("n0", None, "0")]);
    for n in 1..12_000 {
        text.push_str(&format!(
            "{}\n",
            user(&format!("n{n}"), Some(&format!("n{}", n - 1)), &"x".repeat(400))
        ));
    }
    let changed =
        |result: Result<Report, ArchiveError>| assert!(matches!(result, Err(ArchiveError::Changed { .. })));
    let expect = archive();
    expect.import_text("a.jsonl", &text);

    let archive_of = |meanwhile: &(dyn Fn(&Path) + Sync)| {
        let archive = archive();
        let result = while_it_is_read(&archive, &text, meanwhile);
        (archive, result)
    };
    // Shorter: what was read is kept, the rest comes when the file is whole again.
    let (cut, result) =
        archive_of(&|path| std::fs::File::options().write(true).open(path).unwrap().set_len(1_000).unwrap());
    changed(result);
    // Written anew in place.
    let (anew, result) = archive_of(&|path| std::fs::write(path, text.replace("xxx", "yyy")).unwrap());
    changed(result);
    for archive in [cut, anew] {
        assert_eq!(archive.head("pi/s"), None);
        let report = archive.import_text("a.jsonl", &text);
        assert!(report.present >= 2_000 && report.read == 12_000, "{report:?}");
    }
    // Grown, or another file under its name: what was opened is read.
    let grow = |path: &Path| {
        let mut file = std::fs::File::options().append(true).open(path).unwrap();
        file.write_all(format!("{}\n", user("more", Some("n11999"), "m")).as_bytes()).unwrap();
    };
    let (grown, result) = archive_of(&grow);
    let report = result.unwrap();
    assert!(report.added == 12_000 || report.added == 12_001, "{report:?}");
    let path = grown.dir.path().join("a.jsonl");
    assert_eq!(grown.import(&path).read.max(report.added), 12_001);
    let (replaced, result) = archive_of(&|path| {
        let other = path.with_extension("new");
        std::fs::write(&other, lines(&[header("t"), user("a", None, "1")])).unwrap();
        std::fs::rename(other, path).unwrap();
    });
    assert_eq!(result.unwrap().added, 12_000);
    assert_eq!(replaced.all(), expect.all());
    let path = replaced.dir.path().join("a.jsonl");
    assert_eq!(replaced.import(&path).session.as_str(), "t");
}

#[test]
fn names_that_no_session_may_have_become_others() {
    let archive = archive();
    for id in ["", "a/b", "../..", "ü", &"x".repeat(200)] {
        let text = lines(&[header(id), user("a", None, "1")]);
        let report = archive.import_text("a.jsonl", &text);
        assert_eq!(report.session.as_str().len(), 32);
        assert_exports(&archive.export(report.session.as_str()), &text);
    }
    let long = "i".repeat(5_000);
    let text = lines(&[header("s"), user(&long, None, "1"), user("b", Some(&long), "2")]);
    archive.import_text("a.jsonl", &text);
    assert_exports(&archive.export("s"), &text);
}

#[test]
fn deep_values_are_kept() {
    let archive = archive();
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let base = "\"id\":\"ID\",\"parentId\":null,\"timestamp\":\"2026-01-02T03:04:06.000Z\"";
    let text = format!(
        "{}\n{{\"type\":\"custom\",{},\"data\":{deep}}}\n{{\"type\":\"message\",{},\"message\":{{\"role\":\"toolResult\",\
         \"toolCallId\":\"c\",\"toolName\":\"n\",\"content\":[],\"isError\":false,\"timestamp\":1,\"details\":{deep}}}}}\n",
        header("s"),
        base.replace("ID", "a"),
        base.replace("ID", "b"),
    );
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!((report.added, report.lost), (2, 0));
    assert_eq!(archive.export("s").matches(&deep).count(), 2);
}

#[test]
fn thousands_of_branches_from_one_entry() {
    let archive = archive();
    let mut text = lines(&[header("w"), user("a", None, "1")]);
    for n in 0..5_000 {
        text.push_str(&format!("{}\n", user(&format!("n{n}"), Some("a"), "x")));
    }
    let report = archive.import_text("w.jsonl", &text);
    assert_eq!((report.added, report.branches), (5_001, 5_000));
    assert_exports(&archive.export("w"), &text);
    assert_eq!(archive.import_text("v.jsonl", &text).present, 5_001);
}

#[test]
fn entries_that_all_wait_for_the_last() {
    let archive = archive();
    let mut chain: Vec<Value> = vec![header("c")];
    chain.extend((0..5_000).map(|n| user(&format!("n{n}"), Some(&format!("n{}", n + 1)), "x")));
    chain.push(user("n5000", None, "x"));
    let text = lines(&chain);
    let report = archive.import_text("c.jsonl", &text);
    assert_eq!((report.added, report.branches, report.repaired), (5_001, 1, 0));
    assert_exports(&archive.export("c"), &text);
}

#[test]
fn compactions_that_point_nowhere() {
    let archive = archive();
    let compaction = |id: &str, parent: &str, kept: Value| {
        let rest =
            json!({ "type": "compaction", "summary": "s", "firstKeptEntryId": kept, "tokensBefore": -1 });
        entry(id, Some(parent), &rest)
    };
    let text = lines(&[
        header("s"),
        user("a", None, "1"),
        compaction("b", "a", json!("nowhere")),
        compaction("c", "b", json!(5)),
        compaction("d", "c", Value::Null),
        compaction("e", "d", json!("e")),
    ]);
    archive.import_text("a.jsonl", &text);
    assert_exports(&archive.export("s"), &text);
    assert_eq!(quipu_transcript::context(&archive.lineage("s")), [5], "nothing is kept");
}
