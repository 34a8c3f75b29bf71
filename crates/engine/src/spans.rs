//! Spans of `tracing`: what a session does and how long it takes, under the ids that its events have.
//!
//! Without a subscriber a span is one look at a number. No text of messages, arguments or outputs is in a span or an
//! event; the text of errors is sealed before it comes here.

use quipu_machine::MachineInput;
use quipu_protocol::{
    CompactionResult, Ending, Event, JumpResult, ModelError, Outcome, RunId, SessionId, ToolCall,
};
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::{Span, debug, debug_span, info, info_span, warn};

/// The span of a job while it runs: `job` is its id, `kind` what it does, `attempt` counts from 1. Whoever runs it
/// instruments it with this.
///
/// ```
/// use tracing::Instrument as _;
///
/// # async fn work() {}
/// # async fn run() {
/// work().instrument(quipu::job_span("nightly-import", "import", 1)).await;
/// # }
/// ```
pub fn job_span(job: &str, kind: &str, attempt: u32) -> Span {
    info_span!(parent: None, "job", job, kind, attempt)
}

/// The spans of a session that are open.
pub(crate) struct SessionSpans {
    session: Span,
    run: Span,
    turn: Span,
    /// A compaction or a jump.
    side: Span,
}

impl SessionSpans {
    pub(crate) fn new(session: &SessionId) -> Self {
        let session = info_span!(parent: None, "session", %session);
        Self { session, run: Span::none(), turn: Span::none(), side: Span::none() }
    }

    /// The innermost one.
    pub(crate) fn current(&self) -> Span {
        let inner = [&self.side, &self.turn, &self.run].into_iter().find(|span| !span.is_disabled());
        inner.unwrap_or(&self.session).clone()
    }

    /// Opens and closes spans as the session's events say.
    pub(crate) fn on(&mut self, event: &Event, session: &SessionId, run: Option<&RunId>) {
        if LevelFilter::current() == LevelFilter::OFF {
            return;
        }
        match event {
            Event::RunStarted => {
                self.run = info_span!(
                    parent: &self.session, "run",
                    %session, run = run.map(display), outcome = Empty, error.kind = Empty, error = Empty,
                );
            }
            Event::RunEnded { outcome } => {
                record_outcome(&self.run, outcome);
                (self.turn, self.run) = (Span::none(), Span::none());
            }
            Event::TurnStarted { turn } => self.turn = info_span!(parent: &self.run, "turn", turn),
            Event::TurnEnded { .. } => self.turn = Span::none(),
            Event::CompactionStarted { reason } => {
                self.side = info_span!(
                    parent: self.current(), "compaction",
                    reason = ?reason, run = run.map(display), outcome = Empty, error = Empty, node = Empty,
                    tokens.before = Empty, tokens.after = Empty, tokens.saved = Empty,
                );
            }
            Event::CompactionEnded { result, .. } => {
                match &**result {
                    CompactionResult::Done { node, compaction, tokens_after } => {
                        let before = compaction.tokens_before;
                        self.side.record("outcome", "done").record("node", display(node));
                        self.side.record("tokens.before", before).record("tokens.after", tokens_after);
                        self.side.record("tokens.saved", before.saturating_sub(*tokens_after));
                    }
                    CompactionResult::Aborted => {
                        self.side.record("outcome", "aborted");
                    }
                    CompactionResult::Failed(why) => {
                        self.side.record("outcome", "failed").record("error", why.as_str());
                    }
                }
                self.side = Span::none();
            }
            Event::JumpStarted { to } => {
                self.side = info_span!(
                    parent: self.current(), "jump",
                    to = %to, run = run.map(display), outcome = Empty, error = Empty,
                );
            }
            Event::JumpEnded { result } => {
                match &**result {
                    JumpResult::Done(_) => {
                        self.side.record("outcome", "done");
                    }
                    JumpResult::Aborted => {
                        self.side.record("outcome", "aborted");
                    }
                    JumpResult::Failed(why) => {
                        self.side.record("outcome", "failed").record("error", why.as_str());
                    }
                }
                self.side = Span::none();
            }
            Event::ContextPruned { node, results, tokens_before, tokens_after } => info!(
                parent: self.current(),
                %node, results, tokens.before = tokens_before, tokens.after = tokens_after,
                tokens.saved = tokens_before.saturating_sub(*tokens_after), "context pruned",
            ),
            Event::RetryScheduled { attempt, delay, error } => warn!(
                parent: self.current(),
                attempt, delay_ms = delay.as_secs_f64() * 1_000.0, error.kind = ?error.kind,
                error = error.message.as_str(), "model call is retried",
            ),
            Event::MessageEnded { id, message, ending: Ending::Committed(node) } => debug!(
                parent: self.current(),
                %node, message_id = %id, role = message.role().as_deref(), "message kept",
            ),
            Event::MessageEnded { id, ending: Ending::Dropped(error), .. } => debug!(
                parent: self.current(),
                message_id = %id, error.kind = ?error.kind, error = error.message.as_str(), "message dropped",
            ),
            Event::Appended { node } => debug!(parent: self.current(), %node, "appended"),
            Event::HeadMoved { to, .. } => debug!(parent: self.current(), node = %to, "head moved"),
            _ => {}
        }
    }
}

/// How a run or a call ended.
pub(crate) fn record_outcome(span: &Span, outcome: &Outcome) {
    if span.is_disabled() {
        return;
    }
    match outcome {
        Outcome::Done => {
            span.record("outcome", "done");
        }
        Outcome::Aborted => {
            span.record("outcome", "aborted");
        }
        Outcome::Limit(_) => {
            span.record("outcome", "limit");
        }
        Outcome::Failed(error) => {
            span.record("outcome", "failed");
            record_error(span, error);
        }
        Outcome::StoreFailed(why) => {
            span.record("outcome", "store_failed").record("error", why.as_str());
        }
    }
}

/// Why it failed; its text is sealed.
pub(crate) fn record_error(span: &Span, error: &ModelError) {
    span.record("error.kind", tracing::field::debug(error.kind)).record("error", error.message.as_str());
}

/// A call of a tool, from its beginning to its sealed result.
pub(crate) fn tool_call(parent: &Span, run: &RunId, call: &ToolCall) -> Span {
    info_span!(
        parent: parent, "tool_call",
        %run, call = %call.id, tool = call.name.as_str(), duration_ms = Empty, output_bytes = Empty,
        is_error = Empty, outcome = Empty,
    )
}

/// What came of it.
pub(crate) fn tool_call_ended(span: &Span, done: &MachineInput) {
    if span.is_disabled() {
        return;
    }
    match done {
        MachineInput::ToolDone { done, .. } => {
            let bytes: usize =
                done.result.content.iter().filter_map(|block| block.as_text()).map(str::len).sum();
            span.record("duration_ms", done.duration_ms).record("output_bytes", bytes);
            span.record("is_error", done.result.is_error).record("outcome", "done");
        }
        // The policy decides otherwise by now.
        _ => {
            span.record("outcome", "held");
        }
    }
}

/// A line that a person runs in the shell; `run` names it in events.
pub(crate) fn shell_line(parent: &Span, run: &RunId) -> Span {
    info_span!(parent: parent, "shell", %run)
}

/// One question to a policy about a call.
pub(crate) fn policy(policy: &str, question: &str) -> Span {
    debug_span!("policy", policy, question, outcome = Empty, error = Empty)
}

/// One call of a hook at one of its points.
pub(crate) fn hook(hook: &str, point: &str) -> Span {
    debug_span!("hook", hook, point, outcome = Empty, error = Empty)
}
