//! Keys that a server gives: for the role of a container, and for a token of another identity.

use std::net::IpAddr;

use jiff::Timestamp;
use quipu_protocol::UnixMs;
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;

use super::environment::{Environment, small_file};
use super::place::domain;
use super::sign::AccessKeys;
use crate::credentials::{CredentialError, Secret};
use crate::failure::quote;
use crate::net::{self, LocalRoute};
use crate::target::http_url;

/// Where a relative address of a container leads.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// Addresses on the link of a machine that give keys to its containers.
const LINK_LOCAL: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
/// Bytes of an answer at most.
const MAX_ANSWER: usize = 64 << 10;

/// A role, and the file with the token that stands for who may have it.
pub(super) struct WebIdentity {
    pub(super) role: String,
    pub(super) file: String,
    pub(super) session: Option<String>,
}

pub(super) fn unavailable(why: impl Into<String>) -> CredentialError {
    CredentialError::Unavailable { why: why.into() }
}

/// Whether secrets may go to this address and come from it: over TLS, or to a place that no other machine sees.
pub(super) fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_link = || {
        let address: Option<IpAddr> = bare.parse().ok();
        LINK_LOCAL.iter().any(|known| known.parse().ok() == address && address.is_some())
    };
    url.scheme() == "https" || net::is_loopback(host) || is_link()
}

/// An address that a variable names, where secrets may go.
pub(super) fn address(name: &str, text: &str) -> Result<Url, CredentialError> {
    let url = http_url(text).ok_or_else(|| unavailable(format!("{name} is not an HTTP URL")))?;
    if is_private(&url) {
        return Ok(url);
    }
    Err(unavailable(format!(
        "{name} leads to {} over plain HTTP, where others can read the credentials. Use https, or an address of this machine",
        quote(url.host_str().unwrap_or_default())
    )))
}

