//! What is known of each login: data.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;

use crate::warning::Warning;

static ROWS: &str = include_str!("../../data/logins.json");

/// Bytes of the user's own file at most.
const MAX_BYTES: u64 = 256 << 10;

/// The logins of providers: those that are built in, and those of `logins.json` in the user's home, which take the place
/// of built-in ones. A project has no say in them. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    own: Arc<BTreeMap<String, LoginRow>>,
}

/// How a person logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginMethod {
    /// In a browser of this machine, which returns to it.
    Browser,
    /// In a browser elsewhere; the code is pasted.
    Paste,
    /// By a code that is typed on another device.
    Device,
}

/// The login of one provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRow {
    /// The account, for people.
    pub(crate) name: String,
    /// Where these facts are from.
    #[expect(dead_code, reason = "for those who read the data; a test looks at it")]
    pub(crate) source: String,
    /// When they were read.
    #[expect(dead_code, reason = "for those who read the data; a test looks at it")]
    pub(crate) date: String,
    /// What a person must know before, where the provider restricts the account to programs of its own.
    pub(crate) restriction: Option<String>,
    #[serde(default)]
    pub(crate) client_id: String,
    pub(crate) scope: Option<String>,
    /// What stands for `{domain}` in URLs, unless a person names another.
    pub(crate) domain: Option<String>,
    /// Where codes and refresh tokens are turned into tokens.
    pub(crate) token_url: String,
    #[serde(default)]
    pub(crate) body: BodyForm,
    /// Headers of requests to the token server.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Seconds before its end in which a token counts as expired.
    #[serde(default)]
    pub(crate) skew_seconds: u32,
    /// Claims of the access token that are kept: the name of the field, and the path to the claim.
    #[serde(default)]
    pub(crate) claims: BTreeMap<String, Vec<String>>,
    pub(crate) browser: Option<BrowserRow>,
    pub(crate) device: Option<DeviceRow>,
    /// Where the token of the login is exchanged for one that calls are made with.
    pub(crate) exchange: Option<ExchangeRow>,
    #[serde(default)]
    pub(crate) sent: SentRow,
}

/// How the parameters of a request are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BodyForm {
    #[default]
    Form,
    Json,
}

/// A login in a browser, with PKCE.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserRow {
    #[serde(default)]
    pub(crate) dialect: BrowserDialect,
    /// Where the person logs in.
    pub(crate) url: Option<String>,
    /// Who says where, when there is no `url`.
    pub(crate) discovery: Option<DiscoveryRow>,
    /// Where the browser returns to; port 0 is any that is free.
    pub(crate) redirect: String,
    /// A page that shows the code for pasting, where there is one.
    pub(crate) paste_redirect: Option<String>,
    #[serde(default)]
    pub(crate) params: BTreeMap<String, String>,
    /// Whether the state goes to the token server, too.
    #[serde(default)]
    pub(crate) exchange_state: bool,
}

/// What a code is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BrowserDialect {
    /// Access and refresh tokens, as RFC 6749 has it.
    #[default]
    Tokens,
    /// A lasting key.
    Key,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscoveryRow {
    pub(crate) url: String,
    /// The field of the answer.
    pub(crate) field: String,
}

/// A login with a code that is typed on another device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceRow {
    #[serde(default)]
    pub(crate) dialect: DeviceDialect,
    pub(crate) code_url: String,
    /// Where is asked whether the person is done, when that is not the token server.
    pub(crate) poll_url: Option<String>,
    /// Where the code is typed, when the server does not say.
    pub(crate) verification_url: Option<String>,
    pub(crate) redirect: Option<String>,
    #[serde(default)]
    pub(crate) params: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) wait_first: bool,
}

/// How a device gets its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceDialect {
    /// As RFC 8628 has it.
    #[default]
    Standard,
    /// Through an authorization code and its verifier, both from the server.
    CodePair,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExchangeRow {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
}

/// What goes with a token when calls are made.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SentRow {
    pub(crate) headers: BTreeMap<String, String>,
    /// Headers whose values are fields that were kept.
    pub(crate) field_headers: BTreeMap<String, String>,
    pub(crate) base_url: Option<BaseUrlRow>,
}

