//! Sessions held open for programs that come and go.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use quipu::{Delivery, OpenedSession, Session};
use quipu_host::{
    CommandCall, ConversationPlace, Failure, FailureKind, Home, HostNotice, Observer, OpenRequest, Question,
    SessionAudience, SessionTarget,
};
use quipu_protocol::{
    Ack, ClientFrame, Command, FrameErrorKind, PROTOCOL_VERSION, Refusal, ServerFrame, SessionId, Thinking,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::lines::{LINE_LIMIT, Line, Lines, write_lines};
use crate::wording::Wording;

/// Sessions that a desk holds open at most.
pub const SESSIONS: usize = 256;
/// Requests of one client that are under way at most.
const UNDER_WAY: usize = 256;
/// Lines on their way to a client before those who make them wait.
const WAITING: usize = 256;
/// How long a client may read nothing of what waits for it.
const STALLED: Duration = Duration::from_secs(30);

/// Sessions that are open for programs: each by the name that `opened` gave it. They stay open when a client goes, until one
/// closes them, a conversation needs one whose clients are gone, or the desk ends. Cheap to clone.
#[derive(Clone)]
pub struct Desk(Arc<Inner>);

struct Inner {
    options: DeskOptions,
    sessions: Mutex<BTreeMap<SessionId, OpenSession>>,
    /// One is opened after the other, or two clients that open the same one would get two; and none while one is being closed,
    /// or it would be found still held.
    opening: tokio::sync::RwLock<()>,
    closing: CancellationToken,
}

#[derive(Clone)]
struct DeskOptions {
    home: Home,
    /// What every session is opened with, but for what a client says.
    request: OpenRequest,
    stalled: Duration,
    wording: Wording,
    /// Is given each session that is opened.
    observer: Option<SessionObserver>,
}

/// Is given each session that a desk opens, before anybody else has it. It must not wait.
pub type SessionObserver = Arc<dyn Fn(&Session) + Send + Sync>;

struct OpenSession {
    session: Session,
    /// For whom it was opened.
    audience: SessionAudience,
    /// For which conversation.
    conversation: Option<ConversationPlace>,
    /// A client of lines uses it, so it stays when a [`DeskLease`] ends.
    is_shared: bool,
    /// The clients of lines that have used it: each is there as long as its mark.
    clients: Vec<Weak<ClientMark>>,
    /// Leases that hold it.
    leases: usize,
}

/// Stands for a client that is there.
struct ClientMark;

impl OpenSession {
    /// A client of lines uses it from now on.
    fn used_by(&mut self, client: &Arc<ClientMark>) {
        self.is_shared = true;
        self.clients.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(client));
        self.clients.push(Arc::downgrade(client));
    }

    /// Whether all that used it are gone, and nothing runs in it.
    fn is_abandoned(&self) -> bool {
        self.leases == 0
            && self.clients.iter().all(|client| client.strong_count() == 0)
            && self.session.view().run.is_none()
    }
}

/// Why a session is not opened.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// As many are open as may.
    #[error("{SESSIONS} sessions are open; close one first")]
    Full,
    /// A client of lines has opened it otherwise, and uses it still.
    #[error("session {0} is open without the agent `{1}`; close it there first")]
    InUse(SessionId, String),
    /// It cannot be opened.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// A session of a desk for a front in the same program. [`DeskLease::release`] closes the session, unless somebody else uses it.
/// One that is dropped leaves it open.
pub struct DeskLease {
    desk: Desk,
    name: SessionId,
    session: Session,
    is_branch: bool,
}

impl DeskLease {
    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its name at the desk.
    pub fn name(&self) -> &SessionId {
        &self.name
    }

    /// Whether it is a branch, because another process has the session that was wanted. Nothing is written to it before it is spoken in.
    pub const fn is_branch(&self) -> bool {
        self.is_branch
    }

