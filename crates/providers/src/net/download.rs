//! Whole files from servers, within limits.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION};

use super::{LocalRoute, client, describe, is_loopback};
use crate::failure::quote;

/// How long a download may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Servers that may send on to another address, one after the other.
const REDIRECTS: usize = 5;

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The address cannot be used.
    #[error("{address} cannot be used: {problem}")]
    Address {
        /// The address, without what follows its path.
        address: String,
        /// Why, and what to do.
        problem: &'static str,
    },
    /// The server refused.
    #[error("{address}: the server answered {status}")]
    Status {
        /// The address.
        address: String,
        /// The status of its answer.
        status: u16,
    },
    /// The server could not be reached, or did not send it whole.
    #[error("{address}: {problem}")]
    Server {
        /// The address.
        address: String,
        /// Why.
        problem: String,
    },
}

/// Fetches a file of at most `most` bytes from `https`, or `http` on this machine. `authorization` gives the header of that name for an
/// address, if it has one; it is asked again for each address that a server sends on to.
///
/// # Errors
/// Why it cannot be had.
pub async fn download(
    address: &str,
    authorization: &(dyn Fn(&str) -> Option<String> + Sync),
    most: u64,
) -> Result<Vec<u8>, DownloadError> {
    let work = follow(address, authorization, most);
    let late = |_| DownloadError::Server {
        address: quote(address),
        problem: format!("it was not complete after {} s", PATIENCE.as_secs()),
    };
    tokio::time::timeout(PATIENCE, work).await.map_err(late)?
}

async fn follow(
    address: &str,
    authorization: &(dyn Fn(&str) -> Option<String> + Sync),
    most: u64,
) -> Result<Vec<u8>, DownloadError> {
    let wrong = |address: &str, problem| DownloadError::Address { address: quote(address), problem };
    let mut url = Url::parse(address).map_err(|_| wrong(address, "it is no address"))?;
    let begins_here = is_loopback(url.host_str().unwrap_or_default());
    for _ in 0..=REDIRECTS {
        let shown = shown(&url);
        let is_here = is_loopback(url.host_str().unwrap_or_default());
        if is_here && !begins_here {
            return Err(wrong(&shown, "a server elsewhere sends on to this machine"));
        }
        if url.scheme() != "https" && !(url.scheme() == "http" && is_here) {
            return Err(wrong(
                &shown,
                "anybody on the way could change it; use an address that begins with https://",
            ));
        }
        let server = |problem: String| DownloadError::Server { address: shown.clone(), problem };
        let client = client(&url, LocalRoute::Direct).map_err(|error| server(error.to_string()))?;
        let mut request = client.get(url.clone());
        if let Some(header) = authorization(url.as_str()) {
            let mut value = HeaderValue::from_str(&header)
                .map_err(|_| wrong(&shown, "its credential has characters that no header can have"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| server(describe(&error.without_url())))?;
        let status = response.status();
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
            url = url.join(to).map_err(|_| server(format!("it redirects to {}", quote(to))))?;
            continue;
        }
        if !status.is_success() {
            return Err(DownloadError::Status { address: shown, status: status.as_u16() });
        }
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| server(describe(&error.without_url())))?
        {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > most {
                return Err(server(format!("it is larger than {most} bytes")));
            }
        }
        return Ok(body);
    }
    Err(DownloadError::Server {
        address: quote(address),
        problem: format!("it redirects more than {REDIRECTS} times"),
    })
}

/// An address without what may be secret in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // They fail for addresses that have neither.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.into()
}
