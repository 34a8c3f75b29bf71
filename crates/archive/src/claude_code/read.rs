//! Records in the order of the file to items.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use quipu_protocol::{AssistantMessage, Content, Entry, Json, Message, StopReason, UnixMs, Usage};

use super::blocks;
use super::outline::Copies;
use super::record::{Record, answer};
use crate::intake::{
    CompletedRead, Item, ItemParent, LineReader, NodeBuilder, Outline, REST, SealedLines, Skip, Start, Stop,
};
use crate::intake::{Text, WHOLE, run};
use crate::json::{Members, list_of};
use crate::key::Key;

/// Answers that are open at once at most; the oldest is closed.
const OPEN: usize = 64;
/// Kinds of records without an id whose content stands elsewhere too.
const BOOKKEEPING: [&str; 9] = [
    "queue-operation",
    "last-prompt",
    "cost-state",
    "tools-used",
    "mode",
    "permission-mode",
    "atis-latch",
    "agent-setting",
    "attribution-snapshot",
];

pub(super) fn read(
    lines: &mut SealedLines,
    outline: &Outline,
    out: NodeBuilder,
) -> Result<CompletedRead, Stop> {
    let path = out.report.path.clone();
    // What has changed since then is told by who made the outline.
    let look = outline.look.as_ref().and_then(|look| look.downcast_ref::<Copies>());
    let copies = match look {
        Some(copies) => copies.clone(),
        None => {
            let other = |error: crate::ArchiveError| std::io::Error::other(error.to_string());
            let mut file = std::fs::File::open(&path)?;
            Copies::of(&mut file, &path).map_err(other)?
        }
    };
    let reader = Reader {
        copies,
        out,
        groups: Vec::new(),
        group_of: HashMap::new(),
        calls: HashMap::new(),
        open: Vec::new(),
        done: HashSet::new(),
        beside: Vec::new(),
        tokens_before: 0,
        preserved: None,
        cwd: String::new(),
    };
    run(reader, lines, outline.idle)
}

/// Lines that hold the whole context again, told by their first bytes: they are not even parsed.
fn skipped(line: &[u8]) -> Option<&'static str> {
    let rest = line.strip_prefix(b"{\"type\":\"api-request")?;
    Some(match rest.first() {
        Some(b'"') => "api-request",
        _ if rest.starts_with(b"-blob\"") => "api-request-blob",
        _ if rest.starts_with(b"-shape\"") => "api-request-shape",
        _ => "api-request-…",
    })
}

/// An answer whose records may still be coming.
#[derive(Clone)]
struct Open {
    /// What its records have in common.
    key: Key,
    group: usize,
    item: Item,
    answer: AssistantMessage,
    records: Vec<Json>,
    more: Vec<Json>,
    is_side: bool,
    /// Whether a record said why it ended.
    is_ended: bool,
    /// Lines with results of its calls, which must come after it.
    results: Vec<(Json, u64)>,
}

/// An answer and what follows it.
#[derive(Clone)]
struct Group {
    /// The last of the results so far, else the answer.
    tail: String,
}

#[derive(Clone)]
struct Reader {
    copies: Copies,
    out: NodeBuilder,
    groups: Vec<Group>,
    /// The answer that a record is a block or a result of.
    group_of: HashMap<Key, usize>,
    /// The answer of a call, and the name of its tool.
    calls: HashMap<Key, (usize, String)>,
    open: Vec<Open>,
    /// Answers that were placed.
    done: HashSet<Key>,
    /// Records without an id that are kept.
    beside: Vec<(Entry, Json, u64)>,
    /// Of the compaction whose summary comes next.
    tokens_before: u64,
    preserved: Option<String>,
    cwd: String,
}

impl LineReader for Reader {
    const SKIP: Skip = skipped;

    fn out(&mut self) -> &mut NodeBuilder {
        &mut self.out
    }

    fn line(&mut self, text: &Text) -> Result<(), Stop> {
        let record = Record::of(text.json.get(), text.number);
        if let Some(cwd) = record.members.string("cwd").filter(|_| self.cwd.is_empty()) {
            self.cwd = cwd.into_owned();
        }
        let Some(uuid) = record.uuid.as_deref() else {
            // Whoever keeps books has finished the answer before.
            while let Some(at) = self.open.iter().position(|open| open.is_ended && !open.is_side) {
                self.close(at)?;
            }
            self.without_id(&record, &text.json);
            return Ok(());
        };
        match record.kind.as_ref() {
            "assistant" => self.block(&record, uuid),
            "user" => {
                let results = results_of(&record);
                // Results of an answer that is not complete yet come after it.
                let open = self.open.iter_mut().find(|open| {
                    !open.is_ended
                        && results
                            .iter()
                            .any(|id| open.answer.tool_calls().any(|call| call.id.as_str() == id))
                });
                if let Some(open) = open {
                    open.results.push((text.json.clone(), text.number));
                    return Ok(());
                }
                self.close_before(&record)?;
                self.user(&record, uuid)
            }
            _ => {
                self.close_before(&record)?;
                self.other(&record, uuid)
            }
        }
    }

