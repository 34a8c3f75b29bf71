//! What variables and files of the cloud's tools say, and which of the places has keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::hardware::has_metadata;
use super::profile::{Profile, ProfileError, ProfileFiles, ProfileName};
use super::sign::AccessKeys;
use crate::credentials::{CredentialError, Secret};

/// The variable by which requests go without a credential.
pub(crate) const SKIP_AUTH: &str = "AWS_BEDROCK_SKIP_AUTH";
const USUAL_PROFILE: &str = "default";

/// What variables and files say.
#[derive(Clone)]
pub(crate) struct Environment {
    vars: BTreeMap<String, String>,
    pub(super) files: ProfileFiles,
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
    /// The role of the virtual machine.
    Instance,
}

/// A profile that has keys, or should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileOrigin(pub(super) ProfileName);

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
            Self::Instance => "AWS instance role".into(),
        }
    }

    /// Whether somebody said that it is to be used, here or for all programs. The usual profile and the role of the
    /// machine are there for whoever names them.
    pub(crate) fn is_chosen(&self) -> bool {
        match self {
            Self::Profile(ProfileOrigin(profile)) => profile.chosen,
            Self::Instance => false,
            Self::Variables | Self::WebIdentity | Self::Container => true,
        }
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

    /// Whether requests go without a credential ([`SKIP_AUTH`]).
    pub(crate) fn skips_auth(&self) -> bool {
        self.variable(SKIP_AUTH).as_deref() == Some("1")
    }

    /// The first place that has keys. Reads the files of profiles and what the kernel says of the hardware; asks nobody.
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
        if container.into_iter().any(is_set) {
            return Some(Origin::Container);
        }
        has_metadata(&|name| self.variable(name)).then_some(Origin::Instance)
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

    pub(super) fn variable_keys(&self) -> Option<AccessKeys> {
        Some(AccessKeys {
            id: self.variable("AWS_ACCESS_KEY_ID")?,
            secret: Secret::new(self.variable("AWS_SECRET_ACCESS_KEY")?),
            token: self.variable("AWS_SESSION_TOKEN").map(Secret::new),
            expires: None,
        })
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
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1"),
            ("HOME", home),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ];
        let found = |name: &str, chosen: bool| Some((name.to_owned(), chosen));
        assert_eq!(origin(&all, Some("mine")), found("AWS profile mine", true));
        assert_eq!(origin(&all, None), found("AWS_ACCESS_KEY_ID", true));
        assert_eq!(origin(&all[1..], None), found("AWS profile work", true));
        assert_eq!(origin(&all[3..], None), found("AWS_WEB_IDENTITY_TOKEN_FILE", true));
        assert_eq!(origin(&all[4..], None), found("AWS container role", true));
        assert_eq!(origin(&all[6..8], None), found("AWS instance role", false));
        assert_eq!(origin(&all[6..], None), None);
        std::fs::write(&file, "[default]\nregion = x\n").unwrap();
        assert_eq!(origin(&all[6..], None), None);
        std::fs::write(&file, "[default]\naws_access_key_id = a\naws_secret_access_key = b\n").unwrap();
        assert_eq!(origin(&all[3..], None), found("AWS profile default", false));
        std::fs::write(&file, "[default]\ncredential_process = x\n").unwrap();
        assert_eq!(origin(&all[3..], None), found("AWS profile default", false));
        let half = [("AWS_ACCESS_KEY_ID", " "), ("AWS_SECRET_ACCESS_KEY", "x"), all[8]];
        assert_eq!(origin(&half, None), None);
    }
}
