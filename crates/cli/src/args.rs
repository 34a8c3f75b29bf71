//! What can be said on the command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use quipu_store::Speaker;

mod auth;
mod help;
mod import;
mod model;
mod permissions;
mod profile;
mod run_mode;
mod tools;
mod travel;

pub(crate) use auth::{AuthAction, AuthArgs, LoginArgs};
pub(crate) use help::{END_OF_ALL, HelpArgs};
pub(crate) use import::ImportArgs;
pub(crate) use model::ModelArgs;
pub(crate) use permissions::{EffectArg, PermissionsAction, PermissionsArgs};
pub(crate) use profile::ProfileArg;
pub(crate) use run_mode::RunModeArg;
pub(crate) use tools::ToolsArgs;
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
    /// Run one task without the terminal and exit. Answers go to stdout, progress to stderr.
    #[arg(short, long)]
    pub(crate) print: bool,
    /// With `-p`: print text as it arrives. If an answer breaks off, stderr says so and the retry is printed again.
    #[arg(long)]
    pub(crate) stream: bool,
    /// What a program reads, and what it can say. `rpc` is for programs that drive Pi.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) mode: Mode,
    /// With `--mode json`: ask questions as events and read the answers from stdin, one line of JSON each. Stdin is
    /// then not part of the task.
    #[arg(long)]
    pub(crate) ask_on_stdin: bool,
    /// Continue the newest session of this directory.
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["session", "no_session"])]
    pub(crate) resume: bool,
    /// Continue a session: its id, the start of its id, or its name. A path, or a name that ends in .jsonl, is a
    /// session file of Pi: it is imported first, new messages are appended to it, and it is created if it does not
    /// exist.
    #[arg(long, value_name = "ID|FILE", conflicts_with = "no_session")]
    pub(crate) session: Option<String>,
    /// Start a new session from this node. The session of the node does not change.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["resume", "session", "no_session"])]
    pub(crate) fork: Option<String>,
    /// With --session or --fork: work in this directory. If the session belongs to another directory, a copy of it
    /// continues here.
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) cwd: Option<PathBuf>,
    /// Write nothing to disk.
    #[arg(long, conflicts_with = "store")]
    pub(crate) no_session: bool,
    /// Record the requests and answers of the model in this new file, without secrets, for --replay.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Replay a recording: recorded messages and answers, real tools, no key and no network. Stops where a tool
    /// behaves differently.
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
    /// Let the model search the web at its provider, for this run. What it looks for leaves this machine, and no
    /// search is asked.
    #[arg(long)]
    pub(crate) web_search: bool,
    /// With `-p`: the last answer is one JSON value that fits the JSON Schema in this file, and stdout holds nothing else.
    /// An answer that does not fit is asked for again, at most twice.
    #[arg(long, value_name = "FILE", requires = "print", conflicts_with_all = ["replay", "stream"])]
    pub(crate) output_schema: Option<PathBuf>,
    /// End the run after N turns (model calls).
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// End the run before it costs more than this many US dollars. Checked before each model call.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) max_cost: Option<f64>,
    /// End the run when all sessions of the store have cost this many US dollars today. Checked before each model
    /// call. `budget.daily` in settings.json sets it for every run.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) daily_budget: Option<f64>,
    /// With `-p`: work as an agent that `agents.byId` in settings.json sets up, with its model, its workspace, its tools and its
    /// budget.
    #[arg(long, value_name = "ID", requires = "print", conflicts_with = "replay")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) permissions: PermissionFlags,
    /// Run a new session another way. It keeps that when it continues.
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) profile: Option<ProfileArg>,
    /// Replace the system prompt: text, or a file that holds it.
    #[arg(long, value_name = "TEXT|FILE")]
    pub(crate) system_prompt: Option<String>,
    /// Add to the system prompt: text, or a file that holds it. May be repeated.
    #[arg(long, value_name = "TEXT|FILE")]
    pub(crate) append_system_prompt: Vec<String>,
    /// Do not read AGENTS.md and similar files.
    #[arg(long)]
    pub(crate) no_context_files: bool,
    /// In the terminal: print plain lines for screen readers instead of drawing a screen. QUIPU_SCREEN_READER=1 and
    /// `screenReader` in settings.json do the same.
    #[arg(long)]
    pub(crate) screen_reader: bool,
    /// The task, in the terminal or with `-p`. Words that begin with @ name files to include; piped stdin comes first.
    #[arg(value_name = "MESSAGE")]
    pub(crate) messages: Vec<String>,
}

