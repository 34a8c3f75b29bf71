//! Hooks: code of others that sees the steps of a session before and after they are taken, and may change or stop some.
//!
//! Each point is a method of [`Hook`] that does nothing by default. [`chain`] calls the hooks of a session in their order,
//! each with a deadline: one that hangs, panics or returns too much loses its own effect alone, and people are notified.

mod chain;
mod context;
mod points;
mod sending;
mod startup;
mod steps;
mod system;

use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::{AssistantMessage, Content, Json, ModelRequest, ToolCall, ToolResultMessage, UserInput};
use quipu_providers::ResponseHead;
use serde::{Deserialize, Serialize};

pub(crate) use chain::{HookedCall, HookedInput, Hooks};
pub(crate) use context::Asker;
pub use context::{HookAskError, HookContext};
pub use points::{
    CompactionRequest, CompactionVerdict, MessageVerdict, MoveRequest, MoveVerdict, Payload, PayloadChange,
    ProjectTrust, RequestVerdict, Resources, ResourcesVerdict, RunEnd, RunEndVerdict, RunStart,
    RunStartAddition, RunStartVerdict, SendVerdict, SessionOrigin, ShellLine, ShellVerdict, StartVerdict,
    TrustVerdict,
};
pub(crate) use sending::HookedPayload;
pub use startup::{HookAnswer, StartupHooks};
pub(crate) use steps::{HookedCompaction, kept};
pub(crate) use system::{HOOKS, HookSections};

