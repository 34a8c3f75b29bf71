//! The system prompt of a session.

use std::path::PathBuf;
use std::sync::Arc;

use quipu::{ContextSource, Engine, RulesSource, SessionOptions};

use crate::{Failure, OpenRequest, Place};

/// Puts the system prompt into the options, with the project's rules as a source of it. A session that goes on keeps its own,
/// with the rules as they were.
pub(crate) async fn put_system(
    options: &mut SessionOptions,
    place: &Place,
    engine: &Engine,
    request: &OpenRequest,
    resumed: bool,
) -> Result<(), Failure> {
    let cwd = &*options.cwd;
    let asked = request.system_prompt.is_some() || !request.append_system_prompt.is_empty();
    if resumed && !asked {
        options.system = None;
        return Ok(());
    }
    let base = request.system_prompt.as_deref().unwrap_or(quipu::SYSTEM_PROMPT);
    let (rules, problems) = if request.no_context_files {
        Default::default()
    } else {
        let (rules, problems) = quipu::find_rules(&place.home, cwd, &rules_above(place));
        let rules = crate::rules::accepted_rules(place, engine, cwd, rules).await?;
        (rules, problems)
    };
    for problem in problems {
        place.warn(problem);
    }
    options.system = Some(quipu::system_base(base, &request.append_system_prompt));
    options.system_end = Some(quipu::system_end(cwd));
    if !rules.is_empty() {
        let rules: Arc<dyn ContextSource> = Arc::new(RulesSource::new(rules));
        options.context_sources.insert(0, rules);
    }
    Ok(())
}

/// Directories above a repository whose rules the user accepts.
fn rules_above(place: &Place) -> Vec<PathBuf> {
    let named = |text: &String| {
        let path = match text.strip_prefix('~') {
            Some(rest) => std::env::home_dir()?.join(rest.trim_start_matches('/')),
            None => PathBuf::from(text),
        };
        Some(path.canonicalize().unwrap_or(path))
    };
    place.config().rules_above.iter().filter_map(named).collect()
}
