//! Entries: what one node of a session means.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    AddedBlock, BlobId, FileChange, Json, Message, ModelErrorKind, NodeId, Provenance, RunId, SessionId,
    Thinking, ToolSpec, UnixMs, Usage,
};

/// What one node means.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A message with a `role`: of a person, the model, a tool or an extension.
    Message(Message),
    /// A session begins here.
    Session(SessionStart),
    /// The prefix of requests changes here: another model, other tools, another system prompt.
    Epoch(Epoch),
    /// What stood before is a summary from here on.
    Compaction(Compaction),
    /// An entry that carries no message: a label, a name, an extension's data; kept verbatim. A JSON object
    /// with a `type`.
    Meta(Json),
}

/// The first node of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStart {
    /// Id of the session: UUIDv7 text or a chosen name.
    pub session: SessionId,
    /// The directory that it works in.
    pub cwd: String,
    /// The program that writes it, such as `quipu`.
    pub agent: String,
    /// Id of the session that this session was forked from; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<SessionId>,
    /// The frozen prefix of its requests.
    pub epoch: Epoch,
}

/// What stands before the messages of a request until the next epoch, and how the model is called.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Epoch {
    /// The provider's id.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Thinking level of the requests; `off` when absent.
    #[serde(default)]
    pub thinking: Thinking,
    /// The system prompt, a blob of type `system_prompt`; `None` for no prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<BlobId>,
    /// The text of a person's own that `system` begins with, by itself: a blob of type `system_prompt`; `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<BlobId>,
    /// The hash that another such text would have, which a person did not want instead: nobody is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declined: Option<BlobId>,
    /// The tools, as declared to the model.
    #[serde(default)]
    pub tools: Arc<[ToolSpec]>,
    /// Output tokens at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Whether old results of tools are left out where the lineage says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prune: bool,
    /// What context sources gave; `None` where the session has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<EpochContext>,
    /// The names of the tools that tool sources gave, by the name of the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tool_sources: BTreeMap<String, Vec<String>>,
    /// The model that was chosen, where this one stands in for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// Plan mode, as the last switch left it; `None` before any switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<EpochPlan>,
    /// How answers are read, where not as answers with calls of `tools`; a session keeps it from its first node on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<SessionProfile>,
}

/// How the answers of a session are read, and what its requests look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SessionProfile {
    /// No tools are declared. The text of an answer is one command of a shell, and its result is the next message of the user.
    Shell,
}

impl SessionProfile {
    /// Its word in settings and on command lines.
    pub fn word(self) -> &'static str {
        match self {
            Self::Shell => "shell",
        }
    }
}

impl Epoch {
    /// Provider, model and level of thinking as they were chosen: where the model stands in for another one, or is the one
    /// for plans, of that other one.
    pub fn chosen(&self) -> (&str, &str, Thinking) {
        if let Some(before) = self.plan.as_ref().and_then(|plan| plan.before.as_ref()) {
            return (&before.provider, &before.model, before.thinking);
        }
        match &self.fallback {
            Some(fallback) => (&fallback.provider, &fallback.model, fallback.thinking),
            None => (&self.provider, &self.model, self.thinking),
        }
    }
}

/// Plan mode as a switch left it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EpochPlan {
    /// Whether it is on.
    pub on: bool,
    /// The model to which the session goes back when plan mode ends; `None` where plan mode has no model of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FormerModel>,
}

/// A model to which a session goes back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerModel {
    /// The provider's id.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Its level of thinking.
    #[serde(default)]
    pub thinking: Thinking,
}

/// The model for which another one stands in, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fallback {
    /// The chosen provider's id.
    pub provider: String,
    /// The chosen model's id.
    pub model: String,
    /// The thinking level that was chosen with it.
    #[serde(default)]
    pub thinking: Thinking,
    /// The failure of the last call before this epoch.
    pub reason: ModelErrorKind,
    /// Before this time (milliseconds since the epoch) no run returns to the chosen model.
    pub until: UnixMs,
}

/// What context sources gave to an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EpochContext {
    /// Where the program's own text ends, behind which they stand: bytes of the system prompt, counted from behind the
    /// identity text.
    pub at: u64,
    /// The names of the sources, in the order of their sections; also of those that gave none.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The sections, in the order of the prompt. Two line ends stand between two of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<PromptSection>,
    /// Bytes at the end of the system prompt that change from session to session; 0 where nobody says so.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changing: u64,
    /// Tokens of the newest conversation that stay as they are at a compaction, by the name of the source that wants it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keep_recent: BTreeMap<String, u64>,
    /// What stands between the system prompt and the conversation of each request; absent where no source gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<EpochOpening>,
}

/// What stands between the system prompt and the conversation of each request, until the next epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EpochOpening {
    /// Name of the context source that gave it.
    pub source: String,
    /// What a message in the place of the user says; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What stands between that, or the summary of a compaction, and the conversation; absent for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<OpeningBoundary>,
    /// The nodes whose content the text tells: where one of them is forgotten, the text is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// What the source keeps with it for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Two messages that separate what is remembered from the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpeningBoundary {
    /// In the place of the model.
    pub assistant: String,
    /// In the place of the user.
    pub user: String,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl EpochContext {
    /// Bytes at the beginning of the system prompt that are the same from session to session; `None` where nobody says so.
    #[must_use]
    pub fn stable_bytes(&self, system: &str) -> Option<usize> {
        let changing = usize::try_from(self.changing).ok().filter(|changing| *changing > 0)?;
        let stable = system.len().checked_sub(changing)?;
        (stable > 0 && system.is_char_boundary(stable)).then_some(stable)
    }

    /// Tokens that stay: what the source wants that wants most.
    pub fn most_kept(&self) -> Option<u64> {
        self.keep_recent.values().copied().max()
    }
}

