//! A directory of files that nobody but us may change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Directories and scripts: their owner reads and executes them, and writes them only after a change of their mode.
const CLOSED: u32 = 0o500;
/// Files that are read only.
const TEXT: u32 = 0o400;

/// Files by their paths in the directory, with their content and mode.
#[derive(Debug, Default)]
pub(super) struct ScriptFiles {
    directories: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, (String, u32)>,
}

impl ScriptFiles {
    pub(super) fn add_text(&mut self, name: String, text: String) {
        self.files.insert(name.into(), (text, TEXT));
    }

    pub(super) fn add_script(&mut self, directory: &str, name: &str, text: &str) {
        self.directories.insert(directory.into());
        self.files.insert(Path::new(directory).join(name), (text.to_owned(), CLOSED));
    }

    /// Whether these files, and no others, are in a directory with their content and modes.
    pub(super) fn are_in(&self, root: &Path) -> bool {
        let mode = |path: &Path, is_directory: bool| {
            let found = path.symlink_metadata().ok()?;
            let is_kind = if is_directory { found.is_dir() } else { found.is_file() };
            is_kind.then(|| found.permissions().mode() & 0o7777)
        };
        let has_files = self.files.iter().all(|(name, (text, wanted))| {
            let path = root.join(name);
            // What is no file is never opened.
            mode(&path, false) == Some(*wanted)
                && path.metadata().is_ok_and(|found| found.len() == text.len() as u64)
                && fs::read(&path).is_ok_and(|there| there == text.as_bytes())
        });
        let mut directories =
            std::iter::once(Path::new("")).chain(self.directories.iter().map(PathBuf::as_path));
        has_files
            && directories.all(|directory| {
                // Without a slash at the end, behind which a link is followed.
                let path: PathBuf = root.join(directory).components().collect();
                let wanted = self.directories.iter().chain(self.files.keys());
                let wanted = wanted.filter(|name| name.parent() == Some(directory)).count();
                // All of the wanted are there: as many names are these names.
                mode(&path, true) == Some(CLOSED)
                    && fs::read_dir(&path).is_ok_and(|found| found.take(wanted + 1).count() == wanted)
            })
    }

    /// Makes the files in an empty directory, which stays open.
    pub(super) fn make(&self, root: &Path) -> io::Result<()> {
        for directory in &self.directories {
            fs::DirBuilder::new().mode(0o700).create(root.join(directory))?;
        }
        for (name, (text, mode)) in &self.files {
            let mut file = File::create_new(root.join(name))?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}

/// Lets nobody write into a directory and those in it.
pub(super) fn close(root: &Path) -> io::Result<()> {
    set_modes(root, CLOSED)
}

/// Lets the owner write into a directory and those in it. What is no directory stays as it is.
pub(super) fn open(root: &Path) -> io::Result<()> {
    set_modes(root, 0o700)
}

/// Removes a directory that may be closed, or what stands in its place.
pub(super) fn remove(root: &Path) -> io::Result<()> {
    if !root.symlink_metadata()?.is_dir() {
        return fs::remove_file(root);
    }
    open(root)?;
    fs::remove_dir_all(root)
}

fn set_modes(root: &Path, mode: u32) -> io::Result<()> {
    if !root.symlink_metadata()?.is_dir() {
        return Ok(());
    }
    // First so that it can be looked through, whatever its mode was.
    fs::set_permissions(root, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            set_modes(&entry.path(), mode)?;
        }
    }
    fs::set_permissions(root, Permissions::from_mode(mode))
}
