//! `quipu past`: summaries of the past by time, what they stand on, and how they are made.

mod build;
mod cover;
mod page;
mod prove;
mod show;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use quipu_host::past::project_past;
use quipu_host::{Home, now};
use quipu_past::{
    ChunkEntry, CoverDetail, CoverSearch, PastError, PastIndex, PastScope, RangeError, ReviewState,
    TimeRange, set_review_state,
};
use quipu_store::{Graph, SessionQuery, WordVectors};
use serde_json::json;

use crate::args::OutArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::memory::person::of_a_person;
use crate::print::{note, printable};

/// Chunks that an error names.
const NAMED: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct PastArgs {
    #[command(subcommand)]
    action: Option<PastAction>,
    /// A range of time, or the id of a chunk: 2026-05-01, last week, 2026-05-01..2026-05-07. Without it: the coarsest chunks.
    #[arg(value_name = "RANGE|ID")]
    what: Vec<String>,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Subcommand)]
enum PastAction {
    /// Show what a build would make, with the calls of a model and their cost. Nothing is written, and no model is asked.
    Estimate(BuildArgs),
    /// Make the chunks that are missing. What a build that was cut off has made is not made again.
    Build(BuildArgs),
    /// Show what a chunk stands on: its sources, and what else was said in its span.
    Sources(ChunkArgs),
    /// Show what has no summary, what came late, and chunks that cannot be used.
    Check(PastOptions),
    /// Show what of the past fits into a budget: coarse for long ago, finer where there is room, or where the question leads.
    Cover(CoverArgs),
    /// Write a chunk of your own: of a range of time, and of nodes if you name some. Without `--text`, its words are read from stdin.
    Create(CreateArgs),
    /// Put another chunk in the place of chunks: a new one with your words, or one that is there. They are not made again.
    Supersede(SupersedeArgs),
    /// Prove it: requests equal what the graph gives, chunks say what their sources do, answers depend on chunks.
    Prove(ProveArgs),
    /// Write it as one page of HTML: the chunks by time, a cover and why, evidence, proofs.
    Page(PageArgs),
    /// Take a chunk back: it is shown to nobody, and not made again.
    Retract(ChunkArgs),
    /// Mark a chunk as read and found good; one that was taken back is shown again.
    Review(ChunkArgs),
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// Ask no model, also where the settings allow one.
    #[arg(long)]
    extractive: bool,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Args)]
struct ChunkArgs {
    /// A range of time, or the id of a chunk.
    #[arg(value_name = "RANGE|ID", required = true)]
    what: Vec<String>,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// A range of time.
    #[arg(value_name = "RANGE", required = true)]
    range: Vec<String>,
    /// What happened then.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// A node that it is a summary of. Repeatable.
    #[arg(long, value_name = "NODE")]
    source: Vec<String>,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Args)]
struct SupersedeArgs {
    /// The chunks: keys, or beginnings of ids.
    #[arg(value_name = "ID", required = true)]
    what: Vec<String>,
    /// What stands in their place. Without it and `--by`, it is read from stdin.
    #[arg(long, value_name = "TEXT", conflicts_with = "by")]
    text: Option<String>,
    /// A chunk that is there, to stand in their place.
    #[arg(long, value_name = "ID")]
    by: Option<String>,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Args)]
struct WantedCover {
    /// What the cover is wanted for: chunks with these words are shown in more detail.
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// Tokens that the cover may have, of four characters each.
    #[arg(long, value_name = "TOKENS", default_value_t = 8_000)]
    budget: u64,
}

#[derive(Debug, Args)]
struct CoverArgs {
    #[command(flatten)]
    cover: WantedCover,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Args)]
struct PageArgs {
    /// The file; it must be new.
    #[arg(long, short, value_name = "FILE")]
    output: std::path::PathBuf,
    /// Show the cover of then: a time, or a node, whose text is the question. Without it: of now.
    #[arg(long, value_name = "TIME|NODE")]
    at: Option<String>,
    #[command(flatten)]
    cover: WantedCover,
    #[command(flatten)]
    of: PastOptions,
}

