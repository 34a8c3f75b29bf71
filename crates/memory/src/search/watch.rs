//! Notices that files of memories changed, so that they are indexed before somebody asks.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::MemoryPlace;
use crate::files::{DEPTH, list_files};

/// How often files are looked at where the system reports no changes.
const POLL: Duration = Duration::from_millis(600);
/// Directories that are watched at most; files of further ones are looked at.
const DIRECTORIES: usize = 4_096;

/// Waits for changes below the directories of memories. The system reports them where it can; elsewhere, such as on a network
/// file system, files are looked at again and again.
#[derive(Debug, Default)]
pub struct NoteWatch {
    places: Vec<MemoryPlace>,
    /// Directories in which only what comes and goes counts.
    around: Vec<PathBuf>,
    reports: Option<reports::Reports>,
    /// What was there when it was looked at last, where the system reports nothing.
    seen: u64,
}

impl NoteWatch {
    /// Watches the files of these memories and what comes and goes in `around`, and nothing else any more. Call it again after
    /// each change: directories may have come. What changed before is not reported.
    pub fn watch(&mut self, places: &[MemoryPlace], around: &[PathBuf]) {
        (self.places, self.around) = (places.to_vec(), around.to_vec());
        let is_remote = |place: &MemoryPlace| quipu_store::network_file_system(&place.root).is_some();
        let reports = self.reports.take().map_or_else(reports::Reports::open, Some);
        self.reports = reports.filter(|_| !places.iter().any(is_remote)).and_then(|mut reports| {
            let is_whole = reports.follow(&directories(&self.places), &self.nearest());
            is_whole.then_some(reports)
        });
        if self.reports.is_none() {
            self.seen = self.state();
        }
    }

    /// Returns when something changed.
    pub async fn changed(&mut self) {
        if let Some(reports) = &self.reports {
            return reports.next().await;
        }
        loop {
            tokio::time::sleep(POLL).await;
            let state = self.state();
            if std::mem::replace(&mut self.seen, state) != state {
                return;
            }
        }
    }

    /// Whether the system reports changes.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.reports.is_some()
    }

    /// `around`, and for each memory that is not there the nearest directory in which it may appear.
    fn nearest(&self) -> Vec<PathBuf> {
        let missing = self.places.iter().filter(|place| !place.root.is_dir());
        let above = missing.filter_map(|place| place.root.ancestors().skip(1).find(|path| path.is_dir()));
        self.around.iter().cloned().chain(above.map(Path::to_path_buf)).collect()
    }

    fn state(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        for place in &self.places {
            for file in list_files(&place.root).files {
                (file.name.as_str(), file.stamp.text()).hash(&mut hash);
            }
        }
        for path in &self.around {
            std::fs::metadata(path).and_then(|found| found.modified()).ok().hash(&mut hash);
        }
        hash.finish()
    }
}

/// The directories in which files of memories are.
fn directories(places: &[MemoryPlace]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for place in places {
        found.push(place.root.clone());
        let mut below = vec![(place.root.join("memory"), 1)];
        while let Some((path, depth)) = below.pop() {
            if !std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
                continue;
            }
            if let Ok(entries) = std::fs::read_dir(&path)
                && depth < DEPTH
            {
                let is_dir = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
                let inner = entries.flatten().filter(is_dir).map(|entry| (entry.path(), depth + 1));
                below.extend(inner.take(DIRECTORIES));
            }
            found.push(path);
            if found.len() > DIRECTORIES {
                return found;
            }
        }
    }
    found
}

#[cfg(target_os = "linux")]
mod reports {
    use std::collections::HashSet;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd as _, OwnedFd};

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::Errno;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{DIRECTORIES, PathBuf};

    /// What the kernel reports.
    #[derive(Debug)]
    pub(super) struct Reports {
        kernel: AsyncFd<OwnedFd>,
        watched: HashSet<i32>,
    }

    impl Reports {
        /// `None` where there are no more of them for this user.
        pub(super) fn open() -> Option<Self> {
            let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            #[expect(
                deprecated,
                reason = "its successor is `unsafe`; an `OwnedFd` stays the same descriptor"
            )]
            let kernel = AsyncFd::with_interest(kernel, Interest::READABLE).ok()?;
            Some(Self { kernel, watched: HashSet::new() })
        }

        /// Follows these directories, and no others; whether it follows all of them.
        pub(super) fn follow(&mut self, whole: &[PathBuf], around: &[PathBuf]) -> bool {
            if whole.len() > DIRECTORIES {
                return false;
            }
            let comes_and_goes = WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::MOVED_FROM
                | WatchFlags::DELETE
                | WatchFlags::ONLYDIR;
            let changes = comes_and_goes
                | WatchFlags::MODIFY
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF;
            let mut watched = HashSet::new();
            let around = around.iter().filter(|path| !whole.contains(path));
            let all = around.map(|path| (path, comes_and_goes));
            for (path, flags) in all.chain(whole.iter().map(|path| (path, changes))) {
                match inotify::add_watch(self.kernel.get_ref().as_fd(), path, flags) {
                    Ok(watch) => drop(watched.insert(watch)),
                    // It went away, or never was.
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    Err(_) => return false,
                }
            }
            for gone in self.watched.difference(&watched) {
                // The kernel forgets directories that are removed by itself.
                inotify::remove_watch(self.kernel.get_ref().as_fd(), *gone).ok();
            }
            self.watched = watched;
            true
        }

        pub(super) async fn next(&self) {
            loop {
                let Ok(mut ready) = self.kernel.readable().await else {
                    // The runtime ends.
                    return std::future::pending().await;
                };
                let mut space = [MaybeUninit::uninit(); 4_096];
                let mut reader = inotify::Reader::new(self.kernel.get_ref().as_fd(), &mut space);
                let mut is_changed = false;
                loop {
                    match reader.next() {
                        // That a watch was taken away is our own doing, or was reported before.
                        Ok(event) => is_changed |= event.events() != ReadFlags::IGNORED,
                        Err(Errno::INTR) => {}
                        Err(_) => break,
                    }
                }
                ready.clear_ready();
                if is_changed {
                    return;
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod reports {
    use super::PathBuf;

    /// Nothing is reported here.
    #[derive(Debug)]
    pub(super) enum Reports {}

    impl Reports {
        pub(super) fn open() -> Option<Self> {
            None
        }

        pub(super) fn follow(&mut self, _: &[PathBuf], _: &[PathBuf]) -> bool {
            match *self {}
        }

        pub(super) async fn next(&self) {
            match *self {}
        }
    }
}
