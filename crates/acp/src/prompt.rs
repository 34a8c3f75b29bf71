//! A prompt of a client, from its blocks to the reason why the turn ended.

use std::sync::Arc;

use quipu_host::CommandCall;
use quipu_protocol::{
    Ack, Command, CommandValue, Limit, ModelErrorKind, Outcome, QueueMode, RunId, StopReason, UserInput,
};
use serde_json::{Value, json};

use crate::input::PromptInput;
use crate::session::{OpenSession, PromptTicket, RunEnd};
use crate::updates;
use crate::wire::{AUTH_REQUIRED, INTERNAL, INVALID_REQUEST, WireError};

/// The command of our own: its name, what it does and what follows it.
pub(crate) const COMPACT: (&str, &str, &str) =
    ("compact", "Summarize the context, except for its end", "what the summary should focus on");

/// Characters of the title that a session has by its first message.
const TITLE: usize = 80;

/// What a prompt comes to before a model is called.
enum PromptPlan {
    Message(UserInput),
    Compact(Option<String>),
    /// It was done without the model, with a text to show.
    Done(Option<String>),
}

/// Sends a prompt and waits until its run ends; the answer to its request.
pub(crate) async fn run(
    open: &Arc<OpenSession>,
    ticket: &PromptTicket,
    input: PromptInput,
) -> Result<Value, WireError> {
    let stopped = |reason: &str| Ok(json!({ "stopReason": reason }));
    let plan = tokio::select! {
        biased;
        () = ticket.cancelled.cancelled() => return stopped("cancelled"),
        plan = plan(open, input) => plan?,
    };
    let mut ends = open.ends.clone();
    let before = ends.borrow_and_update().count;
    let command = match plan {
        PromptPlan::Done(text) => {
            if let Some(text) = text {
                tell(open, updates::chunk("agent_message_chunk", &text, None)).await;
            }
            return stopped("end_turn");
        }
        PromptPlan::Message(input) => {
            name_by(open, &input).await;
            // Behind a run that began by itself, where there is one.
            Command::Prompt { input, when: QueueMode::Steer }
        }
        PromptPlan::Compact(focus) => Command::Compact { focus },
    };
    let sent = open.session.send(command).await;
    let run = match sent.map_err(|error| WireError::new(INVALID_REQUEST, error.to_string()))? {
        Ack::Started(run) => Some(run),
        Ack::Queued(_) => None,
        // A hook took it.
        _ => return stopped("end_turn"),
    };
    let ended = end_of(&mut ends, before, run);
    tokio::pin!(ended);
    let end = tokio::select! {
        biased;
        end = &mut ended => end,
        () = ticket.cancelled.cancelled() => {
            open.abort().await;
            ended.await
        }
    };
    match end {
        Some(end) => answer(&end),
        None => stopped("cancelled"),
    }
}

async fn tell(open: &OpenSession, update: Value) {
    if let Some(name) = open.link.name() {
        open.link.connection.update(name, update).await;
    }
}

/// How the run ended; `None` where the session was closed.
async fn end_of(
    ends: &mut tokio::sync::watch::Receiver<crate::session::RunEndLog>,
    before: u64,
    run: Option<RunId>,
) -> Option<RunEnd> {
    loop {
        let found = {
            let ends = ends.borrow_and_update();
            let new = usize::try_from(ends.count - before).unwrap_or(usize::MAX);
            let known = ends.last.len().saturating_sub(new);
            ends.last.iter().skip(known).find(|end| run.is_none() || end.run == run).cloned()
        };
        match found {
            Some(end) => return Some(end),
            None => ends.changed().await.ok()?,
        }
    }
}

/// What the prompt asks for: a command with a slash, or a message.
async fn plan(open: &OpenSession, input: PromptInput) -> Result<PromptPlan, WireError> {
    let PromptInput { input, typed } = input;
    let text = input.own_text();
    let line = text.strip_prefix('/').unwrap_or_default();
    let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let arguments = arguments.trim();
    if name == COMPACT.0 {
        return Ok(PromptPlan::Compact((!arguments.is_empty()).then(|| arguments.to_owned())));
    }
    let commands = open.home.commands();
    if commands.runnable().iter().any(|spec| spec.name == name) {
        let call = CommandCall { arguments: arguments.to_owned(), session: Some(open.session.clone()) };
        let value = commands.run(name, call).await;
        return Ok(match value.map_err(|error| WireError::params(error.to_string()))? {
            CommandValue::Prompt { input } => PromptPlan::Message(input),
            CommandValue::Text { text } => PromptPlan::Done(Some(text)),
            CommandValue::Done => PromptPlan::Done(None),
        });
    }
    let (input, problems) = open.home.mentions().read(input, &typed).await;
    for problem in problems {
        tell(open, updates::notice(&open.link, &problem, true)).await;
    }
    Ok(PromptPlan::Message(input))
}

/// Gives a session without a name the title of its first message.
async fn name_by(open: &OpenSession, input: &UserInput) {
    if open.session.view().head.is_none() {
        let title = quipu_host::one_line(&input.own_text(), TITLE);
        tell(open, json!({ "sessionUpdate": "session_info_update", "title": title })).await;
    }
}

fn answer(end: &RunEnd) -> Result<Value, WireError> {
    let stopped = |reason: &str| Ok(json!({ "stopReason": reason }));
    match &end.outcome {
        Outcome::Done if end.stop == StopReason::Length => stopped("max_tokens"),
        Outcome::Done => stopped("end_turn"),
        Outcome::Aborted => stopped("cancelled"),
        Outcome::Limit(Limit::Turns(_)) => stopped("max_turn_requests"),
        Outcome::Limit(limit) => Err(WireError::new(INTERNAL, format!("the run was stopped: {limit}"))),
        Outcome::Failed(error) if error.kind == ModelErrorKind::Refused => stopped("refusal"),
        Outcome::Failed(error) => {
            let is_credential = matches!(
                error.kind,
                ModelErrorKind::NoCredential | ModelErrorKind::Auth | ModelErrorKind::AuthRevoked
            );
            let code = if is_credential { AUTH_REQUIRED } else { INTERNAL };
            let data = Some(json!({ "kind": error.kind }));
            Err(WireError { code, message: error.to_string(), data })
        }
        Outcome::StoreFailed(why) => Err(WireError::new(INTERNAL, why.clone())),
    }
}
