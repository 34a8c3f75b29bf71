//! What the steps of a policy leave of the tools, and what removed each of the others.

use std::collections::BTreeSet;
use std::fmt;

use crate::names::{NameVerdict, ToolName};
use crate::scope::PolicyScope;
use crate::steps::{PolicyPlan, PolicyStep};
use crate::warnings::PolicyWarning;

/// What a policy leaves of the tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyReport {
    /// The tools that are offered, in their order, as the model calls them.
    pub kept: Vec<String>,
    /// The others, in their order.
    pub removed: Vec<RemovedTool>,
    /// Likely mistakes, each once.
    pub warnings: Vec<PolicyWarning>,
}

/// A tool that a policy removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedTool {
    /// As the model would call it.
    pub tool: String,
    /// The first step that removed it.
    pub scope: PolicyScope,
    /// The rule of that step.
    pub rule: RemovalRule,
}

/// The rule of a step that removed a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalRule {
    /// A deny entry means it.
    Denied(String),
    /// No allow entry means it.
    NotAllowed,
}

impl fmt::Display for RemovedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            RemovalRule::Denied(entry) => write!(f, "{}: denied by {entry} ({})", self.tool, self.scope),
            RemovalRule::NotAllowed => write!(f, "{}: not in the allow list ({})", self.tool, self.scope),
        }
    }
}

/// What the steps leave of the tools. A tool is kept where every step keeps it.
pub fn judge(tools: &[ToolName], plan: &PolicyPlan) -> PolicyReport {
    let mut report = PolicyReport::default();
    for tool in tools {
        match plan.steps.iter().find_map(|step| removal(step, tool)) {
            None => report.kept.push(tool.shown().to_owned()),
            Some(removed) => report.removed.push(removed),
        }
    }
    let mut warnings: BTreeSet<PolicyWarning> = plan.warnings.iter().cloned().collect();
    for step in plan.steps.iter().filter(|step| step.is_written) {
        let unknown = step.filter.entries().filter(|entry| !entry.is_known(tools));
        warnings.extend(unknown.map(|entry| PolicyWarning::Unknown {
            scope: step.scope.clone(),
            entry: entry.as_str().to_owned(),
        }));
        let mut allowed = step.filter.allowed().peekable();
        if allowed.peek().is_some() && !tools.is_empty() && !allowed.any(|entry| entry.is_known(tools)) {
            warnings.insert(PolicyWarning::OnlyUnknown { scope: step.scope.clone() });
        }
    }
    if report.kept.is_empty() && !tools.is_empty() {
        warnings.insert(PolicyWarning::NothingLeft);
    }
    report.warnings = warnings.into_iter().collect();
    report
}

fn removal(step: &PolicyStep, tool: &ToolName) -> Option<RemovedTool> {
    let rule = match step.filter.verdict(tool) {
        NameVerdict::Kept => return None,
        NameVerdict::Denied(entry) => RemovalRule::Denied(entry.as_str().to_owned()),
        NameVerdict::NotAllowed => RemovalRule::NotAllowed,
    };
    Some(RemovedTool { tool: tool.shown().to_owned(), scope: step.scope.clone(), rule })
}
