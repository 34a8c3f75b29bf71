//! Where tools that work on files may go, decided by where a path truly leads.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nix::fcntl::OFlag;
use quipu_rules::{FileAccess, Place, RuleSet, Verdict};
use tokio_util::sync::CancellationToken;

use crate::editor::{SharedEditor, UnsavedText};
use crate::open::read_rest;
use crate::path::names_a_directory;
use crate::write::{sync_directory, write_at};
use crate::{
    EditorFiles, FileError, FileKind, FileStamp, WriteKind, file_key, open_for_reading, read_whole,
    write_file,
};

/// How a file is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    /// The content is read.
    Read,
    /// It is created or changed.
    Write,
}

/// What may be done with a path without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It lies within what is free.
    Free,
    /// It lies elsewhere.
    Outside,
    /// It is where a well-known program keeps secrets.
    Secret,
    /// It has other names (hard links), which may lie elsewhere.
    Linked,
    /// It [configures](crate::configures) programs that act outside of any sandbox.
    Configures,
    /// It is one of our own files, which no tool may change.
    Own,
}

/// The directories that are free, all absolute. They are resolved when the rules are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// May be read and written.
    pub write: Vec<PathBuf>,
    /// May be read.
    pub read: Vec<PathBuf>,
    /// May never be written, even within the others; a directory of `write` within them may.
    pub own: Vec<PathBuf>,
    /// The user's home, below which programs keep secrets.
    pub home: Option<PathBuf>,
    /// Whether what [configures](crate::configures) git, agents, editors and shells is not free to be written.
    pub protects: bool,
}

/// Where tools may go. The default is everywhere. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Access {
    rules: Option<Arc<Rules>>,
    approved: Arc<[Approval]>,
    /// What rules say of files that a search finds: nobody is asked about each of them.
    searches: Option<Arc<SearchRules>>,
    /// Who is told of what is written, and holds what is not saved.
    editor: Option<SharedEditor>,
    /// Texts that are read in the place of files.
    unsaved: Arc<[UnsavedText]>,
}

/// Permission rules, and where their paths begin.
#[derive(Debug)]
struct SearchRules {
    rules: RuleSet,
    cwd: PathBuf,
    home: Option<PathBuf>,
}

/// A file that is allowed, as it is when that is asked: a yes is for what was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    path: PathBuf,
    shared: FileIdentity,
}

/// The device and number of a file that has several names (hard links), whichever of them it was found by.
type FileIdentity = Option<(u64, u64)>;

impl Approval {
    /// Of the file at a path as [`file_key`] gives it, as it is now.
    pub fn of(path: PathBuf) -> Self {
        let shared = shared_at(&path);
        Self { path, shared }
    }

    /// Whether it is for what is at the path by now: that did not become a file with other names, or another one of that
    /// kind. A new file with one name may take its place.
    pub fn holds(&self) -> bool {
        self.is_of(shared_at(&self.path))
    }

    fn is_of(&self, shared: FileIdentity) -> bool {
        shared.is_none() || shared == self.shared
    }
}

#[derive(Debug)]
struct Rules {
    rules: AccessRules,
    /// Looked up when the first path is judged.
    secrets: OnceLock<Vec<PathBuf>>,
}

impl AccessRules {
    /// Whether a path lies in a directory to work in that is itself one of ours, such as the workspace of a sandbox.
    fn is_given(&self, real: &Path) -> bool {
        let is_ours = |root: &&PathBuf| self.own.iter().any(|own| root.starts_with(own) && *root != own);
        self.write.iter().filter(is_ours).any(|root| real.starts_with(root))
    }

    fn configures(&self, real: &Path) -> bool {
        self.protects
            && self.write.iter().any(|root| real.strip_prefix(root).is_ok_and(crate::protected::configures))
    }
}

