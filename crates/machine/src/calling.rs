//! A model call, from the request to the answer that is kept.

use std::sync::Arc;

use quipu_protocol::ServerToolBlock;

use super::refreshing::AfterRefresh;
use super::*;

/// Times in a row that the provider may pause within its own tools.
const MOST_PAUSES: u32 = 16;

impl Machine {
    pub(super) fn call_model(&mut self) {
        if !self.refresh_before_call(AfterRefresh::Checks) {
            self.call_as_refreshed();
        }
    }

    /// Without asking sources again, which may change whenever they are asked.
    pub(super) fn call_as_refreshed(&mut self) {
        // A run that was stopped pays for no summary.
        if self.run.as_ref().is_some_and(|run| run.aborting)
            || (!self.prune_before_call() && !self.compact_before_call())
        {
            self.call_now();
        }
    }

    pub(super) fn call_now(&mut self) {
        let (Some(run), Some(head)) = (&mut self.run, self.head) else { return };
        if run.aborting {
            let turn = run.turn;
            self.emit(Event::TurnEnded { turn });
            return self.end_run(Outcome::Aborted);
        }
        run.phase = Phase::Calling { message: None, attempt: 1 };
        let money = self.limits.money(run);
        let run = run.id.clone();
        let request = self.next.take().unwrap_or_else(|| self.request());
        debug_assert_eq!(request.messages, self.request().messages, "what was foreseen is what is asked");
        self.out.push(Effect::Call { run, head, request, money });
    }

    /// The request that asks for what follows the conversation and what is being committed.
    pub(super) fn request(&mut self) -> Arc<ModelRequest> {
        let messages = self.projector.project(self.opening.around(&self.messages).chain(&self.adding));
        let context = self.prefix.epoch.context.as_ref();
        let stable_system = context.and_then(|context| context.stable_bytes(&self.prefix.system));
        Arc::new(ModelRequest {
            model: self.prefix.model.clone(),
            system: self.prefix.system.clone(),
            tools: self.prefix.tools.clone(),
            messages,
            thinking: self.prefix.epoch.thinking,
            max_tokens: self.prefix.epoch.max_tokens,
            session: Some(self.session.to_string()),
            stable_system,
        })
    }

    pub(super) fn call_event(&mut self, event: CallEvent) {
        let Some(Run { phase: Phase::Calling { message, attempt }, .. }) = &mut self.run else { return };
        match event {
            // A second beginning without a retry between is the same answer.
            CallEvent::Started(_) if message.is_some() => {}
            CallEvent::Started(answer) => {
                self.counter += 1;
                let id = MessageId::from(format!("m{}", self.counter));
                *message = Some(id.clone());
                let attempt = *attempt;
                self.emit(Event::MessageStarted {
                    id,
                    message: Arc::new(Message::Assistant(*answer)),
                    attempt,
                });
            }
            CallEvent::Delta(delta) => {
                if let Some(id) = message.clone() {
                    self.emit(Event::MessageDelta { id, delta });
                }
            }
            CallEvent::Retry { attempt: next, delay, error } => {
                *attempt = next;
                if let Some(id) = message.take() {
                    let message = Arc::new(Message::Assistant(AssistantMessage {
                        error_message: Some(error.message.clone()),
                        ..self.blank_answer(StopReason::Error)
                    }));
                    self.emit(Event::MessageEnded { id, message, ending: Ending::Dropped(error.clone()) });
                }
                let is_outdated = self.run.as_ref().is_some_and(|run| run.is_outdated);
                self.emit(Event::RetryScheduled { attempt: next, delay, error });
                if is_outdated {
                    // It is not sent once more.
                    self.out.push(Effect::CancelCall);
                }
            }
        }
    }

    pub(super) fn blank_answer(&self, stop_reason: StopReason) -> AssistantMessage {
        AssistantMessage::of(&self.prefix.model, stop_reason, self.now)
    }

    pub(super) fn call_not_made(&mut self, outcome: Outcome) {
        let Some(Run { turn, phase: Phase::Calling { .. }, is_outdated, aborting, .. }) = &mut self.run
        else {
            return;
        };
        let (turn, is_outdated) = (*turn, std::mem::take(is_outdated) && !*aborting);
        // It was not sent, as something in it was forgotten: another one is made of what is left, in its row.
        if is_outdated && outcome == Outcome::Aborted {
            return self.call_model();
        }
        // It may have been recorded with the commit before it.
        self.revoke_last_call();
        self.emit(Event::TurnEnded { turn });
        self.end_run(outcome);
    }

