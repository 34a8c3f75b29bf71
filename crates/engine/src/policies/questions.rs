//! What policies are asked, and what they may answer. The verdicts on one question are no verdicts on another, and so their
//! types differ.

use std::path::{Path, PathBuf};

use quipu_protocol::{Json, Provenance, Scope, ToolCall, Touches};
use quipu_workspace::{AccessMode, Reach};

use crate::policy::{Grant, Policy, input_subject};
use crate::travel::Travel;

/// A call that may be made or not.
#[derive(Debug, Clone, Copy)]
pub struct ToolRequest<'a> {
    /// The call, arguments validated and sealed.
    pub call: &'a ToolCall,
    /// Who made it: the model, or a hook that changed it.
    pub origin: &'a Provenance,
    /// The directory of the session.
    pub cwd: &'a Path,
    /// What it would touch, as the tool says. Paths are true ones: links are resolved.
    pub touches: &'a Touches,
}

impl ToolRequest<'_> {
    /// What a yes to this call is a yes to: a grant names it. The command line of `bash`, the paths of the files, or the
    /// arguments.
    pub fn subject(&self) -> String {
        subject_of(self.call, self.touches)
    }
}

/// A call that would take the session to an earlier point of it.
#[derive(Debug, Clone, Copy)]
pub struct TravelRequest<'a> {
    /// The call, arguments validated and sealed.
    pub call: &'a ToolCall,
    /// Who made it.
    pub origin: &'a Provenance,
    /// Where it would go, and what it would leave.
    pub travel: &'a Travel,
}

/// A call that would reach beyond what confines the tools of its session.
#[derive(Debug, Clone, Copy)]
pub struct ConfinementRequest<'a> {
    /// The call, arguments validated and sealed.
    pub call: &'a ToolCall,
    /// Who made it.
    pub origin: &'a Provenance,
    /// The directory of the session.
    pub cwd: &'a Path,
    /// How it would; never empty.
    pub crossings: &'a [Crossing],
}

/// One way in which a call reaches beyond the bounds of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crossing {
    /// It opens a file that tools may not open unasked.
    File {
        /// The true path.
        path: PathBuf,
        /// What for.
        want: AccessMode,
        /// Where it lies.
        reach: Reach,
    },
    /// It could touch anything, and no sandbox confines it.
    Unconfined,
    /// A command wants the network.
    Network,
    /// A command wants to change what configures git, agents, editors or shells.
    Protected,
    /// Files become what they were at the node to which the session goes.
    Restore {
        /// They, as the node names them.
        paths: Vec<String>,
    },
}

impl Crossing {
    /// What a person is asked about it.
    pub(super) fn phrase(&self) -> String {
        match self {
            Self::File { path, want: AccessMode::Read, .. } => format!("reading {}", path.display()),
            Self::File { path, want: AccessMode::Write, .. } => format!("changing {}", path.display()),
            Self::Unconfined => "running without a sandbox".into(),
            Self::Network => "using the network".into(),
            Self::Protected => "changing what configures git, agents, editors or shells".into(),
            Self::Restore { paths } => format!("restoring {} file(s)", paths.len()),
        }
    }
}

/// What a policy says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolVerdict {
    /// Others decide.
    NoOpinion,
    /// The call may be made. This opens no file outside, no sandbox and no way elsewhere.
    Allow {
        /// What a person allowed before and this rests on; kept with the result.
        grants: Vec<Grant>,
    },
    /// A person is asked.
    Ask {
        /// One line: what is asked and why.
        question: String,
        /// For how long a yes may hold. Once in any case; longer only where [`grant`](super::ToolPolicy::grant) keeps it.
        scopes: Vec<Scope>,
    },
    /// It is not made.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

impl ToolVerdict {
    /// Allowed without a grant.
    pub const fn allow() -> Self {
        Self::Allow { grants: Vec::new() }
    }

    /// A question to which a yes holds once.
    pub fn ask(question: impl Into<String>) -> Self {
        Self::Ask { question: question.into(), scopes: vec![Scope::Once] }
    }

    /// Denied, with a reason for the model.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny { reason: reason.into() }
    }
}

/// What a policy says of a way elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TravelVerdict {
    /// Others decide.
    NoOpinion,
    /// The session may go there.
    Allow,
    /// A person is asked; a yes holds once.
    Ask {
        /// One line: what is asked and why.
        question: String,
    },
    /// It stays.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

/// What a policy says of a call that reaches beyond its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfinementVerdict {
    /// Others decide.
    NoOpinion,
    /// It may, in each of the ways that the request names.
    Allow,
    /// A person is asked; a yes holds once.
    Ask {
        /// One line: what is asked and why.
        question: String,
    },
    /// It may not.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

