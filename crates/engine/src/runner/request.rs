//! What is asked of a runner, and what it answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::calls::strip_pictures;
use quipu_protocol::{AssistantMessage, Json, Message, Model, Outcome, RunId, SessionId, Thinking, Usage};
use quipu_providers::Provider;
use quipu_seal::Sealer;
use tokio::time::Instant;

use super::{
    BadRequest, RUNNER_BUDGET, RUNNER_DEADLINE, RUNNER_LONGEST, RUNNER_PURPOSE, RUNNER_REQUEST,
    RUNNER_TOKENS, RUNNER_TURNS,
};

/// Purposes of the engine's own calls.
const OWN: [&str; 3] = ["answer", "compaction", "branch_summary"];

/// What a call is for, in a short word: it stands in the record of the call and in traces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunnerPurpose(Arc<str>);

impl RunnerPurpose {
    /// Of 1 to [`RUNNER_PURPOSE`] lower-case letters, digits, `_` and `-`.
    ///
    /// # Errors
    /// [`BadRequest::Purpose`]; also for the words that the engine has for its own calls: `answer`, `compaction` and
    /// `branch_summary`.
    pub fn new(word: &str) -> Result<Self, BadRequest> {
        let fits =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_-".contains(letter);
        let is_word = !word.is_empty() && word.len() <= RUNNER_PURPOSE && word.chars().all(fits);
        if !is_word || OWN.contains(&word) {
            let shown: String =
                word.chars().filter(|letter| !letter.is_control()).take(RUNNER_PURPOSE).collect();
            return Err(BadRequest::Purpose(shown));
        }
        Ok(Self(word.into()))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn word(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl std::fmt::Display for RunnerPurpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A model by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// The provider's id.
    pub provider: String,
    /// The model's id, as its provider names it.
    pub id: String,
}

/// One call of a model, without tools. [`new`](Self::new) sets defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRequest {
    /// The purpose, which the record of the call has.
    pub purpose: RunnerPurpose,
    /// The system prompt; empty for none.
    pub system: String,
    /// The conversation that the model continues with: at least one message, the last one not the model's own.
    pub messages: Vec<Message>,
    /// Which model; `None` for that of the session.
    pub model: Option<ModelName>,
    /// How hard it thinks; not at all by default.
    pub thinking: Thinking,
    /// Output tokens of the answer at most; [`RUNNER_TOKENS`] by default. The model's own limit counts too.
    pub max_tokens: u64,
    /// US dollars at most. `None` is [`RUNNER_BUDGET`] where the price of the model is known, and no limit of its own where it
    /// is not. What is left of the run and of the day counts too.
    pub budget: Option<f64>,
    /// US dollars that calls of this purpose may cost in a day, of all processes together: what this one may cost is reserved of
    /// them before it is sent. `None` for no such limit.
    pub daily: Option<f64>,
    /// How long it may take, with the time in which it waits for others; [`RUNNER_DEADLINE`] by default, at most
    /// [`RUNNER_LONGEST`].
    pub deadline: Duration,
}

impl CallRequest {
    /// A call with one user message and the default limits.
    pub fn new(purpose: RunnerPurpose, prompt: impl Into<String>) -> Self {
        Self {
            purpose,
            system: String::new(),
            messages: vec![Message::user(prompt, 0)],
            model: None,
            thinking: Thinking::Off,
            max_tokens: RUNNER_TOKENS,
            budget: None,
            daily: None,
            deadline: RUNNER_DEADLINE,
        }
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct CallAnswer {
    /// Its text, sealed. Cut where the message says so ([`StopReason::Length`](quipu_protocol::StopReason::Length)).
    pub text: String,
    /// The whole answer, sealed.
    pub message: AssistantMessage,
    /// Tokens and US dollars of the call.
    pub usage: Usage,
    /// The session in which it is recorded.
    pub session: SessionId,
}

/// A session that is begun for something and ends with its answer. [`new`](Self::new) sets defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRequest {
    /// The purpose, which the record of the call has.
    pub purpose: RunnerPurpose,
    /// The prompt.
    pub prompt: String,
    /// Its system prompt; empty for none.
    pub system: String,
    /// The tools that it has, of those of the session, by name; none by default. What the session may not do, it may
    /// not do either; what needs a person's permission is refused.
    pub tools: Vec<String>,
    /// Which model; `None` for that of the session.
    pub model: Option<ModelName>,
    /// How hard it thinks; not at all by default.
    pub thinking: Thinking,
    /// Output tokens of one answer at most; [`RUNNER_TOKENS`] by default.
    pub max_tokens: u64,
    /// Turns at most; [`RUNNER_TURNS`] by default.
    pub max_turns: u32,
    /// US dollars at most, all its calls together: as for [`CallRequest::budget`].
    pub budget: Option<f64>,
    /// As for [`CallRequest::daily`], for each of its calls: one that does not fit is not made, and ends it.
    pub daily: Option<f64>,
    /// As for [`CallRequest::deadline`].
    pub deadline: Duration,
}

impl ChildRequest {
    /// A call with one user message and the default limits.
    pub fn new(purpose: RunnerPurpose, prompt: impl Into<String>) -> Self {
        Self {
            purpose,
            prompt: prompt.into(),
            system: String::new(),
            tools: Vec::new(),
            model: None,
            thinking: Thinking::Off,
            max_tokens: RUNNER_TOKENS,
            max_turns: RUNNER_TURNS,
            budget: None,
            daily: None,
            deadline: RUNNER_DEADLINE,
        }
    }
}

/// What came of a child session.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildAnswer {
    /// The session: it can be opened.
    pub session: SessionId,
    /// How it ended.
    pub outcome: Outcome,
    /// The text of its last answer, sealed; empty where there is none.
    pub text: String,
    /// US dollars that it cost, or may have cost.
    pub cost: f64,
}

/// What both operations share.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) purpose: RunnerPurpose,
    /// The run that pays.
    pub(crate) run: Option<RunId>,
    pub(crate) model: Option<ModelName>,
    pub(crate) thinking: Thinking,
    pub(crate) max_tokens: u64,
    pub(crate) budget: Option<f64>,
    /// When the deadline passes, and how long that was.
    pub(crate) until: Instant,
    pub(crate) after: Duration,
    /// US dollars of a day that the purpose has.
    pub(crate) daily: Option<f64>,
    /// What it cost, or may have cost, once that is known.
    pub(crate) charged: ChargedCost,
}

