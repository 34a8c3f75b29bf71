//! What can be said on the command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use quipu_store::Speaker;

mod help;
mod model;
mod travel;

pub(crate) use help::{END_OF_ALL, HelpArgs};
pub(crate) use model::ModelArgs;
pub(crate) use travel::*;

/// A coding agent whose every step is a node in a graph that is never rewritten.
#[derive(Debug, Parser)]
#[command(
    name = "quipu",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = END_OF_ALL
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Cmd>,
    #[command(flatten)]
    pub(crate) task: Task,
}

/// A task to run.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct Task {
    /// Run one task and exit. Each answer goes to stdout when it is kept, what the tools do to stderr.
    #[arg(short, long)]
    pub(crate) print: bool,
    /// With `-p`: print text as it comes, also that of an answer that breaks off and is asked for again; stderr tells of
    /// that.
    #[arg(long)]
    pub(crate) stream: bool,
    /// What is printed: the answers' text, or every event as a line of JSON.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) mode: Mode,
    /// With `--mode json`: ask by events, and read the answers from stdin, a line of JSON each. Stdin is no part of the
    /// task then.
    #[arg(long)]
    pub(crate) ask_on_stdin: bool,
    /// Continue the newest session of this directory.
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["session", "no_session"])]
    pub(crate) resume: bool,
    /// Continue this session: its id, the beginning of it, or its name. Or a session file of Pi (a path, or a name that
    /// ends in .jsonl), which is made when it is not there: what it holds is taken in, and what is said is appended to it.
    #[arg(long, value_name = "ID|FILE", conflicts_with = "no_session")]
    pub(crate) session: Option<String>,
    /// Go on from this node in a new session, which leaves the node's own session as it is.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["resume", "session", "no_session"])]
    pub(crate) fork: Option<String>,
    /// With --session or --fork: go on in this directory, in a new session when that of the other one is another.
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) cwd: Option<PathBuf>,
    /// Keep nothing on disk.
    #[arg(long, conflicts_with = "store")]
    pub(crate) no_session: bool,
    /// Keep what the model is asked and answers in this new file, without secrets, for --replay.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Play a recording: its messages and answers, real tools; no key and no network. Stops where reality differs.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["resume", "session", "fork", "record", "provider", "model", "thinking", "api_key", "messages"],
    )]
    pub(crate) replay: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// End the run after so many turns (model calls).
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// End the run when it has cost so many US dollars; checked before each model call.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) max_cost: Option<f64>,
    /// End the run when all sessions of the store together have cost so many US dollars today; checked before each
    /// model call. `budget.daily` in settings.json sets it for every run.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) daily_budget: Option<f64>,
    #[command(flatten)]
    pub(crate) permissions: PermissionFlags,
    /// Replace the system prompt: text, or a file that holds it.
    #[arg(long, value_name = "TEXT|FILE")]
    pub(crate) system_prompt: Option<String>,
    /// Add to the system prompt: text, or a file that holds it. May be repeated.
    #[arg(long, value_name = "TEXT|FILE")]
    pub(crate) append_system_prompt: Vec<String>,
    /// Leave out AGENTS.md and its like.
    #[arg(long)]
    pub(crate) no_context_files: bool,
    /// Without a task: for screen readers, lines and words in place of a screen that is drawn. Also by
    /// QUIPU_SCREEN_READER=1, and by `screenReader` in settings.json.
    #[arg(long)]
    pub(crate) screen_reader: bool,
    /// The task, in the terminal or with `-p`. Words that begin with @ name files to include; piped stdin comes first.
    #[arg(value_name = "MESSAGE")]
    pub(crate) messages: Vec<String>,
}

/// What the tools may do.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct PermissionFlags {
    /// What is asked: every command and change; what leads out of the workspace (the default); nothing. Kept for
    /// this directory.
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) permissions: Option<ModeArg>,
    /// Let tools work in this directory as well. Kept for this directory. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,
    /// Let the model go back to earlier points of its session without asking, in this run, where it can at all
    /// (`travel.tools`).
    #[arg(long)]
    pub(crate) allow_tobe: bool,
    /// What commands may do without asking, in this run. May be repeated.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) allow: Vec<AllowArg>,
    /// Keep commands off the network, in this run. Needs commands that are confined.
    #[arg(long)]
    pub(crate) no_network: bool,
}

/// What a command otherwise asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllowArg {
    /// Use the network, where a command says that it needs it
    Network,
    /// Change .git/config, git hooks and files that configure agents, editors and shells, where a command says so
    Protected,
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ModeArg {
    /// Every command and every change is asked
    Ask,
    /// Commands are confined to the workspace; files elsewhere are asked
    #[default]
    Workspace,
    /// Nothing is asked and nothing is confined
    Full,
}

