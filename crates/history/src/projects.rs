//! Which sessions beyond its own lineage the tools of a session may show.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Directories that are remembered at most.
const MOST: usize = 100;

/// The sessions of one directory and those below it, and of others that a search was permitted in.
pub struct Projects {
    /// The directory of the session, as sessions spell it.
    own: String,
    permitted: Mutex<VecDeque<String>>,
}

impl Projects {
    /// Those of a session that works in `own`.
    pub fn new(own: String) -> Self {
        Self { own, permitted: Mutex::default() }
    }

    /// The session's own directory, as it spells it.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// What a search was permitted in, its hits may be read of.
    pub fn permit(&self, directory: &str) {
        let mut permitted = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        if !permitted.iter().any(|known| known == directory) {
            permitted.push_back(directory.to_owned());
            if permitted.len() > MOST {
                permitted.pop_front();
            }
        }
    }

    /// Whether a session that works in this directory may be shown.
    pub fn shows(&self, cwd: &str) -> bool {
        let permitted = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        // Everything lies below the root of the file system: whoever works there has no project but that directory itself.
        let is_own = match Path::new(&self.own).parent() {
            Some(_) => Path::new(cwd).starts_with(&self.own),
            None => !self.own.is_empty() && cwd == self.own,
        };
        is_own
            || permitted
                .iter()
                .any(|directory| !directory.is_empty() && Path::new(cwd).starts_with(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_the_file_system_is_no_project_of_all() {
        let check = |own: &str, cwd: &str, shows: bool| {
            assert_eq!(Projects::new(own.into()).shows(cwd), shows, "{cwd} from {own}");
        };
        check("/w", "/w/a", true);
        check("/w", "/ww", false);
        check("/", "/w", false);
        check("/", "/", true);
        check("", "", false);
        check("", "/w", false);
        // What a person permits is permitted.
        let projects = Projects::new("/".into());
        projects.permit("/");
        assert!(projects.shows("/w"));
    }
}
