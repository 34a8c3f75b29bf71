//! Long sessions and many sessions: the same entries in each program's own form.
//!
//! They are made as files of Pi, and for ours put into a store by an example of the engine, which alone knows how
//! entries become nodes.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::contest::Contest;
use super::measure;
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row, guard, number};

pub(super) const RESUME: Benchmark =
    Benchmark { name: "resume", about: "continue sessions of 1k, 10k and 100k entries", run: resume };
pub(super) const TREE: Benchmark = Benchmark {
    name: "tree",
    about: "draw, fork, clone, label, rename and export sessions of 1k and 100k entries; draw 10k branches",
    run: tree,
};
pub(super) const LIST: Benchmark =
    Benchmark { name: "list", about: "list 1,000 sessions of 100 entries", run: list };

/// Entries between one compaction and the next.
const COMPACTED: usize = 400;
/// Entries before a compaction that stay in the context. A multiple of a turn's four.
const KEPT: usize = 40;
/// Entries after the last compaction, the same for every length: so is the context then.
const TAIL: usize = 200;
/// Bytes of an entry's line.
const LINE: usize = 1_000;
/// Milliseconds between entries; all of them are in one month.
const STEP_MS: usize = 800;
const MOST_ENTRIES: usize = 31 * 86_400_000 / STEP_MS;
/// Its first midnight, milliseconds since the epoch.
const DAY_MS: usize = 1_767_225_600_000;
const MONTH: &str = "2026-01";
/// Longer sessions are measured for ours alone: another program would need minutes for each run.
pub(super) const MOST_FOR_PEERS: usize = 100_000;

const MEASURED: &[Contender] = &[Contender::Quipu, Contender::Pi];
const OURS: &[Contender] = &[Contender::Quipu];

fn resume(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in &context.sizes.resume {
        let contest = Contest {
            bench: RESUME.name,
            what: &format!("resume {} entries", number(*count as f64)),
            parts: &[
                ("start to first request", "ms"),
                ("wall", "ms"),
                ("processor", "ms"),
                ("peak memory", "MiB"),
                ("bytes of the request", "B"),
            ],
            contenders: if *count > MOST_FOR_PEERS { OURS } else { MEASURED },
        };
        let prepare = |stage: &Stage<'_>| {
            stage.warm_up()?;
            let session = Session { number: 0, entries: *count };
            let file = put(context, stage, &[session])?;
            let id = match stage.who {
                Contender::Quipu | Contender::QuipuOpen => session.id(),
                Contender::Pi | Contender::Codex | Contender::CodexConfined => file.display().to_string(),
            };
            let command = stage.prompt(Some(&id), "hello")?;
            // The first time may bring the session up to this program's version.
            stage.run(&command, [stage.hello()])?;
            Ok(command)
        };
        rows.extend(contest.run(context, prepare, |stage, command| {
            let sample = stage.run(command, [stage.hello()])?;
            let first = sample.first_request_ms();
            let bytes = sample.served.first().map(|request| request.body_bytes as f64);
            let cost = sample.cost;
            Ok(vec![first, Some(cost.wall_ms), Some(cost.cpu_ms), Some(cost.peak_mib), bytes])
        })?);
    }
    Ok(rows)
}