/// Where calls go, where the token says so: `name=host;` in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BaseUrlRow {
    pub(crate) field: String,
    /// A beginning of the host, and what stands in its place.
    pub(crate) replace: (String, String),
    /// Domains that a token may name.
    pub(crate) hosts: Vec<String>,
    pub(crate) fallback: String,
    /// The same for another domain than the usual one.
    pub(crate) domain_fallback: String,
    #[serde(default)]
    pub(crate) scheme: UrlScheme,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UrlScheme {
    #[default]
    Https,
    /// For servers on this machine only.
    Http,
}

fn built_in() -> &'static BTreeMap<String, LoginRow> {
    static BUILT_IN: OnceLock<BTreeMap<String, LoginRow>> = OnceLock::new();
    BUILT_IN.get_or_init(|| serde_json::from_str(ROWS).unwrap_or_default())
}

impl Logins {
    /// The built-in logins, and those of `logins.json` in `home`. The warnings name what cannot be used.
    pub fn load(home: &Path, warnings: &mut Vec<Warning>) -> Self {
        let path = home.join("logins.json");
        let mut text = String::new();
        let read =
            std::fs::File::open(&path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        let mut warn = |problem: String| {
            warnings.push(Warning(format!("{}: {problem}. Its logins are not used.", path.display())));
        };
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::default(),
            Err(error) => warn(error.to_string()),
            Ok(read) if read as u64 > MAX_BYTES => warn(format!("it is larger than {MAX_BYTES} bytes")),
            Ok(_) => match Self::parse(&text) {
                Ok(logins) => return logins,
                Err(error) => warn(error.to_string()),
            },
        }
        Self::default()
    }

    /// The built-in logins, with those of this JSON in their place: an object of rows by provider, in the form of
    /// `data/logins.json`.
    ///
    /// # Errors
    /// When it is not such an object.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { own: Arc::new(serde_json::from_str(text)?) })
    }

    /// The providers that have a login, in order.
    pub fn providers(&self) -> Vec<&str> {
        let all: std::collections::BTreeSet<&str> =
            self.own.keys().chain(built_in().keys()).map(String::as_str).collect();
        all.into_iter().collect()
    }

    /// The account of a provider's login, for people; `None` where it has none.
    pub fn account(&self, provider: &str) -> Option<&str> {
        self.row(provider).map(|row| row.name.as_str())
    }

    /// What a person must accept before the login of a provider is used.
    pub fn restriction(&self, provider: &str) -> Option<&str> {
        self.row(provider)?.restriction.as_deref()
    }

    /// Whether the provider's login can be by device code, and by browser.
    pub fn has_device_code(&self, provider: &str) -> bool {
        self.row(provider).is_some_and(|row| row.device.is_some())
    }

    /// Whether the provider's login can be in a browser.
    pub fn has_browser(&self, provider: &str) -> bool {
        self.row(provider).is_some_and(|row| row.browser.is_some())
    }

    pub(crate) fn row(&self, provider: &str) -> Option<&LoginRow> {
        self.own.get(provider).or_else(|| built_in().get(provider))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_built_in_login_has_its_source_and_secure_addresses() {
        let rows: BTreeMap<String, LoginRow> = serde_json::from_str(ROWS).unwrap();
        let all = ["anthropic", "github-copilot", "openai-codex", "openrouter", "radius", "xai"];
        assert_eq!(Logins::default().providers(), all);
        let file: serde_json::Value = serde_json::from_str(ROWS).unwrap();
        for (id, row) in &rows {
            assert!(crate::catalogue::provider(id).is_some(), "{id}");
            assert!(file[id]["source"].as_str().unwrap().starts_with("npm "), "{id}");
            assert!(file[id]["date"].as_str().unwrap().parse::<jiff::civil::Date>().is_ok(), "{id}");
            assert!(row.browser.is_some() || row.device.is_some(), "{id}");
            let text = file[id].to_string();
            let open = text.matches("http://").count();
            let redirects = row.browser.as_ref().map_or(0, |row| row.redirect.matches("http://").count());
            assert_eq!(open, redirects, "{id}: only the browser returns to this machine in the open");
        }
    }

    #[test]
    fn a_file_of_logins_that_is_wrong_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        for text in ["[]", "{\"xai\": {}}", "nonsense", &" ".repeat(300 << 10)] {
            std::fs::write(home.path().join("logins.json"), text).unwrap();
            let mut warnings = Vec::new();
            let logins = Logins::load(home.path(), &mut warnings);
            assert_eq!(warnings.len(), 1, "{text:.20}");
            assert_eq!(logins.account("xai"), Some("SuperGrok or X Premium"));
        }
    }
}
