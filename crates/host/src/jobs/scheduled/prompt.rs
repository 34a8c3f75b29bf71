//! A prompt in a session of its own, with nobody in front.

use std::path::Path;

use quipu::{Delivery, Session};
use quipu_protocol::{
    AuthorClass, Content, Ending, Event, Limit, Message, Origin, Outcome, Provenance, SessionId, UserInput,
};
use quipu_store::JobRunState;
use tokio_util::sync::CancellationToken;

use super::WorkEnd;
use crate::jobs::JobError;
use crate::scheduled_job::PromptWork;
use crate::{Failure, FailureKind, Home, OpenRequest, PermissionRequest, SessionTarget};

/// Says the prompt in a new session, and waits until that is at rest. `began` is told the session once it is in the store.
pub(super) async fn run<F: Future<Output = Result<(), JobError>>>(
    home: &Home,
    work: &PromptWork,
    stop: &CancellationToken,
    began: impl FnOnce(SessionId) -> F,
) -> Result<WorkEnd, JobError> {
    let here = Path::new(&work.cwd).canonicalize();
    let here = here
        .ok()
        .filter(|here| here.is_dir())
        .ok_or_else(|| JobError::new(format!("the directory {} of the job is not there", work.cwd)))?;
    let mut request = OpenRequest {
        which: SessionTarget::New,
        here,
        model: work.model.clone(),
        max_cost: work.budget,
        max_turns: work.max_turns,
        tools: work.tools.clone(),
        is_unattended: true,
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
            Err(failure) => return Err(JobError::new(failure)),
        }
    };
    let session = opened.opened.session;
    if work.budget.is_none() && may_cost(&opened.model) {
        session.shutdown().await;
        return Err(JobError::new(format!(
            "the job has no budget, and {}/{} is not free; give the job a budget",
            opened.model.provider, opened.model.id
        )));
    }
    let done = say(&session, work, stop, began).await;
    session.shutdown().await;
    done
}

/// Whether a call of the model can cost money: where its price is not known, only one on this machine cannot.
fn may_cost(model: &quipu_protocol::Model) -> bool {
    match model.cost.are_known() {
        true => model.cost.most(1_000_000, 1_000_000, true) > 0.0,
        false => {
            let url = quipu_providers::net::Url::parse(&model.base_url).ok();
            !url.and_then(|url| url.host_str().map(quipu_providers::net::is_loopback)).unwrap_or(false)
        }
    }
}

async fn say<F: Future<Output = Result<(), JobError>>>(
    session: &Session,
    work: &PromptWork,
    stop: &CancellationToken,
    began: impl FnOnce(SessionId) -> F,
) -> Result<WorkEnd, JobError> {
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.map_err(JobError::new)?;
    let class = if work.by_model { AuthorClass::Agent } else { AuthorClass::Owner };
    let input = UserInput::new(vec![Content::text(work.prompt.clone())])
        .from_source(Provenance::new(Origin::Schedule, class));
    session.prompt(input).await.map_err(JobError::new)?;
    let id = session.view().session;
    began(id.clone()).await?;
    let (mut outcome, mut text, mut cost) = (None, String::new(), 0.0);
    loop {
        let envelope = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(JobError::new("the job was stopped")),
            envelope = events.next() => envelope,
        };
        let Some(envelope) = envelope else { break };
        match &envelope.event {
            Event::MessageEnded { message, ending, .. } => {
                if let Message::Assistant(answer) = &**message {
                    cost += answer.usage.cost.total;
                    if matches!(ending, Ending::Committed(_)) {
                        text = answer.text();
                    }
                }
            }
            Event::RunEnded { outcome: ended } => outcome = Some(ended.clone()),
            Event::Settled if outcome.is_some() => break,
            _ => {}
        }
    }
    let limit = |why: String| {
        let text = if text.trim().is_empty() { why } else { format!("{why}\n\n{text}") };
        Ok(WorkEnd { state: JobRunState::Limit, session: Some(id.clone()), cost, text })
    };
    match outcome {
        Some(Outcome::Done) => Ok(WorkEnd { state: JobRunState::Done, session: Some(id), cost, text }),
        Some(Outcome::Limit(Limit::Turns(turns))) => limit(format!("The job stopped after {turns} turns.")),
        Some(Outcome::Limit(Limit::Cost(dollars))) => {
            limit(format!("The job stopped at its budget of ${dollars}."))
        }
        Some(Outcome::Limit(Limit::Daily { budget, .. })) => {
            limit(format!("The job stopped at the daily budget of ${budget}."))
        }
        Some(Outcome::Failed(error)) => Err(JobError::new(error)),
        Some(Outcome::StoreFailed(why)) => Err(JobError::new(why)),
        Some(Outcome::Aborted) | None => Err(JobError::new("the session was aborted")),
    }
}
