//! Commands that a call waits for at first, and that go on in the background when they take too long.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use quipu_protocol::BackgroundId;
use quipu_workspace::{OutputBuffer, ProcessRegistry, ShellEnd, ShellError};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{BackgroundCommand, BackgroundCommands, BackgroundError, BackgroundLaunch, UnreadText, Waiter};
use crate::truncate::Truncation;

/// Told the tail of the output so far.
pub(crate) type LiveOutput = Arc<dyn Fn(&str) + Send + Sync>;

/// How a call waits for its command.
pub(crate) struct Patience<'a> {
    /// So long, before it goes on in the background.
    pub(crate) longest: Duration,
    /// Shows the output meanwhile.
    pub(crate) live: LiveOutput,
    /// Kills the command, as long as the call waits.
    pub(crate) cancel: &'a CancellationToken,
}

/// What became of a command while a call waited for it.
pub(crate) enum AwaitedCommand {
    /// It ended, and nobody else has heard of it.
    Ended(Box<OutputBuffer>, Result<ShellEnd, ShellError>),
    /// It is a background command now.
    Yielded(HandedOver),
}

/// A command that went on in the background.
pub(crate) struct HandedOver {
    pub(crate) id: BackgroundId,
    /// What it printed so far, which counts as read.
    pub(crate) output: UnreadText,
}

impl BackgroundCommand {
    /// Shows the output to who waits for the command.
    pub(super) fn show(&self, output: &OutputBuffer) {
        if let Some(live) = &*self.live.lock().unwrap_or_else(PoisonError::into_inner) {
            live(&Truncation::tail(output).content);
        }
    }

    /// Nothing is shown from here on.
    fn hide(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl BackgroundCommands {
    /// Starts a command and waits for it. It is killed when this is dropped while it waits.
    pub(crate) async fn start_awaited(
        &self,
        launch: BackgroundLaunch<'_>,
        patience: Patience<'_>,
    ) -> Result<AwaitedCommand, BackgroundError> {
        let Patience { longest, live, cancel } = patience;
        let owner = (launch.registry.clone(), launch.run.to_owned());
        let (end, mut ended) = oneshot::channel();
        let waiter = Waiter { live: Some(live), end, group: Arc::downgrade(&self.0) };
        let running = self.launch(launch, Some(waiter))?;
        let killed_when_dropped = running.cancel.clone().drop_guard();
        let lost = |_| ShellError::Lost(std::io::Error::other("nobody follows it"));
        tokio::select! {
            biased;
            end = &mut ended => {
                let (output, end) = end.map_err(lost)?;
                return Ok(AwaitedCommand::Ended(Box::new(output), end));
            }
            () = cancel.cancelled() => running.cancel.cancel(),
            () = tokio::time::sleep(longest) => {
                if let Some(handed_over) = self.hand_over(&running, owner) {
                    drop(killed_when_dropped.disarm());
                    running.hide();
                    self.tell_start(&running);
                    running.heard.cancelled().await;
                    return Ok(AwaitedCommand::Yielded(handed_over));
                }
            }
        }
        let (output, end) = ended.await.map_err(lost)?;
        Ok(AwaitedCommand::Ended(Box::new(output), end))
    }

    /// Makes a command that a call waits for a background command; `None` where it has ended or is being killed.
    fn hand_over(
        &self,
        running: &Arc<BackgroundCommand>,
        owner: (Arc<ProcessRegistry>, String),
    ) -> Option<HandedOver> {
        let mut state = self.0.state();
        let handed_over = {
            // Whoever sees it end looks for the id under this lock.
            let mut progress = running.progress();
            if progress.end.is_some() || running.cancel.is_cancelled() {
                return None;
            }
            let id = running.id.get_or_init(|| format!("b{}", state.last + 1).into()).clone();
            let mut output = progress.output.take(false);
            output.file = progress.file.clone();
            HandedOver { id, output }
        };
        state.last += 1;
        state.awaited.retain(|one| !Arc::ptr_eq(one, running));
        state.owners.push(owner);
        state.enlist(running.clone());
        Some(handed_over)
    }
}
