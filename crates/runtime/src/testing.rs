//! A home, a directory to work in, and a model's server: what tests of conversations stand on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::store::Graph;
use quipu::{Sealer, Session};
use quipu_host::{Failure, Home, OpenRequest, SilentObserver};
use quipu_protocol::{UnixMs, UserInput};
use quipu_testkit::{Answer, FakeServer, Gate, Reply};
use serde_json::json;

use crate::conversation_rules::TurnCause;
use crate::host_sessions::{HostSessionLimits, HostSessions};
use crate::keys::SessionKey;
use crate::lanes::{LaneSettings, Lanes};
use crate::queue::{
    Authority, BusyMode, InboxError, MessageGroup, MessageInbox, NewMessage, QueueOverride, QueuePolicy,
    QueueSettings, Route,
};
use crate::replies::Replies;
use crate::run::{Conversations, RunRequest};
use crate::source::{ConversationClaim, SessionSource, SourcedSession};

/// A home, a directory to work in, and a model.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) server: FakeServer,
    pub(crate) home: Home,
}

/// Sessions of which the first so many attempts to open one fail.
pub(crate) struct FailingSessions {
    sessions: HostSessions,
    fails: AtomicU32,
}

impl FailingSessions {
    pub(crate) async fn close(&self) {
        self.sessions.close().await;
    }

    /// Those that do not fail.
    pub(crate) const fn of_host(&self) -> &HostSessions {
        &self.sessions
    }
}

impl SessionSource for FailingSessions {
    fn session<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<SourcedSession, Failure>> {
        let fails = self.fails.load(Ordering::SeqCst);
        if fails > 0 {
            self.fails.store(fails - 1, Ordering::SeqCst);
            return Box::pin(async { Err(Failure::request("the session is not there today")) });
        }
        self.sessions.session(key)
    }

    fn session_for<'a>(
        &'a self,
        key: &'a SessionKey,
        group: &'a MessageGroup,
    ) -> BoxFuture<'a, Result<SourcedSession, Failure>> {
        match self.fails.load(Ordering::SeqCst) {
            0 => self.sessions.session_for(key, group),
            _ => self.session(key),
        }
    }

    fn renew<'a>(&'a self, key: &'a SessionKey, at: UnixMs) -> BoxFuture<'a, Result<(), Failure>> {
        self.sessions.renew(key, at)
    }

    fn heard<'a>(
        &'a self,
        key: &'a SessionKey,
        session: &'a Session,
        cause: TurnCause,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        self.sessions.heard(key, session, cause)
    }

    fn claim<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, ConversationClaim> {
        self.sessions.claim(key)
    }
}

/// A home in this directory whose only model is at this address.
pub(crate) fn home(dir: &std::path::Path, url: &str) -> Home {
    let path = dir.canonicalize().unwrap();
    for made in ["home", "work"] {
        std::fs::create_dir_all(path.join(made)).unwrap();
    }
    let model =
        json!({ "id": "test-1", "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000 });
    let provider = json!({ "baseUrl": url, "apiKey": "key", "api": "anthropic-messages", "models": [model] });
    let models = json!({ "providers": { "testing": provider } });
    std::fs::write(path.join("home/models.json"), models.to_string()).unwrap();
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "defaultModel": "test-1", "agents": { "byId": { "other": {} } } });
    std::fs::write(path.join("home/settings.json"), settings.to_string()).unwrap();
    Home::at(path.join("home"), Arc::new(SilentObserver))
}

impl World {
    pub(crate) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = FakeServer::start(script);
        let home = home(dir.path(), &server.url());
        Self { dir, server, home }
    }

    pub(crate) fn here(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }

    pub(crate) async fn host_sessions(&self, limits: HostSessionLimits) -> HostSessions {
        let here = self.here();
        let request = move |_: &SessionKey| OpenRequest { here: here.clone(), ..OpenRequest::default() };
        HostSessions::new(self.home.clone(), limits, Arc::new(request)).await.unwrap()
    }

    pub(crate) async fn sessions(&self, fails: u32) -> Arc<FailingSessions> {
        let sessions = self.host_sessions(HostSessionLimits::default()).await;
        Arc::new(FailingSessions { sessions, fails: fails.into() })
    }

    /// Does something with conversations that are served meanwhile.
    pub(crate) async fn serve<T, F: Future<Output = T>>(
        &self,
        timeout: Option<Duration>,
        fails: u32,
        work: impl FnOnce(Conversations, Lanes) -> F,
    ) -> T {
        self.serve_with(timeout, fails, |conversations| conversations, work).await
    }

    /// The same with replies, which are delivered meanwhile.
    pub(crate) async fn serve_replies<T, F: Future<Output = T>>(
        &self,
        replies: &Replies,
        work: impl FnOnce(Conversations) -> F,
    ) -> T {
        let change = |all: Conversations| all.with_replies(replies.clone());
        self.serve_with(None, 0, change, |conversations, _| work(conversations)).await
    }

    /// The same with conversations that were changed before.
    pub(crate) async fn serve_with<T, F: Future<Output = T>>(
        &self,
        timeout: Option<Duration>,
        fails: u32,
        change: impl FnOnce(Conversations) -> Conversations,
        work: impl FnOnce(Conversations, Lanes) -> F,
    ) -> T {
        self.serve_sessions(self.sessions(fails).await, timeout, change, work).await
    }

    /// The same with these sessions, which are closed in the end.
    pub(crate) async fn serve_sessions<T, F: Future<Output = T>>(
        &self,
        sessions: Arc<FailingSessions>,
        timeout: Option<Duration>,
        change: impl FnOnce(Conversations) -> Conversations,
        work: impl FnOnce(Conversations, Lanes) -> F,
    ) -> T {
        let store: Arc<dyn Graph> = self.home.store().await.unwrap();
        let lanes = Lanes::new(LaneSettings::default());
        let sealer = Arc::new(Sealer::new([7; 32]));
        let all = sessions.clone();
        let done: Result<T, InboxError> = MessageInbox::with(store, sealer, |inbox, mut events| async move {
            let conversations = change(Conversations::new(inbox, lanes.clone(), sessions, timeout));
            let work = work(conversations.clone(), lanes);
            tokio::select! {
                served = conversations.serve(&mut events) => panic!("{served:?}"),
                done = work => Ok(done),
            }
        })
        .await;
        all.close().await;
        done.unwrap()
    }
}

pub(crate) fn request(key: &str, text: &str, mode: BusyMode) -> RunRequest {
    let none = QueueOverride::default();
    let policy = QueuePolicy { mode, ..QueueSettings::default().resolve("", &none, &none) };
    let policy = QueuePolicy { debounce: Duration::ZERO, ..policy };
    let message = NewMessage {
        message_id: None,
        route: Route { channel: "irc".into(), ..Route::default() },
        authority: Authority { sender: Some("anna".into()), is_owner: true, ..Authority::default() },
        from: Some("Anna".into()),
        input: UserInput::from(text),
        at: 0,
    };
    RunRequest { key: SessionKey::parse(key).unwrap(), message, policy }
}

pub(crate) fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// An answer that begins when the gate opens.
pub(crate) fn gated(gate: &Gate, text: &str) -> Reply {
    Reply::sse("").then_gate(gate).then(Answer::new().text(text).stream())
}
