//! `MEMORY.md`: what stands in it, and what a dream adds.

use super::own::{MARK, MarkedLine, marked_line, write_line};

/// How the heading of what a dream appends begins; the date follows in brackets.
const HEADING: &str = "## Promoted from notes (";
/// The first line of a file that a dream begins.
const TITLE: &str = "# Long-Term Memory\n";

/// An item of a list of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastingEntry {
    /// Its line, counted from 1.
    pub line: u32,
    /// Its text, without bullet and mark.
    pub text: String,
    /// What a dream wrote with it; `None` for what a person or a model wrote. No dream changes these.
    pub mark: Option<MarkedLine>,
}

/// A line that is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLine {
    /// Its text: one line.
    pub text: String,
    /// Its name.
    pub id: String,
    /// Where it came from.
    pub sources: Vec<String>,
}

/// Why nothing can be written to the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LastingFault {
    /// Two copies were merged, and nobody has put them right.
    #[error(
        "MEMORY.md has conflict marks of a merge in line {line}; resolve them, and the next dream promotes"
    )]
    Conflict {
        /// The line of the first mark.
        line: u32,
    },
    /// There is no room.
    #[error(
        "MEMORY.md has {characters} of {limit} characters, and what a dream may drop makes too little room; shorten it"
    )]
    Full {
        /// Characters of the file.
        characters: usize,
        /// How many it may have.
        limit: usize,
    },
}

/// Items of lists at the beginning of a line.
#[must_use]
pub fn lasting_entries(text: &str) -> Vec<LastingEntry> {
    let mut fenced = false;
    let mut entries = Vec::new();
    for (line, number) in text.lines().zip(1_u32..) {
        fenced ^= line.trim_start().starts_with("```");
        let Some(item) = ["- ", "* ", "+ "].iter().find_map(|bullet| line.strip_prefix(bullet)) else {
            continue;
        };
        if fenced || item.trim().is_empty() {
            continue;
        }
        let mark = marked_line(line);
        let text = mark.as_ref().map_or_else(|| item.trim().to_owned(), |mark| mark.text.clone());
        entries.push(LastingEntry { line: number, text, mark });
    }
    entries
}

/// Whether the file can be written to at all.
///
/// # Errors
/// `Conflict`.
pub fn check_lasting(text: &str) -> Result<(), LastingFault> {
    let begins = |line: &str| ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|mark| line.starts_with(mark));
    match text.lines().zip(1_u32..).find(|(line, _)| begins(line)) {
        Some((_, line)) => Err(LastingFault::Conflict { line }),
        None => Ok(()),
    }
}

/// Whether a line of this name stands in the file.
#[must_use]
pub fn has_line(text: &str, id: &str) -> bool {
    text.lines().filter_map(marked_line).any(|mark| mark.id == id)
}

/// The file with lines at its end, below a heading with the date. Where that is more than `limit` characters, the oldest
/// lines that dreams wrote go, at most a quarter of all items; then fewer lines are added. Gives the file and how many of the
/// lines are in it.
///
/// # Errors
/// `Conflict`, and `Full` where not one line fits.
pub fn append_lines(
    old: &str,
    lines: &[NewLine],
    date: &str,
    limit: usize,
) -> Result<(String, usize), LastingFault> {
    check_lasting(old)?;
    let new: Vec<&NewLine> = lines.iter().filter(|line| !has_line(old, &line.id)).collect();
    if new.is_empty() {
        return Ok((old.to_owned(), lines.len()));
    }
    let present = lines.len() - new.len();
    for count in (1..=new.len()).rev() {
        let section = section(old, &new[..count], date);
        let added = section.chars().count();
        let Some(kept) = with_room(old, added, limit) else { continue };
        return Ok((format!("{kept}{section}"), present + count));
    }
    Err(LastingFault::Full { characters: old.chars().count(), limit })
}

fn section(old: &str, lines: &[&NewLine], date: &str) -> String {
    let mut section = String::new();
    if old.trim().is_empty() {
        section.push_str(TITLE);
    } else if !old.ends_with('\n') {
        section.push('\n');
    }
    section.push_str(&format!("\n{HEADING}{date})\n\n"));
    for line in lines {
        section.push_str(&write_line(&line.text, &line.id, &line.sources));
        section.push('\n');
    }
    section
}

