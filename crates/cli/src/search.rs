//! `quipu search`: what was said and done, in every session of the store.

use std::io::Write as _;

use clap::Parser as _;
use quipu_host::search::{SearchProgress, SearchRequest, SearchResults, SessionRows};
use quipu_protocol::{SessionId, UnixMs};
use quipu_store::{Excerpt, Hit, IndexBacklog, MatchKind, MatchMode, RANKED, SearchHits, SessionRow};

use crate::args::{Cli, Cmd, SearchArgs};
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, Progress, ago, dollars, note, one_line, printable};
use quipu_host::{Home, SemanticReport, now};

/// Characters of a session's title.
const TITLE: usize = 60;

/// What a search found.
pub(crate) struct Results {
    pub(crate) results: SearchResults,
    /// What people should know of it.
    pub(crate) notes: Vec<String>,
}

/// The arguments that these words are.
pub(crate) fn args_of(words: Vec<String>) -> Result<SearchArgs, Failure> {
    let words = ["quipu", "search"].map(str::to_owned).into_iter().chain(words);
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Some(Cmd::Search(args)), .. }) => Ok(args),
        Ok(_) => Err(Failure::usage("these are not arguments of `quipu search`")),
        Err(error) => Err(Failure::usage(error.to_string().trim_end())),
    }
}

/// Searches the store; `None` where there is none yet.
pub(crate) async fn find(home: &Home, args: &SearchArgs) -> Result<Option<Results>, Failure> {
    let request = request(args)?;
    let progress = Progress::new();
    let tell = |at: SearchProgress| show_progress(&progress, at);
    let Some(SearchResults { found, rows, compared }) =
        quipu_host::search::find(home, &request, &tell).await?
    else {
        return Ok(None);
    };
    let notes = notes(args, &found, compared.as_ref());
    Ok(Some(Results { results: SearchResults { found, rows, compared }, notes }))
}

/// How far it is with what is done before a search.
pub(crate) fn show_progress(progress: &Progress, at: SearchProgress) {
    match at {
        SearchProgress::Indexing { words, parts } => {
            progress.show(&format!("indexing: words {words} %, parts of words {parts} %"));
        }
        SearchProgress::Vectors { left } => progress.show(&format!("vectors: {left} nodes left")),
    }
}

pub(crate) async fn run(args: &SearchArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(results) = find(&home, args).await? else {
        if !args.out.json {
            note("There are no sessions yet. Try `quipu demo` or `quipu import`.");
        }
        return Ok(());
    };
    let Results { results: SearchResults { found, rows, compared }, notes } = &results;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        for hit in &found.hits {
            writeln!(out, "{}", hit_json(hit, rows.get(hit.session.as_ref())))?;
        }
        let mut end = end_json(found);
        end["told"] = notes.clone().into();
        if let Some(compared) = compared {
            end["semantic"] = compared_json(compared);
        }
        writeln!(out, "{end}")?;
    } else {
        write_groups(&mut out, &home, found, rows)?;
    }
    out.flush()?;
    drop(out);
    if !args.out.json {
        notes.iter().for_each(note);
    }
    Ok(())
}

/// What is looked for, in plain values.
fn request(args: &SearchArgs) -> Result<SearchRequest, Failure> {
    let since = args.since.as_deref().map(|text| instant("--since", text, now())).transpose()?;
    Ok(SearchRequest {
        words: args.words.join(" "),
        matching: match (args.exact, args.part) {
            (true, _) => MatchMode::Words,
            (false, true) => MatchMode::Substrings,
            (false, false) => MatchMode::Any,
        },
        agent: args.agent.clone(),
        project: args.project.clone(),
        speakers: args.role.clone(),
        tool: args.tool.clone(),
        since,
        file: args.file.clone(),
        branch: args.branch.clone(),
        best: args.best,
        limit: args.limit,
        semantic: args.semantic,
        wait: args.wait,
    })
}