    /// Gives it back.
    pub async fn release(self) {
        let Self { desk, name, session, .. } = self;
        // Nobody opens it while it is being closed.
        let _opening = desk.0.opening.write().await;
        let is_last = {
            let mut sessions = desk.sessions();
            let Some(open) = sessions.get_mut(&name) else { return };
            open.leases = open.leases.saturating_sub(1);
            open.leases == 0 && !open.is_shared
        };
        if is_last {
            session.shutdown().await;
            desk.sessions().remove(&name);
        }
    }
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ServeEnd {
    /// The client left.
    Left,
    /// It spoke another version, or none.
    OtherVersion,
    /// It read nothing for too long, or cannot be written to.
    Stalled,
    /// The desk ended.
    Closed,
}

/// An answer that is on its way.
type PendingFrame = Pin<Box<dyn Future<Output = ServerFrame> + Send>>;

/// Lines to one client.
#[derive(Clone)]
struct ClientWriter(mpsc::Sender<String>);

impl ClientWriter {
    /// Whether it was taken: not when the client is gone.
    async fn send(&self, frame: &ServerFrame) -> bool {
        self.0.send(written(frame)).await.is_ok()
    }
}

/// Tells a client what a person should know, for as long as it is there.
struct ClientObserver(mpsc::WeakSender<String>, Wording);

impl Observer for ClientObserver {
    fn notice(&self, notice: HostNotice) {
        let text = (self.1)(&notice.text, notice.advice.as_ref());
        let frame = ServerFrame::Notice { warning: notice.is_warning, text };
        if let Some(out) = self.0.upgrade() {
            // A client that is so far behind is not told.
            drop(out.try_send(written(&frame)));
        }
    }
}

fn written(frame: &ServerFrame) -> String {
    // Plain data always has a JSON form.
    let mut line = serde_json::to_string(frame).unwrap_or_default();
    line.push('\n');
    line
}

fn error(id: Option<u64>, kind: FrameErrorKind, message: impl Into<String>) -> ServerFrame {
    ServerFrame::Error { id, kind, message: message.into() }
}

fn failed(id: u64, failure: &Failure, wording: Wording) -> ServerFrame {
    let kind = match failure.kind {
        FailureKind::Asks(_) => FrameErrorKind::NeedsAnswer,
        _ => FrameErrorKind::Failed,
    };
    error(Some(id), kind, wording(&failure.message, failure.advice.as_ref()))
}

fn refused(id: u64, refused: Refusal) -> ServerFrame {
    let message = refused.to_string();
    ServerFrame::Refused { id, refused, message }
}

/// Which session is wanted of a desk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionRequest {
    /// The directory of a new one: an absolute path.
    pub cwd: String,
    /// Its id, the start of its id, or its name; `None` for a new one.
    pub session: Option<String>,
    /// The node that a new one goes on from.
    pub fork: Option<String>,
    /// The model, where it is not that of the session or of the settings.
    pub model: Option<String>,
    /// How hard it thinks, where that is not as the session or the settings say.
    pub thinking: Option<Thinking>,
    /// For whom it works: what narrows the tools of these and what they may spend counts.
    pub audience: SessionAudience,
    /// The conversation that it is for, which says in which sandbox it works.
    pub conversation: Option<ConversationPlace>,
}

impl Desk {
    /// A desk in a place. Every session is opened with what `request` says, but for what a client says itself.
    pub fn new(home: Home, request: OpenRequest) -> Self {
        let wording: Wording = |text, _| text.to_owned();
        Self::with(DeskOptions { home, request, stalled: STALLED, wording, observer: None })
    }

    /// Words failures and notices in the way of a front.
    #[must_use]
    pub fn worded_by(self, wording: Wording) -> Self {
        Self::with(DeskOptions { wording, ..self.0.options.clone() })
    }

    /// Lets a client read nothing for another time than 30 seconds before its connection ends.
    #[must_use]
    pub fn with_patience(self, stalled: Duration) -> Self {
        Self::with(DeskOptions { stalled, ..self.0.options.clone() })
    }

    /// Shows each session that is opened from now on to an observer.
    #[must_use]
    pub fn observed_by(self, observer: SessionObserver) -> Self {
        Self::with(DeskOptions { observer: Some(observer), ..self.0.options.clone() })
    }

    fn with(options: DeskOptions) -> Self {
        let (sessions, opening, closing) =
            (Mutex::default(), tokio::sync::RwLock::default(), CancellationToken::new());
        Self(Arc::new(Inner { options, sessions, opening, closing }))
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions().len()
    }

