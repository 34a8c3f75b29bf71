//! A model that answers from a recording, and compares what really happens with it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu_protocol::{
    AssistantMessage, Attempt, Body, Content, Cost, Model, ModelError, ModelErrorKind, ModelRequest,
    StopReason, Thinking, Usage, UserInput,
};
use quipu_providers::{Call, CallEnd, CallEvent, Provider, blank, plain_body, stream};

use crate::places::Places;
use crate::recording::{
    Header, MAX_BYTES, NewInput, RecordedAnswer, RecordedCall, RecordedResult, RecordingError, is_summary,
    map_content, read,
};

/// The provider and the wire under which a replayed session stands: nothing was sent, whatever the model's name is.
const REPLAY: &str = "replay";
/// Lines of a difference that are shown.
const SHOWN_LINES: usize = 6;
/// Characters of one line of it.
const SHOWN_WIDTH: usize = 160;

/// A model that answers from a recording of [`Recorder`](crate::Recorder): no network, no key, while the tools are
/// real. When what they return differs from the recording (but for what differs by nature), the call fails with
/// [`ModelErrorKind::ReplayMismatch`] and names the first difference. One for one session.
///
/// Usage is as recorded, without its price: nothing was paid.
///
/// ```
/// use std::sync::Arc;
///
/// use quipu::protocol::{Model, Outcome};
/// use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, store};
/// use quipu_replay::{Places, Recorder, Replay};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let (cwd, file) = (directory.path(), directory.path().join("hello.rec"));
/// let sealer = Arc::new(Sealer::new([0; 32]));
/// let engine = Engine::new(store::in_memory()?, sealer.clone(), cwd.join("outputs"));
///
/// // A script in place of a model. A real one comes from `quipu_providers::Settings`.
/// let step = ScriptStep { text: "Hello.".into(), ..ScriptStep::default() };
/// let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(vec![step])));
/// let recorder = Arc::new(Recorder::create(&file, script, sealer, Places::of(cwd))?);
/// let session = engine.create(SessionOptions::new(cwd, model, recorder.clone())).await?;
/// session.ask("Hi!").await?;
/// session.shutdown().await;
/// assert_eq!(recorder.finish()?, 1);
///
/// let replay = Arc::new(Replay::open(&file, Places::of(cwd))?);
/// let prompts = replay.prompts();
/// let session = engine.create(SessionOptions::new(cwd, replay.model(), replay)).await?;
/// for prompt in prompts.into_iter().flatten() {
///     assert_eq!(session.ask(prompt).await?, (Outcome::Done, "Hello.".into()));
/// }
/// session.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Replay {
    header: Header,
    calls: Vec<RecordedCall>,
    places: Places,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    since: NewInput,
    at: usize,
    departed: Option<ModelError>,
    notes: Vec<String>,
}

