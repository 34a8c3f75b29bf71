//! One line to an entry and back.
//!
//! What the entry's parts cannot carry stands in `extra` of its node under this agent's name:
//!
//! | member | what |
//! |---|---|
//! | `n` | the place in the file: entries that were read before it, the header included |
//! | `entry` | of a message: how the members of its line differ from those that are written from the node |
//! | `message` | the same for the members of the message |

use std::borrow::Cow;

use quipu_dag::{Node, quoted};
use quipu_protocol::{Compaction, Content, Entry, Json, Message, NodeId, SessionId, StepInfo, UnixMs};
use quipu_transcript::DecodedEntry;
use serde::{Deserialize, Serialize};

use super::{AGENT, iso};
use crate::PlacementRepair;
use crate::json::{Difference, Members, same, time_of};

/// What an entry says that it follows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parent<'a> {
    /// Nothing: `null`.
    Nothing,
    Id(Cow<'a, str>),
    /// It does not say, or not in a way that can be read.
    Unreadable,
}

/// One line, taken apart.
pub(crate) struct Line<'a> {
    members: Members<'a>,
    text: &'a str,
    pub(crate) head: Head<'a>,
}

/// What a line says of its place.
pub(crate) struct Head<'a> {
    pub(crate) kind: Cow<'a, str>,
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) parent: Parent<'a>,
    pub(crate) timestamp: Option<UnixMs>,
}

impl Head<'_> {
    /// Without the line.
    pub(crate) fn into_owned(self) -> Head<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Head {
            kind: owned(self.kind),
            id: self.id.map(owned),
            parent: match self.parent {
                Parent::Nothing => Parent::Nothing,
                Parent::Id(id) => Parent::Id(owned(id)),
                Parent::Unreadable => Parent::Unreadable,
            },
            timestamp: self.timestamp,
        }
    }
}

/// The members of our part of a node.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct EntryPart {
    #[serde(skip_serializing_if = "Difference::is_empty")]
    entry: Difference,
    #[serde(skip_serializing_if = "Difference::is_empty")]
    message: Difference,
    n: u64,
}

