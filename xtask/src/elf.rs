//! The header of a binary: its machine, and what it needs besides the kernel.

use anyhow::{Context, Result, bail};

/// The part of a 64-bit, little-endian ELF file that says who loads the program.
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
    /// Kind, place and length of each segment.
    segments: Vec<(u32, usize, usize)>,
}

impl<'a> Elf<'a> {
    pub(crate) fn read(bytes: &'a [u8], machine: u16) -> Result<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            bail!("it is no ELF file of 64 bits");
        }
        let mut elf = Self { bytes, segments: Vec::new() };
        let found = elf.number(18, 2)?;
        if found != usize::from(machine) {
            bail!("it is for machine {found}, not for {machine}");
        }
        let (table, length, count) = (elf.number(32, 8)?, elf.number(54, 2)?, elf.number(56, 2)?);
        for index in 0..count {
            let at = table.saturating_add(index * length);
            let kind = u32::try_from(elf.number(at, 4)?)?;
            let segment = (kind, elf.number(at.saturating_add(8), 8)?, elf.number(at.saturating_add(32), 8)?);
            elf.segments.push(segment);
        }
        Ok(elf)
    }

    fn number(&self, at: usize, length: usize) -> Result<usize> {
        let bytes = self.bytes.get(at..at.saturating_add(length)).context("it is cut off")?;
        let value = bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(value).context("it is too large")
    }

    /// What the program needs besides the kernel: nothing, when it is static.
    pub(crate) fn needs(&self) -> Result<Vec<String>> {
        const DYNAMIC: u32 = 2;
        const INTERPRETER: u32 = 3;
        const NEEDED: usize = 1;
        let mut needs = Vec::new();
        for &(kind, at, length) in &self.segments {
            let content = self.bytes.get(at..at.saturating_add(length)).context("a segment is cut off")?;
            if kind == INTERPRETER {
                let loader = String::from_utf8_lossy(content);
                needs.push(format!("wants the loader {}", loader.trim_end_matches('\0')));
            }
            if kind == DYNAMIC {
                // Pairs of tag and value. A static program has them too, where it may be loaded anywhere.
                let mut libraries = 0;
                for entry in (at..at.saturating_add(length)).step_by(16) {
                    libraries += usize::from(self.number(entry, 8)? == NEEDED);
                }
                if libraries > 0 {
                    needs.push(format!("needs {libraries} shared libraries"));
                }
            }
        }
        Ok(needs)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A header, segments of a kind with their content, in this order.
    pub(crate) fn elf(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * segments.len()];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: usize, length: usize| {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        };
        put(18, 62, 2);
        put(32, 64, 8);
        put(54, 56, 2);
        put(56, segments.len(), 2);
        let mut place = 64 + 56 * segments.len();
        for (index, (kind, content)) in segments.iter().enumerate() {
            let at = 64 + 56 * index;
            put(at, usize::try_from(*kind).unwrap(), 4);
            put(at + 8, place, 8);
            put(at + 32, content.len(), 8);
            place += content.len();
        }
        bytes.extend(segments.iter().flat_map(|(_, content)| content.iter()));
        bytes
    }

    #[test]
    fn a_program_that_needs_a_loader_or_libraries_is_found() {
        let mut dynamic = [0; 48];
        // DT_FLAGS, then DT_NEEDED, then the end.
        (dynamic[0], dynamic[16]) = (30, 1);
        for (segments, wanted) in [
            (&[][..], &[][..]),
            (&[(1, &b"code"[..])], &[]),
            (&[(1, b"code"), (2, &dynamic[..16])], &[]),
            (&[(3, b"/lib/loader\0")], &["wants the loader /lib/loader"]),
            (&[(2, &dynamic)], &["needs 1 shared libraries"]),
        ] {
            let bytes = elf(segments);
            let needs = Elf::read(&bytes, 62).and_then(|elf| elf.needs()).unwrap();
            assert_eq!(needs, wanted);
            assert!(Elf::read(&bytes, 183).is_err());
            for length in 0..bytes.len() {
                // Cut off anywhere, it is refused or harmless, and never a panic.
                drop(Elf::read(&bytes[..length], 62).and_then(|elf| elf.needs()));
            }
        }
        assert!(Elf::read(b"#!/bin/sh\n", 62).is_err());
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn dynamic_program_is_not_static() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = Elf::read(&bytes, 62).and_then(|elf| elf.needs()).unwrap();
        assert!(needs.len() == 2 && needs[0].starts_with("wants the loader /"), "{needs:?}");
    }
}
