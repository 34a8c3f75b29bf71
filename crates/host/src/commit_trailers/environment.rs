//! What commands get by their environment, so that their commits name their node.

use std::path::PathBuf;

use quipu::{CommandEnvironment, CommandEnvironmentError, CommandOrigin};

use super::consent::{self, ConsentFile};
use super::consented_repository::ConsentedRepository;
use super::hooks::{self, HookFiles};
use super::{NODE_TRAILER, TRAILER_DIGITS};
use crate::Home;
use crate::state_file::StateFile;

/// How many entries of git's settings stand in the environment.
const COUNT: &str = "GIT_CONFIG_COUNT";

/// Gives commands the node whose call starts them, where the user consented for any repository.
#[derive(Debug)]
pub(crate) struct CommitTrailers {
    file: StateFile,
    hooks: HookFiles,
}

impl CommitTrailers {
    pub(crate) fn of(home: &Home) -> Self {
        Self { file: consent::file(home), hooks: HookFiles::of(home) }
    }

    /// What confined commands must be able to read.
    pub(crate) fn readable(home: &Home) -> Option<PathBuf> {
        ConsentFile::has_any(&consent::file(home)).then(|| hooks::directory(home))
    }
}

impl CommandEnvironment for CommitTrailers {
    fn applies(&self) -> bool {
        ConsentFile::has_any(&self.file)
    }

    fn variables(
        &self,
        origin: &CommandOrigin<'_>,
    ) -> Result<Vec<(String, String)>, CommandEnvironmentError> {
        let failed = |why: String| {
            CommandEnvironmentError(format!("Commits of this command get no {NODE_TRAILER} trailer: {why}."))
        };
        let consents: ConsentFile = self.file.read().map_err(|error| failed(error.message))?;
        if !consents.repositories.iter().any(ConsentedRepository::is_there) {
            return Ok(Vec::new());
        }
        self.hooks
            .write(&consents.repositories, Some(origin.cwd))
            .map_err(|error| failed(format!("{} cannot be used: {error}", self.hooks.config().display())))?;
        let changed = origin.env.iter().rev().find(|(name, _)| name == COUNT);
        let inherited = match changed {
            Some((_, value)) => value.clone(),
            None => std::env::var(COUNT).ok(),
        };
        let inherited = inherited.unwrap_or_default();
        let count: u32 = match inherited.as_str() {
            "" => 0,
            count => count.parse().map_err(|_| failed(format!("{COUNT} is {count:?}, which is no count")))?,
        };
        let node = origin.node.to_string();
        let config = self.hooks.config().display().to_string();
        Ok(vec![
            (COUNT.to_owned(), (count + 1).to_string()),
            (format!("GIT_CONFIG_KEY_{count}"), "include.path".to_owned()),
            (format!("GIT_CONFIG_VALUE_{count}"), config),
            // What git would read without Quipu.
            ("QUIPU_GIT_CONFIG_COUNT".to_owned(), count.to_string()),
            ("QUIPU_NODE".to_owned(), node.chars().take(TRAILER_DIGITS).collect()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::SilentObserver;
    use crate::commit_trailers::{Repository, TrailerConsent};

    #[test]
    fn trailers_apply_as_long_as_there_is_a_consent() {
        let root = tempfile::tempdir().unwrap();
        let made =
            std::process::Command::new("git").args(["init", "-q"]).current_dir(&root).status().unwrap();
        assert!(made.success());
        let home = Home::at(root.path().join("home"), Arc::new(SilentObserver));
        std::fs::create_dir(&home.dir).unwrap();
        let (trailers, consent) = (CommitTrailers::of(&home), TrailerConsent::of(&home));
        let applies = || (trailers.applies(), CommitTrailers::readable(&home).is_some());
        assert_eq!(applies(), (false, false));
        let repository = Repository::of(root.path()).unwrap();
        consent.enable(&repository).unwrap();
        assert_eq!(applies(), (true, true));
        assert!(!consent.disable(Path::new("/elsewhere")).unwrap());
        assert!(consent.disable(repository.directory()).unwrap());
        assert_eq!(applies(), (false, false));
        std::fs::write(home.dir.join("git.json"), "{").unwrap();
        assert_eq!(applies(), (true, true));
    }
}
