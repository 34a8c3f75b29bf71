//! Opening a session for a client.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use quipu::{Delivery, EditorFiles, OpenedSession, Tool};
use quipu_host::{
    Failure, FailureKind, Home, HostNotice, Observer, OpenRequest, Question, SessionTarget, StartedSession,
    ToolAdapter,
};
use quipu_runtime::Wording;
use quipu_store::{Graph, SessionQuery, SessionRow};
use tokio::sync::watch;

use crate::client_files::ClientFiles;
use crate::client_terminal::TerminalBash;
use crate::follow;
use crate::link::SessionLink;
use crate::params::OpenParams;
use crate::servers;
use crate::session::{OpenSession, RunEndLog};
use crate::updates;
use crate::wire::{AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, NOT_FOUND, WireError};

/// Notices of the opening at most.
const EARLY: usize = 100;

/// Tells a client what a person should know of its session.
struct ClientObserver {
    link: Arc<SessionLink>,
    wording: Wording,
    /// What there was to tell before the session was open.
    early: Mutex<Vec<(String, bool)>>,
}

impl Observer for ClientObserver {
    fn notice(&self, notice: HostNotice) {
        let text = (self.wording)(&notice.text, notice.advice.as_ref());
        match self.link.name() {
            Some(name) => {
                let update = updates::notice(&self.link, &text, notice.is_warning);
                self.link.connection.try_update(name, &update);
            }
            None => {
                let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
                if early.len() < EARLY {
                    early.push((text, notice.is_warning));
                }
            }
        }
    }
}

/// A failure of the host as one of a request.
pub(crate) fn failed(failure: &Failure, wording: Wording) -> WireError {
    let code = match failure.kind {
        FailureKind::Credential => AUTH_REQUIRED,
        FailureKind::Request => INVALID_PARAMS,
        _ => INTERNAL,
    };
    WireError::new(code, wording(&failure.message, failure.advice.as_ref()))
}

/// The true path of a directory that a client names.
///
/// # Errors
/// Where it is not absolute, or no directory.
pub(crate) fn directory(cwd: &str) -> Result<PathBuf, WireError> {
    if !Path::new(cwd).is_absolute() {
        return Err(WireError::params(format!("`cwd` must be an absolute path, not {cwd:?}")));
    }
    let found = Path::new(cwd).canonicalize().ok().filter(|path| path.is_dir());
    found.ok_or_else(|| WireError::params(format!("the directory in `cwd` does not exist: {cwd}")))
}

/// The session of this id.
///
/// # Errors
/// Where there is none.
pub(crate) async fn session_row(store: &dyn Graph, id: &str) -> Result<SessionRow, WireError> {
    let query = SessionQuery { id: Some(id.into()), children: true, ..SessionQuery::default() };
    let rows = store.sessions(query).await;
    let rows = rows.map_err(|error| WireError::new(INTERNAL, error.to_string()))?;
    let found = rows.into_iter().find(|row| row.head.is_some());
    found.ok_or_else(|| WireError::new(NOT_FOUND, format!("there is no session {id}")))
}

/// How sessions are opened here.
pub(crate) struct Opener<'a> {
    pub(crate) home: &'a Home,
    pub(crate) request: &'a OpenRequest,
    pub(crate) wording: Wording,
}

impl Opener<'_> {
    /// Opens a session: a new one, or the one that is named.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) async fn open(
        &self,
        link: &Arc<SessionLink>,
        params: OpenParams,
    ) -> Result<Arc<OpenSession>, WireError> {
        let here = directory(&params.cwd)?;
        if params.additional_directories.is_some_and(|added| !added.is_empty()) {
            return Err(WireError::params("`additionalDirectories` is not supported"));
        }
        let servers = servers::servers(params.mcp_servers.unwrap_or_default())?;
        let observer =
            Arc::new(ClientObserver { link: link.clone(), wording: self.wording, early: Mutex::default() });
        let home = self.home.for_one_session().with_observer(observer.clone());
        let failed = |failure: Failure| failed(&failure, self.wording);
        let which = match params.session_id {
            None => SessionTarget::New,
            Some(id) => {
                let store = home.store().await.map_err(failed)?;
                let row = session_row(&*store, &id).await?;
                if Path::new(&row.cwd).canonicalize().ok().as_deref() != Some(&*here) {
                    return Err(WireError::params(format!(
                        "session {id} works in {}, not in {}",
                        row.cwd,
                        here.display()
                    )));
                }
                SessionTarget::Session(id)
            }
        };
        // Nobody can be asked before the session is there.
        let questions = [
            Question::Here,
            Question::NewText,
            Question::Caches,
            Question::Resources,
            Question::Memory,
            Question::DreamBudget,
        ];
        let answers = questions.map(|question| (question, None)).into();
        let abilities = link.abilities;
        let has_files = abilities.reads_files || abilities.writes_files;
        let editor = has_files.then(|| Arc::new(ClientFiles::new(link.clone())) as Arc<dyn EditorFiles>);
        let of_shell = link.clone();
        let shell: ToolAdapter = Arc::new(move |own: Arc<dyn Tool>| -> Arc<dyn Tool> {
            Arc::new(TerminalBash::new(own, of_shell.clone()))
        });
        // A session keeps its own model.
        let model = self.request.model.clone().filter(|_| which == SessionTarget::New);
        let request = OpenRequest {
            which,
            here,
            model,
            answers,
            servers,
            editor,
            shell: Some(shell),
            ..self.request.clone()
        };
        let of_models = home.clone();
        let models = tokio::task::spawn_blocking(move || quipu_host::callable_models(&of_models));
        let StartedSession { store, opened, permissions, .. } =
            quipu_host::open(&home, &request).await.map_err(failed)?;
        let OpenedSession { session, notices } = opened;
        link.set_name(session.view().session.as_str());
        let (ended, ends) = watch::channel(RunEndLog::default());
        let models = models.await.unwrap_or_default();
        let subscribed = session.subscribe_and_answer(Delivery::Lossless).await;
        let subscribed = subscribed.map_err(|error| WireError::new(INTERNAL, error.to_string()))?;
        let open = OpenSession::new((session, home), (store, permissions), link.clone(), ends, models);
        let early = std::mem::take(&mut *observer.early.lock().unwrap_or_else(PoisonError::into_inner));
        let told = notices.iter().filter_map(updates::notice_text).map(|text| (text, false));
        let told = early.into_iter().chain(told).collect();
        *open.beginning.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Box::new(subscribed.0), subscribed.1, ended, told));
        Ok(open)
    }
}

/// Tells the client of the session from here on: once it knows the session.
pub(crate) async fn begin(open: &Arc<OpenSession>) {
    let beginning = open.beginning.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((snapshot, events, ended, told)) = beginning else { return };
    if let Some(name) = open.link.name() {
        for (text, is_warning) in told {
            open.link.connection.update(name, updates::notice(&open.link, &text, is_warning)).await;
        }
    }
    let follow = follow::follow(open, (*snapshot, events), ended);
    *open.follow.lock().unwrap_or_else(PoisonError::into_inner) = Some(follow);
}
