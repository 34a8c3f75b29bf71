//! Text for people on a terminal: nothing in it steers the terminal or hides there.

use quipu_protocol::UnixMs;
use quipu_tui::is_unseen;
use unicode_width::UnicodeWidthStr as _;

/// Text with control characters (other than newline and tab) and all others that are not seen made visible, so that
/// what a model or a file says cannot steer the terminal, nor hide in it.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut before = None;
    while let Some(c) = rest.next() {
        if matches!(c, '\n' | '\t') || !is_unseen(before, c, rest.peek().copied()) {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
        before = Some(c);
    }
    out
}

/// The same on one line, cut to `width` columns of a terminal. Reads no more of a text than it needs.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let mut line = String::new();
    // Where the line is cut when it becomes too wide, and how wide it is.
    let (mut fits, mut used) = (0, 0);
    let mut gap = false;
    let mut rest = text.chars().peekable();
    let mut last = None;
    while let Some(c) = rest.next() {
        let beside = last.replace(c);
        // Controls that are no white space are shown; of white space only that it is there.
        if c.is_whitespace() {
            gap = !line.is_empty();
            continue;
        }
        let before = line.len();
        if std::mem::take(&mut gap) {
            line.push(' ');
        }
        if is_unseen(beside, c, rest.peek().copied()) {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
        used += line[before..].width();
        if used > width {
            line.truncate(fits);
            line.push('…');
            return line;
        }
        if used < width {
            fits = line.len();
        }
    }
    line
}

/// How long ago, in words.
pub(crate) fn ago(now: UnixMs, then: UnixMs) -> String {
    let seconds = (now - then).max(0) / 1000;
    match seconds {
        0 => "now".into(),
        1..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}
