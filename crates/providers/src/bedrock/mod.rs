//! The `bedrock-converse-stream` wire of Amazon Bedrock: JSON in one direction, frames of an event stream in the other,
//! and requests that are signed or carry a token.

pub(crate) mod chain;
mod environment;
mod frames;
mod hardware;
mod map;
mod metadata;
mod place;
mod process;
mod profile;
mod remote;
mod sign;
mod sso;
mod stream;
mod traits;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelErrorKind, ModelRequest};
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};

pub use place::BedrockPlace;
pub(crate) use place::BedrockPlace as Place;
pub use stream::decoder;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};

/// The wire's name in catalogues and messages.
pub const API: &str = "bedrock-converse-stream";
/// The provider of the catalogue that has it.
pub(crate) const PROVIDER: &str = "amazon-bedrock";

const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";

/// What is put around a body on this wire. The model is part of the address.
struct Form {
    model: String,
}

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        format!("{base}/model/{}/converse-stream", path_segment(&self.model))
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        all.insert(ACCEPT, HeaderValue::from_static(MEDIA_TYPE));
        access::add_scheme(&mut all, scheme, access::BEARER)?;
        Ok(all)
    }
}

/// `id` as one part of a path, also where it is the name of a resource with slashes.
fn path_segment(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Something that calls `model`; see [`BedrockConverse::new`].
pub(crate) fn provider(
    model: &Model,
    credentials: Credentials,
    headers: &[(String, String)],
    options: CallOptions,
    place: BedrockPlace,
) -> Result<Arc<dyn Provider>, ModelError> {
    Ok(Arc::new(BedrockConverse::new(model, credentials, headers, options, place)?))
}

/// One model behind this wire.
#[derive(Debug)]
pub struct BedrockConverse {
    access: Access,
    options: CallOptions,
    place: BedrockPlace,
}

impl BedrockConverse {
    /// Calls to `model` at the `place`, with `credentials`: a key is sent as a bearer token, a signer signs. `headers` are
    /// added to every request and win over our own.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is not an HTTP URL, or credentials would go to another machine over plain HTTP;
    /// `Auth` when a credential that is known already cannot stand in a header.
    pub fn new(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        options: CallOptions,
        place: BedrockPlace,
    ) -> Result<Self, ModelError> {
        let form = Form { model: model.id.clone() };
        let model = Model { base_url: place.base_url.clone(), ..model.clone() };
        let sends_none = credentials.known().is_some_and(|known| matches!(known.scheme, Scheme::None));
        let access = Access::new(&model, credentials, headers, form)?;
        let is_open = Url::parse(&model.base_url).is_ok_and(|url| !remote::is_private(&url));
        if is_open && !sends_none {
            let text = format!(
                "{} is reached over plain HTTP, where others can read the credentials. Use https in its base URL and in \
                 AWS_ENDPOINT_URL_BEDROCK_RUNTIME.",
                model.provider
            );
            return Err(ModelError::new(ModelErrorKind::InvalidRequest, text));
        }
        Ok(Self { access, options, place })
    }
}

impl Provider for BedrockConverse {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(map::encode(request, &self.options, &self.place, &mut Memory::default())?.bytes)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        body::make_next(memory, |memory| map::encode(request, &self.options, &self.place, memory))
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
    fn address_holds_the_model_as_one_part() {
        let check = |base: &str, model: &str, expect: &str| {
            let form = Form { model: model.into() };
            assert_eq!(form.address(base), format!("{expect}/converse-stream"));
        };
        check("https://a.example", "amazon.nova-v1:0", "https://a.example/model/amazon.nova-v1%3A0");
        let arn = "arn:aws:bedrock:eu-west-1:1:application-inference-profile/a?b";
        let written = "arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Aapplication-inference-profile%2Fa%3Fb";
        check("https://a.example/x/", arn, &format!("https://a.example/x/model/{written}"));
    }
}
