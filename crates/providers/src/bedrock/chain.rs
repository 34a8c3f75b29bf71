//! Where signed requests get their keys: the places that the tools of the cloud look at.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::profile::{Profile, ProfileError, ProfileFiles, ProfileName};
use super::remote::{self, WebIdentity};
use super::sign::{AccessKeys, Signer};
use crate::credentials::{
    CallOutcome, Credential, CredentialError, CredentialRequest, CredentialSource, Expiry, Scheme, Secret,
};
use crate::net::LocalRoute;

/// The name of the service in signatures.
const SERVICE: &str = "bedrock";
const USUAL_PROFILE: &str = "default";
/// What people are told when none of the places has keys.
pub(crate) const HINT: &str = "Credentials of AWS are used too: AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, AWS_PROFILE, \
    a role of a container, or AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN. The region is that of AWS_REGION.";

/// What variables and files say.
#[derive(Clone)]
pub(crate) struct Environment {
    vars: BTreeMap<String, String>,
    files: ProfileFiles,
    /// The profile that somebody stored for this provider, which comes before all else.
    stored: Option<String>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("vars", &self.vars.keys()).finish_non_exhaustive()
    }
}

/// Which of the places has keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Variables,
    Profile(ProfileOrigin),
    WebIdentity,
    Container,
}

/// A profile that has keys, or should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileOrigin(ProfileName);

impl Origin {
    /// A name for it, for people and records.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Variables => "AWS_ACCESS_KEY_ID".into(),
            Self::Profile(ProfileOrigin(profile)) => {
                let shown = |c: char| c.is_ascii_graphic() || c == ' ';
                let name: String = profile.name.chars().filter(|c| shown(*c)).take(64).collect();
                format!("AWS profile {name}")
            }
            Self::WebIdentity => "AWS_WEB_IDENTITY_TOKEN_FILE".into(),
            Self::Container => "AWS container role".into(),
        }
    }

    /// Whether somebody said that it is to be used, here or for all programs. The usual profile is there for whoever
    /// names it.
    pub(crate) fn is_chosen(&self) -> bool {
        !matches!(self, Self::Profile(ProfileOrigin(profile)) if !profile.chosen)
    }
}

impl Environment {
    /// What these variables say, and the profile that is stored for the provider.
    pub(crate) fn new(vars: BTreeMap<String, String>, stored: Option<String>) -> Self {
        let files = ProfileFiles::of(&|name| vars.get(name).filter(|value| !value.is_empty()).cloned());
        Self { vars, files, stored }
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.vars.get(name).map(|value| value.trim()).filter(|value| !value.is_empty()).map(String::from)
    }

    fn profile_name(&self) -> ProfileName {
        match self.stored.clone().or_else(|| self.variable("AWS_PROFILE")) {
            Some(name) => ProfileName { name, chosen: true },
            None => ProfileName { name: USUAL_PROFILE.into(), chosen: false },
        }
    }

    /// The profile in use, where the files have it.
    pub(super) fn profile(&self) -> Result<Option<Profile>, ProfileError> {
        self.files.profile(&self.profile_name().name)
    }

    /// Whether requests go without a credential (`AWS_BEDROCK_SKIP_AUTH`).
    pub(crate) fn skips_auth(&self) -> bool {
        self.variable("AWS_BEDROCK_SKIP_AUTH").as_deref() == Some("1")
    }

    /// The first place that has keys. Reads the files of profiles at most; asks nobody.
    pub(crate) fn origin(&self) -> Option<Origin> {
        let is_set = |name: &str| self.variable(name).is_some();
        let named = self.profile_name();
        if self.stored.is_some() {
            return Some(Origin::Profile(ProfileOrigin(named)));
        }
        if is_set("AWS_ACCESS_KEY_ID") && is_set("AWS_SECRET_ACCESS_KEY") {
            return Some(Origin::Variables);
        }
        let is_there = || self.profile().ok().flatten().is_some_and(|profile| profile.has_keys());
        if named.chosen || is_there() {
            return Some(Origin::Profile(ProfileOrigin(named)));
        }
        if is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ROLE_ARN") {
            return Some(Origin::WebIdentity);
        }
        let container = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
        container.into_iter().any(is_set).then_some(Origin::Container)
    }

    /// What is set in half, in words.
    pub(crate) fn half_set(&self) -> Option<String> {
        let pairs = [
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ];
        let half =
            pairs.iter().find(|(one, other)| self.variable(one).is_some() && self.variable(other).is_none());
        half.map(|(one, other)| format!("{one} is set without {other}"))
    }

    fn from_variables(&self) -> Option<AccessKeys> {
        Some(AccessKeys {
            id: self.variable("AWS_ACCESS_KEY_ID")?,
            secret: Secret::new(self.variable("AWS_SECRET_ACCESS_KEY")?),
            token: self.variable("AWS_SESSION_TOKEN").map(Secret::new),
            expires: None,
        })
    }
}

