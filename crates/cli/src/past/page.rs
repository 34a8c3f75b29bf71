//! A past as one page of HTML.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use jiff::tz::TimeZone;
use quipu_host::holders::WrittenKind;
use quipu_host::now;
use quipu_past::page::{PageAsk, PastPage, RequestOpening};
use quipu_past::{OpeningState, TimeRange, time_of};
use quipu_protocol::{Entry, Message, SessionId, UnixMs};
use quipu_store::decode_nodes;
use serde_json::json;

use super::cover::CHARGE;
use super::{PageArgs, PastStore};
use crate::exit::Failure;
use crate::home::home;
use crate::print::{counted, note};

pub(super) async fn write(args: &PageArgs) -> Result<(), Failure> {
    let path = &crate::console::in_current_dir(&args.output)?;
    if path.symlink_metadata().is_ok() {
        return Err(not_written(path, &std::io::ErrorKind::AlreadyExists.into()));
    }
    let past = args.of.open().await?;
    let index = past.index().await?;
    let moment = match &args.at {
        Some(at) => moment(&past, at).await?,
        None => PageMoment::default(),
    };
    // The sessions whose words stand in it: who erases one finds the page. The past has words of its own, and of sessions that were
    // removed since.
    let rows = past.scope.sessions(&*past.store).await?;
    let sessions: BTreeSet<SessionId> = rows
        .into_iter()
        .map(|row| row.id)
        .chain(index.chunks().filter_map(|chunk| chunk.session.clone()))
        .chain([past.scope.session()])
        .chain(moment.session.clone())
        .collect();
    let sessions: Vec<SessionId> = sessions.into_iter().collect();
    // What is written is sealed, as everything is.
    let about = match &args.cover.about {
        Some(about) => {
            let engine = past.home.engine(past.store.clone(), &past.home.settings())?;
            Some(engine.sealer().seal(about).into_owned())
        }
        None => moment.said,
    };
    let ask = PageAsk {
        budget: args.cover.budget,
        charge: CHARGE,
        about,
        asking: moment.session,
        boundary: moment.at,
        request: moment.request,
        now: now(),
    };
    let words = quipu_host::local_vectors(&past.home)?;
    let page = PastPage::read(&*past.store, &past.scope, &index, ask, words).await;
    let page = page.map_err(quipu_host::Failure::from)?;
    let bytes = save(&page, path).map_err(|error| not_written(path, &error))?;
    home(&args.of.out.store)?.wrote(path, WrittenKind::Export, &sessions);
    let size = page.size();
    if args.of.out.json {
        let line = json!({
            "file": args.output, "bytes": bytes, "chunks": size.chunks, "shortened": size.shortened,
            "excerpts": size.excerpts, "served": size.given, "servedLeftOut": size.given_left_out,
        });
        writeln!(crate::console::stdout(), "{line}")?;
        return Ok(());
    }
    note(format!("{}, {bytes} bytes in {}", counted(size.chunks as u64, "chunk"), args.output.display()));
    if size.shortened > 0 {
        note(format!("{} summaries are shortened, as there are too many for one page.", size.shortened));
    }
    if size.given_left_out > 0 {
        let left = counted(size.given_left_out as u64, "older cover");
        note(format!("{left} that sessions were given are left out, as there are too many for one page."));
    }
    Ok(())
}

/// A moment, what was said in it, in which session, and what stood in its request.
#[derive(Default)]
struct PageMoment {
    at: Option<UnixMs>,
    said: Option<String>,
    session: Option<SessionId>,
    request: Option<RequestOpening>,
}

async fn moment(past: &PastStore, at: &str) -> Result<PageMoment, Failure> {
    if let Ok(range) = TimeRange::parse(at, now(), &TimeZone::system()) {
        return Ok(PageMoment { at: Some(range.start()), ..PageMoment::default() });
    }
    let found = quipu_host::resolve(&*past.store, at, None).await?;
    let nodes: Vec<_> = past.store.nodes(&[found.node]).await?.into_iter().flatten().collect();
    let Some((node, decoded)) = nodes.first().zip(decode_nodes(&*past.store, &nodes).await?.pop()) else {
        return Err(Failure::usage(format!("`{at}` is no time and no node of the store")));
    };
    let said = match &decoded.entry {
        Entry::Message(Message::User(said)) => {
            Some(quipu_protocol::own_text(&said.content.blocks(), &decoded.step.added))
        }
        _ => None,
    };
    let time = time_of(&decoded.entry, node.record.timestamp).unwrap_or(node.record.timestamp);
    // What the command that shows one request says of it.
    let engine = past.home.engine(past.store.clone(), &past.home.settings())?;
    let parts = engine.request_parts(node.id).await?;
    let request =
        RequestOpening { node: node.id, opening: parts.opening.as_ref().and_then(OpeningState::of) };
    Ok(PageMoment {
        at: Some(time),
        said: said.filter(|said| !said.trim().is_empty()),
        session: found.session,
        request: Some(request),
    })
}

/// Aside first, so that nobody finds half of it, and no other file is replaced.
fn save(page: &PastPage, path: &Path) -> std::io::Result<u64> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".quipu-page-").tempfile_in(dir)?;
    let mut out = BufWriter::new(file);
    page.write(&mut out)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    let bytes = file.as_file().metadata()?.len();
    file.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(bytes)
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    let exists = error.kind() == std::io::ErrorKind::AlreadyExists;
    let hint = if exists { "; choose another file, or remove it first" } else { "" };
    Failure::failed(format!("{} could not be written: {error}{hint}", path.display()))
}
