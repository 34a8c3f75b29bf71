//! What a panic says is kept while the terminal is in raw mode, where it would stand across what is drawn. The terminal
//! itself is given back by the drop of its `Terminal`, which a panic that ends the program unwinds through; one that
//! ends a single task leaves the terminal in use.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// More panics than anybody reads.
const MOST: usize = 100;

static HELD: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How many terminals are in raw mode.
static TERMINALS: AtomicUsize = AtomicUsize::new(0);
static HOOK: Once = Once::new();

/// From now on what a panic says is kept.
pub(super) fn hold() {
    TERMINALS.fetch_add(1, Ordering::SeqCst);
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if TERMINALS.load(Ordering::SeqCst) == 0 {
                before(panic);
                return;
            }
            let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            if held.len() < MOST {
                held.push(panic.to_string());
            }
        }));
    });
}

/// The terminal is as it was. A panic that ends it is said now.
pub(super) fn release() {
    TERMINALS.fetch_sub(1, Ordering::SeqCst);
    if std::thread::panicking() {
        for panic in take() {
            // There is nothing left to say it to when this fails.
            let _said = writeln!(std::io::stderr(), "{panic}");
        }
    }
}

/// What panics said while the terminal was in raw mode, to be shown there or after it.
#[must_use]
pub fn take() -> Vec<String> {
    std::mem::take(&mut *HELD.lock().unwrap_or_else(PoisonError::into_inner))
}
