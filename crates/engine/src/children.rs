//! What a runner does in sessions of their own: child sessions, and calls for which no session has a name yet.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::BoxFuture;
use quipu_machine::{CommitError, Draft, Limits, Plan, PlanOp, RunMoney};
use quipu_protocol::{
    AuthorClass, Entry, Epoch, Message, Model, NodeId, Origin, Provenance, RunId, SessionId, SessionStart,
    StepInfo, UserInput,
};
use quipu_providers::clamp_level;
use quipu_seal::Sealer;
use quipu_store::{CHILD_SESSION, RefName};
use quipu_tools::Tool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::calls::bodies::Bodies;
use crate::calls::money::{Purse, nano};
use crate::calls::{CallJob, CallPurpose, CallResult, Caller};
use crate::clock::fresh_id;
use crate::commit::Committer;
use crate::engine::{Engine, SessionOptions};
use crate::identity::Prompt;
use crate::image_tool::ImageQuestions;
use crate::models::{ModelLookupError, PurposeModel, may_see, purpose_model};
use crate::owner::Lease;
use crate::runner::{
    Backend, CallAnswer, CallOrder, ChildAnswer, ChildOrder, ModelRoute, RUNNER_AT_ONCE, RUNNER_DEPTH,
    Runner, RunnerError, Terms, answered, in_time, parent_draft, request_of, unsent,
};

/// Begins sessions for a runner.
#[derive(Clone)]
pub(crate) struct Children(Arc<Inner>);

struct Inner {
    engine: Engine,
    /// Of the session that they are begun for, without its prompt, or what stands for one.
    options: SessionOptions,
    parent: Option<SessionId>,
    /// The level of that session.
    depth: u32,
    permits: Arc<Semaphore>,
}

/// A child session to begin.
pub(crate) struct ChildPlan {
    pub(crate) order: ChildOrder,
    pub(crate) carried: ModelRoute,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// The session that it is begun for, as it is called now.
    pub(crate) parent: Option<SessionId>,
    /// US dollars at most.
    pub(crate) budget: Option<f64>,
    /// US dollars of the day.
    pub(crate) daily: Option<f64>,
}

/// What a session says of what is made in a session of its own for it.
pub(crate) struct ChildTerms {
    pub(crate) carried: ModelRoute,
    /// US dollars of the day.
    pub(crate) daily: Option<f64>,
    /// That of the session, which counts it.
    pub(crate) purse: Arc<Purse>,
    /// The run that pays, and what it holds back for it.
    pub(crate) held: Option<(RunId, i64)>,
    /// Tools of the session that are lent to a child session.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
}

impl ChildTerms {
    fn is_over(purse: &Purse, held: Option<(RunId, i64)>, cost: f64) {
        if let Some((run, held)) = held {
            purse.book.side_cost(&run, held, nano(cost));
        }
        purse.book.side_counted(cost);
    }
}

/// What came of one.
pub(crate) struct ChildEnd {
    /// `None` where none was begun.
    pub(crate) session: Option<SessionId>,
    /// US dollars that it cost, or may have cost.
    pub(crate) cost: f64,
    pub(crate) answer: Result<ChildAnswer, RunnerError>,
}

impl ChildEnd {
    fn unmade(error: RunnerError) -> Self {
        Self { session: None, cost: 0.0, answer: Err(error) }
    }
}

impl Engine {
    /// Asks models for something that belongs to no session, such as a job. Each call is recorded in a session of its own,
    /// and so is each child session. The options say which model is asked, in which directory, with which tools at most, and
    /// under whose rules; of their limits those of the day count.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, protocol::Model, store};
    /// use quipu::{CallRequest, RunnerPurpose};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::new(store::in_memory()?, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
    /// # let step = ScriptStep { text: "A title".into(), ..ScriptStep::default() };
    /// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(vec![step])));
    /// # let options = SessionOptions::new(std::env::temp_dir(), model, script);
    /// let runner = engine.runner(options);
    /// let request = CallRequest::new(RunnerPurpose::new("title")?, "Name this conversation: ...");
    /// assert_eq!(runner.call(request).await?.text, "A title");
    /// # Ok(())
    /// # }
    /// ```
    pub fn runner(&self, options: SessionOptions) -> Runner {
        let children = Children::new(self.clone(), options, None, 0);
        Runner::new(Some(Arc::new(children)), None)
    }
}

