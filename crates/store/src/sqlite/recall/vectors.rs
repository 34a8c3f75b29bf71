//! Vectors of units: sums of the vectors of their words, the rare ones more. Kept as whole numbers, and as signs, block by block,
//! by which those that are worth a look are found without reading all.
//!
//! How rare a word is changes as units are added, and a vector keeps the weights of its time: that moves it little.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::search::Reader;
use super::super::vectors::packed;
use super::super::{rows, search};
use super::sign;
use super::space::{Space, Units, frequency, totals};
use super::stem::stem;
use super::words::{is_stop, weight};
use crate::WordVectors;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_recall_model (one INTEGER PRIMARY KEY CHECK (one = 1), model TEXT NOT NULL, units INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_x_recall_vector (unit INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_x_recall_sign (block INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
";
/// Units of one block of signs.
const SIGNS: u32 = 512;
/// Units of one transaction.
const STEP: u32 = 4_096;

pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    connection.execute_batch(
        "DROP TABLE IF EXISTS quipu_x_recall_model; DROP TABLE IF EXISTS quipu_x_recall_vector; \
         DROP TABLE IF EXISTS quipu_x_recall_sign",
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
    let (mut units, mut reader) = (Units::new(connection, Space::Sessions), Reader::new(connection));
    make(connection, words, &mut |unit| match rows::node_at(connection, i64::from(units.get(unit)?.seq))? {
        Some(node) => Ok(super::unit_of(connection, &mut reader, &node, true)?.map(|(text, ..)| text)),
        None => Ok(None),
    })
}

/// The same, of the texts that `text` gives.
pub(super) fn make(
    connection: &Connection,
    words: &dyn WordVectors,
    text: &mut dyn FnMut(u32) -> Outcome<Option<String>>,
) -> Outcome<bool> {
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
    let mut weights = Weights::new(connection)?;
    let mut put = connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_recall_vector (unit, bytes) VALUES (?1, ?2)")?;
    let mut put_signs = connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_recall_sign (block, bytes) VALUES (?1, ?2)")?;
    let mut get = connection.prepare_cached("SELECT bytes FROM quipu_x_recall_sign WHERE block = ?1")?;
    while from < to {
        let block = from / SIGNS;
        let open: Option<Vec<u8>> = get.query_row([block], |row| row.get(0)).optional()?;
        let mut signs = open.unwrap_or_default();
        signs.resize((from % SIGNS) as usize * sign::size(words.width()), 0);
        while from < to && from / SIGNS == block {
            from += 1;
            let vector = weights.vector(words, &text(from)?.unwrap_or_default())?;
            signs.extend(sign::of(&vector));
            let vector = packed(&vector);
            if !vector.is_empty() {
                put.execute(params![from, vector])?;
            }
        }
        put_signs.execute(params![block, signs])?;
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

/// A vector that others are compared with.
pub(super) struct VectorTarget<'a> {
    words: &'a dyn WordVectors,
    sign: sign::SignTarget,
    bytes: Vec<u8>,
    length: f64,
}

impl<'a> VectorTarget<'a> {
    /// That of a text; `None` where nothing is known of its words.
    pub(super) fn new(
        connection: &Connection,
        words: &'a dyn WordVectors,
        text: &str,
    ) -> Outcome<Option<Self>> {
        let vector = Weights::new(connection)?.vector(words, text)?;
        let bytes = packed(&vector);
        let length = f64::from(product(&bytes, &bytes)).sqrt();
        Ok(sign::SignTarget::new(&vector).filter(|_| length > 0.0).map(|sign| Self {
            words,
            sign,
            bytes,
            length,
        }))
    }

    /// What makes vectors.
    pub(super) fn model(&self) -> &str {
        self.words.id()
    }

    pub(super) fn cosine(&self, vector: &[u8]) -> f32 {
        let length = f64::from(product(vector, vector)).sqrt();
        if length > 0.0 {
            weight(f64::from(product(vector, &self.bytes)) / (length * self.length))
        } else {
            0.0
        }
    }

    /// Calls `take` with each unit of sessions that has a vector, and its cosine to this one.
    pub(super) fn each(&self, connection: &Connection, mut take: impl FnMut(u32, f32)) -> Outcome<()> {
        let count = done(connection, self.model())?;
        if count == 0 {
            return Ok(());
        }
        let mut statement = connection
            .prepare_cached("SELECT unit, bytes FROM quipu_x_recall_vector WHERE unit <= ?1 ORDER BY unit")?;
        let mut rows = statement.query([count])?;
        while let Some(row) = rows.next()? {
            take(row.get(0)?, self.cosine(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?));
        }
        Ok(())
    }

    /// The same for one unit: its cosine, 0 where it has no vector.
    pub(super) fn of(&self, connection: &Connection, unit: u32) -> Outcome<f32> {
        let mut statement =
            connection.prepare_cached("SELECT bytes FROM quipu_x_recall_vector WHERE unit = ?1")?;
        let mut rows = statement.query([unit])?;
        match rows.next()? {
            Some(row) => Ok(self.cosine(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)),
            None => Ok(0.0),
        }
    }

    /// About so many of the units of sessions that `may` allows, those that are nearest by their signs, in order.
    pub(super) fn likely(
        &self,
        connection: &Connection,
        most: usize,
        may: impl Fn(u32) -> bool,
    ) -> Outcome<Vec<u32>> {
        let count = done(connection, self.model())?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut near: Vec<(f32, u32)> = Vec::with_capacity(2 * most + 1);
        let keep = |near: &mut Vec<(f32, u32)>| {
            if near.len() > most {
                near.select_nth_unstable_by(most, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                near.truncate(most);
            }
        };
        // Of what is kept the least; nothing that points away from it is near.
        let mut least = 0.0;
        let mut statement =
            connection.prepare_cached("SELECT block, bytes FROM quipu_x_recall_sign ORDER BY block")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let block: u32 = row.get(0)?;
            let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let signs = bytes.chunks_exact(sign::size(self.words.width()));
            for (unit, sign) in (block.saturating_mul(SIGNS).saturating_add(1)..=count).zip(signs) {
                match self.sign.nearness(sign) {
                    Some(nearness) if nearness > least && may(unit) => near.push((nearness, unit)),
                    _ => continue,
                }
                if near.len() > 2 * most {
                    keep(&mut near);
                    least = near.iter().fold(f32::INFINITY, |least, (nearness, _)| least.min(*nearness));
                }
            }
        }
        keep(&mut near);
        let mut units: Vec<u32> = near.into_iter().map(|(_, unit)| unit).collect();
        units.sort_unstable();
        Ok(units)
    }
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
