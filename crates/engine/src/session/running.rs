//! Calls beside the conversation and child sessions, for hooks and sources: the session task begins them, so that what they may
//! spend and whose they are is seen together with all else that it does.

use std::sync::Arc;

use crate::mailbox;
use quipu_machine::{Limits, MachineInput, RunMoney, SideCall};
use quipu_protocol::{AbortTarget, Command, Event, Limit, Model, Notice, RunId};
use quipu_providers::{Provider, clamp_level};
use quipu_tools::Tool;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Mail;
use super::agent_place::{AgentPlan, settled};
use super::live_agents::{AgentReply, DriveParts};
use super::sides::{SideAsk, SideReply, SideWork};
use super::task::Task;
use crate::agent_policy::AgentPolicy;
use crate::agents::TASK_TOOL;
use crate::background::BackgroundWake;
use crate::calls::Caller;
use crate::calls::money::{floor_nano, in_dollars, nano};
use crate::children::{ChildEnd, ChildPlan, ChildTerms, Children};
use crate::clock::fresh_id;
use crate::engine::SessionOptions;
use crate::image_tool::{IMAGE_TOOL, ImageQuestions};
use crate::models::may_see;
use crate::runner::{
    AgentOrder, CallAnswer, CallOrder, ChildAnswer, ChildOrder, ModelRoute, RunnerError, SideJob, SideResult,
    Terms, child_draft,
};

/// What a run promised.
struct Promise {
    run: Option<RunId>,
    /// US dollars at most.
    budget: Option<f64>,
    /// Of that, what the run holds back for it; in billionths.
    held: Option<(RunId, i64)>,
}

impl Task {
    pub(super) fn side(&mut self, ask: SideAsk) {
        let SideAsk { what, carried, mut unusable, cancel, permit } = ask;
        let own = self.caller.provider();
        let had = carried.is_some();
        let carried = carried.filter(|(_, other)| what.names_model() || may_see(&*own, &**other));
        if let (SideWork::Agent(order, ..), true, None) = (&what, had && unusable.is_none(), &carried)
            && let Some(name) = order.agent.as_ref().and_then(|agent| agent.model.clone())
        {
            unusable =
                Some((name, "it runs elsewhere, and the model of the session on this machine".to_owned()));
        }
        let carried = carried.unwrap_or_else(|| (self.machine.model().clone(), own));
        if !self.machine.takes_sides() {
            // Before it has a name, or when it is about to end; whoever asked may have gone.
            let ends = self.machine.is_closing();
            return match what {
                SideWork::Call(_, reply) if ends => {
                    drop(reply.send(SideReply::Done(Err(RunnerError::Closed))));
                }
                SideWork::Child(_, reply) if ends => {
                    drop(reply.send(SideReply::Done(Err(RunnerError::Closed))));
                }
                SideWork::Agent(_, _, reply) => drop(reply.send(Err(RunnerError::Closed))),
                SideWork::Call(mut order, reply) => {
                    let terms = self.child_terms(&mut order.terms, carried, Vec::new());
                    drop(reply.send(terms.map_or_else(
                        |error| SideReply::Done(Err(error)),
                        |alone| SideReply::NoName(order, Box::new(alone)),
                    )));
                }
                SideWork::Child(mut order, reply) => {
                    let lent = self.lent(&order.tools);
                    let terms = lent.and_then(|tools| self.child_terms(&mut order.terms, carried, tools));
                    drop(reply.send(terms.map_or_else(
                        |error| SideReply::Done(Err(error)),
                        |alone| SideReply::NoName(order, Box::new(alone)),
                    )));
                }
            };
        }
        match what {
            SideWork::Call(order, reply) => self.side_call(*order, carried, cancel, permit, reply),
            SideWork::Child(order, reply) => self.side_child(*order, carried, cancel, permit, reply),
            SideWork::Agent(order, mail, reply) => {
                self.side_agent(*order, (carried, unusable), (cancel, permit), mail, reply);
            }
        }
    }

