//! The `openai-responses` wire: items instead of messages, and reasoning that is given back encrypted.

mod azure;
mod compat;
mod map;
mod stream;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::header::{HeaderMap, HeaderName};

pub use azure::{AZURE_API, AzureDeployment};
pub use stream::decoder;

use crate::access::{self, Access, WireForm};
use crate::call;
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::openai::address;
use crate::{Body, CacheRetention, Call, CallEnd, CallOptions, Memory, Provider};
use compat::Compat;

/// The wire's name in catalogues and messages.
pub const API: &str = "openai-responses";

/// What is put around a body on this wire.
struct Form {
    key_header: HeaderName,
    /// The version that is named in the address, and then keys have a header of their own.
    api_version: Option<String>,
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        match &self.api_version {
            Some(version) => azure::address(base_url, version),
            None => address(base_url, "responses"),
        }
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        match scheme {
            Scheme::Key(secret) if self.api_version.is_some() => {
                all.insert(HeaderName::from_static(azure::KEY_HEADER), access::carried(secret.expose())?);
            }
            other => access::add_scheme(&mut all, other, self.key_header.clone())?,
        }
        Ok(all)
    }
}

/// One model behind this wire.
#[derive(Debug)]
pub struct OpenAiResponses {
    access: Access,
    options: CallOptions,
    /// What the server calls the model, where that is not its id.
    deployment: Option<String>,
}

impl OpenAiResponses {
    /// Calls to `model` at its base URL, which ends before `/responses`; on this machine a missing `/v1` is
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
        let form = Form { key_header: Compat::of(model).key_header(), api_version: None };
        let access = Access::new(model, credentials, headers, form)?;
        Ok(Self { access, options, deployment: None })
    }

    /// Calls to a customer's own deployment of `model`.
    ///
    /// # Errors
    /// As [`OpenAiResponses::new`].
    pub fn deployed(
        model: &Model,
        deployment: AzureDeployment,
        credentials: Credentials,
        headers: &[(String, String)],
        options: CallOptions,
    ) -> Result<Self, ModelError> {
        let AzureDeployment { base_url, api_version, name } = deployment;
        let form = Form { key_header: Compat::of(model).key_header(), api_version: Some(api_version) };
        let access = Access::new(&Model { base_url, ..model.clone() }, credentials, headers, form)?;
        Ok(Self { access, options, deployment: name })
    }

    fn made(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        map::encode(request, &self.options, self.deployment.as_deref(), memory)
    }
}

impl Provider for OpenAiResponses {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(self.made(request, &mut Memory::default())?.bytes)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        let body = self.made(request, memory)?;
        debug_assert_eq!(Ok(&body.bytes), self.encode(request).as_ref(), "a memory changes no byte");
        debug_assert_eq!(body.id, Body::of(body.bytes.clone()).id, "nor its hash");
        Ok(body)
    }

    fn is_local(&self) -> bool {
        self.access.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        let names = Compat::of(&call.request.model).session_headers();
        let session = call.request.session.as_deref().filter(|_| self.options.cache != CacheRetention::Off);
        let extra = call::session_headers(names, session);
        Box::pin(call::run(&self.access, &self.options, extra, call, decoder))
    }
}