/// The keys of a profile, or the way to them.
enum ProfileKeys {
    Fixed(AccessKeys),
    WebIdentity(WebIdentity),
}

fn keys_of(name: &str, profile: Option<&Profile>) -> Result<ProfileKeys, String> {
    let Some(profile) = profile else {
        return Err(format!(
            "There is no AWS profile {name:?}. Correct AWS_PROFILE, or add it to ~/.aws/credentials"
        ));
    };
    let member = |name: &str| profile.get(name).map(String::from);
    if let (Some(id), Some(secret)) = (member("aws_access_key_id"), member("aws_secret_access_key")) {
        let token = member("aws_session_token").map(Secret::new);
        return Ok(ProfileKeys::Fixed(AccessKeys { id, secret: Secret::new(secret), token, expires: None }));
    }
    if let (Some(role), Some(file)) = (member("role_arn"), member("web_identity_token_file")) {
        let session = member("role_session_name");
        return Ok(ProfileKeys::WebIdentity(WebIdentity { role, file, session }));
    }
    Err(match profile.unsupported() {
        Some(how) => format!(
            "The AWS profile {name:?} uses {how}, which Quipu does not read. Run: eval \"$(aws configure \
             export-credentials --profile {name} --format env)\""
        ),
        None => format!("The AWS profile {name:?} has no access key"),
    })
}

/// The source of signatures for one provider.
pub(crate) struct AwsCredentials {
    name: String,
    origin: Origin,
    environment: Environment,
    region: String,
    local: LocalRoute,
    /// What was given last: the same keys stay the same credential.
    last: Mutex<Option<LastCredential>>,
}

struct LastCredential {
    keys: AccessKeys,
    credential: Credential,
}

impl AwsCredentials {
    pub(crate) fn new(origin: Origin, environment: Environment, region: String, local: LocalRoute) -> Self {
        Self { name: origin.name(), origin, environment, region, local, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<LastCredential>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keys(&self) -> Result<AccessKeys, CredentialError> {
        let person = |what: String| CredentialError::NeedsLogin { what: format!("{what}.") };
        let environment = &self.environment;
        match &self.origin {
            Origin::Variables => {
                environment.from_variables().ok_or_else(|| person("Set AWS_ACCESS_KEY_ID".into()))
            }
            Origin::Profile(ProfileOrigin(profile)) => {
                let (files, name) = (environment.files.clone(), profile.name.clone());
                let read = tokio::task::spawn_blocking(move || files.profile(&name)).await;
                let read = read.map_err(|_| CredentialError::Panicked)?;
                let read = read.map_err(|error| person(error.to_string()))?;
                match keys_of(&profile.name, read.as_ref()).map_err(person)? {
                    ProfileKeys::Fixed(keys) => Ok(keys),
                    ProfileKeys::WebIdentity(identity) => self.assumed(identity).await,
                }
            }
            Origin::WebIdentity => {
                let variable = |name: &str| environment.variable(name);
                let named = variable("AWS_ROLE_ARN").zip(variable("AWS_WEB_IDENTITY_TOKEN_FILE"));
                let (role, file) = named.ok_or_else(|| person("Set AWS_ROLE_ARN".into()))?;
                let session = variable("AWS_ROLE_SESSION_NAME");
                self.assumed(WebIdentity { role, file, session }).await
            }
            Origin::Container => remote::container_keys(environment, self.local).await,
        }
    }

    async fn assumed(&self, identity: WebIdentity) -> Result<AccessKeys, CredentialError> {
        let endpoint = self.environment.variable("AWS_ENDPOINT_URL_STS");
        remote::assume_role(identity, endpoint.as_deref(), &self.region, self.local).await
    }
}

/// The text of a small file, without blocking.
pub(super) async fn small_file(path: &str) -> Result<String, CredentialError> {
    const LIMIT: u64 = 64 << 10;
    let place = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        let place = Path::new(&place);
        let is_file = std::fs::metadata(place)?.is_file();
        let mut text = String::new();
        if is_file {
            std::fs::File::open(place)?.take(LIMIT).read_to_string(&mut text)?;
        }
        Ok::<_, std::io::Error>(text)
    });
    let text = read.await.map_err(|_| CredentialError::Panicked)?;
    let unreadable =
        |why: String| CredentialError::Unavailable { why: format!("{path} cannot be read: {why}") };
    let text = text.map_err(|error| unreadable(error.to_string()))?.trim().to_owned();
    if text.is_empty() { Err(unreadable("it is empty, or not a file".into())) } else { Ok(text) }
}

