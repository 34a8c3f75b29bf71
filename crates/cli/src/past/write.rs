//! Chunks that a person writes.

use std::io::{IsTerminal as _, Write as _};

use jiff::tz::TimeZone;
use quipu_host::{Home, now, seal_credentials};
use quipu_past::{
    ChunkDraft, DraftAuthor, PastError, PastId, TimeRange, WrittenChunk, class_name, replace_chunks,
    write_chunk,
};
use quipu_protocol::NodeId;
use quipu_seal::Sealer;
use serde_json::{Value, json};

use super::{CreateArgs, PastOptions, PastStore, SupersedeArgs};
use crate::exit::Failure;
use crate::home::home;
use crate::memory::person::of_a_person;
use crate::print::{note, printable};

pub(super) async fn create(args: &CreateArgs) -> Result<(), Failure> {
    of_a_person()?;
    let range = TimeRange::parse(&args.range.join(" "), now(), &TimeZone::system());
    let span = range.map_err(PastError::from).map_err(quipu_host::Failure::from)?;
    let text = words(&home(&args.of.out.store)?, args.text.as_deref())?;
    let past = args.of.open_to_write().await?;
    let mut sources: Vec<NodeId> = Vec::with_capacity(args.source.len());
    for node in &args.source {
        sources.push(quipu_host::resolve(&*past.store, node, None).await?.node);
    }
    let draft = ChunkDraft {
        author: DraftAuthor::Person,
        summary: text,
        span: Some(span),
        children: Vec::new(),
        sources,
        supersedes: Vec::new(),
    };
    let written = written(&past, draft).await?;
    tell(&written, &[], &args.of)
}

pub(super) async fn supersede(args: &SupersedeArgs) -> Result<(), Failure> {
    of_a_person()?;
    let text = match args.by {
        Some(_) => None,
        None => Some(words(&home(&args.of.out.store)?, args.text.as_deref())?),
    };
    let past = args.of.open_to_write().await?;
    let index = past.index().await?;
    let mut former: Vec<PastId> = Vec::with_capacity(args.what.len());
    for what in &args.what {
        former.push(past.find(&index, std::slice::from_ref(what)).await?.id);
    }
    let written = match (&args.by, text) {
        (Some(by), _) => {
            let by = past.find(&index, std::slice::from_ref(by)).await?;
            let (id, key, class) = (by.id, index.key(by), by.class);
            let replaced = replace_chunks(&*past.store, &past.scope, former.clone(), id, now()).await;
            WrittenChunk { id, node: replaced.map_err(quipu_host::Failure::from)?, key, class }
        }
        (None, text) => {
            let draft = ChunkDraft {
                author: DraftAuthor::Person,
                summary: text.unwrap_or_default(),
                span: None,
                children: Vec::new(),
                sources: Vec::new(),
                supersedes: former.clone(),
            };
            written(&past, draft).await?
        }
    };
    tell(&written, &former, &args.of)
}

/// The words, without secrets.
fn words(home: &Home, text: Option<&str>) -> Result<String, Failure> {
    let piped;
    let text = match text {
        Some(text) => text,
        None if std::io::stdin().is_terminal() || crate::console::is_within() => {
            return Err(Failure::usage("the words are missing: give them with --text, or pipe them in"));
        }
        None => {
            piped = crate::input::piped()?;
            &piped
        }
    };
    let sealer = Sealer::new(home.seal_key()?);
    seal_credentials(&sealer, &home.settings());
    Ok(sealer.seal(text.trim()).into_owned())
}

async fn written(past: &PastStore, draft: ChunkDraft) -> Result<WrittenChunk, Failure> {
    let written = write_chunk(&*past.store, &past.scope, draft, now()).await;
    Ok(written.map_err(quipu_host::Failure::from)?)
}

fn tell(written: &WrittenChunk, former: &[PastId], of: &PastOptions) -> Result<(), Failure> {
    let WrittenChunk { id, node, key, class } = written;
    if of.out.json {
        let line: Value =
            json!({ "id": id, "key": key, "node": node, "class": class_name(*class), "supersedes": former });
        return Ok(writeln!(crate::console::stdout(), "{line}")?);
    }
    writeln!(crate::console::stdout(), "{}  {}", id.short(), printable(key))?;
    if !former.is_empty() {
        let count = former.len();
        note(format!(
            "It stands in the place of {count} chunk(s). `quipu past build` makes what stood above them without them; \
             `quipu past review` brings one back."
        ));
    }
    Ok(())
}
