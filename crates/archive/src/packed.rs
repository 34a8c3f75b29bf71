//! Files that are packed with Zstandard, as a stream of what is in them.
//!
//! Nothing is unpacked to disk. A file may have several frames, one after the other. What is torn, damaged or larger than the
//! limits ends there: what stood before it comes first, and then an error that [`damage`] knows.

use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::fs::FileExt as _;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// What a frame begins with.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes that a frame may refer back to: they are held in memory.
const WINDOW: u64 = 32 << 20;
/// How many times larger a file may be than what it is packed to, once it is larger than `FREE`.
const RATIO: u64 = 200;
const FREE: u64 = 64 << 20;
/// Bytes that come out of one file at most.
const TOTAL: u64 = 1 << 40;
/// How much larger text is than what it is packed to, about.
const USUAL: u64 = 8;

/// Whether a file begins as a packed one does.
pub(crate) fn is_packed(file: &std::fs::File) -> bool {
    let mut start = [0; 4];
    file.read_exact_at(&mut start, 0).is_ok() && start == MAGIC
}

/// Bytes that come out of a packed file of this size, about.
pub(crate) fn about(packed: u64) -> u64 {
    packed.saturating_mul(USUAL)
}

/// Why what is packed cannot be read further.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Damage(String);

/// Why what is packed cannot be read further, where that is what the error tells.
pub(crate) fn damage(error: &io::Error) -> Option<String> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Damage>()).map(|Damage(why)| why.clone())
}

/// A reader that notes how it ended.
struct Watched<R> {
    from: R,
    /// Bytes so far.
    bytes: u64,
    at_end: bool,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(read) => {
                self.bytes += read as u64;
                self.at_end |= read == 0 && !buffer.is_empty();
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failed = Some(error);
                Err(kind.into())
            }
        }
    }
}

/// What is in a packed file.
pub(crate) struct Unpacked<R> {
    from: BufReader<Watched<R>>,
    decoder: FrameDecoder,
    /// A frame has begun, and is not known to be whole.
    is_open: bool,
    done: u64,
    damage: Option<String>,
}

