//! Whether a file was changed since it was read, without reading it.

use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use quipu_protocol::{ChunkId, UnixMs};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A file that was changed later than this before it was read, in milliseconds, may be changed again within the same tick
/// of the system's clock: its stamp is not kept.
const SETTLED: UnixMs = 2_000;

/// Bytes before the end of what was read of a file that must be as they were, or all of it is read again.
const TAIL: u64 = 64 << 10;

/// What the system says of a file. Nobody writes to a file without changing one of these, if the clock is not set back: the
/// last is the time of any change, which no program can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds since the epoch.
    modified: i64,
    changed: i64,
}

impl Stamp {
    pub(crate) fn of(file: &Metadata) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: nanoseconds(file.mtime(), file.mtime_nsec()),
            changed: nanoseconds(file.ctime(), file.ctime_nsec()),
        }
    }

    /// Whether it is of the same file, whatever was written to it.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// The stamp, if a change after `now` would show.
    pub(crate) fn settled(self, now: UnixMs) -> Option<Self> {
        (now.saturating_sub(self.changed / 1_000_000) >= SETTLED).then_some(self)
    }
}

/// The hash of the first bytes of a file.
pub(crate) fn hash_of_first(mut file: File, bytes: u64) -> std::io::Result<ChunkId> {
    sha_of_first(&mut file, bytes).map(|hash| ChunkId(hash.finalize().into()))
}

/// The same before it is finished. The file stands behind them then.
pub(crate) fn sha_of_first(file: &mut File, bytes: u64) -> std::io::Result<Sha256> {
    file.rewind()?;
    let mut hash = Sha256::new();
    sha_of_next(file, bytes, &mut hash)?;
    Ok(hash)
}

/// Adds the next bytes of a file to a hash. The file stands behind them then.
pub(crate) fn sha_of_next(file: &mut File, bytes: u64, hash: &mut Sha256) -> std::io::Result<()> {
    let mut next = file.take(bytes);
    // Small enough to stay near the processor.
    let mut buffer = vec![0; 256 << 10];
    loop {
        match next.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The hash of the last of so many bytes of a file, 64 KiB at most.
pub(crate) fn tail_of(file: &File, bytes: u64) -> std::io::Result<ChunkId> {
    let length = bytes.min(TAIL);
    let mut tail = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut tail, bytes - length)?;
    Ok(ChunkId(quipu_dag::sha256(&tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_kept_for_an_unchanged_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stamp = Stamp::of(&file.as_file().metadata().unwrap());
        let changed = stamp.changed / 1_000_000;
        for (now, expect) in [(0, false), (changed, false), (changed + 1_999, false), (changed + 2_000, true)]
        {
            assert_eq!(stamp.settled(now).is_some(), expect, "{now}");
        }
        // As long as before, and with its time set back: the time of change tells.
        file.as_file().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let other = Stamp::of(&file.as_file().metadata().unwrap());
        assert!(other != stamp && other.bytes == stamp.bytes && other.modified == 0);
    }
}
