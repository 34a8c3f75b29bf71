//! Credentials of an agent, one by one.

use quipu_protocol::{PauseReason, UnixMs};
use serde_json::{Map, Value};

/// Bytes of a key or token at most.
const SECRET: usize = 16 << 10;
/// Letters of a name at most.
const NAME: usize = 64;
/// Providers whose tokens buy others, and are no credential of a call themselves; one a line.
const EXCHANGED: &str = include_str!("exchanged.txt");
/// Members of a login that are read here; all else that is a text, a number or a truth value is kept beside it.
const LOGIN: [&str; 6] = ["type", "provider", "access", "refresh", "expires", "idToken"];

/// A credential as another program can have it.
#[derive(Clone, PartialEq)]
pub struct PortableProfile {
    /// Its name: that of the provider, or with a colon and another one behind it.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// The credential.
    pub credential: ProfileCredential,
    /// What is not taken of it.
    pub notes: Vec<String>,
}

/// What a profile holds. Secrets are in it: it has no debug form.
#[derive(Clone, PartialEq)]
pub enum ProfileCredential {
    /// A key, or a token that does not end.
    Key(String),
    /// The variable that has the key.
    Variable(String),
    /// A login, or a token that ends.
    Login {
        /// Its access token.
        access: String,
        /// With which another one can be had.
        refresh: Option<String>,
        /// When the access token ends, in milliseconds since the epoch.
        expires: Option<UnixMs>,
        /// What else is known of the account.
        fields: Map<String, Value>,
    },
}

/// Why a profile cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileFault {
    /// It is no object.
    #[error("it is not an object")]
    NotAnObject,
    /// It names no provider.
    #[error("it names no provider")]
    NoProvider,
    /// The kind is not known.
    #[error("credentials of the type {0:?} are not supported")]
    Type(String),
    /// It has no secret.
    #[error("its key or token is empty")]
    Empty,
    /// The secret is none.
    #[error("its key or token is not one word of at most 16 KiB")]
    NotASecret,
    /// Where the secret is cannot be said here.
    #[error("its secret is read from `{0}`, which is not supported; log in or set a key")]
    Reference(String),
    /// The token is no credential of calls.
    #[error("its token only gets others; log in to {0} here")]
    Exchanged(String),
}

/// How a profile was used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileUse {
    /// When it was used last, in milliseconds since the epoch.
    pub last_used: UnixMs,
    /// How often it failed in a row.
    pub errors: u32,
    /// Until when it rests, why, and the only model that it concerns.
    pub rest: Option<(UnixMs, PauseReason, Option<String>)>,
}

/// A profile under the name that it has elsewhere.
///
/// # Errors
/// Why it cannot be taken.
pub fn profile_of(name: &str, profile: &Value) -> Result<PortableProfile, ProfileFault> {
    let members = profile.as_object().ok_or(ProfileFault::NotAnObject)?;
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::trim);
    let provider = text("provider").map(str::to_lowercase).filter(|provider| is_name(provider));
    let provider = provider.ok_or(ProfileFault::NoProvider)?;
    let expires = members.get("expires").and_then(Value::as_i64).filter(|expires| *expires > 0);
    let mut notes = Vec::new();
    let credential = match text("type") {
        Some("api_key") => match reference(members, "key", "keyRef")? {
            Some(variable) => ProfileCredential::Variable(variable),
            None => ProfileCredential::Key(secret(text("key"))?),
        },
        Some("token") if EXCHANGED.lines().any(|name| name == provider) => {
            return Err(ProfileFault::Exchanged(provider));
        }
        Some("token") => match (reference(members, "token", "tokenRef")?, expires) {
            (Some(variable), _) => ProfileCredential::Variable(variable),
            (None, None) => ProfileCredential::Key(secret(text("token"))?),
            (None, expires) => ProfileCredential::Login {
                access: secret(text("token"))?,
                refresh: None,
                expires,
                fields: Map::new(),
            },
        },
        Some("oauth") => {
            let access = secret(text("access"))?;
            let refresh = match text("refresh").filter(|refresh| !refresh.is_empty()) {
                Some(refresh) => Some(secret(Some(refresh))?),
                None => None,
            };
            let mut fields = Map::new();
            for (name, value) in members {
                let is_plain = value.is_string() || value.is_number() || value.is_boolean();
                if LOGIN.contains(&name.as_str()) {
                    continue;
                }
                // A name that could hold a secret is not kept.
                if is_plain
                    && !name.to_lowercase().contains("token")
                    && !name.to_lowercase().contains("secret")
                {
                    let name = if name == "projectId" { "project" } else { name };
                    fields.insert(name.to_owned(), value.clone());
                } else {
                    notes.push(format!("its member `{name}` is not taken"));
                }
            }
            ProfileCredential::Login { access, refresh, expires, fields }
        }
        other => {
            let other: String = other.unwrap_or_default().chars().take(NAME).collect();
            return Err(ProfileFault::Type(other));
        }
    };
    let rest = name.strip_prefix(provider.as_str()).and_then(|rest| rest.strip_prefix(':')).unwrap_or(name);
    let id = match rest {
        "default" | "" => provider.clone(),
        rest if *rest == provider => provider.clone(),
        rest => {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "._@-".contains(letter);
            let rest: String =
                rest.chars().take(NAME).map(|letter| if fits(letter) { letter } else { '-' }).collect();
            format!("{provider}:{rest}")
        }
    };
    Ok(PortableProfile { id, provider, credential, notes })
}

