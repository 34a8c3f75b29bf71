//! The text of PDF files, page by page. Files are hostile: whatever one says, reading it takes a bounded time and memory, and
//! what is damaged is read as far as it goes.
//!
//! Knows no file system and no clock: bytes come in, text goes out.

mod content;
mod file;
mod filters;
mod fonts;
mod glyphs;
mod limits;
mod object;

use tokio_util::sync::CancellationToken;

use content::Reader;
use file::PdfFile;
use limits::Budget;
pub(crate) use limits::{FILE_LIMIT, PdfError};

/// Whether a file begins as PDF files do.
pub(crate) fn is_pdf(magic: &[u8]) -> bool {
    magic.starts_with(b"%PDF-")
}

/// Which pages are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRange {
    /// The first, from 0.
    pub(crate) first: u64,
    /// How many; `None`: as many as fit.
    pub(crate) count: Option<u64>,
}

/// Text of some pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PdfText {
    /// In order, from the first that was wanted.
    pub(crate) pages: Vec<PageContent>,
    /// How many the file has.
    pub(crate) total: u64,
    /// The file breaks off.
    pub(crate) is_truncated: bool,
}

/// Text of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageContent {
    pub(crate) text: String,
    /// Characters of fonts that do not say what they are.
    pub(crate) unknown: usize,
}

/// Reads pages, until they have more than `enough` bytes.
pub(crate) fn read_pages(
    bytes: &[u8],
    range: PageRange,
    enough: usize,
    cancel: &CancellationToken,
) -> Result<PdfText, PdfError> {
    let mut budget = Budget::new(cancel);
    let file = PdfFile::open(bytes, &mut budget)?;
    let all = file.pages(&mut budget)?;
    if all.is_empty() {
        return Err(PdfError::NoPages);
    }
    let end = bytes.get(bytes.len().saturating_sub(2048)..).unwrap_or_default();
    let is_truncated = memchr::memmem::find(end, b"%%EOF").is_none();
    let mut text = PdfText { total: all.len() as u64, is_truncated, ..PdfText::default() };
    let first = usize::try_from(range.first).unwrap_or(usize::MAX);
    let count = range.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let (mut reader, mut taken) = (Reader::new(&file), 0);
    for page in all.iter().skip(first).take(count) {
        let read = match reader.page(page, &mut budget) {
            Ok(read) => read,
            // What was read before is worth something.
            Err(PdfError::Bomb | PdfError::TooMuchWork) if !text.pages.is_empty() => break,
            Err(error) => return Err(error),
        };
        taken += read.text.len();
        text.pages.push(PageContent { text: read.text, unknown: read.unknown });
        if taken > enough {
            break;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
