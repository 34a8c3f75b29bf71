//! Commands that run in the background of a session: started by `bash`, listed, read and killed by `background`.
//!
//! A command belongs to the [`BackgroundCommands`] that started it and ends with them. Its processes are in the registry of
//! `bash`, so they die with the agent however it ends.

mod handover;
mod input;
mod log;
mod output;

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use quipu_protocol::{BackgroundEnd, BackgroundId, KillReason};
use quipu_workspace::{
    CommandNeeds, OutputBuffer, OutputLimits, OutputPlace, ProcessRegistry, ReadyShell, Sandbox,
    ShellCommand, ShellEnd, ShellError, SpillState,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::truncate::{MAX_BYTES, MAX_LINES};
pub(crate) use handover::{AwaitedCommand, HandedOver, LiveOutput, Patience};
use input::InputState;
pub(crate) use input::{AfterInput, INPUT_LIMIT};
use log::LogSource;
pub(crate) use log::{LogLines, LogRange};
use output::UnreadOutput;
pub use output::UnreadText;

/// Background commands of one session at once.
pub const MOST_BACKGROUND: usize = 16;
/// Ended ones whose output can still be read.
const KEPT: usize = 16;
/// Bytes of the file that holds the whole output of one.
pub(crate) const SPILL_BYTES: u64 = 64 << 20;
/// The longest wait for killed ones to be gone.
const GONE: Duration = Duration::from_secs(8);

/// What a background command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundEvent {
    /// It runs.
    Started {
        /// Its id.
        id: BackgroundId,
        /// The command line as it runs, secrets included.
        command: String,
    },
    /// It ended.
    Ended {
        /// Its id.
        id: BackgroundId,
        /// The command line as it ran, secrets included.
        command: String,
        /// How.
        end: BackgroundEnd,
        /// How long it ran.
        took: Duration,
        /// Bytes of its output that the model has not read.
        unread: u64,
    },
}

/// Hears of background commands, one event at a time for each.
pub type BackgroundObserver =
    Arc<dyn Fn(BackgroundEvent) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Why a background command was not started, or was not found.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// Too many run.
    #[error(
        "{MOST_BACKGROUND} background commands run already, which is the limit. Kill one with `background`, or wait for \
         an end. Nothing was run."
    )]
    TooMany,
    /// The session ends.
    #[error("The session is ending, so no background command starts. Nothing was run.")]
    Closed,
    /// The session has none.
    #[error("Background commands are off here. Run the command without `run_in_background`.")]
    Off,
    /// There is none with this id.
    #[error("No background command {0} in this session{known}", known = known(.1))]
    NoSuch(String, Vec<BackgroundId>),
    /// The file with its output cannot be read.
    #[error("The output of the command cannot be read: {0}")]
    Log(#[source] std::io::Error),
    /// It was started without input.
    #[error("{0} has no input. Start it with `input`: true beside `run_in_background`.")]
    NoInput(BackgroundId),
    /// Its input was closed, by a call or by itself.
    #[error("The input of {0} is closed.")]
    InputClosed(BackgroundId),
    /// It has ended.
    #[error("{0} {1}, so it reads no input.")]
    HasEnded(BackgroundId, BackgroundEnd),
    /// More than is written at once.
    #[error("The text has {0} bytes. The limit is {INPUT_LIMIT}. Nothing was written.")]
    InputTooLong(usize),
    /// It did not read all of it.
    #[error(
        "{id} did not read its input within {seconds} s: {written} of {of} bytes were written, and the rest was not. \
         It may be busy, or read nothing."
    )]
    NotRead {
        /// The command.
        id: BackgroundId,
        /// Bytes that were written.
        written: usize,
        /// Of so many.
        of: usize,
        /// How long it was waited.
        seconds: f64,
    },
    /// The call was stopped.
    #[error("Aborted: {1} of {2} bytes were written to {0}.")]
    InputAborted(BackgroundId, usize, usize),
    /// The shell did not start.
    #[error(transparent)]
    Shell(#[from] ShellError),
}

