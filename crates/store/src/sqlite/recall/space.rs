//! The tables of one index: units of text with numbers from 1, and for each word the units that have it.
//!
//! A unit is a message or a chunk of a note. Units, words and groups only ever grow at their ends, and each block of a list is
//! filled before the next one begins: so the tables depend on what was added in which order, and not on how many at a time.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::words::{Stems, of_date};
use quipu_protocol::UnixMs;

/// Units of one block.
const UNITS: u32 = 64;
/// Bytes of a unit.
const UNIT: usize = 28;
/// Postings of one block: as many as stay within their page of the database.
const POSTINGS: u32 = 256;
/// The form of the tables, as their definition states it. Those of another form are made anew.
const FORM: &str = "form = 3";
/// Bytes at the beginning of a block of postings: how many there are, and the last unit.
const HEAD: usize = 8;

/// What a kind of unit is, as it is stored.
pub(super) mod kind {
    pub(in super::super) const USER: u8 = 1;
    pub(in super::super) const ASSISTANT: u8 = 2;
    pub(in super::super) const SUMMARY: u8 = 3;
    pub(in super::super) const NOTE: u8 = 4;
    /// Of a file that changed or is gone.
    pub(in super::super) const GONE: u8 = 5;
}

/// Which of the two indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// What sessions say.
    Sessions,
    /// The notes of memories.
    Notes,
}

impl Space {
    pub(super) const ALL: [Self; 2] = [Self::Sessions, Self::Notes];

    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Sessions => "quipu_x_recall",
            Self::Notes => "quipu_x_note",
        }
    }

    /// Its place where each index has one.
    pub(super) const fn slot(self) -> usize {
        match self {
            Self::Sessions => 0,
            Self::Notes => 1,
        }
    }

    /// Whether there are tables of the form that they have now.
    pub(super) fn exists(self, connection: &Connection) -> Outcome<bool> {
        let mut statement = connection
            .prepare_cached("SELECT 1 FROM sqlite_master WHERE name = ?1 AND instr(sql, ?2) > 0")?;
        Ok(statement.exists([self.table(), FORM])?)
    }

    pub(super) fn create(self, connection: &Connection) -> Outcome<()> {
        let table = self.table();
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {table} (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, units INTEGER NOT NULL, \
               words INTEGER NOT NULL, groups INTEGER NOT NULL, form INTEGER NOT NULL CHECK ({FORM}));
             INSERT OR IGNORE INTO {table} VALUES (1, 0, 0, 0, 0, 3);
             CREATE TABLE IF NOT EXISTS {table}_unit (block INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
             CREATE TABLE IF NOT EXISTS {table}_word (word TEXT NOT NULL, first INTEGER NOT NULL, n INTEGER NOT NULL, bytes BLOB NOT NULL, \
               PRIMARY KEY (word, first)) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS {table}_group (num INTEGER PRIMARY KEY, words INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);"
        ))?;
        Ok(())
    }

    pub(super) fn reset(self, connection: &Connection) -> Outcome<()> {
        let table = self.table();
        for part in ["", "_unit", "_word", "_group"] {
            connection.execute_batch(&format!("DROP TABLE IF EXISTS {table}{part}"))?;
        }
        Ok(())
    }
}

/// How much an index holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// The last row that was read, of nodes.
    pub(super) seq: i64,
    pub(super) units: u32,
    pub(super) words: i64,
    pub(super) groups: i64,
}

pub(super) fn totals(connection: &Connection, space: Space) -> Outcome<Totals> {
    let sql = format!("SELECT seq, units, words, groups FROM {}", space.table());
    let mut statement = connection.prepare_cached(&sql)?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Totals { seq: row.get(0)?, units: row.get(1)?, words: row.get(2)?, groups: row.get(3)? })
    };
    Ok(statement.query_row([], read).optional()?.unwrap_or_default())
}

/// What is kept of a message or of a chunk of a note.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// The row of its node, or of its chunk.
    pub(super) seq: u32,
    /// Its session or file.
    pub(super) group: u32,
    /// The unit before it; 0 for none.
    pub(super) before: u32,
    /// The first one after it; 0 for none.
    pub(super) after: u32,
    /// Seconds since 1970.
    pub(super) at: u32,
    pub(super) words: u32,
    pub(super) kind: u8,
    pub(super) author: u8,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Unit {
    fn read(bytes: &[u8]) -> Self {
        let at = |n: usize| number(bytes, n * 4);
        let [kind, author] = [24, 25].map(|n| bytes.get(n).copied().unwrap_or(0));
        Self { seq: at(0), group: at(1), before: at(2), after: at(3), at: at(4), words: at(5), kind, author }
    }

    fn write(&self) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        let numbers = [self.seq, self.group, self.before, self.after, self.at, self.words];
        for (n, number) in numbers.into_iter().enumerate() {
            bytes[n * 4..n * 4 + 4].copy_from_slice(&number.to_le_bytes());
        }
        (bytes[24], bytes[25]) = (self.kind, self.author);
        bytes
    }
}

