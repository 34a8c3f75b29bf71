//! What the machine wants done, done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::mailbox;
use futures_util::future::FutureExt as _;
use quipu_protocol::{AddedBlock, Entry, Event, Message, Model, Outcome, RunId, Thinking};
use quipu_providers::clamp_level;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::calling::{HEADS, HookedOrder, show_responses};
use super::task::Task;
use crate::calls::{CallJob, CallPurpose, Caller, NextCall};
use crate::commit::{Job, MoveJob, PlanJob};
use crate::files::CallPlace;
use crate::hooks::{CompactionRequest, HookRecord, HookedCall, HookedCompaction, RunEnd, RunStart, kept};
use crate::models::{Models, PurposeModel, may_see, purpose_model};
use crate::policy::SharedPolicy;
use crate::profile::last_words;
use crate::runner::summarize::Job as SummaryJob;
use crate::sources::without_additions;
use crate::spans;
use crate::stand::look;
use crate::toolbox::{Toolbox, tell};
use quipu_machine::{
    Calls, CheckedCall, Draft, Effect, Interventions, MachineInput, NoSummary, Purpose, ShellRunError,
    Stretch, Summary, step_key,
};

/// How often sources are called for a compaction where something is forgotten meanwhile.
const BEFORE_COMPACTION: usize = 3;

