//! The steps of a policy in their order: profile, provider, lists, agent, group, sender, sandbox, sub-agent, inherited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::{NameFilter, ToolName};
use crate::profile::ToolProfile;
use crate::scope::{PolicyLevel, PolicyScope};
use crate::warnings::PolicyWarning;

/// Allow and deny entries as they are written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NameLists {
    /// Only these; all where it is empty.
    pub allow: Vec<String>,
    /// These beside what a profile or a default allows.
    pub also_allow: Vec<String>,
    /// None of these.
    pub deny: Vec<String>,
}

/// What one place of the settings says of tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolPolicy {
    /// The profile.
    pub profile: Option<ToolProfile>,
    /// Only these; all where it is empty.
    pub allow: Vec<String>,
    /// These beside what the profile allows.
    pub also_allow: Vec<String>,
    /// None of these.
    pub deny: Vec<String>,
    /// The same for models, by `provider` or `provider/model`; `*` for all others.
    pub by_provider: BTreeMap<String, ToolPolicy>,
    /// Lists for groups, and for senders in them, by `channel:room`, `channel:*` or `*`.
    pub by_group: BTreeMap<String, ToolPolicy>,
    /// The same for senders, by `id:`, `e164:`, `username:` or `name:` and their value, or `*`.
    pub by_sender: SenderPolicy,
    /// Lists for sessions whose commands are in a sandbox.
    pub sandbox: NameLists,
}

/// A conversation of several people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatGroup {
    /// The channel that it is on.
    pub channel: String,
    /// Its id there.
    pub room: String,
}

/// Lists for senders, by who they are.
pub type SenderPolicy = BTreeMap<String, NameLists>;

/// Who sent a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sender {
    /// The id that the channel gives.
    pub id: Option<String>,
    /// The phone number.
    pub e164: Option<String>,
    /// The name of the account.
    pub username: Option<String>,
    /// The name that people see.
    pub name: Option<String>,
}

impl Sender {
    /// Who has this id: `+` and digits are a phone number too, and `@name` is the name of an account. The name that people see is left
    /// out: anybody can have it.
    pub fn of_id(id: &str) -> Self {
        let is_number = |text: &&str| {
            text.strip_prefix('+').is_some_and(|digits| {
                (6..=15).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
            })
        };
        let e164 = Some(id).filter(is_number).map(str::to_owned);
        let username = id.strip_prefix('@').filter(|name| !name.is_empty()).map(str::to_owned);
        Self { id: Some(id.to_owned()), e164, username, name: None }
    }
}

/// What narrows a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubAgentPolicy {
    /// Its level: 1 for one that a person's session sent.
    pub depth: u32,
    /// The deepest level that there may be.
    pub max_depth: u32,
    /// What the settings say of sub-agents.
    pub lists: NameLists,
}

/// The steps of the session that spawned this one, all of which hold here too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InheritedPolicy {
    /// Those steps.
    pub steps: Vec<PolicyStep>,
}

/// Everything that a policy is made of.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyInput<'a> {
    /// `tools` of the settings.
    pub global: Option<&'a ToolPolicy>,
    /// `tools` of the agent.
    pub agent: Option<&'a ToolPolicy>,
    /// The provider and the id of the model.
    pub model: Option<(&'a str, &'a str)>,
    /// The group that the conversation is in.
    pub group: Option<&'a ChatGroup>,
    /// Who sent the message.
    pub sender: Option<&'a Sender>,
    /// What holds in a sandbox, where commands are in one; see [`sandbox_lists`].
    pub sandbox: &'a [(PolicyLevel, &'a NameLists)],
    /// Whether the workspace is read-only: then tools that change files are of no use.
    pub is_read_only: bool,
    /// What narrows a sub-agent.
    pub sub_agent: Option<&'a SubAgentPolicy>,
    /// What the spawning session had.
    pub inherited: Option<&'a InheritedPolicy>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyStep {
    /// Where it comes from.
    pub scope: PolicyScope,
    /// What it keeps.
    pub filter: NameFilter,
    /// Whether a person wrote its entries: unknown ones are reported then.
    pub(crate) is_written: bool,
}

/// The steps of a policy in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyPlan {
    /// The steps; a tool must pass all of them.
    pub steps: Vec<PolicyStep>,
    /// Likely mistakes.
    pub warnings: Vec<PolicyWarning>,
}

impl PolicyPlan {
    /// Whether it removes nothing.
    pub fn is_open(&self) -> bool {
        self.steps.iter().all(|step| step.filter.is_open())
    }

