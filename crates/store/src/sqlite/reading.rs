//! A store that is only read.

use std::path::Path;
use std::time::Duration;

use super::connect::Patience;
use super::failure::Place;
use super::{SqliteStore, file};
use crate::StoreError;

impl SqliteStore {
    /// Opens the store at `path` as it is, to read what was written and indexed: nothing is made, upgraded or indexed. `busy` is how
    /// long another program's lock is waited for. Blocks.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); `NotAStore` also where there is none.
    pub fn open_to_read(path: &Path, busy: Duration) -> Result<Self, StoreError> {
        let path = file::prepare(path, false)?;
        if file::size(&path) == 0 {
            return Err(StoreError::NotAStore { path, what: "it is empty".to_owned() });
        }
        let place = Place { identity: file::identity(&path), path, busy };
        let why = StoreError::ReadOnly { path: place.path.clone() };
        Self::start_read_only(place, Patience::new(busy), why)
    }
}