#[derive(Debug, Args)]
struct ProveArgs {
    /// Ask these questions with the cover, without it and with a disturbed one: a JSON object on each line, with question, answer and,
    /// if known, evidence.
    #[arg(long, value_name = "FILE")]
    questions: Option<std::path::PathBuf>,
    /// Who answers; without it, the model of a new session.
    #[arg(long, value_name = "MODEL", requires = "questions")]
    model: Option<String>,
    /// US dollars that the answers may cost. With 0, only a model that is free is asked.
    #[arg(long, value_name = "USD", default_value_t = 0.0, allow_negative_numbers = true, value_parser = dollars, requires = "questions")]
    budget: f64,
    /// Tokens that a cover may have, of four characters each.
    #[arg(long, value_name = "TOKENS", default_value_t = 4_000, requires = "questions")]
    tokens: u64,
    /// Chunks of each question that are removed and disturbed one by one.
    #[arg(long, value_name = "COUNT", default_value_t = 3, requires = "questions")]
    chunks: usize,
    /// Choose the covers without knowing the questions.
    #[arg(long, requires = "questions")]
    blind: bool,
    /// What changes of disturbed covers are drawn with.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "questions")]
    seed: u64,
    /// Requests of each session that are looked at.
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    requests: usize,
    #[command(flatten)]
    of: PastOptions,
}

/// None are an amount too.
fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(amount),
        _ => Err("give an amount in US dollars, such as 0.50".into()),
    }
}

/// Whose past, and how it is printed.
#[derive(Debug, Args)]
pub(crate) struct PastOptions {
    /// Of every session; without it, of the sessions of this project.
    #[arg(long, conflicts_with_all = ["agent", "session"])]
    all: bool,
    /// Of the sessions of a program, such as quipu, or of an agent whose sessions were imported.
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    agent: Option<String>,
    /// Of one session: its id, the start of its id, or its name.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    out: OutArgs,
}

pub(crate) async fn run(args: &PastArgs) -> Result<(), Failure> {
    let PastOptions { all, agent, session, out } = &args.of;
    let is_set = *all || agent.is_some() || session.is_some() || out.json || out.store.store.is_some();
    if args.action.is_some() && is_set {
        return Err(Failure::usage("options stand behind the command: `quipu past build --all`"));
    }
    match &args.action {
        None if args.what.is_empty() => show::list(&args.of).await,
        None => show::show(&args.what, &args.of).await,
        Some(PastAction::Estimate(of)) => build::estimate(of).await,
        Some(PastAction::Build(of)) => build::build(of).await,
        Some(PastAction::Sources(chunk)) => show::sources(&chunk.what, &chunk.of).await,
        Some(PastAction::Check(of)) => build::check(of).await,
        Some(PastAction::Cover(cover)) => cover::show(cover).await,
        Some(PastAction::Create(create)) => write::create(create).await,
        Some(PastAction::Supersede(supersede)) => write::supersede(supersede).await,
        Some(PastAction::Page(page)) => page::write(page).await,
        Some(PastAction::Prove(proof)) => prove::prove(proof).await,
        Some(PastAction::Retract(chunk)) => set(chunk, ReviewState::Retracted).await,
        Some(PastAction::Review(chunk)) => set(chunk, ReviewState::Reviewed).await,
    }
}

/// A store, and whose past in it is meant.
struct PastStore {
    home: Home,
    store: Arc<dyn Graph>,
    scope: PastScope,
}

impl PastOptions {
    /// Where the store is, and how things are printed.
    pub(crate) const fn out(&self) -> &OutArgs {
        &self.out
    }

    /// Whose past is meant.
    ///
    /// # Errors
    /// Where there is no such session or agent.
    pub(crate) async fn scope(&self) -> Result<PastScope, Failure> {
        if self.agent.is_none() && self.session.is_none() {
            return if self.all { Ok(PastScope::All) } else { Ok(project_past(&current_dir()?)) };
        }
        Ok(self.open().await?.scope)
    }

    /// # Errors
    /// Where there is no store yet, or no such session.
    async fn open(&self) -> Result<PastStore, Failure> {
        let home = home(&self.out.store)?;
        let store: Arc<dyn Graph> = match home.store_to_read()? {
            Some(store) => store,
            None => return Err(no_sessions(&home)),
        };
        self.opened(&home, store).await
    }

    /// The same, to be written.
    async fn open_to_write(&self) -> Result<PastStore, Failure> {
        let home = home(&self.out.store)?;
        let Some(store) = home.existing_store().await? else { return Err(no_sessions(&home)) };
        if let Some(why) = store.refusal() {
            return Err(why.clone().into());
        }
        self.opened(&home, store).await
    }

    async fn opened(&self, home: &Home, store: Arc<dyn Graph>) -> Result<PastStore, Failure> {
        let scope = match (&self.agent, &self.session) {
            _ if self.all => PastScope::All,
            (Some(agent), _) => agent_past(&*store, agent).await?,
            (None, Some(session)) => {
                PastScope::Session(quipu_host::session_named(&*store, session).await?.id)
            }
            (None, None) => project_past(&current_dir()?),
        };
        Ok(PastStore { home: home.clone(), store, scope })
    }
}