fn known(ids: &[BackgroundId]) -> String {
    let ids: Vec<&str> = ids.iter().map(BackgroundId::as_str).collect();
    if ids.is_empty() { ": it has none.".to_owned() } else { format!(": it has {}.", ids.join(", ")) }
}

/// What is known of a background command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundStatus {
    /// Its id.
    pub id: BackgroundId,
    /// The command line as it runs, secrets included.
    pub command: String,
    /// How long it runs, or ran.
    pub took: Duration,
    /// How it ended; `None` while it runs.
    pub end: Option<BackgroundEnd>,
    /// Bytes of output that the model has not read.
    pub unread: u64,
    /// Whether its standard input is open.
    pub takes_input: bool,
}

/// A command to start in the background.
pub(crate) struct BackgroundLaunch<'a> {
    /// The run that starts it.
    pub(crate) run: &'a str,
    pub(crate) command: String,
    pub(crate) cwd: PathBuf,
    pub(crate) env: Arc<[(String, Option<String>)]>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) input: InputMode,
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    pub(crate) needs: CommandNeeds,
    pub(crate) outputs: &'a OutputPlace,
    pub(crate) registry: &'a Arc<ProcessRegistry>,
}

/// Whether a background command has a standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// It reads nothing.
    None,
    /// It reads what is written to it.
    Open,
}

/// The background commands of a session. Clones are handles of the same ones; with the last handle they end.
#[derive(Clone, Default)]
pub struct BackgroundCommands(Arc<CommandGroup>);

#[derive(Default)]
struct CommandGroup {
    state: Mutex<State>,
    observer: OnceLock<BackgroundObserver>,
    root: CancellationToken,
}

#[derive(Default)]
struct State {
    /// The number of the last one.
    last: u64,
    commands: VecDeque<Arc<BackgroundCommand>>,
    /// Those that a call still waits for. Nobody else knows of them.
    awaited: Vec<Arc<BackgroundCommand>>,
    /// What all of them that ever ran may have left behind.
    owners: Vec<(Arc<ProcessRegistry>, String)>,
    closed: bool,
}

/// A background command, also after its end.
struct BackgroundCommand {
    /// It has none while a call waits for it, and gets none once it has ended. Given under the lock of `progress`.
    id: OnceLock<BackgroundId>,
    command: String,
    started: Instant,
    cancel: CancellationToken,
    /// Whether a sandbox confines it, and what it may do there.
    is_confined: bool,
    needs: CommandNeeds,
    input: InputState,
    progress: Mutex<Progress>,
    /// Shows the output while a call waits for it.
    live: Mutex<Option<LiveOutput>>,
    /// It printed something.
    news: Notify,
    /// The observer has heard that it runs.
    heard: CancellationToken,
    /// It has ended, and whoever hears of it has heard.
    over: CancellationToken,
}

#[derive(Default)]
struct Progress {
    output: UnreadOutput,
    /// The file with all of its output.
    file: Option<PathBuf>,
    killed_for: Option<KillReason>,
    end: Option<(BackgroundEnd, Duration)>,
}

impl std::fmt::Debug for BackgroundCommands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackgroundCommands").field("count", &self.0.state().commands.len()).finish()
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        self.root.cancel();
    }
}

impl CommandGroup {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// All that run, those that a call waits for too.
    fn running(&self) -> impl Iterator<Item = &Arc<BackgroundCommand>> {
        self.commands.iter().chain(&self.awaited).filter(|one| one.runs())
    }

    /// Lists one, and forgets the oldest that ended where there are too many.
    fn enlist(&mut self, running: Arc<BackgroundCommand>) {
        self.commands.push_back(running);
        let ended = self.commands.iter().filter(|one| !one.runs()).count();
        if ended > KEPT
            && let Some(oldest) = self.commands.iter().position(|one| !one.runs())
        {
            self.commands.remove(oldest);
        }
    }
}

