//! Running one command line to its end.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::child::{Child, Launch, is_here, prepares_bash};
use crate::container::ContainerCommand;
use crate::registry::Ticket;
use crate::sandbox::CommandGuard;
use crate::tree::{MARK, Victims, kill_tree};
use crate::{CommandNeeds, Helpers, OutputBuffer, ProcessRegistry, Sandbox};

/// A command line and where to run it.
#[derive(Debug, Clone)]
pub struct ShellCommand<'a> {
    /// Whose it is, for [`ProcessRegistry::kill_owned`]: letters, digits and `-`; may be empty.
    pub owner: &'a str,
    /// For the shell's `-c`.
    pub command: &'a str,
    /// The directory to run it in.
    pub cwd: &'a Path,
    /// Environment beyond what is inherited: name and value; `None` removes.
    pub env: &'a [(String, Option<String>)],
    /// When to kill it.
    pub timeout: Option<Duration>,
    /// What confines it, if anything does.
    pub sandbox: Option<&'a Sandbox>,
    /// What it may do besides, in the sandbox's namespaces.
    pub needs: CommandNeeds,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellEnd {
    /// With this exit code.
    Exited(i32),
    /// Killed by this signal, not by us.
    Signalled(i32),
    /// Killed by us when its time was over.
    TimedOut,
    /// Killed by us because we were told to stop.
    Cancelled,
}

/// A command that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The directory to run it in is not there.
    #[error("Working directory does not exist: {cwd}\nCannot execute bash commands.", cwd = .0.display())]
    NoDirectory(PathBuf),
    /// The command line cannot be handed to a program at all.
    #[error("The command holds a NUL character, which no program can be given. Nothing was run.")]
    Nul,
    /// The command line and the environment are longer than the system takes.
    #[error(
        "The command is too long for this system ({0} bytes). Nothing was run. Write it to a file and run that."
    )]
    TooLong(usize),
    /// The system did not start the shell.
    #[error("Cannot start {shell}: {source}. Nothing was run.")]
    Spawn {
        /// The program that runs commands.
        shell: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It should be confined and cannot.
    #[error("Cannot confine the command: {0}. Nothing was run.")]
    Sandbox(io::Error),
    /// The helper that ends commands when the agent dies did not start.
    #[error(
        "Cannot start the helper process that ends commands together with the agent: {0}. Nothing was run."
    )]
    Guardian(io::Error),
    /// The output or the end of the command could not be read; it was killed.
    #[error("Lost contact with the running command, so it was killed: {0}")]
    Lost(io::Error),
}

/// How long the pipe may be silent after the shell is gone, before what still holds it is left alone.
const IDLE: Duration = Duration::from_millis(100);
/// How long output is taken after the shell is gone, however busy its background processes are.
const AFTER_EXIT: Duration = Duration::from_secs(2);
/// How often `progress` is told.
const PROGRESS: Duration = Duration::from_millis(100);
/// How long a killed shell may take to be gone; longer only when it hangs inside the kernel.
const REAP: Duration = Duration::from_secs(5);

/// Before a command line for bash: it begins once it is told to, and never when we are gone before. In the same line,
/// so that the numbers of lines stay what they are; bash reads a line to its end before it does any of it.
const GATE: &str = "read -r _ && exec </dev/null || exit; ";
/// The same as a program that becomes the shell: for other shells, and where the environment prepares bash.
const GATE_AROUND: &str = r#"read -r QUIPU_GATE && exec "$0" -c "$1" </dev/null; exit 125"#;