impl Task {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Emit { event, run } => {
                if let Event::AskClosed { ask, .. } = &event
                    && let Some(closed) = self.asks.remove(ask)
                {
                    closed.cancel();
                }
                self.remind_of_background(&event);
                if !self.toolbox.hooks.is_empty() {
                    self.observe(&event, run.as_ref());
                }
                self.emit(event, run);
            }
            Effect::Reply(id, result) => {
                if let Some(reply) = self.replies.remove(&id) {
                    // The sender may have gone; the command was carried out all the same.
                    drop(reply.send(result));
                }
            }
            Effect::Commit { tag, plan, next } => {
                let next = next.zip(self.machine.run().cloned()).map(|(request, run)| {
                    let (caller, slot) = (self.caller.clone(), self.prepared_call.clone());
                    NextCall { caller, slot, run, request, system: self.machine.system() }
                });
                let span = self.spans.current();
                self.backlog.push_back(Job::Plan(Box::new(PlanJob { tag, plan, next, span })));
            }
            Effect::Call { run, head, request, money } => {
                let cancel = self.root.child_token();
                self.call = Some(cancel.clone());
                let session = self.machine.session().clone();
                let (caller, input, stream) =
                    (self.caller.clone(), self.input.clone(), self.stream_tx.clone());
                let recorded = self.prepared_call.take(&request);
                let system = self.machine.system();
                let toolbox = self.toolbox.clone();
                let mut responses = None;
                if !toolbox.hooks.is_empty() {
                    let (heads, shown) = mpsc::channel(HEADS);
                    responses = Some(heads);
                    let (toolbox, cancel) = (toolbox.clone(), cancel.clone());
                    // The call does not wait for those that look on.
                    let show = show_responses(toolbox, run.clone(), shown, input.clone(), cancel);
                    self.effects.spawn(show.instrument(self.spans.current()));
                }
                let mut forgotten = self.forgotten_since();
                let work = async move {
                    let stopped = cancel.clone();
                    let is_outdated =
                        Box::new(move || async move { forgotten.is_hit(&stopped).await }.boxed());
                    let order = CallJob {
                        session,
                        run,
                        head,
                        request,
                        recorded,
                        system,
                        purpose: CallPurpose::Answer,
                        summary: None,
                        money,
                        daily: None,
                        is_outdated: Some(is_outdated),
                        tell: Some(input.clone()),
                        hooked: None,
                        responses,
                        cancel: cancel.clone(),
                    };
                    let end = match toolbox.hooks.is_empty() && !caller.has_unanswered() {
                        true => caller.make(order, stream).await,
                        false => {
                            let input = input.clone();
                            HookedOrder { caller, toolbox, input, cancel }.make(order, stream).await
                        }
                    };
                    // The task is gone only when the session is over.
                    drop(input.send(end).await);
                };
                self.effects.spawn(work.instrument(self.spans.current()));
            }
            Effect::Summarize { run, head, model, thinking, stretch } => {
                let cancel = self.root.child_token();
                self.call = Some(cancel.clone());
                let session = self.machine.session().clone();
                let (caller, input) = (self.caller.clone(), self.input.clone());
                let (sources, toolbox) = (self.sources.clone(), self.toolbox.clone());
                let models = self.models.clone();
                let mut forgotten = self.forgotten_since();
                if !stretch.is_again {
                    sources.begin_compaction();
                }
                let work = async move {
                    if stretch.purpose == Purpose::Compaction {
                        for _ in 0..BEFORE_COMPACTION {
                            let notices = sources.before_compaction(&stretch, head, &cancel).await;
                            tell(&input, notices).await;
                            if !forgotten.asked(&cancel).await || cancel.is_cancelled() {
                                break;
                            }
                        }
                    }
                    if let Some(result) = instead(&toolbox, &run, &stretch, &cancel, &input).await {
                        return drop(input.send(MachineInput::Summarized { run, result }).await);
                    }
                    if stretch.purpose == Purpose::Compaction {
                        let (summary, notices) = sources.summary(&stretch, head, &cancel).await;
                        tell(&input, notices).await;
                        if let Some(summary) = summary {
                            return drop(
                                input.send(MachineInput::Summarized { run, result: Ok(summary) }).await,
                            );
                        }
                    }
                    let asked = SummaryRoute { caller, model, thinking, stretch };
                    let (SummaryRoute { caller, model, thinking, stretch }, notice) =
                        asked.of_purpose(models).await;
                    tell(&input, notice).await;
                    // What is sent now has nothing of it.
                    forgotten.asked(&cancel).await;
                    if cancel.is_cancelled() {
                        let result = Err(Box::new(NoSummary { why: None, made: Calls::default() }));
                        return drop(input.send(MachineInput::Summarized { run, result }).await);
                    }
                    let tell = input.clone();
                    let job = SummaryJob { session, run: run.clone(), head, model, thinking, tell, cancel };
                    let work = std::panic::AssertUnwindSafe(caller.summarize(&job, &stretch));
                    let result = work.catch_unwind().await.unwrap_or_else(|_| {
                        let why = "the model's adapter panicked; this is a bug in the adapter";
                        Err(Box::new(NoSummary { why: Some(why.into()), made: Calls::default() }))
                    });
                    drop(input.send(MachineInput::Summarized { run, result }).await);
                };
                self.effects.spawn(work.instrument(self.spans.current()));
            }
            Effect::AskRunStart { run, prompt } => {
                let cancel = self.root.child_token();
                self.call = Some(cancel.clone());
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let work = async move {
                    let start = run_start(&prompt);
                    let hooked = toolbox.hooks.before_run(&run, &start, &cancel).await;
                    tell(&input, hooked.notices).await;
                    drop(input.send(MachineInput::RunStartDecided { run, prompt: hooked.value }).await);
                };
                self.effects.spawn(work.instrument(self.spans.current()));
            }
            Effect::AskRunEnd { run, last, again } => {
                let cancel = self.root.child_token();
                self.call = Some(cancel.clone());
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let answer = match last.as_deref() {
                    Some(Message::Assistant(answer)) => last_words(self.snapshot.profile, answer),
                    _ => String::new(),
                };
                let work = async move {
                    let end = RunEnd { outcome: Outcome::Done, answer, again };
                    let hooked = toolbox.hooks.run_end(&run, &end, &cancel).await;
                    tell(&input, hooked.notices).await;
                    drop(input.send(MachineInput::RunEndDecided { run, more: hooked.value }).await);
                };
                self.effects.spawn(work.instrument(self.spans.current()));
            }
            Effect::Move { run, head, order, ops, epoch } => {
                let session = self.machine.session().clone();
                let span = self.spans.current();
                let job = MoveJob { run, session, head, order, ops, epoch: *epoch, span };
                self.backlog.push_back(Job::Move(Box::new(job)));
            }
            Effect::ResolveTarget { run, from, to, left } => {
                let session = self.machine.session().clone();
                let (caller, input) = (self.caller.clone(), self.input.clone());
                self.effects.spawn(async move {
                    let found = look(&*caller.store, &session, from, to, left).await;
                    drop(input.send(MachineInput::TargetResolved { run, result: found.map(Box::new) }).await);
                });
            }
            Effect::Prepare { run, calls } => {
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let policy = toolbox.parts.policy.clone();
                let stop = self.root.child_token();
                self.preparing = Some(stop.clone());
                let decide = async move {
                    let calls = match toolbox.hooks.is_empty() {
                        true => calls.into_iter().map(HookedCall::of).collect(),
                        false => {
                            let (calls, notices) =
                                toolbox.hooks.tool_calls(&run, calls, &toolbox.names(), &stop).await;
                            tell(&input, notices).await;
                            calls
                        }
                    };
                    if toolbox.policies.is_some() {
                        return prepare_with_policies(&toolbox, run, calls, &stop, &input).await;
                    }
                    let interventions = calls.iter().map(|call| by_hooks(&call.records)).collect();
                    let work = move || {
                        let work = std::panic::AssertUnwindSafe(|| toolbox.prepare(&run, &calls));
                        let (calls, preparation) = std::panic::catch_unwind(work).unwrap_or_default();
                        let look = std::panic::AssertUnwindSafe(|| policy.version());
                        if let Ok(version) = std::panic::catch_unwind(look) {
                            drop(input.blocking_send(MachineInput::Policy(version)));
                        }
                        let calls = calls.into_iter().map(|call| toolbox.prepared(call)).collect();
                        drop(input.blocking_send(MachineInput::Prepared { run, calls, interventions }));
                        // While the calls are being announced.
                        if let Some(preparation) = preparation {
                            preparation();
                        }
                    };
                    drop(tokio::task::spawn_blocking(work).await);
                };
                self.effects.spawn(decide.instrument(self.spans.current()));
            }
            Effect::Judge { run, ask, call, touches } => {
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                // A question that was answered, or whose run ended, is decided no more.
                let Some(stop) = self.asks.get(&ask).map(CancellationToken::child_token) else { return };
                let work = async move {
                    let judges = toolbox.clone();
                    let judge = tokio::task::spawn_blocking(move || judges.judge(&call, &touches));
                    if let Ok(looked) = judge.await {
                        let concluded = toolbox.conclude(&run, looked, &stop, &input).await;
                        let (prepared, policies) = (concluded.prepared, concluded.records);
                        drop(input.send(MachineInput::Judged { run, ask, prepared, policies }).await);
                    }
                };
                self.effects.spawn(work.instrument(self.spans.current()));
            }
            Effect::RunTool { run, turn, slot, call, touches, approved } => {
                let cancel = self.root.child_token();
                self.tools.insert(slot, cancel.clone());
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let place =
                    CallPlace { session: self.machine.session().clone(), run, key: step_key(turn, slot) };
                let span = spans::tool_call(&self.spans.current(), &place.run, &call);
                self.effects.spawn(async move {
                    let work = toolbox.run(place, slot, (call, touches, approved), cancel, input.clone());
                    let done = work.instrument(span.clone()).await;
                    spans::tool_call_ended(&span, &done);
                    // Before its turn does.
                    drop(span);
                    drop(input.send(done).await);
                });
            }
            Effect::KillChildren { run } => {
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                self.effects.spawn(async move {
                    let result = toolbox.kill_children(&run).await;
                    drop(input.send(MachineInput::ChildrenKilled { run, result }).await);
                });
            }
            Effect::UseModel(model) => {
                self.toolbox.parts.sees_images.store(model.sees_images(), Ordering::Relaxed);
                let chosen = self.chosen.iter().position(|(chosen, _)| Arc::ptr_eq(chosen, &model));
                // Those that were chosen before it are not used any more.
                let provider = chosen.and_then(|at| self.chosen.drain(..=at).next_back());
                let provider = provider.map(|(_, provider)| provider).or_else(|| self.left_route(&model));
                if let Some(provider) = provider {
                    if let Some(images) = &self.images {
                        images.follows(provider.clone());
                    }
                    self.caller.set_provider(provider);
                }
            }
            Effect::Refresh { run, reasons, model, brief } => {
                let cancel = self.root.child_token();
                self.refreshing = Some(cancel.clone());
                let (sources, input) = (self.sources.clone(), self.input.clone());
                let store = self.caller.store.clone();
                self.effects.spawn(async move {
                    let brief = without_additions(&*store, brief).await;
                    let work =
                        std::panic::AssertUnwindSafe(sources.refresh(&reasons, &model, &brief, &cancel));
                    let (result, notices) = work.catch_unwind().await.unwrap_or_default();
                    tell(&input, notices).await;
                    drop(input.send(MachineInput::Refreshed { run, result }).await);
                });
            }
            Effect::FindFallback(request) => self.find_fallback(request),
            Effect::CancelRefresh => {
                if let Some(refreshing) = &self.refreshing {
                    refreshing.cancel();
                }
            }
            Effect::UseSources => {
                if let Some(tools) = self.sources.used() {
                    self.toolbox.use_tools(&tools, self.machine.run());
                }
            }
            Effect::CancelPrepare => {
                if let Some(stop) = &self.preparing {
                    stop.cancel();
                }
            }
            Effect::CancelCall => {
                if let Some(call) = &self.call {
                    call.cancel();
                }
            }
            Effect::CancelTool { slot } => {
                if let Some(tool) = self.tools.get(&slot) {
                    tool.cancel();
                }
            }
            Effect::RunShell { run } => {
                let cancel = self.root.child_token();
                let line = match self.shells.get_mut(&run) {
                    Some(shell) => {
                        shell.cancel = cancel.clone();
                        std::mem::take(&mut shell.line)
                    }
                    None => String::new(),
                };
                let (toolbox, input) = (self.toolbox.clone(), self.input.clone());
                let span = spans::shell_line(&self.spans.current(), &run);
                self.effects.spawn(async move {
                    let work = super::shell::run(&toolbox, run.clone(), &line, cancel, input.clone());
                    let end = std::panic::AssertUnwindSafe(work)
                        .catch_unwind()
                        .instrument(span)
                        .await
                        .unwrap_or(Err(ShellRunError::Broken));
                    drop(input.send(MachineInput::ShellEnded { run, end }).await);
                });
            }
            Effect::CancelShell { run } => {
                if let Some(shell) = self.shells.get(&run) {
                    shell.cancel.cancel();
                }
            }
            Effect::AskDeadline { ask, after } => {
                let (input, closed) = (self.input.clone(), self.root.child_token());
                self.asks.insert(ask.clone(), closed.clone());
                self.effects.spawn(async move {
                    tokio::select! {
                        () = tokio::time::sleep(after) => drop(input.send(MachineInput::AskExpired { ask }).await),
                        () = closed.cancelled() => {}
                    }
                });
            }
            Effect::Stop => self.done = true,
        }
    }

    /// Hooks see the end of a turn, and of a run that ended otherwise than because the model is done; nothing waits for them.
    fn observe(&mut self, event: &Event, run: Option<&RunId>) {
        let Some(run) = run.cloned() else { return };
        let (toolbox, input, cancel) = (self.toolbox.clone(), self.input.clone(), self.root.child_token());
        let span = self.spans.current();
        match event {
            Event::TurnEnded { turn } => {
                let turn = *turn;
                let work = async move {
                    tell(&input, toolbox.hooks.turn_end(&run, turn, &cancel).await).await;
                };
                self.effects.spawn(work.instrument(span));
            }
            Event::RunEnded { outcome } if *outcome != Outcome::Done => {
                let end = RunEnd { outcome: outcome.clone(), answer: String::new(), again: 0 };
                let work = async move {
                    tell(&input, toolbox.hooks.run_end(&run, &end, &cancel).await.notices).await;
                };
                self.effects.spawn(work.instrument(span));
            }
            _ => {}
        }
    }
}

