//! A file in the place of another in one step, without losing what somebody else wrote meanwhile.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempPath;

use super::merge::merge;
use super::read::NEW_MODE;

/// What became of it.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// It is there. What was there before is kept aside: whoever had it open may still write to it.
    Done(FormerFile),
    /// Somebody changed the file since it was read, and it has that text. If the new one stood there for a moment, it is aside.
    Changed(FormerFile),
}

/// A file that stood in the place of another one until now, and the text that it had then.
#[derive(Debug)]
pub(crate) struct FormerFile(Option<(TempPath, Vec<u8>)>);

/// How often the texts of others are brought over while they write on.
const TRIES: usize = 100;

impl FormerFile {
    const NONE: Self = Self(None);

    /// Brings what programs wrote into the former file since then into the file that stands there now, on top of what that
    /// became meanwhile. Says whether there was anything.
    ///
    /// # Errors
    /// The file could not be read or written, or others wrote on and on: what is not in it yet stays beside it, in the file
    /// that the error names.
    pub(crate) fn bring_over(self, path: &Path) -> io::Result<bool> {
        let mut left: Vec<(TempPath, Vec<u8>)> = self.0.into_iter().collect();
        let mut is_any = false;
        let mut tries = 0..TRIES;
        while let Some((aside, base)) = left.pop() {
            let step = match std::fs::read(&aside) {
                Ok(theirs) if theirs == base => continue,
                Ok(_) if tries.next().is_none() => Err(io::Error::other("others write it on and on")),
                Ok(theirs) => bring(path, &base, &theirs),
                Err(error) => Err(error),
            };
            is_any = true;
            match step {
                Ok(Replacement::Done(next)) => left.extend(next.0),
                Ok(Replacement::Changed(next)) => {
                    left.push((aside, base));
                    left.extend(next.0);
                }
                Err(error) => {
                    left.push((aside, base));
                    return Err(keep(left, &error));
                }
            }
        }
        Ok(is_any)
    }
}

fn bring(path: &Path, base: &[u8], theirs: &[u8]) -> io::Result<Replacement> {
    let now = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Some(std::fs::read(path)?),
        Ok(_) => return Err(io::Error::other("something else than a file is there")),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let merged = merge(base, theirs, now.as_deref().unwrap_or_default());
    replace(path, now.as_deref(), &merged)
}

/// The texts of others must not go with the temporary names.
fn keep(left: Vec<(TempPath, Vec<u8>)>, error: &io::Error) -> io::Error {
    let paths: Vec<String> = left
        .into_iter()
        .map(|(aside, _)| {
            let path = aside.display().to_string();
            // A name that cannot be kept is one that is not removed either.
            drop(aside.keep());
            path
        })
        .collect();
    io::Error::new(
        error.kind(),
        format!("{error}; what another program wrote meanwhile is in {}", paths.join(", ")),
    )
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
                Ok(Replacement::Done(FormerFile::NONE))
            }
            Err(rustix::io::Errno::EXIST) => Ok(Replacement::Changed(FormerFile::NONE)),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match aside.persist_noclobber(path) {
                Ok(()) => Ok(Replacement::Done(FormerFile::NONE)),
                Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                    Ok(Replacement::Changed(FormerFile::NONE))
                }
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
        return Ok(Replacement::Changed(FormerFile::NONE));
    }
    match renameat_with(CWD, &*aside, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(Replacement::Changed(FormerFile::NONE)),
        // A file system that cannot exchange two names.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            aside.persist(path).map_err(|error| error.error)?;
            return Ok(Replacement::Done(FormerFile::NONE));
        }
        Err(error) => return Err(error.into()),
    }
    // What came out must be what was read; else it goes back.
    if is_same(&aside).unwrap_or(false) {
        return Ok(Replacement::Done(FormerFile(Some((aside, before.to_vec())))));
    }
    match renameat_with(CWD, &*aside, CWD, path, RenameFlags::EXCHANGE) {
        // Somebody may have written to the new file while it was there.
        Ok(()) => Ok(Replacement::Changed(FormerFile(Some((aside, bytes.to_vec()))))),
        Err(error) => Err(keep(vec![(aside, Vec::new())], &error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    fn append(path: &Path) -> File {
        File::options().append(true).open(path).unwrap()
    }

    fn done(path: &Path, before: &str, new: &str) -> FormerFile {
        match replace(path, Some(before.as_bytes()), new.as_bytes()).unwrap() {
            Replacement::Done(former) => former,
            Replacement::Changed(_) => panic!("it was not replaced"),
        }
    }

    #[test]
    fn text_written_to_a_replaced_file_comes_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MEMORY.md");
        std::fs::write(&path, "one\n").unwrap();
        let mut open = append(&path);
        let former = done(&path, "one\n", "one\nours\n");
        open.write_all(b"late\n").unwrap();
        // And to the new one, before anybody looked.
        append(&path).write_all(b"later\n").unwrap();
        assert!(former.bring_over(&path).unwrap());
        assert_eq!(text(&path), "one\nlate\nours\nlater\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn text_written_to_a_file_that_went_back_comes_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MEMORY.md");
        std::fs::write(&path, "person 0\n").unwrap();
        let aside = tempfile::Builder::new().tempfile_in(dir.path()).unwrap().into_temp_path();
        std::fs::write(&aside, "ours\nperson 1\nperson 2\n").unwrap();
        let ours = FormerFile(Some((aside, b"ours\n".to_vec())));
        assert!(ours.bring_over(&path).unwrap());
        assert_eq!(text(&path), "person 0\nperson 1\nperson 2\n");
    }

    #[test]
    fn text_that_cannot_come_over_stays_beside_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MEMORY.md");
        std::fs::write(&path, "one\n").unwrap();
        let mut open = append(&path);
        let former = done(&path, "one\n", "one\nours\n");
        open.write_all(b"late\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = former.bring_over(&path).unwrap_err().to_string();
        let (_, kept) = error.split_once("wrote meanwhile is in ").unwrap();
        assert_eq!(text(Path::new(kept)), "one\nlate\n", "{error}");
    }

    #[test]
    fn text_of_a_file_that_was_removed_meanwhile_comes_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MEMORY.md");
        std::fs::write(&path, "one\n").unwrap();
        let mut open = append(&path);
        let former = done(&path, "one\n", "one\nours\n");
        open.write_all(b"late\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(former.bring_over(&path).unwrap());
        assert_eq!(text(&path), "late\n");
    }

    #[test]
    fn file_that_nobody_wrote_to_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MEMORY.md");
        std::fs::write(&path, "one\n").unwrap();
        assert!(!done(&path, "one\n", "two\n").bring_over(&path).unwrap());
        assert_eq!(text(&path), "two\n");
        let Replacement::Changed(nothing) = replace(&path, Some(b"one\n"), b"three\n").unwrap() else {
            panic!("it was replaced");
        };
        assert!(!nothing.bring_over(&path).unwrap());
        assert_eq!(text(&path), "two\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
