//! What commands print: colours are kept, a carriage return begins the line again, nothing else is obeyed.

use unicode_segmentation::UnicodeSegmentation as _;

use super::text::{cut, plural, trim};
use crate::{Color, Line, Style, Theme, clean, wrap};

/// Bytes of one line that are looked at when only the end of an output is shown.
const LINE: usize = 8 << 10;
/// Bytes within which a sequence that carries text (a title, a link) has to end.
const SEQUENCE: usize = 4 << 10;

/// What a command printed: all of it, or the last rows, with how much is hidden before them.
#[must_use]
pub fn output(text: &str, rows: Option<usize>, columns: usize, theme: &Theme) -> Vec<Line> {
    let text = text.trim_end_matches(['\n', '\r', ' ']);
    if text.is_empty() {
        return Vec::new();
    }
    let columns = columns.max(1);
    let (shown, mut hidden) = rows.map_or((text, 0), |rows| last_lines(text, rows.max(1)));
    let mut lines: Vec<(usize, Line)> = Vec::new();
    let mut style = theme.output;
    for (index, source) in shown.split('\n').enumerate() {
        let source = if rows.is_some() {
            &source[source.ceil_char_boundary(source.len().saturating_sub(LINE))..]
        } else {
            source
        };
        let mut line = printed(source, &mut style, theme.output);
        trim(&mut line);
        lines.extend(wrap(&line, columns, 0).into_iter().map(|line| (index, line)));
    }
    if let Some(rows) = rows.filter(|rows| lines.len() > *rows) {
        let cut = lines.len() - rows.max(1);
        // A line of which a part is hidden counts as hidden.
        hidden += lines[cut - 1].0 + 1;
        lines.drain(..cut);
    }
    let mut out = Vec::with_capacity(lines.len() + 1);
    if hidden > 0 {
        let above = format!("… {} above{}", plural(hidden, "line"), opens(theme));
        out.push(cut(&Line::styled(above, theme.muted), columns));
    }
    out.extend(lines.into_iter().map(|(_, line)| line));
    out
}

/// How what is hidden is opened, behind how much it is.
pub(super) fn opens(theme: &Theme) -> String {
    theme.opener.as_ref().map_or_else(String::new, |opener| format!(" ({opener} opens)"))
}

/// The last lines of a text, and how many are before them.
fn last_lines(text: &str, lines: usize) -> (&str, usize) {
    let Some((start, _)) = text.rmatch_indices('\n').nth(lines - 1) else { return (text, 0) };
    let before = &text[..start];
    (&text[start + 1..], before.bytes().filter(|byte| *byte == b'\n').count() + 1)
}

/// A line as a terminal would have it in the end.
fn printed(source: &str, style: &mut Style, base: Style) -> Line {
    let source = source.strip_suffix('\r').unwrap_or(source);
    if !source.contains(['\x1b', '\r', '\x08']) {
        return Line::styled(clean(source), *style);
    }
    let mut cells: Vec<(String, Style)> = Vec::new();
    let mut at: usize = 0;
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        match first {
            '\r' => (at, rest) = (0, &rest[1..]),
            '\x08' => (at, rest) = (at.saturating_sub(1), &rest[1..]),
            '\x1b' => match sequence(rest) {
                Some((Sequence::Style(parameters), length)) => {
                    apply(parameters, style, base);
                    rest = &rest[length..];
                }
                Some((Sequence::Erase(which), length)) => {
                    match which {
                        "1" => {
                            cells.iter_mut().take(at).for_each(|cell| *cell = (" ".into(), Style::default()));
                        }
                        "2" => cells.clear(),
                        _ => cells.truncate(at),
                    }
                    rest = &rest[length..];
                }
                Some((Sequence::Start, length)) => (at, rest) = (0, &rest[length..]),
                Some((Sequence::Nothing, length)) => rest = &rest[length..],
                None => {
                    put(&mut cells, &mut at, "\x1b", *style);
                    rest = &rest[1..];
                }
            },
            _ => {
                let end = rest.find(['\x1b', '\r', '\x08']).unwrap_or(rest.len());
                put(&mut cells, &mut at, &rest[..end], *style);
                rest = &rest[end..];
            }
        }
    }
    let mut line = Line::default();
    for (text, style) in cells {
        match line.spans.last_mut() {
            Some(last) if last.style == style => last.text.push_str(&text),
            _ => line.push(text, style),
        }
    }
    line
}