impl CredentialSource for AwsCredentials {
    fn name(&self) -> &str {
        &self.name
    }

    fn credential<'a>(
        &'a self,
        request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        Box::pin(async move {
            let is_exhausted = request
                .refused
                .as_ref()
                .is_some_and(|it| matches!(it.outcome, CallOutcome::RateLimited | CallOutcome::Quota));
            if is_exhausted && let Some(last) = &*self.last() {
                return Ok(last.credential.clone());
            }
            let keys = self.keys().await?;
            let mut last = self.last();
            if let Some(last) = last.as_ref().filter(|last| last.keys == keys) {
                return Ok(last.credential.clone());
            }
            let signer = Signer { keys: keys.clone(), region: self.region.clone(), service: SERVICE };
            let mut credential = Credential::new(self.name.clone(), Scheme::Signer(Arc::new(signer)));
            credential.expiry = keys.expires.map_or(Expiry::UntilRefused, Expiry::At);
            *last = Some(LastCredential { keys, credential: credential.clone() });
            Ok(credential)
        })
    }

    fn report<'a>(&'a self, _identity: &'a str, _outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(vars: &[(&str, &str)], stored: Option<&str>) -> Option<(String, bool)> {
        let vars = vars.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let origin = Environment::new(vars, stored.map(String::from)).origin();
        origin.map(|origin| (origin.name(), origin.is_chosen()))
    }

    #[test]
    fn places_are_tried_in_their_order() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let file = home.path().join(".aws/credentials");
        let home = home.path().to_str().unwrap();
        let all = [
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_PROFILE", "work"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/x"),
            ("AWS_ROLE_ARN", "arn:r"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x"),
            ("HOME", home),
        ];
        let found = |name: &str, chosen: bool| Some((name.to_owned(), chosen));
        assert_eq!(origin(&all, Some("mine")), found("AWS profile mine", true));
        assert_eq!(origin(&all, None), found("AWS_ACCESS_KEY_ID", true));
        assert_eq!(origin(&all[1..], None), found("AWS profile work", true));
        assert_eq!(origin(&all[3..], None), found("AWS_WEB_IDENTITY_TOKEN_FILE", true));
        assert_eq!(origin(&all[4..], None), found("AWS container role", true));
        assert_eq!(origin(&all[6..], None), None);
        std::fs::write(&file, "[default]\nregion = x\n").unwrap();
        assert_eq!(origin(&all[6..], None), None);
        std::fs::write(&file, "[default]\naws_access_key_id = a\naws_secret_access_key = b\n").unwrap();
        assert_eq!(origin(&all[3..], None), found("AWS profile default", false));
        assert_eq!(origin(&[("AWS_ACCESS_KEY_ID", " "), ("AWS_SECRET_ACCESS_KEY", "x")], None), None);
    }

    #[test]
    fn profile_that_is_not_supported_says_why() {
        let check = |text: &str, words: &[&str]| {
            let home = tempfile::tempdir().unwrap();
            std::fs::create_dir(home.path().join(".aws")).unwrap();
            std::fs::write(home.path().join(".aws/config"), text).unwrap();
            let vars = [("HOME", home.path().to_str().unwrap()), ("AWS_PROFILE", "p")];
            let vars = vars.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let environment = Environment::new(vars, None);
            let error = keys_of("p", environment.profile().unwrap().as_ref()).err().unwrap();
            assert!(words.iter().all(|word| error.contains(word)) && !error.contains('\n'), "{error}");
        };
        check("[profile p]\nsso_session = s\n", &["uses sso_session", "export-credentials --profile p"]);
        check("[profile p]\ncredential_process = rm -rf /\n", &["uses credential_process"]);
        check("[profile p]\nrole_arn = r\nsource_profile = q\n", &["uses source_profile"]);
        check("[profile p]\nregion = r\n", &["has no access key"]);
        check("[profile q]\n", &["no AWS profile \"p\""]);
    }
}
