//! Events in the order of the file to items.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Entry, Json, Message, SessionId, StopReason, UnixMs};
use quipu_seal::Sealer;

use super::event::Event;
use super::outline::{self, Header};
use crate::intake::{
    CompletedRead, Item, ItemParent, LineReader, NodeBuilder, Outline, SealedLines, Start, Stop, Text, run,
};
use crate::json::Members;
use crate::key::Key;

/// Requests whose answer has not come yet, and calls whose result has not, at most.
const OPEN: usize = 10_000;
/// Kinds of events whose content stands elsewhere too.
const BOOKKEEPING: [&str; 7] = [
    "assistant.turn_start",
    "assistant.turn_end",
    "session.resume",
    "session.shutdown",
    "session.usage_checkpoint",
    "session.compaction_start",
    "session.idle",
];

pub(super) fn read(
    lines: &mut SealedLines,
    outline: &Outline,
    out: NodeBuilder,
) -> Result<CompletedRead, Stop> {
    let reader = Reader {
        out,
        sealer: Arc::clone(lines.sealer()),
        session: outline.session.clone(),
        header: None,
        owner: None,
        nodes: Vec::new(),
        after: HashMap::new(),
        last: None,
        agents: HashMap::new(),
        records: HashMap::new(),
        calls: HashMap::new(),
    };
    run(reader, lines, outline.idle)
}

/// A call whose result is to come.
#[derive(Clone)]
struct Call {
    name: String,
    started: Option<UnixMs>,
}

#[derive(Clone)]
struct Reader {
    out: NodeBuilder,
    sealer: Arc<Sealer>,
    session: SessionId,
    header: Option<(Header, Json)>,
    owner: Option<usize>,
    /// The ids of the items.
    nodes: Vec<String>,
    /// The item that stands last in the conversation when an event has come.
    after: HashMap<Key, Option<usize>>,
    last: Option<usize>,
    /// The last item of each subagent.
    agents: HashMap<Key, usize>,
    /// Counts of requests, by the name of the request.
    records: HashMap<Key, Json>,
    calls: HashMap<Key, Call>,
}

impl LineReader for Reader {
    fn out(&mut self) -> &mut NodeBuilder {
        &mut self.out
    }

    fn line(&mut self, text: &Text) -> Result<(), Stop> {
        let event = Event::of(text.json.get());
        if self.header.is_none()
            && let Some(header) = Members::of(text.json.get()).as_ref().and_then(Header::of)
        {
            self.header = Some((header, text.json.clone()));
            self.passed(&event);
            return Ok(());
        }
        let timestamp = event.time.unwrap_or_default();
        let kind = event.kind.as_ref();
        if event.is_passing || BOOKKEEPING.contains(&kind) {
            self.out.report.skip(kind);
            self.passed(&event);
            return Ok(());
        }
        let call = || event.data.string("toolCallId").map(|id| Key::of(&id));
        match kind {
            "session.usage_record" => {
                let usage = event.data.get("usage").and_then(|usage| Json::parse(usage).ok());
                let request = usage
                    .as_ref()
                    .and_then(|usage| Members::of(usage.get())?.string("apiCallId").map(|id| Key::of(&id)));
                if let (Some(request), Some(usage)) = (request, usage)
                    && self.records.len() < OPEN
                {
                    self.records.insert(request, usage);
                }
                self.out.report.skip(kind);
                self.passed(&event);
                Ok(())
            }
            "tool.execution_start" => {
                if let Some(call) = call().and_then(|call| self.calls.get_mut(&call)) {
                    call.started = event.time;
                }
                self.out.report.skip(kind);
                self.passed(&event);
                Ok(())
            }
            "user.message" => {
                let entry = event.user(timestamp);
                let kept = event.data.without(&["content"]);
                self.put(&event, text, entry, Some(kept))
            }
            "assistant.message" => {
                let request = event.data.string("apiCallId").map(|id| Key::of(&id));
                let record = request.and_then(|request| self.records.remove(&request));
                let members = record.as_ref().and_then(|record| Members::of(record.get()));
                let answer = event.answer(members.as_ref(), timestamp);
                for call in answer.tool_calls() {
                    if self.calls.len() < OPEN {
                        let open = Call { name: call.name.clone(), started: None };
                        self.calls.insert(Key::of(call.id.as_str()), open);
                    }
                }
                #[derive(serde::Serialize)]
                struct UnmappedMembers {
                    message: Json,
                    #[serde(skip_serializing_if = "Option::is_none")]
                    usage: Option<Json>,
                }
                let message = event.data.without(&["content", "reasoningText", "reasoningBlocks"]);
                let kept = Json::of(&UnmappedMembers { message, usage: record }).ok();
                self.put(&event, text, Some(Entry::Message(Message::Assistant(answer))), kept)
            }
            "tool.execution_complete" => {
                let open = call().and_then(|call| self.calls.remove(&call));
                // What the user ran by hand answers no call.
                let Some(open) = open else { return self.put(&event, text, None, None) };
                let result = event.result(open.name, timestamp);
                let entry = result.map(|result| Entry::Message(Message::ToolResult(result)));
                let kept = event.data.without(&[
                    "toolCallId",
                    "result",
                    "error",
                    "success",
                    "fileEdits",
                    "shellExecution",
                ]);
                let Some(mut item) = self.item(&event, text, entry, Some(kept)) else { return Ok(()) };
                let took = open
                    .started
                    .zip(event.time)
                    .and_then(|(start, end)| u64::try_from(end.checked_sub(start)?).ok());
                (item.started, item.duration_ms) = (open.started, took);
                self.out.item(item)
            }
            "session.error" => {
                let entry = event.failed(StopReason::Error, timestamp);
                let kept = event.data.without(&["message"]);
                self.put(&event, text, Some(entry), Some(kept))
            }
            "abort" => {
                let entry = event.failed(StopReason::Aborted, timestamp);
                self.put(&event, text, Some(entry), Some(event.data.without(&[])))
            }
            "session.compaction_complete" => {
                let entry = event.compaction(timestamp);
                self.put(&event, text, entry, Some(event.data.without(&["summaryContent"])))
            }
            "session.title_changed" => {
                let title = event.data.get("title").and_then(crate::json::text_of).unwrap_or_default();
                let name = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(&title));
                let entry = Json::parse(&name).ok().map(Entry::Meta);
                self.put(&event, text, entry, Some(event.data.without(&[])))
            }
            _ => self.put(&event, text, None, None),
        }
    }

    fn end(mut self, _: Duration) -> Result<NodeBuilder, Stop> {
        self.out.settle()?;
        if let Some(owner) = self.owner {
            self.out.begin_at_end(owner);
            self.name(owner)?;
        }
        Ok(self.out)
    }
}

