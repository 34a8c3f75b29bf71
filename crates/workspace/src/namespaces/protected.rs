//! What commands cannot change although it lies where they may write, and what they cannot see.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use rustix::fs::StatVfsMountFlags;

use crate::protected::{lines, names as protected_names};

use super::EMPTY;
use super::mounts::{attach, close, copy, detach, empty, is_mounted};

/// Repositories of submodules that are looked at, and how deep.
const MODULES: usize = 200;
const DEPTH: usize = 8;
/// Bytes of a repository's settings that are looked at.
const CONFIG: u64 = 256 * 1024;
/// Links of one name that are looked through.
const SOCKETS: usize = 4_096;

/// The secrets of all users and of the system that are there, by their true paths.
pub(super) fn secrets(home: Option<&Path>) -> Vec<PathBuf> {
    let mut homes: HashSet<PathBuf> = home.map(Path::to_owned).into_iter().collect();
    homes.insert("/root".into());
    homes.extend(
        fs::read_dir("/home").into_iter().flatten().flatten().map(|entry| entry.path()).take(SOCKETS),
    );
    let below = lines(include_str!("../secrets.txt"));
    let of_homes = below.flat_map(|name| homes.iter().map(move |home| home.join(name)));
    let of_system = lines(include_str!("hidden.txt")).map(PathBuf::from);
    // Most are not there, which is quickly known.
    let there = of_homes.chain(of_system).filter(|path| path.symlink_metadata().is_ok());
    let found: HashSet<PathBuf> = there.filter_map(|path| path.canonicalize().ok()).collect();
    found.into_iter().collect()
}

/// What is to be read-only below a directory where commands may write, as far as it is there.
pub(super) fn places(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = protected_names().map(|name| root.join(name)).collect();
    let own = root.join(".git");
    // Of a worktree or a submodule: it says where all else is.
    if own.symlink_metadata().is_ok_and(|found| found.is_file()) {
        found.push(own);
    }
    for git in repositories(root) {
        found.extend(["hooks", "config", "config.worktree"].map(|name| git.join(name)));
        let worktrees = fs::read_dir(git.join("worktrees")).into_iter().flatten().flatten().take(MODULES);
        found.extend(
            worktrees.flat_map(|one| ["commondir", "config.worktree"].map(|name| one.path().join(name))),
        );
        found.extend(named(&git, root));
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    // Behind a link, what it leads to as well.
    let targets = found.iter().filter(|path| path.is_symlink()).filter_map(|path| path.canonicalize().ok());
    let targets: Vec<PathBuf> = targets.filter(|path| path.starts_with(root) && path != root).collect();
    found.extend(targets);
    found
}

/// What the settings of a repository say is a part of them, or where hooks are, as far as it is below the root.
fn named(git: &Path, root: &Path) -> Vec<PathBuf> {
    let Some(config) = crate::open::read_small(&git.join("config"), CONFIG) else { return Vec::new() };
    let mut includes = false;
    let mut found = Vec::new();
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            includes = line.to_ascii_lowercase().starts_with("[include");
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let base = match name.trim().to_ascii_lowercase().as_str() {
            "hookspath" => root,
            "path" if includes => git,
            _ => continue,
        };
        let value = value.trim().trim_matches('"');
        // Otherwise it is below the user's home.
        if !value.is_empty() && !value.starts_with('~') {
            found.extend(base.join(value).canonicalize().ok());
        }
    }
    found.retain(|path| path.starts_with(root) && path != root);
    found
}

/// The git directories at a directory where commands may write, and those of its submodules.
pub(super) fn repositories(root: &Path) -> Vec<PathBuf> {
    let own = root.join(".git");
    let mut found = Vec::new();
    modules(&own.join("modules"), DEPTH, &mut found);
    if is_repository(&own) && !own.is_symlink() {
        found.push(own);
    }
    if is_repository(root) {
        found.push(root.to_owned());
        modules(&root.join("modules"), DEPTH, &mut found);
    }
    found
}

/// Gives git directories what commands could make otherwise to have git run something: hooks, and settings of the worktree where
/// those count.
pub(super) fn complete(git: &Path) {
    let is_ours =
        fs::symlink_metadata(git).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
    if !is_ours {
        return;
    }
    // What cannot be made is not there, as before.
    fs::create_dir(git.join("hooks")).ok();
    let own = git.join("config.worktree");
    if own.symlink_metadata().is_err() {
        let config = crate::open::read_small(&git.join("config"), CONFIG).unwrap_or_default();
        if config.to_ascii_lowercase().contains("worktreeconfig") {
            File::create_new(own).ok();
        }
    }
}

/// A file by which git would take its settings from elsewhere. No git directory of these has one: somebody wrote it to that end.
pub(super) fn disable_commondir(git: &Path) {
    let file = git.join("commondir");
    if file.symlink_metadata().is_ok() && fs::rename(&file, git.join("commondir.disabled")).is_err() {
        fs::remove_file(&file).ok();
    }
}

fn is_repository(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir()
}

fn modules(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if found.len() >= MODULES {
            return;
        }
        if is_repository(&path) {
            modules(&path.join("modules"), depth.saturating_sub(1), found);
            found.push(path);
        } else if depth > 0 && path.is_dir() && !path.is_symlink() {
            modules(&path, depth - 1, found);
        }
    }
}

