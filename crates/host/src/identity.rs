//! The text of a person's own before the system prompt: a session goes on with the one that it began with, unless a person
//! wants the new one.

use std::path::PathBuf;

use quipu::{Engine, IdentityError, identity_hash, identity_text, read_identity};
use quipu_protocol::{BlobId, Epoch};

use crate::{Failure, Home, OpenRequest, Question};

/// The identity text of a session.
#[derive(Default)]
pub(crate) struct IdentityChoice {
    /// The text; `None` keeps that of a session that goes on.
    pub(crate) text: Option<String>,
    /// Another text that is not wanted.
    pub(crate) declined: Option<BlobId>,
}

/// The text for a session. `last` is how one stands that goes on.
///
/// # Errors
/// For a new session, when the file that the settings name cannot be used.
pub(crate) async fn chosen(
    home: &Home,
    engine: &Engine,
    request: &OpenRequest,
    last: Option<&Epoch>,
) -> Result<IdentityChoice, Failure> {
    let Some(path) = file(home) else { return Ok(IdentityChoice::default()) };
    let Some(last) = last else {
        let wanted = read_identity(&path);
        let why = |error| {
            Failure::request(format!(
                "{error}; correct it, or remove `identity.file` from {}",
                home.dir.join("settings.json").display()
            ))
        };
        let text = wanted.map(Some).map_err(why)?;
        return Ok(IdentityChoice { text, declined: None });
    };
    // One that began without goes on without.
    let Some(old) = identity_text(&**engine.store(), last).await? else {
        return Ok(IdentityChoice::default());
    };
    let keeps = "the session keeps the text it started with";
    let new = match read_identity(&path) {
        Ok(text) => engine.sealer().seal(&text).into_owned(),
        Err(error) => {
            home.warn(format!("{error}; {keeps}"));
            return Ok(IdentityChoice::default());
        }
    };
    let hash = identity_hash(engine.sealer(), &new);
    if new == old || last.declined == Some(hash) {
        return Ok(IdentityChoice::default());
    }
    let shown = path.display();
    let told = match quipu_tools::changed_lines(&old, &new) {
        Some(lines) => lines,
        None => "(too many changes to show)".into(),
    };
    let told = format!("{shown} has changed since this session started:\n{told}");
    let question = "Use the new text?";
    match request.answer(Question::NewText, &format!("{told}\n{question}"))? {
        Some(true) => Ok(IdentityChoice { text: Some(new), declined: None }),
        Some(false) => Ok(IdentityChoice { text: None, declined: Some(hash) }),
        None => {
            home.note(told);
            home.note(format!("Nobody is here to answer, so {keeps}. New sessions use the new text."));
            Ok(IdentityChoice::default())
        }
    }
}

/// The text that new sessions begin with; `None` where no setting names a file.
///
/// # Errors
/// When the file cannot be used.
pub fn identity_for_new_sessions(home: &Home) -> Result<Option<String>, IdentityError> {
    file(home).map(|path| read_identity(&path)).transpose()
}

/// The file that the settings name: from the home directory where it begins with `~/`, else from ours.
fn file(home: &Home) -> Option<PathBuf> {
    let named = home.config().identity.file.clone()?;
    Some(match (named.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        (_, _) => home.dir.join(named),
    })
}
