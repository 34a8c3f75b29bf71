//! Quirks of the many servers that speak this wire: data, from the table and from the model.

use std::sync::OnceLock;

use quipu_protocol::{Json, Model};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::net;
use crate::tool_schema::SchemaDialect;

/// What a server wants or does otherwise. The names are those of `compat` in `models.json`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Compat {
    /// Takes `store`, which we set to false.
    pub(crate) supports_store: bool,
    /// Wants the system prompt of a model that thinks in a message of the role `developer`.
    pub(crate) supports_developer_role: bool,
    pub(crate) supports_reasoning_effort: bool,
    /// Takes `stream_options`.
    pub(crate) supports_usage_in_streaming: bool,
    /// Says why an answer ended. Of one that does not, the end of the body is the end of the answer.
    pub(crate) supports_finish_reason: bool,
    /// What it takes as the schema of a tool.
    pub(crate) tool_schema: SchemaDialect,
    /// Takes `strict` in the declaration of a tool.
    pub(crate) supports_strict_mode: bool,
    pub(crate) max_tokens_field: MaxTokensField,
    /// Wants the tool's name in its result.
    pub(crate) requires_tool_result_name: bool,
    /// Refuses a user's message right behind a tool's result.
    pub(crate) requires_assistant_after_tool_result: bool,
    /// Refuses `null` as the content of an answer.
    pub(crate) requires_non_null_assistant_content: bool,
    /// Wants `tools` when the conversation holds calls, even if there are none any more.
    pub(crate) requires_tools_with_tool_history: bool,
    /// Takes its own thinking back as text only.
    pub(crate) requires_thinking_as_text: bool,
    /// Wants `reasoning_content` in each answer, empty if need be.
    pub(crate) requires_reasoning_content_on_assistant_messages: bool,
    pub(crate) thinking_format: ThinkingFormat,
    pub(crate) chat_template_kwargs: Map<String, Value>,
    pub(crate) chat_template_args: Map<String, Value>,
    /// The member that limits the tokens of thinking.
    pub(crate) thinking_token_budget_field: Option<String>,
    /// That member is `thinking_token_budget`.
    pub(crate) supports_thinking_token_budget: bool,
    /// Streams the arguments of tools only when it is asked to.
    pub(crate) zai_tool_stream: bool,
    pub(crate) cache_control_format: Option<CacheControlFormat>,
    pub(crate) prompt_cache_key_mode: PromptCacheKeyMode,
    /// Can keep what it has read for a day.
    pub(crate) supports_long_cache_retention: bool,
    pub(crate) send_session_affinity_headers: bool,
    pub(crate) session_affinity_format: SessionAffinityFormat,
    pub(crate) open_router_routing: Option<Map<String, Value>>,
    pub(crate) vercel_gateway_routing: Option<Map<String, Value>>,
    pub(crate) vllm_priority: Option<i64>,
    /// The header that carries the key as a bearer token.
    pub(crate) key_header: Option<String>,
}

impl Default for Compat {
    fn default() -> Self {
        Self {
            supports_store: false,
            supports_developer_role: false,
            supports_reasoning_effort: false,
            supports_usage_in_streaming: true,
            supports_finish_reason: true,
            tool_schema: SchemaDialect::JsonSchema,
            supports_strict_mode: false,
            max_tokens_field: MaxTokensField::MaxTokens,
            requires_tool_result_name: false,
            requires_assistant_after_tool_result: false,
            requires_non_null_assistant_content: false,
            requires_tools_with_tool_history: false,
            requires_thinking_as_text: false,
            requires_reasoning_content_on_assistant_messages: false,
            thinking_format: ThinkingFormat::Openai,
            chat_template_kwargs: Map::new(),
            chat_template_args: Map::new(),
            thinking_token_budget_field: None,
            supports_thinking_token_budget: false,
            zai_tool_stream: false,
            cache_control_format: None,
            prompt_cache_key_mode: PromptCacheKeyMode::Auto,
            supports_long_cache_retention: true,
            send_session_affinity_headers: false,
            session_affinity_format: SessionAffinityFormat::Openai,
            open_router_routing: None,
            vercel_gateway_routing: None,
            vllm_priority: None,
            key_header: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MaxTokensField {
    MaxTokens,
    MaxCompletionTokens,
}

/// How the level of thinking is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ThinkingFormat {
    Openai,
    Openrouter,
    Deepseek,
    Zai,
    Qwen,
    QwenChatTemplate,
    ChatTemplate,
    Baseten,
    Together,
    StringThinking,
    AntLing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CacheControlFormat {
    Anthropic,
}

/// Whether the session's name is sent as the key of the cache. `auto`: only for a long cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PromptCacheKeyMode {
    Auto,
    Enabled,
    Disabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SessionAffinityFormat {
    Openai,
    OpenaiNosession,
    Openrouter,
}

/// One row of the table: when it applies, and what it sets. Of `providers` and `hosts` one must fit.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Row {
    providers: Vec<String>,
    /// Hosts, or the domains that they are in.
    hosts: Vec<String>,
    loopback: bool,
    /// How the model's id begins.
    models: Vec<String>,
    compat: Map<String, Value>,
}

impl Row {
    fn applies(&self, model: &Model, host: &str) -> bool {
        let in_domain = |domain: &String| {
            host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let everywhere = self.providers.is_empty() && self.hosts.is_empty() && !self.loopback;
        let place = everywhere
            || self.providers.contains(&model.provider)
            || self.hosts.iter().any(in_domain)
            || (self.loopback && net::is_loopback(host));
        place && (self.models.is_empty() || self.models.iter().any(|start| model.id.starts_with(start)))
    }
}

fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| serde_json::from_str(include_str!("../../data/quirks.json")).unwrap_or_default())
}

impl Compat {
    /// The quirks of the model's server: the rows of the table that apply, in order, and then what the model says of
    /// itself. Members that are not known, or hold what they may not, are passed over.
    pub(crate) fn of(model: &Model) -> Self {
        let host = reqwest::Url::parse(&model.base_url).ok();
        let host = host.as_ref().and_then(reqwest::Url::host_str).unwrap_or_default();
        let mut all = Map::new();
        for row in rows().iter().filter(|row| row.applies(model, host)) {
            all.extend(row.compat.clone());
        }
        let mut compat = Self::read(&all).unwrap_or_default();
        if let Some(Value::Object(own)) = model.compat.as_ref().map(Json::value) {
            for (member, value) in own.into_iter().filter(|(_, value)| !value.is_null()) {
                let before = all.insert(member.clone(), value);
                match (Self::read(&all), before) {
                    (Some(read), _) => compat = read,
                    (None, Some(before)) => drop(all.insert(member, before)),
                    (None, None) => drop(all.remove(&member)),
                }
            }
        }
        compat
    }

