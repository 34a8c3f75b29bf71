//! Vectors beside nodes: which texts have none yet, and which are near.
//!
//! The rows that are done are one stretch, (low, high]: it grows upward with new nodes and downward with older ones. A
//! vector is kept as whole numbers from -127 to 127, in the direction of the one that was given.

use std::sync::Arc;

use quipu_protocol::NodeId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::{Failure, Outcome};
use super::search::Reader;
use super::{SqliteStore, places, rows, search};
use crate::{Durability, EmbeddingBatch, Fut, RANKED, SearchQuery, VECTOR_NODES, VectorHits, Vectors};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_meaning (one INTEGER PRIMARY KEY CHECK (one = 1), model TEXT NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_x_vector (seq INTEGER PRIMARY KEY, node BLOB NOT NULL, bytes BLOB NOT NULL);
";
/// Rows that are looked at for one batch at most.
const LOOKED_AT: i64 = 5_000;
/// The largest number of a kept vector.
const LARGEST: f32 = 127.0;
/// The roles whose nodes have vectors.
const SAID: [&str; 4] = ["user", "assistant", "compactionSummary", "branchSummary"];
const WINDOW: i64 = VECTOR_NODES as i64;

fn exists(connection: &Connection) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_meaning'")?;
    Ok(statement.exists([])?)
}

/// Drops all vectors.
pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    connection.execute_batch("DROP TABLE IF EXISTS quipu_x_meaning; DROP TABLE IF EXISTS quipu_x_vector")?;
    Ok(())
}

/// Removes the vectors of these nodes, by their rows. They are not made again.
pub(super) fn forget(connection: &Connection, rows: &[i64]) -> Outcome<()> {
    if !exists(connection)? {
        return Ok(());
    }
    let mut statement = connection.prepare_cached("DELETE FROM quipu_x_vector WHERE seq = ?1")?;
    for row in rows {
        statement.execute([row])?;
    }
    Ok(())
}

