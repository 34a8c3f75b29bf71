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
use super::sign::SignTarget;
use super::sign_table::{NearestList, SignAdder, SignTable};
use super::space::{Space, Units, frequency, totals};
use super::stem::stem;
use super::terms::{self, TermAdder};
use super::words::{is_stop, weight};
use crate::WordVectors;

/// Units of one transaction.
const STEP: u32 = 4_096;

fn signs(space: Space) -> String {
    format!("{}_sign", space.table())
}

fn create(connection: &Connection, space: Space) -> Outcome<()> {
    let table = space.table();
    connection.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS {table}_model (one INTEGER PRIMARY KEY CHECK (one = 1), model TEXT NOT NULL, units INTEGER NOT NULL);
         CREATE TABLE IF NOT EXISTS {table}_vector (unit INTEGER PRIMARY KEY, bytes BLOB NOT NULL); {}",
        SignTable::definition(&signs(space))
    ))?;
    terms::create(connection, space)
}

pub(super) fn reset(connection: &Connection, space: Space) -> Outcome<()> {
    let table = space.table();
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS {table}_model; DROP TABLE IF EXISTS {table}_vector; DROP TABLE IF EXISTS {}",
        signs(space)
    ))?;
    terms::reset(connection, space)
}

fn exists(connection: &Connection, space: Space) -> Outcome<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = ?1")?;
    Ok(statement.exists([format!("{}_model", space.table())])?)
}

/// Up to which unit there are vectors of this model; 0 for none.
pub(super) fn done(connection: &Connection, space: Space, model: &str) -> Outcome<u32> {
    if !exists(connection, space)? {
        return Ok(0);
    }
    let sql = format!("SELECT units FROM {}_model WHERE model = ?1", space.table());
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([model], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// How many units have none yet.
pub(in crate::sqlite) fn left(connection: &Connection, words: &dyn WordVectors) -> Outcome<u32> {
    let space = Space::Sessions;
    if !space.exists(connection)? {
        return Ok(0);
    }
    Ok(totals(connection, space)?.units.saturating_sub(done(connection, space, words.id())?))
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
    let from = done(connection, Space::Sessions, words.id())?;
    if from >= all {
        return Ok(false);
    }
    let to = all.min(from.saturating_add(STEP));
    let mut adder = VectorAdder::new(connection, Space::Sessions, words)?;
    for unit in from + 1..=to {
        adder.add(unit, &text(unit)?.unwrap_or_default())?;
    }
    adder.finish()?;
    Ok(to < all)
}

/// Adds vectors of units, those of higher numbers later, and the words that they have.
pub(super) struct VectorAdder<'a> {
    connection: &'a Connection,
    space: Space,
    words: &'a dyn WordVectors,
    weights: Weights<'a>,
    insert: String,
    signs: SignAdder<'a>,
    terms: TermAdder<'a>,
    last: u32,
}

impl<'a> VectorAdder<'a> {
    /// Vectors of another model are dropped.
    pub(super) fn new(connection: &'a Connection, space: Space, words: &'a dyn WordVectors) -> Outcome<Self> {
        let last = done(connection, space, words.id())?;
        if last == 0 {
            reset(connection, space)?;
        }
        create(connection, space)?;
        Ok(Self {
            connection,
            space,
            words,
            weights: Weights::new(connection)?,
            insert: format!("INSERT OR REPLACE INTO {}_vector (unit, bytes) VALUES (?1, ?2)", space.table()),
            signs: SignAdder::new(connection, SignTable::new(signs(space), words.width())),
            terms: TermAdder::new(connection, space, words.width())?,
            last,
        })
    }

    pub(super) fn add(&mut self, unit: u32, text: &str) -> Outcome<()> {
        let vector = self.weights.vector(self.words, text, Some(&mut self.terms))?;
        self.signs.add(unit, &vector)?;
        let vector = packed(&vector);
        if !vector.is_empty() {
            self.connection.prepare_cached(&self.insert)?.execute(params![unit, vector])?;
        }
        self.last = unit;
        Ok(())
    }

    /// Writes what was added.
    pub(super) fn finish(self) -> Outcome<()> {
        self.signs.finish()?;
        self.terms.finish()?;
        let sql = format!(
            "INSERT OR REPLACE INTO {}_model (one, model, units) VALUES (1, ?1, ?2)",
            self.space.table()
        );
        self.connection.prepare_cached(&sql)?.execute(params![self.words.id(), self.last])?;
        Ok(())
    }
}

/// Drops the vector of a unit, where there is one.
pub(super) fn remove(connection: &Connection, space: Space, unit: u32) -> Outcome<()> {
    if exists(connection, space)? {
        let sql = format!("DELETE FROM {}_vector WHERE unit = ?1", space.table());
        connection.prepare_cached(&sql)?.execute([unit])?;
    }
    Ok(())
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
    sign: SignTarget,
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
        let vector = Weights::new(connection)?.vector(words, text, None)?;
        let bytes = packed(&vector);
        let length = f64::from(product(&bytes, &bytes)).sqrt();
        let sign = SignTarget::new(&vector).filter(|_| length > 0.0);
        Ok(sign.map(|sign| Self { words, sign, bytes, length }))
    }

    fn cosine(&self, vector: &[u8]) -> f32 {
        let length = f64::from(product(vector, vector)).sqrt();
        if length > 0.0 {
            weight(f64::from(product(vector, &self.bytes)) / (length * self.length))
        } else {
            0.0
        }
    }

    /// The cosine of each unit to this one, by its number: 0 where it has no vector, and where `may` does not want it.
    pub(super) fn all(
        &self,
        connection: &Connection,
        space: Space,
        count: usize,
        may: impl Fn(u32) -> bool,
    ) -> Outcome<Vec<f32>> {
        let mut cosines = vec![0.0; count];
        let done = done(connection, space, self.words.id())?;
        if done == 0 {
            return Ok(cosines);
        }
        let sql = format!("SELECT unit, bytes FROM {}_vector WHERE unit <= ?1 ORDER BY unit", space.table());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([done])?;
        while let Some(row) = rows.next()? {
            let unit: u32 = row.get(0)?;
            if let Some(place) = cosines.get_mut(unit as usize).filter(|_| may(unit)) {
                *place = self.cosine(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?);
            }
        }
        Ok(cosines)
    }

    /// The same by signs, so about; and exactly for so many of those that `may` wants and that are nearest by them, which are returned in
    /// order.
    pub(super) fn likely(
        &self,
        connection: &Connection,
        space: Space,
        count: usize,
        most: usize,
        may: impl Fn(u32) -> bool,
    ) -> Outcome<(Vec<f32>, Vec<u32>)> {
        let mut cosines = vec![0.0; count];
        if done(connection, space, self.words.id())? == 0 {
            return Ok((cosines, Vec::new()));
        }
        // Nothing that points away is near.
        let mut nearest = NearestList::new(most, 0.0);
        let table = SignTable::new(signs(space), self.words.width());
        table.each(connection, |first, signs| {
            let places = cosines.get_mut(first as usize..).unwrap_or_default();
            for ((unit, sign), place) in (first..).zip(signs).zip(places) {
                if let Some(nearness) = self.sign.nearness(sign) {
                    *place = nearness.max(0.0);
                    if nearest.wants(nearness) && may(unit) {
                        nearest.add(nearness, unit);
                    }
                }
            }
        })?;
        let units = nearest.numbers();
        let sql = format!("SELECT bytes FROM {}_vector WHERE unit = ?1", space.table());
        let mut statement = connection.prepare_cached(&sql)?;
        for unit in &units {
            let mut rows = statement.query([unit])?;
            let exact = match rows.next()? {
                Some(row) => self.cosine(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?),
                None => 0.0,
            };
            if let Some(place) = cosines.get_mut(*unit as usize) {
                *place = exact;
            }
        }
        Ok((cosines, units))
    }
}

