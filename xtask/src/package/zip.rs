//! Writing a ZIP file of a few files: a wheel is one. The reader of exports (`archive`) is another crate's, and writes none.

use anyhow::{Context, Result};

use super::PackedFile;

/// Unix, version 2.0 of the format: who made it, and who can read it.
const MADE_BY: u16 = 0x0314;
const READ_BY: u16 = 20;
const DEFLATED: u16 = 8;
/// The first day that the format knows: 1 January 1980.
const FIRST_DAY: u16 = (1 << 5) | 1;
/// A regular file, in the mode of Unix.
const REGULAR: u32 = 0o100_000;

/// The bytes of a ZIP file with these files, in this order.
///
/// # Errors
/// When a file is too large for the plain format.
pub(crate) fn zip(files: &[PackedFile]) -> Result<Vec<u8>> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        let data = super::deflate(&file.bytes);
        let size = |length: usize| u32::try_from(length).context("a file is too large for a wheel");
        let place = size(bytes.len())?;
        let mut common = Vec::new();
        for half in [READ_BY, 0, DEFLATED, 0, FIRST_DAY] {
            common.extend(half.to_le_bytes());
        }
        for whole in [crc32fast::hash(&file.bytes), size(data.len())?, size(file.bytes.len())?] {
            common.extend(whole.to_le_bytes());
        }
        common.extend(u16::try_from(file.path.len()).context("a path is too long")?.to_le_bytes());
        // No extra field.
        common.extend([0; 2]);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&common);
        bytes.extend(file.path.as_bytes());
        bytes.extend(data);

        directory.extend(b"PK\x01\x02");
        directory.extend(MADE_BY.to_le_bytes());
        directory.extend(common);
        // No comment, the first disk, no text.
        directory.extend([0; 6]);
        directory.extend(((REGULAR | file.mode) << 16).to_le_bytes());
        directory.extend(place.to_le_bytes());
        directory.extend(file.path.as_bytes());
    }
    let count = u16::try_from(files.len()).context("too many files")?;
    let (at, length) = (u32::try_from(bytes.len())?, u32::try_from(directory.len())?);
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(at.to_le_bytes());
    bytes.extend([0; 2]);
    Ok(bytes)
}
