//! Rows to items.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use quipu_protocol::{
    AssistantMessage, Body, Compaction, Content, Entry, Json, Message, SessionId, StopReason, UnixMs,
    UserMessage,
};
use quipu_seal::Sealer;

use super::parts::{Part, usage};
use super::prefetch::{DatabaseState, OpenedSession, Prefetch, PrefetchedItem, SealedMessage, WAITING};
use super::rows::{Row, Rows};
use crate::intake::{
    FollowMode, Item, ItemParent, NodeBuilder, OpenResult, Outline, REST, SavedState, Sessions, Start, Stop,
};
use crate::json::{Members, list_of, text_of};
use crate::{ArchiveError, ProblemKind, Report};

/// What titles begin with that nobody gave.
const UNTITLED: [&str; 2] = ["New session - ", "Child session - "];

/// A database whose rows come from a thread of their own.
struct Database {
    path: PathBuf,
    /// `None` when nothing more is wanted.
    came: Option<Receiver<io::Result<PrefetchedItem>>>,
    thread: Option<JoinHandle<Prefetch>>,
    /// The thread's work, when it is done.
    done: Option<Prefetch>,
    /// The session that is read now.
    begun: Option<Box<OpenedSession>>,
    bytes: u64,
    now: UnixMs,
    /// The time of the newest row, where it is followed and rows have one.
    newest: Option<UnixMs>,
}

pub(super) fn open(path: &Path, watched: FollowMode, sealer: &Arc<Sealer>) -> OpenResult {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let rows = Rows::open(path).map_err(fail)?;
    let listed = rows.sessions().map_err(fail)?;
    let (newest, known) = match watched {
        FollowMode::No => (None, None),
        FollowMode::Yes(known) => (rows.newest(), known),
    };
    let known = known.and_then(|known| known.downcast::<DatabaseState>().ok());
    // Those that were there stand where they stood.
    let known = known.filter(|known| {
        known.sessions.len() <= listed.len()
            && known.sessions.iter().zip(&listed).all(|(one, row)| one.row.id == row.id)
    });
    let written = newest.as_ref().zip(known.as_ref()).and_then(|(newest, known)| newest.since(known.newest));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = UnixMs::try_from(now.as_millis()).unwrap_or(UnixMs::MAX);
    let bytes = if path.is_dir() { 0 } else { std::fs::metadata(path).map_err(fail)?.len() };
    let ahead = Prefetch {
        rows,
        sealer: Arc::clone(sealer),
        known: known.zip(written),
        sessions: Vec::with_capacity(listed.len()),
        is_part: false,
    };
    let (out, came) = sync_channel(WAITING);
    let thread = std::thread::Builder::new().name("quipu-import".to_owned());
    let thread = thread.spawn(move || ahead.run(listed, &out)).map_err(fail)?;
    Ok(Box::new(Database {
        path: path.to_owned(),
        came: Some(came),
        thread: Some(thread),
        done: None,
        begun: None,
        bytes,
        now,
        newest: newest.map(|newest| newest.time()),
    }))
}

impl Database {
    /// What comes next; `None` when all came.
    fn receive(&mut self) -> io::Result<Option<PrefetchedItem>> {
        match self.came.as_ref().map(Receiver::recv) {
            Some(Ok(came)) => came.map(Some),
            Some(Err(_)) | None => {
                self.end_thread();
                Ok(None)
            }
        }
    }

