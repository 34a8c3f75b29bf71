//! The models and levels of thinking that people chose, in `model-choices.json`: sessions that begin later begin with them.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_protocol::{Thinking, UnixMs};
use quipu_providers::{level_name, parse_level};
use serde::{Deserialize, Serialize};

use crate::state_file::{State, StateFile};
use crate::{Failure, Home, now};

/// Directories, and models, at most; the oldest choice goes first.
const LIMIT: usize = 2_000;

/// The file. Models are `provider/id`.
#[derive(Debug, Serialize, Deserialize)]
struct ChoiceFile {
    version: u32,
    /// The model that was chosen last, in whichever directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    /// By the true path of the directory.
    #[serde(default)]
    directories: BTreeMap<String, DatedChoice>,
    /// Levels of thinking, by model.
    #[serde(default)]
    thinking: BTreeMap<String, DatedChoice>,
}

/// The name of a model or of a level, and when it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct DatedChoice {
    value: String,
    /// Milliseconds since the epoch.
    at: UnixMs,
}

impl Default for ChoiceFile {
    fn default() -> Self {
        Self { version: Self::VERSION, last: None, directories: BTreeMap::new(), thinking: BTreeMap::new() }
    }
}

impl State for ChoiceFile {
    const VERSION: u32 = 1;
    const RESET: &str = "forget which models you chose";

    fn version(&self) -> u32 {
        self.version
    }
}

/// What a person chose: a model, a level for the model that is chosen, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// The provider of the model that holds from now on.
    pub provider: String,
    /// Its id.
    pub id: String,
    /// Whether this model was chosen, or only a level for it.
    pub chosen: bool,
    /// The level that was chosen.
    pub thinking: Option<Thinking>,
}

/// Choices as they are kept now.
#[derive(Debug, Default)]
pub(crate) struct KeptChoices(ChoiceFile);

impl KeptChoices {
    /// Those of a home. A file that cannot be used is reported and left as it is.
    pub(crate) fn of(home: &Home) -> Self {
        Self(file(home).read().unwrap_or_else(|failure| {
            home.warn(failure.message);
            ChoiceFile::default()
        }))
    }

    /// The model that was chosen in a directory.
    pub(crate) fn in_directory(&self, cwd: &Path) -> Option<&str> {
        Some(&self.0.directories.get(cwd.to_str()?)?.value)
    }

    /// The model that was chosen last.
    pub(crate) fn last(&self) -> Option<&str> {
        self.0.last.as_deref()
    }

    /// The level that was chosen for a model.
    pub(crate) fn thinking(&self, provider: &str, id: &str) -> Option<Thinking> {
        parse_level(&self.0.thinking.get(&format!("{provider}/{id}"))?.value)
    }
}

/// Keeps what a person chose in `cwd`. A directory whose name is not text has no choice of its own.
///
/// # Errors
/// When the file cannot be read or written. It is never replaced where it cannot be read.
pub fn keep_model_choice(home: &Home, cwd: &Path, choice: &ModelChoice) -> Result<(), Failure> {
    let model = format!("{}/{}", choice.provider, choice.id);
    file(home).change(|saved: &mut ChoiceFile| {
        let mut changed = false;
        if choice.chosen {
            changed |= saved.last.as_ref() != Some(&model);
            saved.last = Some(model.clone());
            if let Some(directory) = cwd.to_str() {
                changed |= put(&mut saved.directories, directory, &model);
            }
        }
        if let Some(level) = choice.thinking {
            changed |= put(&mut saved.thinking, &model, level_name(level));
        }
        changed
    })
}

/// Whether this is something new.
fn put(choices: &mut BTreeMap<String, DatedChoice>, key: &str, value: &str) -> bool {
    if choices.get(key).is_some_and(|choice| choice.value == value) {
        return false;
    }
    choices.insert(key.to_owned(), DatedChoice { value: value.to_owned(), at: now() });
    while choices.len() > LIMIT {
        let oldest = choices.iter().min_by_key(|(_, choice)| choice.at).map(|(key, _)| key.clone());
        let Some(oldest) = oldest else { break };
        choices.remove(&oldest);
    }
    true
}

fn file(home: &Home) -> StateFile {
    StateFile::new(home.dir.join("model-choices.json"))
}
