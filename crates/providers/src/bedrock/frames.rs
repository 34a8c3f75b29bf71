//! The frames of an answer: bytes to messages. Their parts are read by a library; the limits are here.

use aws_smithy_eventstream::frame::read_message_from;
use aws_smithy_types::event_stream::Message;
use bytes::{Buf as _, BytesMut};
use flate2::Crc;
use quipu_protocol::{ModelError, ModelErrorKind};

use crate::assemble::malformed;
use crate::failure::quote;

/// Two lengths and their checksum.
const PRELUDE: usize = 12;
/// Bytes of one frame at most, its headers and checksums included.
const MAX_FRAME: usize = 16 << 20;
/// Bytes of something that is no frame which are read for the message about it.
const MAX_FOREIGN: usize = 4 << 10;

/// Cuts an answer into its messages. Holds no more than one frame and the bytes that were pushed last.
#[derive(Default)]
pub(super) struct FrameDecoder {
    buffer: BytesMut,
    /// A prelude came that is one.
    heard: bool,
}

impl FrameDecoder {
    /// Takes more bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether what came looks like frames.
    pub(super) fn has_heard(&self) -> bool {
        self.heard
    }

    /// The next message; `None` where more bytes are needed.
    ///
    /// # Errors
    /// `TooLarge` for a frame beyond the limit, `Malformed` for what is none.
    pub(super) fn message(&mut self) -> Result<Option<Message>, ModelError> {
        let Some(prelude) = self.buffer.get(..PRELUDE) else { return Ok(None) };
        let mut fields = prelude;
        let (length, _, checksum) = (fields.get_u32(), fields.get_u32(), fields.get_u32());
        // Its length means something only when it is one.
        if checksum_of(&prelude[..8]) != checksum {
            if self.heard {
                return Err(malformed("sent a frame whose checksum is wrong"));
            }
            return if self.buffer.len() < MAX_FOREIGN { Ok(None) } else { Err(self.foreign()) };
        }
        self.heard = true;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(ModelError::new(
                ModelErrorKind::TooLarge,
                format!("sent a frame that is larger than {} MiB", MAX_FRAME >> 20),
            ));
        }
        // The library names what is wrong with one that is shorter than its prelude.
        if self.buffer.len() < length {
            return Ok(None);
        }
        let frame = self.buffer.split_to(length.max(PRELUDE)).freeze();
        let message = read_message_from(frame);
        message.map(Some).map_err(|error| {
            malformed(format!("sent a frame that is damaged: {}", quote(&error.to_string())))
        })
    }

    /// The body is over. What is left is what went wrong.
    pub(super) fn end(&self, begun: bool) -> ModelError {
        if !self.heard && self.buffer.len() >= PRELUDE {
            return self.foreign();
        }
        let how = match (self.buffer.is_empty(), begun) {
            (false, _) => "ended the answer in the middle of an event",
            (true, true) => "ended the answer before it was complete",
            (true, false) => "ended the answer before it began",
        };
        ModelError::new(ModelErrorKind::StreamEnded, how)
    }

    fn foreign(&self) -> ModelError {
        let start = &self.buffer[..self.buffer.len().min(MAX_FOREIGN)];
        let words = quote(&String::from_utf8_lossy(start));
        malformed(format!("did not answer with an event stream: {words}"))
    }
}

fn checksum_of(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    /// Headers and payload of a frame, in any split.
    fn read(frame: &[u8]) -> Result<(Vec<(String, String)>, String), ModelErrorKind> {
        let decode = |size: usize| {
            let mut decoder = FrameDecoder::default();
            let mut messages = Vec::new();
            for piece in frame.chunks(size) {
                decoder.push(piece);
                while let Some(message) = decoder.message().map_err(|error| error.kind)? {
                    let header = |header: &aws_smithy_types::event_stream::Header| {
                        let value = header.value().as_string().unwrap().as_str().to_owned();
                        (header.name().as_str().to_owned(), value)
                    };
                    let payload = String::from_utf8(message.payload().to_vec()).unwrap();
                    messages.push((message.headers().iter().map(header).collect(), payload));
                }
            }
            match messages.pop() {
                Some(message) if messages.is_empty() => Ok(message),
                Some(_) => panic!("one frame"),
                None => Err(decoder.end(false).kind),
            }
        };
        let whole = decode(usize::MAX);
        for size in [1, 5] {
            assert_eq!(decode(size), whole);
        }
        whole
    }

    const EMPTY: &str = "00000010 00000000 05c248eb 7d98c8ff";
    const NO_HEADERS: &str = "0000001d 00000000 fd528c5a 7b27666f6f273a27626172277d c3653936";
    const ONE_HEADER: &str = "0000003d 00000020 07fd8396 0c636f6e74656e742d74797065 07 0010 \
        6170706c69636174696f6e2f6a736f6e 7b27666f6f273a27626172277d 8d9c08b1";

    /// The vectors that are published for this encoding.
    #[test]
    fn published_vectors_are_read_as_they_say() {
        let foo = "{'foo':'bar'}".to_owned();
        assert_eq!(read(&bytes(EMPTY)), Ok((vec![], String::new())));
        assert_eq!(read(&bytes(NO_HEADERS)), Ok((vec![], foo.clone())));
        let header = ("content-type".to_owned(), "application/json".to_owned());
        assert_eq!(read(&bytes(ONE_HEADER)), Ok((vec![header], foo)));
    }

    #[test]
    fn damaged_frames_are_refused() {
        use ModelErrorKind as K;
        let damaged = |of: &str, place: usize, bit: u8| {
            let mut frame = bytes(of);
            frame[place] ^= bit;
            read(&frame).unwrap_err()
        };
        for of in [EMPTY, NO_HEADERS, ONE_HEADER] {
            for place in 0..bytes(of).len() {
                for bit in [1, 0x80] {
                    assert_eq!(damaged(of, place, bit), K::Malformed, "{of} {place}");
                }
            }
            for end in 1..bytes(of).len() {
                assert_eq!(read(&bytes(of)[..end]), Err(K::StreamEnded), "{of} {end}");
            }
        }
    }

    #[test]
    fn lengths_are_limited_and_checked() {
        use ModelErrorKind as K;
        let frame = |total: u32, headers: u32, rest: usize| {
            let mut frame = [total.to_be_bytes(), headers.to_be_bytes()].concat();
            frame.extend(checksum_of(&frame).to_be_bytes());
            frame.extend(vec![0; rest]);
            read(&frame).unwrap_err()
        };
        assert_eq!(frame(u32::MAX, 0, 0), K::TooLarge);
        assert_eq!(frame((16 << 20) + 1, 0, 0), K::TooLarge);
        assert_eq!(frame(16 << 20, 0, 0), K::StreamEnded);
        for total in 0..16 {
            assert_eq!(frame(total, 0, 8), K::Malformed, "{total}");
        }
        for headers in [1, 5, u32::MAX] {
            assert_eq!(frame(20, headers, 8), K::Malformed, "{headers}");
        }
    }
}
