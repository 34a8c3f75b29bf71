//! A session file that is followed: what is known of it stays in memory, and of what is appended nothing else is read.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};

use quipu_protocol::{ChunkId, NodeId, SessionId, UnixMs};
use quipu_store::Graph;
use sha2::Sha256;

use super::import::run_blocking;
use super::{AGENT, LINE_LIMIT};
use crate::ArchiveError;
use crate::lineages::tips;
use crate::lines::{Hashing, Lines};
use crate::stamp::{Stamp, tail_of};
use crate::tree::Tree;

/// How far a followed file was read, and the tree of its entries.
pub(crate) struct IncrementalState {
    /// What the system said of it.
    pub(super) file: Stamp,
    pub(super) session: SessionId,
    pub(super) tree: Tree,
    /// Of all that was read.
    pub(super) hash: Sha256,
    pub(super) bytes: u64,
    pub(super) lines: u64,
    /// The place of the next entry.
    pub(super) next: u64,
    /// Place, time and node of the last one.
    pub(super) last: (u64, UnixMs, NodeId),
    /// Of the last bytes.
    pub(super) tail: ChunkId,
}

/// The lines after those that were read.
type RemainingLines = Lines<BufReader<Hashing>>;

impl IncrementalState {
    /// Whether it is of this file, which became longer, and this session.
    pub(super) fn is_of(&self, now: &Stamp, session: &SessionId) -> bool {
        self.file.is_same_file(now) && self.bytes < now.bytes && self.session == *session
    }

    /// Itself, and what to read, when the file ends there as it did and the store has nothing else of the session. What was
    /// changed further before in the file shows in its hash, which the next import of its own compares.
    pub(super) async fn checked(
        self,
        store: &dyn Graph,
        file: File,
    ) -> Result<Option<(Self, RemainingLines)>, ArchiveError> {
        let ends = tips(store, AGENT, &self.session).await?.into_iter().map(|head| head.node);
        if ends.collect::<HashSet<_>>() != self.tree.ends() {
            return Ok(None);
        }
        let (bytes, hash, tail) = (self.bytes, self.hash.clone(), self.tail);
        let behind = move || {
            let mut file = file;
            if tail_of(&file, bytes)? != tail {
                // It stands where those go on who read all of it.
                return Ok(None);
            }
            file.seek(SeekFrom::Start(bytes))?;
            Ok::<_, io::Error>(Some(file))
        };
        // What cannot be read is told by who reads all of it.
        let Ok(Some(file)) = run_blocking(behind).await? else { return Ok(None) };
        let reader = BufReader::with_capacity(1 << 20, Hashing { file, hash, bytes });
        let lines = Lines::after(reader, LINE_LIMIT, self.lines, bytes, self.next);
        Ok(Some((self, lines)))
    }
}
