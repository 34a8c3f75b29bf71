//! What was written, so that it can be taken back exactly. It is advice: what is in a file counts.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::Syntax;
use crate::edit::{Container, Placement};
use crate::error::SetupError;

/// The name of the file, in the directory of Quipu's own files.
pub const LEDGER_FILE: &str = "setup.json";
const VERSION: u32 = 1;
/// Bytes of the file at most.
const MOST_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ledger {
    version: u32,
    pub(crate) files: Vec<FileRecord>,
}

/// What was written into a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileRecord {
    pub(crate) agent: String,
    pub(crate) path: PathBuf,
    /// The file was not there before.
    pub(crate) created: bool,
    /// Directories that were made for it, the outermost first.
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) containers: Vec<Container>,
    pub(crate) pieces: Vec<PieceRecord>,
}

/// A piece that was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PieceRecord {
    /// The program that it names.
    pub(crate) program: String,
    pub(crate) content: RecordContent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RecordContent {
    Value { syntax: Syntax, placement: Placement, value: Value },
    File { sha256: String },
}

impl PieceRecord {
    /// Its place for people.
    pub(crate) fn label(&self, path: &Path) -> String {
        match &self.content {
            RecordContent::Value { placement, .. } => placement.path().join("."),
            RecordContent::File { .. } => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// Whether both stand in the same place of their file.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        match (&self.content, &other.content) {
            (RecordContent::Value { placement, .. }, RecordContent::Value { placement: other, .. }) => {
                placement == other
            }
            (RecordContent::File { .. }, RecordContent::File { .. }) => true,
            _ => false,
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self { version: VERSION, files: Vec::new() }
    }
}

impl Ledger {
    pub(crate) fn read(home: &Path) -> Result<Self, SetupError> {
        let path = home.join(LEDGER_FILE);
        let unusable = |why: &str| SetupError::Ledger { path: path.as_path().into(), why: why.to_owned() };
        let bytes = match crate::files::bytes_of(&path, MOST_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Self::default()),
            Err(error) => return Err(unusable(&error.to_string())),
        };
        let ledger: Self = serde_json::from_slice(&bytes).map_err(|_| unusable("it is not valid"))?;
        match ledger.version {
            VERSION => Ok(ledger),
            _ => Err(unusable("a newer version wrote it")),
        }
    }

    /// Writes it by rename, or removes it when it lists nothing.
    pub(crate) fn write(&self, home: &Path) -> Result<(), SetupError> {
        let path = home.join(LEDGER_FILE);
        let failed = || SetupError::io(&path, "written");
        if self.files.is_empty() {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed()(error)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| failed()(error.into()))?;
        write_private(&path, text.as_bytes())
    }

    pub(crate) fn record(&self, agent: &str, path: &Path) -> Option<&FileRecord> {
        self.files.iter().find(|record| record.agent == agent && record.path == path)
    }

    /// Puts a record in the place of another, or takes it out.
    pub(crate) fn replace(&mut self, agent: &str, path: &Path, new: Option<FileRecord>) {
        self.files.retain(|record| record.agent != agent || record.path != path);
        self.files.extend(new);
    }
}

/// Writes a file of ours, which only its owner reads.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), SetupError> {
    let failed = || SetupError::io(path, "written");
    let directory = path.parent().unwrap_or(path);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed())?;
    let mut file =
        tempfile::Builder::new().prefix(crate::files::TEMPORARY).tempfile_in(directory).map_err(failed())?;
    file.write_all(bytes).map_err(failed())?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed())?;
    file.as_file().sync_all().map_err(failed())?;
    file.persist(path).map_err(|error| failed()(error.error))?;
    Ok(())
}
