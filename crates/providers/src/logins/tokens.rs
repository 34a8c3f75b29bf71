//! What a login gives.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_protocol::UnixMs;
use serde_json::{Map, Value};

use super::LoginError;
use super::request::Answer;
use super::rows::LoginRow;
use crate::time::now;

/// Bytes of a token at most: a header must hold it.
const MAX_TOKEN: usize = 16 << 10;
/// What is assumed where a server does not say how long a token is good.
const LIFETIME_SECONDS: f64 = 3600.0;
/// The longest time that is believed.
const MAX_LIFETIME_SECONDS: f64 = 366.0 * 86_400.0;

/// The tokens of a login, or a key that it made. Stands in no debug form.
#[derive(Clone, PartialEq)]
pub struct LoginTokens {
    /// What calls are made with.
    pub(crate) access: String,
    /// What another access token is had for.
    pub(crate) refresh: Option<String>,
    /// When the access token counts as expired; `None` for a key that lasts.
    pub(crate) expires: Option<UnixMs>,
    /// What is kept beside them, such as the id of the account.
    pub(crate) fields: Map<String, Value>,
}

impl fmt::Debug for LoginTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginTokens").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl LoginTokens {
    /// The tokens in the answer of a token server; `refresh` is the one before, which some servers do not repeat.
    pub(super) fn read(row: &LoginRow, answer: &Answer, refresh: Option<&str>) -> Result<Self, LoginError> {
        let body = answer.object()?;
        let access = token(answer, &body, "access_token")?;
        let refresh = match body.get("refresh_token") {
            None | Some(Value::Null) => refresh.map(str::to_owned),
            Some(_) => Some(token(answer, &body, "refresh_token")?),
        };
        let seconds = match body.get("expires_in") {
            None | Some(Value::Null) => LIFETIME_SECONDS,
            Some(value) => value
                .as_f64()
                .filter(|seconds| *seconds > 0.0)
                .ok_or_else(|| answer.nonsense("\"expires_in\" is not a number of seconds"))?,
        };
        let expires = ends_at(row, seconds);
        let mut fields = Map::new();
        for (name, path) in &row.claims {
            let claim = claim(&access, path);
            let claim = claim.ok_or_else(|| {
                answer.nonsense(format!("the access token does not say {}", path.join(" / ")))
            })?;
            fields.insert(name.clone(), Value::String(claim));
        }
        Ok(Self { access, refresh, expires: Some(expires), fields })
    }

    /// A lasting key.
    pub(super) fn key(answer: &Answer) -> Result<Self, LoginError> {
        let access = token(answer, &answer.object()?, "key")?;
        Ok(Self { access, refresh: None, expires: None, fields: Map::new() })
    }

    /// A token that `login` was exchanged for, which stays the one to exchange.
    pub(super) fn exchanged(row: &LoginRow, answer: &Answer, login: &str) -> Result<Self, LoginError> {
        let body = answer.object()?;
        let access = token(answer, &body, "token")?;
        let ends = body.get("expires_at").and_then(Value::as_f64).filter(|seconds| *seconds > 0.0);
        let ends = ends.ok_or_else(|| answer.nonsense("\"expires_at\" is not a time in seconds"))?;
        #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch")]
        let left = ends - now() as f64 / 1000.0;
        let expires = ends_at(row, left);
        Ok(Self { access, refresh: Some(login.to_owned()), expires: Some(expires), fields: Map::new() })
    }
}

/// When a token that is good for so many seconds counts as expired.
fn ends_at(row: &LoginRow, seconds: f64) -> UnixMs {
    let skew = f64::from(row.skew_seconds);
    // One that lives no longer than the margin is used all the same.
    let usable = if seconds > 2.0 * skew { seconds - skew } else { seconds / 2.0 };
    #[expect(clippy::cast_possible_truncation, reason = "clamped to a year")]
    let milliseconds = (usable.clamp(0.0, MAX_LIFETIME_SECONDS) * 1000.0) as i64;
    now().saturating_add(milliseconds)
}

/// A token that a header can hold.
pub(crate) fn token(answer: &Answer, body: &Map<String, Value>, name: &str) -> Result<String, LoginError> {
    let Some(text) = body.get(name).and_then(Value::as_str) else {
        return Err(answer.nonsense(format!("it has no {name:?}")));
    };
    if text.is_empty() || text.len() > MAX_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(answer.nonsense(format!("{name:?} is not one word of at most {MAX_TOKEN} bytes")));
    }
    Ok(text.to_owned())
}

/// A claim of a JWT. Its signature is not looked at: the server that gave the token is asked, not believed.
fn claim(token: &str, path: &[String]) -> Option<String> {
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let payload: Value = serde_json::from_slice(&payload).ok()?;
    let claim = path.iter().try_fold(&payload, |value, name| value.get(name))?.as_str()?;
    let fits = !claim.is_empty() && claim.len() <= 256 && claim.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| claim.to_owned())
}