impl<R: Read> Unpacked<R> {
    /// `from` stands at its beginning.
    pub(crate) fn new(from: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW);
        let from = Watched { from, bytes: 0, at_end: false, failed: None };
        Self { from: BufReader::new(from), decoder, is_open: false, done: 0, damage: None }
    }

    pub(crate) fn into_inner(self) -> R {
        self.from.into_inner().from
    }

    /// Goes on to the next bytes of a frame, or to the next frame; `false` at the end.
    fn go_on(&mut self) -> io::Result<bool> {
        if self.is_open && !self.decoder.is_finished() {
            let next = self.decoder.decode_blocks(&mut self.from, BlockDecodingStrategy::UptoBlocks(1));
            if let Err(error) = next {
                self.failed(&error)?;
                // With an empty last block, and room for a checksum, the frame gives out what it holds back.
                drop(self.decoder.decode_blocks(&[1, 0, 0, 0, 0, 0, 0][..], BlockDecodingStrategy::All));
            }
            return Ok(true);
        }
        if self.is_open {
            self.is_open = false;
            let told = self.decoder.get_checksum_from_data();
            if told.is_some() && told != self.decoder.get_calculated_checksum() {
                let why = "its checksum does not match: its content may be damaged";
                self.damage = Some(why.into());
                return Ok(true);
            }
        }
        if self.from.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.init(&mut self.from) {
            Ok(()) => self.is_open = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let length = u64::from(length);
                if io::copy(&mut (&mut self.from).take(length), &mut io::sink())? < length {
                    self.damage = Some("it ends too early".into());
                }
            }
            Err(error) => self.failed(&error)?,
        }
        Ok(true)
    }

    /// Notes why it ends here, unless the file itself could not be read.
    fn failed(&mut self, error: &FrameDecoderError) -> io::Result<()> {
        let from = self.from.get_mut();
        if let Some(error) = from.failed.take() {
            return Err(error);
        }
        self.damage = Some(match error {
            FrameDecoderError::WindowSizeTooBig { requested, .. } => format!(
                "its compression window is {requested} bytes; the limit is {WINDOW}: unpack it and import the result"
            ),
            FrameDecoderError::DictNotProvided { .. } => {
                "it is compressed with a dictionary: unpack it and import the result".into()
            }
            _ if from.at_end => "it ends too early".into(),
            _ => "its compressed data is damaged".into(),
        });
        Ok(())
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.decoder.can_collect() == 0 {
            if let Some(why) = &self.damage {
                return Err(io::Error::new(io::ErrorKind::InvalidData, Damage(why.clone())));
            }
            if !self.go_on()? {
                return Ok(0);
            }
        }
        let read = self.decoder.read(buffer)?;
        self.done += read as u64;
        let packed = self.from.get_ref().bytes;
        if self.done > TOTAL || self.done > FREE && self.done / RATIO > packed {
            let why = "its compression ratio is above 200, or it unpacks to more than 1 TiB";
            return Err(io::Error::new(io::ErrorKind::InvalidData, Damage(why.into())));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn text() -> Vec<u8> {
        (0..40_000)
            .flat_map(|n: u32| format!("{n} {}\n", n.wrapping_mul(2_654_435_761)).into_bytes())
            .collect()
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    /// All that comes out, and why no more does.
    fn unpacked(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
        let mut from = Unpacked::new(bytes);
        let mut out = Vec::new();
        let mut buffer = [0; 5_000];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return (out, None),
                Ok(read) => out.extend(&buffer[..read]),
                Err(error) => return (out, Some(damage(&error).unwrap())),
            }
        }
    }

    #[test]
    fn frames_after_each_other_and_what_is_to_be_skipped() {
        let text = text();
        let (first, second) = text.split_at(100_000);
        let mut bytes = packed(first);
        bytes.extend(b"\x50\x2a\x4d\x18\x03\0\0\0abc");
        bytes.extend(packed(b""));
        bytes.extend(packed(second));
        assert_eq!(unpacked(&bytes), (text, None));
        assert_eq!(unpacked(b""), (Vec::new(), None));
    }

    #[test]
    fn what_stands_before_a_torn_end_comes_first() {
        let text = text();
        let bytes = packed(&text);
        assert_eq!(unpacked(&bytes), (text.clone(), None));
        let mut most = 0;
        for cut in (0..bytes.len()).step_by(997) {
            let (out, why) = unpacked(&bytes[..cut]);
            assert!(text.starts_with(&out), "{cut}");
            assert_eq!(why.as_deref(), (cut > 0).then_some("it ends too early"), "{cut}");
            most = most.max(out.len());
        }
        // All blocks but the last.
        assert!(most + (128 << 10) >= text.len() && most > 0, "{most}");
        let (out, why) = unpacked(&[&bytes, &b"more"[..]].concat());
        assert_eq!((out, why.as_deref()), (text, Some("its compressed data is damaged")));
    }

    #[test]
    fn damage_anywhere_ends_it() {
        let text = &text()[..3_000];
        let bytes = packed(text);
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                let (out, why) = unpacked(&bytes);
                assert!(why.is_some() || out == *text, "{at} {change}");
                assert!(out.len() <= 1 << 20, "{at} {change}");
            }
        }
    }

    #[test]
    fn a_bomb_ends_early() {
        // One byte, 128 KiB times, in each block of four bytes.
        let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x58];
        for _ in 0..4_000 {
            bytes.extend([0b010, 0, 0b1_0000, b'a']);
        }
        bytes.extend([1, 0, 0]);
        let (out, why) = unpacked(&bytes);
        assert!(out.len() as u64 <= FREE && out.len() > 60 << 20, "{}", out.len());
        assert!(why.unwrap().contains("compression ratio is above 200"));
        // A window of 64 MiB.
        let (out, why) = unpacked(&[0x28, 0xb5, 0x2f, 0xfd, 0, 16 << 3, 1, 0, 0]);
        assert!(out.is_empty() && why.unwrap().contains("compression window is"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_damage() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let text = text();
        let bytes = packed(&text);
        let mut from = Unpacked::new((&bytes[..bytes.len() / 2]).chain(Broken));
        let error = io::copy(&mut from, &mut io::sink()).unwrap_err();
        assert!(damage(&error).is_none() && error.to_string() == "broken", "{error}");
    }
}