/// Sends a request and reads the answer.
pub(super) async fn answer(
    name: &str,
    request: reqwest::RequestBuilder,
) -> Result<(u16, String), CredentialError> {
    let failed = |error: &reqwest::Error| {
        let cause = std::error::Error::source(error).map(net::describe).unwrap_or_default();
        unavailable(format!("{name} did not answer: {}", quote(&cause)))
    };
    let mut response = request.send().await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER {
            let limit = MAX_ANSWER >> 10;
            return Err(unavailable(format!("{name} sent more than the limit of {limit} KiB")));
        }
    }
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn time(text: &str) -> Option<UnixMs> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// Keys for the role of the container that this runs in.
pub(super) async fn container_keys(
    environment: &Environment,
    local: LocalRoute,
) -> Result<AccessKeys, CredentialError> {
    const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let url = match (environment.variable(RELATIVE), environment.variable(FULL)) {
        (Some(path), _) if path.starts_with('/') => address(RELATIVE, &format!("{CONTAINER_HOST}{path}"))?,
        (Some(_), _) => return Err(unavailable(format!("{RELATIVE} does not begin with a slash"))),
        (None, Some(full)) => address(FULL, &full)?,
        (None, None) => return Err(unavailable(format!("{FULL} is not set"))),
    };
    let token = match environment.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(file) => Some(small_file(&file).await?),
        None => environment.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    // The place is on this machine, or as good as: no proxy may see what it says.
    let client = if url.scheme() == "https" { net::client(&url, local) } else { net::direct(&url) };
    let mut request = client.map_err(|error| unavailable(error.message))?.get(url.clone());
    request = request.header(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(token) = &token {
        let mut value = HeaderValue::try_from(token.as_str())
            .map_err(|_| unavailable("the authorization token has characters that HTTP does not allow"))?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let name = url.host_str().unwrap_or_default();
    let (status, body) = answer(name, request).await?;
    if status != 200 {
        return Err(unavailable(format!("{name} answered {status}: {}", hidden(&body, token.as_deref()))));
    }
    read_keys(&body).ok_or_else(|| unavailable(format!("{name} sent no access key")))
}

/// A server's words without the token that it was sent.
pub(super) fn hidden(body: &str, token: Option<&str>) -> String {
    match token {
        Some(token) if !token.is_empty() => quote(&body.replace(token, "[credential]")),
        Some(_) | None => quote(body),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerKeys {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

pub(super) fn read_keys(body: &str) -> Option<AccessKeys> {
    let keys: ContainerKeys = serde_json::from_str(body).ok()?;
    let full = |text: &String| !text.trim().is_empty();
    let expires = match keys.expiration.as_deref() {
        Some(text) => Some(time(text)?),
        None => None,
    };
    Some(AccessKeys {
        id: Some(keys.access_key_id).filter(full)?,
        secret: Secret::new(Some(keys.secret_access_key).filter(full)?),
        token: keys.token.filter(full).map(Secret::new),
        expires,
    })
}

/// Keys of a role, for the token of an identity that it trusts.
pub(super) async fn assume_role(
    identity: WebIdentity,
    endpoint: Option<&str>,
    region: &str,
    local: LocalRoute,
) -> Result<AccessKeys, CredentialError> {
    let url = match endpoint {
        Some(endpoint) => address("AWS_ENDPOINT_URL_STS", endpoint)?,
        None => address("AWS_REGION", &format!("https://sts.{region}.{}/", domain(region)))?,
    };
    let token = small_file(&identity.file).await?;
    let session = identity.session.unwrap_or_else(|| format!("quipu-{}", crate::time::now()));
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", &identity.role),
        ("RoleSessionName", &session),
        ("WebIdentityToken", &token),
    ];
    // As the body of a form is written.
    let mut written = Url::parse("http://form").map_err(|_| CredentialError::Panicked)?;
    written.query_pairs_mut().extend_pairs(form);
    let body = written.query().unwrap_or_default().to_owned();
    let client = net::client(&url, local).map_err(|error| unavailable(error.message))?;
    let media = HeaderValue::from_static("application/x-www-form-urlencoded");
    let request = client.post(url.clone()).header(CONTENT_TYPE, media).body(body);
    let name = url.host_str().unwrap_or_default();
    let (status, body) = answer(name, request).await?;
    if status != 200 {
        let said = |tag| element(&body, tag).unwrap_or_default();
        let (code, message) = (said("Code"), said("Message"));
        let words = if code.is_empty() { body.clone() } else { format!("{code}: {message}") };
        return Err(unavailable(format!("{name} answered {status}: {}", hidden(&words, Some(&token)))));
    }
    let keys = || {
        let full = |tag| element(&body, tag).filter(|text| !text.is_empty());
        Some(AccessKeys {
            id: full("AccessKeyId")?,
            secret: Secret::new(full("SecretAccessKey")?),
            token: Some(Secret::new(full("SessionToken")?)),
            expires: Some(time(&full("Expiration")?)?),
        })
    };
    keys().ok_or_else(|| unavailable(format!("{name} sent no access key")))
}

/// The text of the first element of this name, which holds no others.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Some(entities.iter().fold(text.trim().to_owned(), |text, (entity, c)| text.replace(entity, c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_tls_or_stay_on_the_machine() {
        let check = |text: &str, expect: bool| {
            assert_eq!(address("AWS_CONTAINER_CREDENTIALS_FULL_URI", text).is_ok(), expect, "{text}");
        };
        for good in [
            "https://anywhere.example/x",
            "http://127.0.0.1:80/x",
            "http://localhost/x",
            "http://[::1]:8/x",
            "http://169.254.170.2/v2/x",
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
        ] {
            check(good, true);
        }
        for bad in [
            "http://anywhere.example/x",
            "http://169.254.169.254/latest",
            "http://10.0.0.1/",
            "http://127.0.0.1.example.com/",
            "http://169.254.170.2.example.com/",
            "ftp://127.0.0.1/",
            "/x",
            "",
        ] {
            check(bad, false);
        }
        let error = address("AWS_ENDPOINT_URL_STS", "http://10.0.0.1/?secret").unwrap_err().to_string();
        assert!(error.contains("AWS_ENDPOINT_URL_STS leads to 10.0.0.1 over plain HTTP"), "{error}");
    }

    #[test]
    fn keys_are_read_when_they_are_whole() {
        let keys = read_keys(
            r#"{"AccessKeyId":"AKID","SecretAccessKey":"s","Token":"t","Expiration":"2030-01-01T00:00:00Z","RoleArn":"r"}"#,
        );
        let keys = keys.unwrap();
        assert_eq!((keys.id.as_str(), keys.expires), ("AKID", Some(1_893_456_000_000)));
        for bad in [
            "",
            "{}",
            r#"{"AccessKeyId":"","SecretAccessKey":"s"}"#,
            r#"{"AccessKeyId":"a","SecretAccessKey":"s","Expiration":"soon"}"#,
        ] {
            assert_eq!(read_keys(bad), None, "{bad}");
        }
        assert_eq!(element("<a><B> x &amp;lt; </B></a>", "B").as_deref(), Some("x &lt;"));
        assert_eq!(element("<B>", "B"), None);
    }
}
