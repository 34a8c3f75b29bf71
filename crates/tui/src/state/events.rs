//! What the session tells.

use std::sync::Arc;

use quipu_protocol::{
    Answer, Ask, CompactionReason, CompactionResult, Ending, Envelope, Event, JumpResult, Message, Notice,
    Outcome, Scope, Snapshot, Ui,
};

use super::item::{AnswerItem, CallItem};
use super::{Effect, Item, OngoingTask, State};
use crate::{blocks, render};

/// Somebody may have looked away from what took so long, in milliseconds.
const LONG: i64 = 10_000;

impl State {
    pub(super) fn on_event(&mut self, envelope: &Envelope, effects: &mut Vec<Effect>) {
        let at = envelope.at;
        if self.standing.session.as_ref() != Some(&envelope.session) {
            self.standing.session = Some(envelope.session.clone());
        }
        match &envelope.event {
            Event::RunStarted => {
                self.linear.iter_mut().for_each(|linear| linear.sent = false);
                self.activity.working = Some(OngoingTask::new(at, "waiting for the model"));
            }
            Event::TurnStarted { .. } => {
                self.transcript.shown.clear();
                self.activity.set_phase("waiting for the model");
            }
            Event::TurnEnded { .. } => {}
            Event::RunEnded { outcome } => {
                self.activity.retry = None;
                self.ended(outcome);
            }
            Event::Settled => {
                // A change of the model is no work.
                let worked = self.activity.working.is_some() || self.activity.busy.is_some();
                self.linear.iter_mut().for_each(|linear| linear.sent = false);
                let since = self.activity.working.take().map_or(at, |working| working.since);
                self.activity.busy = None;
                self.activity.retry = None;
                // Of one that does not say, somebody may have looked away when it took long.
                let away = self.focused.map_or(at.saturating_sub(since) >= LONG, |focused| !focused);
                if worked && away {
                    effects.push(Effect::Notify("The agent is done.".into()));
                }
                if self.shell.running.is_none()
                    && let Some(open) = self.opening.pending.take()
                {
                    self.open(open, effects);
                }
                self.reopen(effects);
                if !self.opening.under_way && !self.opening.moving {
                    self.do_held(effects);
                }
            }
            Event::MessageStarted { id, message, attempt } => {
                if let Message::Assistant(_) = &**message {
                    if *attempt > 1 {
                        self.activity.set_phase(&format!("waiting for the model, try {attempt}"));
                    }
                    self.transcript.begin_answer(AnswerItem::new(id.clone()));
                }
            }
            Event::MessageDelta { id, delta } => {
                let Some(answer) = self.transcript.answer(id) else { return };
                answer.add(delta);
                let phase = answer.phase();
                self.activity.retry = None;
                self.activity.set_phase(phase);
            }
            Event::MessageEnded { id, message, ending } => self.on_message(id, message, ending),
            Event::ToolStarted { call, name, args } => {
                self.activity.set_phase("running tools");
                let tool = CallItem::new(call.clone(), name.clone(), args.clone(), at);
                self.transcript.items.push_back(Item::Tool(Box::new(tool)));
            }
            Event::ToolOutput { call, tail } => {
                if let Some(tool) = self.transcript.tool(call) {
                    tool.tail = tail.clone();
                }
            }
            Event::ToolEnded { call, result } => {
                self.transcript.shown.insert(call.clone());
                if let Some(tool) = self.transcript.tool(call) {
                    tool.result = Some((result.clone(), at));
                }
            }
            Event::ShellStarted { id, line, hidden } => self.shell_started(id, line, *hidden, effects),
            Event::ShellOutput { id, tail } => self.shell_output(id, tail),
            Event::ShellEnded { id, result, store_error } => {
                self.shell_ended(id, result, store_error.as_deref(), effects);
            }
            Event::AskOpened { ask } => {
                self.activity.wait_for_person(at);
                if let Some(tool) = ask.permission().and_then(|asked| self.transcript.tool(&asked.call)) {
                    tool.asked = true;
                }
                self.asked(ask, effects);
            }
            Event::AskClosed { ask, answer: by, by_policy } => {
                if *by_policy
                    && let Some((open, _)) = self.questions.asks.iter().find(|(open, _)| open.id == *ask)
                {
                    let word = if matches!(by, Some(Answer::Allow { .. })) { "allowed" } else { "refused" };
                    let tool = open.permission().map_or_else(String::new, |asked| asked.tool.clone());
                    self.note(&format!("`{tool}` is {word} by the current permissions"));
                }
                let saved = [Scope::Always, Scope::ProjectRule, Scope::AlwaysRule];
                if matches!(by, Some(Answer::Allow { scope }) if saved.contains(scope)) {
                    self.note("Saved; `/permissions` lists and revokes it");
                }
                let of = self.questions.asks.iter().find(|(open, _)| open.id == *ask);
                let call = of.and_then(|(open, _)| open.permission()).map(|asked| asked.call.clone());
                if let Some(tool) = call.and_then(|call| self.transcript.tool(&call)) {
                    // It runs from now on.
                    (tool.asked, tool.since) = (false, at);
                }
                let first = self.questions.asks.front().is_some_and(|(open, _)| open.id == *ask);
                self.questions.asks.retain(|(open, _)| open.id != *ask);
                if first {
                    self.questions.next(self.now);
                }
                if self.questions.asks.is_empty() {
                    self.activity.go_on(at);
                }
            }
            Event::BackgroundStarted { id, .. } => self.background.push(id.clone()),
            // A message says how it ended, or the result of the call that killed it.
            Event::BackgroundEnded { id, .. } => self.background.retain(|running| running != id),
            // Below its call stands how far it is.
            Event::ChildStarted { .. } | Event::ChildEnded { .. } => {}
            Event::PermissionsChanged { mode } => {
                self.standing.permissions.clone_from(mode);
                self.note(&format!("Permissions are now `{mode}`"));
            }
            Event::QueueChanged { steering, follow_up } => {
                self.outbox.queue = (steering.clone(), follow_up.clone());
            }
            Event::Appended { node } => self.standing.head = Some(*node),
            Event::HeadMoved { to, .. } => self.standing.head = Some(*to),
            Event::CompactionStarted { reason } => {
                let why = match reason {
                    CompactionReason::Threshold => "the context is nearly full",
                    CompactionReason::Overflow => "the provider rejected the context as too long",
                    CompactionReason::Manual => "requested",
                };
                self.activity.busy = Some(OngoingTask::new(at, format!("compacting ({why})")));
            }
            Event::CompactionEnded { result, .. } => {
                self.activity.busy = None;
                self.on_compacted(result);
            }
            Event::JumpStarted { to } => {
                self.activity.busy = Some(OngoingTask::new(at, format!("going to {}", to.short())));
            }
            Event::JumpEnded { result } => {
                self.activity.busy = None;
                self.on_jumped(result, effects);
            }
            Event::ContextPruned { results, tokens_before, tokens_after, .. } => {
                let what = match results {
                    0 => "Earlier turns left out".to_owned(),
                    results => format!("{results} old tool results pruned"),
                };
                self.note(&format!("{what}: {tokens_before} tokens before, about {tokens_after} after"));
            }
            Event::EpochChanged { node, model, thinking } => {
                self.standing.head = node.or(self.standing.head);
                let before = self.standing.model.as_ref().map(|model| (&model.provider, &model.id));
                let is_other =
                    before != Some((&model.provider, &model.id)) || self.standing.thinking != *thinking;
                self.standing.model = Some(model.clone());
                self.standing.thinking = *thinking;
                // Else it is the tools or the system prompt that changed.
                if is_other {
                    self.tell_model();
                }
            }
            Event::RetryScheduled { attempt, delay, error } => {
                let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                self.activity.retry = Some((*attempt, at.saturating_add(delay), error.clone()));
            }
            Event::RetryEnded { .. } => self.activity.retry = None,
            Event::Ui { ui } => self.show_ui(ui),
            Event::Renamed { name } => self.standing.name.clone_from(name),
            Event::Lagged { missed, snapshot } => {
                self.note(&format!("The terminal missed {missed} events; the session has them"));
                self.stand_as(snapshot, effects);
            }
        }
    }

