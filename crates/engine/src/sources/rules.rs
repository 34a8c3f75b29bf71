//! The project's rules as a context source.

use futures_util::future::BoxFuture;

use super::{Context, ContextAsk, ContextSource, Section, SourceError};
use crate::context::{Rules, rules_text};

/// Bytes of rules at most: sixteen files of the size of which a whole one is read.
const LIMIT: usize = 16 << 20;

/// Files of rules, such as [`find_rules`](crate::find_rules) finds, as sections of the system prompt.
///
/// They are what they were when they were read. A file that changes while a session is open, or between two of its
/// processes, changes no request of it: the bytes that were sent stay.
///
/// ```
/// use std::sync::Arc;
///
/// use quipu::{RulesSource, Script, SessionOptions, find_rules, protocol::Model, system_base, system_end};
///
/// # let script = Arc::new(Script::new(Vec::new()));
/// # let directory = std::env::temp_dir().join("quipu-no-rules-here");
/// let (rules, problems) = find_rules(&directory.join("home"), &directory, &[]);
/// let options = SessionOptions {
///     system: Some(system_base(quipu::SYSTEM_PROMPT, &[])),
///     context_sources: vec![Arc::new(RulesSource::new(rules))],
///     system_end: Some(system_end(&directory)),
///     ..SessionOptions::new(directory, Arc::new(Model::default()), script)
/// };
/// # assert!(problems.is_empty() && options.context_sources.len() == 1);
/// ```
#[derive(Debug, Clone)]
pub struct RulesSource(Vec<Rules>);

impl RulesSource {
    /// What the source is called.
    pub const NAME: &'static str = "rules";

    /// These files, in this order.
    pub fn new(rules: Vec<Rules>) -> Self {
        Self(rules)
    }
}

impl ContextSource for RulesSource {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn limit(&self) -> usize {
        LIMIT
    }

    fn context<'a>(&'a self, _: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        let section = |rules: &Rules| Section {
            id: rules.path.display().to_string(),
            text: rules_text(rules),
            trust: rules.trust,
        };
        let sections = self.0.iter().map(section).collect();
        Box::pin(std::future::ready(Ok(Context { sections, keep_recent: None })))
    }
}