    fn side_call(
        &mut self,
        order: CallOrder,
        (model, provider): ModelRoute,
        cancel: CancellationToken,
        permit: OwnedSemaphorePermit,
        reply: oneshot::Sender<SideReply<CallOrder, CallAnswer>>,
    ) {
        let promise = match self.promise(&order.terms, &model, &*provider) {
            Ok(promise) => promise,
            Err(error) => return drop(reply.send(SideReply::Done(Err(error)))),
        };
        let Some(head) = self.machine.head() else { return };
        let id = self.side_begins(&promise, &cancel);
        let caller = self.caller.beside(provider);
        if let Some((run, held)) = &promise.held {
            caller.purse.promise(&self.caller.purse, run, *held);
        }
        let job = SideJob {
            caller,
            session: self.machine.session().clone(),
            head,
            row: id,
            model,
            order,
            budget: promise.budget,
            cancel,
        };
        let (caller, input, missed) = (self.caller.clone(), self.input.clone(), self.caller.purse.missed());
        let work = async move {
            let beside = job.caller.purse.clone();
            let SideResult { call, answer } = job.make().await;
            caller.purse.missed_beside(&beside, missed);
            beside.promise_kept(nano(call.cost));
            // The session is over.
            drop(input.send(MachineInput::SideEnded(Box::new(call))).await);
            drop(permit);
            drop(reply.send(SideReply::Done(answer)));
        };
        self.effects.spawn(work.instrument(self.spans.current()));
    }

    fn side_child(
        &mut self,
        order: ChildOrder,
        carried: ModelRoute,
        cancel: CancellationToken,
        permit: OwnedSemaphorePermit,
        reply: oneshot::Sender<SideReply<ChildOrder, ChildAnswer>>,
    ) {
        let lent = self.lent(&order.tools);
        let (tools, promise) =
            match lent.and_then(|tools| Ok((tools, self.promise(&order.terms, &carried.0, &*carried.1)?))) {
                Ok(both) => both,
                Err(error) => return drop(reply.send(SideReply::Done(Err(error)))),
            };
        let Some(children) = self.children.clone() else { return };
        let id = self.side_begins(&promise, &cancel);
        let purpose = order.terms.purpose.clone();
        let plan = ChildPlan {
            order,
            carried,
            tools,
            parent: Some(self.machine.session().clone()),
            budget: promise.budget,
            daily: self.caller.purse.daily(),
        };
        let (caller, input) = (self.caller.clone(), self.input.clone());
        let work = async move {
            let ChildEnd { session, cost, answer } = children.run(plan, cancel).await;
            let run = promise.run.clone();
            let draft = session.map(|child| child_draft(purpose.as_str(), run.clone(), &child, cost));
            let drafts = draft.into_iter().collect();
            let call = SideCall { id, run, cost, drafts, ops: Vec::new() };
            settle(&caller, &promise, call, &input).await;
            drop(permit);
            drop(reply.send(SideReply::Done(answer)));
        };
        self.effects.spawn(work.instrument(self.spans.current()));
    }