    /// A question came up.
    fn asked(&mut self, ask: &Arc<Ask>, effects: &mut Vec<Effect>) {
        if self.focused != Some(true) {
            effects.push(Effect::Notify(match ask.permission() {
                Some(asked) => format!("{} needs your approval.", asked.tool),
                None => "A question is waiting for you.".into(),
            }));
        }
        self.questions.add(ask, self.now);
    }

    /// What people see beside the conversation.
    fn show_ui(&mut self, ui: &Ui) {
        match ui {
            Ui::Notice { notice } => self.notice(notice),
            Ui::Status { key, text } => {
                self.status.retain(|(named, _)| named != key);
                self.status.extend(text.clone().map(|text| (key.clone(), vec![text])));
            }
            Ui::Widget { key, lines } => {
                self.status.retain(|(named, _)| named != key);
                if !lines.is_empty() {
                    self.status.push((key.clone(), lines.clone()));
                }
            }
        }
    }

    /// Shows the status lines and widgets of a session.
    pub(crate) fn show_widgets(&mut self, snapshot: &Snapshot) {
        self.status = snapshot.status.iter().map(|(key, text)| (key.clone(), vec![text.clone()])).collect();
        self.status.extend(snapshot.widgets.clone());
    }

    /// Takes over how the session stands, where events were not seen.
    pub(super) fn stand_as(&mut self, snapshot: &Snapshot, effects: &mut Vec<Effect>) {
        self.standing.head = snapshot.head;
        self.standing.model = Some(snapshot.model.clone());
        self.standing.thinking = snapshot.thinking;
        self.standing.permissions.clone_from(&snapshot.permissions);
        self.outbox.queue = (snapshot.steering.clone(), snapshot.follow_up.clone());
        self.show_widgets(snapshot);
        self.questions.asks.retain(|(open, _)| snapshot.asks.iter().any(|ask| ask.id == open.id));
        for ask in &snapshot.asks {
            if !self.questions.has(&ask.id) {
                self.asked(ask, effects);
            }
        }
        self.questions.next(self.now);
        self.stand_shells(&snapshot.shells);
        self.background = snapshot.background.iter().map(|one| one.id.clone()).collect();
        if snapshot.run.is_none() {
            self.activity.stop();
            self.activity.retry = None;
            self.transcript.drop_calls();
        }
    }