/// The name under which a profile of this id stands in a file of profiles.
pub fn profile_name(id: &str, provider: &str) -> String {
    if id == provider { format!("{provider}:default") } else { id.to_owned() }
}

/// A profile as this program writes it.
pub fn profile_json(provider: &str, credential: &ProfileCredential) -> Value {
    match credential {
        ProfileCredential::Key(key) => {
            serde_json::json!({ "type": "api_key", "provider": provider, "key": key })
        }
        ProfileCredential::Variable(name) => serde_json::json!({
            "type": "api_key", "provider": provider,
            "keyRef": { "source": "env", "provider": "default", "id": name },
        }),
        ProfileCredential::Login { access, refresh: None, expires, .. } => {
            let mut token = serde_json::json!({ "type": "token", "provider": provider, "token": access });
            if let (Some(expires), Some(token)) = (expires, token.as_object_mut()) {
                token.insert("expires".to_owned(), (*expires).into());
            }
            token
        }
        ProfileCredential::Login { access, refresh: Some(refresh), expires, fields } => {
            let mut login = Map::from_iter([
                ("type".to_owned(), Value::from("oauth")),
                ("provider".to_owned(), provider.into()),
                ("access".to_owned(), access.as_str().into()),
                ("refresh".to_owned(), refresh.as_str().into()),
                ("expires".to_owned(), expires.unwrap_or_default().into()),
            ]);
            for (name, value) in fields {
                let name = if name == "project" { "projectId" } else { name };
                login.entry(name).or_insert_with(|| value.clone());
            }
            Value::Object(login)
        }
    }
}

/// How a profile was used.
pub fn use_of(stats: &Value) -> ProfileUse {
    let number = |name: &str| stats.get(name).and_then(Value::as_i64).unwrap_or_default();
    let text = |name: &str| stats.get(name).and_then(Value::as_str);
    let cooldown = match text("cooldownReason") {
        Some("rate_limit") | None => PauseReason::RateLimited,
        Some("overloaded") => PauseReason::Overloaded,
        Some(_) => PauseReason::Refused,
    };
    let disabled = match text("disabledReason") {
        Some("auth_permanent") => PauseReason::Revoked,
        _ => PauseReason::Quota,
    };
    let model = |name: &str| text(name).map(str::to_owned);
    let rests = [
        (number("disabledUntil"), disabled, None),
        (number("blockedUntil"), PauseReason::UsageLimit, model("blockedModel")),
        (number("cooldownUntil"), cooldown, model("cooldownModel")),
    ];
    ProfileUse {
        last_used: number("lastUsed"),
        errors: u32::try_from(number("errorCount")).unwrap_or_default(),
        rest: rests.into_iter().filter(|(until, ..)| *until > 0).max_by_key(|(until, ..)| *until),
    }
}

fn is_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !name.is_empty() && name.len() <= NAME && name.chars().all(fits)
}