impl From<ModeArg> for quipu::PermissionMode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::Ask => Self::Ask,
            ModeArg::Workspace => Self::Workspace,
            ModeArg::Full => Self::Full,
        }
    }
}

/// Where the graph is.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct StoreArg {
    /// The store to use instead of $QUIPU_HOME/quipu.db.
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
}

/// What is read, and how it is told.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct OutArgs {
    /// For programs: as JSON, one object a line where there are several.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Mode {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cmd {
    /// A whole coding task with a scripted model: no key, no network.
    Demo(DemoArgs),
    /// What was done here, newest first.
    Sessions(SessionsArgs),
    /// Find what was said and done, in all sessions: messages, tool calls, results, paths.
    Search(SearchArgs),
    /// What was done here today, by any agent: what was asked, tools, files, cost, how it ended.
    Log(LogArgs),
    /// Which turn wrote each line of a file, and why.
    Blame(BlameArgs),
    /// One node, whole, in your pager.
    Open(OpenArgs),
    /// Tokens and cost, by day, directory, model, agent or session.
    Usage(UsageArgs),
    /// Files that a session read, wrote and edited.
    Files(FilesArgs),
    /// Look at a session or at one node of it.
    Show(ShowArgs),
    /// A session as a tree: its branches, labels, compactions and forks, and its newest nodes.
    Tree(TreeArgs),
    /// The graph around a node: what came before, which branches follow.
    Life(LifeArgs),
    /// A node in pages, with what was said before it and what stands around it.
    Recall(RecallArgs),
    /// How a lineage came about: where it was opened, where it went elsewhere.
    Trace(TraceArgs),
    /// What two branches did since they parted: messages, tools, files, tokens and cost.
    Diff(DiffArgs),
    /// A new session from any message: from a user's, it stands before it and prints it; prints the session's id.
    ///
    /// With --json: session, base, at, text, images.
    Fork(ForkArgs),
    /// Go to another node of the same session: before it when you said it, else behind it; prints where it stands now.
    ///
    /// With --json: session, from, at, head, text, images, summary, cost.
    Branch(BranchArgs),
    /// A session of its own with the same past; prints its id.
    Clone(CloneArgs),
    /// Label a node; without a text, take its label away.
    Label(LabelArgs),
    /// Name a session; without a name, take its name away.
    Rename(RenameArgs),
    /// Remove a session. Its nodes stay, and it can be gone on from by them.
    Rm(RmArgs),
    /// Go back to a node of a session with a message to the session itself, which it answers next.
    Tobe(crate::tobe::TobeArgs),
    /// Name a node; list the names.
    Bookmark(crate::bookmark::BookmarkArgs),
    /// Bring what a branch came to into a session, as one node.
    Merge(crate::merge::MergeArgs),
    /// Take back what moved a session last: a jump, a fork, a removal, or a turn. Nothing is lost.
    Undo(crate::undo::StepArgs),
    /// Do again what was undone.
    Redo(crate::undo::StepArgs),
    /// Sum up what a session's context holds, except for its end; or take that back.
    Compact(CompactArgs),
    /// What fills a session's context, and what its next turn costs.
    Context(ContextArgs),
    /// Which models can be used.
    Models(ModelsArgs),
    /// Which credentials are known; add or remove one.
    Auth(AuthArgs),
    /// What tools may do, in each directory; change or revoke it.
    Permissions(PermissionsArgs),
    /// The settings, and where each comes from; change one.
    Config(crate::config::ConfigArgs),
    /// Is this machine healthy: files, store, shell, credentials.
    Doctor(DoctorArgs),
    /// Hash JSON values as the graph does, for those who write to a store from other languages.
    Hash(HashArgs),
    /// Take in sessions of other agents: all branches, tool calls, compactions and unknown entries. May be repeated.
    Import(ImportArgs),
    /// Write a session to read, for programs, or as a file of another agent.
    Export(ExportArgs),
    /// Work that is done again and again, such as taking in what other agents write.
    Schedule(crate::schedule::ScheduleArgs),
    /// Serve sessions to a program over standard input and output, as lines of JSON.
    Serve(crate::serve::ServeArgs),
    /// Explain a command; `quipu help all` has every command and option.
    Help(HelpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Show how a session branches: one way is taken, then another from an older node.
    #[arg(long)]
    pub(crate) tour: bool,
    /// Work in this directory, and keep it. Files that are there already are left as they are, so that you can
    /// see what happens when reality differs from the recording.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// Of every directory, with those that were begun for another session or for a job.
    #[arg(long)]
    pub(crate) all: bool,
    /// At most so many; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Words that all have to be there; words in one pair of double quotes in this order. Case and accents do not
    /// matter, and nothing has another meaning.
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,
    /// Only what this agent did, such as `quipu` or `pi`.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only sessions of this directory and those below it.
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Only what one of these said: the user, the model (with its calls), tools (their results), the user's own shell
    /// commands, summaries. May be repeated.
    #[arg(long, value_name = "WHO", value_parser = speaker())]
    pub(crate) role: Vec<Speaker>,
    /// Only calls of this tool, and their results.
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only since then: a date, a time, or how long ago (30m, 12h, 3d, 2w).
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Only calls that name this file, and their results: its path or the end of it.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<String>,
    /// Only what led to this node, or to the end of this session.
    #[arg(long, value_name = "NODE|SESSION")]
    pub(crate) branch: Option<String>,
    /// The best of the newest 200 first, and not the newest.
    #[arg(long)]
    pub(crate) best: bool,
    /// By meaning as well, as `search.meaning` in settings.json says: the texts of the newest nodes are compared with the
    /// words, and both rankings mixed. With --wait and no words, only makes what it needs.
    #[arg(long, conflicts_with_all = ["best", "part"])]
    pub(crate) meaning: bool,
    /// Only whole words.
    #[arg(long, conflicts_with = "part")]
    pub(crate) exact: bool,
    /// Only parts of paths, of what tools were given, and of code.
    #[arg(long)]
    pub(crate) part: bool,
    /// At most so many hits, and five of a session; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Index everything first, where something is not indexed yet.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Since then, and not since midnight: a date, a time, or how long ago (30m, 12h, 3d, 2w).
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// In every directory, and not only here and below.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only what this agent did, such as `quipu` or `pi`.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// At most so many sessions; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BlameArgs {
    /// The file, as it is now; with a line, more is told of that one.
    #[arg(value_name = "FILE[:LINE]")]
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The node: its hash or the beginning of it, a bookmark, `HEAD`, `ext:ID`; of a session its last one.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// By what it is added up.
    #[arg(long, value_enum, default_value = "day")]
    pub(crate) by: ByArg,
    /// Only since then: a date, a time, or how long ago (30m, 12h, 3d, 2w). Times count by quarter hours.
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Only before then.
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// By what tokens and cost are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// Calendar days, here
    Day,
    /// Directories
    Project,
    /// Models
    Model,
    /// Programs
    Agent,
    /// Sessions
    Session,
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// The session: its id, its name, or the beginning of its id. Without it: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A node (its hash or the beginning of it, a bookmark, `HEAD`, `ext:ID`), or a session (its id, its name,
    /// or the beginning of its id).
    /// Without it: the newest session of this directory.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: Option<String>,
    /// The exact bytes of the model call that gave this node.
    #[arg(long, requires = "what", conflicts_with = "json")]
    pub(crate) request: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// The session: its id, its name, or the beginning of its id. Without it: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Every node, and leave nothing out.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// A node (its hash or the beginning of it, a bookmark, `ext:ID`), or a session for its last one.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: String,
    /// The new session works in this directory, and not where the other one does.
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) cwd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    /// The node: its hash or the beginning of it, a bookmark, or `ext:ID`. Its session goes there.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Let the model sum up what is left behind, and go on with that in view.
    #[arg(long, conflicts_with = "files")]
    pub(crate) summarize: bool,
    /// What the summary should look at above all. Asks for one.
    #[arg(long, value_name = "TEXT", conflicts_with = "files")]
    pub(crate) focus: Option<String>,
    /// A label for the summary, or for the place when there is none.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Ask for no more of the summary when it has cost so many US dollars.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) max_cost: Option<f64>,
    #[command(flatten)]
    pub(crate) along: FilesAlong,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// Whether files go with the conversation, and whether somebody is asked.
