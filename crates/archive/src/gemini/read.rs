//! The log of a session to items.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{
    AssistantMessage, Body, Compaction, Content, Entry, Json, Message as Said, SessionId, StopReason, UnixMs,
    UserMessage,
};
use quipu_seal::Sealer;

use super::message::{Message, without_hooks};
use super::outline::{self, Header};
use crate::intake::run;
use crate::intake::{
    CompletedRead, Item, ItemParent, LineReader, NodeBuilder, Outline, REST, SealedLines, Start, Stop, Text,
};
use crate::json::{Members, list};
use crate::key::Key;
use crate::lineages::session_id;

/// Messages that are held, since a later line may say more of them: at most so many, or so many bytes.
const HELD: usize = 512;
const HELD_BYTES: usize = 4 << 20;
/// Bytes that are held for want of a header, which says what the session is.
const HEADLESS: usize = 64 << 20;

pub(super) fn read(
    lines: &mut SealedLines,
    outline: &Outline,
    out: NodeBuilder,
) -> Result<CompletedRead, Stop> {
    let path = out.report.path.clone();
    let parent = outline::parent(&path).map(|parent| session_id(&lines.seal(&parent)));
    let start = Start { session: outline.session.clone(), cwd: String::new(), time: 0, parent, kept: None };
    let mut log = Log {
        out,
        path,
        sealer: Arc::clone(lines.sealer()),
        session: outline.session.clone(),
        start,
        owner: None,
        messages: Vec::new(),
        places: HashMap::new(),
        order: Vec::new(),
        inside: HashSet::new(),
        open: None,
        sent: 0,
        bytes: 0,
        has_preamble: false,
        aside: HashSet::new(),
        answered: HashSet::new(),
        beside: Vec::new(),
    };
    if lines.is_document()? {
        if let Some(text) = lines.document(&mut log.out)? {
            log.line(&text)?;
        }
        return log.end(outline.idle).map(CompletedRead::whole);
    }
    run(log, lines, outline.idle)
}

/// A message in its most complete version.
#[derive(Clone)]
struct MessageVersion {
    id: Arc<str>,
    /// `None` once it was sent.
    json: Option<Json>,
    score: [usize; 5],
    /// Where it first came.
    line: u64,
    /// The message before it.
    before: Option<usize>,
    means: MessageUse,
    /// The node that it became.
    node: Option<Arc<str>>,
    /// What the message after it follows.
    tail: Option<Arc<str>>,
    time: Option<UnixMs>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageUse {
    Message,
    /// What the program says when a session begins.
    Preamble,
    /// What stands for all before it, but for what comes from this message on.
    Summary(Option<usize>),
}

#[derive(Clone)]
struct Log {
    out: NodeBuilder,
    path: PathBuf,
    sealer: Arc<Sealer>,
    session: SessionId,
    start: Start,
    owner: Option<usize>,
    /// In the order in which they first came: what one follows came before it.
    messages: Vec<MessageVersion>,
    places: HashMap<Key, usize>,
    /// The conversation as it stands.
    order: Vec<usize>,
    /// The same to ask.
    inside: HashSet<usize>,
    /// An answer of which more may come.
    open: Option<usize>,
    /// Those before were sent.
    sent: usize,
    bytes: usize,
    has_preamble: bool,
    /// Later preambles.
    aside: HashSet<Key>,
    /// Calls that have a result.
    answered: HashSet<Key>,
    /// What is no part of the conversation: a title, the directories.
    beside: Vec<(Entry, Json, u64)>,
}

impl LineReader for Log {
    fn out(&mut self) -> &mut NodeBuilder {
        &mut self.out
    }

