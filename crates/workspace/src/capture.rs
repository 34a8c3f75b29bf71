//! A file as it is, to be kept: never through a link, never more than a limit.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use tokio_util::sync::CancellationToken;

use crate::access::path_of;
use crate::open::read_rest;
use crate::{Access, AccessMode, FileError, Reach};

/// What a path holds: nothing, a file, or a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathContent {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Permission bits, 0 to 0o7777.
        mode: u32,
        /// All of its bytes.
        bytes: Vec<u8>,
    },
    /// A directory, so no file.
    Directory {
        /// Permission bits, 0 to 0o7777.
        mode: u32,
    },
    /// A symbolic link, which is not followed.
    Link {
        /// What it says.
        target: PathBuf,
    },
    /// A regular file that is larger than the limit.
    TooLarge {
        /// Bytes.
        size: u64,
    },
    /// It lies where programs keep secrets, so it was not read.
    Secret,
    /// It could not be read, may not be, or is something else.
    Unreadable,
}

impl Access {
    /// What is at this path, as [`file_key`](crate::file_key) gives it. Of a file that may neither be written nor read
    /// within these bounds, nothing is read.
    pub fn capture(&self, path: &Path, limit: u64) -> PathContent {
        if self.reach(path, AccessMode::Read) == Reach::Secret {
            return PathContent::Secret;
        }
        let found = match std::fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return PathContent::Absent;
            }
            Err(_) => return PathContent::Unreadable,
        };
        if found.is_symlink() {
            return std::fs::read_link(path)
                .map_or(PathContent::Unreadable, |target| PathContent::Link { target });
        }
        if found.is_dir() {
            return PathContent::Directory { mode: found.mode() & 0o7777 };
        }
        if !found.is_file() {
            return PathContent::Unreadable;
        }
        if found.len() > limit {
            return PathContent::TooLarge { size: found.len() };
        }
        self.read_as_it_is(path, limit).unwrap_or_else(|error| match error {
            FileError::TooLarge { size, .. } => PathContent::TooLarge { size },
            FileError::NotFound { .. } => PathContent::Absent,
            _ => PathContent::Unreadable,
        })
    }

    fn read_as_it_is(&self, path: &Path, limit: u64) -> Result<PathContent, FileError> {
        let failed = |error| FileError::from_io(path, "cannot open", error);
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Ok(PathContent::Unreadable);
        }
        self.check_handle(path, &path_of(&file, path)?, &found)?;
        let bytes = read_rest(&mut file, path, found.len(), limit, &CancellationToken::new())?;
        Ok(PathContent::File { mode: found.mode() & 0o7777, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::AccessRules;

    #[test]
    fn capture_reads_content_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::write(at("file"), b"a\0b").unwrap();
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o4751)).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("gone", at("dangling")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let check = |name: &str, limit: u64, expect: PathContent| {
            assert_eq!(Access::default().capture(&at(name), limit), expect, "{name}");
        };
        check("file", 3, PathContent::File { mode: 0o4751, bytes: b"a\0b".to_vec() });
        check("file", 2, PathContent::TooLarge { size: 3 });
        check("link", 3, PathContent::Link { target: "file".into() });
        check("dangling", 3, PathContent::Link { target: "gone".into() });
        check("fifo", 3, PathContent::Unreadable);
        let mode = root.metadata().unwrap().mode() & 0o7777;
        check("", 3, PathContent::Directory { mode });
        check("nothing", 3, PathContent::Absent);
        check("file/below", 3, PathContent::Absent);
    }

    #[test]
    fn capture_refuses_paths_outside_the_rules() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["in", "out", "home/.ssh"] {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("f"), "x").unwrap();
            fs::set_permissions(root.join(name).join("f"), fs::Permissions::from_mode(0o640)).unwrap();
        }
        let rules = AccessRules {
            write: vec![root.join("in"), root.join("home")],
            home: Some(root.join("home")),
            ..AccessRules::default()
        };
        let access = Access::within(rules);
        let file = PathContent::File { mode: 0o640, bytes: b"x".to_vec() };
        assert_eq!(access.capture(&root.join("in/f"), 9), file);
        assert_eq!(access.capture(&root.join("out/f"), 9), PathContent::Unreadable);
        assert_eq!(access.capture(&root.join("home/.ssh/f"), 9), PathContent::Secret);
        let approved = access.approving(vec![crate::Approval::of(root.join("out/f"))]);
        assert_eq!(approved.capture(&root.join("out/f"), 9), file);
    }
}
