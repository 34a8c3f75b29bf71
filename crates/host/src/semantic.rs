//! Search by meaning: what makes the vectors, and what it took.

use std::sync::Arc;
use std::time::Duration;

use quipu::{Embedder, Engine, MeaningError, MeaningIndexed};
use quipu_protocol::{ModelErrorKind, Usage};
use quipu_store::{Found, SearchQuery, SqliteStore, StoreError};

use crate::{Failure, FailureKind, Home};

/// How long a search makes vectors of what is new.
const PATIENCE: Duration = Duration::from_secs(2);

/// Searches by meaning: makes vectors of sealed texts and compares them.
pub struct SemanticSearch {
    embedder: Arc<dyn Embedder>,
    engine: Engine,
}

/// The work and the cost of a search by meaning.
pub struct SemanticReport {
    /// What was made for it.
    pub indexed: MeaningIndexed,
    /// Nodes whose texts were not compared.
    pub left: u64,
    /// Tokens and cost, with those of the query.
    pub usage: Usage,
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
    let kind = match error.kind {
        ModelErrorKind::NoCredential | ModelErrorKind::Auth => FailureKind::Credential,
        ModelErrorKind::InvalidRequest => FailureKind::Request,
        _ => FailureKind::Failed,
    };
    Failure::new(kind, format!("semantic search failed: {error}"))
}

impl SemanticSearch {
    /// As the settings say.
    ///
    /// # Errors
    /// `Request` where they say nothing; `Credential`.
    pub fn of(home: &Home, store: Arc<SqliteStore>) -> Result<Self, Failure> {
        let file = home.settings_path();
        let config = home.config();
        if let Some(problem) = config.problem_of("search.meaning") {
            return Err(Failure::request(problem.to_string()));
        }
        if config.problems.iter().any(crate::settings::Problem::is_of_the_whole) && config.meaning.is_none() {
            return Err(Failure::request(format!(
                "{} cannot be read, so the model for semantic search is unknown",
                file.display()
            )));
        }
        let settings = config.meaning.clone();
        let Some(settings) = settings else {
            return Err(Failure::request(format!(
                "semantic search needs an embedding model: put {{\"search\": {{\"meaning\": \
                 {{\"path\": \"DIRECTORY\"}}}}}} of a static model into {}, or \"endpoint\" and \"model\" of a server. Quipu then sends the texts of your sessions to that server",
                file.display()
            )));
        };
        let models = home.settings();
        let embedder = models.embedder(&settings).map_err(|error| model_failure(&error))?;
        let engine = home.engine(store, &models)?;
        Ok(Self { embedder, engine })
    }

    /// Makes vectors of what is new, all of it where `wait` says so, and searches; without words it ends there. How many nodes
    /// are left is told meanwhile.
    ///
    /// # Errors
    /// Of the store, and of what makes vectors.
    pub async fn search(
        &self,
        store: &SqliteStore,
        query: SearchQuery,
        wait: bool,
        tell: impl Fn(u64),
    ) -> Result<(Found, SemanticReport), Failure> {
        let (embedder, sealer) = (&*self.embedder, self.engine.sealer());
        let patience = (!wait).then_some(PATIENCE);
        let indexed = quipu::index_meaning(store, embedder, sealer, patience, tell).await;
        let indexed = match indexed {
            // What has vectors can be compared all the same.
            Err(MeaningError::Store(StoreError::ReadOnly { .. })) => MeaningIndexed::default(),
            other => other?,
        };
        if query.words.trim().is_empty() {
            let (left, usage) = (indexed.left, indexed.usage);
            return Ok((Found::default(), SemanticReport { indexed, left, usage }));
        }
        let made = quipu::search_by_meaning(store, embedder, sealer, query).await?;
        let mut usage = made.usage;
        usage.input = usage.input.saturating_add(indexed.usage.input);
        usage.cost.total += indexed.usage.cost.total;
        Ok((made.found, SemanticReport { indexed, left: made.left, usage }))
    }
}