    fn line(&mut self, text: &Text) -> Result<(), Stop> {
        let members = Members::of(text.json.get()).unwrap_or_else(|| Members(Vec::new()));
        if let Some(back) = members.string("$rewindTo") {
            self.open = None;
            let at = self.places.get(&Key::of(&back));
            let at = at.copied().filter(|at| self.inside.contains(at));
            while let Some(last) = self.order.pop() {
                self.inside.remove(&last);
                if Some(last) == at {
                    break;
                }
            }
            self.out.report.skip("$rewindTo");
        } else if let Some(patch) = members.get("$set").and_then(Members::of) {
            self.patch(&patch, text.number);
        } else if let Some(header) = Header::of(&members) {
            if self.start.kept.is_none() {
                let directory = outline::directory(&self.path, header.project.as_deref());
                self.start.cwd = self.sealer.seal(&directory.unwrap_or_default()).into_owned();
                self.start.time = header.time.unwrap_or_default();
                self.start.kept = Some(header.kept);
            } else {
                // Each time that the session goes on.
                self.open = None;
                let about =
                    |json: &Json| Members::of(json.get()).map(|members| members.without(&["startTime"]));
                if self.start.kept.as_ref().and_then(about) == about(&header.kept) {
                    self.out.report.skip("header");
                } else {
                    let entry = verbatim(&members, header.kept.get());
                    self.beside.push((entry, header.kept, text.number));
                }
            }
            // Older files hold their messages here.
            for message in list(members.get("messages").unwrap_or("[]")) {
                self.message(message, text.number);
            }
            self.title(&members, text.number);
        } else if members.string("id").is_some_and(|id| !id.is_empty()) {
            self.message(text.json.get(), text.number);
        } else {
            self.beside.push((verbatim(&members, text.json.get()), text.json.clone(), text.number));
        }
        let held = self.messages.len() - self.sent;
        if (held > HELD || self.bytes > HELD_BYTES) && (self.start.kept.is_some() || self.bytes > HEADLESS) {
            // Of the newest, lines to come are the likeliest to say more.
            let rest = if self.bytes > HELD_BYTES { 1 } else { HELD / 2 };
            self.send(self.messages.len().saturating_sub(rest))?;
        }
        Ok(())
    }

    fn end(mut self, idle: Duration) -> Result<NodeBuilder, Stop> {
        self.send_all(idle)?;
        Ok(self.out)
    }
}

impl Log {
    /// A message on a line of its own.
    fn message(&mut self, text: &str, line: u64) {
        let message = Message::of(text);
        let Some(id) = message.members.string("id").filter(|id| !id.is_empty()) else {
            let entry = verbatim(&message.members, text);
            self.beside.push((entry, Json::parse(text).unwrap_or_default(), line));
            return;
        };
        let at = match self.places.get(&Key::of(&id)).copied() {
            Some(at) => {
                let score = message.score();
                if score >= self.messages[at].score {
                    self.replace(at, text, score);
                }
                self.out.report.skip("repeated message");
                at
            }
            None => {
                let before = self.order.last().copied();
                match self.add(&message, text, line, before) {
                    Some(at) => at,
                    None => return,
                }
            }
        };
        if self.inside.insert(at) {
            self.order.push(at);
        }
        self.open = Some(at).filter(|_| message.kind == "gemini");
    }

    /// A message that comes for the first time.
    fn add(&mut self, message: &Message<'_>, text: &str, line: u64, before: Option<usize>) -> Option<usize> {
        let id: Arc<str> = message.members.string("id")?.into();
        let is_preamble = message.is_preamble();
        let json = Json::parse(text).ok()?;
        if is_preamble && std::mem::replace(&mut self.has_preamble, true) {
            if self.aside.insert(Key::of(&id)) {
                self.beside.push((verbatim(&message.members, text), json, line));
            } else {
                self.out.report.skip("repeated message");
            }
            return None;
        }
        let at = self.messages.len();
        self.bytes += text.len();
        self.places.insert(Key::of(&id), at);
        self.messages.push(MessageVersion {
            id,
            json: Some(json),
            score: message.score(),
            line,
            before,
            means: if is_preamble { MessageUse::Preamble } else { MessageUse::Message },
            node: None,
            tail: None,
            time: None,
        });
        Some(at)
    }

