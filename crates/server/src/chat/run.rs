//! The run that answers a request.

use std::time::Duration;

use http::StatusCode;
use quipu::{Delivery, Events, Session};
use quipu_host::{Failure, FailureKind, session_named};
use quipu_protocol::{
    Ack, Content, Delta, Ending, Event, Limit, Message, MessageId, Outcome, Refusal, SessionId, Setting,
    Usage, UserInput,
};
use quipu_runtime::{
    AgentId, BorrowedConversation, DEFAULT_AGENT, DeskLease, LeaseError, SessionRequest, audience_of,
    place_of,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::answer::ApiError;
use crate::conversation_routes::unknown_agent;
use crate::conversations::workspace;
use crate::front::{Front, closing};

use super::model_names::named;
use super::request::{ChatRequest, StreamMode};

/// How long an aborted run may take to end.
const ABORT: Duration = Duration::from_secs(10);

/// What becomes of a request.
pub(super) enum ChatEvent {
    /// Its prompt is part of this session.
    Started(SessionId),
    /// A piece of the answer; only where pieces are wanted.
    Text(String),
    /// The last one.
    Ended(Result<ChatOutcome, ApiError>),
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    /// A limit of the user, behind something that was said.
    Length,
}

impl Finish {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// An answer.
pub(super) struct ChatOutcome {
    /// What the agent said, each message behind an empty line.
    pub(super) text: String,
    pub(super) finish: Finish,
    /// Of all model calls.
    pub(super) usage: Usage,
}

/// How often is looked whether the answer that a killed process owes is given.
const OWED_POLL: Duration = Duration::from_millis(50);
/// How long that may take where nothing runs: longer than until it is tried again.
const OWED_PATIENCE: Duration = Duration::from_secs(15);

fn owed() -> ApiError {
    let message = "an earlier message of this conversation is still to be answered; try again, or stop it";
    ApiError::new(StatusCode::CONFLICT, "reply_owed", message)
}

/// Answers a request. Whoever reads no more ends its run.
pub(super) async fn run(front: &Front, request: ChatRequest, sender: mpsc::Sender<ChatEvent>) {
    let ended = match in_turn(front, request, &sender).await {
        Err(_) if front.stop().is_cancelled() => Err(closing().once()),
        ended => ended,
    };
    drop(sender.send_timeout(ChatEvent::Ended(ended), front.limits().stalled).await);
}

/// Failures that a client cannot change are those of the server.
fn unopened(failure: &Failure) -> ApiError {
    let (status, code) = match failure.kind {
        FailureKind::Request => (StatusCode::BAD_REQUEST, "session_refused"),
        FailureKind::Asks(_) => (StatusCode::CONFLICT, "needs_answer"),
        FailureKind::Credential => (StatusCode::SERVICE_UNAVAILABLE, "no_credential"),
        FailureKind::Failed | FailureKind::Store | FailureKind::OutputClosed => {
            (StatusCode::INTERNAL_SERVER_ERROR, "session_failed")
        }
    };
    ApiError::new(status, code, failure.message.clone()).once()
}

fn refused(refusal: &Refusal) -> ApiError {
    let (status, code) = match refusal {
        Refusal::Busy => (StatusCode::TOO_MANY_REQUESTS, "session_busy"),
        _ => (StatusCode::BAD_REQUEST, "refused"),
    };
    ApiError::new(status, code, refusal.to_string())
}

async fn in_turn(
    front: &Front,
    request: ChatRequest,
    sender: &mpsc::Sender<ChatEvent>,
) -> Result<ChatOutcome, ApiError> {
    let model = named(&front.home, &request.model).await?;
    let (mut known, mut borrowed, mut _turn) = (None, None, None);
    let config = front.home.config();
    let (mut agent, mut changes) = (None, None);
    if let Some(key) = &request.key {
        let name = key.agent().map_or(DEFAULT_AGENT, AgentId::as_str);
        agent = config.named_agents.get(name);
        if agent.is_none() && name != DEFAULT_AGENT {
            return Err(unknown_agent(name));
        }
        let came = quipu_host::now();
        let taken = async {
            let turn = front.chats.turns.turn(key).await?;
            let sessions = front.conversations.sessions(&front.conversation_options).await;
            let sessions = sessions.map_err(|failure| unopened(&failure))?;
            let began = Instant::now();
            let borrowed = loop {
                // Its messages of other routes wait meanwhile.
                let borrowed = sessions.borrow_renewed(key, came).await;
                let borrowed = borrowed.map_err(|error| unopened(&error.into()))?;
                // What a killed process was answering is answered first: who asks behind it would be somebody else there, and end it.
                let owes = sessions.owes(key).await.map_err(|error| unopened(&error.into()))?;
                if !owes || front.conversations.is_able().is_err() {
                    break borrowed;
                }
                drop(borrowed);
                // It was tried again meanwhile, and cannot be given now: another process has the session, or the model fails.
                if began.elapsed() > OWED_PATIENCE {
                    return Err(owed());
                }
                tokio::time::sleep(OWED_POLL).await;
            };
            Ok::<_, ApiError>((turn, borrowed, sessions.live_changes(key)))
        };
        let (turn, conversation, tuned) = tokio::select! {
            taken = taken => taken?,
            () = sender.closed() => return Err(closing()),
        };
        known = match conversation.session() {
            Some(session) => there(front, session.clone()).await?,
            None => None,
        };
        (borrowed, _turn, changes) = (Some(conversation), Some(turn), Some(tuned));
    }
    let directory = agent.map_or_else(|| front.directory.clone(), |agent| workspace(agent, &front.directory));
    let named = model.as_ref().map(|model| format!("{}/{}", model.provider, model.id));
    let wanted = SessionRequest {
        cwd: directory.to_string_lossy().into_owned(),
        session: known.as_ref().map(ToString::to_string),
        model: named.or_else(|| agent.filter(|_| known.is_none()).and_then(|agent| agent.model.clone())),
        thinking: request.thinking,
        fork: None,
        audience: request.key.as_ref().map(audience_of).unwrap_or_default(),
        conversation: request.key.as_ref().map(place_of),
    };
    let lease = front.desk.lease(wanted).await.map_err(|error| match &error {
        // Nothing was done, and one may be closed soon.
        LeaseError::Full => {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", error.to_string())
        }
        // A client of lines has it.
        LeaseError::InUse(..) => ApiError::new(StatusCode::CONFLICT, "session_in_use", error.to_string()),
        LeaseError::Failed(failure) => unopened(failure),
    })?;
    if borrowed.is_some() && lease.is_branch() {
        // What is said where it is open would not be part of the conversation any more.
        lease.release().await;
        let message = "the session of this conversation is open in another process; close it there";
        return Err(ApiError::new(StatusCode::CONFLICT, "session_in_use", message));
    }
    if let Some(changes) = changes {
        // One that is closed takes no prompt either.
        drop(lease.session().tune(changes).await);
    }
    let conversation = borrowed.as_mut();
    let answered = answered(front, &request, (known, conversation), model.as_deref(), &lease, sender).await;
    lease.release().await;
    // Not before the session is closed.
    drop(borrowed);
    answered
}

/// The conversation goes on in this session.
async fn keep(conversation: &mut BorrowedConversation, id: &SessionId) -> Result<(), ApiError> {
    match conversation.keep(id).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let message = "another process changes the session of this conversation; try again";
            Err(ApiError::new(StatusCode::CONFLICT, "session_changed", message))
        }
        Err(error) => Err(unopened(&error.into())),
    }
}

