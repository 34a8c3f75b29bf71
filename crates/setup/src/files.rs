//! Files of other agents: read within limits, written by rename, and only where that is safe.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::SetupError;

/// Bytes of a settings file at most.
const MOST_BYTES: u64 = 16 << 20;

/// How temporary files begin; six signs follow.
pub(crate) const TEMPORARY: &str = ".quipu-setup-";

/// Removes temporary files that a setup which was killed left in a directory.
pub(crate) fn sweep(directory: &Path) -> Result<(), SetupError> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_temporary =
            name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)).is_some_and(|rest| rest.len() == 6);
        if is_temporary && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            std::fs::remove_file(entry.path()).map_err(SetupError::io(&entry.path(), "removed"))?;
        }
    }
    Ok(())
}

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    /// Where it is, behind links.
    pub(crate) target: PathBuf,
    /// Its text; `None` where it is not there.
    pub(crate) text: Option<String>,
    pub(crate) is_link: bool,
    /// Directories that have to be made, the outermost first.
    pub(crate) missing: Vec<PathBuf>,
}

/// Finds a file. It may be a link, as long as it leads to one of the roots.
pub(crate) fn find(path: &Path, roots: &[&Path]) -> Result<FoundFile, SetupError> {
    let link = match path.symlink_metadata() {
        Ok(link) => link,
        Err(error) if error.kind() == ErrorKind::NotFound => return absent(path, roots),
        Err(error) => return Err(SetupError::io(path, "read")(error)),
    };
    let is_link = link.file_type().is_symlink();
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(SetupError::refused(path, "is a link that leads nowhere"));
        }
        Err(error) => return Err(SetupError::io(path, "read")(error)),
    };
    check_root(path, &target, roots)?;
    let found = target.metadata().map_err(SetupError::io(path, "read"))?;
    check_file(path, &found)?;
    let text = read(path, &target)?;
    Ok(FoundFile { target, text, is_link, missing: Vec::new() })
}

fn absent(path: &Path, roots: &[&Path]) -> Result<FoundFile, SetupError> {
    let mut missing = Vec::new();
    let mut directory = path.parent().unwrap_or(path);
    loop {
        match directory.metadata() {
            Ok(found) if found.is_dir() => break,
            Ok(_) => {
                return Err(SetupError::refused(
                    path,
                    format!("cannot be made, {} is no directory", directory.display()),
                ));
            }
            Err(error) if error.kind() == ErrorKind::NotFound && directory.symlink_metadata().is_err() => {
                missing.insert(0, directory.to_owned());
            }
            Err(error) => return Err(SetupError::io(directory, "read")(error)),
        }
        let Some(parent) = directory.parent() else { break };
        directory = parent;
    }
    let real = directory.canonicalize().map_err(SetupError::io(directory, "read"))?;
    let rest = path.strip_prefix(directory).unwrap_or(path);
    let target = real.join(rest);
    check_root(path, &target, roots)?;
    Ok(FoundFile { target, text: None, is_link: false, missing })
}

/// A link must not lead out of the user's own directories.
fn check_root(path: &Path, target: &Path, roots: &[&Path]) -> Result<(), SetupError> {
    let is_below = |root: &&Path| {
        let real = root.canonicalize();
        target.starts_with(real.as_deref().unwrap_or(root))
    };
    if roots.iter().any(is_below) {
        return Ok(());
    }
    Err(SetupError::refused(path, format!("leads out of your home directory, to {}", target.display())))
}

fn check_file(path: &Path, found: &Metadata) -> Result<(), SetupError> {
    let refused = |why: String| Err(SetupError::refused(path, why));
    if !found.is_file() {
        return refused("is no regular file".to_owned());
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return refused(format!("belongs to another user (id {})", found.uid()));
    }
    if found.mode() & 0o200 == 0 {
        return refused("is read-only; `chmod u+w` makes it writable".to_owned());
    }
    if found.nlink() > 1 {
        return refused("has more than one hard link, which a change would separate".to_owned());
    }
    if found.len() > MOST_BYTES {
        return refused("is larger than 16 MiB".to_owned());
    }
    Ok(())
}

fn read(path: &Path, target: &Path) -> Result<Option<String>, SetupError> {
    let bytes = bytes_of(target, MOST_BYTES).map_err(SetupError::io(path, "read"))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| SetupError::refused(path, "is not text (UTF-8)"))?;
    Ok(Some(text))
}

/// The bytes of a regular file; `None` where there is none.
pub(crate) fn bytes_of(path: &Path, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    // What waits for a writer is not opened.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(Some(bytes))
}

/// Writes a text in the place of the one that was found, in one step. Mode and group stay.
pub(crate) fn write(path: &Path, found: &FoundFile, text: &str) -> Result<(), SetupError> {
    let failed = || SetupError::io(path, "written");
    is_as_found(path, found)?;
    let target = &found.target;
    let directory = target.parent().unwrap_or(target);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed())?;
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(directory).map_err(failed())?;
    file.write_all(text.as_bytes()).map_err(failed())?;
    let mut mode = 0o600;
    if found.text.is_some() {
        let old = target.metadata().map_err(failed())?;
        mode = old.mode() & 0o7777;
        let new = file.as_file().metadata().map_err(failed())?;
        if old.gid() != new.gid() {
            std::os::unix::fs::fchown(file.as_file(), None, Some(old.gid())).map_err(failed())?;
        }
    }
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed())?;
    file.as_file().sync_all().map_err(failed())?;
    is_as_found(path, found)?;
    match found.text {
        Some(_) => file.persist(target).map_err(|error| failed()(error.error))?,
        None => file.persist_noclobber(target).map_err(|error| match error.error.kind() {
            ErrorKind::AlreadyExists => SetupError::Concurrent { path: path.into() },
            _ => failed()(error.error),
        })?,
    };
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed())
}

/// Removes a file that is as it was found, and then the directories that hold nothing.
pub(crate) fn remove(path: &Path, found: &FoundFile, directories: &[PathBuf]) -> Result<(), SetupError> {
    is_as_found(path, found)?;
    std::fs::remove_file(&found.target).map_err(SetupError::io(path, "removed"))?;
    for directory in directories.iter().rev() {
        match std::fs::remove_dir(directory) {
            Ok(()) => {}
            // What others put there stays, and with it the directory.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => break,
            Err(error) => return Err(SetupError::io(directory, "removed")(error)),
        }
    }
    Ok(())
}

/// Whether nobody changed the file since it was found.
fn is_as_found(path: &Path, found: &FoundFile) -> Result<(), SetupError> {
    let same_target = match found.text {
        Some(_) => path.canonicalize().is_ok_and(|target| target == found.target),
        None => true,
    };
    match read(path, &found.target)? == found.text && same_target {
        true => Ok(()),
        false => Err(SetupError::Concurrent { path: path.into() }),
    }
}
