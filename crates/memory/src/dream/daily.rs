//! Pieces of the notes of a day.

use super::own::{MARK, is_dream_output};

/// Lines of a piece at most.
const LINES: usize = 4;
/// Characters of a piece.
const CHARACTERS: std::ops::RangeInclusive<usize> = 8..=LONGEST;
/// Characters of a piece at most; of a longer one the end is cut off.
pub(super) const LONGEST: usize = 280;
/// Headings that say nothing about what stands below them.
const GENERIC: [&str; 9] =
    ["notes", "log", "daily notes", "today", "misc", "summary", "todo", "memory", "entries"];

/// A piece of notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyPiece {
    /// Its first line, counted from 1.
    pub first: u32,
    /// Its last line.
    pub last: u32,
    /// Its text, in one line, with the heading that it stands below.
    pub text: String,
}

/// Whether a path is that of notes of a day: `memory/2026-11-27.md`, also with a name behind the date. Gives the date.
#[must_use]
pub fn note_day(path: &str) -> Option<jiff::civil::Date> {
    let name = path.strip_prefix("memory/")?.strip_suffix(".md")?;
    if name.contains('/') {
        return None;
    }
    let (date, rest) = name.split_at_checked(10)?;
    if !rest.is_empty() && !rest.starts_with('-') {
        return None;
    }
    date.parse().ok()
}

/// The pieces of notes, in their order. What a dream wrote, code and conflict marks are left out.
#[must_use]
pub fn daily_pieces(text: &str) -> Vec<DailyPiece> {
    let mut pieces = Vec::new();
    let mut heading = String::new();
    let mut group: Vec<(u32, &str)> = Vec::new();
    let mut fenced = false;
    let mut foreign = false;
    let lines = text.lines().chain(std::iter::once(""));
    for (line, number) in lines.zip(1_u32..) {
        let bare = line.trim();
        if bare.starts_with("```") || bare.starts_with("~~~") {
            fenced = !fenced;
        }
        if bare.starts_with("<!-- openclaw:dreaming:") {
            foreign = bare.contains(":start");
        }
        let is_mark = ["<<<<<<<", "=======", ">>>>>>>", "|||||||"].iter().any(|mark| bare.starts_with(mark));
        let is_text = !bare.is_empty()
            && !bare.starts_with('#')
            && !bare.starts_with("<!--")
            && !bare.starts_with("```")
            && !bare.starts_with("~~~")
            && !is_mark
            && !line.contains(MARK);
        if is_text && !fenced && !foreign {
            group.push((number, bare));
            if group.len() < LINES {
                continue;
            }
        }
        pieces.extend(piece(&heading, &group));
        group.clear();
        if bare.starts_with('#') && !fenced {
            heading = bare.trim_start_matches('#').trim().to_owned();
        }
    }
    pieces
}

/// Lines of a file as they are now, made into one text as a piece is, and the line of the heading that it names.
pub(super) fn piece_at(text: &str, first: u32, last: u32) -> Option<(DailyPiece, Option<u32>)> {
    let mut heading = (String::new(), None);
    let mut group = Vec::new();
    for (line, number) in text.lines().zip(1_u32..).take_while(|(_, number)| *number <= last) {
        let bare = line.trim();
        if bare.starts_with('#') {
            heading = (bare.trim_start_matches('#').trim().to_owned(), Some(number));
        } else if number >= first && !bare.is_empty() {
            group.push((number, bare));
        }
    }
    let piece = piece(&heading.0, &group)?;
    let named = heading.1.filter(|_| piece.text.starts_with(&heading.0) && !heading.0.is_empty());
    Some((piece, named))
}

fn piece(heading: &str, group: &[(u32, &str)]) -> Option<DailyPiece> {
    let (first, last) = (group.first()?.0, group.last()?.0);
    let is_item = |line: &str| line.starts_with(['-', '*', '+']);
    let all_items = group.iter().all(|(_, line)| is_item(line));
    let bare = |line: &str| line.trim_start_matches(['-', '*', '+', ' ']).trim().to_owned();
    let lines: Vec<String> =
        group.iter().map(|(_, line)| if is_item(line) { bare(line) } else { (*line).to_owned() }).collect();
    let body = lines.join(if all_items { "; " } else { " " });
    let says = !heading.is_empty() && !GENERIC.contains(&heading.to_lowercase().as_str());
    let mut text = if says { format!("{heading}: {body}") } else { body };
    if let Some((end, _)) = text.char_indices().nth(*CHARACTERS.end()) {
        text.truncate(end);
    }
    (text.chars().count() >= *CHARACTERS.start() && !is_dream_output(&text)).then_some(DailyPiece {
        first,
        last,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_cut_into_pieces() {
        let text = "# Notes\n\n- likes tabs\n- hates spaces\n\n## Deploys\nThe server is red.\nIt is old.\n```\ncode is none\n```\n\
                    one\n\n<<<<<<< ours\n- a line of ours\n=======\n- a line of theirs\n>>>>>>> theirs\n\
                    - promoted <!-- quipu:dream 0123 memory/a.md#L1 -->\n";
        let found: Vec<(u32, u32, String)> =
            daily_pieces(text).into_iter().map(|piece| (piece.first, piece.last, piece.text)).collect();
        assert_eq!(
            found,
            [
                (3, 4, "likes tabs; hates spaces".to_owned()),
                (7, 8, "Deploys: The server is red. It is old.".to_owned()),
                (12, 12, "Deploys: one".to_owned()),
                (15, 15, "Deploys: a line of ours".to_owned()),
                (17, 17, "Deploys: a line of theirs".to_owned()),
            ]
        );
        let long = "word ".repeat(200);
        assert_eq!(daily_pieces(&long)[0].text.chars().count(), 280);
        assert_eq!(daily_pieces("- a1\n- b2\n- c3\n- d4\n- eeeeeeeeeee").len(), 2);
    }

    #[test]
    fn names_with_a_date_alone_are_notes_of_a_day() {
        for path in ["memory/2026-11-27.md", "memory/2026-02-28-deploy.md"] {
            assert!(note_day(path).is_some(), "{path}");
        }
        for path in [
            "MEMORY.md",
            "memory/2026-02-30.md",
            "memory/2026-11-27x.md",
            "memory/a/2026-11-27.md",
            "memory/é.md",
        ] {
            assert!(note_day(path).is_none(), "{path}");
        }
    }
}
