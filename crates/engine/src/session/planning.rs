//! Plan mode of a session: who switches it, and whom it asks.

use std::sync::Arc;

use quipu_protocol::{Command, Refusal, Setting};
use tokio::sync::{mpsc, oneshot};

use super::{CommandInfo, Mail, Session, asks};
use crate::planning::{Announcer, PlanMode};
use crate::policy::{Policy, SharedPolicy};

/// Lets plan mode ask people, and tell the session when it ends.
pub(super) fn connect(plan: &PlanMode, mail: &mpsc::Sender<Mail>, policy: &Arc<dyn Policy>) {
    let sender = mail.downgrade();
    // Weak: the policy holds plan mode.
    let policy = Arc::downgrade(policy);
    let announcer: Announcer = Arc::new(move || {
        let (mail, policy) = (sender.upgrade(), policy.upgrade());
        Box::pin(async move {
            let (Some(mail), Some(policy)) = (mail, policy) else { return };
            let Some(version) = SharedPolicy(policy).version().await else { return };
            let command = Command::Set { setting: Setting::Permissions };
            let reply = oneshot::channel().0;
            // A session that ends has nobody to tell.
            drop(mail.send(Mail::Command(command, CommandInfo::Policy(version), reply)).await);
        })
    });
    plan.asks_through(asks::asker(mail), announcer);
}

impl Session {
    /// Whether plan mode is on.
    pub fn is_planning(&self) -> bool {
        self.0.plan.as_ref().is_some_and(|plan| plan.is_on())
    }

    pub(super) fn switch_plan(&self, on: bool) -> Result<(), Refusal> {
        let plan = self.0.plan.as_ref();
        let plan = plan.ok_or_else(|| Refusal::Blocked { why: "this session has no plan mode".into() })?;
        plan.set(on);
        Ok(())
    }
}
