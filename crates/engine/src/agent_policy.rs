//! The permissions of a sub-agent: those of the session that sends it, and less.

use std::path::Path;
use std::sync::Arc;

use quipu_machine::PolicyVersion;
use quipu_protocol::Scope;
use quipu_tools::Touches;
use quipu_workspace::{Access, Sandbox};

use crate::agents::{AgentDefinition, AgentMode};
use crate::policy::{Decision, Grant, GrantError, Policy, Proposal};

/// Decides what both the parent's permissions and the agent's own mode allow.
pub(crate) struct AgentPolicy {
    parent: Arc<dyn Policy>,
    name: String,
    mode: AgentMode,
}

impl AgentPolicy {
    /// The permissions of an agent: the parent's own where it has no mode.
    pub(crate) fn of(parent: Arc<dyn Policy>, agent: Option<&AgentDefinition>) -> Arc<dyn Policy> {
        match agent {
            Some(agent) if agent.mode != AgentMode::Inherit => {
                Arc::new(Self { parent, name: agent.name.clone(), mode: agent.mode })
            }
            Some(_) | None => parent,
        }
    }

    fn denied(&self, what: &str) -> Decision {
        Decision::Deny { reason: format!("The agent `{}` {what}.", self.name) }
    }
}

/// Whether a call is a command that changes nothing.
fn only_reads(proposal: &Proposal<'_>) -> bool {
    let command = proposal.text("command").filter(|_| proposal.call.name == "bash");
    !proposal.flag("protected") && command.is_some_and(|command| proposal.reads_only(&command).is_ok())
}

impl Policy for AgentPolicy {
    fn name(&self) -> &str {
        self.parent.name()
    }

    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        let decision = self.parent.decide(proposal);
        if matches!(decision, Decision::Deny { .. }) {
            return decision;
        }
        match (self.mode, proposal.touches) {
            (AgentMode::ReadOnly, Touches::Writes(_)) => self.denied("is read-only and changes no files"),
            (AgentMode::ReadOnly, Touches::Input(_)) => self.denied("is read-only and writes to no command"),
            (AgentMode::ReadOnly, Touches::Anything)
                if !matches!(decision, Decision::Ask { .. }) && !only_reads(proposal) =>
            {
                let subject = proposal.text("command").unwrap_or_else(|| proposal.call.arguments.to_string());
                let tool = &proposal.call.name;
                let question = format!("Allow `{tool}`? The agent `{}` is read-only.", self.name);
                Decision::Ask { question, subject }
            }
            (AgentMode::Unasked, _) if !matches!(decision, Decision::Allow) => {
                self.denied("asks nobody, and this needs permission")
            }
            _ => decision,
        }
    }

    fn version(&self) -> PolicyVersion {
        self.parent.version()
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        match self.mode {
            // What is asked because of the mode is asked each time.
            AgentMode::ReadOnly => vec![Scope::Once],
            AgentMode::Inherit | AgentMode::Unasked => self.parent.scopes(grant),
        }
    }

    fn offers(&self, grant: &Grant) -> Vec<String> {
        match self.mode {
            AgentMode::ReadOnly => Vec::new(),
            AgentMode::Inherit | AgentMode::Unasked => self.parent.offers(grant),
        }
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        self.parent.grant(grant, scope)
    }

    fn access(&self) -> Access {
        self.parent.access()
    }

    fn restores(&self) -> Option<Access> {
        self.parent.restores()
    }

    fn elsewhere(&self, cwd: &Path) -> Option<Arc<dyn Policy>> {
        self.parent.elsewhere(cwd)
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.parent.sandbox()
    }
}
