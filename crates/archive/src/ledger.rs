//! The entries of a file by their numbers: the newest in memory, those before them in a file without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use quipu_protocol::NodeId;

use crate::key::Key;

/// Entries that stay in memory at most: an entry mostly follows one of the newest.
const MOST: usize = 64 << 10;
/// Bytes of an entry in the file.
const ROW: usize = 48;

/// An entry: its own id, and its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) node: NodeId,
}

/// A list that only grows, of millions of entries.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Where a file may be; `None` where all stays in memory.
    dir: Option<PathBuf>,
    file: Option<File>,
    /// Entries in the file.
    filed: usize,
    /// Those after them.
    held: Vec<Row>,
    most: usize,
    /// Why the file could not be read.
    fault: OnceLock<io::Error>,
}

impl Ledger {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, file: None, filed: 0, held: Vec::new(), most: MOST, fault: OnceLock::new() }
    }

    #[cfg(test)]
    pub(crate) fn tried(dir: Option<PathBuf>, most: usize) -> Self {
        Self { most, ..Self::new(dir) }
    }

    pub(crate) fn len(&self) -> usize {
        self.filed + self.held.len()
    }

    pub(crate) fn push(&mut self, row: Row) {
        if self.held.len() >= self.most && self.dir.is_some() {
            self.file_half();
        }
        self.held.push(row);
    }

    /// Puts the older half into the file. Where that cannot be written, all stays in memory from then on.
    fn file_half(&mut self) {
        let half = self.held.len().div_ceil(2);
        let mut bytes = Vec::with_capacity(half * ROW);
        for row in &self.held[..half] {
            bytes.extend_from_slice(row.key.bytes());
            bytes.extend_from_slice(&row.node.0);
        }
        if self.file.is_none() {
            self.file = self.dir.as_deref().and_then(|dir| tempfile::tempfile_in(dir).ok());
        }
        let at = (self.filed * ROW) as u64;
        if self.file.as_ref().is_some_and(|file| file.write_all_at(&bytes, at).is_ok()) {
            self.filed += half;
            self.held.drain(..half);
        } else {
            self.dir = None;
        }
    }

    /// An entry; `None` for a number that is none, and where the file cannot be read, which [`Self::check`] tells.
    pub(crate) fn get(&self, at: usize) -> Option<Row> {
        if let Some(at) = at.checked_sub(self.filed) {
            return self.held.get(at).copied();
        }
        let mut bytes = [0; ROW];
        match self.file.as_ref()?.read_exact_at(&mut bytes, (at * ROW) as u64) {
            Ok(()) => {
                let (key, node) = bytes.split_first_chunk()?;
                Some(Row { key: Key::from_bytes(*key), node: NodeId(node.try_into().ok()?) })
            }
            Err(error) => {
                // The first is the one to tell.
                drop(self.fault.set(error));
                None
            }
        }
    }

    /// # Errors
    /// What was read since it was made, and could not be.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.fault.get() {
            None => Ok(()),
            Some(error) => Err(io::Error::new(
                error.kind(),
                format!("cannot read the temporary index of its entries: {error}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize) -> Row {
        Row { key: Key::of(&number.to_string()), node: NodeId([u8::try_from(number % 251).unwrap(); 32]) }
    }

    #[test]
    fn what_is_filed_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        for most in [1, 2, 7, 1_000] {
            let mut ledger = Ledger::tried(Some(dir.path().to_owned()), most);
            for number in 0..100 {
                ledger.push(row(number));
                assert!(ledger.held.len() <= most, "{most}");
                assert_eq!(ledger.get(number / 2), Some(row(number / 2)));
            }
            assert!((0..100).all(|number| ledger.get(number) == Some(row(number))), "{most}");
            assert_eq!((ledger.len(), ledger.get(100)), (100, None));
            ledger.check().unwrap();
        }
    }

    #[test]
    fn where_no_file_can_be_all_stays_in_memory() {
        for dir in [None, Some(PathBuf::from("/nowhere/at/all"))] {
            let mut ledger = Ledger::tried(dir, 4);
            (0..50).for_each(|number| ledger.push(row(number)));
            assert!((0..50).all(|number| ledger.get(number) == Some(row(number))));
            assert!(ledger.file.is_none());
        }
    }

    #[test]
    fn a_file_that_is_cut_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::tried(Some(dir.path().to_owned()), 4);
        (0..50).for_each(|number| ledger.push(row(number)));
        ledger.file.as_ref().unwrap().set_len(ROW as u64).unwrap();
        assert_eq!(ledger.get(0), Some(row(0)));
        ledger.check().unwrap();
        assert_eq!(ledger.get(5), None);
        assert!(ledger.check().unwrap_err().to_string().contains("temporary index"));
    }
}
