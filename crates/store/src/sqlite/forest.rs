//! What stands out among many nodes: rows that are derived with the index, and reads of them.

use std::collections::{BTreeMap, HashMap};

use quipu_protocol::{Json, NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Deserialize;

use super::failure::Outcome;
use super::{graph, places, rows};
use crate::{ForkPoint, Label, Landmark, LandmarkKind};

/// What a row says. Part of the stored form.
pub(super) mod mark {
    /// Nothing follows the node.
    pub(in crate::sqlite) const END: i64 = 1;
    /// It gives the session a name.
    pub(in crate::sqlite) const NAME: i64 = 2;
    /// It gives a node a label.
    pub(in crate::sqlite) const LABEL: i64 = 3;
    /// The context is summed up there.
    pub(in crate::sqlite) const COMPACTION: i64 = 4;
    /// A row of the action log, by its number, leads from or to a node of the session.
    pub(in crate::sqlite) const ACTION: i64 = 5;
}

/// Characters of a label or a name at most.
const LONGEST: usize = 200;
/// Entries with labels of one session that are read at most, the newest.
const LABELS: i64 = 20_000;
/// Nodes without a root that are told at most.
const ASTRAY: i64 = 1_000;

/// A label or a name, as an entry gives it.
pub(super) struct LabelText {
    kind: i64,
    target: Option<String>,
    text: String,
}

impl LabelText {
    pub(super) fn of(entry: &Json) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
        enum LabelEntry {
            Label {
                target_id: String,
                #[serde(default)]
                label: Option<String>,
            },
            SessionInfo {
                #[serde(default)]
                name: Option<String>,
            },
        }
        // Most entries are something else: told apart without reading them.
        if !entry.get().contains("\"label\"") && !entry.get().contains("\"session_info\"") {
            return None;
        }
        match entry.read().ok()? {
            LabelEntry::Label { target_id, label } => Some(Self {
                kind: mark::LABEL,
                target: Some(target_id),
                text: line(&label.unwrap_or_default()),
            }),
            LabelEntry::SessionInfo { name } => {
                Some(Self { kind: mark::NAME, target: None, text: line(&name.unwrap_or_default()) })
            }
        }
    }
}

