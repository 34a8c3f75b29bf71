//! A session that is taken in while it runs: whatever the pieces, it is what an import of its file gives.

use quipu_archive::pi::LiveSession;
use quipu_protocol::Json;
use serde_json::{Value, json};

use crate::support::{Archive, FIXTURES, SECRET, archive, block_on, fixture};

/// The lines of a file as the program that wrote it holds them: of version 3, and each an object.
fn held(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()))
        .map(str::to_owned)
        .collect()
}

/// Opens the session of these lines and appends those that are missing, so many at once.
fn take_in(archive: &Archive, lines: &[String], file: Option<&std::path::Path>, piece: usize) -> LiveSession {
    block_on(async {
        let header = Json::parse(&lines[0]).unwrap();
        let mut live = LiveSession::open(&archive.store, &archive.sealer, &header, file).await.unwrap();
        let known = usize::try_from(live.count()).unwrap();
        for piece in lines[1 + known..].chunks(piece) {
            let piece: Vec<&str> = piece.iter().map(String::as_str).collect();
            live.append(&piece).await.unwrap();
        }
        assert_eq!(live.count(), lines.len() as u64 - 1);
        live
    })
}

#[track_caller]
fn check(text: &str) {
    let lines = held(text);
    let whole = lines.join("\n") + "\n";
    let imported = archive();
    imported.import_text("s.jsonl", &whole);
    for piece in [1, 7, 10_000] {
        if piece == 1 && lines.len() > 200 {
            continue;
        }
        let live = archive();
        take_in(&live, &lines, None, piece);
        assert_eq!(live.all(), imported.all(), "{piece} at once");
        // An import of the file finds all of it there.
        let report = live.import_text("s.jsonl", &whole);
        assert_eq!((report.added, report.changed), (0, 0));
        // The first half from the file, the rest as it is made; and again after the process died.
        let live = archive();
        let half = lines.len().div_ceil(2);
        let file = live.file("s.jsonl", lines[..half].join("\n") + "\n");
        take_in(&live, &lines, Some(&file), piece);
        assert_eq!(live.all(), imported.all(), "from the half, {piece} at once");
        let again = take_in(&live, &lines, Some(&file), piece);
        assert_eq!((again.lacking(), live.all()), (0, imported.all()));
    }
}

#[test]
fn live_fixtures_become_what_an_import_gives() {
    for name in &FIXTURES[1..] {
        check(&fixture(name));
    }
}

#[test]
fn live_trees_become_what_an_import_gives() {
    let entry = |id: &str, parent: Option<&str>, text: &str| {
        json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "2026-11-27T10:00:00.500Z",
            "message": { "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 5 } })
        .to_string()
    };
    let header = json!({ "type": "session", "version": 3, "id": "s", "timestamp": "2026-11-27T10:00:00.000Z", "cwd": "/w" });
    let lines = [
        header.to_string(),
        entry("a", None, "one"),
        entry("b", Some("a"), &format!("with {SECRET}")),
        json!({ "type": "compaction", "id": "c", "parentId": "b", "timestamp": "2026-11-27T10:00:01.000Z",
            "summary": "short", "firstKeptEntryId": "b", "tokensBefore": 9 })
        .to_string(),
        entry("d", Some("a"), "another branch"),
        entry("e", None, "another root"),
        json!({ "type": "label", "id": "f", "parentId": "c", "timestamp": "2026-11-27T10:00:02.000Z", "targetId": "a",
            "label": "here" })
        .to_string(),
        entry("a", Some("f"), "an id twice"),
        json!({ "type": "of tomorrow", "id": "g", "parentId": "f", "n": 1.0, "\u{1f600}": "\u{2028}" }).to_string(),
        entry("h", Some("nobody"), "below what is not there"),
    ];
    check(&lines.join("\n"));
}

#[test]
fn live_session_says_what_its_file_lacks() {
    let text = fixture(FIXTURES[1]);
    let lines = held(&text);
    let archive = archive();
    take_in(&archive, &lines, None, 3);
    // Two entries are gone from the file.
    let mut torn = lines.clone();
    torn.remove(2);
    torn.pop();
    let file = archive.file("s.jsonl", torn.join("\n") + "\n{\"type\":\"mess");
    let header = Json::parse(&lines[0]).unwrap();
    let open = || block_on(LiveSession::open(&archive.store, &archive.sealer, &header, Some(&file))).unwrap();
    let live = open();
    assert_eq!((live.count(), live.lacking()), (torn.len() as u64 - 1, 2));
    // A file without a header is passed by, and so is one of another session.
    std::fs::write(&file, "no header\n").unwrap();
    let live = open();
    assert!(live.damage().is_some());
    assert_eq!((live.count(), live.lacking()), (0, lines.len() as u64 - 1));
    std::fs::write(&file, fixture(FIXTURES[2])).unwrap();
    let live = open();
    assert_eq!((live.count(), live.damage().is_none()), (0, true));
}
