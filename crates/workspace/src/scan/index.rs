//! Git's index: which files are as git has them, told without reading any of them. Its form is in
//! `Documentation/gitformat-index` of git.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Stamp;
use crate::FileStamp;

/// Bytes of an index that are read.
const LIMIT: u64 = 256 << 20;
/// Bytes of an entry before its path.
const FIXED: usize = 62;

/// The files that git tracks below a directory.
#[derive(Debug)]
pub struct GitIndex {
    /// By the bytes of their paths.
    entries: BTreeMap<Vec<u8>, IndexEntry>,
    /// When it was written: what was changed in that moment is not known to be clean.
    written: (i64, i64),
    path: PathBuf,
    stamp: FileStamp,
}

#[derive(Debug, Clone, Copy)]
struct IndexEntry {
    modified: (u32, u32),
    inode: u32,
    mode: u32,
    size: u32,
    id: [u8; 20],
}

impl GitIndex {
    /// The index of the repository around `root`, as far as it lies below `root`. `None` where there is none, or one in a
    /// form that is not read here; and where filters change files on their way out of git.
    pub fn of(root: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let top = root.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())?;
        let directory = git_directory(top)?;
        let path = directory.join("index");
        let (file, found) = crate::open_for_reading(&path).ok()?;
        let common = crate::open::read_small(&directory.join("commondir"), 4_096);
        let common = common.map_or(directory.clone(), |common| directory.join(common.trim_end()));
        let config = crate::open::read_small(&common.join("config"), 1 << 20).unwrap_or_default();
        if config.contains("[filter ") || config.contains("objectformat") || found.len() > LIMIT {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LIMIT).read_to_end(&mut bytes).ok()?;
        let below = root.strip_prefix(top).ok()?;
        let entries = read(&bytes, below)?;
        let written = (found.mtime(), found.mtime_nsec());
        Some(Self { entries, written, path, stamp: FileStamp::from(&found) })
    }

    /// Whether it is still what stands on the disk.
    pub fn is_current(&self) -> bool {
        self.path.metadata().is_ok_and(|found| FileStamp::from(&found) == self.stamp)
    }

    /// Whether git would commit the same with both.
    pub fn stages_the_same(&self, other: &Self) -> bool {
        let staged = |index: &Self| -> Vec<_> {
            index.entries.iter().map(|(path, one)| (path.clone(), one.id, one.mode)).collect()
        };
        self.entries.len() == other.entries.len() && staged(self) == staged(other)
    }

    /// The files that git tracks, with the objects that they are.
    pub fn tracked(&self) -> impl Iterator<Item = (&Path, [u8; 20])> {
        self.entries.iter().map(|(path, tracked)| (Path::new(OsStr::from_bytes(path)), tracked.id))
    }

    /// The object of a file, and its kind and permissions as git knows them.
    pub fn object(&self, path: &Path) -> Option<([u8; 20], u32)> {
        let tracked = self.entries.get(path.as_os_str().as_bytes())?;
        Some((tracked.id, tracked.mode))
    }

    /// What tells this reading of the index from another.
    pub fn identity(&self) -> String {
        format!("{:?}", self.stamp)
    }

    /// The file as it was read.
    pub(super) fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Whether git tracks this file, or a file in this directory.
    pub fn tracks(&self, path: &Path, is_directory: bool) -> bool {
        let mut name = path.as_os_str().as_bytes().to_vec();
        if !is_directory {
            return self.entries.contains_key(&name);
        }
        name.push(b'/');
        let next = self.entries.range(name.clone()..).next();
        next.is_some_and(|(found, _)| found.starts_with(&name))
    }

    /// The object that a file is, when it is as git wrote it or last saw it.
    pub fn clean(&self, path: &Path, stamp: &Stamp) -> Option<[u8; 20]> {
        let tracked = self.entries.get(path.as_os_str().as_bytes())?;
        let modified = (u32::try_from(stamp.modified.0).ok()?, u32::try_from(stamp.modified.1).ok()?);
        let same = tracked.modified == modified
            && u64::from(tracked.size) == stamp.size
            && u64::from(tracked.inode) == stamp.inode & u64::from(u32::MAX)
            && tracked.mode & 0o170_100 == stamp.mode & 0o170_100;
        (same && stamp.modified < self.written).then_some(tracked.id)
    }
}

/// Where git keeps what belongs to a working tree.
pub(super) fn git_directory(top: &Path) -> Option<PathBuf> {
    let dot = top.join(".git");
    if dot.is_dir() {
        return Some(dot);
    }
    let text = crate::open::read_small(&dot, 4_096)?;
    Some(top.join(text.trim_end().strip_prefix("gitdir: ")?))
}

