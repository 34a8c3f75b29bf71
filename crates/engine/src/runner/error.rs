//! Why a model could not be asked.

use std::time::Duration;

use quipu_protocol::{Limit, ModelError, Outcome, Refusal};
use quipu_store::StoreError;

use super::{RUNNER_DEPTH, RUNNER_LONGEST, RUNNER_PURPOSE, RUNNER_REQUEST};
use crate::error::OpenError;
use crate::models::ModelLookupError;
use quipu_transcript::ConversationError;

/// Why a [`Runner`](super::Runner) did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The request cannot be made by anybody. Nothing was sent.
    #[error(transparent)]
    BadRequest(#[from] BadRequest),
    /// The model that was named cannot be asked. Nothing was sent.
    #[error("cannot use the model: {0}")]
    NoModel(#[from] ModelLookupError),
    /// No model is known to ask: the program has none, or no credential for it. Nothing was sent.
    #[error("no model is available: {why}")]
    NoProvider {
        /// In one line.
        why: String,
    },
    /// A tool that the session does not have, or cannot lend. Nothing was sent.
    #[error("the session has no tool `{0}` that it can lend to a child session")]
    NoTool(String),
    /// The request may cost more than its budget, than is left of the run, or than is left of the day. Where an answer broke
    /// off, it is not asked for again.
    #[error("the call may exceed what is left of {}", limit_name(.0))]
    Budget(Limit),
    /// The deadline passed. What was sent until then is recorded, and paid for.
    #[error("no answer within {} s", after.as_secs_f64())]
    Deadline {
        /// The deadline.
        after: Duration,
    },
    /// A child session would be too many levels below a session that nobody began for another one. Nothing was sent.
    #[error("child sessions can be at most {RUNNER_DEPTH} levels deep; this one would be at level {depth}")]
    TooDeep {
        /// The level.
        depth: u32,
    },
    /// The model failed.
    #[error("the model failed: {}", .0.message)]
    Model(ModelError),
    /// The run or the session was aborted. What was sent until then is recorded, and paid for.
    #[error("aborted")]
    Aborted,
    /// The session is closed, or about to be. Nothing was sent.
    #[error("the session is closed")]
    Closed,
    /// The child session did not take the prompt.
    #[error("the child session refused the prompt: {0}")]
    Refused(Refusal),
    /// The child session could not be made. Nothing was sent.
    #[error("could not create the child session: {0}")]
    Open(#[from] OpenError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sub-agent got no worktree of its own. Nothing was sent.
    #[error("it gets no worktree of its own: {why}")]
    NoWorktree {
        /// What happened, in one line.
        why: String,
    },
    /// It could not be recorded, so it was not sent.
    #[error("{why}")]
    NotRecorded {
        /// What happened, in one line.
        why: String,
    },
}

fn limit_name(limit: &Limit) -> String {
    match limit {
        Limit::Cost(dollars) => format!("its budget of ${dollars}"),
        Limit::Daily { spent, budget } => format!("today's budget: ${spent:.2} of ${budget} spent"),
        Limit::Turns(turns) => format!("the {turns} turns of the run"),
        Limit::Account(limit) => limit.to_string(),
    }
}

impl RunnerError {
    /// Why a call was not made, or broke off.
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Limit(limit) => Self::Budget(limit),
            Outcome::Failed(error) => Self::Model(error),
            Outcome::StoreFailed(why) => Self::NotRecorded { why },
            Outcome::Aborted | Outcome::Done => Self::Aborted,
        }
    }
}

/// What is wrong with a request to a [`Runner`](super::Runner).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// A purpose is a short word.
    #[error(
        "`{0}` is not a valid purpose: use at most {RUNNER_PURPOSE} lower-case letters, digits, `_` and `-`, and no \
         name that the engine uses itself"
    )]
    Purpose(String),
    /// There is nothing to answer.
    #[error("the prompt is empty")]
    Empty,
    /// The messages are no conversation that a model can answer.
    #[error("the messages are not a valid conversation: {0}")]
    Conversation(ConversationError),
    /// The last message is not one that a model answers.
    #[error("the last message must be a user message or a tool result")]
    NothingToAnswer,
    /// The request is longer than [`RUNNER_REQUEST`](crate::RUNNER_REQUEST).
    #[error("the request has {bytes} bytes; the limit is {RUNNER_REQUEST}")]
    TooLong {
        /// The length of the request as JSON.
        bytes: usize,
    },
    /// A budget is an amount above zero.
    #[error("a budget must be more than $0")]
    Budget,
    /// An answer needs tokens.
    #[error("an answer needs at least one token")]
    Tokens,
    /// A child session needs turns.
    #[error("a child session needs at least one turn")]
    Turns,
    /// A deadline is a time above zero, up to a limit.
    #[error("a deadline must be more than 0 s, and at most {} s", RUNNER_LONGEST.as_secs())]
    Deadline,
    /// A message could not be written down.
    #[error("cannot write a message as JSON: {why}")]
    Unreadable {
        /// What happened.
        why: String,
    },
}
