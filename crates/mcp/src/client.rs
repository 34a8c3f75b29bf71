//! A client: requests with limits on time, progress, cancellation; and answers to what the server asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::Json;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::elicit::{Elicitation, ElicitationAnswer, Elicitor};
use crate::error::{ConnectError, RequestError};
use crate::limits::{LIST_PAGES, SERVER_REQUESTS, WRITE};
use crate::visible::{one_line, visible};
use crate::wire::{self, ErrorObject, Message};

/// The versions of the protocol that are spoken, the newest first.
const VERSIONS: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Requests of a server that wait to be answered.
const WAITING: usize = 32;
/// Bytes of a message or a schema of a question.
const QUESTION_BYTES: usize = 16 << 10;
/// The code of an error that asks for a page to be opened first.
const PAGE_FIRST: i64 = -32042;

/// Takes messages to a server, and hands what it sends to [`SharedState::receive`].
pub(crate) trait Transport: Send + Sync + 'static {
    /// Sends a message. For a request, which has a number, the answer may come while this is awaited, or later.
    fn send(&self, message: String, request: Option<u64>) -> BoxFuture<'_, Result<(), RequestError>>;

    /// The version of the protocol is agreed on.
    fn agreed(&self, _version: &str) {}

    /// The server may send on its own from now on.
    fn listen(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Ends the connection, with time for the server to end by itself.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// How the client presents itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// How a server presents itself. Text of the server: hostile until it is made visible.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the protocol.
    pub protocol: String,
    /// Whether it has tools.
    pub has_tools: bool,
    /// Whether it has prompts.
    pub has_prompts: bool,
    /// Whether it has resources.
    pub has_resources: bool,
}

/// Told what a call reports meanwhile.
pub(crate) type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// How a request is made.
#[derive(Clone)]
pub(crate) struct RequestOptions {
    /// Without an answer or progress.
    pub(crate) idle: Duration,
    pub(crate) total: Duration,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: Option<Progress>,
    pub(crate) elicitor: Option<Arc<dyn Elicitor>>,
}

impl RequestOptions {
    pub(crate) fn within(limit: Duration) -> Self {
        Self { idle: limit, total: limit, cancel: CancellationToken::new(), progress: None, elicitor: None }
    }
}

/// A request that has no answer yet.
struct PendingRequest {
    reply: oneshot::Sender<Result<Json, RequestError>>,
    progress: Option<Progress>,
    elicitor: Option<Arc<dyn Elicitor>>,
    activity: Arc<Activity>,
}

/// What a request sees of the server.
#[derive(Default)]
struct Activity {
    seen: Notify,
    /// Questions to a person that are open.
    asking: AtomicUsize,
}

/// What a server asks of the client; it waits for the answer.
pub(crate) struct ServerRequest {
    id: Json,
    method: String,
    params: Json,
}

/// What a connection and its reader share.
pub(crate) struct SharedState {
    pending: Mutex<HashMap<u64, PendingRequest>>,
    next: AtomicU64,
    requests: mpsc::Sender<ServerRequest>,
    /// Why the connection is over.
    closed: watch::Sender<Option<String>>,
    /// Counts changes of the lists of tools and prompts.
    changes: watch::Sender<u64>,
}

