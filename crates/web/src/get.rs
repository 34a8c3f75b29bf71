//! One page from a server, through redirects.

use std::time::Duration;

use quipu_providers::net::{self, LocalRoute};
use quipu_rules::Host;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Response, Url};

use crate::access::{HostDecision, WebAccess, host_of};
use crate::error::FetchError;
use crate::frame::shown_url;
use crate::limits::{FETCH_TIME, PAGE_BYTES, REDIRECTS};

/// What a server answered.
#[derive(Debug)]
pub(crate) enum FetchEnd {
    Page(RawPage),
    /// It sends us to another host, which was not allowed.
    Elsewhere(Url),
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct RawPage {
    pub(crate) url: Url,
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) bytes: Vec<u8>,
    /// There is more than is read.
    pub(crate) is_cut: bool,
}

/// Gets a page. Each host is judged before it is looked up, and its addresses before they are connected to.
pub(crate) async fn get(access: &WebAccess, url: Url, host: Host) -> Result<FetchEnd, FetchError> {
    let first = host.name();
    let late = FetchError::Late { host: first, seconds: FETCH_TIME.as_secs() };
    tokio::time::timeout(FETCH_TIME, follow(access, url, host)).await.unwrap_or(Err(late))
}

async fn follow(access: &WebAccess, mut url: Url, mut host: Host) -> Result<FetchEnd, FetchError> {
    for _ in 0..=REDIRECTS {
        let response = request(access, &url, &host).await?;
        let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let next = location.filter(|_| response.status().is_redirection()).and_then(|to| url.join(to).ok());
        let Some(next) = next else { return read(url, &host, response).await.map(FetchEnd::Page) };
        let next_host = host_of(&next)?;
        let is_weaker = url.scheme() == "https" && next.scheme() == "http";
        if next_host != host || is_weaker {
            match access.decide(&next_host) {
                HostDecision::Denied(why) => {
                    return Err(FetchError::Refused(format!(
                        "The server redirects to {}. {why}",
                        shown_url(&next)
                    )));
                }
                HostDecision::Allowed if !is_weaker => {}
                HostDecision::Asked { .. } if is_upgrade(&url, &next, &host, &next_host) => {}
                HostDecision::Allowed | HostDecision::Asked { .. } => return Ok(FetchEnd::Elsewhere(next)),
            }
        }
        (url, host) = (next, next_host);
    }
    Err(FetchError::Redirects)
}

/// Whether only the scheme became https, at the ports that both have by default.
fn is_upgrade(url: &Url, next: &Url, host: &Host, next_host: &Host) -> bool {
    let defaults = url.port().is_none() && next.port().is_none();
    defaults && next.scheme() == "https" && host.name() == next_host.name()
}

async fn request(access: &WebAccess, url: &Url, host: &Host) -> Result<Response, FetchError> {
    let unreachable = |why: String| FetchError::Unreachable { host: host.name(), why };
    let is_proxied = net::has_proxy(url, LocalRoute::Direct).map_err(|error| unreachable(error.message))?;
    let addresses = access.addresses(host, is_proxied).await?;
    let client = if is_proxied {
        net::client(url, LocalRoute::Direct).cloned()
    } else {
        net::client_for_addresses(url, &addresses)
    };
    let client = client.map_err(|error| unreachable(error.message))?;
    let accept = "text/markdown, text/html;q=0.9, text/plain;q=0.8, application/json;q=0.8, */*;q=0.1";
    let sent = client.get(url.clone()).header(ACCEPT, accept).timeout(FETCH_TIME).send().await;
    sent.map_err(|error| unreachable(net::describe(&error.without_url())))
}

async fn read(url: Url, host: &Host, response: Response) -> Result<RawPage, FetchError> {
    let status = response.status().as_u16();
    let content_type =
        response.headers().get(CONTENT_TYPE).and_then(|text| text.to_str().ok()).map(str::to_owned);
    let (bytes, is_cut) =
        body(response, PAGE_BYTES).await.map_err(|why| FetchError::Broken { host: host.name(), why })?;
    Ok(RawPage { url, status, content_type, bytes, is_cut })
}

/// The body of an answer, at most so many bytes of it, and whether there is more.
pub(crate) async fn body(mut response: Response, most: usize) -> Result<(Vec<u8>, bool), String> {
    const IDLE: Duration = Duration::from_secs(20);
    let mut bytes = Vec::new();
    loop {
        let chunk = match tokio::time::timeout(IDLE, response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok((bytes, false)),
            Ok(Err(error)) => return Err(net::describe(&error.without_url())),
            Err(_) => return Err(format!("nothing came for {} s", IDLE.as_secs())),
        };
        let room = most - bytes.len();
        bytes.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
        if chunk.len() > room {
            return Ok((bytes, true));
        }
    }
}
