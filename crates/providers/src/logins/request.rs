//! Requests to the servers of logins.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use serde_json::{Map, Value};

use super::LoginError;
use super::rows::BodyForm;
use crate::failure::quote;
use crate::net::{self, LocalRoute};
use crate::target::http_url;

/// How long a server may take.
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of an answer at most.
const MAX_BYTES: usize = 64 << 10;
/// Secrets shorter than this may occur by chance.
const MIN_SECRET: usize = 8;

/// What is sent to such a server.
pub(crate) enum LoginBody<'a> {
    /// Nothing: something is read.
    Nothing,
    /// Parameters in this form. Their values are secrets.
    Params(BodyForm, Vec<(&'a str, &'a str)>),
    /// A value without secrets.
    Json(&'a Value),
}

/// A request to the server of a login.
pub(crate) struct LoginRequest<'a> {
    /// What is asked, for people.
    pub(crate) what: &'static str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a BTreeMap<String, String>,
    pub(crate) body: LoginBody<'a>,
    /// A token that the server knows the account by.
    pub(crate) bearer: Option<&'a str>,
}

/// What a server answered.
pub(crate) struct Answer {
    what: &'static str,
    host: String,
    pub(super) status: u16,
    body: Vec<u8>,
    /// What was sent and stands in no message.
    secrets: Vec<String>,
}

/// A URL that secrets may go to: https, or a server on this machine.
pub(crate) fn checked(url: &str) -> Result<Url, LoginError> {
    let safe = http_url(url).filter(|url| {
        let plain = url.scheme() == "https" || net::is_loopback(url.host_str().unwrap_or_default());
        plain && url.username().is_empty() && url.password().is_none()
    });
    safe.ok_or_else(|| LoginError::Address {
        url: quote(url.split('?').next().unwrap_or_default()).chars().take(200).collect(),
    })
}

/// Parameters as a query or a form.
pub(super) fn encoded(params: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("http://localhost/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(params);
    url.query().unwrap_or_default().to_owned()
}

impl LoginRequest<'_> {
    pub(crate) async fn send(self) -> Result<Answer, LoginError> {
        let url = checked(self.url)?;
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let unreachable = |why: String| LoginError::Unreachable { host: host.clone(), what: self.what, why };
        let client = net::client(&url, LocalRoute::Direct).map_err(|error| unreachable(error.message))?;
        let mut secrets: Vec<String> = self.bearer.into_iter().map(str::to_owned).collect();
        let mut request = match &self.body {
            LoginBody::Nothing => client.get(url.clone()),
            LoginBody::Json(value) => {
                client.post(url.clone()).header("content-type", "application/json").body(value.to_string())
            }
            LoginBody::Params(form, params) => {
                // All but what stands in the data are codes and tokens; what is hidden in vain does no harm.
                let hidden =
                    params.iter().filter(|(name, _)| !["client_id", "scope", "grant_type"].contains(name));
                secrets.extend(hidden.map(|(_, value)| (*value).to_owned()));
                let (kind, body) = match form {
                    BodyForm::Form => ("application/x-www-form-urlencoded", encoded(params)),
                    BodyForm::Json => {
                        let body =
                            params.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
                        ("application/json", Value::Object(body.collect()).to_string())
                    }
                };
                client.post(url.clone()).header("content-type", kind).body(body)
            }
        };
        request = request.header("accept", "application/json").timeout(ANSWER);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(token) = self.bearer {
            request = request.bearer_auth(token);
        }
        let failed = |error: reqwest::Error| {
            let obstacle = net::obstacle(&url, LocalRoute::Direct, &error);
            let why = obstacle.map_or_else(|| net::describe(&error.without_url()), |it| it.detail);
            unreachable(why)
        };
        let mut response = request.send().await.map_err(&failed)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        let mut answer = Answer { what: self.what, host: host.clone(), status, body: Vec::new(), secrets };
        while let Some(piece) = response.chunk().await.map_err(&failed)? {
            if body.len() + piece.len() > MAX_BYTES {
                return Err(answer.nonsense(format!("it is larger than {MAX_BYTES} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        answer.body = body;
        Ok(answer)
    }
}

impl Answer {
    /// The object that a good answer is.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, LoginError> {
        if !(200..300).contains(&self.status) {
            return Err(self.refusal());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err(self.nonsense("it is not a JSON object")),
            // Not the words of the parser: they may quote what stands there.
            Err(_) if self.body.trim_ascii_start().starts_with(b"<") => {
                Err(self.nonsense("it is not JSON but a page"))
            }
            Err(_) => Err(self.nonsense("it is not JSON")),
        }
    }

    /// The server's word for what is wrong: `error`, as RFC 6749 has it, or the code of an object.
    pub(super) fn error_code(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let error = body.get("error")?;
        let code =
            error.as_str().or_else(|| error.get("code")?.as_str()).or_else(|| error.get("type")?.as_str());
        code.map(|code| self.shown(code))
    }

    /// A number of the answer, such as `interval`; some servers write it as a text.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let value = body.get(name)?;
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        number.filter(|number| number.is_finite() && *number >= 0.0)
    }

    /// That it is none that helps: its status and what the server says.
    pub(super) fn refusal(&self) -> LoginError {
        LoginError::Refused {
            host: self.host.clone(),
            what: self.what,
            status: self.status,
            code: self.error_code().unwrap_or_default(),
            words: self.words(),
        }
    }

    /// What it says of a failure, after a colon; empty when that is nothing.
    pub(super) fn words(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let said = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let error = body.get("error");
        let nested = error.and_then(|error| said(error.get("message")));
        let text = said(body.get("error_description")).or(nested).or_else(|| said(body.get("message")));
        let words: Vec<_> = self.error_code().into_iter().chain(text.map(|text| self.shown(&text))).collect();
        if words.is_empty() { String::new() } else { format!(": {}", words.join(": ")) }
    }

    /// That it cannot be used, and why.
    pub(crate) fn nonsense(&self, problem: impl Into<String>) -> LoginError {
        LoginError::Nonsense { host: self.host.clone(), what: self.what, problem: problem.into() }
    }

    /// The server's own words, without what was sent to it.
    fn shown(&self, text: &str) -> String {
        let secrets = self.secrets.iter().filter(|secret| secret.len() >= MIN_SECRET);
        let text = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[credential]"));
        quote(&text).chars().take(300).collect()
    }
}
