//! What holds of the files of every agent that writes lines: encodings, torn and joined files, and files that other programs write to
//! while they are read.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::{Agent, ArchiveError, ImportCache, ImportOptions, Progress, Report};
use quipu_store::{Commit, Graph, RefMove, SqliteStore, Upkeep as _};
use serde_json::{Value, json};

use crate::support::{All, Archive, FIXTURES, archive, block_on, fixture, header, lines, user};

/// Prompts of a file, and letters of each: more than is read before the first of them are stored.
const PROMPTS: usize = 1_400;
const LETTERS: usize = 12_000;
/// The session of the formats in which it is a UUID.
const ID: &str = "0199cccc-0000-7000-8000-000000000009";

/// Imports a file, with what `meanwhile` makes of it once the first of it is stored.
fn take_while(
    archive: &Archive,
    agent: &str,
    path: &Path,
    meanwhile: &(dyn Fn(&Path) + Sync),
) -> Result<Vec<Report>, ArchiveError> {
    let once = std::sync::Once::new();
    let progress = |at: Progress| {
        if at.stored > 0 {
            once.call_once(|| meanwhile(path));
        }
    };
    block_on(async {
        let cache = ImportCache::load(&*archive.store).await?;
        let options = ImportOptions { dry_run: false, progress: &progress };
        Agent::named(agent).unwrap().import(&archive.store, &archive.sealer, path, &cache, &options).await
    })
}

/// A session of an agent, whose prompts follow each other.
struct Format {
    agent: &'static str,
    name: String,
    session: &'static str,
    head: Vec<Value>,
    prompt: fn(usize) -> Value,
}

fn time(at: usize) -> String {
    format!("2026-01-02T{:02}:{:02}:{:02}.000Z", at / 3_600, at / 60 % 60, at % 60)
}

fn text(at: usize) -> String {
    format!("{at} {}", "x".repeat(LETTERS))
}

fn before(at: usize) -> Value {
    at.checked_sub(1).map_or(Value::Null, |before| json!(format!("n{before}")))
}

fn formats() -> Vec<Format> {
    let meta = json!({ "id": "0199bbbb", "timestamp": time(0), "cwd": "/p" });
    let start = json!({ "sessionId": "events", "context": { "cwd": "/p" } });
    vec![
        Format {
            agent: "claude-code",
            name: format!("{ID}.jsonl"),
            session: ID,
            head: Vec::new(),
            prompt: |at| {
                json!({ "type": "user", "uuid": format!("n{at}"), "parentUuid": before(at), "sessionId": ID, "cwd": "/p",
                    "timestamp": time(at), "version": "2.1.0", "message": { "role": "user", "content": text(at) } })
            },
        },
        Format {
            agent: "codex",
            name: "rollout-2026-01-02T03-00-00-0199bbbb.jsonl".into(),
            session: "0199bbbb",
            head: vec![
                json!({ "timestamp": time(0), "ordinal": 0, "type": "session_meta", "payload": meta }),
            ],
            prompt: |at| {
                let content = json!([{ "type": "input_text", "text": text(at) }]);
                json!({ "timestamp": time(at), "ordinal": at + 1, "type": "response_item",
                    "payload": { "type": "message", "role": "user", "content": content } })
            },
        },
        Format {
            agent: "gemini-cli",
            name: "session-log.jsonl".into(),
            session: "log",
            head: vec![
                json!({ "sessionId": "log", "projectHash": "h", "startTime": time(0), "kind": "main" }),
            ],
            prompt: |at| json!({ "id": format!("n{at}"), "timestamp": time(at), "type": "user", "content": [{ "text": text(at) }] }),
        },
        Format {
            agent: "copilot-cli",
            name: "events.jsonl".into(),
            session: "events",
            head: vec![
                json!({ "type": "session.start", "data": start, "id": "start", "timestamp": time(0), "parentId": null }),
            ],
            prompt: |at| {
                let parent = if at == 0 { json!("start") } else { before(at) };
                json!({ "type": "user.message", "data": { "content": text(at) }, "id": format!("n{at}"), "timestamp": time(at),
                    "parentId": parent })
            },
        },
        Format {
            agent: "openclaw",
            name: "claws.jsonl".into(),
            session: "claws",
            head: vec![header("claws")],
            prompt: |at| user(&format!("n{at}"), before(at).as_str(), &text(at)),
        },
    ]
}

