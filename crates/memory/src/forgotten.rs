//! What a person had forgotten: neither said again from a search nor learned again.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use quipu_protocol::{ChunkId, NodeId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::lock::FileLock;
use crate::{MemoryError, MemoryHome};

/// Bytes of the file at most.
const LIMIT: u64 = 16 << 20;

/// Lines and nodes that a person had forgotten. Lines are kept as hashes of their words, so that the file says none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForgetList {
    lines: BTreeSet<ChunkId>,
    nodes: BTreeSet<NodeId>,
}

impl ForgetList {
    /// What is forgotten now; nothing where nobody forgot anything.
    ///
    /// # Errors
    /// `Io` where the file is there and cannot be used: what it hides must not come back.
    pub fn read(home: &MemoryHome) -> Result<Self, MemoryError> {
        let path = Self::path(home);
        let failed = MemoryError::io("read", &path);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
            Ok(found) if found.len() > LIMIT => {
                return Err(failed(std::io::Error::other("it is larger than 16 MiB")));
            }
            Ok(_) => {}
        }
        let text = std::fs::read(&path).map_err(MemoryError::io("read", &path))?;
        serde_json::from_slice(&text).map_err(|error| failed(std::io::Error::other(error)))
    }

    /// The file that holds it.
    #[must_use]
    pub fn path(home: &MemoryHome) -> PathBuf {
        home.state().join("forgotten.json")
    }

    /// Whether no search of a memory shows this node.
    #[must_use]
    pub fn hides_node(&self, node: &NodeId) -> bool {
        self.nodes.contains(node)
    }

    /// Whether a line says, word for word, what was forgotten: marks, case and spaces do not matter.
    #[must_use]
    pub fn hides_line(&self, line: &str) -> bool {
        !self.lines.is_empty() && key(line).is_some_and(|key| self.lines.contains(&key))
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied()
    }

    /// Whether anything is forgotten.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.nodes.is_empty()
    }

    /// Adds to what is forgotten.
    ///
    /// # Errors
    /// `Busy`, `Io`.
    pub fn add<'a>(
        home: &MemoryHome,
        lines: impl IntoIterator<Item = &'a str>,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<(), MemoryError> {
        let path = Self::path(home);
        let _lock = FileLock::wait(&path.with_extension("lock"))?;
        let mut all = Self::read(home)?;
        all.lines.extend(lines.into_iter().filter_map(key));
        all.nodes.extend(nodes);
        let io = |error| MemoryError::io("write", &path)(error);
        let text = serde_json::to_vec(&all).map_err(|error| io(error.into()))?;
        let mut aside =
            tempfile::Builder::new().prefix(".forgotten-").tempfile_in(home.state()).map_err(io)?;
        aside.write_all(&text).map_err(io)?;
        aside.as_file().sync_all().map_err(io)?;
        aside.persist(&path).map_err(|error| io(error.error))?;
        Ok(())
    }
}

/// The words of a line as a hash, without the mark that a dream put behind them; `None` for a line without words.
fn key(line: &str) -> Option<ChunkId> {
    let line = line.split(crate::dream::MARK).next().unwrap_or_default();
    let mut words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).peekable();
    words.peek()?;
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.to_lowercase().as_bytes());
        hash.update([0]);
    }
    Some(ChunkId(hash.finalize().into()))
}