    fn read(all: &Map<String, Value>) -> Option<Self> {
        Self::deserialize(Value::Object(all.clone())).ok()
    }

    /// Names of the headers that carry the session's name.
    pub(crate) fn session_headers(&self) -> &'static [&'static str] {
        match (self.send_session_affinity_headers, self.session_affinity_format) {
            (false, _) => &[],
            (true, SessionAffinityFormat::Openrouter) => &["x-session-id"],
            (true, SessionAffinityFormat::Openai) => {
                &["session_id", "x-client-request-id", "x-session-affinity"]
            }
            (true, SessionAffinityFormat::OpenaiNosession) => &["x-client-request-id", "x-session-affinity"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn of(provider: &str, base_url: &str, id: &str, compat: &str) -> Compat {
        let (provider, base_url, id) = (provider.into(), base_url.into(), id.into());
        Compat::of(&Model { provider, base_url, id, compat: Json::parse(compat).ok(), ..Model::default() })
    }

    #[test]
    fn the_table_is_sound() {
        let table: Vec<Value> = serde_json::from_str(include_str!("../../data/quirks.json")).unwrap();
        assert_eq!(table.len(), rows().len());
        let mut all = Map::new();
        for row in rows() {
            all.extend(row.compat.clone());
            assert!(Compat::read(&all).is_some(), "{row:?}");
        }
        // Every member is one that we know.
        let known = format!("{:?}", Compat::default());
        for name in all.keys() {
            let field: String = name
                .chars()
                .flat_map(|c| {
                    let upper = c.is_ascii_uppercase().then_some('_');
                    upper.into_iter().chain([c.to_ascii_lowercase()])
                })
                .collect();
            assert!(known.contains(&format!("{field}: ")), "{name}");
        }
    }

    #[test]
    fn servers_are_known_by_provider_and_by_host() {
        let format = |provider: &str, url: &str| of(provider, url, "m", "{}").thinking_format;
        assert_eq!(format("deepseek", "https://proxy.example"), ThinkingFormat::Deepseek);
        assert_eq!(format("mine", "https://API.DeepSeek.com/v1"), ThinkingFormat::Deepseek);
        assert_eq!(format("mine", "https://notdeepseek.com"), ThinkingFormat::Openai);
        assert_eq!(format("mine", "nonsense"), ThinkingFormat::Openai);
        let local = of("mine", "http://localhost:11434/v1", "m", "{}");
        assert_eq!((local.max_tokens_field, local.supports_store), (MaxTokensField::MaxTokens, false));
        let plain = of("mine", "https://example.com/v1", "m", "{}");
        assert_eq!(
            (plain.max_tokens_field, plain.supports_store),
            (MaxTokensField::MaxCompletionTokens, true)
        );
        let routed = |id: &str| of("openrouter", "https://openrouter.ai/api/v1", id, "{}");
        assert_eq!(routed("anthropic/x").cache_control_format, Some(CacheControlFormat::Anthropic));
        assert_eq!(routed("other/anthropic/").cache_control_format, None);
        assert_eq!(routed("x").session_headers(), ["x-session-id"]);
    }

    #[test]
    fn the_model_has_the_last_word() {
        let compat = of(
            "deepseek",
            "",
            "m",
            r#"{"thinkingFormat":"zai","supportsStore":"yes","maxTokensField":7,"new":{},"supportsFinishReason":null,
                "vllmPriority":3,"requiresToolResultName":true}"#,
        );
        let expect = Compat {
            thinking_format: ThinkingFormat::Zai,
            vllm_priority: Some(3),
            requires_tool_result_name: true,
            ..of("deepseek", "", "m", "{}")
        };
        assert_eq!(compat, expect);
        assert_eq!(of("deepseek", "", "m", "[1]"), of("deepseek", "", "m", "{}"));
    }
}
