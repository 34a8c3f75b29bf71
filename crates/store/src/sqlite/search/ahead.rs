//! What the next nodes say, read before their turn.
//!
//! Blobs are found by their hashes: in the order of the nodes each is on another page of the index and of the table, and
//! with short messages a third of the time went into these pages. Many at once are read in the order of their hashes,
//! along the index; an import has put them down in that order as well.

use std::collections::HashMap;

use quipu_protocol::BlobId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::super::failure::Outcome;
use super::super::rows;
use super::Kind;

/// Finds a blob; of one that says nothing, or nothing for parts of words (`?3`), no content; 1 for one above so many bytes
/// (`?2`). Types are compared one by one: of a list in parentheses SQLite makes a table, for each blob anew.
pub(super) const FIND: &str = "SELECT rowid, type, CASE WHEN type = 'quipu' OR type = 'system_prompt' OR type = 'image' \
     OR (?3 AND type <> 'text' AND type <> 'tool_call') THEN NULL ELSE iif(octet_length(content) > ?2, 1, content) END \
     FROM blobs WHERE hash = ?1";
/// The parts of rows of `nodes`.
const PARTS: &str =
    "SELECT rowid, parts_list FROM nodes WHERE rowid >= ?1 AND rowid <= ?2 ORDER BY rowid LIMIT ?3";
/// Bytes of a blob at most; a longer one is read when it is its turn.
const LONGEST: i64 = 64 << 10;
/// What a blob costs beside its content, in bytes.
const BESIDE: usize = 100;
/// Nodes at once, while nothing is known of what they say, and at most.
const FEWEST: usize = 16;
const MOST: usize = 40_000;

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

/// Blobs of the nodes that come next. They hold whatever is committed meanwhile: a hash stands for its content.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Ahead {
    /// For which table, and to which row.
    through: Option<(Kind, i64)>,
    /// Types and contents; `None` for one that says nothing.
    blobs: HashMap<BlobId, Option<(Type, String)>>,
    /// How many nodes were read last, and the bytes of their blobs.
    pace: (usize, usize),
}

impl Ahead {
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
        let mut find = connection.prepare_cached(FIND)?;
        let mut bytes = 0;
        // Where they are longer than those before, the others are read when it is their turn.
        for id in ids {
            if bytes >= budget.saturating_mul(2) {
                break;
            }
            let mut found = find.query(params![id.to_string(), LONGEST, kind == Kind::Substrings])?;
            let Some(row) = found.next()? else { continue };
            let blob = match row.get_ref(2)? {
                ValueRef::Null => None,
                ValueRef::Integer(_) => continue,
                _ => {
                    let content = rows::text(row, 2)?.unwrap_or_default().into_owned();
                    bytes += content.len();
                    Some((Type::of(&rows::text(row, 1)?.unwrap_or_default()), content))
                }
            };
            bytes += BESIDE;
            self.blobs.insert(id, blob);
        }
        self.pace = (taken, bytes);
        Ok(())
    }

    /// A blob, when it was read: its type and content, `None` for one that says nothing. Once.
    pub(super) fn take(&mut self, id: &BlobId) -> Option<Option<(Type, String)>> {
        self.blobs.remove(id)
    }
}
