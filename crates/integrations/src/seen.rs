//! What a session was given, so that it is not given twice. Ids alone, no text.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

/// Bytes of ids that are read.
const LIMIT: u64 = 64 << 10;
/// How long the ids of a session are kept after the last.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Files that one call looks at to remove old ones.
const SWEPT: usize = 500;

/// What one session was given.
#[derive(Debug, Default)]
pub struct SeenPassages {
    path: Option<PathBuf>,
    ids: HashSet<String>,
}

impl SeenPassages {
    /// What the session of this id was given, as it is known below `directory`. What cannot be read is taken as nothing.
    pub fn of(directory: &Path, host: &str, session: Option<&str>) -> Self {
        let Some(session) = session else { return Self::default() };
        let path = directory.join("seen").join(file_name(&[host, session]));
        let mut text = String::new();
        // A file that is broken costs a passage that is given twice.
        if let Ok(file) = fs::File::open(&path)
            && file.take(LIMIT).read_to_string(&mut text).is_err()
        {
            text.clear();
        }
        Self { path: Some(path), ids: text.lines().map(str::to_owned).collect() }
    }

    /// Whether it was given.
    pub fn holds(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Keeps for later calls that it was given.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, ids: &[String]) -> io::Result<()> {
        let new: Vec<&String> = ids.iter().filter(|id| !self.ids.contains(*id)).collect();
        let Some(path) = self.path.as_ref().filter(|_| !new.is_empty()) else { return Ok(()) };
        let text: String = new.iter().map(|id| format!("{id}\n")).collect();
        if let Some(directory) = path.parent() {
            make_directory(directory)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    }

    /// Removes what sessions were given that ended long ago.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn sweep(directory: &Path) -> io::Result<()> {
        for part in ["seen", "intake"] {
            let files = match fs::read_dir(directory.join(part)) {
                Ok(files) => files,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for file in files.take(SWEPT) {
                let file = file?;
                let written = file.metadata()?.modified()?;
                if SystemTime::now().duration_since(written).is_ok_and(|age| age > KEPT) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(())
    }
}

/// The name of a file for what has these names: any bytes stand in a name of fixed length.
pub(crate) fn file_name(names: &[&str]) -> String {
    let mut hash = Sha256::new();
    for name in names {
        hash.update(name.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a private directory where there is none.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}
