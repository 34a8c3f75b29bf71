//! A damaged file read without SQLite: its pages, the WAL over them, and the rows in leaves of tables.
//!
//! Nothing here trusts the file. Every offset is checked, every chain and tree has an end, and what cannot be read
//! is left out; whether a row is what it says is for the caller to find out, from its hash.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::CHUNK_LIMIT;

const MAGIC: &[u8] = b"SQLite format 3\0";
/// The size of a page where the file does not say: SQLite's own, and ours.
const DEFAULT_PAGE: usize = 4096;
const LEAF: u8 = 0x0d;
const INNER: u8 = 0x05;
/// Columns of one row at most; ours have fewer than 20.
const COLUMNS: usize = 64;
/// Bytes of the WAL before its first frame, and before the page in each frame.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// A row of some table.
pub(super) struct Row {
    pub(super) rowid: i64,
    pub(super) values: Vec<Value>,
}

/// What was met on the way.
#[derive(Default)]
pub(super) struct Tally {
    /// Rows that could not be read.
    pub(super) broken: u64,
    /// Pages that should be part of a table and are not.
    pub(super) pages: u64,
}

/// The pages of a database as its last commit left them, as far as the WAL can be read.
pub(super) struct Pages<'a> {
    file: &'a File,
    wal: Option<&'a File>,
    /// Where in the WAL the newest committed version of a page stands.
    newer: HashMap<u32, u64>,
    size: usize,
    usable: usize,
    count: u32,
    /// Whether there is a WAL, and none of it could be read.
    pub(super) wal_unreadable: bool,
    /// Bytes that may still be read through chains of pages: rows cannot make us read the file again and again.
    budget: u64,
}

