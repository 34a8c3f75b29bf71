//! Credentials of another program: taken into `auth.json` beside what is there, and given back.

use std::path::Path;

use quipu_protocol::{PauseReason, UnixMs};
use serde_json::{Map, Value, json};

use super::auth_file::{AuthEntry, escaped};
use super::key_use::{PauseWindow, RestReason};
use super::use_file::KeyUseFile;
use super::{AuthFile, AuthFileError, Secret};
use crate::values::{PlainValue, plain};

/// A credential that another program keeps too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptedCredential {
    /// A key.
    Key(Secret),
    /// The name of the variable that holds the key.
    Variable(String),
    /// A login.
    Login {
        /// Its access token.
        access: Secret,
        /// With which another one can be had.
        refresh: Option<Secret>,
        /// When the access token ends, in milliseconds since the epoch.
        expires: Option<UnixMs>,
        /// What else is known of the account; no secret.
        fields: Map<String, Value>,
    },
}

/// What became of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptOutcome {
    /// It is kept now.
    Added,
    /// It was kept already.
    Same,
    /// Another one is kept under its name, which stays.
    Kept,
}

/// Whether something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptMode {
    /// It is.
    Write,
    /// It is only said what would become of it.
    DryRun,
}

/// How another program used a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdoptedUse {
    /// When it was used last, in milliseconds since the epoch.
    pub last_used: UnixMs,
    /// How often it failed in a row.
    pub errors: u32,
    /// Until when it rests, and why.
    pub pause: Option<AdoptedPause>,
}

/// A rest of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedPause {
    /// When it ends, in milliseconds since the epoch.
    pub until: UnixMs,
    /// Why it rests.
    pub reason: PauseReason,
    /// The only model that it concerns; `None` for all.
    pub model: Option<String>,
}

const fn rest_reason(reason: PauseReason) -> RestReason {
    match reason {
        PauseReason::Refused => RestReason::Auth,
        PauseReason::Revoked => RestReason::AuthRevoked,
        PauseReason::Quota => RestReason::Quota,
        PauseReason::UsageLimit => RestReason::UsageLimit,
        PauseReason::RateLimited => RestReason::RateLimited,
        PauseReason::Overloaded => RestReason::Overloaded,
    }
}

impl AdoptedCredential {
    fn entry(&self) -> Value {
        match self {
            Self::Key(key) => json!({ "type": "api_key", "key": escaped(key.expose()) }),
            Self::Variable(name) => json!({ "type": "api_key", "key": format!("${name}") }),
            Self::Login { access, refresh, expires, fields } => {
                let mut entry = Map::from_iter([
                    ("type".to_owned(), Value::from("oauth")),
                    ("access".to_owned(), access.expose().into()),
                ]);
                if let Some(refresh) = refresh {
                    entry.insert("refresh".to_owned(), refresh.expose().into());
                }
                if let Some(expires) = expires {
                    entry.insert("expires".to_owned(), (*expires).into());
                }
                for (name, value) in fields {
                    entry.entry(name.as_str()).or_insert_with(|| value.clone());
                }
                Value::Object(entry)
            }
        }
    }
}

/// Whether two entries are the same credential; what else is known of an account may differ.
fn is_same(one: &Value, other: &Value) -> bool {
    ["type", "key", "access", "refresh"].iter().all(|name| one.get(name) == other.get(name))
}

/// Credentials by their ids.
type PortableCredentials = Vec<(String, AdoptedCredential)>;

impl AuthFile {
    /// Keeps a credential under this name, unless there is one.
    ///
    /// # Errors
    /// As [`AuthFile::set_key`].
    pub fn adopt(
        &self,
        id: &str,
        credential: &AdoptedCredential,
        mode: AdoptMode,
    ) -> Result<AdoptOutcome, AuthFileError> {
        let entry = credential.entry();
        let outcome = |there: Option<&Value>| match there {
            None => AdoptOutcome::Added,
            Some(there) if is_same(there, &entry) => AdoptOutcome::Same,
            Some(_) => AdoptOutcome::Kept,
        };
        let found = outcome(self.entries()?.get(id));
        if mode == AdoptMode::DryRun || found != AdoptOutcome::Added {
            return Ok(found);
        }
        self.change(|entries| {
            let found = outcome(entries.get(id));
            if found == AdoptOutcome::Added {
                entries.insert(id.to_owned(), entry.clone());
            }
            found
        })
    }

