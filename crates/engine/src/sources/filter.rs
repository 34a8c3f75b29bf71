//! Which of the tools that there are a session offers: decided by the program, for each model.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use quipu_protocol::{Json, Model};

use super::SourceVersion;
use super::gather::ToolSet;

/// What the model is answered about tools when the filter broke down.
const BROKE_DOWN: &str = "the filter of tools panicked, which is a bug in it";

/// A tool that a session would offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfilteredTool<'a> {
    /// As the model calls it.
    pub name: &'a str,
    /// The source that gives it; `None` for one of the options or of Quipu itself.
    pub source: Option<&'a str>,
    /// Its schema.
    pub parameters: &'a Json,
}

/// What a filter is asked.
#[derive(Debug, Clone, Copy)]
pub struct ToolFilterAsk<'a> {
    /// The model that answers from here on.
    pub model: &'a Model,
    /// The level of the session: 0 for one that a person began, 1 for a sub-agent of it.
    pub depth: u32,
    /// The tools in the order in which the model would see them.
    pub tools: &'a [UnfilteredTool<'a>],
}

/// What a filter says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolFilterAnswer {
    /// The tools that are not offered, with the reason for the model, without a full stop.
    pub removed: HashMap<String, String>,
    /// What people should know, each once in a session.
    pub notices: Vec<String>,
}

/// Decides which tools a session offers. Installed by [`SessionOptions::tool_filter`](crate::SessionOptions::tool_filter).
///
/// It is asked when the session is opened, when the tools of a source change, when another model answers, and before a call of the
/// model where its version is another one than before. It can only remove. Another list of tools begins an epoch. A session that this one sends has the tools that are lent to it at most, and
/// is asked about with its own model and level.
pub trait ToolFilter: Send + Sync + 'static {
    /// Which tools are not offered. One that panics offers none.
    fn filter(&self, ask: &ToolFilterAsk<'_>) -> ToolFilterAnswer;

    /// Counts changes of what it decides; asked for when a session is opened. It never changes by default.
    fn version(&self) -> SourceVersion {
        SourceVersion::new()
    }
}

/// A filter, and the level of the session that it is for.
#[derive(Clone)]
pub(crate) struct InstalledFilter {
    pub(crate) filter: Arc<dyn ToolFilter>,
    pub(crate) depth: u32,
}

impl InstalledFilter {
    /// What is left of a set; with what people should know.
    pub(super) fn apply(&self, mut set: ToolSet, model: &Model) -> (ToolSet, Vec<String>) {
        let offered = set.unfiltered();
        let tools: Vec<UnfilteredTool<'_>> = offered
            .iter()
            .map(|(spec, source)| UnfilteredTool {
                name: &spec.name,
                source: source.as_deref(),
                parameters: &spec.parameters,
            })
            .collect();
        let ask = ToolFilterAsk { model, depth: self.depth, tools: &tools };
        let answer = catch_unwind(AssertUnwindSafe(|| self.filter.filter(&ask))).unwrap_or_else(|_| {
            let all = tools.iter().map(|tool| (tool.name.to_owned(), BROKE_DOWN.to_owned()));
            let notices = vec![format!("No tool is offered: {BROKE_DOWN}.")];
            ToolFilterAnswer { removed: all.collect(), notices }
        });
        let names: HashSet<&str> = tools.iter().map(|tool| tool.name).collect();
        let removed = answer.removed.into_iter().filter(|(name, _)| names.contains(&**name)).collect();
        set.remove(removed);
        (set, answer.notices)
    }
}