fn read(bytes: &[u8], below: &Path) -> Option<BTreeMap<Vec<u8>, IndexEntry>> {
    let mut prefix = below.as_os_str().as_bytes().to_vec();
    if !prefix.is_empty() {
        prefix.push(b'/');
    }
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = word(4)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let (count, mut at) = (word(8)?, 12);
    let (mut entries, mut name) = (BTreeMap::new(), Vec::new());
    for _ in 0..count {
        let begin = at;
        let flags = u16::from_be_bytes(bytes.get(at + 60..at + 62)?.try_into().ok()?);
        at += FIXED;
        let extended = flags & 0x4000 != 0;
        let more = if extended { u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?) } else { 0 };
        at += if extended { 2 } else { 0 };
        if version == 4 {
            let (strip, after) = varint(bytes, at)?;
            name.truncate(name.len().checked_sub(strip)?);
            at = after;
        } else {
            name.clear();
        }
        let end = at + memchr::memchr(0, bytes.get(at..)?)?;
        name.extend_from_slice(&bytes[at..end]);
        at = if version == 4 { end + 1 } else { begin + (end - begin + 8) / 8 * 8 };
        // In the middle of a merge, taken as unchanged, not in the working tree, or not added yet.
        let special = flags & 0xb000 != 0 || more & 0x6000 != 0;
        let mode = word(begin + 24)?;
        // Directories stand for what a sparse checkout leaves out.
        if mode & 0o170_000 == 0o040_000 {
            return None;
        }
        if let (Some(path), false) = (name.strip_prefix(prefix.as_slice()), special) {
            let tracked = IndexEntry {
                modified: (word(begin + 8)?, word(begin + 12)?),
                inode: word(begin + 20)?,
                mode,
                size: word(begin + 36)?,
                id: bytes.get(begin + 40..begin + 60)?.try_into().ok()?,
            };
            entries.insert(path.to_vec(), tracked);
        }
    }
    // What stands in another file is not read.
    let split = bytes.get(at..).is_some_and(|rest| rest.starts_with(b"link"));
    (!split).then_some(entries)
}

fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

/// The bytes of objects, asked of `git cat-file` in the directory, which runs no hook and no filter, writes nowhere and
/// reaches no network. `None` for what is not there, or larger than `limit`.
pub fn git_blobs(directory: &Path, ids: &[[u8; 20]], limit: u64) -> Vec<Option<Vec<u8>>> {
    let mut found = vec![None; ids.len()];
    if ids.is_empty() {
        return found;
    }
    let Some(mut command) = cat_file(directory) else { return found };
    let Ok(Ok(mut child)) = crate::sandbox::reading_only(|| command.spawn()) else { return found };
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return found };
    let asked: String = ids.iter().map(|id| hex(id) + "\n").collect();
    let writer = std::thread::spawn(move || {
        // A git that stops early has said so by what it answers.
        input.write_all(asked.as_bytes()).ok();
    });
    let mut output = std::io::BufReader::new(output);
    for one in &mut found {
        match answer(&mut output, limit) {
            Some(bytes) => *one = bytes,
            None => break,
        }
    }
    drop(output);
    writer.join().ok();
    child.kill().ok();
    child.wait().ok();
    found
}

/// `git cat-file --batch` in a directory, with nothing of the environment and of the repository's settings that could
/// make it run something else.
fn cat_file(directory: &Path) -> Option<Command> {
    let helpers = crate::Helpers::of_this_process();
    let mut command = Command::new(helpers.find("git")?);
    command
        .args(["--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        .args(["-c", "protocol.allow=never", "-c", "credential.helper=", "--no-pager"])
        .args(["cat-file", "--batch"])
        .current_dir(directory)
        .env_clear()
        .env("PATH", helpers.path("git"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Some(command)
}

/// One answer; `None` at the end of them.
fn answer(output: &mut impl std::io::BufRead, limit: u64) -> Option<Option<Vec<u8>>> {
    let mut line = String::new();
    if output.by_ref().take(200).read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace().skip(1);
    let (kind, size) = (words.next()?, words.next().and_then(|size| size.parse::<u64>().ok()));
    let Some(size) = size else { return Some(None) };
    let mut bytes = Vec::new();
    if size > limit {
        std::io::copy(&mut output.by_ref().take(size + 1), &mut std::io::sink()).ok()?;
        return Some(None);
    }
    output.by_ref().take(size).read_to_end(&mut bytes).ok()?;
    // The end of the line.
    let end = output.fill_buf().ok()?.len().min(1);
    output.consume(end);
    Some(Some(bytes).filter(|_| kind == "blob"))
}

fn hex(id: &[u8]) -> String {
    use std::fmt::Write as _;
    id.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    })
}