/// Words on one line, without what could steer a terminal.
fn line(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    flat.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

/// Rows that a group of nodes leads to, written at its end: the next node mostly takes the place of the one before.
#[derive(Default)]
pub(super) struct Marks {
    /// Ends by number, with their session and time; `None` for what is no end any more.
    ends: BTreeMap<i64, (i64, Option<i64>)>,
    rows: Vec<(i64, i64, i64, i64, Option<LabelText>)>,
}

impl Marks {
    /// A node was placed below `parent`.
    pub(super) fn placed(&mut self, seq: i64, session: i64, parent: Option<(i64, i64)>, at: i64) {
        self.ends.insert(seq, (session, Some(at)));
        if let Some((parent, session)) = parent
            // What was placed in this group has no row yet.
            && self.ends.remove(&parent).is_none_or(|(_, at)| at.is_none())
        {
            self.ends.insert(parent, (session, None));
        }
    }

    pub(super) fn compaction(&mut self, seq: i64, session: i64, at: i64) {
        self.rows.push((session, mark::COMPACTION, seq, at, None));
    }

    pub(super) fn given(&mut self, seq: i64, session: i64, at: i64, given: LabelText) {
        self.rows.push((session, given.kind, seq, at, Some(given)));
    }

    pub(super) fn write(self, connection: &Connection) -> Outcome<()> {
        let mut put = connection
            .prepare_cached("INSERT OR REPLACE INTO quipu_x_mark VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let mut drop = connection
            .prepare_cached("DELETE FROM quipu_x_mark WHERE session = ?1 AND kind = ?2 AND seq = ?3")?;
        for (seq, (session, at)) in self.ends {
            match at {
                Some(at) => put.execute(params![session, mark::END, seq, at, None::<&str>, None::<&str>])?,
                None => drop.execute([session, mark::END, seq])?,
            };
        }
        for (session, kind, seq, at, given) in self.rows {
            let target = given.as_ref().and_then(|given| given.target.as_deref());
            let text = given.as_ref().map(|given| given.text.as_str());
            put.execute(params![session, kind, seq, at, target, text])?;
        }
        Ok(())
    }
}

/// The number of a session's first node; more than one where its file was imported with several headers.
fn numbers(connection: &Connection, session: &SessionId) -> Outcome<Vec<i64>> {
    let mut statement = connection.prepare_cached("SELECT num FROM quipu_x_session WHERE id = ?1")?;
    let found = statement.query_map([session.as_str()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(found)
}

/// The labels that were given in these sessions, the last for each node.
pub(super) fn labels(connection: &Connection, sessions: &[SessionId]) -> Outcome<Vec<Label>> {
    let mut statement = connection.prepare_cached(
        "SELECT m.at, m.seq, m.target, m.text, n.id FROM quipu_x_mark m JOIN nodes n ON n.rowid = m.seq \
         WHERE m.session = ?1 AND m.kind = ?2 ORDER BY m.seq DESC LIMIT ?3",
    )?;
    // By what the entry calls its node: an id of the file's own counts within its session only.
    let mut last: HashMap<(Option<i64>, String), (i64, i64, Label)> = HashMap::new();
    for session in sessions {
        for number in numbers(connection, session)? {
            let mut found = statement.query(params![number, mark::LABEL, LABELS])?;
            while let Some(row) = found.next()? {
                let (at, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
                let spelled: String = row.get(2)?;
                let Some(node) = rows::node_id(row, 4)? else { continue };
                let hash = spelled.parse::<NodeId>().ok();
                let target = match hash {
                    Some(id) => Some(id),
                    None => by_own_id(connection, number, &spelled)?,
                };
                let key = match target {
                    Some(id) => (None, id.to_string()),
                    None => (Some(number), spelled),
                };
                if last.get(&key).is_some_and(|(then, place, _)| (*then, *place) > (at, seq)) {
                    continue;
                }
                let label = Label { session: session.clone(), node, target, text: row.get(3)?, at };
                last.insert(key, (at, seq, label));
            }
        }
    }
    let mut labels: Vec<_> = last.into_values().filter(|(_, _, label)| !label.text.is_empty()).collect();
    labels.sort_by_key(|(at, seq, _)| std::cmp::Reverse((*at, *seq)));
    Ok(labels.into_iter().map(|(_, _, label)| label).collect())
}

/// The last entry of a session with this id of its own.
fn by_own_id(connection: &Connection, session: i64, id: &str) -> Outcome<Option<NodeId>> {
    let mut statement = connection.prepare_cached(
        "SELECT n.id FROM nodes n JOIN quipu_x_node x ON x.seq = n.rowid WHERE n.external_id = ?1 AND x.session = ?2 \
         ORDER BY n.rowid DESC LIMIT 1",
    )?;
    Ok(statement.query_row(params![id, session], |row| rows::node_id(row, 0)).optional()?.flatten())
}

/// Ends and compactions of these sessions, the newest of each first, at most `limit` of each kind and session.
pub(super) fn landmarks(
    connection: &Connection,
    sessions: &[SessionId],
    limit: usize,
) -> Outcome<Vec<Landmark>> {
    let mut statement = connection.prepare_cached(
        "SELECT n.id, x.depth FROM quipu_x_mark m JOIN quipu_x_node x ON x.seq = m.seq JOIN nodes n ON n.rowid = m.seq \
         WHERE m.session = ?1 AND m.kind = ?2 ORDER BY m.seq DESC LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut landmarks = Vec::new();
    for session in sessions {
        for number in numbers(connection, session)? {
            for (stored, kind) in
                [(mark::END, LandmarkKind::End), (mark::COMPACTION, LandmarkKind::Compaction)]
            {
                let mut found = statement.query(params![number, stored, limit])?;
                while let Some(row) = found.next()? {
                    let Some(node) = rows::node_id(row, 0)? else { continue };
                    let depth = row.get::<_, i64>(1)?.unsigned_abs();
                    landmarks.push(Landmark { node, kind, session: session.clone(), depth });
                }
            }
        }
    }
    Ok(landmarks)
}

/// Where each node leaves the lineage of `trunk`; `None` for one that has no root or is not there.
pub(super) fn fork_points(
    connection: &Connection,
    trunk: &NodeId,
    nodes: &[NodeId],
) -> Outcome<Vec<Option<ForkPoint>>> {
    let Some(trunk) = places::position(connection, trunk)? else { return Ok(vec![None; nodes.len()]) };
    nodes
        .iter()
        .map(|node| {
            let Some(own) = places::position(connection, node)? else { return Ok(None) };
            let depth = own.depth.unsigned_abs();
            let (at, apart) = match graph::meeting(connection, trunk, own)? {
                None => (None, graph::ancestor(connection, node, 0)?),
                Some(shared) => {
                    let at =
                        graph::id_of(connection, shared.seq)?.map(|id| (id, shared.depth.unsigned_abs()));
                    let below = if shared.seq == own.seq {
                        None
                    } else {
                        match graph::ancestor_at(connection, own, shared.depth + 1)? {
                            Some(first) => graph::id_of(connection, first.seq)?,
                            None => None,
                        }
                    };
                    (at, below)
                }
            };
            Ok(Some(ForkPoint { depth, at, apart }))
        })
        .collect()
}

/// Nodes without a root: below a parent that is missing, or in a circle.
pub(super) fn astray(connection: &Connection) -> Outcome<Vec<NodeId>> {
    let mut statement = connection.prepare_cached(
        "SELECT n.id FROM quipu_x_wait w JOIN nodes n ON n.rowid = w.seq ORDER BY w.seq LIMIT ?1",
    )?;
    let mut found = statement.query([ASTRAY])?;
    let mut nodes = Vec::new();
    while let Some(row) = found.next()? {
        nodes.extend(rows::node_id(row, 0)?);
    }
    Ok(nodes)
}
