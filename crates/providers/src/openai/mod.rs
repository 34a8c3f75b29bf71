//! The `openai-completions` wire, as many servers speak it: each with quirks of its own, which are data.

pub(crate) mod compat;
mod map;
mod stream;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::header::{HeaderMap, HeaderName};

pub use stream::decoder;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};
use compat::Compat;

/// The wire's name in catalogues and messages.
pub const API: &str = "openai-completions";

/// What is put around a body on this wire.
struct Form {
    key_header: HeaderName,
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        address(base_url, "chat/completions")
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        access::add_scheme(&mut all, scheme, self.key_header.clone())?;
        Ok(all)
    }
}

/// One model behind this wire.
#[derive(Debug)]
pub struct OpenAiCompletions {
    access: Access,
    options: CallOptions,
}

impl OpenAiCompletions {
    /// Calls to `model` at its base URL, which ends before `/chat/completions`; on this machine a missing `/v1` is
    /// added. They use `credentials`. `headers` are added to every request and win over our own.
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
        let key_header = Compat::of(model).key_header.and_then(|name| HeaderName::try_from(name).ok());
        let form = Form { key_header: key_header.unwrap_or(access::BEARER) };
        let access = Access::new(model, credentials, headers, form)?;
        Ok(Self { access, options })
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
        body::make_next(memory, |memory| map::encode(request, &self.options, memory))
    }

    fn is_local(&self) -> bool {
        self.access.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        let names = Compat::of(&call.request.model).session_headers();
        Box::pin(call::run(&self.access, &self.options, names, call, decoder))
    }
}
