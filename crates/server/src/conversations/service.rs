//! What runs the messages of conversations, for as long as the server does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use quipu::store::{Graph, Jobs, StoreError};
use quipu::{Delivery, Sealer, Session};
use quipu_host::{Failure, Home, OpenRequest};
use quipu_protocol::Event;
use quipu_runtime::{
    Acceptance, AgentTool, AgentTools, Authority, CRON_LANE, ConversationObserver, ConversationTools,
    Conversations, Desk, HostSessionLimits, HostSessions, InboxError, InboxEvents, LaneSettings, Lanes,
    MAIN_LANE, MessageInbox, Replies, RunError, RunRequest, SUBAGENT_LANE, SessionKey, SessionObserver,
    SessionVisibility, WakeOutcome,
};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::heartbeats::{HeartbeatWorld, ServerHeartbeats};
use super::mailboxes::{MailboxRoutes, Mailboxes};
use super::news::follow;
use crate::answer::{ApiError, closing};
use crate::limits::ServerLimits;

/// When the store is asked again that could not be used.
const AGAIN: Duration = Duration::from_secs(2);

/// What a server has of conversations.
pub(crate) struct ConversationService {
    state: watch::Sender<ServiceState>,
    sessions: OnceCell<HostSessions>,
    /// What the sessions of conversations can do with conversations.
    tools: AgentTools,
    pub(crate) mailboxes: Mailboxes,
    /// How long a request waits for the store to be opened.
    patience: Duration,
    /// Places for those who read replies.
    readers: Arc<Semaphore>,
}

enum ServiceState {
    /// It is about to begin.
    Starting,
    /// It cannot: why.
    Failed(Arc<ServiceError>),
    Running(ServiceHandle),
    Stopped,
}

impl ServiceState {
    /// What takes messages; `None` where that is about to begin.
    fn handle(&self) -> Result<Option<ServiceHandle>, ApiError> {
        match self {
            Self::Running(handle) => Ok(Some(handle.clone())),
            Self::Starting => Ok(None),
            Self::Failed(why) => Err(why.answer()),
            Self::Stopped => Err(closing()),
        }
    }
}

#[derive(Clone)]
struct ServiceHandle {
    conversations: Conversations,
    heartbeats: Arc<ServerHeartbeats>,
}

/// Why messages cannot be run.
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error(transparent)]
    Inbox(#[from] InboxError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] Failure),
}

impl ServiceError {
    fn answer(&self) -> ApiError {
        let code = match self {
            Self::Inbox(InboxError::HeldElsewhere) => "held_elsewhere",
            _ => "store_failed",
        };
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, self.to_string())
    }
}

/// What the jobs of heartbeats are kept in, and what their errors are sealed with.
struct HeartbeatJobs {
    jobs: Arc<dyn Jobs>,
    sealer: Arc<Sealer>,
}

/// What the service needs of the server.
pub(crate) struct ServiceOptions {
    pub(crate) home: Home,
    /// How sessions of conversations are opened.
    pub(crate) request: OpenRequest,
    pub(crate) limits: ServerLimits,
    /// Is given each session that is opened.
    pub(crate) observer: SessionObserver,
    /// Where clients of lines open sessions.
    pub(crate) desk: Desk,
}

impl ConversationService {
    pub(crate) fn new(limits: &ServerLimits) -> Self {
        let readers = Arc::new(Semaphore::new(limits.readers));
        let state = watch::Sender::new(ServiceState::Starting);
        Self {
            state,
            sessions: OnceCell::new(),
            tools: AgentTools::new(AgentTool::ALL, SessionVisibility::default()),
            mailboxes: Mailboxes::default(),
            patience: limits.request,
            readers,
        }
    }

