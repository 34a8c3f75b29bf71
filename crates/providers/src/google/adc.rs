//! Application default credentials: a file with a refresh token, or with the key of a service account.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use quipu_protocol::UnixMs;
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};

use super::vertex::VertexPlace;
use crate::credentials::{
    Credential, CredentialError, CredentialRequest, CredentialSource, Expiry, HeaderText, Scheme, Secret,
};
use crate::failure::quote;
use crate::logins::{BodyForm, LoginBody, LoginError, LoginRequest, checked, header_token};
use crate::net;
use crate::time::now;

/// The provider whose calls may be made with such a file.
pub(crate) const PROVIDER: &str = "google-vertex";
/// What to do when there is no credential, for people.
pub(crate) const HINT: &str = "Application default credentials are used too: the file that GOOGLE_APPLICATION_CREDENTIALS names, or that of \
    `gcloud auth application-default login`, with GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION.";

const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const FILE: &str = "application_default_credentials.json";
/// Bytes of a file at most.
const MAX_BYTES: u64 = 64 << 10;
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// How long the statement of a service account is good, in seconds.
const STATEMENT_SECONDS: i64 = 3_600;
/// How long before its end a token counts as expired.
const SKEW_MS: i64 = 60_000;

/// Where such a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdcFile {
    path: PathBuf,
    /// Whether a variable names it.
    is_named: bool,
}

impl AdcFile {
    /// The file that a variable names, or the usual one where it exists.
    pub(crate) fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|it| !it.is_empty());
        if let Some(path) = set(VARIABLE) {
            return Some(Self { path: path.into(), is_named: true });
        }
        let directory = set("CLOUDSDK_CONFIG").map(PathBuf::from);
        let directory = directory.or_else(|| Some(Path::new(&set("HOME")?).join(".config/gcloud")))?;
        let path = directory.join(FILE);
        (path.is_absolute() && path.is_file()).then_some(Self { path, is_named: false })
    }

    /// Whether somebody named it.
    pub(crate) const fn is_named(&self) -> bool {
        self.is_named
    }

    /// Where it is from, for people.
    pub(crate) fn name(&self) -> String {
        if self.is_named { VARIABLE.into() } else { "application default credentials".into() }
    }

    fn read(&self) -> Result<AdcAccount, String> {
        let path = self.path.display();
        let failed = |error: std::io::Error| format!("{path}: {error}");
        if !std::fs::metadata(&self.path).map_err(failed)?.is_file() {
            return Err(format!("{path} is not a regular file"));
        }
        let mut text = String::new();
        let file = std::fs::File::open(&self.path).map_err(failed)?;
        if file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)? as u64 > MAX_BYTES {
            return Err(format!("{path} is larger than {MAX_BYTES} bytes"));
        }
        // Not the words of the parser: they may quote what stands there.
        let Ok(Value::Object(object)) = serde_json::from_str(&text) else {
            return Err(format!("{path} is not a JSON object"));
        };
        AdcAccount::of(&object).map_err(|problem| format!("{path}: {problem}"))
    }
}

/// That a token has no project or no location to be used in.
pub(crate) fn missing_place(place: &VertexPlace) -> Option<String> {
    let names = [("GOOGLE_CLOUD_PROJECT", &place.project), ("GOOGLE_CLOUD_LOCATION", &place.location)];
    let missing: Vec<_> = names.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
    (!missing.is_empty()).then(|| {
        let (names, verb) = (missing.join(" and "), if missing.len() == 1 { "is" } else { "are" });
        format!(
            "{names} {verb} not set. Application default credentials need a project and a location. Set both \
             environment variables, or use GOOGLE_CLOUD_API_KEY."
        )
    })
}

/// What a file holds. Stands in no debug form.
enum AdcAccount {
    /// A person's.
    User {
        client_id: String,
        client_secret: Secret,
        refresh: Secret,
        token_url: String,
        quota: Option<String>,
    },
    /// A program's.
    Service { email: String, key: Secret, key_id: Option<String>, token_url: String },
}

