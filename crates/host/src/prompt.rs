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
        let (above, mut problems) = rules_above(place);
        let (rules, more) = quipu::find_rules(&place.home, cwd, &above);
        problems.extend(more);
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

/// Directories above a repository whose rules the user accepts: `rules.above`, and what is wrong there.
fn rules_above(place: &Place) -> (Vec<PathBuf>, Vec<String>) {
    let settings = place.settings_json().unwrap_or_default();
    let said = &settings["rules"]["above"];
    let wrong = || {
        let path = place.home.join("settings.json");
        vec![format!("{}: rules.above must be a list of directories, such as [\"~/work\"]", path.display())]
    };
    if said.is_null() {
        return Default::default();
    }
    let Some(list) = said.as_array() else { return (Vec::new(), wrong()) };
    let named = |one: &serde_json::Value| {
        let text = one.as_str()?;
        let path = match text.strip_prefix("~") {
            Some(rest) => std::env::home_dir()?.join(rest.trim_start_matches('/')),
            None => PathBuf::from(text),
        };
        path.is_absolute().then(|| path.canonicalize().unwrap_or(path))
    };
    let above: Vec<PathBuf> = list.iter().filter_map(named).collect();
    let problems = if above.len() == list.len() { Vec::new() } else { wrong() };
    (above, problems)
}