/// Units, read block by block.
pub(super) struct Units<'a> {
    connection: &'a Connection,
    select: String,
    space: Space,
    blocks: HashMap<u32, Vec<u8>>,
    changed: BTreeMap<u32, ()>,
}

impl<'a> Units<'a> {
    pub(super) fn new(connection: &'a Connection, space: Space) -> Self {
        let select = format!("SELECT bytes FROM {}_unit WHERE block = ?1", space.table());
        Self { connection, select, space, blocks: HashMap::new(), changed: BTreeMap::new() }
    }

    fn block(&mut self, block: u32) -> Outcome<&mut Vec<u8>> {
        if !self.blocks.contains_key(&block) {
            let mut statement = self.connection.prepare_cached(&self.select)?;
            let bytes: Option<Vec<u8>> = statement.query_row([block], |row| row.get(0)).optional()?;
            self.blocks.insert(block, bytes.unwrap_or_default());
        }
        Ok(self.blocks.entry(block).or_default())
    }

    /// A unit by its number, from 1.
    pub(super) fn get(&mut self, unit: u32) -> Outcome<Unit> {
        let at = unit.saturating_sub(1);
        let from = (at % UNITS) as usize * UNIT;
        let bytes = self.block(at / UNITS)?;
        Ok(bytes.get(from..from + UNIT).map_or_else(Unit::default, Unit::read))
    }

    /// The unit of a row: units are in the order of their rows.
    pub(super) fn of_row(&mut self, seq: i64) -> Outcome<Option<u32>> {
        let Ok(seq) = u32::try_from(seq) else { return Ok(None) };
        let (mut low, mut high) = (1, totals(self.connection, self.space)?.units);
        while low <= high {
            let middle = low + (high - low) / 2;
            match self.get(middle)?.seq.cmp(&seq) {
                std::cmp::Ordering::Equal => return Ok(Some(middle)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle - 1,
            }
        }
        Ok(None)
    }

    pub(super) fn set(&mut self, unit: u32, what: &Unit) -> Outcome<()> {
        let at = unit.saturating_sub(1);
        let from = (at % UNITS) as usize * UNIT;
        let bytes = self.block(at / UNITS)?;
        if bytes.len() < from + UNIT {
            bytes.resize(from + UNIT, 0);
        }
        bytes[from..from + UNIT].copy_from_slice(&what.write());
        self.changed.insert(at / UNITS, ());
        Ok(())
    }

    pub(super) fn keep(&mut self) -> Outcome<()> {
        let sql =
            format!("INSERT OR REPLACE INTO {}_unit (block, bytes) VALUES (?1, ?2)", self.space.table());
        let mut put = self.connection.prepare_cached(&sql)?;
        for block in std::mem::take(&mut self.changed).into_keys() {
            if let Some(bytes) = self.blocks.get(&block) {
                put.execute(params![block, bytes])?;
            }
        }
        Ok(())
    }
}

/// A list of units that have a word.
#[derive(Debug, Clone, Default)]
struct Postings {
    /// Of each: the number of the unit, and how often it has the word, with a bit for its date.
    list: Vec<(u32, u32)>,
}

/// Adds units to an index.
pub(super) struct Adder<'a> {
    connection: &'a Connection,
    space: Space,
    pub(super) totals: Totals,
    pub(super) units: Units<'a>,
    words: BTreeMap<String, Postings>,
    /// Words, first and last unit that are added to a group.
    groups: BTreeMap<u32, (u32, u32, u32)>,
    stems: Stems,
}

impl<'a> Adder<'a> {
    pub(super) fn new(connection: &'a Connection, space: Space) -> Outcome<Self> {
        Ok(Self {
            connection,
            space,
            totals: totals(connection, space)?,
            units: Units::new(connection, space),
            words: BTreeMap::new(),
            groups: BTreeMap::new(),
            stems: Stems::default(),
        })
    }

    /// Adds a unit; its number. `unit.words` is counted here.
    pub(super) fn add(&mut self, unit: Unit, text: &str, at: UnixMs) -> Outcome<u32> {
        let (counts, words) = self.stems.count(text);
        let number = self.totals.units.saturating_add(1);
        self.totals.units = number;
        self.totals.words += i64::from(words);
        let unit = Unit { words, ..unit };
        self.units.set(number, &unit)?;
        if unit.before > 0 {
            let mut before = self.units.get(unit.before)?;
            if before.after == 0 {
                before.after = number;
                self.units.set(unit.before, &before)?;
            }
        }
        let mut values: HashMap<String, u32> = HashMap::with_capacity(counts.len() + 3);
        for (word, count) in counts {
            values.insert(word, count.min(1_000) << 1);
        }
        for word in of_date(at) {
            *values.entry(word).or_default() |= 1;
        }
        for (word, value) in values {
            match self.words.get_mut(&word) {
                Some(postings) => postings.list.push((number, value)),
                None => {
                    self.words.insert(word, Postings { list: vec![(number, value)] });
                }
            }
        }
        let group = self.groups.entry(unit.group).or_insert((0, number, number));
        group.0 = group.0.saturating_add(words);
        group.2 = number;
        Ok(number)
    }