impl Replay {
    /// Reads a recording, to be played in `places`.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub fn open(path: &Path, places: Places) -> Result<Self, RecordingError> {
        use std::io::Read as _;
        let name = path.display().to_string();
        let failed = |source| RecordingError::File { path: name.clone(), source };
        // A pipe would be read for ever, and opening it may wait for ever.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(RecordingError::NotAFile(name));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(&name, &bytes, places)
    }

    /// The same from bytes; `name` is for messages.
    ///
    /// # Errors
    /// Says what is wrong with them.
    pub fn parse(name: &str, bytes: &[u8], places: Places) -> Result<Self, RecordingError> {
        let (header, calls) = read(name, bytes)?;
        Ok(Self { header, calls, places, state: Mutex::default() })
    }

    /// The model that answered, under the provider `replay`.
    pub fn model(&self) -> Arc<Model> {
        let model = &self.header.model;
        Arc::new(Model {
            id: model.id.clone(),
            name: model.name.clone(),
            api: REPLAY.into(),
            provider: REPLAY.into(),
            input: model.input.clone(),
            context_window: model.context_window,
            max_tokens: model.max_tokens,
            ..Model::default()
        })
    }

    /// How hard it thought.
    pub fn thinking(&self) -> Thinking {
        self.header.thinking
    }

    /// What the user said, one for each run, in order; `None` where a run went on without a message. What was said
    /// while a run was under way is not among them.
    pub fn prompts(&self) -> Vec<Option<UserInput>> {
        let of_turns: Vec<&RecordedCall> = self.calls.iter().filter(|call| !call.summary).collect();
        let overflowed = |call: &&RecordedCall| {
            call.error.as_ref().is_some_and(|error| error.kind == ModelErrorKind::ContextOverflow)
        };
        let begins = |(at, call): &(usize, &&RecordedCall)| match at.checked_sub(1) {
            None => true,
            // The run went on by itself after the context was compacted.
            Some(before) if overflowed(&of_turns[before]) && call.call > of_turns[before].call + 1 => false,
            Some(_) => call.results.is_empty(),
        };
        of_turns
            .iter()
            .enumerate()
            .filter(begins)
            .map(|(_, call)| {
                let mut blocks: Vec<Content> =
                    call.said.iter().flat_map(|body| body.blocks().into_owned()).collect();
                map_content(&mut blocks, |text| self.places.here(text), |json| self.places.here_json(json));
                (!blocks.is_empty()).then_some(UserInput::new(blocks))
            })
            .collect()
    }

    /// How many recorded calls were not played yet.
    pub fn left(&self) -> usize {
        self.calls.len() - self.state.lock().unwrap_or_else(PoisonError::into_inner).at
    }

    /// Whether the model of the recording could search what was done before.
    pub fn searches_history(&self) -> bool {
        self.header.tools.iter().any(|tool| tool == quipu::SEARCH_TOOL)
    }

    /// Whether the model of the recording could go to earlier points of its session.
    pub fn travels(&self) -> bool {
        self.header.tools.iter().any(|tool| tool == quipu::TRAVEL_TOOL)
    }

    /// Whether the model of the recording could hand in a plan.
    pub fn plans(&self) -> bool {
        self.header.tools.iter().any(|tool| tool == quipu::PLAN_TOOL)
    }

    /// Whether the model of the recording had a to-do list.
    pub fn lists(&self) -> bool {
        self.header.tools.iter().any(|tool| tool == quipu::TODO_TOOL)
    }

    /// In what the requests differ from the recorded ones without being a departure: another system prompt, other
    /// tools. Known after the first call.
    pub fn notes(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).notes.clone()
    }

    /// The recorded call that answers this request.
    fn next(&self, request: &ModelRequest) -> Result<&RecordedCall, ModelError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(departed) = &state.departed {
            return Err(departed.clone());
        }
        if is_summary(request) {
            state.since.summary();
            return match self.calls.get(state.at) {
                Some(call) if call.summary => {
                    state.at += 1;
                    Ok(call)
                }
                // The context stays as it is, as it did then.
                _ => Err(ModelError::new(
                    ModelErrorKind::ReplayMismatch,
                    "the recording has no summary at this point",
                )),
            };
        }
        if state.at == 0 {
            state.notes = self.compare_prefix(request);
        }
        // What is not too long here need not be summed up.
        state.at += self.calls[state.at..].iter().take_while(|call| call.summary).count();
        let (said, results) = state.since.look(request, &self.places);
        let compared = match self.calls.get(state.at) {
            None => Err(format!("the recording ends here, after {} call(s)", self.calls.len())),
            Some(call) => self.compare(call, &said, &results).map(|()| call),
        };
        match compared {
            Ok(call) => {
                state.at += 1;
                Ok(call)
            }
            Err(text) => {
                let error = ModelError::new(ModelErrorKind::ReplayMismatch, text);
                state.departed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn compare_prefix(&self, request: &ModelRequest) -> Vec<String> {
        let now = Header::of(request, &self.places);
        let mut notes = Vec::new();
        if now.system != self.header.system {
            notes.push("the recording was made with a different system prompt".to_owned());
        }
        if now.tools != self.header.tools {
            notes.push(format!("the recording was made with the tools {}", self.header.tools.join(", ")));
        } else if now.tool_declarations != self.header.tool_declarations {
            notes.push("the recording was made with different tool descriptions or parameters".to_owned());
        }
        notes
    }

    /// The error names the first difference.
    fn compare(&self, call: &RecordedCall, said: &[Body], results: &[RecordedResult]) -> Result<(), String> {
        for (expected, got) in call.results.iter().zip(results) {
            let what = format!("the result of `{}` (call {})", got.tool, got.call);
            // Not the call's id: where a session went on, it may be numbered anew.
            if expected.tool != got.tool {
                return Err(format!(
                    "{what} differs from the recording: expected a result of `{}`",
                    expected.tool
                ));
            }
            // The recording may be of a version that replaced less.
            let text = self.places.comparable(&expected.text);
            if text != got.text {
                return Err(format!("{what} differs from the recording.\n{}", difference(&text, &got.text)));
            }
            let failed = |failed| if failed { "a failure" } else { "a success" };
            if expected.failed != got.failed {
                return Err(format!(
                    "{what} differs from the recording.\nexpected: {}\ngot:      {}",
                    failed(expected.failed),
                    failed(got.failed)
                ));
            }
            if expected.images != got.images {
                return Err(format!("{what} differs from the recording: different images"));
            }
        }
        if call.results.len() != results.len() {
            return Err(format!(
                "the tool results before call {} differ from the recording: expected {} result(s), got {}",
                call.call,
                call.results.len(),
                results.len()
            ));
        }
        let text = |said: &[Body]| said.iter().map(Body::text).collect::<Vec<_>>().join("\n");
        let (expected, got) = (self.places.here(&text(&call.said)), text(said));
        let alike = |text: &str| self.places.comparable(text);
        if alike(&expected) != alike(&got) {
            return Err(format!(
                "the user input before call {} differs from the recording.\n{}",
                call.call,
                difference(&alike(&expected), &alike(&got))
            ));
        }
        Ok(())
    }

    fn message(&self, request: &ModelRequest, answer: &RecordedAnswer) -> AssistantMessage {
        let mut content = answer.content.clone();
        map_content(&mut content, |text| self.places.here(text), |json| self.places.here_json(json));
        AssistantMessage {
            content,
            stop_reason: answer.stop_reason,
            usage: Usage { cost: Cost::default(), ..answer.usage },
            timestamp: now(),
            response_model: answer.response_model.clone(),
            response_id: answer.response_id.clone(),
            error_message: answer.error_message.clone(),
            raw_stop_reason: answer.raw_stop_reason.clone(),
            ..blank(request)
        }
    }

    /// Says again what was streamed, retries included, without their waits.
    async fn play(&self, call: &Call, recorded: &RecordedCall, message: &AssistantMessage) {
        // Nobody listens only when the session is being closed.
        for (attempt, retry) in (2..).zip(&recorded.retries) {
            if retry.begun {
                let started = AssistantMessage { stop_reason: StopReason::Pending, ..blank(&call.request) };
                drop(call.events.send(CallEvent::Started(Box::new(started))).await);
            }
            let delay = std::time::Duration::ZERO;
            drop(call.events.send(CallEvent::Retry { attempt, delay, error: retry.error.clone() }).await);
        }
        if recorded.error.is_none() || !message.content.is_empty() {
            drop(stream(call, message).await);
        }
    }
}

impl Provider for Replay {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(plain_body(request))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            let failed = |error: ModelError, stop_reason| CallEnd {
                message: AssistantMessage {
                    stop_reason,
                    error_message: Some(error.message.clone()),
                    timestamp: now(),
                    ..blank(&call.request)
                },
                attempts: vec![Attempt {
                    at: now(),
                    error: Some(error.kind),
                    status: None,
                    credential: None,
                }],
                charges: Vec::new(),
                error: Some(error),
                unknown: Vec::new(),
            };
            let recorded = match self.next(&call.request) {
                Ok(recorded) => recorded,
                Err(error) => return failed(error, StopReason::Error),
            };
            let mut message = self.message(&call.request, &recorded.answer);
            // It was paid for when it was recorded.
            message.usage.cost = quipu_protocol::Cost::default();
            let stopped = tokio::select! {
                biased;
                () = call.cancel.cancelled() => true,
                () = self.play(&call, recorded, &message) => false,
            };
            if stopped {
                return failed(ModelError::new(ModelErrorKind::Aborted, "aborted"), StopReason::Aborted);
            }
            let attempts = recorded.attempts.iter();
            CallEnd {
                message,
                error: recorded.error.clone(),
                attempts: attempts
                    .map(|attempt| Attempt {
                        at: now(),
                        error: attempt.error,
                        status: attempt.status,
                        credential: None,
                    })
                    .collect(),
                charges: Vec::new(),
                unknown: recorded.unknown.clone(),
            }
        }
        .boxed()
    }
}

