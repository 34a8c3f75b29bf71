//! The `quipu` command: arguments, wiring, exit codes. What a session does is the engine's business.

mod acp;
mod agents;
mod args;
mod ask;
mod auth;
mod auth_keys;
mod bearer_token;
mod blame;
mod bookmark;
mod branch;
mod compact;
mod config;
mod confirm;
mod console;
mod context;
mod context_at;
mod context_report;
mod demo;
mod diagnostics;
mod diff;
mod doctor;
#[cfg(test)]
mod documents;
mod dream;
mod exit;
mod export;
mod export_state;
mod files;
mod fork;
mod git;
mod hash;
mod help;
mod home;
mod hook;
mod import;
mod import_settings;
mod import_state;
mod input;
mod label;
mod life;
mod log;
mod login;
mod mcp;
mod mcp_serve;
mod memory;
mod memory_search;
mod merge;
mod meters;
mod models;
mod open;
mod output_schema;
mod packages;
mod pager;
#[cfg(test)]
mod pages;
mod past;
mod permissions;
mod pi_helper;
mod pick;
mod planning;
mod print;
mod proxy;
mod recall;
mod restore_files;
mod rm;
mod rpc;
mod run;
mod schedule;
mod search;
mod serve;
mod session_command;
mod sessions;
mod setup;
mod show;
mod signals;
mod skills;
mod slash;
mod spoken_text;
mod svg;
mod terminal;
mod tobe;
mod tools;
mod trace;
mod tree;
mod undo;
mod units;
mod update;
mod usage;
mod wording;

use std::process::ExitCode;

use tokio::signal::unix::SignalKind;

use args::{Cli, Cmd, Task};
use diagnostics::Front;
use exit::Failure;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// File descriptors that a run needs at least.
const DESCRIPTORS: usize = 32;

/// Task polls between two checks for IO events. The default of 61 delays key presses while a model streams fast.
const EVENT_INTERVAL: u32 = 8;

/// Whether there are enough file descriptors to begin with: parts of the runtime cannot say so when there are not.
fn descriptors() -> std::io::Result<()> {
    let first = std::fs::File::open("/")?;
    (1..DESCRIPTORS).map(|_| first.try_clone()).collect::<std::io::Result<Vec<_>>>().map(drop)
}

fn main() -> ExitCode {
    let began = std::time::Instant::now();
    // Before there is a second thread.
    if std::env::args_os().nth(1).is_some_and(|first| first == quipu_host::SANDBOX) {
        return quipu::run_launcher(&quipu_host::launcher());
    }
    // Before anything is made that costs time: another agent waits.
    if hook::is_called() {
        return hook::run(began);
    }
    let cli = help::arguments();
    if let Err(error) = signals::unblock() {
        print::note(format!("quipu: signals cannot be received: {error}"));
        return ExitCode::FAILURE;
    }
    if let Err(error) = descriptors() {
        print::note(format!(
            "quipu: files cannot be opened: {error}; it needs {DESCRIPTORS} file descriptors and more for tools, so \
             raise the limit (`ulimit -n 1024`) or close something"
        ));
        return ExitCode::FAILURE;
    }
    diagnostics::start(if draws(&cli) { Front::Terminal } else { Front::Lines });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            print::note(format!("quipu: the runtime could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(dispatch(&cli));
    // Reads that hang in a thread (a dead network file system) must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    for text in diagnostics::notes() {
        print::note(format!("warning: {text}"));
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit, message, .. }) => {
            if !message.is_empty() {
                print::note(format!("quipu: {message}"));
            }
            exit.into()
        }
    }
}

/// Whether a task runs without the terminal: where that is asked for, or there is none.
fn runs_task(task: &Task) -> bool {
    task.print || task.replay.is_some() || (!task.messages.is_empty() && !terminal::is_there(task))
}

/// Whether the terminal is drawn on.
fn draws(cli: &Cli) -> bool {
    cli.command.is_none()
        && cli.task.mode != args::Mode::Rpc
        && !runs_task(&cli.task)
        && terminal::is_there(&cli.task)
}

