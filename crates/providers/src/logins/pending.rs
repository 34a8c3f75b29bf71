//! A login from its beginning to its tokens.

use std::time::Duration;

use serde_json::Value;

use super::browser::{BrowserFlow, BrowserPlace};
use super::device::DeviceFlow;
use super::renewal::exchanged;
use super::rows::{LoginMethod, LoginRow, Logins};
use super::{LoginError, LoginTokens};

/// The field that keeps another domain than the usual one.
pub(crate) const DOMAIN: &str = "enterpriseUrl";

/// How a login is made.
#[derive(Debug, Clone)]
pub struct LoginOptions {
    /// How a person logs in; `None` for the way that the provider has, a browser before a device code.
    pub method: Option<LoginMethod>,
    /// The domain of a company's own server, for providers that have such.
    pub domain: Option<String>,
    /// How long it may take altogether.
    pub limit: Duration,
    /// How far apart a server is asked whether the person is done, at least.
    pub least_interval: Duration,
}

impl Default for LoginOptions {
    fn default() -> Self {
        Self {
            method: None,
            domain: None,
            limit: Duration::from_secs(15 * 60),
            least_interval: Duration::from_secs(1),
        }
    }
}

/// What a person needs to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginPrompt {
    /// The page to open: an `https` address, or one of this machine.
    pub url: String,
    /// The code to type there.
    pub user_code: Option<String>,
    /// Whether a code can be pasted.
    pub takes_code: bool,
    /// Whether the browser can bring the code itself.
    pub listens: bool,
}

/// A login that has begun. Dropping it ends it.
pub struct PendingLogin {
    row: LoginRow,
    domain: Option<String>,
    flow: Flow,
    limit: Duration,
    least_interval: Duration,
}

enum Flow {
    Browser(BrowserFlow),
    Device(DeviceFlow),
}

impl std::fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingLogin").field("name", &self.row.name).finish_non_exhaustive()
    }
}

impl PendingLogin {
    /// Begins the login of `provider`. The requests of this take at most half a minute each.
    ///
    /// # Errors
    /// [`LoginError::NoFlow`] when there is no such login, else what the server or the network says.
    pub async fn begin(logins: &Logins, provider: &str, options: LoginOptions) -> Result<Self, LoginError> {
        let row = logins.row(provider);
        let by_default = match row {
            Some(row) if row.browser.is_none() => LoginMethod::Device,
            Some(_) | None => LoginMethod::Browser,
        };
        let method = options.method.unwrap_or(by_default);
        let no_flow = |name: &str| LoginError::NoFlow { name: name.to_owned(), method };
        let row = row.ok_or_else(|| no_flow(provider))?;
        let (row, domain) = row.at(options.domain.as_deref())?;
        let begun = async {
            Ok(match (method, &row.browser, &row.device) {
                (LoginMethod::Device, _, Some(device)) => {
                    Flow::Device(DeviceFlow::begin(&row, device).await?)
                }
                (LoginMethod::Browser, Some(browser), _) => {
                    Flow::Browser(BrowserFlow::begin(&row, browser, BrowserPlace::Here).await?)
                }
                (LoginMethod::Paste, Some(browser), _) => {
                    Flow::Browser(BrowserFlow::begin(&row, browser, BrowserPlace::Elsewhere).await?)
                }
                (LoginMethod::Device, _, None) | (LoginMethod::Browser | LoginMethod::Paste, None, _) => {
                    return Err(no_flow(&row.name));
                }
            })
        };
        let flow = begun.await?;
        let (limit, least_interval) = (options.limit, options.least_interval);
        Ok(Self { row, domain, flow, limit, least_interval })
    }

    /// What to show.
    pub fn prompt(&self) -> LoginPrompt {
        match &self.flow {
            Flow::Browser(flow) => LoginPrompt {
                url: flow.url.clone(),
                user_code: None,
                takes_code: true,
                listens: flow.listens(),
            },
            Flow::Device(flow) => LoginPrompt {
                url: flow.url.clone(),
                user_code: Some(flow.user_code.clone()),
                takes_code: false,
                listens: false,
            },
        }
    }

    /// Waits until the person is done, at most for the limit of the login. `paste` gives what a person pastes, or
    /// `None` when nothing will be; it is not asked where no code can be pasted.
    ///
    /// # Errors
    /// Denial, expiry, and whatever the server and the network say.
    pub async fn finish(
        self,
        paste: impl Future<Output = Option<String>> + Send,
    ) -> Result<LoginTokens, LoginError> {
        let Self { row, domain, flow, limit, least_interval } = self;
        let work = async {
            let tokens = match (flow, &row.browser, &row.device) {
                (Flow::Browser(flow), Some(browser), _) => flow.finish(&row, browser, paste).await?,
                (Flow::Device(flow), _, Some(device)) => flow.finish(&row, device, least_interval).await?,
                (Flow::Browser(_), None, _) | (Flow::Device(_), _, None) => return Err(LoginError::Expired),
            };
            let mut tokens = match &row.exchange {
                Some(exchange) => exchanged(&row, exchange, &tokens.access).await?,
                None => tokens,
            };
            if let Some(domain) = domain {
                tokens.fields.insert(DOMAIN.to_owned(), Value::String(domain));
            }
            Ok(tokens)
        };
        tokio::time::timeout(limit, work).await.unwrap_or(Err(LoginError::TimedOut { limit }))
    }
}

impl LoginRow {
    /// The row with its domain filled in, and that domain where it is not the usual one.
    pub(crate) fn at(&self, domain: Option<&str>) -> Result<(Self, Option<String>), LoginError> {
        let mut row = self.clone();
        let Some(usual) = &self.domain else { return Ok((row, None)) };
        let given = domain.map(str::trim).filter(|domain| !domain.is_empty());
        let given = given.map(|text| {
            let host = text.split_once("://").map_or(text, |(_, rest)| rest);
            host.trim_end_matches('/').to_ascii_lowercase()
        });
        let domain = given.as_ref().unwrap_or(usual);
        let (host, port) = domain.split_once(':').unwrap_or((domain, "1"));
        let is_name = host.split('.').all(|label| {
            let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
        });
        if !is_name || host.len() > 253 || port.parse::<u16>().is_err() {
            return Err(LoginError::Domain { domain: crate::failure::quote(domain) });
        }
        let fill = |url: &mut String| *url = url.replace("{domain}", domain);
        fill(&mut row.token_url);
        row.device.iter_mut().for_each(|device| fill(&mut device.code_url));
        row.exchange.iter_mut().for_each(|exchange| fill(&mut exchange.url));
        let other = given.filter(|given| given != usual);
        if let (Some(rule), Some(domain)) = (&mut row.sent.base_url, &other) {
            rule.fallback = rule.domain_fallback.replace("{domain}", domain);
            rule.hosts.push(domain.clone());
        }
        Ok((row, other))
    }
}
