//! The agent's end of a connection: methods of the client, and the sessions that are open for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quipu_host::{Advice, Home, OpenRequest};
use quipu_runtime::{LINE_LIMIT, Line, Lines, ServeEnd, Wording, write_lines};
use quipu_store::{Graph, SessionQuery, SessionRow};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{Connection, LINES};
use crate::input;
use crate::link::SessionLink;
use crate::opening::{self, Opener};
use crate::options;
use crate::params::{
    self, CancelParams, ClientAbilities, InitializeParams, ListParams, ModeParams, OpenParams, OptionParams,
    PromptParams, SessionParams,
};
use crate::prompt;
use crate::replay;
use crate::session::{OpenSession, PromptTicket};
use crate::wire::{self, INTERNAL, INVALID_REQUEST, NO_METHOD, NOT_FOUND, WireError, WireMessage};

/// The version that is spoken.
const VERSION: u64 = 1;
/// Sessions that are open at once at most.
pub const SESSIONS: usize = 256;
/// Requests of a client that are under way at most.
const UNDER_WAY: usize = 256;
/// Sessions of a page of `session/list`.
const PAGE: usize = 50;
/// How long a client may read nothing of what waits for it.
const STALLED: Duration = Duration::from_secs(30);
/// How long requests under way are waited for when the client has left.
const LEAVING: Duration = Duration::from_secs(10);

/// An agent for one client, in a place.
pub struct AcpAgent {
    home: Home,
    request: OpenRequest,
    wording: Wording,
    stalled: Duration,
}

impl AcpAgent {
    /// An agent that opens every session with what `request` says, but for what the client says.
    pub fn new(home: Home, request: OpenRequest) -> Self {
        Self { home, request, wording: |text, _: Option<&Advice>| text.to_owned(), stalled: STALLED }
    }

    /// Words failures and notices in the way of a front.
    #[must_use]
    pub fn worded_by(self, wording: Wording) -> Self {
        Self { wording, ..self }
    }

    /// Lets the client read nothing for another time than 30 seconds before the connection ends.
    #[must_use]
    pub fn with_patience(self, stalled: Duration) -> Self {
        Self { stalled, ..self }
    }

