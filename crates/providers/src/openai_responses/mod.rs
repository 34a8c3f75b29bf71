//! The `openai-responses` wire: items instead of messages, and reasoning that is given back encrypted.

mod azure;
mod codex;
mod compat;
mod map;
mod stream;
mod text_tools;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::header::{HeaderMap, HeaderName};

pub use azure::{AZURE_API, AzureDeployment};
pub use codex::SUBSCRIPTION_API;
pub use stream::decoder;
pub use text_tools::is_trained_on_patches;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::openai::address;
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};
use compat::Compat;

/// The wire's name in catalogues and messages.
pub const API: &str = "openai-responses";

/// How many times the usual price a call of the model may cost, by the tier that its settings ask for.
pub(crate) fn dearest_tier(model: &Model) -> f64 {
    let has_tiers = [API, AZURE_API, SUBSCRIPTION_API].contains(&model.api.as_str());
    if has_tiers { stream::dearest_tier(model) } else { 1.0 }
}

/// What is put around a body on this wire.
struct Form {
    key_header: HeaderName,
    server: Server,
}

/// Whose servers they are.
enum Server {
    Usual,
    /// A customer's own. The version is named in the address, and keys have a header of their own.
    Deployed {
        api_version: String,
    },
    /// Those of a subscription.
    Subscribed,
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        match &self.server {
            Server::Usual => address(base_url, "responses"),
            Server::Deployed { api_version } => azure::address(base_url, api_version),
            Server::Subscribed => codex::address(base_url),
        }
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        match (&self.server, scheme) {
            (Server::Subscribed, scheme) => return codex::headers(scheme),
            (Server::Deployed { .. }, Scheme::Key(secret)) => {
                all.insert(HeaderName::from_static(azure::KEY_HEADER), access::carried(secret.expose())?);
            }
            (Server::Usual | Server::Deployed { .. }, scheme) => {
                access::add_scheme(&mut all, scheme, self.key_header.clone())?;
            }
        }
        Ok(all)
    }

    fn check(&self, scheme: &Scheme, headers: &HeaderMap) -> Result<(), InvalidCredential> {
        match self.server {
            Server::Subscribed => codex::check(scheme, headers),
            Server::Usual | Server::Deployed { .. } => Ok(()),
        }
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
    /// With [`SUBSCRIPTION_API`] the base URL ends before `/codex/responses`, and a credential is the access token of a login. A
    /// header `chatgpt-account-id` that comes with it wins over the account that the token names.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is not an HTTP URL, `Auth` when a credential that is known already cannot stand in
    /// a header or is none of this API.
    pub fn new(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        options: CallOptions,
    ) -> Result<Self, ModelError> {
        let server = if model.api == SUBSCRIPTION_API { Server::Subscribed } else { Server::Usual };
        let form = Form { key_header: Compat::of(model).key_header(), server };
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
        let server = Server::Deployed { api_version };
        let form = Form { key_header: Compat::of(model).key_header(), server };
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
        body::make_next(memory, |memory| self.made(request, memory))
    }

    fn is_local(&self) -> bool {
        self.access.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        let names = Compat::of(&call.request.model).session_headers();
        Box::pin(call::run(&self.access, &self.options, names, call, decoder))
    }
}