impl<'a> Line<'a> {
    /// Of valid JSON; `None` when it is no object.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        // A name with half of a surrogate pair: kept as it is, and nothing in it is looked at.
        let members = Members::known(text).unwrap_or_else(|| Members(Vec::new()));
        let kind = members.string("type").unwrap_or_default();
        let id = members.string("id").filter(|_| kind != "session");
        let parent = match members.get("parentId") {
            Some("null") => Parent::Nothing,
            Some(parent) => crate::json::string(parent).map_or(Parent::Unreadable, Parent::Id),
            None => Parent::Unreadable,
        };
        let timestamp = members.string("timestamp").and_then(|text| time_of(&text));
        Some(Self { members, text, head: Head { kind, id, parent, timestamp } })
    }

    /// What it means, and the rest. `n` is its place, `parent` the id by which its parent will be written, `time`
    /// that of its node. `unsealed` is the line before its secrets were sealed, where there were any.
    pub(crate) fn entry(
        &self,
        n: u64,
        parent: Option<&str>,
        time: UnixMs,
        unsealed: Option<&str>,
        find: &dyn Fn(&str) -> Option<NodeId>,
    ) -> (Entry, StepInfo) {
        let mut kept = EntryPart { n, ..EntryPart::default() };
        let entry = match self.message(unsealed, &mut kept) {
            Some(message) => {
                let timed =
                    iso(time).is_some_and(|iso| self.members.string("timestamp").is_some_and(|t| t == iso));
                for (name, value) in &self.members.0 {
                    let written = match name.as_ref() {
                        "type" | "message" => true,
                        "id" => self.head.id.is_some(),
                        "parentId" => match (&self.head.parent, parent) {
                            (Parent::Nothing, None) => true,
                            (Parent::Id(id), Some(parent)) => id == parent,
                            _ => false,
                        },
                        "timestamp" => timed,
                        _ => false,
                    };
                    if !written {
                        kept.entry.set(name, value);
                    }
                }
                for name in ["parentId", "timestamp"] {
                    if self.members.get(name).is_none() {
                        kept.entry.unset.push(name.to_owned());
                    }
                }
                Entry::Message(message)
            }
            None => match self.compaction(time, find) {
                Some(compaction) => {
                    let mut written = String::new();
                    let none = Difference::default();
                    compaction_line(
                        &mut written,
                        &compaction,
                        self.head.id.as_deref(),
                        parent,
                        time,
                        None,
                        &none,
                    );
                    if let Some(written) = Members::known(&written) {
                        kept.entry = Difference::between(&written, &self.members);
                    }
                    Entry::Compaction(compaction)
                }
                None => Entry::Meta(Json::parse(self.text).unwrap_or_default()),
            },
        };
        let mut step = StepInfo::default();
        let kept = if kept.entry.is_empty() && kept.message.is_empty() {
            Json::parse(&format!("{{\"n\":{n}}}"))
        } else {
            Json::of(&kept)
        };
        if let Ok(kept) = kept {
            step.extra.insert(AGENT.into(), kept);
        }
        (entry, step)
    }

    /// The message of a line that has one.
    fn message(&self, unsealed: Option<&str>, kept: &mut EntryPart) -> Option<Message> {
        if self.head.kind != "message" {
            return None;
        }
        let raw = self.members.get("message").filter(|raw| raw.starts_with('{'))?;
        let mut message = Message::parse(raw).ok()?;
        if let Some(unsealed) = unsealed {
            drop_signatures(&mut message, unsealed);
        }
        let written = serde_json::to_string(&message).ok()?;
        if !same(raw, &written) {
            kept.message = Difference::between(&Members::known(&written)?, &Members::known(raw)?);
        }
        Some(message)
    }
}

impl Line<'_> {
    /// The compaction of a line that is one; `find` gives the last node of an id.
    fn compaction(&self, time: UnixMs, find: &dyn Fn(&str) -> Option<NodeId>) -> Option<Compaction> {
        if self.head.kind != "compaction" {
            return None;
        }
        let read = |name: &str| self.members.get(name).filter(|raw| *raw != "null");
        Some(Compaction {
            summary: self.members.string("summary")?.into_owned(),
            first_kept: self.members.string("firstKeptEntryId").and_then(|id| find(&id)),
            retained_tail: read("retainedTail")
                .filter(|raw| raw.starts_with('['))
                .and_then(|raw| Json::parse(raw).ok()),
            tokens_before: read("tokensBefore").and_then(|raw| raw.parse().ok()).unwrap_or_default(),
            timestamp: time,
            details: read("details").and_then(|raw| Json::parse(raw).ok()),
            usage: read("usage").and_then(|raw| serde_json::from_str(raw).ok()),
            from_hook: read("fromHook").and_then(|raw| raw.parse().ok()),
            reason: None,
            checkpoint: None,
        })
    }
}

/// A signature covers the words that were signed; where a secret among them was sealed, no model takes it any more.
fn drop_signatures(message: &mut Message, unsealed: &str) {
    let before = Members::of(unsealed)
        .and_then(|members| serde_json::from_str::<Message>(members.get("message")?).ok());
    let (Message::Assistant(message), Some(Message::Assistant(before))) = (message, before) else { return };
    for (block, before) in message.content.iter_mut().zip(&before.content) {
        if let (Content::Thinking(block), Content::Thinking(before)) = (block, before)
            && block.thinking != before.thinking
        {
            block.thinking_signature = None;
        }
    }
}

/// The place of a node in its file; `None` when it does not come from one.
pub(crate) fn place(step: &StepInfo) -> Option<u64> {
    place_of(step.extra.get(AGENT)?)
}

