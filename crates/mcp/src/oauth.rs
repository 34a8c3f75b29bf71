//! Logins to servers on the network: an authorization code with PKCE, for a client that registers itself.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use quipu_providers::net::{self, LocalRoute};
use quipu_providers::{LoginCallback, code_challenge, pasted_code, random_code};
use reqwest::{RequestBuilder, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::store::DefinitionStoreError;
use crate::visible::one_line;

/// Bytes of an answer of an authorization server.
const ANSWER: usize = 1 << 20;
/// How long an authorization server may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Where the browser returns to.
const REDIRECT: &str = "http://127.0.0.1:0/callback";
/// Seconds by which a token counts as expired before it is.
const SKEW: u64 = 60;

/// Why there is no login.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OauthError {
    /// A server could not be asked.
    #[error("{host} could not be asked for {what}: {why}")]
    Unreachable {
        /// The server.
        host: String,
        /// What for.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// An answer, or an address in it, cannot be used.
    #[error("the login cannot be used: {0}")]
    Unusable(String),
    /// The server or the person said no.
    #[error("the login was refused: {0}")]
    Refused(String),
}

/// A client that somebody registered at the authorization server.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct OauthClient {
    /// Its id; one is registered where there is none.
    pub id: Option<String>,
    /// Its secret, where it has one.
    pub secret: Option<String>,
}

impl fmt::Debug for OauthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a login gave. Its debug form has no secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OauthTokens {
    /// What requests carry.
    pub access: String,
    /// What another access token is had for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<String>,
    /// When the access token counts as expired, in seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// The address that the token is for: no other origin gets it.
    pub resource: String,
    token_url: String,
    client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    method: TokenMethod,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

impl fmt::Debug for OauthTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthTokens").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// How the client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TokenMethod {
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

/// Where logins are kept.
pub trait TokenStore: Send + Sync + 'static {
    /// The login for an address.
    fn tokens(&self, url: &str) -> Option<OauthTokens>;

    /// Keeps a login; `None` forgets it.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn keep(&self, url: &str, tokens: Option<&OauthTokens>) -> Result<(), DefinitionStoreError>;
}

impl OauthTokens {
    /// Whether a request to this address may carry the token.
    pub(crate) fn is_for(&self, url: &Url) -> bool {
        Url::parse(&self.resource).is_ok_and(|own| own.origin() == url.origin())
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| now() + SKEW >= expires)
    }

    /// Another access token.
    ///
    /// # Errors
    /// Where there is nothing to have one for, or the server gives none.
    pub(crate) async fn refreshed(&self) -> Result<Self, OauthError> {
        let none = || OauthError::Unusable("it has no refresh token".into());
        let refresh = self.refresh.clone().ok_or_else(none)?;
        let mut form = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh),
            ("resource", self.resource.clone()),
        ];
        form.extend(self.scope.clone().map(|scope| ("scope", scope)));
        let answer = token_request(
            &self.token_url,
            self.method,
            (&self.client_id, self.client_secret.as_deref()),
            form,
        );
        let mut tokens = self.clone();
        tokens.take(&answer.await?)?;
        Ok(tokens)
    }

    fn take(&mut self, answer: &Map<String, Value>) -> Result<(), OauthError> {
        self.access = token(answer, "access_token")?
            .ok_or_else(|| OauthError::Unusable("the answer has no access_token".into()))?;
        self.refresh = token(answer, "refresh_token")?.or(self.refresh.take());
        let seconds = answer.get("expires_in").and_then(Value::as_u64);
        self.expires = seconds.map(|seconds| now().saturating_add(seconds.min(366 * 86_400)));
        Ok(())
    }
}

/// A login that waits for a person.
pub struct OauthLogin {
    /// The page to open.
    pub url: String,
    verifier: String,
    state: String,
    redirect: String,
    callback: LoginCallback,
    tokens: OauthTokens,
}

impl fmt::Debug for OauthLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthLogin").field("resource", &self.tokens.resource).finish_non_exhaustive()
    }
}

