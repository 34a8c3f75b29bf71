//! What carries commands out.

use std::sync::{Arc, Mutex, PoisonError};

use quipu_host::{Failure, Home, OpenRequest};
use quipu_protocol::Refusal;
use tokio::sync::{OwnedMutexGuard, RwLock};

use super::active::{ActiveSession, PromptGuard};
use super::output::Output;
use super::settings::LiveSettings;
use crate::wording::Wording;

/// The front, as whoever carries a command out needs it.
pub(super) struct FrontState {
    pub(super) home: Home,
    /// What the first session was opened with.
    pub(super) request: OpenRequest,
    pub(super) wording: Wording,
    pub(super) output: Output,
    pub(super) current: Mutex<Option<Arc<ActiveSession>>>,
    /// Held while another session takes the place of the current one.
    pub(super) replacing: RwLock<()>,
    pub(super) settings: Mutex<LiveSettings>,
    /// Whoever holds it reads all of a session. One at a time, as its answer may be large.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
}

/// What is kept until a response is written.
pub(super) enum ResponseHold {
    /// A run that a prompt began is not shown before its response.
    Prompt { _guard: PromptGuard },
    /// Nobody else reads all of a session.
    Reading { _guard: OwnedMutexGuard<()> },
}

/// Why a command was not done, for the program that asked for it.
pub(super) struct CommandRefusal(pub(super) String);

impl From<String> for CommandRefusal {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl From<&str> for CommandRefusal {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<Refusal> for CommandRefusal {
    fn from(refused: Refusal) -> Self {
        Self(refused.to_string())
    }
}

/// What a command came to: JSON text, or why it was not done.
pub(super) type CommandOutcome = Result<Option<String>, CommandRefusal>;

impl FrontState {
    /// The session that is open now. Waits while another one takes its place.
    pub(super) async fn active(&self) -> Result<Arc<ActiveSession>, CommandRefusal> {
        let _replaced = self.replacing.read().await;
        self.current().ok_or_else(|| "no session is open".into())
    }

    pub(super) fn current(&self) -> Option<Arc<ActiveSession>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn worded(&self, failure: &Failure) -> String {
        (self.wording)(&failure.message, failure.advice.as_ref())
    }

    pub(super) fn live_settings(&self) -> LiveSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
