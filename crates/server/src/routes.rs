//! Which request is answered how.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use crate::access::check_origin;
use crate::answer::{Answer, ApiError, full, json_answer, wrong_method};
use crate::front::{Front, closing};
use crate::limits::HEADERS;
use crate::{chat, conversation_routes, event_routes, web_socket};

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
    /// Messages of a conversation, by its key as it stands in the path.
    Messages(String),
    /// Replies of a conversation; of all where there is none.
    Replies(Option<String>),
    /// A reply of a conversation, by its id.
    Ack(String, String),
    Stop(String),
    Wake(String),
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
            "/v1/replies" => Self::Replies(None),
            other => Self::below(other),
        }
    }

    fn below(path: &str) -> Self {
        if let Some(name) = path.strip_prefix("/v1/models/").filter(|name| !name.is_empty()) {
            return Self::Model(name.to_owned());
        }
        if let Some(conversation) = path.strip_prefix("/v1/conversations/") {
            return Self::of_conversation(conversation);
        }
        let Some(client) = path.strip_prefix("/v1/clients/") else { return Self::Unknown };
        match client.split_once('/') {
            None if !client.is_empty() => Self::Client(client.to_owned()),
            Some((id, "events")) => Self::Events(id.to_owned()),
            None | Some(_) => Self::Unknown,
        }
    }

    fn of_conversation(path: &str) -> Self {
        let Some((key, rest)) = path.split_once('/') else { return Self::Unknown };
        let key = key.to_owned();
        match rest {
            "messages" => Self::Messages(key),
            "replies" => Self::Replies(Some(key)),
            "stop" => Self::Stop(key),
            "wake" => Self::Wake(key),
            other => match other.strip_prefix("replies/").and_then(|rest| rest.strip_suffix("/ack")) {
                Some(id) if !id.is_empty() && !id.contains('/') => Self::Ack(key, id.to_owned()),
                Some(_) | None => Self::Unknown,
            },
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
            Self::Messages(_) => "messages",
            Self::Replies(_) => "replies",
            Self::Ack(..) => "ack",
            Self::Stop(_) => "stop",
            Self::Wake(_) => "wake",
            Self::Unknown => "unknown",
        }
    }
}

pub(crate) async fn answered(front: Arc<Front>, request: Request<Incoming>) -> Answer {
    let route = Route::of(request.uri().path());
    let name = route.name();
    let metrics = front.metrics.clone();
    let answer = match routed(front, route, request).await {
        Ok(answer) => answer,
        Err(error) => error.answer(),
    };
    metrics.answered(name, answer.status().as_u16());
    answer
}

/// The connection alone lets a bit more pass that came in one piece.
fn check_size(request: &Request<Incoming>) -> Result<(), ApiError> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if headers.sum::<usize>() + target < HEADERS {
        return Ok(());
    }
    let message = format!("the headers of the request have {} KiB or more", HEADERS >> 10);
    Err(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message))
}

async fn routed(front: Arc<Front>, route: Route, request: Request<Incoming>) -> Result<Answer, ApiError> {
    check_size(&request)?;
    check_origin(request.method(), request.uri(), request.headers(), front.hosts.as_deref())?;
    if route == Route::Health {
        return Ok(match *request.method() {
            Method::GET | Method::HEAD => json_answer(StatusCode::OK, &json!({ "status": "ok" })),
            _ => wrong_method("GET"),
        });
    }
    front.access.check(request.headers())?;
    if front.stop().is_cancelled() {
        return Err(closing());
    }
    let method = request.method().clone();
    match (route, method) {
        (Route::Metrics, Method::GET) => {
            let text = {
                let sessions = front.desk.session_count() + front.conversations.session_count();
                front.metrics.text(sessions, front.conversations.mailboxes_waiting())
            };
            Ok(full(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        (Route::Socket, Method::GET) => web_socket::upgrade(&front, request),
        (Route::Clients, Method::POST) => event_routes::create(&front),
        (Route::Client(id), Method::POST) => event_routes::post(&front, &id, request).await,
        (Route::Client(id), Method::DELETE) => event_routes::remove(&front, &id),
        (Route::Events(id), Method::GET) => event_routes::events(&front, &id),
        (Route::Models, Method::GET) => Ok(chat::models_answer(&front).await),
        (Route::Model(name), Method::GET) => chat::model_answer(&front, &name).await,
        (Route::Chat, Method::POST) => chat::answer(front, request).await,
        (Route::Messages(key), Method::POST) => {
            conversation_routes::post_message(&front, &key, request).await
        }
        (Route::Replies(key), Method::GET) => conversation_routes::replies(&front, key.as_deref()),
        (Route::Ack(key, id), Method::POST) => {
            conversation_routes::acknowledge(&front, &key, &id, request).await
        }
        (Route::Stop(key), Method::POST) => conversation_routes::stop(&front, &key, request).await,
        (Route::Wake(key), Method::POST) => conversation_routes::wake(&front, &key).await,
        (
            Route::Clients
            | Route::Chat
            | Route::Messages(_)
            | Route::Ack(..)
            | Route::Stop(_)
            | Route::Wake(_),
            _,
        ) => Ok(wrong_method("POST")),
        (Route::Client(_), _) => Ok(wrong_method("POST, DELETE")),
        (
            Route::Metrics
            | Route::Socket
            | Route::Health
            | Route::Events(_)
            | Route::Models
            | Route::Model(_)
            | Route::Replies(_),
            _,
        ) => Ok(wrong_method("GET")),
        (Route::Unknown, _) => {
            let message = "this path does not exist; docs/server.md lists the paths";
            Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}
