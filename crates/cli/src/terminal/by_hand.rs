//! Lines that the user runs in the shell.

use std::path::Path;
use std::sync::Arc;

use quipu_tui::{ShellDone, Tell};
use quipu_workspace::{
    OutputBuffer, OutputLimits, OutputPlace, ProcessRegistry, ShellCommand, ShellEnd, SpillState, run_shell,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::setup::Place;

/// Bytes of what is printed that are kept at hand.
const OUTPUT: usize = 256 << 10;
/// Bytes of its end that are told while it runs.
const TOLD: usize = 16 << 10;
/// Bytes of the file that holds all of a long one.
const SPILLED: u64 = 64 << 20;

/// Runs a line, unconfined and without the user's keys in its environment, until it ends or `stop` is there or gone.
pub(super) async fn run(
    place: &Place,
    outputs: &OutputPlace,
    registry: &Arc<ProcessRegistry>,
    cwd: &Path,
    line: &str,
    stop: oneshot::Receiver<()>,
    tell: &Tell,
) -> Result<ShellDone, Failure> {
    let env: Vec<_> = place.settings().env_keys().into_iter().map(|name| (name, None)).collect();
    let limits = OutputLimits { lines: u64::MAX, bytes: OUTPUT, spill_bytes: SPILLED };
    let mut output = OutputBuffer::new(limits, outputs);
    let shell = ShellCommand {
        owner: "user",
        command: line,
        cwd,
        env: &env,
        timeout: None,
        sandbox: None,
        needs: quipu_workspace::CommandNeeds::default(),
    };
    let cancel = CancellationToken::new();
    let progress = |output: &OutputBuffer| {
        let tail = output.tail();
        tell(&tail[tail.ceil_char_boundary(tail.len().saturating_sub(TOLD))..]);
    };
    let end = {
        let mut run = std::pin::pin!(run_shell(shell, registry, &cancel, &mut output, &progress));
        tokio::select! {
            end = &mut run => end,
            _ = stop => {
                cancel.cancel();
                run.await
            }
        }
    };
    let code = match end.map_err(Failure::failed)? {
        ShellEnd::Exited(code) => Some(code),
        ShellEnd::Signalled(signal) => Some(128 + signal),
        ShellEnd::TimedOut | ShellEnd::Cancelled => None,
    };
    let path = match output.spill() {
        SpillState::Complete(path) | SpillState::Limited(path) => Some(path.display().to_string()),
        SpillState::NotNeeded | SpillState::Failed(_) => None,
    };
    let text = output.tail().to_owned();
    Ok(ShellDone { cut: output.bytes() > text.len() as u64, output: text, code, path })
}