impl SharedState {
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<ServerRequest>) {
        let (requests, received) = mpsc::channel(WAITING);
        let shared = Self {
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            requests,
            closed: watch::channel(None).0,
            changes: watch::channel(0).0,
        };
        (Arc::new(shared), received)
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, PendingRequest>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of the server. Whether it was one.
    pub(crate) fn receive(&self, bytes: &[u8]) -> bool {
        let Some(message) = wire::read(bytes) else { return false };
        match message {
            Message::Response { id, outcome } => {
                // What nobody waits for any more is dropped.
                if let Some(pending) = self.pending().remove(&id) {
                    drop(pending.reply.send(outcome.map_err(|error| refused(&error))));
                }
            }
            // A server that asks more than is answered gets no answer.
            Message::Request { id, method, params } => {
                drop(self.requests.try_send(ServerRequest { id, method, params }));
            }
            Message::Notification { method, params } => self.notified(&method, &params),
        }
        true
    }

    fn notified(&self, method: &str, params: &Json) {
        match method {
            "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                self.changes.send_modify(|count| *count += 1);
            }
            "notifications/progress" => {
                let params = params.value();
                let token = &params["progressToken"];
                let token = token.as_u64().or_else(|| token.as_str().and_then(|token| token.parse().ok()));
                let pending = self.pending();
                let Some(pending) = token.and_then(|token| pending.get(&token)) else { return };
                pending.activity.seen.notify_one();
                if let Some(progress) = &pending.progress {
                    progress(&progress_line(&params));
                }
            }
            _ => {}
        }
    }

    /// The connection is over. The first reason counts.
    pub(crate) fn close(&self, why: &str) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(why.to_owned());
            }
            first
        });
        let pending: Vec<PendingRequest> = self.pending().drain().map(|(_, one)| one).collect();
        for one in pending {
            drop(one.reply.send(Err(RequestError::Closed(self.why_closed().unwrap_or_default()))));
        }
    }

    /// Whether a request has no answer yet.
    pub(crate) fn waits_for(&self, request: u64) -> bool {
        self.pending().contains_key(&request)
    }

    fn why_closed(&self) -> Option<String> {
        self.closed.borrow().clone()
    }
}

/// `3/10 message`.
fn progress_line(params: &Value) -> String {
    let number = |name: &str| params[name].as_f64().map(|value| format!("{value}"));
    let counted = match (number("progress"), number("total")) {
        (Some(done), Some(total)) => format!("{done}/{total}"),
        (Some(done), None) => done,
        _ => String::new(),
    };
    let message = one_line(params["message"].as_str().unwrap_or_default(), 500);
    format!("{counted} {message}").trim().to_owned()
}

fn refused(error: &ErrorObject) -> RequestError {
    let data = error.data.as_ref().and_then(wire::RawValueText::value).unwrap_or_default();
    let pages = data["elicitations"].as_array().filter(|_| error.code == PAGE_FIRST);
    let pages = pages.into_iter().flatten().take(8).filter_map(|page| {
        let (message, url) = (page["message"].as_str().unwrap_or_default(), page["url"].as_str()?);
        Some((one_line(message, 500), one_line(url, 2_000)))
    });
    RequestError::Refused {
        code: error.code,
        message: one_line(&error.message, 2_000),
        pages: pages.collect(),
    }
}

/// A connection to a server.
pub struct Client {
    link: Arc<Link>,
    info: OnceLock<ServerInfo>,
    /// Ends with it.
    _answers: JoinSet<()>,
}

struct Link {
    shared: Arc<SharedState>,
    transport: Box<dyn Transport>,
    roots: Vec<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Client {
    /// A connection over a transport that is there; `roots` are the addresses of directories that the session works in.
    pub(crate) fn over(
        (shared, requests): (Arc<SharedState>, mpsc::Receiver<ServerRequest>),
        transport: Box<dyn Transport>,
        roots: Vec<String>,
    ) -> Self {
        let link = Arc::new(Link { shared, transport, roots });
        let mut answers = JoinSet::new();
        answers.spawn(answer_all(link.clone(), requests));
        Self { link, info: OnceLock::new(), _answers: answers }
    }

    /// How the server presented itself.
    pub fn info(&self) -> ServerInfo {
        self.info.get().cloned().unwrap_or_default()
    }

    /// The beginning: versions, capabilities, names.
    pub(crate) async fn initialize(&self, client: &ClientInfo, limit: Duration) -> Result<(), ConnectError> {
        let failed = |error| ConnectError::Request { method: "initialize", error };
        let params = json!({
            "protocolVersion": VERSIONS[0],
            "capabilities": { "roots": {}, "elicitation": { "form": { "applyDefaults": true }, "url": {} } },
            "clientInfo": { "name": client.name, "version": client.version },
        });
        let result =
            self.request("initialize", params, RequestOptions::within(limit)).await.map_err(failed)?;
        let result = result.value();
        let text = |value: &Value| one_line(value.as_str().unwrap_or_default(), 200);
        let protocol = text(&result["protocolVersion"]);
        if !VERSIONS.contains(&protocol.as_str()) {
            return Err(ConnectError::Version(protocol));
        }
        self.link.transport.agreed(&protocol);
        let info = ServerInfo {
            name: text(&result["serverInfo"]["name"]),
            version: text(&result["serverInfo"]["version"]),
            protocol,
            has_tools: result["capabilities"]["tools"].is_object(),
            has_prompts: result["capabilities"]["prompts"].is_object(),
            has_resources: result["capabilities"]["resources"].is_object(),
        };
        drop(self.info.set(info));
        self.link.notify("notifications/initialized", None).await.map_err(failed)?;
        self.link.transport.listen().await;
        Ok(())
    }

    /// The definitions of its tools as they came, at most `most` bytes of them; and whether that is all.
    pub(crate) async fn list_tools(
        &self,
        limit: Duration,
        (most, bytes): (usize, usize),
    ) -> Result<(Vec<Box<RawValue>>, bool), RequestError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            #[serde(default)]
            tools: Vec<Box<RawValue>>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        let (mut tools, mut size, mut cursor) = (Vec::new(), 0, None::<String>);
        for _ in 0..LIST_PAGES {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = self.request("tools/list", params, RequestOptions::within(limit)).await?;
            let page: Page = page.read().map_err(|error| RequestError::Invalid(error.to_string()))?;
            for tool in page.tools {
                size += tool.get().len();
                if tools.len() == most || size > bytes {
                    return Ok((tools, false));
                }
                tools.push(tool);
            }
            match page.next_cursor.filter(|next| !next.is_empty()) {
                Some(next) => cursor = Some(next),
                None => return Ok((tools, true)),
            }
        }
        Ok((tools, false))
    }

