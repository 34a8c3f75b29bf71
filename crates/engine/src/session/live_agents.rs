//! Sub-agents at work: the drive of one from its first message to its report, and what people see of it meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::mailbox;
use quipu_protocol::{
    Answer, Ask, AskId, AskKind, AuthorClass, CallId, Command, Ending, Event, Json, Message, Origin, Outcome,
    Provenance, Scope, UserInput,
};
use quipu_transcript::one_line;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::asks::Question;
use super::{Mail, Session};
use crate::agents::AGENT_PURPOSE;
use crate::runner::{AgentEnd, AgentOrder, AgentReport, RunnerError};
use crate::subscribe::Delivery;

/// Calls that are shown of one at work.
const RECENT: usize = 4;
/// Characters of a call that is shown.
const CALL: usize = 120;
/// Between two reports of how far one is.
const BETWEEN: Duration = Duration::from_millis(100);

/// A sub-agent at work, for fronts: its session can be watched, steered and stopped. One that was steered or left alone ends
/// by itself; do not close it.
#[derive(Debug, Clone)]
pub struct LiveAgent {
    /// The call that sent it.
    pub call: CallId,
    /// The name of the agent; `sub-agent` for one without.
    pub agent: String,
    /// What it is about, in a few words; may be empty.
    pub title: String,
    /// Its session.
    pub session: Session,
}

/// The sub-agents of a session that are at work. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveAgents {
    all: Arc<Mutex<Vec<LiveAgent>>>,
    /// Names of agents whose model was replaced; people know.
    replaced: Arc<Mutex<HashSet<String>>>,
}

impl LiveAgents {
    fn list(&self) -> MutexGuard<'_, Vec<LiveAgent>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody knows yet that the model of this agent was replaced.
    pub(super) fn is_first(&self, agent: &str) -> bool {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).insert(agent.to_owned())
    }

    pub(super) fn all(&self) -> Vec<LiveAgent> {
        self.list().clone()
    }

    fn begin(&self, agent: LiveAgent) -> LiveGuard {
        let session = agent.session.view().session.to_string();
        self.list().push(agent);
        LiveGuard { all: self.clone(), session }
    }
}

/// Takes a sub-agent off the list.
struct LiveGuard {
    all: LiveAgents,
    session: String,
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.all.list().retain(|agent| agent.session.view().session.as_str() != self.session);
    }
}

/// What belongs to the session that sends a sub-agent.
pub(super) struct DriveParts {
    /// Of the session that sends it: its questions go there.
    pub(super) mail: mailbox::WeakSender<Mail>,
    /// Whether anybody there can answer.
    pub(super) answers: bool,
    pub(super) live: LiveAgents,
    pub(super) until: Instant,
    /// Ends it with the run that pays, or with the session.
    pub(super) cancel: CancellationToken,
    /// That another model answers than the one that its file names.
    pub(super) replaced: Option<String>,
}

/// What a sub-agent is driven by.
pub(super) struct Drive {
    pub(super) order: AgentOrder,
    pub(super) session: Session,
    pub(super) parts: DriveParts,
}

/// The time that one may work; it stands still while a question waits for a person.
struct WorkTime {
    until: Instant,
    /// Since when questions wait, and how many.
    waits: Option<(Instant, usize)>,
}

impl WorkTime {
    fn asked(&mut self) {
        let (since, open) = self.waits.unwrap_or((Instant::now(), 0));
        self.waits = Some((since, open + 1));
    }

    fn answered(&mut self) {
        self.waits = match self.waits {
            Some((since, 0 | 1)) => {
                self.until += since.elapsed();
                None
            }
            Some((since, open)) => Some((since, open - 1)),
            None => None,
        };
    }

    async fn is_over(&self) {
        match self.waits {
            Some(_) => std::future::pending().await,
            None => tokio::time::sleep_until(self.until).await,
        }
    }
}

