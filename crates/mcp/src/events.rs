//! A stream of events, with the ids by which it is continued.

use std::time::Duration;

use crate::limits::MESSAGE_BYTES;

/// An event is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventError;

/// What stands between two empty lines; the data may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StreamEvent {
    pub(crate) id: Option<String>,
    pub(crate) data: Vec<u8>,
}

/// Collects bytes into events.
#[derive(Debug, Default)]
pub(crate) struct EventDecoder {
    line: Vec<u8>,
    event: StreamEvent,
    is_open: bool,
    after_cr: bool,
    /// The wait before the stream is continued, as the server said last.
    pub(crate) retry: Option<Duration>,
}

impl EventDecoder {
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), EventError> {
        for byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.take(&line, out);
                }
                byte => {
                    if self.line.len() + self.event.data.len() >= MESSAGE_BYTES {
                        return Err(EventError);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8], out: &mut Vec<StreamEvent>) {
        if line.is_empty() {
            if std::mem::take(&mut self.is_open) {
                out.push(std::mem::take(&mut self.event));
            }
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => {
                if self.is_open && !self.event.data.is_empty() {
                    self.event.data.push(b'\n');
                }
                self.is_open = true;
                self.event.data.extend_from_slice(value);
            }
            b"id" if !value.contains(&0) => {
                self.is_open = true;
                self.event.id = Some(text());
            }
            b"retry" => self.retry = text().parse().ok().map(Duration::from_millis).or(self.retry),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str, size: usize) -> (Vec<(Option<String>, String)>, Option<Duration>) {
        let (mut decoder, mut out) = (EventDecoder::default(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            decoder.push(piece, &mut out).unwrap();
        }
        let text = |event: StreamEvent| (event.id, String::from_utf8(event.data).unwrap());
        (out.into_iter().map(text).collect(), decoder.retry)
    }

    #[test]
    fn events_have_ids_and_data_in_any_split() {
        let stream = ": hello\r\nid: e1\r\nretry: 500\r\ndata: \r\n\r\nevent: message\nid: e2\ndata: a\ndata: b\n\ndata:c\r\r";
        for size in 1..stream.len() {
            let (events, retry) = decoded(stream, size);
            let some = |id: &str| Some(id.to_owned());
            let expect = [(some("e1"), String::new()), (some("e2"), "a\nb".into()), (None, "c".into())];
            assert_eq!(events, expect, "{size}");
            assert_eq!(retry, Some(Duration::from_millis(500)));
        }
    }

    #[test]
    fn event_beyond_the_limit_is_refused() {
        let mut decoder = EventDecoder::default();
        let piece = vec![b'x'; 1 << 20];
        let mut pushes = (0..17).map(|_| decoder.push(&piece, &mut Vec::new()));
        assert!(pushes.any(|pushed| pushed == Err(EventError)));
    }
}
