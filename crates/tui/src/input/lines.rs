//! Lines as the kernel's line editing hands them over, for terminals that nothing is drawn on.

use super::{Decoder, TerminalEvent};
use crate::KeyCode;
use std::time::Duration;

/// Lines that come within this time of each other were not typed: they are one text.
const TOGETHER: Duration = Duration::from_millis(20);
/// Bytes from which on no more is waited for.
const MOST: usize = 1 << 20;

/// Makes texts of bytes.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    held: Vec<u8>,
}

impl Lines {
    /// More bytes. What has come so far becomes events, where it is too much to wait.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<TerminalEvent> {
        self.held.extend_from_slice(bytes);
        if self.held.len() < MOST { Vec::new() } else { self.flush() }
    }

    /// How long to wait for more before [`Lines::flush`]; nothing while a line has no end.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.held.ends_with(b"\n").then_some(TOGETHER)
    }

    /// What came.
    pub(crate) fn flush(&mut self) -> Vec<TerminalEvent> {
        let held = std::mem::take(&mut self.held);
        let text = held.strip_suffix(b"\n").unwrap_or(&held);
        if text == b"\x1b" {
            return vec![TerminalEvent::Interrupt];
        }
        let mut lines = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            lines.push(typed(line));
        }
        vec![TerminalEvent::Line(lines.join("\n"))]
    }
}

/// The text of a line. Keys that the kernel does not know, such as arrows, are in it as sequences: they are left out.
fn typed(line: &[u8]) -> String {
    let mut decoder = Decoder::default();
    let mut events = decoder.feed(line);
    events.extend(decoder.flush());
    let mut text = String::new();
    for event in events {
        match event {
            TerminalEvent::Key(key) if key.modifiers.control || key.modifiers.alt => {}
            TerminalEvent::Key(key) => match key.code {
                KeyCode::Char(letter) => text.push(letter),
                KeyCode::Tab => text.push('\t'),
                _ => {}
            },
            TerminalEvent::Paste(pasted) => text.push_str(&pasted),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_texts() {
        let line = |text: &str| vec![TerminalEvent::Line(text.to_owned())];
        for (bytes, expected) in [
            (&b"hello\n"[..], line("hello")),
            (b"\n", line("")),
            (b"one\ntwo\n\n", line("one\ntwo\n")),
            ("a\tb \u{65e5} \u{e9}\n".as_bytes(), line("a\tb \u{65e5} \u{e9}")),
            (b"a\x1b[A\x1b[1;5Cb\x1bOPc\x1bxd\n", line("abcd")),
            (b"\x1b[200~pasted\x1b[201~\n", line("pasted")),
            (b"\xff\xfe\x01ok\n", line("\u{fffd}\u{fffd}ok")),
            (b"\x1b\n", vec![TerminalEvent::Interrupt]),
        ] {
            let mut lines = Lines::default();
            assert_eq!(lines.feed(bytes), []);
            assert_eq!(lines.wait(), Some(TOGETHER));
            assert_eq!(lines.flush(), expected, "{}", bytes.escape_ascii());
            assert_eq!(lines.wait(), None);
        }
    }

    #[test]
    fn a_line_without_an_end_waits_and_too_many_do_not() {
        let mut lines = Lines::default();
        lines.feed(b"half");
        assert_eq!(lines.wait(), None);
        lines.feed(b" and half\n");
        assert_eq!(lines.flush(), [TerminalEvent::Line("half and half".to_owned())]);
        assert_eq!(lines.feed(&[b'x'; MOST]).len(), 1);
    }
}
