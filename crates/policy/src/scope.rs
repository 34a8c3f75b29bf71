//! Where a step of a policy comes from, in words for people.

use std::fmt;

/// Whose settings a step comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyLevel {
    /// `tools`.
    Global,
    /// `tools` of the agent.
    Agent,
}

/// Where a step comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyScope {
    /// The profile with `alsoAllow`.
    Profile(PolicyLevel),
    /// The profile of a member of `byProvider`.
    ProviderProfile(PolicyLevel, String),
    /// `allow` and `deny`.
    Lists(PolicyLevel),
    /// The same of a member of `byProvider`.
    ProviderLists(PolicyLevel, String),
    /// The lists of a group, by its key.
    Group(PolicyLevel, String),
    /// The lists of a sender in a group, by the keys of the group and of the sender.
    GroupSender(PolicyLevel, String, String),
    /// The lists of a sender, by its key.
    Sender(PolicyLevel, String),
    /// The sandbox.
    Sandbox(PolicyLevel),
    /// The workspace is read-only.
    ReadOnly,
    /// A sub-agent.
    SubAgent,
    /// A step of the session that spawned this one.
    Inherited(Box<PolicyScope>),
}

impl PolicyLevel {
    fn word(self) -> &'static str {
        match self {
            Self::Global => "tools",
            Self::Agent => "the agent's tools",
        }
    }
}

impl fmt::Display for PolicyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(level) => write!(f, "{}.profile", level.word()),
            Self::ProviderProfile(level, key) => write!(f, "{}.byProvider.{key}.profile", level.word()),
            Self::Lists(level) => write!(f, "{}.allow and deny", level.word()),
            Self::ProviderLists(level, key) => write!(f, "{}.byProvider.{key}", level.word()),
            Self::Group(level, key) => write!(f, "{}.byGroup.{key}", level.word()),
            Self::GroupSender(level, key, sender) => {
                write!(f, "{}.byGroup.{key}.bySender.{sender}", level.word())
            }
            Self::Sender(level, key) => write!(f, "{}.bySender.{key}", level.word()),
            Self::Sandbox(level) => write!(f, "{}.sandbox", level.word()),
            Self::ReadOnly => f.write_str("sandbox.workspaceAccess is `ro`"),
            Self::SubAgent => f.write_str("sub-agents"),
            Self::Inherited(scope) => write!(f, "the session that sent this one: {scope}"),
        }
    }
}