    fn replace(&mut self, at: usize, text: &str, score: [usize; 5]) {
        let held = &mut self.messages[at];
        if let (Some(old), Ok(json)) = (&held.json, Json::parse(text)) {
            self.bytes = (self.bytes + text.len()).saturating_sub(old.get().len());
            (held.json, held.score) = (Some(json), score);
        }
    }

    /// Members of the session that are told anew.
    fn patch(&mut self, patch: &Members<'_>, line: u64) {
        if let Some(messages) = patch.get("messages") {
            self.open = None;
            self.out.report.skip("$set messages");
            self.list(messages, line);
        } else {
            self.out.report.skip("$set");
        }
        self.title(patch, line);
        let rest = patch.without(&["messages", "lastUpdated", "sessionId", "summary"]);
        if rest.get() != "{}" {
            let text = format!("{{\"type\":\"$set\",\"set\":{rest}}}");
            let json = Json::parse(&text).unwrap_or_default();
            self.beside.push((Entry::Meta(json.clone()), json, line));
        }
    }

    fn title(&mut self, members: &Members<'_>, line: u64) {
        if let Some(title) = members.string("summary").filter(|title| !title.trim().is_empty()) {
            let text = format!("{{\"type\":\"session_info\",\"name\":{}}}", quipu_dag::quoted(&title));
            let json = Json::parse(&text).unwrap_or_default();
            self.beside.push((Entry::Meta(json.clone()), json, line));
        }
    }

    /// A list that stands for all messages. What it leaves out stays where it is.
    fn list(&mut self, messages: &str, line: u64) {
        let mut order: Vec<usize> = Vec::new();
        let mut inside: HashSet<usize> = HashSet::new();
        let mut summary = None;
        for text in list(messages) {
            let message = Message::of(text);
            let Some(id) = message.members.string("id").filter(|id| !id.is_empty()) else {
                let entry = verbatim(&message.members, text);
                self.beside.push((entry, Json::parse(text).unwrap_or_default(), line));
                continue;
            };
            let at = match self.places.get(&Key::of(&id)).copied() {
                Some(at) => {
                    let score = message.score();
                    if score > self.messages[at].score {
                        self.replace(at, text, score);
                    }
                    self.out.report.skip("repeated message");
                    at
                }
                None => {
                    let is_summary =
                        summary.is_none() && !self.order.is_empty() && message.summary().is_some();
                    // It follows all that it stands for.
                    let before = if is_summary { self.order.last() } else { order.last() };
                    let Some(at) = self.add(&message, text, line, before.copied()) else { continue };
                    if is_summary && self.messages[at].means == MessageUse::Message {
                        self.messages[at].means = MessageUse::Summary(None);
                        order.clone_from(&self.order);
                        inside.clone_from(&self.inside);
                        summary = Some(at);
                    }
                    at
                }
            };
            if let Some(summary) = summary.filter(|summary| at < *summary) {
                // Kept as it was, before the summary.
                if self.messages[summary].means == MessageUse::Summary(None) {
                    self.messages[summary].means = MessageUse::Summary(Some(at));
                }
                continue;
            }
            if inside.insert(at) {
                order.push(at);
            }
        }
        // A program that begins says so before it takes up what was said.
        let is_new = order.iter().all(|at| self.messages[*at].means == MessageUse::Preamble);
        if !is_new || self.order.is_empty() {
            (self.order, self.inside) = (order, inside);
        }
    }

