//! Which request is answered how.

use std::path::PathBuf;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use quipu_host::Home;
use quipu_runtime::Desk;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{Access, check_origin};
use crate::answer::{Answer, ApiError, full, json_answer, wrong_method};
use crate::chat::{self, ChatSessions, Chats};
use crate::event_clients::{self, EventClients};
use crate::limits::ServerLimits;
use crate::metrics::Metrics;
use crate::serve::ServerOptions;
use crate::web_socket;

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
    tasks: TaskTracker,
    kill: CancellationToken,
    access: Access,
    hosts: Option<Vec<String>>,
    limits: ServerLimits,
    stop: CancellationToken,
}

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    Health,
    Metrics,
    Socket,
    Clients,
    Client(String),
    Events(String),
    Models,
    Model(String),
    Chat,
    Unknown,
}

impl Route {
    fn of(path: &str) -> Self {
        match path {
            "/health" => Self::Health,
            "/metrics" => Self::Metrics,
            "/v1/socket" => Self::Socket,
            "/v1/clients" => Self::Clients,
            "/v1/models" => Self::Models,
            "/v1/chat/completions" => Self::Chat,
            other => Self::below(other),
        }
    }

    fn below(path: &str) -> Self {
        if let Some(name) = path.strip_prefix("/v1/models/").filter(|name| !name.is_empty()) {
            return Self::Model(name.to_owned());
        }
        let Some(client) = path.strip_prefix("/v1/clients/") else { return Self::Unknown };
        match client.split_once('/') {
            None if !client.is_empty() => Self::Client(client.to_owned()),
            Some((id, "events")) => Self::Events(id.to_owned()),
            None | Some(_) => Self::Unknown,
        }
    }

    /// For metrics.
    const fn name(&self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::Socket => "socket",
            Self::Clients => "clients",
            Self::Client(_) => "client",
            Self::Events(_) => "events",
            Self::Models | Self::Model(_) => "models",
            Self::Chat => "chat_completions",
            Self::Unknown => "unknown",
        }
    }
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
        let chats = Chats::new(limits.chats, ChatSessions::new(&home, limits.waiting));
        let desk = Desk::new(home.clone(), request)
            .worded_by(wording)
            .with_patience(limits.stalled)
            .observed_by(Arc::new(move |session| {
                let (metrics, session) = (followed.clone(), session.clone());
                let follow = async move { metrics.follow(&session).await };
                following.spawn(killing.clone().run_until_cancelled_owned(follow));
            }));
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

    pub(crate) async fn answered(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let route = Route::of(request.uri().path());
        let name = route.name();
        let metrics = self.metrics.clone();
        let answer = match self.routed(route, request).await {
            Ok(answer) => answer,
            Err(error) => error.answer(),
        };
        metrics.answered(name, answer.status().as_u16());
        answer
    }

    async fn routed(self: Arc<Self>, route: Route, request: Request<Incoming>) -> Result<Answer, ApiError> {
        check_origin(request.method(), request.uri(), request.headers(), self.hosts.as_deref())?;
        if route == Route::Health {
            return Ok(match *request.method() {
                Method::GET | Method::HEAD => json_answer(StatusCode::OK, &json!({ "status": "ok" })),
                _ => wrong_method("GET"),
            });
        }
        self.access.check(request.headers())?;
        if self.stop.is_cancelled() {
            return Err(closing());
        }
        let method = request.method().clone();
        match (route, method) {
            (Route::Metrics, Method::GET) => {
                let text = self.metrics.text(self.desk.session_count());
                Ok(full(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
            }
            (Route::Socket, Method::GET) => web_socket::upgrade(&self, request),
            (Route::Clients, Method::POST) => event_clients::create(&self),
            (Route::Client(id), Method::POST) => event_clients::post(&self, &id, request).await,
            (Route::Client(id), Method::DELETE) => event_clients::remove(&self, &id),
            (Route::Events(id), Method::GET) => event_clients::events(&self, &id),
            (Route::Models, Method::GET) => Ok(chat::models_answer(&self).await),
            (Route::Model(name), Method::GET) => chat::model_answer(&self, &name).await,
            (Route::Chat, Method::POST) => chat::answer(self, request).await,
            (Route::Clients | Route::Chat, _) => Ok(wrong_method("POST")),
            (Route::Client(_), _) => Ok(wrong_method("POST, DELETE")),
            (
                Route::Metrics
                | Route::Socket
                | Route::Health
                | Route::Events(_)
                | Route::Models
                | Route::Model(_),
                _,
            ) => Ok(wrong_method("GET")),
            (Route::Unknown, _) => {
                let message = "this path does not exist; docs/server.md lists the paths";
                Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
            }
        }
    }
}

pub(crate) fn closing() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "closing", "the server is shutting down")
}

/// There is no place for one more client of lines.
pub(crate) fn too_many_clients(limits: &ServerLimits) -> ApiError {
    let message = format!("{} clients are connected already", limits.clients);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_clients", message)
}
