//! Quirks of the servers of this wire: from the model, and where it says nothing from its address.

use quipu_protocol::{Json, Model};
use reqwest::header::HeaderName;
use serde_json::Value;

use super::azure::AZURE_API;
use super::codex::{self, SUBSCRIPTION_API};
use crate::access;
use crate::openai::compat::{Compat as ChatCompat, SessionAffinityFormat};
use crate::tool_schema::SchemaDialect;

/// What a server wants or does otherwise. The names are those of `compat` in `models.json`.
pub(super) struct Compat {
    /// Wants the system prompt of a model that thinks in a message of the role `developer`.
    pub(super) developer_role: bool,
    /// Takes `strict` in the declaration of a tool.
    pub(super) strict_mode: bool,
    /// What it takes as the schema of a tool.
    pub(super) tool_schema: SchemaDialect,
    /// Takes the level of thinking.
    pub(super) reasoning_effort: bool,
    pub(super) max_output_tokens: bool,
    /// Can keep what it has read for long.
    pub(super) long_cache: bool,
    /// Is told how long in `prompt_cache_options`.
    pub(super) explicit_cache_mode: bool,
    /// Takes tools whose input is plain text of a grammar.
    pub(super) grammar_tools: bool,
    /// The backend of a subscription, which wants more in a body, and less.
    pub(super) is_subscribed: bool,
    session_format: SessionAffinityFormat,
    key_header: Option<String>,
}

impl Compat {
    pub(super) fn of(model: &Model) -> Self {
        // Roles, keys and strict tools are the same on all wires of a server.
        let shared = ChatCompat::of(model);
        let own = model.compat.as_ref().map(Json::value).unwrap_or_default();
        let flag = |name: &str, default| own.get(name).and_then(Value::as_bool).unwrap_or(default);
        let is_subscribed = model.api == SUBSCRIPTION_API;
        let is_usual = model.api != AZURE_API && !is_subscribed;
        Self {
            developer_role: shared.supports_developer_role,
            strict_mode: shared.supports_strict_mode || (!is_usual && flag("supportsStrictMode", true)),
            tool_schema: shared.tool_schema,
            reasoning_effort: flag("supportsReasoningEffort", true),
            max_output_tokens: flag("supportsMaxOutputTokens", !is_subscribed),
            long_cache: flag("supportsLongCacheRetention", is_usual),
            explicit_cache_mode: flag("supportsExplicitPromptCacheMode", false),
            grammar_tools: flag("supportsOpenAIGrammarTools", false),
            is_subscribed,
            session_format: shared.session_affinity_format,
            key_header: shared.key_header,
        }
    }

    /// Names of the headers that carry the session's name.
    pub(super) fn session_headers(&self) -> &'static [&'static str] {
        match self.session_format {
            _ if self.is_subscribed => codex::SESSION_HEADERS,
            SessionAffinityFormat::Openrouter => &["x-session-id"],
            SessionAffinityFormat::Openai => &["session_id", "x-client-request-id"],
            SessionAffinityFormat::OpenaiNosession => &["x-client-request-id"],
        }
    }

    /// The header that carries the key as a bearer token.
    pub(super) fn key_header(&self) -> HeaderName {
        let named = self.key_header.as_deref().and_then(|name| HeaderName::try_from(name).ok());
        named.unwrap_or(access::BEARER)
    }
}
