//! The `anthropic-messages` wire.

mod map;
mod stream;
pub(crate) mod test_string;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Json, Model, ModelError, ModelRequest};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub use stream::decoder;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};

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

/// What is put around a body on this wire.
struct Form {
    interleaved: bool,
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        let path = if base.ends_with("/v1") { "/messages" } else { "/v1/messages" };
        format!("{base}{path}")
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        all.insert("anthropic-version", HeaderValue::from_static(VERSION));
        let is_token = match scheme {
            Scheme::Key(secret) | Scheme::Bearer(secret) => secret.expose().starts_with(OAUTH_PREFIX),
            Scheme::Header { .. } | Scheme::Signer(_) | Scheme::None => false,
        };
        match scheme {
            Scheme::Key(secret) if !is_token => {
                all.insert(HeaderName::from_static("x-api-key"), access::carried(secret.expose())?);
            }
            other => access::add_scheme(&mut all, other, access::BEARER)?,
        }
        let betas = match (self.interleaved, is_token) {
            (true, true) => Some(format!("{INTERLEAVED_THINKING},{OAUTH}")),
            (true, false) => Some(INTERLEAVED_THINKING.to_owned()),
            (false, true) => Some(OAUTH.to_owned()),
            (false, false) => None,
        };
        if let Some(betas) = betas {
            all.insert("anthropic-beta", access::carried(&betas)?);
        }
        Ok(all)
    }
}

/// One model behind this wire.
#[derive(Debug)]
pub struct AnthropicMessages {
    access: Access,
    options: CallOptions,
}

impl AnthropicMessages {
    /// Calls to `model` at its base URL, with `credentials`. `headers` are added to every request and win over our own.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is not an HTTP URL, `Auth` when a credential that is known already cannot stand in
    /// a header.
    pub fn new(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        options: CallOptions,
    ) -> Result<Self, ModelError> {
        let interleaved = model.reasoning && !Compat::of(model).adaptive_thinking;
        let access = Access::new(model, credentials, headers, Form { interleaved })?;
        Ok(Self { access, options })
    }
}

impl Provider for AnthropicMessages {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(map::encode(request, &self.options, &mut Memory::default())?.bytes)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        body::make_next(memory, |memory| map::encode(request, &self.options, memory))
    }

    fn is_local(&self) -> bool {
        self.access.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        let names_it = Compat::of(&call.request.model).session_header;
        let names: &[_] = if names_it { &["x-session-affinity"] } else { &[] };
        Box::pin(call::run(&self.access, &self.options, names, call, decoder))
    }
}
