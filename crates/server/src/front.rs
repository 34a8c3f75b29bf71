//! What all connections share.

use std::path::PathBuf;
use std::sync::Arc;

use http::StatusCode;
use quipu_host::{Home, OpenRequest};
use quipu_runtime::{Desk, SessionObserver};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::answer::ApiError;
pub(crate) use crate::answer::closing;
use crate::chat_turns::Chats;
use crate::conversations::{ConversationService, ServiceOptions};
use crate::event_clients::EventClients;
use crate::limits::ServerLimits;
use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// What all connections share.
pub(crate) struct Front {
    pub(crate) desk: Desk,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) home: Home,
    /// Of sessions that begin with a request for an answer.
    pub(crate) directory: PathBuf,
    pub(crate) chats: Chats,
    /// Places for clients of lines.
    pub(crate) clients: Arc<Semaphore>,
    pub(crate) event_clients: EventClients,
    pub(crate) conversations: ConversationService,
    /// For [`ConversationService::run`].
    pub(crate) conversation_options: ServiceOptions,
    tasks: TaskTracker,
    kill: CancellationToken,
    pub(crate) access: Access,
    pub(crate) hosts: Option<Vec<String>>,
    limits: ServerLimits,
    stop: CancellationToken,
}

impl Front {
    pub(crate) fn new(
        options: ServerOptions,
        hosts: Option<Vec<String>>,
        tasks: TaskTracker,
        kill: CancellationToken,
        stop: CancellationToken,
    ) -> Self {
        let ServerOptions { home, request, wording, directory, access, limits } = options;
        let metrics = Arc::new(Metrics::default());
        let (followed, following, killing) = (metrics.clone(), tasks.clone(), kill.clone());
        let chats = Chats::new(limits.chats, limits.waiting);
        let observer: SessionObserver = Arc::new(move |session| {
            let (metrics, session) = (followed.clone(), session.clone());
            let follow = async move { metrics.follow(&session).await };
            following.spawn(killing.clone().run_until_cancelled_owned(follow));
        });
        let desk = Desk::new(home.clone(), request.clone())
            .worded_by(wording)
            .with_patience(limits.stalled)
            .observed_by(observer.clone());
        let conversation_options = ServiceOptions {
            home: home.clone(),
            request: OpenRequest { here: directory.clone(), ..request },
            limits,
            observer,
            desk: desk.clone(),
        };
        let clients = Arc::new(Semaphore::new(limits.clients));
        let event_clients = EventClients::default();
        Self {
            desk,
            metrics,
            home,
            directory,
            chats,
            clients,
            event_clients,
            conversations: ConversationService::new(&limits),
            conversation_options,
            tasks,
            kill,
            access,
            hosts,
            limits,
            stop,
        }
    }

    pub(crate) const fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    pub(crate) const fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Does work that outlives a request. It ends with the server.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.kill.clone().run_until_cancelled_owned(work));
    }
}

/// There is no place for one more client of lines.
pub(crate) fn too_many_clients(limits: &ServerLimits) -> ApiError {
    let message = format!("{} clients are connected already", limits.clients);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_clients", message)
}
