//! Models that come from elsewhere: sources, and their models put together.
//!
//! What is built in, what `models.json` says and what listens on this machine are sources like any other
//! ([`Settings::model_sources`](crate::Settings::model_sources)).

mod foreign;
mod gather;
mod own;

use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::Model;

pub(crate) use foreign::{literal, obstacle};
pub use gather::{GatheredModels, MAX_MODEL_BYTES, MAX_MODELS_PER_SOURCE, ModelSources, SourcedModel};
pub(crate) use own::OwnModels;

/// Gives models that can be chosen.
///
/// Sources are asked all at once, for ten seconds at most. One that fails gives a notice, and the others stand. Of two
/// models with the same provider and id the one of the earlier source counts.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use quipu_protocol::Model;
/// use quipu_providers::{ModelSource, ModelSourceError, ModelSources};
///
/// struct Company;
///
/// impl ModelSource for Company {
///     fn name(&self) -> &str {
///         "company list"
///     }
///
///     fn version(&self) -> u64 {
///         1
///     }
///
///     fn models<'a>(&'a self) -> BoxFuture<'a, Result<Vec<Model>, ModelSourceError>> {
///         Box::pin(async {
///             Ok(vec![Model {
///                 id: "house-model".into(),
///                 provider: "company".into(),
///                 api: "openai-completions".into(),
///                 base_url: "https://llm.company.example/v1".into(),
///                 ..Model::default()
///             }])
///         })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let sources = ModelSources::default().with(Company);
/// let gathered = sources.gather().await;
/// assert_eq!(gathered.models[0].model.id, "house-model");
/// assert_eq!(&*gathered.models[0].source, "company list");
/// # });
/// ```
pub trait ModelSource: Send + Sync + 'static {
    /// What it is called, for people.
    fn name(&self) -> &str;

    /// Another number whenever [`ModelSource::models`] would give something else. It is not asked again while this stays.
    fn version(&self) -> u64;

    /// Its models. Must not block its thread.
    ///
    /// # Errors
    /// [`ModelSourceError::Unavailable`].
    fn models<'a>(&'a self) -> BoxFuture<'a, Result<Vec<Model>, ModelSourceError>>;
}

/// Why a source gave no models.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelSourceError {
    /// They could not be had.
    #[error("{why}")]
    Unavailable {
        /// Why, for people.
        why: String,
    },
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The code of the source panicked; its models are missing.
    #[error("it panicked; this is a bug in the source")]
    Panicked,
}
