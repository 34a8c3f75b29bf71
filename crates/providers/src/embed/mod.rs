//! Vectors of texts: near to each other where the texts mean the like.

mod bpe;
mod endpoint;
mod safetensors;
mod static_model;
mod tokenizer;
mod wordpiece;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelErrorKind, Usage};
use serde_json::Value;

pub use self::endpoint::EmbeddingEndpoint;
pub use self::static_model::{StaticModel, StaticModelError};
use crate::{Credentials, Settings};

/// Numbers of one vector at most.
pub const MAX_DIMENSIONS: usize = 8_192;

/// Something that makes vectors of texts.
pub trait Embedder: Send + Sync + 'static {
    /// What makes the vectors, on one line. Vectors of another id are not compared with these.
    fn id(&self) -> &str;

    /// Whether the texts stay on this machine.
    fn is_local(&self) -> bool;

    /// The vectors of the texts, in their order, all of the same length, with finite numbers. A text in which nothing is
    /// known has one without a direction: all zero. What is too long for the model may be cut.
    ///
    /// # Errors
    /// As calls of a model: `Network`, `Auth`, `RateLimited`, `Malformed`, and so on; `InvalidRequest` for a file of the
    /// model that is damaged.
    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Embeddings, ModelError>>;
}

/// Vectors, with the tokens and the cost of making them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Embeddings {
    /// One for each text.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens, and their price where it is known; zero where nothing is told.
    pub usage: Usage,
}

/// What `search.semantic` of `settings.json` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbedderSettings {
    /// A server that has `/embeddings`.
    Endpoint {
        /// The base URL, before `/embeddings`. Without it that of the provider.
        endpoint: Option<String>,
        /// Whose credential, headers and prices it has. Without it none is sent.
        provider: Option<String>,
        /// The id of the model, as its server names it.
        model: String,
        /// The length of the vectors, for models that leave the choice.
        dimensions: Option<u64>,
    },
    /// The directory of a static model. Relative to the directory of the settings.
    Path(PathBuf),
}

/// What is wrong with `search.semantic`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedderSettingsError {
    /// It is neither an object nor `false`.
    #[error("search.semantic must be an object, or false")]
    NotAnObject,
    /// It has a member of another name.
    #[error("there is no setting search.semantic.{0}")]
    Unknown(String),
    /// A member must be text.
    #[error("search.semantic.{0} must be text")]
    NotText(String),
    /// No such length of vectors.
    #[error("search.semantic.dimensions must be a whole number from 1 to {MAX_DIMENSIONS}")]
    Dimensions,
    /// Members are missing, or do not go together.
    #[error("search.semantic needs either path, or model with endpoint or provider")]
    Incomplete,
}

impl EmbedderSettings {
    /// What `search.semantic` of the settings says; `None` when it says nothing or `false`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_json(settings: &Value) -> Result<Option<Self>, EmbedderSettingsError> {
        let Some(semantic) = settings.pointer("/search/semantic") else { return Ok(None) };
        let members = match semantic {
            Value::Null | Value::Bool(false) => return Ok(None),
            Value::Object(members) => members,
            _ => return Err(EmbedderSettingsError::NotAnObject),
        };
        for name in members.keys() {
            if !["endpoint", "provider", "model", "dimensions", "path"].contains(&name.as_str()) {
                return Err(EmbedderSettingsError::Unknown(name.clone()));
            }
        }
        let text = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.trim().to_owned())),
            Some(_) => Err(EmbedderSettingsError::NotText(name.to_owned())),
        };
        let (endpoint, provider, model) = (text("endpoint")?, text("provider")?, text("model")?);
        let dimensions = match members.get("dimensions") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let count = value.as_u64().filter(|count| (1..=MAX_DIMENSIONS as u64).contains(count));
                Some(count.ok_or(EmbedderSettingsError::Dimensions)?)
            }
        };
        match (text("path")?, model) {
            (Some(path), None) if endpoint.is_none() && provider.is_none() && dimensions.is_none() => {
                Ok(Some(Self::Path(path.into())))
            }
            (None, Some(model)) if endpoint.is_some() || provider.is_some() => {
                Ok(Some(Self::Endpoint { endpoint, provider, model, dimensions }))
            }
            _ => Err(EmbedderSettingsError::Incomplete),
        }
    }
}