/// What the tools may do.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct PermissionFlags {
    /// When to ask: for every command and change; for what leaves the workspace (the default); never. Remembered
    /// for this directory. `plan` is --plan.
    #[arg(long, value_enum, value_name = "MODE", alias = "permission-mode")]
    pub(crate) permissions: Option<RunModeArg>,
    /// Plan mode: the session only reads until a person accepts a plan. With `-p` the plan is the answer.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Let tools work in this directory too. Remembered for the current directory. Repeatable.
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,
    /// Let the model go back to earlier points of its session without asking, for this run. Needs `travel.tools`.
    #[arg(long)]
    pub(crate) allow_tobe: bool,
    /// What commands may do without asking, for this run. Repeatable.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) allow: Vec<AllowArg>,
    /// Deny commands the network and offer no web tools, for this run. Needs the sandbox.
    #[arg(long)]
    pub(crate) no_network: bool,
}

/// What a command otherwise asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllowArg {
    /// Use the network, if the command says that it needs it
    Network,
    /// Change .git/config, git hooks and files that configure agents, editors and shells, if the command says so
    Protected,
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ModeArg {
    /// Ask for every command and every change
    Ask,
    /// Confine commands to the workspace; ask for files elsewhere
    #[default]
    Workspace,
    /// Never ask and confine nothing
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

#[derive(Debug, Args, Clone, Default)]
pub(crate) struct StoreArg {
    /// The store to use instead of $QUIPU_HOME/quipu.db.
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args, Clone, Default)]
pub(crate) struct OutArgs {
    /// Print JSON for programs: one object, or one per line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Mode {
    /// The text of the answers
    #[default]
    Text,
    /// Every event as a line of JSON
    Json,
    /// Commands as lines of JSON on stdin, responses and events on stdout, until stdin ends; needs no `-p`
    Rpc,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cmd {
    /// Watch a whole coding task with a scripted model: no key, no network.
    Demo(DemoArgs),
    /// List the sessions of this directory, newest first.
    Sessions(SessionsArgs),
    /// Search all sessions: messages, tool calls, results, paths.
    Search(SearchArgs),
    /// Show, correct and forget the notes that sessions read and write; switch memory on and off.
    Memory(crate::memory::MemoryArgs),
    /// Show summaries of the past by time, what they were made of, and make them.
    Past(crate::past::PastArgs),
    /// Show what agents did here today: requests, tools, files, cost, outcome.
    Log(LogArgs),
    /// Show which turn wrote each line of a file, and why.
    Blame(BlameArgs),
    /// Show one node in full in your pager.
    Open(OpenArgs),
    /// Add up tokens and cost by day, directory, model, agent or session.
    Usage(UsageArgs),
    /// List the files that a session read, wrote and edited.
    Files(FilesArgs),
    /// Show a session or one of its nodes.
    Show(ShowArgs),
    /// Show a session as a tree: branches, labels, compactions, forks and the newest nodes.
    Tree(TreeArgs),
    /// Show the graph around a node: what came before it and which branches follow.
    Life(LifeArgs),
    /// Read a node page by page, with the conversation around it.
    Recall(RecallArgs),
    /// Trace how a lineage came about: where it was opened and where it jumped.
    Trace(TraceArgs),
    /// Compare two branches since they parted: messages, tools, files, tokens and cost.
    Diff(DiffArgs),
    /// Start a new session from any message and print its id. From your own message: starts just before it and
    /// prints it for editing.
    ///
    /// With --json: session, base, at, text, images.
    Fork(ForkArgs),
    /// Move a session to another of its nodes and print where it is now. To your own message: goes just before it.
    ///
    /// With --json: session, from, at, head, text, images, summary, cost.
    Branch(BranchArgs),
    /// Copy a session into a new one with the same history and print its id.
    Clone(CloneArgs),
    /// Label a node; without a text, remove its label.
    Label(LabelArgs),
    /// Name a session; without a name, remove its name.
    Rename(RenameArgs),
    /// Remove a session. Its nodes are kept; you can still fork from them.
    Rm(RmArgs),
    /// Send a session back to one of its nodes with a message to itself, which it answers next.
    Tobe(crate::tobe::TobeArgs),
    /// Name a node; list the names.
    Bookmark(crate::bookmark::BookmarkArgs),
    /// Merge the outcome of a branch into a session as one node.
    Merge(crate::merge::MergeArgs),
    /// Undo the last move of a session: a jump, a fork, a removal or a turn. Nothing is lost.
    Undo(crate::undo::StepArgs),
    /// Redo what was undone.
    Redo(crate::undo::StepArgs),
    /// Summarize the older part of a session's context, or undo that.
    Compact(CompactArgs),
    /// Show what fills a session's context and what its next turn costs.
    Context(ContextArgs),
    /// List the tools that a session here offers, and which rule removed the others.
    Tools(ToolsArgs),
    /// List the models that you can use.
    Models(ModelsArgs),
    /// List, add and remove credentials.
    Auth(AuthArgs),
    /// Show and change what tools may do in each directory.
    Permissions(PermissionsArgs),
    /// Say whether commits of the model's commands name their node in a trailer, in the repository here.
    Git(crate::git::GitArgs),
    /// Show and change settings, with the source of each value.
    Config(crate::config::ConfigArgs),
    /// List, add, remove and test MCP servers, whose tools sessions use.
    Mcp(crate::mcp::McpArgs),
    /// List the sub-agents that the model can send, and what of their files has no effect.
    Agents(crate::agents::AgentsArgs),
    /// List skills, templates and rules files: where they lie, what they cost, which are not used.
    Skills(crate::skills::SkillsArgs),
    /// List, add, update and remove packages of skills and templates.
    Packages(crate::packages::PackagesArgs),
    /// Give other agents on this machine the history, or take it out of their settings again.
    Setup(crate::setup::SetupArgs),
    /// Check this installation: files, store, shell, credentials.
    Doctor(DoctorArgs),
    /// Say how this program was installed and what to run for a newer version; nothing is downloaded.
    Update(crate::update::UpdateArgs),
    /// Hash JSON values as the graph does, for programs that write to a store.
    Hash(HashArgs),
    /// Import sessions of other agents, with all branches, tool calls and compactions. Safe to repeat.
    Import(ImportArgs),
    /// Export a session for people, for programs, or as a file of another agent.
    Export(ExportArgs),
    /// Manage scheduled work, such as importing what other agents write.
    Schedule(crate::schedule::ScheduleArgs),
    /// Promote what was recalled often to the long-term memory; show what a dream would do and did.
    Dream(crate::dream::DreamArgs),
    /// Serve sessions to an editor: an agent of the Agent Client Protocol over stdin and stdout.
    Acp(crate::acp::AcpArgs),
    /// Serve sessions to programs: as lines of JSON over stdin and stdout, or over HTTP and WebSocket.
    Serve(crate::serve::ServeArgs),
    /// Answer a hook of another agent: it reads the payload on stdin and prints what the agent's hooks take back. Ends within
    /// 50 ms, with exit code 0 and without output where it has nothing to say. `quipu setup` writes it into agents' settings.
    #[command(hide = true)]
    Hook(crate::hook::HookArgs),
    /// Keep sessions of Pi for its extension, which starts this: lines of JSON over stdin and stdout.
    #[command(hide = true)]
    PiHelper(crate::pi_helper::PiHelperArgs),
    /// Pass model calls of other programs on, and keep their conversations as sessions.
    Proxy(crate::proxy::ProxyArgs),
    /// Explain a command; `quipu help all` has every command and option.
    Help(HelpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Show how a session branches: take one way, then another from an older node.
    #[arg(long)]
    pub(crate) tour: bool,
    /// Work in this directory and keep it. Existing files are not overwritten, so you can see what happens when
    /// they differ from the recording.
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
    /// Print at most N; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Words that must all occur; words in double quotes must occur in this order. Case and accents are ignored.
    /// There are no operators.
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,
    /// Only what this agent did, such as `quipu` or `pi`.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only sessions of this directory and those below it.
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Only text of this speaker: the user, the model (with its calls), tools (their results), the user's shell
    /// commands, summaries. Repeatable.
    #[arg(long, value_name = "WHO", value_parser = speaker())]
    pub(crate) role: Vec<Speaker>,
    /// Only calls of this tool, and their results.
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only since then: a date, a time, or an age (30m, 12h, 3d, 2w).
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Only calls that name this file, and their results. A path or the end of one.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<String>,
    /// Only what led to this node, or to the end of this session.
    #[arg(long, value_name = "NODE|SESSION")]
    pub(crate) branch: Option<String>,
    /// Sort the newest 200 hits by relevance instead of by time.
    #[arg(long)]
    pub(crate) best: bool,
    /// Also search by similar meaning, with the embedding model that `search.semantic` in settings.json names, and mix both
    /// rankings. With --wait and no words, only build the vectors.
    #[arg(long, alias = "meaning", conflicts_with_all = ["best", "part"])]
    pub(crate) semantic: bool,
    /// Only whole words.
    #[arg(long, conflicts_with = "part")]
    pub(crate) exact: bool,
    /// Only parts of paths, of what tools were given, and of code.
    #[arg(long)]
    pub(crate) part: bool,
    /// Print at most N hits, and five of one session; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Finish indexing first.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Start then instead of at midnight: a date, a time, or an age (30m, 12h, 3d, 2w).
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Include every directory, not only this one and those below it.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only what this agent did, such as `quipu` or `pi`.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Print at most N sessions; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BlameArgs {
    /// The file as it is now. With :LINE, shows details for that line.
    #[arg(value_name = "FILE[:LINE]")]
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The node: its hash or the start of it, a bookmark, `HEAD`, or `ext:ID`. A session means its last node.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// What to group by.
    #[arg(long, value_enum, default_value = "day")]
    pub(crate) by: ByArg,
    /// Only since then: a date, a time, or an age (30m, 12h, 3d, 2w). Times are rounded to quarter hours.
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
    /// Days, in this time zone
    Day,
    /// Directories
    Project,
    /// Models
    Model,
    /// Programs
    Agent,
    /// Sessions
    Session,
    /// What calls are for: answers, summaries, work in the background
    Purpose,
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// The session: its id, the start of its id, or its name. Default: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A node (its hash or the start of it, a bookmark, `HEAD`, `ext:ID`), or a session (its id, the start of its
    /// id, or its name). Default: the newest session of this directory.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: Option<String>,
    /// Print the exact bytes of the model call that produced this node.
    #[arg(long, requires = "what", conflicts_with = "json")]
    pub(crate) request: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// The session: its id, the start of its id, or its name. Default: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print every node.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// A node (its hash or the start of it, a bookmark, `ext:ID`), or a session for its last node.
    #[arg(value_name = "NODE|SESSION")]
    pub(crate) what: String,
    /// The directory of the new session. Default: that of the original.
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) cwd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    /// The node: its hash or the start of it, a bookmark, or `ext:ID`.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Have the model summarize the branch that is left, and continue with that summary.
    #[arg(long, conflicts_with = "files")]
    pub(crate) summarize: bool,
    /// What the summary should focus on. Implies --summarize.
    #[arg(long, value_name = "TEXT", conflicts_with = "files")]
    pub(crate) focus: Option<String>,
    /// A label for the summary, or for the node if there is no summary.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Stop the summary when it has cost this many US dollars.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) max_cost: Option<f64>,
    #[command(flatten)]
    pub(crate) restore: RestoreArgs,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// Options that restore files together with the conversation.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Restore the files that tools changed to their state at that node. Shows the changes first.
    #[arg(long)]
    pub(crate) files: bool,
    /// Also restore files that somebody else changed since, or whose current state cannot be saved.
    #[arg(long, requires = "files")]
    pub(crate) overwrite: bool,
    /// Only show which files would change.
    #[arg(long, requires = "files")]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long, short, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// The session: its id, the start of its id, or its name.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// The node: its hash or the start of it, a bookmark, or `ext:ID`.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// The label, at most 200 characters.
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    /// The session: its id, the start of its id, or its name.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The name, at most 200 characters.
    #[arg(value_name = "NAME")]
    pub(crate) name: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The session: its id, the start of its id, or its name.
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
    /// The session: its id, the start of its id, or its name. Default: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// What the summary should focus on.
    #[arg(long, value_name = "TEXT")]
    pub(crate) focus: Option<String>,
    /// Undo the compaction at the end of the session: the next request has the whole context again.
    #[arg(long, conflicts_with_all = ["focus", "provider", "model", "thinking", "api_key"])]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) store: StoreArg,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// The session: its id, the start of its id, or its name. Default: the newest of this directory.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Show what stood in the request that a node answers: system prompt, past, boundary, what was left out, conversation.
    #[arg(long, value_name = "NODE")]
    pub(crate) at: Option<String>,
    /// Show how many characters each section of the system prompt, each file in it, each tool and each skill has, and where the cache boundary is.
    #[arg(long, conflicts_with = "at")]
    pub(crate) report: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Only models whose id or name contains this.
    #[arg(value_name = "SEARCH")]
    pub(crate) search: Option<String>,
    /// Include models without a credential, and those whose API is not supported yet.
    #[arg(long)]
    pub(crate) all: bool,
    /// Take the catalogue of models from a file or a URL; without a value, from where it was taken the last time.
    #[arg(long, value_name = "FILE|URL", num_args = 0..=1, conflicts_with_all = ["search", "all"])]
    pub(crate) refresh: Option<Option<String>>,
    /// Go back to the catalogue that comes with the program.
    #[arg(long, conflicts_with_all = ["search", "all", "refresh"])]
    pub(crate) built_in: bool,
    /// Print JSON for programs: one object, or one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Repair a damaged store: copy what can be read into a new one. The damaged file is renamed, never removed.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Rebuild the search indexes, or all tables that are derived from the graph. If you stop it, run it again to
    /// continue.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "all", conflicts_with = "repair")]
    pub(crate) rebuild: Option<RebuildArg>,
    /// Drop saved file states, oldest first, until they fit `files.storeBytes` of settings.json. Files cannot be
    /// restored to dropped states.
    #[arg(long, conflicts_with = "repair")]
    pub(crate) prune: bool,
    /// Rewrite the store file without its free space. Needs as much free disk space meanwhile; other writers wait.
    #[arg(long, conflicts_with = "repair")]
    pub(crate) shrink: bool,
    /// Remove saved outputs of long commands that no session uses: those of removed sessions, and those of earlier
    /// versions, to which older sessions may refer.
    #[arg(long)]
    pub(crate) drop_outputs: bool,
    /// Remove what commands wrote to the caches of each project. Tools create or download it again.
    #[arg(long)]
    pub(crate) drop_caches: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// What to rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RebuildArg {
    /// The search indexes
    Search,
    /// All tables that are derived from the graph
    All,
}

#[derive(Debug, Args)]
pub(crate) struct HashArgs {
    /// Read one JSON value per line and print one hash per line. Default: all of stdin is one value.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A session file of Pi
    Pi,
    /// For people: headings, with thinking and long results folded
    Markdown,
    /// For people: one self-contained page with branches, folding and search
    Html,
    /// For programs: one object with every node
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The format to write.
    #[arg(long, value_enum, required_unless_present = "state")]
    pub(crate) format: Option<ExportFormat>,
    /// The session: its id, the start of its id, or its name.
    #[arg(value_name = "SESSION", required_unless_present = "state")]
    pub(crate) id: Option<String>,
    /// Write to this new file instead of stdout; with --state to this new directory.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write a state directory of this agent, `openclaw`, instead of one session: agents, conversations with their sessions,
    /// approvals of commands and jobs.
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["format", "id"], requires = "output")]
    pub(crate) state: Option<String>,
    /// With --state: write credentials too, which anyone can use who can read the directory.
    #[arg(long, requires = "state")]
    pub(crate) credentials: bool,
    /// With --state: print what is written as JSON, one object per line.
    #[arg(long, requires = "state")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

fn speaker() -> impl TypedValueParser<Value = Speaker> {
    PossibleValuesParser::new(Speaker::ALL.map(Speaker::name)).try_map(|name| {
        Speaker::ALL.into_iter().find(|speaker| speaker.name() == name).ok_or("unknown speaker")
    })
}

fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text).canonicalize().map_err(|error| error.to_string())?;
    if path.is_dir() { Ok(path) } else { Err("it is not a directory".into()) }
}

fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(amount) if amount.is_finite() && amount > 0.0 => Ok(amount),
        _ => Err("give an amount in US dollars above 0, such as 0.50".into()),
    }
}
