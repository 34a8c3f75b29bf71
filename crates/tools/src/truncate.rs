//! What of a long text the model gets to see.

use quipu_workspace::{OutputBuffer, TextWindow};
use serde::Serialize;

/// Lines that a result holds at most.
pub const MAX_LINES: usize = 2000;
/// Bytes that a result holds at most.
pub const MAX_BYTES: usize = 50 * 1024;

/// How a text was cut, as it stands in the details of a result. Bytes are UTF-8, lines do not count an empty one
/// after a final line feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Truncation {
    /// What is left.
    pub content: String,
    /// Whether anything is missing.
    pub truncated: bool,
    /// Which limit cut it.
    pub truncated_by: Option<TruncationLimit>,
    /// Lines of the whole.
    pub total_lines: u64,
    /// Bytes of the whole.
    pub total_bytes: u64,
    /// Whether there are at least so many lines and bytes: a huge file is not read to its end to count them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub totals_are_minimum: bool,
    /// Lines of `content`.
    pub output_lines: u64,
    /// Bytes of `content`.
    pub output_bytes: u64,
    /// Whether `content` is the end of one line that alone is too long.
    pub last_line_partial: bool,
    /// Whether `content` is empty because the first line alone is too long.
    pub first_line_exceeds_limit: bool,
    /// The limit of lines.
    pub max_lines: u64,
    /// The limit of bytes.
    pub max_bytes: u64,
}

/// The limit that cut an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TruncationLimit {
    /// [`MAX_LINES`].
    Lines,
    /// [`MAX_BYTES`].
    Bytes,
}

impl Truncation {
    fn new(total_lines: u64, total_bytes: u64) -> Self {
        Self {
            content: String::new(),
            truncated: total_lines > MAX_LINES as u64 || total_bytes > MAX_BYTES as u64,
            truncated_by: None,
            total_lines,
            total_bytes,
            totals_are_minimum: false,
            output_lines: 0,
            output_bytes: 0,
            last_line_partial: false,
            first_line_exceeds_limit: false,
            max_lines: MAX_LINES as u64,
            max_bytes: MAX_BYTES as u64,
        }
    }

    fn with(mut self, content: &str, lines: u64, by: Option<TruncationLimit>) -> Self {
        content.clone_into(&mut self.content);
        self.output_lines = lines;
        self.output_bytes = content.len() as u64;
        self.truncated_by = by;
        self
    }

    /// The beginning, in whole lines.
    pub(crate) fn head(window: &TextWindow) -> Self {
        let lines = match window.bytes {
            0 => 0,
            _ => window.lines - u64::from(window.ends_with_line_feed),
        };
        let mut whole = Self::new(lines, window.bytes);
        // What was asked for ends where the file was left; what is complete has its own end.
        whole.totals_are_minimum = !window.is_counted && !window.complete;
        if !whole.truncated {
            return whole.with(&window.text, lines, None);
        }
        if window.first_line_bytes > MAX_BYTES as u64 {
            let mut empty = whole.with("", 0, Some(TruncationLimit::Bytes));
            empty.first_line_exceeds_limit = true;
            return empty;
        }
        let (mut end, mut count, mut by) = (0, 0, TruncationLimit::Lines);
        let mut start = 0;
        for line in window.text.split('\n') {
            if count == MAX_LINES as u64 {
                break;
            }
            if start + line.len() > MAX_BYTES {
                by = TruncationLimit::Bytes;
                break;
            }
            end = start + line.len();
            start = end + 1;
            count += 1;
        }
        whole.with(&window.text[..end], count, Some(by))
    }

    /// The end, in whole lines unless one alone is too long.
    pub(crate) fn tail(output: &OutputBuffer) -> Self {
        let whole = Self::new(output.lines(), output.bytes());
        if !whole.truncated {
            let lines = whole.total_lines;
            return whole.with(output.tail(), lines, None);
        }
        let text = output.tail().strip_suffix('\n').unwrap_or(output.tail());
        let (mut start, mut count, mut by) = (text.len(), 0, TruncationLimit::Lines);
        for line in text.rsplit('\n') {
            if count == MAX_LINES as u64 {
                break;
            }
            let begins = if count == 0 { start - line.len() } else { start - 1 - line.len() };
            if text.len() - begins > MAX_BYTES {
                by = TruncationLimit::Bytes;
                break;
            }
            start = begins;
            count += 1;
        }
        if count > 0 {
            return whole.with(&text[start..], count, Some(by));
        }
        let mut from = text.len().saturating_sub(MAX_BYTES);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let mut partial = whole.with(&text[from..], 1, Some(TruncationLimit::Bytes));
        partial.last_line_partial = true;
        partial
    }
}

/// A size for people: `NB`, `N.NKB`, `N.NMB`, in steps of 1024.
pub(crate) fn format_size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let bytes_f = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.1}KB", bytes_f / 1024.0),
        _ => format!("{:.1}MB", bytes_f / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |bytes, expect: &str| assert_eq!(format_size(bytes), expect);
        check(0, "0B");
        check(1023, "1023B");
        check(1024, "1.0KB");
        check(51200, "50.0KB");
        check(1 << 20, "1.0MB");
        check(3 << 30, "3072.0MB");
    }
}
