//! The linear way, for screen readers and terminals that obey nothing: lines follow each other, nothing is ever changed
//! or written over, and no escape sequence is sent. Of the live part only the line with the cursor is there, written on
//! as it is typed.

use crate::Line;
use unicode_segmentation::UnicodeSegmentation as _;

/// What was written in the row that is not ended yet.
#[derive(Debug, Default)]
pub(super) struct Linear {
    open: String,
}

impl Linear {
    /// The bytes for finished lines, and for the line that the cursor is in.
    pub(super) fn write(&mut self, printed: &[Line], typed: Option<&Line>) -> Vec<u8> {
        let mut out = String::new();
        if !printed.is_empty() {
            self.end(&mut out);
        }
        for line in printed {
            out.push_str(plain(line).trim_end());
            out.push_str("\r\n");
        }
        // While there is no cursor, what is typed stays where it is.
        let Some(typed) = typed else { return out.into_bytes() };
        let typed = plain(typed);
        if let Some(more) = typed.strip_prefix(&self.open) {
            out.push_str(more);
        } else if let Some(fewer) = self.open.strip_prefix(&typed) {
            for cluster in fewer.graphemes(true) {
                out.push_str(&"\x08 \x08".repeat(crate::width(cluster)));
            }
        } else {
            self.end(&mut out);
            out.push_str(&typed);
        }
        self.open = typed;
        out.into_bytes()
    }

    /// Ends the row that is open.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut out = String::new();
        self.end(&mut out);
        out.into_bytes()
    }

    fn end(&mut self, out: &mut String) {
        if !self.open.is_empty() {
            out.push_str("\r\n");
            self.open.clear();
        }
    }
}

/// The text of a line, without anything that a terminal would obey.
fn plain(line: &Line) -> String {
    line.text().replace(char::is_control, "\u{fffd}")
}
