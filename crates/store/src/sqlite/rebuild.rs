//! Derived tables made anew, in steps that can be left off anywhere and gone on with by anybody.
//!
//! What is dropped is behind, as after another program wrote: whoever has the store open goes on with it. A row says that
//! a rebuild was begun, so that the next one who asks for it does not begin again.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _};

use super::failure::Outcome;
use super::{INDEX_PATIENCE, SqliteStore, activity, index, places, recall, schema, search, vectors};
use crate::{DerivedTables, Durability, IndexBacklog, RebuildBacklog, RebuildStart, StoreError, Upkeep as _};

/// Under which key of `quipu_meta` it stands.
const MARK: &str = "rebuild";
/// Nodes of one transaction.
const STEP: usize = 2_000;

fn name(what: DerivedTables) -> &'static str {
    match what {
        DerivedTables::Search => "search",
        DerivedTables::All => "all",
    }
}

fn begin(connection: &Connection, what: DerivedTables) -> Outcome<RebuildStart> {
    let begun: Option<String> = connection
        .query_row("SELECT value FROM quipu_meta WHERE key = ?1", [MARK], |row| row.get(0))
        .optional()?;
    if begun.is_some_and(|begun| begun == name(what) || begun == name(DerivedTables::All)) {
        return Ok(RebuildStart::Resumed);
    }
    match what {
        DerivedTables::Search => {
            search::reset(connection)?;
            recall::reset(connection)?;
            vectors::reset(connection)?;
        }
        DerivedTables::All => schema::reset_derived(connection)?,
    }
    connection
        .execute("INSERT OR REPLACE INTO quipu_meta (key, value) VALUES (?1, ?2)", [MARK, name(what)])?;
    Ok(RebuildStart::Anew)
}

fn left(connection: &Connection) -> Outcome<RebuildBacklog> {
    let crate::IndexBacklog { words, substrings } = search::unindexed(connection)?;
    let graph = u64::try_from(places::lag(connection)?).unwrap_or(u64::MAX);
    Ok(RebuildBacklog { graph, activity: activity::behind(connection)?, words, substrings })
}

impl SqliteStore {
    /// All of them, before it comes back.
    pub(super) async fn rebuild_at_once(&self) -> Result<(), StoreError> {
        self.work(Durability::Process, schema::reset_derived).await?;
        self.catch_up().await?;
        self.update_activity(Duration::MAX).await?;
        while self.index().await? != IndexBacklog::default() {}
        Ok(())
    }

    pub(super) async fn begin_rebuilding(&self, what: DerivedTables) -> Result<RebuildStart, StoreError> {
        self.work(Durability::Process, move |connection| begin(connection, what)).await
    }

    pub(super) async fn continue_rebuild_once(&self) -> Result<RebuildBacklog, StoreError> {
        let began = Instant::now();
        let step = |connection: &Connection| index::advance_or_renew(connection, STEP);
        while self.work(Durability::Process, step).await? {
            if began.elapsed() >= INDEX_PATIENCE {
                return self.read(left).await;
            }
        }
        self.index().await?;
        let left = self.read(left).await?;
        if left == RebuildBacklog::default() {
            let done = |connection: &Connection| {
                connection.execute("DELETE FROM quipu_meta WHERE key = ?1", [MARK])?;
                Ok(())
            };
            self.work(Durability::Process, done).await?;
        }
        Ok(left)
    }
}
