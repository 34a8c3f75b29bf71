//! A session as a file of version 3.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use quipu_dag::{Blob, Node, quoted};
use quipu_protocol::{BlobId, ChunkId, Entry, Epoch, Json, NodeId, SessionStart, Thinking, UnixMs};
use quipu_store::{RefName, SessionRow, Store, Until, decode_nodes};
use quipu_transcript::{Decoded, Lookup, decode};

use super::entry::{compaction_line, message_line, place, write};
use super::header::Kept;
use super::{AGENT, VERSION, iso};
use crate::ArchiveError;
use crate::json::{Difference, Members};
use crate::lineages::{main_ref, tips, walk};

/// Nodes that are read at once.
const PIECE: usize = 500;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Entries, without the header.
    pub entries: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Writes a session: one that was imported whole, with all its branches, in the order of its file and as its entries
/// were; any other from the first node of its lineage to its last.
///
/// # Errors
/// `NotExportable`, `Store`; `File` with an empty path when `out` refuses.
pub async fn export(
    store: &dyn Store,
    row: &SessionRow,
    out: &mut (dyn Write + Send),
) -> Result<Exported, ArchiveError> {
    let mut writer = Writer { out, done: Exported { entries: 0, bytes: 0 } };
    if row.agent == AGENT {
        imported(store, row, &mut writer).await?;
    } else {
        lineage(store, row, &mut writer).await?;
    }
    writer.out.flush().map_err(refused)?;
    Ok(writer.done)
}

fn refused(source: std::io::Error) -> ArchiveError {
    ArchiveError::File { path: std::path::PathBuf::new(), doing: "written", source }
}

fn missing(row: &SessionRow, why: &'static str) -> ArchiveError {
    ArchiveError::NotExportable { session: row.id.to_string(), why }
}

struct Writer<'a> {
    out: &'a mut (dyn Write + Send),
    done: Exported,
}

impl Writer<'_> {
    /// Writes the header.
    fn header(&mut self, line: &str) -> Result<(), ArchiveError> {
        self.done.bytes += line.len() as u64 + 1;
        self.out.write_all(line.as_bytes()).and_then(|()| self.out.write_all(b"\n")).map_err(refused)
    }

    fn entry(&mut self, line: &str) -> Result<(), ArchiveError> {
        self.done.entries += 1;
        self.header(line)
    }
}

/// The parts of one node that hold ours.
struct One(Option<Blob>);

impl Lookup for One {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.0.as_ref().filter(|blob| blob.id == *id)
    }

    fn chunk(&self, _: &ChunkId) -> Option<&[u8]> {
        None
    }
}

async fn imported(store: &dyn Store, row: &SessionRow, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let root: Vec<Node> = store.nodes(&[row.base]).await?.into_iter().flatten().collect();
    let header = decode_nodes(store, &root).await?.pop();
    let header = header.and_then(|decoded| decoded.step.extra.get(AGENT)?.read::<Kept>().ok());
    let header = header.ok_or_else(|| missing(row, "its first node is missing or holds no header"))?;
    out.header(header.header.get())?;
    let ends = tips(store, AGENT, &row.id).await?.into_iter().map(|head| head.node);
    let ends = ends.chain(store.head(&main_ref(AGENT, &row.id)).await?);
    let mut nodes = Vec::new();
    walk(store, row.base, ends, |node, _| {
        let part = node.record.parts.last().copied();
        nodes.push((node.id, node.record.timestamp, node.record.external_id, part));
    })
    .await?;
    let mut order: Vec<(u64, UnixMs, NodeId)> = Vec::with_capacity(nodes.len());
    let mut ids: HashMap<NodeId, Option<Box<str>>> = HashMap::with_capacity(nodes.len());
    for piece in nodes.chunks(PIECE) {
        let parts: Vec<BlobId> = piece.iter().filter_map(|(_, _, _, part)| *part).collect();
        let mut parts: HashMap<BlobId, Blob> =
            store.blobs(&parts).await?.into_iter().flatten().map(|blob| (blob.id, blob)).collect();
        for (node, time, id, part) in piece {
            let own = part.and_then(|part| parts.remove(&part));
            let record = quipu_dag::NodeRecord {
                parent: None,
                role: String::new(),
                parts: part.iter().copied().collect(),
                timestamp: *time,
                external_id: None,
                system_prompt: None,
            };
            let step =
                decode(&Node { id: *node, record, config: None, thought_signatures: None }, &One(own)).step;
            // What was not read from the file is not of it.
            if let Some(n) = place(&step) {
                order.push((n, *time, *node));
                ids.insert(*node, id.as_deref().map(Into::into));
            }
        }
    }
    drop(nodes);
    order.sort_unstable();
    let mut line = String::new();
    for piece in order.chunks(PIECE) {
        let wanted: Vec<NodeId> = piece.iter().map(|(_, _, node)| *node).collect();
        let nodes: Vec<Node> = store.nodes(&wanted).await?.into_iter().flatten().collect();
        for (node, decoded) in nodes.iter().zip(decode_nodes(store, &nodes).await?) {
            let parent = node.record.parent.and_then(|parent| ids.get(&parent)?.as_deref());
            line.clear();
            write(&mut line, node, &decoded, parent);
            out.entry(&line)?;
        }
    }
    let last = order.last().and_then(|(_, _, node)| ids.get(node)?.as_deref());
    noted(store, row, &ids, last, out).await
}

