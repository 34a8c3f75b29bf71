//! What a session does without a prompt: summing up, going elsewhere.

use std::path::Path;

use quipu::{Delivery, OpenedSession};
use quipu_protocol::{AbortTarget, Command, Event};

use crate::args::Mode;
use crate::exit::Failure;
use crate::run::{Front, refused, tell};
use crate::signals::Signals;

/// Begins such work and tells of it as it goes on; the first signal stops it. `ended` knows the event that it ends
/// with. Nothing when it was stopped.
pub(crate) async fn run_command<T>(
    opened: OpenedSession,
    here: &Path,
    command: Command,
    ended: impl Fn(&Event) -> Option<Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    let OpenedSession { session, notices } = opened;
    for notice in &notices {
        tell(notice);
    }
    let mut front = Front::new(Mode::Text, &session, &here.to_string_lossy())?;
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.map_err(refused)?;
    let mut signals = Signals::new()?;
    let mut result = None;
    let begun = session.send(command).await;
    while begun.is_ok() {
        tokio::select! {
            event = events.next() => {
                let Some(envelope) = event else { break };
                if matches!(envelope.event, Event::Settled) {
                    break;
                }
                let end = ended(&envelope.event);
                // A failure is told as one, by who called.
                if !matches!(end, Some(Err(_))) {
                    front.show(&envelope)?;
                }
                result = end.or(result);
            }
            again = signals.next() => {
                if again {
                    return Err(Failure::silent(signals.exit()));
                }
                // A session that is closed has nothing to stop.
                drop(session.send(Command::Abort { target: AbortTarget::Compaction }).await);
            }
        }
    }
    session.shutdown().await;
    begun.map_err(refused)?;
    match signals.failure() {
        Some(failure) => Err(failure),
        None => result.transpose(),
    }
}
