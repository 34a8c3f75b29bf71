//! Several keys of one provider in `quipu auth`.

use std::time::SystemTime;

use quipu_protocol::UnixMs;
use quipu_providers::KeyStatus;
use serde_json::{Value, json};

use crate::exit::Failure;

/// Characters of a name at most.
const NAME_LIMIT: usize = 64;

/// The entry of `auth.json` for a key of a provider: the first one, or one with a name.
pub(crate) fn key_id(provider: &str, name: Option<&str>) -> Result<String, Failure> {
    let Some(name) = name else { return Ok(provider.to_owned()) };
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._@-".contains(letter);
    if name.is_empty() || name.len() > NAME_LIMIT || !name.chars().all(fits) {
        return Err(Failure::usage(format!(
            "invalid name: use up to {NAME_LIMIT} letters, digits, `.`, `_`, `@` and `-`"
        )));
    }
    Ok(format!("{provider}:{name}"))
}

/// Milliseconds since the epoch.
pub(crate) fn now() -> UnixMs {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    time.ok().and_then(|time| UnixMs::try_from(time.as_millis()).ok()).unwrap_or_default()
}

/// How a key stands, in words.
pub(crate) fn key_state(key: &KeyStatus, now: UnixMs) -> String {
    let Some(rest) = &key.rest else { return "ready".to_owned() };
    let seconds = rest.until.saturating_sub(now).max(0).saturating_add(999) / 1_000;
    let left = match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", (seconds + 59) / 60),
        _ => format!("{} h", (seconds + 3_599) / 3_600),
    };
    let model = rest.model.as_ref().map(|model| format!(" with {}", crate::print::printable(model)));
    format!("rests for {left} after {}{}", rest.after, model.unwrap_or_default())
}

/// The same for programs.
pub(crate) fn key_json(key: &KeyStatus) -> Value {
    let rest = key.rest.as_ref();
    let rest = rest.map(|rest| json!({ "until": rest.until, "after": rest.after, "model": rest.model }));
    json!({ "key": key.id, "rest": rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quipu_providers::KeyPause;

    #[test]
    fn rests_of_keys_are_shown_in_words() {
        let check = |rest: Option<(UnixMs, Option<&str>)>, expect: &str| {
            let rest = rest.map(|(until, model)| KeyPause {
                until,
                after: "a refusal",
                model: model.map(str::to_owned),
            });
            assert_eq!(key_state(&KeyStatus { id: "p".into(), rest }, 1_000), expect);
        };
        check(None, "ready");
        check(Some((31_000, None)), "rests for 30 s after a refusal");
        check(Some((301_000, Some("m"))), "rests for 5 min after a refusal with m");
        check(Some((18_001_000, None)), "rests for 5 h after a refusal");
        check(Some((0, None)), "rests for 0 s after a refusal");
    }
}
