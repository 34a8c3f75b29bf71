//! How big a terminal is, and what its live part shows.

use crate::Line;

/// How big a terminal is, in cells. Either may be 0 while a window is made; what draws takes 0 for 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// From left to right.
    pub columns: usize,
    /// From top to bottom.
    pub rows: usize,
}

impl Default for Size {
    /// What terminals began with, and what is taken where a terminal does not say.
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// The live part: what stands below the lines that were printed, and is drawn again when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// From top to bottom. A line wider than the screen takes as many rows as it needs. When all of it takes more rows
    /// than the screen has, the last ones are shown, or those around the cursor.
    pub lines: Vec<Line>,
    /// Where the cursor stands: an index into `lines`, and a column of that line. Hidden without.
    pub cursor: Option<(usize, usize)>,
}
