//! Policies: steps of a chain that decide on tool calls beside the permissions.
//!
//! The [`Policy`](crate::Policy) of a session is the first step. [`chain`] asks the others in their order, each with a
//! deadline: one that fails denies the call that it was asked about, and no other.

mod chain;
mod context;
mod questions;

use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::Scope;
use serde::{Deserialize, Serialize};

use crate::policy::{Grant, GrantError};

pub(crate) use chain::{ChainResult, DecidedCall, Policies, with_steps};
pub use context::PolicyContext;
pub(crate) use questions::command_of;
pub use questions::{
    ConfinementRequest, ConfinementVerdict, Crossing, ToolRequest, ToolVerdict, TravelRequest, TravelVerdict,
};

/// A step of the chain that decides on tool calls. Installed by
/// [`SessionOptions::policies`](crate::SessionOptions::policies); asked behind the permissions
/// ([`SessionOptions::policy`](crate::SessionOptions::policy)), in the order of the list.
///
/// There are three questions, and an answer to one is none to another: whether a tool may be called
/// ([`decide`](Self::decide)), whether the session may go elsewhere ([`travel`](Self::travel)), and whether a call may
/// reach beyond what confines it ([`confinement`](Self::confinement)). Of the verdicts on a call the strictest counts: a
/// denial, then a question, then a permission. Where nobody has an opinion on a question, a person is asked.
///
/// What a step sees is sealed: secrets are placeholders. A step that returns an error, panics, is too slow, or returns more
/// than [`POLICY_TEXT`] bytes, denies the call.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use quipu::{PolicyContext, PolicyError, ToolPolicy, ToolRequest, ToolVerdict};
///
/// struct NoForcePush;
///
/// impl ToolPolicy for NoForcePush {
///     fn name(&self) -> &str {
///         "no force push"
///     }
///
///     fn decide<'a>(
///         &'a self,
///         request: &'a ToolRequest<'a>,
///         _: &'a PolicyContext,
///     ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
///         let forces = request.call.name == "bash" && request.call.arguments.get().contains("push --force");
///         let reason = "Force pushes are not wanted here: push to a branch of your own.".to_owned();
///         let verdict = if forces { ToolVerdict::Deny { reason } } else { ToolVerdict::NoOpinion };
///         Box::pin(std::future::ready(Ok(verdict)))
///     }
/// }
/// ```
pub trait ToolPolicy: Send + Sync + 'static {
    /// What it is called in records, notices and reasons.
    fn name(&self) -> &str;

    /// How long one answer of it may take, without the time in which it waits for a person.
    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// A counter that only grows. Where it grew, calls that have not begun and questions that are open are decided again.
    /// Must not block.
    fn version(&self) -> u64 {
        0
    }

    /// Whether a call may be made: asked of each one that is valid and that no step before denied.
    fn decide<'a>(
        &'a self,
        _request: &'a ToolRequest<'a>,
        _cx: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
        Box::pin(std::future::ready(Ok(ToolVerdict::NoOpinion)))
    }

    /// Whether the model may take its session to an earlier point: asked of such calls, beside [`decide`](Self::decide).
    fn travel<'a>(
        &'a self,
        _request: &'a TravelRequest<'a>,
        _cx: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<TravelVerdict, PolicyError>> {
        Box::pin(std::future::ready(Ok(TravelVerdict::NoOpinion)))
    }

    /// Whether a call may do what the bounds of the session keep from it: asked of calls that would, beside
    /// [`decide`](Self::decide).
    fn confinement<'a>(
        &'a self,
        _request: &'a ConfinementRequest<'a>,
        _cx: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ConfinementVerdict, PolicyError>> {
        Box::pin(std::future::ready(Ok(ConfinementVerdict::NoOpinion)))
    }

    /// A person allowed, for longer than once, a call that this step [asked](ToolVerdict::Ask) about. Gives for how long
    /// that holds, which may be shorter. The step itself has to go by it when it is asked again.
    ///
    /// # Errors
    /// It cannot be kept for good; it holds until the session ends then.
    fn grant(&self, _grant: Grant, _scope: Scope) -> BoxFuture<'_, Result<Scope, GrantError>> {
        Box::pin(std::future::ready(Ok(Scope::Once)))
    }
}

/// Bytes that an answer of a policy may have: a reason, a question, the grants that it names.
pub const POLICY_TEXT: usize = 16 << 10;

/// Why a policy could not decide, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

impl PolicyError {
    /// In one line, without a full stop.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// What a policy decided of a call: kept in the node of its result, under `policies`, where it asked, denied or failed, or
/// where it names what its permission rests on. Only in sessions with such steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRecord {
    /// Its name.
    pub policy: String,
    /// What it was asked.
    pub question: PolicyQuestion,
    /// What it decided.
    pub did: PolicyEffect,
    /// What its permission rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
}

/// What policies are asked about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyQuestion {
    /// [`ToolPolicy::decide`].
    Call,
    /// [`ToolPolicy::travel`].
    Travel,
    /// [`ToolPolicy::confinement`].
    Confinement,
}

impl PolicyQuestion {
    /// As traces name it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Travel => "travel",
            Self::Confinement => "confinement",
        }
    }
}

/// What a policy decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyEffect {
    /// It allowed the call.
    Allowed,
    /// A person was to be asked.
    Asked,
    /// It denied the call.
    Denied,
    /// It failed, which denied the call.
    Failed,
}