#[derive(Debug, Args)]
pub(crate) struct FilesAlong {
    /// The files that tools changed go along: each becomes what it was there. What would be changed is shown first.
    #[arg(long)]
    pub(crate) files: bool,
    /// Also files that somebody else changed since, or that cannot be kept as they are.
    #[arg(long, requires = "files")]
    pub(crate) overwrite: bool,
    /// Only show which files would be changed.
    #[arg(long, requires = "files")]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long, short, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// The session: its id, its name, or the beginning of its id.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// The node: its hash or the beginning of it, a bookmark, or `ext:ID`.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// The label, at most 200 characters. Nothing clears it.
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    /// The session: its id, its name, or the beginning of its id.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The name, at most 200 characters. Nothing clears it.
    #[arg(value_name = "NAME")]
    pub(crate) name: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The session: its id, its name, or the beginning of its id.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    /// The session: its id, its name, or the beginning of its id. Without it: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// What the summary should look at above all.
    #[arg(long, value_name = "TEXT")]
    pub(crate) focus: Option<String>,
    /// Go back to before the compaction that the session ends with: the next request has the whole context again.
    #[arg(long, conflicts_with_all = ["focus", "provider", "model", "thinking", "api_key"])]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) store: StoreArg,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// The session: its id, its name, or the beginning of its id. Without it: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Only models whose id or name holds this.
    #[arg(value_name = "SEARCH")]
    pub(crate) search: Option<String>,
    /// Also models without a credential, and those whose wire is not spoken yet.
    #[arg(long)]
    pub(crate) all: bool,
    /// For programs: as JSON, one object a line where there are several.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    pub(crate) action: Option<AuthAction>,
    /// For programs: as JSON, one object a line where there are several.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthAction {
    /// Store a key for a provider; it is read from stdin.
    Set {
        /// The provider, as `quipu auth` calls it.
        provider: String,
    },
    /// Forget the stored key of a provider.
    Remove {
        /// The provider, as `quipu auth` calls it.
        provider: String,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PermissionsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<PermissionsAction>,
    /// For programs: as JSON, one object a line where there are several.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PermissionsAction {
    /// What holds in each directory, and what was allowed for good.
    List,
    /// Accept a file of rules (such as `AGENTS.md`) that a command of a model made, as it is now.
    Accept {
        /// The file.
        file: PathBuf,
    },
    /// Take back what was allowed for good, or a directory that was added.
    Revoke {
        /// Its name in the list, such as `p3`.
        id: String,
    },
    /// The same as `set ask`.
    Ask,
    /// The same as `set workspace`.
    Workspace,
    /// The same as `set full`.
    Full,
    /// Say what is asked in this directory, also in sessions that are open.
    Set {
        /// How much.
        #[arg(value_enum)]
        mode: ModeArg,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// When the store is damaged: carry over what can be read into a new one. The damaged file is moved aside, never
    /// removed.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Make the indexes of the search anew, or all tables that are made from the graph. Can be stopped: said again, it goes
    /// on. Nothing but time is lost.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "all", conflicts_with = "repair")]
    pub(crate) rebuild: Option<RebuildArg>,
    /// Drop states of files that tools changed, the oldest first, until they take no more than `files.storeBytes` of
    /// `settings.json` says. Files cannot be put back to what was dropped.
    #[arg(long, conflicts_with = "repair")]
    pub(crate) prune: bool,
    /// Write the file of the store anew, without the room that is free in it. Needs as much room again meanwhile; who else
    /// writes waits.
    #[arg(long, conflicts_with = "repair")]
    pub(crate) shrink: bool,
    /// Remove the whole outputs of long commands that no session has: of sessions that are gone, and those that earlier
    /// versions kept as they were printed, to which older sessions may refer.
    #[arg(long)]
    pub(crate) drop_outputs: bool,
    /// Remove what commands wrote to caches, which is kept for each project. Tools make or download it anew.
    #[arg(long)]
    pub(crate) drop_caches: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// What is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RebuildArg {
    /// The indexes of the search
    Search,
    /// All tables that are made from the graph
    All,
}

#[derive(Debug, Args)]
pub(crate) struct HashArgs {
    /// One JSON value a line in, one hash a line out. Without it, all of stdin is one value.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

/// What a session is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A session file of Pi
    Pi,
    /// To read: headings, thinking and long results folded
    Markdown,
    /// To read: one page with its branches, folding and search, that needs nothing else
    Html,
    /// For programs: one object with every node
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Whose sessions; or the export of an account (a ZIP, the folder that it was unpacked to), of which it is told whose it is.
    /// Without it: what all agents keep on this machine is shown, and you are asked.
    #[arg(value_name = "AGENT|FILE")]
    pub(crate) agent: Option<String>,
    /// A session file, an export, or a directory of them. Without it: where that agent keeps its sessions.
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on with what is written from now on, as it is written, until Ctrl-C.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// What to write.
    #[arg(long, value_enum)]
    pub(crate) format: ExportFormat,
    /// The session: its id, its name, or the beginning of its id.
    #[arg(value_name = "SESSION")]
    pub(crate) id: String,
    /// Write to this new file, and not to stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

fn speaker() -> impl TypedValueParser<Value = Speaker> {
    PossibleValuesParser::new(Speaker::ALL.map(Speaker::name)).try_map(|name| {
        Speaker::ALL.into_iter().find(|speaker| speaker.name() == name).ok_or("it is nobody's name")
    })
}

fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text).canonicalize().map_err(|error| error.to_string())?;
    if path.is_dir() { Ok(path) } else { Err("it is no directory".into()) }
}

fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(amount) if amount.is_finite() && amount > 0.0 => Ok(amount),
        _ => Err("give an amount in US dollars above 0, such as 0.50".into()),
    }
}
