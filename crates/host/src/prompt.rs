//! The system prompt of a session.

use std::path::{Path, PathBuf};

use quipu::Engine;

use crate::{Failure, OpenRequest, Place};

/// The system prompt; `None` keeps that of a session that goes on.
pub(crate) async fn system(
    place: &Place,
    engine: &Engine,
    request: &OpenRequest,
    cwd: &Path,
    resumed: bool,
) -> Result<Option<String>, Failure> {
    let asked = request.system_prompt.is_some() || !request.append_system_prompt.is_empty();
    if resumed && !asked {
        return Ok(None);
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
    Ok(Some(quipu::system_prompt(base, &request.append_system_prompt, &rules, cwd)))
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