impl BackgroundCommand {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empty while a call waits for it.
    fn id(&self) -> BackgroundId {
        self.id.get().cloned().unwrap_or_else(|| "".into())
    }

    fn runs(&self) -> bool {
        self.progress().end.is_none()
    }

    fn status(&self) -> BackgroundStatus {
        let progress = self.progress();
        let (end, took) = match &progress.end {
            Some((end, took)) => (Some(end.clone()), *took),
            None => (None, self.started.elapsed()),
        };
        let unread = progress.output.unread();
        let takes_input = end.is_none() && self.input.is_open();
        let (id, command) = (self.id(), self.command.clone());
        BackgroundStatus { id, command, took, end, unread, takes_input }
    }

    fn absorb(&self, output: &OutputBuffer) {
        let mut progress = self.progress();
        progress.output.absorb(output);
        if let SpillState::Complete(path) | SpillState::Limited(path) = output.spill()
            && progress.file.is_none()
        {
            progress.file = Some(path.to_path_buf());
            progress.output.is_filed();
        }
        drop(progress);
        self.news.notify_waiters();
    }

    fn kill(&self, reason: KillReason) {
        self.progress().killed_for.get_or_insert(reason);
        self.cancel.cancel();
    }
}

impl BackgroundCommands {
    /// Numbers go on after `last`, the highest one that the session had before.
    pub fn after(last: u64) -> Self {
        let commands = Self::default();
        commands.0.state().last = last;
        commands
    }

    /// The number in an id.
    pub fn number(id: &str) -> Option<u64> {
        id.strip_prefix('b')?.parse().ok()
    }

    /// Who hears of them; the first call counts.
    pub fn observe(&self, observer: BackgroundObserver) {
        drop(self.0.observer.set(observer));
    }

    /// Starts a command.
    pub(crate) async fn start(&self, launch: BackgroundLaunch<'_>) -> Result<BackgroundId, BackgroundError> {
        let running = self.launch(launch, None)?;
        running.heard.cancelled().await;
        Ok(running.id())
    }

    /// Starts a command that somebody waits for. Another one is told of before it does anything.
    fn launch(
        &self,
        launch: BackgroundLaunch<'_>,
        mut waiter: Option<Waiter>,
    ) -> Result<Arc<BackgroundCommand>, BackgroundError> {
        let limits = OutputLimits { lines: MAX_LINES as u64, bytes: MAX_BYTES, spill_bytes: SPILL_BYTES };
        let output = OutputBuffer::new(limits, launch.outputs);
        let (running, shell) = {
            let mut state = self.0.state();
            if state.closed {
                return Err(BackgroundError::Closed);
            }
            if state.running().count() >= MOST_BACKGROUND {
                return Err(BackgroundError::TooMany);
            }
            let id = waiter.is_none().then(|| format!("b{}", state.last + 1));
            let owner = match &id {
                Some(id) => format!("{}-{id}", launch.run),
                // As what other calls of the run leave behind.
                None => launch.run.to_owned(),
            };
            let command = ShellCommand {
                owner: &owner,
                command: &launch.command,
                cwd: &launch.cwd,
                env: &launch.env,
                timeout: None,
                sandbox: launch.sandbox.as_deref(),
                needs: launch.needs,
            };
            let (shell, input) = match launch.input {
                InputMode::None => (ReadyShell::start(&command, launch.registry)?, InputState::none()),
                InputMode::Open => {
                    let (shell, input) = ReadyShell::start_with_input(&command, launch.registry)?;
                    (shell, InputState::of(input))
                }
            };
            let running = Arc::new(BackgroundCommand {
                id: id.map(|id| OnceLock::from(BackgroundId::from(id))).unwrap_or_default(),
                command: launch.command,
                started: Instant::now(),
                cancel: self.0.root.child_token(),
                is_confined: launch.sandbox.is_some(),
                needs: launch.needs,
                input,
                progress: Mutex::default(),
                live: Mutex::new(waiter.as_mut().and_then(|waiter| waiter.live.take())),
                news: Notify::new(),
                heard: CancellationToken::new(),
                over: CancellationToken::new(),
            });
            if waiter.is_some() {
                state.awaited.push(running.clone());
            } else {
                state.last += 1;
                state.owners.push((launch.registry.clone(), owner));
                state.enlist(running.clone());
            }
            (running, shell)
        };
        if waiter.is_none() {
            self.tell_start(&running);
        }
        let (following, observer) = (running.clone(), self.0.observer.get().cloned());
        let (timeout, sandbox) = (launch.timeout, launch.sandbox);
        tokio::spawn(async move {
            if waiter.is_none() {
                following.heard.cancelled().await;
            }
            follow(following, shell, timeout, sandbox, output, observer, waiter).await;
        });
        Ok(running)
    }

