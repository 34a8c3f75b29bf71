//! Between the starts of commands: what is protected stays so when somebody replaces it from outside, and sockets that come
//! are covered.

use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::EMPTY;
use super::protected::{complete, cover_sockets, disable_commondir, places, protect_one, repositories};

/// How often sockets are looked for while commands run.
const SOCKETS: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What was protected when the last command began.
#[derive(Debug)]
pub(super) struct Watch {
    notices: OwnedFd,
    /// Each with the directory below which it lies.
    protected: Mutex<HashSet<(PathBuf, PathBuf)>>,
    watched: Mutex<HashSet<PathBuf>>,
    /// Git directories that were there when the last command began.
    repositories: Mutex<Vec<PathBuf>>,
}

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let notices = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self {
            notices,
            protected: Mutex::default(),
            watched: Mutex::default(),
            repositories: Mutex::default(),
        })
    }

    /// Protects what is there now, and remembers it.
    ///
    /// # Errors
    /// When something of it could not be protected.
    pub(super) fn protect(&self, write: &[PathBuf]) -> io::Result<()> {
        // Held, so that nothing is protected twice.
        let mut protected = super::lock(&self.protected);
        protected.clear();
        let mut done = Ok(());
        let mut all = Vec::new();
        for root in write {
            for git in repositories(root) {
                disable_commondir(&git);
                complete(&git);
                self.watch(&git);
                all.push(git);
            }
            for place in places(root) {
                if let Some(dir) = place.parent() {
                    self.watch(dir);
                }
                done = done.and(protect_one(root, &place));
                protected.insert((root.clone(), place));
            }
        }
        *super::lock(&self.repositories) = all;
        done
    }

    /// Protects what was, where it was replaced.
    pub(super) fn again(&self) {
        super::lock(&self.repositories).iter().for_each(|git| disable_commondir(git));
        for (root, place) in super::lock(&self.protected).iter() {
            if place.symlink_metadata().is_ok() {
                protect_one(root, place).ok();
            }
        }
    }

    /// A directory that cannot be watched is looked at when the next command begins.
    fn watch(&self, dir: &Path) {
        let mut watched = super::lock(&self.watched);
        if watched.insert(dir.to_owned()) {
            let flags = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
            inotify::add_watch(self.notices.as_fd(), dir, flags).ok();
        }
    }

    /// Never returns. `runs`: whether a command runs.
    pub(super) fn run(&self, free: &[PathBuf], runs: &dyn Fn() -> bool) {
        let mut space = [MaybeUninit::uninit(); 4096];
        loop {
            let mut ready = [PollFd::new(&self.notices, PollFlags::IN)];
            poll(&mut ready, Some(&SOCKETS)).ok();
            let mut notices = inotify::Reader::new(self.notices.as_fd(), &mut space);
            let mut news = false;
            while let Ok(notice) = notices.next() {
                // A directory that is watched under a name that another one has now is watched anew.
                if notice.events().contains(ReadFlags::IGNORED) {
                    super::lock(&self.watched).clear();
                }
                news = true;
            }
            if news {
                self.again();
            }
            if runs() {
                cover_sockets(free, Path::new(EMPTY));
            }
        }
    }
}