    async fn handle(&self) -> Result<ServiceHandle, ApiError> {
        let unavailable =
            |code, text: String| Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, text));
        let mut states = self.state.subscribe();
        let begun = states.wait_for(|state| !matches!(state, ServiceState::Starting));
        let Ok(Ok(state)) = tokio::time::timeout(self.patience, begun).await else {
            return unavailable("starting", "the store takes long to open; try again".to_owned());
        };
        state.handle()?.ok_or_else(closing)
    }

    /// Whether this server has the conversations, or may be about to.
    pub(crate) fn is_able(&self) -> Result<(), ApiError> {
        self.state.borrow().handle().map(drop)
    }

    /// Which session a conversation has, also where another process runs the messages.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub(crate) async fn sessions(&self, options: &ServiceOptions) -> Result<&HostSessions, Failure> {
        let ServiceOptions { home, request, limits, observer, desk } = options;
        let tools = self.tools.clone();
        let of_key: ConversationTools = Arc::new(move |key| tools.of(key));
        let open = || async {
            let limits = HostSessionLimits { open: limits.conversations, ..HostSessionLimits::default() };
            let sessions =
                HostSessions::of_agents_with(home.clone(), limits, request.clone(), of_key).await?;
            let states = self.state.subscribe();
            let of_conversations: ConversationObserver = Arc::new(move |key, session| {
                tokio::spawn(watch_commands(states.clone(), key.clone(), session.clone()));
            });
            let sessions = sessions.observed_by(observer.clone()).beside(desk.clone());
            Ok::<_, Failure>(sessions.conversations_observed_by(of_conversations))
        };
        self.sessions.get_or_try_init(open).await
    }

    /// How many sessions of conversations are open.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.get().map_or(0, HostSessions::open)
    }

    /// How many replies are offered and not acknowledged.
    pub(crate) fn mailboxes_waiting(&self) -> usize {
        self.mailboxes.waiting()
    }

    /// A place for one who reads replies.
    pub(crate) fn reader(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        // One that is about to begin has replies to show, too, and one that waits for another process may be.
        if matches!(&*self.state.borrow(), ServiceState::Stopped) {
            return Err(closing());
        }
        self.readers.clone().try_acquire_owned().map_err(|_| {
            let message = "too many clients read replies; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_clients", message)
        })
    }

    /// Takes a message; `None` for one that was taken before. Resolved = it survives the loss of power.
    pub(crate) async fn accept(&self, request: RunRequest) -> Result<Option<Acceptance>, ApiError> {
        let handle = self.handle().await?;
        handle.heartbeats.refresh();
        match handle.conversations.accept(request).await {
            Ok(acceptance) => Ok(Some(acceptance)),
            Err(RunError::Duplicate) => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    pub(crate) async fn stop(&self, key: &SessionKey, authority: Authority) -> Result<(), ApiError> {
        let handle = self.handle().await?;
        handle.conversations.stop(key, authority).await.map_err(|error| refused(&error))
    }

    /// Wakes the heartbeat of a conversation.
    pub(crate) async fn wake(&self, key: &SessionKey) -> Result<WakeOutcome, ApiError> {
        Ok(self.handle().await?.heartbeats.wake(key))
    }

    /// Runs messages until `stop` is cancelled. Where another process has those of this store, it waits for its turn.
    pub(crate) async fn run(&self, options: &ServiceOptions, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let Err(error) = self.attempt(options, stop).await else { break };
            self.mailboxes.clear();
            self.state.send_replace(ServiceState::Failed(Arc::new(error)));
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
        self.state.send_replace(ServiceState::Stopped);
    }

    async fn attempt(&self, options: &ServiceOptions, stop: &CancellationToken) -> Result<(), ServiceError> {
        let home = &options.home;
        let store = home.store().await?;
        // Credentials are no part of messages that are stored.
        let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
        let jobs = HeartbeatJobs { jobs: store.clone(), sealer: sealer.clone() };
        let store: Arc<dyn Graph> = store;
        MessageInbox::with(store.clone(), sealer, |inbox, events| async move {
            self.served(options, stop, store, jobs, inbox, events).await
        })
        .await
    }

    async fn served(
        &self,
        options: &ServiceOptions,
        stop: &CancellationToken,
        store: Arc<dyn Graph>,
        HeartbeatJobs { jobs, sealer }: HeartbeatJobs,
        inbox: MessageInbox,
        mut events: InboxEvents,
    ) -> Result<(), ServiceError> {
        let ServiceOptions { home, request, limits, .. } = options;
        let sessions = self.sessions(options).await?;
        let routes = MailboxRoutes { mailboxes: self.mailboxes.clone(), home: home.clone() };
        let replies = Replies::open(store, Arc::new(routes)).await?;
        let lanes = Lanes::new(LaneSettings::default());
        let conversations =
            Conversations::new(inbox, lanes.clone(), Arc::new(sessions.clone()), Some(limits.run))
                .with_replies(replies.clone());
        self.tools.bind(&conversations, sessions);
        let heartbeats = Arc::new(ServerHeartbeats::new(&HeartbeatWorld {
            home,
            conversations: &conversations,
            jobs,
            sealer,
            replies: &replies,
            directory: &request.here,
        }));
        let handle = ServiceHandle { conversations: conversations.clone(), heartbeats: heartbeats.clone() };
        for (key, run) in conversations.continued().await {
            let (mailboxes, stop) = (self.mailboxes.clone(), stop.clone());
            tokio::spawn(async move {
                stop.run_until_cancelled(follow(mailboxes, key, run)).await;
            });
        }
        self.state.send_replace(ServiceState::Running(handle));
        let served = loop {
            let served = tokio::select! {
                () = stop.cancelled() => break Ok(()),
                served = conversations.serve(&mut events) => served,
                () = heartbeats.serve() => break Ok(()),
            };
            match served {
                Ok(()) => break Ok(()),
                // It goes on where it stopped.
                Err(error @ InboxError::Store(_)) => {
                    tracing::warn!(%error, "messages wait for the store");
                    tokio::select! {
                        () = stop.cancelled() => break Ok(()),
                        () = tokio::time::sleep(AGAIN) => {}
                    }
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.state.send_replace(ServiceState::Stopped);
        // What has not begun stays in the store for the next process.
        for lane in [MAIN_LANE, SUBAGENT_LANE, CRON_LANE] {
            lanes.set_limit(lane, 0);
        }
        lanes.drain();
        let ended = async {
            sessions.close().await;
            lanes.idle().await;
        };
        within(limits.end, ended).await;
        served
    }
}

/// Has a conversation hear of the end of each command in its background, and has it wake the heartbeat of its agent, until its session is
/// closed.
async fn watch_commands(states: watch::Receiver<ServiceState>, key: SessionKey, session: Session) {
    let Ok((_, mut events)) = session.subscribe(Delivery::Live).await else { return };
    let conversations = match &*states.borrow() {
        ServiceState::Running(handle) => Some(handle.conversations.clone()),
        ServiceState::Starting | ServiceState::Failed(_) | ServiceState::Stopped => None,
    };
    match conversations {
        Some(conversations) => {
            let key = key.clone();
            tokio::spawn(async move { conversations.follow_commands(key, session).await });
        }
        None => drop(session),
    }
    while let Some(envelope) = events.next().await {
        if let (Event::BackgroundEnded { .. }, ServiceState::Running(handle)) =
            (&envelope.event, &*states.borrow())
        {
            handle.heartbeats.command_ended(&key);
        }
    }
}

/// Why a message was not taken.
fn refused(error: &RunError) -> ApiError {
    let (status, code) = match error {
        RunError::Full => (StatusCode::TOO_MANY_REQUESTS, "queue_full"),
        RunError::Inbox(InboxError::Full) => (StatusCode::TOO_MANY_REQUESTS, "inbox_full"),
        RunError::Inbox(InboxError::TooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
        RunError::Inbox(InboxError::Store(_)) => (StatusCode::INTERNAL_SERVER_ERROR, "store_failed"),
        RunError::Inbox(InboxError::HeldElsewhere | InboxError::Closed) | RunError::Closed => {
            return closing();
        }
        RunError::Duplicate => (StatusCode::CONFLICT, "duplicate"),
        RunError::Dropped(_) => (StatusCode::CONFLICT, "dropped"),
    };
    ApiError::new(status, code, error.to_string())
}

/// Waits for something, but not for ever.
async fn within(time: Duration, done: impl Future<Output = ()>) {
    if tokio::time::timeout(time, done).await.is_err() {
        tracing::warn!("some runs did not end in time; the next server answers their messages");
    }
}