/// What hooks did to a call.
fn by_hooks(records: &[HookRecord]) -> Interventions {
    Interventions { hooks: kept(records), policies: Vec::new() }
}

/// Looks calls up and puts them to the permissions and to the policies behind these.
async fn prepare_with_policies(
    toolbox: &Arc<Toolbox>,
    run: RunId,
    calls: Vec<HookedCall>,
    stop: &CancellationToken,
    input: &mailbox::Sender<MachineInput>,
) {
    let mut interventions: Vec<_> = calls.iter().map(|call| by_hooks(&call.records)).collect();
    let (looks, of) = (toolbox.clone(), run.clone());
    let look = tokio::task::spawn_blocking(move || looks.prepare(&of, &calls));
    let (looked, mut preparation) = look.await.unwrap_or_default();
    let mut prepared = Vec::with_capacity(looked.len());
    for (one, interventions) in looked.into_iter().zip(&mut interventions) {
        let one = toolbox.conclude(&run, one, stop, input).await;
        toolbox.shows(&one);
        interventions.policies = one.records;
        prepared.push(one.prepared);
    }
    if let Some(version) = SharedPolicy(toolbox.parts.policy.clone()).version().await {
        drop(input.send(MachineInput::Policy(version)).await);
    }
    // What a tool gets ready is for a call that is allowed.
    if !matches!(prepared.as_slice(), [CheckedCall::Ready { .. }]) {
        preparation = None;
    }
    drop(input.send(MachineInput::Prepared { run, calls: prepared, interventions }).await);
    if let Some(preparation) = preparation {
        drop(tokio::task::spawn_blocking(preparation).await);
    }
}

