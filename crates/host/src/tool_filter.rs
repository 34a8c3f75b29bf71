//! Which tools a session offers, by the policy of the settings.

use std::sync::{Arc, Mutex, PoisonError};

use quipu::{SourceVersion, ToolFilter, ToolFilterAnswer, ToolFilterAsk, WorkspaceAccess};
use quipu_policy::{
    ChatGroup, NameLists, PolicyInput, PolicyLevel, PolicyPlan, PolicyReport, Sender, SubAgentPolicy,
    ToolName, ToolPolicy, judge, sandbox_lists, steps,
};

use quipu_providers::{SchemaChange, schema_dialect, tool_schema};

use crate::SessionAudience;
use crate::saved::SavedPermissions;
use crate::settings::{Settings, ToolSettings, UNREADABLE};

/// The sandbox that a session works in, as its tools depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolSandbox {
    /// That of `sandbox.mode`, which has tools of its own by default.
    OfScope,
    /// None but the one that confines commands.
    Plain,
}

/// The policy of the settings over the tools of a session and its sub-agents.
#[derive(Debug)]
pub struct SettingsToolFilter {
    settings: Arc<ToolSettings>,
    /// What the agent of the session says, where it is one with settings of its own.
    agent: Option<ToolPolicy>,
    /// The group that its conversation is in.
    group: Option<ChatGroup>,
    /// Who sent the message that it answers.
    sender: Mutex<Option<Sender>>,
    changes: SourceVersion,
    /// Whether commands are confined.
    permissions: Arc<SavedPermissions>,
    sandbox: ToolSandbox,
    /// The deepest level of sub-agents.
    max_depth: u32,
    /// What came of it the last time for the session itself.
    last: Mutex<Option<FilteredTools>>,
}

/// The tools of a session, and what the policy left of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredTools {
    /// All of them, in the order of the model.
    pub tools: Vec<ToolName>,
    /// What is left, and why the others are not.
    pub report: PolicyReport,
    /// The tools whose schema is sent otherwise than it was declared.
    pub changed_schemas: Vec<ChangedSchema>,
}

/// A schema that is sent otherwise than it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedSchema {
    /// The tool.
    pub tool: String,
    /// What was changed, in order.
    pub changes: Vec<SchemaChange>,
}

impl ChangedSchema {
    /// Whether the model knows less of the arguments than the tool wants.
    fn is_serious(&self) -> bool {
        self.changes.iter().any(|change| match change {
            SchemaChange::NotASchema | SchemaChange::TooLarge | SchemaChange::TooDeep => true,
            SchemaChange::Root | SchemaChange::Keywords | SchemaChange::Unions => false,
        })
    }

    fn notice(&self) -> String {
        let why: Vec<&str> = self.changes.iter().map(|change| change.words()).collect();
        format!("The schema of the tool {} is not sent as it is: {}.", self.tool, why.join("; "))
    }
}

impl SettingsToolFilter {
    /// By these settings, for an audience.
    pub(crate) fn new(
        settings: &Settings,
        audience: &SessionAudience,
        permissions: Arc<SavedPermissions>,
        sandbox: ToolSandbox,
    ) -> Arc<Self> {
        let agent = audience.agent.as_deref().and_then(|id| settings.named_agent(id));
        Arc::new(Self {
            settings: settings.tools.clone(),
            agent: agent.and_then(|agent| agent.tools.clone()),
            group: audience.group.clone(),
            sender: Mutex::new(audience.sender.clone()),
            changes: SourceVersion::new(),
            permissions,
            sandbox,
            max_depth: settings.agents.limits.max_depth,
            last: Mutex::default(),
        })
    }

    /// Whose message the session answers from now on: before its next call, its tools are those of this sender.
    pub fn set_sender(&self, sender: Option<Sender>) {
        let mut held = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if *held != sender {
            *held = sender;
            drop(held);
            self.changes.change();
        }
    }

