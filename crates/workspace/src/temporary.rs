//! A session's directory for temporary files: private, and gone with the session, or with the next one's start after a kill.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};

/// What the names of these directories begin with.
const PREFIX: &str = "quipu-session-";
/// Younger ones are left alone: they may not be locked yet.
const AGE: Duration = Duration::from_secs(60);
/// Looked at in one go.
const MOST: usize = 1_000;

/// The directory (0700), which is locked for as long as this lives. Dropped, it is removed.
#[derive(Debug)]
pub struct TemporaryDirectory {
    dir: tempfile::TempDir,
    /// Released by the end of the process, however it comes.
    _lock: File,
}

impl TemporaryDirectory {
    /// Makes one, and removes beside it those whose processes are dead.
    ///
    /// # Errors
    /// There is no place for one.
    pub fn make() -> io::Result<Self> {
        // Its true path: what a command is told must be what the kernel compares with.
        let base = std::env::temp_dir().canonicalize()?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700));
        let dir = builder.tempdir_in(&base)?;
        let lock = open(dir.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Nobody waits for it. What it does not come to is done by the next one.
        let sweep = move || sweep(&base, AGE);
        drop(std::thread::Builder::new().name("quipu-temporary".to_owned()).spawn(sweep));
        Ok(Self { dir, _lock: lock })
    }

    /// Its true path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Removes directories of ours that nobody holds any more.
fn sweep(base: &Path, age: Duration) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let ours = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in ours.map(|entry| entry.path()).take(MOST).collect::<Vec<PathBuf>>() {
        if is_left(&path, age).is_ok_and(|left| left) {
            // What cannot be removed is tried again.
            drop(fs::remove_dir_all(&path));
        }
    }
}

/// Whether it is one of ours, old enough, and of a process that is gone.
fn is_left(path: &Path, age: Duration) -> io::Result<bool> {
    let opened = open(path)?;
    let found = opened.metadata()?;
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(found.ctime()).unwrap_or(0));
    // Of a clock that was set back: as if it were young.
    let is_old = SystemTime::now().duration_since(changed).is_ok_and(|since| since >= age);
    let ours = found.uid() == nix::unistd::geteuid().as_raw();
    Ok(ours && is_old && flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir_all(path.join("deep/er")).unwrap();
            path
        };
        let (left, held, other) = (made("quipu-session-a"), made("quipu-session-b"), made("quipu-c"));
        let lock = open(&held).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let link = base.path().join("quipu-session-d");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        fs::write(base.path().join("quipu-session-e"), "a file").unwrap();
        sweep(base.path(), AGE);
        assert!(left.exists(), "it is young");
        sweep(base.path(), Duration::ZERO);
        assert!(!left.exists());
        for kept in [&held, &other, &link, &base.path().join("quipu-session-e")] {
            assert!(kept.symlink_metadata().is_ok(), "{}", kept.display());
        }
        assert!(other.join("deep/er").exists());
        // Not by closing: a child that another test starts may hold a copy until it runs its program.
        flock(&lock, FlockOperation::Unlock).unwrap();
        sweep(base.path(), Duration::ZERO);
        assert!(!held.exists());
        sweep(&base.path().join("not there"), Duration::ZERO);
    }

    #[test]
    fn one_is_private_and_goes_with_its_owner() {
        let one = TemporaryDirectory::make().unwrap();
        let path = one.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(!is_left(&path, Duration::ZERO).unwrap());
        fs::write(path.join("a"), "x").unwrap();
        drop(one);
        assert!(!path.exists());
    }
}
