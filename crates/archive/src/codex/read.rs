//! Records in the order of the file to items.

use std::collections::HashMap;
use std::time::Duration;

use quipu_protocol::{
    AssistantMessage, Body, Compaction, Content, CustomMessage, Entry, Json, Message, SessionId, StopReason,
    UnixMs, UserMessage,
};

use super::answer::{self, Open};
use super::outline::{DOCUMENT, Header};
use super::said;
use crate::ProblemKind;
use crate::intake::{Done, Follows, Item, Outline, Placer, REST, Reading, SealedLines, Start, Stop, Text};
use crate::intake::{WHOLE, run};
use crate::json::{Members, list, list_of, text_of, time_of};
use crate::key::Key;

/// Items of answers that wait at most, before an answer counts as whole.
const WAITING: usize = 1_000;

pub(super) fn read(lines: &mut SealedLines, outline: &Outline, out: Placer) -> Result<Done, Stop> {
    let mut reader = Reader {
        out,
        session: outline.session.clone(),
        header: None,
        owner: 0,
        n: 0,
        last: Follows::Nothing,
        open: None,
        calls: HashMap::new(),
        details: HashMap::new(),
        model: String::new(),
        context: String::new(),
        counted: None,
        has_records: false,
        users: Vec::new(),
    };
    if lines.is_document()? || lines.begin_with(DOCUMENT)? {
        // The header and all records in one value, as the first versions wrote them.
        let Some(whole) = lines.document(&mut reader.out)? else { return Ok(Done::whole(reader.out)) };
        let members = Members::of(whole.json.get()).unwrap_or_else(|| Members(Vec::new()));
        let records = members.get("session").into_iter().chain(list(members.get("items").unwrap_or("[]")));
        for (at, record) in records.enumerate() {
            let json = Json::parse(record).unwrap_or_default();
            reader.line(&Text { json, number: at as u64 + 1, ended: true })?;
        }
        return reader.end(outline.idle).map(Done::whole);
    }
    run(reader, lines, outline.idle)
}

#[derive(Clone)]
struct Reader {
    out: Placer,
    session: SessionId,
    header: Option<Header>,
    owner: usize,
    /// The ordinal of the next record, where it does not say.
    n: u64,
    /// What the next item follows.
    last: Follows,
    open: Option<Open>,
    /// Names of the tools that were called, by call.
    calls: HashMap<Key, String>,
    /// What the screen showed of a call.
    details: HashMap<Key, Json>,
    model: String,
    /// What the last turn was made of.
    context: String,
    /// Tokens in all, as counted by older versions.
    counted: Option<u64>,
    /// Whether usage stands in records of its own.
    has_records: bool,
    /// What each of the user's messages follows, for undoing.
    users: Vec<Follows>,
}

/// A record, taken apart.
struct Record<'a> {
    /// The whole line.
    json: &'a Json,
    kind: String,
    payload: Members<'a>,
    /// The payload's text.
    text: &'a str,
    time: Option<UnixMs>,
    id: String,
    line: u64,
}

impl Reading for Reader {
    fn out(&mut self) -> &mut Placer {
        &mut self.out
    }

    fn line(&mut self, text: &Text) -> Result<(), Stop> {
        let json = text.json.get();
        let members = Members::known(json).unwrap_or_else(|| Members(Vec::new()));
        let ordinal = members.get("ordinal").and_then(|text| text.parse::<u64>().ok());
        let n = ordinal.unwrap_or(self.n);
        self.n = n.saturating_add(1);
        let Some(header) = &self.header else {
            match Header::of(json) {
                Some(header) => self.begin(header, &text.json),
                None => self.out.report.problem(text.number, ProblemKind::NotAnEntry, "before the header"),
            }
            return Ok(());
        };
        let is_bare = header.is_bare && members.get("payload").is_none();
        let inner = if is_bare { Some(json) } else { members.get("payload") };
        let payload = inner.and_then(Members::known);
        let record = Record {
            json: &text.json,
            kind: match is_bare {
                true if members.get("record_type").is_some() => "state".into(),
                true => "response_item".into(),
                false => members.string("type").unwrap_or_default().into_owned(),
            },
            payload: payload.unwrap_or_else(|| Members(Vec::new())),
            text: inner.unwrap_or("null"),
            time: match is_bare {
                // The oldest files have no other time.
                true => Some(header.time),
                false => members.string("timestamp").and_then(|text| time_of(&text)),
            },
            id: format!("{}#{n}", self.session),
            line: text.number,
        };
        self.record(&record)
    }

    fn end(mut self, idle: Duration) -> Result<Placer, Stop> {
        // Calls that have results were whole.
        let is_whole = |open: &Open| idle >= REST || idle >= WHOLE && open.after.iter().any(is_result);
        if let Some(open) = self.open.take_if(|open| !is_whole(open)) {
            self.out.unfinished(open.item.line, "");
        }
        self.close()?;
        Ok(self.out)
    }
}

