//! Where a command writes and where it is: the streams and the directory of the process; or, for a command that the
//! terminal runs within this process, what the terminal shows of it and the directory of its session.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quipu_tui::OutputStream;
use tokio_util::sync::CancellationToken;

use crate::args::Cli;
use crate::exit::Failure;

/// Milliseconds between two looks at whether a command that waits for a key is to end.
const LOOK: u8 = 50;

/// How long a command that was stopped may take to give back what it held.
const SETTLES: std::time::Duration = std::time::Duration::from_secs(2);

thread_local! {
    /// What the command of this thread is run within.
    static SCOPE: RefCell<Option<CommandScope>> = const { RefCell::new(None) };
}

/// The directory and the streams of a command that the terminal runs.
#[derive(Debug, Clone)]
struct CommandScope {
    here: PathBuf,
    /// It is to end.
    stopped: CancellationToken,
    /// What it writes; `None` where it has the streams of the process.
    written: Option<Arc<Mutex<CapturedOutput>>>,
    /// Takes its progress.
    progress: Option<ProgressSink>,
}

/// Takes the progress of a command, in one line.
#[derive(Clone)]
pub(crate) struct ProgressSink(pub(crate) Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// The output of a command, in the order in which it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct CapturedOutput {
    pub(crate) pieces: Vec<CapturedPiece>,
}

/// What was written to one stream in a row.
#[derive(Debug, Clone)]
pub(crate) struct CapturedPiece {
    pub(crate) stream: OutputStream,
    pub(crate) bytes: Vec<u8>,
}

impl CapturedOutput {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(last) if last.stream == stream => last.bytes.extend_from_slice(bytes),
            _ => self.pieces.push(CapturedPiece { stream, bytes: bytes.to_vec() }),
        }
    }
}

fn scope() -> Option<CommandScope> {
    SCOPE.with_borrow(Clone::clone)
}

fn written() -> Option<Arc<Mutex<CapturedOutput>>> {
    scope()?.written
}

/// Whether a terminal shows what a command writes.
pub(crate) fn is_within() -> bool {
    written().is_some()
}

/// The directory that a command is for, without symbolic links.
pub(crate) fn current_dir() -> Result<PathBuf, Failure> {
    match scope() {
        Some(scope) => Ok(scope.here),
        None => Ok(quipu_host::current_dir()?),
    }
}

/// A path as the command means it: below the directory that it is for.
pub(crate) fn in_current_dir(path: &std::path::Path) -> Result<PathBuf, Failure> {
    if path.is_absolute() { Ok(path.to_owned()) } else { Ok(current_dir()?.join(path)) }
}

/// Takes the progress of the command of this thread, where the terminal runs it.
pub(crate) fn progress_sink() -> Option<ProgressSink> {
    scope()?.progress
}

#[derive(Debug)]
pub(crate) struct Stdout(Option<Arc<Mutex<CapturedOutput>>>);

/// Where results go.
pub(crate) fn stdout() -> Stdout {
    Stdout(written())
}

impl Stdout {
    pub(crate) fn is_terminal(&self) -> bool {
        self.0.is_none() && io::stdout().is_terminal()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(written) => {
                written.lock().unwrap_or_else(PoisonError::into_inner).push(OutputStream::Out, bytes);
                Ok(bytes.len())
            }
            None => io::stdout().lock().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.0 {
            Some(_) => Ok(()),
            None => io::stdout().lock().flush(),
        }
    }
}

/// Columns and rows of the terminal that results go to.
pub(crate) fn size() -> Option<(terminal_size::Width, terminal_size::Height)> {
    if is_within() { None } else { terminal_size::terminal_size_of(io::stdout()) }
}

/// Where input comes from: nowhere for a command that the terminal shows.
pub(crate) fn stdin() -> Box<dyn io::BufRead> {
    match scope() {
        None => Box::new(io::stdin().lock()),
        Some(CommandScope { written: Some(_), .. }) => Box::new(io::empty()),
        Some(CommandScope { stopped, .. }) => Box::new(io::BufReader::new(TerminalInput(stopped))),
    }
}

