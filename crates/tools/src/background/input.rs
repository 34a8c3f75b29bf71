//! The standard input of background commands.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use quipu_protocol::CommandInput;
use quipu_workspace::ShellInput;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{BackgroundCommand, BackgroundCommands, BackgroundError, BackgroundStatus};

/// Bytes of one write.
pub(crate) const INPUT_LIMIT: usize = 64 << 10;

/// What becomes of the input when everything is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterInput {
    /// More may come.
    Open,
    /// The command reads its end.
    End,
}

/// The input of one command. Writes wait for each other.
#[derive(Debug)]
pub(super) struct InputState {
    pipe: Mutex<Option<ShellInput>>,
    /// It was started with one.
    had_one: bool,
    is_open: AtomicBool,
}

impl InputState {
    pub(super) fn none() -> Self {
        Self { pipe: Mutex::new(None), had_one: false, is_open: AtomicBool::new(false) }
    }

    pub(super) fn of(input: ShellInput) -> Self {
        Self { pipe: Mutex::new(Some(input)), had_one: true, is_open: AtomicBool::new(true) }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    /// The command has ended. Who writes sees that by itself.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }
}

impl BackgroundCommand {
    async fn write(
        &self,
        text: &[u8],
        after: AfterInput,
        written: &AtomicUsize,
    ) -> Result<(), BackgroundError> {
        let mut pipe = self.input.pipe.lock().await;
        let Some(input) = &mut *pipe else { return Err(BackgroundError::InputClosed(self.id())) };
        let mut rest = text;
        while !rest.is_empty() {
            match input.write(rest).await {
                Ok(bytes @ 1..) => {
                    written.fetch_add(bytes, Ordering::SeqCst);
                    rest = rest.get(bytes..).unwrap_or_default();
                }
                Ok(0) | Err(_) => {
                    self.input.is_open.store(false, Ordering::SeqCst);
                    *pipe = None;
                    return Err(BackgroundError::InputClosed(self.id()));
                }
            }
        }
        if after == AfterInput::End {
            self.input.is_open.store(false, Ordering::SeqCst);
            *pipe = None;
        }
        Ok(())
    }
}

impl BackgroundCommands {
    /// What a write to one comes to, for the permissions.
    pub(crate) fn input(&self, id: &str, text: String, after: AfterInput) -> CommandInput {
        let found = self.find(id).ok().filter(|command| command.input.had_one);
        let needs = found.as_ref().map(|command| command.needs).unwrap_or_default();
        CommandInput {
            id: id.into(),
            command: found.as_ref().map(|command| command.command.clone()),
            text,
            is_last: after == AfterInput::End,
            is_confined: found.is_some_and(|command| command.is_confined),
            network: needs.network,
            protected: needs.protected,
        }
    }

    /// Writes to the standard input of one, in so long at most. What was written before an error was read, or will be.
    pub(crate) async fn write(
        &self,
        id: &str,
        text: &[u8],
        after: AfterInput,
        longest: Duration,
        cancel: &CancellationToken,
    ) -> Result<BackgroundStatus, BackgroundError> {
        if text.len() > INPUT_LIMIT {
            return Err(BackgroundError::InputTooLong(text.len()));
        }
        let command = self.find(id)?;
        let has_ended = || {
            let end = command.status().end;
            end.map(|end| BackgroundError::HasEnded(command.id(), end))
        };
        if let Some(ended) = has_ended() {
            return Err(ended);
        }
        if !command.input.had_one {
            return Err(BackgroundError::NoInput(command.id()));
        }
        let written = AtomicUsize::new(0);
        let so_far = || written.load(Ordering::SeqCst);
        let result = tokio::select! {
            biased;
            result = command.write(text, after, &written) => result,
            () = command.over.cancelled() => Err(BackgroundError::InputClosed(command.id())),
            () = cancel.cancelled() => {
                Err(BackgroundError::InputAborted(command.id(), so_far(), text.len()))
            }
            () = tokio::time::sleep(longest) => Err(BackgroundError::NotRead {
                id: command.id(),
                written: so_far(),
                of: text.len(),
                seconds: longest.as_secs_f64(),
            }),
        };
        match result {
            Ok(()) => Ok(command.status()),
            Err(BackgroundError::InputClosed(id)) => {
                Err(has_ended().unwrap_or(BackgroundError::InputClosed(id)))
            }
            Err(error) => Err(error),
        }
    }
}