    /// The plan as the sessions have it that a session with it spawns.
    #[must_use]
    pub fn to_inherited(&self) -> InheritedPolicy {
        let steps = self.steps.iter().map(|step| match &step.scope {
            PolicyScope::Inherited(_) => step.clone(),
            scope => PolicyStep { scope: PolicyScope::Inherited(Box::new(scope.clone())), ..step.clone() },
        });
        InheritedPolicy { steps: steps.collect() }
    }

    fn add(&mut self, scope: PolicyScope, filter: NameFilter, is_written: bool) {
        if !filter.is_open() {
            self.steps.push(PolicyStep { scope, filter, is_written });
        }
    }

    /// `allow` and `deny` of a place; `alsoAllow` does not count beside `allow`.
    fn add_lists(&mut self, scope: PolicyScope, allow: &[String], also: &[String], deny: &[String]) {
        if !allow.is_empty() && !also.is_empty() {
            self.warnings.push(PolicyWarning::AllowAndAlso { scope: scope.clone() });
        }
        self.add(scope, filter(allow, deny), true);
    }

    fn add_profile(&mut self, scope: PolicyScope, profile: ToolProfile, also: &[String]) {
        if profile == ToolProfile::Full {
            return;
        }
        let allow = profile.entries().iter().copied().chain(also.iter().map(String::as_str));
        self.add(scope, NameFilter::new(allow, []), !also.is_empty());
    }
}

fn filter(allow: &[String], deny: &[String]) -> NameFilter {
    NameFilter::new(allow.iter().map(String::as_str), deny.iter().map(String::as_str))
}

impl ToolPolicy {
    /// `alsoAllow`, where it counts.
    fn also(&self) -> &[String] {
        if self.allow.is_empty() { &self.also_allow } else { &[] }
    }
}

/// The member of a `byProvider` that counts for a model, with its key: `provider/model` before `provider` before `*`.
pub fn provider_policy<'a>(
    all: &'a BTreeMap<String, ToolPolicy>,
    (provider, model): (&str, &str),
) -> Option<(&'a str, &'a ToolPolicy)> {
    keyed(all, &format!("{provider}/{model}")).or_else(|| keyed(all, provider)).or_else(|| keyed(all, "*"))
}

/// The member of a `byGroup` that counts for a group, with its key: `channel:room` before `channel:*` before `*`.
pub fn group_policy<'a>(
    all: &'a BTreeMap<String, ToolPolicy>,
    ChatGroup { channel, room }: &ChatGroup,
) -> Option<(&'a str, &'a ToolPolicy)> {
    keyed(all, &format!("{channel}:{room}"))
        .or_else(|| keyed(all, &format!("{channel}:*")))
        .or_else(|| keyed(all, "*"))
}

/// A member, whatever the case of its key.
fn keyed<'a, T>(all: &'a BTreeMap<String, T>, wanted: &str) -> Option<(&'a str, &'a T)> {
    let wanted = wanted.to_lowercase();
    all.iter().find(|(key, _)| key.trim().to_lowercase() == wanted).map(|(key, one)| (key.as_str(), one))
}

/// The lists that count for a sender, with their key: by id, phone number, account, name, and last those for everybody.
fn sender_lists<'a>(all: &'a SenderPolicy, sender: &Sender) -> Option<(&'a str, &'a NameLists)> {
    let kinds =
        [("id", &sender.id), ("e164", &sender.e164), ("username", &sender.username), ("name", &sender.name)];
    kinds
        .into_iter()
        .filter_map(|(kind, value)| {
            keyed(all, &format!("{kind}:{}", value.as_deref()?.trim().trim_start_matches('@')))
        })
        .next()
        .or_else(|| keyed(all, "*"))
}

/// Tools that a session in a sandbox has by default.
const SANDBOX_ALLOW: &[&str] = &[
    "bash",
    "background",
    "read",
    "write",
    "edit",
    "apply_patch",
    "grep",
    "find",
    "ls",
    "image",
    "task",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "sessions_yield",
    "subagents",
    "session_status",
    // They touch nothing but the session.
    "todo",
    "plan",
];
/// Tools that it does not have by default.
const SANDBOX_DENY: &[&str] = &["browser", "canvas", "nodes", "schedule", "gateway"];

/// The lists of a sandbox, made of the defaults and what the settings say: an entry that is allowed by name is not denied by
/// default, and `image` is there unless it is denied.
pub fn sandbox_lists(written: &NameLists) -> NameLists {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut allow = match written.allow.is_empty() {
        true => [own(SANDBOX_ALLOW), written.also_allow.clone()].concat(),
        false => written.allow.clone(),
    };
    allow.push("image".to_owned());
    let named = filter(&[&written.allow[..], &written.also_allow[..]].concat(), &[]);
    let is_opened = |name: &str| !named.is_open() && named.keeps(&ToolName::built_in(name));
    let mut deny = written.deny.clone();
    deny.extend(own(SANDBOX_DENY).into_iter().filter(|name| !is_opened(name)));
    NameLists { allow, also_allow: Vec::new(), deny }
}

