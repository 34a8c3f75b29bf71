//! A file in the place of another in one step, without losing what somebody else wrote meanwhile.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempPath;

use super::read::NEW_MODE;

/// What became of it.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// It is there. What was there before is kept aside: whoever had it open may still write to it.
    Done(FormerFile),
    /// Somebody changed the file since it was read; nothing was changed.
    Changed,
}

/// What was in the place of the new file.
#[derive(Debug)]
pub(crate) struct FormerFile(Option<(TempPath, Vec<u8>)>);

impl FormerFile {
    /// What a program wrote into the former file after it was replaced: its whole text then.
    pub(crate) fn written_since(&self) -> Option<Vec<u8>> {
        let (path, bytes) = self.0.as_ref()?;
        std::fs::read(path).ok().filter(|now| now != bytes)
    }
}

/// Puts `bytes` in the place of the file, if that still has the bytes `before` (`None`: there is no file).
pub(crate) fn replace(path: &Path, before: Option<&[u8]>, bytes: &[u8]) -> io::Result<Replacement> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mode = std::fs::symlink_metadata(path).map_or(NEW_MODE, |found| found.permissions().mode() & 0o7777);
    let mut aside = tempfile::Builder::new().prefix(".quipu-").suffix(".tmp").tempfile_in(dir)?;
    aside.write_all(bytes)?;
    aside.as_file().set_permissions(Permissions::from_mode(mode))?;
    aside.as_file().sync_all()?;
    let aside = aside.into_temp_path();
    let Some(before) = before else {
        return match renameat_with(CWD, &*aside, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => {
                // Its name is another one now.
                drop(aside.keep());
                Ok(Replacement::Done(FormerFile(None)))
            }
            Err(rustix::io::Errno::EXIST) => Ok(Replacement::Changed),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match aside.persist_noclobber(path) {
                Ok(()) => Ok(Replacement::Done(FormerFile(None))),
                Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(Replacement::Changed),
                Err(error) => Err(error.error),
            },
            Err(error) => Err(error.into()),
        };
    };
    let is_same = |path: &Path| -> io::Result<bool> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => Ok(std::fs::read(path)? == before),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    };
    if !is_same(path)? {
        return Ok(Replacement::Changed);
    }
    match renameat_with(CWD, &*aside, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(Replacement::Changed),
        // A file system that cannot exchange two names.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            aside.persist(path).map_err(|error| error.error)?;
            return Ok(Replacement::Done(FormerFile(None)));
        }
        Err(error) => return Err(error.into()),
    }
    // What came out must be what was read; else it goes back.
    if is_same(&aside)? {
        return Ok(Replacement::Done(FormerFile(Some((aside, before.to_vec())))));
    }
    match renameat_with(CWD, &*aside, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => {
            // Somebody wrote to the new file while it was there.
            if std::fs::read(&aside)? != bytes {
                drop(aside.keep());
            }
            Ok(Replacement::Changed)
        }
        Err(error) => {
            // The person's text must not go with the temporary name.
            drop(aside.keep());
            Err(error.into())
        }
    }
}