    fn end(mut self, idle: Duration) -> Result<NodeBuilder, Stop> {
        self.close_all(idle)?;
        Ok(self.out)
    }

    /// Lines that were copied from another session say whose those before them are.
    fn can_continue(&self, line: &[u8]) -> bool {
        self.copies.are_same_with(line)
    }
}

impl Reader {
    /// A record that is no part of the tree.
    fn without_id(&mut self, record: &Record<'_>, json: &Json) {
        if BOOKKEEPING.contains(&record.kind.as_ref()) || record.kind.starts_with("api-request") {
            self.out.report.skip(&record.kind);
            return;
        }
        let entry = match record.given_title() {
            Some(title) => {
                let text = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(&title));
                Entry::Meta(Json::parse(&text).unwrap_or_default())
            }
            None => record.verbatim(),
        };
        self.beside.push((entry, json.clone(), record.line));
    }

    /// An item of a record, with all but its meaning.
    fn item(&mut self, record: &Record<'_>, id: &str, entry: Entry) -> Item {
        let time = record.time;
        let session = self.copies.owner(record.line, time).clone();
        let parent = if session == self.copies.session {
            self.copies.parent.clone().or_else(|| self.copies.runs.last().map(|(_, owner)| owner.clone()))
        } else {
            // Forks of forks: the run before is what this one was forked from.
            let at = self.copies.runs.iter().position(|(_, owner)| *owner == session).unwrap_or(0);
            at.checked_sub(1).and_then(|at| self.copies.runs.get(at)).map(|(_, owner)| owner.clone())
        };
        let cwd = record.members.string("cwd").map_or_else(|| self.cwd.clone(), std::borrow::Cow::into_owned);
        // A fork began when it was made, whether or not anything was said in it.
        let is_fork = session == self.copies.session && !self.copies.runs.is_empty();
        let began = if is_fork { self.copies.own_from.or(time) } else { time };
        let cwd = if is_fork { self.cwd.clone() } else { cwd };
        let began = began.unwrap_or_default();
        let owner = self.out.session(Start { session, cwd, time: began, parent, kept: None });
        let follows = match record.parent.as_deref() {
            None => ItemParent::Nothing,
            Some(parent) => ItemParent::Item(match self.group_of.get(&Key::of(parent)) {
                Some(group) => self.groups[*group].tail.clone(),
                None => parent.to_owned(),
            }),
        };
        let is_head = !record.is("isSidechain") || self.copies.parent.is_some();
        Item { owner, follows, time, is_head, ..Item::new(id.to_owned(), entry, record.line) }
    }

    /// A block of an answer.
    fn block(&mut self, record: &Record<'_>, uuid: &str) -> Result<(), Stop> {
        let time = record.time.unwrap_or_default();
        let message = record.message();
        let list = message.as_ref().and_then(|message| blocks::list(message.get("content")?));
        let (Some(message), Some(list)) = (message, list) else {
            self.close_before(record)?;
            return self.other(record, uuid);
        };
        let is_ended = message.string("stop_reason").is_some();
        let id = message.string("id").unwrap_or_default();
        let request = record.members.string("requestId").or_else(|| record.members.string("requestRef"));
        let key = Key::of(&format!("{id}\n{}", request.as_deref().unwrap_or_default()));
        let is_error = record.is("isApiErrorMessage");
        let at = match self.open.iter().position(|open| open.key == key && !id.is_empty()) {
            Some(at) => at,
            None => {
                self.close_before(record)?;
                let mut answer = answer(record, &message, time);
                if self.done.contains(&key) {
                    // It was counted with the blocks before.
                    answer.usage = Usage::default();
                }
                let placeholder = Entry::Meta(Json::object());
                let item = self.item(record, uuid, placeholder);
                let group = self.groups.len();
                self.groups.push(Group { tail: uuid.to_owned() });
                if self.open.len() >= OPEN {
                    self.close(0)?;
                }
                self.open.push(Open {
                    key,
                    group,
                    item,
                    answer,
                    records: Vec::new(),
                    more: Vec::new(),
                    is_side: record.is("isSidechain"),
                    is_ended: false,
                    results: Vec::new(),
                });
                self.open.len() - 1
            }
        };
        let open = &mut self.open[at];
        if open.item.id != uuid {
            open.item.also.push(uuid.to_owned());
        }
        open.is_ended |= is_ended;
        if is_ended {
            let last = answer(record, &message, open.answer.timestamp);
            open.answer.stop_reason = last.stop_reason;
            open.answer.raw_stop_reason = last.raw_stop_reason;
            if !self.done.contains(&key) {
                open.answer.usage = last.usage;
            }
        }
        for block in list {
            if !blocks::is_all(block) {
                open.more.push(Json::known(block));
            }
            let content = blocks::content(block);
            if let (true, Content::Text(text)) = (is_error, &content) {
                let told = open.answer.error_message.get_or_insert_default();
                told.push_str(&text.text);
                continue;
            }
            if let Content::ToolCall(call) = &content {
                self.calls.insert(Key::of(call.id.as_str()), (open.group, call.name.clone()));
            }
            open.answer.content.push(content);
        }
        open.records.push(record.rest(&[]));
        let rest = message.without(&["content", "id", "type", "role", "model"]);
        open.records.push(rest);
        self.group_of.insert(Key::of(uuid), open.group);
        Ok(())
    }

    /// Closes the answers that cannot go on when this record comes.
    fn close_before(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        let is_side = record.is("isSidechain");
        let parent = record.parent.as_deref().and_then(|parent| self.group_of.get(&Key::of(parent))).copied();
        // Of conversations beside the main one there can be several at once.
        let ends = |open: &Open| open.is_side == is_side && (!is_side || parent == Some(open.group));
        while let Some(at) = self.open.iter().position(ends) {
            self.close(at)?;
        }
        Ok(())
    }

    fn close(&mut self, at: usize) -> Result<(), Stop> {
        let Open { key, mut item, mut answer, records, more, results, .. } = self.open.remove(at);
        self.done.insert(key);
        let has_calls = answer.tool_calls().next().is_some();
        if has_calls && answer.stop_reason == StopReason::Stop {
            answer.stop_reason = StopReason::ToolUse;
        }
        item.entry = Entry::Message(Message::Assistant(answer));
        let records = list_of(&records);
        item.kept = Some(Json::known(match more.is_empty() {
            true => ["{\"records\":", &records, "}"].concat(),
            false => ["{\"records\":", &records, ",\"blocks\":", &list_of(&more), "}"].concat(),
        }));
        self.out.item(item)?;
        for (json, line) in results {
            let record = Record::of(json.get(), line);
            if let Some(uuid) = record.uuid.clone() {
                self.user(&record, &uuid)?;
            }
        }
        Ok(())
    }

    /// What the user said, results of tools, and what the program says in the user's place.
    fn user(&mut self, record: &Record<'_>, uuid: &str) -> Result<(), Stop> {
        let timestamp = record.time.unwrap_or_default();
        if record.is("isCompactSummary")
            && let Some(entry) = record.compaction(self.tokens_before, timestamp)
        {
            let mut item = self.item(record, uuid, entry);
            item.first_kept = self.preserved.take();
            item.kept = Some(record.rest(&[]));
            return self.out.item(item);
        }
        let message = record.message();
        let raw = message.as_ref().and_then(|message| message.get("content"));
        let list = raw.and_then(blocks::list);
        let (Some(raw), Some(list)) = (raw, list) else { return self.other(record, uuid) };
        if record.is("isVisibleInTranscriptOnly") {
            return self.other(record, uuid);
        }
        let mut said = Vec::new();
        let mut results = Vec::new();
        for block in list {
            match Members::known(block)
                .filter(|members| members.string("type").as_deref() == Some("tool_result"))
            {
                Some(members) if members.string("tool_use_id").is_some() => results.push((members, block)),
                _ => said.push(block),
            }
        }
        let said = record.said(&said, raw.starts_with('"'), timestamp);
        let count = results.len() + usize::from(said.is_some());
        if count == 0 {
            return self.other(record, uuid);
        }
        let details = match results.len() {
            1 => record.members.get("toolUseResult").map(Json::known),
            _ => None,
        };
        let mut rest = Some(record.rest(if details.is_some() { &["toolUseResult"] } else { &[] }));
        let mut number = 0;
        let mut id = || {
            number += 1;
            if number == count { uuid.to_owned() } else { format!("{uuid}.{number}") }
        };
        let mut before = None;
        for (block, text) in &results {
            let call = block.string("tool_use_id").map(|id| Key::of(&id));
            let found = call.and_then(|call| self.calls.get(&call)).cloned();
            let group = found.as_ref().map(|(group, _)| *group);
            let name = found.map(|(_, name)| name).unwrap_or_default();
            let Some(result) = record.result(block, name, details.clone(), timestamp) else { continue };
            let id = id();
            let mut item = self.item(record, &id, Entry::Message(result));
            if let Some(group) = group {
                item.follows = ItemParent::Item(std::mem::replace(&mut self.groups[group].tail, id.clone()));
                self.group_of.insert(Key::of(uuid), group);
            } else if let Some(before) = before.take() {
                item.follows = ItemParent::Item(before);
            }
            item.kept = match rest.take() {
                Some(rest) => Some(rest),
                None if !blocks::is_all(text) => Some(Json::known(*text)),
                None => None,
            };
            before = Some(id);
            self.out.item(item)?;
        }
        if let Some(entry) = said {
            let id = id();
            let mut item = self.item(record, &id, entry);
            if let Some(before) = before {
                // The user spoke beside the results: what comes later follows these words.
                if let Some(group) = self.group_of.get(&Key::of(uuid)) {
                    self.groups[*group].tail.clone_from(&id);
                }
                item.follows = ItemParent::Item(before);
            }
            item.kept = rest.take();
            self.out.item(item)?;
        }
        Ok(())
    }

    /// Any other record of the tree.
    fn other(&mut self, record: &Record<'_>, uuid: &str) -> Result<(), Stop> {
        if record.members.string("subtype").as_deref() == Some("compact_boundary") {
            let data = record.members.get("compactMetadata").and_then(Members::known);
            let count = data.as_ref().and_then(|data| data.get("preTokens")?.parse().ok());
            self.tokens_before = count.unwrap_or_default();
            let segment = data.as_ref().and_then(|data| Members::known(data.get("preservedSegment")?));
            self.preserved = segment.and_then(|segment| Some(segment.string("headUuid")?.into_owned()));
        }
        let timestamp: UnixMs = record.time.unwrap_or_default();
        let mut item = match record.attachment(timestamp) {
            Some(entry) => {
                let mut item = self.item(record, uuid, entry);
                item.kept = Some(record.rest(&["rendered"]));
                item
            }
            None => self.item(record, uuid, record.verbatim()),
        };
        item.is_head &= record.kind != "progress";
        self.out.item(item)
    }

    fn close_all(&mut self, idle: Duration) -> Result<(), Stop> {
        while let Some(open) = self.open.first() {
            let looks_whole = open.is_ended || !open.results.is_empty();
            if idle >= REST || looks_whole && idle >= WHOLE {
                self.close(0)?;
                continue;
            }
            let open = self.open.remove(0);
            self.out.unfinished(open.item.line, "");
        }
        self.out.settle()?;
        let start = Start {
            session: self.copies.session.clone(),
            cwd: self.cwd.clone(),
            time: self.copies.own_from.unwrap_or_default(),
            parent: self
                .copies
                .parent
                .clone()
                .or_else(|| self.copies.runs.last().map(|(_, owner)| owner.clone())),
            kept: None,
        };
        let owner = self.out.session(start);
        let time = self.out.began(owner);
        self.out.begin_at_end(owner);
        let mut follows = ItemParent::Nothing;
        for (entry, json, line) in std::mem::take(&mut self.beside) {
            let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(json.get().as_bytes())).to_string();
            hash.truncate(32);
            let mut item = Item::new(format!("{}.{hash}", self.copies.session), entry, line);
            (item.owner, item.time, item.is_head) = (owner, Some(time), false);
            item.kept = Some(json);
            item.follows = std::mem::replace(&mut follows, ItemParent::Item(item.id.clone()));
            self.out.item(item)?;
        }
        Ok(())
    }
}

/// The calls that a user's record answers.
fn results_of(record: &Record<'_>) -> Vec<String> {
    let Some(message) = record.message() else { return Vec::new() };
    let Some(list) = message.get("content").filter(|content| content.starts_with('[')).and_then(blocks::list)
    else {
        return Vec::new();
    };
    let id = |block: &str| Some(Members::known(block)?.string("tool_use_id")?.into_owned());
    list.into_iter().filter_map(id).collect()
}