impl Rules {
    fn secrets(&self) -> &[PathBuf] {
        self.secrets.get_or_init(|| {
            let lines = include_str!("secrets.txt").lines().map(str::trim);
            let named = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
            let home = self.rules.home.iter();
            home.flat_map(|home| named.clone().map(|line| file_key(&home.join(line)))).collect()
        })
    }
}

impl Access {
    /// Only where the rules say.
    pub fn within(rules: AccessRules) -> Self {
        let real = |paths: Vec<PathBuf>| paths.iter().map(|path| file_key(path)).collect();
        let AccessRules { write, read, own, home, protects } = rules;
        let rules = AccessRules { write: real(write), read: real(read), own: real(own), home, protects };
        let rules = Some(Arc::new(Rules { rules, secrets: OnceLock::new() }));
        Self { rules, ..Self::default() }
    }

    /// The same, with permission rules for searches; relative paths of rules begin in `cwd`.
    #[must_use]
    pub fn searching_by(mut self, rules: RuleSet, cwd: PathBuf, home: Option<PathBuf>) -> Self {
        self.searches = (!rules.is_empty()).then(|| Arc::new(SearchRules { rules, cwd, home }));
        self
    }

    /// Whether a search of a tool may open a file that it finds, at its true path: it is not where programs keep secrets,
    /// and no permission rule denies reading it or asks about that.
    pub fn may_search(&self, tool: &str, real: &Path) -> bool {
        let by_rules = self.searches.as_ref().is_none_or(|search| {
            let true_path = |path: &Path| path.to_path_buf();
            let place = Place { cwd: &search.cwd, home: search.home.as_deref(), true_path: &true_path };
            let judged = search.rules.files(tool, &[real.to_path_buf()], FileAccess::Read, &place);
            judged.verdict <= Verdict::NoRule
        });
        by_rules && self.judge(real, AccessMode::Read, None) != Reach::Secret
    }

    /// The same, where everything below a directory may be read that is no secret.
    #[must_use]
    pub fn reading_below(&self, directory: &Path) -> Self {
        let rules = self.rules.as_ref().map(|old| {
            let mut rules = old.rules.clone();
            rules.read.push(file_key(directory));
            Arc::new(Rules { rules, secrets: old.secrets.clone() })
        });
        Self { rules, ..self.clone() }
    }

    /// The same, with an editor in front that is told what is written.
    #[must_use]
    pub fn in_editor(self, editor: Arc<dyn EditorFiles>) -> Self {
        Self { editor: Some(SharedEditor::new(editor)), ..self }
    }

    /// The same, reading what the editor holds of these files where that is not saved. Paths are as [`file_key`] gives them. Blocks.
    #[must_use]
    pub fn with_unsaved(self, paths: &[PathBuf]) -> Self {
        let Some(editor) = &self.editor else { return self };
        let may_read = |path: &&PathBuf| self.check_read(path).is_ok();
        let unsaved = paths.iter().filter(may_read).filter_map(|path| editor.unsaved(path)).collect();
        Self { unsaved, ..self }
    }

    /// Saves what the editor holds of these files where that is not saved and they may be written: what changes them next changes
    /// what a person sees. Paths are as [`file_key`] gives them. Blocks.
    pub fn save_unsaved(&self, paths: &[PathBuf]) {
        let Some(editor) = &self.editor else { return };
        for path in paths.iter().filter(|path| self.check_write(path).is_ok()) {
            if let Some(unsaved) = editor.unsaved(path) {
                // A file that cannot be saved is changed as it is.
                drop(self.write_file(path, unsaved.text.as_bytes(), None));
            }
        }
    }

    /// Refuses a path that is neither free to be read nor approved.
    ///
    /// # Errors
    /// [`FileError::Refused`]; [`FileError::Exchanged`].
    pub fn check_read(&self, path: &Path) -> Result<(), FileError> {
        let real = file_key(path);
        self.check(path, &real, AccessMode::Read, shared_at(&real))
    }

