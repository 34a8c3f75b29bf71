//! `MEMORY.md`: what stands in it, and what a dream adds.

use std::collections::BTreeSet;

use super::line_class::LineClass;
use super::own::{MarkedLine, marked_line, write_line};

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
    /// The mark of a dream that stands with it. Anybody can write one: whose the line is, its author says.
    pub mark: Option<MarkedLine>,
}

/// Whose the lines of the file are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastingOwners {
    /// Lines that a dream wrote: it may change and drop them.
    own: BTreeSet<u32>,
    /// Lines that nobody accepted: no model reads them.
    unaccepted: BTreeSet<u32>,
}

impl LastingOwners {
    /// Of the classes of the lines of a text. Where there are fewer classes than lines, the rest is nobody's.
    #[must_use]
    pub fn of(text: &str, classes: &[LineClass]) -> Self {
        let mut owners = Self::default();
        let mut classes = classes.iter();
        for (line, number) in text.lines().zip(1_u32..) {
            match classes.next() {
                Some(found) if found.class.is_promotable() => {
                    if found.is_dream && marked_line(line).is_some() {
                        owners.own.insert(number);
                    }
                }
                Some(_) | None => {
                    owners.unaccepted.insert(number);
                }
            }
        }
        owners
    }

    /// Whether a dream wrote the line.
    #[must_use]
    pub fn is_own(&self, line: u32) -> bool {
        self.own.contains(&line)
    }

    /// Whether somebody who is trusted wrote the line.
    #[must_use]
    pub fn is_accepted(&self, line: u32) -> bool {
        !self.unaccepted.contains(&line)
    }

    /// Whether a dream put a line of this name into the text.
    #[must_use]
    pub fn has_line(&self, text: &str, id: &str) -> bool {
        text.lines()
            .zip(1_u32..)
            .filter(|(_, number)| self.is_own(*number))
            .filter_map(|(line, _)| marked_line(line))
            .any(|mark| mark.id == id)
    }
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

/// The file with lines at its end, below a heading with the date. Where that is more than `limit` characters, the oldest
/// lines that dreams wrote go, at most a quarter of all items; then fewer lines are added. Gives the file and which of the
/// lines are in it.
///
/// # Errors
/// `Conflict`, and `Full` where not one line fits.
pub fn append_lines(
    old: &str,
    owners: &LastingOwners,
    lines: &[NewLine],
    date: &str,
    limit: usize,
) -> Result<(String, Vec<usize>), LastingFault> {
    check_lasting(old)?;
    let (mut present, new): (Vec<usize>, Vec<usize>) =
        (0..lines.len()).partition(|at| owners.has_line(old, &lines[*at].id));
    if new.is_empty() {
        return Ok((old.to_owned(), present));
    }
    for count in (1..=new.len()).rev() {
        let added: Vec<&NewLine> = new[..count].iter().map(|at| &lines[*at]).collect();
        let section = section(old, &added, date);
        let Some(kept) = with_room(old, owners, section.chars().count(), limit) else { continue };
        present.extend(&new[..count]);
        present.sort_unstable();
        return Ok((format!("{kept}{section}"), present));
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
fn with_room(old: &str, owners: &LastingOwners, added: usize, limit: usize) -> Option<String> {
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
        } else if !section.is_empty() && owners.is_own(number) {
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

    /// As if dreams wrote every line with a mark, and a person the others.
    fn owners(text: &str) -> LastingOwners {
        let class = |line: &str| LineClass {
            class: crate::AuthorClass::Owner,
            node: None,
            is_dream: line.contains(super::super::own::MARK),
        };
        LastingOwners::of(text, &text.lines().map(class).collect::<Vec<_>>())
    }

    fn append(
        text: &str,
        lines: &[NewLine],
        date: &str,
        limit: usize,
    ) -> Result<(String, usize), LastingFault> {
        append_lines(text, &owners(text), lines, date, limit).map(|(text, lines)| (text, lines.len()))
    }

    #[test]
    fn forged_marks_are_nobodys() {
        let forged = write_line("red", &super::super::own::claim_hash("red"), &[]);
        let text = format!("## Promoted from notes (2026-11-01)\n\n{forged}\n- mine\n- mine 2\n- mine 3\n");
        let class = |class, is_dream| LineClass { class, node: None, is_dream };
        let classes = [class(crate::AuthorClass::Owner, false); 6];
        let of_person = LastingOwners::of(&text, &classes);
        let (new, at) = append_lines(&text, &of_person, &[line("red")], "2026-11-27", 10_000).unwrap();
        assert_eq!((new.matches("- red ").count(), at), (2, vec![0]), "it is not taken for promoted");
        let full = append_lines(&text, &of_person, &[line("x")], "2026-11-27", text.chars().count() + 50);
        assert!(matches!(full, Err(LastingFault::Full { .. })), "what a person corrected is not dropped");
        let few = LastingOwners::of(&text, &[class(crate::AuthorClass::Untrusted, true)]);
        assert!((1..=6).all(|line| !few.is_own(line) && !few.is_accepted(line)));
    }

    #[test]
    fn lines_are_appended_once() {
        let (first, count) = append("", &[line("tabs"), line("red")], "2026-11-27", 10_000).unwrap();
        assert_eq!(count, 2);
        assert!(first.starts_with(
            "# Long-Term Memory\n\n## Promoted from notes (2026-11-27)\n\n- tabs <!-- quipu:dream "
        ));
        assert!(!first.contains("score"));
        assert_eq!(append(&first, &[line("red")], "2026-11-28", 10_000).unwrap(), (first.clone(), 1));
        let own = "# Mine\n- my own line";
        let (text, _) = append(own, &[line("tabs")], "2026-11-27", 10_000).unwrap();
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
            (text, _) = append(&text, &lines, &format!("2026-11-0{day}"), 10_000).unwrap();
        }
        let limit = text.chars().count();
        let (new, count) = append(&text, &[line("fact number 7")], "2026-11-07", limit).unwrap();
        assert_eq!(count, 1);
        assert!(new.chars().count() <= limit);
        assert!(!new.contains("fact number 1 ") && !new.contains("(2026-11-01)"), "the oldest goes");
        assert!(new.contains("- mine 1\n- mine 2\n") && new.contains("fact number 2"));
        // Never more than a quarter of all, and never what a person wrote.
        let long = line(&"long ".repeat(80));
        assert_eq!(
            append(&text, &[long], "2026-11-07", limit),
            Err(LastingFault::Full { characters: limit, limit })
        );
        let own = "- mine\n".repeat(100);
        assert!(matches!(append(&own, &[line("x")], "2026-11-07", 500), Err(LastingFault::Full { .. })));
    }

    #[test]
    fn conflict_marks_stop_a_dream() {
        let text = "# Mine\n<<<<<<< ours\n- a\n=======\n- b\n>>>>>>> theirs\n";
        let found = append(text, &[line("x")], "2026-11-27", 10_000);
        assert_eq!(found, Err(LastingFault::Conflict { line: 2 }));
    }
}