    /// A request. Its limits, the end of the connection and whoever drops the future end it; the server is told then.
    pub(crate) async fn request(
        &self,
        method: &'static str,
        mut params: Value,
        options: RequestOptions,
    ) -> Result<Json, RequestError> {
        let shared = &self.link.shared;
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let (reply, received) = oneshot::channel();
        let activity = Arc::new(Activity::default());
        if options.progress.is_some() {
            params["_meta"]["progressToken"] = id.into();
        }
        let RequestOptions { idle, total, cancel, progress, elicitor } = options;
        let pending = PendingRequest { reply, progress, elicitor, activity: activity.clone() };
        shared.pending().insert(id, pending);
        let mut guard = Guard { link: self.link.clone(), id, over: false, tells: method != "initialize" };
        if let Some(why) = shared.why_closed() {
            guard.over = true;
            return Err(RequestError::Closed(why));
        }
        let exchange = async {
            let sent = self.link.transport.send(wire::request(id, method, &params), Some(id));
            tokio::pin!(sent);
            let mut received = received;
            tokio::select! {
                biased;
                answer = &mut received => answer,
                sent = &mut sent => match sent {
                    Ok(()) => received.await,
                    Err(error) => return Err(error),
                },
            }
            .unwrap_or_else(|_| Err(RequestError::Closed("it is closed".into())))
        };
        tokio::pin!(exchange);
        let until = tokio::time::sleep(total);
        tokio::pin!(until);
        let outcome = loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => break Err(RequestError::Cancelled),
                outcome = &mut exchange => {
                    guard.over = true;
                    break outcome;
                }
                () = activity.seen.notified() => {}
                () = tokio::time::sleep(idle) => {
                    // A person takes the time that it takes.
                    if activity.asking.load(Ordering::SeqCst) == 0 {
                        break Err(RequestError::Timeout(idle));
                    }
                }
                () = &mut until => break Err(RequestError::Timeout(total)),
            }
        };
        drop(guard);
        outcome
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.shared.closed.borrow().is_none()
    }

    /// Ends when the connection does, with the reason.
    pub(crate) async fn closed(&self) -> String {
        let mut closed = self.link.shared.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Counts the changes of the list of tools that the server reported.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.link.shared.changes.subscribe()
    }

    /// Ends the connection, with time for the server to end by itself.
    pub async fn close(&self) {
        self.link.transport.close().await;
        self.link.shared.close("it was closed");
    }
}

impl Link {
    async fn notify(&self, method: &str, params: Option<&Value>) -> Result<(), RequestError> {
        self.transport.send(wire::notification(method, params), None).await
    }
}

