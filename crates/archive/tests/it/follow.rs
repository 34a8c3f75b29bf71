//! Files of lines that are followed: whatever becomes of one, what comes of it is what reading all of it gives.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use quipu_archive::{Agent, ImportCache, ImportOptions, Report};
use serde_json::{Value, json};

use crate::support::{Archive, archive, block_on, header, lines, user};

/// One store that follows a file, and one into which all of it is read each time.
struct FollowPair {
    agent: &'static str,
    name: String,
    followed: Archive,
    alone: Archive,
    cache: ImportCache,
    rounds: u32,
}

impl FollowPair {
    fn new(agent: &'static str, name: &str) -> Self {
        let mut cache = ImportCache::default();
        cache.follow();
        Self { agent, name: name.into(), followed: archive(), alone: archive(), cache, rounds: 0 }
    }

    fn write(archive: &Archive, name: &str, text: impl AsRef<[u8]>, age: Duration) -> PathBuf {
        let path = archive.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        path
    }

    fn follow(&mut self, path: &Path) -> Report {
        self.follow_all(path).pop().unwrap()
    }

    fn follow_all(&mut self, path: &Path) -> Vec<Report> {
        block_on(async {
            self.cache.catch_up(&*self.followed.store).await.unwrap();
            let options = ImportOptions { dry_run: false, progress: &|_| {} };
            let Archive { store, sealer, .. } = &self.followed;
            let agent = Agent::named(self.agent).unwrap();
            agent.import(store, sealer, path, &self.cache, &options).await.unwrap()
        })
    }

    /// The file is like this now; what following it tells.
    #[track_caller]
    fn import(&mut self, text: impl AsRef<[u8]>) -> Report {
        let text = text.as_ref();
        // Now and then nobody has written to it for long: then answers that look unfinished are whole.
        let age = Duration::from_secs([0, 3, 1_800][self.rounds as usize % 3]);
        self.rounds += 1;
        let path = Self::write(&self.followed, &self.name, text, age);
        let report = self.follow(&path);
        let expect = self.alone.try_take(self.agent, &Self::write(&self.alone, &self.name, text, age));
        let expect = expect.unwrap().pop().unwrap();
        let counts =
            |report: &Report| (report.read, report.added, report.present + report.changed, report.branches);
        let context = format!("{} {}: {report:?} {expect:?}", self.agent, self.name);
        assert_eq!(counts(&report), counts(&expect), "{context}");
        assert_eq!(report.unchanged, expect.unchanged, "{context}");
        assert_eq!(self.followed.all(), self.alone.all(), "{context}");
        report
    }
}