/// Sees the steps of a session and may change or stop them. Installed by
/// [`SessionOptions::hooks`](crate::SessionOptions::hooks); the first in the list is called first, and each sees what the
/// one before it left.
///
/// What a hook sees is sealed: secrets are placeholders. What it returns is sealed again before the model or the store has
/// it. It may return at most [`HOOK_TEXT`] bytes of text at a time.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use quipu::protocol::ToolCall;
/// use quipu::{CallVerdict, Hook, HookContext, HookError};
///
/// struct NoForcePush;
///
/// impl Hook for NoForcePush {
///     fn name(&self) -> &str {
///         "no force push"
///     }
///
///     fn tool_call<'a>(&'a self, call: &'a ToolCall, _: &'a HookContext) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
///         let forces = call.name == "bash" && call.arguments.get().contains("push --force");
///         let reason = "Force pushes are not wanted here: push to a branch of your own.".to_owned();
///         let verdict = if forces { CallVerdict::Block { reason } } else { CallVerdict::Pass };
///         Box::pin(async move { Ok(verdict) })
///     }
/// }
/// ```
pub trait Hook: Send + Sync + 'static {
    /// What it is called in records, notices and reasons.
    fn name(&self) -> &str;

    /// How long one call of it may take, without the time in which it waits for a person.
    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// What becomes of a step when the hook fails over it.
    fn on_failure(&self) -> HookFailure {
        HookFailure::Pass
    }

    /// Somebody says something: before it is stored or queued.
    fn input<'a>(
        &'a self,
        _input: &'a UserInput,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(InputVerdict::Pass)))
    }

    /// The model wants a call: before its arguments are validated and the policy decides.
    fn tool_call<'a>(
        &'a self,
        _call: &'a ToolCall,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(CallVerdict::Pass)))
    }

    /// A call that ran is done: before the model sees its result.
    fn tool_result<'a>(
        &'a self,
        _call: &'a ToolCall,
        _result: &'a ToolResultMessage,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(ResultVerdict::Pass)))
    }

    /// A session begins. The first prompt waits for this.
    fn session_start<'a>(
        &'a self,
        _origin: SessionOrigin,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<StartVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(StartVerdict::Pass)))
    }

    /// A session ends in good order. All hooks together have [`END_TIME`] for it.
    fn session_end<'a>(&'a self, _cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The session is to go elsewhere: before anything is looked up or changed; for a move that the model wants, after it
    /// was allowed.
    fn before_move<'a>(
        &'a self,
        _request: &'a MoveRequest,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<MoveVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(MoveVerdict::Pass)))
    }

    /// A person wants to run a line in the shell.
    fn shell_line<'a>(
        &'a self,
        _line: &'a ShellLine,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ShellVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(ShellVerdict::Pass)))
    }

    /// The context is about to be compacted: before a model is asked to sum it up.
    fn before_compaction<'a>(
        &'a self,
        _request: &'a CompactionRequest,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(CompactionVerdict::Pass)))
    }

    /// A run is about to begin: before its prompt is stored. For a prompt that waited in a queue, when it is its turn; not for
    /// a prompt while a run is under way, nor for a run that continues elsewhere after a `tobe`.
    fn before_run<'a>(
        &'a self,
        _start: &'a RunStart,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(RunStartVerdict::Pass)))
    }

    /// Whether [`before_request`](Self::before_request) is called. With one such hook, the record of each request is a commit of
    /// its own.
    fn changes_requests(&self) -> bool {
        false
    }

    /// The model is about to be asked to continue: before the request is recorded and sent. Not called for summaries. A request
    /// that is sent again after a failure is the same.
    fn before_request<'a>(
        &'a self,
        _request: &'a ModelRequest,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RequestVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(RequestVerdict::Pass)))
    }

    /// Whether [`before_send`](Self::before_send) is called. With one such hook, the record of each request is a commit of its
    /// own.
    fn changes_payloads(&self) -> bool {
        false
    }

    /// A request is about to be sent in these bytes: behind [`before_request`](Self::before_request) of all hooks, before it is
    /// recorded. Not called for summaries, nor when a recorded request is sent once more. Called a second time where what may
    /// be spent allows a shorter answer alone.
    fn before_send<'a>(
        &'a self,
        _payload: &'a Payload,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<SendVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(SendVerdict::Pass)))
    }

    /// A server begins to answer an attempt of a call, for good or bad. What follows does not wait for this.
    fn response<'a>(
        &'a self,
        _head: &'a ResponseHead,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A project is to be trusted or not: before its settings are read, which is before a session is opened. A hook of the
    /// project itself is not asked.
    fn project_trust<'a>(
        &'a self,
        _project: &'a ProjectTrust,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<TrustVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(TrustVerdict::Pass)))
    }

    /// Files of rules were found for a session: before they are read.
    fn resources<'a>(
        &'a self,
        _found: &'a Resources,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResourcesVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(ResourcesVerdict::Pass)))
    }

    /// The model answered in full: before the answer is stored and its calls are looked up. Not called where the call of the
    /// model failed or was stopped.
    fn message_end<'a>(
        &'a self,
        _message: &'a AssistantMessage,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<MessageVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(MessageVerdict::Pass)))
    }

    /// A turn ended. What follows does not wait for this.
    fn turn_end<'a>(&'a self, _turn: u32, _cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A run is about to end because the model is done; or it ended otherwise, and the verdict has no effect.
    fn run_end<'a>(
        &'a self,
        _end: &'a RunEnd,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(RunEndVerdict::Pass)))
    }
}

/// Bytes of text that a hook may return at a time: a changed input, changed arguments, a changed result, a reason.
pub const HOOK_TEXT: usize = 256 << 10;

/// Bytes of the messages that a hook may return in the place of others, as JSON.
pub const HOOK_REQUEST: usize = 64 << 20;

/// Bytes of headers, names and values, that a hook may set for one request.
pub const HOOK_HEADERS: usize = 16 << 10;

/// Files that a hook may name at a time.
pub const HOOK_RESOURCES: usize = 256;

/// Bytes of images (base64) that a hook may return at a time.
pub const HOOK_IMAGES: usize = 16 << 20;

/// How long all hooks together may take at the end of a session.
pub const END_TIME: Duration = Duration::from_secs(5);

/// Why a hook could not do its work, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(String);

impl HookError {
    /// In one line, without a full stop.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// What becomes of a step when a hook fails over it: it returns an error, panics, is too slow, or returns too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookFailure {
    /// The step is taken as if the hook were not there.
    Pass,
    /// The step is not taken: for guards.
    Block,
}

