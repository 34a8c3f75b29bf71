//! What clients send, as far as it is used.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::wire::WireError;

/// Reads the parameters of a method.
///
/// # Errors
/// What does not fit.
pub(crate) fn read<T: DeserializeOwned>(method: &str, params: Value) -> Result<T, WireError> {
    serde_json::from_value(params)
        .map_err(|error| WireError::params(format!("the parameters of {method} do not fit: {error}")))
}

/// What the client can do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientAbilities {
    pub(crate) reads_files: bool,
    pub(crate) writes_files: bool,
    pub(crate) has_terminals: bool,
    pub(crate) has_forms: bool,
    pub(crate) shows_notices: bool,
    pub(crate) shows_compactions: bool,
}

impl ClientAbilities {
    /// What is missing or of another form is not there.
    pub(crate) fn of(capabilities: &Value) -> Self {
        let is_true = |path: &str| capabilities.pointer(path).and_then(Value::as_bool) == Some(true);
        let is_there = |path: &str| capabilities.pointer(path).is_some_and(Value::is_object);
        Self {
            reads_files: is_true("/fs/readTextFile"),
            writes_files: is_true("/fs/writeTextFile"),
            has_terminals: is_true("/terminal"),
            has_forms: is_there("/elicitation/form"),
            shows_notices: is_there("/session/notices"),
            shows_compactions: is_there("/session/compaction"),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeParams {
    pub(crate) protocol_version: u64,
    #[serde(default)]
    pub(crate) client_capabilities: Value,
}

/// `session/new`, `session/load` and `session/resume`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenParams {
    pub(crate) session_id: Option<String>,
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) mcp_servers: Option<Vec<Value>>,
    #[serde(default)]
    pub(crate) additional_directories: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionParams {
    pub(crate) session_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListParams {
    pub(crate) cwd: Option<String>,
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PromptParams {
    pub(crate) session_id: String,
    pub(crate) prompt: Vec<ContentParams>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModeParams {
    pub(crate) session_id: String,
    pub(crate) mode_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OptionParams {
    pub(crate) session_id: String,
    pub(crate) config_id: String,
    pub(crate) value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CancelParams {
    pub(crate) request_id: Value,
}

/// A block of a prompt.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentParams {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
    },
    ResourceLink {
        uri: String,
        name: String,
    },
    Resource {
        resource: ResourceParams,
    },
    #[serde(other)]
    Unknown,
}

/// What a resource holds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceParams {
    pub(crate) uri: String,
    pub(crate) text: Option<String>,
    pub(crate) blob: Option<String>,
}