/// A time: a date, a time with its zone, or how long ago.
pub(crate) fn instant(flag: &str, text: &str, now: UnixMs) -> Result<UnixMs, Failure> {
    quipu::instant(text, now).ok_or_else(|| {
        Failure::usage(format!(
            "{flag} {}: give a date (2026-01-31), a time (2026-01-31T10:00:00Z), or how long ago (30m, 12h, 3d, 2w)",
            printable(text)
        ))
    })
}

/// Hits in groups, a session each, in the order of their first hits.
fn write_groups(
    out: &mut impl std::io::Write,
    home: &Home,
    found: &SearchHits,
    sessions: &SessionRows,
) -> Result<(), Failure> {
    let (paint, now) = (Paint::stdout(), now());
    let mut groups: Vec<(Option<&SessionId>, Vec<&Hit>)> = Vec::new();
    for hit in &found.hits {
        match groups.iter_mut().find(|(session, _)| *session == hit.session.as_ref()) {
            Some((_, hits)) => hits.push(hit),
            None => groups.push((hit.session.as_ref(), vec![hit])),
        }
    }
    let flag = crate::home::store_flag(home);
    for (n, (session, hits)) in groups.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        match (session, sessions.get(*session)) {
            (Some(id), Some(row)) => {
                let title = if row.called.is_empty() { &row.title } else { &row.called };
                let removed = if row.head.is_none() { "  (removed)" } else { "" };
                let about = format!("{}  {}{removed}", printable(&row.agent), printable(&row.cwd));
                writeln!(
                    out,
                    "{}  {}  {}",
                    paint.bold(&printable(id.as_str())),
                    one_line(title, TITLE),
                    paint.dim(&about)
                )?;
            }
            (Some(id), None) => writeln!(out, "{}", paint.bold(&printable(id.as_str())))?,
            (None, _) => writeln!(out, "{}", paint.bold("(no session)"))?,
        }
        for hit in hits {
            let who =
                hit.tool.as_ref().map_or_else(|| hit.role.clone(), |tool| format!("{} {tool}", hit.role));
            writeln!(
                out,
                "  {}  {:>8}  {:<12}  {}",
                paint.dim(&hit.node.short()),
                ago(now, hit.at),
                one_line(&who, 24),
                context(&hit.excerpt, paint)
            )?;
            if let Some(withdrawn) = hit.withdrawn {
                writeln!(
                    out,
                    "    {}",
                    paint.dim(&format!("{}: nobody is shown this summary", withdrawn.name()))
                )?;
            }
        }
        let more: u64 = hits.iter().map(|hit| hit.more).sum();
        if more > 0 {
            writeln!(out, "  {}", paint.dim(&format!("and {more} or more here: --limit 0 shows all")))?;
        }
        if let Some(hit) = hits.first() {
            let stands = sessions.get(*session).is_none_or(|row| row.head.is_some());
            let is_spoken_in = |row: &quipu_store::SessionRow| !quipu::takes_no_prompts(row);
            let go_on = match session {
                Some(_) if !sessions.get(*session).is_none_or(is_spoken_in) => String::new(),
                Some(id) if stands => {
                    format!("   continue: quipu{flag} -p --session {} \"…\"", printable(id.as_str()))
                }
                Some(_) => {
                    format!("   continue: quipu{flag} -p --fork {} \"…\"", hit.node.short())
                }
                None => String::new(),
            };
            writeln!(out, "  {}", paint.dim(&format!("open: quipu show{flag} {}{go_on}", hit.node.short())))?;
        }
    }
    Ok(())
}

/// An excerpt on one line, with what was found in it in colour.
fn context(excerpt: &Excerpt, paint: Paint) -> String {
    let mut line = String::new();
    if excerpt.cut_before {
        line.push('…');
    }
    let mut at = 0;
    for mark in &excerpt.marks {
        line.push_str(&printable(&excerpt.text[at..mark.start]));
        line.push_str(&paint.red(&printable(&excerpt.text[mark.clone()])));
        at = mark.end;
    }
    line.push_str(&printable(&excerpt.text[at..]));
    if excerpt.cut_after {
        line.push('…');
    }
    line
}

