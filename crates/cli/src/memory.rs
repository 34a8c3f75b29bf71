//! `quipu memory`: the notes that a person owns, seen, corrected and forgotten.

mod adopt;
mod edit;
mod forget;
mod list;
pub(crate) mod person;
mod review;
mod status;
mod switch;
mod why;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use quipu::Engine;
use quipu_host::Home;
use quipu_host::memory::{memory_home, notebooks};
use quipu_memory::files::FileName;
use quipu_memory::notes::Notebook;
use quipu_memory::{Citation, MemoryHome, MemoryKind, project_root, project_tree};
use quipu_store::Graph;

use crate::args::{OutArgs, StoreArg};
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::memory_search::MemorySearchArgs;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    action: Option<MemoryAction>,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Subcommand)]
enum MemoryAction {
    /// List the files of the memories that are open here. The same as `quipu memory`.
    List(OutArgs),
    /// Search notes and sessions for what answers a question, best first.
    Search(MemorySearchArgs),
    /// Print a file, or lines of it, with the class of each line's author.
    Show(ShowArgs),
    /// Open a file in your editor; what you change is yours. Without a name: MEMORY.md of this project.
    Edit(EditArgs),
    /// Find lines and nodes by words, show them, ask, and forget them: no memory, search or prompt has them from then on.
    Forget(ForgetArgs),
    /// Move lines to the same file of another memory that is open here.
    Move(MoveArgs),
    /// Give this project the memory that it had in a directory which is not there any more: it was moved or renamed.
    Adopt(adopt::AdoptArgs),
    /// Show lines that nobody has accepted, and accept them.
    Review(ReviewArgs),
    /// Show where a line of MEMORY.md came from: its sources, how often they were recalled, and their score.
    Why(why::WhyArgs),
    /// Show what is known of a text, and what keeps it from being promoted.
    PromoteExplain(why::PromoteExplainArgs),
    /// Show whether memory is on here, the entries by the class of their authors, and what it cost this week.
    Status(OutArgs),
    /// Switch memory on for this project.
    On(OnArgs),
    /// Switch memory off for this project. Its files stay.
    Off(OutArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The file, or lines of it: MEMORY.md, memory/2026-11-27.md#L3-L5.
    #[arg(value_name = "FILE[#L1-L2]", default_value = "MEMORY.md")]
    file: String,
    /// Whose file; the first that is there by default.
    #[arg(long, value_enum, value_name = "WHOSE")]
    of: Option<WhoseArg>,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Args)]
struct EditArgs {
    /// The file: MEMORY.md, USER.md, memory/2026-11-27.md.
    #[arg(value_name = "FILE", default_value = "MEMORY.md")]
    file: String,
    /// Whose file: the project's by default, and your own USER.md.
    #[arg(long, value_enum, value_name = "WHOSE")]
    of: Option<WhoseArg>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Debug, Args)]
struct ForgetArgs {
    /// Words that all stand in what is to be forgotten.
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Only show what would be forgotten.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Args)]
struct MoveArgs {
    /// The lines: MEMORY.md#L3-L5.
    #[arg(value_name = "FILE#L1-L2")]
    lines: String,
    /// The memory to move them to.
    #[arg(long, value_enum, value_name = "WHOSE")]
    to: WhoseArg,
    /// Whose lines; the first memory that has the file by default.
    #[arg(long, value_enum, value_name = "WHOSE")]
    of: Option<WhoseArg>,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Args)]
struct ReviewArgs {
    /// Accept these lines without asking: FILE or FILE#L1-L2. Repeatable.
    #[arg(long, value_name = "FILE[#L1-L2]")]
    accept: Vec<String>,
    /// Accept all lines without asking, those of the repository's memory too.
    #[arg(long)]
    accept_all: bool,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Args)]
struct OnArgs {
    /// Use this directory as the memory of the project, where it lies: one with MEMORY.md and memory/, as other agents keep it.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    #[command(flatten)]
    out: OutArgs,
}

/// Whose memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhoseArg {
    /// Of this project
    Project,
    /// Your own, for every project
    User,
    /// In the files of this repository
    Repository,
}