fn put(cells: &mut Vec<(String, Style)>, at: &mut usize, text: &str, style: Style) {
    for cluster in clean(text).graphemes(true) {
        while cells.len() < *at {
            cells.push((" ".into(), Style::default()));
        }
        let cell = (cluster.to_owned(), style);
        if *at < cells.len() {
            cells[*at] = cell;
        } else {
            cells.push(cell);
        }
        *at += 1;
    }
}

enum Sequence<'a> {
    Style(&'a str),
    Erase(&'a str),
    /// To the start of the line.
    Start,
    Nothing,
}

/// A sequence at the start of a text that begins with Escape; `None` when it is none, or has no end.
fn sequence(text: &str) -> Option<(Sequence<'_>, usize)> {
    let bytes = text.as_bytes();
    match bytes.get(1) {
        // One that is cut off by the end of what there is yet.
        None => Some((Sequence::Nothing, 1)),
        Some(b'[') => {
            let end = 2 + bytes[2..].iter().take(256).position(|byte| !(0x20..0x40).contains(byte)).or_else(
                || {
                    // The same.
                    (bytes.len() < 258).then_some(bytes.len() - 2)
                },
            )?;
            let parameters = &text[2..end];
            match bytes.get(end) {
                None => Some((Sequence::Nothing, end)),
                Some(b'm') => Some((Sequence::Style(parameters), end + 1)),
                Some(b'K') => Some((Sequence::Erase(parameters), end + 1)),
                Some(b'G') if matches!(parameters, "" | "0" | "1") => Some((Sequence::Start, end + 1)),
                Some(0x40..=0x7e) => Some((Sequence::Nothing, end + 1)),
                Some(_) => None,
            }
        }
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let near = &bytes[..bytes.len().min(SEQUENCE)];
            let end = (2..near.len()).find(|at| near[*at] == 7 || near[*at..].starts_with(b"\x1b\\"))?;
            Some((Sequence::Nothing, end + if near[end] == 7 { 1 } else { 2 }))
        }
        Some(0x20..=0x2f) => {
            let end = bytes[1..].iter().take(8).position(|byte| (0x30..0x7f).contains(byte))? + 1;
            Some((Sequence::Nothing, end + 1))
        }
        Some(0x30..=0x7e) => Some((Sequence::Nothing, 2)),
        Some(_) => None,
    }
}

