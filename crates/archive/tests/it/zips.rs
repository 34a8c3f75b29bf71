//! Archives, written after the description of the format, with what may be wrong with them.

use std::io::Write as _;

/// One file, as its records say.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) packed: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) crc: u32,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    /// As the record in the list has them, outside of it.
    pub(crate) attributes: u32,
    /// Where it is said to be, and is not.
    pub(crate) offset: Option<u64>,
}

pub(crate) fn deflated(name: &str, bytes: &[u8]) -> File {
    let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    let packed = packer.finish().unwrap();
    File { packed, method: 8, ..stored(name, bytes) }
}

pub(crate) fn stored(name: &str, bytes: &[u8]) -> File {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    let (packed, size) = (bytes.to_vec(), bytes.len() as u64);
    File { name: name.into(), packed, size, crc: crc.sum(), method: 0, flags: 0, attributes: 0, offset: None }
}

/// The whole archive; a `long` one has all numbers where those above 4 GB stand.
pub(crate) fn zip(files: &[File], long: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = Vec::new();
    for file in files {
        let at = file.offset.unwrap_or(out.len() as u64);
        let [size, packed, short_at] = [file.size, file.packed.len() as u64, at]
            .map(|number| if long { u32::MAX } else { u32::try_from(number).unwrap() });
        let common = |out: &mut Vec<u8>, extra: usize| {
            out.extend([20, 0]);
            out.extend(file.flags.to_le_bytes());
            out.extend(file.method.to_le_bytes());
            out.extend([0; 4]);
            out.extend(file.crc.to_le_bytes());
            out.extend(packed.to_le_bytes());
            out.extend(size.to_le_bytes());
            out.extend(u16::try_from(file.name.len()).unwrap().to_le_bytes());
            out.extend(u16::try_from(extra).unwrap().to_le_bytes());
        };
        out.extend(b"PK\x03\x04");
        common(&mut out, 0);
        out.extend(file.name.as_bytes());
        out.extend(&file.packed);
        let mut extra = Vec::new();
        if long {
            // Another field stands before it.
            extra.extend([7, 7, 1, 0, 9, 1, 0, 24, 0]);
            for number in [file.size, file.packed.len() as u64, at] {
                extra.extend(number.to_le_bytes());
            }
        }
        list.extend(b"PK\x01\x02");
        list.extend([20, 3]);
        common(&mut list, extra.len());
        list.extend([0; 6]);
        list.extend(file.attributes.to_le_bytes());
        list.extend(short_at.to_le_bytes());
        list.extend(file.name.as_bytes());
        list.extend(extra);
    }
    let (start, count) = (out.len() as u64, files.len() as u64);
    out.extend(&list);
    if long {
        let at = out.len() as u64;
        out.extend(b"PK\x06\x06");
        out.extend(44_u64.to_le_bytes());
        out.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for number in [count, count, list.len() as u64, start] {
            out.extend(number.to_le_bytes());
        }
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(at.to_le_bytes());
        out.extend([1, 0, 0, 0]);
    }
    out.extend(b"PK\x05\x06\0\0\0\0");
    let count = if long { u16::MAX } else { u16::try_from(count).unwrap() };
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    let [size, start] =
        [list.len() as u64, start].map(|number| if long { u32::MAX } else { u32::try_from(number).unwrap() });
    out.extend(size.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([2, 0]);
    out.extend(b"hi");
    out
}