impl Reader {
    fn begin(&mut self, header: Header, json: &Json) {
        let start = Start {
            session: self.session.clone(),
            cwd: header.cwd.clone(),
            time: header.time,
            parent: header.fork.as_ref().map(|(parent, _)| crate::lineages::session_id(parent)),
            kept: Some(json.clone()),
        };
        self.owner = self.out.session(start);
        let mut below = None;
        if let Some((parent, ordinal)) = &header.fork {
            let parent = crate::lineages::session_id(parent);
            // Not each record is a node: it hangs on the last one that is.
            let from = ordinal.unwrap_or(self.n.saturating_sub(1)).min(100_000_000);
            let ids = (0..from).rev().map(|n| format!("{parent}#{n}"));
            let found = ids.into_iter().find(|id| self.out.has(id));
            match found {
                Some(id) => below = Some(id),
                None => {
                    let detail = format!("the session {parent} that it was forked from is missing");
                    self.out.report.problem(1, ProblemKind::Orphan, &detail);
                }
            }
        }
        self.out.begin(self.owner, below.as_deref());
        self.header = Some(header);
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        match record.kind.as_str() {
            "response_item" => self.response_item(record),
            "event_msg" => self.event(record),
            "token_usage_record" => {
                self.has_records = true;
                let counts = record.payload.get("usage").and_then(answer::usage);
                match (&mut self.open, counts) {
                    (Some(open), Some(usage)) => {
                        open.answer.usage = usage;
                        open.answer.response_id = record.payload.string("response_id").map(Into::into);
                        self.close()
                    }
                    // It belongs to no answer that is here.
                    _ => self.verbatim(record),
                }
            }
            "turn_context" => {
                if let Some(model) = record.payload.string("model") {
                    self.model = model.into_owned();
                }
                let context = record.payload.without(&["turn_id", "root_turn_id"]).get().to_owned();
                if context == self.context {
                    self.out.report.skip("turn_context");
                    return Ok(());
                }
                self.context = context;
                self.close()?;
                self.verbatim(record)
            }
            "compacted" => self.compacted(record),
            "session_meta" => {
                self.out.report.problem(record.line, ProblemKind::SecondHeader, "");
                self.verbatim(record)
            }
            // Derived from the rest.
            "world_state" | "state" => {
                self.out.report.skip(&record.kind);
                Ok(())
            }
            _ => self.verbatim(record),
        }
    }

    fn item(&self, record: &Record<'_>, entry: Entry) -> Item {
        Item { time: record.time, owner: self.owner, ..Item::new(record.id.clone(), entry, record.line) }
    }

    /// Sends an item, or lets it wait for the answer before it.
    fn put(&mut self, item: Item) -> Result<(), Stop> {
        match &mut self.open {
            Some(open) if open.after.len() < WAITING => {
                open.after.push(item);
                Ok(())
            }
            Some(_) => {
                self.close()?;
                self.send(item)
            }
            None => self.send(item),
        }
    }

    fn send(&mut self, mut item: Item) -> Result<(), Stop> {
        if matches!(&item.entry, Entry::Message(Message::User(_))) {
            self.users.push(self.last.clone());
        }
        let next = Follows::Item(item.id.clone());
        item.follows = std::mem::replace(&mut self.last, next);
        self.out.item(item)
    }

    /// The answer is whole.
    fn close(&mut self) -> Result<(), Stop> {
        let Some(Open { mut item, answer, records, after }) = self.open.take() else { return Ok(()) };
        let has_calls = answer.tool_calls().next().is_some();
        item.entry = Entry::Message(Message::Assistant(AssistantMessage {
            stop_reason: if has_calls { StopReason::ToolUse } else { StopReason::Stop },
            ..answer
        }));
        item.kept = Some(Json::known(["{\"records\":", &list_of(&records), "}"].concat()));
        self.send(item)?;
        after.into_iter().try_for_each(|item| self.send(item))
    }

    /// A record that has no other place. One without a `type` gets an empty one.
    fn verbatim(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        let has_type = Members::of(record.json.get()).is_some_and(|members| members.string("type").is_some());
        let json = match has_type {
            true => record.json.clone(),
            false => {
                let text = format!("{{\"type\":\"\",\"record\":{}}}", record.json);
                Json::parse(&text).unwrap_or_default()
            }
        };
        let item = self.item(record, Entry::Meta(json));
        self.put(item)
    }

