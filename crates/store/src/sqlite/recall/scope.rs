//! Which units a question may be answered by.

use std::collections::HashSet;

use quipu_protocol::NodeId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::space::{Space, Totals, Unit, kind};
use super::{author_number, notes};
use crate::{RecallKind, RecallQuery};

/// Which units may be shown.
pub(super) struct Scope {
    places: Places,
    kinds: Vec<u8>,
    authors: Vec<u8>,
    since: u32,
    until: u32,
    /// The session of who asks.
    asking: Option<u32>,
    /// Rows that nobody is shown.
    without: HashSet<u32>,
}

enum Places {
    All,
    /// These sessions.
    Groups {
        numbers: HashSet<u32>,
        /// From one unit to another, in order: none of these groups has one elsewhere.
        ranges: Vec<(u32, u32)>,
    },
    /// A bit for each unit, from 0.
    Units(Vec<u8>),
}

impl Scope {
    pub(super) fn of(
        connection: &Connection,
        query: &RecallQuery,
        space: Space,
        totals: Totals,
    ) -> Outcome<Self> {
        let places = match (space, &query.projects) {
            (Space::Sessions, None) => Places::All,
            (Space::Sessions, Some(projects)) => sessions_below(connection, projects, totals)?,
            (Space::Notes, _) => Places::Units(notes::units_of(connection, &query.memories)?),
        };
        let (asking, without) = match space {
            Space::Sessions => (session_number(connection, query)?, rows_of(connection, &query.without)?),
            Space::Notes => (None, HashSet::new()),
        };
        let seconds = |at: Option<i64>, none: u32| at.map_or(none, super::seconds);
        Ok(Self {
            places,
            kinds: query.kinds.iter().map(|kind| kind_number(*kind)).collect(),
            authors: query.authors.iter().map(|author| author_number(*author)).collect(),
            since: seconds(query.since, 0),
            until: seconds(query.until, u32::MAX),
            asking,
            without,
        })
    }

    /// Whether a unit can be one of those, as far as its number tells.
    pub(super) fn may_hold(&self, number: u32) -> bool {
        match &self.places {
            Places::All => true,
            Places::Groups { ranges, .. } => {
                let at = ranges.partition_point(|(_, last)| *last < number);
                ranges.get(at).is_some_and(|(first, _)| *first <= number)
            }
            Places::Units(bits) => notes::has_bit(bits, number),
        }
    }

    pub(super) fn holds(&self, number: u32, unit: &Unit) -> bool {
        let is_of = match &self.places {
            Places::All => true,
            Places::Groups { numbers, .. } => numbers.contains(&unit.group),
            Places::Units(bits) => notes::has_bit(bits, number),
        };
        is_of
            && unit.kind != kind::GONE
            && self.asking.is_none_or(|asking| unit.group != asking)
            && (self.without.is_empty() || !self.without.contains(&unit.seq))
            && (self.kinds.is_empty() || self.kinds.contains(&unit.kind))
            && (self.authors.is_empty() || self.authors.contains(&unit.author))
            && unit.at >= self.since
            && (self.until == u32::MAX || unit.at < self.until)
    }
}

/// The number of the session of who asks, where it has one.
fn session_number(connection: &Connection, query: &RecallQuery) -> Outcome<Option<u32>> {
    let Some(asking) = &query.asking else { return Ok(None) };
    let mut statement = connection.prepare_cached("SELECT num FROM quipu_x_session WHERE id = ?1")?;
    Ok(statement.query_row([asking.as_str()], |row| row.get(0)).optional()?)
}

fn rows_of(connection: &Connection, nodes: &[NodeId]) -> Outcome<HashSet<u32>> {
    if nodes.is_empty() {
        return Ok(HashSet::new());
    }
    let mut statement = connection.prepare_cached("SELECT rowid FROM nodes WHERE id = ?1")?;
    let mut rows = HashSet::with_capacity(nodes.len());
    for node in nodes {
        rows.extend(statement.query_row([node.to_string()], |row| row.get::<_, u32>(0)).optional()?);
    }
    Ok(rows)
}

fn kind_number(kind: RecallKind) -> u8 {
    match kind {
        RecallKind::User => kind::USER,
        RecallKind::Assistant => kind::ASSISTANT,
        RecallKind::Summary => kind::SUMMARY,
        RecallKind::Note => kind::NOTE,
    }
}

fn sessions_below(connection: &Connection, projects: &[String], totals: Totals) -> Outcome<Places> {
    let (mut numbers, mut ranges) = (HashSet::new(), Vec::new());
    let mut statement = connection.prepare_cached(
        "SELECT s.num, g.first, g.last FROM quipu_x_session s JOIN quipu_x_recall_group g ON g.num = s.num \
         WHERE s.project = ?1 OR (s.project >= ?2 AND s.project < ?3)",
    )?;
    for project in projects {
        let project = project.strip_suffix('/').unwrap_or(project);
        // The character after the slash ends the range.
        let (below, end) = (format!("{project}/"), format!("{project}0"));
        let exact = if project.is_empty() { "/" } else { project };
        let mut rows = statement.query(params![exact, below, end])?;
        while let Some(row) = rows.next()? {
            let (number, first, last): (u32, u32, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
            numbers.insert(number);
            ranges.push((first, last.min(totals.units)));
        }
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    Ok(Places::Groups { numbers, ranges: joined })
}
