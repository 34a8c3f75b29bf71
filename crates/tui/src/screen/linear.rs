//! The linear way, for screen readers and terminals that obey nothing: lines follow each other, nothing is ever changed
//! or written over, and no escape sequence is sent. What is typed is shown by the kernel, in the row of a prompt.

use crate::Line;

/// Writes lines for screen readers; remembers how the last one ended.
#[derive(Debug, Default)]
pub(crate) struct LineWriter {
    /// The prompt in the row that is not ended yet; empty where there is none.
    open: &'static str,
    /// The last line was empty.
    blank: bool,
}

impl LineWriter {
    /// The bytes for finished lines, and for the prompt behind them; an empty one while nothing is asked for.
    pub(crate) fn write(&mut self, printed: &[Line], prompt: &'static str) -> Vec<u8> {
        let mut out = String::new();
        for line in printed {
            let text = spoken(line);
            let Some(text) = text else { continue };
            if text.is_empty() && std::mem::replace(&mut self.blank, true) {
                continue;
            }
            self.blank = text.is_empty();
            self.end(&mut out);
            out.push_str(&text);
            out.push('\n');
        }
        if prompt != self.open {
            self.end(&mut out);
            out.push_str(prompt);
            self.open = prompt;
        }
        out.into_bytes()
    }

    /// A line was typed: the kernel has ended the row.
    pub(crate) fn entered(&mut self) {
        self.open = "";
        self.blank = false;
    }

    /// Something stands in the row that we did not write.
    pub(crate) fn disturbed(&mut self) {
        self.open = "^";
    }

    /// Ends the row that is open, for others to write.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = String::new();
        self.end(&mut out);
        out.into_bytes()
    }

    fn end(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.open).is_empty() {
            out.push('\n');
        }
    }
}

/// The text of a line, without anything that a terminal would obey and without frames; `None` for one that is nothing
/// but a frame.
fn spoken(line: &Line) -> Option<String> {
    let frame = |letter: char| ('\u{2500}'..='\u{257f}').contains(&letter);
    let text = line.text().replace(char::is_control, "\u{fffd}");
    let framed = text.contains(frame);
    let text = if framed { text.replace(frame, " ") } else { text };
    let text = text.trim_end();
    (!framed || !text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Style;

    #[test]
    fn nothing_moves() {
        let mut linear = LineWriter::default();
        let mut written = |lines: &[Line], prompt| String::from_utf8(linear.write(lines, prompt)).unwrap();
        let bold = Line::styled("bold \x1b[2J", Style { bold: true, ..Style::default() });
        assert_eq!(written(&[Line::default(), bold, Line::default(), Line::default()], "You: "), {
            "\nbold \u{fffd}[2J\n\nYou: "
        });
        assert_eq!(written(&[], "You: "), "");
        assert_eq!(written(&[Line::from("│ quoted  "), Line::from("──┼──")], "You: "), "\n  quoted\nYou: ");
        assert_eq!(written(&[], ""), "\n");
        assert_eq!(
            written(&[Line::from("wider than any screen ".repeat(9).as_str())], "").lines().count(),
            1
        );
        assert_eq!(written(&[], "Answer: "), "Answer: ");
        linear.entered();
        assert_eq!(linear.write(&[Line::from("taken")], ""), b"taken\n");
        linear.disturbed();
        assert_eq!(linear.write(&[Line::from("Stopped.")], ""), b"\nStopped.\n");
        assert_eq!(linear.finish(), b"");
        linear.write(&[], "You: ");
        assert_eq!(linear.finish(), b"\n");
    }
}
