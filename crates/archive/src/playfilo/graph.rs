//! Rows of the database to nodes, parents first.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use quipu_dag::{Blob, Node, NodeRecord, Verdict, read_parts_list};
use quipu_protocol::{BlobId, Json, NodeId};
use quipu_seal::Sealer;
use quipu_store::{Action, ForeignDatabase, ForeignRows, ForeignValue};
use tokio::sync::mpsc;

use super::{number, sealed};
use crate::{ArchiveError, ProblemKind, Report};

/// Columns that every version of the tables has, and those that later ones have.
const NEEDED: [&str; 5] = ["id", "parent_id", "role", "parts_list", "timestamp"];
const LATER: [&str; 4] = ["config_json", "thought_signatures", "system_prompt_hash", "external_id"];

/// Nodes with what they need, to be committed together.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) nodes: Vec<Node>,
    pub(super) blobs: Vec<Blob>,
}

pub(super) struct Database {
    database: ForeignDatabase,
    /// Columns of a node that this file has.
    columns: Vec<&'static str>,
    /// All nodes, parents first where they do not follow each other in a circle.
    order: Vec<NodeId>,
    at: usize,
    /// What each node is here.
    pub(super) here: HashMap<NodeId, NodeId>,
    /// What each blob is here; `None` for one that is missing or no JSON.
    blobs: HashMap<BlobId, Option<BlobId>>,
    /// Nodes that nothing follows, as they are here.
    pub(super) ends: std::collections::BTreeSet<NodeId>,
    /// Nodes that something follows.
    pub(super) inner: std::collections::HashSet<NodeId>,
}

/// Names of refs, and where they stand.
pub(super) fn refs(database: &ForeignDatabase) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let rows = ForeignRows {
        table: "refs",
        columns: &["name", "node_id"],
        only: None,
        order: &["name"],
        most: None,
    };
    database.rows(rows, &mut |row| {
        if let [name, node] = row
            && let (Some(name), Some(node)) = (name.text(), node.text())
        {
            found.push((name.into_owned(), node.into_owned()));
        }
        true
    })?;
    Ok(found)
}

fn text(value: &ForeignValue<'_>) -> Option<String> {
    value.text().map(std::borrow::Cow::into_owned)
}