/// A session, where the store has it: one that never had a message is not there after a crash.
async fn there(front: &Front, session: SessionId) -> Result<Option<SessionId>, ApiError> {
    let store = front.home.store().await.map_err(|failure| unopened(&failure))?;
    match session_named(&*store, session.as_str()).await {
        Ok(row) => Ok(Some(row.id)),
        Err(failure) if failure.kind == FailureKind::Store => Err(unopened(&failure)),
        Err(_) => Ok(None),
    }
}

async fn answered(
    front: &Front,
    request: &ChatRequest,
    (known, mut conversation): (Option<SessionId>, Option<&mut BorrowedConversation>),
    model: Option<&quipu_protocol::Model>,
    lease: &DeskLease,
    sender: &mpsc::Sender<ChatEvent>,
) -> Result<ChatOutcome, ApiError> {
    let session = lease.session();
    let is_new = known.is_none();
    if let Some(conversation) = conversation.as_deref_mut() {
        // Before it has a message, or a crash in between would lose the way to it.
        keep(conversation, &session.view().session).await?;
        let said = conversation.person_said(&session.view().session).await;
        said.map_err(|error| unopened(&error.into()))?;
    }
    let (snapshot, events) = session.subscribe(Delivery::Lossless).await.map_err(|why| refused(&why))?;
    let current = model.unwrap_or(&snapshot.model);
    if request.has_images() && !current.sees_images() {
        let message = format!("the model {}/{} does not take images", current.provider, current.id);
        return Err(ApiError {
            param: Some("messages"),
            ..ApiError::new(StatusCode::BAD_REQUEST, "images_unsupported", message)
        });
    }
    // It was open already, with another model.
    if (&current.provider, &current.id) != (&snapshot.model.provider, &snapshot.model.id) {
        let setting = Setting::Model { provider: current.provider.clone(), id: current.id.clone() };
        session.set(setting).await.map_err(|why| refused(&why))?;
    }
    if sender.is_closed() {
        return Err(closing());
    }
    let mut content = Vec::new();
    if is_new && let Some(earlier) = &request.earlier {
        content.push(Content::text(earlier.clone()));
    }
    content.extend(request.prompt.iter().cloned());
    let ack = session.prompt(UserInput::new(content)).await.map_err(|why| refused(&why))?;
    let started = ChatEvent::Started(session.view().session);
    drop(sender.send(started).await);
    let mut said = Conversation::new(request.mode, sender, front.limits().stalled);
    match ack {
        // A hook did what was wanted.
        Ack::Handled => said.outcome = Some(Outcome::Done),
        _ => said.follow(session, events).await,
    }
    if let Some(conversation) = conversation {
        // It may have had to branch: another program took the one that it was.
        keep(conversation, &session.view().session).await.map_err(ApiError::once)?;
        // Who waited for the answer was not idle meanwhile. The answer is worth more than that this is known.
        drop(conversation.person_said(&session.view().session).await);
    }
    said.outcome().map_err(ApiError::once)
}