    /// Sends the messages before this one.
    fn send(&mut self, to: usize) -> Result<(), Stop> {
        for at in self.sent..to {
            let held = &mut self.messages[at];
            let Some(json) = held.json.take() else { continue };
            let (id, line, means) = (held.id.clone(), held.line, held.means);
            let before = held.before.and_then(|before| self.messages[before].tail.clone());
            let is_head = self.inside.contains(&at);
            let mut chain = Chain { follows: before, line, is_head, node: None, time: None };
            self.one(&id, json.get(), means, &mut chain)?;
            let held = &mut self.messages[at];
            (held.node, held.tail, held.time) = (chain.node, chain.follows, chain.time);
        }
        self.sent = self.sent.max(to);
        self.bytes = self.messages[self.sent..]
            .iter()
            .filter_map(|held| held.json.as_ref())
            .map(|json| json.get().len())
            .sum();
        Ok(())
    }

    /// What one message becomes.
    fn one(&mut self, id: &str, text: &str, means: MessageUse, chain: &mut Chain) -> Result<(), Stop> {
        let message = Message::of(text);
        let timestamp: UnixMs = message.time.unwrap_or_default();
        let kept = |without: &[&str], parts: Vec<Json>| {
            #[derive(serde::Serialize)]
            struct UnmappedMembers {
                message: Json,
                #[serde(skip_serializing_if = "Vec::is_empty")]
                parts: Vec<Json>,
            }
            Json::of(&UnmappedMembers { message: message.members.without(without), parts }).ok()
        };
        let without = ["id", "type", "timestamp", "content"];
        let line = chain.line;
        let item =
            |id: &str, entry: Entry| Item { time: message.time, ..Item::new(id.to_owned(), entry, line) };
        match (means, message.kind.as_ref()) {
            (MessageUse::Preamble, _) => self.put(item(id, verbatim(&message.members, text)), chain),
            (MessageUse::Summary(first), _) => {
                let summary = message.summary().unwrap_or_default();
                let mut item =
                    item(id, Entry::Compaction(Compaction { summary, timestamp, ..Compaction::default() }));
                item.first_kept =
                    first.and_then(|first| Some(self.messages[first].node.as_deref()?.to_owned()));
                item.kept = kept(&without, Vec::new());
                self.put(item, chain)
            }
            (MessageUse::Message, "gemini") => {
                let (answer, more) = message.answer(timestamp);
                let calls = message.calls();
                for call in answer.tool_calls() {
                    self.answered.remove(&Key::of(call.id.as_str()));
                }
                let mut first = item(id, Entry::Message(Said::Assistant(answer)));
                // What is noted of a call stands with its result.
                let open = calls.iter().filter(|call| !call.has_result()).map(super::message::Call::rest);
                first.kept = kept(
                    &[&without[..], &["toolCalls", "model"]].concat(),
                    more.into_iter().chain(open).collect(),
                );
                self.put(first, chain)?;
                for call in &calls {
                    let Some(result) = call.result(timestamp) else { continue };
                    self.answered.insert(Key::of(&call.id));
                    let time = Some(result.timestamp).filter(|time| *time != 0).or(message.time);
                    let result = Entry::Message(Said::ToolResult(result));
                    let result = item(&format!("{id}.{}", call.id), result);
                    self.put(Item { time, ..result }, chain)?;
                }
                Ok(())
            }
            (MessageUse::Message, "user") => {
                let content_parts = message.content_parts();
                for response in &content_parts.responses {
                    if self.answered.insert(Key::of(&response.call)) {
                        let result = Entry::Message(Said::ToolResult(response.result(timestamp)));
                        self.put(item(&format!("{id}.{}", response.call), result), chain)?;
                    } else {
                        self.out.report.skip("functionResponse");
                    }
                }
                if content_parts.content.is_empty() {
                    // Parts of which nothing is known are no content.
                    return match content_parts.responses.is_empty() {
                        true => self.put(item(id, verbatim(&message.members, text)), chain),
                        false => Ok(()),
                    };
                }
                let (said, told) = without_hooks(content_parts.content);
                let content = Body::Blocks(said);
                let mut user = item(id, Entry::Message(Said::User(UserMessage { content, timestamp })));
                user.kept = kept(&without, [content_parts.more, told].concat());
                self.put(user, chain)
            }
            (MessageUse::Message, "error") => {
                let content = message.content_parts().content;
                let told = content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
                let mut error = item(
                    id,
                    Entry::Message(Said::Assistant(AssistantMessage {
                        api: "google-generative-ai".into(),
                        provider: "google".into(),
                        stop_reason: StopReason::Error,
                        error_message: Some(told),
                        timestamp,
                        ..AssistantMessage::default()
                    })),
                );
                error.kept = kept(&without, Vec::new());
                self.put(error, chain)
            }
            _ => self.put(item(id, verbatim(&message.members, text)), chain),
        }
    }