impl OauthLogin {
    /// Finds out who gives tokens for a server, and registers there. `challenge` is what the server said when it refused a
    /// request; it is asked where nothing is known.
    ///
    /// # Errors
    /// What is missing.
    pub async fn begin(url: &str, client: &OauthClient, challenge: Option<&str>) -> Result<Self, OauthError> {
        let server = safe(url)?;
        let asked;
        let challenge = match challenge {
            Some(challenge) => challenge,
            None => {
                asked = first_refusal(&server).await?;
                asked.as_str()
            }
        };
        let resource = resource_metadata(&server, parameter(challenge, "resource_metadata")).await?;
        let authority = match resource["authorization_servers"][0].as_str() {
            Some(authority) => safe(authority)?,
            None => origin_of(&server)?,
        };
        let metadata = authority_metadata(&authority).await?;
        // An authority that stands for another one could be given what belongs to that one (RFC 8414, section 3.3). Servers of 2025-03-26
        // name none, and often pass on what their authority says.
        if let (Some(_), Some(metadata)) = (resource["authorization_servers"][0].as_str(), &metadata)
            && let Some(other) = other_issuer(metadata, &authority)
        {
            return Err(OauthError::Unusable(format!(
                "the authorization server {} says that it is {}, which is another address",
                one_line(authority.as_str(), 200),
                one_line(other, 200)
            )));
        }
        let endpoint = |name: &str, path: &str| match (
            &metadata,
            metadata.as_ref().and_then(|found| found[name].as_str()),
        ) {
            (_, Some(url)) => safe(url).map(Some),
            // As servers of 2025-03-26 have it.
            (None, None) => origin_of(&authority)?.join(path).map(Some).map_err(|error| unusable(&error)),
            (Some(_), None) => Ok(None),
        };
        let missing = |what: &str| OauthError::Unusable(format!("the authorization server names no {what}"));
        let authorize = endpoint("authorization_endpoint", "/authorize")?;
        let mut authorize = authorize.ok_or_else(|| missing("authorization_endpoint"))?;
        let token_url = endpoint("token_endpoint", "/token")?.ok_or_else(|| missing("token_endpoint"))?;
        if let Some(metadata) = &metadata
            && !has(&metadata["code_challenge_methods_supported"], "S256")
        {
            return Err(OauthError::Unusable("the authorization server does not support PKCE (S256)".into()));
        }
        let failed = |error: quipu_providers::LoginError| OauthError::Unusable(error.to_string());
        let (verifier, state) = (random_code().map_err(failed)?, random_code().map_err(failed)?);
        let (callback, redirect) = LoginCallback::listen(REDIRECT, Some(&state)).await.map_err(failed)?;
        let supported = metadata
            .as_ref()
            .map_or(Value::Null, |found| found["token_endpoint_auth_methods_supported"].clone());
        let registered = match &client.id {
            Some(id) => (id.clone(), client.secret.clone(), None),
            None => {
                let registration = endpoint("registration_endpoint", "/register")?;
                let registration = registration.ok_or_else(|| missing("registration_endpoint"))?;
                register(&registration, &redirect, &supported).await?
            }
        };
        let (client_id, client_secret, method) = registered;
        let method = match (&client_secret, method) {
            (_, Some(method)) => method,
            (None, None) => TokenMethod::None,
            (Some(_), None) if supported.is_array() && !has(&supported, "client_secret_basic") => {
                TokenMethod::ClientSecretPost
            }
            (Some(_), None) => TokenMethod::ClientSecretBasic,
        };
        let scope = parameter(challenge, "scope").map(str::to_owned).or_else(|| {
            let scopes = resource["scopes_supported"].as_array()?;
            let scopes: Vec<&str> = scopes.iter().filter_map(Value::as_str).collect();
            (!scopes.is_empty()).then(|| scopes.join(" "))
        });
        let resource_url = resource["resource"].as_str().unwrap_or(url).to_owned();
        let challenge = code_challenge(&verifier);
        {
            let mut query = authorize.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &client_id)
                .append_pair("redirect_uri", &redirect)
                .append_pair("state", &state)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256")
                .append_pair("resource", &resource_url);
            if let Some(scope) = &scope {
                query.append_pair("scope", scope);
            }
        }
        let tokens = OauthTokens {
            access: String::new(),
            refresh: None,
            expires: None,
            resource: resource_url,
            token_url: token_url.into(),
            client_id,
            client_secret,
            method,
            scope,
        };
        Ok(Self { url: authorize.into(), verifier, state, redirect, callback, tokens })
    }

    /// Waits for the code, from the browser or from `paste` (`None` where nothing will be pasted), and turns it into tokens.
    ///
    /// # Errors
    /// Where the person or the server says no.
    pub async fn finish(
        self,
        paste: impl Future<Output = Option<String>> + Send,
    ) -> Result<OauthTokens, OauthError> {
        let by_hand = async {
            match paste.await {
                Some(text) => pasted_code(&text, &self.state),
                None => std::future::pending().await,
            }
        };
        let code = tokio::select! {
            code = self.callback.code() => code,
            code = by_hand => code,
        };
        let code = code.map_err(|error| OauthError::Refused(error.to_string()))?;
        let form = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code),
            ("redirect_uri", self.redirect),
            ("code_verifier", self.verifier),
            ("resource", self.tokens.resource.clone()),
        ];
        let mut tokens = self.tokens;
        let client = (tokens.client_id.as_str(), tokens.client_secret.as_deref());
        let answer = token_request(&tokens.token_url, tokens.method, client, form).await?;
        tokens.take(&answer)?;
        Ok(tokens)
    }
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn unusable(error: &dyn std::error::Error) -> OauthError {
    OauthError::Unusable(one_line(&error.to_string(), 300))
}

