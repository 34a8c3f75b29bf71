//! Histories that nobody lived, as other agents keep them: turns of a prompt, a call, its result and an answer.
//!
//! They have the shapes that the agents were seen to write, with what stands twice in them and what says nothing new. The
//! words are as often as in natural text (Zipf), since the index of the search grows with them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Context, build};

/// Who keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    ClaudeCode,
    Codex,
    OpenCode,
}

pub(super) const HISTORIES: [History; 3] = [History::ClaudeCode, History::Codex, History::OpenCode];

/// Messages of one turn.
const TURN: usize = 4;
/// Messages of one session of a database, which a reader may hold as a whole.
const SESSION: usize = 1_000;
/// Milliseconds between messages.
const STEP_MS: usize = 800;
/// Midnight, milliseconds since the epoch, and how it is written.
const DAY_MS: usize = 1_767_225_600_000;
const MONTH: &str = "2026-01";
/// The directory that sessions worked in.
const PROJECT: &str = "/project";
/// Different words.
const WORDS: f64 = 60_000.0;

impl History {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::OpenCode => "OpenCode",
        }
    }

    /// What `quipu import` calls it.
    pub(super) fn agent(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::OpenCode => "opencode",
        }
    }

    /// Writes as much into an empty folder, and says how many bytes that are.
    pub(super) fn write(self, context: &Context, amount: &Amount, folder: &Path) -> Result<u64> {
        self.write_in(context, amount, folder, PROJECT)
    }

    /// The same of sessions that worked in a directory; Claude Code's alone.
    pub(super) fn write_in(
        self,
        context: &Context,
        amount: &Amount,
        folder: &Path,
        project: &str,
    ) -> Result<u64> {
        if self == Self::OpenCode {
            let file = folder.join("opencode.db");
            database(context, amount, &file)?;
            return Ok(std::fs::metadata(file)?.len());
        }
        let mut bytes = 0;
        for number in 0..amount.files {
            let id = session_id(number);
            let name = match self {
                Self::Codex => format!("rollout-{MONTH}-01T00-00-00-{id}.jsonl"),
                Self::ClaudeCode | Self::OpenCode => format!("{id}.jsonl"),
            };
            let file = folder.join(name);
            let opened = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
            let mut output = BufWriter::new(opened);
            let turns = amount.entries / TURN;
            self.lines(number, turns, project, |line| Ok(writeln!(output, "{line}")?))?;
            output.flush()?;
            bytes += std::fs::metadata(&file)?.len();
        }
        Ok(bytes)
    }

    /// The lines of a file of so many turns.
    fn lines(
        self,
        number: usize,
        turns: usize,
        project: &str,
        mut put: impl FnMut(Value) -> Result<()>,
    ) -> Result<()> {
        let mut parent = Value::Null;
        let mut ordinal = 0;
        if self == Self::Codex {
            put(codex(
                &mut ordinal,
                0,
                "session_meta",
                &json!({ "id": session_id(number), "timestamp": time(0),
                "cwd": "/project", "cli_version": "0.169.0", "model_provider": "openai", "history_mode": "paginated",
                "base_instructions": { "text": Text::of(number, usize::MAX).prose(20_000) } }),
            ))?;
        }
        for turn in 0..turns {
            match self {
                Self::ClaudeCode => claude_code_turn((number, turn), project, &mut parent, &mut put)?,
                Self::Codex | Self::OpenCode => codex_turn(number, turn, &mut ordinal, &mut put)?,
            }
        }
        Ok(())
    }
}