impl Format {
    fn text(&self, prompts: usize) -> String {
        lines(&self.head) + &lines(&(0..prompts).map(self.prompt).collect::<Vec<_>>())
    }

    fn file(&self, archive: &Archive) -> PathBuf {
        archive.file(&self.name, self.text(PROMPTS))
    }

    /// The last report, of the file itself, once it can be read to its end.
    fn finish(&self, archive: &Archive, prompts: usize) -> Report {
        let path = archive.file(&self.name, self.text(prompts));
        let report = archive.try_take(self.agent, &path).unwrap().pop().unwrap();
        assert!(report.lost == 0 && (report.unchanged || report.branches == 1), "{}: {report:?}", self.agent);
        report
    }
}

/// What one import alone gives.
fn whole(format: &Format, prompts: usize) -> All {
    let archive = archive();
    format.finish(&archive, prompts);
    archive.all()
}

#[track_caller]
fn assert_changed(result: Result<Vec<Report>, ArchiveError>) {
    let told = result.unwrap_err();
    assert!(matches!(told, ArchiveError::Changed { .. }), "{told}");
    assert!(told.to_string().contains("import it again"), "{told}");
}

/// Shorter, and longer than before.
fn check_cut_and_grown(format: &Format) {
    let Format { agent, session, .. } = *format;
    // What was read stays, and the session stands nowhere before its file is whole again.
    let archive = archive();
    assert_changed(take_while(&archive, agent, &format.file(&archive), &|path| {
        std::fs::File::options().write(true).open(path).unwrap().set_len(1_000).unwrap();
    }));
    assert_eq!(archive.head(&format!("{agent}/{session}")), None, "{agent}");
    // What stood there comes with this import, the rest with this or the next.
    let more = lines(&[(format.prompt)(PROMPTS)]);
    let reports = take_while(&archive, agent, &format.file(&archive), &|path| {
        std::fs::File::options().append(true).open(path).unwrap().write_all(more.as_bytes()).unwrap();
    });
    let report = reports.unwrap().pop().unwrap();
    assert!(report.present >= 80 && report.read >= PROMPTS as u64, "{agent}: {report:?}");
    assert!(report.added > 1, "{agent}: {report:?}");
    format.finish(&archive, PROMPTS + 1);
    assert_eq!(archive.all(), whole(format, PROMPTS + 1), "{agent}");
}

/// Makes long texts short.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => text.truncate(60),
        Value::Array(list) => list.iter_mut().for_each(shorten),
        Value::Object(members) => members.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Stopped once the first of it is stored, whatever the format.
#[test]
fn interrupted_import_resumes() {
    for format in formats() {
        let Format { agent, session, .. } = format;
        let prompts = (0..5_000).map(|at| {
            let mut prompt = (format.prompt)(at);
            shorten(&mut prompt);
            prompt
        });
        let text = lines(&format.head) + &lines(&prompts.collect::<Vec<_>>());
        let (cut, whole) = (archive(), archive());
        let path = cut.file(&format.name, &text);
        let stop = tokio::sync::Notify::new();
        let progress = |_: Progress| stop.notify_one();
        block_on(async {
            let cache = ImportCache::default();
            let options = ImportOptions { dry_run: false, progress: &progress };
            let agent = Agent::named(agent).unwrap();
            tokio::select! {
                biased;
                () = stop.notified() => {}
                report = agent.import(&cut.store, &cut.sealer, &path, &cache, &options) => panic!("{report:?}"),
            }
        });
        assert_eq!(cut.head(&format!("{agent}/{session}")), None, "{agent}");
        let report = cut.try_take(agent, &path).unwrap().pop().unwrap();
        assert!(report.present >= 400 && report.added >= 1_000, "{agent}: {report:?}");
        assert_eq!((report.read, report.changed), (5_000, 0), "{agent}");
        whole.take(agent, &format.name, &text);
        assert_eq!(cut.all(), whole.all(), "{agent}");
    }
}