/// An address that secrets may be sent to.
fn safe(url: &str) -> Result<Url, OauthError> {
    let parsed = Url::parse(url).map_err(|error| unusable(&error))?;
    let is_here = parsed.scheme() == "http" && net::is_loopback(parsed.host_str().unwrap_or_default());
    if parsed.scheme() == "https" || is_here {
        return Ok(parsed);
    }
    Err(OauthError::Unusable(format!("{} is not https", one_line(url, 200))))
}

fn origin_of(url: &Url) -> Result<Url, OauthError> {
    url.join("/").map_err(|error| unusable(&error))
}

fn has(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|items| items.iter().any(|item| item == word))
}

/// A parameter of a challenge: `name="value"`.
fn parameter<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name}=\"");
    let at = challenge.find(&start)? + start.len();
    let rest = &challenge[at..];
    rest.find('"').map(|end| &rest[..end])
}

async fn send(
    url: &Url,
    what: &'static str,
    make: impl FnOnce(&reqwest::Client) -> RequestBuilder,
) -> Result<(StatusCode, Vec<u8>, String), OauthError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let failed = |why: String| OauthError::Unreachable { host: host.clone(), what, why };
    let client = net::client(url, LocalRoute::default()).map_err(|error| failed(error.to_string()))?;
    let exchange = async {
        let response = make(client).send().await.map_err(|error| failed(error.without_url().to_string()))?;
        let challenge = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
        let challenge = challenge.unwrap_or_default().to_owned();
        let (status, mut body) = (response.status(), Vec::new());
        let mut stream = response.bytes_stream();
        while let Some(piece) = stream.next().await {
            body.extend_from_slice(&piece.map_err(|error| failed(error.without_url().to_string()))?);
            if body.len() > ANSWER {
                return Err(failed(format!("its answer has more than {ANSWER} bytes")));
            }
        }
        Ok((status, body, challenge))
    };
    tokio::time::timeout(LIMIT, exchange)
        .await
        .unwrap_or_else(|_| Err(failed(format!("no answer within {} s", LIMIT.as_secs()))))
}

/// What a server says to a request without a login.
async fn first_refusal(server: &Url) -> Result<String, OauthError> {
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "ping" }).to_string();
    let (_, _, challenge) = send(server, "the way to log in", |client| {
        client
            .post(server.clone())
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(body)
    })
    .await?;
    Ok(challenge)
}

/// A JSON object at an address; `None` where there is none.
async fn document(url: &Url) -> Result<Option<Value>, OauthError> {
    let (status, body, _) =
        send(url, "its metadata", |client| client.get(url.clone()).header("accept", "application/json"))
            .await?;
    if !status.is_success() {
        return Ok(None);
    }
    Ok(serde_json::from_slice::<Value>(&body).ok().filter(Value::is_object))
}