fn claude_code_turn(
    (number, turn): (usize, usize),
    project: &str,
    parent: &mut Value,
    put: &mut impl FnMut(Value) -> Result<()>,
) -> Result<()> {
    let mut text = Text::of(number, turn);
    let session = session_id(number);
    let call = format!("toolu_{turn:08x}");
    let mut step = 0;
    let mut record = |kind: &str, more: Value| {
        let id = format!("{:08x}-0000-4000-8000-{:012x}", number, turn * 16 + step);
        let mut record = json!({ "parentUuid": parent, "isSidechain": false, "userType": "external", "cwd": project,
            "sessionId": session, "version": "2.1.329", "gitBranch": "main", "type": kind, "uuid": id,
            "timestamp": time(turn * TURN + step.min(TURN - 1)) });
        if let (Some(record), Value::Object(more)) = (record.as_object_mut(), more) {
            record.extend(more);
        }
        step += 1;
        *parent = json!(id);
        put(record)
    };
    let assistant = |message: usize, block: Value, stop: &str| {
        let usage = json!({ "input_tokens": 10, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 7,
            "output_tokens": 11 });
        json!({ "message": { "id": format!("msg_{number}_{turn}_{message}"), "type": "message", "role": "assistant",
            "model": "claude-x", "content": [block], "stop_reason": stop, "usage": usage }, "requestId": "req" })
    };
    record(
        "user",
        json!({ "message": { "role": "user", "content": text.prose(300) }, "promptId": turn.to_string() }),
    )?;
    let said = json!({ "type": "text", "text": text.prose(150) });
    record("assistant", assistant(0, said, "tool_use"))?;
    let asked =
        json!({ "type": "tool_use", "id": call, "name": "Read", "input": { "file_path": text.path() } });
    record("assistant", assistant(0, asked, "tool_use"))?;
    let out = text.prose(200);
    record(
        "user",
        json!({ "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": call, "content": out }] },
        "toolUseResult": { "type": "text", "file": { "filePath": text.path(), "content": out, "numLines": 9 } } }),
    )?;
    let said = json!({ "type": "text", "text": text.prose(400) });
    record("assistant", assistant(1, said, "end_turn"))?;
    put(json!({ "type": "last-prompt", "lastPrompt": "x", "sessionId": session }))
}

/// A record of a rollout.
fn codex(ordinal: &mut usize, index: usize, kind: &str, payload: &Value) -> Value {
    *ordinal += 1;
    json!({ "timestamp": time(index), "ordinal": *ordinal - 1, "type": kind, "payload": payload })
}

fn codex_turn(
    number: usize,
    turn: usize,
    ordinal: &mut usize,
    put: &mut impl FnMut(Value) -> Result<()>,
) -> Result<()> {
    let mut text = Text::of(number, turn);
    let call = format!("call_{turn:08x}");
    let mut record =
        |step: usize, kind: &str, payload: Value| put(codex(ordinal, turn * TURN + step, kind, &payload));
    let message = |role: &str, text: &str| {
        let (block, kind) =
            if role == "user" { ("input_text", "user.text") } else { ("output_text", "unknown") };
        json!({ "type": "message", "role": role, "content": [{ "type": block, "text": text }],
            "internal_chat_message_metadata_passthrough": { "content_item_kinds": [kind] } })
    };
    let usage = |output: usize| {
        json!({ "response_id": format!("resp_{turn}_{output}"), "usage": { "input_tokens": 1_000, "cached_input_tokens": 500,
            "output_tokens": output, "reasoning_output_tokens": 3, "total_tokens": 1_000 + output } })
    };
    let prompt = text.prose(200);
    record(0, "event_msg", json!({ "type": "task_started", "turn_id": turn.to_string() }))?;
    record(0, "turn_context", json!({ "turn_id": turn.to_string(), "model": "gpt-x", "cwd": "/project" }))?;
    record(0, "response_item", message("user", &prompt))?;
    let said = text.prose(150);
    record(1, "response_item", message("assistant", &said))?;
    let command = format!("cat {}", text.path());
    record(
        1,
        "response_item",
        json!({ "type": "function_call", "name": "exec_command",
        "arguments": json!({ "cmd": command }).to_string(), "call_id": call }),
    )?;
    record(1, "token_usage_record", usage(20))?;
    let out = text.prose(200);
    record(
        2,
        "event_msg",
        json!({ "type": "item_completed", "item": { "type": "CommandExecution", "id": call, "command": command,
        "aggregated_output": out, "status": "completed", "exit_code": 0, "duration": { "secs": 0, "nanos": 5_000_000 } } }),
    )?;
    let told = format!("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{out}");
    record(2, "response_item", json!({ "type": "function_call_output", "call_id": call, "output": told }))?;
    let said = text.prose(300);
    record(3, "response_item", message("assistant", &said))?;
    record(3, "token_usage_record", usage(21))?;
    record(
        3,
        "event_msg",
        json!({ "type": "task_complete", "turn_id": turn.to_string(), "last_agent_message": said }),
    )
}

