//! What a selection means in the graph: which nodes, and what was made of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId, NodeId};
use quipu_transcript::erased_part;
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::Value;

use super::super::erased::is_erased_node;
use super::super::failure::Outcome;
use super::super::{graph, rows};
use crate::{LineageEnd, Needles, Selection};

/// The nodes that are selected and not erased, by their rows.
pub(super) fn nodes(connection: &Connection, selection: &Selection) -> Outcome<Vec<(i64, NodeId)>> {
    let mut found = BTreeSet::new();
    let mut row_of = connection.prepare_cached("SELECT rowid FROM nodes WHERE id = ?1")?;
    for id in &selection.nodes {
        let row: Option<i64> = row_of.query_row([id.to_string()], |row| row.get(0)).optional()?;
        found.extend(row.map(|row| (row, id.0)));
    }
    let mut of_session = connection.prepare_cached(
        "SELECT x.seq, x.id FROM quipu_x_session s JOIN quipu_x_node x ON x.session = s.num WHERE s.id = ?1",
    )?;
    for session in &selection.sessions {
        let mut rows = of_session.query([session.as_str()])?;
        while let Some(row) = rows.next()? {
            found.insert((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?));
        }
    }
    let mut nodes = Vec::with_capacity(found.len());
    for (row, id) in found {
        if !is_erased_node(connection, &NodeId(id))? {
            nodes.push((row, NodeId(id)));
        }
    }
    Ok(nodes)
}

/// The nodes that have any of these texts as a part, by their rows.
pub(super) fn users_of(connection: &Connection, blobs: &HashSet<BlobId>) -> Outcome<Vec<(i64, NodeId)>> {
    let mut found = Vec::new();
    if blobs.is_empty() {
        return Ok(found);
    }
    let mut statement = connection.prepare("SELECT rowid, id, parts_list FROM nodes ORDER BY rowid")?;
    let mut all = statement.query([])?;
    while let Some(row) = all.next()? {
        let parts = rows::text(row, 2)?.map(|list| rows::parts(&list)).unwrap_or_default();
        if parts.iter().any(|part| blobs.contains(part))
            && let Some(id) = rows::node_id(row, 1)?
        {
            found.push((row.get(0)?, id));
        }
    }
    Ok(found)
}

/// What was recorded below some nodes.
#[derive(Default)]
pub(super) struct RecordedBodies {
    /// Bodies of requests.
    pub(super) bodies: BTreeSet<ChunkId>,
    /// The parts that name them.
    pub(super) parts: HashSet<BlobId>,
}

/// The recorded bodies of requests at these nodes and below them: they were made of what these say.
pub(super) fn bodies_below(
    connection: &Connection,
    nodes: impl IntoIterator<Item = NodeId>,
) -> Outcome<RecordedBodies> {
    let mut below = RecordedBodies::default();
    let mut open: Vec<NodeId> = nodes.into_iter().collect();
    let mut seen: HashSet<NodeId> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        let Some(node) = rows::find_node(connection, &id)? else { continue };
        if let Some(own) = own_part(connection, &node)? {
            below.bodies.extend(bodies_in(&own.content));
            below.parts.insert(own.id);
        }
        for edge in graph::children(connection, &[id])? {
            if seen.insert(edge.child) {
                open.push(edge.child);
            }
        }
    }
    Ok(below)
}

/// Our part of a node.
pub(super) fn own_part(connection: &Connection, node: &Node) -> Outcome<Option<Blob>> {
    let Some(last) = node.record.parts.last() else { return Ok(None) };
    Ok(rows::find_blob(connection, last)?.filter(|blob| blob.kind == "quipu"))
}

/// The bodies of requests that a text names: of a part of ours, or of a call that is open. A summary may have taken several
/// calls, which stand in a string.
pub(super) fn bodies_in(text: &str) -> impl Iterator<Item = ChunkId> + '_ {
    text.match_indices("body").filter_map(|(at, name)| {
        let rest = text[at + name.len()..].trim_start_matches(['\\', '"', ':', ' ']);
        let hash = rest.get(..64)?;
        hash.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| hash.parse().ok()).flatten()
    })
}

