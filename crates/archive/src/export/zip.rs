//! ZIP archives of others: what is in them, and the bytes of one file at a time, as a stream.
//!
//! Nothing is unpacked to disk and no name leads anywhere: names are compared and never opened. What is not as it should be is
//! told of the one file that it is about.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

/// Bytes of the list of files at the end, and files in it, at most.
const DIRECTORY: u64 = 64 << 20;
const FILES: usize = 200_000;
/// How many times larger a file may be than what it is packed to, once it is larger than `FREE`.
const RATIO: u64 = 200;
const FREE: u64 = 64 << 20;
/// Bytes that are unpacked of one archive at most.
const TOTAL: u64 = 1 << 40;
/// Bytes that are read from the archive at once.
const BUFFER: usize = 256 << 10;

/// An archive that was opened.
pub(crate) struct Zip {
    file: Arc<File>,
    pub(crate) files: Vec<Packed>,
    /// Files that cannot be read: their names, and why.
    pub(crate) faults: Vec<(String, &'static str)>,
    unpacked: Arc<AtomicU64>,
}

/// A file in an archive.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    /// With `/` between folders, and none of `..`.
    pub(crate) name: String,
    /// Bytes of it, as the archive says.
    pub(crate) size: u64,
    packed: u64,
    /// Where its own header begins.
    offset: u64,
    crc: u32,
    is_deflated: bool,
}

fn damaged(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Whether a file begins as an archive does.
pub(crate) fn is_zip(file: &File) -> bool {
    let mut start = [0; 4];
    file.read_exact_at(&mut start, 0).is_ok() && (start == *b"PK\x03\x04" || start == *b"PK\x05\x06")
}

impl Zip {
    /// Reads the list of files.
    ///
    /// # Errors
    /// It cannot be read, has no end, or its list is damaged or larger than the limit.
    pub(crate) fn open(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let (count, size, start) = directory(&file, length)?;
        if size > DIRECTORY || count > FILES as u64 {
            return Err(damaged("it has more than 200,000 files, or its file list is larger than 64 MiB"));
        }
        if start.checked_add(size).is_none_or(|end| end > length) {
            return Err(damaged("its file list is not where its header says"));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        file.read_exact_at(&mut bytes, start)?;
        let mut zip = Self {
            file: Arc::new(file),
            files: Vec::new(),
            faults: Vec::new(),
            unpacked: Arc::new(AtomicU64::new(0)),
        };
        zip.list(&bytes, start)?;
        zip.without_overlaps();
        Ok(zip)
    }

    /// Reads the records of the list, which begins at `end` of what is packed.
    fn list(&mut self, mut bytes: &[u8], end: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            if !bytes.starts_with(b"PK\x01\x02") || bytes.len() < 46 {
                return Err(damaged("its file list is damaged"));
            }
            let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(bytes, at)));
            let Some(record) = bytes.get(..46 + name + extra + comment) else {
                return Err(damaged("its file list is damaged"));
            };
            bytes = &bytes[record.len()..];
            let (flags, method) = (u16_at(record, 8), u16_at(record, 10));
            let mut sizes = [24, 20, 42].map(|at| u64::from(u32_at(record, at)));
            let more = long_sizes(&record[46 + name..46 + name + extra]);
            let mut more = more.chunks_exact(8);
            for size in sizes.iter_mut().filter(|size| **size == u64::from(u32::MAX)) {
                *size = more.next().map_or(*size, |eight| u64_at(eight, 0));
            }
            let [size, packed, offset] = sizes;
            let name = String::from_utf8_lossy(&record[46..46 + name]).replace('\\', "/");
            if name.ends_with('/') {
                continue;
            }
            // As Unix notes it: a link holds the name of another file.
            let is_link = record[5] == 3 && u32_at(record, 38) >> 28 == 0o12;
            let is_inside =
                offset.checked_add(30).and_then(|at| at.checked_add(packed)).is_some_and(|at| at <= end);
            let fault = if name.starts_with('/')
                || name.contains(':')
                || name.split('/').any(|part| part == "..")
            {
                Some("its path leads outside the archive")
            } else if flags & 1 != 0 {
                Some("it is encrypted; unpack the archive and import the folder")
            } else if is_link {
                Some("it is a link")
            } else if method != 0 && method != 8 {
                Some(
                    "its compression method is not supported (only stored and deflated are); unpack the archive and \
                     import the folder",
                )
            } else if !is_inside {
                Some("it is not where the archive index says")
            } else {
                None
            };
            match fault {
                Some(why) => self.faults.push((name, why)),
                None => {
                    let crc = u32_at(record, 16);
                    let is_deflated = method == 8;
                    self.files.push(Packed { name, size, packed, offset, crc, is_deflated });
                }
            }
            if self.files.len() + self.faults.len() > FILES {
                return Err(damaged("it has more than 200,000 files"));
            }
        }
        Ok(())
    }

    /// Leaves out files that share bytes with others, by which a small archive would be an endless one, and of those of one
    /// name all but the last.
    fn without_overlaps(&mut self) {
        let mut by_place: Vec<usize> = (0..self.files.len()).collect();
        by_place.sort_by_key(|at| self.files[*at].offset);
        let mut out: HashSet<usize> = HashSet::new();
        let mut end = 0;
        for at in by_place {
            let file = &self.files[at];
            if file.offset < end {
                self.faults.push((file.name.clone(), "it shares its bytes with another file"));
                out.insert(at);
            } else {
                end = file.offset + 30 + file.packed;
            }
        }
        let mut names = HashSet::new();
        for (at, file) in self.files.iter().enumerate().rev() {
            if !out.contains(&at) && !names.insert(file.name.as_str()) {
                self.faults.push((file.name.clone(), "a later file in the archive has the same name"));
                out.insert(at);
            }
        }
        let mut at = 0;
        self.files.retain(|_| {
            at += 1;
            !out.contains(&(at - 1))
        });
    }

    /// The bytes of a file. A wrong checksum or length is an error at the end.
    ///
    /// # Errors
    /// Its header is not where the list says.
    pub(crate) fn read(&self, packed: &Packed) -> io::Result<Unpacked> {
        let mut header = [0; 30];
        self.file.read_exact_at(&mut header, packed.offset)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err(damaged("it is not where the archive index says"));
        }
        let at = packed.offset + 30 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        let bytes = BufReader::with_capacity(
            BUFFER,
            Piece { file: Arc::clone(&self.file), at, end: at.saturating_add(packed.packed) },
        );
        let from =
            if packed.is_deflated { From::Deflated(DeflateDecoder::new(bytes)) } else { From::Stored(bytes) };
        Ok(Unpacked {
            from,
            packed: packed.clone(),
            done: 0,
            crc: Crc::new(),
            all: Arc::clone(&self.unpacked),
        })
    }
}

