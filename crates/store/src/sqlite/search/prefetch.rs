//! What the next nodes say, read before their turn.
//!
//! Blobs are found by their hashes, each on another page of the index and of the table: among a million nodes with short
//! messages, a third of the time went into these pages. But what nodes in a row say was mostly put down together. A few of
//! their blobs tell where, and the table is read there from one row to the next, without the index. Those that stand
//! elsewhere are looked up, in the order of their hashes.

use std::collections::HashMap;

use quipu_protocol::BlobId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::super::failure::Outcome;
use super::super::rows;
use super::Kind;

/// Blobs, by what comes after: of one that says nothing, or nothing for parts of words (`?3`), no content; 1 for one above
/// so many bytes (`?2`). Types are compared one by one: of a list in parentheses SQLite makes a table, for each blob anew.
macro_rules! blobs {
    ($which:literal) => {
        concat!(
            "SELECT rowid, type, CASE WHEN type = 'quipu' OR type = 'system_prompt' OR type = 'image' \
             OR (?3 AND type <> 'text' AND type <> 'tool_call') THEN NULL \
             ELSE iif(octet_length(content) > ?2, 1, content) END, hash FROM blobs WHERE ",
            $which
        )
    };
}
/// One, by its hash.
pub(super) const FIND: &str = blobs!("hash = ?1");
/// Those from one row to another.
const ALONG: &str = blobs!("rowid >= ?1 AND rowid <= ?4 ORDER BY rowid");
/// Where one stands, which the index alone tells.
const PLACE: &str = "SELECT rowid FROM blobs WHERE hash = ?1";
/// The parts of rows of `nodes`.
const PARTS: &str =
    "SELECT rowid, parts_list FROM nodes WHERE rowid >= ?1 AND rowid <= ?2 ORDER BY rowid LIMIT ?3";
/// Bytes of a blob at most; a longer one is read when it is its turn.
const LONGEST: i64 = 64 << 10;
/// The same where rows are read one after the other, whether they are wanted or not: what stands on one page.
const SHORT: i64 = 3_900;
/// One of so many blobs is looked for to know where the others are, and so many of these have to be near each other.
const SAMPLE: usize = 64;
const TOGETHER: usize = 4;
/// Rows are read one after the other where one of so many is wanted, about: to look one up takes as long.
const SPARSE: usize = 6;
/// What a blob costs beside its content, in bytes.
const BESIDE: usize = 100;
/// Nodes at once, while nothing is known of what they say, and at most.
const FEWEST: usize = 16;
const MOST: usize = 100_000;

/// What a blob is, as far as that matters for the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    ToolCall,
    ToolResult,
    Meta,
    Other,
}

impl Type {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "tool_call" => Self::ToolCall,
            "tool_result" => Self::ToolResult,
            "pi_meta" => Self::Meta,
            _ => Self::Other,
        }
    }
}

/// A blob that is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Blob {
    /// Not read yet, or too long.
    Unread,
    /// One that says nothing.
    Silent,
    Says(Type, String),
}

impl Blob {
    /// What a row of [`FIND`] or [`ALONG`] tells.
    fn of(row: &Row<'_>) -> Outcome<Self> {
        Ok(match row.get_ref(2)? {
            ValueRef::Null => Self::Silent,
            ValueRef::Integer(_) => Self::Unread,
            _ => Self::Says(
                Type::of(&rows::text(row, 1)?.unwrap_or_default()),
                rows::text(row, 2)?.unwrap_or_default().into_owned(),
            ),
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Unread | Self::Silent => 0,
            Self::Says(_, content) => content.len(),
        }
    }
}

/// Blobs of the nodes that come next. They hold whatever is committed meanwhile: a hash stands for its content.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Prefetch {
    /// For which table, and to which row.
    through: Option<(Kind, i64)>,
    blobs: HashMap<BlobId, Blob>,
    /// How many nodes were read last, and the bytes of their blobs.
    pace: (usize, usize),
}

