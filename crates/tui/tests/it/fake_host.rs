//! A host for tests: it answers at once with what it was given, and notes what it was asked.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use quipu_protocol::{BashExecutionMessage, Model, NodeId, SessionId, Thinking};
use quipu_tui::editor::Candidate;
use quipu_tui::{
    Context, Cycled, Doing, Effect, FoundItems, Glimpse, Host, HostError, Input, Kept, LocalServers,
    NotOpened, Open, Opened, Printed, ProviderItem, Reach, SessionItem, SettingKept, State, Tell, TreeRow,
};
use tokio_util::sync::CancellationToken;

/// What is not given is refused; a key that nothing is given for is asked about for ever.
#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) servers: Option<LocalServers>,
    pub(crate) providers: Vec<ProviderItem>,
    pub(crate) kept: Mutex<Option<Result<Kept, HostError>>>,
    pub(crate) tree: Vec<TreeRow>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl FakeHost {
    fn note(&self, what: String) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What it was asked since the last time.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Carries out what is asked of the host, and what is asked then; gives the other effects.
pub(crate) fn carry_out(host: &Arc<FakeHost>, state: &mut State, effects: Vec<Effect>) -> Vec<Effect> {
    let mut others = Vec::new();
    for effect in effects {
        let Effect::Ask(request) = effect else {
            others.push(effect);
            continue;
        };
        let context = Context { host: host.clone(), session: None };
        if let Some(Some(reply)) = request.carry_out(context).now_or_never() {
            let effects = state.on(Input::Reply(reply), 0);
            others.extend(carry_out(host, state, effects));
        }
    }
    others
}

fn given<T: Send + 'static>(value: T) -> Doing<T> {
    Box::pin(std::future::ready(Ok(value)))
}

fn refused<T: Send + 'static>() -> Doing<T> {
    Box::pin(std::future::ready(Err(HostError::Failed { message: "nothing is given".to_owned() })))
}

impl Host for FakeHost {
    fn open(&self, _: Open) -> Pin<Box<dyn Future<Output = Result<Opened, NotOpened>> + Send>> {
        Box::pin(std::future::ready(Err(NotOpened::Failed("nothing is given".to_owned()))))
    }

    fn glimpse(&self, _: &Open) -> Doing<Option<Glimpse>> {
        refused()
    }

    fn models(&self) -> Doing<Vec<Arc<Model>>> {
        refused()
    }

    fn cycled(&self) -> Doing<Vec<Cycled>> {
        refused()
    }

    fn levels(&self, _: &Model) -> Vec<Thinking> {
        Vec::new()
    }

    fn sessions(&self) -> Doing<Vec<SessionItem>> {
        refused()
    }

    fn tree(&self, reach: Reach, below: bool) -> Doing<Vec<TreeRow>> {
        self.note(format!("tree {reach:?} {below}"));
        given(self.tree.clone())
    }

    fn unfold(&self, _: NodeId, _: u64, _: u64, _: usize) -> Doing<Vec<TreeRow>> {
        refused()
    }

    fn search(&self, _: Vec<String>) -> Doing<FoundItems> {
        refused()
    }

    fn said(&self, _: NodeId) -> Doing<Vec<(NodeId, String)>> {
        refused()
    }

    fn preview(&self, _: NodeId) -> Doing<String> {
        refused()
    }

    fn resolve(&self, _: String) -> Doing<NodeId> {
        refused()
    }

    fn compare(&self, _: NodeId, _: NodeId, _: usize) -> Doing<String> {
        refused()
    }

    fn arguments(&self, _: String, _: Option<NodeId>) -> Doing<Vec<Candidate>> {
        refused()
    }

    fn set(&self, _: String) -> Doing<SettingKept> {
        refused()
    }

    fn edited(&self) -> Doing<SettingKept> {
        refused()
    }

    fn clone_session(&self, _: SessionId) -> Doing<SessionId> {
        refused()
    }

    fn command(&self, _: Vec<String>) -> Doing<Printed> {
        refused()
    }

    fn run_unkept(&self, _: String, _: bool, _: CancellationToken, _: Tell) -> Doing<BashExecutionMessage> {
        refused()
    }

    fn local_servers(&self) -> Doing<LocalServers> {
        self.note("local servers".to_owned());
        self.servers.clone().map_or_else(refused, given)
    }

    fn providers(&self) -> Doing<Vec<ProviderItem>> {
        self.note("providers".to_owned());
        given(self.providers.clone())
    }

    fn keep_key(&self, provider: String, key: String, unasked: bool) -> Doing<Kept> {
        self.note(format!("keep {provider} {key} {unasked}"));
        match self.kept.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(kept) => Box::pin(std::future::ready(kept)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn settings_path(&self) -> PathBuf {
        PathBuf::new()
    }

    fn foreground(&self, _: Vec<String>) -> Doing<()> {
        refused()
    }

    fn git_branch(&self) -> Option<String> {
        None
    }
}