/// The beginning of a run, as hooks receive it.
fn run_start(prompt: &[Draft]) -> RunStart {
    let mut start = RunStart::default();
    for draft in prompt {
        let Entry::Message(Message::User(message)) = &*draft.entry else { continue };
        let moved = u32::try_from(start.prompt.len()).unwrap_or(u32::MAX);
        let added = draft.step.added.iter().cloned();
        start.added.extend(added.map(|one| AddedBlock { block: one.block.saturating_add(moved), ..one }));
        start.prompt.extend(message.content.blocks().into_owned());
    }
    start
}

/// What a hook makes of a compaction, where it does not leave it to the model.
async fn instead(
    toolbox: &Toolbox,
    run: &RunId,
    stretch: &Stretch,
    cancel: &CancellationToken,
    input: &mailbox::Sender<MachineInput>,
) -> Option<Result<Summary, Box<NoSummary>>> {
    let reason = stretch.reason.filter(|_| !toolbox.hooks.is_empty())?;
    let request = CompactionRequest {
        reason,
        focus: stretch.focus.clone(),
        previous: stretch.previous.clone(),
        messages: stretch.history.iter().chain(&stretch.turn).cloned().collect(),
    };
    let hooked = toolbox.hooks.before_compaction(run, &request, cancel).await;
    let hooks = hooked.kept_records();
    tell(input, hooked.notices).await;
    match hooked.value {
        HookedCompaction::Summarize => None,
        HookedCompaction::Supplied(text, provenance) => {
            let (made, provenance) = (Calls::default(), Some(provenance));
            Some(Ok(Summary { text, made, supplied_by: None, hooks, provenance, parts: Vec::new() }))
        }
        HookedCompaction::Blocked(why) => {
            Some(Err(Box::new(NoSummary { why: Some(why), made: Calls::default() })))
        }
    }
}