/// What is done to one session, which must not take longer for a long one. Only an export reads all of it.
fn tree(context: &Context) -> Result<Vec<Row>> {
    const COMMANDS: &[&str] = &["tree", "tree --json", "fork", "clone", "label", "rename"];
    let mut rows = Vec::new();
    for count in &context.sizes.trees {
        let contest = Contest {
            bench: TREE.name,
            what: &format!("session of {} entries", number(*count as f64)),
            parts: &[
                ("`tree`", "ms"),
                ("`tree --json`", "ms"),
                ("`fork`", "ms"),
                ("`clone`", "ms"),
                ("`label`", "ms"),
                ("`rename`", "ms"),
                ("`tree`, peak memory", "MiB"),
                ("`export`", "ms"),
                ("`export`, rate", "MB/s"),
                ("`export`, peak memory", "MiB"),
            ],
            contenders: OURS,
        };
        let prepare = |stage: &Stage<'_>| {
            stage.warm_up()?;
            let session = Session { number: 0, entries: *count };
            put(context, stage, &[session])?;
            // The first time indexes what was put there.
            let shown = guard::output(stage.program()?.args(["tree", "--json", &session.id()]))?;
            let shown: Value = serde_json::from_slice(&shown.stdout).context("`quipu tree --json`")?;
            let head = shown["session"]["head"].as_str().context("the session has no head")?.to_owned();
            Ok((session.id(), head))
        };
        rows.extend(contest.run(context, prepare, |stage, (session, head)| {
            let once = |words: &str, more: &[&str]| -> Result<measure::Cost> {
                let mut command = stage.program()?;
                command.args(words.split(' ')).args(more);
                measure::once(&command)
            };
            let mut costs = Vec::new();
            for words in COMMANDS {
                costs.push(match *words {
                    "label" => once(words, &[head, "a label"])?,
                    "rename" => once(words, &[session, "a name"])?,
                    _ => once(words, &[session])?,
                });
            }
            let mut values: Vec<Option<f64>> = costs.iter().map(|cost| Some(cost.wall_ms)).collect();
            values.push(costs.first().map(|cost| cost.peak_mib));
            let file = stage.settings().join("export.jsonl");
            let cost = once("export --format pi -o", &[&file.display().to_string(), session])?;
            let bytes = std::fs::metadata(&file)?.len() as f64;
            std::fs::remove_file(&file)?;
            values.extend([Some(cost.wall_ms), Some(bytes / 1e3 / cost.wall_ms), Some(cost.peak_mib)]);
            Ok(values)
        })?);
    }
    for count in &context.sizes.branches {
        let contest = Contest {
            bench: TREE.name,
            what: &format!("session of {} branches from one node", number(*count as f64)),
            parts: &[("`tree`", "ms"), ("`tree`, peak memory", "MiB")],
            contenders: OURS,
        };
        let prepare = |stage: &Stage<'_>| {
            stage.warm_up()?;
            let file = stage.settings().join("branches.jsonl");
            branches(&stage.project().canonicalize()?, *count, &file)?;
            let output = guard::output(stage.program()?.args(["import", "pi"]).arg(&file))?;
            ensure!(output.status.success(), "import: {}", String::from_utf8_lossy(&output.stderr).trim());
            std::fs::remove_file(&file)?;
            let mut command = stage.program()?;
            command.arg("tree").arg(Session { number: 0, entries: 0 }.id());
            measure::once(&command)?;
            Ok(command)
        };
        rows.extend(contest.run(context, prepare, |_, command| {
            let cost = measure::once(command)?;
            Ok(vec![Some(cost.wall_ms), Some(cost.peak_mib)])
        })?);
    }
    Ok(rows)
}

/// A file in which so many entries follow the same one.
fn branches(project: &Path, count: usize, file: &Path) -> Result<()> {
    let mut output = BufWriter::new(File::create(file)?);
    let id = Session { number: 0, entries: 0 }.id();
    let header = json!({ "type": "session", "version": 3, "id": id, "timestamp": time(0), "cwd": project });
    writeln!(output, "{header}")?;
    for index in 0..=count {
        let parent = if index == 0 { Value::Null } else { json!("a0000000") };
        let message = json!({ "role": "user", "content": words(0, index, 40), "timestamp": DAY_MS });
        let entry = json!({ "type": "message", "id": format!("a{index:07x}"), "parentId": parent,
            "timestamp": time(index), "message": message });
        writeln!(output, "{entry}")?;
    }
    Ok(output.flush()?)
}

fn list(context: &Context) -> Result<Vec<Row>> {
    let (sessions, entries) = context.sizes.list;
    let contest = Contest {
        bench: LIST.name,
        what: &format!("list {} sessions", number(sessions as f64)),
        parts: &[("wall", "ms"), ("processor", "ms"), ("peak memory", "MiB"), ("the call alone", "ms")],
        contenders: MEASURED,
    };
    let prepare = |stage: &Stage<'_>| {
        stage.warm_up()?;
        let all: Vec<Session> = (0..sessions).map(|number| Session { number, entries }).collect();
        put(context, stage, &all)?;
        let result = stage.settings().join("listed.json");
        let command = match stage.who {
            Contender::Quipu | Contender::QuipuOpen => {
                let mut command = stage.program()?;
                command.args(["sessions", "--limit", "0"]);
                command
            }
            // Its command line has no list of sessions, so this is what its picker calls.
            Contender::Pi | Contender::Codex | Contender::CodexConfined => {
                let script = stage.settings().join("list.mjs");
                std::fs::write(&script, include_str!("../../data/peers/list.mjs"))?;
                let module = &context.peers.as_ref().context("no peers were given")?.pi_module;
                let mut command = stage.node()?;
                command.arg(script).arg(module).arg(stage.project()).arg(&result);
                command
            }
        };
        measure::once(&command)?;
        Ok((command, result))
    };
    contest.run(context, prepare, |_, (command, result)| {
        let cost = measure::once(command)?;
        let mut alone = None;
        if let Ok(text) = std::fs::read_to_string(result) {
            let listed: Value = serde_json::from_str(&text)?;
            let found = listed["sessions"].as_u64().unwrap_or_default();
            ensure!(found >= sessions as u64, "{found} of {sessions} sessions were listed");
            alone = listed["ms"].as_f64();
        }
        Ok(vec![Some(cost.wall_ms), Some(cost.cpu_ms), Some(cost.peak_mib), alone])
    })
}