    /// What was streamed of an answer is not what is stored: the answer begins anew.
    pub(super) fn drop_streamed(&mut self) {
        let Some(Run { phase: Phase::Calling { message, attempt }, .. }) = &mut self.run else { return };
        let (Some(id), attempt) = (message.take(), *attempt) else { return };
        let error = ModelError::new(ModelErrorKind::Aborted, "a hook replaced it");
        let dropped = AssistantMessage {
            error_message: Some(error.message.clone()),
            ..self.blank_answer(StopReason::Error)
        };
        let message = Arc::new(Message::Assistant(dropped));
        self.emit(Event::MessageEnded { id, message, ending: Ending::Dropped(error) });
        let id = self.next_message();
        let begun = Arc::new(Message::Assistant(self.blank_answer(StopReason::Pending)));
        self.emit(Event::MessageStarted { id: id.clone(), message: begun, attempt });
        if let Some(Run { phase: Phase::Calling { message, .. }, .. }) = &mut self.run {
            *message = Some(id);
        }
    }

    pub(super) fn call_ended(
        &mut self,
        end: CallEnd,
        record: Option<Box<CallRecord>>,
        money: CallMoney,
        (hooks, replaced): (&[Json], Option<Provenance>),
    ) {
        let Some(run) = &mut self.run else { return };
        let Phase::Calling { message, attempt } = &run.phase else { return };
        let (message, attempt) = (message.clone(), *attempt);
        run.cost += end.message.usage.cost.total + money.assumed;
        run.refused = money.refused;
        if run.is_outdated {
            let ended = EndedCall {
                message,
                attempt,
                end: without_answer(end),
                record,
                hooks: Vec::new(),
                replaced: None,
            };
            return self.keep_answer(ended);
        }
        if end.error.is_none() {
            // When it grows too long again, all of it is tried again.
            run.overflow = OverflowProgress::default();
        }
        let ended = EndedCall { message, attempt, end, record, hooks: hooks.to_vec(), replaced };
        if let Some(ended) = self.try_otherwise(ended) {
            self.keep_answer(ended);
        }
    }

    /// The answer, or what came of it, becomes a node.
    pub(super) fn keep_answer(&mut self, ended: EndedCall) {
        let EndedCall { message, attempt, end, record, hooks, replaced } = ended;
        let CallEnd { message: mut answer, mut error, attempts, charges: _, unknown } = end;
        if let Some(error) = &error {
            answer.stop_reason =
                if error.kind == ModelErrorKind::Aborted { StopReason::Aborted } else { StopReason::Error };
            answer.error_message.get_or_insert_with(|| error.message.clone());
        }
        let refused = self.read_reply(&mut answer, &mut error);
        let Some(run) = &mut self.run else { return };
        let calls: Vec<ToolCall> = match answer.stop_reason {
            _ if error.is_some() => Vec::new(),
            StopReason::Stop | StopReason::ToolUse | StopReason::Length => {
                answer.tool_calls().cloned().collect()
            }
            StopReason::Error | StopReason::Aborted | StopReason::Deferred | StopReason::Pending => {
                Vec::new()
            }
        };
        let mut step = StepInfo { run: Some(run.id.clone()), provenance: replaced, ..StepInfo::default() };
        if let Some(mut record) = record {
            record.attempts = attempts;
            step.started = Some(record.started);
            step.duration_ms = record.duration_ms;
            step.call = Some(*record);
        }
        if !unknown.is_empty()
            && let Ok(unknown) = quipu_protocol::Json::of(&unknown)
        {
            step.extra.insert("unknownEvents".into(), unknown);
        }
        record_hooks(&mut step, &hooks);
        let cut = answer.stop_reason == StopReason::Length;
        let is_refused = cut || refused.is_some();
        let mut ops = vec![PlanOp::Forget { run: run.id.clone(), session: None }];
        ops.extend((self.pending_self_message && counts(&answer)).then_some(PlanOp::ClearSelfMessage));
        let prepared = if is_refused {
            let why = |call: &ToolCall| refused.clone().unwrap_or_else(|| batch::cut_off(&call.name));
            calls.iter().map(|call| CheckedCall::Refused(why(call))).collect()
        } else {
            let (id, turn) = (&run.id, run.turn);
            ops.extend(calls.iter().enumerate().map(|(slot, call)| PlanOp::Announce {
                run: id.clone(),
                key: step_key(turn, slot),
                call: call.clone(),
            }));
            Vec::new()
        };
        let waiting = !calls.is_empty() && !is_refused;
        let run_id = run.id.clone();
        let answer = Message::Assistant(answer);
        let id = match message {
            Some(id) => id,
            None => {
                let id = self.next_message();
                self.emit(Event::MessageStarted {
                    id: id.clone(),
                    message: Arc::new(answer.clone()),
                    attempt,
                });
                id
            }
        };
        if attempt > 1 {
            self.emit(Event::RetryEnded { ok: error.is_none() });
        }
        let draft = Draft::of(Entry::Message(answer.clone()), step);
        if let Some(run) = &mut self.run {
            let answer = Arc::new(answer);
            let calls = calls.clone();
            run.phase = Phase::Answered(AnswerState {
                message: id,
                answer,
                calls,
                error,
                prepared,
                interventions: Vec::new(),
                waiting,
                kept: false,
                early: EarlyCalls::default(),
            });
        }
        let ends_turn = calls.is_empty();
        self.commit(Tag::Assistant, vec![draft], ops, ends_turn);
        if waiting {
            // Looking up and validating reads only, so it need not wait for the commit.
            self.out.push(Effect::Prepare { run: run_id, calls });
        }
    }

