//! Model wires: encode a request, send it, decode the answer; the catalogue of models and the credentials.
//!
//! One folder per wire. It must not know sessions, nodes or tools beyond their declarations. Vendors are named
//! here and nowhere else. Retrying the same bytes is this crate's business; another key or another model is
//! not.

mod access;
pub mod anthropic;
mod assemble;
pub mod bedrock;
mod body;
mod bound;
mod cache;
mod call;
mod catalogue;
mod catalogue_file;
mod credentials;
mod decode;
mod embed;
mod exchange;
mod failure;
pub mod google;
mod jsonc;
mod latest;
pub mod laws;
mod local;
mod logins;
pub mod mistral;
mod model_rows;
mod model_sources;
mod models_file;
pub mod net;
pub mod openai;
pub mod openai_responses;
mod outgoing;
pub mod pi_messages;
mod prepare;
mod provider;
mod scope;
mod script;
mod search;
mod select;
mod settings;
mod settings_file;
pub mod sse;
mod structured;
mod surrogates;
mod target;
mod thinking;
mod time;
mod tool_schema;
mod values;
mod warning;
mod wires;
mod wrong_api;

pub use anthropic::AnthropicMessages;
pub use assemble::tool_arguments;
pub use bedrock::{BedrockConverse, BedrockPlace};
pub use body::{Body, Memory, SharedPrefix};
pub use bound::MostTokens;
pub use cache::CacheRetention;
pub use call::CallOptions;
pub use catalogue_file::{
    CATALOGUE_FILE, CatalogueError, CatalogueSource, MAX_CATALOGUE_BYTES, NewCatalogue, fetch_catalogue,
};
pub use credentials::{
    AdoptMode, AdoptOutcome, AdoptedCredential, AdoptedPause, AdoptedUse, AgentAccount, AgentLogin, AuthFile,
    AuthFileError, CallOutcome, Credential, CredentialError, CredentialRequest, CredentialSource,
    Credentials, Expiry, HeaderText, InvalidCredential, KeyPause, KeyStatus, Keychain, KeychainError,
    MAX_CREDENTIALS_PER_CALL, RefusedCredential, Scheme, Secret, Sign, SignRequest, SourceFailure,
    StoredKeys, StoredLogin, adopt_key_use, forget_key_use,
};
pub use decode::AnswerDecoder;
pub use embed::{
    Embedder, EmbedderSettings, EmbedderSettingsError, EmbeddingEndpoint, Embeddings, MAX_DIMENSIONS,
    StaticModel, StaticModelError,
};
pub use google::GoogleGenerativeAi;
pub use local::LocalServer;
pub use logins::{
    Callback as LoginCallback, challenge as code_challenge, pasted as pasted_code, random as random_code,
};
pub use logins::{LoginError, LoginMethod, LoginOptions, LoginPrompt, LoginTokens, Logins, PendingLogin};
pub use mistral::MistralConversations;
pub use model_sources::{
    GatheredModels, MAX_MODEL_BYTES, MAX_MODELS_PER_SOURCE, ModelSource, ModelSourceError, ModelSources,
    SourcedModel,
};
pub use openai::OpenAiCompletions;
pub use openai_responses::{AzureDeployment, OpenAiResponses, is_trained_on_patches};
pub use outgoing::{HeaderChanges, PROTECTED_HEADERS, ResponseHead};
pub use pi_messages::PiMessages;
pub use provider::*;
pub use quipu_protocol::{CallEnd, CallEvent, Charge, clamp_level, level_name, levels, parse_level};
pub use script::{Script, ScriptStep, blank, plain_body, stream};
pub use search::{SearchSupport, WebSearch, search_support};
pub use select::{FindError, Selection, nearest};
pub use settings::{Settings, is_supported};
pub use settings_file::CallSettings;
pub use thinking::ThinkingBudgets;
pub use tool_schema::{
    SCHEMA_BYTES, SCHEMA_DEPTH, SchemaChange, SchemaDialect, ToolSchema, schema_problem, tool_schema,
};
pub use values::{NoShell, Shell};
pub use warning::Warning;
pub use wires::{answer_decoder, schema_dialect};
