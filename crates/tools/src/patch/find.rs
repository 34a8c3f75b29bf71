//! Where the changes of a patch belong in a file, and the file with them.

use quipu_workspace::FileError;
use tokio_util::sync::CancellationToken;

use super::parse::{Hunk, HunkLine};
use crate::edit::{Piece, View, loose, splice};

/// Characters of a line that a message shows.
const SHOWN: usize = 120;

/// The bytes of the file with all changes made. Lines that no change names keep their bytes.
///
/// The lines of a change are looked for behind those of the one before it: as they are, then without white space at their
/// ends, then without any around them, last with quotes, dashes and spaces that look alike as one.
///
/// # Errors
/// The text for the model: which lines were not found.
pub(super) fn apply(
    bytes: &[u8],
    hunks: &[Hunk],
    path: &str,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, String> {
    let view = View::new(bytes);
    let file = Lines::of(&view.text);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut from = 0;
    for hunk in hunks {
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled.to_string());
        }
        for anchor in &hunk.anchors {
            let found = file.find(&[anchor], from..file.lines.len());
            let at = found.ok_or_else(|| {
                format!("Could not find the line {} in {path}{}.", shown(anchor), behind(from))
            })?;
            from = at + 1;
        }
        let place = file.place(hunk, from).ok_or_else(|| missing(hunk, path, from))?;
        from = file.changes(hunk, place, &mut pieces);
    }
    Ok(splice(&view, &pieces))
}

fn missing(hunk: &Hunk, path: &str, from: usize) -> String {
    let lines: Vec<&str> = hunk.old().collect();
    let first =
        lines.iter().find(|line| !line.trim().is_empty()).or(lines.first()).copied().unwrap_or_default();
    let where_to = if hunk.is_at_end { " at the end of the file".to_owned() } else { behind(from) };
    let count = lines.len();
    format!(
        "Could not find the {count} lines of a change, from {}, in {path}{where_to}. Read the file and send lines that it has.",
        shown(first)
    )
}

fn behind(from: usize) -> String {
    if from == 0 { String::new() } else { format!(" below line {from}") }
}

fn shown(line: &str) -> String {
    let cut: String = line.chars().take(SHOWN).collect();
    format!("{cut:?}")
}

/// The lines of a text, without their ends.
struct Lines<'a> {
    text: &'a str,
    lines: Vec<&'a str>,
    /// Where each begins, and where the text ends.
    starts: Vec<usize>,
    /// The last line has an end.
    is_ended: bool,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let (mut lines, mut starts, mut at) = (Vec::new(), Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            starts.push(at);
            at += line.len();
            lines.push(line.strip_suffix('\n').unwrap_or(line));
        }
        starts.push(at);
        Self { text, lines, starts, is_ended: text.is_empty() || text.ends_with('\n') }
    }

    /// The first place within `range` where these lines stand.
    fn find(&self, wanted: &[impl AsRef<str>], range: std::ops::Range<usize>) -> Option<usize> {
        let last = range.end.checked_sub(wanted.len())?;
        let search = |same: &dyn Fn(&str, &str) -> bool| {
            (range.start..=last).find(|at| {
                wanted.iter().zip(&self.lines[*at..]).all(|(wanted, line)| same(wanted.as_ref(), line))
            })
        };
        search(&|a, b| a == b)
            .or_else(|| search(&|a, b| a.trim_end() == b.trim_end()))
            .or_else(|| search(&|a, b| a.trim() == b.trim()))
            .or_else(|| {
                let wanted: Vec<String> = wanted.iter().map(|line| loose(line.as_ref().trim())).collect();
                let begins = wanted.first()?;
                (range.start..=last).find(|at| {
                    let lines = &self.lines[*at..];
                    loose(lines[0].trim()) == *begins
                        && wanted.iter().zip(lines).all(|(wanted, line)| *wanted == loose(line.trim()))
                })
            })
    }

    /// The line that a change begins at, and how many of its old lines the file has.
    fn place(&self, hunk: &Hunk, from: usize) -> Option<(usize, usize)> {
        let old: Vec<&str> = hunk.old().collect();
        let count = self.lines.len();
        if old.is_empty() {
            let at = if hunk.anchors.is_empty() || hunk.is_at_end { count } else { from };
            return Some((at, 0));
        }
        let search = |old: &[&str]| {
            let start = if hunk.is_at_end { count.checked_sub(old.len())?.max(from) } else { from };
            self.find(old, start..count)
        };
        search(&old).map(|at| (at, old.len())).or_else(|| {
            // An empty line at the end of a change is often that of the patch.
            let (last, rest) = old.split_last()?;
            if !last.is_empty() || rest.is_empty() {
                return None;
            }
            search(rest).map(|at| (at, rest.len()))
        })
    }

    /// Adds what the change replaces. The line behind it.
    fn changes(&self, hunk: &Hunk, (place, found): (usize, usize), pieces: &mut Vec<Piece>) -> usize {
        let mut at = place;
        let end = place + found;
        let mut lines = hunk.lines.iter().peekable();
        while lines.peek().is_some() {
            while lines.next_if(|line| matches!(line, HunkLine::Same(_))).is_some() {
                at = (at + 1).min(end);
            }
            let begin = at;
            let mut added: Vec<&str> = Vec::new();
            while let Some(line) = lines.next_if(|line| !matches!(line, HunkLine::Same(_))) {
                match line {
                    HunkLine::Added(text) => added.push(text),
                    HunkLine::Removed(_) | HunkLine::Same(_) => at = (at + 1).min(end),
                }
            }
            if begin < at || !added.is_empty() {
                pieces.push(self.piece(begin..at, &added));
            }
        }
        end
    }

    /// These lines in place of others. A file whose last line has no end keeps it that way.
    fn piece(&self, range: std::ops::Range<usize>, added: &[&str]) -> Piece {
        let (mut start, mut end) = (self.starts[range.start], self.starts[range.end]);
        let mut text = added.join("\n");
        if range.end < self.lines.len() || self.is_ended {
            if !added.is_empty() {
                text.push('\n');
            }
        } else if range.is_empty() {
            text.insert(0, '\n');
        } else if added.is_empty() && start > 0 {
            start -= 1;
        }
        end = end.min(self.text.len()).max(start);
        Piece { part: start..end, text }
    }
}
