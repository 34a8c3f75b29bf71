//! Chunks, one by one, and what they stand on.

use std::io::Write as _;

use quipu_past::{
    ChunkAuthor, ChunkEntry, EvidenceKind, EvidenceNode, MemoryChunk, PastIndex, SummaryMethod, class_name,
    evidence_of, read_chunks,
};
use serde_json::{Value, json};

use super::{PastOptions, PastStore};
use crate::exit::Failure;
use crate::print::{Paint, note, printable};

/// Evidence of a kind that is printed without `--json`.
const SHOWN: usize = 20;

pub(super) async fn list(of: &PastOptions) -> Result<(), Failure> {
    let past = of.open().await?;
    let index = past.index().await?;
    let roots = index.roots();
    if roots.is_empty() && !of.out.json {
        note(format!(
            "There is no summary of {} yet; `quipu past build` makes them.",
            printable(&past.scope.name())
        ));
    }
    print(&past, &index, &roots, of.out.json).await
}

pub(super) async fn show(what: &[String], of: &PastOptions) -> Result<(), Failure> {
    let past = of.open().await?;
    let index = past.index().await?;
    let chunk = past.find(&index, what).await?;
    print(&past, &index, &[chunk], of.out.json).await
}

async fn print(
    past: &PastStore,
    index: &PastIndex,
    entries: &[&ChunkEntry],
    as_json: bool,
) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    let paint = Paint::stdout();
    for entry in entries {
        let read = read_chunks(&*past.store, &past.scope, &[entry.node]).await;
        let Some(chunk) = read.map_err(quipu_host::Failure::from)?.pop() else { continue };
        if as_json {
            writeln!(out, "{}", chunk_json(index, entry, &chunk))?;
            continue;
        }
        writeln!(out, "{}", paint.bold(&printable(&index.key(entry))))?;
        writeln!(out, "{}", paint.dim(&printable(&about(entry))))?;
        for line in chunk.summary.lines() {
            writeln!(out, "{}", printable(line))?;
        }
        for child in entry.children.iter().filter_map(|child| index.get(child)) {
            writeln!(out, "{}", paint.dim(&format!("  in it: {}", index.key(child))))?;
        }
    }
    Ok(out.flush()?)
}

fn about(entry: &ChunkEntry) -> String {
    let of = match entry.children.len() {
        0 => format!("of {} nodes", entry.sources),
        count => format!("of {count} chunks"),
    };
    let place = if entry.is_superseded { ", superseded" } else { "" };
    format!(
        "{}  {of}, {}, {}, {}{place}",
        entry.id.short(),
        class_name(entry.class),
        match entry.author {
            ChunkAuthor::Foreign => format!("{}, says another program", method_name(&entry.method)),
            ChunkAuthor::Build | ChunkAuthor::Person | ChunkAuthor::Agent => method_name(&entry.method),
        },
        state_name(entry),
    )
}

fn method_name(method: &SummaryMethod) -> String {
    match method {
        SummaryMethod::Extractive { instead: None, .. } => "extractive".to_owned(),
        SummaryMethod::Extractive { instead: Some(asked), refusal: None, .. } => {
            format!("extractive, as {} gave no summary", asked.model)
        }
        SummaryMethod::Extractive { instead: Some(asked), refusal: Some(refusal), .. } => {
            format!("extractive, as {} gave no summary: {}", asked.model, refusal.why)
        }
        SummaryMethod::Model(asked) => format!("by {}", asked.model),
        SummaryMethod::Person => "by a person".to_owned(),
        SummaryMethod::Agent => "by a model at work".to_owned(),
    }
}

const fn author_name(author: ChunkAuthor) -> &'static str {
    match author {
        ChunkAuthor::Build => "build",
        ChunkAuthor::Person => "person",
        ChunkAuthor::Agent => "agent",
        ChunkAuthor::Foreign => "foreign",
    }
}

const fn state_name(entry: &ChunkEntry) -> &'static str {
    match entry.state {
        quipu_past::ReviewState::Made => "not reviewed",
        quipu_past::ReviewState::Reviewed => "reviewed",
        quipu_past::ReviewState::Retracted => "retracted",
    }
}

fn chunk_json(index: &PastIndex, entry: &ChunkEntry, chunk: &MemoryChunk) -> Value {
    let keys: Vec<String> =
        entry.children.iter().filter_map(|child| index.get(child)).map(|child| index.key(child)).collect();
    json!({
        "id": entry.id, "key": index.key(entry), "node": entry.node, "level": entry.level,
        "start": entry.span.start(), "end": entry.span.end(), "summary": chunk.summary,
        "children": entry.children, "childKeys": keys, "sources": chunk.sources, "session": entry.session,
        "class": class_name(entry.class), "author": author_name(entry.author), "method": entry.method, "state": entry.state,
        "superseded": entry.is_superseded, "supersedes": chunk.supersedes, "made": entry.made,
    })
}

pub(super) async fn sources(what: &[String], of: &PastOptions) -> Result<(), Failure> {
    let past = of.open().await?;
    let index = past.index().await?;
    let chunk = past.find(&index, what).await?;
    let found = evidence_of(&*past.store, &past.scope, &index, chunk).await;
    let found = found.map_err(quipu_host::Failure::from)?;
    let mut out = crate::console::stdout();
    if of.out.json {
        let whole = json!({
            "id": chunk.id, "key": index.key(chunk), "coverage": found.coverage(), "evidence": found.nodes,
        });
        writeln!(out, "{whole}")?;
        return Ok(());
    }
    let paint = Paint::stdout();
    writeln!(out, "{}", paint.bold(&printable(&index.key(chunk))))?;
    let kinds = [
        (EvidenceKind::Explicit, "sources"),
        (EvidenceKind::Overlap, "said at the same time, and no source"),
        (EvidenceKind::Late, "said at the same time, and come after the chunk was made"),
        (EvidenceKind::Missing, "sources that are not there any more"),
    ];
    for (kind, words) in kinds {
        let nodes: Vec<&EvidenceNode> = found.nodes.iter().filter(|node| node.kind == kind).collect();
        if nodes.is_empty() {
            continue;
        }
        writeln!(out, "{} {words}", nodes.len())?;
        for node in nodes.iter().take(SHOWN) {
            let at = node.at.map_or_else(String::new, quipu_host::iso);
            let session = node.session.as_ref().map_or("", |session| session.as_str());
            writeln!(out, "  {}  {at}  {}", node.node.short(), printable(session))?;
        }
        if nodes.len() > SHOWN {
            writeln!(out, "  … and {} more; `--json` has all", nodes.len() - SHOWN)?;
        }
    }
    writeln!(out, "{} % of what was said in that time is a source", found.coverage())?;
    Ok(out.flush()?)
}
