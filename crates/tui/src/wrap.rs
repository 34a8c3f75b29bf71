//! Lines broken between words.

use crate::{Line, Span, Style};
use unicode_segmentation::UnicodeSegmentation as _;

/// A cluster of a line, with what breaking needs to know.
struct Piece<'line> {
    text: &'line str,
    /// The span that it is of, and where it begins there.
    span: usize,
    from: usize,
    width: usize,
}

impl Piece<'_> {
    fn is_space(&self) -> bool {
        self.text == " "
    }
}

/// Breaks a line that is wider than `columns` between words; every line after the first begins with `indent` spaces.
///
/// Breaks are after spaces (which are dropped there), after hyphens and slashes within words, and beside wide
/// characters; a word wider than the room is broken where the room ends. Spaces at the beginning of the line stay.
/// An indent that leaves less than half of the room is not made. No line is wider than `columns`, unless a single
/// character is.
#[must_use]
pub fn wrap(line: &Line, columns: usize, indent: usize) -> Vec<Line> {
    let columns = columns.max(1);
    if line.width() <= columns {
        return vec![line.clone()];
    }
    // A wide character has to fit beside it.
    let indent = if indent * 2 > columns || columns < indent + 2 { 0 } else { indent };
    let mut pieces = Vec::with_capacity(line.spans.iter().map(|span| span.text.len()).sum());
    for (index, span) in line.spans.iter().enumerate() {
        let mut push = |from: usize, text, width| pieces.push(Piece { text, span: index, from, width });
        if span.text.is_ascii() {
            // Each is a character by itself, and finding that out again takes ten times as long.
            (0..span.text.len()).for_each(|at| push(at, &span.text[at..=at], 1));
        } else {
            span.text.grapheme_indices(true).for_each(|(at, text)| push(at, text, crate::width(text)));
        }
    }
    let mut lines = Vec::new();
    let mut start = 0;
    while start < pieces.len() {
        let room = if lines.is_empty() { columns } else { columns - indent };
        let (end, next) = one_line(&pieces, start, room);
        let mut broken = Line::default();
        if !lines.is_empty() && indent > 0 {
            broken.push(" ".repeat(indent), Style::default());
        }
        // What is of one span stands together there.
        for part in pieces[start..end].chunk_by(|one, next| one.span == next.span) {
            let (first, last) = (&part[0], &part[part.len() - 1]);
            let Span { text, style } = &line.spans[first.span];
            let text = &text[first.from..last.from + last.text.len()];
            match broken.spans.last_mut() {
                Some(before) if before.style == *style => before.text.push_str(text),
                _ => broken.push(text, *style),
            }
        }
        lines.push(broken);
        start = next;
    }
    lines
}

/// Where a line from `start` ends, and where the next one begins.
fn one_line(pieces: &[Piece<'_>], start: usize, room: usize) -> (usize, usize) {
    let mut width = 0;
    let mut full = start;
    while full < pieces.len() && (width + pieces[full].width <= room || full == start) {
        width += pieces[full].width;
        full += 1;
    }
    if full == pieces.len() {
        return (full, full);
    }
    // Spaces that lead the line are no place to break at.
    let first = pieces[start..full].iter().position(|piece| !piece.is_space()).map_or(full, |at| start + at);
    let at = (first + 1..=full).rev().find(|at| may_break(pieces, *at)).unwrap_or(full);
    let end =
        pieces[start..at].iter().rposition(|piece| !piece.is_space()).map_or(at, |last| start + last + 1);
    let next = pieces[at..].iter().position(|piece| !piece.is_space()).map_or(pieces.len(), |skip| at + skip);
    (end, next)
}

/// Whether a line may end before `at`.
fn may_break(pieces: &[Piece<'_>], at: usize) -> bool {
    let (before, after) = (&pieces[at - 1], &pieces[at]);
    if before.is_space() || after.is_space() {
        return true;
    }
    // A cluster of narrow characters may be wide as well, in the midst of a word.
    let wide = |piece: &Piece<'_>| piece.width > 1 && piece.text.starts_with(crate::line::is_wide);
    if wide(before) || wide(after) {
        // Not before what closes.
        return !matches!(
            after.text,
            "。" | "、" | "，" | "．" | "！" | "？" | "）" | "」" | "』" | "】" | "：" | "；"
        ) && !after.text.starts_with(|character: char| character.is_ascii_punctuation());
    }
    let letter = |piece: &Piece<'_>| piece.text.starts_with(char::is_alphanumeric);
    matches!(before.text, "-" | "/" | "–" | "—") && at >= 2 && letter(&pieces[at - 2]) && letter(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str, columns: usize, indent: usize) -> Vec<String> {
        wrap(&Line::from(text), columns, indent).iter().map(Line::text).collect()
    }

    #[test]
    fn breaks() {
        for (text, columns, indent, expected) in [
            ("", 5, 0, &[""] as &[&str]),
            ("ab दुनिया", 7, 0, &["ab", "दुनिया"]),
            ("one two three", 7, 0, &["one two", "three"]),
            ("one two three", 8, 2, &["one two", "  three"]),
            ("one    two", 5, 0, &["one", "two"]),
            ("  lead word", 7, 0, &["  lead", "word"]),
            ("abcdefghij", 4, 0, &["abcd", "efgh", "ij"]),
            ("abcdefghij", 4, 2, &["abcd", "  ef", "  gh", "  ij"]),
            ("well-known path", 6, 0, &["well-", "known", "path"]),
            ("a --long-flag", 8, 0, &["a", "--long-", "flag"]),
            ("日本語の文", 4, 0, &["日本", "語の", "文"]),
            ("日本語。", 6, 0, &["日本", "語。"]),
            ("trailing   ", 8, 0, &["trailing"]),
            ("abc", 1, 4, &["a", "b", "c"]),
            ("日", 1, 0, &["日"]),
        ] {
            assert_eq!(texts(text, columns, indent), expected, "{text:?} in {columns}");
        }
    }

    #[test]
    fn styles_stay() {
        let bold = Style { bold: true, ..Style::default() };
        let mut line = Line::from("one ");
        line.push("two three", bold);
        let lines = wrap(&line, 7, 0);
        assert_eq!(lines[0].spans.len(), 2);
        assert_eq!(lines[1], Line::styled("three", bold));
    }

    proptest! {
        #[test]
        fn nothing_but_spaces_is_lost(text in "[a-c \\-/日👩é]{0,60}", columns in 2_usize..20, indent in 0_usize..8) {
            let lines = texts(&text, columns, indent);
            let solid = |text: &str| text.replace(' ', "");
            prop_assert_eq!(solid(&lines.concat()), solid(&text));
            prop_assert!(lines.iter().all(|line| crate::width(line) <= columns), "{:?}", lines);
        }
    }
}
