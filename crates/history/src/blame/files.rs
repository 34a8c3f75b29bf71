//! Files on this machine, as far as `blame` reads them.

use std::path::Path;

/// Bytes of another file at most.
const SIBLING_LIMIT: u64 = 1 << 20;

/// Another file as it is, when a command copied from it.
pub fn sibling_file(path: &Path) -> Option<Vec<u8>> {
    let found = std::fs::symlink_metadata(path).ok()?;
    (found.is_file() && found.len() <= SIBLING_LIMIT).then(|| std::fs::read(path).ok()).flatten()
}

/// The names by which sessions may know a file.
pub fn file_names(path: &Path) -> Vec<String> {
    let mut names = vec![quipu_transcript::absolute_path("/", &path.to_string_lossy())];
    if let Ok(path) = path.canonicalize() {
        names.push(path.to_string_lossy().into_owned());
    }
    if let Some(home) = std::env::home_dir() {
        let below = names.iter().find_map(|name| Path::new(name).strip_prefix(&home).ok());
        let below = below.map(|below| format!("~/{}", below.to_string_lossy()));
        names.extend(below);
    }
    names.dedup();
    names
}
