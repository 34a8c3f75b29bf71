//! The files of a package in a directory of ours, within limits, and their hash.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Files of a package at most.
pub(super) const MOST_FILES: usize = 2_000;
/// Bytes of all of them, and of one.
pub(super) const MOST_BYTES: u64 = 32 << 20;
const MOST_FILE_BYTES: u64 = 8 << 20;
/// Bytes of a path, and directories below each other.
const MOST_PATH: usize = 512;
const MOST_DEPTH: usize = 16;

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// Its path in the package, with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it is made to be run.
    pub is_program: bool,
    is_executable: bool,
    hash: [u8; 32],
}

/// The files of a package, sorted by their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageTree {
    pub(super) files: Vec<PackageFile>,
    pub(super) bytes: u64,
}

impl PackageTree {
    /// The hash of all paths, modes and contents, in hexadecimal.
    pub(super) fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.files {
            hash.update(file.path.as_bytes());
            hash.update([0, u8::from(file.is_executable)]);
            hash.update(file.bytes.to_le_bytes());
            hash.update(file.hash);
        }
        quipu_protocol::hex(&hash.finalize())
    }

    /// The files of a directory as they are now.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self { files: Vec::new(), bytes: 0 };
        tree.enter(root, "", 0)?;
        tree.files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(tree)
    }

    fn enter(&mut self, directory: &Path, below: &str, depth: usize) -> Result<(), String> {
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        if depth > MOST_DEPTH {
            return Err(format!("{below} is more than {MOST_DEPTH} directories deep"));
        }
        for entry in std::fs::read_dir(directory).map_err(|error| failed(directory, error))? {
            let entry = entry.map_err(|error| failed(directory, error))?;
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_str().ok_or_else(|| format!("{}: its name is not text", path.display()))?;
            let below = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            // What a link leads to is no part of the package.
            let kind = entry.file_type().map_err(|error| failed(&path, error))?;
            if kind.is_dir() {
                self.enter(&path, &below, depth + 1)?;
            } else if kind.is_file() {
                self.add(&path, below)?;
            } else {
                return Err(format!("{below} is neither a file nor a directory"));
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, below: String) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if self.files.len() >= MOST_FILES {
            return Err(format!("it has more than {MOST_FILES} files"));
        }
        let file = File::open(path).map_err(failed)?;
        let is_executable = file.metadata().map_err(failed)?.permissions().mode() & 0o111 != 0;
        let (mut hash, mut bytes, mut start) = (Sha256::new(), 0, Vec::new());
        let mut file = file.take(MOST_FILE_BYTES + 1);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                break;
            }
            let part = &buffer[..count];
            if start.len() < 2 {
                start.extend_from_slice(&part[..count.min(2)]);
            }
            bytes += count as u64;
            hash.update(part);
        }
        self.bytes += bytes;
        if bytes > MOST_FILE_BYTES || self.bytes > MOST_BYTES {
            return Err(too_large(&below, bytes > MOST_FILE_BYTES));
        }
        let in_scripts = below.rsplit('/').nth(1) == Some("scripts");
        let is_program = is_executable || in_scripts || start.starts_with(b"#!");
        let hash = hash.finalize().into();
        self.files.push(PackageFile { path: below, bytes, is_program, is_executable, hash });
        Ok(())
    }
}

fn too_large(path: &str, alone: bool) -> String {
    if alone {
        format!("{path} is larger than {} MiB", MOST_FILE_BYTES >> 20)
    } else {
        format!("its files are larger than {} MiB together", MOST_BYTES >> 20)
    }
}

/// Writes the files of a package into an empty directory of ours. Paths are those of strangers.
#[derive(Debug)]
pub(super) struct TreeWriter {
    root: PathBuf,
    paths: BTreeSet<String>,
    bytes: u64,
    /// What is no file, and is not kept.
    pub(super) left_out: Vec<String>,
}

