//! Plan mode of a session: who switches it, whom it asks, and which model it has.

use std::sync::Arc;

use crate::mailbox;
use quipu_machine::{PlanSwitch, PolicyVersion};
use quipu_protocol::{Command, Event, Notice, Refusal, Setting};
use tokio::sync::oneshot;

use super::task::Task;
use super::{CommandInfo, Mail, Session, asks};
use crate::models::{ModelLookupError, PurposeModel};
use crate::planning::{Announcer, PlanMode, plan_model, plan_route};
use crate::policy::{Policy, SharedPolicy};

/// Plan mode is switched, with what was found for it.
pub(super) enum FoundPlan {
    Off,
    On(Result<Option<PurposeModel>, ModelLookupError>),
}

/// Lets plan mode ask people, and tell the session when it ends.
pub(super) fn connect(plan: &PlanMode, mail: &mailbox::Sender<Mail>, policy: &Arc<dyn Policy>) {
    let sender = mail.downgrade();
    // Weak: the policy holds plan mode.
    let policy = Arc::downgrade(policy);
    let announcer: Announcer = Arc::new(move || {
        let (mail, policy) = (sender.upgrade(), policy.upgrade());
        Box::pin(async move {
            let (Some(mail), Some(policy)) = (mail, policy) else { return };
            let Some(version) = SharedPolicy(policy).version().await else { return };
            let command = Command::Set { setting: Setting::Plan { on: false } };
            let info = CommandInfo::Plan(version, FoundPlan::Off);
            let reply = oneshot::channel().0;
            // A session that ends has nobody to tell.
            drop(mail.send(Mail::Command(command, info, reply)).await);
        })
    });
    plan.asks_through(asks::asker(mail), announcer);
}

impl Session {
    /// Whether plan mode is on.
    pub fn is_planning(&self) -> bool {
        self.0.plan.as_ref().is_some_and(|plan| plan.is_on())
    }

    pub(super) async fn policy_version(&self) -> Result<PolicyVersion, Refusal> {
        let version = self.0.policy.version().await;
        version.ok_or_else(|| Refusal::Store { why: "could not check the permissions".into() })
    }

    /// Switches it at once, and looks for the model for plans.
    pub(super) async fn switch_plan(&self, on: bool) -> Result<CommandInfo, Refusal> {
        let plan = self.0.plan.as_ref();
        let plan = plan.ok_or_else(|| Refusal::Blocked { why: "this session has no plan mode".into() })?;
        if !plan.set(on) {
            return Ok(CommandInfo::Policy(self.policy_version().await?));
        }
        let found = match on {
            true => FoundPlan::On(plan_model(self.0.models.0.clone()).await),
            false => FoundPlan::Off,
        };
        Ok(CommandInfo::Plan(self.policy_version().await?, found))
    }
}

impl Task {
    /// What the machine makes of the switch; people see the name of the model.
    pub(super) fn plan_switch(&mut self, found: FoundPlan) -> PlanSwitch {
        let FoundPlan::On(found) = found else { return PlanSwitch { on: false, model: None } };
        let own = (self.machine.model().clone(), self.caller.provider());
        let (route, text) = plan_route(found, (&own.0, &*own.1));
        if let Some(text) = text {
            self.emit(Event::from(Notice::Note { text }), None);
        }
        let model = route.map(|route| {
            if !self.left.iter().any(|(model, _)| Arc::ptr_eq(model, &own.0)) {
                self.left.push(own);
            }
            self.chosen.push((route.model.clone(), route.provider));
            (route.model, route.thinking)
        });
        PlanSwitch { on: true, model }
    }
}