/// Runs a command line with bash (`/bin/bash`, else the one on `PATH`, else `sh`) in a session of its own, with
/// no input and no terminal. Both its outputs go to `output` in the order of arrival.
///
/// Returns when the shell is gone and its output has ended or been silent for 100 ms: a process in the
/// background that keeps the output open stays alive (its later output is thrown away) and belongs to `registry`.
/// On `cancel`, at the timeout, and when the future is dropped, everything that the command started gets SIGKILL,
/// also what left its process group (on Linux). `progress` is called at most every 100 ms, when output came.
///
/// # Errors
/// [`ShellError`] when nothing was run, or contact was lost. An exit code is not an error here.
pub async fn run_shell(
    command: ShellCommand<'_>,
    registry: &Arc<ProcessRegistry>,
    cancel: &CancellationToken,
    output: &mut OutputBuffer,
    progress: &(dyn Fn(&OutputBuffer) + Send + Sync),
) -> Result<ShellEnd, ShellError> {
    let shell = start(&command, registry, StartMode::AtOnce)?;
    shell.run(command.timeout, command.sandbox, cancel, output, progress).await
}

/// When a shell starts its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartMode {
    /// Once nothing is in its way.
    AtOnce,
    /// When [`ReadyShell::run`] tells it to.
    WhenTold,
}

/// A shell that was started and waits for the word to do what it was given. Until then nothing of the command
/// happens. Dropped, or when the agent dies, it ends without having done anything.
#[derive(Debug)]
pub struct ReadyShell {
    running: RunningShell,
    pipe: pipe::Receiver,
    gate: Option<io::PipeWriter>,
}

impl ReadyShell {
    /// Starts it, within a tokio runtime; takes half a millisecond, and the shell itself another. The timeout of
    /// `command` is not looked at.
    ///
    /// # Errors
    /// As [`run_shell`].
    pub fn start(command: &ShellCommand<'_>, registry: &Arc<ProcessRegistry>) -> Result<Self, ShellError> {
        start(command, registry, StartMode::WhenTold)
    }

    /// Whether it is still there.
    pub fn waits(&mut self) -> bool {
        matches!(self.running.child.try_wait(), Ok(None))
    }

    /// Lets it begin; from here on it is [`run_shell`]. The time runs from now. `sandbox`: what it was started in.
    ///
    /// # Errors
    /// [`ShellError::Lost`], [`ShellError::Sandbox`].
    pub async fn run(
        self,
        timeout: Option<Duration>,
        sandbox: Option<&Sandbox>,
        cancel: &CancellationToken,
        output: &mut OutputBuffer,
        progress: &(dyn Fn(&OutputBuffer) + Send + Sync),
    ) -> Result<ShellEnd, ShellError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Self { mut running, pipe, gate } = self;
        running.begun = sandbox.map(Sandbox::begin).transpose().map_err(ShellError::Sandbox)?;
        if let Some(mut gate) = gate
            && let Err(error) = io::Write::write_all(&mut gate, b"\n")
            // Nobody waits at the gate when the first line is not one of the shell's language.
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(ShellError::Lost(error));
        }
        watch(running, pipe, deadline, cancel, output, progress).await
    }
}