    fn put(&mut self, mut item: Item, chain: &mut Chain) -> Result<(), Stop> {
        let owner = match self.owner {
            Some(owner) => owner,
            None => {
                let owner = self.out.session(self.start.clone());
                *self.owner.insert(owner)
            }
        };
        (item.owner, item.is_head) = (owner, chain.is_head);
        let next: Arc<str> = item.id.as_str().into();
        item.follows = match chain.follows.replace(Arc::clone(&next)) {
            Some(before) => ItemParent::Item(before.as_ref().to_owned()),
            None => ItemParent::Nothing,
        };
        (chain.node, chain.time) = (Some(next), item.time);
        self.out.item(item)
    }

    fn send_all(&mut self, idle: Duration) -> Result<(), Stop> {
        let mut to = self.messages.len();
        if let Some(open) = self.open.filter(|open| idle < REST && open + 1 == to) {
            // Its calls come with their results, however long those take.
            self.out.unfinished(self.messages[open].line, "");
            self.inside.remove(&open);
            to = open;
        }
        // A session of which nothing was said yet, or the empty twin of one that went on elsewhere.
        if self.messages[..to].iter().all(|held| held.means == MessageUse::Preamble) {
            for _ in 0..to {
                self.out.report.skip("session_context");
            }
            for (..) in &self.beside {
                self.out.report.skip("entry of an empty session");
            }
            return Ok(());
        }
        self.send(to)?;
        self.out.settle()?;
        let Some(owner) = self.owner else { return Ok(()) };
        let stands = (0..to).rev().find(|at| self.inside.contains(at));
        let stands = stands.and_then(|at| self.messages.get(at));
        let stands = stands.and_then(|held| Some((held.line, held.time, held.tail.as_deref()?)));
        self.out.stand_at(owner, stands);
        self.out.begin_at_end(owner);
        let time = self.out.began(owner);
        let mut follows = ItemParent::Nothing;
        let mut told = HashSet::new();
        for (entry, json, line) in std::mem::take(&mut self.beside) {
            let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(json.get().as_bytes())).to_string();
            hash.truncate(32);
            if !told.insert(Key::of(&hash)) {
                self.out.report.skip("repeated entry");
                continue;
            }
            let mut item = Item::new(format!("{}.{hash}", self.session), entry, line);
            (item.owner, item.time, item.is_head) = (owner, Some(time), false);
            item.follows = std::mem::replace(&mut follows, ItemParent::Item(item.id.clone()));
            self.out.item(item)?;
        }
        Ok(())
    }
}

/// Where the nodes of a message stand.
struct Chain {
    /// What the next of them follows.
    follows: Option<Arc<str>>,
    line: u64,
    is_head: bool,
    /// The last of them.
    node: Option<Arc<str>>,
    time: Option<UnixMs>,
}

/// A record that is no message of the conversation, whole.
fn verbatim(members: &Members<'_>, text: &str) -> Entry {
    let kind = members.string("type").unwrap_or_default();
    let kind = if kind == "user" { "session_context".into() } else { kind };
    let json = format!("{{\"type\":{},\"record\":{text}}}", quipu_dag::quoted(&kind));
    Entry::Meta(Json::parse(&json).unwrap_or_default())
}
