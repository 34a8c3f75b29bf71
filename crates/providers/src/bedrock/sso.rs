//! Keys of a role for the token of a single sign-on. Only the tools of the cloud get and renew that token; here it is read
//! from where they keep it.

use std::io::Read as _;
use std::path::Path;

use jiff::Timestamp;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::place::{domain, is_region};
use super::profile::{Profile, ProfileError, ProfileFiles};
use super::remote::{self, address, hidden, unavailable};
use super::sign::AccessKeys;
use crate::credentials::{CredentialError, Secret};
use crate::net::{self, LocalRoute};
use crate::time::now;

/// Files with tokens that are looked at, and bytes of one, at most.
const MAX_FILES: usize = 256;
const MAX_FILE: u64 = 64 << 10;
/// How long before its end a token counts as expired.
const SKEW_MS: i64 = 10_000;
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-amz-sso_bearer_token");

/// A role that a profile names, and the sign-on that its keys are had with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SsoRole {
    profile: String,
    start_url: String,
    region: String,
    account: String,
    role: String,
}

impl SsoRole {
    /// The role of a profile; `None` where it names none.
    pub(super) fn of(
        name: &str,
        profile: &Profile,
        files: &ProfileFiles,
    ) -> Result<Option<Self>, ProfileError> {
        let (Some(account), Some(role)) = (profile.get("sso_account_id"), profile.get("sso_role_name"))
        else {
            return Ok(None);
        };
        let session = match profile.get("sso_session") {
            Some(session) => files.sso_session(session)?.unwrap_or_default(),
            None => profile.clone(),
        };
        let member = |name: &str| session.get(name).map(str::to_owned);
        Ok(member("sso_start_url").zip(member("sso_region")).map(|(start_url, region)| Self {
            profile: name.to_owned(),
            start_url,
            region,
            account: account.to_owned(),
            role: role.to_owned(),
        }))
    }

    /// What a person has to do for a token.
    fn needs_login(&self, why: &str) -> CredentialError {
        let name: String = self.profile.chars().filter(char::is_ascii_graphic).take(64).collect();
        let what =
            format!("The SSO login of the AWS profile {name:?} {why}. Run `aws sso login` for this profile.");
        CredentialError::NeedsLogin { what }
    }

    /// The token that is kept for its sign-on. Blocks.
    fn token(&self, cache: Option<&Path>) -> Result<Secret, CredentialError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CachedToken {
            start_url: String,
            access_token: String,
            expires_at: String,
        }
        let files = cache.and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
        let read = |path: &Path| {
            let is_file = std::fs::metadata(path).ok()?.is_file();
            let mut text = String::new();
            let file = std::fs::File::open(path).ok().filter(|_| is_file)?;
            file.take(MAX_FILE).read_to_string(&mut text).ok()?;
            serde_json::from_str::<CachedToken>(&text).ok()
        };
        let tokens = files.take(MAX_FILES).filter_map(|file| read(&file.path()));
        let ours = tokens.filter(|token| token.start_url == self.start_url && !token.access_token.is_empty());
        // Some versions write "UTC" for the zone.
        let end =
            |text: &str| text.replace("UTC", "Z").parse::<Timestamp>().map_or(0, Timestamp::as_millisecond);
        let last = ours.max_by_key(|token| end(&token.expires_at));
        match last {
            Some(token) if end(&token.expires_at) > now() + SKEW_MS => Ok(Secret::new(token.access_token)),
            Some(_) => Err(self.needs_login("has expired")),
            None => Err(self.needs_login("is missing")),
        }
    }

    /// The keys of the role.
    pub(super) async fn keys(
        self,
        files: &ProfileFiles,
        endpoint: Option<&str>,
        local: LocalRoute,
    ) -> Result<AccessKeys, CredentialError> {
        let base = match endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None if is_region(&self.region) => {
                format!("https://portal.sso.{}.{}", self.region, domain(&self.region))
            }
            None => return Err(unavailable("sso_region is not the name of a region")),
        };
        let mut url = address("AWS_ENDPOINT_URL_SSO", &format!("{base}/federation/credentials"))?;
        url.query_pairs_mut().append_pair("role_name", &self.role).append_pair("account_id", &self.account);
        let (role, cache) = (self.clone(), files.sso_cache.clone());
        let token = tokio::task::spawn_blocking(move || role.token(cache.as_deref())).await;
        let token = token.map_err(|_| CredentialError::Panicked)??;
        let mut value = HeaderValue::try_from(token.expose())
            .map_err(|_| unavailable("the SSO token has characters that HTTP does not allow"))?;
        value.set_sensitive(true);
        let client = net::client(&url, local).map_err(|error| unavailable(error.message))?;
        let name = url.host_str().unwrap_or_default().to_owned();
        let (status, body) = remote::answer(&name, client.get(url).header(TOKEN_HEADER, value)).await?;
        match status {
            200 => read_keys(&body).ok_or_else(|| unavailable(format!("{name} sent no access key"))),
            401 => Err(self.needs_login("was refused")),
            _ => {
                let words = hidden(&body, Some(token.expose()));
                Err(unavailable(format!("{name} answered {status}: {words}")))
            }
        }
    }
}

fn read_keys(body: &str) -> Option<AccessKeys> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        role_credentials: RoleKeys,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RoleKeys {
        access_key_id: String,
        secret_access_key: String,
        session_token: String,
        /// Milliseconds since the epoch.
        expiration: i64,
    }
    let keys = serde_json::from_str::<Answer>(body).ok()?.role_credentials;
    let is_whole = [&keys.access_key_id, &keys.secret_access_key, &keys.session_token]
        .iter()
        .all(|text| !text.trim().is_empty());
    is_whole.then(|| AccessKeys {
        id: keys.access_key_id,
        secret: Secret::new(keys.secret_access_key),
        token: Some(Secret::new(keys.session_token)),
        expires: Some(keys.expiration),
    })
}
