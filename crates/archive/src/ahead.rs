//! Lines of a file made ready on several cores, and given back in the order of the file.
//!
//! What is done with a line alone (to parse it, to seal it, to hash its parts) takes most of the time of an import. A
//! reader cuts the file into pieces of whole lines, threads make the lines of a piece ready, and who asks gets them in
//! order. Only so much is read ahead; a line that is longer than that is underway alone.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::lines::{Line, Lines, Place};

/// Files of fewer bytes are done before a thread has begun.
const SHORT: u64 = 512 << 10;
/// Cores that are used at most: the rows are then what takes longest.
const MOST_CORES: usize = 4;
/// What a line costs beside its text, in bytes, about.
const LINE_COST: usize = 256;

/// How much is made ready at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Threads; with none, each line is made ready when it is asked for.
    threads: usize,
    /// Bytes of a piece, about.
    piece: usize,
    /// Bytes of all pieces that are underway, about.
    most: usize,
}

impl Ahead {
    /// What suits a file of this size on this machine.
    pub(crate) fn of(total: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if total < SHORT || cores == 1 { 0 } else { cores.min(MOST_CORES) };
        Self { threads, piece: 128 << 10, most: 1 << 20 }
    }

    /// Whether a line is made ready before it is asked for.
    pub(crate) fn is_any(self) -> bool {
        self.threads > 0
    }

    #[cfg(test)]
    pub(crate) fn tried(threads: usize, piece: usize, most: usize) -> Self {
        Self { threads, piece, most }
    }
}

/// What makes a line ready.
pub(crate) type Make<T> = dyn Fn(&Line<'_>) -> T + Send + Sync;

/// Lines that are made ready, in the order of the file.
pub(crate) struct ReadyLines<R, T> {
    lines: Lines<R>,
    make: Arc<Make<T>>,
    crew: Option<Crew<T>>,
}

/// Threads, and what they are about.
struct Crew<T> {
    ahead: Ahead,
    /// Where pieces are handed out; `None` when no more are.
    pieces: Option<SyncSender<Piece<T>>>,
    threads: Vec<JoinHandle<()>>,
    /// The bytes of each piece that was handed out and where it comes back, the oldest first.
    underway: VecDeque<(usize, Receiver<Done<T>>)>,
    bytes: usize,
    /// The memory of a piece that came back, for the next one.
    spare: Vec<u8>,
    /// What came back last.
    ready: std::vec::IntoIter<T>,
    /// Why no more could be read: told when what came before was given back.
    failed: Option<io::Error>,
}

/// Whole lines, and where they go when they are ready.
struct Piece<T> {
    bytes: Vec<u8>,
    /// Each with where it ends in `bytes`.
    lines: Vec<(Place, usize)>,
    done: SyncSender<Done<T>>,
}

/// What became of a piece, and its memory.
struct Done<T> {
    ready: Vec<T>,
    bytes: Vec<u8>,
}

impl<R: BufRead, T: Send + 'static> ReadyLines<R, T> {
    pub(crate) fn new(
        lines: Lines<R>,
        ahead: Ahead,
        make: impl Fn(&Line<'_>) -> T + Send + Sync + 'static,
    ) -> Self {
        let make: Arc<Make<T>> = Arc::new(make);
        let crew = if ahead.is_any() { Crew::new(ahead, &make) } else { None };
        Self { lines, make, crew }
    }

    /// The next line, ready; `None` at the end.
    ///
    /// # Errors
    /// That the file cannot be read further, after all lines before that.
    ///
    /// # Panics
    /// When a thread did, with what it said.
    pub(crate) fn next(&mut self) -> io::Result<Option<T>> {
        let Some(crew) = &mut self.crew else {
            return Ok(self.lines.next()?.map(|line| (self.make)(&line)));
        };
        loop {
            if let Some(ready) = crew.ready.next() {
                return Ok(Some(ready));
            }
            crew.read_ahead(&mut self.lines);
            let Some((bytes, piece)) = crew.underway.pop_front() else {
                return crew.failed.take().map_or(Ok(None), Err);
            };
            crew.bytes -= bytes;
            match piece.recv() {
                Ok(done) => {
                    crew.ready = done.ready.into_iter();
                    crew.spare = done.bytes;
                }
                Err(_) => return Err(crew.fallen()),
            }
        }
    }

    /// A line that began as an object does is none: those to come are counted without it.
    pub(crate) fn was_no_object(&mut self) {
        self.lines.was_no_object();
    }

    /// What it reads from, which is at the end when all lines were given.
    pub(crate) fn into_inner(self) -> R {
        self.lines.into_inner()
    }
}

impl<T: Send + 'static> Crew<T> {
    /// `None` where the system gives no thread.
    fn new(ahead: Ahead, make: &Arc<Make<T>>) -> Option<Self> {
        // All that may be underway fits: who reads never waits to hand out.
        let (pieces, waiting) = sync_channel::<Piece<T>>(ahead.most / ahead.piece.max(1) + 1);
        let waiting = Arc::new(Mutex::new(waiting));
        let threads: Vec<_> = (0..ahead.threads)
            .map_while(|_| {
                let (waiting, make) = (Arc::clone(&waiting), Arc::clone(make));
                let thread = std::thread::Builder::new().name("quipu-import".into());
                thread.spawn(move || work(&waiting, &*make)).ok()
            })
            .collect();
        (!threads.is_empty()).then(|| Self {
            ahead,
            pieces: Some(pieces),
            threads,
            underway: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            ready: Vec::new().into_iter(),
            failed: None,
        })
    }

    /// Hands out pieces until enough are underway.
    fn read_ahead<R: BufRead>(&mut self, lines: &mut Lines<R>) {
        while self.bytes < self.ahead.most
            && let Some(pieces) = &self.pieces
        {
            let (mut bytes, mut cuts) = (std::mem::take(&mut self.spare), Vec::new());
            bytes.clear();
            // One that was made for a very long line is not kept.
            bytes.shrink_to(2 * self.ahead.piece);
            bytes.reserve(self.ahead.piece);
            let mut cost = 0;
            while cost < self.ahead.piece {
                match lines.append_to(&mut bytes) {
                    Ok(Some(place)) => cuts.push((place, bytes.len())),
                    end => {
                        self.failed = end.err();
                        break;
                    }
                }
                cost = bytes.len() + cuts.len() * LINE_COST;
            }
            let is_last = cost < self.ahead.piece;
            if !cuts.is_empty() {
                let (done, ready) = sync_channel(1);
                // Who would take it has fallen: that shows when it is waited for.
                drop(pieces.send(Piece { bytes, lines: cuts, done }));
                self.underway.push_back((cost, ready));
                self.bytes += cost;
            }
            if is_last {
                self.pieces = None;
            }
        }
    }

    /// A piece does not come back: its thread panicked, and so does this one.
    fn fallen(&mut self) -> io::Error {
        self.pieces = None;
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        io::Error::other("the thread that read it ended")
    }
}

