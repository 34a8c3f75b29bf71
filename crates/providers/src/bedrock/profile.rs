//! The files in which the tools of the cloud keep keys and regions: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes of one file at most.
const MAX_FILE: u64 = 1 << 20;
/// Members by which a profile gets its keys in a way that is not known here.
const FOREIGN: [&str; 5] =
    ["sso_session", "sso_start_url", "login_session", "source_profile", "credential_source"];

/// The profile to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProfileName {
    pub(super) name: String,
    /// Whether somebody named it; else it is the usual one.
    pub(super) chosen: bool,
}

/// Members of one profile, by names in small letters.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Profile(BTreeMap<String, String>);

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Profile").field(&self.0.keys()).finish()
    }
}

impl Profile {
    /// A member that is set.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The member that says how its keys are had, where that is not supported.
    pub(super) fn unsupported(&self) -> Option<&'static str> {
        FOREIGN.into_iter().find(|name| self.get(name).is_some())
    }

    /// Whether its keys can be had.
    pub(super) fn has_keys(&self) -> bool {
        self.has_all(["aws_access_key_id", "aws_secret_access_key"])
            || self.has_all(["role_arn", "web_identity_token_file"])
            || self.has_all(["sso_account_id", "sso_role_name"])
            || self.get("credential_process").is_some()
    }

    pub(super) fn has_all(&self, names: [&str; 2]) -> bool {
        names.iter().all(|name| self.get(name).is_some())
    }
}

/// Both files.
#[derive(Debug, Clone, Default)]
pub(super) struct ProfileFiles {
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
    /// Where tokens of single sign-ons are kept.
    pub(super) sso_cache: Option<PathBuf>,
}

impl ProfileFiles {
    /// Where they are, by the variables of the environment.
    pub(super) fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let home = variable("HOME").or_else(|| variable("USERPROFILE")).map(PathBuf::from);
        let place = |name: &str, usual: &str| match variable(name) {
            Some(named) => match (named.strip_prefix("~/"), &home) {
                (Some(rest), Some(home)) => Some(home.join(rest)),
                (Some(_), None) => None,
                (None, _) => Some(PathBuf::from(named)),
            },
            None => home.as_ref().map(|home| home.join(".aws").join(usual)),
        };
        Self {
            credentials: place("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: place("AWS_CONFIG_FILE", "config"),
            sso_cache: home.as_ref().map(|home| home.join(".aws/sso/cache")),
        }
    }

    /// Where profiles are read from.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.credentials.iter().chain(&self.config).map(PathBuf::as_path)
    }

    /// The members of a profile; of those that are in both files the ones in `credentials` count. `None` when neither
    /// has it.
    ///
    /// # Errors
    /// A file that is there and cannot be read, in words.
    pub(super) fn profile(&self, name: &str) -> Result<Option<Profile>, ProfileError> {
        let config = read(self.config.as_deref())?;
        let credentials = read(self.credentials.as_deref())?;
        let in_config = section(&config, |header| match header.strip_prefix("profile") {
            Some(rest) if rest.starts_with([' ', '\t']) => rest.trim() == name,
            Some(_) | None => header == name && name == "default",
        });
        let in_credentials = section(&credentials, |header| header == name);
        if in_config.is_none() && in_credentials.is_none() {
            return Ok(None);
        }
        let mut members = in_config.unwrap_or_default();
        members.extend(in_credentials.unwrap_or_default());
        Ok(Some(Profile(members)))
    }

    /// The members of a single sign-on, which profiles share. `None` when there is none of this name.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    pub(super) fn sso_session(&self, name: &str) -> Result<Option<Profile>, ProfileError> {
        let config = read(self.config.as_deref())?;
        let found = section(&config, |header| match header.strip_prefix("sso-session") {
            Some(rest) if rest.starts_with([' ', '\t']) => rest.trim() == name,
            Some(_) | None => false,
        });
        Ok(found.map(Profile))
    }
}

