//! A host for tests: it answers at once with what it was given, and notes what it was asked.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use quipu_host::CommandRegistry;
use quipu_protocol::{BashExecutionMessage, Model, NodeId, SessionId, Thinking};
use quipu_tui::editor::Candidate;
use quipu_tui::{
    CommandOutput, Context, CycleModel, Effect, FoundItems, Glimpse, Host, HostError, HostFuture, KeyOutcome,
    LocalServers, LoginMethod, LoginOffer, ModelChoice, OpenError, OpenedSession, OutputSink, PastRow,
    ProviderItem, ProviderLogin, Reach, Reply, SessionItem, SessionRequest, SettingOutcome, State, TreeRow,
    UiEvent,
};
use tokio_util::sync::CancellationToken;

/// What is not given is refused; a key that nothing is given for is asked about for ever.
#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) servers: Option<LocalServers>,
    pub(crate) providers: Vec<ProviderItem>,
    pub(crate) kept: Mutex<Option<Result<KeyOutcome, HostError>>>,
    pub(crate) tree: Vec<TreeRow>,
    pub(crate) settings: Vec<Candidate>,
    pub(crate) asked: Mutex<Vec<String>>,
    pub(crate) commands: CommandRegistry,
    pub(crate) below: Vec<TreeRow>,
    pub(crate) found: FoundItems,
    pub(crate) printed: Option<CommandOutput>,
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
        let early: Arc<Mutex<Vec<Reply>>> = Arc::default();
        let told = early.clone();
        let put = move |reply| told.lock().unwrap_or_else(PoisonError::into_inner).push(reply);
        let context = Context { host: host.clone(), session: None, early: Arc::new(put) };
        let reply = request.carry_out(context).now_or_never();
        for reply in std::mem::take(&mut *early.lock().unwrap_or_else(PoisonError::into_inner)) {
            let effects = state.on(UiEvent::Reply(reply), 0);
            others.extend(carry_out(host, state, effects));
        }
        if let Some(Some(reply)) = reply {
            let effects = state.on(UiEvent::Reply(reply), 0);
            others.extend(carry_out(host, state, effects));
        }
    }
    others
}

fn given<T: Send + 'static>(value: T) -> HostFuture<T> {
    Box::pin(std::future::ready(Ok(value)))
}

fn refused<T: Send + 'static>() -> HostFuture<T> {
    Box::pin(std::future::ready(Err(HostError::Failed { message: "nothing is given".to_owned() })))
}

impl Host for FakeHost {
    fn open(
        &self,
        _: SessionRequest,
    ) -> Pin<Box<dyn Future<Output = Result<OpenedSession, OpenError>> + Send>> {
        Box::pin(std::future::ready(Err(OpenError::Failed("nothing is given".to_owned()))))
    }

    fn glimpse(&self, _: &SessionRequest) -> HostFuture<Option<Glimpse>> {
        refused()
    }

    fn models(&self) -> HostFuture<Vec<Arc<Model>>> {
        refused()
    }

    fn cycled(&self) -> HostFuture<Vec<CycleModel>> {
        refused()
    }

    fn keep_choice(&self, choice: ModelChoice) -> HostFuture<()> {
        self.note(format!("keep {choice:?}"));
        given(())
    }

    fn levels(&self, _: &Model) -> Vec<Thinking> {
        Vec::new()
    }

    fn sessions(&self) -> HostFuture<Vec<SessionItem>> {
        refused()
    }

    fn tree(&self, reach: Reach, below: bool) -> HostFuture<Vec<TreeRow>> {
        self.note(format!("tree {reach:?} {below}"));
        given(self.tree.clone())
    }

    fn unfold(&self, _: NodeId, _: u64, _: u64, _: usize) -> HostFuture<Vec<TreeRow>> {
        refused()
    }

    fn past_rows(&self, row: PastRow) -> HostFuture<Vec<TreeRow>> {
        self.note(format!("below {} {:?}", row.name, row.chunk.map(|chunk| chunk.key)));
        given(self.below.clone())
    }

    fn past_sources(&self, row: PastRow) -> HostFuture<FoundItems> {
        self.note(format!("sources {:?}", row.chunk.map(|chunk| chunk.key)));
        given(self.found.clone())
    }

    fn search(&self, _: Vec<String>) -> HostFuture<FoundItems> {
        refused()
    }

    fn user_messages(&self, _: NodeId) -> HostFuture<Vec<(NodeId, String)>> {
        refused()
    }

    fn preview(&self, _: NodeId) -> HostFuture<String> {
        refused()
    }

    fn resolve(&self, _: String) -> HostFuture<NodeId> {
        refused()
    }

    fn compare(&self, _: NodeId, _: NodeId, _: usize) -> HostFuture<String> {
        refused()
    }

    fn commands(&self) -> CommandRegistry {
        self.commands.clone()
    }

    fn arguments(&self, command: String, _: Option<NodeId>) -> HostFuture<Vec<Candidate>> {
        if command == "settings" { given(self.settings.clone()) } else { refused() }
    }

    fn set(&self, setting: String) -> HostFuture<SettingOutcome> {
        self.note(format!("set {setting}"));
        if self.settings.is_empty() {
            return refused();
        }
        let message = format!("{setting}: set; it takes effect when you next start the terminal");
        given(SettingOutcome { message, ..SettingOutcome::default() })
    }

    fn edited(&self) -> HostFuture<SettingOutcome> {
        refused()
    }

    fn clone_session(&self, _: SessionId) -> HostFuture<SessionId> {
        refused()
    }

    fn command(&self, words: Vec<String>) -> HostFuture<CommandOutput> {
        let Some(printed) = self.printed.clone() else { return refused() };
        self.note(words.join(" "));
        given(printed)
    }

    fn long_command(&self, words: Vec<String>, tell: OutputSink) -> HostFuture<CommandOutput> {
        self.note(format!("long {}", words.join(" ")));
        tell("1 of 2".into());
        // Without an output it never ends.
        match self.printed.clone() {
            Some(printed) => given(printed),
            None => Box::pin(std::future::pending()),
        }
    }

    fn run_unkept(
        &self,
        _: String,
        _: bool,
        _: CancellationToken,
        _: OutputSink,
    ) -> HostFuture<BashExecutionMessage> {
        refused()
    }

    fn local_servers(&self) -> HostFuture<LocalServers> {
        self.note("local servers".to_owned());
        self.servers.clone().map_or_else(refused, given)
    }

    fn providers(&self) -> HostFuture<Vec<ProviderItem>> {
        self.note("providers".to_owned());
        given(self.providers.clone())
    }

    fn keep_key(&self, provider: String, key: String, unasked: bool) -> HostFuture<KeyOutcome> {
        self.note(format!("keep {provider} {key} {unasked}"));
        match self.kept.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(kept) => Box::pin(std::future::ready(kept)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn begin_login(&self, offer: LoginOffer, method: LoginMethod) -> HostFuture<ProviderLogin> {
        self.note(format!("begin login {} {method:?}", offer.provider));
        refused()
    }

    fn settings_path(&self) -> PathBuf {
        PathBuf::new()
    }

    fn foreground(&self, _: Vec<String>) -> HostFuture<()> {
        refused()
    }

    fn git_branch(&self) -> Option<String> {
        None
    }
}
