//! Keys of the role of a virtual machine, from the service of metadata on its link: a token first, then the role, then its
//! keys. The older way without a token is never used.

use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;

use super::environment::Environment;
use super::hardware::{DISABLED, ENDPOINT};
use super::remote::{self, hidden, is_private, unavailable};
use super::sign::AccessKeys;
use crate::credentials::{CredentialError, Secret};
use crate::failure::quote;
use crate::net;
use crate::target::http_url;

const ENDPOINT_MODE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE";

/// Where the service is, by the version of the protocol.
const ADDRESS: &str = "http://169.254.169.254";
const ADDRESS_V6: &str = "http://[fd00:ec2::254]";
/// Whole seconds that a request may take, for machines on which one is not enough.
const TIMEOUT: &str = "AWS_METADATA_SERVICE_TIMEOUT";
/// Seconds that a request may take where nobody says it, and how often it is made. On such a machine the answer takes
/// milliseconds.
const SECONDS: u64 = 1;
const MAX_SECONDS: u64 = 60;
const ATTEMPTS: u32 = 2;
/// Seconds for which a token is asked for. One serves the two requests after it.
const TOKEN_SECONDS: &str = "60";
const TOKEN_SECONDS_HEADER: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
/// Characters of a token, and of the name of a role, at most.
const MAX_TOKEN: usize = 1024;
const MAX_ROLE: usize = 64;

fn endpoint(environment: &Environment) -> Result<Url, CredentialError> {
    let known = |text: &str| http_url(text).ok_or(CredentialError::Panicked);
    let Some(text) = environment.variable(ENDPOINT) else {
        let mode = environment.variable(ENDPOINT_MODE);
        let is_v6 = mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
        return known(if is_v6 { ADDRESS_V6 } else { ADDRESS });
    };
    let url = http_url(&text).ok_or_else(|| unavailable(format!("{ENDPOINT} is not an HTTP URL")))?;
    let is_usual = |usual: &str| known(usual).is_ok_and(|usual| usual.host_str() == url.host_str());
    if is_private(&url) || is_usual(ADDRESS) || is_usual(ADDRESS_V6) {
        return Ok(url);
    }
    Err(unavailable(format!(
        "{ENDPOINT} leads to {} over plain HTTP, where others can read the credentials. Use the address of the service \
         itself, https, or an address of this machine",
        quote(url.host_str().unwrap_or_default())
    )))
}

/// How long a request may take.
fn patience(environment: &Environment) -> Duration {
    let seconds = environment.variable(TIMEOUT).and_then(|text| text.parse::<u64>().ok());
    Duration::from_secs(seconds.unwrap_or(SECONDS).clamp(1, MAX_SECONDS))
}

/// The service at one address.
struct MetadataService {
    base: String,
    host: String,
    patience: Duration,
}

impl MetadataService {
    fn failure(&self, why: &str) -> CredentialError {
        unavailable(format!("the metadata service of this machine ({}) {why}", self.host))
    }

    /// The answer to a request; made again when none comes, or one that says that the service is busy.
    async fn answer(
        &self,
        method: &Method,
        path: &str,
        (name, value): (HeaderName, &HeaderValue),
    ) -> Result<(u16, String), CredentialError> {
        let url = http_url(&format!("{}/latest/{path}", self.base)).ok_or(CredentialError::Panicked)?;
        // No proxy stands between a machine and its own link.
        let client = net::direct(&url).map_err(|error| unavailable(error.message))?;
        let mut last = Err(CredentialError::Panicked);
        for _ in 0..ATTEMPTS {
            let request = client.request(method.clone(), url.clone()).timeout(self.patience);
            last = remote::answer(&self.host, request.header(name.clone(), value.clone())).await;
            if !matches!(&last, Err(_) | Ok((429 | 500..=599, _))) {
                break;
            }
        }
        last
    }