/// Forgets a request, and tells the server that nobody waits for its answer any more.
struct Guard {
    link: Arc<Link>,
    id: u64,
    over: bool,
    tells: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.link.shared.pending().remove(&self.id);
        if self.over || !self.tells || self.link.shared.why_closed().is_some() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (link, id) = (self.link.clone(), self.id);
        runtime.spawn(async move {
            let params = json!({ "requestId": id, "reason": "the client does not wait any more" });
            let told = link.notify("notifications/cancelled", Some(&params));
            // A server that takes no message is beyond being told.
            drop(tokio::time::timeout(WRITE, told).await);
        });
    }
}

/// Answers the requests of a server, some at a time.
async fn answer_all(link: Arc<Link>, mut requests: mpsc::Receiver<ServerRequest>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            request = requests.recv(), if open.len() < SERVER_REQUESTS => {
                let Some(request) = request else { break };
                open.spawn(answer(link.clone(), request));
            }
            Some(_) = open.join_next() => {}
        }
    }
}

async fn answer(link: Arc<Link>, ServerRequest { id, method, params }: ServerRequest) {
    let outcome = match method.as_str() {
        "ping" => Ok(json!({})),
        "roots/list" => {
            let roots: Vec<Value> = link.roots.iter().map(|root| json!({ "uri": root })).collect();
            Ok(json!({ "roots": roots }))
        }
        "elicitation/create" => elicit(&link, &params).await,
        _ => Err((-32601, "the client does not support this method".to_owned())),
    };
    let sent = link.transport.send(wire::response(&id, &outcome), None);
    // A server that takes no message gets none.
    drop(tokio::time::timeout(WRITE, sent).await);
}

/// Puts a question to whoever made the newest call.
async fn elicit(link: &Link, params: &Json) -> Result<Value, (i64, String)> {
    let invalid = |why: &str| Err((-32602, why.to_owned()));
    if params.get().len() > QUESTION_BYTES {
        return invalid("the question is too long");
    }
    let params = params.value();
    let message = visible(params["message"].as_str().unwrap_or_default());
    let request = match params["mode"].as_str() {
        None | Some("form") => {
            let schema = &params["requestedSchema"];
            if !schema["properties"].is_object() {
                return invalid("requestedSchema must be an object schema");
            }
            Elicitation::Form { message, schema: Json::from(schema) }
        }
        Some("url") => {
            let url = params["url"].as_str().unwrap_or_default();
            if !(url.starts_with("https://") || url.starts_with("http://"))
                || url.contains(char::is_whitespace)
            {
                return invalid("url must be an http or https address");
            }
            Elicitation::Page { message, url: visible(url) }
        }
        Some(_) => return invalid("the mode is not supported"),
    };
    let defaults = match &request {
        Elicitation::Form { schema, .. } => defaults(schema),
        Elicitation::Page { .. } => serde_json::Map::new(),
    };
    let asker = {
        let pending = link.shared.pending();
        let newest = pending.iter().filter(|(_, one)| one.elicitor.is_some()).max_by_key(|(id, _)| **id);
        newest.and_then(|(_, one)| Some((one.elicitor.clone()?, one.activity.clone())))
    };
    let Some((elicitor, activity)) = asker else { return Ok(json!({ "action": "cancel" })) };
    activity.asking.fetch_add(1, Ordering::SeqCst);
    let answer = elicitor.elicit(request).await;
    activity.asking.fetch_sub(1, Ordering::SeqCst);
    activity.seen.notify_one();
    Ok(match answer {
        ElicitationAnswer::Accept(Some(content)) => {
            let mut values = defaults;
            if let Value::Object(content) = content.value() {
                values.extend(content);
            }
            json!({ "action": "accept", "content": values })
        }
        ElicitationAnswer::Accept(None) => json!({ "action": "accept" }),
        ElicitationAnswer::Decline => json!({ "action": "decline" }),
        ElicitationAnswer::Cancel => json!({ "action": "cancel" }),
    })
}

/// The values of a form that nobody has to fill in.
fn defaults(schema: &Json) -> serde_json::Map<String, Value> {
    let schema = schema.value();
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.filter_map(|(name, one)| Some((name.clone(), one.get("default")?.clone()))).collect()
}
