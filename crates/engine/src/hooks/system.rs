//! What hooks say in the system prompt: a context source of its own, with a section for each hook.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use quipu_protocol::Trust;

use super::{HOOK_TEXT, Hook};
use crate::sources::{Context, ContextAsk, ContextSource, Section, SourceError, SourceVersion};

/// The source, as records name it.
pub(crate) const HOOKS: &str = "hooks";

/// What the hooks of a session say in its system prompt.
pub(crate) struct HookSections {
    /// The hooks, in the order of the prompt.
    names: Vec<String>,
    texts: Mutex<BTreeMap<String, String>>,
    version: SourceVersion,
}

impl HookSections {
    /// Those of hooks that are installed, with what the record of the session has of them.
    pub(crate) fn new(hooks: &[Arc<dyn Hook>], recorded: BTreeMap<String, String>) -> Self {
        let names: Vec<String> = hooks.iter().map(|hook| hook.name().to_owned()).collect();
        let texts = recorded.into_iter().filter(|(hook, _)| names.contains(hook)).collect();
        Self { names, texts: Mutex::new(texts), version: SourceVersion::new() }
    }

    /// From the next request on, `hook` says this; nothing where it is empty. Gives whether that is something else.
    pub(crate) fn set(&self, hook: &str, text: &str) -> bool {
        let mut texts = self.texts();
        let changed = match text.trim().is_empty() {
            true => texts.remove(hook).is_some(),
            false => texts.insert(hook.to_owned(), text.to_owned()).is_none_or(|before| before != text),
        };
        drop(texts);
        if changed {
            self.version.change();
        }
        changed
    }

    fn texts(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // Nothing can break down while it is held.
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContextSource for HookSections {
    fn name(&self) -> &str {
        HOOKS
    }

    fn version(&self) -> SourceVersion {
        self.version.clone()
    }

    fn limit(&self) -> usize {
        HOOK_TEXT.saturating_mul(self.names.len())
    }

    fn context<'a>(&'a self, _: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        let texts = self.texts();
        let section = |hook: &String| {
            let text = texts.get(hook)?.clone();
            Some(Section { id: hook.clone(), text, trust: Trust::Owner })
        };
        let sections = self.names.iter().filter_map(section).collect();
        Box::pin(std::future::ready(Ok(Context { sections, keep_recent: None })))
    }
}