impl Children {
    pub(crate) fn new(
        engine: Engine,
        options: SessionOptions,
        parent: Option<SessionId>,
        depth: u32,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(RUNNER_AT_ONCE));
        let engine = engine.unpublished();
        Self(Arc::new(Inner { engine, options, parent, depth, permits }))
    }

    /// Sessions are begun with it.
    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Those of the session that they are begun for, without its prompt.
    pub(crate) fn options(&self) -> &SessionOptions {
        &self.0.options
    }

    /// The level of that session.
    pub(crate) fn depth(&self) -> u32 {
        self.0.depth
    }

    /// Whether they are those of a child session.
    pub(crate) fn is_of_child(&self) -> bool {
        self.0.depth > 0
    }

    /// Makes a call in a session of its own, for a session that has no name yet.
    pub(crate) fn call_for(
        &self,
        order: CallOrder,
        alone: ChildTerms,
    ) -> BoxFuture<'static, Result<CallAnswer, RunnerError>> {
        let this = self.clone();
        owned(|cancel| async move {
            let ChildTerms { carried, daily, purse, held, tools: _ } = alone;
            let mut cost = 0.0;
            let answer = async {
                let _permit = this.permit(&order.terms).await?;
                this.call_standalone(order, carried, daily, cancel, &mut cost).await
            }
            .await;
            ChildTerms::is_over(&purse, held, cost);
            answer
        })
    }

    /// Begins a child session for a session that has no name yet.
    pub(crate) fn session_for(
        &self,
        order: ChildOrder,
        alone: ChildTerms,
    ) -> BoxFuture<'static, Result<ChildAnswer, RunnerError>> {
        let this = self.clone();
        owned(|cancel| async move {
            let ChildTerms { carried, daily, purse, held, tools } = alone;
            let made = match this.plan(order, carried, tools, daily).await {
                Ok((plan, _permit)) => this.run(plan, cancel).await,
                Err(error) => ChildEnd::unmade(error),
            };
            ChildTerms::is_over(&purse, held, made.cost);
            made.answer
        })
    }

    async fn plan(
        &self,
        order: ChildOrder,
        carried: ModelRoute,
        tools: Vec<Arc<dyn Tool>>,
        daily: Option<f64>,
    ) -> Result<(ChildPlan, OwnedSemaphorePermit), RunnerError> {
        let permit = self.permit(&order.terms).await?;
        let (budget, parent) = (order.terms.budget_for(&carried.0), self.0.parent.clone());
        Ok((ChildPlan { order, carried, tools, parent, budget, daily }, permit))
    }

    /// Tools of the options, where no session has a say in it.
    fn lent(&self, names: &[String]) -> Result<Vec<Arc<dyn Tool>>, RunnerError> {
        let lent = |name: &String| {
            let tool = self.0.options.tools.iter().find(|tool| tool.spec().name == *name);
            tool.cloned().ok_or_else(|| RunnerError::NoTool(name.clone()))
        };
        names.iter().map(lent).collect()
    }

    /// Waits for its turn.
    pub(crate) async fn permit(&self, terms: &Terms) -> Result<OwnedSemaphorePermit, RunnerError> {
        let permit = self.0.permits.clone().acquire_owned();
        match tokio::time::timeout_at(terms.until, permit).await {
            // Nobody closes it.
            Ok(permit) => permit.map_err(|_| RunnerError::Closed),
            Err(_) => Err(RunnerError::Deadline { after: terms.after }),
        }
    }

    /// The model that is named, if one is; else the one that the user set for the purpose.
    pub(crate) async fn find(&self, terms: &Terms) -> Result<Option<ModelRoute>, RunnerError> {
        let options = &self.0.options;
        let Some(name) = terms.model.clone() else {
            let purpose = terms.purpose.as_str().to_owned();
            let find = purpose_model(options.models.clone(), purpose);
            let found = tokio::time::timeout_at(terms.until, find).await;
            let found = found.map_err(|_| RunnerError::Deadline { after: terms.after })??;
            return Ok(found.map(|PurposeModel { model, provider, .. }| (model, provider)));
        };
        let own = &options.model;
        if (&own.provider, &own.id) == (&name.provider, &name.id) {
            return Ok(Some((own.clone(), options.provider.clone())));
        }
        let models = options.models.clone().ok_or(ModelLookupError::NoOthers)?;
        // It may read files, and run a command that knows a key.
        let find = tokio::task::spawn_blocking(move || models.find(&name.provider, &name.id));
        match tokio::time::timeout_at(terms.until, find).await {
            Ok(Ok(found)) => Ok(Some(found?)),
            Ok(Err(error)) => Err(ModelLookupError::Failed { why: error.to_string() }.into()),
            Err(_) => Err(RunnerError::Deadline { after: terms.after }),
        }
    }

    /// Whether there can be a child.
    pub(crate) fn allows_child(&self) -> Result<(), RunnerError> {
        let depth = self.0.depth + 1;
        if depth > RUNNER_DEPTH { Err(RunnerError::TooDeep { depth }) } else { Ok(()) }
    }

    /// The model that is asked where no session says which.
    async fn carried(&self, terms: &Terms) -> Result<ModelRoute, RunnerError> {
        let options = &self.0.options;
        let is_named = terms.model.is_some();
        let found =
            self.find(terms).await?.filter(|(_, other)| is_named || may_see(&*options.provider, &**other));
        Ok(found.unwrap_or_else(|| (options.model.clone(), options.provider.clone())))
    }

    /// Begins a child session, says the prompt, waits until it is at rest or its deadline passes, and closes it.
    pub(crate) async fn run(&self, plan: ChildPlan, cancel: CancellationToken) -> ChildEnd {
        let Inner { engine, options, depth, .. } = &*self.0;
        let ChildPlan { order, carried: (model, provider), tools, parent, budget, daily } = plan;
        let ChildOrder { terms, system, prompt, max_turns, .. } = order;
        let limits = Limits {
            max_turns: Some(max_turns),
            max_cost: budget,
            daily_budget: daily,
            wait: options.limits.wait,
        };
        let child = SessionOptions {
            thinking: clamp_level(&model, terms.thinking),
            max_tokens: Some(answer_tokens(&model, &terms)),
            model,
            provider,
            system: Some(system),
            system_end: None,
            identity: None,
            declined_identity: None,
            tools,
            limits,
            prune: Default::default(),
            history: Default::default(),
            travel: Default::default(),
            tool_sources: Vec::new(),
            images: ImageQuestions::Off,
            context_sources: Vec::new(),
            fallbacks: Vec::new(),
            // It ends with its answer.
            background: crate::background::BackgroundWake::Never,
            follower: None,
            id: Some(child_id()),
            ..options.clone()
        };
        let depth = depth + 1;
        let mark = parent_draft(terms.purpose.as_str(), depth, parent.as_ref());
        let session = match engine.begin_child(child, parent, mark, depth).await {
            Ok(session) => session,
            Err(error) => return ChildEnd::unmade(error.into()),
        };
        if let Some(budget) = terms.daily {
            session.purse().limit_purpose(terms.purpose.word(), budget);
        }
        let input = UserInput::from(prompt).from_source(said_by(terms.purpose.as_str()));
        let asked = async {
            tokio::select! {
                biased;
                answer = session.ask(input) => Some(answer),
                () = cancel.cancelled() => None,
            }
        };
        let (asked, late) = in_time(terms.until, &cancel, asked).await;
        session.shutdown().await;
        let (id, cost) = (session.view().session, session.purse().book.spent());
        let answer = match asked {
            Some(Ok((outcome, text))) => Ok(ChildAnswer { session: id.clone(), outcome, text, cost }),
            Some(Err(refused)) => Err(RunnerError::Refused(refused)),
            None if late => Err(RunnerError::Deadline { after: terms.after }),
            None => Err(RunnerError::Aborted),
        };
        ChildEnd { session: Some(id), cost, answer }
    }

    /// Makes a call in a session of its own, which consists of what is asked and of the answer.
    async fn call_standalone(
        &self,
        order: CallOrder,
        carried: ModelRoute,
        daily: Option<f64>,
        cancel: CancellationToken,
        cost: &mut f64,
    ) -> Result<CallAnswer, RunnerError> {
        let session = child_id();
        let lease = Lease::new(self.0.engine.store.clone());
        lease.take(&RefName::session(&session)).await?;
        let made = self.call_within(order, carried, (session, daily), cancel, cost).await;
        lease.release().await;
        made
    }

    async fn call_within(
        &self,
        order: CallOrder,
        (model, provider): ModelRoute,
        (session, daily): (SessionId, Option<f64>),
        cancel: CancellationToken,
        cost: &mut f64,
    ) -> Result<CallAnswer, RunnerError> {
        let Inner { engine, options, parent, depth, .. } = &*self.0;
        let CallOrder { terms, system, messages } = order;
        let prompt = Prompt::with(None, &system);
        let epoch = Epoch {
            provider: model.provider.clone(),
            model: model.id.clone(),
            thinking: clamp_level(&model, terms.thinking),
            system: prompt.system.as_ref().map(|blob| blob.id),
            max_tokens: Some(answer_tokens(&model, &terms)),
            ..Epoch::default()
        };
        let (ledger, accounts) = (options.ledger.clone(), options.accounts.clone());
        let purse = Arc::new(Purse::new(daily, options.limits.wait, ledger, accounts));
        let (store, clock, heads) = (engine.store.clone(), engine.clock.clone(), engine.heads().clone());
        let mut committer = Committer::new(store, clock, 0, epoch.clone(), prompt, heads);
        committer.with_purse(purse.clone());
        let start = Entry::Session(SessionStart {
            session: session.clone(),
            cwd: options.cwd.to_string_lossy().into_owned(),
            agent: crate::AGENT.into(),
            parent_session: parent.clone(),
            epoch: epoch.clone(),
        });
        let mark = parent_draft(terms.purpose.as_str(), depth + 1, parent.as_ref());
        let message_drafts = messages.iter().map(|message| {
            let provenance = Some(said_by(terms.purpose.as_str()));
            let step = StepInfo { provenance, ..StepInfo::default() };
            Draft::of(Entry::Message(Message::clone(message)), step)
        });
        let drafts = [Draft::new(start), mark].into_iter().chain(message_drafts).collect();
        let nodes = nodes_of(&session, None, drafts, Vec::new());
        let head = committer.commit(nodes, None).await.map_err(unkept)?.pop();
        // It has drafts.
        let head = head.ok_or(RunnerError::Closed)?;
        let learns = engine.sealer.clone();
        let caller = Caller {
            learn: Arc::new(move |secret: &str| learns.know("credential", secret)),
            provider: provider.into(),
            store: engine.store.clone(),
            clock: engine.clock.clone(),
            sealer: engine.sealer.clone(),
            purse,
            retries: Arc::new(AtomicBool::new(true)),
            bodies: Bodies::default().into(),
            unanswered: None.into(),
        };
        let run: RunId = fresh_id().into();
        let budget = terms.budget_for(&model);
        let asked = CallJob {
            session: session.clone(),
            run: run.clone(),
            head,
            request: Arc::new(request_of(&model, &terms, system, messages)),
            recorded: None,
            system: epoch.system,
            purpose: CallPurpose::Standalone(terms.purpose.word()),
            summary: None,
            money: budget.map(|left| RunMoney { left, limit: left }),
            daily: terms.daily,
            is_outdated: None,
            tell: None,
            hooked: None,
            responses: None,
            cancel,
        };
        let (made, late) = caller.once_until(asked, terms.until).await;
        let late = late.then_some(terms.after);
        let mut made = made.map_err(|outcome| unsent(outcome, late))?;
        let (answer, _) = answered(&caller, &mut made, &session, late);
        let CallResult { end, record, money } = made;
        *cost = end.message.usage.cost.total + money.assumed;
        terms.charged.set(*cost);
        let mut step = StepInfo { run: Some(run.clone()), ..StepInfo::default() };
        if let Some(mut record) = record {
            record.attempts = end.attempts;
            (step.started, step.duration_ms) = (Some(record.started), record.duration_ms);
            step.call = Some(record);
            let drafts = vec![Draft::of(Entry::Message(Message::Assistant(end.message)), step)];
            let forget = vec![PlanOp::Forget { run, session: None }];
            committer.commit(nodes_of(&session, Some(head), drafts, forget), None).await.map_err(unkept)?;
        }
        answer
    }
}