/// Does what a sequence says of colours and weights.
fn apply(parameters: &str, style: &mut Style, base: Style) {
    let numbers: Vec<u16> = parameters.split([';', ':']).map(|part| part.parse().unwrap_or(0)).collect();
    // Of the form with colons a place may be empty that the other form does not have.
    let colons = parameters.contains(':');
    let mut at = 0;
    while at < numbers.len() {
        let number = numbers[at];
        at += 1;
        let small = |number: u16| u8::try_from(number).unwrap_or(0);
        match number {
            0 => *style = base,
            1 => style.bold = true,
            2 => style.dim = true,
            3 => style.italic = true,
            4 => style.underline = true,
            7 => style.reverse = true,
            9 => style.strike = true,
            22 => (style.bold, style.dim) = (false, false),
            23 => style.italic = false,
            24 => style.underline = false,
            27 => style.reverse = false,
            29 => style.strike = false,
            30..=37 => style.foreground = Color::Ansi(small(number - 30)),
            90..=97 => style.foreground = Color::Ansi(small(number - 90 + 8)),
            39 => style.foreground = base.foreground,
            40..=47 => style.background = Color::Ansi(small(number - 40)),
            100..=107 => style.background = Color::Ansi(small(number - 100 + 8)),
            49 => style.background = base.background,
            38 | 48 => {
                let color = match (numbers.get(at), numbers.get(at + 1..)) {
                    (Some(5), Some([index, ..])) => {
                        at += 2;
                        u8::try_from(*index).ok().map(Color::Indexed)
                    }
                    (Some(2), Some(rest)) => {
                        let skip = usize::from(colons && rest.len() > 3);
                        at += 4 + skip;
                        match rest.get(skip..skip + 3) {
                            Some([r, g, b]) => Some(Color::Rgb(small(*r), small(*g), small(*b))),
                            _ => None,
                        }
                    }
                    _ => None,
                };
                if let Some(color) = color {
                    *(if number == 38 { &mut style.foreground } else { &mut style.background }) = color;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, rows: Option<usize>, columns: usize) -> Vec<String> {
        output(text, rows, columns, &Theme::plain()).iter().map(Line::text).collect()
    }

    #[test]
    fn a_line_is_what_it_became() {
        let check =
            |text: &str, expect: &str| assert_eq!(texts(text, None, 40).join("|"), expect, "{text:?}");
        check("a\r\nb\r\n", "a|b");
        check(" 10%\r 50%\r100%", "100%");
        check("abcdef\rxy", "xycdef");
        check("abcdef\rxy\x1b[K", "xy");
        check("abc\x1b[2Kd", "   d");
        check("ab\x08c", "ac");
        check("\x1b[1Ga\x1b[Gb", "b");
        check("\x1b[2J\x1b[H\x1b[31mred\x1b[0m", "red");
        check("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b(Bc\x1b7", "abc");
        check("\x1b]0;never ends", "␛]0;never ends");
        check("a\x1b[12;", "a");
        check("a\x1b", "a");
        check("bell\x07 \u{202e}x", "bell␇ \\u{202e}x");
        check("日本\r語", "語本");
        check("\n\n", "");
    }

    #[test]
    fn colours_are_kept() {
        let theme = Theme::plain();
        let style = |text: &str| output(text, None, 80, &theme)[0].spans.last().unwrap().style;
        let dim = Style { dim: true, ..Style::default() };
        assert_eq!(style("\x1b[31mx"), Style { foreground: Color::Ansi(1), ..dim });
        assert_eq!(style("\x1b[1;38;5;200mx"), Style { bold: true, foreground: Color::Indexed(200), ..dim });
        assert_eq!(style("\x1b[48;2;1;2;3mx"), Style { background: Color::Rgb(1, 2, 3), ..dim });
        assert_eq!(style("\x1b[38:2::1:2:3mx"), Style { foreground: Color::Rgb(1, 2, 3), ..dim });
        assert_eq!(style("\x1b[97;4mx\x1b[my"), dim);
        assert_eq!(style("\x1b[38mx\x1b[38;2;1mx\x1b[999999999mx"), dim);
        let lines = output("\x1b[32mone\ntwo", None, 80, &theme);
        assert_eq!(lines[1].spans[0].style.foreground, Color::Ansi(2));
    }

    #[test]
    fn the_end_is_shown_and_the_rest_counted() {
        assert_eq!(texts("1\n2\n3\n4", Some(2), 40), ["… 2 lines above", "3", "4"]);
        assert_eq!(texts("1\n2", Some(2), 40), ["1", "2"]);
        assert_eq!(texts("1\n2\n3 3 3 3", Some(2), 3), ["… …", "3 3", "3 3"]);
        let long = "x".repeat(1 << 20);
        assert_eq!(texts(&long, Some(2), 10).len(), 3);
        assert_eq!(texts("a\n\n\nb\n\n", Some(9), 10), ["a", "", "", "b"]);
    }
}