impl Prefetch {
    /// Reads what a row of `nodes` says, unless it was read, with that of rows up to `until` after it: about `budget`
    /// bytes, if they are like those before.
    pub(super) fn reach(
        &mut self,
        connection: &Connection,
        kind: Kind,
        row: i64,
        until: i64,
        budget: usize,
    ) -> Outcome<()> {
        if self.through.is_some_and(|(of, through)| of == kind && row <= through) {
            return Ok(());
        }
        let (nodes, bytes) = self.pace;
        let most = (budget.saturating_mul(nodes) / bytes.max(1)).clamp(FEWEST, MOST);
        self.blobs.clear();
        let mut ids: Vec<BlobId> = Vec::new();
        let (mut through, mut taken) = (row, 0);
        let mut statement = connection.prepare_cached(PARTS)?;
        let mut found = statement.query(params![row, until, i64::try_from(most).unwrap_or(i64::MAX)])?;
        while let Some(row) = found.next()? {
            through = row.get(0)?;
            taken += 1;
            ids.extend(rows::text(row, 1)?.map(|list| rows::parts(&list)).unwrap_or_default());
        }
        drop(found);
        self.through = Some((kind, through));
        ids.sort_unstable();
        ids.dedup();
        let bytes = self.read(connection, kind, &ids, budget.saturating_mul(2))?;
        self.pace = (taken, bytes);
        Ok(())
    }

    /// Reads blobs, whose ids are in order, until they have `most` bytes: where they are longer than those before, the
    /// others are read when it is their turn. Says how many bytes they have.
    fn read(&mut self, connection: &Connection, kind: Kind, ids: &[BlobId], most: usize) -> Outcome<usize> {
        let only_parts = kind == Kind::Substrings;
        let mut bytes = ids.len() * BESIDE;
        self.blobs.extend(ids.iter().map(|id| (*id, Blob::Unread)));
        let mut along = connection.prepare_cached(ALONG)?;
        for (from, to) in places(connection, ids)? {
            let mut found = along.query(params![from, SHORT, only_parts, to])?;
            while bytes < most
                && let Some(row) = found.next()?
            {
                let id = rows::text(row, 3)?.and_then(|hash| hash.parse::<BlobId>().ok());
                if let Some(blob) = id.and_then(|id| self.blobs.get_mut(&id)) {
                    *blob = Blob::of(row)?;
                    bytes += blob.bytes();
                }
            }
        }
        let mut find = connection.prepare_cached(FIND)?;
        for id in ids {
            let Some(blob @ Blob::Unread) = self.blobs.get_mut(id) else { continue };
            if bytes >= most {
                break;
            }
            let mut found = find.query(params![id.to_string(), LONGEST, only_parts])?;
            if let Some(row) = found.next()? {
                *blob = Blob::of(row)?;
                bytes += blob.bytes();
            }
        }
        Ok(bytes)
    }

    /// A blob, when it was read: its type and content, `None` for one that says nothing. Once.
    pub(super) fn take(&mut self, id: &BlobId) -> Option<Option<(Type, String)>> {
        match self.blobs.remove(id)? {
            Blob::Unread => None,
            Blob::Silent => Some(None),
            Blob::Says(kind, content) => Some(Some((kind, content))),
        }
    }
}

