//! Logins with a code that a person types on another device (RFC 8628).

use std::time::Duration;

use tokio::time::Instant;

use super::LoginError;
use super::browser::{redeem, token_request};
use super::request::{Answer, LoginBody, LoginRequest, checked};
use super::rows::{BodyForm, DeviceDialect, DeviceRow, LoginRow};
use super::tokens::{LoginTokens, token};

/// The time between two questions where a server names none.
const INTERVAL: Duration = Duration::from_secs(5);
/// What is added to it when a server asks for less.
const SLOWER: Duration = Duration::from_secs(5);
/// The longest time between two questions.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Questions in a row that may come to nothing.
const MAX_FAILURES: u32 = 5;
/// Characters of a code at most.
const MAX_CODE: usize = 64;

const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A login that waits for its person.
pub(super) struct DeviceFlow {
    /// What the person opens.
    pub(super) url: String,
    /// What the person types there.
    pub(super) user_code: String,
    device_code: String,
    interval: Duration,
    /// How long the code is good, where the server says.
    pub(super) lifetime: Option<Duration>,
}

/// What a question came to.
enum PollResult {
    Done(Answer),
    Pending,
    Slower(Option<Duration>),
}

impl DeviceFlow {
    pub(super) async fn begin(row: &LoginRow, device: &DeviceRow) -> Result<Self, LoginError> {
        let mut params = vec![("client_id", row.client_id.as_str())];
        let (form, code_field) = match device.dialect {
            DeviceDialect::Standard => {
                params.extend(row.scope.as_deref().map(|scope| ("scope", scope)));
                (BodyForm::Form, "device_code")
            }
            DeviceDialect::CodePair => (BodyForm::Json, "device_auth_id"),
        };
        params.extend(device.params.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let answer = LoginRequest {
            what: "a code for this device",
            url: &device.code_url,
            headers: &row.headers,
            body: LoginBody::Params(form, params),
            bearer: None,
        };
        let answer = answer.send().await?;
        let body = answer.object()?;
        let device_code = token(&answer, &body, code_field)?;
        let user_code = token(&answer, &body, "user_code")?;
        if user_code.len() > MAX_CODE {
            return Err(answer.nonsense(format!("\"user_code\" has more than {MAX_CODE} characters")));
        }
        let text = |name: &str| body.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
        let url = text("verification_uri_complete").or_else(|| text("verification_uri"));
        let url = url.or_else(|| device.verification_url.clone());
        let url = url.ok_or_else(|| answer.nonsense("it does not say where the code is typed"))?;
        // It is opened by a program of the person: nothing but a page of the web.
        let url = checked(&url)?.into();
        let seconds =
            |name: &str, most: f64| answer.number(name).map(|it| Duration::from_secs_f64(it.min(most)));
        Ok(Self {
            url,
            user_code,
            device_code,
            interval: seconds("interval", MAX_INTERVAL.as_secs_f64()).unwrap_or(INTERVAL),
            lifetime: seconds("expires_in", 86_400.0).filter(|lifetime| !lifetime.is_zero()),
        })
    }

    /// Asks until the person is done, at least this far apart.
    pub(super) async fn finish(
        self,
        row: &LoginRow,
        device: &DeviceRow,
        least_interval: Duration,
    ) -> Result<LoginTokens, LoginError> {
        let until = self.lifetime.map(|lifetime| Instant::now() + lifetime);
        let mut interval = self.interval.max(least_interval);
        let mut failures = 0;
        let mut waits = device.wait_first;
        loop {
            if waits {
                let next = Instant::now() + interval;
                if until.is_some_and(|until| next > until) {
                    return Err(LoginError::Expired);
                }
                tokio::time::sleep_until(next).await;
            }
            waits = true;
            match self.poll(row, device).await {
                Ok(PollResult::Done(answer)) => return self.tokens(row, device, &answer).await,
                Ok(PollResult::Pending) => failures = 0,
                Ok(PollResult::Slower(named)) => {
                    failures = 0;
                    interval = named.unwrap_or(interval + SLOWER).clamp(least_interval, MAX_INTERVAL);
                }
                Err(error) => {
                    failures += 1;
                    let passes = match &error {
                        LoginError::Unreachable { .. } => true,
                        LoginError::Refused { status, .. } => *status >= 500,
                        _ => false,
                    };
                    if !passes || failures >= MAX_FAILURES {
                        return Err(error);
                    }
                    interval = (interval * 2).min(MAX_INTERVAL);
                }
            }
        }
    }

    async fn poll(&self, row: &LoginRow, device: &DeviceRow) -> Result<PollResult, LoginError> {
        let what = "whether the login is done";
        let mut request = match device.dialect {
            DeviceDialect::Standard => {
                let params = vec![
                    ("grant_type", DEVICE_CODE),
                    ("client_id", &row.client_id),
                    ("device_code", &self.device_code),
                ];
                LoginRequest {
                    body: LoginBody::Params(BodyForm::Form, params),
                    ..token_request(row, what, Vec::new())
                }
            }
            DeviceDialect::CodePair => {
                let params =
                    vec![("device_auth_id", self.device_code.as_str()), ("user_code", &self.user_code)];
                LoginRequest {
                    body: LoginBody::Params(BodyForm::Json, params),
                    ..token_request(row, what, Vec::new())
                }
            }
        };
        if let Some(url) = &device.poll_url {
            request.url = url;
        }
        let answer = request.send().await?;
        match answer.error_code().as_deref() {
            Some("authorization_pending" | "deviceauth_authorization_pending") => {
                return Ok(PollResult::Pending);
            }
            Some("slow_down") => {
                let named = answer.number("interval").filter(|seconds| *seconds > 0.0);
                let named = named.map(|it| Duration::from_secs_f64(it.min(MAX_INTERVAL.as_secs_f64())));
                return Ok(PollResult::Slower(named));
            }
            Some("access_denied" | "authorization_denied") => {
                return Err(LoginError::Denied { words: answer.words() });
            }
            Some("expired_token") => return Err(LoginError::Expired),
            Some(_) if (200..300).contains(&answer.status) => return Err(answer.refusal()),
            Some(_) | None if answer.status >= 500 => return Err(answer.refusal()),
            Some(_) | None => {}
        }
        let waits = device.dialect == DeviceDialect::CodePair && matches!(answer.status, 403 | 404);
        Ok(if waits { PollResult::Pending } else { PollResult::Done(answer) })
    }

    async fn tokens(
        &self,
        row: &LoginRow,
        device: &DeviceRow,
        answer: &Answer,
    ) -> Result<LoginTokens, LoginError> {
        match device.dialect {
            DeviceDialect::Standard => LoginTokens::read(row, answer, None),
            DeviceDialect::CodePair => {
                let body = answer.object()?;
                let code = token(answer, &body, "authorization_code")?;
                let verifier = token(answer, &body, "code_verifier")?;
                redeem(row, &code, &verifier, device.redirect.as_deref().unwrap_or_default(), None).await
            }
        }
    }
}