impl Database {
    /// Opens a database and puts its nodes in order.
    pub(super) fn open(path: &Path, report: &mut Report) -> Result<Self, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
        let database = ForeignDatabase::open(path).map_err(fail)?;
        let have = database.columns("nodes").map_err(fail)?;
        let has = |name: &&str| have.iter().any(|column| column == name);
        if !NEEDED.iter().all(has) {
            let why = "its table `nodes` is not of a supported Playfilo version; a newer Quipu may read it";
            return Err(ArchiveError::NotASession { path: path.to_owned(), why });
        }
        let columns = NEEDED.into_iter().chain(LATER.into_iter().filter(|name| has(name))).collect();
        let mut nodes: Vec<(NodeId, Option<NodeId>)> = Vec::new();
        let rows = ForeignRows {
            table: "nodes",
            columns: &["id", "parent_id"],
            only: None,
            order: &["timestamp"],
            most: None,
        };
        database
            .rows(rows, &mut |row| {
                let id = |value: &ForeignValue<'_>| value.text().and_then(|text| text.parse::<NodeId>().ok());
                match id(&row[0]) {
                    Some(node) => nodes.push((node, id(&row[1]))),
                    None => {
                        let told = row[0].text().unwrap_or_default();
                        report.problem(
                            0,
                            ProblemKind::NotAnEntry,
                            &format!("node {told}: its id is not a hash"),
                        );
                    }
                }
                true
            })
            .map_err(fail)?;
        let (here, blobs) = (HashMap::new(), HashMap::new());
        let (ends, inner) = Default::default();
        Ok(Self { database, columns, order: order(&nodes), at: 0, here, blobs, ends, inner })
    }

    pub(super) fn refs(&self) -> io::Result<Vec<(String, String)>> {
        refs(&self.database)
    }

    /// Which part of the nodes was taken, in thousandths.
    pub(super) fn done(&self) -> u64 {
        (self.at as u64 * 1_000).checked_div(self.order.len() as u64).unwrap_or(1_000)
    }

    /// Reads the log of actions, once all nodes were taken.
    pub(super) fn log(
        &self,
        sealer: &Sealer,
        report: &mut Report,
        rows: &mpsc::Sender<Vec<Action>>,
    ) -> io::Result<()> {
        super::log::read(&self.database, &self.here, sealer, report, rows)
    }

    /// The next nodes, so many or `bytes` of content, about; none at the end.
    pub(super) fn take(
        &mut self,
        most: usize,
        bytes: usize,
        sealer: &Sealer,
        report: &mut Report,
    ) -> io::Result<Taken> {
        let mut taken = Taken::default();
        let mut size = 0;
        while taken.nodes.len() < most
            && size < bytes
            && let Some(id) = self.order.get(self.at).copied()
        {
            self.at += 1;
            let before = taken.blobs.len();
            if let Some((node, has_parent)) = self.row(id)? {
                let node = self.node(node, has_parent, sealer, report, &mut taken.blobs)?;
                self.here.insert(id, node.id);
                if let Some(parent) = node.record.parent {
                    self.ends.remove(&parent);
                    self.inner.insert(parent);
                }
                if !self.inner.contains(&node.id) {
                    self.ends.insert(node.id);
                }
                size += node.config.as_ref().map_or(0, String::len) + 256;
                taken.nodes.push(node);
            }
            size += taken.blobs[before..].iter().map(|blob| blob.content.len()).sum::<usize>();
        }
        Ok(taken)
    }

    /// A node as its row has it, and whether that names a parent.
    fn row(&self, id: NodeId) -> io::Result<Option<(Node, bool)>> {
        let mut found = None;
        let own = id.to_string();
        let rows = ForeignRows {
            table: "nodes",
            columns: &self.columns,
            only: Some(("id", &own)),
            order: &[],
            most: None,
        };
        self.database.rows(rows, &mut |row| {
            let of = |name: &str| self.columns.iter().position(|column| *column == name).map(|at| &row[at]);
            let text_of = |name: &str| of(name).and_then(text);
            let parent = text_of("parent_id").filter(|parent| !parent.is_empty());
            let record = NodeRecord {
                parent: parent.as_ref().and_then(|parent| parent.parse().ok()),
                role: text_of("role").unwrap_or_default(),
                parts: text_of("parts_list").and_then(|list| read_parts_list(&list).ok()).unwrap_or_default(),
                timestamp: of("timestamp").map(number).unwrap_or_default(),
                external_id: text_of("external_id"),
                system_prompt: text_of("system_prompt_hash").and_then(|hash| hash.parse().ok()),
            };
            let (config, thought_signatures) = (text_of("config_json"), text_of("thought_signatures"));
            found = Some((Node { id, record, config, thought_signatures }, parent.is_some()));
            false
        })?;
        Ok(found)
    }

    /// A node as it is kept here: itself, or written anew where it cannot be.
    fn node(
        &mut self,
        node: Node,
        has_parent: bool,
        sealer: &Sealer,
        report: &mut Report,
        blobs: &mut Vec<Blob>,
    ) -> io::Result<Node> {
        let mut why = None;
        let mut record = node.record.clone();
        record.parent = node.record.parent.and_then(|parent| self.here.get(&parent).copied());
        if has_parent && record.parent.is_none() {
            why = Some("its parent is missing");
        }
        let count = report.sealed;
        let mut parts = Vec::with_capacity(record.parts.len());
        for part in &node.record.parts {
            match self.blob(*part, sealer, report, blobs)? {
                Some(part) => parts.push(part),
                None => why = Some("a part of it is missing or not JSON"),
            }
        }
        record.parts = parts;
        if let Some(prompt) = node.record.system_prompt {
            record.system_prompt = self.blob(prompt, sealer, report, blobs)?;
            if record.system_prompt.is_none() {
                why = Some("its system prompt is missing or not JSON");
            }
        }
        let config = node.config.as_deref().map(|text| sealed(text, sealer));
        let thought_signatures = node.thought_signatures.as_deref().map(|text| sealed(text, sealer));
        if why.is_none() && node.verify() != Verdict::Valid {
            why = Some("its id is not the hash of its content");
        }
        if let Some(why) = why {
            report.problem(0, ProblemKind::Renamed, &format!("node {}: {why}", node.id));
        } else if record == node.record {
            return Ok(Node { config, thought_signatures, ..node });
        } else if report.sealed == count && record.parts != node.record.parts {
            // The secret was met in another node before.
            report.sealed += 1;
        }
        Ok(Node::new(record, config, thought_signatures))
    }

    /// What a blob is here; new ones are put among `blobs`.
    fn blob(
        &mut self,
        id: BlobId,
        sealer: &Sealer,
        report: &mut Report,
        blobs: &mut Vec<Blob>,
    ) -> io::Result<Option<BlobId>> {
        if let Some(known) = self.blobs.get(&id) {
            return Ok(*known);
        }
        let mut found = None;
        let own = id.to_string();
        let rows = ForeignRows {
            table: "blobs",
            columns: &["type", "content"],
            only: Some(("hash", &own)),
            order: &[],
            most: None,
        };
        self.database.rows(rows, &mut |row| {
            found = row[0]
                .text()
                .zip(row[1].text())
                .map(|(kind, content)| (kind.into_owned(), content.into_owned()));
            false
        })?;
        let blob = found.and_then(|(kind, content)| {
            let json = Json::parse(&content).ok()?;
            let sealed = sealer.seal_json(&json);
            let is_sealed = sealed != json;
            report.sealed += u64::from(is_sealed);
            Blob::new(kind, if is_sealed { sealed.get().to_owned() } else { content }).ok()
        });
        let here = blob.as_ref().map(|blob| blob.id);
        self.blobs.insert(id, here);
        blobs.extend(blob);
        Ok(here)
    }
}

/// Nodes with what they follow before them; a circle is begun at the first of it.
fn order(nodes: &[(NodeId, Option<NodeId>)]) -> Vec<NodeId> {
    let places: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(at, (id, _))| (*id, at)).collect();
    let mut done = vec![false; nodes.len()];
    let mut order = Vec::with_capacity(nodes.len());
    for start in 0..nodes.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        while let Some(here) = at.filter(|here| !done[*here]) {
            done[here] = true;
            path.push(here);
            at = nodes[here].1.and_then(|parent| places.get(&parent).copied());
        }
        order.extend(path.into_iter().rev().map(|at| nodes[at].0));
    }
    order
}
