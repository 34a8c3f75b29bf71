//! The tools of time travel as a source of tools: which of them a session has.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_history::{Projects, Sight};
use quipu_protocol::ToolSpec;
use quipu_seal::Sealer;
use quipu_store::Graph;
use quipu_tools::Tool;

use crate::clock::Clock;
use crate::files::FileRestorer;
use crate::sources::{SourceContext, SourceError, ToolSource};
use crate::travel::{
    Archive, HistorySettings, LifeTool, Recall, SearchHistory, SessionView, Tobe, TraceTool, TravelSettings,
};

/// What the tools look into, and who may.
pub(crate) struct TravelOptions<'a> {
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) standing: SessionView,
    pub(crate) cwd: PathBuf,
    pub(crate) restorer: Option<Arc<FileRestorer>>,
    pub(crate) history: HistorySettings,
    pub(crate) travel: TravelSettings,
    /// Results are left out, and can be read again.
    pub(crate) prunes: bool,
    /// The program's own tools, whose names are theirs.
    pub(crate) own: &'a [Arc<dyn Tool>],
    /// What the session had when it was written last; empty for none.
    pub(crate) had: &'a [ToolSpec],
}

/// Gives a session `search_history`, `recall`, `life`, `trace` and `tobe`, as its settings have it.
pub(crate) struct TravelSource {
    tools: Vec<Arc<dyn Tool>>,
    /// What takes the session elsewhere, where the model may.
    pub(crate) tobe: Option<Arc<Tobe>>,
}

impl TravelSource {
    /// The source; `None` where it would have no tool.
    pub(crate) fn new(options: TravelOptions<'_>) -> Option<Self> {
        let TravelOptions {
            store,
            sealer,
            clock,
            standing,
            cwd,
            restorer,
            history,
            travel,
            prunes,
            own,
            had,
        } = options;
        let is_free = |name: &str| own.iter().all(|tool| tool.spec().name != name);
        // Other tools would change the beginning of every request of a session that was begun without them.
        let began_without = |name: &str| !had.is_empty() && had.iter().all(|spec| spec.name != name);
        let searches = history.enabled && !began_without(SearchHistory::NAME);
        let travels = travel.tools && !began_without(LifeTool::NAME);
        let leaves = travel.tools && !began_without(Tobe::NAME);
        if !(searches || travels || leaves || prunes) {
            return None;
        }
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        let projects = Arc::new(Projects::new(cwd.to_string_lossy().into_owned()));
        if searches && is_free(SearchHistory::NAME) {
            tools.push(Arc::new(SearchHistory::new(store.clone(), sealer, clock.clone(), projects.clone())));
        }
        let stands = standing.clone();
        let head = Arc::new(move || stands.get().and_then(|view| view.borrow().head));
        let archive = Archive { store: store.clone(), clock, sight: Sight::Project { projects, head } };
        if (searches || travels || prunes) && is_free(Recall::NAME) {
            tools.push(Arc::new(Recall::new(archive.clone(), travels)));
        }
        if travels && is_free(LifeTool::NAME) {
            tools.push(Arc::new(LifeTool::new(archive.clone())));
        }
        if travels && is_free(TraceTool::NAME) {
            tools.push(Arc::new(TraceTool::new(archive)));
        }
        let tobe =
            (leaves && is_free(Tobe::NAME)).then(|| Arc::new(Tobe::new(store, standing, cwd, restorer)));
        tools.extend(tobe.iter().map(|tobe| tobe.clone() as Arc<dyn Tool>));
        Some(Self { tools, tobe })
    }
}

impl ToolSource for TravelSource {
    fn name(&self) -> &str {
        crate::AGENT
    }

    fn tools<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<Arc<dyn Tool>>, SourceError>> {
        Box::pin(std::future::ready(Ok(self.tools.clone())))
    }
}
