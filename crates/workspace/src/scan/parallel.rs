//! Directories are looked into by one thread, and by others beside it where there are many: nearly all of the time goes into
//! calls of the system, which do not wait for each other.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{Directory, MOST_ENTRIES, Task};

/// Directories that wait before others help: to start a thread takes as long as to look into some.
const MANY: usize = 32;
/// Threads at most: the disk's directories are in memory or nobody is quick.
const THREADS: usize = 4;

/// Lists a directory and the directories below it; `None` when it cannot be read.
pub(super) type DirectoryLister<'a> = &'a (dyn Fn(&Task) -> Option<(Arc<Directory>, Vec<Task>)> + Sync);

/// The directories that a walk found.
pub(super) struct WalkResult {
    pub(super) directories: HashMap<PathBuf, Arc<Directory>>,
    /// There is more that is ignored than was looked at.
    pub(super) beyond: bool,
}

#[derive(Default)]
struct Work {
    waiting: Vec<Task>,
    /// Ignored directories: after all others, as far as there is room.
    ignored: Vec<Task>,
    /// Ignored files and directories that may still be found.
    room: (usize, usize),
    beyond: bool,
    /// Threads that look into a directory, and may find more.
    busy: usize,
    /// Threads that wait for those.
    idle: usize,
    seen: usize,
    found: HashMap<PathBuf, Arc<Directory>>,
}

struct WalkState<'a> {
    work: Mutex<Work>,
    changed: Condvar,
    look: DirectoryLister<'a>,
}

impl Work {
    fn next(&mut self) -> Option<Task> {
        self.waiting.pop().or_else(|| self.ignored.pop())
    }

    fn waiting(&self) -> usize {
        self.waiting.len() + self.ignored.len()
    }

    fn add(&mut self, task: Task, directory: Arc<Directory>, below: Vec<Task>) {
        let files = directory.files.iter().filter(|file| file.ignored).count();
        let enough = |room: &mut usize, used: usize| {
            let left = room.checked_sub(used);
            *room = left.unwrap_or(0);
            left.is_some()
        };
        let fits = enough(&mut self.room.0, files)
            & enough(&mut self.room.1, usize::from(task.ignored))
            & !directory.beyond;
        if !task.ignored {
            self.seen += directory.seen;
        }
        if self.seen > MOST_ENTRIES {
            self.waiting.clear();
            self.ignored.clear();
            return;
        }
        let (ignored, below): (Vec<Task>, Vec<Task>) = below.into_iter().partition(|task| task.ignored);
        self.waiting.extend(below);
        self.ignored.extend(ignored);
        if !fits || self.beyond {
            self.beyond = true;
            self.ignored.clear();
        }
        self.found.insert(task.path, directory);
    }
}

/// Every directory from the first one on, and of those that are ignored so many, with so many files; `None` when there
/// are too many entries in the others.
pub(super) fn walk(first: Task, most_ignored: usize, look: DirectoryLister<'_>) -> Option<WalkResult> {
    let room = (most_ignored, most_ignored);
    let work = Mutex::new(Work { waiting: vec![first], room, ..Work::default() });
    let shared = WalkState { work, changed: Condvar::new(), look };
    thread::scope(|scope| {
        shared.serve(Some(&|| {
            let helpers = thread::available_parallelism().map_or(1, |all| all.get().min(THREADS)) - 1;
            for _ in 0..helpers {
                // Without help it takes longer.
                thread::Builder::new().spawn_scoped(scope, || shared.serve(None)).ok();
            }
        }));
    });
    let work = shared.work.into_inner().unwrap_or_else(PoisonError::into_inner);
    let walked = WalkResult { directories: work.found, beyond: work.beyond };
    (work.seen <= MOST_ENTRIES).then_some(walked)
}

impl WalkState<'_> {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into directories until all are done. `help` is called once, when there are many.
    fn serve(&self, mut help: Option<&dyn Fn()>) {
        let mut work = self.work();
        loop {
            let Some(task) = work.next() else {
                if work.busy == 0 {
                    return self.changed.notify_all();
                }
                work.idle += 1;
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
                work.idle -= 1;
                continue;
            };
            work.busy += 1;
            drop(work);
            let found = (self.look)(&task);
            work = self.work();
            work.busy -= 1;
            if let Some((directory, below)) = found {
                work.add(task, directory, below);
            }
            // The next one is ours.
            if work.idle > 0 && work.waiting() > 1 {
                self.changed.notify_all();
            }
            if work.waiting() >= MANY
                && let Some(help) = help.take()
            {
                drop(work);
                help();
                work = self.work();
            }
        }
    }
}
