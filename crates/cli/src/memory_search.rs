//! `quipu memory search`: what answers a question, in notes and sessions.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use quipu_host::{memory_search, note_search, now, seal_credentials};
use quipu_memory::AuthorClass;
use quipu_memory::search::{HitPlace, MemoryHit, MemoryQuestion};
use quipu_seal::Sealer;
use quipu_store::{Graph, RecallKind};
use serde_json::{Value, json};

use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, Progress, ago, note, one_line, printable};
use crate::search::instant;

/// Columns of a snippet.
const WIDTH: usize = 160;

#[derive(Debug, Args)]
pub(crate) struct MemorySearchArgs {
    /// The question, in any words. Not all of them need to occur.
    #[arg(value_name = "QUESTION", required = true)]
    question: Vec<String>,
    /// Print at most N hits.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Only sessions of this directory and those below it. Notes are those of the current directory.
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Only since then: a date, a time, or an age (30m, 12h, 3d, 2w).
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only before then.
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Only messages of users, of models, summaries, or notes. Repeatable.
    #[arg(long, value_name = "KIND", value_parser = kind())]
    kind: Vec<RecallKind>,
    /// Only of this class of authors. Repeatable.
    #[arg(long, value_name = "CLASS", value_parser = author())]
    author: Vec<AuthorClass>,
    #[command(flatten)]
    out: OutArgs,
}

fn kind() -> impl TypedValueParser<Value = RecallKind> {
    PossibleValuesParser::new(RecallKind::ALL.map(RecallKind::name))
        .try_map(|name| RecallKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or("unknown kind"))
}

fn author() -> impl TypedValueParser<Value = AuthorClass> {
    PossibleValuesParser::new(AuthorClass::ALL.map(AuthorClass::name)).try_map(|name| {
        AuthorClass::ALL.into_iter().find(|class| class.name() == name).ok_or("unknown class")
    })
}

pub(crate) async fn run(args: &MemorySearchArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(store) = home.existing_store().await? else {
        if !args.out.json {
            note("There are no sessions yet. Try `quipu demo` or `quipu import`.");
        }
        return Ok(());
    };
    let store: Arc<dyn Graph> = store;
    let sealer = Arc::new(Sealer::new(home.seal_key()?));
    seal_credentials(&sealer, &home.settings());
    let search = memory_search(&home, &store, &sealer, &current_dir()?)?;
    let time = |flag: &str, text: &Option<String>| -> Result<Option<i64>, Failure> {
        text.as_deref().map(|text| instant(flag, text, now())).transpose()
    };
    let project = match &args.project {
        None => None,
        Some(path) => {
            let found = path.canonicalize().or_else(|_| std::path::absolute(path));
            let path = found.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            Some(vec![path.to_string_lossy().into_owned()])
        }
    };
    let question = MemoryQuestion {
        text: args.question.join(" "),
        projects: project,
        since: time("--since", &args.since)?,
        until: time("--until", &args.until)?,
        kinds: args.kind.clone(),
        authors: args.author.clone(),
        limit: usize::from(args.limit),
        ..MemoryQuestion::default()
    };
    // All that is there, or the first answers would lack most of it. The next search continues what is stopped here.
    let progress = Progress::new();
    search
        .index(|left| progress.show(&format!("indexing: {left} nodes left")))
        .await
        .map_err(|error| Failure::failed(error.to_string()))?;
    drop(progress);
    let answer = search.search(&question).await.map_err(|error| Failure::failed(error.to_string()))?;
    note_search(&home, &search, &question.text, &answer.hits).await;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    for hit in &answer.hits {
        if args.out.json {
            writeln!(out, "{}", hit_json(hit))?;
            continue;
        }
        let place = match &hit.place {
            HitPlace::Node { node, .. } => node.short(),
            HitPlace::Note { memory, citation } => format!("{}/{citation}", memory.id),
        };
        writeln!(
            out,
            "{:.2}  {}  {:>8}  {:<9}  {}",
            hit.score,
            paint.bold(&printable(&place)),
            ago(now(), hit.at),
            hit.kind.name(),
            one_line(&hit.snippet, WIDTH)
        )?;
    }
    out.flush()?;
    drop(out);
    if args.out.json {
        return Ok(());
    }
    if answer.hits.is_empty() {
        note("Nothing answers this.");
    }
    if answer.left > 0 {
        note(format!("The newest {} nodes are not indexed yet and were not searched.", answer.left));
    }
    Ok(())
}

fn hit_json(hit: &MemoryHit) -> Value {
    let mut value = json!({
        "score": hit.score,
        "by": hit.by.name(),
        "kind": hit.kind.name(),
        "author": hit.author.name(),
        "at": hit.at,
        "text": hit.snippet,
    });
    match &hit.place {
        HitPlace::Node { node, external_id, session } => {
            value["node"] = node.to_string().into();
            value["externalId"] = external_id.clone().into();
            value["session"] = session.as_ref().map(|session| session.as_str().to_owned()).into();
        }
        HitPlace::Note { memory, citation } => {
            value["memory"] = memory.id.clone().into();
            value["path"] = citation.path.clone().into();
            value["lines"] = json!([citation.lines.start(), citation.lines.end()]);
        }
    }
    value
}
