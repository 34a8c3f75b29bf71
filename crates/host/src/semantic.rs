//! Semantic search: the embedding model of the settings, and the cost of its vectors.

use std::sync::Arc;
use std::time::Duration;

use quipu::{Embedder, Engine, SemanticError, SemanticIndexReport};
use quipu_protocol::{ModelErrorKind, Usage};
use quipu_store::{SearchHits, SearchQuery, SqliteStore, StoreError};

use crate::{Failure, FailureKind, Home};

/// How long a search makes vectors of what is new.
const PATIENCE: Duration = Duration::from_secs(2);

/// A semantic search: makes vectors of sealed texts and compares them.
pub struct SemanticSearch {
    embedder: Arc<dyn Embedder>,
    engine: Engine,
}

/// The work and the cost of a semantic search.
pub struct SemanticReport {
    /// What was made for it.
    pub indexed: SemanticIndexReport,
    /// Nodes whose texts were not compared.
    pub left: u64,
    /// Tokens and cost, with those of the query.
    pub usage: Usage,
}

impl From<SemanticError> for Failure {
    fn from(error: SemanticError) -> Self {
        match error {
            SemanticError::Store(error) => error.into(),
            SemanticError::Model(error) => model_failure(&error),
        }
    }
}

fn model_failure(error: &quipu_protocol::ModelError) -> Failure {
    let kind = match error.kind {
        ModelErrorKind::NoCredential | ModelErrorKind::Auth | ModelErrorKind::AuthRevoked => {
            FailureKind::Credential
        }
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
        if let Some(problem) = config.problem_of("search.semantic") {
            return Err(Failure::request(problem.to_string()));
        }
        if config.problems.iter().any(crate::settings::Problem::is_of_the_whole) && config.semantic.is_none()
        {
            return Err(Failure::request(format!(
                "{} cannot be read, so the model for semantic search is unknown",
                file.display()
            )));
        }
        let settings = config.semantic.clone();
        let Some(settings) = settings else {
            return Err(Failure::request(format!(
                "semantic search needs an embedding model: put {{\"search\": {{\"semantic\": \
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
    ) -> Result<(SearchHits, SemanticReport), Failure> {
        let (embedder, sealer) = (&*self.embedder, self.engine.sealer());
        let patience = (!wait).then_some(PATIENCE);
        let indexed = quipu::index_semantic(store, embedder, sealer, patience, tell).await;
        let indexed = match indexed {
            // What has vectors can be compared all the same.
            Err(SemanticError::Store(StoreError::ReadOnly { .. })) => SemanticIndexReport::default(),
            other => other?,
        };
        if query.words.trim().is_empty() {
            let (left, usage) = (indexed.left, indexed.usage);
            return Ok((SearchHits::default(), SemanticReport { indexed, left, usage }));
        }
        let made = quipu::semantic_search(store, embedder, sealer, query).await?;
        let mut usage = made.usage;
        usage.input = usage.input.saturating_add(indexed.usage.input);
        usage.cost.total += indexed.usage.cost.total;
        Ok((made.found, SemanticReport { indexed, left: made.left, usage }))
    }
}