/// How rare a word is, and its vector; `None` for one that does not count.
type KnownWord = Option<(f32, Arc<[f32]>)>;

/// How rare words are, as far as they were looked up.
struct Weights<'a> {
    connection: &'a Connection,
    spaces: Vec<Space>,
    all: f64,
    known: HashMap<String, KnownWord>,
}

impl<'a> Weights<'a> {
    fn new(connection: &'a Connection) -> Outcome<Self> {
        let (mut spaces, mut all) = (Vec::new(), 0.0);
        for space in Space::ALL {
            if space.exists(connection)? {
                all += f64::from(totals(connection, space)?.units);
                spaces.push(space);
            }
        }
        Ok(Self { connection, spaces, all, known: HashMap::new() })
    }

    /// The vector of a text: the sum of its words. Words that were not met before are added to `terms`.
    fn vector(
        &mut self,
        words: &dyn WordVectors,
        text: &str,
        mut terms: Option<&mut TermAdder<'_>>,
    ) -> Outcome<Vec<f32>> {
        let mut sum = vec![0.0_f32; words.width()];
        for word in search::words(text) {
            if !self.known.contains_key(word.as_ref()) {
                let found = self.look_up(words, &word)?;
                if let (Some(terms), Some((_, vector))) = (&mut terms, &found) {
                    terms.add(&word, vector)?;
                }
                self.known.insert(word.to_string(), found);
            }
            if let Some(Some((weight, vector))) = self.known.get(word.as_ref()) {
                for (sum, number) in sum.iter_mut().zip(vector.iter()) {
                    *sum += weight * number;
                }
            }
        }
        Ok(sum)
    }

    fn look_up(&self, words: &dyn WordVectors, word: &str) -> Outcome<KnownWord> {
        if is_stop(word) {
            return Ok(None);
        }
        let mut count = 0.0;
        for space in &self.spaces {
            count += f64::from(frequency(self.connection, *space, &stem(word))?);
        }
        let rarity = weight((1.0 + (self.all - count + 0.5).max(0.5) / (count + 0.5)).ln());
        Ok(Some((rarity, words.word(word))))
    }
}