    /// Writes what was added.
    pub(super) fn finish(mut self) -> Outcome<()> {
        self.units.keep()?;
        let table = self.space.table();
        let mut put = self.connection.prepare_cached(&format!(
            "INSERT INTO {table}_group (num, words, first, last) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (num) DO UPDATE SET words = words + excluded.words, last = excluded.last RETURNING first = ?3"
        ))?;
        for (group, (words, first, last)) in &self.groups {
            let is_new: bool = put.query_row(params![group, words, first, last], |row| row.get(0))?;
            self.totals.groups += i64::from(is_new);
        }
        let mut end = self.connection.prepare_cached(&format!(
            "SELECT first, n, bytes FROM {table}_word WHERE word = ?1 ORDER BY first DESC LIMIT 1"
        ))?;
        let mut put = self.connection.prepare_cached(&format!(
            "INSERT OR REPLACE INTO {table}_word (word, first, n, bytes) VALUES (?1, ?2, ?3, ?4)"
        ))?;
        for (word, postings) in &self.words {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let open: Option<(u32, i64, Vec<u8>)> = end.query_row([word], read).optional()?;
            let mut block = open.map(|(first, n, bytes)| Block { first, n, bytes });
            for (unit, value) in &postings.list {
                let full = match &mut block {
                    Some(open) if open.count() < POSTINGS => {
                        open.push(*unit, *value);
                        continue;
                    }
                    full => full.take(),
                };
                let n = full.as_ref().map_or(0, |full| full.n + 1);
                if let Some(full) = full {
                    put.execute(params![word, full.first, full.n, full.bytes])?;
                }
                block = Some(Block::new(*unit, *value, n));
            }
            if let Some(open) = block {
                put.execute(params![word, open.first, open.n, open.bytes])?;
            }
        }
        let Totals { seq, units, words, groups } = self.totals;
        self.connection
            .prepare_cached(&format!("UPDATE {table} SET seq = ?1, units = ?2, words = ?3, groups = ?4"))?
            .execute(params![seq, units, words, groups])?;
        Ok(())
    }
}

/// A block of postings: how many, the last unit, then the steps from unit to unit and what each has.
struct Block {
    first: u32,
    n: i64,
    bytes: Vec<u8>,
}

impl Block {
    fn new(unit: u32, value: u32, n: i64) -> Self {
        let mut block = Self { first: unit, n, bytes: vec![0; HEAD] };
        block.put(unit, value, 0);
        block
    }

    fn count(&self) -> u32 {
        number(&self.bytes, 0)
    }

    fn push(&mut self, unit: u32, value: u32) {
        let step = unit.saturating_sub(number(&self.bytes, 4));
        self.put(unit, value, step);
    }

    fn put(&mut self, unit: u32, value: u32, step: u32) {
        let count = self.count() + 1;
        for number in [step, value] {
            let mut left = number;
            while left >= 0x80 {
                self.bytes.push(u8::try_from(left & 0x7f).unwrap_or(0) | 0x80);
                left >>= 7;
            }
            self.bytes.push(u8::try_from(left).unwrap_or(0));
        }
        if let Some(head) = self.bytes.get_mut(..HEAD) {
            head[..4].copy_from_slice(&count.to_le_bytes());
            head[4..].copy_from_slice(&unit.to_le_bytes());
        }
    }
}

/// In how many units a word stands.
pub(super) fn frequency(connection: &Connection, space: Space, word: &str) -> Outcome<u32> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT n, bytes FROM {}_word WHERE word = ?1 ORDER BY first DESC LIMIT 1",
        space.table()
    ))?;
    let read = |row: &rusqlite::Row<'_>| {
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        Ok((row.get::<_, u32>(0)?, number(bytes, 0)))
    };
    let found = statement.query_row([word], read).optional()?;
    Ok(found.map_or(0, |(blocks, count)| blocks.saturating_mul(POSTINGS).saturating_add(count)))
}

/// The units that have a word, in order, each with how often, and a bit for its date.
pub(super) fn postings(
    connection: &Connection,
    space: Space,
    word: &str,
    count: u32,
) -> Outcome<Vec<(u32, u32)>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT first, bytes FROM {}_word WHERE word = ?1 ORDER BY first",
        space.table()
    ))?;
    let mut rows = statement.query([word])?;
    let mut found = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    while let Some(row) = rows.next()? {
        let mut unit: u32 = row.get(0)?;
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let count = number(bytes, 0).min(POSTINGS);
        let mut left = bytes.get(HEAD..).unwrap_or_default();
        for _ in 0..count {
            // Nearly always both take a byte.
            let (step, value) = match left {
                [step, value, rest @ ..] if (step | value) & 0x80 == 0 => {
                    left = rest;
                    (u32::from(*step), u32::from(*value))
                }
                _ => (varint(&mut left), varint(&mut left)),
            };
            unit = unit.saturating_add(step);
            found.push((unit, value));
        }
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> u32 {
    let (mut value, mut shift) = (0_u32, 0);
    while let [byte, rest @ ..] = *bytes {
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 || shift >= 28 {
            break;
        }
        shift += 7;
    }
    value
}
