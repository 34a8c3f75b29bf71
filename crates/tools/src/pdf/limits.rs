//! What reading a PDF file may take, and why it ends early.

use tokio_util::sync::CancellationToken;

/// Bytes of a file.
pub(crate) const FILE_LIMIT: u64 = 64 << 20;
/// Bytes that all streams of a file may have together when they are unpacked.
pub(super) const UNPACKED: usize = 128 << 20;
/// Objects, operators and characters that are looked at in one read.
const STEPS: u64 = 20_000_000;
/// Entries of the tables of all fonts.
const ENTRIES: usize = 1_000_000;
/// Values in one object of the file.
pub(super) const VALUES: usize = 1_000_000;
/// How many steps are made between two looks at whether to stop.
const LOOK: u64 = 1 << 14;
/// How deep objects, page trees and drawings may be nested.
pub(super) const DEPTH: usize = 48;
/// Pages of a file.
pub(super) const PAGES: usize = 100_000;

/// Why a PDF file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PdfError {
    #[error("The PDF file is encrypted, and encrypted files are not read. Use a copy without a password.")]
    Encrypted,
    #[error("The PDF file is damaged or truncated: no page was found in it.")]
    NoPages,
    #[error(
        "The PDF file was not read: its streams have more than {} MB when they are unpacked, which is the limit.",
        UNPACKED >> 20
    )]
    Bomb,
    #[error("The PDF file was not read: it takes more than {STEPS} steps, which is the limit.")]
    TooMuchWork,
    #[error("Operation aborted")]
    Cancelled,
}

/// What is left of both limits.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    steps: u64,
    unpacked: usize,
    entries: usize,
    cancel: &'a CancellationToken,
}

impl<'a> Budget<'a> {
    pub(super) fn new(cancel: &'a CancellationToken) -> Self {
        Self { steps: STEPS, unpacked: UNPACKED, entries: ENTRIES, cancel }
    }

    /// Takes one off what is left of the work.
    pub(super) fn step(&mut self) -> Result<(), PdfError> {
        self.steps = self.steps.checked_sub(1).ok_or(PdfError::TooMuchWork)?;
        if self.steps.is_multiple_of(LOOK) && self.cancel.is_cancelled() {
            return Err(PdfError::Cancelled);
        }
        Ok(())
    }

    /// So many bytes were looked at, which counts as a step for every few.
    pub(super) fn looked_at(&mut self, bytes: usize) -> Result<(), PdfError> {
        self.steps = self.steps.checked_sub(bytes as u64 >> 8).ok_or(PdfError::TooMuchWork)?;
        Ok(())
    }

    /// One entry of a table that is kept.
    pub(super) fn entry(&mut self) -> Result<(), PdfError> {
        self.entries = self.entries.checked_sub(1).ok_or(PdfError::TooMuchWork)?;
        Ok(())
    }

    /// Bytes that may still be unpacked.
    pub(super) fn room(&self) -> usize {
        self.unpacked
    }

    /// So many bytes were unpacked.
    pub(super) fn unpacked(&mut self, bytes: usize) -> Result<(), PdfError> {
        self.unpacked = self.unpacked.checked_sub(bytes).ok_or(PdfError::Bomb)?;
        if self.cancel.is_cancelled() { Err(PdfError::Cancelled) } else { Ok(()) }
    }
}