/// How many records the list of files has, its bytes, and where it begins.
fn directory(file: &File, length: u64) -> io::Result<(u64, u64, u64)> {
    let start = length.saturating_sub(22 + u64::from(u16::MAX));
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or_default()];
    file.read_exact_at(&mut tail, start)?;
    let found = memchr::memmem::rfind(&tail, b"PK\x05\x06").filter(|at| tail.len() - at >= 22);
    let Some(at) = found else {
        return Err(damaged("its end is missing; download it again"));
    };
    let end = &tail[at..];
    let short = (u64::from(u16_at(end, 10)), u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
    let is_long =
        short.0 == u64::from(u16::MAX) || short.1 == u64::from(u32::MAX) || short.2 == u64::from(u32::MAX);
    let Some(locator) =
        at.checked_sub(20).map(|at| &tail[at..]).filter(|bytes| bytes.starts_with(b"PK\x06\x07"))
    else {
        return Ok(short);
    };
    if !is_long {
        return Ok(short);
    }
    let mut record = [0; 56];
    file.read_exact_at(&mut record, u64_at(locator, 8))?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(damaged("its file list is damaged"));
    }
    Ok((u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48)))
}

/// The numbers that are too long for a record, as its extra field has them.
fn long_sizes(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let length = usize::from(u16_at(extra, 2));
        let Some(data) = extra.get(4..4 + length) else { break };
        if u16_at(extra, 0) == 1 {
            return data;
        }
        extra = &extra[4 + length..];
    }
    &[]
}

/// A piece of a file that others read as well.
struct Piece {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Piece {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let room = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

enum From {
    Stored(BufReader<Piece>),
    Deflated(DeflateDecoder<BufReader<Piece>>),
}

/// The bytes of a file of an archive.
pub(crate) struct Unpacked {
    from: From,
    packed: Packed,
    done: u64,
    crc: Crc,
    /// Of the whole archive.
    all: Arc<AtomicU64>,
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = match &mut self.from {
            From::Stored(bytes) => bytes.read(buffer),
            From::Deflated(bytes) => bytes.read(buffer),
        };
        let read = read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                damaged("its compressed data is damaged")
            }
            io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
            _ => error,
        })?;
        if read == 0 {
            if self.done < self.packed.size {
                return Err(damaged("it ends too early"));
            }
            if self.crc.sum() != self.packed.crc {
                return Err(damaged("its checksum does not match: its content may be damaged"));
            }
            return Ok(0);
        }
        self.done += read as u64;
        self.crc.update(&buffer[..read]);
        if self.done > self.packed.size {
            return Err(damaged("it is larger than the archive index says"));
        }
        if self.done > FREE && self.done / RATIO > self.packed.packed {
            return Err(damaged(
                "its compression ratio is above 200; if you trust it, unpack the archive and import the folder",
            ));
        }
        if self.all.fetch_add(read as u64, Ordering::Relaxed) > TOTAL {
            return Err(damaged("the archive unpacks to more than 1 TiB"));
        }
        Ok(read)
    }
}