fn now() -> quipu_protocol::UnixMs {
    quipu::Clock::now(&quipu::SystemClock)
}

/// The lines in which two texts differ, from the first such line to the last, in pairs.
fn difference(expected: &str, got: &str) -> String {
    let lines = |text: &'_ str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    let (expected, got) = (lines(expected), lines(got));
    let same = expected.iter().zip(&got).take_while(|(a, b)| a == b).count();
    let (expected, got) = (&expected[same..], &got[same..]);
    let tail = expected.iter().rev().zip(got.iter().rev()).take_while(|(a, b)| a == b).count();
    let (expected, got) = (&expected[..expected.len() - tail], &got[..got.len() - tail]);
    let count = expected.len().max(got.len());
    let mut out: Vec<String> = Vec::new();
    for at in 0..count.min(SHOWN_LINES) {
        let (expected, got) = (expected.get(at), got.get(at));
        if expected == got {
            continue;
        }
        // A long line is shown from shortly before the place where it differs.
        let from = match (expected, got) {
            (Some(a), Some(b)) => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
            (Some(_) | None, None) | (None, Some(_)) => 0,
        };
        out.push(format!("expected: {}", excerpt(expected, from)));
        out.push(format!("got:      {}", excerpt(got, from)));
    }
    if count > SHOWN_LINES {
        out.push(format!("… and {} more line(s)", count - SHOWN_LINES));
    }
    out.join("\n")
}