    /// What the policy left of the session's tools; `None` before it is open.
    pub fn last(&self) -> Option<FilteredTools> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn plan(&self, ask: &ToolFilterAsk<'_>) -> PolicyPlan {
        let lists = self.settings.sub_agents.clone();
        let sub_agent = SubAgentPolicy { depth: ask.depth, max_depth: self.max_depth, lists };
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let agent = self.agent.as_ref();
        let written = [
            (PolicyLevel::Global, Some(&self.settings.policy.sandbox)),
            (PolicyLevel::Agent, agent.map(|agent| &agent.sandbox)),
        ];
        let with_defaults;
        let sandboxes: Vec<(PolicyLevel, &NameLists)> = match self.sandbox {
            ToolSandbox::OfScope => {
                let own = written.iter().filter_map(|(level, lists)| Some((*level, (*lists)?)));
                with_defaults = scope_lists(own);
                vec![(with_defaults.0, &with_defaults.1)]
            }
            ToolSandbox::Plain if self.permissions.confines() => {
                written.into_iter().filter_map(|(level, lists)| Some((level, lists?))).collect()
            }
            ToolSandbox::Plain => Vec::new(),
        };
        // The tools of the spawning session are all that is lent, so its policy holds without being repeated.
        steps(&PolicyInput {
            global: Some(&self.settings.policy),
            agent,
            model: Some((&ask.model.provider, &ask.model.id)),
            group: self.group.as_ref(),
            sender: sender.as_ref(),
            sandbox: &sandboxes,
            is_read_only: self.permissions.workspace() == WorkspaceAccess::Read,
            sub_agent: (ask.depth > 0).then_some(&sub_agent),
            ..PolicyInput::default()
        })
    }
}

/// The lists of a sandbox of a scope, its defaults included. What the agent says takes the place of what the settings say of all, but what either
/// denies is denied.
fn scope_lists<'a>(written: impl Iterator<Item = (PolicyLevel, &'a NameLists)>) -> (PolicyLevel, NameLists) {
    let (mut level, mut all) = (PolicyLevel::Global, NameLists::default());
    for (of, lists) in written.filter(|(_, lists)| **lists != NameLists::default()) {
        level = of;
        // Nobody knows what stood in one that cannot be read.
        if !lists.allow.is_empty() && all.allow != [UNREADABLE] {
            all.allow.clone_from(&lists.allow);
        }
        if !lists.also_allow.is_empty() {
            all.also_allow.clone_from(&lists.also_allow);
        }
        all.deny.extend(lists.deny.iter().cloned());
    }
    (level, sandbox_lists(&all))
}

impl ToolFilter for SettingsToolFilter {
    fn version(&self) -> SourceVersion {
        self.changes.clone()
    }

    fn filter(&self, ask: &ToolFilterAsk<'_>) -> ToolFilterAnswer {
        let of = |tool: &quipu::UnfilteredTool<'_>| match tool.source {
            Some(source) => ToolName::of_source(tool.name, source),
            None => ToolName::built_in(tool.name),
        };
        let tools: Vec<ToolName> = ask.tools.iter().map(of).collect();
        let report = judge(&tools, &self.plan(ask));
        let removed = report.removed.iter().map(|one| {
            let why = one.to_string();
            let why = why.strip_prefix(&format!("{}: ", one.tool)).map(str::to_owned).unwrap_or(why);
            (one.tool.clone(), why)
        });
        let removed = removed.collect();
        // What a sub-agent lacks, its session knows already.
        let mut notices: Vec<String> = match ask.depth {
            0 => report.warnings.iter().map(|warning| format!("Tools: {warning}.")).collect(),
            _ => Vec::new(),
        };
        let dialect = schema_dialect(ask.model);
        let kept = ask.tools.iter().filter(|tool| report.kept.iter().any(|name| name == tool.name));
        let changed = kept.map(|tool| ChangedSchema {
            tool: tool.name.to_owned(),
            changes: tool_schema(tool.parameters, dialect).changes,
        });
        let changed_schemas: Vec<_> = changed.filter(|one| !one.changes.is_empty()).collect();
        let serious = changed_schemas.iter().filter(|one| one.is_serious() && ask.depth == 0);
        notices.extend(serious.map(ChangedSchema::notice));
        if ask.depth == 0 {
            let filtered = FilteredTools { tools, report, changed_schemas };
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(filtered);
        }
        ToolFilterAnswer { removed, notices }
    }
}
