//! The files of rules that count in a directory, in the order in which a prompt has them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quipu::Rules;
use quipu_protocol::Trust;

use super::set::ResourceSet;
use crate::Home;
use crate::settings::project_root;

/// Directories above a repository whose rules the user accepts.
pub(crate) fn rules_above(home: &Home) -> Vec<PathBuf> {
    let named = |text: &String| {
        let path = match text.strip_prefix('~') {
            Some(rest) => std::env::home_dir()?.join(rest.trim_start_matches('/')),
            None => PathBuf::from(text),
        };
        Some(path.canonicalize().unwrap_or(path))
    };
    home.config().rules_above.iter().filter_map(named).collect()
}

/// The files of rules for a directory, and what is wrong with others: our own and those of other agents that belong to the user, then
/// those of the project, unless a person refused it. A text that another file has already is left out.
pub fn found_rules(home: &Home, cwd: &Path, set: &ResourceSet) -> (Vec<Rules>, Vec<String>) {
    let above = rules_above(home);
    let (mut rules, mut problems) = quipu::find_rules(&home.dir, cwd, &above);
    let root = project_root(cwd);
    if set.leaves_project {
        rules.retain(|one| one.trust == Trust::Owner || !one.path.starts_with(root));
    }
    let (project, own): (Vec<PathBuf>, Vec<PathBuf>) =
        set.rules.iter().cloned().partition(|path| path.starts_with(root));
    for (others, more) in [quipu::read_own_rules(&own), quipu::read_project_rules(root, &project, &above)] {
        problems.extend(more);
        for one in others {
            let at = match one.trust {
                Trust::Owner => {
                    rules.iter().rposition(|known| known.trust == Trust::Owner).map_or(0, |at| at + 1)
                }
                Trust::Project | Trust::Untrusted => rules.len(),
            };
            rules.insert(at, one);
        }
    }
    let mut texts = BTreeSet::new();
    rules.retain(|one| texts.insert(one.text.clone()));
    (rules, problems)
}
