//! Lines within a budget, in the frame of an archive.

use quipu_history::{BEGIN_HISTORY, framed, piece};
use quipu_transcript::estimate_text;

/// Code units of a line at least, where it is shortened to what there is room for.
const SHORTEST: u64 = 60;
/// Code units that count as one token.
const UNITS: u64 = 4;

/// Lines that together with their frame cost no more than so many tokens.
pub(crate) struct FramedLines {
    tokens: u64,
    /// The first line, which stands there only with others.
    head: String,
    body: String,
}

impl FramedLines {
    pub(crate) fn new(tokens: u64, head: &str) -> Self {
        Self { tokens, head: head.to_owned(), body: String::new() }
    }

    /// Adds a line; shortened where it is the first and does not fit. `false` where there is no room.
    pub(crate) fn push(&mut self, line: &str) -> bool {
        let line = &visible(line);
        if self.cost(line) <= self.tokens {
            self.add(line);
            return true;
        }
        if !self.body.is_empty() {
            return false;
        }
        let mut units = (self.tokens * UNITS).saturating_sub(self.cost("") * UNITS + 1);
        // Escaping can make it longer.
        while units >= SHORTEST {
            let (start, _) = piece(line, 0, units);
            let shortened = format!("{}…", start.trim_end());
            if self.cost(&shortened) <= self.tokens {
                self.add(&shortened);
                return true;
            }
            units -= units.min(UNITS);
        }
        false
    }

    fn add(&mut self, line: &str) {
        self.body.push('\n');
        self.body.push_str(line);
    }

    fn cost(&self, line: &str) -> u64 {
        estimate_text(&framed(BEGIN_HISTORY, &format!("{}{}\n{line}", self.head, self.body)))
    }

    /// All of it; `None` where no line was added.
    pub(crate) fn finish(self) -> Option<String> {
        (!self.body.is_empty()).then(|| framed(BEGIN_HISTORY, &format!("{}{}", self.head, self.body)))
    }
}

/// A line in which what nobody sees, or what turns the direction of others, stands as its code; other controls are blanks.
fn visible(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}' => {
                out.extend(character.escape_unicode());
            }
            '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => {
                out.extend(character.escape_unicode());
            }
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

/// A text without the frames of archives in it, which hosts keep as a part of what was said.
pub(crate) fn without_frames(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN_HISTORY) {
        out.push_str(&rest[..at]);
        let behind = &rest[at..];
        // One without an end, in an excerpt, goes as far as the text does.
        rest = behind.find(quipu_history::END).map_or("", |end| &behind[end + quipu_history::END.len()..]);
    }
    out.push_str(rest);
    if out.contains("<hook_context>") {
        out = out.replace("<hook_context>", "").replace("</hook_context>", "");
    }
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_frame_stay_within_the_budget() {
        for tokens in [0, 20, 60, 100, 300, 1_000] {
            let mut lines = FramedLines::new(tokens, "Head.");
            for _ in 0..40 {
                lines.push(&"End of archive, ünd more words than fit. ".repeat(6));
            }
            let text = lines.finish();
            let cost = text.as_deref().map_or(0, estimate_text);
            assert!(cost <= tokens, "{cost} of {tokens}: {text:?}");
            assert_eq!(text.is_some(), tokens >= 60, "{tokens}");
        }
    }

    #[test]
    fn format_characters_of_a_line_are_seen() {
        let mut lines = FramedLines::new(300, "Head.");
        lines.push("a\u{202e}b\u{200b}c\u{e0041}d\u{2066}e\u{feff}f\ng\u{1b}h 👩\u{200d}👧 ü");
        let text = lines.finish().unwrap();
        let line = r"a\u{202e}b\u{200b}c\u{e0041}d\u{2066}e\u{feff}f g h ";
        assert!(text.contains(&format!("{line}👩\u{200d}👧 ü")), "{text}");
    }

    #[test]
    fn frames_inside_of_a_text_are_left_out() {
        let framed = framed(BEGIN_HISTORY, "old words");
        let text = format!("<hook_context>{framed}</hook_context>\n\nFix the paint");
        assert_eq!(without_frames(&text), "Fix the paint");
        assert_eq!(without_frames("Fix the paint"), "Fix the paint");
        assert_eq!(without_frames(&format!("Fix\n{BEGIN_HISTORY} cut")), "Fix");
    }
}
