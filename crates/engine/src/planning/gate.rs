//! What may run in plan mode: the policy of a session behind a gate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quipu_machine::PolicyVersion;
use quipu_protocol::{Scope, Touches};
use quipu_workspace::{Access, Sandbox};

use super::PlanMode;
use crate::policy::{Decision, Grant, GrantError, Policy, Proposal};

/// The mode, as people read it.
const MODE: &str = "plan";

/// Denies what does not only read while plan mode is on; asks the policy behind it about the rest.
pub(super) struct PlanGate {
    base: Arc<dyn Policy>,
    mode: Arc<PlanMode>,
}

impl PlanGate {
    pub(super) fn new(base: Arc<dyn Policy>, mode: Arc<PlanMode>) -> Self {
        Self { base, mode }
    }
}

/// Why a call does not only read.
fn objection(proposal: &Proposal<'_>) -> Option<String> {
    let tool = proposal.call.name.as_str();
    if proposal.travel.is_some() {
        return Some(format!("`{tool}` would move the session"));
    }
    match proposal.touches {
        Touches::Nothing | Touches::Session | Touches::Reads(_) => None,
        Touches::Writes(_) => Some(format!("`{tool}` changes files")),
        Touches::Input(_) => Some(format!("`{tool}` writes to a command")),
        Touches::Anything => match proposal.text("command").filter(|_| tool == "bash") {
            Some(_) if proposal.flag("protected") => Some("the command has `protected`".to_owned()),
            Some(command) => proposal.reads_only(&command).err().map(|error| error.to_string()),
            None => Some(format!("`{tool}` can change anything")),
        },
    }
}

impl Policy for PlanGate {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        // Judging a command takes its parse and looks at paths: only while it counts.
        match self.mode.is_on().then(|| objection(proposal)).flatten() {
            Some(why) => Decision::Deny {
                reason: format!(
                    "Plan mode is on, so only what reads may run: {why}. Go on with the plan; a person decides about it."
                ),
            },
            None => self.base.decide(proposal),
        }
    }

    fn version(&self) -> PolicyVersion {
        // Read first: a change that comes between is found again.
        let changes = self.mode.changes.load(Ordering::SeqCst);
        let base = self.base.version();
        let number = base.number.wrapping_add(changes);
        let mode = match base.mode {
            _ if self.mode.is_on() => Some(MODE.to_owned()),
            None if changes > 0 => Some(String::new()),
            mode => mode,
        };
        PolicyVersion { number, mode }
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        self.base.scopes(grant)
    }

    fn offers(&self, grant: &Grant) -> Vec<String> {
        self.base.offers(grant)
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        self.base.grant(grant, scope)
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn restores(&self) -> Option<Access> {
        self.base.restores()
    }

    fn elsewhere(&self, cwd: &Path) -> Option<Arc<dyn Policy>> {
        Some(Arc::new(Self { base: self.base.elsewhere(cwd)?, mode: self.mode.clone() }))
    }

    /// In plan mode the list of commands is one defence, and a sandbox that does not write the other.
    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        let base = self.base.sandbox()?;
        Some(if self.mode.is_on() { self.mode.reading_sandbox(base) } else { base })
    }
}