    fn response_item(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        let kind = record.payload.string("type").unwrap_or_default();
        let timestamp = record.time.unwrap_or_default();
        let role = record.payload.string("role");
        match kind.as_ref() {
            "message" if role.as_deref() == Some("user") => {
                self.close()?;
                let elements = said::of_the_user(&record.payload);
                if elements.is_empty() {
                    return self.verbatim(record);
                }
                let is_all =
                    elements.len() == said::list(record.payload.get("content").unwrap_or("[]")).len();
                let content: Vec<Content> = elements.into_iter().map(said::content).collect();
                let is_command = content
                    .first()
                    .and_then(Content::as_text)
                    .is_some_and(|text| text.starts_with("<user_shell_command>"));
                let content = Body::Blocks(content);
                let message = if is_command {
                    let custom_type = "command".into();
                    Message::Custom(CustomMessage {
                        custom_type,
                        content,
                        display: true,
                        details: None,
                        timestamp,
                    })
                } else {
                    Message::User(UserMessage { content, timestamp })
                };
                // Parts of it that the program said stay in the record.
                let without: &[&str] = if is_all { &["content"] } else { &[] };
                let rest = self.rest(record, without);
                let mut item = self.item(record, Entry::Message(message));
                item.kept = rest;
                self.put(item)
            }
            "message" if role.as_deref() != Some("assistant") => {
                self.close()?;
                self.verbatim(record)
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "tool_search_output" => {
                let call = record.payload.string("call_id").unwrap_or_default().into_owned();
                let key = Key::of(&call);
                let name = self.calls.get(&key).cloned().unwrap_or_default();
                let details = self.details.remove(&key);
                let shown = details.as_ref().and_then(|item| Members::known(item.get()));
                let duration = shown.as_ref().and_then(|item| {
                    let duration = Members::known(item.get("duration")?)?;
                    let seconds: u64 = duration.get("secs")?.parse().ok()?;
                    let nanos: u64 = duration.get("nanos")?.parse().ok()?;
                    Some(seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000))
                });
                let result = said::result(&record.payload, &call, name, details.clone(), timestamp);
                let mut item = self.item(record, Entry::Message(Message::ToolResult(result)));
                item.duration_ms = duration;
                item.kept = self.rest(record, &["output"]);
                self.put(item)
            }
            "compaction" | "context_compaction" | "compaction_trigger" | "ghost_snapshot" | "other" => {
                self.close()?;
                self.verbatim(record)
            }
            kind => {
                // What comes after results is another answer.
                if self.open.as_ref().is_some_and(|open| !open.after.is_empty()) {
                    self.close()?;
                }
                if self.open.is_none() {
                    let item = self.item(record, Entry::Meta(Json::object()));
                    let provider = self.header.as_ref().map_or("", |header| &header.provider);
                    self.open = Some(Open::new(item, provider, &self.model, timestamp));
                }
                if let Some(open) = &mut self.open
                    && let Some((call, name)) = open.add(kind, &record.payload, record.text)
                {
                    self.calls.insert(Key::of(&call), name);
                }
                Ok(())
            }
        }
    }

    /// The record without these members of its payload.
    fn rest(&self, record: &Record<'_>, without: &[&str]) -> Option<Json> {
        let line = Members::known(record.json.get())?;
        let payload = record.payload.without(without);
        if line.get("payload").is_none() {
            return Some(payload);
        }
        let outer = line.without(&["payload"]);
        let outer = outer.get();
        let outer = outer.strip_suffix('}').unwrap_or(outer);
        let comma = if outer.len() > 1 { "," } else { "" };
        Some(Json::known([outer, comma, "\"payload\":", payload.get(), "}"].concat()))
    }