/// Gives a stage its sessions, and the last file that was written for it.
pub(super) fn put(context: &Context, stage: &Stage<'_>, sessions: &[Session]) -> Result<PathBuf> {
    let project = stage.project().canonicalize()?;
    let folder = match stage.who {
        Contender::Quipu | Contender::QuipuOpen => stage.settings().join("import"),
        Contender::Pi | Contender::Codex | Contender::CodexConfined => {
            let name = project.display().to_string().trim_start_matches('/').replace('/', "-");
            stage.settings().join("sessions").join(format!("--{name}--"))
        }
    };
    std::fs::create_dir_all(&folder)?;
    let mut file = PathBuf::new();
    for session in sessions {
        file = folder.join(format!("{MONTH}-01T00-00-00-000Z_{}.jsonl", session.id()));
        session.write(&project, &file)?;
    }
    if matches!(stage.who, Contender::Quipu | Contender::QuipuOpen) {
        let writer = context.session_store()?;
        let mut command = Command::new(writer);
        command.arg(stage.settings().join("quipu.db")).arg(&folder);
        let output = guard::output(&mut command)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the sessions could not be put into a store: {}", said.trim());
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(file)
}

/// A session that was never held: turns of a prompt, a call, its result and an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) number: usize,
    /// Messages; compactions come on top.
    pub(super) entries: usize,
}

impl Session {
    pub(super) fn id(self) -> String {
        format!("019b7700-0000-7000-8000-{:012x}", self.number)
    }

    /// The last whole word of its last message, which no other of the last messages has.
    pub(super) fn last_word(self) -> String {
        let said = self.message(self.entries.saturating_sub(1));
        let text = said["content"][0]["text"].as_str().unwrap_or_default();
        // What it ends with may be a part of a word.
        text.rsplit(' ').nth(1).unwrap_or_default().to_owned()
    }

    pub(super) fn write(self, project: &Path, file: &Path) -> Result<()> {
        ensure!(self.entries <= MOST_ENTRIES, "a session has at most {MOST_ENTRIES} entries");
        let opened = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        let mut output = BufWriter::new(opened);
        self.lines(project, |line| Ok(writeln!(output, "{line}")?))?;
        output.flush().with_context(|| format!("cannot write {}", file.display()))
    }

    /// Pi's lines, version 3.
    fn lines(self, project: &Path, mut put: impl FnMut(Value) -> Result<()>) -> Result<()> {
        put(
            json!({ "type": "session", "version": 3, "id": self.id(), "timestamp": time(0), "cwd": project }),
        )?;
        let id = |kind: char, index: usize| format!("{kind}{index:07x}");
        let entry = |kind: &str, id: &str, parent: &Value, index: usize| json!({ "type": kind, "id": id, "parentId": parent, "timestamp": time(index) });
        let mut parent = Value::Null;
        let mut append = |mut entry: Value, more: Value| {
            if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
                entry.extend(more);
            }
            put(entry)
        };
        append(entry("model_change", "e0000000", &parent, 0), json!({ "provider": "fake", "modelId": "m" }))?;
        parent = json!("e0000000");
        append(entry("thinking_level_change", "e0000001", &parent, 0), json!({ "thinkingLevel": "off" }))?;
        parent = json!("e0000001");
        for index in 0..self.entries {
            let own = id('a', index);
            append(entry("message", &own, &parent, index), json!({ "message": self.message(index) }))?;
            parent = json!(own);
            let done = index + 1;
            let left = self.entries - done;
            if left >= TAIL && (left - TAIL).is_multiple_of(COMPACTED) && done >= COMPACTED {
                let own = id('c', index);
                let more = json!({
                    "summary": words(self.number, index, 2 * LINE), "tokensBefore": 100_000,
                    "firstKeptEntryId": id('a', done - KEPT),
                });
                append(entry("compaction", &own, &parent, index), more)?;
                parent = json!(own);
            }
        }
        Ok(())
    }

    fn message(self, index: usize) -> Value {
        let timestamp = DAY_MS + index * STEP_MS;
        let call = format!("call_{}", index / 4);
        let assistant = |content: Value, stop: &str| {
            let cost = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 });
            json!({
                "role": "assistant", "content": content, "api": "anthropic-messages", "provider": "fake", "model": "m",
                "usage": { "input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15, "cost": cost },
                "stopReason": stop, "timestamp": timestamp
            })
        };
        let text = |length: usize| json!({ "type": "text", "text": words(self.number, index, length) });
        // What the rest of the line takes, measured once.
        match index % 4 {
            0 => json!({ "role": "user", "content": [text(LINE - 190)], "timestamp": timestamp }),
            1 => {
                let call = json!({ "type": "toolCall", "id": call, "name": "read", "arguments": { "path": "a.txt" } });
                let call_call = 90;
                assistant(json!([text(LINE - 440 - call_call), call]), "toolUse")
            }
            2 => json!({
                "role": "toolResult", "toolCallId": call, "toolName": "read", "content": [text(LINE - 250)],
                "isError": false, "timestamp": timestamp
            }),
            _ => assistant(json!([text(LINE - 440)]), "stop"),
        }
    }
}

