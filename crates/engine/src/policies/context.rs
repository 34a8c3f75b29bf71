//! What a policy may use while it decides.

use std::path::Path;
use std::time::Duration;

use quipu_protocol::{Answer, AskKind, RunId, SessionId};

use crate::hooks::{HookAskError, HookContext};

/// What a policy may know and use.
#[derive(Debug, Clone)]
pub struct PolicyContext(pub(super) HookContext);

impl PolicyContext {
    /// The session; `None` before its first node.
    pub fn session(&self) -> Option<&SessionId> {
        self.0.session.as_ref()
    }

    /// The run that the call belongs to.
    pub fn run(&self) -> Option<&RunId> {
        self.0.run.as_ref()
    }

    /// The directory of the session.
    pub fn cwd(&self) -> &Path {
        &self.0.cwd
    }

    /// Asks whoever is in front of the session something before the policy decides; whether a call may be made is asked by
    /// [`ToolVerdict::Ask`](super::ToolVerdict::Ask). The first answer counts; `default` when none comes within `wait`, or at
    /// once when nobody is there who can answer. The policy's deadline stands still meanwhile.
    ///
    /// # Errors
    /// `Asking` when a question of the same answer is open; `Closed`.
    pub async fn ask(
        &self,
        kind: AskKind,
        default: Answer,
        wait: Option<Duration>,
    ) -> Result<Answer, HookAskError> {
        self.0.ask(kind, default, wait).await
    }
}