/// Recordings and files made by hand, with all that is odd about them.
pub(crate) fn corpus() -> Vec<(&'static str, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = Vec::new();
    for (agent, folder) in [
        ("claude-code", "it/__fuzz__/claude_code_files/corpus"),
        ("codex", "it/__fuzz__/codex_files/corpus"),
        ("codex", "fixtures/codex"),
        ("gemini-cli", "it/__fuzz__/gemini_files/corpus"),
        ("copilot-cli", "it/__fuzz__/copilot_files/corpus"),
        ("openclaw", "it/__fuzz__/openclaw_files/corpus"),
    ] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
        found.extend(files.map(|path| (agent, path)));
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

#[test]
fn following_from_any_line_gives_the_same() {
    for (agent, path) in corpus() {
        let text = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let ends: Vec<usize> = (1..=text.len()).filter(|end| text[end - 1] == b'\n').collect();
        let mut both = FollowPair::new(agent, name);
        for end in &ends {
            // Before a session is named there is nothing to follow.
            let probe = archive();
            if probe.try_take(agent, &FollowPair::write(&probe, name, &text[..*end], Duration::ZERO)).is_ok()
            {
                // Twice, and in the middle of the line.
                let half = *end - 20.min(*end / 2);
                if probe
                    .try_take(agent, &FollowPair::write(&probe, name, &text[..half], Duration::ZERO))
                    .is_ok()
                {
                    both.import(&text[..half]);
                }
                both.import(&text[..*end]);
                both.import(&text[..*end]);
            }
        }
        both.import(&text);
    }
}

/// A session of an agent whose entries follow each other, and whose second line is none.
struct PlainAgent {
    agent: &'static str,
    name: &'static str,
    head: Vec<Value>,
    prompt: fn(usize, &str) -> Value,
}

const ID: &str = "0199cccc-0000-7000-8000-000000000009";

fn before(at: usize) -> Value {
    at.checked_sub(1).map_or(Value::Null, |before| json!(format!("n{before}")))
}

fn plain() -> Vec<PlainAgent> {
    let time = "2026-01-02T03:04:05.000Z";
    let meta = json!({ "id": "0199bbbb", "timestamp": time, "cwd": "/p" });
    let start = json!({ "sessionId": "events", "context": { "cwd": "/p" } });
    let start =
        json!({ "type": "session.start", "data": start, "id": "start", "timestamp": time, "parentId": null });
    vec![
        PlainAgent {
            agent: "claude-code",
            name: "0199cccc-0000-7000-8000-000000000009.jsonl",
            head: Vec::new(),
            prompt: |at, text| {
                json!({ "type": "user", "uuid": format!("n{at}"), "parentUuid": before(at), "sessionId": ID, "cwd": "/p",
                    "timestamp": "2026-01-02T03:04:05.000Z", "message": { "role": "user", "content": text } })
            },
        },
        PlainAgent {
            agent: "codex",
            name: "rollout-2026-01-02T03-00-00-0199bbbb.jsonl",
            head: vec![json!({ "timestamp": time, "ordinal": 0, "type": "session_meta", "payload": meta })],
            prompt: |at, text| {
                let content = json!([{ "type": "input_text", "text": text }]);
                json!({ "timestamp": "2026-01-02T03:04:05.000Z", "ordinal": at + 1, "type": "response_item",
                    "payload": { "type": "message", "role": "user", "content": content } })
            },
        },
        PlainAgent {
            agent: "gemini-cli",
            name: "session-log.jsonl",
            head: vec![json!({ "sessionId": "log", "projectHash": "h", "startTime": time, "kind": "main" })],
            prompt: |at, text| {
                json!({ "id": format!("n{at}"), "timestamp": "2026-01-02T03:04:05.000Z", "type": "user",
                    "content": [{ "text": text }] })
            },
        },
        PlainAgent {
            agent: "copilot-cli",
            name: "events.jsonl",
            head: vec![start],
            prompt: |at, text| {
                let parent = if at == 0 { json!("start") } else { before(at) };
                json!({ "type": "user.message", "data": { "content": text }, "id": format!("n{at}"),
                    "timestamp": "2026-01-02T03:04:05.000Z", "parentId": parent })
            },
        },
        PlainAgent {
            agent: "openclaw",
            name: "claws.jsonl",
            head: vec![header("claws")],
            prompt: |at, text| user(&format!("n{at}"), before(at).as_str(), text),
        },
    ]
}

impl PlainAgent {
    /// The lines of these prompts.
    fn some(&self, prompts: std::ops::Range<usize>) -> String {
        lines(&prompts.map(|at| (self.prompt)(at, &format!("text {at}"))).collect::<Vec<_>>())
    }
}

/// Of what was read before no problem is told again; where the file is another one, all of it is read.
#[test]
fn followed_file_imports_like_a_whole_read() {
    for format in plain() {
        let PlainAgent { agent, name, ref head, .. } = format;
        let mut both = FollowPair::new(agent, name);
        let mut text = format!("{}no JSON\n{}", lines(head), format.some(0..3));
        let is_read_on = |report: &Report| assert_eq!(report.lost, 0, "{agent}: {report:?}");
        let is_read_whole = |report: &Report| assert!(report.lost > 0, "{agent}: {report:?}");
        is_read_whole(&both.import(&text));
        for round in 1..4 {
            text.push_str(&format.some(round * 3..round * 3 + 3));
            let report = both.import(&text);
            assert_eq!((report.read, report.added), (round as u64 * 3 + 3, 3), "{agent}: {report:?}");
            is_read_on(&report);
        }
        // A line in two pieces, one of which may be a whole value without its end.
        let more = format.some(12..13);
        assert_eq!(both.import(format!("{text}{}", &more[..more.len() / 2])).added, 0, "{agent}");
        assert_eq!(both.import(format!("{text}{}", more.trim_end())).added, 1, "{agent}");
        text.push_str(&more);
        is_read_on(&both.import(&text));
        // Another file of the session, of which it knows nothing.
        let other = format!("{}{}", lines(head), format.some(0..15));
        for archive in [&both.followed, &both.alone] {
            let path = FollowPair::write(archive, &format!("copy/{name}"), &other, Duration::ZERO);
            assert_eq!(archive.try_take(agent, &path).unwrap().pop().unwrap().added, 2, "{agent}");
        }
        text.push_str(&format.some(13..16));
        let report = both.import(&text);
        assert_eq!((report.added, report.changed), (1, 0), "{agent}: {report:?}");
        is_read_on(&report);
        // Edited near its end while it grew, shorter, longer again.
        let mut edited = text.replace("text 14", "edited");
        edited.push_str(&format.some(16..17));
        is_read_whole(&both.import(&edited));
        is_read_whole(&both.import(&text[..text.len() - 10]));
        edited.push_str(&format.some(17..18));
        is_read_whole(&both.import(&edited));
        // Another file under its name: made while the first is there, or the system may give it the same number.
        let path = both.followed.dir.path().join(name);
        let other = path.with_extension("other");
        std::fs::write(&other, "").unwrap();
        std::fs::rename(other, &path).unwrap();
        edited.push_str(&format.some(18..19));
        is_read_whole(&both.import(&edited));
        edited.push_str(&format.some(19..20));
        is_read_on(&both.import(&edited));
    }
}

/// Lines that a fork copied say so behind them: whose all those before are.
#[test]
fn foreign_lines_are_recognized_by_later_ones() {
    let format = &plain()[0];
    let mut both = FollowPair::new(format.agent, format.name);
    let mut text = format.some(0..3);
    both.import(&text);
    let mut record = (format.prompt)(3, "text 3");
    record["requestSessionId"] = json!(ID);
    text.push_str(&lines(&[record]));
    both.import(&text);
    let mut record = (format.prompt)(4, "text 4");
    record["requestSessionId"] = json!("0199cccc-0000-7000-8000-000000000001");
    text.push_str(&lines(&[record]));
    both.import(&text);
    text.push_str(&format.some(5..7));
    both.import(&text);
}

/// What is removed from the store meanwhile comes again.
#[test]
fn session_missing_in_the_store_is_read_again() {
    for format in plain() {
        let mut both = FollowPair::new(format.agent, format.name);
        let mut text = lines(&format.head) + &format.some(0..5);
        both.import(&text);
        for archive in [&both.followed, &both.alone] {
            block_on(async {
                let heads = archive.store.heads(format.agent).await.unwrap();
                let moves = heads.into_iter().map(|head| quipu_store::RefMove {
                    name: head.name,
                    expect: quipu_store::RefExpectation::Any,
                    to: None,
                    fence: None,
                    why: "removed".into(),
                });
                let commit = quipu_store::Commit { moves: moves.collect(), ..quipu_store::Commit::default() };
                archive.store.commit(commit).await.unwrap();
            });
        }
        text.push_str(&format.some(5..6));
        both.import(&text);
        assert_eq!(both.followed.rows().len(), 1, "{}", format.agent);
    }
}

/// Of a database only the sessions that were written to, begun or renamed.
#[test]
fn database_follow_reads_only_changed_sessions() {
    let [first, later] = ["hand-made.db", "hand-made-later.db"].map(|name| {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap()
    });
    let mut both = FollowPair::new("opencode", "opencode.db");
    let mut import = |bytes: &[u8], age: u64| {
        let age = Duration::from_secs(age);
        let path = FollowPair::write(&both.followed, "opencode.db", bytes, age);
        let reports = both.follow_all(&path);
        let alone = FollowPair::write(&both.alone, "opencode.db", bytes, age);
        both.alone.try_take("opencode", &alone).unwrap();
        assert_eq!(both.followed.all(), both.alone.all());
        let sessions = reports.iter().map(|report| report.session.as_str().to_owned());
        (sessions.collect::<Vec<_>>(), reports.iter().map(|report| report.added).sum::<u64>())
    };
    let (sessions, added) = import(&first, 50);
    assert_eq!(sessions.len(), 5);
    assert!(added > 15, "{added}");
    // Written to, with nothing new: what has the time of the newest row may be new.
    let (sessions, added) = import(&first, 40);
    assert_eq!((sessions.join(" ").as_str(), added), ("ses_four", 0));
    let (sessions, added) = import(&later, 30);
    assert_eq!((sessions.join(" ").as_str(), added), ("ses_three ses_four ses_six", 4));
    // Another one under its name: all of it is read.
    let (sessions, added) = import(&first, 20);
    assert_eq!((sessions.len(), added), (5, 0));
}