    /// Opens a session for a front in the same program.
    ///
    /// # Errors
    /// `Full`; `Failed` says why it cannot be opened, as `quipu_host::open`, or that the desk is ending.
    pub async fn lease(&self, wanted: SessionRequest) -> Result<DeskLease, LeaseError> {
        let _opening = self.0.opening.write().await;
        if self.0.closing.is_cancelled() {
            return Err(Failure::failed("the server is shutting down and opens no sessions").into());
        }
        let (name, session, notices) = self.opened(wanted, None).await?;
        let is_branch =
            notices.iter().any(|notice| matches!(notice, quipu_protocol::Notice::Branched { .. }));
        if let Some(open) = self.sessions().get_mut(&name) {
            open.leases += 1;
        }
        Ok(DeskLease { desk: self.clone(), name, session, is_branch })
    }

    /// Serves one client until it leaves, reads nothing for too long, or the desk ends. Its sessions stay open. Must be called
    /// within a Tokio runtime.
    pub async fn serve(
        &self,
        read: impl AsyncRead + Unpin,
        write: impl AsyncWrite + Unpin + Send + 'static,
    ) -> ServeEnd {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut writer =
            AbortOnDropHandle::new(tokio::spawn(write_lines(write, receiver, self.0.options.stalled)));
        let out = ClientWriter(sender);
        let client = Client {
            desk: self.clone(),
            out: out.clone(),
            followed: HashMap::new(),
            under_way: FuturesUnordered::new(),
            mark: Arc::new(ClientMark),
        };
        let served = tokio::select! {
            biased;
            () = self.0.closing.cancelled() => {
                drop(out.0.try_send(written(&error(None, FrameErrorKind::Closing, "the server is shutting down"))));
                ServeEnd::Closed
            }
            _ = &mut writer => return ServeEnd::Stalled,
            served = client.serve(Lines::new(read)) => served,
        };
        // What is on its way is written; those who follow sessions are gone.
        drop(out);
        drop((&mut writer).await);
        served
    }