    /// Tells that one runs. `heard` fires when that was heard, also where nobody hears.
    fn tell_start(&self, running: &BackgroundCommand) {
        let heard = running.heard.clone().drop_guard();
        let Some(observer) = self.0.observer.get().cloned() else { return };
        let (id, command) = (running.id(), running.command.clone());
        tokio::spawn(async move {
            observer(BackgroundEvent::Started { id, command }).await;
            drop(heard);
        });
    }

    /// All that run, and the last ones that ended, oldest first.
    pub fn list(&self) -> Vec<BackgroundStatus> {
        self.0.state().commands.iter().map(|one| one.status()).collect()
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.0.state().commands.iter().filter(|one| one.runs()).count()
    }

    fn find(&self, id: &str) -> Result<Arc<BackgroundCommand>, BackgroundError> {
        let state = self.0.state();
        let found = state.commands.iter().find(|one| one.id().as_str() == id).cloned();
        let known = || state.commands.iter().map(|one| one.id()).collect();
        found.ok_or_else(|| BackgroundError::NoSuch(id.to_owned(), known()))
    }

    pub(crate) fn status(&self, id: &str) -> Result<BackgroundStatus, BackgroundError> {
        Ok(self.find(id)?.status())
    }

    /// The output that the model has not read, which counts as read from then on.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn read(&self, id: &str) -> Result<(BackgroundStatus, UnreadText), BackgroundError> {
        let running = self.find(id)?;
        let mut progress = running.progress();
        let has_ended = progress.end.is_some();
        let mut text = progress.output.take(has_ended);
        text.file = progress.file.clone();
        drop(progress);
        Ok((running.status(), text))
    }

    /// Waits until one has printed something that can be read, or has ended; at most so long.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn wait(
        &self,
        id: &str,
        longest: Duration,
        cancel: &CancellationToken,
    ) -> Result<(), BackgroundError> {
        let running = self.find(id)?;
        let news = async {
            loop {
                let printed = running.news.notified();
                let mut printed = std::pin::pin!(printed);
                // From here on nothing is missed.
                printed.as_mut().enable();
                let has_news = {
                    let progress = running.progress();
                    progress.end.is_some() || progress.output.has_news(false)
                };
                if has_news {
                    return;
                }
                tokio::select! {
                    () = printed => {}
                    () = running.over.cancelled() => return,
                }
            }
        };
        tokio::select! {
            () = news => {}
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(longest) => {}
        }
        Ok(())
    }

    /// Lines of the whole output of one, in bounded memory; nothing counts as read.
    ///
    /// # Errors
    /// There is none with this id, or its file cannot be read.
    pub(crate) async fn log(
        &self,
        id: &str,
        range: LogRange,
    ) -> Result<(BackgroundStatus, LogLines), BackgroundError> {
        let running = self.find(id)?;
        let source = {
            let progress = running.progress();
            match &progress.file {
                Some(path) => LogSource::File(path.clone()),
                None => {
                    let (text, before) = progress.output.log(progress.end.is_some());
                    LogSource::Text { text: text.to_owned(), before }
                }
            }
        };
        let read = tokio::task::spawn_blocking(move || source.lines(range)).await;
        let lines = read.map_err(std::io::Error::other).and_then(|lines| lines);
        Ok((running.status(), lines.map_err(BackgroundError::Log)?))
    }

    /// The end of the output, at most 16 KB, secrets included; nothing counts as read.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn tail(&self, id: &str) -> Result<String, BackgroundError> {
        Ok(self.find(id)?.progress().output.recent().to_owned())
    }

    /// Kills one with everything that it started, and waits until it is gone and its observer has heard.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn kill(&self, id: &str, reason: KillReason) -> Result<BackgroundStatus, BackgroundError> {
        let running = self.find(id)?;
        running.kill(reason);
        drop(tokio::time::timeout(GONE, running.over.cancelled()).await);
        Ok(running.status())
    }

    /// Kills all, and what ended ones left running; waits until they are gone, at most some seconds. Gives how many ran.
    pub async fn kill_all(&self, reason: KillReason) -> usize {
        let (running, owners) = {
            let mut state = self.0.state();
            let running: Vec<_> = state.running().cloned().collect();
            (running, std::mem::take(&mut state.owners))
        };
        running.iter().for_each(|one| one.kill(reason));
        let gone = async {
            for one in &running {
                one.over.cancelled().await;
            }
        };
        drop(tokio::time::timeout(GONE, gone).await);
        if !owners.is_empty() {
            let left = move || owners.iter().for_each(|(registry, owner)| registry.kill_owned(owner));
            drop(tokio::task::spawn_blocking(left).await);
        }
        running.len()
    }

    /// Kills all, and starts none any more.
    pub async fn close(&self) -> usize {
        self.0.state().closed = true;
        self.kill_all(KillReason::Close).await
    }
}

