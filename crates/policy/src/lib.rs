//! Which tools a session offers: groups of names, profiles, and steps that only narrow, with a report of what removed each
//! tool; and loops of calls. Pure: it knows names, and neither what the tools do nor who asks.
//!
//! A step is a [`NameFilter`]: a deny entry that matches removes a tool; with allow entries, so does matching none of them. A
//! tool is kept where every step keeps it, so a later step can only narrow.
//!
//! ```
//! use quipu_policy::{PolicyInput, ToolName, ToolPolicy, ToolProfile, judge, steps};
//!
//! let global = ToolPolicy {
//!     profile: Some(ToolProfile::Coding),
//!     deny: vec!["group:runtime".into()],
//!     ..ToolPolicy::default()
//! };
//! let plan = steps(&PolicyInput { global: Some(&global), ..PolicyInput::default() });
//! let report = judge(&["read", "bash"].map(ToolName::built_in), &plan);
//! assert_eq!(report.kept, ["read"]);
//! assert_eq!(report.removed[0].to_string(), "bash: denied by group:runtime (tools.allow and deny)");
//! ```

mod groups;
mod judge;
mod loops;
mod names;
mod profile;
mod scope;
mod steps;
mod warnings;

pub use groups::{GROUPS, GroupSources, ToolGroup};
pub use judge::{PolicyReport, RemovalRule, RemovedTool, judge};
pub use loops::{
    LoopCall, LoopCallKind, LoopDetector, LoopDetectors, LoopDigest, LoopFinding, LoopKind, LoopSettings,
    LoopVerdict,
};
pub use names::{NameFilter, NamePattern, ToolName, canonical};
pub use profile::ToolProfile;
pub use scope::{PolicyLevel, PolicyScope};
pub use steps::{
    ChatGroup, InheritedPolicy, NameLists, PolicyInput, PolicyPlan, PolicyStep, Sender, SenderPolicy,
    SubAgentPolicy, ToolPolicy, WRITERS, group_policy, provider_policy, sandbox_lists, steps,
};
pub use warnings::PolicyWarning;

/// Entries of one list at most; those beyond are not read.
pub const MOST_ENTRIES: usize = 1_000;
/// Bytes of one entry at most; a longer one matches nothing.
pub const ENTRY_BYTES: usize = 256;
