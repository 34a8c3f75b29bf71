//! The levels of a JSON text, found and cut without a stack: a parser would run out of it, or refuse the text.

use std::borrow::Cow;

/// Where a text stands.
#[derive(Default)]
struct Scan {
    in_string: bool,
    escaped: bool,
    depth: usize,
}

impl Scan {
    /// Takes a byte; whether it opens (`Some(true)`) or closes a level.
    fn take(&mut self, byte: u8) -> Option<bool> {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return None;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth += 1;
                return Some(true);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return Some(false);
            }
            _ => {}
        }
        None
    }
}

/// How many levels a JSON text has.
pub(super) fn of(text: &str) -> usize {
    let mut scan = Scan::default();
    let mut deepest = 0;
    for byte in text.bytes() {
        scan.take(byte);
        deepest = deepest.max(scan.depth);
    }
    deepest
}

/// The text with empty objects and lists in the place of those that lie deeper than `most` levels.
pub(super) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if of(text) <= most {
        return Cow::Borrowed(text);
    }
    let mut scan = Scan::default();
    let mut out: Vec<u8> = Vec::new();
    for byte in text.bytes() {
        let before = scan.depth;
        let step = scan.take(byte);
        match step {
            // What opens the last level stands, and so does what closes it; nothing between them does.
            Some(true) if scan.depth <= most => out.push(byte),
            Some(false) if before <= most => out.push(byte),
            Some(_) => {}
            None if scan.depth < most => out.push(byte),
            None => {}
        }
    }
    // What was cut stood between whole characters.
    String::from_utf8(out).map_or(Cow::Owned("{}".to_owned()), Cow::Owned)
}