/// What a hook says of an input.
#[derive(Debug, Clone, PartialEq)]
pub enum InputVerdict {
    /// It continues unchanged.
    Pass,
    /// This replaces the input.
    Replace(UserInput),
    /// It continues, with text beside it that the model reads: stored in the node of the input, behind it.
    Add(String),
    /// The hook did what was wanted: the model gets no message.
    Handled,
    /// It is refused.
    Block {
        /// The reason, for the sender.
        reason: String,
    },
}

/// What a hook says of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallVerdict {
    /// Validation and policy decide.
    Pass,
    /// With these arguments instead: validation and policy see them, and so does the tool. Recorded with the result.
    Replace(Json),
    /// A person is asked, unless the policy refuses it: also where that would let it pass.
    Ask {
        /// One line: what is asked and why.
        question: String,
    },
    /// It does not run.
    Block {
        /// Why, for the model.
        reason: String,
    },
}

/// What a hook says of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum ResultVerdict {
    /// It stays as it is.
    Pass,
    /// The model sees this instead. Recorded with the result.
    Replace {
        /// What it sees.
        content: Vec<Content>,
        /// Whether the model sees the result as an error.
        is_error: bool,
    },
    /// This stands behind it.
    Append(String),
}

/// What a hook did to a step: kept in the node of the step, under `hooks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookRecord {
    /// Its name.
    pub hook: String,
    /// Where it was called.
    pub point: HookPoint,
    /// The effect on the step.
    pub did: HookEffect,
    /// The arguments of a call that it replaced, as they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
}

/// What a hook did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookEffect {
    /// Something else stands in the place of what was there.
    Replaced,
    /// Something was added.
    Added,
    /// A person was to be asked.
    Asked,
    /// The step was not taken.
    Blocked,
    /// It panicked, ran out of time, or its answer could not be used.
    Failed,
}

/// Where hooks are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookPoint {
    /// [`Hook::input`].
    Input,
    /// [`Hook::tool_call`].
    ToolCall,
    /// [`Hook::tool_result`].
    ToolResult,
    /// [`Hook::session_start`].
    SessionStart,
    /// [`Hook::session_end`].
    SessionEnd,
    /// [`Hook::before_move`].
    BeforeMove,
    /// [`Hook::shell_line`].
    ShellLine,
    /// [`Hook::before_compaction`].
    BeforeCompaction,
    /// [`Hook::before_run`].
    BeforeRun,
    /// [`Hook::before_request`].
    BeforeRequest,
    /// [`Hook::before_send`].
    BeforeSend,
    /// [`Hook::response`].
    Response,
    /// [`Hook::project_trust`].
    ProjectTrust,
    /// [`Hook::resources`].
    Resources,
    /// [`Hook::message_end`].
    MessageEnd,
    /// [`Hook::turn_end`].
    TurnEnd,
    /// [`Hook::run_end`].
    RunEnd,
}

impl HookPoint {
    /// The method of [`Hook`], as traces name it.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::SessionStart => "session_start",
            Self::SessionEnd => "session_end",
            Self::BeforeMove => "before_move",
            Self::ShellLine => "shell_line",
            Self::BeforeCompaction => "before_compaction",
            Self::BeforeRun => "before_run",
            Self::BeforeRequest => "before_request",
            Self::BeforeSend => "before_send",
            Self::Response => "response",
            Self::ProjectTrust => "project_trust",
            Self::Resources => "resources",
            Self::MessageEnd => "message_end",
            Self::TurnEnd => "turn_end",
            Self::RunEnd => "run_end",
        }
    }
}

impl std::fmt::Display for HookPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "an input",
            Self::ToolCall => "a tool call",
            Self::ToolResult => "a tool result",
            Self::SessionStart => "the start of the session",
            Self::SessionEnd => "the end of the session",
            Self::BeforeMove => "a move of the session",
            Self::ShellLine => "a shell line",
            Self::BeforeCompaction => "a compaction",
            Self::BeforeRun => "the start of a run",
            Self::BeforeRequest => "a request",
            Self::BeforeSend => "the body of a request",
            Self::Response => "the start of an answer",
            Self::ProjectTrust => "the trust decision for a project",
            Self::Resources => "the rules files",
            Self::MessageEnd => "an answer",
            Self::TurnEnd => "the end of a turn",
            Self::RunEnd => "the end of a run",
        })
    }
}