/// The variable that a secret stands in, where it does.
fn reference(
    members: &Map<String, Value>,
    plain: &str,
    reference: &str,
) -> Result<Option<String>, ProfileFault> {
    let is_variable = |name: &str| {
        name.len() <= 128
            && name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let written = members.get(plain).and_then(Value::as_str).map(str::trim);
    let written = written.and_then(|text| text.strip_prefix("${")?.strip_suffix('}'));
    if let Some(name) = written.filter(|name| is_variable(name)) {
        return Ok(Some(name.to_owned()));
    }
    let of = |name: &str| members.get(name).filter(|value| value.is_object());
    let Some(found) = of(reference).or_else(|| of(plain)) else { return Ok(None) };
    let text = |name: &str| found.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("source") {
        "env" if is_variable(text("id")) => Ok(Some(text("id").to_owned())),
        source => Err(ProfileFault::Reference(source.chars().take(NAME).collect())),
    }
}

fn secret(text: Option<&str>) -> Result<String, ProfileFault> {
    let text = text.filter(|text| !text.is_empty()).ok_or(ProfileFault::Empty)?;
    let fits =
        text.len() <= SECRET && !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    if fits { Ok(text.to_owned()) } else { Err(ProfileFault::NotASecret) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(profile: &Value) -> ProfileFault {
        profile_of("p:x", profile).err().unwrap()
    }

    #[test]
    fn profiles_of_each_type_are_read() {
        let check = |name: &str, profile: Value, id: &str, expect: ProfileCredential| {
            let portable = profile_of(name, &profile).ok().unwrap();
            assert!(portable.id == id && portable.credential == expect, "{name}: {}", portable.id);
        };
        let key = |text: &str| ProfileCredential::Key(text.into());
        check("p:default", json!({ "type": "api_key", "provider": "P", "key": " k " }), "p", key("k"));
        check("p:a b@c", json!({ "type": "token", "provider": "p", "token": "t" }), "p:a-b@c", key("t"));
        let variable = ProfileCredential::Variable("THE_KEY".into());
        check(
            "p:e",
            json!({ "type": "api_key", "provider": "p", "key": "${THE_KEY}" }),
            "p:e",
            variable.clone(),
        );
        let by_reference = json!({ "source": "env", "provider": "default", "id": "THE_KEY" });
        check("p:f", json!({ "type": "api_key", "provider": "p", "keyRef": by_reference }), "p:f", variable);
        let login = json!({ "type": "oauth", "provider": "p", "access": "a", "refresh": "r", "expires": 7,
            "projectId": "x", "email": "m", "idToken": "secret", "otherToken": "secret" });
        let fields = Map::from_iter([("project".into(), json!("x")), ("email".into(), json!("m"))]);
        let expect = ProfileCredential::Login {
            access: "a".into(),
            refresh: Some("r".into()),
            expires: Some(7),
            fields,
        };
        check("p:m", login.clone(), "p:m", expect);
        let portable = profile_of("p:m", &login).ok().unwrap();
        assert_eq!(portable.notes, ["its member `otherToken` is not taken"]);
        let again = profile_of("p:m", &profile_json("p", &portable.credential)).ok().unwrap();
        assert!(again.credential == portable.credential && again.id == portable.id);
    }

    #[test]
    fn profiles_that_cannot_be_taken_say_why() {
        assert_eq!(fault(&json!([])), ProfileFault::NotAnObject);
        assert_eq!(fault(&json!({ "type": "api_key", "key": "k" })), ProfileFault::NoProvider);
        assert_eq!(
            fault(&json!({ "type": "api_key", "provider": "a/b", "key": "k" })),
            ProfileFault::NoProvider
        );
        assert_eq!(fault(&json!({ "type": "x", "provider": "p" })), ProfileFault::Type("x".into()));
        assert_eq!(fault(&json!({ "type": "oauth", "provider": "p", "access": "" })), ProfileFault::Empty);
        let two = json!({ "type": "api_key", "provider": "p", "key": "two words" });
        assert_eq!(fault(&two), ProfileFault::NotASecret);
        let exec = json!({ "type": "api_key", "provider": "p", "keyRef": { "source": "exec", "id": "x" } });
        assert_eq!(fault(&exec), ProfileFault::Reference("exec".into()));
        let token = json!({ "type": "token", "provider": "github-copilot", "token": "t" });
        assert_eq!(fault(&token), ProfileFault::Exchanged("github-copilot".into()));
    }

    #[test]
    fn longest_rest_of_a_profile_counts() {
        let stats = json!({ "lastUsed": 5, "errorCount": 3, "cooldownUntil": 10, "cooldownReason": "auth",
            "cooldownModel": "m", "disabledUntil": 20, "disabledReason": "billing" });
        let expect = ProfileUse { last_used: 5, errors: 3, rest: Some((20, PauseReason::Quota, None)) };
        assert_eq!(use_of(&stats), expect);
        assert_eq!(use_of(&json!({ "cooldownUntil": -1 })), ProfileUse::default());
    }
}