#[test]
fn claude_code() {
    check_cut_and_grown(&formats()[0]);
}

#[test]
fn codex() {
    check_cut_and_grown(&formats()[1]);
}

#[test]
fn gemini_cli() {
    check_cut_and_grown(&formats()[2]);
}

#[test]
fn copilot_cli() {
    check_cut_and_grown(&formats()[3]);
}

#[test]
fn openclaw() {
    check_cut_and_grown(&formats()[4]);
}

#[test]
fn written_anew_or_replaced() {
    let format = formats().remove(1);
    let agent = format.agent;
    // Where it stands: of what came meanwhile the first is kept.
    let anew = archive();
    assert_changed(take_while(&anew, agent, &format.file(&anew), &|path| {
        std::fs::write(path, format.text(PROMPTS).replace("xxx", "yyy")).unwrap();
    }));
    let path = format.file(&anew);
    let report = anew.try_take(agent, &path).unwrap().pop().unwrap();
    assert_eq!(report.read, report.present + report.added + report.changed);
    assert!(report.present >= 80 && anew.try_take(agent, &path).unwrap()[0].unchanged, "{report:?}");

    // Another file under its name: what was opened is read, the other is the next import's.
    let replaced = archive();
    let reports = take_while(&replaced, agent, &format.file(&replaced), &|path| {
        let other = path.with_extension("new");
        std::fs::write(&other, format.text(3)).unwrap();
        std::fs::rename(other, path).unwrap();
    });
    let report = reports.unwrap().pop().unwrap();
    assert_eq!((report.added, report.lost), (PROMPTS as u64, 0));
    let expect = replaced.all();
    let report = replaced.try_take(agent, &replaced.dir.path().join(&format.name)).unwrap().pop().unwrap();
    assert_eq!((report.present, report.added, report.unchanged), (3, 0, false), "{report:?}");
    assert_eq!(replaced.all(), expect);
}

/// What an import tells of nodes beside them is what anybody reads from them later.
#[test]
fn progress_matches_what_was_read() {
    let (mut costs, mut added) = (0, 0);
    let own = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let database = [("opencode", own("hand-made.db"))];
    let mut files: Vec<(&str, PathBuf)> = crate::follow::corpus().into_iter().chain(database).collect();
    let written = tempfile::tempdir().unwrap();
    for (at, name) in FIXTURES.into_iter().enumerate() {
        let path = written.path().join(format!("{at}.jsonl"));
        std::fs::write(&path, fixture(name)).unwrap();
        files.push(("pi", path));
    }
    for (agent, path) in files {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let archive = Archive { store: Arc::clone(&store) as Arc<dyn Graph>, ..archive() };
        let file = archive.dir.path().join(path.file_name().unwrap());
        std::fs::copy(&path, &file).unwrap();
        let Ok(reports) = archive.try_take(agent, &file) else { continue };
        added += reports.iter().map(|report| report.added).sum::<u64>();
        let told = archive.rows();
        block_on(store.rebuild()).unwrap();
        assert_eq!(archive.rows(), told, "{}", path.display());
        costs += told.iter().filter(|row| row.cost > 0.0).count();
    }
    assert!(costs > 2 && added > 1_000, "{costs} {added}");
}