/// Takes what a command prints until it ends, by itself or by us.
async fn watch(
    mut running: RunningShell,
    mut pipe: pipe::Receiver,
    deadline: Option<Instant>,
    cancel: &CancellationToken,
    output: &mut OutputBuffer,
    progress: &(dyn Fn(&OutputBuffer) + Send + Sync),
) -> Result<ShellEnd, ShellError> {
    let stop = async {
        match deadline {
            Some(deadline) => tokio::select! {
                biased;
                () = cancel.cancelled() => ShellEnd::Cancelled,
                () = sleep_until(deadline) => ShellEnd::TimedOut,
            },
            None => {
                cancel.cancelled().await;
                ShellEnd::Cancelled
            }
        }
    };
    tokio::pin!(stop);
    let mut buffer = vec![0; 64 * 1024];
    let mut ticks = interval(PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut news = false;
    let mut open = true;
    let mut exit: Option<(ShellEnd, Instant)> = None;

    let end = loop {
        if let Some((end, since)) = exit
            && (!open || since.elapsed() >= AFTER_EXIT)
        {
            break end;
        }
        tokio::select! {
            // What must not wait comes first: a command that never stops printing is always ready to be read.
            biased;
            end = &mut stop => break end,
            _ = ticks.tick(), if news => {
                news = false;
                progress(output);
            }
            end = running.child.wait(), if exit.is_none() => {
                exit = Some((end.map_err(ShellError::Lost)?, Instant::now()));
            }
            read = timeout(if exit.is_some() { IDLE } else { Duration::MAX }, pipe.read(&mut buffer)), if open => {
                match read {
                    Ok(Ok(0)) => open = false,
                    Ok(Ok(got)) => {
                        output.push(&buffer[..got]).await;
                        news = true;
                    }
                    Ok(Err(error)) => return Err(ShellError::Lost(error)),
                    // Silent for long enough.
                    Err(_) => if let Some((end, _)) = exit {
                        break end;
                    },
                }
            }
        }
    };
    match end {
        ShellEnd::Exited(_) | ShellEnd::Signalled(_) => running.leave(open.then_some(pipe)),
        ShellEnd::TimedOut | ShellEnd::Cancelled => {
            running.kill().await;
            // What was printed before the end.
            let until = Instant::now() + AFTER_EXIT;
            while let Ok(Ok(got @ 1..)) = timeout(IDLE, pipe.read(&mut buffer)).await {
                output.push(&buffer[..got]).await;
                if Instant::now() >= until {
                    break;
                }
            }
        }
    }
    output.finish().await;
    Ok(end)
}

fn start(
    command: &ShellCommand<'_>,
    registry: &Arc<ProcessRegistry>,
    begin: StartMode,
) -> Result<ReadyShell, ShellError> {
    let directory = std::fs::metadata(command.cwd).ok().filter(std::fs::Metadata::is_dir);
    let Some(directory) = directory else {
        return Err(ShellError::NoDirectory(command.cwd.to_path_buf()));
    };
    if command.command.contains('\0') {
        return Err(ShellError::Nul);
    }
    let ticket = registry.announce(command.owner).map_err(ShellError::Guardian)?;
    let (pipe, output) = io::pipe().map_err(ShellError::Lost)?;
    let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(pipe)).map_err(ShellError::Lost)?;
    let shell = find_shell();
    let contained = command.sandbox.filter(|sandbox| sandbox.containers().is_some());
    let (launch, gate) = match contained {
        Some(sandbox) => {
            let (input, gate) = io::pipe().map_err(ShellError::Lost)?;
            let inside = ContainerCommand {
                command: command.command,
                cwd: command.cwd,
                variables: command.env,
                mark: &ticket.mark,
                input: Some(input.into()),
                output: output.into(),
            };
            (sandbox.container_launch(inside).map_err(ShellError::Sandbox)?, Some(gate))
        }
        None => local_launch(command, &shell, begin, &directory, &ticket, output)?,
    };
    let started = match command.sandbox {
        Some(sandbox) => sandbox.launch(launch, command.needs).map_err(ShellError::Sandbox)?,
        None if launch.here => launch.start().map(|pid| (pid, None)),
        None => std::thread::scope(|scope| {
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            let started = scope.spawn(move || launch.start()).join().unwrap_or_else(panicked);
            started.map(|pid| (pid, None))
        }),
    };
    let failed = |source: io::Error| match source.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(nix::errno::Errno::E2BIG) => ShellError::TooLong(command.command.len()),
        _ => ShellError::Spawn { shell: shell.clone(), source },
    };
    let (pid, status) = started.map_err(failed)?;
    let leader = pid.as_raw_nonzero().get();
    let child = status.map_or_else(|| Child::new(pid), |status| Child::kept(pid, status));
    let running =
        RunningShell { child, leader, ticket, registry: registry.clone(), over: false, begun: None };
    registry.started(&running.ticket, leader).map_err(ShellError::Guardian)?;
    Ok(ReadyShell { running, pipe, gate })
}