    fn end_thread(&mut self) {
        self.came = None;
        if let Some(thread) = self.thread.take() {
            match thread.join() {
                Ok(ahead) => self.done = Some(ahead),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }
}

impl Drop for Database {
    /// Waits for the thread, which hears that nothing more is wanted.
    fn drop(&mut self) {
        self.came = None;
        if let Some(thread) = self.thread.take() {
            // It panicked over what nobody asks for.
            drop(thread.join());
        }
    }
}

impl Sessions for Database {
    fn next(&mut self) -> Result<Option<Outline>, ArchiveError> {
        let came = self.receive();
        let fail = |source| ArchiveError::File { path: self.path.clone(), doing: "read", source };
        let (session, related) = match came.map_err(fail)? {
            Some(PrefetchedItem::Session(begun)) => {
                let begun = self.begun.insert(begun);
                (begun.session.clone(), begun.related.clone())
            }
            // All of the session before it came.
            Some(PrefetchedItem::Messages(_) | PrefetchedItem::End) | None => return Ok(None),
        };
        Ok(Some(Outline { related, ..Outline::alone(session, Duration::ZERO) }))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn end(&mut self) -> Option<Report> {
        None
    }

    fn remember(&mut self, unfinished: &HashSet<SessionId>) -> Option<SavedState> {
        let (sessions, unfinished) = (self.done.take()?.sessions, unfinished.clone());
        Some(Box::new(DatabaseState { sessions, newest: self.newest?, unfinished }))
    }

    fn is_part(&self) -> bool {
        self.done.as_ref().is_none_or(|done| done.is_part)
    }

    fn read(&mut self, sealer: &Sealer, out: &mut NodeBuilder) -> Result<(), Stop> {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        let own = out.session(begun.start.clone());
        let mut reader = Reader { out, last: ItemParent::Nothing, owner: own, line: 0 };
        let mut is_wanted = true;
        while let Some(PrefetchedItem::Messages(messages)) = self.receive()? {
            for message in messages {
                is_wanted = is_wanted && reader.sealed(message, own, &begun.repeated, self.now)?;
            }
        }
        reader.owner = own;
        reader.title(&begun.row, sealer)
    }
}

/// When a message was sent, and by whom.
struct Head {
    time: UnixMs,
    role: String,
}

struct Reader<'a> {
    out: &'a mut NodeBuilder,
    last: ItemParent,
    owner: usize,
    /// Messages that came.
    line: u64,
}

impl Reader<'_> {
    /// Takes a message of the session `own`, which repeats some at its beginning; `false` when it is still being written.
    fn sealed(
        &mut self,
        message: SealedMessage,
        own: usize,
        repeated: &[(Arc<Start>, String)],
        now: UnixMs,
    ) -> Result<bool, Stop> {
        let SealedMessage { id, created, updated, role, bytes, json, parts, secrets } = message;
        let again = usize::try_from(self.line).ok().and_then(|at| repeated.get(at));
        self.line += 1;
        let line = self.line;
        self.out.report.bytes += bytes as u64;
        self.out.report.sealed += secrets;
        let Some(json) = json else {
            self.out.report.problem(line, ProblemKind::Malformed, &id);
            return Ok(true);
        };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Some(json) => texts.push(json),
                None => self.out.report.problem(line, ProblemKind::Malformed, &id),
            }
        }
        let (owner, id) = match again {
            Some((start, id)) => (self.out.session(Start::clone(start)), id.clone()),
            None => (own, id),
        };
        self.owner = owner;
        let head = Head { time: created, role };
        let idle = now.saturating_sub(updated);
        let is_rest = Duration::from_millis(u64::try_from(idle).unwrap_or(0)) >= REST;
        self.message(&id, &head, line, &json, &texts, is_rest)
    }

    fn send(&mut self, mut item: Item, time: UnixMs) -> Result<(), Stop> {
        (item.owner, item.time) = (self.owner, Some(time));
        let next = ItemParent::Item(item.id.clone());
        item.follows = std::mem::replace(&mut self.last, next);
        self.out.item(item)
    }

    /// One message with its parts; `false` when it is still being written.
    fn message(
        &mut self,
        id: &str,
        head: &Head,
        line: u64,
        json: &Json,
        texts: &[Json],
        is_rest: bool,
    ) -> Result<bool, Stop> {
        let members = Members::known(json.get()).unwrap_or_else(|| Members(Vec::new()));
        let parts: Vec<Part<'_>> = texts.iter().map(|text| Part::of(text.get())).collect();
        let is_compaction = parts.iter().any(|part| part.kind == "compaction");
        match head.role.as_str() {
            "user" if !is_compaction => {
                let content: Vec<Content> = parts.iter().filter_map(Part::content).collect();
                if !content.is_empty() {
                    let content = Body::Blocks(content);
                    let entry = Entry::Message(Message::User(UserMessage { content, timestamp: head.time }));
                    let mut item = Item::new(id.to_owned(), entry, line);
                    // Its summary is written later.
                    item.kept = kept(&members, &["summary", "time"], &parts);
                    self.send(item, head.time)?;
                    return Ok(true);
                }
                self.verbatim(id, head, line, &members, &parts)?;
                Ok(true)
            }
            "assistant" => {
                let time = members.get("time").and_then(Members::known);
                let is_done = members.get("error").is_some()
                    || time.is_some_and(|time| time.get("completed").is_some());
                if !is_done && !is_rest {
                    self.out.unfinished(line, "");
                    return Ok(false);
                }
                self.answer(id, head, line, &members, &parts)?;
                Ok(true)
            }
            _ => {
                self.verbatim(id, head, line, &members, &parts)?;
                Ok(true)
            }
        }
    }

    /// A message that says nothing to a model.
    fn verbatim(
        &mut self,
        id: &str,
        head: &Head,
        line: u64,
        members: &Members<'_>,
        parts: &[Part<'_>],
    ) -> Result<(), Stop> {
        let kind = quipu_dag::quoted(if head.role.is_empty() { "message" } else { &head.role });
        let message = members.without(&["summary", "id", "sessionID", "parentID"]);
        let list: Vec<Json> = parts.iter().map(Part::rest).collect();
        let list = Json::of(&list).unwrap_or_default();
        let text = format!("{{\"type\":{kind},\"message\":{message},\"parts\":{list}}}");
        let item = Item::new(id.to_owned(), Entry::Meta(Json::parse(&text).unwrap_or_default()), line);
        self.send(item, head.time)
    }

    /// An answer: one message for each of its steps, each with the results of its tools behind it.
    fn answer(
        &mut self,
        id: &str,
        head: &Head,
        line: u64,
        members: &Members<'_>,
        parts: &[Part<'_>],
    ) -> Result<(), Stop> {
        let string = |name: &str| members.string(name).map(std::borrow::Cow::into_owned).unwrap_or_default();
        // A step begins where something stood before it that was not thrown away.
        let mut steps: Vec<Vec<&Part<'_>>> = vec![Vec::new()];
        for part in parts {
            let begins = part.kind == "step-start"
                && steps.last().is_some_and(|step| step.iter().any(|part| part.kind == "step-finish"));
            if begins {
                steps.push(Vec::new());
            }
            if let Some(step) = steps.last_mut() {
                step.push(part);
            }
        }
        let error = members.get("error").and_then(Members::of);
        let count = steps.len();
        for (number, step) in steps.into_iter().enumerate() {
            let is_last = number + 1 == count;
            let mut usage_of = usage(members);
            if count > 1 {
                let finish = step.iter().find(|part| part.kind == "step-finish");
                usage_of = finish.map(|part| usage(&part.members)).unwrap_or_default();
            }
            let content: Vec<Content> = step.iter().filter_map(|part| part.content()).collect();
            let has_calls = content.iter().any(|block| block.as_tool_call().is_some());
            let finish = string("finish");
            let mut answer = AssistantMessage {
                content,
                api: "opencode".into(),
                provider: string("providerID"),
                model: string("modelID"),
                usage: usage_of,
                stop_reason: match finish.as_str() {
                    _ if has_calls => StopReason::ToolUse,
                    "length" => StopReason::Length,
                    _ => StopReason::Stop,
                },
                timestamp: head.time,
                ..AssistantMessage::default()
            };
            if let Some(error) = error.as_ref().filter(|_| is_last) {
                let name = error.string("name").unwrap_or_default();
                let told = error.get("data").and_then(|data| text_of(Members::of(data)?.get("message")?));
                answer.error_message = Some(told.unwrap_or_else(|| name.clone().into_owned()));
                let aborted = name == "MessageAbortedError";
                answer.stop_reason = if aborted { StopReason::Aborted } else { StopReason::Error };
            }
            // Nobody said why it ended: the stream broke off.
            if is_last && finish == "unknown" && !has_calls && answer.error_message.is_none() {
                answer.stop_reason = StopReason::Error;
                answer.error_message = Some("the stream ended without a reason".into());
            }
            let own = if number == 0 { id.to_owned() } else { format!("{id}.{}", number + 1) };
            let is_summary = members.get("summary") == Some("true") && error.is_none();
            let entry = if is_summary {
                let text = answer.text();
                Entry::Compaction(Compaction {
                    summary: text,
                    usage: Some(answer.usage),
                    timestamp: head.time,
                    ..Compaction::default()
                })
            } else {
                Entry::Message(Message::Assistant(answer))
            };
            let mut item = Item::new(own, entry, line);
            let all: Vec<Json> = step.iter().map(|part| part.rest()).collect();
            item.kept = kept_of(members, &["tokens", "cost", "modelID", "providerID", "parentID"], &all);
            self.send(item, head.time)?;
            for part in step.iter().filter(|part| part.kind == "tool") {
                let Some((result, started, took)) = part.result(head.time) else { continue };
                let time = result.timestamp;
                let entry = Entry::Message(Message::ToolResult(result));
                let call = part.call().map(|call| call.to_string()).unwrap_or_default();
                let mut item = Item::new(format!("{id}.{call}"), entry, line);
                (item.started, item.duration_ms) = (started, took);
                self.send(item, time)?;
            }
        }
        Ok(())
    }

    /// The title beside the messages, when somebody or a model gave one.
    fn title(&mut self, row: &Row, sealer: &Sealer) -> Result<(), Stop> {
        self.out.settle()?;
        self.out.begin_at_end(self.owner);
        if row.title.is_empty() || UNTITLED.iter().any(|start| row.title.starts_with(start)) {
            return Ok(());
        }
        let title = quipu_dag::quoted(&sealer.seal(&row.title));
        let text = format!("{{\"type\":\"session_info\",\"name\":{title}}}");
        let mut hash = quipu_protocol::ChunkId(quipu_dag::sha256(row.title.as_bytes())).to_string();
        hash.truncate(16);
        let mut item =
            Item::new(format!("{}.{hash}", row.id), Entry::Meta(Json::parse(&text).unwrap_or_default()), 0);
        (item.owner, item.time, item.is_head) = (self.owner, Some(row.time), false);
        self.out.item(item)
    }
}

/// What a message and its parts say that no entry has.
fn kept(members: &Members<'_>, without: &[&str], parts: &[Part<'_>]) -> Option<Json> {
    kept_of(members, without, &parts.iter().map(Part::rest).collect::<Vec<_>>())
}

fn kept_of(members: &Members<'_>, without: &[&str], parts: &[Json]) -> Option<Json> {
    let (message, parts) = (members.without(without), list_of(parts));
    Some(Json::known(["{\"message\":", message.get(), ",\"parts\":", &parts, "}"].concat()))
}