/// The past of a program that has sessions, or had some.
async fn agent_past(store: &dyn Graph, agent: &str) -> Result<PastScope, Failure> {
    let scope = PastScope::Agent(agent.to_owned());
    if store.head(&scope.ref_name()).await?.is_some() {
        return Ok(scope);
    }
    let rows = store.sessions(SessionQuery::default()).await?;
    if rows.iter().any(|row| row.agent == agent) {
        return Ok(scope);
    }
    let known: BTreeSet<&str> = rows.iter().map(|row| row.agent.as_str()).collect();
    let known: Vec<String> = known.into_iter().map(printable).collect();
    Err(Failure::usage(format!(
        "no session is of `{}`; there are sessions of {}",
        printable(agent),
        known.join(", ")
    )))
}

impl PastStore {
    async fn index(&self) -> Result<PastIndex, Failure> {
        Ok(PastIndex::read(&*self.store, &self.scope).await.map_err(quipu_host::Failure::from)?)
    }

    /// What covers for a question are drawn by.
    fn search(&self, words: Option<Arc<dyn WordVectors>>, detail: CoverDetail) -> CoverSearch<'_> {
        CoverSearch { store: &*self.store, scope: &self.scope, words, detail }
    }

    async fn find<'a>(&self, index: &'a PastIndex, words: &[String]) -> Result<&'a ChunkEntry, Failure> {
        let (text, zone) = (words.join(" "), TimeZone::system());
        let error = match index.find(&text, now(), &zone, &self.scope) {
            Ok(chunk) => return Ok(chunk),
            Err(error) => error,
        };
        let hint = match &error {
            PastError::NoChunk { id, .. } => {
                // Searches show chunks by their nodes, which stand without a range.
                let mut of_node = index.chunks().filter(|chunk| chunk.node.to_string().starts_with(id));
                if let (false, Some(chunk), None) = (text.contains('@'), of_node.next(), of_node.next()) {
                    return Ok(chunk);
                }
                match quipu_host::resolve(&*self.store, id, None).await {
                    Ok(found) => {
                        let node = found.node.short();
                        format!("; {node} is a node and no chunk of it: `quipu show {node}`")
                    }
                    Err(_) => "; `--all`, `--agent` and `--session` choose another past".to_owned(),
                }
            }
            PastError::NothingThere { .. } => {
                let range = TimeRange::parse(&text, now(), &zone).unwrap_or(TimeRange::ALL);
                let is_there = |chunk: &&ChunkEntry| chunk.is_taken_back() && range.overlap(chunk.span) > 0;
                let taken: Vec<String> =
                    index.chunks().filter(is_there).take(NAMED).map(|chunk| chunk.id.short()).collect();
                if taken.is_empty() {
                    String::new()
                } else {
                    format!("; what was taken back is found by its id: {}", taken.join(", "))
                }
            }
            PastError::Range(RangeError::Unknown { part }) if is_short_id(part) => {
                "; an id has at least six digits".to_owned()
            }
            PastError::Range(RangeError::Unknown { .. }) => {
                "; `quipu past --help` lists the commands".to_owned()
            }
            _ => String::new(),
        };
        let mut failure = Failure::from(quipu_host::Failure::from(error));
        failure.message.push_str(&hint);
        Err(failure)
    }
}

/// Whether somebody wrote the beginning of an id, and too little of it.
fn is_short_id(text: &str) -> bool {
    text.chars().any(|letter| letter.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_hexdigit())
}

async fn set(args: &ChunkArgs, state: ReviewState) -> Result<(), Failure> {
    use std::io::Write as _;
    of_a_person()?;
    let past = args.of.open_to_write().await?;
    let index = past.index().await?;
    let chunk = past.find(&index, &args.what).await?;
    let (id, key) = (chunk.id, index.key(chunk));
    let node = set_review_state(&*past.store, &past.scope, id, state, now()).await;
    let node = node.map_err(quipu_host::Failure::from)?;
    if args.of.out.json {
        let line = json!({ "id": id, "key": key, "state": state, "node": node });
        writeln!(crate::console::stdout(), "{line}")?;
        return Ok(());
    }
    match state {
        ReviewState::Retracted => {
            note(format!(
                "{} is retracted. `quipu past build` makes what stood above it without it.",
                id.short()
            ));
        }
        ReviewState::Reviewed | ReviewState::Made => note(format!("{} is reviewed.", id.short())),
    }
    Ok(())
}
