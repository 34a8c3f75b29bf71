//! Another session in the place of the current one.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use quipu::store::Graph;
use quipu::{Delivery, OpenedSession};
use quipu_host::{Failure, OpenRequest, Question, SessionTarget, StartedSession, iso, now};
use quipu_protocol::{Ack, Command, Envelope, Event, SessionId};
use quipu_rpc::{JsonEvents, RpcCommand, SessionHeader, data_text};
use tokio_util::task::AbortOnDropHandle;

use super::active::{ActiveSession, ShownSession};
use super::pump::show_events;
use super::state::{CommandOutcome, FrontState};

impl FrontState {
    /// Opens the session that the front begins with.
    pub(super) async fn open_first(&self) -> Result<(), Failure> {
        let active = self.open(self.request.clone()).await?;
        self.put(active);
        Ok(())
    }

    fn put(&self, active: Arc<ActiveSession>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(active);
    }

    async fn open(&self, mut request: OpenRequest) -> Result<Arc<ActiveSession>, Failure> {
        // Whoever reads events may not know questions that come before there is a session.
        let questions = [
            Question::Here,
            Question::NewText,
            Question::Caches,
            Question::Resources,
            Question::Memory,
            Question::DreamBudget,
        ];
        request.answers = questions.map(|question| (question, None)).into();
        let started = quipu_host::open(&self.home, &request).await?;
        let StartedSession { store, opened, file, ask_deadline, resources, .. } = started;
        let OpenedSession { session, notices } = opened;
        self.live_settings().apply(&session).await;
        let (snapshot, events) = session
            .subscribe_and_answer(Delivery::Lossless)
            .await
            .map_err(|refused| Failure::request(refused.to_string()))?;
        let retries = self.home.config_in(session.cwd()).calls.options.max_retries;
        let header = SessionHeader {
            id: snapshot.session.clone(),
            timestamp: iso(now()),
            cwd: session.cwd().display().to_string(),
        };
        let mut fold = JsonEvents::new(header).with_max_retries(retries).with_thinking(snapshot.thinking);
        for (number, notice) in (1..).zip(notices) {
            let event = Event::from(notice);
            if let Event::Ui { ui } = &event {
                self.output.send(quipu_rpc::ui_line(&format!("opened{number}"), ui)).await;
            }
            let envelope =
                Envelope { seq: 0, session: snapshot.session.clone(), run: None, at: now(), event };
            for line in fold.fold(&envelope) {
                self.output.send(line).await;
            }
        }
        let shown = Arc::new(ShownSession::new(ask_deadline));
        let pump = show_events(events, fold, shown.clone(), store.clone(), self.output.clone());
        let pump = AbortOnDropHandle::new(tokio::spawn(pump));
        Ok(Arc::new(ActiveSession::new(session, store, file, resources, shown, pump)))
    }

    /// Goes on with another session.
    pub(super) async fn replace(&self, command: RpcCommand) -> CommandOutcome {
        let _replacing = self.replacing.write().await;
        let active = self.current().ok_or("no session is open")?;
        self.abort(&active).await;
        let mut said = None;
        let which = match command {
            RpcCommand::NewSession { .. } => SessionTarget::New,
            RpcCommand::SwitchSession { session_path } => {
                if self.is_current(&active, &session_path).await {
                    return cancelled(false, None);
                }
                SessionTarget::Session(session_path)
            }
            RpcCommand::Fork { entry_id } => {
                let (session, text) = self.fork(&active, &entry_id).await?;
                said = Some(text);
                SessionTarget::Session(session.to_string())
            }
            _ => SessionTarget::Session(self.copy(&active).await?.to_string()),
        };
        let mut request = OpenRequest { which, cwd: None, ..self.request.clone() };
        request.permissions.plan = None;
        request.memory = request.in_memory.then(|| active.store.clone());
        if request.which == SessionTarget::New {
            let (model, thinking) = self.model_of(&active).await?;
            request.here = active.session.cwd().to_owned();
            request.model = Some(format!("{}/{}", model.provider, model.id));
            (request.provider, request.thinking) = (None, Some(thinking));
        } else {
            // What the command line said was for the session that it opened.
            (request.model, request.provider, request.thinking) = (None, None, None);
        }
        let opened = self.open(request).await.map_err(|failure| self.worded(&failure))?;
        self.put(opened);
        if let Some(lacks) = active.close(true).await {
            self.home.warn(lacks);
        }
        cancelled(false, said)
    }

    /// Whether the program names the session that is open.
    async fn is_current(&self, active: &ActiveSession, named: &str) -> bool {
        let id = active.session.view().session;
        if let Some(file) = &active.file {
            let same =
                |a: &Path, b: &Path| a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
            return same(Path::new(&file.path), Path::new(named)) || named == id.as_str();
        }
        named == id.as_str()
    }

    /// A session that continues from before a message of the user, and the text of that.
    async fn fork(&self, active: &ActiveSession, entry: &str) -> Result<(SessionId, String), String> {
        let (entries, nodes) = self.read_entries(active).await?;
        let found = entries.position(entry).and_then(|at| Some((*nodes.get(at)?, entries.user_text(at)?)));
        let (node, text) = found.ok_or("Invalid entry ID for forking")?;
        match active.session.send(Command::Fork { at: node }).await {
            Ok(Ack::Forked { session, .. }) => Ok((session, text)),
            Ok(_) => Err("the session was not forked".into()),
            Err(refused) => Err(refused.to_string()),
        }
    }

    /// A copy of the session.
    async fn copy(&self, active: &ActiveSession) -> Result<SessionId, String> {
        let view = active.session.view();
        if view.head.is_none() {
            return Err("Cannot clone session: no current entry selected".into());
        }
        let store: Arc<dyn Graph> = active.store.clone();
        let engine =
            self.home.engine(store, &self.home.settings()).map_err(|failure| self.worded(&failure))?;
        Ok(engine.clone_session(&view.session).await.map_err(|error| error.to_string())?.session)
    }

    /// Ends what runs in the session, which goes on being told of.
    pub(super) async fn close_running(&self) {
        if let Some(active) = self.current() {
            active.session.shutdown().await;
        }
    }

    /// Closes the session.
    pub(super) async fn close(&self, shows: bool) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(active) = current else { return };
        if let Some(lacks) = active.close(shows).await {
            self.home.warn(lacks);
        }
    }
}

fn cancelled(is: bool, text: Option<String>) -> CommandOutcome {
    let data = match text {
        Some(text) => serde_json::json!({ "text": text, "cancelled": is }),
        None => serde_json::json!({ "cancelled": is }),
    };
    Ok(Some(data_text(&data)))
}
