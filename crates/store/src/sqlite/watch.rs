//! Whether the file of a store, its WAL and its shared memory still have their names. A commit that is written to a
//! file without a name is gone with this process.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::file::{identity, sibling_path};

/// File systems stamp directories by a clock that ticks every few milliseconds; of two changes within one tick the
/// second does not show. What was changed longer ago than this shows every further change.
const TICK: Duration = Duration::from_millis(50);
/// The same, where stamps have no fractions of seconds.
const COARSE_TICK: Duration = Duration::from_secs(3);
/// How long an unchanged directory is believed: some file systems that others write to do not stamp it.
const BELIEVED: Duration = Duration::from_secs(1);

/// Device and number of a file.
type Identity = (u64, u64);

/// What became of the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Names {
    /// Each leads to the file that we have open.
    Kept,
    /// One does not.
    Lost(LostName),
}

/// A name that leads elsewhere or nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostName {
    /// The name.
    pub(super) path: PathBuf,
    /// Whether what is committed can be copied from the WAL that we have open: nobody can have written to anything
    /// that took its place.
    pub(super) can_be_copied: bool,
    /// Whether the WAL itself is still there, for whoever opens the store next.
    pub(super) wal_is_kept: bool,
}

/// The names of a store that is open.
pub(super) struct Watch {
    directory: PathBuf,
    main: (PathBuf, Option<Identity>),
    wal: (PathBuf, Option<Identity>),
    memory: (PathBuf, Option<Identity>),
    /// What the directory said when all names were in order, if it will say something else after any change.
    unchanged: Option<(Identity, i64, i64)>,
    looked: Instant,
}

impl Watch {
    /// `main` is what the store's file was when it was opened.
    pub(super) fn new(path: &Path, main: Option<Identity>) -> Self {
        Self {
            directory: path.parent().unwrap_or(Path::new("/")).to_owned(),
            main: (path.to_owned(), main),
            wal: (sibling_path(path, "-wal"), None),
            memory: (sibling_path(path, "-shm"), None),
            unchanged: None,
            looked: Instant::now(),
        }
    }

    /// The connection is closed: the next one may find a new WAL.
    pub(super) fn closed(&mut self) {
        self.wal.1 = None;
        self.memory.1 = None;
        self.unchanged = None;
    }

    /// Whether the next look takes the WAL and the shared memory for ours that it finds.
    pub(super) fn is_new(&self) -> bool {
        self.wal.1.is_none() && self.memory.1.is_none()
    }

    /// Looks. Costs one call of the system while nothing in the directory changes.
    pub(super) fn look(&mut self) -> Names {
        let stamp = std::fs::metadata(&self.directory)
            .ok()
            .map(|found| ((found.dev(), found.ino()), found.mtime(), found.mtime_nsec()));
        if stamp.is_some() && stamp == self.unchanged && self.looked.elapsed() < BELIEVED {
            return Names::Kept;
        }
        let now = SystemTime::now();
        self.unchanged = None;
        let main = identity(&self.main.0);
        let mut kept = [false; 2];
        let mut found = [None; 2];
        for (n, (path, known)) in [&mut self.wal, &mut self.memory].into_iter().enumerate() {
            found[n] = identity(path);
            // SQLite makes them with the first use of the connection.
            *known = known.or(found[n]);
            kept[n] = found[n] == *known;
        }
        if main == self.main.1 && kept == [true, true] {
            self.looked = Instant::now();
            self.unchanged = stamp.filter(|(_, seconds, fraction)| {
                let tick = if *fraction == 0 { COARSE_TICK } else { TICK };
                let changed = u64::try_from(*seconds).ok().and_then(|seconds| {
                    let since = Duration::new(seconds, u32::try_from(*fraction).ok()?);
                    SystemTime::UNIX_EPOCH.checked_add(since)
                });
                changed.and_then(|changed| now.duration_since(changed).ok()).is_some_and(|age| age > tick)
            });
            return Names::Kept;
        }
        let wal_is_empty = found[0].is_none() || super::file::size(&self.wal.0) == 0;
        let path = if main != self.main.1 {
            &self.main.0
        } else if kept[0] {
            &self.memory.0
        } else {
            &self.wal.0
        };
        Names::Lost(LostName {
            path: path.clone(),
            can_be_copied: (main == self.main.1 || main.is_none())
                && (kept[0] || wal_is_empty)
                && (kept[1] || found[1].is_none()),
            wal_is_kept: main == self.main.1 && kept[0],
        })
    }
}
