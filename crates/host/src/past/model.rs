//! A model that sums up the past: asked through a runner, within the budget of its purpose, and never twice for the same.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quipu::{CallRequest, ModelName, Runner, RunnerError, RunnerPurpose};
use quipu_past::{AskFut, AskRefusal, SummaryAsk, SummaryModel, SummaryReply};
use quipu_protocol::{AssistantMessage, Entry, Message, Model, ModelErrorKind, StopReason, Usage};
use quipu_store::{CHILD_SESSION, Graph, LineageEnd, SessionQuery, SessionRow, decode_nodes};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::background_budget::background_budget;
use crate::purposes::PAST_PURPOSE;
use crate::{Failure, Home};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(300);
/// Nodes of a session that consists of one call, and a few that may stand behind it.
const NODES: usize = 16;

/// A model that sums up.
pub struct PastModel {
    home: Home,
    store: Arc<dyn Graph>,
    runner: Runner,
    model: Arc<Model>,
    /// Sessions that each consist of one call, by the first line of what was asked, the newest first.
    recorded: OnceCell<HashMap<String, Vec<SessionRow>>>,
    /// What it answered since, by the same: a plan that is made anew does not pay again.
    answered: Mutex<HashMap<String, SummaryReply>>,
}

impl fmt::Debug for PastModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastModel").field("model", &self.name()).finish_non_exhaustive()
    }
}

impl PastModel {
    /// The model of the settings for this purpose, else that of a new session.
    pub(super) fn new(
        home: &Home,
        store: &Arc<dyn Graph>,
        runner: impl FnOnce() -> Result<Runner, RunnerError>,
    ) -> Result<Self, Failure> {
        let runner = runner().map_err(Failure::failed)?;
        let settings = home.settings();
        let own = settings.default_model().ok_or_else(|| Failure::failed("no model has a credential"))?;
        let model = match home.config().purpose_models.get(PAST_PURPOSE) {
            None => own,
            Some(name) => {
                let found = settings.find(None, name).map_err(Failure::failed)?.model;
                let is_local =
                    |model: &Model| settings.provider_for(model, None).map(|provider| provider.is_local());
                let (to, from) = (is_local(&found), is_local(&own));
                let (to, from) = (to.map_err(Failure::failed)?, from.map_err(Failure::failed)?);
                // What may be meant for this machine alone stays on it.
                if to || !from { found } else { own }
            }
        };
        let (recorded, answered) = (OnceCell::new(), Mutex::default());
        Ok(Self { home: home.clone(), store: store.clone(), runner, model, recorded, answered })
    }