/// What we said of an imported session since: labels and names, behind its last entry.
async fn noted(
    store: &dyn Store,
    row: &SessionRow,
    ids: &HashMap<NodeId, Option<Box<str>>>,
    last: Option<&str>,
    out: &mut Writer<'_>,
) -> Result<(), ArchiveError> {
    let Some(head) = store.head(&RefName::notes(AGENT, &row.id)).await? else { return Ok(()) };
    let mut chain = Chain::new();
    chain.last = last.map(str::to_owned);
    for (node, id) in ids {
        chain.ids.extend(id.as_deref().map(|id| (node.to_string(), id.to_owned())));
    }
    chain.used.extend(ids.values().flatten().map(ToString::to_string));
    let mut notes = Vec::new();
    let mut from = Some(head);
    while let Some(start) = from {
        let nodes = store.lineage(start, Until::Count(PIECE)).await?;
        from = nodes.first().and_then(|node| node.record.parent);
        for node in nodes.into_iter().rev() {
            if ids.contains_key(&node.id) || node.id == row.base {
                from = None;
                break;
            }
            notes.push(node);
        }
    }
    notes.reverse();
    for piece in notes.chunks(PIECE) {
        for (node, decoded) in piece.iter().zip(decode_nodes(store, piece).await?) {
            chain.node(node, &decoded, out)?;
        }
    }
    Ok(())
}

/// A lineage of our own nodes, and of what they went on from.
struct Chain {
    /// The id of each node's last entry, by the node's id and by its writer's own.
    ids: HashMap<String, String>,
    used: HashSet<String>,
    /// Nodes that became no entry: whoever names them means the next one.
    silent: Vec<String>,
    last: Option<String>,
    provider: String,
    model: String,
    thinking: Option<Thinking>,
}

async fn lineage(store: &dyn Store, row: &SessionRow, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let head = row.head.ok_or_else(|| missing(row, "no ref stands at its last node"))?;
    let mut path: Vec<NodeId> = Vec::new();
    let mut from = Some(head);
    while let Some(start) = from {
        let nodes = store.lineage(start, Until::Count(4_096)).await?;
        from = nodes.first().and_then(|node| node.record.parent);
        path.extend(nodes.iter().rev().map(|node| node.id));
    }
    path.reverse();
    let header = [
        ("type", quoted("session")),
        ("version", VERSION.to_string()),
        ("id", quoted(row.id.as_str())),
        ("timestamp", quoted(&iso(row.created).unwrap_or_default())),
        ("cwd", quoted(&row.cwd)),
    ];
    let mut text = String::new();
    Difference::default().write(&mut text, header.iter().map(|(name, value)| (*name, value.as_str())));
    out.header(&text)?;
    let mut chain = Chain::new();
    for piece in path.chunks(PIECE) {
        let nodes: Vec<Node> = store.nodes(piece).await?.into_iter().flatten().collect();
        for (node, decoded) in nodes.iter().zip(decode_nodes(store, &nodes).await?) {
            chain.node(node, &decoded, out)?;
        }
    }
    Ok(())
}

impl Chain {
    fn new() -> Self {
        Self {
            ids: HashMap::new(),
            used: HashSet::new(),
            silent: Vec::new(),
            last: None,
            provider: String::new(),
            model: String::new(),
            thinking: None,
        }
    }

