//! The text of a person's own before the system prompt: a session goes on with the one that it began with, unless a person
//! wants the new one.

use std::path::PathBuf;

use quipu::{Engine, identity_hash, identity_text, read_identity};
use quipu_protocol::{BlobId, Epoch};

use crate::{Failure, OpenRequest, Place, Question};

/// What goes into the options of a session.
#[derive(Default)]
pub(crate) struct Chosen {
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
    place: &Place,
    engine: &Engine,
    request: &OpenRequest,
    last: Option<&Epoch>,
) -> Result<Chosen, Failure> {
    let Some(path) = file(place) else { return Ok(Chosen::default()) };
    let Some(last) = last else {
        let wanted = read_identity(&path);
        let why = |error| {
            Failure::request(format!(
                "{error}; mend it, or take `identity.file` out of {}",
                place.home.join("settings.json").display()
            ))
        };
        let text = wanted.map(Some).map_err(why)?;
        return Ok(Chosen { text, declined: None });
    };
    // One that began without goes on without.
    let Some(old) = identity_text(&**engine.store(), last).await? else { return Ok(Chosen::default()) };
    let keeps = "the session goes on with the text that it began with";
    let new = match read_identity(&path) {
        Ok(text) => engine.sealer().seal(&text).into_owned(),
        Err(error) => {
            place.warn(format!("{error}; {keeps}"));
            return Ok(Chosen::default());
        }
    };
    let hash = identity_hash(engine.sealer(), &new);
    if new == old || last.declined == Some(hash) {
        return Ok(Chosen::default());
    }
    let shown = path.display();
    let told = match quipu_tools::changed_lines(&old, &new) {
        Some(lines) => lines,
        None => "(the changes are too many to be shown)".into(),
    };
    let told = format!("{shown} is not what it was when this session began:\n{told}");
    let question = "Go on with the new text?";
    match request.answer(Question::NewText, &format!("{told}\n{question}"))? {
        Some(true) => Ok(Chosen { text: Some(new), declined: None }),
        Some(false) => Ok(Chosen { text: None, declined: Some(hash) }),
        None => {
            place.note(told);
            place.note(format!(
                "Nobody is here to be asked, so {keeps}. A new session begins with the new one."
            ));
            Ok(Chosen::default())
        }
    }
}

/// The file that the settings name: from the home directory where it begins with `~/`, else from ours.
fn file(place: &Place) -> Option<PathBuf> {
    let named = place.config().identity.file.clone()?;
    Some(match (named.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        (_, _) => place.home.join(named),
    })
}