    async fn call(&self, ask: &SummaryAsk) -> Result<SummaryReply, AskRefusal> {
        let failed = |why: &dyn fmt::Display| AskRefusal::Failed(why.to_string());
        let budget = background_budget(&self.home, &*self.store, PAST_PURPOSE).await;
        let budget = budget.map_err(|failure| failed(&failure))?;
        let Some(left) = budget.left() else {
            let limit = budget.limit;
            return Err(AskRefusal::Budget(format!(
                "the ${limit} a day for the past (budget.background) are spent"
            )));
        };
        let purpose = RunnerPurpose::new(PAST_PURPOSE).map_err(|error| failed(&error))?;
        let name = ModelName { provider: self.model.provider.clone(), id: self.model.id.clone() };
        let request = CallRequest {
            system: ask.system.to_owned(),
            model: Some(name),
            max_tokens: ask.max_tokens,
            budget: Some(left),
            daily: Some(budget.limit),
            deadline: DEADLINE,
            ..CallRequest::new(purpose, ask.prompt.clone())
        };
        match self.runner.call(request).await {
            Ok(answer) => Ok(reply_of(&answer.message, Some(&answer.usage))),
            Err(RunnerError::Budget(_)) => Err(AskRefusal::Budget(format!(
                "the next call may cost more than is left of the ${} a day for the past (budget.background), or of the day",
                budget.limit
            ))),
            Err(RunnerError::Model(error))
                if matches!(
                    error.kind,
                    ModelErrorKind::Refused | ModelErrorKind::TooLarge | ModelErrorKind::ContextOverflow
                ) =>
            {
                Err(AskRefusal::Never(error.message))
            }
            // Said by the server, of this request; not where none could be made.
            Err(RunnerError::Model(error))
                if error.kind == ModelErrorKind::InvalidRequest && error.status.is_some() =>
            {
                Err(AskRefusal::Invalid(error.message))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Calls of this store that may have been for a past.
    async fn calls(&self) -> &HashMap<String, Vec<SessionRow>> {
        let read = || async {
            let query = SessionQuery { children: true, ..SessionQuery::default() };
            let mut calls: HashMap<String, Vec<SessionRow>> = HashMap::new();
            // What cannot be read is asked again.
            let mut rows = self.store.sessions(query).await.unwrap_or_default();
            rows.retain(|row| row.id.as_str().starts_with(CHILD_SESSION) && row.title.starts_with('<'));
            rows.sort_by_key(|row| std::cmp::Reverse(row.created));
            for row in rows {
                calls.entry(row.title.clone()).or_default().push(row);
            }
            calls
        };
        self.recorded.get_or_init(read).await
    }

    async fn read(&self, row: &SessionRow) -> Option<SummaryReply> {
        let nodes = self.store.lineage(row.head?, LineageEnd::Count(NODES)).await.ok()?;
        let decoded = decode_nodes(&*self.store, &nodes).await.ok()?;
        let (mut is_ours, mut is_of_model, mut answer) = (false, false, None);
        for one in decoded {
            match one.entry {
                Entry::Session(start) => {
                    let epoch = start.epoch;
                    is_of_model = (&epoch.provider, &epoch.model) == (&self.model.provider, &self.model.id);
                }
                Entry::Meta(json) => {
                    is_ours |= json.read::<Mark>().is_ok_and(|mark| mark.data.purpose == PAST_PURPOSE);
                }
                Entry::Message(Message::Assistant(message)) => answer = Some(message),
                Entry::Message(_) | Entry::Epoch(_) | Entry::Compaction(_) => {}
            }
        }
        let answer = answer.filter(|answer| {
            is_ours && is_of_model && matches!(answer.stop_reason, StopReason::Stop | StopReason::Length)
        })?;
        Some(reply_of(&answer, None))
    }
}

/// What the second node of such a session says.
#[derive(Deserialize)]
struct Mark {
    data: MarkData,
}

#[derive(Deserialize)]
struct MarkData {
    purpose: String,
}

fn reply_of(message: &AssistantMessage, usage: Option<&Usage>) -> SummaryReply {
    let usage = usage.copied().unwrap_or_default();
    SummaryReply {
        text: message.text(),
        input: usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write),
        output: usage.output,
        cost: usage.cost.total,
        is_cut: message.stop_reason == StopReason::Length,
    }
}

impl SummaryModel for PastModel {
    fn name(&self) -> String {
        format!("{}/{}", self.model.provider, self.model.id)
    }

    fn ask<'a>(&'a self, ask: &'a SummaryAsk) -> AskFut<'a, Result<SummaryReply, AskRefusal>> {
        Box::pin(async move {
            let reply = self.call(ask).await?;
            if let Some(line) = ask.prompt.lines().next() {
                // Who gets it from here did not pay for it.
                let kept = SummaryReply { input: 0, output: 0, cost: 0.0, ..reply.clone() };
                let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
                answered.insert(line.to_owned(), kept);
            }
            Ok(reply)
        })
    }

    fn recorded<'a>(&'a self, first_line: &'a str) -> AskFut<'a, Option<SummaryReply>> {
        Box::pin(async move {
            let answered =
                self.answered.lock().unwrap_or_else(PoisonError::into_inner).get(first_line).cloned();
            if answered.is_some() {
                return answered;
            }
            for row in self.calls().await.get(first_line).into_iter().flatten() {
                if let Some(reply) = self.read(row).await {
                    return Some(reply);
                }
            }
            None
        })
    }

    fn price(&self, input: u64, output: u64) -> f64 {
        self.model.price(&Usage { input, output, ..Usage::default() }).total
    }
}
