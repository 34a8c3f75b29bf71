//! The models of several sources, put together.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use quipu_protocol::Model;

use super::{ModelSource, ModelSourceError};
use crate::Warning;
use crate::failure::quote;

/// Models of one source at most.
pub const MAX_MODELS_PER_SOURCE: usize = 5_000;
/// Bytes of one model at most, as JSON.
pub const MAX_MODEL_BYTES: usize = 64 << 10;
/// How long a source may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Models that a notice names at most.
const NAMED: usize = 3;

/// A model, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedModel {
    /// The model, with prices and limits where they are known.
    pub model: Arc<Model>,
    /// The name of its source.
    pub source: Arc<str>,
}

/// What sources gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatheredModels {
    /// Their models, in the order of the sources; each once.
    pub models: Vec<SourcedModel>,
    /// What a person should know: one notice for each source that failed, gave too much or something that cannot be
    /// used, or models that an earlier source has.
    pub notices: Vec<Warning>,
}

/// Sources in their order. Clones share what the sources gave last.
#[derive(Clone)]
pub struct ModelSources {
    sources: Vec<Arc<dyn ModelSource>>,
    patience: Duration,
    last: Arc<Mutex<GatherState>>,
}

/// The last answer of each source, by its position, and the merged result.
#[derive(Default)]
struct GatherState {
    given: HashMap<usize, (u64, Arc<SourceModels>)>,
    gathered: Arc<GatheredModels>,
}

/// The usable models of one source, and the problem with the rest.
struct SourceModels {
    models: Vec<Arc<Model>>,
    problem: Option<String>,
}

impl Default for ModelSources {
    fn default() -> Self {
        Self { sources: Vec::new(), patience: PATIENCE, last: Arc::default() }
    }
}

impl fmt::Debug for ModelSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|source| source.name())).finish()
    }
}

impl ModelSources {
    /// The same, with this source behind the others.
    #[must_use]
    pub fn with(self, source: impl ModelSource) -> Self {
        self.with_shared(Arc::new(source))
    }

    /// The same, with this source behind the others.
    #[must_use]
    pub fn with_shared(mut self, source: Arc<dyn ModelSource>) -> Self {
        self.sources.push(source);
        // What was gathered is of fewer.
        self.last = Arc::default();
        self
    }

    /// The same, where each source may take so long.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// What was gathered last, without asking anybody.
    pub fn gathered(&self) -> Arc<GatheredModels> {
        self.last().gathered.clone()
    }

    fn last(&self) -> MutexGuard<'_, GatherState> {
        // Nothing can break down while it is held.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the sources whose version is another than before, all at once, and puts everything together. A source that
    /// fails is asked again the next time.
    pub async fn gather(&self) -> Arc<GatheredModels> {
        if self.is_empty() {
            return self.gathered();
        }
        let given =
            join_all(self.sources.iter().enumerate().map(|(place, source)| self.ask(place, source))).await;
        let mut all = GatheredModels::default();
        let mut owners: HashMap<(String, String), Arc<str>> = HashMap::new();
        for (source, given) in self.sources.iter().zip(given) {
            let name: Arc<str> = quote(source.name()).into();
            let mut lost = ShadowedModels::default();
            for model in &given.models {
                let key = (model.provider.clone(), model.id.clone());
                match owners.get(&key) {
                    Some(owner) => lost.add(model, owner),
                    None => {
                        owners.insert(key, name.clone());
                        all.models.push(SourcedModel { model: model.clone(), source: name.clone() });
                    }
                }
            }
            let problem = given.problem.clone();
            let summary: Vec<_> = problem.into_iter().chain(lost.summary()).collect();
            if !summary.is_empty() {
                all.notices.push(Warning(format!("The model source `{name}`: {}.", summary.join("; "))));
            }
        }
        let all = Arc::new(all);
        self.last().gathered = all.clone();
        all
    }

    async fn ask(&self, place: usize, source: &Arc<dyn ModelSource>) -> Arc<SourceModels> {
        let version = source.version();
        let known = self.last().given.get(&place).filter(|(known, _)| *known == version).cloned();
        if let Some((_, given)) = known {
            return given;
        }
        let asked = AssertUnwindSafe(async { source.models().await }).catch_unwind();
        let answer = match tokio::time::timeout(self.patience, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ModelSourceError::Panicked),
            Err(_) => Err(ModelSourceError::TimedOut(self.patience)),
        };
        match answer {
            Ok(models) => {
                let given = Arc::new(usable(models));
                self.last().given.insert(place, (version, given.clone()));
                given
            }
            Err(error) => {
                let problem = quote(&error.to_string()).trim_end_matches('.').to_owned();
                Arc::new(SourceModels {
                    models: Vec::new(),
                    problem: Some(format!("it gave no models: {problem}")),
                })
            }
        }
    }
}

/// Models that an earlier source already provides.
#[derive(Default)]
struct ShadowedModels {
    count: usize,
    named: Vec<String>,
}

impl ShadowedModels {
    fn add(&mut self, model: &Model, owner: &str) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(quote(&format!("{}/{} (of `{owner}`)", model.provider, model.id)));
        }
    }

    fn summary(&self) -> Option<String> {
        let more = self.count.saturating_sub(self.named.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = self.named.join(", ");
        (self.count > 0).then(|| format!("earlier sources already have {named}{more}; those are used"))
    }
}

/// What can be used of what a source gave.
fn usable(mut models: Vec<Model>) -> SourceModels {
    let beyond = models.len().saturating_sub(MAX_MODELS_PER_SOURCE);
    models.truncate(MAX_MODELS_PER_SOURCE);
    let before = models.len();
    let has_form = |model: &Model| {
        let named = [&model.id, &model.provider].iter().all(|name| !name.trim().is_empty());
        let size = serde_json::to_vec(model).map_or(usize::MAX, |json| json.len());
        named && size <= MAX_MODEL_BYTES
    };
    models.retain(has_form);
    let odd = before - models.len();
    let mut problems = Vec::new();
    if beyond > 0 {
        problems.push(format!("{beyond} models beyond the limit of {MAX_MODELS_PER_SOURCE} are ignored"));
    }
    if odd > 0 {
        problems.push(format!(
            "{odd} models are ignored: they have no id or provider, or more than {MAX_MODEL_BYTES} bytes"
        ));
    }
    let problem = (!problems.is_empty()).then(|| problems.join("; "));
    SourceModels { models: models.into_iter().map(Arc::new).collect(), problem }
}
