//! Keys: the provider is asked whether it takes one, then it is stored.

use std::sync::Arc;
use std::time::Duration;

use quipu::{Engine, Provider, SessionOptions};
use quipu_protocol::{Model, ModelErrorKind, Outcome};
use quipu_providers::AuthFile;

use crate::{Failure, Home};

/// How long a provider may take to say what it thinks of a key.
const CHECK: Duration = Duration::from_secs(20);

/// The result of storing a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOutcome {
    /// It is kept; in words.
    Stored(String),
    /// The provider refuses it, in these words; it is not kept.
    Refused(String),
    /// Whether it works could not be found out, and why; it is not kept.
    Unknown(String),
}

/// The answer of a provider to a key.
enum KeyVerdict {
    /// It takes it; with what it complains of all the same.
    Takes(Option<String>),
    /// It refuses it, in these words.
    Refuses(String),
    /// That could not be found out, and why.
    Unknown(String),
}

/// Asks the provider one word with the key, and stores it where that is answered, or where it is to be kept `unasked`.
pub async fn keep_key(home: &Home, provider: &str, key: &str, unasked: bool) -> Result<KeyOutcome, Failure> {
    if key.is_empty() || key.len() > 16 << 10 || key.contains(char::is_whitespace) {
        return Err(Failure::request("invalid key: it must be one word of at most 16 KiB"));
    }
    let settings = home.settings().without_retries();
    let is_search = crate::needs_search_key(provider);
    if !settings.providers().contains(&provider) && !is_search {
        return Err(Failure::request(format!("there is no provider `{provider}`")));
    }
    let told = if unasked || is_search {
        "The key was not tested.".to_owned()
    } else {
        let model = settings.default_of(provider);
        let model =
            model.ok_or_else(|| Failure::request(format!("`{provider}` has no model that can be used")))?;
        let caller = settings.provider_for(&model, Some(key)).map_err(Failure::failed)?;
        let engine = home.engine_in_memory(&settings)?;
        match ask(&engine, model, caller, &home.dir).await {
            KeyVerdict::Takes(None) => "It works.".to_owned(),
            KeyVerdict::Takes(Some(but)) => format!("The provider accepts it, but: {but}"),
            KeyVerdict::Refuses(why) => return Ok(KeyOutcome::Refused(why)),
            KeyVerdict::Unknown(why) => return Ok(KeyOutcome::Unknown(why)),
        }
    };
    let file = AuthFile::new(&home.dir);
    let keychain = settings.keychain();
    keychain.replace(&file, provider, || file.set_key(provider, key)).map_err(Failure::failed)?;
    quipu_providers::forget_key_use(&home.dir, provider).map_err(Failure::failed)?;
    let path = file.path().display();
    Ok(KeyOutcome::Stored(format!(
        "The key for {provider} is stored in {path}, which only you can read. {told}"
    )))
}

/// Asks for one word.
async fn ask(
    engine: &Engine,
    model: Arc<Model>,
    provider: Arc<dyn Provider>,
    cwd: &std::path::Path,
) -> KeyVerdict {
    let mut options = SessionOptions::new(cwd, model, provider);
    (options.system, options.tools, options.max_tokens) = (None, Vec::new(), Some(16));
    let session = match engine.create(options).await {
        Ok(session) => session,
        Err(error) => return KeyVerdict::Unknown(error.to_string()),
    };
    let error = match tokio::time::timeout(CHECK, session.ask("Say yes.")).await {
        Err(_) => {
            return KeyVerdict::Unknown(format!("it did not answer within {} seconds", CHECK.as_secs()));
        }
        Ok(Err(error)) => return KeyVerdict::Unknown(error.to_string()),
        Ok(Ok((Outcome::Failed(error), _))) => error,
        Ok(Ok(_)) => return KeyVerdict::Takes(None),
    };
    match error.kind {
        ModelErrorKind::Auth | ModelErrorKind::AuthRevoked | ModelErrorKind::NoCredential => {
            KeyVerdict::Refuses(error.message)
        }
        // Whose key it is was known before this was said.
        ModelErrorKind::Quota | ModelErrorKind::UsageLimit | ModelErrorKind::RateLimited => {
            KeyVerdict::Takes(Some(error.message))
        }
        _ => KeyVerdict::Unknown(error.message),
    }
}
