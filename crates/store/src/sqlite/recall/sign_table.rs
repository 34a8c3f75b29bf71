//! Signs in blocks of a table, which grow at their end: few rows for many signs, read one after another.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::sign;

/// Signs of one block.
const BLOCK: u32 = 512;

/// A table of signs of vectors that have so many numbers. Each sign has a number, from 1.
pub(super) struct SignTable {
    name: String,
    size: usize,
}

impl SignTable {
    pub(super) fn new(name: String, width: usize) -> Self {
        Self { name, size: sign::size(width) }
    }

    /// What makes a table of this name.
    pub(super) fn definition(name: &str) -> String {
        format!("CREATE TABLE IF NOT EXISTS {name} (block INTEGER PRIMARY KEY, bytes BLOB NOT NULL);")
    }

    /// Calls `take` with each block: the number of its first sign, and the signs.
    pub(super) fn each(
        &self,
        connection: &Connection,
        mut take: impl FnMut(u32, std::slice::ChunksExact<'_, u8>),
    ) -> Outcome<()> {
        let sql = format!("SELECT block, bytes FROM {} ORDER BY block", self.name);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let block: u32 = row.get(0)?;
            let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            take(block.saturating_mul(BLOCK).saturating_add(1), bytes.chunks_exact(self.size));
        }
        Ok(())
    }
}

/// Adds signs, those of higher numbers later. What has a lower number than the last one, and was not added, has no direction.
pub(super) struct SignAdder<'a> {
    connection: &'a Connection,
    table: SignTable,
    open: Option<(u32, Vec<u8>)>,
}

impl<'a> SignAdder<'a> {
    pub(super) fn new(connection: &'a Connection, table: SignTable) -> Self {
        Self { connection, table, open: None }
    }

    pub(super) fn add(&mut self, number: u32, vector: &[f32]) -> Outcome<()> {
        let (block, place) = (number.saturating_sub(1) / BLOCK, number.saturating_sub(1) % BLOCK);
        if self.open.as_ref().is_none_or(|(open, _)| *open != block) {
            self.close()?;
            let sql = format!("SELECT bytes FROM {} WHERE block = ?1", self.table.name);
            let mut get = self.connection.prepare_cached(&sql)?;
            let bytes: Option<Vec<u8>> = get.query_row([block], |row| row.get(0)).optional()?;
            self.open = Some((block, bytes.unwrap_or_default()));
        }
        if let Some((_, bytes)) = &mut self.open {
            bytes.resize(place as usize * self.table.size, 0);
            bytes.extend(sign::of(vector));
        }
        Ok(())
    }

    fn close(&mut self) -> Outcome<()> {
        let Some((block, bytes)) = self.open.take() else { return Ok(()) };
        let sql = format!("INSERT OR REPLACE INTO {} (block, bytes) VALUES (?1, ?2)", self.table.name);
        self.connection.prepare_cached(&sql)?.execute(params![block, bytes])?;
        Ok(())
    }

    /// Writes what was added.
    pub(super) fn finish(mut self) -> Outcome<()> {
        self.close()
    }
}

/// So many of those that are nearest, as they come.
pub(super) struct NearestList {
    most: usize,
    /// What is not nearer than this is none of them.
    least: f32,
    found: Vec<(f32, u32)>,
}

impl NearestList {
    pub(super) fn new(most: usize, least: f32) -> Self {
        Self { most, least, found: Vec::with_capacity(2 * most + 1) }
    }

    /// Whether something so near would be one of them so far.
    pub(super) fn wants(&self, nearness: f32) -> bool {
        nearness > self.least
    }

    pub(super) fn add(&mut self, nearness: f32, number: u32) {
        self.found.push((nearness, number));
        if self.found.len() > 2 * self.most {
            self.cut();
            self.least = self.found.iter().fold(f32::INFINITY, |least, (nearness, _)| least.min(*nearness));
        }
    }

    fn cut(&mut self) {
        if self.found.len() > self.most {
            self.found.select_nth_unstable_by(self.most, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            self.found.truncate(self.most);
        }
    }

    /// Their numbers, in order.
    pub(super) fn numbers(mut self) -> Vec<u32> {
        self.cut();
        let mut numbers: Vec<u32> = self.found.into_iter().map(|(_, number)| number).collect();
        numbers.sort_unstable();
        numbers
    }
}
