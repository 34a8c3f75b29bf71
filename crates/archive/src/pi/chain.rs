//! A lineage of nodes as lines of a file: those that come from a file as they were, those of our own in words of this
//! agent.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use quipu_dag::{Node, quoted};
use quipu_protocol::{CustomMessage, Entry, Epoch, Json, Message, NodeId, SessionStart, Thinking, UnixMs};
use quipu_store::{Graph, LineageEnd, StoreError, decode_nodes};
use quipu_transcript::{DecodedEntry, INTERNAL};

use super::entry::{compaction_line, message_line, place, write};
use super::{AGENT, VERSION, iso};
use crate::json::{Difference, Members};

/// Ends the id of the first of two lines that one node becomes; the other one has the node's own.
const FIRST: &str = "-model";
/// Nodes that are read at once.
const PIECE: usize = 500;

/// The settings that a line may change.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Settings {
    model: Option<(String, String)>,
    thinking: Option<Thinking>,
}

/// A lineage that is being written.
#[derive(Default)]
pub(super) struct Chain {
    /// The id of each node's last entry, by the node's id and by its writer's own.
    pub(super) names: HashMap<String, String>,
    pub(super) used: HashSet<String>,
    /// Nodes that became no entry: whoever names them means the next one.
    pub(super) silent: Vec<String>,
    /// The entry that the next one follows.
    pub(super) last: Option<String>,
    pub(super) settings: Settings,
}

/// The header of a file of ours.
pub(super) fn header_line(session: &str, created: UnixMs, cwd: &str) -> String {
    let members = [
        ("type", quoted("session")),
        ("version", VERSION.to_string()),
        ("id", quoted(session)),
        ("timestamp", quoted(&iso(created).unwrap_or_default())),
        ("cwd", quoted(cwd)),
    ];
    let mut text = String::new();
    Difference::default().write(&mut text, members.iter().map(|(name, value)| (*name, value.as_str())));
    text
}

/// The ids that the lines of a node of ours have.
pub(super) fn ids_of(node: &Node) -> Vec<String> {
    let Some(id) = &node.record.external_id else { return Vec::new() };
    let mut ids = vec![id.clone()];
    if node.record.role == INTERNAL {
        ids.push(format!("{id}{FIRST}"));
    }
    ids
}

/// The id of the line of a label or name that was given beside a session of a file.
pub(super) fn note_id(node: &NodeId) -> String {
    let mut id = node.to_string();
    id.truncate(16);
    id
}

/// The nodes that an entry names.
pub(super) fn references(entry: &Entry) -> Vec<NodeId> {
    match entry {
        Entry::Compaction(compaction) => compaction.first_kept.into_iter().collect(),
        Entry::Meta(json) => {
            let members = Members::of(json.get());
            let named = ["targetId", "fromId"].map(|name| members.as_ref()?.string(name)?.parse().ok());
            named.into_iter().flatten().collect()
        }
        Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) => Vec::new(),
    }
}