    /// Ends all sessions, and with them every connection: what runs is aborted and recorded first.
    pub async fn shutdown(&self) {
        self.0.closing.cancel();
        // Whoever is opening one is waited for.
        let _opening = self.0.opening.write().await;
        let sessions = std::mem::take(&mut *self.sessions());
        futures_util::future::join_all(sessions.values().map(|open| open.session.shutdown())).await;
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, OpenSession>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open session, which a client of lines uses from now on.
    fn session(&self, id: &SessionId, client: &Arc<ClientMark>) -> Option<Session> {
        let mut sessions = self.sessions();
        let open = sessions.get_mut(id)?;
        open.used_by(client);
        Some(open.session.clone())
    }

    /// Closes a session that is open here, whose clients are gone, and in which nothing runs: somebody else needs it. Whether it was so.
    pub async fn close_abandoned(&self, id: &SessionId) -> bool {
        // Nobody opens it while it is being closed.
        let _opening = self.0.opening.write().await;
        let found = {
            let sessions = self.sessions();
            let mut named = sessions.iter().filter(|(_, open)| open.session.view().session == *id);
            named.next().map(|(name, _)| name.clone())
        };
        match found {
            Some(name) => self.closed_as_abandoned(&name).await,
            None => false,
        }
    }

    /// The same by its name here; none is being opened meanwhile.
    async fn closed_as_abandoned(&self, name: &SessionId) -> bool {
        let session = {
            let sessions = self.sessions();
            let Some(open) = sessions.get(name).filter(|open| open.is_abandoned()) else { return false };
            open.session.clone()
        };
        session.shutdown().await;
        self.sessions().remove(name);
        true
    }

    async fn open(
        &self,
        id: u64,
        wanted: SessionRequest,
        (out, mark): (ClientWriter, Arc<ClientMark>),
    ) -> ServerFrame {
        let _opening = self.0.opening.write().await;
        if self.0.closing.is_cancelled() {
            return error(
                Some(id),
                FrameErrorKind::Closing,
                "the server is shutting down and opens no sessions",
            );
        }
        match self.opened(wanted, Some(out)).await {
            Ok((session, handle, notices)) => {
                if let Some(open) = self.sessions().get_mut(&session) {
                    open.used_by(&mark);
                }
                let cwd = handle.cwd().to_string_lossy().into_owned();
                ServerFrame::Opened { id, session, cwd, notices }
            }
            Err(full @ (LeaseError::Full | LeaseError::InUse(..))) => {
                error(Some(id), FrameErrorKind::Failed, full.to_string())
            }
            Err(LeaseError::Failed(failure)) => failed(id, &failure, self.0.options.wording),
        }
    }

    async fn opened(
        &self,
        wanted: SessionRequest,
        out: Option<ClientWriter>,
    ) -> Result<(SessionId, Session, Vec<quipu_protocol::Notice>), LeaseError> {
        let SessionRequest { cwd, session, fork, model, thinking, audience, conversation } = wanted;
        let options = &self.0.options;
        let home = match out {
            Some(out) => {
                let observer = ClientObserver(out.0.downgrade(), options.wording);
                options.home.clone().with_observer(Arc::new(observer))
            }
            None => options.home.clone(),
        };
        if !Path::new(&cwd).is_absolute() {
            return Err(Failure::request(format!("`cwd` must be an absolute path, not {cwd}")).into());
        }
        let here = std::fs::canonicalize(&cwd)
            .ok()
            .filter(|path| path.is_dir())
            .ok_or_else(|| Failure::request(format!("the directory in `cwd` does not exist: {cwd}")))?;
        let which = match (session, fork) {
            (Some(_), Some(_)) => {
                return Err(Failure::request("`session` and `fork` exclude each other; give only one").into());
            }
            (Some(session), None) => SessionTarget::Session(session),
            (None, Some(node)) => SessionTarget::Fork(node),
            (None, None) => SessionTarget::New,
        };
        if let SessionTarget::Session(named) = &which
            && let Some((name, handle)) = self.open_already(&home, named).await?
        {
            let is_same = |open: &OpenSession| open.audience == audience && open.conversation == conversation;
            // Its budget, its policies of tools and its sandbox would not hold.
            let Some(agent) =
                audience.agent.as_ref().filter(|_| !self.sessions().get(&name).is_some_and(is_same))
            else {
                return Ok((name, handle, Vec::new()));
            };
            if !self.closed_as_abandoned(&name).await {
                return Err(LeaseError::InUse(name, agent.clone()));
            }
        }
        if self.sessions().len() >= SESSIONS {
            return Err(LeaseError::Full);
        }
        // Nobody is there who could be asked before the session is.
        let questions = [
            Question::Here,
            Question::NewText,
            Question::Caches,
            Question::Resources,
            Question::Memory,
            Question::DreamBudget,
        ];
        let answers = questions.map(|question| (question, None)).into();
        let mut request = OpenRequest { which, here, answers, is_shared: true, ..options.request.clone() };
        request.model = model.or(request.model);
        request.thinking = thinking.or(request.thinking);
        if audience.agent.is_some() {
            request.audience = audience.clone();
        }
        if conversation.is_some() {
            request.conversation.clone_from(&conversation);
        }
        let OpenedSession { session, notices } = quipu_host::open(&home, &request).await?.opened;
        let name = session.view().session;
        if let Some(observer) = &options.observer {
            observer(&session);
        }
        let open = OpenSession {
            session: session.clone(),
            audience,
            conversation,
            is_shared: false,
            clients: Vec::new(),
            leases: 0,
        };
        self.sessions().insert(name.clone(), open);
        Ok((name, session, notices))
    }

    /// A session of this name that is open here.
    async fn open_already(&self, home: &Home, named: &str) -> Result<Option<(SessionId, Session)>, Failure> {
        {
            // The store does not know one in which nothing was said.
            let sessions = self.sessions();
            let is_named = |open: &OpenSession| open.session.view().session.as_str() == named;
            if let Some((name, open)) = sessions.iter().find(|(_, open)| is_named(open)) {
                return Ok(Some((name.clone(), open.session.clone())));
            }
            if sessions.is_empty() || quipu_host::is_file(named) {
                return Ok(None);
            }
        }
        let store = home.store().await?;
        let row = quipu_host::session_named(&*store, named).await?;
        let sessions = self.sessions();
        let mut found = sessions.iter().filter(|(_, open)| open.session.view().session == row.id);
        Ok(found.next().map(|(name, open)| (name.clone(), open.session.clone())))
    }

    async fn close(&self, name: &SessionId, session: &Session) {
        let _opening = self.0.opening.read().await;
        session.shutdown().await;
        self.sessions().remove(name);
    }
}

/// One connection.
struct Client {
    desk: Desk,
    out: ClientWriter,
    /// The sessions that it follows.
    followed: HashMap<SessionId, AbortOnDropHandle<()>>,
    under_way: FuturesUnordered<PendingFrame>,
    mark: Arc<ClientMark>,
}

impl Client {
    async fn serve<R: AsyncRead + Unpin>(mut self, mut lines: Lines<R>) -> ServeEnd {
        match lines.next().await {
            Ok(Some(line)) => {
                if let Err(why) = greeted(&line) {
                    self.out.send(&error(None, FrameErrorKind::Version, why)).await;
                    return ServeEnd::OtherVersion;
                }
            }
            Ok(None) | Err(_) => return ServeEnd::Left,
        }
        let server = format!("quipu {}", env!("CARGO_PKG_VERSION"));
        let mut there = self.out.send(&ServerFrame::Hello { version: PROTOCOL_VERSION, server }).await;
        let (mut number, mut ends) = (1_u64, false);
        while there {
            if ends && self.under_way.is_empty() {
                return ServeEnd::Left;
            }
            tokio::select! {
                biased;
                Some(frame) = self.under_way.next(), if !self.under_way.is_empty() => {
                    there = self.out.send(&frame).await;
                }
                line = lines.next(), if !ends => {
                    number += 1;
                    there = match line {
                        Ok(Some(line)) => self.line(number, &line).await,
                        // What was asked for is done all the same.
                        Ok(None) | Err(_) => {
                            ends = true;
                            true
                        }
                    };
                }
            }
        }
        ServeEnd::Stalled
    }

