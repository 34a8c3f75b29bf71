//! A prompt in a session of its own, with nobody in front.

use std::path::Path;

use quipu::{Delivery, Session};
use quipu_protocol::{
    AuthorClass, Content, Ending, Event, Limit, Message, ModelErrorKind, Origin, Outcome, Provenance,
    UserInput,
};
use quipu_store::{JobKey, JobRunState};
use tokio_util::sync::CancellationToken;

use super::work::{WorkEnd, WorkFailure};
use crate::jobs::JobError;
use crate::sandbox::MAIN;
use crate::scheduled_job::PromptWork;
use crate::{
    CallPrices, ConversationPlace, Failure, FailureKind, Home, OpenRequest, PermissionRequest,
    SessionAudience, SessionTarget,
};

/// Sends the prompt in a new session, and waits until that is at rest. `spent`: what attempts before it cost. `began` gets the
/// session once it is in the store.
pub(super) async fn run<F: Future<Output = Result<(), JobError>>>(
    home: &Home,
    (key, work): (&JobKey, &PromptWork),
    spent: f64,
    stop: &CancellationToken,
    began: impl FnOnce(Session) -> F,
) -> Result<WorkEnd, WorkFailure> {
    let here = Path::new(&work.cwd).canonicalize();
    let here = here
        .ok()
        .filter(|here| here.is_dir())
        .ok_or_else(|| JobError::new(format!("the directory {} of the job is not there", work.cwd)))?;
    let budget = work.budget.map(|budget| budget - spent);
    if let (Some(all), Some(left)) = (work.budget, budget)
        && left <= 0.0
    {
        let error = JobError::new(format!("earlier attempts used up its budget of ${all}"));
        return Err(WorkFailure { error, cost: 0.0, is_final: true });
    }
    let mut request = OpenRequest {
        which: SessionTarget::New,
        here,
        model: work.model.clone(),
        max_cost: budget,
        accounts: work.account(key.as_str()).into_iter().collect(),
        prices: if work.may_spend() { CallPrices::Any } else { CallPrices::OnlyFree },
        max_turns: work.max_turns,
        tools: work.tools.clone(),
        is_unattended: true,
        // Of an agent that is not set up any more nothing says what it may do.
        audience: SessionAudience {
            agent: work.agent.clone(),
            is_known_only: true,
            ..SessionAudience::default()
        },
        conversation: Some(conversation_of(key, work)),
        permissions: PermissionRequest { plan: Some(false), ..PermissionRequest::default() },
        ..OpenRequest::default()
    };
    let opened = loop {
        match Box::pin(crate::open(home, &request)).await {
            Ok(opened) => break opened,
            // Nobody is there to be asked.
            Err(Failure { kind: FailureKind::Asks(question), .. })
                if request.answers.iter().all(|(asked, _)| *asked != question) =>
            {
                request.answers.push((question, None));
            }
            Err(failure) => {
                let is_final = matches!(failure.kind, FailureKind::Request | FailureKind::Credential);
                return Err(WorkFailure { error: JobError::new(failure), cost: 0.0, is_final });
            }
        }
    };
    let session = opened.opened.session;
    let answered = ask(&session, work, stop, began).await;
    session.shutdown().await;
    // All that it spent, with its children.
    let cost = session.spent();
    match answered {
        Ok(end) => Ok(WorkEnd { cost, ..end }),
        Err(failure) => Err(WorkFailure { cost, ..failure }),
    }
}

/// The conversation that all sessions of a job are: never the main one of its agent.
fn conversation_of(key: &JobKey, work: &PromptWork) -> ConversationPlace {
    let agent = work.agent.as_deref().unwrap_or(MAIN).to_owned();
    let name = format!("agent:{agent}:cron:{}", key.as_str());
    ConversationPlace { agent, name, is_main: false }
}

/// Whether the same request would fail again.
const fn is_final(kind: ModelErrorKind) -> bool {
    matches!(
        kind,
        ModelErrorKind::NoCredential
            | ModelErrorKind::Auth
            | ModelErrorKind::AuthRevoked
            | ModelErrorKind::Quota
            | ModelErrorKind::UsageLimit
            | ModelErrorKind::ContextOverflow
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::UnknownModel
            | ModelErrorKind::ThinkingLevel
            | ModelErrorKind::Refused
    )
}

async fn ask<F: Future<Output = Result<(), JobError>>>(
    session: &Session,
    work: &PromptWork,
    stop: &CancellationToken,
    began: impl FnOnce(Session) -> F,
) -> Result<WorkEnd, WorkFailure> {
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.map_err(JobError::new)?;
    let class = if work.by_model { AuthorClass::Agent } else { AuthorClass::Owner };
    let input = UserInput::new(vec![Content::text(work.prompt.clone())])
        .from_source(Provenance::new(Origin::Schedule, class));
    session.prompt(input).await.map_err(JobError::new)?;
    let id = session.view().session;
    began(session.clone()).await?;
    let (mut outcome, mut text) = (None, String::new());
    loop {
        let envelope = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(JobError::new("the job was stopped").into()),
            envelope = events.next() => envelope,
        };
        let Some(envelope) = envelope else { break };
        match &envelope.event {
            Event::MessageEnded { message, ending, .. } => {
                if let (Message::Assistant(answer), Ending::Committed(_)) = (&**message, ending) {
                    text = answer.text();
                }
            }
            Event::RunEnded { outcome: ended } => outcome = Some(ended.clone()),
            Event::Settled if outcome.is_some() => break,
            _ => {}
        }
    }
    let limit = |why: String| {
        let text = if text.trim().is_empty() { why } else { format!("{why}\n\n{text}") };
        Ok(WorkEnd { state: JobRunState::Limit, session: Some(id.clone()), cost: 0.0, text })
    };
    match outcome {
        Some(Outcome::Done) => {
            Ok(WorkEnd { state: JobRunState::Done, session: Some(id.clone()), cost: 0.0, text })
        }
        Some(Outcome::Limit(Limit::Cost(_))) if !work.may_spend() => {
            let error =
                JobError::new("the job has no budget, and a call was not free; give the job a budget");
            Err(WorkFailure { error, cost: 0.0, is_final: true })
        }
        Some(Outcome::Limit(reached)) => limit(format!("The job stopped: {reached}.")),
        Some(Outcome::Failed(error)) => {
            let is_final = is_final(error.kind);
            Err(WorkFailure { error: JobError::new(error), cost: 0.0, is_final })
        }
        Some(Outcome::StoreFailed(why)) => Err(JobError::new(why).into()),
        Some(Outcome::Aborted) | None => Err(JobError::new("the session was aborted").into()),
    }
}