/// What a call cost, or may have cost, whatever came of it: for who waits for its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChargedCost(Arc<Mutex<f64>>);

impl ChargedCost {
    pub(crate) fn set(&self, dollars: f64) {
        // Nothing can break down while it is held.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = dollars;
    }

    pub(super) fn dollars(&self) -> f64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terms {
    /// The same with an amount for a day.
    fn within(self, daily: Option<f64>) -> Result<Self, BadRequest> {
        if daily.is_some_and(|dollars| !(dollars > 0.0 && dollars.is_finite())) {
            return Err(BadRequest::Budget);
        }
        Ok(Self { daily, ..self })
    }

    /// US dollars at most.
    pub(crate) fn budget_for(&self, model: &Model) -> Option<f64> {
        self.budget.or_else(|| model.cost.are_known().then_some(RUNNER_BUDGET))
    }
}

/// A call to make, checked and sealed.
#[derive(Debug, Clone)]
pub(crate) struct CallOrder {
    pub(crate) terms: Terms,
    pub(crate) system: Arc<str>,
    pub(crate) messages: Arc<Vec<Arc<Message>>>,
}

/// A child session to begin, checked and sealed.
#[derive(Debug, Clone)]
pub(crate) struct ChildOrder {
    pub(crate) terms: Terms,
    pub(crate) system: String,
    pub(crate) prompt: String,
    pub(crate) tools: Vec<String>,
    pub(crate) max_turns: u32,
}

/// A model, and what carries requests to it.
pub(crate) type ModelRoute = (Arc<Model>, Arc<dyn Provider>);

impl CallRequest {
    pub(super) fn order(self, run: Option<RunId>, sealer: &Sealer) -> Result<CallOrder, BadRequest> {
        let Self { purpose, system, messages, model, thinking, max_tokens, budget, daily, deadline } = self;
        let terms = terms(purpose, run, model, thinking, max_tokens, budget, deadline)?.within(daily)?;
        let mut bytes = system.len();
        let mut sealed = Vec::with_capacity(messages.len());
        for message in messages {
            let unreadable = |error: serde_json::Error| BadRequest::Unreadable { why: error.to_string() };
            let json = Json::of(&message).map_err(unreadable)?;
            bytes = bytes.saturating_add(json.get().len());
            if bytes > RUNNER_REQUEST {
                return Err(BadRequest::TooLong { bytes });
            }
            let mut message = sealer.seal_json(&json).read().map_err(unreadable)?;
            strip_pictures(&mut message);
            sealed.push(Arc::new(message));
        }
        if sealed.is_empty() {
            return Err(BadRequest::Empty);
        }
        quipu_transcript::check_conversation(&sealed).map_err(BadRequest::Conversation)?;
        if !matches!(sealed.last().map(AsRef::as_ref), Some(Message::User(_) | Message::ToolResult(_))) {
            return Err(BadRequest::NothingToAnswer);
        }
        let system = sealer.seal(&system).into();
        Ok(CallOrder { terms, system, messages: Arc::new(sealed) })
    }
}

impl ChildRequest {
    pub(super) fn order(self, run: Option<RunId>, sealer: &Sealer) -> Result<ChildOrder, BadRequest> {
        let Self { purpose, prompt, system, tools, model, thinking, .. } = self;
        let Self { max_tokens, max_turns, budget, daily, deadline, .. } = self;
        let terms = terms(purpose, run, model, thinking, max_tokens, budget, deadline)?.within(daily)?;
        if prompt.trim().is_empty() {
            return Err(BadRequest::Empty);
        }
        let bytes = system.len().saturating_add(prompt.len());
        if bytes > RUNNER_REQUEST {
            return Err(BadRequest::TooLong { bytes });
        }
        if max_turns == 0 {
            return Err(BadRequest::Turns);
        }
        let (system, prompt) = (sealer.seal(&system).into_owned(), sealer.seal(&prompt).into_owned());
        Ok(ChildOrder { terms, system, prompt, tools, max_turns })
    }
}

fn terms(
    purpose: RunnerPurpose,
    run: Option<RunId>,
    model: Option<ModelName>,
    thinking: Thinking,
    max_tokens: u64,
    budget: Option<f64>,
    deadline: Duration,
) -> Result<Terms, BadRequest> {
    // What is no number is no budget either.
    if budget.is_some_and(|dollars| !(dollars > 0.0 && dollars.is_finite())) {
        return Err(BadRequest::Budget);
    }
    if max_tokens == 0 {
        return Err(BadRequest::Tokens);
    }
    if deadline.is_zero() || deadline > RUNNER_LONGEST {
        return Err(BadRequest::Deadline);
    }
    let until = Instant::now() + deadline;
    let (daily, charged) = (None, ChargedCost::default());
    Ok(Terms { purpose, run, model, thinking, max_tokens, budget, until, after: deadline, daily, charged })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_short_words_that_are_not_the_engines_own() {
        for word in ["title", "memory-3", "a_b", &"x".repeat(RUNNER_PURPOSE)] {
            assert_eq!(RunnerPurpose::new(word).unwrap().as_str(), word);
        }
        for word in ["", "Two Words", "answer", "compaction", "branch_summary", "ü", "a\nb", &"x".repeat(33)]
        {
            assert!(matches!(RunnerPurpose::new(word), Err(BadRequest::Purpose(shown)) if shown.len() <= 64));
        }
    }

    #[test]
    fn requests_that_nobody_can_make_are_told_apart() {
        let sealer = Sealer::new([0; 32]);
        let purpose = RunnerPurpose::new("test").unwrap();
        let call = || CallRequest::new(purpose.clone(), "What?");
        let order = |request: CallRequest| request.order(None, &sealer).map(|_| ());
        assert_eq!(order(call()), Ok(()));
        assert_eq!(order(CallRequest { messages: Vec::new(), ..call() }), Err(BadRequest::Empty));
        assert!(matches!(order(CallRequest::new(purpose.clone(), " ")), Err(BadRequest::Conversation(_))));
        for budget in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(order(CallRequest { budget: Some(budget), ..call() }), Err(BadRequest::Budget));
            assert_eq!(order(CallRequest { daily: Some(budget), ..call() }), Err(BadRequest::Budget));
        }
        assert_eq!(order(CallRequest { max_tokens: 0, ..call() }), Err(BadRequest::Tokens));
        for deadline in [Duration::ZERO, RUNNER_LONGEST + Duration::from_nanos(1)] {
            assert_eq!(order(CallRequest { deadline, ..call() }), Err(BadRequest::Deadline));
        }
        let long = CallRequest { system: "x".repeat(RUNNER_REQUEST), ..call() };
        assert!(matches!(order(long), Err(BadRequest::TooLong { bytes }) if bytes > RUNNER_REQUEST));
        let answered = vec![
            Message::user("a", 0),
            Message::Assistant(AssistantMessage {
                content: vec![quipu_protocol::Content::text("b")],
                ..AssistantMessage::default()
            }),
        ];
        assert_eq!(order(CallRequest { messages: answered, ..call() }), Err(BadRequest::NothingToAnswer));
        let child = || ChildRequest::new(purpose.clone(), "What?");
        let order = |request: ChildRequest| request.order(None, &sealer).map(|_| ());
        assert_eq!(order(child()), Ok(()));
        assert_eq!(order(ChildRequest { prompt: "\n".into(), ..child() }), Err(BadRequest::Empty));
        assert_eq!(order(ChildRequest { max_turns: 0, ..child() }), Err(BadRequest::Turns));
        assert_eq!(order(ChildRequest { daily: Some(0.0), ..child() }), Err(BadRequest::Budget));
    }
}