/// The time of an entry as text.
fn time(index: usize) -> String {
    let ms = index * STEP_MS;
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    let (day, hour) = (1 + seconds / 86_400, seconds / 3_600 % 24);
    format!("{MONTH}-{day:02}T{hour:02}:{:02}:{:02}.{ms:03}Z", seconds / 60 % 60, seconds % 60)
}

/// A text of this many bytes that no other entry has.
fn words(session: usize, entry: usize, length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    let mut state = (session as u64) << 32 | entry as u64;
    while text.len() < length {
        // The constants of a common linear congruential generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A million entries are a gigabyte of this.
        for nibble in (40..64).step_by(4).rev() {
            text.push(char::from(b"0123456789abcdef"[(state >> nibble & 15) as usize]));
        }
        text.push(' ');
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn lines(entries: usize) -> Result<Vec<Value>> {
        let mut lines = Vec::new();
        Session { number: 1, entries }.lines(Path::new("/project"), |line| {
            lines.push(line);
            Ok(())
        })?;
        Ok(lines)
    }

    #[test]
    fn a_session_is_one_chain_that_begins_again_every_400_entries() -> Result<()> {
        for entries in [1_000, 10_000] {
            let lines = lines(entries)?;
            let mut places = HashMap::new();
            let mut last = Value::Null;
            let mut compactions = Vec::new();
            for (place, line) in lines.iter().enumerate().skip(1) {
                assert_eq!(line["parentId"], last);
                last = line["id"].clone();
                assert!(places.insert(line["id"].to_string(), place).is_none(), "{line}");
                if line["type"] == "compaction" {
                    let kept = places[&line["firstKeptEntryId"].to_string()];
                    assert_eq!(lines[kept]["message"]["role"], "user");
                    assert_eq!(place - kept, KEPT);
                    compactions.push(place);
                }
            }
            assert_eq!(lines.len() - 3 - compactions.len(), entries);
            assert!(compactions.windows(2).all(|pair| pair[1] - pair[0] == COMPACTED + 1));
            // What a model is shown is equally long for every length.
            assert_eq!(compactions.last().map(|last| lines.len() - 1 - last), Some(TAIL));
        }
        assert!(lines(100)?.iter().all(|line| line["type"] != "compaction"));
        let word = Session { number: 1, entries: 1_000 }.last_word();
        let lines = lines(1_000)?;
        let (last, before) = lines.split_last().context("no lines")?;
        assert!(word.len() == 6 && last.to_string().contains(&word));
        assert!(!before.iter().rev().take(TAIL).any(|line| line.to_string().contains(&word)), "{word}");
        Ok(())
    }

    #[test]
    fn an_entry_is_a_line_of_about_a_kilobyte() -> Result<()> {
        for line in lines(1_000)?.iter().skip(3).filter(|line| line["type"] == "message") {
            let length = line.to_string().len();
            assert!((LINE - 60..LINE + 60).contains(&length), "{length}: {line}");
        }
        Ok(())
    }

    #[test]
    fn times_are_of_one_month() {
        assert_eq!(time(0), "2026-01-01T00:00:00.000Z");
        assert_eq!(time(108_000), "2026-01-02T00:00:00.000Z");
        assert_eq!(time(MOST_ENTRIES - 1), "2026-01-31T23:59:59.200Z");
        assert_ne!(words(0, 1, 50), words(1, 0, 50));
    }
}