impl AdcAccount {
    fn of(object: &Map<String, Value>) -> Result<Self, String> {
        let text = |name: &str| {
            object.get(name).and_then(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned)
        };
        let needed = |name: &str| text(name).ok_or_else(|| format!("it has no {name:?}"));
        let token_url = token_url(text("token_uri"))?;
        match object.get("type").and_then(Value::as_str) {
            Some("authorized_user") => Ok(Self::User {
                client_id: needed("client_id")?,
                client_secret: Secret::new(needed("client_secret")?),
                refresh: Secret::new(needed("refresh_token")?),
                token_url,
                quota: text("quota_project_id"),
            }),
            Some("service_account") => Ok(Self::Service {
                email: needed("client_email")?,
                key: Secret::new(needed("private_key")?),
                key_id: text("private_key_id"),
                token_url,
            }),
            Some(other) => Err(format!(
                "credentials of the type {:?} are not supported. Use a type of authorized_user or service_account, \
                 or let `apiKey` in models.json run `gcloud auth print-access-token`",
                quote(other)
            )),
            None => Err("it has no \"type\"".into()),
        }
    }

    fn secrets(&self) -> Vec<Secret> {
        match self {
            Self::User { client_secret, refresh, .. } => vec![client_secret.clone(), refresh.clone()],
            // A file holds the key in one line, where it reads otherwise; its pieces are the same.
            Self::Service { key, .. } => {
                let pieces = key.expose().lines().map(str::trim).filter(|piece| piece.len() >= 32);
                pieces.map(Secret::new).collect()
            }
        }
    }

    /// An access token, and when it ends.
    async fn token(&self) -> Result<(String, UnixMs), CredentialError> {
        let statement;
        let (url, params) = match self {
            Self::User { client_id, client_secret, refresh, token_url, .. } => {
                let params = vec![
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id.as_str()),
                    ("client_secret", client_secret.expose()),
                    ("refresh_token", refresh.expose()),
                ];
                (token_url, params)
            }
            Self::Service { email, key, key_id, token_url } => {
                statement = signed(email, key, key_id.as_deref(), token_url).map_err(unavailable)?;
                (token_url, vec![("grant_type", JWT_BEARER), ("assertion", statement.as_str())])
            }
        };
        let headers = std::collections::BTreeMap::new();
        let body = LoginBody::Params(BodyForm::Form, params);
        let request = LoginRequest { what: "an access token", url, headers: &headers, body, bearer: None };
        let answered = async {
            let answer = request.send().await?;
            let object = answer.object()?;
            let token = header_token(&answer, &object, "access_token")?;
            let seconds = answer.number("expires_in").filter(|seconds| *seconds > 0.0).unwrap_or(3_600.0);
            #[expect(clippy::cast_possible_truncation, reason = "clamped to a day")]
            let lifetime = (seconds.min(86_400.0) * 1_000.0) as i64;
            let usable = if lifetime > 2 * SKEW_MS { lifetime - SKEW_MS } else { lifetime / 2 };
            Ok((token, now().saturating_add(usable)))
        };
        answered.await.map_err(|error: LoginError| match error.is_final() {
            true => CredentialError::NeedsLogin { what: self.remedy(&error) },
            false => unavailable(error.to_string()),
        })
    }

    fn remedy(&self, error: &LoginError) -> String {
        let what = match self {
            Self::User { .. } => "Run `gcloud auth application-default login` again",
            Self::Service { .. } => "Check that the service account and its key still exist",
        };
        format!("The application default credentials cannot be used: {error}. {what}.")
    }
}

fn unavailable(why: impl Into<String>) -> CredentialError {
    CredentialError::Unavailable { why: why.into() }
}

