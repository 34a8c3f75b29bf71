//! The `anthropic-messages` wire.

mod map;
mod stream;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Json, Model, ModelError, ModelRequest};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

pub use stream::decoder;

use crate::call::{self, Target};
use crate::credential::{Credential, CredentialKind};
use crate::{Body, CacheRetention, Call, CallEnd, CallOptions, Memory, Provider};

/// The wire's name in catalogues and messages.
pub const API: &str = "anthropic-messages";

const VERSION: &str = "2023-06-01";
/// Lets a model with a thinking budget think between tool calls.
const INTERLEAVED_THINKING: &str = "interleaved-thinking-2025-05-14";
/// Access tokens are taken only with this.
const OAUTH: &str = "oauth-2025-04-20";
/// How access tokens begin; they are sent as bearer tokens wherever they came from.
const OAUTH_PREFIX: &str = "sk-ant-oat";

/// Quirks of one model's server.
struct Compat {
    adaptive_thinking: bool,
    cache_control_on_tools: bool,
    empty_signature: bool,
    session_header: bool,
    long_cache: bool,
}

impl Compat {
    fn of(model: &Model) -> Self {
        let compat = model.compat.as_ref().map(Json::value).unwrap_or_default();
        let flag =
            |name: &str, default| compat.get(name).and_then(serde_json::Value::as_bool).unwrap_or(default);
        Self {
            adaptive_thinking: flag("forceAdaptiveThinking", false),
            cache_control_on_tools: flag("supportsCacheControlOnTools", true),
            empty_signature: flag("allowEmptySignature", false),
            session_header: flag("sendSessionAffinityHeaders", false),
            long_cache: flag("supportsLongCacheRetention", true),
        }
    }
}

/// One model behind this wire.
#[derive(Debug)]
pub struct AnthropicMessages {
    target: Target,
    options: CallOptions,
}

impl AnthropicMessages {
    /// Calls to `model` at its base URL. `headers` are added to every request and win over our own; without a
    /// credential none is sent.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is no HTTP URL, `Auth` when the credential cannot stand in a header.
    pub fn new(
        model: &Model,
        credential: Option<&Credential>,
        headers: &[(String, String)],
        options: CallOptions,
    ) -> Result<Self, ModelError> {
        let base = model.base_url.trim_end_matches('/');
        let path = if base.ends_with("/v1") { "/messages" } else { "/v1/messages" };
        let mut all = call::common_headers();
        all.insert("anthropic-version", HeaderValue::from_static(VERSION));
        let mut betas = Vec::new();
        if model.reasoning && !Compat::of(model).adaptive_thinking {
            betas.push(INTERLEAVED_THINKING);
        }
        if let Some(credential) = credential {
            let oauth = credential.secret.starts_with(OAUTH_PREFIX);
            if oauth {
                betas.push(OAUTH);
            }
            let (name, value) = match credential.kind {
                CredentialKind::ApiKey if !oauth => {
                    (HeaderName::from_static("x-api-key"), credential.secret.clone())
                }
                CredentialKind::ApiKey | CredentialKind::Bearer => {
                    (AUTHORIZATION, format!("Bearer {}", credential.secret))
                }
            };
            let value = call::credential_value(credential, &value)?;
            all.insert(name, value);
        }
        if !betas.is_empty() {
            all.insert("anthropic-beta", call::header_value("anthropic-beta", &betas.join(","))?);
        }
        call::add_headers(&mut all, headers)?;
        let secret = credential.map(|credential| credential.secret.clone());
        Ok(Self { target: Target::new(&format!("{base}{path}"), all, secret)?, options })
    }
}

impl Provider for AnthropicMessages {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(map::encode(request, &self.options, &mut Memory::default())?.bytes)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        let body = map::encode(request, &self.options, memory)?;
        debug_assert_eq!(Ok(&body.bytes), self.encode(request).as_ref(), "a memory changes no byte");
        debug_assert_eq!(body.id, Body::of(body.bytes.clone()).id, "nor its hash");
        Ok(body)
    }

    fn is_local(&self) -> bool {
        self.target.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        let names_it =
            self.options.cache != CacheRetention::Off && Compat::of(&call.request.model).session_header;
        let session = call.request.session.as_deref().filter(|_| names_it);
        let extra = call::session_headers(&["x-session-affinity"], session);
        Box::pin(call::run(&self.target, &self.options, extra, call, decoder))
    }
}