impl Drive {
    /// Says the prompt, waits until it is at rest, stopped, or overdue, and closes its session.
    pub(super) async fn go(self) -> Result<AgentReport, RunnerError> {
        let Self { order, session, parts } = self;
        let DriveParts { mail, answers, live, until, cancel, replaced } = parts;
        let mut time = WorkTime { until, waits: None };
        let listening = match answers {
            true => session.subscribe_and_answer(Delivery::Lossless).await,
            false => session.subscribe(Delivery::Lossless).await,
        };
        let (_, mut events) = listening.map_err(RunnerError::Refused)?;
        let by = Provenance::new(Origin::Process, AuthorClass::System).named(AGENT_PURPOSE);
        let input = UserInput::from(order.prompt.clone()).from_source(by);
        if let Err(refused) = session.prompt(input).await {
            session.shutdown().await;
            return Err(RunnerError::Refused(refused));
        }
        let _listed = live.begin(LiveAgent {
            call: order.call.clone(),
            agent: order.name().to_owned(),
            title: order.title.clone(),
            session: session.clone(),
        });
        let child = session.view().session;
        let (agent, title) = (order.name().to_owned(), order.title.clone());
        say(&mail, Event::ChildStarted { child: child.clone(), call: order.call.clone(), agent, title })
            .await;
        let mut state = AgentState::new(&order, &session);
        let mut asked: HashMap<AskId, AbortOnDropHandle<()>> = HashMap::new();
        let end = loop {
            let envelope = tokio::select! {
                biased;
                () = cancel.cancelled() => break AgentEnd::Stopped,
                () = order.cancel.cancelled() => break AgentEnd::Stopped,
                () = time.is_over() => break AgentEnd::Overdue(order.limits.longest),
                envelope = events.next() => envelope,
            };
            let Some(envelope) = envelope else {
                break AgentEnd::Ended(state.outcome.take().unwrap_or(Outcome::Aborted));
            };
            match &envelope.event {
                Event::AskOpened { ask } if answers => {
                    time.asked();
                    let forward =
                        forward(ask.clone(), order.name().to_owned(), mail.clone(), session.clone());
                    asked.insert(ask.id.clone(), AbortOnDropHandle::new(tokio::spawn(forward)));
                }
                Event::AskClosed { ask, .. } => {
                    if asked.remove(ask).is_some() {
                        time.answered();
                    }
                }
                // What was said to it meanwhile may have begun another run.
                Event::Settled if state.outcome.is_some() && session.view().run.is_none() => {
                    break AgentEnd::Ended(state.outcome.take().unwrap_or(Outcome::Done));
                }
                event => state.fold(event),
            }
        };
        drop(asked);
        session.shutdown().await;
        // What came while it was closed.
        while let Some(envelope) = events.next().await {
            state.note(&envelope.event);
        }
        let cost = session.purse().book.spent();
        let (outcome, turns, calls) = (end.outcome(), state.turns, state.calls);
        say(&mail, Event::ChildEnded { child, call: order.call.clone(), outcome, turns, calls, cost }).await;
        Ok(AgentReport {
            session: session.view().session,
            head: session.view().head,
            end,
            text: state.text,
            turns,
            calls,
            cost,
            worktree: None,
            replaced,
        })
    }
}

/// Lets those in front of the session that sends sub-agents see what becomes of one. The session may be over.
async fn say(mail: &mailbox::WeakSender<Mail>, event: Event) {
    if let Some(mail) = mail.upgrade() {
        drop(mail.send(Mail::Child(Box::new(event))).await);
    }
}

