//! Small things that blocks are made of: figures for people, lines with something before them, text cut to a width.

use std::time::Duration;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::{Line, Style, clean, width, wrap};

/// A count of tokens: `999`, `1.2k`, `45k`, `1.2M`.
#[must_use]
pub fn count(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..9_950 => format!("{}.{}k", (tokens + 50) / 1_000, (tokens + 50) % 1_000 / 100),
        9_950..999_500 => format!("{}k", (tokens + 500) / 1_000),
        _ => {
            let tenths = tokens.saturating_add(50_000) / 100_000;
            format!("{}.{}M", tenths / 10, tenths % 10)
        }
    }
}

/// US dollars, as precise as the sum is small.
#[must_use]
pub fn dollars(sum: f64) -> String {
    if !sum.is_finite() {
        return "$?".into();
    }
    if sum.abs() < 1.0 { format!("${sum:.3}") } else { format!("${sum:.2}") }
}

/// A time that passed: `0.4s`, `12s`, `3m05s`, `1h02m`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{}.{}s", seconds, time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A path with `~` for the home directory.
#[must_use]
pub fn home(path: &str, home: Option<&str>) -> String {
    let home = home.map(|home| home.trim_end_matches('/')).filter(|home| !home.is_empty());
    match home.and_then(|home| path.strip_prefix(home)) {
        Some("") => "~".into(),
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        _ => path.to_owned(),
    }
}

/// Text of somebody else, made safe and wrapped, with `first` before its first line and as many spaces before the
/// others. On a screen too narrow for that, nothing stands before it.
pub(super) fn hanging_lines(
    first: &str,
    first_style: Style,
    text: &str,
    style: Style,
    columns: usize,
) -> Vec<Line> {
    let indent = width(first);
    let indent = if indent * 2 > columns { 0 } else { indent };
    let mut lines = Vec::new();
    for part in clean(text).split('\n') {
        for line in wrap(&Line::styled(part, style), columns.saturating_sub(indent).max(1), 0) {
            let mut full = Line::default();
            if indent > 0 {
                let start = if lines.is_empty() { first.to_owned() } else { " ".repeat(indent) };
                full.push(start, if lines.is_empty() { first_style } else { Style::default() });
            }
            full.spans.extend(line.spans.into_iter().filter(|span| !span.text.is_empty()));
            trim(&mut full);
            lines.push(full);
        }
    }
    lines
}

/// Removes spaces at the end that nobody sees.
pub(super) fn trim(line: &mut Line) {
    while let Some(last) = line.spans.last_mut() {
        last.text.truncate(last.text.trim_end_matches(' ').len());
        if !last.text.is_empty() {
            break;
        }
        line.spans.pop();
    }
}

/// Text on one line of so many columns: line ends become spaces, and what is too long ends in `…`.
pub(crate) fn one_line(text: &str, columns: usize) -> String {
    // A text that is much too long is not read to its end.
    let near = &text[..text.floor_char_boundary(columns.saturating_mul(16).saturating_add(256))];
    let flat = clean(near).split_whitespace().collect::<Vec<_>>().join(" ");
    if width(&flat) <= columns && near.len() == text.len() {
        return flat;
    }
    let mut cut = String::new();
    let mut left = columns.saturating_sub(1);
    for cluster in flat.graphemes(true) {
        let columns = width(cluster);
        if columns > left {
            break;
        }
        left -= columns;
        cut.push_str(cluster);
    }
    cut.truncate(cut.trim_end().len());
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// A line cut to so many columns, `…` at its end when something is missing.
pub(crate) fn cut(line: &Line, columns: usize) -> Line {
    if line.width() <= columns {
        return line.clone();
    }
    let mut out = Line::default();
    let mut left = columns.saturating_sub(1);
    'spans: for span in &line.spans {
        let mut kept = String::new();
        for cluster in span.text.graphemes(true) {
            let columns = width(cluster);
            if columns > left {
                out.push(format!("{kept}…"), span.style);
                break 'spans;
            }
            left -= columns;
            kept.push_str(cluster);
        }
        out.push(kept, span.style);
    }
    out
}

/// Some of a list of lines and how many there are beside: `s` for all but one.
pub(super) fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