/// What is typed while a command has the terminal; nothing is taken any more once it is to end.
struct TerminalInput(CancellationToken);

impl io::Read for TerminalInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        loop {
            let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(LOOK)) {
                // What comes from now on is for the terminal.
                _ if self.0.is_cancelled() => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the command was stopped"));
                }
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(nix::unistd::read(stdin.as_fd(), buffer)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether a person can type something in.
pub(crate) fn is_typed() -> bool {
    !is_within() && io::stdin().is_terminal()
}

/// A line for people.
pub(crate) fn tell(line: &str) {
    match written() {
        Some(written) => {
            let line = format!("{line}\n");
            written.lock().unwrap_or_else(PoisonError::into_inner).push(OutputStream::Err, line.as_bytes());
        }
        // A terminal that is gone cannot be told so.
        None => drop(writeln!(io::stderr().lock(), "{line}")),
    }
}

/// Whether people see a line at once, on a terminal.
pub(crate) fn shows_people() -> bool {
    !is_within() && io::stderr().is_terminal()
}

/// Runs a command of the program in a thread of its own, as on its command line: with the streams of the process when it is
/// `shown`, or with none. What it wrote, and how it ended. Dropped: it ends.
pub(crate) async fn run_within(
    words: Vec<String>,
    here: PathBuf,
    shown: bool,
    progress: Option<ProgressSink>,
) -> (CapturedOutput, Result<(), Failure>) {
    run_scoped(here, shown, progress, async move || {
        match Cli::try_parse_from(std::iter::once("quipu".to_owned()).chain(words)) {
            Ok(cli) => Box::pin(crate::dispatch(&cli)).await,
            Err(error) if error.use_stderr() => Err(Failure::usage(error.to_string().trim_end())),
            Err(help) => Ok(write!(stdout(), "{help}")?),
        }
    })
    .await
}

/// The same for anything else that a command does.
pub(crate) async fn work_within<T: Send + 'static>(
    here: PathBuf,
    shown: bool,
    work: impl AsyncFnOnce() -> Result<T, Failure> + Send + 'static,
) -> (CapturedOutput, Result<T, Failure>) {
    run_scoped(here, shown, None, work).await
}

async fn run_scoped<T: Send + 'static>(
    here: PathBuf,
    shown: bool,
    progress: Option<ProgressSink>,
    work: impl AsyncFnOnce() -> Result<T, Failure> + Send + 'static,
) -> (CapturedOutput, Result<T, Failure>) {
    let cancel = CancellationToken::new();
    let stopped = cancel.clone();
    // Dropped with the future.
    let _stops = cancel.drop_guard();
    let written = (!shown).then(Arc::default);
    let kept: Option<Arc<Mutex<CapturedOutput>>> = written.clone();
    let work = move || {
        SCOPE.set(Some(CommandScope { here, stopped: stopped.clone(), written, progress }));
        let _out = ScopeReset;
        wait_for(work, &stopped)
    };
    let result = tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::failed("the command panicked; this is a bug, please report it")));
    let written = kept.map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner).clone());
    (written.unwrap_or_default(), result)
}

/// Removes the command's scope from its thread, also after a panic.
struct ScopeReset;

impl Drop for ScopeReset {
    fn drop(&mut self) {
        SCOPE.set(None);
    }
}

/// Waits until what was begun is done, such as giving back what a command held that was stopped; not for long.
async fn settled() {
    let runtime = tokio::runtime::Handle::current();
    let done = async {
        while runtime.metrics().num_alive_tasks() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    drop(tokio::time::timeout(SETTLES, done).await);
}

fn wait_for<T>(
    work: impl AsyncFnOnce() -> Result<T, Failure>,
    stopped: &CancellationToken,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            () = stopped.cancelled() => Err(Failure::failed("the command was stopped")),
            result = work() => result,
        }
    });
    if stopped.is_cancelled() {
        runtime.block_on(settled());
    }
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    result
}
