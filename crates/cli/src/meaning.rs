//! `quipu search --meaning`: what makes the vectors, and what it took.

use std::sync::Arc;
use std::time::Duration;

use quipu::{Embedder, Engine, MeaningError, MeaningIndexed};
use quipu_host::LocalStore;
use quipu_protocol::{ModelErrorKind, Usage};
use quipu_providers::EmbedderSettings;
use quipu_store::{Found, SearchQuery, StoreError};

use crate::exit::{Exit, Failure};
use crate::print::{Progress, dollars};
use quipu_host::Place;

/// How long a search makes vectors of what is new.
const PATIENCE: Duration = Duration::from_secs(2);

/// What makes vectors, and what seals the texts before.
pub(crate) struct Meaning {
    embedder: Arc<dyn Embedder>,
    engine: Engine,
}

/// What a search by meaning took.
pub(crate) struct Compared {
    indexed: MeaningIndexed,
    /// Nodes whose texts were not compared.
    left: u64,
    /// With that of the query.
    usage: Usage,
}

impl From<MeaningError> for Failure {
    fn from(error: MeaningError) -> Self {
        match error {
            MeaningError::Store(error) => error.into(),
            MeaningError::Model(error) => model_failure(&error),
        }
    }
}

fn model_failure(error: &quipu_protocol::ModelError) -> Failure {
    let exit = match error.kind {
        ModelErrorKind::NoCredential | ModelErrorKind::Auth => Exit::Credential,
        ModelErrorKind::InvalidRequest => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("the search by meaning failed: {error}"))
}

impl Meaning {
    /// As the settings say.
    pub(crate) fn of(place: &Place, store: Arc<LocalStore>) -> Result<Self, Failure> {
        let file = place.home.join("settings.json");
        let json = place.settings_json().map_err(|_| {
            Failure::usage(format!("{} cannot be read, so nothing says what makes vectors", file.display()))
        })?;
        let settings = EmbedderSettings::of_json(&json)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", file.display())))?;
        let Some(settings) = settings else {
            return Err(Failure::usage(format!(
                "a search by meaning needs a model that makes vectors of texts: put {{\"search\": {{\"meaning\": \
                 {{\"path\": \"DIRECTORY\"}}}}}} of a static model into {}, or \"endpoint\" and \"model\" of a \
                 server; the texts of your sessions are sent there then",
                file.display()
            )));
        };
        let models = place.settings();
        let embedder = models.embedder(&settings).map_err(|error| model_failure(&error))?;
        let engine = place.engine(store, &models)?;
        Ok(Self { embedder, engine })
    }

    /// Makes vectors of what is new, all of it where `wait` says so, and searches; without words it ends there.
    pub(crate) async fn search(
        &self,
        store: &LocalStore,
        query: SearchQuery,
        wait: bool,
    ) -> Result<(Found, Compared), Failure> {
        let (embedder, sealer) = (&*self.embedder, self.engine.sealer());
        let progress = wait.then(Progress::new);
        let told = |left: u64| {
            if let Some(progress) = &progress {
                progress.show(&format!("vectors: {left} nodes left"));
            }
        };
        let patience = (!wait).then_some(PATIENCE);
        let indexed = quipu::index_meaning(store, embedder, sealer, patience, told).await;
        drop(progress);
        let indexed = match indexed {
            // What has vectors can be compared all the same.
            Err(MeaningError::Store(StoreError::ReadOnly { .. })) => MeaningIndexed::default(),
            other => other?,
        };
        if query.words.trim().is_empty() {
            let (left, usage) = (indexed.left, indexed.usage);
            return Ok((Found::default(), Compared { indexed, left, usage }));
        }
        let made = quipu::search_by_meaning(store, embedder, sealer, query).await?;
        let mut usage = made.usage;
        usage.input = usage.input.saturating_add(indexed.usage.input);
        usage.cost.total += indexed.usage.cost.total;
        Ok((made.found, Compared { indexed, left: made.left, usage }))
    }
}

impl Compared {
    /// For programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "vectors": self.indexed.vectors, "left": self.left, "tokens": self.usage.input, "cost": self.usage.cost.total,
        })
    }

    /// For people: what was made, what it cost, and what is missing.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        if self.indexed.vectors > 0 {
            told.push(format!("{} vectors were made.", self.indexed.vectors));
        }
        if self.usage.input > 0 {
            let cost = match self.usage.cost.total {
                cost if cost > 0.0 => format!(", {}", dollars(cost)),
                _ => String::new(),
            };
            told.push(format!("{} tokens were read for it{cost}.", self.usage.input));
        }
        if self.left > 0 {
            told.push(format!(
                "What was said in {} nodes was not compared by its meaning yet; --wait does that first.",
                self.left
            ));
        }
        told
    }
}
