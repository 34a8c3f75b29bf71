//! The elements of a JSON list, one at a time, however long the list is.

use std::io::{self, BufRead};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// Its bytes, which may be no JSON.
    Whole(Vec<u8>),
    /// So many bytes, which are more than the limit.
    TooLong(u64),
    /// The file ends within it.
    Torn,
    /// What stands there is no list, and no object; nothing more is read.
    NoList,
}

/// Takes a list apart. An object that stands where a list should is taken as its only element, and lists may follow each other.
pub(crate) struct Elements<R> {
    reader: R,
    limit: usize,
    /// Whether a list was begun and not ended.
    is_open: bool,
    is_over: bool,
    /// Bytes read so far.
    pub(crate) offset: u64,
}

impl<R: BufRead> Elements<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, is_open: false, is_over: false, offset: 0 }
    }

    /// The next byte that is no blank; it stays.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let piece = self.reader.fill_buf()?;
            if piece.is_empty() {
                return Ok(None);
            }
            // A mark of the encoding may stand before all else.
            let is_blank =
                |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf | b',');
            let blank = piece.iter().take_while(is_blank).count();
            let next = piece.get(blank).copied();
            self.take(blank);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    fn take(&mut self, count: usize) {
        self.reader.consume(count);
        self.offset += count as u64;
    }

    /// The next element; `None` after the last.
    pub(crate) fn next(&mut self) -> io::Result<Option<Element>> {
        loop {
            if self.is_over {
                return Ok(None);
            }
            match (self.peek()?, self.is_open) {
                (None, is_open) => {
                    self.is_over = true;
                    return Ok(is_open.then_some(Element::Torn));
                }
                (Some(b'['), false) => {
                    self.take(1);
                    self.is_open = true;
                }
                (Some(b']'), true) => {
                    self.take(1);
                    self.is_open = false;
                }
                (Some(b'{'), false) | (Some(_), true) => return self.element().map(Some),
                (Some(_), false) => {
                    self.is_over = true;
                    return Ok(Some(Element::NoList));
                }
            }
        }
    }

    fn element(&mut self) -> io::Result<Element> {
        let mut bytes = Vec::new();
        let (mut depth, mut is_string, mut is_escaped, mut length) = (0_u64, false, false, 0_u64);
        loop {
            let piece = self.reader.fill_buf()?;
            if piece.is_empty() {
                self.is_over = true;
                return Ok(Element::Torn);
            }
            let mut at = 0;
            let mut is_done = false;
            while let Some(byte) = piece.get(at) {
                if is_escaped {
                    is_escaped = false;
                } else if is_string {
                    let rest = &piece[at..];
                    let Some(found) = memchr::memchr2(b'"', b'\\', rest) else {
                        at = piece.len();
                        break;
                    };
                    at += found;
                    is_string = rest[found] != b'"';
                    is_escaped = is_string;
                } else {
                    match byte {
                        b'"' => is_string = true,
                        b'{' | b'[' => depth += 1,
                        b',' | b']' | b'}' if depth == 0 => {
                            is_done = true;
                            break;
                        }
                        b'}' | b']' => {
                            depth -= 1;
                            is_done = depth == 0;
                        }
                        _ => {}
                    }
                }
                at += 1;
                if is_done {
                    break;
                }
            }
            length += at as u64;
            if length <= self.limit as u64 {
                bytes.extend_from_slice(&piece[..at]);
            } else {
                bytes = Vec::new();
            }
            self.reader.consume(at);
            self.offset += at as u64;
            if is_done {
                // A bracket that nothing opened would stay for ever.
                if length == 0 {
                    self.take(1);
                }
                let is_long = length > self.limit as u64;
                return Ok(if is_long { Element::TooLong(length) } else { Element::Whole(bytes) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_in_any_split() {
        let whole = |text: &str| Element::Whole(text.into());
        let check = |text: &str, expect: &[Element]| {
            for capacity in 1..40 {
                let mut elements = Elements::new(io::BufReader::with_capacity(capacity, text.as_bytes()), 20);
                let mut seen = Vec::new();
                while let Some(element) = elements.next().unwrap() {
                    seen.push(element);
                }
                assert_eq!(seen, expect, "{text:?} in pieces of {capacity}");
            }
        };
        check("", &[]);
        check("[]", &[]);
        check(
            "\u{feff}[ {\"a\":\"]}\\\"\"} ,\n5,[1,[2]] ]",
            &[whole("{\"a\":\"]}\\\"\"}"), whole("5"), whole("[1,[2]]")],
        );
        check("[{\"a\":1}][{\"b\":2}]", &[whole("{\"a\":1}"), whole("{\"b\":2}")]);
        check("{\"a\":[1,2]} {\"b\":2}", &[whole("{\"a\":[1,2]}"), whole("{\"b\":2}")]);
        check("[\"longer than it may be, by far\",1]", &[Element::TooLong(31), whole("1")]);
        check("[{\"a\":1},{\"b\":", &[whole("{\"a\":1}"), Element::Torn]);
        check("[{\"a\":1}", &[whole("{\"a\":1}"), Element::Torn]);
        check("[{\"a\":1},", &[whole("{\"a\":1}"), Element::Torn]);
        check("[}]", &[whole("")]);
        check("hello", &[Element::NoList]);
    }
}