/// System prompts that our part names.
pub(super) fn prompts_of(own: &Blob) -> Vec<[u8; 32]> {
    let part: serde_json::Value = serde_json::from_str(&own.content).unwrap_or_default();
    let places = [
        "/session/epoch/system",
        "/session/epoch/identity",
        "/epoch/system",
        "/epoch/identity",
        "/step/call/system",
    ];
    let named = places.iter().filter_map(|place| part.pointer(place)?.as_str()?.parse::<BlobId>().ok());
    named.map(|id| id.0).collect()
}

/// Where in a text something is that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hit {
    /// Nowhere, or only in what stands for something erased.
    No,
    /// In what goes when the text is erased.
    Content,
    /// In what stays then: ids, names of tools and members, words of the format.
    Structure,
}

/// Members of parts that hold anything: what is looked for may be a name or a number there.
const ANYTHING: [&str; 4] = ["arguments", "details", "data", "extra"];

pub(super) fn hit(blob: &Blob, needles: &Needles) -> Hit {
    if !needles.are_in(blob.content.as_bytes()) {
        return Hit::No;
    }
    let left = erased_part(blob);
    let is_parsed =
        ["quipu", "tool_call", "tool_result", "pi_meta", "pi_entry"].contains(&blob.kind.as_str());
    let read = |text: &str| serde_json::from_str(text).ok().filter(|_| is_parsed);
    match (read(&blob.content), read(&left.content)) {
        (Some(value), Some(left)) => match is_in_content(&value, Some(&left), needles) {
            true => Hit::Content,
            false => Hit::Structure,
        },
        _ if left.content == blob.content => Hit::No,
        _ => Hit::Content,
    }
}

fn is_in_content(value: &Value, left: Option<&Value>, needles: &Needles) -> bool {
    match value {
        _ if left == Some(value) => false,
        Value::String(text) => needles.are_in(text.as_bytes()),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.any(|(at, item)| is_in_content(item, left.and_then(|left| left.get(at)), needles))
        }
        Value::Object(members) => members.iter().any(|(name, value)| {
            let left = left.and_then(|left| left.get(name));
            if ANYTHING.contains(&name.as_str()) && left != Some(value) {
                needles.are_in(value.to_string().as_bytes())
            } else {
                is_in_content(value, left, needles)
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The hashes that a text names.
pub(super) fn hashes_in(text: &str) -> impl Iterator<Item = [u8; 32]> + '_ {
    let runs = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|run| run.len() == 64);
    runs.filter_map(|run| run.parse::<BlobId>().ok()).map(|id| id.0)
}

/// What sessions at work have in their hands.
#[derive(Default)]
pub(super) struct HeldContent {
    /// Nodes, and who has them.
    pub(super) nodes: HashMap<NodeId, String>,
    /// Texts of these.
    pub(super) blobs: HashMap<BlobId, String>,
    /// The names of the sessions, and who has them.
    pub(super) sessions: HashMap<String, String>,
}

impl HeldContent {
    /// By the leases that living owners hold.
    pub(super) fn of(connection: &Connection, is_dead: &dyn Fn(&str) -> bool) -> Outcome<Self> {
        let mut at_work = Self::default();
        let mut statement = connection.prepare_cached(
            "SELECT l.ref, l.owner, r.node_id FROM quipu_lease l JOIN refs r ON r.name = l.ref WHERE l.expires > ?1",
        )?;
        let mut found = statement.query([rows::now()])?;
        while let Some(row) = found.next()? {
            let name = rows::text(row, 0)?.unwrap_or_default().into_owned();
            let owner = rows::text(row, 1)?.unwrap_or_default().into_owned();
            if is_dead(&owner) {
                continue;
            }
            if let Some(head) = rows::node_id(row, 2)? {
                for node in graph::lineage(connection, &head, LineageEnd::Root)? {
                    let parts = node.record.parts.iter().map(|part| (*part, owner.clone()));
                    at_work.blobs.extend(parts);
                    at_work.nodes.insert(node.id, owner.clone());
                }
            }
            let session = name.split_once('/').map_or(name.as_str(), |(_, session)| session);
            at_work.sessions.insert(session.to_owned(), owner);
        }
        Ok(at_work)
    }
}
