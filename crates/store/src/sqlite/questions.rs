//! Questions to a store: what is new is indexed, and what is indexed is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::failure::{Failure, Outcome};
use super::recall::find::find;
use super::{SqliteStore, index, places, recall, search};
use crate::{
    Durability, Fut, IndexedNote, NoteChange, QUESTION_LIMIT, RecallHits, RecallIndex, RecallQuery,
    StoreError, WordVectors,
};

impl SqliteStore {
    async fn index_recall_for(
        &self,
        words: Option<Arc<dyn WordVectors>>,
        patience: Duration,
    ) -> Result<u64, StoreError> {
        let backlog = {
            let words = words.clone();
            move || {
                let words = words.clone();
                move |connection: &Connection| -> Outcome<(u64, u64)> {
                    let nodes = match recall::left(connection)? {
                        Some(left) => left,
                        None => places::last(connection)?,
                    };
                    let vectors =
                        words.as_deref().map_or(Ok(0), |words| recall::vectors::left(connection, words))?;
                    Ok((nodes, u64::from(vectors)))
                }
            }
        };
        let (nodes, units) = self.read(backlog()).await?;
        if nodes + units == 0 || self.is_read_only() {
            return Ok(nodes + units);
        }
        let began = Instant::now();
        let done = async {
            loop {
                let words = words.clone();
                let step = move |connection: &Connection| {
                    index::place_first(connection, super::INDEX_BATCH)?;
                    let more = recall::begin_or_advance(connection)?;
                    match words.as_deref().filter(|_| !more) {
                        Some(words) => recall::vectors::advance(connection, words),
                        None => Ok(more),
                    }
                };
                if !self.work(Durability::Process, step).await? || began.elapsed() >= patience {
                    return Ok(());
                }
            }
        };
        match done.await {
            Ok(()) | Err(StoreError::Busy { .. }) => {
                let (nodes, units) = self.read(backlog()).await?;
                Ok(nodes + units)
            }
            Err(error) => Err(error),
        }
    }
}

impl RecallIndex for SqliteStore {
    fn index_recall(&self, words: Option<Arc<dyn WordVectors>>, patience: Duration) -> Fut<'_, u64> {
        Box::pin(self.index_recall_for(words, patience))
    }

    fn recall(&self, query: RecallQuery, words: Option<Arc<dyn WordVectors>>) -> Fut<'_, RecallHits> {
        Box::pin(async move {
            if query.question.len() > QUESTION_LIMIT {
                let (size, limit) = (query.question.len() as u64, QUESTION_LIMIT as u64);
                return Err(StoreError::TooLarge { what: "a question".to_owned(), size, limit });
            }
            // Thousands of rows, one by one.
            self.read_many(usize::MAX, move |connection| find(connection, &query, words.as_deref())).await
        })
    }

    fn indexed_notes<'a>(&'a self, memory: &'a str) -> Fut<'a, Vec<IndexedNote>> {
        let memory = memory.to_owned();
        Box::pin(self.read(move |connection| recall::notes::indexed(connection, &memory)))
    }

    fn drop_notes(&self) -> Fut<'_, ()> {
        Box::pin(self.work(Durability::Process, recall::notes::reset))
    }

    fn put_notes<'a>(
        &'a self,
        memory: &'a str,
        changes: Vec<NoteChange>,
        words: Option<Arc<dyn WordVectors>>,
    ) -> Fut<'a, ()> {
        let memory = memory.to_owned();
        Box::pin(self.work(Durability::Process, move |connection| {
            match recall::notes::put(connection, &memory, &changes, words.as_deref()) {
                Err(failure @ Failure::Sql(_)) if search::is_damage(&failure) => {
                    recall::notes::reset(connection)?;
                    recall::notes::put(connection, &memory, &changes, words.as_deref())
                }
                other => other,
            }
        }))
    }
}
