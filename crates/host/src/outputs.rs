//! Where the whole outputs of long commands are.

use std::path::PathBuf;

use quipu::Outputs;
use quipu_workspace::file_key;
use sha2::{Digest as _, Sha256};

use crate::Home;

/// What the directory of another store begins with; no id of a session does.
const OTHER: char = '@';

impl Home {
    /// Where the whole outputs of long commands are kept. Another store than the user's has a directory of its own there,
    /// for what belongs to a session of one is nobody's in the other.
    pub fn outputs(&self) -> Outputs {
        if let Some(unkept) = &self.unkept {
            return unkept.clone();
        }
        let all = self.dir.join("outputs");
        // By whatever name it is reached.
        let store = file_key(&self.store);
        if store == file_key(&self.dir.join("quipu.db")) {
            return Outputs::new(all);
        }
        let hash = Sha256::digest(store.as_os_str().as_encoded_bytes());
        let name = quipu_protocol::hex(&hash[..8]);
        Outputs::new(all.join(format!("{OTHER}{name}")))
    }

    /// Where those of other stores are, as the user's own store sees it.
    pub fn outputs_of_others(&self) -> std::io::Result<Vec<Outputs>> {
        let ours = self.outputs();
        if self.unkept.is_some() || ours.root() != self.dir.join("outputs") {
            return Ok(Vec::new());
        }
        let entries = match std::fs::read_dir(ours.root()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut others = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(OTHER) && entry.file_type()?.is_dir() {
                others.push(Outputs::new(entry.path()));
            }
        }
        Ok(others)
    }

    /// Where tools may read outputs: those of all sessions, for a fork reads those of the session that it is from, and those of
    /// earlier versions lie beside them. What is not kept is alone.
    pub fn readable_outputs(&self) -> PathBuf {
        self.unkept.as_ref().map_or_else(|| self.dir.join("outputs"), |unkept| unkept.root().to_owned())
    }

    /// The same place for what shall not be kept: outputs go when the program ends.
    pub fn without_outputs(mut self) -> Self {
        self.unkept = Some(Outputs::temporary());
        self
    }
}
