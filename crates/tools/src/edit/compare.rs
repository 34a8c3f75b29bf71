//! Two texts compared line by line.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

/// After so long a coarser answer will do.
const PATIENCE: Duration = Duration::from_millis(500);

/// The lines of two texts, with their ends, and what became of them.
pub(crate) struct Lines<'a> {
    pub(crate) old: Vec<&'a str>,
    pub(crate) new: Vec<&'a str>,
    pub(crate) ops: Vec<DiffOp>,
}

/// Compares two texts with LF line ends. Numbers are compared in place of lines: that is quicker, and the library's code
/// is compiled for one type and one algorithm (its comparison of texts, with all of them, would be 4 % of the program).
pub(crate) fn lines<'a>(old: &'a str, new: &'a str) -> Lines<'a> {
    let split = |text: &'a str| text.split_inclusive('\n').collect::<Vec<_>>();
    let (old, new) = (split(old), split(new));
    let mut known = HashMap::with_capacity(old.len());
    let mut number = |line: &&'a str| {
        let next = known.len();
        *known.entry(*line).or_insert(next)
    };
    let a: Vec<usize> = old.iter().map(&mut number).collect();
    let b: Vec<usize> = new.iter().map(&mut number).collect();
    let mut found = Compact::new(Replace::new(Capture::new()), a.as_slice(), b.as_slice());
    let deadline = Some(Instant::now() + PATIENCE);
    let Ok(()) =
        myers::diff_deadline(&mut found, a.as_slice(), 0..a.len(), b.as_slice(), 0..b.len(), deadline);
    let ops = found.into_inner().into_inner().into_ops();
    Lines { old, new, ops }
}