/// A file of profiles cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be read: {why}", path.display())]
pub(super) struct ProfileError {
    path: PathBuf,
    why: String,
}

/// The text of a file; empty when there is none.
fn read(path: Option<&Path>) -> Result<String, ProfileError> {
    let Some(path) = path else { return Ok(String::new()) };
    let failed = |why: String| ProfileError { path: path.to_path_buf(), why };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(failed(error.to_string())),
    };
    // What is no file may never end, or wait for somebody.
    if !file.metadata().is_ok_and(|known| known.is_file()) {
        return Err(failed("it is not a file".into()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(failed(format!("it is larger than the limit of {} MiB", MAX_FILE >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".into()))
}

/// The members of the sections whose header `is_it`; `None` when there is none.
fn section(text: &str, is_it: impl Fn(&str) -> bool) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut inside = false;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let header = rest.split(']').next().unwrap_or_default().trim();
            inside = is_it(header);
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        // Members of members are settings of single services.
        if let (true, false, Some(members), Some((name, value))) =
            (inside, is_nested, &mut found, line.split_once('='))
        {
            let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
            let value = value[..comment.unwrap_or(value.len())].trim();
            members.insert(name.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(credentials: &str, config: &str) -> (tempfile::TempDir, ProfileFiles) {
        let home = tempfile::tempdir().unwrap();
        let of = |name: &str| (name == "HOME").then(|| home.path().to_string_lossy().into_owned());
        let files = ProfileFiles::of(&of);
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(files.credentials.as_ref().unwrap(), credentials).unwrap();
        std::fs::write(files.config.as_ref().unwrap(), config).unwrap();
        (home, files)
    }

    #[test]
    fn profiles_are_read_from_both_files() {
        let (_home, files) = files(
            "\u{feff}# mine\n[default]\naws_access_key_id = AKID1\nAWS_Secret_Access_Key=a/b+c=#d ; old\n\n[work]\n\
             aws_access_key_id=AKID2\n; aws_session_token = no\n",
            "[default]\nregion = eu-west-1\naws_access_key_id = AKID0\ns3 =\n  region = nested\n[profile  work]\n\
             region=us-west-2\nsso_session = corp\n[sso-session corp]\nsso_start_url = x\n[other]\nregion = y\n[profile empty]\n",
        );
        let get = |profile: &str, name: &str| {
            files.profile(profile).unwrap().and_then(|profile| profile.get(name).map(String::from))
        };
        for (profile, name, value) in [
            ("default", "aws_access_key_id", Some("AKID1")),
            ("default", "aws_secret_access_key", Some("a/b+c=#d")),
            ("default", "region", Some("eu-west-1")),
            ("work", "aws_access_key_id", Some("AKID2")),
            ("work", "aws_session_token", None),
            ("work", "region", Some("us-west-2")),
        ] {
            assert_eq!(get(profile, name).as_deref(), value, "{profile} {name}");
        }
        let default = files.profile("default").unwrap().unwrap();
        assert_eq!((default.has_keys(), default.unsupported()), (true, None));
        let work = files.profile("work").unwrap().unwrap();
        assert_eq!((work.has_keys(), work.unsupported()), (false, Some("sso_session")));
        assert_eq!(files.profile("empty").unwrap(), Some(Profile::default()));
        assert!(files.profile("other").unwrap().is_none() && files.profile("corp").unwrap().is_none());
    }

    #[test]
    fn file_that_cannot_be_read_is_named() {
        let (home, files) = files("", "");
        let path = home.path().join(".aws/credentials");
        std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
        let error = files.profile("default").unwrap_err().to_string();
        assert!(error.contains("larger than the limit of 1 MiB") && error.contains("credentials"), "{error}");
        std::fs::write(&path, b"[default]\nregion = \xff").unwrap();
        assert!(files.profile("default").unwrap_err().to_string().ends_with("it is not UTF-8"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(files.profile("default").is_err());
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(files.profile("default"), Ok(None));
        assert_eq!(ProfileFiles::of(&|_| None).profile("default"), Ok(None));
    }
}
