//! The `mistral-conversations` wire: chat completions whose content is made of chunks, thinking among them.
//!
//! The answer comes as on `openai-completions`, whose decoder knows the chunks, too.

mod map;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::header::HeaderMap;

pub use crate::openai::decoder;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};

/// The wire's name in catalogues and messages.
pub const API: &str = "mistral-conversations";

/// The header that names the session, so that requests of one reach the same cache.
const SESSION_HEADER: &str = "x-affinity";

/// What is put around a body on this wire.
struct Form;

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        let version = if base.ends_with("/v1") { "" } else { "/v1" };
        format!("{base}{version}/chat/completions")
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        access::add_scheme(&mut all, scheme, access::BEARER)?;
        Ok(all)
    }
}

/// One model behind this wire.
#[derive(Debug)]
pub struct MistralConversations {
    access: Access,
    options: CallOptions,
}

impl MistralConversations {
    /// Calls to `model` at its base URL, which ends before or behind `/v1`, with `credentials`. `headers` are added to every
    /// request and win over our own.
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
        Ok(Self { access: Access::new(model, credentials, headers, Form)?, options })
    }
}

impl Provider for MistralConversations {
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
        Box::pin(call::run(&self.access, &self.options, &[SESSION_HEADER], call, decoder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistral_address_has_its_version_once() {
        for base in
            ["https://a.example", "https://a.example/", "https://a.example/v1", "https://a.example/v1/"]
        {
            assert_eq!(Form.address(base), "https://a.example/v1/chat/completions");
        }
        assert_eq!(Form.address("https://a.example/eu"), "https://a.example/eu/v1/chat/completions");
    }
}