impl Backend for Children {
    fn sealer(&self) -> &Sealer {
        &self.0.engine.sealer
    }

    fn call(&self, order: CallOrder) -> BoxFuture<'static, Result<CallAnswer, RunnerError>> {
        let this = self.clone();
        owned(|cancel| async move {
            let _permit = this.permit(&order.terms).await?;
            let carried = this.carried(&order.terms).await?;
            let daily = this.0.options.limits.daily_budget;
            this.call_standalone(order, carried, daily, cancel, &mut 0.0).await
        })
    }

    fn session(&self, order: ChildOrder) -> BoxFuture<'static, Result<ChildAnswer, RunnerError>> {
        let this = self.clone();
        owned(|cancel| async move {
            this.allows_child()?;
            let carried = this.carried(&order.terms).await?;
            let daily = this.0.options.limits.daily_budget;
            let tools = this.lent(&order.tools)?;
            let (plan, _permit) = this.plan(order, carried, tools, daily).await?;
            this.run(plan, cancel).await.answer
        })
    }
}

/// Does it in a task of its own, which comes to its end in good order where nobody waits for it any more: it is cancelled then.
fn owned<T, W>(work: impl FnOnce(CancellationToken) -> W) -> BoxFuture<'static, Result<T, RunnerError>>
where
    T: Send + 'static,
    W: Future<Output = Result<T, RunnerError>> + Send + 'static,
{
    let cancel = CancellationToken::new();
    let work = work(cancel.clone());
    Box::pin(async move {
        let _guard = cancel.drop_guard();
        // A panic in it is reported as what it is to whoever asked: nothing came of it.
        tokio::spawn(work.in_current_span()).await.unwrap_or(Err(RunnerError::Aborted))
    })
}

fn child_id() -> SessionId {
    format!("{CHILD_SESSION}{}", fresh_id()).into()
}

/// Output tokens of an answer.
fn answer_tokens(model: &Model, terms: &Terms) -> u64 {
    if model.max_tokens == 0 { terms.max_tokens } else { terms.max_tokens.min(model.max_tokens) }
}

fn nodes_of(session: &SessionId, head: Option<NodeId>, drafts: Vec<Draft>, ops: Vec<PlanOp>) -> Plan {
    Plan { session: session.clone(), expect: head, parent: head, drafts, carried: 0, ops, power: true }
}

fn unkept(error: CommitError) -> RunnerError {
    let why = match error {
        CommitError::Failed(why) => why,
        CommitError::Conflict { .. } => "another process wrote to the session".into(),
    };
    RunnerError::NotRecorded { why }
}

/// The author of messages in a session that was begun for something.
fn said_by(purpose: &str) -> Provenance {
    Provenance::new(Origin::Process, AuthorClass::System).named(purpose)
}