/// The same from what our part of a node keeps.
pub(crate) fn place_of(kept: &Json) -> Option<u64> {
    #[derive(Deserialize)]
    struct Place {
        n: u64,
    }
    kept.read::<Place>().ok().map(|place| place.n)
}

/// What was mended of an entry that was read from a file; `first` is the node of the file's header.
pub(crate) fn placement_repair(
    node: &Node,
    decoded: &DecodedEntry,
    first: NodeId,
) -> Option<PlacementRepair> {
    let kept: EntryPart = decoded.step.extra.get(AGENT)?.read().ok()?;
    if node.id == first {
        return None;
    }
    let Entry::Meta(json) = &decoded.entry else {
        // What stands in the line otherwise than its place says.
        let parent = kept.entry.set.get("parentId").and_then(|parent| crate::json::string(parent.get()));
        return match parent {
            _ if node.record.external_id.is_none() => Some(PlacementRepair::NoId),
            _ if kept.entry.unset.iter().any(|name| name == "parentId") => Some(PlacementRepair::NoParent),
            Some(parent) if node.record.parent == Some(first) => {
                Some(PlacementRepair::Parent(parent.into_owned()))
            }
            Some(_) => None,
            None if kept.entry.set.contains_key("parentId") => Some(PlacementRepair::NoParent),
            None => None,
        };
    };
    let line = Line::read(json.get())?;
    let head = line.head;
    match head.parent {
        _ if head.kind == "session" => Some(PlacementRepair::SecondHeader),
        _ if head.id.is_none() => Some(PlacementRepair::NoId),
        Parent::Unreadable => Some(PlacementRepair::NoParent),
        Parent::Id(parent) if node.record.parent == Some(first) => {
            Some(PlacementRepair::Parent(parent.into_owned()))
        }
        Parent::Id(_) | Parent::Nothing => None,
    }
}

/// Writes the line of a node that was read from a file; `parent` is the id of the entry before it.
pub(crate) fn write(out: &mut String, node: &Node, decoded: &DecodedEntry, parent: Option<&str>) {
    write_kept(out, node, decoded, parent, AGENT);
}

/// The same for what was read from a file of another agent that has such lines, and is kept under its name.
pub(crate) fn write_kept(
    out: &mut String,
    node: &Node,
    decoded: &DecodedEntry,
    parent: Option<&str>,
    agent: &str,
) {
    let kept: EntryPart = decoded.step.extra.get(agent).and_then(|kept| kept.read().ok()).unwrap_or_default();
    match &decoded.entry {
        Entry::Message(message) => {
            let id = node.record.external_id.as_deref();
            message_line(out, message, id, parent, node.record.timestamp, &kept.entry, &kept.message);
        }
        Entry::Meta(json) => out.push_str(json.get()),
        Entry::Compaction(compaction) => {
            let id = node.record.external_id.as_deref();
            let time = node.record.timestamp;
            compaction_line(out, compaction, id, parent, time, None, &kept.entry);
        }
        // Never read from a file as one of these.
        Entry::Session(_) | Entry::Epoch(_) => out.push_str("{}"),
    }
}

/// Writes the line of a message.
pub(crate) fn message_line(
    out: &mut String,
    message: &Message,
    id: Option<&str>,
    parent: Option<&str>,
    time: UnixMs,
    entry: &Difference,
    inner: &Difference,
) {
    let mut text = serde_json::to_string(message).unwrap_or_else(|_| "{}".into());
    if !inner.is_empty() {
        let mut changed = String::with_capacity(text.len());
        let members = Members::of(&text).unwrap_or_else(|| Members(Vec::new()));
        inner.write(&mut changed, members.0.iter().map(|(name, value)| (name.as_ref(), *value)));
        text = changed;
    }
    let id = id.map(quoted);
    let parent = parent.map_or_else(|| "null".to_owned(), quoted);
    let time = quoted(&iso(time).unwrap_or_default());
    let mut members = vec![("type", "\"message\"")];
    members.extend(id.as_deref().map(|id| ("id", id)));
    members.extend([("parentId", parent.as_str()), ("timestamp", &time), ("message", &text)]);
    entry.write(out, members);
}

