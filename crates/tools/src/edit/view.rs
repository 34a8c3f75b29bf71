//! A file as text to search in, with the way back to its bytes.

use unicode_normalization::UnicodeNormalization;

/// The text of a file: without byte order mark, every line end (CRLF, lone CR) as LF, invalid UTF-8 as U+FFFD.
/// Each place between two characters has a place in the bytes.
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    pub(crate) text: String,
    /// Where the distance between text and bytes changes: offset in the text, offset in the bytes. Ascending.
    jumps: Vec<(usize, usize)>,
}

impl<'a> View<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mark = if bytes.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
        let mut view = Self { bytes, text: String::with_capacity(bytes.len()), jumps: vec![(0, mark)] };
        let mut at = mark;
        for chunk in bytes[mark..].utf8_chunks() {
            view.take(chunk.valid(), &mut at);
            if !chunk.invalid().is_empty() {
                at += chunk.invalid().len();
                view.text.push('\u{fffd}');
                view.jumps.push((view.text.len(), at));
            }
        }
        view
    }

    fn take(&mut self, text: &str, at: &mut usize) {
        let mut rest = text;
        while let Some(found) = memchr::memchr(b'\r', rest.as_bytes()) {
            self.text.push_str(&rest[..found]);
            self.text.push('\n');
            *at += found + 1;
            rest = &rest[found + 1..];
            if let Some(after) = rest.strip_prefix('\n') {
                *at += 1;
                rest = after;
                self.jumps.push((self.text.len(), *at));
            }
        }
        self.text.push_str(rest);
        *at += rest.len();
    }

    /// The place in the bytes of a place between two characters of the text.
    pub(crate) fn place(&self, at: usize) -> usize {
        let after = self.jumps.partition_point(|(text, _)| *text <= at);
        let (text, bytes) = self.jumps[after - 1];
        bytes + (at - text)
    }

    /// The bytes of a part of the text.
    pub(crate) fn bytes(&self, part: std::ops::Range<usize>) -> &'a [u8] {
        &self.bytes[self.place(part.start)..self.place(part.end)]
    }

    /// All bytes before the text.
    pub(crate) fn mark(&self) -> &'a [u8] {
        &self.bytes[..self.place(0)]
    }

    /// The line end in force at a place: of its line, else of the line before, else LF.
    pub(crate) fn line_end(&self, at: usize) -> &'a [u8] {
        let text = self.text.as_bytes();
        let found = memchr::memchr(b'\n', &text[at..])
            .map(|found| at + found)
            .or_else(|| memchr::memrchr(b'\n', &text[..at]));
        found.map_or(b"\n", |found| self.bytes(found..found + 1))
    }
}

/// Every line end as LF.
pub(crate) fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// A text in which spellings that look alike are one: compatibility forms, quotes, dashes, spaces, and no white
/// space at line ends. As many lines as before.
pub(crate) fn loose(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        if line.is_ascii() {
            out.push_str(line.trim_end_matches(is_space));
            continue;
        }
        let normal: String = line.nfkc().collect();
        out.extend(normal.trim_end_matches(is_space).chars().map(|c| match c {
            '\u{2018}'..='\u{201b}' => '\'',
            '\u{201c}'..='\u{201f}' => '"',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
            other => other,
        }));
    }
    out
}

/// White space as JavaScript has it.
fn is_space(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_the_way_back() {
        let view = View::new(b"\xef\xbb\xbfa\r\nb\rc\n\xff\xe2\x82d\r\n");
        assert_eq!(view.text, "a\nb\nc\n\u{fffd}\u{fffd}d\n");
        let places: Vec<usize> = view
            .text
            .char_indices()
            .map(|(at, _)| at)
            .chain([view.text.len()])
            .map(|at| view.place(at))
            .collect();
        assert_eq!(places, [3, 4, 6, 7, 8, 9, 10, 11, 13, 14, 16]);
        assert_eq!(view.mark(), b"\xef\xbb\xbf");
        assert_eq!(view.line_end(0), b"\r\n");
        assert_eq!(view.line_end(2), b"\r");
        assert_eq!(view.line_end(4), b"\n");
        assert_eq!(view.line_end(view.text.len()), b"\r\n");
        assert_eq!(View::new(b"abc").line_end(1), b"\n");
    }

    #[test]
    fn looseness() {
        let check = |text: &str, expect: &str| assert_eq!(loose(text), expect, "{text:?}");
        check("a  \n\t\nb", "a\n\nb");
        check("“a” ‘b’ „c‟ ‚d‛", "\"a\" 'b' \"c\" 'd'");
        check("a–b—c−d‐e", "a-b-c-d-e");
        check("a\u{a0}b\u{3000}c\u{2003}d", "a b c d");
        check("ﬁ①Ａ", "fi1A");
        check("é\u{a0}\u{feff}", "é");
    }
}