impl WhoseArg {
    fn is(self, kind: MemoryKind) -> bool {
        match self {
            Self::Project => matches!(kind, MemoryKind::Project | MemoryKind::Workspace),
            Self::User => kind == MemoryKind::User,
            Self::Repository => kind == MemoryKind::Repository,
        }
    }

    fn of(kind: MemoryKind) -> &'static str {
        match kind {
            MemoryKind::User => "user",
            MemoryKind::Project => "project",
            MemoryKind::Workspace => "workspace",
            MemoryKind::Repository => "repository",
        }
    }
}

pub(crate) async fn run(args: &MemoryArgs) -> Result<(), Failure> {
    match &args.action {
        None => list::list(&args.out).await,
        Some(MemoryAction::List(out)) => list::list(out).await,
        Some(MemoryAction::Search(args)) => crate::memory_search::run(args).await,
        Some(MemoryAction::Show(args)) => list::show(args).await,
        Some(MemoryAction::Edit(args)) => {
            person::of_a_person()?;
            edit::edit(args).await
        }
        Some(MemoryAction::Forget(args)) => {
            person::of_a_person()?;
            forget::forget(args).await
        }
        Some(MemoryAction::Move(args)) => {
            person::of_a_person()?;
            edit::move_lines(args).await
        }
        Some(MemoryAction::Adopt(args)) => {
            person::of_a_person()?;
            adopt::adopt(args)
        }
        Some(MemoryAction::Review(args)) => {
            person::of_a_person()?;
            review::review(args).await
        }
        Some(MemoryAction::Why(args)) => why::why(args).await,
        Some(MemoryAction::PromoteExplain(args)) => why::promote_explain(args).await,
        Some(MemoryAction::Status(out)) => status::status(out).await,
        Some(MemoryAction::On(args)) => {
            person::of_a_person()?;
            switch::on(args).await
        }
        Some(MemoryAction::Off(out)) => {
            person::of_a_person()?;
            switch::off(out)
        }
    }
}

/// The memories that are open here.
pub(crate) struct OpenMemories {
    pub(crate) home: Home,
    pub(crate) engine: Engine,
    pub(crate) memory: MemoryHome,
    /// The root of the project, and of the working tree.
    pub(crate) project: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) books: Vec<Notebook>,
}

/// # Errors
/// Where memory is off here.
pub(crate) async fn open(store: &StoreArg) -> Result<OpenMemories, Failure> {
    let home = home(store)?;
    let cwd = current_dir()?;
    let (project, tree) = (project_root(&cwd), project_tree(&cwd));
    let off = || {
        Failure::usage(format!("memory is off in {}; `quipu memory on` switches it on", project.display()))
    };
    if quipu_host::memory::memory_places(&home, &cwd)?.is_empty() {
        return Err(off());
    }
    let store: Arc<dyn Graph> = home.store().await?;
    let engine = home.engine(store, &home.settings())?;
    let books = notebooks(&home, engine.store(), engine.sealer(), &cwd)?;
    let memory = memory_home(&home);
    Ok(OpenMemories { home, engine, memory, project, tree, books })
}

impl OpenMemories {
    /// The memory that is meant: of that kind, else the first that has the file, else the first.
    pub(crate) fn book(&self, of: Option<WhoseArg>, name: &FileName) -> Result<&Notebook, Failure> {
        let has = |book: &&Notebook| book.place().root.join(name.as_str()).is_file();
        let found = match of {
            Some(of) => self.books.iter().find(|book| of.is(book.place().kind)),
            None => self.books.iter().find(has).or_else(|| self.books.first()),
        };
        found.ok_or_else(|| Failure::usage("there is no such memory here; `quipu memory list` lists them"))
    }
}

/// A file, and which lines of it.
fn place(text: &str) -> Result<(FileName, Option<std::ops::RangeInclusive<u32>>), Failure> {
    let named = |path: &str| FileName::new(path).map_err(Failure::usage);
    match text.parse::<Citation>() {
        Ok(citation) => Ok((named(&citation.path)?, Some(citation.lines))),
        Err(_) => Ok((named(text)?, None)),
    }
}
