//! Where a line of a memory stands, as people and models write it: `memory/2026-11-27.md#L3-L5`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Lines of a file of a memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Citation {
    /// The file, relative to the directory of the memory, with `/` between its parts.
    pub path: String,
    /// The lines, counted from 1.
    pub lines: RangeInclusive<u32>,
}

/// Text that is no citation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no lines of a file: write PATH#L3 or PATH#L3-L5")]
pub struct CitationError(String);

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.lines.start(), self.lines.end());
        if first == last {
            write!(f, "{}#L{first}", self.path)
        } else {
            write!(f, "{}#L{first}-L{last}", self.path)
        }
    }
}

impl FromStr for Citation {
    type Err = CitationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || CitationError(text.chars().take(120).collect());
        let (path, lines) = text.rsplit_once("#L").ok_or_else(wrong)?;
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|number| *number > 0);
        let (first, last) = match lines.split_once("-L") {
            Some((first, last)) => (number(first), number(last)),
            None => (number(lines), number(lines)),
        };
        match (first, last) {
            (Some(first), Some(last)) if first <= last && !path.is_empty() => {
                Ok(Self { path: path.to_owned(), lines: first..=last })
            }
            _ => Err(wrong()),
        }
    }
}
