//! Rules of directories below the one of a session, and rules for some paths: they follow the result of the first tool that works there, so
//! that what was sent before stays as it was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use quipu::{CompactionRequest, CompactionVerdict, Hook, HookContext, HookError, ResultVerdict};
use quipu_protocol::{ToolCall, ToolResultMessage};
use quipu_store::Graph;

use super::frontmatter::split;
use super::path_rules::PathRules;
use super::places::ResourceScope;
use super::set::ResourceSet;
use crate::Home;
use crate::rules::accepted_rules;
use crate::settings::project_root;

/// Bytes of rules that follow one result.
const MOST_BYTES: usize = 32 << 10;
/// The members of arguments that name what a tool works on.
const PATHS: [&str; 2] = ["path", "file_path"];

/// A hook that gives the model the rules of a directory once it works there.
pub(crate) struct NestedRules {
    home: Home,
    store: Arc<dyn Graph>,
    cwd: PathBuf,
    above: Vec<PathBuf>,
    path_rules: Vec<PathRules>,
    leaves_project: bool,
    /// True paths of files that the model has.
    known: Mutex<BTreeSet<PathBuf>>,
}

impl NestedRules {
    pub(crate) fn new(
        home: &Home,
        store: Arc<dyn Graph>,
        cwd: &Path,
        above: Vec<PathBuf>,
        resources: &ResourceSet,
    ) -> Self {
        Self {
            home: home.clone(),
            store,
            cwd: cwd.to_owned(),
            above,
            path_rules: resources.path_rules.clone(),
            leaves_project: resources.leaves_project,
            known: Mutex::default(),
        }
    }

    /// The true path that a call works on, in the project of the session.
    fn path_of(&self, call: &ToolCall) -> Option<PathBuf> {
        let arguments = call.arguments.value();
        let path = PATHS.iter().find_map(|name| arguments.get(name)?.as_str())?;
        let path = self.cwd.join(path).canonicalize().ok()?;
        path.starts_with(project_root(&self.cwd)).then_some(path)
    }

    /// The rules that count for a path, whether the model has them or not.
    fn found(&self, path: &Path) -> Vec<quipu::Rules> {
        let mut rules = match self.leaves_project {
            true => Vec::new(),
            false => quipu::find_rules_below(&self.cwd, path, &self.above).0,
        };
        let root = project_root(&self.cwd);
        for one in self.path_rules.iter().filter(|one| one.fits(root, path)) {
            let file = [one.path.clone()];
            let (read, _) = match one.scope {
                ResourceScope::User => quipu::read_own_rules(&file),
                ResourceScope::Project | ResourceScope::Package => {
                    quipu::read_project_rules(root, &file, &self.above)
                }
            };
            rules.extend(read.into_iter().map(|mut rules| {
                if let Ok((_, text)) = split(&rules.text) {
                    rules.text = text.trim().to_owned();
                }
                rules
            }));
        }
        rules
    }

    async fn rules_for(&self, call: &ToolCall) -> Option<String> {
        let path = self.path_of(call)?;
        let rules = self.found(&path);
        let new: Vec<_> = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            rules.into_iter().filter(|one| known.insert(one.path.clone())).collect()
        };
        if new.is_empty() {
            return None;
        }
        let rules = accepted_rules(&self.home, &*self.store, &self.cwd, new).await.ok()?;
        let mut text = String::new();
        for one in &rules {
            let section = quipu::rules_text(one);
            if text.len() + section.len() > MOST_BYTES {
                text.push_str(&format!(
                    "\n\nThere are more rules for this: read {} before you change it.",
                    one.path.display()
                ));
            } else {
                text.push_str("\n\n");
                text.push_str(&section);
            }
        }
        (!text.is_empty()).then(|| format!("\n\nRules for this part of the project:{text}"))
    }
}

impl Hook for NestedRules {
    fn name(&self) -> &str {
        "rules of subdirectories and paths"
    }

    fn tool_result<'a>(
        &'a self,
        call: &'a ToolCall,
        result: &'a ToolResultMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        Box::pin(async move {
            if result.is_error {
                return Ok(ResultVerdict::Pass);
            }
            Ok(self.rules_for(call).await.map_or(ResultVerdict::Pass, ResultVerdict::Append))
        })
    }

    fn before_compaction<'a>(
        &'a self,
        _: &'a CompactionRequest,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        // What is summed up is given again.
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Box::pin(std::future::ready(Ok(CompactionVerdict::Pass)))
    }
}
