//! `quipu search`: what was said and done, in every session of the store.

use std::io::Write as _;
use std::path::Path;

use clap::Parser as _;
use quipu_host::LocalStore;
use quipu_protocol::{SessionId, UnixMs};
use quipu_store::{
    Excerpt, Found, Graph, Hit, Matched, Matching, Order, QUERY_LIMIT, RANKED, ReadModel as _, SearchQuery,
    SessionQuery, SessionRow, Sessions, Unindexed, Upkeep as _,
};

use crate::args::{Cli, Cmd, SearchArgs};
use crate::exit::Failure;
use crate::place::place;
use crate::print::{Paint, Progress, ago, dollars, note, one_line, printable};
use quipu_host::{Compared, Meaning};
use quipu_host::{Place, now};

/// Hits of one session that are shown.
const OF_A_SESSION: usize = 5;
/// Hits at most, whatever is asked for.
const MOST: usize = 10_000;
/// Characters of a session's title.
const TITLE: usize = 60;

/// What a search found.
pub(crate) struct Results {
    pub(crate) found: Found,
    /// The sessions of the hits.
    pub(crate) rows: Rows,
    compared: Option<Compared>,
    /// What people should know of it.
    pub(crate) told: Vec<String>,
}

/// The arguments that these words are.
pub(crate) fn args_of(words: Vec<String>) -> Result<SearchArgs, Failure> {
    let words = ["quipu", "search"].map(str::to_owned).into_iter().chain(words);
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Some(Cmd::Search(args)), .. }) => Ok(args),
        Ok(_) => Err(Failure::usage("that is no search")),
        Err(told) => Err(Failure::usage(told.to_string().trim_end())),
    }
}

/// Searches the store; `None` where there is none yet.
pub(crate) async fn find(place: &Place, args: &SearchArgs) -> Result<Option<Results>, Failure> {
    let Some(store) = place.existing_store().await? else { return Ok(None) };
    let meaning = if args.meaning { Some(Meaning::of(place, store.clone())?) } else { None };
    let query = query(&*store, args).await?;
    if args.wait {
        finish_index(&store).await?;
    }
    let (found, compared) = match meaning {
        None => (store.search(query).await?, None),
        Some(meaning) => {
            let progress = args.wait.then(Progress::new);
            let tell = |left: u64| {
                if let Some(progress) = &progress {
                    progress.show(&format!("vectors: {left} nodes left"));
                }
            };
            let (found, compared) = meaning.search(&store, query, args.wait, tell).await?;
            (found, Some(compared))
        }
    };
    let mut rows = Rows::default();
    for hit in &found.hits {
        rows.look_up(&*store, hit.session.as_ref()).await?;
    }
    let told = told(args, &found, compared.as_ref());
    Ok(Some(Results { found, rows, compared, told }))
}

pub(crate) async fn run(args: &SearchArgs) -> Result<(), Failure> {
    let place = place(&args.out.store)?;
    let Some(results) = find(&place, args).await? else {
        if !args.out.json {
            note("Nothing was done yet. Try `quipu demo`, or `quipu import`.");
        }
        return Ok(());
    };
    let Results { found, rows, compared, told } = &results;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        for hit in &found.hits {
            writeln!(out, "{}", hit_json(hit, rows.get(hit.session.as_ref())))?;
        }
        let mut end = end_json(found);
        end["told"] = told.clone().into();
        if let Some(compared) = compared {
            end["meaning"] = compared_json(compared);
        }
        writeln!(out, "{end}")?;
    } else {
        write_groups(&mut out, &place, found, rows)?;
    }
    out.flush()?;
    drop(out);
    if !args.out.json {
        told.iter().for_each(note);
    }
    Ok(())
}

async fn query(store: &dyn Graph, args: &SearchArgs) -> Result<SearchQuery, Failure> {
    let branch = match &args.branch {
        None => None,
        Some(what) => Some(quipu_host::last_node(store, what).await?),
    };
    let project = args.project.as_deref().map(directory).transpose()?;
    let since = args.since.as_deref().map(|text| instant("--since", text, now())).transpose()?;
    let matching = match (args.exact, args.part) {
        (true, _) => Matching::Words,
        (false, true) => Matching::Substrings,
        (false, false) => Matching::Any,
    };
    let limit = if args.limit == 0 { MOST } else { args.limit.min(MOST) };
    let query = SearchQuery {
        words: args.words.join(" "),
        matching,
        agent: args.agent.clone(),
        project,
        speakers: args.role.clone(),
        tool: args.tool.clone(),
        since,
        file: args.file.clone(),
        without_tools: Vec::new(),
        // Who names a session or a node wants it, removed or not.
        sessions: if branch.is_some() { Sessions::All } else { Sessions::Standing },
        order: if args.best { Order::Best } else { Order::Newest },
        branch,
        limit,
        per_session: (args.branch.is_none() && args.limit != 0).then_some(OF_A_SESSION),
    };
    let conditions = query.speakers.len()
        + usize::from(query.agent.is_some() || query.project.is_some())
        + usize::from(query.tool.is_some() || query.file.is_some());
    if query.words.len() > QUERY_LIMIT {
        return Err(Failure::usage(format!(
            "the words of a search have at most {QUERY_LIMIT} bytes; say less"
        )));
    }
    if query.words.trim().is_empty() && args.meaning && !args.wait {
        return Err(Failure::usage("say what to look for; with --wait and no words, only vectors are made"));
    }
    if query.words.trim().is_empty() && conditions == 0 && !args.meaning {
        return Err(Failure::usage(
            "say what to look for, such as `quipu search red button` or `quipu search --file api.rs`",
        ));
    }
    Ok(query)
}