impl<'a> Pages<'a> {
    /// Finds the pages. `size` is what a page has, where the file's own word is not to be taken.
    pub(super) fn open(file: &'a File, wal: Option<&'a File>, size: Option<usize>) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut header = [0; 100];
        let known = file.read_exact_at(&mut header, 0).is_ok() && header.starts_with(MAGIC);
        let own = match usize::from(u16::from_be_bytes([header[16], header[17]])) {
            1 => 65536,
            size => size,
        };
        let own = Some(own).filter(|size| known && is_page_size(*size));
        let mut pages = Self {
            file,
            wal,
            newer: HashMap::new(),
            size: 0,
            usable: 0,
            count: 0,
            wal_unreadable: false,
            budget: 0,
        };
        let mut last = 0;
        let wal_size = wal.map(File::metadata).transpose()?.map_or(0, |found| found.len());
        let mut of_wal = None;
        if wal_size > LOG_HEADER as u64 {
            let (size, newest) = pages.read_wal(wal_size)?;
            pages.wal_unreadable = size.is_none();
            (of_wal, last) = (size, newest);
        }
        pages.size = size.or(of_wal).or(own).unwrap_or(DEFAULT_PAGE);
        if of_wal.is_some_and(|size| size != pages.size) {
            pages.newer.clear();
        }
        let reserved = if known { usize::from(header[20]) } else { 0 };
        pages.usable = Some(pages.size - reserved).filter(|usable| *usable >= 480).unwrap_or(pages.size);
        let whole = u32::try_from(length.div_ceil(pages.size as u64)).unwrap_or(u32::MAX);
        pages.count = whole.max(last);
        pages.budget = length.saturating_add(wal_size).saturating_mul(4).saturating_add(1 << 20);
        Ok(pages)
    }

    /// The size of a page.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Reads which pages the WAL has: only of transactions that were committed, and only as far as the chain of
    /// checksums holds. Gives the size of its pages and the number of the last one.
    fn read_wal(&mut self, length: u64) -> io::Result<(Option<usize>, u32)> {
        let Some(wal) = self.wal else { return Ok((None, 0)) };
        let mut header = [0; LOG_HEADER];
        wal.read_exact_at(&mut header, 0)?;
        let size = word(&header, 8) as usize;
        let big = match word(&header, 0) {
            0x377f_0683 => true,
            0x377f_0682 => false,
            _ => return Ok((None, 0)),
        };
        let mut sum = checksum((0, 0), &header[..24], big);
        if !is_page_size(size) || sum != (word(&header, 24), word(&header, 28)) {
            return Ok((None, 0));
        }
        let (mut open, mut last) = (HashMap::new(), 0);
        let mut frame = vec![0; FRAME_HEADER + size];
        let mut at = LOG_HEADER as u64;
        while at + frame.len() as u64 <= length {
            wal.read_exact_at(&mut frame, at)?;
            sum = checksum(sum, &frame[..8], big);
            sum = checksum(sum, &frame[FRAME_HEADER..], big);
            let belongs = frame[8..16] == header[16..24] && sum == (word(&frame, 16), word(&frame, 20));
            if !belongs {
                break;
            }
            open.insert(word(&frame, 0), at + FRAME_HEADER as u64);
            if word(&frame, 4) != 0 {
                last = last.max(open.keys().copied().max().unwrap_or(0));
                self.newer.extend(open.drain());
            }
            at += frame.len() as u64;
        }
        Ok((Some(size), last))
    }

    /// A page; what is missing at the end of the file is zeros. `None` where there is nothing at all.
    fn page(&self, number: u32) -> io::Result<Option<Vec<u8>>> {
        if number == 0 || number > self.count {
            return Ok(None);
        }
        let mut page = vec![0; self.size];
        let (from, at) = match (self.newer.get(&number), self.wal) {
            (Some(at), Some(wal)) => (wal, *at),
            _ => (self.file, u64::from(number - 1) * self.size as u64),
        };
        let mut got = 0;
        while got < page.len() {
            match from.read_at(&mut page[got..], at + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A sector that the disk cannot read is what this is for.
                Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok((got > 0).then_some(page))
    }

    /// Gives every row of every leaf in the file to `take`, whichever table it belongs to.
    pub(super) fn scan<E: From<io::Error>>(
        &mut self,
        tally: &mut Tally,
        mut take: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        for number in 1..=self.count {
            if let Some(page) = self.page(number)? {
                self.leaf(number, &page, tally, &mut take)?;
            }
        }
        Ok(())
    }

    /// Gives every row of the table with this root to `take`. Says whether all of the table could be read.
    pub(super) fn table<E: From<io::Error>>(
        &mut self,
        root: u32,
        mut take: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut tally = Tally::default();
        let (mut seen, mut open, mut whole) = (HashSet::new(), vec![root], true);
        while let Some(number) = open.pop() {
            let page = self.page(number)?;
            let Some(page) = page.filter(|_| seen.insert(number)) else {
                whole = false;
                continue;
            };
            let start = start_of(number);
            match page[start] {
                LEAF => self.leaf(number, &page, &mut tally, &mut take)?,
                INNER => {
                    open.push(word(&page, start + 8));
                    for cell in cells(&page, start + 12, start, self.usable) {
                        match cell.and_then(|at| page.get(at..at + 4)) {
                            Some(bytes) => open.push(word(bytes, 0)),
                            None => whole = false,
                        }
                    }
                }
                _ => whole = false,
            }
        }
        Ok(whole && tally.broken == 0 && tally.pages == 0)
    }

    fn leaf<E: From<io::Error>>(
        &mut self,
        number: u32,
        page: &[u8],
        tally: &mut Tally,
        take: &mut impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = start_of(number);
        if page[start] != LEAF {
            return Ok(());
        }
        let found: Vec<Option<usize>> = cells(page, start + 8, start, self.usable).collect();
        if !found.is_empty() && found.iter().all(Option::is_none) {
            tally.pages += 1;
            return Ok(());
        }
        for cell in found {
            match cell.map(|at| self.row(page, at)).transpose()?.flatten() {
                Some(row) => take(row)?,
                None => tally.broken += 1,
            }
        }
        Ok(())
    }

    fn row(&mut self, page: &[u8], at: usize) -> io::Result<Option<Row>> {
        let page = &page[..self.usable];
        let mut at = at;
        let (Some(size), Some(rowid)) = (varint(page, &mut at), varint(page, &mut at)) else {
            return Ok(None);
        };
        let Some(size) = u64::try_from(size).ok().filter(|size| *size <= CHUNK_LIMIT + (64 << 10)) else {
            return Ok(None);
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (most, least) = (self.usable - 35, (self.usable - 12) * 32 / 255 - 23);
        let local = if size <= most {
            size
        } else {
            let local = least + (size - least) % (self.usable - 4);
            if local <= most { local } else { least }
        };
        let Some(head) = page.get(at..at + local) else { return Ok(None) };
        let mut payload = head.to_vec();
        if local < size {
            let Some(first) = page.get(at + local..at + local + 4) else { return Ok(None) };
            let mut next = word(first, 0);
            while payload.len() < size {
                let Some(left) = self.budget.checked_sub(self.size as u64) else { return Ok(None) };
                self.budget = left;
                let Some(more) = self.page(next)? else { return Ok(None) };
                next = word(&more, 0);
                let end = self.usable.min(4 + size - payload.len());
                payload.extend_from_slice(&more[4..end]);
            }
        }
        Ok(record(&payload).map(|values| Row { rowid, values }))
    }
}

fn is_page_size(size: usize) -> bool {
    size.is_power_of_two() && (512..=65536).contains(&size)
}

/// The first page begins with the header of the file.
fn start_of(page: u32) -> usize {
    if page == 1 { 100 } else { 0 }
}

/// Where the cells of a page stand; `None` for one that points outside.
fn cells(
    page: &[u8],
    list: usize,
    start: usize,
    usable: usize,
) -> impl Iterator<Item = Option<usize>> + use<'_> {
    let count = usize::from(u16::from_be_bytes([page[start + 3], page[start + 4]]));
    // More than fit is no list at all.
    let end = list + 2 * count;
    let count = if end <= usable { count } else { 1 };
    (0..count).map(move |n| {
        let at = usize::from(u16::from_be_bytes([page[list + 2 * n], page[list + 2 * n + 1]]));
        Some(at).filter(|at| *at >= end && *at < usable)
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn checksum(mut sum: (u32, u32), bytes: &[u8], big: bool) -> (u32, u32) {
    let read = |bytes: &[u8]| if big { word(bytes, 0) } else { word(bytes, 0).swap_bytes() };
    for pair in bytes.chunks_exact(8) {
        sum.0 = sum.0.wrapping_add(read(&pair[..4])).wrapping_add(sum.1);
        sum.1 = sum.1.wrapping_add(read(&pair[4..])).wrapping_add(sum.0);
    }
    sum
}

/// A number of one to nine bytes.
fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let mut number: u64 = 0;
    for n in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if n == 8 {
            number = number << 8 | u64::from(byte);
            break;
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number.cast_signed())
}

/// The values of a row; nothing when one of them cannot be read.
fn record(payload: &[u8]) -> Option<Vec<Value>> {
    let mut at = 0;
    let header = usize::try_from(varint(payload, &mut at)?).ok()?;
    let types = payload.get(..header)?;
    let mut body = header;
    let mut values = Vec::new();
    while at < header {
        if values.len() == COLUMNS {
            return None;
        }
        let kind = varint(types, &mut at)?;
        let size = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let bytes = payload.get(body..body.checked_add(size)?)?;
        body += size;
        values.push(match kind {
            0 => Value::Null,
            8 | 9 => Value::Integer(kind - 8),
            7 => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            1..=6 => {
                let sign = if bytes.first()? & 0x80 == 0 { 0 } else { -1 };
                Value::Integer(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
            }
            _ if kind % 2 == 0 => Value::Blob(bytes.to_vec()),
            _ => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        });
    }
    Some(values)
}
