//! `quipu export`: a session to read, for programs, or as a file of another agent.

use std::io::BufWriter;
use std::path::Path;

use quipu_host::export::{self, ExportError, ExportSummary, ExportedFile};
use quipu_host::holders::WrittenKind;

use crate::args::{ExportArgs, ExportFormat};
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::print::note;

pub(crate) async fn run(args: &ExportArgs) -> Result<(), Failure> {
    if let Some(agent) = &args.state {
        return crate::export_state::run(args, agent).await;
    }
    let (Some(shape), Some(id)) = (args.format, &args.id) else {
        return Err(Failure::usage("name a session, and a format with --format"));
    };
    let home = home(&args.store)?;
    let Some(store) = home.store_to_read()? else {
        return Err(no_sessions(&home));
    };
    let row = export::find(&*store, id)
        .await?
        .ok_or_else(|| Failure::usage(format!("`{id}` belongs to no session (`quipu sessions --all`)")))?;
    let format = shape.into();
    match &args.output {
        None => {
            let mut out = BufWriter::new(crate::console::stdout());
            match export::write(&*store, &row, format, &mut out).await {
                Ok(exported) => tell_of_more(shape, &exported),
                Err(ExportError::Write(error)) => return Err(error.into()),
                Err(ExportError::Read(failure)) => return Err(failure.into()),
            }
        }
        Some(path) => {
            let done = export::write_file(&*store, &row, format, path).await;
            let ExportedFile { exported, bytes } = done.map_err(|error| not_written(path, error))?;
            home.wrote(path, WrittenKind::Export, std::slice::from_ref(&row.id));
            tell_of_more(shape, &exported);
            note(format!("{} entries, {bytes} bytes in {}", exported.entries, path.display()));
        }
    }
    Ok(())
}

/// Says what people would not see in a page; programs read it.
fn tell_of_more(format: ExportFormat, exported: &ExportSummary) {
    if exported.more && matches!(format, ExportFormat::Markdown | ExportFormat::Html) {
        note(format!("the export is not complete: {}", export::MORE));
    }
}

fn not_written(path: &Path, error: ExportError) -> Failure {
    match error {
        ExportError::Read(failure) => failure.into(),
        ExportError::Write(error) => {
            let exists = error.kind() == std::io::ErrorKind::AlreadyExists;
            let hint = if exists { "; choose another file, or remove it first" } else { "" };
            Failure::failed(format!("{} could not be written: {error}{hint}", path.display()))
        }
    }
}

impl From<ExportFormat> for export::ExportFormat {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Pi => Self::Pi,
            ExportFormat::Markdown => Self::Markdown,
            ExportFormat::Html => Self::Html,
            ExportFormat::Json => Self::Json,
        }
    }
}