    /// Takes a line; whether the client is there still.
    async fn line(&mut self, number: u64, line: &Line) -> bool {
        let Line::Whole(line) = line else {
            let message = format!("line {number} is longer than {} MiB", LINE_LIMIT >> 20);
            return self.out.send(&error(None, FrameErrorKind::TooLong, message)).await;
        };
        let frame = match serde_json::from_slice::<ClientFrame>(line) {
            Ok(frame) => frame,
            Err(why) => {
                // Whoever waits for an answer gets one.
                let id = serde_json::from_slice::<serde_json::Value>(line).ok();
                let id = id.and_then(|json| json.get("id")?.as_u64());
                let message = format!("line {number} is not a valid message of this protocol: {why}");
                return self.out.send(&error(id, FrameErrorKind::Invalid, message)).await;
            }
        };
        let mut pending = match self.begin(frame).await {
            Ok(Some(pending)) => pending,
            Ok(None) => return true,
            Err(answer) => return self.out.send(&answer).await,
        };
        // At once, so that commands reach their session in the order in which they came.
        match futures_util::poll!(pending.as_mut()) {
            std::task::Poll::Ready(answer) => self.out.send(&answer).await,
            std::task::Poll::Pending => {
                self.under_way.push(pending);
                true
            }
        }
    }

