//! Logins in a browser: an authorization code with PKCE, which comes back to this machine or is pasted.

use std::collections::BTreeMap;

use super::LoginError;
use super::callback::Callback;
use super::code::{challenge, pasted, random};
use super::request::{LoginBody, LoginRequest, checked, encoded};
use super::rows::{BodyForm, BrowserDialect, BrowserRow, LoginRow};
use super::tokens::LoginTokens;

/// A login that waits for its code.
pub(super) struct BrowserFlow {
    /// What the person opens.
    pub(super) url: String,
    verifier: String,
    state: String,
    redirect: String,
    /// Where the browser returns to, or why it cannot.
    callback: Result<Callback, LoginError>,
}

/// Whether the browser runs on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrowserPlace {
    Here,
    Elsewhere,
}

impl BrowserFlow {
    pub(super) async fn begin(
        row: &LoginRow,
        browser: &BrowserRow,
        place: BrowserPlace,
    ) -> Result<Self, LoginError> {
        let (verifier, state, nonce) = (random()?, random()?, random()?);
        let address = match (&browser.url, &browser.discovery) {
            (Some(url), _) => url.clone(),
            (None, Some(discovery)) => {
                let request = LoginRequest {
                    what: "the address of the login",
                    url: &discovery.url,
                    headers: &BTreeMap::new(),
                    body: LoginBody::Nothing,
                    bearer: None,
                };
                let answer = request.send().await?;
                let found = answer.object()?;
                let found = found.get(&discovery.field).and_then(serde_json::Value::as_str);
                let problem = || answer.nonsense(format!("it has no {:?}", discovery.field));
                found.map(str::to_owned).ok_or_else(problem)?
            }
            (None, None) => String::new(),
        };
        let mut url = checked(&address)?;
        let has_state = browser.dialect == BrowserDialect::Tokens;
        let (callback, redirect) = match (&browser.paste_redirect, place) {
            (Some(page), BrowserPlace::Elsewhere) => {
                let why = "the login is not in a browser of this machine".into();
                (Err(LoginError::Callback { address: browser.redirect.clone(), why }), page.clone())
            }
            _ => {
                let redirect = browser.redirect.replace("{nonce}", &nonce);
                match Callback::listen(&redirect, has_state.then_some(state.as_str())).await {
                    Ok((callback, redirect)) => (Ok(callback), redirect),
                    Err(error) => (Err(error), redirect),
                }
            }
        };
        let challenge = challenge(&verifier);
        let mut params: Vec<(&str, &str)> =
            browser.params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match browser.dialect {
            BrowserDialect::Tokens => {
                params.extend([
                    ("response_type", "code"),
                    ("client_id", &row.client_id),
                    ("redirect_uri", &redirect),
                ]);
                params.extend(row.scope.as_deref().map(|scope| ("scope", scope)));
                params.push(("state", &state));
            }
            BrowserDialect::Key => params.push(("callback_url", &redirect)),
        }
        params.extend([("code_challenge", challenge.as_str()), ("code_challenge_method", "S256")]);
        url.set_query(Some(&encoded(&params)));
        let url = url.into();
        Ok(Self { url, verifier, state, redirect, callback })
    }

    /// Whether the browser can bring the code itself.
    pub(super) fn listens(&self) -> bool {
        self.callback.is_ok()
    }

    /// Waits for the code, from the browser or from `paste` (which gives `None` when nothing will be pasted), and turns
    /// it into tokens.
    pub(super) async fn finish(
        self,
        row: &LoginRow,
        browser: &BrowserRow,
        paste: impl Future<Output = Option<String>> + Send,
    ) -> Result<LoginTokens, LoginError> {
        let code = match &self.callback {
            Ok(callback) => {
                let by_hand = async {
                    match paste.await {
                        Some(text) => pasted(&text, &self.state),
                        // The browser may still come.
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    code = callback.code() => code?,
                    code = by_hand => code?,
                }
            }
            Err(error) => pasted(&paste.await.ok_or_else(|| error.clone())?, &self.state)?,
        };
        // What comes later finds nobody.
        drop(self.callback);
        if browser.dialect == BrowserDialect::Key {
            let body = vec![
                ("code", code.as_str()),
                ("code_verifier", &self.verifier),
                ("code_challenge_method", "S256"),
            ];
            let answer = token_request(row, "a key", body).send().await?;
            return LoginTokens::key(&answer);
        }
        let state = browser.exchange_state.then_some(self.state.as_str());
        redeem(row, &code, &self.verifier, &self.redirect, state).await
    }
}

/// Turns a code into tokens.
pub(super) async fn redeem(
    row: &LoginRow,
    code: &str,
    verifier: &str,
    redirect: &str,
    state: Option<&str>,
) -> Result<LoginTokens, LoginError> {
    let mut body =
        vec![("grant_type", "authorization_code"), ("client_id", row.client_id.as_str()), ("code", code)];
    body.extend(state.map(|state| ("state", state)));
    body.extend([("redirect_uri", redirect), ("code_verifier", verifier)]);
    let answer = token_request(row, "tokens", body).send().await?;
    LoginTokens::read(row, &answer, None)
}

/// A request to the token server of a row.
pub(super) fn token_request<'a>(
    row: &'a LoginRow,
    what: &'static str,
    params: Vec<(&'a str, &'a str)>,
) -> LoginRequest<'a> {
    let form: BodyForm = row.body;
    let (url, headers) = (row.token_url.as_str(), &row.headers);
    LoginRequest { what, url, headers, body: LoginBody::Params(form, params), bearer: None }
}