    fn on_message(&mut self, id: &quipu_protocol::MessageId, message: &Message, ending: &Ending) {
        if let Ending::Committed(node) = ending {
            self.standing.head = Some(*node);
        }
        let columns = self.size.columns;
        match message {
            Message::Assistant(answer) => {
                self.count(answer);
                let place = self.transcript.answer(id);
                match (place, ending) {
                    (Some(open), Ending::Committed(_)) => open.end(answer),
                    (Some(open), Ending::Dropped(_)) => open.abandon(),
                    (None, Ending::Committed(_)) => {
                        let mut open = AnswerItem::new(id.clone());
                        open.end(answer);
                        self.transcript.begin_answer(open);
                    }
                    (None, Ending::Dropped(_)) => {}
                }
                if let Ending::Dropped(error) = ending {
                    self.note(&format!("the answer broke off: {}", error.message));
                } else {
                    let text = answer.text();
                    if !text.is_empty() {
                        self.transcript.last_answer = text;
                    }
                }
            }
            Message::ToolResult(result) if self.transcript.shown.contains(&result.tool_call_id) => {}
            // Printed when it was done.
            Message::BashExecution(_) => {}
            Message::User(said) if self.was_typed(&quipu::typed_text(&said.content.blocks())) => {}
            message => {
                let lines = render::message(message, self.transcript.unfolded, columns, &self.theme);
                self.ready(lines);
            }
        }
    }

    /// What an answer took.
    pub(super) fn count(&mut self, answer: &quipu_protocol::AssistantMessage) {
        let usage = &answer.usage;
        let all = &mut self.standing.usage;
        all.input += usage.input;
        all.output += usage.output;
        all.cache_read += usage.cache_read;
        all.cache_write += usage.cache_write;
        all.total_tokens += usage.total_tokens;
        all.cost.total += usage.cost.total;
        if usage.total_tokens > 0 {
            self.standing.context = Some(usage.total_tokens);
        }
    }

    fn on_compacted(&mut self, result: &CompactionResult) {
        match result {
            CompactionResult::Done { node, compaction, tokens_after } => {
                self.standing.head = Some(*node);
                self.standing.context = Some(*tokens_after);
                if let Some(usage) = &compaction.usage {
                    self.standing.usage.cost.total += usage.cost.total;
                }
            }
            CompactionResult::Aborted | CompactionResult::Failed(_) => {}
        }
        let lines = blocks::compaction(result, !self.transcript.unfolded, self.size.columns, &self.theme);
        self.ready(render::apart(lines));
    }

    fn on_jumped(&mut self, result: &JumpResult, effects: &mut Vec<Effect>) {
        match result {
            JumpResult::Done(jumped) => {
                self.standing.head = Some(jumped.head);
                self.standing.usage.cost.total += jumped.usage.map_or(0.0, |usage| usage.cost.total);
                let said =
                    jumped.prompt.as_ref().map(|said| quipu::typed_text(&said.content)).unwrap_or_default();
                self.note(&format!(
                    "The session is now at {}; `/undo` goes back to {}",
                    jumped.head.short(),
                    jumped.from.short()
                ));
                if !said.is_empty() && self.editor.text().trim().is_empty() {
                    self.editor.set_text(&said);
                    effects.push(Effect::Draft);
                }
                Self::say_place(jumped.head, effects);
            }
            JumpResult::Aborted => self.note("Stopped; the session did not move"),
            JumpResult::Failed(why) => self.error("The session did not move.", why),
        }
    }

    fn ended(&mut self, outcome: &Outcome) {
        for item in &mut self.transcript.items {
            if let Item::Answer(answer) = item {
                answer.finish();
            }
        }
        self.transcript.drop_calls();
        let lines = render::apart(blocks::outcome(outcome, self.size.columns, &self.theme));
        self.ready(lines);
    }

    /// Something that the user should know.
    pub(super) fn notice(&mut self, notice: &Notice) {
        let lines = render::apart(blocks::notice(notice, self.size.columns, &self.theme));
        self.ready(lines);
    }
}