    fn node(&mut self, node: &Node, decoded: &Decoded, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
        let time = node.record.timestamp;
        let mut line = String::new();
        if place(&decoded.step).is_some() {
            // As it was in the file that it comes from.
            write(&mut line, node, decoded, self.last.as_deref());
            let members = Members::of(&line);
            let text = |name: &str| members.as_ref().and_then(|members| members.string(name));
            match text("type").as_deref() {
                Some("model_change") => {
                    self.provider = text("provider").unwrap_or_default().into_owned();
                    self.model = text("modelId").unwrap_or_default().into_owned();
                }
                Some("thinking_level_change") => {
                    let level = members.as_ref().and_then(|members| members.get("thinkingLevel"));
                    self.thinking = level.and_then(|level| serde_json::from_str(level).ok());
                }
                _ => {}
            }
            if let Some(id) = node.record.external_id.clone() {
                self.used.insert(id.clone());
                self.follow(node, id);
            }
            return out.entry(&line);
        }
        match &decoded.entry {
            // The header of a file was read from there; its settings are entries of it.
            Entry::Session(SessionStart { agent, .. }) if agent == AGENT => return Ok(()),
            Entry::Session(start) => return self.settings(node, &start.epoch, out),
            Entry::Epoch(epoch) => return self.settings(node, epoch, out),
            Entry::Message(message) => {
                let id = self.fresh_id(node, 0);
                let none = Difference::default();
                message_line(&mut line, message, Some(&id), self.last.as_deref(), time, &none, &none);
                self.follow(node, id);
            }
            Entry::Compaction(compaction) => {
                let id = self.fresh_id(node, 0);
                // Nothing is kept where it names itself.
                let kept = compaction.first_kept.and_then(|kept| self.ids.get(&kept.to_string()).cloned());
                let kept = kept.unwrap_or_else(|| id.clone());
                let none = Difference::default();
                let last = self.last.as_deref();
                compaction_line(&mut line, compaction, Some(&id), last, time, Some(&kept), &none);
                self.follow(node, id);
            }
            Entry::Meta(json) => {
                let id = self.fresh_id(node, 0);
                self.meta(json, &id, time, &mut line);
                self.follow(node, id);
            }
        }
        out.entry(&line)
    }

    /// Another entry of a session file, with the ids of this one.
    fn meta(&self, json: &Json, id: &str, time: UnixMs, line: &mut String) {
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
            if let Some(id) = members.string(name).and_then(|named| self.ids.get(named.as_ref())) {
                change.set(name, &quoted(id));
            }
        }
        change.write(line, members.0.iter().map(|(name, value)| (name.as_ref(), value.get())));
    }

    /// What an epoch changes, as entries.
    fn settings(&mut self, node: &Node, epoch: &Epoch, out: &mut Writer<'_>) -> Result<(), ArchiveError> {
        let level = Json::of(&epoch.thinking).unwrap_or_default();
        let mut entries = Vec::new();
        if (&self.provider, &self.model) != (&epoch.provider, &epoch.model) {
            let model = [("provider", quoted(&epoch.provider)), ("modelId", quoted(&epoch.model))];
            entries.push(("model_change", model.to_vec()));
        }
        if self.thinking != Some(epoch.thinking) {
            entries.push(("thinking_level_change", vec![("thinkingLevel", level.to_string())]));
        }
        (self.provider, self.model) = (epoch.provider.clone(), epoch.model.clone());
        self.thinking = Some(epoch.thinking);
        if entries.is_empty() {
            self.silent.push(node.id.to_string());
        }
        for (at, (kind, members)) in entries.into_iter().enumerate() {
            let id = self.fresh_id(node, at);
            let base = [
                ("type", quoted(kind)),
                ("id", quoted(&id)),
                ("parentId", self.last.as_deref().map_or_else(|| "null".to_owned(), quoted)),
                ("timestamp", quoted(&iso(node.record.timestamp).unwrap_or_default())),
            ];
            let mut line = String::new();
            let members = base.iter().chain(&members).map(|(name, value)| (*name, value.as_str()));
            Difference::default().write(&mut line, members);
            out.entry(&line)?;
            self.follow(node, id);
        }
        Ok(())
    }

    /// The next entry follows this one.
    fn follow(&mut self, node: &Node, id: String) {
        for silent in self.silent.drain(..) {
            self.ids.insert(silent, id.clone());
        }
        self.ids.insert(node.id.to_string(), id.clone());
        if let Some(own) = &node.record.external_id {
            self.ids.insert(own.clone(), id.clone());
        }
        self.last = Some(id);
    }

    /// An id from the node's: eight digits of it, more where another entry has them.
    fn fresh_id(&mut self, node: &Node, skip: usize) -> String {
        let hash = node.id.to_string();
        let from = 8 * skip;
        let mut length = 8;
        loop {
            let id = hash[from..(from + length).min(hash.len())].to_owned();
            if from + length >= hash.len() || self.used.insert(id.clone()) {
                return id;
            }
            length += 4;
        }
    }
}
