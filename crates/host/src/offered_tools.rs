//! Tools that a session offers by the model that it begins with, and by the user's settings.

use std::sync::Arc;

use quipu::Tool;
use quipu_protocol::{Epoch, Model};
use quipu_providers::{CallOptions, SearchSupport, WebSearch, is_trained_on_patches, search_support};
use quipu_tools::{ApplyPatch, Find, Grep, Ls};

/// Whether models get `apply_patch` in the place of `edit` and `write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatchTool {
    /// Those that were trained on it.
    #[default]
    Auto,
    /// All models.
    On,
    /// None.
    Off,
}

impl PatchTool {
    /// The value of a word of the settings; the default for another one.
    pub(crate) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("on") => Self::On,
            Some("off") => Self::Off,
            Some(_) | None => Self::Auto,
        }
    }

    /// Whether a session with this model has it. One that goes on with its model keeps what it had, so that its requests
    /// begin as before.
    fn is_used(self, model: &Model, last: Option<&Epoch>) -> bool {
        match (self, last) {
            (Self::On, _) => true,
            (Self::Off, _) => false,
            (Self::Auto, Some(last)) if is_of(last, model) && !last.tools.is_empty() => {
                last.tools.iter().any(|tool| tool.name == ApplyPatch::NAME)
            }
            (Self::Auto, _) => is_trained_on_patches(model),
        }
    }
}

fn is_of(epoch: &Epoch, model: &Model) -> bool {
    epoch.provider == model.provider && epoch.model == model.id
}

/// Puts `apply_patch` in the place of `edit` and `write`, where the session has it.
pub(crate) fn with_patch_tool(
    tools: &mut Vec<Arc<dyn Tool>>,
    setting: PatchTool,
    model: &Model,
    last: Option<&Epoch>,
) {
    if setting.is_used(model, last) {
        tools.retain(|tool| !matches!(tool.spec().name.as_str(), "edit" | "write"));
        tools.push(Arc::new(ApplyPatch::new()));
    }
}

/// The tools that the setting `tools` can name. `edit` and `write` stand for `apply_patch` too.
pub const LISTED_TOOLS: &[&str] = &["read", "bash", "edit", "write", "grep", "find", "ls", "web_fetch"];

/// Leaves the built-in tools that a list names, and adds those that no session has by default.
pub(crate) fn with_listed_tools(tools: &mut Vec<Arc<dyn Tool>>, names: Option<&[String]>) {
    let Some(names) = names else { return };
    let is_listed = |name: &str| names.iter().any(|listed| listed == name);
    tools.retain(|tool| match tool.spec().name.as_str() {
        ApplyPatch::NAME => is_listed("edit") || is_listed("write"),
        name => !LISTED_TOOLS.contains(&name) || is_listed(name),
    });
    let more: [(&str, Arc<dyn Tool>); 3] =
        [("grep", Arc::new(Grep::new())), ("find", Arc::new(Find::new())), ("ls", Arc::new(Ls::new()))];
    tools.extend(more.into_iter().filter(|(name, _)| is_listed(name)).map(|(_, tool)| tool));
}

/// What to say where the user wants a search and the model has none.
pub(crate) fn missing_search(options: &CallOptions, model: &Model) -> Option<String> {
    if options.web_search == WebSearch::Off {
        return None;
    }
    let name = format!("{}/{}", model.provider, model.id);
    match search_support(model) {
        SearchSupport::Yes => None,
        SearchSupport::NotBesideTools => {
            Some(format!("{name} cannot search the web beside other tools. The session has no web search."))
        }
        SearchSupport::No => {
            Some(format!("{name} has no web search of its provider. The session has no web search."))
        }
    }
}
