//! `quipu export`: a session to read, for programs, or as a file of another agent.

mod html;
mod read;
mod text;

use std::io::{BufWriter, Write};
use std::path::Path;

use quipu_archive::pi;
use quipu_protocol::SessionId;
use quipu_store::{Graph, SessionQuery, SessionRow, StoreError};

use crate::args::{ExportArgs, ExportFormat};
use crate::exit::Failure;
use crate::place::place;
use crate::print::note;

pub(crate) async fn run(args: &ExportArgs) -> Result<(), Failure> {
    let place = place(&args.store)?;
    let Some(store) = place.store_to_read()? else {
        return Err(Failure::usage(format!("there is no store at {} yet", place.store.display())));
    };
    // A session that goes on in one of ours stands at a node of that one.
    let named = rows(&*store, args.id.as_str().into()).await?;
    let row = match named.into_iter().find(|row| row.head.is_some()) {
        Some(row) => row,
        None => {
            let found = quipu_host::resolve(&*store, &args.id, None).await?;
            let no_session =
                || Failure::usage(format!("`{}` belongs to no session (`quipu sessions --all`)", args.id));
            let id = found.session.ok_or_else(no_session)?;
            rows(&*store, id).await?.into_iter().next().ok_or_else(no_session)?
        }
    };
    match &args.output {
        None => {
            let mut out = BufWriter::new(crate::console::stdout());
            match write(&*store, &row, args.format, &mut out).await {
                Ok(_) => Ok(()),
                Err(Stopped::Write(error)) => Err(error.into()),
                Err(Stopped::Read(failure)) => Err(failure),
            }
        }
        Some(path) => to_file(&*store, &row, args.format, path).await,
    }
}

/// Why an export ended early.
enum Stopped {
    /// What is written to refused.
    Write(std::io::Error),
    /// The session could not be read.
    Read(Failure),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Read(failure)
    }
}

/// Writes a session, and gives how many entries that are.
async fn write(
    store: &dyn Graph,
    row: &SessionRow,
    format: ExportFormat,
    out: &mut (dyn Write + Send),
) -> Result<u64, Stopped> {
    match format {
        ExportFormat::Pi => match pi::export(store, row, out).await {
            Ok(done) => Ok(done.entries),
            Err(quipu_archive::ArchiveError::File { source, .. }) => Err(Stopped::Write(source)),
            Err(other) => Err(Stopped::Read(other.into())),
        },
        ExportFormat::Markdown => read::read(store, row, &mut text::Markdown::new(out)).await,
        ExportFormat::Html => read::read(store, row, &mut html::Html::new(out)).await,
        ExportFormat::Json => read::read(store, row, &mut text::Json::new(out)).await,
    }
}

async fn rows(store: &dyn Graph, id: SessionId) -> Result<Vec<SessionRow>, Failure> {
    Ok(store.sessions(SessionQuery { id: Some(id), ..SessionQuery::default() }).await?)
}

/// Writes aside and then takes the name, so that nobody finds half a file, and no other file is replaced.
async fn to_file(
    store: &dyn Graph,
    row: &SessionRow,
    format: ExportFormat,
    path: &Path,
) -> Result<(), Failure> {
    let fail = |error: std::io::Error| {
        let hint = if error.kind() == std::io::ErrorKind::AlreadyExists {
            "; name another, or remove it first"
        } else {
            ""
        };
        Failure::failed(format!("{} could not be written: {error}{hint}", path.display()))
    };
    if path.symlink_metadata().is_ok() {
        return Err(fail(std::io::ErrorKind::AlreadyExists.into()));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".quipu-export-").tempfile_in(dir).map_err(fail)?;
    let mut out = BufWriter::new(file);
    let entries = write(store, row, format, &mut out).await.map_err(|stopped| match stopped {
        Stopped::Write(error) => fail(error),
        Stopped::Read(failure) => failure,
    })?;
    out.flush().map_err(fail)?;
    let file = out.into_inner().map_err(|error| fail(error.into_error()))?;
    file.as_file().sync_all().map_err(fail)?;
    let bytes = file.as_file().metadata().map_err(fail)?.len();
    file.persist_noclobber(path).map_err(|error| fail(error.error))?;
    note(format!("{entries} entries, {bytes} bytes in {}", path.display()));
    Ok(())
}