/// The stretch of rows that are done by `model`.
fn done(connection: &Connection, model: &str) -> Outcome<Option<(i64, i64)>> {
    if !exists(connection)? {
        return Ok(None);
    }
    let mut statement =
        connection.prepare_cached("SELECT low, high FROM quipu_x_meaning WHERE model = ?1")?;
    Ok(statement.query_row([model], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// The stretch to go on from, and the row below which nothing is looked at.
fn stretch(connection: &Connection, model: &str) -> Outcome<((i64, i64), i64)> {
    let last = i64::try_from(places::last(connection)?).unwrap_or(i64::MAX);
    let floor = (last - WINDOW).max(0);
    let (low, high) = match done(connection, model)? {
        // So far behind that the newest come first again; vectors that are there count all the same.
        Some((low, high)) if high >= floor && high <= last => (low.max(floor), high),
        Some(_) | None => (last, last),
    };
    Ok(((low, high), floor))
}

fn left(connection: &Connection, (low, high): (i64, i64), floor: i64) -> Outcome<u64> {
    let last = i64::try_from(places::last(connection)?).unwrap_or(i64::MAX);
    Ok(u64::try_from((last - high) + (low - floor)).unwrap_or(0))
}

fn without(connection: &Connection, model: &str, most: usize) -> Outcome<EmbeddingBatch> {
    let before = done(connection, model)?;
    let (mut reach, floor) = stretch(connection, model)?;
    let mut reader = Reader::new(connection);
    let mut batch = EmbeddingBatch { before, ..EmbeddingBatch::default() };
    let up = "n.rowid > ?1 ORDER BY n.rowid LIMIT ?2";
    let down = "n.rowid <= ?1 AND n.rowid > ?3 ORDER BY n.rowid DESC LIMIT ?2";
    let mut looked_at = 0;
    for (upward, which) in [(true, up), (false, down)] {
        let mut statement = connection
            .prepare_cached(&format!("SELECT {}, n.rowid FROM nodes n WHERE {which}", rows::NODE))?;
        let from = if upward { reach.1 } else { reach.0 };
        let rest = LOOKED_AT - looked_at;
        let mut found = if upward {
            statement.query(params![from, rest])?
        } else {
            statement.query(params![from, rest, floor])?
        };
        let mut ended = true;
        while let Some(row) = found.next()? {
            if batch.texts.len() >= most {
                ended = false;
                break;
            }
            looked_at += 1;
            let seq: i64 = row.get(9)?;
            match upward {
                true => reach.1 = seq,
                false => reach.0 = seq - 1,
            }
            let Some(node) = rows::node(row)? else { continue };
            if !SAID.contains(&rows::role_of(connection, &node)?) {
                continue;
            }
            if has_vector(connection, model, seq, &node.id)? {
                continue;
            }
            let text = reader.said(&node)?;
            if !text.trim().is_empty() {
                batch.texts.push((node.id, text));
                batch.rows.push(seq);
            }
        }
        if !ended || looked_at >= LOOKED_AT {
            break;
        }
        if !upward {
            reach.0 = floor;
        }
    }
    batch.left = left(connection, reach, floor)?;
    batch.after = reach;
    Ok(batch)
}

fn has_vector(connection: &Connection, model: &str, seq: i64, node: &NodeId) -> Outcome<bool> {
    if done(connection, model)?.is_none() {
        return Ok(false);
    }
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM quipu_x_vector WHERE seq = ?1 AND node = ?2")?;
    Ok(statement.exists(params![seq, node.0])?)
}

fn keep(connection: &Connection, model: &str, batch: &EmbeddingBatch, bytes: &[Vec<u8>]) -> Outcome<()> {
    connection.execute_batch(TABLES)?;
    let known = done(connection, model)?;
    if known.is_none() {
        connection.execute_batch("DELETE FROM quipu_x_vector; DELETE FROM quipu_x_meaning")?;
    }
    let mut put = connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_vector (seq, node, bytes) VALUES (?1, ?2, ?3)")?;
    for ((seq, (node, _)), bytes) in batch.rows.iter().zip(&batch.texts).zip(bytes) {
        put.execute(params![seq, node.0, bytes])?;
    }
    // Where somebody else went on meanwhile, what they noted stays.
    if known == batch.before {
        let (low, high) = batch.after;
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO quipu_x_meaning (one, model, low, high) VALUES (1, ?1, ?2, ?3)",
            )?
            .execute(params![model, low, high])?;
    }
    let last = i64::try_from(places::last(connection)?).unwrap_or(i64::MAX);
    connection.prepare_cached("DELETE FROM quipu_x_vector WHERE seq <= ?1")?.execute([last - WINDOW])?;
    Ok(())
}

/// In whole numbers, the largest of which is 127; nothing for a vector without a direction.
pub(super) fn packed(vector: &[f32]) -> Vec<u8> {
    let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    if !(largest.is_finite() && largest > 0.0) {
        return Vec::new();
    }
    #[expect(clippy::cast_possible_truncation, reason = "from -127 to 127")]
    let whole = |number: &f32| (number / largest * LARGEST).round() as i8;
    vector.iter().map(|number| whole(number).to_le_bytes()[0]).collect()
}

/// How nearly two directions are the same: 1 for the same, 0 for none.
pub(super) fn cosine(a: &[u8], b: &[u8]) -> f64 {
    let number = |byte: &u8| i32::from(i8::from_le_bytes([*byte]));
    let (mut product, mut of_a, mut of_b) = (0_i32, 0_i32, 0_i32);
    for (a, b) in a.iter().map(number).zip(b.iter().map(number)) {
        product += a * b;
        of_a += a * a;
        of_b += b * b;
    }
    let length = (f64::from(of_a) * f64::from(of_b)).sqrt();
    if length > 0.0 { f64::from(product) / length } else { 0.0 }
}

fn nearest(
    connection: &Connection,
    query: &SearchQuery,
    model: &str,
    vector: &[u8],
    most: usize,
) -> Outcome<VectorHits> {
    let (reach, floor) = stretch(connection, model)?;
    let left = left(connection, reach, floor)?;
    if vector.is_empty() || done(connection, model)?.is_none() {
        return Ok(VectorHits { left, ..VectorHits::default() });
    }
    let Some(allowed) = search::allowed(connection, query, floor)? else {
        return Ok(VectorHits { left, ..VectorHits::default() });
    };
    let mut near: Vec<(f64, i64)> = Vec::new();
    let mut statement = connection
        .prepare_cached("SELECT seq, bytes FROM quipu_x_vector WHERE seq > ?1 ORDER BY seq DESC")?;
    let mut found = statement.query([floor])?;
    while let Some(row) = found.next()? {
        let seq: i64 = row.get(0)?;
        if allowed.as_ref().is_some_and(|allowed| !allowed.contains(&seq)) {
            continue;
        }
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if bytes.len() != vector.len() {
            continue;
        }
        let cosine = cosine(bytes, vector);
        if cosine > 0.0 {
            near.push((cosine, seq));
        }
    }
    drop(found);
    // Of equal ones the newest first.
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let is_same = |seq: i64, node: &NodeId| {
        // Rows of another program's file can have got other numbers.
        let mut statement =
            connection.prepare_cached("SELECT 1 FROM quipu_x_vector WHERE seq = ?1 AND node = ?2")?;
        Ok(statement.exists(params![seq, node.0])?)
    };
    let (hits, cut) = search::near(connection, query, &near, most, &is_same)?;
    Ok(VectorHits { hits, cut, left })
}

impl Vectors for SqliteStore {
    fn without_vectors<'a>(&'a self, model: &'a str, most: usize) -> Fut<'a, EmbeddingBatch> {
        let model = model.to_owned();
        Box::pin(async move {
            let mut batch = self.read(move |connection| without(connection, &model, most)).await?;
            // What nobody is shown is sent to no model either.
            let hidden = self.hidden_now();
            if !hidden.is_empty() {
                if hidden.problem().is_some() {
                    // They are looked at again once it is known which are hidden.
                    batch.texts.clear();
                    batch.rows.clear();
                    batch.after = batch.before.unwrap_or(batch.after);
                    return Ok(batch);
                }
                let shown: Vec<bool> = batch.texts.iter().map(|(node, _)| !hidden.hides(node)).collect();
                let (mut texts, mut rows) = (shown.iter(), shown.iter());
                batch.texts.retain(|_| texts.next() == Some(&true));
                batch.rows.retain(|_| rows.next() == Some(&true));
            }
            Ok(batch)
        })
    }

    fn keep_vectors<'a>(
        &'a self,
        model: &'a str,
        batch: &'a EmbeddingBatch,
        vectors: &'a [Vec<f32>],
    ) -> Fut<'a, ()> {
        let bytes: Vec<Vec<u8>> = vectors.iter().map(|vector| packed(vector)).collect();
        let (model, batch) = (model.to_owned(), batch.clone());
        Box::pin(self.work(Durability::Process, move |connection| {
            if bytes.len() != batch.texts.len() {
                return Err(Failure::Missing("a vector of a text".to_owned()));
            }
            keep(connection, &model, &batch, &bytes)
        }))
    }

    fn nearest<'a>(&'a self, query: SearchQuery, model: &'a str, vector: &'a [f32]) -> Fut<'a, VectorHits> {
        let (model, vector) = (model.to_owned(), packed(vector));
        Box::pin(async move {
            // The conditions are looked up in the index.
            self.index_for(super::SEARCH_PATIENCE, &Arc::default()).await?;
            let mut times = 1;
            loop {
                let room = RANKED.saturating_mul(times);
                let (wanted, model, vector) = (query.clone(), model.clone(), vector.clone());
                let find = move |connection: &Connection| nearest(connection, &wanted, &model, &vector, room);
                let mut found = self.read(find).await?;
                let is_filled = found.hits.len() >= room;
                let is_less = self.only_shown(&mut found.hits, query.withdrawn).await?;
                let is_enough = !is_less || !is_filled || found.hits.len() >= RANKED;
                found.hits.truncate(RANKED);
                match search::more_room(RANKED, times).filter(|_| !is_enough) {
                    Some(more) => times = more,
                    None => {
                        found.cut |= !is_enough;
                        return Ok(found);
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_compared_by_direction() {
        let near = |a: &[f32], b: &[f32]| cosine(&packed(a), &packed(b));
        assert!((near(&[1.0, 2.0, -3.0], &[10.0, 20.0, -30.0]) - 1.0).abs() < 1e-9);
        assert!(near(&[1.0, 0.0], &[0.0, 1e-30]).abs() < 1e-9);
        assert!((near(&[1.0, 1.0], &[1.0, 0.0]) - 0.5_f64.sqrt()).abs() < 1e-9);
        assert!((near(&[0.3, -0.4], &[-0.3, 0.4]) + 1.0).abs() < 1e-9);
        assert!(packed(&[0.0, 0.0]).is_empty() && packed(&[]).is_empty());
        assert!(packed(&[f32::INFINITY, 1.0]).is_empty());
        assert_eq!(near(&[], &[1.0]), 0.0);
    }
}
