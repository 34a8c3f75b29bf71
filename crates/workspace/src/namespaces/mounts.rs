//! Mounts, by descriptors where that can be.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

const NONE: Option<&str> = None;

/// An error that says what was tried on which path.
pub(super) fn on(what: &str, path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// A copy of what is at a path, with all that is mounted below it, attached nowhere yet.
pub(super) fn copy(path: &Path) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags).map_err(|error| on("copy", path, error))
}

/// The same of a true path, which leads through no link: where it does by now, somebody put one there.
pub(super) fn copy_exact(path: &Path) -> io::Result<OwnedFd> {
    let found = crate::confine::exact(path).map_err(|error| on("copy", path, error))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&found, "", flags).map_err(|error| on("copy", path, error))
}

/// One directory over another, attached nowhere yet: what is changed or made is in `upper`, all else is as in `lower`.
pub(super) fn overlay(lower: &Path, upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    // A colon would part two of them.
    let mut plain = Vec::new();
    for byte in lower.as_os_str().as_bytes() {
        if matches!(byte, b':' | b'\\') {
            plain.push(b'\\');
        }
        plain.push(*byte);
    }
    let lower = std::ffi::OsString::from_vec(plain);
    let made = || -> rustix::io::Result<OwnedFd> {
        let filesystem = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&filesystem, "lowerdir", lower.as_os_str())?;
        fsconfig_set_string(&filesystem, "upperdir", upper)?;
        fsconfig_set_string(&filesystem, "workdir", work)?;
        fsconfig_set_flag(&filesystem, "userxattr")?;
        fsconfig_create(&filesystem)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    made().map_err(|error| on("a layer over", Path::new(&lower), error))
}

/// Attaches such a copy.
pub(super) fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| on("attach", at, error))
}

/// Attaches it over what is at a path, which may be missing.
pub(super) fn attach_over(tree: &OwnedFd, at: &Path, is_dir: bool) -> io::Result<()> {
    make(at, is_dir)?;
    attach(tree, at)
}

/// Makes what something can be attached to, where it is missing.
pub(super) fn make(at: &Path, is_dir: bool) -> io::Result<()> {
    if at.symlink_metadata().is_err() {
        let made = match (is_dir, at.parent()) {
            (true, _) => fs::create_dir_all(at),
            (false, Some(parent)) => fs::create_dir_all(parent).and_then(|()| fs::write(at, "")),
            (false, None) => Ok(()),
        };
        made.map_err(|error| on("make", at, error))?;
    }
    Ok(())
}

/// An empty directory in memory.
pub(super) fn empty(at: &Path, options: &str) -> io::Result<()> {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
        .map_err(|error| on("cover", at, error))
}

/// Makes one mount read-only; what it forbids already stays so.
pub(super) fn close(at: &Path, keep: MsFlags) -> io::Result<()> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | keep;
    mount(NONE, at, NONE, flags, NONE).map_err(|error| on("close", at, error))
}

/// A mount of this namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) at: PathBuf,
    /// What it forbids, which must stay so.
    pub(super) flags: MsFlags,
}

/// All of them.
pub(super) fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

fn parse(lines: &[u8]) -> Vec<Mount> {
    use std::os::unix::ffi::OsStringExt as _;
    let lines = lines.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(4);
            let at = std::ffi::OsString::from_vec(plain(fields.next()?));
            let flags = fields.next()?.split(|byte| *byte == b',').fold(MsFlags::empty(), |flags, option| {
                flags
                    | match option {
                        b"nodev" => MsFlags::MS_NODEV,
                        b"noexec" => MsFlags::MS_NOEXEC,
                        _ => MsFlags::empty(),
                    }
            });
            Some(Mount { at: at.into(), flags })
        })
        .collect()
}

/// Spaces and the like stand as a backslash and three octal digits.
fn plain(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                text = rest.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                text = rest;
            }
        }
    }
    plain
}

/// Whether something is mounted at exactly this path.
pub(super) fn is_mounted(path: &Path) -> bool {
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Takes the uppermost mount at a path away.
pub(super) fn detach(path: &Path) -> io::Result<()> {
    unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(|error| on("open", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mounts_are_read_as_the_kernel_writes_them() {
        let lines = b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            30 22 0:5 /a /with\\040space\\134\\011 ro,nodev,noexec master:1 - tmpfs tmpfs rw\n\ncut";
        let nothing = MsFlags::empty();
        let forbidden = MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        assert_eq!(
            parse(lines),
            [
                Mount { at: "/".into(), flags: nothing },
                Mount { at: "/with space\\\t".into(), flags: forbidden }
            ]
        );
        assert!(all().unwrap().iter().any(|mount| mount.at == Path::new("/proc")));
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
    }
}
