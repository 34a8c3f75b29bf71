//! Text for people on a terminal: nothing in it steers the terminal or hides there.

pub(crate) use quipu_host::ago;
use quipu_tui::is_unseen;

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
    quipu_host::one_line_with(text, width, |line, before, c, after| {
        if is_unseen(before, c, after) {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
    })
}
