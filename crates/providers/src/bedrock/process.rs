//! Keys that a command of a profile prints (`credential_process`). The line is the user's own, as a `!command` is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::profile::ProfileFiles;
use super::remote::unavailable;
use super::sign::AccessKeys;
use crate::credentials::{CredentialError, Secret};
use crate::values::{self, Shell, ValueError};

/// How long the command may take. Some ask a person for a second factor.
const PATIENCE: Duration = Duration::from_secs(45);
/// The only form of the output that there is.
const VERSION: u64 = 1;

/// The command of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CredentialProcess {
    pub(super) profile: String,
    pub(super) line: String,
}

impl CredentialProcess {
    fn failure(&self, problem: &str) -> CredentialError {
        let name: String = self.profile.chars().filter(|c| !c.is_control()).take(64).collect();
        unavailable(format!("credential_process of the AWS profile {name:?} {problem}"))
    }

    /// What the command prints.
    pub(super) async fn keys(
        self,
        files: &ProfileFiles,
        shell: Arc<Shell>,
    ) -> Result<AccessKeys, CredentialError> {
        let paths: Vec<PathBuf> = files.paths().map(Path::to_path_buf).collect();
        let run = move || {
            for path in paths.iter().filter(|path| path.exists()) {
                check_origin(path, &*shell).map_err(|why| self.failure(&format!("is not run: {why}")))?;
            }
            let printed = values::output(&self.line, &*shell, PATIENCE).map_err(|error| match error {
                ValueError::Command { problem, .. } => {
                    self.failure(&format!("{problem}. Run the command by hand to see why"))
                }
                other @ ValueError::Missing(_) => self.failure(&other.to_string()),
            })?;
            read(&printed).map_err(|problem| self.failure(problem))
        };
        tokio::task::spawn_blocking(run).await.map_err(|_| CredentialError::Panicked)?
    }
}

/// Why a line of this file is not run: commands of a session could have written it.
fn check_origin(path: &Path, shell: &Shell) -> Result<(), String> {
    let shown = path.display();
    let (Ok(real), Ok(here)) =
        (path.canonicalize(), std::env::current_dir().and_then(|it| it.canonicalize()))
    else {
        return Err(format!("{shown} cannot be found"));
    };
    if !path.is_absolute() || real.starts_with(&here) {
        return Err(format!(
            "{shown} lies below the current directory, where commands of a session could change it. Start in another directory"
        ));
    }
    // What runs the lines of the user's files knows where else commands may write, and refuses a line that names such a file.
    let quoted = real.to_str().filter(|text| !text.contains(['\'', '"']));
    let quoted = quoted.ok_or_else(|| format!("the path {shown} has characters that are not allowed"))?;
    shell(&format!(": '{quoted}'")).map(drop).map_err(|why| why.to_string())
}

fn read(printed: &str) -> Result<AccessKeys, &'static str> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct ProcessOutput {
        version: u64,
        access_key_id: String,
        secret_access_key: String,
        session_token: Option<String>,
        expiration: Option<String>,
    }
    let printed: ProcessOutput = serde_json::from_str(printed)
        .map_err(|_| "did not print keys as JSON with Version, AccessKeyId and SecretAccessKey")?;
    if printed.version != VERSION {
        return Err("printed keys of another version than 1");
    }
    let expires = match printed.expiration.as_deref().map(str::parse::<Timestamp>) {
        Some(Ok(time)) => Some(time.as_millisecond()),
        Some(Err(_)) => return Err("printed an Expiration that is no time"),
        None => None,
    };
    let full = |text: &String| !text.trim().is_empty();
    if !full(&printed.access_key_id) || !full(&printed.secret_access_key) {
        return Err("printed an empty key");
    }
    Ok(AccessKeys {
        id: printed.access_key_id,
        secret: Secret::new(printed.secret_access_key),
        token: printed.session_token.filter(full).map(Secret::new),
        expires,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_keys_are_whole_and_of_the_known_version() {
        let keys = read(
            r#"{"Version":1,"AccessKeyId":"AKID","SecretAccessKey":"s","SessionToken":"t","Expiration":"2030-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        assert_eq!((keys.id.as_str(), keys.expires), ("AKID", Some(1_893_456_000_000)));
        for (text, problem) in [
            ("", "as JSON"),
            ("{}", "as JSON"),
            (r#"{"Version":2,"AccessKeyId":"a","SecretAccessKey":"s"}"#, "another version"),
            (r#"{"Version":1,"AccessKeyId":" ","SecretAccessKey":"s"}"#, "empty key"),
            (r#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"s","Expiration":"soon"}"#, "no time"),
        ] {
            assert!(read(text).unwrap_err().contains(problem), "{text}");
        }
    }
}
