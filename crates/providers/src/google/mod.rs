//! The `google-generative-ai` wire: contents of parts, and a stream of such; and `google-vertex`, which is the same at
//! other addresses, and `google-gemini-cli`, which is the same within another body.

pub(crate) mod adc;
pub mod code_assist;
mod map;
mod stream;
mod traits;
pub mod vertex;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName};

pub use stream::decoder;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};

/// The wire's name in catalogues and messages.
pub const API: &str = "google-generative-ai";

const KEY_HEADER: HeaderName = HeaderName::from_static("x-goog-api-key");
/// The version of the API where a base URL names none.
const VERSION: &str = "v1beta";

/// What is put around a body on this wire. The model is part of the address.
struct Form {
    model: String,
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        let bare = Url::parse(base).is_ok_and(|url| url.path() == "/");
        let version = if bare { format!("/{VERSION}") } else { String::new() };
        let has_place = ["models/", "tunedModels/"].iter().any(|start| self.model.starts_with(start));
        let place = if has_place { "" } else { "models/" };
        format!("{base}{version}/{place}{}:streamGenerateContent?alt=sse", path_segment(&self.model))
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        key_headers(scheme)
    }
}

/// The headers of both servers: keys have one of their own.
fn key_headers(scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
    let mut all = call::common_headers();
    match scheme {
        Scheme::Key(secret) => drop(all.insert(KEY_HEADER, access::carried(secret.expose())?)),
        other => access::add_scheme(&mut all, other, access::BEARER)?,
    }
    Ok(all)
}

/// `id` as a part of a path; a slash stays, for ids such as `tunedModels/mine`.
fn path_segment(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b'@' | b'/' => out.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// One model behind this wire.
#[derive(Debug)]
pub struct GoogleGenerativeAi {
    access: Access,
    options: CallOptions,
    /// The project that requests name, where the body stands within another.
    project: Option<String>,
}

impl GoogleGenerativeAi {
    /// Calls to `model` at its base URL, which ends with the version of the API; `/v1beta` is added to one without a
    /// path. They use `credentials`. `headers` are added to every request and win over our own.
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
        let form = Form { model: model.id.clone() };
        let access = Access::new(model, credentials, headers, form)?;
        Ok(Self { access, options, project: None })
    }

    /// The same for a model with [`vertex::API`]. With the base URL of the catalogue, calls with an API key go to an
    /// address without a project, and those with an access token to the `place`.
    ///
    /// # Errors
    /// As [`GoogleGenerativeAi::new`]; and `InvalidRequest` when the credential that is known already needs a project and a
    /// location, and one is missing.
    pub fn vertex(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        options: CallOptions,
        place: vertex::VertexPlace,
    ) -> Result<Self, ModelError> {
        let known = credentials.known();
        let form = vertex::Form::new(model, place, known.as_ref().map(|known| &known.scheme))?;
        let access = Access::new(model, credentials, headers, form)?;
        Ok(Self { access, options, project: None })
    }

    /// The same for a model with [`code_assist::API`], whose requests name `project`.
    ///
    /// # Errors
    /// As [`GoogleGenerativeAi::new`].
    pub fn code_assist(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        options: CallOptions,
        project: String,
    ) -> Result<Self, ModelError> {
        let access = Access::new(model, credentials, headers, code_assist::Form)?;
        Ok(Self { access, options, project: Some(project) })
    }
}

impl Provider for GoogleGenerativeAi {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(map::encode(request, &self.options, self.project.as_deref(), &mut Memory::default())?.bytes)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        let project = self.project.as_deref();
        body::make_next(memory, |memory| map::encode(request, &self.options, project, memory))
    }

    fn is_local(&self) -> bool {
        self.access.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        Box::pin(call::run(&self.access, &self.options, &[], call, decoder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_holds_the_model_and_no_key() {
        let check = |base: &str, model: &str, expect: &str| {
            let form = Form { model: model.into() };
            assert_eq!(form.address(base), format!("{expect}:streamGenerateContent?alt=sse"));
        };
        check("https://a.example/v1beta", "m-2.5", "https://a.example/v1beta/models/m-2.5");
        check("https://a.example/v1beta/", "a b?é", "https://a.example/v1beta/models/a%20b%3F%C3%A9");
        check("https://a.example", "models/m", "https://a.example/v1beta/models/m");
        check("https://a.example/v1", "maker/m", "https://a.example/v1/models/maker/m");
        check("https://a.example/go/v1", "tunedModels/m", "https://a.example/go/v1/tunedModels/m");
    }
}