    /// The credentials that another program can keep too, and the names of those that only this one can use: commands, and
    /// logins of other programs.
    ///
    /// # Errors
    /// When the file cannot be read, or is not valid.
    pub fn portable(&self) -> Result<(PortableCredentials, Vec<String>), AuthFileError> {
        let (mut portable, mut others) = (Vec::new(), Vec::new());
        let entries = self.read()?;
        others.extend(entries.odd.into_iter().map(|(id, _)| id));
        for (id, entry) in entries.known {
            let credential = match entry {
                AuthEntry::ApiKey { key: Some(key), .. } => match plain(&key) {
                    Some(PlainValue::Literal(key)) => Some(AdoptedCredential::Key(Secret::new(key))),
                    Some(PlainValue::Variable(name)) => Some(AdoptedCredential::Variable(name)),
                    None => None,
                },
                AuthEntry::Oauth { access, refresh, expires, fields } => Some(AdoptedCredential::Login {
                    access: Secret::new(access),
                    refresh: refresh.map(Secret::new),
                    expires,
                    fields,
                }),
                AuthEntry::ApiKey { key: None, .. } | AuthEntry::Reference { .. } => None,
            };
            match credential {
                Some(credential) => portable.push((id, credential)),
                None => others.push(id),
            }
        }
        Ok((portable, others))
    }
}

/// Keeps how a key was used elsewhere, unless its use here is known. Rests that are over count for nothing.
///
/// # Errors
/// When the file of uses cannot be read or written.
pub fn adopt_key_use(home: &Path, id: &str, used: &AdoptedUse, now: UnixMs) -> Result<(), AuthFileError> {
    let pause = used.pause.as_ref().filter(|pause| pause.until > now);
    if used.last_used <= 0 && pause.is_none() {
        return Ok(());
    }
    let window = pause.map(|pause| PauseWindow {
        until: pause.until,
        reason: rest_reason(pause.reason),
        model: pause.model.clone(),
    });
    KeyUseFile::new(home).change(|uses| {
        if uses.keys.contains_key(id) {
            return false;
        }
        // A time in the future, of a clock that was set back, says nothing.
        let last_used = used.last_used.clamp(0, now);
        uses.keys.entry(id.to_owned()).or_default().adopt(last_used, used.errors, window);
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> AdoptedCredential {
        AdoptedCredential::Key(Secret::new(text))
    }

    #[test]
    fn adopted_credentials_replace_nothing_and_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuthFile::new(directory.path());
        let login = AdoptedCredential::Login {
            access: Secret::new("a"),
            refresh: Some(Secret::new("r")),
            expires: Some(7),
            fields: Map::from_iter([("email".to_owned(), "x@example.com".into())]),
        };
        assert_eq!(file.adopt("p", &key("k$!"), AdoptMode::DryRun).unwrap(), AdoptOutcome::Added);
        assert!(!file.path().exists());
        let adopt = |id: &str, one: &AdoptedCredential| file.adopt(id, one, AdoptMode::Write).unwrap();
        assert_eq!(adopt("p", &key("!k$")), AdoptOutcome::Added);
        assert_eq!(adopt("p", &key("!k$")), AdoptOutcome::Same);
        assert_eq!(adopt("p", &key("other")), AdoptOutcome::Kept);
        assert_eq!(adopt("q:work", &login), AdoptOutcome::Added);
        assert_eq!(adopt("q:work", &login), AdoptOutcome::Same);
        assert_eq!(adopt("v", &AdoptedCredential::Variable("THE_KEY".into())), AdoptOutcome::Added);
        file.change(|entries| {
            entries.insert("c".into(), json!({ "type": "api_key", "key": "!pass show x" }))
        })
        .unwrap();
        let (portable, others) = file.portable().unwrap();
        let expect = [
            ("p".to_owned(), key("!k$")),
            ("q:work".to_owned(), login),
            ("v".to_owned(), AdoptedCredential::Variable("THE_KEY".into())),
        ];
        assert_eq!((portable, others), (expect.to_vec(), vec!["c".to_owned()]));
        assert!(!format!("{:?}", file.portable().unwrap()).contains("!k$"));
    }

    #[test]
    fn adopted_rest_of_a_key_is_kept_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let pause = AdoptedPause { until: 2_000, reason: PauseReason::Quota, model: None };
        let used = AdoptedUse { last_used: 9_000, errors: 2, pause: Some(pause) };
        adopt_key_use(directory.path(), "over", &AdoptedUse { last_used: 0, ..used.clone() }, 3_000).unwrap();
        assert!(!directory.path().join("auth-state.json").exists(), "nothing is left of it");
        adopt_key_use(directory.path(), "p", &used, 1_000).unwrap();
        adopt_key_use(directory.path(), "p", &AdoptedUse { errors: 9, ..used }, 1_000).unwrap();
        let text = std::fs::read_to_string(directory.path().join("auth-state.json")).unwrap();
        let uses: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(uses["keys"]["p"]["lastUsed"], 1_000);
        assert_eq!(uses["keys"]["p"]["errors"], 2);
        assert_eq!(uses["keys"]["p"]["disabled"], json!({ "until": 2_000, "reason": "quota" }));
    }
}