/// What the server says of itself; null where it says nothing.
async fn resource_metadata(server: &Url, named: Option<&str>) -> Result<Value, OauthError> {
    let join = |path: &str| server.join(path).map_err(|error| unusable(&error));
    let places = match named {
        Some(named) => vec![safe(named)?],
        None => {
            let path = server.path().trim_end_matches('/');
            let mut places = vec![join(&format!("/.well-known/oauth-protected-resource{path}"))?];
            if !path.is_empty() {
                places.push(join("/.well-known/oauth-protected-resource")?);
            }
            places
        }
    };
    for place in places {
        let Some(found) = document(&place).await? else { continue };
        if let Some(resource) = found["resource"].as_str() {
            let theirs = Url::parse(resource).map_err(|error| unusable(&error))?;
            let path = theirs.path().trim_end_matches('/');
            let is_above = server.path() == path
                || server
                    .path()
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/') || rest.is_empty());
            if theirs.origin() != server.origin() || !is_above {
                return Err(OauthError::Unusable(format!(
                    "the server says that it is {}, which is another address",
                    one_line(resource, 200)
                )));
            }
        }
        return Ok(found);
    }
    Ok(Value::Null)
}

/// What the authorization server says of itself.
async fn authority_metadata(authority: &Url) -> Result<Option<Value>, OauthError> {
    let path = authority.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    for place in places {
        let url = authority.join(&place).map_err(|error| unusable(&error))?;
        if let Some(found) = document(&url).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The issuer that metadata names, where it is not the authorization server that was asked. A slash at the end does not count.
fn other_issuer<'a>(metadata: &'a Value, authority: &Url) -> Option<&'a str> {
    let issuer = metadata["issuer"].as_str()?;
    let is_same = Url::parse(issuer).is_ok_and(|url| {
        let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
        url.origin() == authority.origin()
            && path(&url) == path(authority)
            && url.query() == authority.query()
    });
    (!is_same).then_some(issuer)
}

/// Registers a client, and gives its id, its secret and how it proves who it is.
async fn register(
    url: &Url,
    redirect: &str,
    supported: &Value,
) -> Result<(String, Option<String>, Option<TokenMethod>), OauthError> {
    let is_open = !supported.is_array() || has(supported, "none");
    let method = if is_open {
        "none"
    } else if has(supported, "client_secret_basic") {
        "client_secret_basic"
    } else {
        "client_secret_post"
    };
    let body = json!({
        "client_name": "Quipu",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    });
    let (status, answer, _) = send(url, "a registration", |client| {
        client.post(url.clone()).header("content-type", "application/json").body(body.to_string())
    })
    .await?;
    let answer = object(status, &answer)?;
    let id = token(&answer, "client_id")?
        .ok_or_else(|| OauthError::Unusable("the registration has no client_id".into()))?;
    let secret = token(&answer, "client_secret")?;
    let method = answer.get("token_endpoint_auth_method").and_then(Value::as_str).unwrap_or(method);
    let method = match (method, &secret) {
        ("client_secret_basic", Some(_)) => Some(TokenMethod::ClientSecretBasic),
        ("client_secret_post", Some(_)) => Some(TokenMethod::ClientSecretPost),
        ("none", _) => Some(TokenMethod::None),
        _ => None,
    };
    Ok((id, secret, method))
}