    fn side_agent(
        &mut self,
        order: AgentOrder,
        ((model, provider), unusable): (ModelRoute, Option<(String, String)>),
        (cancel, permit): (CancellationToken, OwnedSemaphorePermit),
        mail: mailbox::WeakSender<Mail>,
        reply: AgentReply,
    ) {
        let Some(children) = self.children.clone() else { return };
        let replaced = unusable.map(|(name, why)| {
            format!(
                "The agent `{}` names the model `{name}`, which cannot be used: {why}. It works with {}/{}.",
                order.name(),
                model.provider,
                model.id
            )
        });
        if let Some(text) = replaced.clone().filter(|_| self.agents.is_first(order.name())) {
            self.emit(Event::from(Notice::Note { text }), self.machine.run().cloned());
        }
        let (longest, parent) = (order.limits.longest, self.machine.session().clone());
        let until = Instant::now() + longest;
        let promise = match self.agent_promise(&order, &model, &*provider) {
            Ok(promise) => promise,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let id = self.side_begins(&promise, &cancel);
        let agent = order.agent.as_deref();
        let (options, depth) = (children.options(), children.depth() + 1);
        let tools = self.sources.all_lent().into_iter();
        let level = agent.and_then(|agent| agent.thinking).unwrap_or(self.snapshot.thinking);
        let prompt = agent.map(|agent| &*agent.prompt).filter(|prompt| !prompt.trim().is_empty());
        let child = SessionOptions {
            thinking: clamp_level(&model, level),
            max_tokens: None,
            model,
            provider,
            system: Some(self.sources.prompt_for(prompt)),
            system_end: None,
            identity: None,
            declined_identity: None,
            tools: tools.filter(|tool| agent.is_none_or(|agent| agent.has_tool(&tool.spec().name))).collect(),
            policy: AgentPolicy::of(options.policy.clone(), agent),
            agents: options.agents.clone().filter(|_| agent.is_none_or(|agent| agent.has_tool(TASK_TOOL))),
            images: match agent.is_none_or(|agent| agent.has_tool(IMAGE_TOOL)) {
                true => options.images,
                false => ImageQuestions::Off,
            },
            limits: Limits {
                max_turns: agent
                    .and_then(|agent| agent.max_turns)
                    .map(|turns| turns.min(order.limits.max_turns))
                    .or(Some(order.limits.max_turns)),
                max_cost: promise.budget,
                daily_budget: self.caller.purse.daily(),
                wait: options.limits.wait,
            },
            history: Default::default(),
            travel: Default::default(),
            // Its policy is the parent's, with the gate of plan mode.
            planning: Default::default(),
            background: BackgroundWake::Never,
            tool_sources: Vec::new(),
            context_sources: Vec::new(),
            fallbacks: Vec::new(),
            follower: None,
            id: None,
            ..options.clone()
        };
        let (caller, input) = (self.caller.clone(), self.input.clone());
        let parts = DriveParts {
            mail,
            answers: self.answerers > 0,
            live: self.agents.clone(),
            until,
            cancel,
            replaced,
        };
        let plan = AgentPlan { children: children.clone(), options: child, order, parent, depth, parts };
        let work = async move {
            let report = plan.run().await;
            let call = settled(id, promise.run.clone(), report.as_ref().ok());
            settle(&caller, &promise, call, &input).await;
            drop(permit);
            drop(reply.send(report));
        };
        self.effects.spawn(work.instrument(self.spans.current()));
    }

    /// What a sub-agent may cost: its own limit where prices are known, and half of what is left of the run, so that others and
    /// the run itself have their share.
    fn agent_promise(
        &self,
        order: &AgentOrder,
        model: &Model,
        provider: &dyn Provider,
    ) -> Result<Promise, RunnerError> {
        let mut budget = order.limits.max_cost.filter(|_| model.cost.are_known());
        if let Some(money) = self.machine.money_of(&order.run) {
            let left = in_dollars(self.caller.purse.book.left_of(&order.run, floor_nano(money.left)));
            budget = Some(budget.map_or(left / 2.0, |budget| budget.min(left / 2.0)));
        }
        self.promise_of(Some(order.run.clone()), budget, model, provider)
    }

    /// What is under way beside the conversation ends with its run, or with the session.
    pub(super) fn stop_sides(&self, command: &Command) {
        match (command, self.machine.run()) {
            (Command::Close, _) => self.sides.stop(),
            (Command::Abort { target: AbortTarget::Run }, Some(run)) => self.sides.stop_of(run),
            _ => {}
        }
    }

    /// The machine is about to know what a call cost.
    pub(super) fn count(&mut self, input: &MachineInput) {
        let book = &self.caller.purse.book;
        match input {
            MachineInput::CallEnded { end, money, .. } => {
                book.own_counted(end.message.usage.cost.total + money.assumed);
            }
            MachineInput::CallNotMade { .. } => book.own_counted(0.0),
            MachineInput::Summarized { result, .. } => book.own_counted(match result {
                Ok(summary) => summary.made.cost(),
                Err(none) => none.made.cost(),
            }),
            MachineInput::SideEnded(call) => {
                book.side_counted(call.cost);
                self.sides.over(&call.id);
            }
            _ => {}
        }
    }

    fn side_begins(&mut self, promise: &Promise, cancel: &CancellationToken) -> RunId {
        let id: RunId = fresh_id().into();
        self.sides.begin(id.clone(), promise.run.clone(), cancel.clone());
        self.take(MachineInput::SideBegun);
        id
    }

    /// A child session may cost no more than its limit, also where no run of it pays.
    fn of_child(&self, wanted: Option<f64>) -> Result<Option<f64>, RunnerError> {
        let is_child = self.children.as_ref().is_some_and(Children::is_of_child);
        let Some(limit) = self.machine.max_cost().filter(|_| is_child) else { return Ok(wanted) };
        let left = limit - self.caller.purse.book.spent();
        if left <= 0.0 {
            return Err(RunnerError::Budget(Limit::Cost(limit)));
        }
        Ok(Some(wanted.map_or(left, |wanted| wanted.min(left))))
    }

    /// Tools of this session, those of its sources among them, for a child session.
    fn lent(&self, names: &[String]) -> Result<Vec<Arc<dyn Tool>>, RunnerError> {
        let lent = |name: &String| self.sources.lent(name).ok_or_else(|| RunnerError::NoTool(name.clone()));
        names.iter().map(lent).collect()
    }

    /// What becomes a session of its own, since ours has no name yet: the run pays for it all the same.
    fn child_terms(
        &self,
        terms: &mut Terms,
        carried: ModelRoute,
        tools: Vec<Arc<dyn Tool>>,
    ) -> Result<ChildTerms, RunnerError> {
        let Promise { budget, held, .. } = self.promise(terms, &carried.0, &*carried.1)?;
        terms.budget = budget;
        let purse = self.caller.purse.clone();
        Ok(ChildTerms { carried, daily: purse.daily(), purse, held, tools })
    }

    /// What it may cost: its budget, and what is left of the run that pays.
    fn promise(&self, terms: &Terms, model: &Model, provider: &dyn Provider) -> Result<Promise, RunnerError> {
        self.promise_of(terms.run.clone(), terms.budget_for(model), model, provider)
    }

    fn promise_of(
        &self,
        run: Option<RunId>,
        wanted: Option<f64>,
        model: &Model,
        provider: &dyn Provider,
    ) -> Result<Promise, RunnerError> {
        let money = run.as_ref().and_then(|run| Some((run.clone(), self.machine.money_of(run)?)));
        let Some((paying, RunMoney { left, limit })) = money else {
            // Nobody counts any more what hooks of a run that is over spend.
            return match self
                .machine
                .max_cost()
                .filter(|_| run.is_some() && run.as_ref() != self.machine.run())
            {
                Some(limit) => Err(RunnerError::Budget(Limit::Cost(limit))),
                None => Ok(Promise { run, budget: self.of_child(wanted)?, held: None }),
            };
        };
        let granted = self.caller.purse.book.promise(&paying, floor_nano(left), wanted.map(floor_nano));
        let granted = granted.ok_or(RunnerError::Budget(Limit::Cost(limit)))?;
        let mut held = granted;
        if !model.cost.are_known() && provider.is_local() {
            self.caller.purse.book.side_cost(&paying, granted, 0);
            held = 0;
        }
        Ok(Promise { run, budget: Some(in_dollars(granted)), held: Some((paying, held)) })
    }
}

/// It is over: the run gets its cost.
async fn settle(caller: &Caller, promise: &Promise, call: SideCall, input: &mailbox::Sender<MachineInput>) {
    if let Some((run, held)) = &promise.held {
        caller.purse.book.side_cost(run, *held, nano(call.cost));
    }
    // The session is over.
    drop(input.send(MachineInput::SideEnded(Box::new(call))).await);
}