/// A section of the system prompt, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptSection {
    /// Name of the context source, as in `sources` of the epoch's context.
    pub source: String,
    /// What the source calls the section, such as a path.
    pub id: String,
    /// Whose words it holds.
    pub trust: Trust,
    /// Where it begins: bytes of the system prompt, counted from behind the identity text.
    pub start: u64,
    /// How many bytes of the system prompt it has.
    pub bytes: u64,
    /// Whether sub-agents of the session do not have it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub main_only: bool,
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Whose words a text holds, and so how far a model may follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    /// Of the person who runs the session.
    Owner,
    /// Of the project that the session works in, which its owner accepted.
    Project,
    /// Of anybody else: information, and no instructions. Also what a reader does not know.
    #[serde(other)]
    Untrusted,
}

/// The context becomes a summary, the nodes from `first_kept` up to here, and what follows. The history itself stays
/// where it is, and a lineage that goes around this node is as it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Compaction {
    /// What the model is told in place of what is not kept.
    pub summary: String,
    /// The oldest node before this one that stays in the context; `None` when none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_kept: Option<NodeId>,
    /// Messages that stand behind the summary in place of nodes before it, where its maker wrote them down again: a list
    /// of messages. What `first_kept` names does not count then.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub retained_tail: Option<Json>,
    /// Tokens of the context before the compaction, counted or estimated; 0 when unknown.
    pub tokens_before: u64,
    /// When it was made, milliseconds since the epoch.
    pub timestamp: UnixMs,
    /// Whatever its maker keeps beside it, such as the files that were read and modified.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub details: Option<Json>,
    /// What making the summary cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether an extension made it, and not the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_hook: Option<bool>,
    /// Why it was made; `None` where its maker does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<CompactionReason>,
    /// How the session stands here, so that nobody has to read what is before `first_kept`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

/// A member that is there is there, `null` too.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// What caused a compaction: the size of the context, the provider or a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CompactionReason {
    /// The context came near the end of the model's window.
    Threshold,
    /// The model refused it as too long.
    Overflow,
    /// Somebody asked for it.
    Manual,
}

/// What the nodes before a compaction say about the session beside its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Id of the session: UUIDv7 text or a chosen name.
    pub session: SessionId,
    /// The prefix of its requests.
    pub epoch: Epoch,
}

/// What a node carries beside its entry: how the step went. Kept in our own part of the node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepInfo {
    /// Id of the run that made the node; absent if no run did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The model call that answered with this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallRecord>,
    /// Start of the step (a tool that ran, a model call), milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<UnixMs>,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Where the text of the node came from; `None` for a node of an earlier version, and for what is no input and no
    /// result: see `quipu_transcript::provenance`.
    #[serde(skip)]
    pub provenance: Option<Provenance>,
    /// Blocks of its message that came from elsewhere.
    #[serde(skip)]
    pub added: Vec<AddedBlock>,
    /// What it did to files, in the order in which it was noticed; a file stands here once.
    #[serde(skip)]
    pub files: Vec<FileChange>,
    /// Of a merge, what it brings together: the node that it hangs on, then the ends of the other branches. Empty for
    /// other nodes.
    #[serde(skip)]
    pub merge: Vec<NodeId>,
    /// Anything else, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Json>,
}

/// One model call: what it was made of, and how it went. Written before the first byte is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Name of the wire, such as `anthropic-messages`.
    pub api: String,
    /// The provider's id.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Whether the server is on this machine.
    pub local: bool,
    /// Version of the projection from nodes to the request.
    pub projection: u32,
    /// The node whose lineage was sent.
    pub head: NodeId,
    /// The system prompt that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<BlobId>,
    /// SHA-256 of the tool declarations' JSON text.
    pub tools: crate::ChunkId,
    /// SHA-256 of the body; the body itself is the chunk of this id.
    pub body: crate::ChunkId,
    /// Length of the body in bytes.
    pub body_bytes: u64,
    /// Where hooks changed what is sent: SHA-256 of the body that would have been sent without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_hooks: Option<crate::ChunkId>,
    /// Headers that hooks set, by name in lower case; secrets in their values are placeholders.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub headers: std::collections::BTreeMap<String, String>,
    /// Headers that hooks took away, by name in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_headers: Vec<String>,
    /// When the call was recorded, milliseconds since the epoch.
    pub started: UnixMs,
    /// Milliseconds from then to the first token; absent when none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// Milliseconds from then to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Each time the body was sent.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
}

/// One time that a body was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When, milliseconds since the epoch.
    pub at: UnixMs,
    /// Why it failed; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ModelErrorKind>,
    /// The HTTP status, when there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The identity of the credential, where more than one was there to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}