/// From which row to which many of these blobs stand, whose ids are in order.
fn places(connection: &Connection, ids: &[BlobId]) -> Outcome<Vec<(i64, i64)>> {
    let mut place = connection.prepare_cached(PLACE)?;
    let mut sample: Vec<i64> = Vec::with_capacity(ids.len() / SAMPLE + 1);
    for id in ids.iter().step_by(SAMPLE) {
        sample.extend(place.query_row([id.to_string()], |row| row.get::<_, i64>(0)).optional()?);
    }
    sample.sort_unstable();
    let mut places: Vec<(i64, i64)> = Vec::new();
    for near in sample.windows(TOGETHER + 1) {
        let (from, to) = (near[0], near[TOGETHER]);
        if to.abs_diff(from) > (TOGETHER * SAMPLE * SPARSE) as u64 {
            continue;
        }
        match places.last_mut() {
            Some((_, end)) if from <= *end => *end = to,
            _ => places.push((from, to)),
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use quipu_dag::Blob as Written;

    use super::*;

    const NODES: i64 = 3_000;
    /// Where stands what was written at another time.
    const FAR: i64 = 1_000_000;

    /// Nodes that say something, have a part that says nothing, and begin with what others say as well. All but that was
    /// written together, in the order of the hashes.
    fn store() -> (Connection, Vec<[Written; 2]>, Written) {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE blobs (hash TEXT PRIMARY KEY, type TEXT, content TEXT);
                 CREATE TABLE nodes (parts_list TEXT)",
            )
            .unwrap();
        let put = |row: Option<i64>, blob: &Written| {
            connection
                .prepare_cached("INSERT INTO blobs (rowid, hash, type, content) VALUES (?1, ?2, ?3, ?4)")
                .unwrap()
                .execute(params![row, blob.id.to_string(), blob.kind, blob.content])
                .unwrap();
        };
        let of = |n: i64| {
            // Some are too long to be read along with others.
            let text = format!("said {n} {}", "long ".repeat(if n % 500 == 0 { 1_000 } else { 1 }));
            [Written::text(&text), Written::from_canonical("quipu", format!("{{\"n\":{n}}}"))]
        };
        let nodes: Vec<[Written; 2]> = (1..=NODES).map(of).collect();
        let mut all: Vec<&Written> = nodes.iter().flatten().collect();
        all.sort_unstable_by_key(|blob| blob.id);
        all.into_iter().for_each(|blob| put(None, blob));
        let before = Written::text("said before");
        put(Some(FAR), &before);
        for [said, own] in &nodes {
            let list = serde_json::to_string(&[before.id, said.id, own.id]).unwrap();
            connection.execute("INSERT INTO nodes VALUES (?1)", [list]).unwrap();
        }
        (connection, nodes, before)
    }

    #[test]
    fn adjacent_blobs_are_scanned_and_others_looked_up() {
        let (connection, nodes, before) = store();
        let mut ids: Vec<BlobId> = nodes.iter().flatten().map(|blob| blob.id).collect();
        ids.push(before.id);
        ids.sort_unstable();
        let found = places(&connection, &ids).unwrap();
        let rows: i64 = found.iter().map(|(from, to)| to - from + 1).sum();
        assert!(rows > 2 * NODES * 9 / 10 && found.iter().all(|(_, to)| *to < FAR), "{found:?}");
        // A few among many are not worth it.
        let few: Vec<BlobId> = ids.iter().copied().step_by(SPARSE * 4).collect();
        assert_eq!(places(&connection, &few).unwrap(), []);

        let content = |blob: &Written| Some(Some((Type::Text, blob.content.clone())));
        let mut prefetch = Prefetch { pace: (1, BESIDE), ..Prefetch::default() };
        prefetch.reach(&connection, Kind::Words, 1, NODES, 16 << 20).unwrap();
        assert_eq!(prefetch.through, Some((Kind::Words, NODES)));
        assert_eq!(prefetch.take(&before.id), content(&before));
        for [said, own] in &nodes {
            assert_eq!(prefetch.take(&said.id), content(said));
            assert_eq!(prefetch.take(&own.id), Some(None));
            assert_eq!(prefetch.take(&own.id), None);
        }
    }

    #[test]
    fn prefetch_stays_within_its_budget() {
        let (connection, nodes, _) = store();
        let mut prefetch = Prefetch { pace: (1, BESIDE), ..Prefetch::default() };
        // Twice that may be read, of which the two blobs of each node take their share.
        let budget = BESIDE * nodes.len() + 5_000;
        prefetch.reach(&connection, Kind::Words, 1, NODES, budget).unwrap();
        let held: usize = prefetch.blobs.values().map(Blob::bytes).sum();
        let said: usize = nodes.iter().map(|[said, _]| said.content.len()).sum();
        assert!(held > 0 && held < 20_000 && held < said / 2, "{held} of {said}");
        // What was not read is found when it is its turn.
        let unread = nodes.iter().filter(|[said, _]| prefetch.take(&said.id).is_none()).count();
        assert!(unread > nodes.len() / 2, "{unread}");
    }
}