    /// The same, and these files, whose exact paths a person or a grant allowed.
    #[must_use]
    pub fn approving(&self, files: Vec<Approval>) -> Self {
        Self { approved: files.into(), ..self.clone() }
    }

    /// The same, and this directory to read and write.
    #[must_use]
    pub fn adding(&self, directory: &Path) -> Self {
        let rules = self.rules.as_ref().map(|old| {
            let mut rules = old.rules.clone();
            rules.write.push(file_key(directory));
            Arc::new(Rules { rules, secrets: old.secrets.clone() })
        });
        Self { rules, ..self.clone() }
    }

    /// The directories where files may be written; none where that is everywhere.
    pub fn roots(&self) -> &[PathBuf] {
        self.rules.as_deref().map_or(&[], |rules| &rules.rules.write)
    }

    /// What may be done with the file at a path as [`file_key`] gives it.
    pub fn reach(&self, real: &Path, want: AccessMode) -> Reach {
        self.judge(real, want, shared_at(real))
    }

    /// Whether what is at a path, as [`file_key`] gives it, may be read: it is free, or was approved.
    pub fn may_read(&self, real: &Path) -> bool {
        self.check(real, real, AccessMode::Read, None).is_ok()
    }

    fn judge(&self, real: &Path, want: AccessMode, shared: FileIdentity) -> Reach {
        let Some(all) = self.rules.as_deref() else { return Reach::Free };
        let rules = &all.rules;
        let below = |roots: &[PathBuf]| roots.iter().any(|root| real.starts_with(root));
        // What could not be resolved says nothing of where it leads.
        let resolved = real.is_absolute()
            && real.components().all(|part| !matches!(part, Component::ParentDir | Component::CurDir));
        match want {
            AccessMode::Write if resolved && below(&rules.own) && !rules.is_given(real) => Reach::Own,
            _ if below(all.secrets()) || is_secret_name(real) => Reach::Secret,
            _ if !resolved => Reach::Outside,
            AccessMode::Read if below(&rules.write) || below(&rules.read) => Reach::Free,
            AccessMode::Write if below(&rules.write) && shared.is_some() => Reach::Linked,
            AccessMode::Write if below(&rules.write) && rules.configures(real) => Reach::Configures,
            AccessMode::Write if below(&rules.write) => Reach::Free,
            AccessMode::Read | AccessMode::Write => Reach::Outside,
        }
    }

    /// Refuses an opened file, or the name of one to be made, that is neither free nor approved.
    fn check(
        &self,
        asked: &Path,
        real: &Path,
        want: AccessMode,
        shared: FileIdentity,
    ) -> Result<(), FileError> {
        let (path, reach) = (asked.to_path_buf(), self.judge(real, want, shared));
        match (reach, self.approved.iter().find(|approval| approval.path == real)) {
            (Reach::Free, _) => Ok(()),
            (Reach::Outside | Reach::Secret | Reach::Linked | Reach::Configures, Some(approval)) => {
                if approval.is_of(shared) {
                    Ok(())
                } else {
                    Err(FileError::Exchanged { path, real: real.to_path_buf() })
                }
            }
            (Reach::Outside | Reach::Secret | Reach::Linked | Reach::Configures | Reach::Own, _) => {
                Err(FileError::Refused { path, real: real.to_path_buf(), reach })
            }
        }
    }

    /// Refuses an opened file that may not be changed, judged by where it leads.
    pub(crate) fn check_handle(&self, path: &Path, real: &Path, found: &Metadata) -> Result<(), FileError> {
        if self.is_everywhere() { Ok(()) } else { self.check(path, real, AccessMode::Write, shared(found)) }
    }

    fn is_everywhere(&self) -> bool {
        self.rules.is_none()
    }