/// A directory as sessions spell it; one that is gone by its name.
fn directory(path: &Path) -> Result<String, Failure> {
    let found = path.canonicalize().or_else(|_| std::path::absolute(path));
    match found {
        Ok(path) => Ok(path.to_string_lossy().into_owned()),
        Err(error) => Err(Failure::usage(format!("{}: {error}", printable(&path.to_string_lossy())))),
    }
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

/// Indexes all that is not, and tells how far it is. Ended by Ctrl-C, it goes on from there the next time.
pub(crate) async fn finish_index(store: &LocalStore) -> Result<(), Failure> {
    let progress = Progress::new();
    let mut left = store.index().await?;
    let all = left;
    while left != Unindexed::default() {
        let done = |left: u64, all: u64| 100 - (100 * left).checked_div(all).unwrap_or(0).min(100);
        let (words, parts) = (done(left.words, all.words), done(left.substrings, all.substrings));
        progress.show(&format!("indexing: words {words} %, parts of words {parts} %"));
        left = store.index().await?;
    }
    Ok(())
}

/// Sessions that were looked up.
#[derive(Default)]
pub(crate) struct Rows(std::collections::HashMap<SessionId, Option<SessionRow>>);

impl Rows {
    async fn look_up(&mut self, store: &dyn Graph, id: Option<&SessionId>) -> Result<(), Failure> {
        if let Some(id) = id.filter(|id| !self.0.contains_key(*id)) {
            let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
            let row = store.sessions(query).await?.into_iter().next();
            self.0.insert(id.clone(), row);
        }
        Ok(())
    }

    pub(crate) fn get(&self, id: Option<&SessionId>) -> Option<&SessionRow> {
        self.0.get(id?).and_then(Option::as_ref)
    }
}

/// Hits in groups, a session each, in the order of their first hits.
fn write_groups(
    out: &mut impl std::io::Write,
    place: &Place,
    found: &Found,
    sessions: &Rows,
) -> Result<(), Failure> {
    let (paint, now) = (Paint::stdout(), now());
    let mut groups: Vec<(Option<&SessionId>, Vec<&Hit>)> = Vec::new();
    for hit in &found.hits {
        match groups.iter_mut().find(|(session, _)| *session == hit.session.as_ref()) {
            Some((_, hits)) => hits.push(hit),
            None => groups.push((hit.session.as_ref(), vec![hit])),
        }
    }
    let flag = crate::place::store_flag(place);
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
        }
        let more: u64 = hits.iter().map(|hit| hit.more).sum();
        if more > 0 {
            writeln!(out, "  {}", paint.dim(&format!("and {more} or more here: --limit 0 shows all")))?;
        }
        if let Some(hit) = hits.first() {
            let stands = sessions.get(*session).is_none_or(|row| row.head.is_some());
            let go_on = match session {
                Some(id) if stands => {
                    format!("   go on: quipu{flag} -p --session {} \"…\"", printable(id.as_str()))
                }
                Some(_) => {
                    format!("   go on: quipu{flag} -p --fork {} \"…\"", hit.node.short())
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
fn told(args: &SearchArgs, found: &Found, compared: Option<&Compared>) -> Vec<String> {
    let mut told = Vec::new();
    if found.hits.is_empty() && !args.words.is_empty() {
        told.push("Nothing was found.".to_owned());
    }
    told.extend(compared.map(compared_told).unwrap_or_default());
    let Unindexed { words, substrings } = found.behind;
    if words > 0 {
        told.push(format!(
            "The newest {words} nodes are not indexed yet and were not searched; --wait does that first."
        ));
    } else if substrings > 0 && !args.exact {
        told.push(format!(
            "Parts of words are not indexed yet in the newest {substrings} nodes; --wait does that first."
        ));
    }
    if !found.too_short.is_empty() && !args.exact {
        told.push("Only whole words were looked for: parts of words need three characters.".into());
    }
    if found.cut {
        told.push(
            "There was too much to look through: older hits may be missing. Say more, or narrow it.".into(),
        );
    }
    if args.best && found.hits.len() >= args.limit && args.limit > 0 {
        told.push(format!("The best of the newest {RANKED}."));
    }
    told
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
            Matched::Words => "words",
            Matched::Substring => "substring",
            Matched::Meaning => "meaning",
        },
        "text": hit.excerpt.text,
        "marks": marks,
        "cutBefore": hit.excerpt.cut_before,
        "cutAfter": hit.excerpt.cut_after,
        "score": hit.score,
        "more": hit.more,
    })
}

fn end_json(found: &Found) -> serde_json::Value {
    serde_json::json!({
        "type": "end",
        "hits": found.hits.len(),
        "unindexed": { "words": found.behind.words, "substrings": found.behind.substrings },
        "cut": found.cut,
        "tooShort": found.too_short,
    })
}

/// What a search by meaning took, for programs.
fn compared_json(compared: &Compared) -> serde_json::Value {
    serde_json::json!({
        "vectors": compared.indexed.vectors, "left": compared.left, "tokens": compared.usage.input, "cost": compared.usage.cost.total,
    })
}

/// For people: what was made, what it cost, and what is missing.
fn compared_told(compared: &Compared) -> Vec<String> {
    let mut told = Vec::new();
    if compared.indexed.vectors > 0 {
        told.push(format!("{} vectors were made.", compared.indexed.vectors));
    }
    if compared.usage.input > 0 {
        let cost = match compared.usage.cost.total {
            cost if cost > 0.0 => format!(", {}", dollars(cost)),
            _ => String::new(),
        };
        told.push(format!("{} tokens were read for it{cost}.", compared.usage.input));
    }
    if compared.left > 0 {
        told.push(format!(
            "What was said in {} nodes was not compared by its meaning yet; --wait does that first.",
            compared.left
        ));
    }
    told
}
