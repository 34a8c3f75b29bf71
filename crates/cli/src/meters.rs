//! How far the import of large files is, for people.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quipu_archive::Progress;

use crate::print::{Progress as ProgressLine, note};

/// Bytes between two lines of progress, where no terminal shows one that changes.
const STEP: u64 = 64 << 20;

/// How often a terminal is told.
const TOLD: Duration = Duration::from_millis(100);

/// How far one file after the other is.
#[derive(Default)]
pub(crate) struct Meters(Mutex<Option<Meter>>);

impl Meters {
    pub(crate) fn show(&self, file: &Path, at: Progress) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if at.stored >= at.total {
            *now = None;
            return;
        }
        match &*now {
            Some(meter) if meter.file == file => meter.show(at),
            Some(_) | None => now.insert(Meter::new(file)).show(at),
        }
    }

    /// Takes the line away before something else is written.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// How far a file is: one line that changes on a terminal, else a line now and then.
struct Meter {
    file: PathBuf,
    begun: Instant,
    line: ProgressLine,
    /// When it was shown last, and at which byte.
    shown: Mutex<Option<(Instant, u64)>>,
}

impl Meter {
    fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            begun: Instant::now(),
            line: ProgressLine::new(),
            shown: Mutex::new(None),
        }
    }

    fn show(&self, at: Progress) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, stored) = shown.unwrap_or((self.begun, 0));
        let due = if self.line.is_seen() { last.elapsed() >= TOLD } else { at.stored / STEP > stored / STEP };
        if !due || at.stored >= at.total {
            return;
        }
        *shown = Some((Instant::now(), at.stored));
        let file = self.file.display();
        if !self.line.is_seen() {
            note(format!("{file}: {} of {} MiB, {} entries", at.stored >> 20, at.total >> 20, at.entries));
            return;
        }
        let percent = |bytes: u64| bytes.saturating_mul(100) / at.total.max(1);
        let rate = at.stored as f64 / 1e6 / self.begun.elapsed().as_secs_f64().max(1e-3);
        // Much of a large file is read before it is written.
        let ahead = match percent(at.bytes) {
            100 => "writing, ".to_owned(),
            read if read > percent(at.stored) => format!("{read} % read, "),
            _ => String::new(),
        };
        let (stored, total) = (percent(at.stored), at.total >> 20);
        self.line.show(&format!("{ahead}{stored} % stored of {total} MiB, {rate:.0} MB/s: {file}"));
    }
}
