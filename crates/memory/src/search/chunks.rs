//! Notes in pieces: a few lines of one paragraph or list, each with the headings that it stands below.

use std::ops::RangeInclusive;

/// Lines of a chunk at most.
const LINES: usize = 4;
/// Bytes of a chunk, about: a longer line is a chunk of its own.
const BYTES: usize = 400;
/// Bytes of one line that are taken at most in one chunk.
const LONGEST: usize = 4_000;
/// Chunks of one file at most.
const MOST: usize = 5_000;
/// Bytes of all headings above a chunk.
const HEADINGS: usize = 200;

/// Lines of a note that are found together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The lines, from 1.
    pub(crate) lines: RangeInclusive<u32>,
    /// What is indexed: the headings above, then the lines.
    pub(crate) text: String,
}

/// The chunks of a note, in order.
pub(crate) fn chunks(text: &str) -> Vec<Chunk> {
    let (mut found, mut headings): (Vec<Chunk>, Vec<(usize, &str)>) = (Vec::new(), Vec::new());
    let mut open: Option<(u32, u32, String)> = None;
    let mut number = 0_u32;
    let mut close = |open: &mut Option<(u32, u32, String)>, headings: &[(usize, &str)]| {
        if let Some((first, last, lines)) = open.take()
            && found.len() < MOST
        {
            let mut text = String::new();
            for (_, heading) in headings {
                if text.len() + heading.len() <= HEADINGS {
                    text.push_str(heading);
                    text.push('\n');
                }
            }
            text.push_str(&lines);
            found.push(Chunk { lines: first..=last, text });
        }
    };
    for line in text.lines() {
        number = number.saturating_add(1);
        let trimmed = line.trim();
        if trimmed.is_empty() {
            close(&mut open, &headings);
            continue;
        }
        let depth = trimmed.bytes().take_while(|byte| *byte == b'#').count();
        if (1..=6).contains(&depth) && trimmed[depth..].starts_with(' ') {
            close(&mut open, &headings);
            headings.retain(|(above, _)| *above < depth);
            // A heading alone is found too.
            open = Some((number, number, trimmed[depth..].trim().to_owned()));
            close(&mut open, &headings);
            headings.push((depth, trimmed[depth..].trim()));
            continue;
        }
        for piece in pieces(trimmed) {
            let is_full = open.as_ref().is_some_and(|(first, last, lines)| {
                lines.len() + piece.len() > BYTES || (last - first) as usize + 1 >= LINES
            });
            if is_full {
                close(&mut open, &headings);
            }
            match &mut open {
                Some((_, last, lines)) => {
                    *last = number;
                    lines.push('\n');
                    lines.push_str(piece);
                }
                None => open = Some((number, number, piece.to_owned())),
            }
        }
    }
    close(&mut open, &headings);
    found
}

/// A line in pieces that are not too long.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, left) = rest.split_at(rest.floor_char_boundary(LONGEST));
        rest = left;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_the_lines_and_the_headings_above() {
        let text = "# Tools\n\n- rg is slow\n- fd is fast\n\n## Builds\nUse make.\n";
        let found: Vec<(u32, u32, String)> = chunks(text)
            .into_iter()
            .map(|chunk| (*chunk.lines.start(), *chunk.lines.end(), chunk.text))
            .collect();
        let expected = [
            (1, 1, "Tools"),
            (3, 4, "Tools\n- rg is slow\n- fd is fast"),
            (6, 6, "Tools\nBuilds"),
            (7, 7, "Tools\nBuilds\nUse make."),
        ];
        assert_eq!(found, expected.map(|(first, last, text)| (first, last, text.to_owned())));
    }

    #[test]
    fn long_lines_and_long_lists_are_cut() {
        let line = "x".repeat(10_000);
        let found = chunks(&line);
        assert_eq!(found.iter().map(|chunk| chunk.text.len()).collect::<Vec<_>>(), [4_000, 4_000, 2_000]);
        assert!(found.iter().all(|chunk| chunk.lines == (1..=1)));
        let list: String = (0..10).map(|n| format!("- item {n}\n")).collect();
        let lines: Vec<_> = chunks(&list).into_iter().map(|chunk| chunk.lines).collect();
        assert_eq!(lines, [1..=4, 5..=8, 9..=10]);
        assert_eq!(chunks(" \n\n"), []);
    }
}