    /// Serves the client until it leaves, reads nothing for too long, or `end` is ready; then its sessions are closed: what runs is
    /// aborted and recorded. Must be called within a Tokio runtime.
    pub async fn serve(
        self,
        read: impl AsyncRead + Unpin,
        write: impl AsyncWrite + Unpin + Send + 'static,
        end: impl Future<Output = ()>,
    ) -> ServeEnd {
        let (sender, receiver) = mpsc::channel(LINES);
        let mut writer = AbortOnDropHandle::new(tokio::spawn(write_lines(write, receiver, self.stalled)));
        let desk = Arc::new(Inner {
            agent: self,
            connection: Connection::new(sender),
            abilities: Mutex::default(),
            sessions: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let served = tokio::select! {
            biased;
            () = end => ServeEnd::Closed,
            _ = &mut writer => ServeEnd::Stalled,
            () = read_all(&desk, Lines::new(read), &mut tasks) => ServeEnd::Left,
        };
        desk.leave(tasks, &served).await;
        desk.connection.close();
        if served != ServeEnd::Stalled {
            // What is on its way is written.
            drop(writer.await);
        }
        served
    }
}

struct Inner {
    agent: AcpAgent,
    connection: Connection,
    /// What the client can do; `None` before it said so.
    abilities: Mutex<Option<ClientAbilities>>,
    sessions: Mutex<BTreeMap<String, Arc<OpenSession>>>,
    /// One is opened or closed after the other, or a session could be opened twice.
    opening: tokio::sync::Mutex<()>,
}

/// How the answer to a request goes on.
enum Reply {
    Answer(Value),
    /// The client knows the session from here on.
    Opened(Value, Arc<OpenSession>),
}

async fn read_all<R: AsyncRead + Unpin>(desk: &Arc<Inner>, mut lines: Lines<R>, tasks: &mut JoinSet<()>) {
    let mut number = 0_u64;
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
        };
        let Ok(Some(line)) = line else { return };
        number += 1;
        let Line::Whole(line) = line else {
            let why = format!("line {number} is longer than {} MiB", LINE_LIMIT >> 20);
            desk.connection.answer(&Value::Null, Err(WireError::new(INVALID_REQUEST, why))).await;
            continue;
        };
        match wire::read(&line) {
            Ok(WireMessage::Request { id, method, params }) => desk.request(id, method, params, tasks).await,
            Ok(WireMessage::Notification { method, params }) => desk.notified(&method, params),
            Ok(WireMessage::Response { id, result }) => desk.connection.answered(&id, result),
            Err(refused) => {
                let (id, mut error) = *refused;
                error.message = format!("line {number}: {}", error.message);
                desk.connection.answer(&id, Err(error)).await;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn session(&self, id: &str) -> Result<Arc<OpenSession>, WireError> {
        let found = lock(&self.sessions).get(id).cloned();
        found.ok_or_else(|| WireError::new(NOT_FOUND, format!("no session {id} is open; load or resume it")))
    }

    fn abilities(&self) -> Option<ClientAbilities> {
        *lock(&self.abilities)
    }

    fn notified(&self, method: &str, params: Value) {
        // Those that are not known, and those that do not fit, are ignored.
        match method {
            "session/cancel" => {
                let params = params::read::<SessionParams>(method, params).ok();
                let open = params.and_then(|params| self.session(&params.session_id).ok());
                if let Some(open) = open.filter(|open| !open.cancel_prompt(None)) {
                    // What began by itself, such as a run that a background command started.
                    tokio::spawn(async move { open.abort().await });
                }
            }
            "$/cancel_request" => {
                let Ok(params) = params::read::<CancelParams>(method, params) else { return };
                let all: Vec<_> = lock(&self.sessions).values().cloned().collect();
                for open in all {
                    open.cancel_prompt(Some(&params.request_id));
                }
            }
            _ => {}
        }
    }

    /// Begins a request: its answer is sent when it is there.
    async fn request(
        self: &Arc<Self>,
        id: Value,
        method: String,
        mut params: Value,
        tasks: &mut JoinSet<()>,
    ) {
        if tasks.len() >= UNDER_WAY {
            let why = format!("{UNDER_WAY} requests are already in progress; wait for their answers");
            self.connection.answer(&id, Err(WireError::new(INTERNAL, why))).await;
            return;
        }
        if self.abilities().is_none() && method != "initialize" {
            let why = "send `initialize` first";
            self.connection.answer(&id, Err(WireError::new(INVALID_REQUEST, why))).await;
            return;
        }
        // Before what comes after it, such as its cancellation.
        let prompt = match method.as_str() {
            "session/prompt" => match self.begin_prompt(&id, std::mem::take(&mut params)) {
                Ok(prompt) => Some(prompt),
                Err(error) => {
                    self.connection.answer(&id, Err(error)).await;
                    return;
                }
            },
            _ => None,
        };
        let desk = self.clone();
        tasks.spawn(async move {
            let result = match prompt {
                Some((open, ticket, params)) => {
                    let result = match input::read(params.prompt) {
                        Ok(input) => prompt::run(&open, &ticket, input).await,
                        Err(error) => Err(error),
                    };
                    open.end_prompt();
                    result.map(Reply::Answer)
                }
                None => desk.answer(&method, params).await,
            };
            match result {
                Ok(Reply::Answer(answer)) => {
                    desk.connection.answer(&id, Ok(answer)).await;
                }
                Ok(Reply::Opened(answer, open)) => {
                    if desk.connection.answer(&id, Ok(answer)).await {
                        opening::begin(&open).await;
                    }
                }
                Err(error) => {
                    desk.connection.answer(&id, Err(error)).await;
                }
            }
        });
    }

    fn begin_prompt(
        &self,
        id: &Value,
        params: Value,
    ) -> Result<(Arc<OpenSession>, PromptTicket, PromptParams), WireError> {
        let params: PromptParams = params::read("session/prompt", params)?;
        let open = self.session(&params.session_id)?;
        let ticket = open.begin_prompt(id.clone())?;
        Ok((open, ticket, params))
    }

    async fn answer(&self, method: &str, params: Value) -> Result<Reply, WireError> {
        let answer = match method {
            "initialize" => self.initialize(&params::read(method, params)?)?,
            "session/new" => return self.open(params::read(method, params)?, method).await,
            "session/load" | "session/resume" => {
                let params: OpenParams = params::read(method, params)?;
                if params.session_id.is_none() {
                    return Err(WireError::params(format!("the parameters of {method} have no `sessionId`")));
                }
                return self.open(params, method).await;
            }
            "session/list" => self.list(params::read(method, params)?).await?,
            "session/close" => {
                let params: SessionParams = params::read(method, params)?;
                let open = self.session(&params.session_id)?;
                self.close(&params.session_id, &open).await;
                json!({})
            }
            "session/delete" => self.delete(params::read(method, params)?).await?,
            "session/set_mode" => {
                let params: ModeParams = params::read(method, params)?;
                let open = self.session(&params.session_id)?;
                options::set_mode(&open.session, &open.permissions, &params.mode_id).await?;
                json!({})
            }
            "session/set_config_option" => {
                let OptionParams { session_id, config_id, value } = params::read(method, params)?;
                let open = self.session(&session_id)?;
                options::set_option(&open.session, &open.permissions, &config_id, &value).await?;
                json!({ "configOptions": open.state().await?["configOptions"] })
            }
            "authenticate" => {
                return Err(WireError::params(
                    "there is no way to authenticate over this protocol: logins and keys are set up outside of it",
                ));
            }
            _ => return Err(WireError::new(NO_METHOD, format!("there is no method `{}`", shown(method)))),
        };
        Ok(Reply::Answer(answer))
    }

    fn initialize(&self, params: &InitializeParams) -> Result<Value, WireError> {
        let mut abilities = lock(&self.abilities);
        if abilities.is_some() {
            return Err(WireError::new(INVALID_REQUEST, "send `initialize` only once"));
        }
        // A client that cannot speak our version leaves.
        let _ = params.protocol_version;
        *abilities = Some(ClientAbilities::of(&params.client_capabilities));
        Ok(json!({
            "protocolVersion": VERSION,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true },
                "mcpCapabilities": { "http": true, "sse": false },
                "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "delete": {} },
            },
            "agentInfo": { "name": quipu::AGENT, "title": "Quipu", "version": env!("CARGO_PKG_VERSION") },
            "authMethods": [],
        }))
    }

    async fn open(&self, params: OpenParams, method: &str) -> Result<Reply, WireError> {
        let _opening = self.opening.lock().await;
        let loads = method == "session/load";
        let there = params.session_id.as_ref().and_then(|id| lock(&self.sessions).get(id).cloned());
        if let Some(open) = there {
            if opening::directory(&params.cwd)? != open.session.cwd() {
                return Err(WireError::params(format!(
                    "this session works in {}",
                    open.session.cwd().display()
                )));
            }
            let answer = self.told(&open, loads).await?;
            return Ok(Reply::Answer(answer));
        }
        if lock(&self.sessions).len() >= SESSIONS {
            let why = format!("{SESSIONS} sessions are open; close one first");
            return Err(WireError::new(INVALID_REQUEST, why));
        }
        let is_new = params.session_id.is_none();
        let asked = params.session_id.clone();
        let link = SessionLink::new(self.connection.clone(), self.abilities().unwrap_or_default());
        let AcpAgent { home, request, wording, .. } = &self.agent;
        let open = Opener { home, request, wording: *wording }.open(&link, params).await?;
        let name = asked.unwrap_or_else(|| link.name().unwrap_or_default().to_owned());
        lock(&self.sessions).insert(name.clone(), open.clone());
        let mut answer = match self.told(&open, loads).await {
            Ok(answer) => answer,
            Err(error) => {
                lock(&self.sessions).remove(&name);
                open.close().await;
                return Err(error);
            }
        };
        if is_new {
            answer["sessionId"] = name.into();
        }
        Ok(Reply::Opened(answer, open))
    }

    /// Tells the history, where it is asked for; the answer.
    async fn told(&self, open: &OpenSession, loads: bool) -> Result<Value, WireError> {
        if let Some(head) = open.session.view().head.filter(|_| loads) {
            let told = replay::replay(&open.link, &*open.store, head, open.session.cwd()).await;
            told.map_err(|error| WireError::new(INTERNAL, error.to_string()))?;
        }
        open.state().await
    }

    async fn list(&self, params: ListParams) -> Result<Value, WireError> {
        let cwd = match &params.cwd {
            Some(cwd) if !std::path::Path::new(cwd).is_absolute() => {
                return Err(WireError::params(format!("`cwd` must be an absolute path, not {cwd:?}")));
            }
            // A directory that is gone may have sessions all the same.
            Some(cwd) => {
                Some(opening::directory(cwd).map_or_else(|_| cwd.clone(), |cwd| cwd.display().to_string()))
            }
            None => None,
        };
        let failed = |failure: quipu_host::Failure| opening::failed(&failure, self.agent.wording);
        let Some(store) = self.agent.home.existing_store().await.map_err(failed)? else {
            return Ok(json!({ "sessions": [] }));
        };
        let store: Arc<dyn Graph> = store;
        let after = params.cursor.as_deref().map(cursor).transpose()?;
        let rows = store.sessions(SessionQuery { cwd, ..SessionQuery::default() }).await;
        let rows = rows.map_err(|error| WireError::new(INTERNAL, error.to_string()))?;
        let is_listed = |row: &SessionRow| {
            row.head.is_some()
                && row.agent == quipu::AGENT
                && row.entries > 0
                && !quipu::takes_no_prompts(row)
        };
        let mut rows: Vec<SessionRow> = rows.into_iter().filter(is_listed).collect();
        rows.sort_by(|a, b| (b.updated, b.id.as_str()).cmp(&(a.updated, a.id.as_str())));
        if let Some((updated, id)) = after {
            rows.retain(|row| (row.updated, row.id.as_str()) < (updated, id.as_str()));
        }
        let more = rows.len() > PAGE;
        rows.truncate(PAGE);
        let mut answer = json!({ "sessions": rows.iter().map(listed).collect::<Vec<_>>() });
        if let Some(last) = rows.last().filter(|_| more) {
            answer["nextCursor"] = format!("{}:{}", last.updated, last.id).into();
        }
        Ok(answer)
    }

    async fn close(&self, id: &str, open: &OpenSession) {
        let _opening = self.opening.lock().await;
        open.cancel_prompt(None);
        open.close().await;
        lock(&self.sessions).remove(id);
    }

    async fn delete(&self, params: SessionParams) -> Result<Value, WireError> {
        let id = params.session_id;
        let failed = |failure: quipu_host::Failure| opening::failed(&failure, self.agent.wording);
        let home = &self.agent.home;
        let store = home.store().await.map_err(failed)?;
        let row = opening::session_row(&*store, &id).await?;
        if quipu::takes_no_prompts(&row) {
            return Err(WireError::params(format!(
                "session {id} holds notes; a person removes those elsewhere"
            )));
        }
        let open = lock(&self.sessions).get(&id).cloned();
        if let Some(open) = open {
            self.close(&id, &open).await;
        }
        let engine = home.engine(store, &home.settings()).map_err(failed)?;
        engine.remove(&row.id).await.map_err(|error| WireError::new(INTERNAL, error.to_string()))?;
        Ok(json!({}))
    }

    /// The client has left: what it asked for is ended, and its sessions are closed.
    async fn leave(&self, mut tasks: JoinSet<()>, served: &ServeEnd) {
        self.connection.left();
        if *served == ServeEnd::Stalled {
            self.connection.close();
        }
        let all = || -> Vec<Arc<OpenSession>> { lock(&self.sessions).values().cloned().collect() };
        for open in all() {
            open.cancel_prompt(None);
        }
        let answered = async { while tasks.join_next().await.is_some() {} };
        let is_late = tokio::time::timeout(LEAVING, answered).await.is_err();
        if is_late {
            tasks.abort_all();
        }
        // Whoever is opening one is waited for.
        let _opening = self.opening.lock().await;
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        futures_util::future::join_all(sessions.values().map(|open| open.close())).await;
    }
}

/// As much of a name as is told.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(100).collect()
}

fn cursor(text: &str) -> Result<(i64, String), WireError> {
    let parts = text.split_once(':').and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    parts.ok_or_else(|| WireError::params("`cursor` is none that an answer had"))
}

fn listed(row: &SessionRow) -> Value {
    json!({
        "sessionId": row.id.as_str(), "cwd": row.cwd, "title": quipu_host::title_of(row),
        "updatedAt": quipu_host::iso(row.updated),
    })
}