impl Settings {
    /// What makes vectors, as the settings say. Reads the files of a static model; sends nothing. May run a command that
    /// the user's files name for the credential.
    ///
    /// # Errors
    /// `InvalidRequest` for what the settings name and is not there or cannot be used, `NoCredential`.
    pub fn embedder(&self, settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, ModelError> {
        match settings {
            EmbedderSettings::Path(path) => {
                let path: &Path = &self.home().join(path);
                let model = StaticModel::open(path).map_err(|error| {
                    ModelError::new(ModelErrorKind::InvalidRequest, format!("search.semantic.path: {error}"))
                })?;
                Ok(Arc::new(model))
            }
            EmbedderSettings::Endpoint { endpoint, provider, model, dimensions } => {
                let mut row = self.row_for(provider.as_deref().unwrap_or_default(), model);
                if let Some(endpoint) = endpoint {
                    row.base_url.clone_from(endpoint);
                }
                if row.base_url.is_empty() {
                    let provider = provider.as_deref().unwrap_or_default();
                    return Err(ModelError::new(
                        ModelErrorKind::InvalidRequest,
                        format!(
                            "search.semantic names no endpoint, and the provider {provider:?} has no address. Set search.semantic.endpoint in settings.json."
                        ),
                    ));
                }
                let (credentials, headers) = match provider {
                    Some(_) => self.access_to(&mut row, None)?,
                    None => (Credentials::none(), Vec::new()),
                };
                let options = self.call_options().clone();
                let made = EmbeddingEndpoint::new(&row, credentials, &headers, *dimensions, options)?;
                Ok(Arc::new(made))
            }
        }
    }

    /// The model as the files know it, or one like the first of its provider.
    fn row_for(&self, provider: &str, id: &str) -> Model {
        let models = if provider.is_empty() { &[] } else { self.models_of(provider) };
        if let Some(known) = models.iter().find(|model| model.id == id) {
            return Model::clone(known);
        }
        let like = models
            .first()
            .map(|model| Model { cost: quipu_protocol::Prices::default(), ..Model::clone(model) });
        Model { id: id.to_owned(), provider: provider.to_owned(), ..like.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_unless_the_settings_say_what() {
        let read = |text: &str| EmbedderSettings::of_json(&serde_json::from_str(text).unwrap());
        for text in ["null", "{}", r#"{"search":{"tool":true}}"#, r#"{"search":{"semantic":false}}"#] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
        assert_eq!(
            read(r#"{"search":{"semantic":{"path":"models/a"}}}"#),
            Ok(Some(EmbedderSettings::Path("models/a".into())))
        );
        let endpoint = |endpoint: Option<&str>, provider: Option<&str>, dimensions| {
            Ok(Some(EmbedderSettings::Endpoint {
                endpoint: endpoint.map(String::from),
                provider: provider.map(String::from),
                model: "m".into(),
                dimensions,
            }))
        };
        assert_eq!(
            read(r#"{"search":{"semantic":{"endpoint":"http://x/v1","model":"m","dimensions":256}}}"#),
            endpoint(Some("http://x/v1"), None, Some(256))
        );
        assert_eq!(
            read(r#"{"search":{"semantic":{"provider":"p","model":" m "}}}"#),
            endpoint(None, Some("p"), None)
        );
        for (text, wrong) in [
            (r#"{"search":{"semantic":true}}"#, "an object"),
            (r#"{"search":{"semantic":{}}}"#, "either path"),
            (r#"{"search":{"semantic":{"model":"m"}}}"#, "either path"),
            (r#"{"search":{"semantic":{"path":"p","model":"m","endpoint":"e"}}}"#, "either path"),
            (r#"{"search":{"semantic":{"path":7}}}"#, "search.semantic.path must be text"),
            (r#"{"search":{"semantic":{"path":" "}}}"#, "search.semantic.path must be text"),
            (r#"{"search":{"semantic":{"url":"x"}}}"#, "no setting search.semantic.url"),
            (r#"{"search":{"semantic":{"provider":"p","model":"m","dimensions":0}}}"#, "from 1 to 8192"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
