//! The file of the key that makes the ids of sealed secrets.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The key that makes the ids of sealed secrets: read from `path`, or made and kept there (0600). Where nothing
/// can be written it lasts for this process only.
///
/// # Errors
/// When the file is there and cannot be read, or is not such a key.
pub fn seal_key(path: &Path) -> std::io::Result<[u8; 32]> {
    if let Some(key) = read_key(path)? {
        return Ok(key);
    }
    let mut key = [0u8; 32];
    key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let Some(dir) = path.parent() else { return Ok(key) };
    // Written aside and linked into place, so that no other process ever reads half a key.
    let aside = dir.join(format!(".seal.key.{}", uuid::Uuid::new_v4()));
    let written = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).and_then(|()| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(quipu_protocol::BlobId(key).to_string().as_bytes())?;
        file.sync_all()
    });
    let linked = written.and_then(|()| std::fs::hard_link(&aside, path));
    // A leftover aside is harmless; it holds a key that nobody uses.
    drop(std::fs::remove_file(&aside));
    match linked {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(read_key(path)?.unwrap_or(key)),
        Err(_) => Ok(key),
    }
}

fn read_key(path: &Path) -> std::io::Result<Option<[u8; 32]>> {
    let text = match std::fs::metadata(path) {
        // A pipe would be read for ever.
        Ok(found) if !found.is_file() => return Err(std::io::Error::other("not a regular file")),
        Ok(_) => std::fs::read_to_string(path)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bad = |_| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "not a valid key: expected 64 hexadecimal digits",
        )
    };
    text.trim().parse::<quipu_protocol::BlobId>().map(|key| Some(key.0)).map_err(bad)
}
