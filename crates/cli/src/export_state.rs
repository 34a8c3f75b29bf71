//! `quipu export --state`: a whole state directory of a gateway.

use quipu_host::takeover::{
    ExportedConversation, STATE_AGENT, SecretExport, StateExport, StateExportError, export_state,
};
use quipu_runtime::{AgentId, DEFAULT_AGENT, KnownConversation, conversations};

use crate::args::ExportArgs;
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::import_state::Tally;
use crate::print::note;

pub(crate) async fn run(args: &ExportArgs, agent: &str) -> Result<(), Failure> {
    if agent != STATE_AGENT {
        return Err(Failure::usage(format!("only a state directory of `{STATE_AGENT}` can be written")));
    }
    let Some(dir) = &args.output else { return Err(Failure::usage("name the directory with -o")) };
    let home = home(&args.store)?;
    let Some(store) = home.store_to_read()? else { return Err(no_sessions(&home)) };
    let known = conversations(&*store).await?;
    let exported = known.into_iter().filter_map(|KnownConversation { key, session, imported }| {
        let agent = key.agent().map_or(DEFAULT_AGENT, AgentId::as_str).to_owned();
        // One that was begun anew here, and in which nothing was said since, has none.
        let (updated, entry) =
            imported.map_or_else(Default::default, |imported| (imported.updated, imported.entry));
        Some(ExportedConversation { key: key.to_string(), agent, session: session?, updated, entry })
    });
    let secrets = if args.credentials { SecretExport::Included } else { SecretExport::Left };
    let done = export_state(&home, &store, dir, exported.collect(), secrets).await;
    let StateExport { transcripts, conversations, reports } = done.map_err(|error| match error {
        StateExportError::Read(failure) => failure.into(),
        error @ (StateExportError::Exists(_) | StateExportError::Write { .. }) => Failure::failed(error),
    })?;
    Tally::default().tell(reports, args.json)?;
    note(format!("{conversations} conversations and {transcripts} transcripts in {}", dir.display()));
    if args.credentials {
        note(
            "The directory holds credentials. Only you can read it; move it over a connection that others cannot read.",
        );
    }
    Ok(())
}