impl Reader {
    /// An event that becomes no node: what follows it follows what came before.
    fn passed(&mut self, event: &Event<'_>) {
        if let Some(id) = event.id.as_deref() {
            let last =
                if event.agent.is_some() { self.last } else { self.before(event).unwrap_or(self.last) };
            self.after.insert(Key::of(id), last);
        }
    }

    /// The item that an event follows; an error when it names an event that did not come before it.
    fn before(&self, event: &Event<'_>) -> Result<Option<usize>, String> {
        if let Some(agent) = &event.agent
            && let Some(last) = self.agents.get(&Key::of(agent))
        {
            return Ok(Some(*last));
        }
        match event.parent {
            None => Ok(self.last),
            Some("null") => Ok(None),
            Some(parent) => {
                let Some(parent) = crate::json::string(parent) else { return Ok(self.last) };
                self.after.get(&Key::of(&parent)).copied().ok_or_else(|| parent.into_owned())
            }
        }
    }

    fn put(
        &mut self,
        event: &Event<'_>,
        text: &Text,
        entry: Option<Entry>,
        kept: Option<Json>,
    ) -> Result<(), Stop> {
        match self.item(event, text, entry, kept) {
            Some(item) => self.out.item(item),
            None => Ok(()),
        }
    }

    /// An item of an event. Without an entry the event is kept whole.
    fn item(
        &mut self,
        event: &Event<'_>,
        text: &Text,
        entry: Option<Entry>,
        kept: Option<Json>,
    ) -> Option<Item> {
        let has_entry = entry.is_some();
        let entry = entry.unwrap_or_else(|| verbatim(&text.json, &event.kind));
        let id = match event.id.as_deref() {
            Some(id) => id.to_owned(),
            None => {
                self.out.report.problem(text.number, crate::ProblemKind::NoId, "");
                let hash = quipu_protocol::ChunkId(quipu_dag::sha256(text.json.get().as_bytes())).to_string();
                format!("{}.{}", self.session, &hash[..32])
            }
        };
        let before = self.before(event).unwrap_or_else(|parent| {
            self.out.report.problem(text.number, crate::ProblemKind::Relinked, &parent);
            self.last
        });
        let mut item = Item::new(id.clone(), entry, text.number);
        if let Some(before) = before.and_then(|at| self.nodes.get(at)) {
            item.follows = ItemParent::Item(before.clone());
        }
        (item.owner, item.time, item.kept) = (self.owner(), event.time, kept.filter(|_| has_entry));
        let at = self.nodes.len();
        self.nodes.push(id.clone());
        match &event.agent {
            Some(agent) => {
                item.is_head = false;
                self.agents.insert(Key::of(agent), at);
            }
            None => self.last = Some(at),
        }
        self.after.insert(Key::of(&id), self.last);
        Some(item)
    }

    fn owner(&mut self) -> usize {
        if let Some(owner) = self.owner {
            return owner;
        }
        let header = self.header.as_ref();
        let start = Start {
            session: self.session.clone(),
            cwd: header.map(|(header, _)| header.cwd.clone()).unwrap_or_default(),
            time: header.and_then(|(header, _)| header.time).unwrap_or_default(),
            parent: None,
            kept: header.map(|(_, json)| json.clone()),
        };
        let owner = self.out.session(start);
        *self.owner.insert(owner)
    }

    /// What the user called it.
    fn name(&mut self, owner: usize) -> Result<(), Stop> {
        let Some(name) = outline::name(&self.out.report.path) else { return Ok(()) };
        let name = self.sealer.seal(&name);
        let text = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(&name));
        let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(name.as_bytes())).to_string();
        hash.truncate(16);
        let entry = Entry::Meta(Json::parse(&text).unwrap_or_default());
        let mut item = Item::new(format!("{}.{hash}", self.session), entry, 0);
        (item.owner, item.time, item.is_head) = (owner, Some(self.out.began(owner)), false);
        self.out.item(item)
    }
}

/// A whole event as an entry that carries no message.
fn verbatim(json: &Json, kind: &str) -> Entry {
    if kind.is_empty() {
        let text = format!("{{\"type\":\"\",\"record\":{json}}}");
        return Entry::Meta(Json::parse(&text).unwrap_or_default());
    }
    Entry::Meta(json.clone())
}
