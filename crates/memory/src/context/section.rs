//! A file as a section of the system prompt: what is shown of it, and what is said of the rest.

use crate::files::{FileName, FileProblem};
use crate::{Citation, MemoryKind, MemoryPlace};

/// Characters of one line at most.
const LINE: usize = 1_000;
/// Lines that are cut and named.
const NAMED: usize = 5;

/// Which part of a file is left out where it is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutSide {
    /// The newest lines of a note are at its end.
    Beginning,
    End,
}

/// What is shown of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileExcerpt {
    text: String,
    /// What is said of what is not shown.
    notes: Vec<String>,
    pub(super) characters: usize,
}

impl FileExcerpt {
    /// A file that cannot be used says why.
    pub(super) fn unusable(problem: &FileProblem) -> Self {
        Self { notes: vec![format!("not shown: {problem}")], ..Self::default() }
    }

    /// `None` where there is nothing to show or to say. `path` is how `memory_get` knows the file.
    pub(super) fn of(
        path: &str,
        text: &str,
        is_trusted: impl Fn(u32) -> bool,
        most: usize,
        cut: CutSide,
    ) -> Option<Self> {
        let lines = text.lines().zip(1_u32..);
        let mut unaccepted = 0_usize;
        let mut kept: Vec<(u32, String)> = Vec::new();
        for (line, number) in lines {
            match is_trusted(number) || line.trim().is_empty() {
                true => kept.push((number, visible(line))),
                false => unaccepted += 1,
            }
        }
        let is_blank = kept.iter().all(|(_, line)| line.trim().is_empty());
        if is_blank && unaccepted == 0 {
            return None;
        }
        let (count, ends) =
            (kept.len(), kept.first().zip(kept.last()).map(|(first, last)| (first.0, last.0)));
        let length = |line: &str| line.chars().count() + 1;
        let is_whole = kept.iter().map(|(_, line)| length(line)).sum::<usize>() <= most;
        if cut == CutSide::Beginning {
            kept.reverse();
        }
        let mut characters = 0;
        let mut shortened = Vec::new();
        let mut shown = 0;
        for (number, line) in &mut kept {
            // One long line leaves room for others.
            let is_long = !is_whole && line.chars().count() > LINE;
            if is_long {
                *line = line.chars().take(LINE).collect::<String>() + "\u{2026}";
            }
            characters += length(line);
            if characters > most {
                break;
            }
            shortened.extend(is_long.then_some(*number));
            shown += 1;
        }
        kept.truncate(shown);
        if cut == CutSide::Beginning {
            kept.reverse();
        }
        let mut notes = Vec::new();
        if !shortened.is_empty() {
            shortened.sort_unstable();
            let places: Vec<String> =
                shortened.iter().take(NAMED).map(|line| cited(path, *line, *line)).collect();
            let more = if shortened.len() > NAMED { ", \u{2026}" } else { "" };
            notes.push(format!(
                "{} lines are cut at {LINE} characters; memory_get reads {}{more}",
                shortened.len(),
                places.join(", ")
            ));
        }
        if let Some((first, last)) = ends.filter(|_| shown < count) {
            let place = match (cut, kept.first(), kept.last()) {
                (CutSide::Beginning, Some((shown, _)), _) => cited(path, first, shown - 1),
                (CutSide::End, _, Some((shown, _))) => cited(path, shown + 1, last),
                (_, _, _) => cited(path, first, last),
            };
            notes.push(format!("{} of {count} lines are left out; memory_get reads {place}", count - shown));
        }
        if unaccepted > 0 {
            notes.push(format!("{unaccepted} lines that nobody has accepted are left out"));
        }
        let text: String = kept.into_iter().map(|(_, line)| line + "\n").collect();
        let characters = text.chars().count();
        Some(Self { text, notes, characters })
    }
}

fn cited(path: &str, first: u32, last: u32) -> String {
    Citation { path: path.to_owned(), lines: first..=last }.to_string()
}

/// The section: where the text is from, the text, and what is missing of it.
pub(super) fn framed(place: &MemoryPlace, name: &FileName, shown: &FileExcerpt) -> String {
    let whose = match place.kind {
        MemoryKind::User => "the user's memory for every project",
        MemoryKind::Project | MemoryKind::Workspace => "the memory of this project",
        MemoryKind::Repository => "notes that lie in this repository",
    };
    let mut text = format!("Notes from earlier sessions, quoted from {name} ({whose}).\n");
    if !shown.text.is_empty() {
        text.push('\n');
        text.push_str(&shown.text);
    }
    for note in &shown.notes {
        text.push_str(&format!("\n[{note}]"));
    }
    text
}

/// A text in which characters that a person does not see are shown by their numbers.
#[must_use]
pub fn visible(text: &str) -> String {
    if !text.chars().any(quipu_tools::is_invisible) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match quipu_tools::is_invisible(c) {
            true => shown.push_str(&format!("\u{27e8}U+{:04X}\u{27e9}", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown
}