/// The settings as they stand at a node: what the lines up to it say since the last node of ours that says all.
pub(super) async fn settings_at(store: &dyn Graph, node: NodeId) -> Result<Settings, StoreError> {
    let mut found = Settings::default();
    let mut from = Some(node);
    while let Some(start) = from {
        let mut nodes = store.lineage(start, LineageEnd::Count(PIECE)).await?;
        from = nodes.first().and_then(|node| node.record.parent);
        nodes.retain(|node| node.record.role == INTERNAL);
        for decoded in decode_nodes(store, &nodes).await?.iter().rev() {
            let (all, some) = match &decoded.entry {
                Entry::Session(SessionStart { agent, .. }) if agent == AGENT => (true, Settings::default()),
                Entry::Session(SessionStart { epoch, .. }) | Entry::Epoch(epoch) => {
                    (true, Settings::of(epoch))
                }
                Entry::Meta(json) => (false, Settings::changed_by(json.get())),
                Entry::Message(_) | Entry::Compaction(_) => continue,
            };
            found =
                Settings { model: found.model.or(some.model), thinking: found.thinking.or(some.thinking) };
            if all || (found.model.is_some() && found.thinking.is_some()) {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

impl Settings {
    fn of(epoch: &Epoch) -> Self {
        Self { model: Some((epoch.provider.clone(), epoch.model.clone())), thinking: Some(epoch.thinking) }
    }

    /// What a line changes.
    fn changed_by(line: &str) -> Self {
        let mut changed = Self::default();
        let Some(members) = Members::of(line) else { return changed };
        let text = |name: &str| members.string(name).unwrap_or_default().into_owned();
        match members.string("type").as_deref() {
            Some("model_change") => changed.model = Some((text("provider"), text("modelId"))),
            Some("thinking_level_change") => {
                let level = members.get("thinkingLevel");
                changed.thinking = level.and_then(|level| serde_json::from_str(level).ok());
            }
            _ => {}
        }
        changed
    }
}

impl Chain {
    /// Adds the lines of a node to `lines`, none for some.
    pub(super) fn node(&mut self, node: &Node, decoded: &DecodedEntry, lines: &mut Vec<String>) {
        let time = node.record.timestamp;
        let mut line = String::new();
        if place(&decoded.step).is_some() {
            // As it was in the file that it comes from.
            write(&mut line, node, decoded, self.last.as_deref());
            let changed = Settings::changed_by(&line);
            self.settings.model = changed.model.or(self.settings.model.take());
            self.settings.thinking = changed.thinking.or(self.settings.thinking);
            if let Some(id) = node.record.external_id.clone() {
                self.used.insert(id.clone());
                self.follow(node, id);
            }
            lines.push(line);
            return;
        }
        match &decoded.entry {
            // The header of a file was read from there; its settings are entries of it.
            Entry::Session(SessionStart { agent, .. }) if agent == AGENT => return,
            Entry::Session(start) => {
                // Says all, so that nobody has to look at what was before.
                self.settings = Settings::default();
                return self.epoch(node, &start.epoch, lines);
            }
            Entry::Epoch(epoch) => return self.epoch(node, epoch, lines),
            Entry::Message(message) => {
                let id = self.id_of(node);
                let none = Difference::default();
                let message = with_record(message, decoded);
                message_line(&mut line, &message, Some(&id), self.last.as_deref(), time, &none, &none);
                self.follow(node, id);
            }
            Entry::Compaction(compaction) => {
                let id = self.id_of(node);
                // Nothing is kept where it names itself.
                let kept = compaction.first_kept.and_then(|kept| self.names.get(&kept.to_string()).cloned());
                let kept = kept.unwrap_or_else(|| id.clone());
                let none = Difference::default();
                let last = self.last.as_deref();
                compaction_line(&mut line, compaction, Some(&id), last, time, Some(&kept), &none);
                self.follow(node, id);
            }
            Entry::Meta(json) => {
                let id = self.id_of(node);
                line = self.meta(json, &id, time);
                self.follow(node, id);
            }
        }
        lines.push(line);
    }

    /// Another entry of a session file, with the ids of this one.
    pub(super) fn meta(&self, json: &Json, id: &str, time: UnixMs) -> String {
        let members = Members::of(json.get()).unwrap_or_else(|| Members(Vec::new()));
        let mut change = Difference::default();
        if members.get("type").is_none() {
            change.set("type", "\"custom\"");
            change.set("customType", "\"quipu\"");
        }
        change.set("id", &quoted(id));
        change.set("parentId", &self.last.as_deref().map_or_else(|| "null".to_owned(), quoted));
        change.set("timestamp", &quoted(&iso(time).unwrap_or_default()));
        for name in ["targetId", "fromId"] {
            if let Some(id) = members.string(name).and_then(|named| self.names.get(named.as_ref())) {
                change.set(name, &quoted(id));
            }
        }
        // Where Pi has them.
        let base = ["type", "id", "parentId", "timestamp"];
        let first = base.map(|name| (name, members.get(name).unwrap_or("null")));
        let rest = members.0.iter().map(|(name, value)| (name.as_ref(), *value));
        let mut line = String::new();
        change.write(&mut line, first.into_iter().chain(rest.filter(|(name, _)| !base.contains(name))));
        line
    }

    /// What an epoch changes, as entries.
    fn epoch(&mut self, node: &Node, epoch: &Epoch, lines: &mut Vec<String>) {
        let settings = Settings::of(epoch);
        let mut entries = Vec::new();
        if self.settings.model != settings.model {
            let model = [("provider", quoted(&epoch.provider)), ("modelId", quoted(&epoch.model))];
            entries.push(("model_change", model.to_vec()));
        }
        if self.settings.thinking != settings.thinking {
            let level = Json::of(&epoch.thinking).unwrap_or_default();
            entries.push(("thinking_level_change", vec![("thinkingLevel", level.to_string())]));
        }
        self.settings = settings;
        if entries.is_empty() {
            self.silent.push(node.id.to_string());
            return;
        }
        let own = self.id_of(node);
        let count = entries.len();
        for (at, (kind, members)) in entries.into_iter().enumerate() {
            let id = if at + 1 < count { format!("{own}{FIRST}") } else { own.clone() };
            let base = [
                ("type", quoted(kind)),
                ("id", quoted(&id)),
                ("parentId", self.last.as_deref().map_or_else(|| "null".to_owned(), quoted)),
                ("timestamp", quoted(&iso(node.record.timestamp).unwrap_or_default())),
            ];
            let mut line = String::new();
            let members = base.iter().chain(&members).map(|(name, value)| (*name, value.as_str()));
            Difference::default().write(&mut line, members);
            lines.push(line);
            self.follow(node, id);
        }
    }

    /// The next entry follows this one.
    pub(super) fn follow(&mut self, node: &Node, id: String) {
        for silent in self.silent.drain(..) {
            self.names.insert(silent, id.clone());
        }
        self.names.insert(node.id.to_string(), id.clone());
        if let Some(own) = &node.record.external_id {
            self.names.insert(own.clone(), id.clone());
        }
        self.last = Some(id);
    }

    /// The id of a node's last line: the node's own, by which the node is found when the line is read. One without, or
    /// with one that another entry has, gets a part of its hash.
    fn id_of(&mut self, node: &Node) -> String {
        if let Some(id) = node.record.external_id.clone()
            && self.used.insert(id.clone())
        {
            return id;
        }
        let hash = node.id.to_string();
        let mut length = 16;
        loop {
            let id = hash[..length.min(hash.len())].to_owned();
            if length >= hash.len() || self.used.insert(id.clone()) {
                return id;
            }
            length += 4;
        }
    }
}

/// A message of a program with what its node says beside it under the name of its type, which stands in `details` of the line, and with
/// where it comes from. What the message has there itself stays.
fn with_record<'a>(message: &'a Message, decoded: &DecodedEntry) -> Cow<'a, Message> {
    let Message::Custom(custom) = message else { return Cow::Borrowed(message) };
    let Some(record) = decoded.step.extra.get(&custom.custom_type).filter(|_| custom.details.is_none())
    else {
        return Cow::Borrowed(message);
    };
    let mut details = serde_json::Map::new();
    details.insert(custom.custom_type.clone(), serde_json::json!(record));
    if let Some(provenance) = &decoded.step.provenance {
        details.insert("provenance".to_owned(), serde_json::json!(provenance));
    }
    let details = Some(Json::from(&serde_json::Value::Object(details)));
    Cow::Owned(Message::Custom(CustomMessage { details, ..custom.clone() }))
}
