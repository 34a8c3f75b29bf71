//! Ignored directories that are not looked into.

use std::collections::hash_map::DefaultHasher;
use std::ffi::CStr;
use std::hash::{Hash as _, Hasher as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, fstat, openat, statat};

use super::{DIRECTORY, Stamp};

/// Directories that programs fill with what they can make again. Where git ignores one of them, it is not looked into.
pub const CACHES: &[&str] = &[
    // Of many programs.
    ".cache",
    // JavaScript.
    "node_modules",
    "bower_components",
    ".next",
    ".nuxt",
    ".turbo",
    ".parcel-cache",
    ".svelte-kit",
    ".angular",
    ".yarn",
    ".pnpm-store",
    // Python.
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".nox",
    ".eggs",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".ipynb_checkpoints",
    // Rust, the JVM, C and C++.
    "target",
    ".gradle",
    ".m2",
    ".ccache",
    "CMakeFiles",
    // Zig, Haskell, Elixir, Dart.
    "zig-cache",
    ".zig-cache",
    ".stack-work",
    "dist-newstyle",
    "_build",
    ".dart_tool",
    // Ruby, PHP.
    "vendor/bundle",
    // Apple.
    "Pods",
    "DerivedData",
    // Others.
    ".terraform",
    ".direnv",
];

/// Entries of such a directory whose times are looked at.
const ENTRIES: usize = 16;

/// Whether a directory has the name of such a one.
pub fn is_cache(path: &Path) -> bool {
    CACHES.iter().any(|name| path.ends_with(name))
}

/// What tells, most times, that something in such a directory changed: its own time, and that of some of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cache(u64);

impl Cache {
    /// `None` where there is no directory of this name.
    pub(super) fn of(above: impl std::os::fd::AsFd, name: &CStr) -> Option<Self> {
        let mut all = DefaultHasher::new();
        let directory: OwnedFd = match openat(&above, name, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(rustix::io::Errno::ACCESS) => {
                let found = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                Stamp::from(&found).hash(&mut all);
                return Some(Self(all.finish()));
            }
            Err(_) => return None,
        };
        Stamp::from(&fstat(&directory).ok()?).hash(&mut all);
        let mut dir = Dir::new(directory).ok()?;
        let mut names = Vec::new();
        while let (Some(Ok(entry)), true) = (dir.read(), names.len() < ENTRIES + 2) {
            names.push(entry.file_name().to_owned());
        }
        let directory = dir.fd().ok()?;
        for name in names.iter().filter(|name| !matches!(name.as_bytes(), b"." | b"..")) {
            if let Ok(found) = statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Stamp::from(&found).hash(&mut all);
            }
        }
        Some(Self(all.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_names_match_whole_components() {
        for (path, expect) in [
            ("node_modules", true),
            ("a/b/target", true),
            ("vendor/bundle", true),
            ("bundle", false),
            ("my_target", false),
            ("out", false),
            ("dist", false),
            ("build", false),
        ] {
            assert_eq!(is_cache(Path::new(path)), expect, "{path}");
        }
    }
}
