//! `quipu export`: a session as a file of another agent.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use quipu_archive::pi;
use quipu_protocol::SessionId;
use quipu_store::{SessionQuery, SessionRow, Store};

use crate::args::{ExportArgs, ForeignAgent};
use crate::exit::Failure;
use crate::import::failed;
use crate::print::note;
use crate::setup::Place;

pub(crate) async fn run(args: &ExportArgs) -> Result<(), Failure> {
    let ForeignAgent::Pi = args.format;
    let place = Place::find(&args.store)?;
    let Some(store) = place.store_to_read()? else {
        return Err(Failure::usage(format!("there is no store at {} yet", place.store.display())));
    };
    // A session that goes on in one of ours stands at a node of that one.
    let named = rows(&*store, args.id.as_str().into()).await?;
    let row = match named.into_iter().find(|row| row.head.is_some()) {
        Some(row) => row,
        None => {
            let found = crate::show::resolve(&*store, &args.id, None).await?;
            let no_session =
                || Failure::usage(format!("`{}` belongs to no session (`quipu sessions --all`)", args.id));
            let id = found.session.ok_or_else(no_session)?;
            rows(&*store, id).await?.into_iter().next().ok_or_else(no_session)?
        }
    };
    match &args.output {
        None => {
            let mut out = BufWriter::new(std::io::stdout());
            pi::export(&*store, &row, &mut out).await.map_err(failed)?;
            Ok(())
        }
        Some(path) => to_file(&*store, &row, path).await,
    }
}

async fn rows(store: &dyn Store, id: SessionId) -> Result<Vec<SessionRow>, Failure> {
    Ok(store.sessions(SessionQuery { id: Some(id), ..SessionQuery::default() }).await?)
}

/// Writes aside and then takes the name, so that nobody finds half a file, and no other file is replaced.
async fn to_file(store: &dyn Store, row: &SessionRow, path: &Path) -> Result<(), Failure> {
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
    let done = pi::export(store, row, &mut out).await.map_err(|error| match error {
        quipu_archive::ArchiveError::File { source, .. } => fail(source),
        other => failed(other),
    })?;
    out.flush().map_err(fail)?;
    let file = out.into_inner().map_err(|error| fail(error.into_error()))?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist_noclobber(path).map_err(|error| fail(error.error))?;
    note(format!("{} entries, {} bytes in {}", done.entries, done.bytes, path.display()));
    Ok(())
}