/// Collects what a session says, and passes it on.
struct Conversation<'a> {
    mode: StreamMode,
    sender: &'a mpsc::Sender<ChatEvent>,
    patience: Duration,
    text: String,
    usage: Usage,
    outcome: Option<Outcome>,
    /// The message whose pieces come, and whether any text of it came.
    current: Option<(MessageId, bool)>,
    /// Whether anything was sent.
    has_sent: bool,
    /// Nobody reads any more.
    is_left: bool,
}

impl<'a> Conversation<'a> {
    fn new(mode: StreamMode, sender: &'a mpsc::Sender<ChatEvent>, patience: Duration) -> Self {
        Self {
            mode,
            sender,
            patience,
            text: String::new(),
            usage: Usage::default(),
            outcome: None,
            current: None,
            has_sent: false,
            is_left: false,
        }
    }

    /// Follows the session until its run ended and everything settled. A run that nobody waits for is aborted.
    async fn follow(&mut self, session: &Session, mut events: Events) {
        let mut aborted: Option<Instant> = None;
        loop {
            let until = aborted;
            let late = async move {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let envelope = tokio::select! {
                biased;
                () = late => return,
                () = self.sender.closed(), if !self.is_left => {
                    self.is_left = true;
                    None
                }
                envelope = events.next() => match envelope {
                    Some(envelope) => Some(envelope),
                    None => return,
                },
            };
            if let Some(envelope) = envelope {
                let is_settled = matches!(envelope.event, Event::Settled);
                self.take(&envelope.event).await;
                if is_settled && self.outcome.is_some() {
                    return;
                }
            }
            if self.is_left && aborted.is_none() {
                aborted = Some(Instant::now() + ABORT);
                // One that is closed has aborted it.
                drop(session.abort().await);
            }
        }
    }

    async fn take(&mut self, event: &Event) {
        match event {
            Event::MessageDelta { id, delta } => match delta {
                Delta::Text { text, .. } => self.piece(id, "", text).await,
                // Blocks of a message are lines of their own.
                Delta::TextStarted { .. } if matches!(&self.current, Some((current, true)) if current == id) =>
                {
                    self.piece(id, "\n", "").await;
                }
                _ => {}
            },
            Event::MessageEnded { id, message, ending } => {
                let Message::Assistant(answer) = &**message else { return };
                self.usage += &answer.usage;
                if !matches!(ending, Ending::Committed(_)) {
                    return;
                }
                let text = answer.text();
                if text.is_empty() {
                    return;
                }
                if !matches!(&self.current, Some((current, true)) if current == id) {
                    // It came without pieces.
                    self.piece(id, "", &text).await;
                }
                if !self.text.is_empty() {
                    self.text.push_str("\n\n");
                }
                self.text.push_str(&text);
            }
            Event::RunEnded { outcome } => self.outcome = Some(outcome.clone()),
            _ => {}
        }
    }

    /// Sends a piece of a message, apart from those before it.
    async fn piece(&mut self, id: &MessageId, before: &str, text: &str) {
        if self.mode == StreamMode::Whole || (text.is_empty() && before.is_empty()) {
            return;
        }
        let is_same = matches!(&self.current, Some((current, _)) if current == id);
        let apart = if self.has_sent && !is_same { "\n\n" } else { before };
        self.current = Some((id.clone(), true));
        self.has_sent = true;
        if self.is_left {
            return;
        }
        let event = ChatEvent::Text(format!("{apart}{text}"));
        if self.sender.send_timeout(event, self.patience).await.is_err() {
            self.is_left = true;
        }
    }

    fn outcome(self) -> Result<ChatOutcome, ApiError> {
        let Self { text, usage, outcome, has_sent, .. } = self;
        let server = |status, code, message: &str| Err(ApiError::new(status, code, message));
        let finish = match outcome {
            Some(Outcome::Done) => Finish::Stop,
            Some(Outcome::Limit(Limit::Account(limit))) => {
                return server(StatusCode::TOO_MANY_REQUESTS, "daily_budget", &limit.to_string());
            }
            Some(Outcome::Limit(limit)) if text.is_empty() && !has_sent => {
                let code = match limit {
                    Limit::Daily { .. } => "daily_budget",
                    _ => "limit_reached",
                };
                return server(StatusCode::TOO_MANY_REQUESTS, code, &limit.to_string());
            }
            Some(Outcome::Limit(_)) => Finish::Length,
            Some(Outcome::Aborted) | None => {
                return server(StatusCode::INTERNAL_SERVER_ERROR, "aborted", "the run was aborted");
            }
            Some(Outcome::Failed(error)) => {
                return server(StatusCode::BAD_GATEWAY, "model_failed", &error.message);
            }
            Some(Outcome::StoreFailed(why)) => {
                return server(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", &why);
            }
        };
        Ok(ChatOutcome { text, finish, usage })
    }
}
