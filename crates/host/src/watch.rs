//! Which session files of other agents are to be read again, because something was written to them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quipu_archive::{Agent, Report};

/// An answer that may still be written is looked at again so long after the last change: when it looks whole, and when
/// nobody goes on with it any more.
const AGAIN: [Duration; 2] = [Duration::from_millis(2_500), Duration::from_secs(125)];

/// The files that were seen.
#[derive(Default)]
pub(crate) struct Watch {
    files: HashMap<PathBuf, WatchedFile>,
}

struct WatchedFile {
    /// What the system says of it, and of what belongs to it.
    state: Vec<Option<State>>,
    /// Since when it is like that.
    since: Instant,
    /// How often it was looked at again.
    again: usize,
    /// Whether there may be more to say of it as it is.
    unfinished: bool,
}

#[derive(PartialEq, Eq)]
struct State {
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    written: (i64, i64),
    changed: (i64, i64),
}

impl Watch {
    /// How often files are looked at.
    pub(crate) const POLL: Duration = Duration::from_millis(300);

    /// Whether the file is to be read: it is new or has changed, or an answer in it may be whole by now.
    pub(crate) fn is_due(&mut self, agent: &Agent, file: &Path) -> bool {
        let state: Vec<Option<State>> = agent.written_to(file).iter().map(|path| State::of(path)).collect();
        let Some(watched) = self.files.get_mut(file) else {
            let watched = WatchedFile { state, since: Instant::now(), again: 0, unfinished: true };
            self.files.insert(file.to_owned(), watched);
            return true;
        };
        if watched.state != state {
            *watched = WatchedFile { state, since: Instant::now(), again: 0, unfinished: true };
            return true;
        }
        let is_due = watched.unfinished
            && AGAIN.get(watched.again).is_some_and(|after| watched.since.elapsed() >= *after);
        watched.again += usize::from(is_due);
        is_due
    }

    /// Whether a file may hold more than what was taken from it.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.files.values().any(|watched| watched.unfinished && watched.again < AGAIN.len())
    }

    /// The file was imported; what was not whole yet is tried again.
    pub(crate) fn imported(&mut self, file: &Path, reports: &[Report]) {
        if let Some(watched) = self.files.get_mut(file) {
            watched.unfinished = reports.iter().any(|report| report.pending > 0);
        }
    }
}

impl State {
    fn of(path: &Path) -> Option<Self> {
        let of = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: of.ino(),
            bytes: of.len(),
            written: (of.mtime(), of.mtime_nsec()),
            changed: (of.ctime(), of.ctime_nsec()),
        })
    }
}
