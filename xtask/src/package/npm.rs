//! The npm package: one for all machines, with a starter that becomes the binary.
//!
//! It has the binaries of all machines, because packages for one machine each, as optional dependencies of a main package,
//! are not installed by `--omit=optional`, by lock files written on another machine, by mirrors that lack one of them, nor
//! from a file without a registry. No script runs when it is installed. The starter is a script of the shell that ends by
//! becoming the binary (`exec`): no Node stays in memory or between the binary and its signals.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{Binary, PackedFile, Project};

/// The name of the package on npm and on PyPI.
pub(crate) const NAME: &str = "quipu-agent";
/// The time that npm's own packages have: 26 October 1985, 08:15 UTC.
const TIME: u64 = 499_162_500;
const STARTER: &str = include_str!("../../data/package/quipu.sh");

/// The name and the bytes of the package.
///
/// # Errors
/// When it cannot be written into memory.
pub(crate) fn tarball(project: &Project, binaries: &[Binary]) -> Result<(String, Vec<u8>)> {
    let machines: Vec<&str> = binaries.iter().map(|binary| binary.platform.npm).collect();
    let manifest = json!({
        "name": NAME,
        "version": project.version,
        "description": super::DESCRIPTION,
        "license": project.license,
        "repository": { "type": "git", "url": format!("git+{}.git", project.repository) },
        "bin": { "quipu": "quipu" },
        "os": ["linux"],
        "cpu": machines,
    });
    let manifest = format!("{manifest:#}\n");
    let mut files = vec![
        PackedFile::text("package/package.json", manifest),
        PackedFile::text("package/README.md", super::README),
        PackedFile::program("package/quipu", STARTER.as_bytes()),
    ];
    for (name, text) in &project.licences {
        files.push(PackedFile::text(&format!("package/{name}"), text));
    }
    for binary in binaries {
        files.push(PackedFile::program(&format!("package/{}/quipu", binary.platform.name), &binary.bytes));
    }
    let mut archive = tar::Builder::new(Vec::new());
    for file in &files {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(file.mode);
        header.set_size(file.bytes.len() as u64);
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        archive
            .append_data(&mut header, &file.path, &*file.bytes)
            .with_context(|| format!("cannot pack {}", file.path))?;
    }
    let archive = archive.into_inner().context("cannot pack the archive")?;
    Ok((format!("{NAME}-{}.tgz", project.version), gzip(&archive)?))
}

/// The bytes as a gzip file without a name and a time.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    // Deflated, no flags, no time, the slowest level, no system.
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(super::deflate(bytes));
    packed.extend(crc32fast::hash(bytes).to_le_bytes());
    packed.extend(u32::try_from(bytes.len()).context("the package is too large")?.to_le_bytes());
    Ok(packed)
}