async fn token_request(
    url: &str,
    method: TokenMethod,
    (id, secret): (&str, Option<&str>),
    mut form: Vec<(&'static str, String)>,
) -> Result<Map<String, Value>, OauthError> {
    let url = safe(url)?;
    match (method, secret) {
        (TokenMethod::ClientSecretPost, Some(secret)) => {
            form.extend([("client_id", id.to_owned()), ("client_secret", secret.to_owned())]);
        }
        (TokenMethod::None, _) | (_, None) => form.push(("client_id", id.to_owned())),
        (TokenMethod::ClientSecretBasic, Some(_)) => {}
    }
    let mut encoded = Url::parse("http://localhost").map_err(|error| unusable(&error))?;
    encoded.query_pairs_mut().extend_pairs(&form);
    let body = encoded.query().unwrap_or_default().to_owned();
    let (status, answer, _) = send(&url, "tokens", |client| {
        let request = client
            .post(url.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(body);
        match (method, secret) {
            (TokenMethod::ClientSecretBasic, Some(secret)) => request.basic_auth(id, Some(secret)),
            _ => request,
        }
    })
    .await?;
    object(status, &answer)
}

fn object(status: StatusCode, answer: &[u8]) -> Result<Map<String, Value>, OauthError> {
    let value: Value = serde_json::from_slice(answer).unwrap_or_default();
    match value {
        Value::Object(members) if status.is_success() => Ok(members),
        Value::Object(members) => {
            let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let words = format!("{} {}", text("error"), text("error_description"));
            Err(OauthError::Refused(format!("HTTP {status} {}", one_line(&words, 300))))
        }
        _ => Err(OauthError::Refused(format!("HTTP {status}, and no JSON object"))),
    }
}

/// A token that a header can hold.
fn token(answer: &Map<String, Value>, name: &str) -> Result<Option<String>, OauthError> {
    match answer.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text))
            if !text.is_empty() && text.len() <= 16 << 10 && text.bytes().all(|b| b.is_ascii_graphic()) =>
        {
            Ok(Some(text.clone()))
        }
        Some(_) => Err(OauthError::Unusable(format!("{name} is not one word of at most 16 KiB"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(resource: &str) -> OauthTokens {
        OauthTokens {
            access: "access-1".into(),
            refresh: Some("refresh-1".into()),
            expires: None,
            resource: resource.into(),
            token_url: "https://auth.example.com/token".into(),
            client_id: "c".into(),
            client_secret: Some("secret-1".into()),
            method: TokenMethod::None,
            scope: None,
        }
    }

    #[test]
    fn token_goes_to_its_own_origin_only() {
        let tokens = tokens("https://example.com/mcp");
        for (url, fits) in [
            ("https://example.com/mcp", true),
            ("https://example.com/other", true),
            ("http://example.com/mcp", false),
            ("https://example.com:444/mcp", false),
            ("https://sub.example.com/mcp", false),
            ("https://example.com.evil.org/mcp", false),
        ] {
            assert_eq!(tokens.is_for(&Url::parse(url).unwrap()), fits, "{url}");
        }
        let shown = format!("{tokens:?}");
        assert!(
            !shown.contains("access-1") && !shown.contains("secret-1") && !shown.contains("refresh-1"),
            "{shown}"
        );
    }

    #[test]
    fn addresses_without_encryption_are_refused() {
        for (url, fits) in [
            ("https://a.b/c", true),
            ("http://127.0.0.1:1/c", true),
            ("http://a.b/c", false),
            ("file:///c", false),
            ("x", false),
        ] {
            assert_eq!(safe(url).is_ok(), fits, "{url}");
        }
    }

    #[test]
    fn issuer_of_metadata_must_be_the_one_that_was_asked() {
        for (issuer, authority, fits) in [
            ("https://a.b", "https://a.b/", true),
            ("https://a.b/tenant/", "https://a.b/tenant", true),
            ("https://a.b:443", "https://a.b", true),
            ("https://a.b/other", "https://a.b/tenant", false),
            ("https://evil.b", "https://a.b", false),
            ("http://a.b", "https://a.b", false),
            ("https://a.b@evil.b", "https://a.b", false),
            ("not an address", "https://a.b", false),
        ] {
            let found = json!({ "issuer": issuer });
            assert_eq!(other_issuer(&found, &Url::parse(authority).unwrap()).is_none(), fits, "{issuer}");
        }
        assert_eq!(other_issuer(&json!({}), &Url::parse("https://a.b").unwrap()), None);
    }

    #[test]
    fn challenge_has_parameters() {
        let challenge = r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x/y""#;
        assert_eq!(parameter(challenge, "scope"), Some("a b"));
        assert_eq!(parameter(challenge, "resource_metadata"), Some("https://x/y"));
        assert_eq!(parameter(challenge, "realm"), None);
        assert_eq!(parameter("scope=\"half", "scope"), None);
    }

    #[test]
    fn tokens_that_no_header_can_hold_are_refused() {
        let answer = |value: Value| Map::from_iter([("access_token".to_owned(), value)]);
        assert_eq!(token(&answer(json!("ok")), "access_token"), Ok(Some("ok".into())));
        for bad in [json!("a b"), json!("a\n"), json!(""), json!(7), json!("x".repeat(20 << 10))] {
            assert!(token(&answer(bad), "access_token").is_err());
        }
        let mut kept = tokens("https://example.com");
        kept.take(&answer(json!("new"))).unwrap();
        assert_eq!((kept.access.as_str(), kept.refresh.as_deref()), ("new", Some("refresh-1")));
    }
}