fn excerpt(line: Option<&String>, differs: usize) -> String {
    let Some(line) = line else { return "(nothing)".into() };
    let length = line.chars().count();
    let from = if length > SHOWN_WIDTH { differs.saturating_sub(SHOWN_WIDTH / 4) } else { 0 };
    let shown: String = line.chars().skip(from).take(SHOWN_WIDTH).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if length > from + SHOWN_WIDTH { "…" } else { "" };
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_short() {
        let check = |expected: &str, got: &str, shown: &str| assert_eq!(difference(expected, got), shown);
        check("a\nb\nc", "a\nB\nc", "expected: b\ngot:      B");
        check("a\nb\nx\nd\nc", "a\nB\nx\nD\nc", "expected: b\ngot:      B\nexpected: d\ngot:      D");
        check("a", "a\nb", "expected: (nothing)\ngot:      b");
        check("a\na\na", "a", "expected: a\ngot:      (nothing)\nexpected: a\ngot:      (nothing)");
        let many = "x\n".repeat(9);
        assert!(difference(&many, "").ends_with("… and 3 more line(s)"));
        let long = "é".repeat(5_000);
        let shown = difference(&format!("{long}1{long}"), &format!("{long}2{long}"));
        assert!(shown.contains("é1é") && shown.contains("é2é") && shown.chars().count() < 400, "{shown}");
    }
}