    /// [`open_for_reading`], then a look at where the handle leads.
    ///
    /// # Errors
    /// As [`open_for_reading`]; [`FileError::Refused`].
    pub fn open_for_reading(&self, path: &Path) -> Result<(File, Metadata), FileError> {
        let (file, metadata) = open_for_reading(path)?;
        if self.is_everywhere() && self.unsaved.is_empty() {
            return Ok((file, metadata));
        }
        let real = path_of(&file, path)?;
        self.check(path, &real, AccessMode::Read, shared(&metadata))?;
        match self.unsaved.iter().find(|unsaved| unsaved.path == real) {
            Some(unsaved) => {
                let failed = |error| FileError::from_io(path, "cannot read what is not saved of", error);
                Ok((unsaved.file().map_err(failed)?, metadata))
            }
            None => Ok((file, metadata)),
        }
    }

    /// [`read_whole`](crate::read_whole) within these bounds, for a file that is to be written back.
    ///
    /// # Errors
    /// As [`read_whole`](crate::read_whole); [`FileError::Refused`] when the file may not be written.
    pub fn read_to_change(
        &self,
        path: &Path,
        limit: u64,
        cancel: &CancellationToken,
    ) -> Result<(Vec<u8>, FileStamp), FileError> {
        if self.is_everywhere() {
            return read_whole(path, limit, cancel);
        }
        let (mut file, metadata) = open_for_reading(path)?;
        self.check(path, &path_of(&file, path)?, AccessMode::Write, shared(&metadata))?;
        let bytes = read_rest(&mut file, path, metadata.len(), limit, cancel)?;
        Ok((bytes, FileStamp::from(&metadata)))
    }

    /// [`write_file`] within these bounds. The directory is opened, checked by its handle and used through it, so
    /// that exchanging it for a link meanwhile leads nowhere (on Linux).
    ///
    /// # Errors
    /// As [`write_file`]; [`FileError::Refused`].
    pub fn write_file(
        &self,
        path: &Path,
        bytes: &[u8],
        expected: Option<&FileStamp>,
    ) -> Result<WriteKind, FileError> {
        let kind = self.put_file(path, bytes, expected)?;
        if let Some(editor) = &self.editor {
            editor.written(&file_key(path), bytes);
        }
        Ok(kind)
    }

    fn put_file(
        &self,
        path: &Path,
        bytes: &[u8],
        expected: Option<&FileStamp>,
    ) -> Result<WriteKind, FileError> {
        if self.is_everywhere() {
            return write_file(path, bytes, expected);
        }
        if names_a_directory(path) {
            return Err(FileError::NotAFile { path: path.to_path_buf(), kind: FileKind::Directory });
        }
        // Before anything is opened or made, so that nothing is made on the way to a refusal.
        let real = file_key(path);
        self.check(path, &real, AccessMode::Write, shared_at(&real))?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::NotAFile { path: path.to_path_buf(), kind: FileKind::Directory });
        };
        let directory = self.enter(path, parent, name)?;
        let at = through(&directory, parent).join(name);
        let target = path_of(&directory, parent)?.join(name);
        self.check(path, &target, AccessMode::Write, shared_at(&at))?;
        // Once more by its handle: what is opened may be another file than what was looked at.
        let check = |found: &Metadata| self.check(path, &target, AccessMode::Write, shared(found));
        write_at(&at, bytes, expected, OFlag::O_NOFOLLOW, &check).map_err(|error| error.named(&real))
    }

    /// Refuses a path where no file may be made or changed.
    ///
    /// # Errors
    /// [`FileError::Refused`].
    pub fn check_write(&self, path: &Path) -> Result<(), FileError> {
        let real = file_key(path);
        self.check(path, &real, AccessMode::Write, shared_at(&real))
    }

    /// Removes the file at a path, which was read in this state. A link at the path stays, and what it leads to goes.
    ///
    /// # Errors
    /// [`FileError::Changed`] when it is another one by now; [`FileError::NotFound`]; [`FileError::Refused`]; what the
    /// system says.
    pub fn remove_file(&self, path: &Path, expected: &FileStamp) -> Result<(), FileError> {
        let real = file_key(path);
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(FileError::NotAFile { path: path.to_path_buf(), kind: FileKind::Directory });
        };
        let directory = open_directory(parent, path)?;
        let (at, target) = (through(&directory, parent).join(name), path_of(&directory, parent)?.join(name));
        let failed = |error| FileError::from_io(path, "cannot remove", error);
        let found = std::fs::symlink_metadata(&at).map_err(failed)?;
        self.check(path, &target, AccessMode::Write, shared(&found))?;
        if *expected != FileStamp::from(&found) {
            return Err(FileError::Changed { path: path.to_path_buf() });
        }
        std::fs::remove_file(&at).map_err(failed)?;
        sync_directory(parent)
    }

    /// Opens a directory for a file of this name, making what is missing, one handle after the other.
    fn enter(&self, asked: &Path, directory: &Path, name: &std::ffi::OsStr) -> Result<File, FileError> {
        let exists = directory.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
        let mut handle = open_directory(exists, directory)?;
        let missing = directory.strip_prefix(exists).unwrap_or(Path::new(""));
        let target = path_of(&handle, directory)?.join(missing).join(name);
        self.check(asked, &target, AccessMode::Write, None)?;
        for part in missing.components() {
            let Component::Normal(part) = part else {
                return Err(FileError::NotFound { path: directory.to_path_buf() });
            };
            let next = through(&handle, exists).join(part);
            match std::fs::create_dir(&next) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(FileError::from_io(directory, "cannot make directory", error));
                }
                Ok(()) | Err(_) => {}
            }
            handle = open_directory(&next, directory)?;
        }
        Ok(handle)
    }
}

