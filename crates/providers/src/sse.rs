//! Server-sent events: bytes in any split to events.

/// Bytes of one event at most, its lines and its data together.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event. Invalid UTF-8 in it has become U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The `event` field; empty when there was none.
    pub event: String,
    /// The `data` lines, joined by newlines.
    pub data: String,
}

/// An event is larger than [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {} MiB", MAX_EVENT_BYTES >> 20)]
pub struct EventTooLarge;

/// Collects bytes into events. Every byte is looked at once, however the stream is split.
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// The line that is not complete yet.
    line: Vec<u8>,
    event: String,
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended in CR: a LF that follows belongs to it.
    after_cr: bool,
    /// The byte order mark was looked for.
    begun: bool,
}

impl SseDecoder {
    /// Takes more bytes and adds the events that they complete to `out`.
    ///
    /// # Errors
    /// An event exceeds the limit. The decoder is of no use after that.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        while !bytes.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if bytes[0] == b'\n' {
                    bytes = &bytes[1..];
                    continue;
                }
            }
            let end = bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.data.len() + piece.len() > MAX_EVENT_BYTES {
                return Err(EventTooLarge);
            }
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                return Ok(());
            };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.take_line(piece, out);
            } else {
                self.line.extend_from_slice(piece);
                let mut line = std::mem::take(&mut self.line);
                self.take_line(&line, out);
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    /// The stream is over: what was not closed by an empty line is given as an event, when it has data. It may
    /// be half of what was meant.
    pub fn finish(&mut self, out: &mut Vec<SseEvent>) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, out);
        }
        self.take_line(b"", out);
    }

    fn take_line(&mut self, mut line: &[u8], out: &mut Vec<SseEvent>) {
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                self.data.pop();
                let data = String::from_utf8_lossy(&self.data).into_owned();
                self.data.clear();
                out.push(SseEvent { event, data });
            }
            return;
        }
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                self.has_data = true;
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            // A comment, `id`, `retry`, or a field that nobody has defined yet.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<SseEvent> {
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut out).unwrap();
        }
        decoder.finish(&mut out);
        out
    }

    /// Checks the events of `text` whole, byte by byte, and for every split in two.
    #[track_caller]
    fn check(bytes: &[u8], expect: &[(&str, &str)]) {
        let expect: Vec<_> =
            expect.iter().map(|&(event, data)| SseEvent { event: event.into(), data: data.into() }).collect();
        assert_eq!(decode(&[bytes]), expect);
        assert_eq!(decode(&bytes.chunks(1).collect::<Vec<_>>()), expect);
        for at in 0..bytes.len() {
            assert_eq!(decode(&[&bytes[..at], &bytes[at..]]), expect, "split at {at}");
        }
    }

    #[test]
    fn events() {
        check(b"", &[]);
        check(b"\n\n\n", &[]);
        check(b"data: a\n\n", &[("", "a")]);
        check(b"data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]);
        check(b"event: x\ndata: 1\ndata: 2\ndata\n\n", &[("x", "1\n2\n")]);
        check(b"event: lost\n\ndata: a\n\n", &[("", "a")]);
        check(b": a comment\ndata: a\n: another\nid: 7\nretry: 3\nnew: y\n\n", &[("", "a")]);
        check(b"data: a: b\n\n", &[("", "a: b")]);
        check(b"data\n\n", &[("", "")]);
    }

    #[test]
    fn line_ends() {
        check(b"data: a\r\ndata: b\r\n\r\ndata: c\r\r", &[("", "a\nb"), ("", "c")]);
        check(b"event: e\rdata: a\r\rdata: b\r\n\n", &[("e", "a"), ("", "b")]);
    }

    #[test]
    fn byte_order_mark_and_utf8() {
        check("\u{feff}data: é😀\n\n".as_bytes(), &[("", "é😀")]);
        check("\u{feff}\ndata: \u{feff}\n\n".as_bytes(), &[("", "\u{feff}")]);
        check(b"data: \xF0\x9F\n\n", &[("", "\u{fffd}")]);
    }

    #[test]
    fn the_end_closes_an_open_event() {
        check(b"data: a\n", &[("", "a")]);
        check(b"data: a", &[("", "a")]);
        check(b"event: e\n", &[]);
    }

    #[test]
    fn an_event_has_a_limit() {
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        let piece = vec![b'x'; 1 << 20];
        decoder.push(b"data: ", &mut out).unwrap();
        for _ in 0..15 {
            decoder.push(&piece, &mut out).unwrap();
        }
        assert_eq!(decoder.push(&piece, &mut out), Err(EventTooLarge));

        let mut decoder = SseDecoder::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        for _ in 0..15 {
            decoder.push(&line, &mut out).unwrap();
        }
        assert_eq!(decoder.push(&line, &mut out), Err(EventTooLarge));
        assert_eq!(out, []);
    }
}
