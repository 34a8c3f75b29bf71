//! Which sessions beyond its own lineage the tools of a session may show.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Directories that are remembered at most.
const MOST: usize = 100;

/// The sessions of one directory and those below it, and of others that a search was permitted in.
pub struct Projects {
    /// The directory of the session, as sessions spell it.
    own: String,
    permitted: Mutex<VecDeque<String>>,
}

impl Projects {
    /// Those of a session that works in `own`.
    pub fn new(own: String) -> Self {
        Self { own, permitted: Mutex::default() }
    }

    /// The session's own directory, as it spells it.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// What a search was permitted in, its hits may be read of.
    pub fn permit(&self, directory: &str) {
        let mut permitted = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        if !permitted.iter().any(|known| known == directory) {
            permitted.push_back(directory.to_owned());
            if permitted.len() > MOST {
                permitted.pop_front();
            }
        }
    }

    /// Whether a session that works in this directory may be shown.
    pub fn shows(&self, cwd: &str) -> bool {
        let permitted = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.own)
            .chain(permitted.iter())
            .any(|directory| !directory.is_empty() && Path::new(cwd).starts_with(directory))
    }
}