/// A database of sessions, messages and parts. An example of the store writes it, which alone speaks SQL.
fn database(context: &Context, amount: &Amount, file: &Path) -> Result<()> {
    let writer = build(&context.root, &["--package", "quipu-store", "--example", "tables"], "tables")?;
    let mut child =
        Command::new(writer).arg(file).stdin(Stdio::piped()).spawn().context("cannot run tables")?;
    let mut output = BufWriter::new(child.stdin.take().context("no pipe to tables")?);
    let messages = amount.files * amount.entries;
    for number in 0..messages.div_ceil(SESSION) {
        let turns = SESSION.min(messages - number * SESSION) / TURN;
        rows(number, turns, |row| Ok(writeln!(output, "{row}")?))?;
    }
    output.flush()?;
    drop(output);
    ensure!(child.wait()?.success(), "the example tables of quipu-store failed");
    Ok(())
}

/// The rows of a session of so many turns.
fn rows(number: usize, turns: usize, mut put: impl FnMut(Value) -> Result<()>) -> Result<()> {
    let session = format!("ses_{number:06x}");
    let begun = DAY_MS + number * SESSION * STEP_MS;
    let mut row = |table: &str, row: Value| put(json!({ "table": table, "row": row }));
    row(
        "session",
        json!({ "id": session, "project_id": "global", "parent_id": null, "slug": "x", "directory": "/project",
        "title": format!("Session {number}"), "version": "1.18.33", "time_created": begun, "time_updated": begun }),
    )?;
    for turn in 0..turns {
        let mut text = Text::of(number, turn);
        let mut add = |step: usize, data: Value, parts: &[Value]| {
            let at = begun + (turn * TURN + step) * STEP_MS;
            let id = format!("msg_{number:06x}{:08x}", turn * TURN + step);
            row(
                "message",
                json!({ "id": id, "session_id": session, "time_created": at, "time_updated": at + 100,
                "data": data.to_string() }),
            )?;
            for (n, part) in parts.iter().enumerate() {
                row(
                    "part",
                    json!({ "id": format!("prt_{number:06x}{:08x}{n:02x}", turn * TURN + step), "message_id": id,
                    "session_id": session, "time_created": at, "time_updated": at, "data": part.to_string() }),
                )?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let at = begun + turn * TURN * STEP_MS;
        let model = json!({ "providerID": "p", "modelID": "m" });
        let user = json!({ "role": "user", "time": { "created": at }, "agent": "build", "model": model });
        add(0, user, &[json!({ "type": "text", "text": text.prose(650) })])?;
        let tokens = json!({ "total": 18, "input": 10, "output": 5, "reasoning": 0, "cache": { "read": 3, "write": 0 } });
        let answer = |finish: &str| {
            json!({ "role": "assistant", "parentID": format!("msg_{number:06x}{:08x}", turn * TURN), "modelID": "m",
                "providerID": "p", "mode": "build", "agent": "build", "path": { "cwd": "/project", "root": "/" }, "cost": 0,
                "tokens": tokens, "time": { "created": at, "completed": at + 100 }, "finish": finish })
        };
        let (path, out) = (text.path(), text.prose(700));
        let state = json!({ "status": "completed", "input": { "filePath": path }, "output": out, "title": path,
            "metadata": { "preview": "x", "truncated": false }, "time": { "start": at, "end": at + 50 } });
        let finish =
            |reason: &str| json!({ "type": "step-finish", "reason": reason, "tokens": tokens, "cost": 0 });
        let parts = [
            json!({ "type": "step-start" }),
            json!({ "type": "text", "text": text.prose(150) }),
            json!({ "type": "tool", "tool": "read", "callID": format!("call_{turn:08x}"), "state": state }),
            finish("tool-calls"),
        ];
        add(1, answer("tool-calls"), &parts)?;
        let parts = [
            json!({ "type": "step-start" }),
            json!({ "type": "text", "text": text.prose(600) }),
            finish("stop"),
        ];
        add(3, answer("stop"), &parts)?;
    }
    Ok(())
}

fn session_id(number: usize) -> String {
    format!("019b7700-0000-4000-8000-{number:012x}")
}

/// The time of a message as text.
fn time(index: usize) -> String {
    let ms = index * STEP_MS;
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    let (day, hour) = (1 + seconds / 86_400, seconds / 3_600 % 24);
    format!("{MONTH}-{day:02}T{hour:02}:{:02}:{:02}.{ms:03}Z", seconds / 60 % 60, seconds % 60)
}

/// Words that are the same on every run, and others in every turn.
struct Text(u64);

impl Text {
    fn of(number: usize, turn: usize) -> Self {
        let mixed = ((number as u64) << 32 ^ turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A word: the n-th is n times as rare as the first.
    fn word(&mut self, into: &mut String) {
        const SYLLABLES: [&str; 16] = [
            "ta", "re", "in", "so", "ko", "mi", "le", "un", "per", "tra", "con", "is", "ed", "or", "al", "no",
        ];
        let share = (self.next() >> 44) as f64 / f64::from(1 << 20);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank of at most `WORDS`"
        )]
        let mut rank = WORDS.powf(share) as usize;
        while rank > 0 {
            into.push_str(SYLLABLES[rank % 16]);
            rank /= 16;
        }
    }

    fn prose(&mut self, length: usize) -> String {
        let mut text = String::with_capacity(length + 16);
        while text.len() < length {
            self.word(&mut text);
            text.push(if self.next().is_multiple_of(12) { '\n' } else { ' ' });
        }
        text.truncate(length);
        text
    }

    fn path(&mut self) -> String {
        let mut path = "/project/src/".to_owned();
        self.word(&mut path);
        path.push('/');
        self.word(&mut path);
        path.push_str(".rs");
        path
    }
}

/// Words that stand in a turn of a session.
pub(super) fn prose(number: usize, turn: usize, length: usize) -> String {
    Text::of(number, turn).prose(length)
}

/// One size of session files.
pub(super) struct Amount {
    pub(super) name: &'static str,
    pub(super) files: usize,
    /// Entries of each, about a kilobyte each.
    pub(super) entries: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_about_four_kilobytes() -> Result<()> {
        let mut sizes = Vec::new();
        for history in HISTORIES {
            let mut bytes = 0;
            match history {
                // Their columns, as a database has them.
                History::OpenCode => rows(3, 100, |row| {
                    let values = row["row"].as_object().into_iter().flat_map(serde_json::Map::values);
                    bytes += values.map(|value| value.as_str().map_or(8, str::len)).sum::<usize>();
                    Ok(())
                })?,
                History::ClaudeCode | History::Codex => history.lines(3, 100, PROJECT, |line| {
                    bytes += line.to_string().len() + 1;
                    Ok(())
                })?,
            }
            sizes.push((history, bytes));
        }
        assert!(sizes.iter().all(|(_, bytes)| (360_000..440_000).contains(bytes)), "{sizes:?}");
        Ok(())
    }

    #[test]
    fn words_come_again_and_texts_do_not() {
        let texts: std::collections::HashSet<String> =
            (0..1_000).map(|turn| Text::of(0, turn).prose(100)).collect();
        assert_eq!(texts.len(), 1_000);
        let words = Text::of(7, 7).prose(1_000_000);
        let different: std::collections::HashSet<&str> = words.split_whitespace().collect();
        assert!(different.len() * 3 < words.split_whitespace().count(), "{}", different.len());
        assert_eq!(time(108_000), "2026-01-02T00:00:00.000Z");
    }
}
