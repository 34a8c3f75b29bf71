//! Who may run what: asked for each call, after validation and before it runs; again when the rules change before that.

use std::path::Path;
use std::sync::Arc;

use quipu_protocol::{CommandInput, Json, Scope, ToolCall};
use quipu_rules::{Place, WritingPart, read_only};
use quipu_tools::Touches;
use quipu_workspace::{Access, Sandbox, file_key};
use serde::{Deserialize, Serialize};

use quipu_machine::PolicyVersion;

use crate::travel::Travel;

/// What a policy says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Other steps of the [chain](crate::ToolPolicy) decide; a person is asked where none does.
    NoOpinion,
    /// It runs.
    Allow,
    /// It runs when a person says so; refused when nobody is there.
    Ask {
        /// One line: what is asked and why.
        question: String,
        /// What exactly would happen, such as the command.
        subject: String,
    },
    /// It does not run.
    Deny {
        /// For the model.
        reason: String,
    },
}

/// A call as a policy sees it. What was approved is what runs.
#[derive(Debug)]
pub struct Proposal<'a> {
    /// The call, arguments validated and sealed.
    pub call: &'a ToolCall,
    /// The directory of the session.
    pub cwd: &'a Path,
    /// What it would touch, as the tool says. Paths are true ones: links are resolved.
    pub touches: &'a Touches,
    /// Where it would take the session; `None` for calls that do not.
    pub travel: Option<&'a Travel>,
}

impl Proposal<'_> {
    /// One string argument.
    pub fn text(&self, name: &str) -> Option<String> {
        let args: serde_json::Value = Json::value(&self.call.arguments);
        args.get(name)?.as_str().map(str::to_owned)
    }

    /// Whether an argument is `true`.
    pub fn flag(&self, name: &str) -> bool {
        let args: serde_json::Value = Json::value(&self.call.arguments);
        args.get(name).and_then(serde_json::Value::as_bool).unwrap_or_default()
    }

    /// Whether a command line of this call only reads, by the table of [`read_only`].
    pub(crate) fn reads_only(&self, command: &str) -> Result<(), WritingPart> {
        let cwd = file_key(self.cwd);
        read_only(command, &Place { cwd: &cwd, home: None, true_path: &file_key })
    }
}

/// Text for a running command, as a person reads it: the command, and what it is given.
pub(crate) fn input_subject(input: &CommandInput) -> String {
    let mut lines = vec![format!("{}: {}", input.id, input.command.as_deref().unwrap_or_default())];
    lines.extend(input.text.lines().map(|line| format!("< {line}")));
    if input.is_last {
        lines.push("(end of the input)".to_owned());
    }
    lines.join("\n")
}

/// Something that was allowed for more than once, exactly: one tool and one command line or file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The name of the tool.
    pub tool: String,
    /// The command as it was asked for (secrets sealed), or the true path of the file.
    pub subject: String,
}

/// Why a grant does not hold for as long as a person chose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It cannot be kept, and holds until the session ends.
    #[error("Could not save your permission, so it holds for this session only: {why}")]
    NotKept {
        /// What happened, in one line.
        why: String,
    },
}

/// Decides whether a call may run: the first step of the chain of a session, and what confines its tools. Further steps are
/// [`ToolPolicy`](crate::ToolPolicy).
///
/// ```
/// use quipu::{Decision, Policy, Proposal};
///
/// struct AskForCommands;
///
/// impl Policy for AskForCommands {
///     fn decide(&self, proposal: &Proposal<'_>) -> Decision {
///         match (proposal.call.name.as_str(), proposal.text("command")) {
///             ("bash", Some(command)) => Decision::Ask { question: "Run this command?".into(), subject: command },
///             _ => Decision::Allow,
///         }
///     }
/// }
/// ```
pub trait Policy: Send + Sync + 'static {
    /// What it is called in records.
    fn name(&self) -> &str {
        "permissions"
    }

    /// Decides. Must not block: to wait for a person, say [`Decision::Ask`].
    fn decide(&self, proposal: &Proposal<'_>) -> Decision;

    /// Which rules it goes by now. Where the number is another than before, calls that have not begun and questions
    /// that are open are decided again; the default never changes. May look at a file.
    fn version(&self) -> PolicyVersion {
        PolicyVersion::default()
    }

    /// For how long a person may allow such a call. Only this once by default.
    fn scopes(&self, _grant: &Grant) -> Vec<Scope> {
        vec![Scope::Once]
    }

    /// The permission rules that an answer with a scope of a rule would add. None by default.
    fn offers(&self, _grant: &Grant) -> Vec<String> {
        Vec::new()
    }

    /// A person allowed this, and its like, for longer than once. Gives for how long it holds, which may be shorter. May
    /// write a file.
    ///
    /// # Errors
    /// It cannot be kept for good; it holds until the session ends then.
    fn grant(&self, _grant: Grant, _scope: Scope) -> Result<Scope, GrantError> {
        Ok(Scope::Once)
    }

    /// Which files tools may open; asked for before each call. What [`decide`](Self::decide) let pass beyond these
    /// bounds is allowed for that call, by its exact path. Everywhere by default.
    fn access(&self) -> Access {
        Access::default()
    }

    /// Where files are put back when the model takes its session elsewhere with them. `None`, the default: in the
    /// session's directory alone.
    fn restores(&self) -> Option<Access> {
        None
    }

    /// The same permissions for another directory: that of a git worktree in which a sub-agent works. They follow these, and share
    /// what a person allows meanwhile. `None`, the default, where these are for one directory only.
    fn elsewhere(&self, _cwd: &Path) -> Option<Arc<dyn Policy>> {
        None
    }

    /// What confines the commands that tools start. Nothing by default.
    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        None
    }
}

/// What decides whether calls may run.
#[derive(Clone)]
pub(crate) struct SharedPolicy(pub(crate) Arc<dyn Policy>);

impl std::fmt::Debug for SharedPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedPolicy")
    }
}

impl SharedPolicy {
    pub(crate) async fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        let policy = self.0.clone();
        let kept = tokio::task::spawn_blocking(move || policy.grant(grant, scope)).await;
        kept.unwrap_or(Ok(Scope::Once))
    }

    /// Which rules it goes by; `None` when it failed inside. It may look at files.
    pub(crate) async fn version(&self) -> Option<PolicyVersion> {
        let policy = self.0.clone();
        tokio::task::spawn_blocking(move || policy.version()).await.ok()
    }
}

/// Allows every call.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl Policy for AllowAll {
    fn decide(&self, _: &Proposal<'_>) -> Decision {
        Decision::Allow
    }

    fn elsewhere(&self, _: &Path) -> Option<Arc<dyn Policy>> {
        Some(Arc::new(Self))
    }
}
