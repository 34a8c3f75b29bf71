//! The `openai-completions` wire, as many servers speak it: each with quirks of its own, which are data.

mod compat;
mod map;
mod stream;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::header::{AUTHORIZATION, HeaderName};

pub use stream::decoder;

use crate::call::{self, Target};
use crate::credential::Credential;
use crate::{Body, CacheRetention, Call, CallEnd, CallOptions, Memory, Provider};
use compat::Compat;

/// The wire's name in catalogues and messages.
pub const API: &str = "openai-completions";

/// One model behind this wire.
#[derive(Debug)]
pub struct OpenAiCompletions {
    target: Target,
    options: CallOptions,
}

impl OpenAiCompletions {
    /// Calls to `model` at its base URL, which ends before `/chat/completions`; on this machine a missing `/v1` is
    /// added. `headers` are added to every request and win over our own; without a credential none is sent.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is no HTTP URL, `Auth` when the credential cannot stand in a header.
    pub fn new(
        model: &Model,
        credential: Option<&Credential>,
        headers: &[(String, String)],
        options: CallOptions,
    ) -> Result<Self, ModelError> {
        let compat = Compat::of(model);
        let mut all = call::common_headers();
        if let Some(credential) = credential {
            let value = call::credential_value(credential, &format!("Bearer {}", credential.secret))?;
            let name = compat.key_header.as_deref().and_then(|name| HeaderName::try_from(name).ok());
            all.insert(name.unwrap_or(AUTHORIZATION), value);
        }
        call::add_headers(&mut all, headers)?;
        let secret = credential.map(|credential| credential.secret.clone());
        let target = Target::new(&address(&model.base_url, "chat/completions"), all, secret)?;
        Ok(Self { target, options })
    }
}

/// Where `path` is below a base URL; on this machine a missing `/v1` is added.
pub(crate) fn address(base_url: &str, path: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let bare = reqwest::Url::parse(base)
        .is_ok_and(|url| url.path() == "/" && crate::net::is_loopback(url.host_str().unwrap_or_default()));
    format!("{base}{}/{path}", if bare { "/v1" } else { "" })
}

impl Provider for OpenAiCompletions {
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
        let names = Compat::of(&call.request.model).session_headers();
        let session = call.request.session.as_deref().filter(|_| self.options.cache != CacheRetention::Off);
        let extra = call::session_headers(names, session);
        Box::pin(call::run(&self.target, &self.options, extra, call, decoder))
    }
}
