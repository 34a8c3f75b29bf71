//! A session written to read, for programs, or as a file of another agent.

mod html;
mod read;
mod text;

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use quipu_archive::{ArchiveError, pi};
use quipu_protocol::SessionId;
use quipu_store::{Graph, SessionQuery, SessionRow, StoreError};

use crate::{Failure, resolve};

pub use quipu_archive::pi::SessionEntry;
pub use text::MORE;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// A session file of Pi.
    Pi,
    /// A page to read.
    Markdown,
    /// One page with its branches, which needs nothing else.
    Html,
    /// Every node, for programs.
    Json,
}

/// What an export wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportSummary {
    /// The number of entries that were written.
    pub entries: u64,
    /// Whether the session has more branches, labels, compactions or forks than are written.
    pub more: bool,
}

/// A file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportedFile {
    /// The numbers of exported entries and bytes.
    pub exported: ExportSummary,
    /// The size of the file.
    pub bytes: u64,
}

/// Why an export ended early.
#[derive(Debug)]
pub enum ExportError {
    /// What is written to refused.
    Write(io::Error),
    /// The session could not be read.
    Read(Failure),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(error) => error.fmt(f),
            Self::Read(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<StoreError> for ExportError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

impl From<Failure> for ExportError {
    fn from(failure: Failure) -> Self {
        Self::Read(failure)
    }
}

/// The session that a person means; `None` where what they name is in none.
///
/// # Errors
/// Where nothing or more than one thing has this name, and what the store says.
pub async fn find(store: &dyn Graph, what: &str) -> Result<Option<SessionRow>, Failure> {
    // A session that goes on in one of ours stands at a node of that one.
    let named = rows(store, what.into()).await?;
    if let Some(row) = named.into_iter().find(|row| row.head.is_some()) {
        return Ok(Some(row));
    }
    match resolve(store, what, None).await?.session {
        Some(id) => Ok(rows(store, id).await?.into_iter().next()),
        None => Ok(None),
    }
}

async fn rows(store: &dyn Graph, id: SessionId) -> Result<Vec<SessionRow>, Failure> {
    Ok(store.sessions(SessionQuery { id: Some(id), ..SessionQuery::default() }).await?)
}

/// The entries of a session as its session file has them; none of one that nothing was said in.
///
/// # Errors
/// What the store says.
pub async fn session_entries(store: &dyn Graph, id: &SessionId) -> Result<Vec<SessionEntry>, Failure> {
    match session_row(store, id).await? {
        Some(row) => Ok(pi::entries(store, &row).await?),
        None => Ok(Vec::new()),
    }
}

/// The session of this id, where something was said in it.
///
/// # Errors
/// What the store says.
pub async fn session_row(store: &dyn Graph, id: &SessionId) -> Result<Option<SessionRow>, Failure> {
    let row = crate::session_file::row_of(store, Some(id.clone())).await?;
    Ok(row.filter(|row| row.head.is_some()))
}

/// Writes a session.
///
/// # Errors
/// Why it ended early; a part of it was written then.
pub async fn write(
    store: &dyn Graph,
    row: &SessionRow,
    format: ExportFormat,
    out: &mut (dyn Write + Send),
) -> Result<ExportSummary, ExportError> {
    match format {
        ExportFormat::Pi => match pi::export(store, row, out).await {
            Ok(done) => Ok(ExportSummary { entries: done.entries, more: false }),
            Err(ArchiveError::File { source, .. }) => Err(ExportError::Write(source)),
            Err(other) => Err(ExportError::Read(other.into())),
        },
        ExportFormat::Markdown => read::read(store, row, &mut text::Markdown::new(out)).await,
        ExportFormat::Html => read::read(store, row, &mut html::Html::new(out)).await,
        ExportFormat::Json => read::read(store, row, &mut text::Json::new(out)).await,
    }
}

/// Writes a session to a new file: aside first, so that nobody finds half of it, and no other file is replaced.
///
/// # Errors
/// Why nothing is there; `Write` with `AlreadyExists` where something of that name is.
pub async fn write_file(
    store: &dyn Graph,
    row: &SessionRow,
    format: ExportFormat,
    path: &Path,
) -> Result<ExportedFile, ExportError> {
    if path.symlink_metadata().is_ok() {
        return Err(ExportError::Write(io::ErrorKind::AlreadyExists.into()));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".quipu-export-").tempfile_in(dir)?;
    let mut out = BufWriter::new(file);
    let exported = write(store, row, format, &mut out).await?;
    out.flush()?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    let bytes = file.as_file().metadata()?.len();
    file.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(ExportedFile { exported, bytes })
}
