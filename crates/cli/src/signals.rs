//! Signals that end a command, and the exit codes that they stand for.

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Failure};
use crate::print::note;

/// Lets the signals through that end a program. One that was started by a program that blocks them would have them
/// blocked too, and could only be killed. For a process without other threads.
///
/// # Errors
/// The system refuses it.
pub(crate) fn unblock() -> std::io::Result<()> {
    let signals = SigSet::from_iter([Number::SIGINT, Number::SIGTERM, Number::SIGHUP]);
    signals.thread_unblock().map_err(std::io::Error::from)
}

/// Ctrl-C once aborts, twice leaves; SIGTERM and SIGHUP end in order.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    got: Option<Exit>,
    broken: Option<std::io::Error>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            got: None,
            broken: None,
        })
    }

    /// The next signal; whether it was not the first.
    pub(crate) async fn next(&mut self) -> bool {
        let exit = tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
            _ = self.hangup.recv() => Exit::Hangup,
        };
        let again = self.got.is_some();
        if !again && exit == Exit::Interrupted {
            note("Stopping; press Ctrl-C again to exit at once.");
        }
        self.got = Some(exit);
        again
    }

    /// What work comes to. A signal stops it: it has the time to end that it takes, until a second one.
    ///
    /// # Errors
    /// What the work says, and the signal.
    pub(crate) async fn ending<T>(
        &mut self,
        stop: &CancellationToken,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            _ = self.next() => {
                stop.cancel();
                tokio::select! {
                    _ = self.next() => {}
                    _ = &mut work => {}
                }
                Err(Failure::silent(self.exit()))
            }
            ended = &mut work => ended,
        }
    }

    /// An output that cannot be written any more.
    pub(crate) fn closed(&mut self, error: std::io::Error) {
        self.broken.get_or_insert(error);
    }

    pub(crate) fn exit(&self) -> Exit {
        self.got.unwrap_or(Exit::Failed)
    }

    pub(crate) fn failure(&mut self) -> Option<Failure> {
        if let Some(exit) = self.got {
            return Some(Failure::silent(exit));
        }
        self.broken.take().map(Failure::from)
    }
}