/// How a command is started that has no container, and its gate.
fn local_launch(
    command: &ShellCommand<'_>,
    shell: &Path,
    begin: StartMode,
    directory: &std::fs::Metadata,
    ticket: &Ticket,
    output: io::PipeWriter,
) -> Result<(Launch, Option<io::PipeWriter>), ShellError> {
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    // With it, `cd sub` could lead elsewhere than rules and people read.
    environment.remove(OsStr::new("CDPATH"));
    if let Some(sandbox) = command.sandbox {
        let temporary = sandbox.temporary().map_err(ShellError::Sandbox)?;
        for name in ["TMPDIR", "TMP", "TEMP", "TMUX_TMPDIR"] {
            environment.insert(name.into(), temporary.clone().into());
        }
    }
    for (name, value) in command.env {
        match value {
            Some(value) => environment.insert(name.into(), value.into()),
            None => environment.remove(OsStr::new(name)),
        };
    }
    if let Some(sandbox) = command.sandbox {
        for (name, path) in sandbox.environment().map_err(ShellError::Sandbox)? {
            environment.insert(name.into(), path);
        }
        // With the network of the user there is no such proxy.
        if !command.needs.network {
            for (name, value) in sandbox.proxy().map_err(ShellError::Sandbox)? {
                environment.insert(name.into(), value.into());
            }
        }
    }
    environment.insert(MARK.into(), ticket.mark.clone().into());
    let around = !shell.ends_with("bash") || prepares_bash(&environment);
    // A confined command waits until the thread that started it is gone: see `sandbox`.
    let gated = command.sandbox.is_some() || begin == StartMode::WhenTold;
    let gate = gated.then(io::pipe).transpose().map_err(ShellError::Lost)?;
    let (program, arguments): (&Path, Vec<OsString>) = match gate {
        None => (shell, vec!["-c".into(), command.command.into()]),
        Some(_) if around => {
            let arguments = vec!["-c".into(), GATE_AROUND.into(), shell.into(), command.command.into()];
            (Path::new("/bin/sh"), arguments)
        }
        Some(_) => (shell, vec!["-c".into(), [GATE, command.command].concat().into()]),
    };
    let (input, gate) = gate.map_or((None, None), |(input, gate)| (Some(input), Some(gate)));
    let launch = Launch {
        program: program.to_path_buf(),
        arguments,
        environment,
        cwd: command.cwd.to_path_buf(),
        here: is_here(directory),
        input: input.map(OwnedFd::from),
        output: output.into(),
    };
    Ok((launch, gate))
}

fn find_shell() -> PathBuf {
    let helpers = Helpers::of_this_process();
    let found = helpers.find("/bin/bash").or_else(|| helpers.find("bash"));
    found.unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// A running shell. Dropping it before its end also ends everything that it started.
#[derive(Debug)]
struct RunningShell {
    child: Child,
    leader: i32,
    ticket: Ticket,
    registry: Arc<ProcessRegistry>,
    over: bool,
    begun: Option<CommandGuard>,
}

impl RunningShell {
    /// Ends it and everything that it started.
    async fn kill(mut self) {
        let (leader, mark) = (self.leader, self.ticket.mark.clone());
        let killed =
            tokio::task::spawn_blocking(move || kill_tree(Victims::Command { leader, mark: &mark })).await;
        if killed.is_err() {
            kill_tree(Victims::Command { leader: self.leader, mark: &self.ticket.mark });
        }
        timeout(REAP, self.child.wait()).await.ok();
        self.over = true;
        self.registry.finished(&self.ticket, None);
    }

    /// The shell ended by itself. Its background processes live on; `pipe` is read for them, or they would
    /// be killed by their next line of output.
    fn leave(mut self, pipe: Option<pipe::Receiver>) {
        self.over = true;
        let drain = pipe.map(|mut pipe| {
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while matches!(pipe.read(&mut buffer).await, Ok(1..)) {}
            })
        });
        self.registry.finished(&self.ticket, drain);
    }
}

impl Drop for RunningShell {
    fn drop(&mut self) {
        if !self.over {
            kill_tree(Victims::Command { leader: self.leader, mark: &self.ticket.mark });
            // Dead by now; take its number back from the system.
            self.child.try_wait().ok();
            self.registry.finished(&self.ticket, None);
        }
    }
}