    fn event(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        let kind = record.payload.string("type").unwrap_or_default().into_owned();
        match kind.as_str() {
            "item_completed" => {
                let item = record.payload.get("item");
                let members = item.and_then(Members::known);
                let what = members.as_ref().and_then(|item| item.string("type")).unwrap_or_default();
                if ["UserMessage", "AgentMessage", "Reasoning"].contains(&what.as_ref()) {
                    self.out.report.skip("event_msg item_completed");
                    return Ok(());
                }
                let id = members.as_ref().and_then(|item| item.string("id")).map(|id| Key::of(&id));
                match (id.filter(|id| self.calls.contains_key(id)), item.map(Json::known)) {
                    (Some(id), Some(item)) => {
                        self.details.insert(id, item);
                        Ok(())
                    }
                    _ => self.verbatim(record),
                }
            }
            "exec_command_end" | "patch_apply_end" | "mcp_tool_call_end" | "view_image_tool_call" => {
                let id = record.payload.string("call_id").map(|id| Key::of(&id));
                match (id.filter(|id| self.calls.contains_key(id)), Json::parse(record.text)) {
                    (Some(id), Ok(item)) => {
                        self.details.insert(id, item);
                        Ok(())
                    }
                    _ => self.verbatim(record),
                }
            }
            "token_count" => {
                self.out.report.skip("event_msg token_count");
                self.count(record)
            }
            "task_complete" | "turn_complete" => {
                self.close()?;
                let error = record.payload.get("error").filter(|error| error.starts_with('{'));
                match error.and_then(Members::of).and_then(|error| text_of(error.get("message")?)) {
                    Some(told) => self.failed(record, StopReason::Error, told),
                    None => {
                        self.out.report.skip("event_msg task_complete");
                        Ok(())
                    }
                }
            }
            "error" => {
                self.close()?;
                let told = record.payload.get("message").and_then(text_of).unwrap_or_default();
                self.failed(record, StopReason::Error, told)
            }
            "turn_aborted" => {
                self.close()?;
                let why = record.payload.string("reason").unwrap_or_default().into_owned();
                self.failed(record, StopReason::Aborted, why)
            }
            "thread_rolled_back" => {
                self.close()?;
                let turns = record.payload.get("num_turns").and_then(|text| text.parse::<usize>().ok());
                let left = self.users.len().saturating_sub(turns.unwrap_or(0));
                self.verbatim(record)?;
                if let Some(before) = self.users.get(left).cloned() {
                    self.last = before;
                    self.users.truncate(left);
                }
                Ok(())
            }
            "thread_name_updated" => {
                let name = record.payload.string("thread_name").unwrap_or_default();
                let text = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(&name));
                let mut item = self.item(record, Entry::Meta(Json::parse(&text).unwrap_or_default()));
                item.kept = Some(record.json.clone());
                self.put(item)
            }
            "task_started"
            | "turn_started"
            | "thread_settings_applied"
            | "user_message"
            | "agent_message"
            | "agent_reasoning"
            | "agent_reasoning_raw_content"
            | "agent_reasoning_section_break"
            | "exec_command_begin"
            | "patch_apply_begin"
            | "mcp_tool_call_begin"
            | "web_search_begin"
            | "web_search_end"
            | "context_compacted"
            | "turn_diff"
            | "item_started" => {
                self.out.report.skip(&format!("event_msg {kind}"));
                Ok(())
            }
            _ => self.verbatim(record),
        }
    }

    /// Usage as older versions tell it: of the last response, and in all.
    fn count(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        if self.has_records {
            return Ok(());
        }
        let Some(info) = record.payload.get("info").and_then(Members::known) else { return Ok(()) };
        let total = info.get("total_token_usage").and_then(answer::usage).map(|usage| usage.total_tokens);
        // Told again, it says nothing about another response.
        if total.is_none() || std::mem::replace(&mut self.counted, total) == total {
            return Ok(());
        }
        if let (Some(open), Some(usage)) =
            (&mut self.open, info.get("last_token_usage").and_then(answer::usage))
        {
            open.answer.usage = usage;
            return self.close();
        }
        Ok(())
    }

    /// A turn that came to nothing.
    fn failed(&mut self, record: &Record<'_>, stop_reason: StopReason, told: String) -> Result<(), Stop> {
        let message = AssistantMessage {
            api: "openai-responses".into(),
            provider: self.header.as_ref().map_or_else(String::new, |header| header.provider.clone()),
            model: self.model.clone(),
            stop_reason,
            timestamp: record.time.unwrap_or_default(),
            error_message: Some(told),
            ..AssistantMessage::default()
        };
        let mut item = self.item(record, Entry::Message(Message::Assistant(message)));
        item.kept = Some(record.json.clone());
        self.put(item)
    }

    fn compacted(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        self.close()?;
        let mut summary = record.payload.get("message").and_then(text_of).unwrap_or_default();
        if summary.trim().is_empty() {
            // What replaces the history, as far as it can be read.
            let history = said::list(record.payload.get("replacement_history").unwrap_or("[]"));
            let texts = history.into_iter().filter_map(|item| {
                let item = Members::known(item)?;
                let elements = said::of_the_user(&item);
                let content: Vec<Content> = elements.into_iter().map(said::content).collect();
                let text = Body::Blocks(content).text();
                let role = item.string("role")?;
                (!text.trim().is_empty()).then(|| format!("{role}: {text}"))
            });
            summary = texts.collect::<Vec<_>>().join("\n\n");
        }
        if summary.trim().is_empty() {
            return self.verbatim(record);
        }
        let timestamp = record.time.unwrap_or_default();
        let entry = Entry::Compaction(Compaction { summary, timestamp, ..Compaction::default() });
        let mut item = self.item(record, entry);
        item.kept = self.rest(record, &["message"]);
        self.put(item)
    }
}

fn is_result(item: &Item) -> bool {
    matches!(item.entry, Entry::Message(Message::ToolResult(_)))
}
