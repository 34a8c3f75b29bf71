//! Where signed requests get their keys: the places that the tools of the cloud look at.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::environment::ProfileOrigin;
pub(crate) use super::environment::{Environment, Origin, SKIP_AUTH};
use super::metadata;
use super::process::CredentialProcess;
use super::profile::{Profile, ProfileFiles};
use super::remote::{self, WebIdentity};
use super::sign::{AccessKeys, Signer};
use super::sso::SsoRole;
use crate::credentials::{
    Credential, CredentialError, CredentialRequest, CredentialSource, Expiry, Scheme, Secret,
};
use crate::net::LocalRoute;
use crate::values::Shell;

/// The name of the service in signatures.
const SERVICE: &str = "bedrock";
/// What to do when none of the places has keys, for people.
pub(crate) const HINT: &str = "Credentials of AWS are used too: AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, AWS_PROFILE, \
    a role of a container or an instance, or AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN. The region is that of AWS_REGION.";

/// The keys of a profile, or the way to them.
enum ProfileKeys {
    Fixed(AccessKeys),
    WebIdentity(WebIdentity),
    Sso(SsoRole),
    Process(CredentialProcess),
}

fn keys_of(name: &str, profile: Option<&Profile>, files: &ProfileFiles) -> Result<ProfileKeys, String> {
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
    if let Some(role) = SsoRole::of(name, profile, files).map_err(|error| error.to_string())? {
        return Ok(ProfileKeys::Sso(role));
    }
    if let Some(line) = member("credential_process") {
        return Ok(ProfileKeys::Process(CredentialProcess { profile: name.to_owned(), line }));
    }
    Err(match profile.unsupported() {
        Some(how) => format!(
            "The AWS profile {name:?} uses {how}, which Quipu does not read. Set the variables that `aws \
             configure export-credentials` prints for it, in its format env"
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
    /// What runs the command of a profile.
    shell: Arc<Shell>,
    /// What was given last: the same keys stay the same credential.
    last: Mutex<Option<LastCredential>>,
}

struct LastCredential {
    keys: AccessKeys,
    credential: Credential,
}

impl AwsCredentials {
    pub(crate) fn new(
        origin: Origin,
        environment: Environment,
        region: String,
        local: LocalRoute,
        shell: Arc<Shell>,
    ) -> Self {
        Self { name: origin.name(), origin, environment, region, local, shell, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<LastCredential>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keys(&self) -> Result<AccessKeys, CredentialError> {
        let person = |what: String| CredentialError::NeedsLogin { what: format!("{what}.") };
        let environment = &self.environment;
        match &self.origin {
            Origin::Variables => {
                environment.variable_keys().ok_or_else(|| person("Set AWS_ACCESS_KEY_ID".into()))
            }
            Origin::Profile(ProfileOrigin(profile)) => {
                let (files, name) = (environment.files.clone(), profile.name.clone());
                let read = move || {
                    let profile = files.profile(&name).map_err(|error| error.to_string())?;
                    keys_of(&name, profile.as_ref(), &files)
                };
                let read = tokio::task::spawn_blocking(read).await.map_err(|_| CredentialError::Panicked)?;
                match read.map_err(person)? {
                    ProfileKeys::Fixed(keys) => Ok(keys),
                    ProfileKeys::WebIdentity(identity) => self.assumed(identity).await,
                    ProfileKeys::Sso(role) => {
                        let endpoint = environment.variable("AWS_ENDPOINT_URL_SSO");
                        role.keys(&environment.files, endpoint.as_deref(), self.local).await
                    }
                    ProfileKeys::Process(process) => {
                        process.keys(&environment.files, self.shell.clone()).await
                    }
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
            Origin::Instance => metadata::instance_keys(environment).await,
        }
    }

    async fn assumed(&self, identity: WebIdentity) -> Result<AccessKeys, CredentialError> {
        let endpoint = self.environment.variable("AWS_ENDPOINT_URL_STS");
        remote::assume_role(identity, endpoint.as_deref(), &self.region, self.local).await
    }
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
            if request.is_exhausted()
                && let Some(last) = &*self.last()
            {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_that_is_not_supported_says_why() {
        let check = |text: &str, words: &[&str]| {
            let home = tempfile::tempdir().unwrap();
            std::fs::create_dir(home.path().join(".aws")).unwrap();
            std::fs::write(home.path().join(".aws/config"), text).unwrap();
            let vars = [("HOME", home.path().to_str().unwrap()), ("AWS_PROFILE", "p")];
            let vars = vars.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let environment = Environment::new(vars, None);
            let error =
                keys_of("p", environment.profile().unwrap().as_ref(), &environment.files).err().unwrap();
            assert!(words.iter().all(|word| error.contains(word)) && !error.contains('\n'), "{error}");
        };
        check("[profile p]\nsso_session = s\n", &["uses sso_session", "export-credentials"]);
        check("[profile p]\nrole_arn = r\nsource_profile = q\n", &["uses source_profile"]);
        check("[profile p]\nregion = r\n", &["has no access key"]);
        check("[profile q]\n", &["no AWS profile \"p\""]);
    }
}