/// Where tokens are from: a server of Google, or of this machine. What a file says may have been planted there.
fn token_url(named: Option<String>) -> Result<String, String> {
    let Some(named) = named else { return Ok(TOKEN_URL.into()) };
    let refused = || {
        let host = quote(named.split('?').next().unwrap_or_default());
        format!(
            "its \"token_uri\" is {host:.200}, which is not an https address of Google; nothing is sent there"
        )
    };
    let url = checked(&named).map_err(|_| refused())?;
    let host = url.host_str().unwrap_or_default();
    let is_google = host == "accounts.google.com" || host.ends_with(".googleapis.com");
    if is_google && url.scheme() == "https" || net::is_loopback(host) { Ok(named) } else { Err(refused()) }
}

/// The statement of a service account that it asks for a token: a JWT, signed with RS256.
fn signed(email: &str, key: &Secret, key_id: Option<&str>, audience: &str) -> Result<String, String> {
    // No words of a parser: they could quote the key.
    let no_key = || "\"private_key\" is not an RSA key in PEM form".to_owned();
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).map_err(|_| no_key())?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|_| no_key())?;
    let signer = key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).ok_or_else(no_key)?;
    let mut header = json!({ "alg": "RS256", "typ": "JWT" });
    if let Some(id) = key_id {
        header["kid"] = id.into();
    }
    let from = now() / 1_000;
    let claims = json!({ "iss": email, "scope": SCOPE, "aud": audience, "iat": from, "exp": from + STATEMENT_SECONDS });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&header), part(&claims));
    let signature = signer.sign(text.as_bytes()).map_err(|_| no_key())?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The source of tokens for calls with such a file.
pub(crate) struct AdcSource {
    name: String,
    file: AdcFile,
    /// What was given last.
    last: Mutex<Option<Credential>>,
}

impl AdcSource {
    pub(crate) fn new(file: AdcFile) -> Self {
        Self { name: file.name(), file, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<Credential>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CredentialSource for AdcSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn credential<'a>(
        &'a self,
        request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        Box::pin(async move {
            if request.is_exhausted()
                && let Some(last) = &*self.last()
            {
                return Ok(last.clone());
            }
            let file = self.file.clone();
            let read = tokio::task::spawn_blocking(move || file.read()).await;
            let account = read.map_err(|_| CredentialError::Panicked)?.map_err(unavailable)?;
            let (token, expires) = account.token().await?;
            let mut credential = Credential::new(self.name.clone(), Scheme::Bearer(Secret::new(token)));
            credential.expiry = Expiry::At(expires);
            credential.sealed = account.secrets();
            if let AdcAccount::User { quota: Some(project), .. } = account {
                credential.headers.push(("x-goog-user-project".into(), HeaderText::Plain(project)));
            }
            *self.last() = Some(credential.clone());
            Ok(credential)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_asked_for_at_servers_of_google_only() {
        for url in [
            "http://oauth2.googleapis.com/token",
            "https://oauth2.googleapis.com.evil.example/token",
            "https://evilgoogleapis.com/token",
            "https://user@oauth2.googleapis.com/token",
            "https://evil.example/oauth2.googleapis.com",
            "https://evil.example#.googleapis.com",
            "file:///etc/passwd",
            "",
        ] {
            let refused = token_url(Some(url.to_owned())).unwrap_err();
            assert!(refused.contains("nothing is sent there"), "{refused}");
        }
        for url in [TOKEN_URL, "https://accounts.google.com/o/oauth2/token", "http://127.0.0.1:1/token"] {
            assert_eq!(token_url(Some(url.to_owned())), Ok(url.to_owned()));
        }
        assert_eq!(token_url(None).as_deref(), Ok(TOKEN_URL));
    }

    #[test]
    fn missing_project_and_location_are_named_in_one_line() {
        let check = |project: Option<&str>, location: Option<&str>, expect: Option<&str>| {
            let place = VertexPlace { project: project.map(Into::into), location: location.map(Into::into) };
            let found = missing_place(&place);
            assert_eq!(found.as_deref().map(|text| text.split(". ").next().unwrap()), expect);
            assert!(!found.unwrap_or_default().contains('\n'));
        };
        check(None, None, Some("GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION are not set"));
        check(Some("p"), None, Some("GOOGLE_CLOUD_LOCATION is not set"));
        check(Some("p"), Some("global"), None);
    }
}