/// Whether the file at a path, as [`file_key`] gives it, has other names (hard links).
pub fn has_other_names(real: &Path) -> bool {
    shared_at(real).is_some()
}

fn shared(found: &Metadata) -> FileIdentity {
    (!found.is_dir() && found.nlink() > 1).then(|| (found.dev(), found.ino()))
}

fn shared_at(path: &Path) -> FileIdentity {
    std::fs::symlink_metadata(path).ok().as_ref().and_then(shared)
}

fn open_directory(path: &Path, shown: &Path) -> Result<File, FileError> {
    OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
        .open(path)
        .map_err(|error| FileError::from_io(shown, "cannot open", error))
}

/// Keys that have the same names everywhere.
fn is_secret_name(real: &Path) -> bool {
    let name = real.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    matches!(name, "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ecdsa_sk" | "id_ed25519" | "id_ed25519_sk")
}

/// Where a handle leads.
#[cfg(target_os = "linux")]
pub(crate) fn path_of(file: &File, asked: &Path) -> Result<PathBuf, FileError> {
    use std::os::fd::AsRawFd as _;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|error| FileError::from_io(asked, "cannot tell where it leads (is /proc mounted?):", error))
}

/// Where a handle leads.
#[cfg(target_vendor = "apple")]
pub(crate) fn path_of(file: &File, asked: &Path) -> Result<PathBuf, FileError> {
    let mut real = PathBuf::new();
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_GETPATH(&mut real))
        .map_err(|error| FileError::from_io(asked, "cannot tell where it leads:", error.into()))?;
    Ok(real)
}

/// Where a handle leads, as far as its name tells.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub(crate) fn path_of(_: &File, asked: &Path) -> Result<PathBuf, FileError> {
    asked.canonicalize().map_err(|error| FileError::from_io(asked, "cannot tell where it leads:", error))
}

/// A path that leads through an open directory, whatever its name stands for by now; its name elsewhere.
#[cfg(target_os = "linux")]
fn through(directory: &File, _: &Path) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// A path that leads through an open directory, whatever its name stands for by now; its name elsewhere.
#[cfg(not(target_os = "linux"))]
fn through(directory: &File, name: &Path) -> PathBuf {
    path_of(directory, name).unwrap_or_else(|_| name.to_path_buf())
}
