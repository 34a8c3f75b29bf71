//! The file of another program, changed under that program's own lock: a directory beside the file, whose time of change
//! says that its holder is alive.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::auth_file::private;

/// A lock that was not touched for so long belongs to nobody.
const STALE: Duration = Duration::from_secs(30);
/// How often a lock is touched; its owner takes one for stale after ten seconds.
const TOUCH: Duration = Duration::from_secs(2);
/// How long its holder may take.
const PATIENCE: Duration = Duration::from_secs(40);
const INTERVAL: Duration = Duration::from_millis(25);

/// Held while the file is changed. Dropping it releases it.
pub(super) struct OwnerLock {
    directory: PathBuf,
    alive: tokio::task::JoinHandle<()>,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        self.alive.abort();
        // One that cannot be removed is stale in a while.
        drop(fs::remove_dir(&self.directory));
    }
}

impl OwnerLock {
    /// Takes the lock of `file`.
    ///
    /// # Errors
    /// When it cannot be had in time.
    pub(super) async fn take(file: &Path) -> Result<Self, String> {
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let directory = PathBuf::from(name);
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            match fs::create_dir(&directory) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if is_stale(&directory) {
                        drop(fs::remove_dir(&directory));
                    } else if tokio::time::Instant::now() >= until {
                        return Err(format!("another program holds {}", directory.display()));
                    }
                    tokio::time::sleep(INTERVAL).await;
                }
                Err(error) => return Err(format!("{}: {error}", directory.display())),
            }
        }
        let touched = directory.clone();
        let alive = tokio::spawn(async move {
            loop {
                tokio::time::sleep(TOUCH).await;
                // Where it cannot be touched, its end comes sooner: the renewal is over in less than its life.
                drop(File::open(&touched).and_then(|directory| directory.set_modified(SystemTime::now())));
            }
        });
        Ok(Self { directory, alive })
    }

    /// Puts `entries` in the place of what the file holds.
    pub(super) fn write(&self, file: &Path, entries: &Map<String, Value>) -> Result<(), String> {
        let path = fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        let write = || -> std::io::Result<()> {
            let text = serde_json::to_string_pretty(entries)?;
            let mut made = private().create_new(true).open(&temporary)?;
            made.write_all(text.as_bytes())?;
            made.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|error| {
            drop(fs::remove_file(&temporary));
            format!("{}: {error}", path.display())
        })
    }
}

fn is_stale(directory: &Path) -> bool {
    let changed = fs::metadata(directory).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STALE))
}