/// Tools that no sub-agent has by default.
const SUB_AGENT_DENY: &[&str] =
    &["schedule", "gateway", "agents_list", "session_status", "sessions_send", "message"];
/// Tools that a sub-agent does not have by default that can send none itself.
const LEAF_DENY: &[&str] = &["task", "subagents", "sessions_list", "sessions_history", "sessions_spawn"];

fn sub_agent_filter(policy: &SubAgentPolicy) -> NameFilter {
    let SubAgentPolicy { depth, max_depth, lists } = policy;
    let leaf: &[&str] = if depth >= max_depth { LEAF_DENY } else { &[] };
    let named = filter(&[&lists.allow[..], &lists.also_allow[..]].concat(), &[]);
    let is_opened = |name: &str| !named.is_open() && named.keeps(&ToolName::built_in(name));
    let denied = SUB_AGENT_DENY.iter().chain(leaf).copied().filter(|name| !is_opened(name));
    NameFilter::new(
        lists.allow.iter().map(String::as_str),
        lists.deny.iter().map(String::as_str).chain(denied),
    )
}

/// Tools that change files.
pub const WRITERS: &[&str] = &["write", "edit", "apply_patch"];

/// The steps of a policy in their order. Each of them can only narrow what those before it leave.
pub fn steps(input: &PolicyInput<'_>) -> PolicyPlan {
    let mut plan = PolicyPlan::default();
    let levels = [(PolicyLevel::Global, input.global), (PolicyLevel::Agent, input.agent)];
    let written = || levels.iter().filter_map(|(level, policy)| Some((*level, (*policy)?)));
    // The agent's profile takes the place of the global one, and so does its `alsoAllow`.
    if let Some((level, profile)) =
        written().filter_map(|(level, one)| Some((level, one.profile?))).next_back()
    {
        let also = written().map(|(_, one)| one.also()).rfind(|also| !also.is_empty());
        plan.add_profile(PolicyScope::Profile(level), profile, also.unwrap_or_default());
    }
    let by_provider: Vec<(PolicyLevel, &str, &ToolPolicy)> = written()
        .filter_map(|(level, one)| {
            let (key, policy) = provider_policy(&one.by_provider, input.model?)?;
            Some((level, key, policy))
        })
        .collect();
    for (level, key, policy) in &by_provider {
        if let Some(profile) = policy.profile {
            let scope = PolicyScope::ProviderProfile(*level, (*key).to_owned());
            plan.add_profile(scope, profile, policy.also());
        }
    }
    for (level, policy) in written() {
        plan.add_lists(PolicyScope::Lists(level), &policy.allow, &policy.also_allow, &policy.deny);
        for (_, key, policy) in by_provider.iter().filter(|(of, _, _)| *of == level) {
            let scope = PolicyScope::ProviderLists(level, (*key).to_owned());
            plan.add_lists(scope, &policy.allow, &policy.also_allow, &policy.deny);
        }
    }
    for (level, policy) in written() {
        let found = input.group.and_then(|group| group_policy(&policy.by_group, group));
        let Some((key, group)) = found else { continue };
        let scope = PolicyScope::Group(level, key.to_owned());
        plan.add_lists(scope, &group.allow, &group.also_allow, &group.deny);
        if let Some((sender, lists)) = input.sender.and_then(|sender| sender_lists(&group.by_sender, sender))
        {
            let scope = PolicyScope::GroupSender(level, key.to_owned(), sender.to_owned());
            plan.add_lists(scope, &lists.allow, &lists.also_allow, &lists.deny);
        }
    }
    for (level, policy) in written() {
        if let Some((key, lists)) = input.sender.and_then(|sender| sender_lists(&policy.by_sender, sender)) {
            let scope = PolicyScope::Sender(level, key.to_owned());
            plan.add_lists(scope, &lists.allow, &lists.also_allow, &lists.deny);
        }
    }
    for (level, lists) in input.sandbox {
        plan.add(PolicyScope::Sandbox(*level), filter(&lists.allow, &lists.deny), true);
    }
    if input.is_read_only {
        plan.add(PolicyScope::ReadOnly, NameFilter::new([], WRITERS.iter().copied()), false);
    }
    if let Some(sub_agent) = input.sub_agent {
        plan.add(PolicyScope::SubAgent, sub_agent_filter(sub_agent), false);
    }
    if let Some(inherited) = input.inherited {
        plan.steps.extend(inherited.steps.iter().cloned());
    }
    plan
}
