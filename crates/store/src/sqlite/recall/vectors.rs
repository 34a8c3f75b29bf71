//! Vectors of units: sums of the vectors of their words, the rare ones more. Kept as whole numbers, block by block.
//!
//! How rare a word is changes as units are added, and a vector keeps the weights of its time: that moves it little.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::search::Reader;
use super::super::vectors::packed;
use super::super::{rows, search};
use super::space::{Space, Units, frequency, totals};
use super::stem::stem;
use super::words::{is_stop, weight};
use crate::WordVectors;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_recall_model (one INTEGER PRIMARY KEY CHECK (one = 1), model TEXT NOT NULL, units INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_x_recall_vector (block INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
";
/// Units of one block.
const UNITS: u32 = 64;
/// Bytes behind a vector for its length.
const LENGTH: usize = 4;
/// Units of one transaction.
const STEP: u32 = 4_096;

pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    connection.execute_batch(
        "DROP TABLE IF EXISTS quipu_x_recall_model; DROP TABLE IF EXISTS quipu_x_recall_vector",
    )?;
    Ok(())
}

fn exists(connection: &Connection) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_recall_model'")?;
    Ok(statement.exists([])?)
}

/// How many units have vectors of this model.
fn done(connection: &Connection, model: &str) -> Outcome<u32> {
    if !exists(connection)? {
        return Ok(0);
    }
    let mut statement =
        connection.prepare_cached("SELECT units FROM quipu_x_recall_model WHERE model = ?1")?;
    Ok(statement.query_row([model], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// How many units have none yet.
pub(in crate::sqlite) fn left(connection: &Connection, words: &dyn WordVectors) -> Outcome<u32> {
    if !Space::Sessions.exists(connection)? {
        return Ok(0);
    }
    Ok(totals(connection, Space::Sessions)?.units.saturating_sub(done(connection, words.id())?))
}

/// Makes the vectors of some more units of sessions; whether there are more. Within the caller's transaction.
pub(in crate::sqlite) fn advance(connection: &Connection, words: &dyn WordVectors) -> Outcome<bool> {
    let all = totals(connection, Space::Sessions)?.units;
    let mut from = done(connection, words.id())?;
    if from >= all {
        return Ok(false);
    }
    if from == 0 {
        reset(connection)?;
    }
    connection.execute_batch(TABLES)?;
    let to = all.min(from.saturating_add(STEP));
    let (mut units, mut reader) = (Units::new(connection, Space::Sessions), Reader::new(connection));
    let mut weights = Weights::new(connection)?;
    let mut put = connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_recall_vector (block, bytes) VALUES (?1, ?2)")?;
    let mut get = connection.prepare_cached("SELECT bytes FROM quipu_x_recall_vector WHERE block = ?1")?;
    while from < to {
        let block = from / UNITS;
        let open: Option<Vec<u8>> = get.query_row([block], |row| row.get(0)).optional()?;
        let mut bytes = open.unwrap_or_default();
        bytes.resize((from % UNITS) as usize * (words.width() + LENGTH), 0);
        while from < to && from / UNITS == block {
            from += 1;
            let unit = units.get(from)?;
            let text = match rows::node_at(connection, i64::from(unit.seq))? {
                Some(node) => super::unit_of(connection, &mut reader, &node, true)?.map(|(text, ..)| text),
                None => None,
            };
            let vector = weights.vector(words, &text.unwrap_or_default())?;
            let vector = packed(&vector);
            let length = weight(f64::from(product(&vector, &vector)).sqrt());
            let end = bytes.len() + words.width();
            bytes.extend(vector);
            bytes.resize(end, 0);
            bytes.extend(length.to_le_bytes());
        }
        put.execute(params![block, bytes])?;
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_recall_model (one, model, units) VALUES (1, ?1, ?2)")?
        .execute(params![words.id(), from])?;
    Ok(from < all)
}

/// How far a vector goes in the direction of another.
fn product(a: &[u8], b: &[u8]) -> i32 {
    let number = |byte: &u8| i16::from(i8::from_le_bytes([*byte]));
    // Products of numbers up to 127 fit into 16 bits, which the compiler makes the most of.
    a.iter().zip(b).map(|(a, b)| i32::from(number(a) * number(b))).sum()
}

/// Calls `take` with each unit of sessions that has a vector, and its cosine to this one.
pub(super) fn each(
    connection: &Connection,
    words: &dyn WordVectors,
    wanted: &[u8],
    mut take: impl FnMut(u32, f32),
) -> Outcome<()> {
    let of_wanted = f64::from(product(wanted, wanted)).sqrt();
    let count = done(connection, words.id())?;
    if count == 0 {
        return Ok(());
    }
    let mut statement =
        connection.prepare_cached("SELECT block, bytes FROM quipu_x_recall_vector ORDER BY block")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let block: u32 = row.get(0)?;
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        for (number, vector) in
            (block.saturating_mul(UNITS)..).zip(bytes.chunks_exact(words.width() + LENGTH))
        {
            let Some((vector, length)) = vector.split_at_checked(words.width()) else { continue };
            let length = length.try_into().map_or(0.0, f32::from_le_bytes);
            if number < count && length > 0.0 {
                let cosine = f64::from(product(vector, wanted)) / (f64::from(length) * of_wanted);
                take(number + 1, weight(cosine));
            }
        }
    }
    Ok(())
}

/// How rare words are, as far as they were looked up.
pub(super) struct Weights<'a> {
    connection: &'a Connection,
    spaces: Vec<Space>,
    all: f64,
    known: HashMap<String, (f32, Arc<[f32]>)>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(connection: &'a Connection) -> Outcome<Self> {
        let (mut spaces, mut all) = (Vec::new(), 0.0);
        for space in Space::ALL {
            if space.exists(connection)? {
                all += f64::from(totals(connection, space)?.units);
                spaces.push(space);
            }
        }
        Ok(Self { connection, spaces, all, known: HashMap::new() })
    }

    /// The vector of a text: the sum of its words.
    pub(super) fn vector(&mut self, words: &dyn WordVectors, text: &str) -> Outcome<Vec<f32>> {
        let mut sum = vec![0.0_f32; words.width()];
        for word in search::words(text) {
            if is_stop(&word) {
                continue;
            }
            if !self.known.contains_key(word.as_ref()) {
                let mut count = 0.0;
                for space in &self.spaces {
                    count += f64::from(frequency(self.connection, *space, &stem(&word))?);
                }
                let rarity = weight((1.0 + (self.all - count + 0.5).max(0.5) / (count + 0.5)).ln());
                self.known.insert(word.to_string(), (rarity, words.word(&word)));
            }
            if let Some((weight, vector)) = self.known.get(word.as_ref()) {
                for (sum, number) in sum.iter_mut().zip(vector.iter()) {
                    *sum += weight * number;
                }
            }
        }
        Ok(sum)
    }
}
