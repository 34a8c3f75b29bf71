//! Other programs that have the terminal: the user's editor, a command of ours, the shell.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quipu::{Clock as _, SystemClock};
use quipu_workspace::Helpers;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

use super::{ExitReason, Run, TaskMessage};
use crate::host::{HostError, HostFuture};
use crate::state::{EditorError, UiEvent};
use crate::terminal::{Terminal, TerminalInput};

/// How long a program may take to end when we are asked to, and again when it is killed.
const LAST: Duration = Duration::from_secs(2);

/// An external program that uses the terminal.
pub(super) struct LentTerminal {
    /// Its process; `None` where there is none.
    process: Option<Pid>,
    /// It is asked to end with us: what it has written counts however it ends.
    ends: Arc<AtomicBool>,
}

/// What comes next of a terminal; of one that another program has, only that we are to end.
pub(super) async fn next(terminal: &mut Terminal, is_external: bool) -> TerminalInput {
    if is_external { TerminalInput::End(terminal.asked_to_end().await) } else { terminal.next().await }
}

impl Run {
    /// Lets another program have the terminal until it ends; what comes of that is an input. Everything else goes on
    /// meanwhile.
    pub(super) fn lend(
        &mut self,
        program: std::process::Command,
        then: impl FnOnce(Result<(), EditorError>, bool) -> UiEvent + Send + 'static,
    ) {
        self.leave_screen();
        let name = Path::new(program.get_program()).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let mut program = tokio::process::Command::from(program);
        let child = program.kill_on_drop(true).spawn();
        let id = child.as_ref().ok().and_then(tokio::process::Child::id);
        let ends = Arc::new(AtomicBool::new(false));
        let process = id.and_then(|id| Pid::from_raw(id.cast_signed()));
        self.external = Some(LentTerminal { process, ends: ends.clone() });
        let up = self.up.clone();
        self.tasks.spawn(async move {
            let status = match child {
                Ok(mut child) => child.wait().await,
                Err(error) => Err(error),
            };
            let ended = match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(EditorError::Failed { name, status }),
                Err(error) => Err(EditorError::NotStarted { name, error }),
            };
            drop(up.send(TaskMessage::Back(Box::new(then(ended, ends.load(Ordering::Relaxed))))));
        });
    }

    fn leave_screen(&mut self) {
        let bytes = self.finish();
        self.tty.write(bytes);
        self.tty.leave();
    }

    /// The same for something that this process does. Ctrl-C ends it.
    pub(super) fn lend_to(
        &mut self,
        work: HostFuture<()>,
        then: impl FnOnce(Result<(), HostError>, bool) -> UiEvent + Send + 'static,
    ) {
        self.leave_screen();
        let ends = Arc::new(AtomicBool::new(false));
        self.external = Some(LentTerminal { process: None, ends: ends.clone() });
        let up = self.up.clone();
        self.tasks.spawn(async move {
            let interrupted = async {
                match tokio::signal::unix::signal(SignalKind::interrupt()) {
                    Ok(mut interrupt) => drop(interrupt.recv().await),
                    Err(_) => std::future::pending().await,
                }
            };
            let ended = tokio::select! {
                ended = work => ended,
                () = interrupted => Err(HostError::Stopped),
            };
            drop(up.send(TaskMessage::Back(Box::new(then(ended, ends.load(Ordering::Relaxed))))));
        });
    }

    /// We are to end: so is the program that has the terminal. What it left of a text is the draft.
    pub(super) async fn take_back(
        &mut self,
        external: &LentTerminal,
        left: &ExitReason,
        ups: &mut mpsc::UnboundedReceiver<TaskMessage>,
    ) {
        external.ends.store(true, Ordering::Relaxed);
        let asked = match left {
            ExitReason::Signal(number) => Signal::from_named_raw(*number).unwrap_or(Signal::TERM),
            ExitReason::Quit(_) | ExitReason::Gone => Signal::HUP,
        };
        for signal in [asked, Signal::KILL] {
            // One that has ended meanwhile says so below.
            let _asked = external.process.map(|process| kill_process(process, signal));
            let back = async {
                while let Some(up) = ups.recv().await {
                    match up {
                        TaskMessage::Back(input) => return self.settled(*input),
                        TaskMessage::Input(input)
                            if matches!(*input, UiEvent::Sent(..) | UiEvent::Note(_)) =>
                        {
                            self.settled(*input);
                        }
                        TaskMessage::Opened(Ok((opened, ..))) => self.session = Some(opened.session),
                        TaskMessage::Input(_) | TaskMessage::Leave(_) | TaskMessage::Opened(Err(_)) => {}
                    }
                }
            };
            if tokio::time::timeout(LAST, back).await.is_ok() {
                break;
            }
        }
        self.tty.restore();
    }

    /// Takes something at the end: nothing is begun any more.
    fn settled(&mut self, input: UiEvent) {
        drop(self.state.on(input, SystemClock.now()));
    }

    /// Lets the user's editor have a text.
    pub(super) fn edit(&mut self, text: &str) {
        let file = tempfile::Builder::new().prefix("quipu-").suffix(".md").tempfile();
        let written =
            file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()).map(|()| file));
        let (file, mut editor) = match (written.map_err(EditorError::Text), users_editor()) {
            (Ok(file), Ok(editor)) => (file, editor),
            (Err(error), _) | (_, Err(error)) => return self.take(UiEvent::Edited(Err(error))),
        };
        editor.arg(file.path());
        self.lend(editor, move |ended, ends_with_us| {
            let ended = if ends_with_us { Ok(()) } else { ended };
            let text = ended.and_then(|()| std::fs::read(file.path()).map_err(EditorError::Text));
            // What is no text in it is shown as such, and the rest is not lost.
            UiEvent::Edited(text.map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())))
        });
    }

    /// Stops until the shell says to go on.
    pub(super) async fn suspend(&mut self) {
        let bytes = self.finish();
        self.tty.write(bytes);
        if self.tty.suspend().await.is_err() {
            self.left = Some(ExitReason::Gone);
        }
        self.resize(self.tty.size());
    }
}

/// The user's editor, which may be a command with arguments. What it is to open is added as an argument.
///
/// # Errors
/// Where none is named, or it could not be started safely; why, for people.
pub fn users_editor() -> Result<std::process::Command, EditorError> {
    let named = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|it| !it.trim().is_empty()));
    let named = named.ok_or(EditorError::NotNamed)?;
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let command = Helpers::of_this_process().shell(&line(&named), &here);
    let mut command = command.map_err(|error| EditorError::Refused { named, error })?;
    command.arg("sh");
    Ok(command)
}

/// The shell's line for an editor and its first argument. The shell becomes the editor where it can, so that a signal for
/// it reaches that; not where words set a variable first, or the line is more than one command.
fn line(named: &str) -> String {
    let sets = named.split_whitespace().next().is_some_and(|first| first.contains('='));
    let becomes = !sets && !named.contains(['&', ';', '|', '(', ')', '<', '>', '\n']);
    format!("{}{named} \"$1\"", if becomes { "exec " } else { "" })
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn the_shell_becomes_the_editor_where_that_is_one_command() {
        assert_eq!(line("vim"), "exec vim \"$1\"");
        assert_eq!(line("'/opt/my editor' --wait"), "exec '/opt/my editor' --wait \"$1\"");
        assert_eq!(line("TERM=xterm vim"), "TERM=xterm vim \"$1\"");
        assert_eq!(line("echo hi; vim"), "echo hi; vim \"$1\"");
    }
}