    pub(super) fn prepared(&mut self, calls: Vec<CheckedCall>, interventions: Vec<Interventions>) {
        let Some(Run { id, turn, aborting, phase: Phase::Answered(answered), .. }) = &mut self.run else {
            return;
        };
        (answered.prepared, answered.interventions) = (calls, interventions);
        answered.waiting = false;
        if !answered.kept && !*aborting {
            answered.early.begin(&answered.calls, &answered.prepared);
            for slot in answered.early.running() {
                if let Some(CheckedCall::Ready { call, touches }) = answered.prepared.get(slot) {
                    let (run, call, touches) = (id.clone(), call.clone(), touches.clone());
                    self.out.push(Effect::RunTool { run, turn: *turn, slot, call, touches, approved: false });
                }
            }
        }
        self.answered();
    }

    /// Goes on when the answer is kept and its calls are prepared.
    pub(super) fn answered(&mut self) {
        let Some(run) = &mut self.run else { return };
        let Phase::Answered(answered) = &mut run.phase else { return };
        if answered.waiting || !answered.kept {
            return;
        }
        let (turn, error, refused) = (run.turn, answered.error.take(), run.refused.take());
        let (calls, prepared) = (std::mem::take(&mut answered.calls), std::mem::take(&mut answered.prepared));
        let (interventions, early) =
            (std::mem::take(&mut answered.interventions), std::mem::take(&mut answered.early));
        if std::mem::take(&mut run.is_outdated) {
            self.emit(Event::TurnEnded { turn });
            return self.after_turn(TurnEnd::Continues);
        }
        if let Some(error) = error {
            self.emit(Event::TurnEnded { turn });
            let error = match error.kind {
                ModelErrorKind::ContextOverflow => match self.mend_overflow(error) {
                    Ok(()) => return,
                    Err(error) => error,
                },
                _ => error,
            };
            let aborted = error.kind == ModelErrorKind::Aborted;
            let failed = if aborted { Outcome::Aborted } else { Outcome::Failed(error) };
            return self.end_run(refused.unwrap_or(failed));
        }
        if calls.is_empty() {
            let paused = match &*answered.answer {
                Message::Assistant(answer) => is_paused(answer),
                _ => false,
            };
            run.pauses = if paused { run.pauses + 1 } else { 0 };
            // A provider that never comes to an end with its own tools must not hold the run for ever.
            let continues = paused && run.pauses <= MOST_PAUSES;
            self.emit(Event::TurnEnded { turn });
            return self.after_turn(if continues { TurnEnd::Continues } else { TurnEnd::Done });
        }
        run.pauses = 0;
        self.start_tools(calls, prepared, interventions, early);
    }
}

/// A call whose answer is not used: it was made of something that was forgotten meanwhile.
fn without_answer(end: CallEnd) -> CallEnd {
    let error = ModelError::new(ModelErrorKind::Aborted, compacting::OUTDATED);
    let mut message = end.message;
    (message.content, message.error_message, message.response_id) = (Vec::new(), None, None);
    CallEnd { message, error: Some(error), unknown: Vec::new(), ..end }
}

/// Whether the provider stopped in the middle of its own tools, and goes on with them when it gets the answer back.
pub(super) fn is_paused(answer: &AssistantMessage) -> bool {
    answer.stop_reason == StopReason::ToolUse
        && answer.content.last().is_some_and(|last| ServerToolBlock::of(last).is_some())
}
