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

/// What there is in a directory, and the directories below it; `None` when it cannot be looked into.
pub(super) type Look<'a> = &'a (dyn Fn(&Task) -> Option<(Arc<Directory>, Vec<Task>)> + Sync);

#[derive(Default)]
struct Work {
    waiting: Vec<Task>,
    /// Threads that look into a directory, and may find more.
    busy: usize,
    /// Threads that wait for those.
    idle: usize,
    seen: usize,
    found: HashMap<PathBuf, Arc<Directory>>,
}

struct Shared<'a> {
    work: Mutex<Work>,
    changed: Condvar,
    look: Look<'a>,
}

/// Every directory from the first one on; `None` when there are too many entries in them.
pub(super) fn walk(first: Task, look: Look<'_>) -> Option<HashMap<PathBuf, Arc<Directory>>> {
    let work = Mutex::new(Work { waiting: vec![first], ..Work::default() });
    let shared = Shared { work, changed: Condvar::new(), look };
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
    (work.seen <= MOST_ENTRIES).then_some(work.found)
}

impl Shared<'_> {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into directories until all are done. `help` is called once, when there are many.
    fn serve(&self, mut help: Option<&dyn Fn()>) {
        let mut work = self.work();
        loop {
            let Some(task) = work.waiting.pop() else {
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
                work.seen += directory.seen;
                if work.seen > MOST_ENTRIES {
                    work.waiting.clear();
                } else {
                    work.waiting.extend(below);
                    work.found.insert(task.path, directory);
                }
            }
            // The next one is ours.
            if work.idle > 0 && work.waiting.len() > 1 {
                self.changed.notify_all();
            }
            if work.waiting.len() >= MANY
                && let Some(help) = help.take()
            {
                drop(work);
                help();
                work = self.work();
            }
        }
    }
}
