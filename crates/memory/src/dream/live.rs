//! Finding a recalled text again in the file as it is now.

use super::daily::{DailyPiece, piece_at};
use super::own::MARK;

/// How badly a text fits a place, how far the place is from where it stood, and how much longer or shorter it is.
type PlaceRank = (u8, usize, usize);

/// Lines of a file that are looked at.
const LINES: usize = 50_000;
/// Lines of a place to look at, beyond those that the text had.
const MORE: usize = 3;
/// Lines of such a place at least.
const LEAST: usize = 8;

/// The words of a line, with a space between them.
pub(super) fn bare(line: &str) -> String {
    let line = line.trim().trim_start_matches(['-', '*', '+', '#', ' ']);
    let words: Vec<String> = line
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join(" ")
}

/// How well lines fit a text: 3 the same, 2 they contain it, 1 they are most of it.
fn fit(lines: &str, text: &str) -> u8 {
    if lines.is_empty() {
        0
    } else if lines == text {
        3
    } else if format!(" {lines} ").contains(&format!(" {text} ")) {
        2
    } else if lines.len() * 2 > text.len() && format!(" {text} ").contains(&format!(" {lines} ")) {
        1
    } else {
        0
    }
}

/// The lines of a file that say a text now, as one piece, with the line of the heading that it names: where it stood, or the
/// best and nearest other place. What a dream wrote is no place.
#[must_use]
pub fn find_live(file: &str, first: u32, last: u32, text: &str) -> Option<(DailyPiece, Option<u32>)> {
    let mut inside = false;
    let lines: Vec<Option<String>> = file
        .lines()
        .take(LINES)
        .map(|line| {
            if line.trim_start().starts_with("<!-- openclaw:dreaming:") {
                inside = line.contains(":start");
                return None;
            }
            (!inside && !line.contains(MARK)).then(|| bare(line))
        })
        .collect();
    let text = bare(text);
    if text.is_empty() {
        return None;
    }
    let joined = |from: usize, to: usize| -> Option<String> {
        let parts: Option<Vec<&str>> = lines.get(from..to)?.iter().map(|line| line.as_deref()).collect();
        Some(parts?.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
    };
    let number = |line: usize| u32::try_from(line).unwrap_or(u32::MAX);
    let index = |line: u32| usize::try_from(line).unwrap_or(usize::MAX);
    let (from, to) = (index(first.saturating_sub(1)), index(last));
    // Where it stood.
    if let Some(found) = joined(from, to)
        && fit(&found, &text) > 0
    {
        return piece_at(file, first, last);
    }
    let span = to.saturating_sub(from);
    let longest = (span + MORE).max(LEAST);
    let mut best: Option<(PlaceRank, (usize, usize))> = None;
    let first_word = text.split(' ').next().unwrap_or_default();
    for start in 0..lines.len() {
        // A place begins with a line that is in the text, or contains its beginning.
        let begins = lines[start].as_deref().is_some_and(|line| {
            !line.is_empty() && (text.contains(line) || line.split(' ').any(|word| word == first_word))
        });
        if !begins {
            continue;
        }
        for length in 1..=longest.min(lines.len() - start) {
            let Some(found) = joined(start, start + length) else { break };
            let fits = fit(&found, &text);
            if fits == 0 {
                continue;
            }
            // The better fit, then the nearer place, then the closer length.
            let rank = (3 - fits, start.abs_diff(from), length.abs_diff(span));
            if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                best = Some((rank, (start, start + length)));
            }
        }
    }
    let (_, (start, end)) = best?;
    piece_at(file, number(start + 1), number(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, first: u32, last: u32, text: &str, expected: Option<(u32, u32, &str)>) {
        let found = find_live(file, first, last, text);
        let found = found.as_ref().map(|(piece, _)| (piece.first, piece.last, piece.text.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn text_is_found_where_it_stands_now() {
        let file = "# Day\n\n- likes tabs\n- hates spaces\n";
        check(file, 3, 4, "likes tabs; hates spaces", Some((3, 4, "Day: likes tabs; hates spaces")));
        // Lines came before it.
        let moved = format!("# New\n\n- other things here\n\n{file}");
        check(&moved, 3, 4, "likes tabs; hates spaces", Some((7, 8, "Day: likes tabs; hates spaces")));
        // It was edited: what is there now counts, or nothing.
        check(
            "- likes tabs and more of them\n",
            1,
            1,
            "likes tabs and more",
            Some((1, 1, "likes tabs and more of them")),
        );
        check("- something else entirely\n", 1, 1, "likes tabs", None);
        check("", 1, 1, "likes tabs", None);
    }

    #[test]
    fn dream_output_is_no_place() {
        check("- likes tabs <!-- quipu:dream 01 memory/a.md#L1 -->\n", 1, 1, "likes tabs", None);
        let fenced =
            "<!-- openclaw:dreaming:light:start -->\n- likes tabs\n<!-- openclaw:dreaming:light:end -->\n";
        check(fenced, 2, 2, "likes tabs", None);
    }
}