/// As editors and shells of some systems write a text.
#[test]
fn encodings() {
    for format in formats() {
        let (whole, marked) = (archive(), archive());
        let text = format.text(3);
        whole.take(format.agent, &format.name, &text);
        let report = marked.take(format.agent, &format.name, format!("\u{feff}{text}"));
        assert_eq!((report.lost, report.repaired), (0, 0), "{}: {report:?}", format.agent);
        assert_eq!(marked.all(), whole.all(), "{}", format.agent);
        let wide: Vec<u16> = text.encode_utf16().collect();
        for mark in [true, false] {
            let mark = Some(0xfeff).filter(|_| mark);
            let units = || mark.iter().chain(&wide);
            let little: Vec<u8> = units().flat_map(|unit| unit.to_le_bytes()).collect();
            let big: Vec<u8> = units().flat_map(|unit| unit.to_be_bytes()).collect();
            for bytes in [little, big] {
                let other = archive();
                let told = other.try_take(format.agent, &other.file(&format.name, bytes)).unwrap_err();
                assert!(told.to_string().contains("it is UTF-16"), "{}: {told}", format.agent);
                assert_eq!(other.all(), (Vec::new(), Vec::new()));
            }
        }
    }
    let list = json!([{ "id": "one", "mapping": {} }]).to_string();
    let wide: Vec<u8> = list.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let archive = archive();
    let told = archive.try_take("chatgpt", &archive.file("conversations.json", wide)).unwrap_err();
    assert!(told.to_string().contains("it is UTF-16"), "{told}");
}

#[test]
fn torn_and_joined_files() {
    for format in formats() {
        let (agent, name) = (format.agent, format.name.as_str());
        let text = format.text(4);
        let whole = archive();
        whole.take(agent, name, &text);
        // Torn in a line, and whole again.
        let torn = archive();
        let report = torn.take(agent, name, &text[..text.len() - 100]);
        assert_eq!((report.lost, report.added), (1, 3), "{agent}: {report:?}");
        assert_eq!(torn.take(agent, name, &text).added, 1, "{agent}");
        assert_eq!(torn.all(), whole.all(), "{agent}");
        // Torn in the middle: the line that it ran into is lost, and nothing else.
        let middle = archive();
        let cut = text.rfind('\n').unwrap_or_default() - format.text(4).lines().last().unwrap().len() - 80;
        let report = middle.take(agent, name, format!("{}{}", &text[..cut], &text[cut + 40..]));
        assert!(report.lost <= 1 && report.added >= 3, "{agent}: {report:?}");
        // Twice the same, one after the other.
        let twice = archive();
        let report = twice.take(agent, name, format!("{text}{text}"));
        assert_eq!(report.lost, 0, "{agent}: {report:?}");
        let nodes = twice.all().1;
        assert!(whole.all().1.iter().all(|node| nodes.contains(node)), "{agent}");
        // Two sessions, one after the other: no entry of either is lost.
        let both = archive();
        let other = text.replace(format.session, &format.session.replace(['9', 'l', 'e'], "a"));
        let other = other.replace("\"n", "\"m").replace("\"mapping", "\"n");
        let report = both.take(agent, name, format!("{text}{other}"));
        assert_eq!(report.lost, 0, "{agent}: {report:?}");
        assert!(report.read >= 8 || !report.skipped.is_empty(), "{agent}: {report:?}");
        // Whatever came of it, importing again adds nothing.
        for archive in [&middle, &twice, &both] {
            let path = archive.dir.path().join(name);
            let copy = archive.dir.path().join("copy").join(name);
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(path, &copy).unwrap();
            let report = archive.try_take(agent, &copy).unwrap().pop().unwrap();
            assert_eq!((report.added, report.changed), (0, 0), "{agent}: {report:?}");
        }
    }
}

