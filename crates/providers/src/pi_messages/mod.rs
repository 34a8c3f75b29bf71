//! The `pi-messages` wire: the messages of a session as they are stored, to a gateway that speaks to models.

mod map;
mod stream;
mod wire;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelRequest};
use reqwest::header::HeaderMap;

pub use stream::decoder;

use crate::access::{self, Access, WireForm};
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::{Body, Call, CallEnd, CallOptions, Memory, Provider};
use crate::{body, call};

/// The wire's name in catalogues and messages.
pub const API: &str = "pi-messages";

/// What is put around a body on this wire.
struct Form;

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        format!("{}/messages", base_url.trim_end_matches('/'))
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        access::add_scheme(&mut all, scheme, access::BEARER)?;
        Ok(all)
    }
}

/// One model behind this wire.
#[derive(Debug)]
pub struct PiMessages {
    access: Access,
    options: CallOptions,
}

impl PiMessages {
    /// Calls to `model` at its base URL, which ends before `/messages`, with `credentials`. `headers` are added to every
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

impl Provider for PiMessages {
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
        Box::pin(call::run(&self.access, &self.options, &[], call, decoder))
    }
}
