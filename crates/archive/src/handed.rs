//! Two halves of the work on what comes one by one, on two threads when it is much.

use std::num::NonZero;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

/// How many come before another thread is worth it.
const FEW: usize = 32;
/// Bytes that are handed over at once, about.
const PIECE: usize = 64 << 10;
/// Pieces that wait at most.
const WAITING: usize = 8;

/// Has `make` give one thing after the other, each with its size in bytes, until it hears that no more is wanted, and
/// `take` take them into `state` in this order: beside `make` once some have come.
///
/// # Errors
/// What `take` or else `make` failed with; what came before was taken.
///
/// # Panics
/// When `take` does.
pub(crate) fn hand_over<S: Send, T: Send, E: Send>(
    state: S,
    take: impl Fn(&mut S, T) -> Result<bool, E> + Sync,
    make: impl FnOnce(&mut dyn FnMut(T, usize) -> Result<bool, E>) -> Result<(), E>,
) -> Result<S, E> {
    let state = Mutex::new(state);
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let is_alone = std::thread::available_parallelism().map_or(1, NonZero::get) == 1;
        let mut left = if is_alone { usize::MAX } else { FEW };
        let mut there: Option<There<'_, T, E>> = None;
        let made = make(&mut |item, bytes| {
            if let Some(there) = &mut there {
                return Ok(there.add(item, bytes));
            }
            if left > 0 {
                left -= 1;
                return take(&mut lock(), item);
            }
            let (hand, handed) = sync_channel::<Vec<T>>(WAITING);
            let (take, lock) = (&take, &lock);
            let serve = move || {
                let mut state = lock();
                for item in handed.into_iter().flatten() {
                    if !take(&mut state, item)? {
                        break;
                    }
                }
                Ok(())
            };
            let taker = std::thread::Builder::new().name("quipu-import".to_owned());
            let Ok(thread) = taker.spawn_scoped(scope, serve) else {
                left = usize::MAX;
                return take(&mut lock(), item);
            };
            let begun = There { hand, thread, piece: Vec::new(), bytes: 0 };
            Ok(there.insert(begun).add(item, bytes))
        });
        there.map_or(Ok(()), There::end)?;
        made
    })?;
    Ok(state.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The thread that takes.
struct There<'a, T, E> {
    hand: SyncSender<Vec<T>>,
    thread: ScopedJoinHandle<'a, Result<(), E>>,
    /// What is to be handed over, and how large it is.
    piece: Vec<T>,
    bytes: usize,
}

impl<T, E> There<'_, T, E> {
    /// Whether more is wanted.
    fn add(&mut self, item: T, bytes: usize) -> bool {
        self.piece.push(item);
        self.bytes += bytes;
        if self.bytes < PIECE {
            return true;
        }
        self.bytes = 0;
        self.hand.send(std::mem::take(&mut self.piece)).is_ok()
    }

    /// Waits until all is taken.
    fn end(self) -> Result<(), E> {
        // Who takes no more says why.
        drop(self.hand.send(self.piece));
        drop(self.hand);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(count: u32, stop: u32, fail: u32) -> Result<(Vec<u32>, u32), String> {
        let mut made = 0;
        let take = |all: &mut Vec<u32>, item| match item {
            _ if item == fail => Err(format!("{item}")),
            _ => {
                all.push(item);
                Ok(item != stop)
            }
        };
        let all = hand_over(Vec::new(), take, |each| {
            for item in 0..count {
                made += 1;
                if !each(item, 1_000)? {
                    return Ok(());
                }
            }
            if count == 1_000 { Err("made".to_owned()) } else { Ok(()) }
        });
        all.map(|all| (all, made))
    }

    #[test]
    fn all_is_taken_in_order() {
        for count in [0, 1, 32, 33, 100, 5_000] {
            assert_eq!(taken(count, u32::MAX, u32::MAX), Ok(((0..count).collect(), count)));
        }
    }

    #[test]
    fn no_more_is_made_than_is_wanted() {
        for stop in [5, 500] {
            let (all, made) = taken(100_000, stop, u32::MAX).unwrap();
            assert_eq!(all, (0..=stop).collect::<Vec<_>>());
            // Eight pieces that wait, one that is taken and one that is being made.
            assert!(made <= stop + 10 * 66, "{made}");
        }
    }

    #[test]
    fn a_failure_is_told_by_who_takes_first() {
        assert_eq!(taken(5_000, u32::MAX, 7), Err("7".to_owned()));
        assert_eq!(taken(5_000, u32::MAX, 4_000), Err("4000".to_owned()));
        assert_eq!(taken(1_000, u32::MAX, 999), Err("999".to_owned()));
        assert_eq!(taken(1_000, u32::MAX, u32::MAX), Err("made".to_owned()));
    }

    #[test]
    #[should_panic(expected = "item 900")]
    fn a_panic_is_passed_on() {
        let take = |(): &mut (), item| match item {
            900 => panic!("item {item}"),
            _ => Ok::<_, ()>(true),
        };
        hand_over((), take, |each| (0..2_000).try_for_each(|item| each(item, 1_000).map(drop))).unwrap();
    }
}
