//! A Rust file seen as the rules need it: code without comments and literals, the literals, and which lines
//! are compiled for tests only. A scanner, no parser: what it cannot know (macros, `#[path]`) it leaves alone.

use std::ops::RangeInclusive;

/// One string literal: where it starts, and what stands between its quotes, escapes untouched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A scanned file. Lines count from 1.
#[derive(Debug, Default)]
pub(crate) struct RustSource {
    /// The text with comments and literals turned into spaces; every line keeps its number.
    pub(crate) code: String,
    pub(crate) literals: Vec<Literal>,
    /// Names of `#[cfg(test)] mod name;`: their files are tests.
    pub(crate) test_modules: Vec<String>,
    test_regions: Vec<RangeInclusive<usize>>,
}

impl RustSource {
    pub(crate) fn scan(text: &str) -> Self {
        let mut source = Scanner::new(text).scan();
        source.find_test_regions();
        source
    }

    /// True when the line lies within an item behind `#[cfg(test)]`.
    pub(crate) fn in_test_region(&self, line: usize) -> bool {
        self.test_regions.iter().any(|region| region.contains(&line))
    }

    /// Lines of code with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn find_test_regions(&mut self) {
        for marker in ["#[cfg(test)]", "#[cfg(all(test"] {
            let mut from = 0;
            while let Some(found) = self.code[from..].find(marker) {
                let start = from + found;
                let after = start + marker.len();
                from = after;
                let Some(length) = self.code[after..].find(['{', ';']) else { continue };
                let head = &self.code[after..after + length];
                let first_line = line_at(&self.code, start);
                if self.code.as_bytes()[after + length] == b';' {
                    let mut words = head.split_whitespace().skip_while(|word| *word != "mod");
                    if let (Some(_), Some(name)) = (words.next(), words.next()) {
                        self.test_modules.push(name.to_owned());
                    }
                    self.test_regions.push(first_line..=line_at(&self.code, after + length));
                } else {
                    let end = matching_brace(&self.code, after + length);
                    self.test_regions.push(first_line..=line_at(&self.code, end));
                    from = end;
                }
            }
        }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// The offset of the brace that closes the one at `open`, or of the last byte when none does.
fn matching_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return offset;
                }
            }
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
    code: Vec<u8>,
    literals: Vec<Literal>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            line: 1,
            code: Vec::with_capacity(text.len()),
            literals: Vec::new(),
        }
    }

    fn scan(mut self) -> RustSource {
        while let Some(&byte) = self.bytes.get(self.at) {
            let rest = &self.bytes[self.at..];
            let after_word = self.at > 0 && is_word(self.bytes[self.at - 1]);
            if rest.starts_with(b"//") {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.blank(end);
            } else if rest.starts_with(b"/*") {
                self.blank(block_comment(rest));
            } else if let (false, Some(hashes)) = (after_word, raw_string_start(rest)) {
                self.raw_string(hashes);
            } else if byte == b'"' {
                let end = closing_quote(rest, b'"');
                self.literal(1, end, 1);
            } else if byte == b'\'' {
                self.quote();
            } else {
                self.keep();
            }
        }
        RustSource {
            // Only whole comments and literals were blanked, byte by byte: what is left is still UTF-8.
            code: String::from_utf8_lossy(&self.code).into_owned(),
            literals: self.literals,
            ..RustSource::default()
        }
    }

    fn keep(&mut self) {
        let byte = self.bytes[self.at];
        self.line += usize::from(byte == b'\n');
        self.code.push(byte);
        self.at += 1;
    }

    fn blank(&mut self, length: usize) {
        let end = (self.at + length).min(self.bytes.len());
        for byte in &self.bytes[self.at..end] {
            self.line += usize::from(*byte == b'\n');
            self.code.push(if *byte == b'\n' { b'\n' } else { b' ' });
        }
        self.at = end;
    }

    /// Takes a literal whose text lies between `open` bytes at its start and `close` bytes at its end.
    fn literal(&mut self, open: usize, length: usize, close: usize) {
        let end = (self.at + length).min(self.bytes.len());
        let text = self.text.get(self.at + open..end.saturating_sub(close)).unwrap_or_default();
        self.literals.push(Literal { line: self.line, text: text.to_owned() });
        self.blank(length);
    }

    fn raw_string(&mut self, start: RawStart) {
        let mut close = vec![b'"'];
        close.resize(start.hashes + 1, b'#');
        let body = &self.bytes[self.at + start.length..];
        let end = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
        self.literal(start.length, start.length + end + close.len(), close.len());
    }

    /// A character or a lifetime: only a character is closed again after one scalar or one escape.
    fn quote(&mut self) {
        let rest = &self.text[self.at + 1..];
        let mut scalars = rest.chars();
        match (scalars.next(), scalars.next()) {
            (Some('\\'), _) => self.blank(closing_quote(&self.bytes[self.at..], b'\'')),
            (Some(scalar), Some('\'')) => self.blank(2 + scalar.len_utf8()),
            _ => self.keep(),
        }
    }
}