    async fn token(&self) -> Result<Secret, CredentialError> {
        let seconds = HeaderValue::from_static(TOKEN_SECONDS);
        let answered = self.answer(&Method::PUT, "api/token", (TOKEN_SECONDS_HEADER, &seconds)).await;
        let (status, body) = answered.map_err(|error| {
            let hop = "In a container, the hop limit of the instance has to be 2 or more";
            self.failure(&format!("gave no token: {error}. {hop}; {DISABLED}=true leaves the service out"))
        })?;
        let token = body.trim();
        match status {
            200 if (1..=MAX_TOKEN).contains(&token.len()) => Ok(Secret::new(token)),
            200 => Err(self.failure("sent a token that is none")),
            403 => Err(self.failure("is turned off for this instance (403). Turn it on, or set AWS_PROFILE")),
            _ => {
                Err(self.failure(&format!("answered {status} to the request for a token: {}", quote(&body))))
            }
        }
    }

    async fn get(&self, path: &str, token: &Secret) -> Result<(u16, String), CredentialError> {
        let mut value = HeaderValue::try_from(token.expose())
            .map_err(|_| self.failure("sent a token with characters that HTTP does not allow"))?;
        value.set_sensitive(true);
        self.answer(&Method::GET, path, (TOKEN_HEADER, &value)).await
    }

    async fn keys(&self) -> Result<AccessKeys, CredentialError> {
        const ROLES: &str = "meta-data/iam/security-credentials/";
        let token = self.token().await?;
        let words = |body: &str| hidden(body, Some(token.expose()));
        let (status, body) = self.get(ROLES, &token).await?;
        let role = match status {
            200 => body.lines().next().unwrap_or_default().trim(),
            404 => return Err(self.failure("knows no role of this instance. Attach one, or set AWS_PROFILE")),
            _ => return Err(self.failure(&format!("answered {status}: {}", words(&body)))),
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
        if !(1..=MAX_ROLE).contains(&role.len()) || !role.bytes().all(is_plain) || role.starts_with('.') {
            return Err(self.failure("sent a name of a role that is none"));
        }
        let (status, body) = self.get(&format!("{ROLES}{role}"), &token).await?;
        if status != 200 {
            return Err(self.failure(&format!("answered {status} for the role {role}: {}", words(&body))));
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Verdict {
            code: Option<String>,
            message: Option<String>,
        }
        let verdict = serde_json::from_str(&body).unwrap_or(Verdict { code: None, message: None });
        if let Some(code) = verdict.code.filter(|code| code != "Success") {
            let said = words(&format!("{code}: {}", verdict.message.unwrap_or_default()));
            return Err(self.failure(&format!("has no keys for the role {role}: {said}")));
        }
        let none = || self.failure(&format!("sent no access key for the role {role}"));
        remote::read_keys(&body).ok_or_else(none)
    }
}

/// Keys for the role of the virtual machine that this runs on.
pub(super) async fn instance_keys(environment: &Environment) -> Result<AccessKeys, CredentialError> {
    let url = endpoint(environment)?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let base = url.as_str().trim_end_matches('/').to_owned();
    MetadataService { base, host, patience: patience(environment) }.keys().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(vars: &[(&str, &str)]) -> Environment {
        let vars = vars.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Environment::new(vars, None)
    }

    #[test]
    fn patience_is_bounded() {
        for (text, seconds) in [("30", 30), ("0", 1), ("61", 60), ("1.5", 1), ("-1", 1), ("", 1)] {
            let found = patience(&environment(&[(TIMEOUT, text)]));
            assert_eq!(found, Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(patience(&environment(&[])), Duration::from_secs(SECONDS));
    }

    #[test]
    fn address_of_the_service_is_private() {
        let at = |vars: &[(&str, &str)]| endpoint(&environment(vars)).map(|url| url.to_string());
        assert_eq!(at(&[]).unwrap(), "http://169.254.169.254/");
        assert_eq!(at(&[(ENDPOINT_MODE, "IPv6")]).unwrap(), "http://[fd00:ec2::254]/");
        for good in ["http://127.0.0.1:1338/x/", "http://[fd00:ec2::254]/", "https://a.example"] {
            assert!(at(&[(ENDPOINT, good)]).is_ok(), "{good}");
        }
        for bad in ["http://a.example/", "http://10.0.0.1", "ftp://127.0.0.1", "x"] {
            assert!(at(&[(ENDPOINT, bad)]).unwrap_err().to_string().contains(ENDPOINT), "{bad}");
        }
    }
}
