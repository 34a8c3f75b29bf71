//! Events of a session as updates for its client.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use quipu::Events;
use quipu_protocol::{
    Ask, AskId, CallId, CompactionResult, Delta, Ending, Envelope, Event, Json, Message, MessageId, Notice,
    Outcome, Snapshot, StopReason, ToolResultMessage, Ui,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::asks::{Asker, CallAtWork};
use crate::calls;
use crate::link::SessionLink;
use crate::options::mode_of;
use crate::session::{OpenSession, RunEnd, RunEndLog};
use crate::updates;

/// Follows a session for as long as it is open and the client is there.
pub(crate) struct Follower {
    link: Arc<SessionLink>,
    open: Weak<OpenSession>,
    cwd: PathBuf,
    asker: Asker,
    snapshot: Snapshot,
    ends: watch::Sender<RunEndLog>,
    asks: HashMap<AskId, AbortOnDropHandle<()>>,
    /// Calls of the turn that the client knows.
    known: HashMap<CallId, (String, Json)>,
    /// The answer of which pieces were told.
    streamed: Option<MessageId>,
    stop: StopReason,
    mode: &'static str,
    /// Which commands were told last.
    commands: Option<u64>,
    compactions: u64,
}

impl Follower {
    pub(crate) fn new(open: &Arc<OpenSession>, snapshot: Snapshot, ends: watch::Sender<RunEndLog>) -> Self {
        let (link, session) = (open.link.clone(), open.session.clone());
        let cwd = session.cwd().to_path_buf();
        let asker = Asker { link: link.clone(), session, cwd: cwd.clone(), has_refused: Arc::default() };
        let mode = mode_of(&open.session, &open.permissions);
        Self {
            link,
            open: Arc::downgrade(open),
            cwd,
            asker,
            snapshot,
            ends,
            asks: HashMap::new(),
            known: HashMap::new(),
            streamed: None,
            stop: StopReason::Stop,
            mode,
            commands: None,
            compactions: 0,
        }
    }

    /// Tells of all events.
    pub(crate) async fn run(mut self, mut events: Events) {
        self.commands().await;
        for ask in std::mem::take(&mut self.snapshot.asks) {
            self.ask(&ask);
        }
        while let Some(envelope) = events.next().await {
            self.snapshot.fold(&envelope);
            if !self.event(&envelope).await {
                return;
            }
        }
    }

    async fn tell(&self, update: Value) -> bool {
        match self.link.name() {
            Some(name) => self.link.connection.update(name, update).await,
            None => false,
        }
    }

    /// Tells of one event; whether the client is there still.
    async fn event(&mut self, envelope: &Envelope) -> bool {
        match &envelope.event {
            Event::TurnStarted { .. } => {
                self.known.clear();
                self.commands().await
            }
            Event::MessageDelta { id, delta } => self.delta(id, delta).await,
            Event::MessageEnded { id, message, ending } => self.message(id, message, ending).await,
            Event::ToolStarted { call, name, args } => self.started(call, name, args).await,
            Event::ToolOutput { call, tail } => {
                let name = self.link.call(call);
                self.link.is_in_terminal(&name) || self.tell(calls::output(&name, tail)).await
            }
            Event::ToolEnded { call, result } => self.ended(call, result).await,
            Event::AskOpened { ask } => {
                self.ask(ask);
                true
            }
            Event::AskClosed { ask, .. } => {
                // Where somebody else answered, the client is not asked any more.
                self.asks.remove(ask);
                true
            }
            Event::TurnEnded { .. } => self.usage().await,
            Event::RunEnded { outcome } => {
                let there = self.usage().await && self.commands().await;
                self.end(envelope, outcome.clone());
                there
            }
            Event::PermissionsChanged { .. } | Event::EpochChanged { .. } => self.options().await,
            Event::Renamed { name } => {
                let title = Some(name).filter(|name| !name.is_empty());
                self.tell(json!({ "sessionUpdate": "session_info_update", "title": title })).await
            }
            Event::Ui { ui: Ui::Notice { notice } } => self.notice(notice).await,
            Event::CompactionStarted { .. } => {
                self.compactions += 1;
                self.compaction("in_progress", None).await
            }
            Event::CompactionEnded { result, .. } => {
                let (status, error, outcome) = match &**result {
                    CompactionResult::Done { .. } => ("completed", None, Outcome::Done),
                    CompactionResult::Aborted => ("cancelled", None, Outcome::Aborted),
                    CompactionResult::Failed(why) => {
                        ("failed", Some(why.as_str()), Outcome::StoreFailed(why.clone()))
                    }
                };
                let there = self.compaction(status, error).await && self.usage().await;
                if self.snapshot.run.is_none() {
                    self.end(envelope, outcome);
                }
                there
            }
            Event::RetryScheduled { error, .. } => {
                self.notice(&Notice::note(format!("{}; trying again", error.message))).await
            }
            _ => true,
        }
    }

    fn end(&self, envelope: &Envelope, outcome: Outcome) {
        let end = RunEnd { run: envelope.run.clone(), outcome, stop: self.stop };
        self.ends.send_modify(|ends| ends.push(end));
    }

    async fn delta(&mut self, id: &MessageId, delta: &Delta) -> bool {
        let (is_thinking, text) = match delta {
            Delta::Text { text, .. } => (false, text),
            Delta::Thinking { text, .. } => (true, text),
            _ => return true,
        };
        self.streamed = Some(id.clone());
        let kind = updates::answer_kind(is_thinking);
        self.tell(updates::chunk(kind, text, Some(id.as_str()))).await
    }

    async fn message(&mut self, id: &MessageId, message: &Message, ending: &Ending) -> bool {
        let Message::Assistant(answer) = message else { return true };
        if matches!(ending, Ending::Dropped(_)) {
            return true;
        }
        self.stop = answer.stop_reason;
        if self.streamed.as_ref() != Some(id) {
            for (is_thinking, text) in updates::answer_texts(message) {
                let kind = updates::answer_kind(is_thinking);
                if !self.tell(updates::chunk(kind, text, Some(id.as_str()))).await {
                    return false;
                }
            }
        }
        for call in answer.tool_calls() {
            let of = (call.name.clone(), call.arguments.clone());
            if self.known.insert(call.id.clone(), of).is_none() {
                let name = self.link.begin_call(&call.id);
                let begun = calls::begun(&name, (&call.name, &call.arguments), &self.cwd, "pending", true);
                if !self.tell(begun).await {
                    return false;
                }
            }
        }
        true
    }

    async fn started(&mut self, call: &CallId, tool: &str, arguments: &Json) -> bool {
        if self.known.insert(call.clone(), (tool.to_owned(), arguments.clone())).is_none() {
            let name = self.link.begin_call(call);
            let begun = calls::begun(&name, (tool, arguments), &self.cwd, "in_progress", true);
            return self.tell(begun).await;
        }
        // One that a person is asked about waits.
        let is_asked =
            self.snapshot.asks.iter().any(|ask| ask.permission().is_some_and(|it| it.call == *call));
        is_asked || self.tell(calls::running(&self.link.call(call))).await
    }

    async fn ended(&mut self, call: &CallId, result: &ToolResultMessage) -> bool {
        let name = self.link.call(call);
        let arguments = self.call_at_work(call).map(|(_, _, arguments)| arguments);
        let in_terminal = self.link.is_in_terminal(&name);
        let ended = calls::ended(&name, arguments.as_ref(), result, &self.cwd, in_terminal);
        if !self.tell(ended).await {
            return false;
        }
        let plan = arguments.filter(|_| result.tool_name == quipu::TODO_TOOL && !result.is_error);
        match plan.as_ref().and_then(calls::plan) {
            Some(plan) => self.tell(plan).await,
            None => true,
        }
    }

    fn call_at_work(&self, call: &CallId) -> Option<CallAtWork> {
        let (tool, arguments) = self.known.get(call)?;
        Some((call.clone(), tool.clone(), arguments.clone()))
    }

    fn ask(&mut self, ask: &Arc<Ask>) {
        let call = match ask.permission() {
            Some(permission) => self.call_at_work(&permission.call),
            // The one that runs alone asks.
            None => match &self.snapshot.tools[..] {
                [only] => self.call_at_work(&only.call),
                _ => None,
            },
        };
        let put = self.asker.clone().put(ask.clone(), call);
        self.asks.insert(ask.id.clone(), AbortOnDropHandle::new(tokio::spawn(put)));
    }

    async fn usage(&self) -> bool {
        let Some(used) = self.snapshot.context else { return true };
        let size = self.snapshot.model.context_window;
        let cost = json!({ "amount": self.snapshot.usage.cost.total, "currency": "USD" });
        let update = json!({ "sessionUpdate": "usage_update", "used": used, "size": size, "cost": cost });
        self.tell(update).await
    }

    /// Tells which commands there are, where these changed.
    async fn commands(&mut self) -> bool {
        let Some(open) = self.open.upgrade() else { return true };
        let version = open.home.commands().version();
        if self.commands.replace(version) == Some(version) {
            return true;
        }
        let command = |name: &str, help: &str, hint: &str| {
            let mut command = json!({ "name": name, "description": help });
            if !hint.is_empty() {
                command["input"] = json!({ "hint": hint });
            }
            command
        };
        let (name, help, hint) = crate::prompt::COMPACT;
        let own = command(name, help, hint);
        let listed = open.home.commands().runnable();
        let listed = listed.iter().filter(|spec| spec.name != name);
        let commands: Vec<Value> = std::iter::once(own)
            .chain(listed.map(|spec| command(&spec.name, &spec.help, &spec.arguments)))
            .collect();
        let update = json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands });
        self.tell(update).await
    }

    /// Tells of modes and options, where they may have changed.
    async fn options(&mut self) -> bool {
        let Some(open) = self.open.upgrade() else { return true };
        let state = open.state_of(&self.snapshot);
        let mode = mode_of(&open.session, &open.permissions);
        if mode != self.mode {
            self.mode = mode;
            let update = json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
            if !self.tell(update).await {
                return false;
            }
        }
        let options = &state["configOptions"];
        self.tell(json!({ "sessionUpdate": "config_option_update", "configOptions": options })).await
    }

    async fn notice(&self, notice: &Notice) -> bool {
        match updates::notice_text(notice) {
            Some(text) => self.tell(updates::notice(&self.link, &text, false)).await,
            None => true,
        }
    }

    async fn compaction(&self, status: &str, error: Option<&str>) -> bool {
        if !self.link.abilities.shows_compactions {
            return true;
        }
        let id = format!("compaction-{}", self.compactions);
        let mut update =
            json!({ "sessionUpdate": "compaction_update", "compactionId": id, "status": status });
        if let Some(error) = error {
            update["error"] = error.into();
        }
        self.tell(update).await
    }
}

/// Follows a session from here on.
pub(crate) fn follow(
    open: &Arc<OpenSession>,
    (snapshot, events): (Snapshot, Events),
    ends: watch::Sender<RunEndLog>,
) -> AbortOnDropHandle<()> {
    let follower = Follower::new(open, snapshot, ends);
    AbortOnDropHandle::new(tokio::spawn(follower.run(events)))
}
