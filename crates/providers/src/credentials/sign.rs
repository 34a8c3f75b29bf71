//! Requests that are signed.

use futures_util::future::BoxFuture;

use super::{CredentialError, Secret};

/// Makes headers from a finished request.
pub trait Sign: Send + Sync + 'static {
    /// The headers that are added to the request, or take the place of those of the same name. Called once for each
    /// attempt, with what is then sent.
    ///
    /// # Errors
    /// As those of a source.
    fn sign<'a>(
        &'a self,
        request: &'a SignRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<(String, Secret)>, CredentialError>>;

    /// What it signs with, where that is a text which could stand elsewhere: it is sealed there.
    fn secrets(&self) -> Vec<Secret> {
        Vec::new()
    }
}

/// A request that is about to be sent.
#[derive(Debug)]
#[non_exhaustive]
pub struct SignRequest<'a> {
    /// The HTTP method, such as `POST`.
    pub method: &'a str,
    /// The whole URL.
    pub url: &'a str,
    /// Its headers, by names in small letters, `host` among them. The connection may add more: `content-length`.
    pub headers: Vec<(&'a str, &'a str)>,
    /// Its body, as it is sent.
    pub body: &'a [u8],
}
