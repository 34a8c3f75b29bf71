//! A text that a person puts before the system prompt, such as who the agent is. It is recorded with the session, which
//! continues with it whatever becomes of the file.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_dag::Blob;
use quipu_protocol::{BlobId, Epoch};
use quipu_seal::Sealer;
use quipu_store::Graph;

use crate::error::OpenError;
use crate::shared_values::SharedValues;

/// Bytes of an identity text at most: it is a part of every request.
pub const IDENTITY_LIMIT: u64 = 64 << 10;
/// What stands between it and the rest of the prompt.
const BETWEEN: &str = "\n\n";

/// The text before the system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentitySettings {
    /// The file that holds it, as it is named; `None` for none.
    pub file: Option<String>,
}

/// Why a file cannot be put before the system prompt.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It could not be read.
    #[error("could not read the identity file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is a directory, a pipe, or another thing.
    #[error("the identity file {} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It is larger than [`IDENTITY_LIMIT`].
    #[error("the identity file {} is larger than {IDENTITY_LIMIT} bytes; shorten it, because every request includes it", .0.display())]
    TooLarge(PathBuf),
    /// It is not UTF-8.
    #[error("the identity file {} is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    /// There is nothing in it.
    #[error("the identity file {} is empty", .0.display())]
    Empty(PathBuf),
}

/// The text of an identity file, without a byte order mark and without white space at its end.
///
/// # Errors
/// When it is not a text of 1 byte to 64 KiB in a regular file.
pub fn read_identity(path: &Path) -> Result<String, IdentityError> {
    let unreadable = |error| IdentityError::Unreadable { path: path.to_owned(), error };
    // A pipe must not be waited for.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(IdentityError::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(IDENTITY_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > IDENTITY_LIMIT {
        return Err(IdentityError::TooLarge(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| IdentityError::NotText(path.to_owned()))?;
    match text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end() {
        "" => Err(IdentityError::Empty(path.to_owned())),
        text => Ok(text.to_owned()),
    }
}

/// The identity text of an epoch, as it was sealed; `None` where it has none.
///
/// # Errors
/// What the store says.
pub async fn identity_text(store: &dyn Graph, epoch: &Epoch) -> Result<Option<String>, OpenError> {
    let Some(identity) = epoch.identity else { return Ok(None) };
    Ok(store.blobs(&[identity]).await?.into_iter().flatten().next().map(|blob| system_text(&blob)))
}

/// What stands in an epoch for an identity text, sealed or not.
pub fn identity_hash(sealer: &Sealer, text: &str) -> BlobId {
    system_blob(&sealer.seal(text)).id
}

/// What stands before the messages: blobs of type `system_prompt`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Prompt {
    /// The identity text by itself.
    pub(crate) identity: Option<Arc<Blob>>,
    /// The whole, which begins with it.
    pub(crate) system: Option<Arc<Blob>>,
}

impl Prompt {
    /// The prompt of a session with these options: what they leave open is as it was. `rest` is what stands behind the
    /// identity text, sealed.
    pub(crate) fn of(
        sealer: &Sealer,
        identity: Option<&str>,
        rest: Option<&str>,
        was: Option<&Self>,
    ) -> Self {
        let was = was.cloned().unwrap_or_default();
        let identity = match identity {
            Some(text) => Some(sealer.seal(text))
                .filter(|text| !text.is_empty())
                .map(|text| shared_blob(system_blob(&text))),
            None => was.identity.clone(),
        };
        let rest = match rest {
            None if identity == was.identity => return was,
            None => was.rest(),
            Some(text) => text.to_owned(),
        };
        Self::with(identity, &rest)
    }

    /// The prompt of an identity text and what stands behind it, both sealed.
    pub(crate) fn with(identity: Option<Arc<Blob>>, rest: &str) -> Self {
        let own = identity.as_deref().map(system_text).unwrap_or_default();
        let between = if own.is_empty() || rest.is_empty() { "" } else { BETWEEN };
        let whole = format!("{own}{between}{rest}");
        Self { identity, system: (!whole.is_empty()).then(|| shared_blob(system_blob(&whole))) }
    }

    /// What stands behind the identity text.
    pub(crate) fn rest(&self) -> String {
        without(self.system.as_deref(), self.identity.as_deref())
    }

    /// All that must be in the store for it.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = Blob> + '_ {
        self.identity.iter().chain(&self.system).map(|blob| Blob::clone(blob))
    }
}

/// A prompt without the identity text that it begins with.
fn without(system: Option<&Blob>, identity: Option<&Blob>) -> String {
    let system = system.map(system_text).unwrap_or_default();
    let own = identity.map(system_text).unwrap_or_default();
    match system.strip_prefix(&own) {
        Some(rest) if !own.is_empty() => rest.strip_prefix(BETWEEN).unwrap_or(rest).to_owned(),
        _ => system,
    }
}

pub(crate) fn system_blob(text: &str) -> Blob {
    Blob::string("system_prompt", text)
}

/// This one, or an equal one that some session begins with.
pub(crate) fn shared_blob(blob: Blob) -> Arc<Blob> {
    static BLOBS: SharedValues<Blob> = SharedValues::new();
    BLOBS.shared(blob)
}

/// The text of a `system_prompt` blob.
pub(crate) fn system_text(blob: &Blob) -> String {
    serde_json::from_str(&blob.content).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_text_precedes_prompt_and_can_be_replaced() {
        let sealer = Sealer::new([0; 32]);
        let of = |identity, system, was: Option<&Prompt>| Prompt::of(&sealer, identity, system, was);
        let text = |prompt: &Prompt| prompt.system.as_deref().map(system_text);
        assert_eq!(of(None, None, None), Prompt::default());
        assert_eq!(text(&of(None, Some("Base."), None)).as_deref(), Some("Base."));
        let first = of(Some("I am Ada."), Some("Base."), None);
        assert_eq!(text(&first).as_deref(), Some("I am Ada.\n\nBase."));
        // What is left open is as it was.
        assert_eq!(of(None, None, Some(&first)), first);
        assert_eq!(of(Some("I am Ada."), None, Some(&first)), first);
        assert_eq!(text(&of(None, Some("Other."), Some(&first))).as_deref(), Some("I am Ada.\n\nOther."));
        assert_eq!(text(&of(Some("I am Eve."), None, Some(&first))).as_deref(), Some("I am Eve.\n\nBase."));
        let none = of(Some(""), None, Some(&first));
        assert_eq!((text(&none).as_deref(), &none.identity), (Some("Base."), &None));
        let alone = of(Some("I am Ada."), None, None);
        assert_eq!(text(&alone).as_deref(), Some("I am Ada."));
        assert_eq!(of(Some(""), None, Some(&alone)), Prompt::default());
    }
}
