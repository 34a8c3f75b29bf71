//! Model wires: encode a request, send it, decode the answer; the catalogue of models and the credentials.
//!
//! One folder per wire. It must not know sessions, nodes or tools beyond their declarations. Vendors are named
//! here and nowhere else. Retrying the same bytes is this crate's business; another key or another model is
//! not.

pub mod anthropic;
mod assemble;
mod body;
mod bound;
mod cache;
mod call;
mod catalogue;
mod credential;
mod decode;
mod embed;
mod exchange;
mod failure;
mod jsonc;
pub mod laws;
mod local;
mod models_file;
pub mod net;
pub mod openai;
mod prepare;
mod provider;
mod scope;
mod script;
mod select;
mod settings;
mod settings_file;
pub mod sse;
mod surrogates;
mod thinking;
mod values;
mod warning;

pub use anthropic::AnthropicMessages;
pub use assemble::tool_arguments;
pub use body::{Body, Memory, Shared};
pub use bound::MostTokens;
pub use cache::CacheRetention;
pub use call::CallOptions;
pub use credential::{AuthFile, AuthFileError, Credential, CredentialKind};
pub use decode::Decode;
pub use embed::{
    Embedded, Embedder, EmbedderSettings, EmbedderSettingsError, EmbeddingEndpoint, MAX_DIMENSIONS,
    StaticModel, StaticModelError,
};
pub use local::LocalServer;
pub use openai::OpenAiCompletions;
pub use provider::*;
pub use quipu_protocol::{CallEnd, CallEvent, Charge, clamp_level, level_name, levels, parse_level};
pub use script::{Script, ScriptStep, blank, plain_body, stream};
pub use select::{FindError, Selection, nearest};
pub use settings::{Settings, is_supported};
pub use thinking::ThinkingBudgets;
pub use values::{NoShell, Shell};
pub use warning::Warning;