pub(crate) async fn dispatch(cli: &Cli) -> Result<(), Failure> {
    // With a handler, a write beyond the limit on file sizes is an error that we can tell; without, it kills us.
    drop(tokio::signal::unix::signal(SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32)));
    match &cli.command {
        Some(Cmd::Demo(args)) => demo::run(args).await,
        Some(Cmd::Sessions(args)) => sessions::run(args).await,
        Some(Cmd::Search(args)) => search::run(args).await,
        Some(Cmd::Memory(args)) => memory::run(args).await,
        Some(Cmd::Past(args)) => past::run(args).await,
        Some(Cmd::Log(args)) => log::run(args).await,
        Some(Cmd::Blame(args)) => blame::run(args).await,
        Some(Cmd::Open(args)) => open::run(args).await,
        Some(Cmd::Usage(args)) => usage::run(args).await,
        Some(Cmd::Files(args)) => files::run(args).await,
        Some(Cmd::Show(args)) => show::run(args).await,
        Some(Cmd::Tree(args)) => tree::run(args).await,
        Some(Cmd::Life(args)) => life::run(args).await,
        Some(Cmd::Recall(args)) => recall::run(args).await,
        Some(Cmd::Trace(args)) => trace::run(args).await,
        Some(Cmd::Diff(args)) => diff::run(args).await,
        Some(Cmd::Fork(args)) => fork::run(args).await,
        Some(Cmd::Branch(args)) => branch::run(args).await,
        Some(Cmd::Clone(args)) => fork::clone(args).await,
        Some(Cmd::Label(args)) => label::run(args).await,
        Some(Cmd::Rename(args)) => label::rename(args).await,
        Some(Cmd::Rm(args)) => rm::run(args).await,
        Some(Cmd::Bookmark(args)) => bookmark::run(args).await,
        Some(Cmd::Merge(args)) => merge::run(args).await,
        Some(Cmd::Tobe(args)) => tobe::run(args).await,
        Some(Cmd::Undo(args)) => undo::undo(args).await,
        Some(Cmd::Redo(args)) => undo::redo(args).await,
        Some(Cmd::Compact(args)) => compact::run(args).await,
        Some(Cmd::Context(args)) => context::run(args).await,
        Some(Cmd::Tools(args)) => Box::pin(tools::run(args)).await,
        Some(Cmd::Models(args)) => models::run(args).await,
        Some(Cmd::Auth(args)) => auth::run(args).await,
        Some(Cmd::Permissions(args)) => permissions::run(args),
        Some(Cmd::Git(args)) => git::run(args),
        Some(Cmd::Config(args)) => config::run(args).await,
        Some(Cmd::Mcp(args)) => mcp::run(args).await,
        Some(Cmd::Agents(args)) => agents::run(args),
        Some(Cmd::Skills(args)) => skills::run(args),
        Some(Cmd::Packages(args)) => packages::run(args).await,
        Some(Cmd::Setup(args)) => setup::run(args),
        Some(Cmd::Doctor(args)) => doctor::run(args).await,
        Some(Cmd::Update(args)) => update::run(args),
        Some(Cmd::Hash(args)) => hash::run(args),
        Some(Cmd::Import(args)) => import::run(args).await,
        Some(Cmd::Export(args)) => export::run(args).await,
        Some(Cmd::Schedule(args)) => schedule::run(args).await,
        Some(Cmd::Dream(args)) => dream::run(args).await,
        Some(Cmd::Acp(args)) => Box::pin(acp::run(args)).await,
        Some(Cmd::Serve(args)) => Box::pin(serve::run(args)).await,
        // Asked for with too few arguments, or with `--help`: both end before.
        Some(Cmd::Hook(_)) => Ok(()),
        Some(Cmd::PiHelper(args)) => pi_helper::run(args).await,
        Some(Cmd::Proxy(args)) => proxy::run(args).await,
        Some(Cmd::Help(args)) => help::run(args),
        None if !cli.task.print => {
            help::refuse_command(&cli.task.messages)?;
            run_or_draw(&cli.task).await
        }
        None => run_or_draw(&cli.task).await,
    }
}

async fn run_or_draw(task: &Task) -> Result<(), Failure> {
    match task {
        task if task.mode == args::Mode::Rpc => Box::pin(rpc::run(task)).await,
        task if runs_task(task) => run::run(task).await,
        task if terminal::is_there(task) => terminal::run(task).await,
        task => Err(Failure::usage(format!(
            "{}: give a task with `quipu -p \"…\"` (piped stdin comes first); `quipu demo` runs an example without a key, `quipu --help` lists everything",
            terminal::why_not(task)
        ))),
    }
}