#[derive(Clone, Copy)]
struct RawStart {
    length: usize,
    hashes: usize,
}

fn raw_string_start(rest: &[u8]) -> Option<RawStart> {
    let prefix = [&b"r"[..], b"br", b"cr"].into_iter().find(|prefix| rest.starts_with(prefix))?.len();
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some(RawStart { length: prefix + hashes + 1, hashes })
}

/// Length of a quoted literal that starts at the first byte, both quotes included.
fn closing_quote(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// True when `word` stands in `line` as a whole identifier or path, not as a piece of a longer one.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let open = start == 0 || !is_word(bytes[start - 1]);
        let closed = !word.ends_with(|last: char| last.is_alphanumeric() || last == '_')
            || bytes.get(end).is_none_or(|next| !is_word(*next));
        open && closed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, literals: &[(usize, &str)]) {
        let source = RustSource::scan(text);
        let squeezed: Vec<&str> = source.code.split_whitespace().collect();
        assert_eq!(squeezed.join(" "), code, "code of {text:?}");
        assert_eq!(source.code.len(), text.len(), "length of {text:?}");
        let found: Vec<(usize, &str)> =
            source.literals.iter().map(|literal| (literal.line, literal.text.as_str())).collect();
        assert_eq!(found, literals, "literals of {text:?}");
    }

    #[test]
    fn comments_and_literals_leave_the_code() {
        check("a // b\nc", "a c", &[]);
        check("a /* b /* c */ d */ e", "a e", &[]);
        check("a /* never closed", "a", &[]);
        check(r#"let x = "say // \" no"; y"#, "let x = ; y", &[(1, r#"say // \" no"#)]);
        check("x\nr#\"a \"quoted\" b\"# y", "x y", &[(2, "a \"quoted\" b")]);
        check("br\"\\\" z", "z", &[(1, "\\")]);
        check("r#type + bar\"x\"", "r#type + bar", &[(1, "x")]);
        check("'a' 'b: '\\'' '\"' 'é' &'static str", "'b: &'static str", &[]);
        check("\"never closed", "", &[(1, "never close")]);
        check("\"a\nb\" // \"no\"\n\"c\"", "", &[(1, "a\nb"), (3, "c")]);
        check("é \"ü\" ß", "é ß", &[(1, "ü")]);
    }

    #[test]
    fn test_regions_end_with_their_item() {
        let source = RustSource::scan(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() { \"}\" }\n}\nfn c() {}\n#[cfg(test)]\npub mod laws;\nfn d() {}\n#[cfg(test)]\nuse x::{y, z};\nfn e() {}\n",
        );
        let lines: Vec<usize> = (1..=12).filter(|line| source.in_test_region(*line)).collect();
        assert_eq!(lines, [2, 3, 4, 5, 7, 8, 10, 11]);
        assert_eq!(source.test_modules, ["laws"]);
    }

    #[test]
    fn words_are_whole() {
        for (line, word, found) in [
            ("use tokio::fs;", "tokio", true),
            ("mytokio::x", "tokio", false),
            ("let tokios = 1", "tokio", false),
            ("Instant::now()", "Instant", true),
            ("std::fs::read", "std::fs", true),
            ("println!(", "print!", false),
            ("x.print!(", "print!", true),
        ] {
            assert_eq!(has_word(line, word), found, "{word} in {line}");
        }
    }
}