/// Writes the line of a compaction; `first_kept` is the id of the first entry that it keeps.
pub(crate) fn compaction_line(
    out: &mut String,
    compaction: &Compaction,
    id: Option<&str>,
    parent: Option<&str>,
    time: UnixMs,
    first_kept: Option<&str>,
    entry: &Difference,
) {
    let Compaction { summary, retained_tail, tokens_before, details, usage, from_hook, .. } = compaction;
    let mut members = vec![("type", "\"compaction\"".to_owned())];
    members.extend(id.map(|id| ("id", quoted(id))));
    members.push(("parentId", parent.map_or_else(|| "null".to_owned(), quoted)));
    members.push(("timestamp", quoted(&iso(time).unwrap_or_default())));
    members.push(("summary", quoted(summary)));
    members.extend(first_kept.map(|id| ("firstKeptEntryId", quoted(id))));
    members.extend(retained_tail.as_ref().map(|tail| ("retainedTail", tail.to_string())));
    members.push(("tokensBefore", tokens_before.to_string()));
    members.extend(details.as_ref().map(|details| ("details", details.to_string())));
    members.extend(usage.as_ref().and_then(|usage| Some(("usage", serde_json::to_string(usage).ok()?))));
    members.extend(from_hook.map(|hook| ("fromHook", hook.to_string())));
    entry.write(out, members.iter().map(|(name, value)| (*name, value.as_str())));
}

/// The line of version 1 or 2 as the migration leaves it; `None` when it stays as it is. `n` is its place, `before`
/// the id of the entry before it.
pub(crate) fn migrated(
    text: &str,
    version: u64,
    session: &SessionId,
    n: u64,
    before: Option<&str>,
) -> Option<String> {
    let members = Members::of(text)?;
    let mut change = Difference::default();
    let kind = members.string("type").unwrap_or_default();
    if kind == "session" {
        change.set("version", "3");
    } else if version < 2 {
        change.set("id", &quoted(&made_id(session, n)));
        change.set("parentId", &before.map_or_else(|| "null".to_owned(), quoted));
        // An index into the lines that were read, the header included.
        if kind == "compaction"
            && let Some(index) = members.get("firstKeptEntryIndex").and_then(|text| text.parse::<f64>().ok())
        {
            change.unset.push("firstKeptEntryIndex".into());
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number within the file"
            )]
            if index.fract() == 0.0 && (1.0..=n as f64).contains(&index) {
                change.set("firstKeptEntryId", &quoted(&made_id(session, index as u64)));
            }
        }
    }
    if kind == "message"
        && let Some(message) = members.get("message")
        && message.contains("hookMessage")
        && let Some(inner) = Members::of(message)
        && inner.string("role").is_some_and(|role| role == "hookMessage")
    {
        let mut custom = Difference::default();
        custom.set("role", "\"custom\"");
        let mut message = String::with_capacity(message.len());
        custom.write(&mut message, inner.0.iter().map(|(name, value)| (name.as_ref(), *value)));
        change.set("message", &message);
    }
    if change.is_empty() {
        return None;
    }
    let mut out = String::with_capacity(text.len() + 64);
    change.write(&mut out, members.0.iter().map(|(name, value)| (name.as_ref(), *value)));
    Some(out)
}

/// The id of an entry that has none: long enough that no two in a session meet.
pub(crate) fn made_id(session: &SessionId, n: u64) -> String {
    let hash = quipu_dag::sha256(format!("{session}\n{n}").as_bytes());
    let mut id = quipu_protocol::ChunkId(hash).to_string();
    id.truncate(16);
    id
}