impl TreeWriter {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), paths: BTreeSet::new(), bytes: 0, left_out: Vec::new() }
    }

    /// Notes that something is left out.
    pub(super) fn leave_out(&mut self, path: &str, what: &str) {
        if self.left_out.len() < 100 {
            let path: String = path.chars().filter(|letter| !letter.is_control()).take(200).collect();
            self.left_out.push(format!("{path} ({what})"));
        }
    }

    /// Writes a file.
    pub(super) fn put(&mut self, path: &str, mode: u32, content: &mut dyn Read) -> Result<(), String> {
        checked(path)?;
        if self.paths.len() >= MOST_FILES {
            return Err(format!("it has more than {MOST_FILES} files"));
        }
        if !self.paths.insert(path.to_owned()) {
            return Err(format!("it has {path} twice"));
        }
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let target = self.root.join(path);
        if let Some(parent) = target.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        let mode = if mode & 0o111 != 0 { 0o700 } else { 0o600 };
        let mut file =
            File::options().write(true).create_new(true).mode(mode).open(&target).map_err(failed)?;
        let room = MOST_FILE_BYTES.min(MOST_BYTES - self.bytes);
        let count = std::io::copy(&mut content.take(room + 1), &mut file).map_err(failed)?;
        if count > room {
            return Err(too_large(path, room == MOST_FILE_BYTES));
        }
        self.bytes += count;
        file.flush().map_err(failed)
    }

    /// Writes what lies in a directory of this machine, without links, Git's files and packages of others.
    pub(super) fn copy(&mut self, directory: &Path) -> Result<(), String> {
        self.copy_below(directory, "", 0)
    }

    fn copy_below(&mut self, directory: &Path, below: &str, depth: usize) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        if depth > MOST_DEPTH {
            return Err(format!("{below} is more than {MOST_DEPTH} directories deep"));
        }
        let entries = std::fs::read_dir(directory).map_err(failed)?;
        for (count, entry) in entries.enumerate() {
            if count > MOST_FILES {
                return Err(format!("{} has more than {MOST_FILES} entries", directory.display()));
            }
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.leave_out(&entry.path().display().to_string(), "its name is not text");
                continue;
            };
            if matches!(name, ".git" | "node_modules") {
                continue;
            }
            let below = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.copy_below(&entry.path(), &below, depth + 1)?;
            } else if kind.is_file() {
                let (mut file, found) = quipu_workspace::open_for_reading(&entry.path())
                    .map_err(|error| format!("{below}: {error}"))?;
                self.put(&below, found.permissions().mode(), &mut file)?;
            } else {
                self.leave_out(&below, "neither a file nor a directory");
            }
        }
        Ok(())
    }
}

/// Whether a path stays in the package and can be shown.
fn checked(path: &str) -> Result<(), String> {
    let shown = || path.chars().filter(|letter| !letter.is_control()).take(200).collect::<String>();
    let names: Vec<&str> = path.split('/').collect();
    let leads_out = names.iter().any(|name| matches!(*name, "" | "." | ".."));
    if leads_out || path.contains(|letter: char| letter.is_control() || letter == '\\') {
        return Err(format!("the path `{}` in it is not valid", shown()));
    }
    if path.len() > MOST_PATH || names.len() > MOST_DEPTH || names.iter().any(|name| name.len() > 255) {
        return Err(format!(
            "the path `{}` in it is longer than {MOST_PATH} bytes or {MOST_DEPTH} names",
            shown()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_follows_paths_modes_and_contents() {
        let hash_of = |files: &[(&str, u32, &str)]| {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = TreeWriter::new(dir.path());
            for (path, mode, text) in files {
                writer.put(path, *mode, &mut text.as_bytes()).unwrap();
            }
            PackageTree::read(dir.path()).unwrap().hash()
        };
        let base = hash_of(&[("a/x.md", 0o644, "one"), ("b", 0o644, "two")]);
        assert_eq!(base, hash_of(&[("b", 0o600, "two"), ("a/x.md", 0o644, "one")]));
        for other in [
            hash_of(&[("a/x.md", 0o755, "one"), ("b", 0o644, "two")]),
            hash_of(&[("a/y.md", 0o644, "one"), ("b", 0o644, "two")]),
            hash_of(&[("a/x.md", 0o644, "onetwo"), ("b", 0o644, "")]),
            hash_of(&[("a/x.md", 0o644, "one")]),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let mut writer = TreeWriter::new(&root);
        let long = "x/".repeat(30) + "y";
        for path in ["../x", "/x", "a/../../x", "a//b", "", "a\nb", "a\\b", long.as_str(), &"n".repeat(300)] {
            assert!(writer.put(path, 0o644, &mut &b"x"[..]).is_err(), "{path}");
        }
        writer.put("a", 0o644, &mut &b"x"[..]).unwrap();
        assert!(writer.put("a", 0o644, &mut &b"x"[..]).unwrap_err().contains("twice"));
        assert!(writer.put("a/b", 0o644, &mut &b"x"[..]).is_err());
        let mut endless = std::io::repeat(0);
        assert!(writer.put("big", 0o644, &mut endless).unwrap_err().contains("larger than 8 MiB"));
        assert!(!dir.path().join("x").exists());
    }

    #[test]
    fn copy_leaves_links_out_and_a_planted_link_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for made in ["from/.git", "from/node_modules", "to"] {
            std::fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        std::fs::write(from.join("a.md"), "a").unwrap();
        std::fs::write(from.join(".git/config"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
        let mut writer = TreeWriter::new(&to);
        writer.copy(&from).unwrap();
        assert!(writer.left_out[0].contains("link"), "{:?}", writer.left_out);
        let paths: Vec<_> = PackageTree::read(&to).unwrap().files.into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["a.md"]);
        std::os::unix::fs::symlink("/etc/passwd", to.join("planted")).unwrap();
        assert!(PackageTree::read(&to).unwrap_err().contains("neither a file"));
    }
}