    /// What a line asks for: on its way, or answered at once.
    async fn begin(&mut self, frame: ClientFrame) -> Result<Option<PendingFrame>, Box<ServerFrame>> {
        let (desk, mark) = (self.desk.clone(), self.mark.clone());
        if self.under_way.len() >= UNDER_WAY {
            let message = format!("{UNDER_WAY} requests are already in progress; wait for their answers");
            return Err(Box::new(error(id_of(&frame), FrameErrorKind::Busy, message)));
        }
        let find = |id: u64, session: &SessionId| {
            let message = format!("no session `{session}` is open here; open it first");
            desk.session(session, &mark)
                .ok_or_else(|| Box::new(error(Some(id), FrameErrorKind::NoSession, message)))
        };
        let pending: PendingFrame = match frame {
            ClientFrame::Hello { .. } => {
                return Err(Box::new(error(
                    None,
                    FrameErrorKind::Invalid,
                    "send `hello` only once, as the first line",
                )));
            }
            ClientFrame::Open { id, cwd, session, fork, model, thinking } => {
                let client = (self.out.clone(), mark);
                let wanted =
                    SessionRequest { cwd, session, fork, model, thinking, ..SessionRequest::default() };
                Box::pin(async move { desk.open(id, wanted, client).await })
            }
            ClientFrame::Command { id, session: name, command } => {
                let session = find(id, &name)?;
                Box::pin(async move {
                    if command == Command::Close {
                        desk.close(&name, &session).await;
                        return ServerFrame::Ack { id, ack: Ack::Handled };
                    }
                    match session.send(command).await {
                        Ok(ack) => ServerFrame::Ack { id, ack },
                        Err(why) => refused(id, why),
                    }
                })
            }
            ClientFrame::Subscribe { id, session: name, live, answers } => {
                let session = find(id, &name)?;
                let delivery = if live { Delivery::Live } else { Delivery::Lossless };
                let subscribed = match answers {
                    true => session.subscribe_and_answer(delivery).await,
                    false => session.subscribe(delivery).await,
                };
                let (snapshot, mut events) = subscribed.map_err(|why| Box::new(refused(id, why)))?;
                let snapshot =
                    ServerFrame::Snapshot { id, session: name.clone(), snapshot: Box::new(snapshot) };
                if self.out.send(&snapshot).await {
                    let (out, session) = (self.out.clone(), name.clone());
                    let follow = async move {
                        while let Some(envelope) = events.next().await {
                            let envelope = (*envelope).clone();
                            let event = ServerFrame::Event { session: session.clone(), envelope };
                            if !out.send(&event).await {
                                return;
                            }
                        }
                        out.send(&ServerFrame::Ended { session }).await;
                    };
                    self.followed.insert(name, AbortOnDropHandle::new(tokio::spawn(follow)));
                }
                return Ok(None);
            }
            ClientFrame::Unsubscribe { id, session } => {
                find(id, &session)?;
                self.followed.remove(&session);
                return Err(Box::new(ServerFrame::Done { id }));
            }
            ClientFrame::Close { id, session: name } => {
                let session = find(id, &name)?;
                Box::pin(async move {
                    desk.close(&name, &session).await;
                    ServerFrame::Done { id }
                })
            }
            ClientFrame::Sessions { id } => {
                let sessions = desk.sessions().keys().cloned().collect();
                return Err(Box::new(ServerFrame::Sessions { id, sessions }));
            }
            ClientFrame::Commands { id } => {
                let commands = desk.0.options.home.commands().runnable();
                return Err(Box::new(ServerFrame::Commands { id, commands }));
            }
            ClientFrame::Run { id, session, name, arguments } => {
                let session = session.map(|name| find(id, &name)).transpose()?;
                let commands = desk.0.options.home.commands().clone();
                Box::pin(async move {
                    match commands.run(&name, CommandCall { arguments, session }).await {
                        Ok(value) => ServerFrame::CommandResult { id, value },
                        Err(why) => error(Some(id), FrameErrorKind::Failed, why.to_string()),
                    }
                })
            }
        };
        Ok(Some(pending))
    }
}

/// Whether the first line is a greeting in our version; else why not.
fn greeted(line: &Line) -> Result<(), String> {
    let frame = match line {
        Line::Whole(line) => serde_json::from_slice::<ClientFrame>(line).ok(),
        Line::TooLong => None,
    };
    match frame {
        Some(ClientFrame::Hello { version: PROTOCOL_VERSION }) => Ok(()),
        Some(ClientFrame::Hello { version }) => {
            Err(format!("version {version} is not supported; this server speaks version {PROTOCOL_VERSION}"))
        }
        Some(_) | None => {
            Err(format!("the first line must be {{\"type\":\"hello\",\"version\":{PROTOCOL_VERSION}}}"))
        }
    }
}

fn id_of(frame: &ClientFrame) -> Option<u64> {
    match frame {
        ClientFrame::Hello { .. } => None,
        ClientFrame::Open { id, .. }
        | ClientFrame::Command { id, .. }
        | ClientFrame::Subscribe { id, .. }
        | ClientFrame::Unsubscribe { id, .. }
        | ClientFrame::Close { id, .. }
        | ClientFrame::Sessions { id }
        | ClientFrame::Commands { id }
        | ClientFrame::Run { id, .. } => Some(*id),
    }
}