/// Who waits for a command.
struct Waiter {
    /// Taken when the command is launched.
    live: Option<LiveOutput>,
    end: oneshot::Sender<(OutputBuffer, Result<ShellEnd, ShellError>)>,
    /// Weak: commands end with the last handle.
    group: Weak<CommandGroup>,
}

/// Takes what a command prints until it ends. Who waits for it gets its end, unless it was handed over before.
async fn follow(
    running: Arc<BackgroundCommand>,
    shell: ReadyShell,
    timeout: Option<Duration>,
    sandbox: Option<Arc<Sandbox>>,
    mut output: OutputBuffer,
    observer: Option<BackgroundObserver>,
    waiter: Option<Waiter>,
) {
    let progress = |output: &OutputBuffer| {
        running.absorb(output);
        running.show(output);
    };
    let ended = shell.run(timeout, sandbox.as_deref(), &running.cancel, &mut output, &progress).await;
    running.absorb(&output);
    let took = running.started.elapsed();
    let (id, end, unread) = {
        let mut progress = running.progress();
        let end = match &ended {
            Ok(ShellEnd::Exited(code)) => BackgroundEnd::Exited(*code),
            Ok(ShellEnd::Signalled(signal)) => BackgroundEnd::Signalled(*signal),
            Ok(ShellEnd::TimedOut) => BackgroundEnd::TimedOut,
            Ok(ShellEnd::Cancelled) => {
                BackgroundEnd::Killed(progress.killed_for.unwrap_or(KillReason::Close))
            }
            Err(error) => BackgroundEnd::Lost(error.to_string()),
        };
        progress.end = Some((end.clone(), took));
        (running.id.get().cloned(), end, progress.output.unread())
    };
    match (id, waiter) {
        (None, Some(waiter)) => {
            if let Some(group) = waiter.group.upgrade() {
                group.state().awaited.retain(|one| !Arc::ptr_eq(one, &running));
            }
            // Nobody waits where the call was dropped.
            drop(waiter.end.send((output, ended)));
        }
        (id, _) => {
            running.heard.cancelled().await;
            if let (Some(id), Some(observer)) = (id, observer) {
                let command = running.command.clone();
                observer(BackgroundEvent::Ended { id, command, end, took, unread }).await;
            }
        }
    }
    running.input.close();
    running.over.cancel();
}