impl<T> Drop for Crew<T> {
    fn drop(&mut self) {
        self.pieces = None;
        // What they still make ready is little, and nobody asks for it.
        self.underway.clear();
        for thread in self.threads.drain(..) {
            // It panicked over a line that nobody asks for.
            drop(thread.join());
        }
    }
}

fn work<T>(pieces: &Mutex<Receiver<Piece<T>>>, make: &Make<T>) {
    loop {
        let piece = pieces.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Piece { bytes, lines, done }) = piece else { return };
        let mut start = 0;
        let ready = lines.into_iter().map(|(place, end)| {
            let line = Line { place, bytes: bytes.get(start..end).unwrap_or_default() };
            start = end;
            make(&line)
        });
        let ready = ready.collect();
        // Nobody waits for it when the import was stopped.
        drop(done.send(Done { ready, bytes }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &Line<'_>) -> (Place, Vec<u8>) {
        assert_ne!(line.bytes, b"panic");
        (line.place, line.bytes.to_vec())
    }

    fn all<R: BufRead>(mut lines: ReadyLines<R, (Place, Vec<u8>)>) -> io::Result<Vec<(Place, Vec<u8>)>> {
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            all.push(line);
        }
        Ok(all)
    }

    fn text() -> Vec<u8> {
        let lines: Vec<String> = (0..1_000_usize)
            .map(|n| if n % 7 == 0 { " {".into() } else { "x".repeat(n * 37 % 600) })
            .collect();
        lines.join("\n").into_bytes()
    }

    #[test]
    fn lines_come_in_order() {
        let text = text();
        let lines = || Lines::new(&text[..], 500);
        let alone = all(ReadyLines::new(lines(), Ahead::tried(0, 0, 0), made)).unwrap();
        assert_eq!(alone.len(), 1_000);
        for (threads, piece, most) in [(1, 1, 1), (2, 1, 10_000), (3, 5_000, 1), (4, 5_000, 20_000)] {
            let ahead = Ahead::tried(threads, piece, most);
            assert_eq!(all(ReadyLines::new(lines(), ahead, made)).unwrap(), alone, "{ahead:?}");
        }
    }

    #[test]
    fn no_more_is_read_ahead_than_asked() {
        let text = text();
        let mut lines = ReadyLines::new(Lines::new(&text[..], 500), Ahead::tried(2, 2_000, 10_000), made);
        while let Some((place, _)) = lines.next().unwrap() {
            assert!(lines.lines.offset() <= place.end() + 20_000);
        }
        assert_eq!(lines.lines.offset(), text.len() as u64);
    }

    #[test]
    fn what_stood_before_a_fault_is_given_first() {
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let file = io::Read::chain(&b"a\nb\n"[..], Broken);
        let reader = io::BufReader::new(file);
        let mut lines = ReadyLines::new(Lines::new(reader, 9), Ahead::tried(2, 1, 10_000), made);
        assert_eq!(lines.next().unwrap().unwrap().1, b"a");
        assert_eq!(lines.next().unwrap().unwrap().1, b"b");
        assert_eq!(lines.next().unwrap_err().to_string(), "broken");
        assert!(lines.next().unwrap().is_none());
    }

    #[test]
    #[should_panic(expected = "left != right")]
    fn a_panic_is_passed_on() {
        let lines = Lines::new(&b"a\npanic\nb\n"[..], 9);
        let _all = all(ReadyLines::new(lines, Ahead::tried(2, 1, 10_000), made));
    }

    #[test]
    fn who_stops_early_waits_for_nobody() {
        let text = text();
        let mut lines = ReadyLines::new(Lines::new(&text[..], 500), Ahead::tried(3, 1_000, 50_000), made);
        assert!(lines.next().unwrap().is_some());
    }
}
