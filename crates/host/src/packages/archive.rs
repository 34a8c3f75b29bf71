//! Archives of strangers: regular files of them alone are kept.

use std::io::{Error, Read};

use super::tree::TreeWriter;

/// Bytes of an archive without compression at most: it also has headers, and what is left out.
const MOST_UNPACKED: u64 = 64 << 20;
/// Entries of an archive at most, whatever they are.
const MOST_ENTRIES: usize = 10_000;

/// A reader that fails beyond a limit, where `take` would end.
struct LimitReader<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for LimitReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| Error::other(format!("it becomes larger than {} MiB", MOST_UNPACKED >> 20)))?;
        Ok(count)
    }
}

/// Writes the files of a `tar` archive, without the first `strip` names of their paths.
pub(super) fn unpack(archive: impl Read, strip: usize, writer: &mut TreeWriter) -> Result<(), String> {
    let failed = |error: Error| format!("the archive cannot be read: {error}");
    let mut archive = tar::Archive::new(LimitReader { inner: archive, left: MOST_UNPACKED });
    for (count, entry) in archive.entries().map_err(failed)?.enumerate() {
        if count >= MOST_ENTRIES {
            return Err(format!("the archive has more than {MOST_ENTRIES} entries"));
        }
        let mut entry = entry.map_err(failed)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() {
            continue;
        }
        let bytes = entry.path_bytes().into_owned();
        let path = String::from_utf8(bytes).map_err(|_| "a path in the archive is not text".to_owned())?;
        let path = path.trim_start_matches("./");
        let names: Vec<&str> = path.split('/').collect();
        let Some(below) = names.get(strip..).filter(|below| !below.is_empty()) else { continue };
        let below = below.join("/");
        if !kind.is_file() {
            writer.leave_out(
                &below,
                if kind.is_symlink() || kind.is_hard_link() { "a link" } else { "no file" },
            );
            continue;
        }
        let mode = entry.header().mode().unwrap_or(0o644);
        writer.put(&below, mode, &mut entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(archive: &[u8]) -> (tempfile::TempDir, Result<Vec<String>, String>) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let mut writer = TreeWriter::new(&root);
        let done = unpack(archive, 1, &mut writer).map(|()| writer.left_out);
        (dir, done)
    }

    /// A header whose path is written as it is, which the library refuses to do.
    fn entry(path: &str, kind: tar::EntryType, link: &str, content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    #[test]
    fn archive_that_leads_out_is_refused() {
        use tar::EntryType;
        for path in ["package/../../x", "package//etc/x", "package/a/../../../x"] {
            let (dir, done) = unpacked(&entry(path, EntryType::Regular, "", b"x"));
            assert!(done.as_ref().is_err_and(|why| why.contains("not valid")), "{path}: {done:?}");
            assert!(!dir.path().join("x").exists());
        }
        // A link and a file behind it: the link is left out, so the file lies in a directory of its name.
        let linked = [
            entry("package/out", EntryType::Symlink, "..", b""),
            entry("package/out/x", EntryType::Regular, "", b"x"),
            entry("package/hard", EntryType::Link, "package/out/x", b""),
            entry("package/device", EntryType::Char, "", b""),
        ];
        let (dir, done) = unpacked(&linked.concat());
        assert_eq!(done.unwrap().len(), 3);
        assert!(dir.path().join("root/out/x").is_file() && !dir.path().join("x").exists());
    }

    #[test]
    fn archive_that_is_cut_or_too_large_is_refused() {
        let whole = entry("package/a", tar::EntryType::Regular, "", &[b'x'; 2_000]);
        assert!(unpacked(&whole[..1_000]).1.is_err());
        assert!(unpacked(&[7; 2_000]).1.is_err());
        let mut header = entry("package/a", tar::EntryType::Regular, "", b"");
        header.truncate(512);
        let mut header = tar::Header::from_byte_slice(&header).clone();
        header.set_size(1 << 40);
        header.set_cksum();
        let dir = tempfile::tempdir().unwrap();
        let mut writer = TreeWriter::new(dir.path());
        let endless = header.as_bytes().chain(std::io::repeat(0));
        let why = unpack(endless, 1, &mut writer).unwrap_err();
        assert!(why.contains("larger than 8 MiB"), "{why}");
        // A name of endless length.
        let mut long = tar::Header::new_gnu();
        long.set_entry_type(tar::EntryType::GNULongName);
        long.set_size(1 << 40);
        long.set_cksum();
        let mut writer = TreeWriter::new(dir.path());
        let why = unpack(long.as_bytes().chain(std::io::repeat(b'a')), 1, &mut writer).unwrap_err();
        assert!(why.contains("larger than 64 MiB"), "{why}");
    }
}