/// Puts a question of a sub-agent to whoever is in front of the session that sent it, and brings the answer back.
async fn forward(ask: Arc<Ask>, agent: String, mail: mailbox::WeakSender<Mail>, session: Session) {
    let (reply, answer) = oneshot::channel();
    let question =
        Question { kind: named(&ask.kind, &agent), default: ask.default.clone(), wait: None, reply };
    let Some(mail) = mail.upgrade() else { return };
    if mail.send(Mail::Ask(question)).await.is_err() {
        return;
    }
    drop(mail);
    let Ok(answer) = answer.await else { return };
    let answer = match answer {
        // For longer it holds in the session that was asked, whose permissions these are.
        Answer::Allow { .. } => Answer::Allow { scope: Scope::Once },
        answer => answer,
    };
    // It may be closed by now.
    drop(session.send(Command::Answer { ask: ask.id.clone(), answer }).await);
}

/// The question with the agent that asks it.
fn named(kind: &AskKind, agent: &str) -> AskKind {
    let mut kind = kind.clone();
    let text = match &mut kind {
        AskKind::Permission(permission) => &mut permission.question,
        AskKind::Confirm { title, .. }
        | AskKind::Choose { title, .. }
        | AskKind::Text { title, .. }
        | AskKind::Edit { title, .. }
        | AskKind::Form { title, .. }
        | AskKind::OpenUrl { title, .. } => title,
    };
    *text = format!("{agent} (sub-agent): {text}");
    kind
}

/// How far a sub-agent is.
struct AgentState {
    text: String,
    outcome: Option<Outcome>,
    turns: u32,
    calls: u32,
    recent: VecDeque<String>,
    head: String,
    session: Session,
    shown: Option<Instant>,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
}

impl AgentState {
    fn new(order: &AgentOrder, session: &Session) -> Self {
        let title = if order.title.is_empty() { String::new() } else { format!(" ({})", order.title) };
        let head = format!("{}{title} in session {}", order.name(), session.view().session);
        let mut state = Self {
            text: String::new(),
            outcome: None,
            turns: 0,
            calls: 0,
            recent: VecDeque::new(),
            head,
            session: session.clone(),
            shown: None,
            progress: order.progress.clone(),
        };
        state.show();
        state
    }

    /// Takes an event in.
    fn note(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { .. } => self.turns += 1,
            Event::ToolStarted { name, args, .. } => {
                self.calls += 1;
                self.recent.push_back(format!("{name} {}", shown_args(args)));
                if self.recent.len() > RECENT {
                    self.recent.pop_front();
                }
            }
            Event::MessageEnded { message, ending: Ending::Committed(_), .. } => {
                if let Message::Assistant(answer) = &**message {
                    let text = answer.text();
                    if !text.trim().is_empty() {
                        self.text = text;
                    }
                }
            }
            Event::RunStarted => self.outcome = None,
            Event::RunEnded { outcome } => self.outcome = Some(outcome.clone()),
            _ => {}
        }
    }

    /// Takes an event in, and shows where that leads.
    fn fold(&mut self, event: &Event) {
        self.note(event);
        let shows = matches!(
            event,
            Event::TurnStarted { .. } | Event::ToolStarted { .. } | Event::MessageEnded { .. }
        );
        if shows && self.shown.is_none_or(|shown| shown.elapsed() >= BETWEEN) {
            self.show();
        }
    }

    fn show(&mut self) {
        self.shown = Some(Instant::now());
        let cost = self.session.purse().book.spent();
        let calls =
            if self.calls == 1 { "1 tool call".to_owned() } else { format!("{} tool calls", self.calls) };
        let mut text = format!("{}: turn {}, {calls}, ${cost:.4}", self.head, self.turns.max(1));
        for call in &self.recent {
            text.push_str("\n  ");
            text.push_str(call);
        }
        (self.progress)(&text);
    }
}

/// The argument that says most, on one line.
fn shown_args(args: &Json) -> String {
    let value = args.value();
    let text = ["command", "path", "pattern", "query", "url", "prompt"]
        .iter()
        .find_map(|name| Some(value.get(name)?.as_str()?.to_owned()));
    one_line(&text.unwrap_or_else(|| args.get().to_owned()), CALL)
}

/// Takes the report of a sub-agent.
pub(super) type AgentReply = oneshot::Sender<Result<AgentReport, RunnerError>>;