/// The file without so many of the oldest lines of dreams that `added` more characters fit.
fn with_room(old: &str, added: usize, limit: usize) -> Option<String> {
    let size = old.chars().count();
    if size + added <= limit {
        return Some(old.to_owned());
    }
    let entries = lasting_entries(old);
    let most = entries.len() / 4;
    let mut section = String::new();
    let mut dated: Vec<(String, u32)> = Vec::new();
    for (line, number) in old.lines().zip(1_u32..) {
        if line.starts_with('#') {
            section = line.strip_prefix(HEADING).map_or_else(String::new, ToOwned::to_owned);
        } else if !section.is_empty() && line.contains(MARK) {
            dated.push((section.clone(), number));
        }
    }
    dated.sort();
    let mut dropped = Vec::new();
    for (_, number) in dated.into_iter().take(most) {
        dropped.push(number);
        let kept = without(old, &dropped);
        if kept.chars().count() + added <= limit {
            return Some(kept);
        }
    }
    None
}

/// The file without these lines, and without headings of dreams that have nothing below them then.
fn without(old: &str, dropped: &[u32]) -> String {
    let kept: Vec<&str> = old
        .split_inclusive('\n')
        .zip(1_u32..)
        .filter(|(_, number)| !dropped.contains(number))
        .map(|(line, _)| line)
        .collect();
    let mut text = String::new();
    let mut skips = false;
    for (at, line) in kept.iter().enumerate() {
        let rest = kept.get(at + 1..).unwrap_or_default();
        let is_empty = line.starts_with(HEADING)
            && rest.iter().take_while(|line| !line.starts_with('#')).all(|line| line.trim().is_empty());
        if is_empty {
            // With the empty lines around it.
            if text.ends_with("\n\n") {
                text.pop();
            }
            skips = true;
        } else if !(std::mem::take(&mut skips) && line.trim().is_empty()) {
            text.push_str(line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> NewLine {
        NewLine {
            text: text.to_owned(),
            id: super::super::own::claim_hash(text),
            sources: vec!["memory/2026-11-20.md#L3".to_owned()],
        }
    }

    #[test]
    fn lines_are_appended_once() {
        let (first, count) = append_lines("", &[line("tabs"), line("red")], "2026-11-27", 10_000).unwrap();
        assert_eq!(count, 2);
        assert!(first.starts_with(
            "# Long-Term Memory\n\n## Promoted from notes (2026-11-27)\n\n- tabs <!-- quipu:dream "
        ));
        assert!(!first.contains("score"));
        assert_eq!(append_lines(&first, &[line("red")], "2026-11-28", 10_000).unwrap(), (first.clone(), 1));
        let own = "# Mine\n- my own line";
        let (text, _) = append_lines(own, &[line("tabs")], "2026-11-27", 10_000).unwrap();
        assert!(text.starts_with("# Mine\n- my own line\n\n## Promoted"));
        let entries = lasting_entries(&text);
        assert_eq!(entries.len(), 2);
        assert!(entries[0].mark.is_none() && entries[1].mark.is_some());
    }

    #[test]
    fn oldest_lines_of_dreams_make_room() {
        let mut text = String::from("# Mine\n\n- mine 1\n- mine 2\n");
        for day in 1..=6 {
            let lines = [line(&format!("fact number {day}"))];
            (text, _) = append_lines(&text, &lines, &format!("2026-11-0{day}"), 10_000).unwrap();
        }
        let limit = text.chars().count();
        let (new, count) = append_lines(&text, &[line("fact number 7")], "2026-11-07", limit).unwrap();
        assert_eq!(count, 1);
        assert!(new.chars().count() <= limit);
        assert!(!new.contains("fact number 1 ") && !new.contains("(2026-11-01)"), "the oldest goes");
        assert!(new.contains("- mine 1\n- mine 2\n") && new.contains("fact number 2"));
        // Never more than a quarter of all, and never what a person wrote.
        let long = line(&"long ".repeat(80));
        assert_eq!(
            append_lines(&text, &[long], "2026-11-07", limit),
            Err(LastingFault::Full { characters: limit, limit })
        );
        let own = "- mine\n".repeat(100);
        assert!(matches!(
            append_lines(&own, &[line("x")], "2026-11-07", 500),
            Err(LastingFault::Full { .. })
        ));
    }

    #[test]
    fn conflict_marks_stop_a_dream() {
        let text = "# Mine\n<<<<<<< ours\n- a\n=======\n- b\n>>>>>>> theirs\n";
        let found = append_lines(text, &[line("x")], "2026-11-27", 10_000);
        assert_eq!(found, Err(LastingFault::Conflict { line: 2 }));
    }
}