/// A list of conversations that is cut, such as one that is still being downloaded.
#[test]
fn truncated_export_is_reported_and_completed_later() {
    let chat = |number: usize| {
        let message = json!({ "id": format!("a{number}"), "author": { "role": "user" }, "create_time": 1_767_322_800.0,
            "content": { "content_type": "text", "parts": ["x".repeat(20_000)] } });
        let mapping = json!({ format!("a{number}"): { "id": format!("a{number}"), "parent": null, "message": message } });
        json!({ "id": format!("one{number}"), "create_time": 1_767_322_800.0, "mapping": mapping })
    };
    let text = json!((0..300).map(chat).collect::<Vec<_>>()).to_string();
    let whole = archive();
    whole.try_take("chatgpt", &whole.file("conversations.json", &text)).unwrap();

    let cut = archive();
    let path = cut.file("conversations.json", &text);
    let reports = take_while(&cut, "chatgpt", &path, &|path| {
        std::fs::File::options().write(true).open(path).unwrap().set_len(4_000_000).unwrap();
    });
    let reports = reports.unwrap();
    assert_eq!(reports.iter().map(|report| report.lost).sum::<u64>(), 1, "{:?}", reports.last());
    assert!(reports.len() < 250, "{}", reports.len());
    // Not noted as done, although it stays as it is.
    assert!(!cut.try_take("chatgpt", &path).unwrap()[0].unchanged);
    cut.file("conversations.json", &text);
    cut.try_take("chatgpt", &path).unwrap();
    assert_eq!(cut.all(), whole.all());
}

/// Of 50 GB a list and one conversation are read.
#[test]
fn an_archive_of_50_gigabytes() {
    const FREE: u64 = 50_000_000_000;
    let message = json!({ "id": "a", "author": { "role": "user" }, "content": { "content_type": "text", "parts": ["Look."] } });
    let list =
        json!([{ "id": "one", "mapping": { "a": { "id": "a", "parent": null, "message": message } } }])
            .to_string();
    let mut file = crate::zips::deflated("conversations.json", list.as_bytes());
    file.offset = Some(FREE);
    let mut bytes = crate::zips::zip(&[file], true);
    for (word, at) in [(b"PK\x06\x06", 48), (b"PK\x06\x07", 8)] {
        let at = bytes.windows(4).position(|four| four == word).unwrap() + at;
        let place = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) + FREE;
        bytes[at..at + 8].copy_from_slice(&place.to_le_bytes());
    }
    let archive = archive();
    let path = archive.file("export.zip", "PK\x03\x04");
    let mut file = std::fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(FREE)).unwrap();
    file.write_all(&bytes).unwrap();
    let reports = archive.try_take("chatgpt", &path).unwrap();
    assert_eq!((reports[0].added, reports[0].lost), (1, 0), "{reports:?}");
    assert!(archive.try_take("chatgpt", &path).unwrap()[0].unchanged);
}

/// As another import of the session leaves it that is under way, or was stopped while its last commit was.
#[test]
fn stale_tips_of_another_import_are_removed() {
    let pi = Format {
        agent: "pi",
        name: "a.jsonl".into(),
        session: "s",
        head: vec![header("s")],
        prompt: |at| user(&format!("n{at}"), before(at).as_str(), "x"),
    };
    for format in [pi, formats().remove(1)] {
        let Format { agent, session, .. } = format;
        let whole = archive();
        format.finish(&whole, PROMPTS);
        let (inner, _) = whole.lineage(session)[7];
        let name = format!("{agent}/{session}/{inner}");

        let beside = archive();
        let path = beside.file(&format.name, format.text(PROMPTS));
        let reports = take_while(&beside, agent, &path, &|_| {
            let (store, name) = (Arc::clone(&beside.store), name.as_str().into());
            let moves = vec![RefMove::publish(name, inner, "import")];
            let commit = move || block_on(store.commit(Commit { moves, ..Commit::default() }));
            std::thread::spawn(commit).join().unwrap().unwrap();
        });
        assert_eq!(reports.unwrap().pop().unwrap().added, PROMPTS as u64);
        assert_eq!(beside.all(), whole.all(), "{agent}");
    }
}