/// A summary to make, and which model makes it.
struct SummaryRoute {
    caller: Arc<Caller>,
    model: Arc<Model>,
    thinking: Thinking,
    stretch: Box<Stretch>,
}

impl SummaryRoute {
    /// The same with the model that the user set for summaries of this kind. Where that one cannot be used, the session's own
    /// stays, and the notice says why.
    async fn of_purpose(self, models: Option<Arc<dyn Models>>) -> (Self, Option<String>) {
        let word = self.stretch.purpose.word();
        let found = match purpose_model(models, word.to_owned()).await {
            Ok(None) => return (self, None),
            Ok(Some(found)) => found,
            Err(error) => {
                let own = &self.model.id;
                let notice =
                    format!("The model set for `{word}` cannot be used, so {own} summarizes: {error}");
                return (self, Some(notice));
            }
        };
        let own = self.caller.provider();
        if !may_see(&*own, &*found.provider) {
            let (own, other) = (&self.model.id, &found.model.id);
            let notice = format!("{own} runs on this machine and {other} does not, so {own} summarizes.");
            return (self, Some(notice));
        }
        let PurposeModel { model, provider, thinking } = found;
        let stretch = Box::new(self.stretch.for_model(&model));
        let thinking = clamp_level(&model, thinking.unwrap_or(self.thinking));
        (Self { caller: Arc::new(self.caller.carried_by(provider)), model, thinking, stretch }, None)
    }
}
