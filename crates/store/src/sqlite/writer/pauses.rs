//! What the writer does while there is nothing to write.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::super::SearchIndex;
use super::{State, Task};

/// How long nothing must happen before the WAL is copied into the file.
const IDLE: Duration = Duration::from_millis(150);
/// A pause before work that is shorter than this shows somebody who commits again and again.
const BRISK: Duration = Duration::from_micros(200);
/// How long work is then awaited without sleeping: to be woken takes as long as half a commit.
const SPIN: Duration = Duration::from_micros(60);
/// How often another process's commits are looked for, while somebody waits for them.
const WATCH: Duration = Duration::from_millis(200);
/// How long nothing must be written before memory is given back: a process at rest is woken up once for it.
const COOL: Duration = Duration::from_secs(60);

impl State {
    /// The next task.
    pub(super) fn wait(&mut self, queue: &Receiver<Task>) -> Option<Task> {
        let began = Instant::now();
        while self.brisk && began.elapsed() < SPIN {
            match queue.try_recv() {
                Ok(task) => {
                    self.cools_at = (!self.memory).then(|| began + COOL);
                    return Some(task);
                }
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        let task = self.sleep(queue);
        self.cools_at = (!self.memory).then(|| Instant::now() + COOL);
        self.brisk = began.elapsed() < BRISK;
        task
    }

    /// The next task; in quiet moments the WAL is copied into the file, and other processes' commits are noticed.
    fn sleep(&mut self, queue: &Receiver<Task>) -> Option<Task> {
        loop {
            let watched = self.changes.receiver_count() > 0 && !self.memory;
            let timeout = if self.behind || self.searching {
                Duration::ZERO
            } else if self.unsearched || self.dirty && !self.memory {
                IDLE
            } else if watched {
                WATCH
            } else if let Some(at) = self.cools_at {
                match queue.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => self.cool(),
                    task => return task.ok(),
                }
                continue;
            } else {
                return queue.recv().ok();
            };
            match queue.recv_timeout(timeout) {
                Ok(task) => {
                    self.searching = false;
                    return Some(task);
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.using(|state| state.quiet(watched));
            if self.cools_at.is_some_and(|at| at <= Instant::now()) {
                self.cool();
            }
        }
    }

    /// What the connection keeps of the file in memory is given back.
    fn cool(&mut self) {
        self.cools_at = None;
        self.using(|state| {
            if let Some(connection) = &state.connection {
                // It fails for no reason that the next task would not say.
                drop(connection.execute_batch("PRAGMA shrink_memory"));
            }
        });
    }

    /// What is done while nothing else is to do.
    fn quiet(&mut self, watched: bool) {
        if watched {
            let version = self.data_version();
            if version != self.seen {
                self.seen = version;
                self.unsearched = self.search_index == SearchIndex::Ahead;
                self.announce();
            }
        }
        if self.behind {
            self.write_left();
        } else if self.unsearched {
            if !self.searching {
                self.write_left();
            }
            self.searching = self.search_step();
            self.unsearched = self.searching;
        } else if self.dirty {
            self.dirty = false;
            self.write_left();
            self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)");
            self.looked = Instant::now();
            self.cut_if_large();
        }
    }
}