/// What people should know of what they see.
fn notes(args: &SearchArgs, found: &SearchHits, compared: Option<&SemanticReport>) -> Vec<String> {
    let mut notes = Vec::new();
    if found.hits.is_empty() && !args.words.is_empty() {
        notes.push("Nothing was found.".to_owned());
    }
    notes.extend(compared.map(semantic_notes).unwrap_or_default());
    let IndexBacklog { words, substrings } = found.behind;
    if words > 0 {
        notes.push(format!(
            "The newest {words} nodes are not indexed yet and were not searched; add --wait to index them first."
        ));
    } else if substrings > 0 && !args.exact {
        notes.push(format!(
            "The newest {substrings} nodes are not indexed for parts of words yet; add --wait to index them first."
        ));
    }
    if !found.too_short.is_empty() && !args.exact {
        notes.push("Only whole words were searched: parts of words need at least three characters.".into());
    }
    if found.cut {
        notes.push(
            "The search stopped at its limit, so older hits may be missing. Add words or narrow it.".into(),
        );
    }
    if args.best && found.hits.len() >= args.limit && args.limit > 0 {
        notes.push(format!("Sorted by relevance among the newest {RANKED} hits."));
    }
    notes
}

/// A hit as a program reads it. Times in milliseconds since the epoch, marks in bytes of the text.
fn hit_json(hit: &Hit, row: Option<&SessionRow>) -> serde_json::Value {
    let marks: Vec<[usize; 2]> = hit.excerpt.marks.iter().map(|mark| [mark.start, mark.end]).collect();
    serde_json::json!({
        "type": "hit",
        "node": hit.node,
        "session": hit.session,
        "agent": row.map(|row| &row.agent),
        "cwd": row.map(|row| &row.cwd),
        "title": row.map(|row| if row.called.is_empty() { &row.title } else { &row.called }),
        "removed": row.map(|row| row.head.is_none()),
        "role": hit.role,
        "tool": hit.tool,
        "at": hit.at,
        "by": match hit.by {
            MatchKind::Words => "words",
            MatchKind::Substring => "substring",
            MatchKind::Semantic => "semantic",
        },
        "text": hit.excerpt.text,
        "marks": marks,
        "cutBefore": hit.excerpt.cut_before,
        "cutAfter": hit.excerpt.cut_after,
        "score": hit.score,
        "more": hit.more,
        "withdrawn": hit.withdrawn.map(quipu_store::Withdrawal::name),
    })
}

fn end_json(found: &SearchHits) -> serde_json::Value {
    serde_json::json!({
        "type": "end",
        "hits": found.hits.len(),
        "unindexed": { "words": found.behind.words, "substrings": found.behind.substrings },
        "cut": found.cut,
        "tooShort": found.too_short,
    })
}

/// The vectors, tokens and cost of a semantic search, for programs.
fn compared_json(compared: &SemanticReport) -> serde_json::Value {
    serde_json::json!({
        "vectors": compared.indexed.vectors, "left": compared.left, "tokens": compared.usage.input, "cost": compared.usage.cost.total,
    })
}

/// For people: what was made, what it cost, and what is missing.
fn semantic_notes(compared: &SemanticReport) -> Vec<String> {
    let mut notes = Vec::new();
    if compared.indexed.vectors > 0 {
        notes.push(format!("Built {} vectors.", compared.indexed.vectors));
    }
    if compared.usage.input > 0 {
        let cost = match compared.usage.cost.total {
            cost if cost > 0.0 => format!(", {}", dollars(cost)),
            _ => String::new(),
        };
        notes.push(format!("The vectors took {} tokens{cost}.", compared.usage.input));
    }
    if compared.left > 0 {
        notes.push(format!(
            "{} nodes have no vectors yet, so the semantic search left them out; add --wait to build them first.",
            compared.left
        ));
    }
    notes
}
