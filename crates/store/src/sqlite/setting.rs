//! Where sessions say how they are set: rows that are derived with the index, and the read that finds the nearest.

use quipu_dag::Node;
use quipu_protocol::{Entry, Json, NodeId};
use rusqlite::{Connection, params};
use serde::Deserialize;

use super::failure::Outcome;
use super::{graph, places, rows};

/// What a node says. Part of the stored form.
mod says {
    pub(super) const MODEL: i64 = 1;
    pub(super) const THINKING: i64 = 2;
    /// All of the settings.
    pub(super) const EPOCH: i64 = 3;
    /// All of the settings, and whose they are.
    pub(super) const SESSION: i64 = 4;
}

/// What an entry says, if it says something of it.
pub(super) fn of(entry: &Entry) -> Option<i64> {
    match entry {
        Entry::Session(_) => Some(says::SESSION),
        Entry::Compaction(compaction) => compaction.checkpoint.as_ref().map(|_| says::SESSION),
        Entry::Epoch(_) => Some(says::EPOCH),
        Entry::Meta(json) => of_meta(json),
        Entry::Message(_) => None,
    }
}

fn of_meta(json: &Json) -> Option<i64> {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Change {
        ModelChange,
        ThinkingLevelChange,
    }
    // Most entries are something else: told apart without reading them.
    if !json.get().contains("_change\"") {
        return None;
    }
    match json.read().ok()? {
        Change::ModelChange => Some(says::MODEL),
        Change::ThinkingLevelChange => Some(says::THINKING),
    }
}

pub(super) fn add(connection: &Connection, session: i64, said: i64, seq: i64) -> Outcome<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_setting VALUES (?1, ?2, ?3)")?
        .execute([session, said, seq])?;
    Ok(())
}

/// The nearest node of each kind on the lineage of `of`, as far as its session goes; the nearest of them first.
pub(super) fn nearest(connection: &Connection, of: &NodeId) -> Outcome<Vec<Node>> {
    let Some(start) = places::position(connection, of)? else { return Ok(Vec::new()) };
    let session = start.session.unwrap_or(0);
    // A node is stored after its parent.
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM quipu_x_setting WHERE session = ?1 AND says = ?2 AND seq <= ?3 ORDER BY seq DESC",
    )?;
    let mut places = Vec::new();
    for kind in [says::MODEL, says::THINKING, says::EPOCH, says::SESSION] {
        let mut found = statement.query(params![session, kind, start.seq])?;
        while let Some(row) = found.next()? {
            let place = places::at(connection, row.get(0)?)?;
            if graph::ancestor_at(connection, start, place.depth)?.is_some_and(|one| one.seq == place.seq) {
                places.push(place);
                break;
            }
        }
    }
    places.sort_by_key(|place| std::cmp::Reverse(place.depth));
    let mut nodes = Vec::new();
    for place in places {
        if let Some(id) = graph::id_of(connection, place.seq)? {
            nodes.extend(rows::find_node(connection, &id)?);
        }
    }
    Ok(nodes)
}