/// An answer to any of the questions.
pub(super) enum Verdict {
    NoOpinion,
    Allow(Vec<Grant>),
    Ask(String, Vec<Scope>),
    Deny(String),
}

impl Verdict {
    /// Bytes of text in it.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::NoOpinion => 0,
            Self::Allow(grants) => grants.iter().map(|grant| grant.tool.len() + grant.subject.len()).sum(),
            Self::Ask(text, _) | Self::Deny(text) => text.len(),
        }
    }
}

impl From<ToolVerdict> for Verdict {
    fn from(verdict: ToolVerdict) -> Self {
        match verdict {
            ToolVerdict::NoOpinion => Self::NoOpinion,
            ToolVerdict::Allow { grants } => Self::Allow(grants),
            ToolVerdict::Ask { question, scopes } => Self::Ask(question, scopes),
            ToolVerdict::Deny { reason } => Self::Deny(reason),
        }
    }
}

impl From<TravelVerdict> for Verdict {
    fn from(verdict: TravelVerdict) -> Self {
        match verdict {
            TravelVerdict::NoOpinion => Self::NoOpinion,
            TravelVerdict::Allow => Self::Allow(Vec::new()),
            TravelVerdict::Ask { question } => Self::Ask(question, Vec::new()),
            TravelVerdict::Deny { reason } => Self::Deny(reason),
        }
    }
}

impl From<ConfinementVerdict> for Verdict {
    fn from(verdict: ConfinementVerdict) -> Self {
        match verdict {
            ConfinementVerdict::NoOpinion => Self::NoOpinion,
            ConfinementVerdict::Allow => Self::Allow(Vec::new()),
            ConfinementVerdict::Ask { question } => Self::Ask(question, Vec::new()),
            ConfinementVerdict::Deny { reason } => Self::Deny(reason),
        }
    }
}

/// What a yes to a call is a yes to.
pub(super) fn subject_of(call: &ToolCall, touches: &Touches) -> String {
    match touches {
        Touches::Reads(paths) | Touches::Writes(paths) => {
            paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join("\n")
        }
        Touches::Input(input) => input_subject(input),
        Touches::Nothing | Touches::Anything | Touches::Session => {
            command_of(call).unwrap_or_else(|| call.arguments.get().to_owned())
        }
    }
}

/// The command line of a call of `bash`.
pub(crate) fn command_of(call: &ToolCall) -> Option<String> {
    let args: serde_json::Value = Json::value(&call.arguments);
    (call.name == BASH).then(|| args.get("command")?.as_str().map(str::to_owned)).flatten()
}

/// The tool whose commands a sandbox confines.
const BASH: &str = "bash";

/// How a call would reach beyond the bounds that a policy gives. May look at files.
pub(super) fn crossings(
    policy: &dyn Policy,
    call: &ToolCall,
    touches: &Touches,
    travel: Option<&Travel>,
) -> Vec<Crossing> {
    let mut crossings = Vec::new();
    let files = match touches {
        Touches::Reads(paths) => Some((paths, AccessMode::Read)),
        Touches::Writes(paths) => Some((paths, AccessMode::Write)),
        Touches::Nothing | Touches::Session => None,
        Touches::Input(input) => {
            crossings.extend((!input.is_confined).then_some(Crossing::Unconfined));
            crossings.extend(input.network.then_some(Crossing::Network));
            crossings.extend(input.protected.then_some(Crossing::Protected));
            None
        }
        Touches::Anything => {
            if call.name != BASH || policy.sandbox().is_none() {
                crossings.push(Crossing::Unconfined);
            } else {
                let args = call.arguments.value();
                let wants = |name: &str| args.get(name).and_then(serde_json::Value::as_bool) == Some(true);
                crossings.extend(wants("network").then_some(Crossing::Network));
                crossings.extend(wants("protected").then_some(Crossing::Protected));
            }
            None
        }
    };
    if let Some((paths, want)) = files {
        let access = policy.access();
        let beyond = paths.iter().map(|path| (path, access.reach(path, want)));
        let beyond = beyond.filter(|(_, reach)| *reach != Reach::Free);
        crossings.extend(beyond.map(|(path, reach)| Crossing::File { path: path.clone(), want, reach }));
    }
    let restored = travel.and_then(|travel| travel.files.as_ref()).filter(|plan| !plan.changes.is_empty());
    if let Some(plan) = restored {
        let paths = plan.changes.iter().map(|change| change.path.clone()).collect();
        crossings.push(Crossing::Restore { paths });
    }
    crossings
}
