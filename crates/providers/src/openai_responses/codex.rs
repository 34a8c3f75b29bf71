//! The `openai-codex-responses` wire: the same items and events at the backend of ChatGPT, which a subscription pays for.
//!
//! Calls carry the access token of a login, and name the account in it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_protocol::ModelRequest;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::access;
use crate::call;
use crate::credentials::{InvalidCredential, Scheme};

/// The wire's name in catalogues and messages.
pub const SUBSCRIPTION_API: &str = "openai-codex-responses";

/// Members of a body that `samplingParams` do not change on this wire.
pub(super) const FIXED: [&str; 5] = ["model", "input", "stream", "tools", "instructions"];
/// Names of the headers that carry the session's name.
pub(super) const SESSION_HEADERS: &[&str] = &["session-id", "x-client-request-id"];

/// The header that names the account. A credential may bring it.
const ACCOUNT: HeaderName = HeaderName::from_static("chatgpt-account-id");
const ORIGINATOR: HeaderName = HeaderName::from_static("originator");
const BETA: HeaderName = HeaderName::from_static("openai-beta");
/// How much the model says, where the user has not set it.
pub(super) const VERBOSITY: &str = "low";
/// Stands where there is no system prompt: the server refuses a request without one.
const INSTRUCTIONS: &str = "You are a helpful assistant.";

/// Where requests go.
pub(super) fn address(base_url: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let path = match base {
        whole if whole.ends_with("/codex/responses") => "",
        part if part.ends_with("/codex") => "/responses",
        _ => "/codex/responses",
    };
    format!("{base}{path}")
}

/// The wire's headers. Those of a token without an account are not enough: see [`check`].
pub(super) fn headers(scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
    let mut all = call::common_headers();
    access::add_scheme(&mut all, scheme, access::BEARER)?;
    all.insert(BETA, HeaderValue::from_static("responses=experimental"));
    all.insert(ORIGINATOR, HeaderValue::from_static("quipu"));
    if let Some(Claims { auth: Auth { chatgpt_account_id: Some(account) } }) = token(scheme).and_then(claims)
    {
        all.insert(ACCOUNT, access::carried(&account)?);
    }
    Ok(all)
}

/// Whether a request with these headers can name its account.
pub(super) fn check(scheme: &Scheme, headers: &HeaderMap) -> Result<(), InvalidCredential> {
    let Some(token) = token(scheme).filter(|_| !headers.contains_key(ACCOUNT)) else { return Ok(()) };
    Err(InvalidCredential::Unfit(match claims(token) {
        None => {
            "it is not an access token. This API takes the token of a ChatGPT login and no API key: log in to this \
             provider, or use the provider `openai` with the key"
        }
        Some(_) => {
            "the access token names no ChatGPT account (claim `chatgpt_account_id`). Log in to this provider again, with \
             an account that has a ChatGPT plan"
        }
    }))
}

fn token(scheme: &Scheme) -> Option<&str> {
    match scheme {
        Scheme::Key(secret) | Scheme::Bearer(secret) => Some(secret.expose()),
        Scheme::Header { .. } | Scheme::Signer(_) | Scheme::None => None,
    }
}

/// What a token says of itself. Nobody but the server can tell whether it is true.
#[derive(Deserialize, Default)]
struct Claims {
    #[serde(default, rename = "https://api.openai.com/auth")]
    auth: Auth,
}

#[derive(Deserialize, Default)]
struct Auth {
    #[serde(default)]
    chatgpt_account_id: Option<String>,
}

/// The claims of a token; `None` for what is no token.
fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let bytes = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes).ok()?;
    // A claim of another kind is as good as none.
    let mut claims: Claims = serde_json::from_value(object.into()).unwrap_or_default();
    claims.auth.chatgpt_account_id = claims.auth.chatgpt_account_id.filter(|account| !account.is_empty());
    Some(claims)
}

/// What stands before the input on this wire alone.
#[derive(Serialize)]
pub(super) struct HeadMembers<'a> {
    instructions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextFormat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
}

#[derive(Serialize)]
struct TextFormat {
    verbosity: &'static str,
}

impl<'a> HeadMembers<'a> {
    /// Those of a request; `ours` says which the user has not set.
    pub(super) fn of(request: &'a ModelRequest, ours: impl Fn(&str) -> bool) -> Self {
        let is_blank = request.system.trim().is_empty();
        Self {
            instructions: if is_blank { INSTRUCTIONS } else { &request.system },
            text: ours("text").then_some(TextFormat { verbosity: VERBOSITY }),
            tool_choice: ours("tool_choice").then_some("auto"),
            parallel_tool_calls: ours("parallel_tool_calls").then_some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    fn made_token(claims: &str) -> String {
        format!("eyJhbGciOiJub25lIn0.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn codex_address_ends_with_its_path_once() {
        for base in
            ["https://a.example/api", "https://a.example/api/codex/", "https://a.example/api/codex/responses"]
        {
            assert_eq!(address(base), "https://a.example/api/codex/responses");
        }
    }

    #[test]
    fn account_comes_from_the_claims_of_the_token() {
        let of = |token: &str| {
            let scheme = Scheme::Bearer(Secret::new(token));
            let headers = headers(&scheme).unwrap();
            let account = headers.get(ACCOUNT).map(|account| account.to_str().unwrap().to_owned());
            (account, check(&scheme, &headers).err().map(|problem| problem.to_string()))
        };
        let with = r#"{"sub":"x","https://api.openai.com/auth":{"chatgpt_account_id":"acc-1","chatgpt_plan_type":"plus"}}"#;
        assert_eq!(of(&made_token(with)), (Some("acc-1".into()), None));
        let padded = made_token(with).replacen(".c2ln", "==.c2ln", 1);
        assert_eq!(of(&padded).0.as_deref(), Some("acc-1"));
        for without in [
            r#"{"sub":"x"}"#,
            r#"{"https://api.openai.com/auth":{}}"#,
            r#"{"https://api.openai.com/auth":{"chatgpt_account_id":""}}"#,
            r#"{"https://api.openai.com/auth":{"chatgpt_account_id":7}}"#,
            r#"{"https://api.openai.com/auth":7}"#,
        ] {
            let (account, problem) = of(&made_token(without));
            let problem = problem.unwrap();
            assert!(
                account.is_none() && problem.contains("names no ChatGPT account"),
                "{without}: {problem}"
            );
        }
        for key in
            ["sk-proj-0123456789", "a.b", "a.b.c.d", "a.!.c", "..", &made_token("[1]"), &made_token("{")]
        {
            let (account, problem) = of(key);
            let problem = problem.unwrap();
            assert!(
                account.is_none() && problem.contains("log in") && problem.contains("no API key"),
                "{key}"
            );
        }
    }

    #[test]
    fn account_of_the_credential_is_enough() {
        let scheme = Scheme::Bearer(Secret::new("opaque"));
        let mut all = headers(&scheme).unwrap();
        all.insert(ACCOUNT, HeaderValue::from_static("acc-2"));
        assert_eq!(check(&scheme, &all), Ok(()));
        assert_eq!(check(&Scheme::None, &headers(&Scheme::None).unwrap()), Ok(()));
    }
}