/// What the mount at a path forbids, which a copy of it must forbid, too.
pub(super) fn forbidden(path: &Path) -> MsFlags {
    let flags = rustix::fs::statvfs(path).map(|found| found.f_flag).unwrap_or(StatVfsMountFlags::empty());
    let pairs =
        [(StatVfsMountFlags::NODEV, MsFlags::MS_NODEV), (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC)];
    let found = pairs.into_iter().filter(|(flag, _)| flags.contains(*flag));
    found.fold(MsFlags::empty(), |all, (_, flag)| all | flag)
}

/// Attaches a copy of what is at a path to the path itself, read-only.
pub(super) fn attach_closed(from: &Path, at: &Path) -> io::Result<()> {
    let keep = forbidden(from);
    attach(&copy(from)?, at)?;
    close(at, keep)
}

/// Makes one place read-only, unless it is.
pub(super) fn protect_one(root: &Path, place: &Path) -> io::Result<()> {
    if is_mounted(place) {
        return Ok(());
    }
    // Nothing above it can be renamed or exchanged: each directory is a mount of its own.
    let above: Vec<&Path> =
        place.ancestors().skip(1).take_while(|dir| *dir != root && dir.starts_with(root)).collect();
    for dir in above.into_iter().rev() {
        if !is_mounted(dir) && !dir.is_symlink() {
            attach(&copy(dir)?, dir)?;
        }
    }
    // A link is covered by what it leads to.
    // It leads nowhere, or went meanwhile.
    let Ok(from) = place.canonicalize() else { return Ok(()) };
    match attach_closed(&from, place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// For the thread of one command that may change all of this: takes the mounts away in its own namespace.
pub(super) fn open(write: &[PathBuf]) -> io::Result<()> {
    for root in write {
        let mut places = places(root);
        places.sort_unstable_by_key(|place| std::cmp::Reverse(place.components().count()));
        let mut seen = HashSet::new();
        for place in places.iter().flat_map(|place| place.ancestors()) {
            if place == root || !place.starts_with(root) || !seen.insert(place.to_owned()) {
                continue;
            }
            while is_mounted(place) {
                detach(place)?;
            }
        }
    }
    Ok(())
}

/// Hides the secrets that came since the namespaces were made.
pub(super) fn hide(home: Option<&Path>) -> io::Result<()> {
    for path in secrets(home) {
        if !is_mounted(&path) {
            hide_one(&path)?;
        }
    }
    Ok(())
}

fn hide_one(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        empty(path, "mode=000,size=4k")?;
        return close(path, MsFlags::MS_NODEV);
    }
    match copy(Path::new(EMPTY)).and_then(|tree| attach(&tree, path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Covers the sockets of the network of this thread that have a path outside of these directories.
pub(super) fn cover_sockets(free: &[PathBuf], empty: &Path) {
    let Ok(table) = fs::read("/proc/thread-self/net/unix") else { return };
    for path in sockets(&table) {
        let is_free = free.iter().any(|root| path.starts_with(root));
        if is_free || is_mounted(&path) {
            continue;
        }
        if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
            copy(empty).and_then(|tree| attach(&tree, &path)).ok();
        }
    }
}

/// The paths of a table as the kernel writes it: the eighth field of a line.
fn sockets(table: &[u8]) -> HashSet<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = |line: &[u8]| {
        let start = memchr::memmem::find(line, b" /")? + 1;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(line.get(start..)?)))
    };
    table.split(|byte| *byte == b'\n').filter_map(path).take(SOCKETS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sockets_are_read_as_the_kernel_writes_them() {
        let table = b"Num RefCount Protocol Flags Type St Inode Path\n\
            00: 00000002 00000000 00010000 0001 01 12 /run/a b.sock\n00: 02 00 00 01 01 13 @abstract\n\
            00: 02 00 00 01 01 14\n00: 00000002 00000000 00010000 0001 01 12 /run/a b.sock\n";
        assert_eq!(sockets(table), HashSet::from(["/run/a b.sock".into()]));
    }

    #[test]
    fn places_are_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert!(places(&root).is_empty());
        for made in [".git/hooks", ".git/modules/deep/sub/objects", ".git/modules/deep/sub/hooks", "docs"] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        for made in [".git/config", ".git/modules/deep/sub/HEAD", "docs/rules.md"] {
            fs::write(root.join(made), "").unwrap();
        }
        fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        fs::create_dir_all(root.join(".git/objects")).unwrap();
        fs::create_dir_all(root.join("tools/hooks")).unwrap();
        for made in [".git/HEAD", ".git/worktrees/w/commondir", "tools/git.inc", ".git/near.inc"] {
            fs::write(root.join(made), "").unwrap();
        }
        let config = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../tools/git.inc\n[includeIf \"x\"]\n path=near.inc\n\
            path = /etc/passwd\n[other]\n path = ../docs\n";
        fs::write(root.join(".git/config"), config).unwrap();
        std::os::unix::fs::symlink("docs/rules.md", root.join("AGENTS.md")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("CLAUDE.md")).unwrap();
        let found = places(&root);
        for path in [
            ".git/hooks",
            ".git/config",
            "AGENTS.md",
            "docs/rules.md",
            ".git/modules/deep/sub/hooks",
            ".git/worktrees/w/commondir",
            "tools/hooks",
            "tools/git.inc",
            ".git/near.inc",
        ] {
            assert!(found.contains(&root.join(path)), "{path}: {found:?}");
        }
        assert!(
            !found.contains(&root.join("docs")) && found.iter().all(|path| path.starts_with(&root)),
            "{found:?}"
        );
        let worktree = root.join("docs");
        fs::write(worktree.join(".git"), "gitdir: elsewhere").unwrap();
        assert!(places(&worktree).contains(&worktree.join(".git")));
    }
}
