//! The names of files and directories as they are found, for those who cannot wait for all of them.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::ignore::{IgnoreRules, sources};
use super::is_ours;

/// Directories that wait to be looked into; what is beyond is not walked.
const WAITING: usize = 100_000;
/// Directories above the root in which the repository's may be.
const ABOVE: usize = 64;

/// A path below the walked directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundPath<'a> {
    /// Relative to the directory.
    pub path: &'a Path,
    /// A directory itself, no link to one.
    pub is_directory: bool,
}

/// Gives everything below `root` to `each`, what is near before what is far: hidden files too, but no `.git`, and
/// nothing that `.gitignore` files leave out, those above `root` in the same repository among them. Links are not
/// followed. Ends when `each` breaks; after each directory `each` gets `None`, so that it can say so or pass on what
/// it has.
///
/// # Errors
/// `root` itself cannot be read. What cannot be read below it is passed over.
pub fn walk(
    root: &Path,
    each: &mut dyn FnMut(Option<FoundPath<'_>>) -> ControlFlow<()>,
) -> std::io::Result<()> {
    std::fs::read_dir(root)?;
    let (top, below) = repository(root);
    let mut ignored = IgnoreRules::above(&sources(&top));
    let mut above = PathBuf::new();
    for part in &below {
        ignored = ignored.below(&top.join(&above), &above);
        above.push(part);
    }
    let mut waiting = VecDeque::from([(below.clone(), ignored)]);
    while let Some((directory, ignored)) = waiting.pop_front() {
        let there = top.join(&directory);
        let Ok(entries) = std::fs::read_dir(&there) else { continue };
        let ignored = ignored.below(&there, &directory);
        for entry in entries.flatten() {
            let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
            if name == ".git" || is_ours(name.as_bytes()) {
                continue;
            }
            let at = directory.join(&name);
            if ignored.has(at.as_os_str().as_bytes(), kind.is_dir()) {
                continue;
            }
            let path = at.strip_prefix(&below).unwrap_or(&at);
            if each(Some(FoundPath { path, is_directory: kind.is_dir() })).is_break() {
                return Ok(());
            }
            if kind.is_dir() && waiting.len() < WAITING {
                waiting.push_back((at, ignored.clone()));
            }
        }
        if each(None).is_break() {
            break;
        }
    }
    Ok(())
}

/// The directory of the repository that a directory is in, itself when there is none, and the way from there.
fn repository(root: &Path) -> (PathBuf, PathBuf) {
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
    let top = root.ancestors().take(ABOVE).find(|above| above.join(".git").symlink_metadata().is_ok());
    match top.and_then(|top| Some((top, root.strip_prefix(top).ok()?))) {
        Some((top, below)) => (top.to_path_buf(), below.to_path_buf()),
        None => (root, PathBuf::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let mut names = Vec::new();
        walk(root, &mut |found| {
            if let Some(found) = found {
                let slash = if found.is_directory { "/" } else { "" };
                names.push(format!("{}{slash}", found.path.display()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        names
    }

    #[test]
    fn near_files_come_first_and_ignored_ones_never() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for name in ["a", ".hidden/b", ".git/config", "deep/er/c", "target/x", "deep/c.o", ".quipu-1.tmp"] {
            put(name, "");
        }
        put(".gitignore", "target\n*.o\n/deep/er/no\n");
        put("deep/er/no", "");
        put("deep/er/.gitignore", "/gone\n");
        put("deep/er/gone", "");
        std::os::unix::fs::symlink("deep", dir.path().join("link")).unwrap();
        let found = names(dir.path());
        let mut sorted = found.clone();
        sorted.sort_by_key(|name| (name.trim_end_matches('/').matches('/').count(), name.clone()));
        assert_eq!(
            sorted,
            [
                ".gitignore",
                ".hidden/",
                "a",
                "deep/",
                "link",
                ".hidden/b",
                "deep/er/",
                "deep/er/.gitignore",
                "deep/er/c"
            ]
        );
        let depth = |name: &String| name.trim_end_matches('/').matches('/').count();
        assert!(found.windows(2).all(|two| depth(&two[0]) <= depth(&two[1])));
        // The rules of the repository hold further down as well.
        let mut below = names(&dir.path().join("deep"));
        below.sort();
        assert_eq!(below, ["er/", "er/.gitignore", "er/c"]);
        assert!(walk(&dir.path().join("none"), &mut |_| ControlFlow::Break(())).is_err());
        let mut seen = 0;
        walk(dir.path(), &mut |_| {
            seen += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(seen, 1);
    }
}
