//! Sources of media that a reply may name.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest source, in characters.
const SOURCE_MOST: usize = 4096;

/// Which files a reply may send, by the names that its text has for them. Cheap to clone.
#[derive(Clone)]
pub struct MediaCheck(Arc<FileChoice>);

type FileChoice = dyn Fn(&str) -> Option<String> + Send + Sync;

impl MediaCheck {
    /// `file` gives what is sent for a name, such as the true path of the file; `None` where nothing may be sent for it.
    pub fn new(file: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(file))
    }

    /// No file may be sent; addresses may.
    #[must_use]
    pub fn no_files() -> Self {
        Self::new(|_| None)
    }

    /// What is sent for a source: an address is sent as it is.
    #[must_use]
    pub fn source(&self, named: &str) -> Option<String> {
        if is_address(named) { Some(named.to_owned()) } else { (self.0)(named) }
    }
}

impl fmt::Debug for MediaCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MediaCheck")
    }
}

/// Only a clone is the same.
impl PartialEq for MediaCheck {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MediaCheck {}

/// A file that the text of a message names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedFile {
    /// As the text names it.
    pub name: String,
    /// It may be sent; otherwise its name is text.
    pub may_be_sent: bool,
}

/// Whether a source that is valid is an address, and not a path.
pub(crate) fn is_address(source: &str) -> bool {
    source.contains("://")
}

/// The source that the rest of a `MEDIA:` line names: an `https` address of a public host, or a path without `..`. None when it is
/// neither; the line is text then. A path with blanks is in quotes or backticks, or begins at a root and has a file ending.
pub fn media_source(text: &str) -> Option<String> {
    named_source(text, false)
}

/// The same; where it is `checked` whether there is such a file, its ending does not matter.
pub(crate) fn named_source(text: &str, checked: bool) -> Option<String> {
    let text = text.trim();
    let quoted = ['`', '"', '\''].into_iter().find_map(|quote| {
        text.strip_prefix(quote)?.strip_suffix(quote).filter(|inner| !inner.contains(quote))
    });
    let source = quoted.unwrap_or(text).trim();
    let source = strip_file_scheme(source);
    if source.is_empty() || source.chars().count() > SOURCE_MOST || source.chars().any(char::is_control) {
        return None;
    }
    if let Some((scheme, rest)) = source.split_once("://") {
        let https = scheme.eq_ignore_ascii_case("https");
        let valid = https && !source.contains(char::is_whitespace) && is_public(rest);
        return valid.then(|| source.to_owned());
    }
    let has_blanks = quoted.is_none() && source.contains(char::is_whitespace);
    let is_one = !has_blanks || is_rooted(source) && (checked || has_ending(source));
    (is_one && is_path(source)).then(|| source.to_owned())
}

/// Whether it says where the path begins.
fn is_rooted(source: &str) -> bool {
    ["/", "./", "~/", "\\\\"].iter().any(|root| source.starts_with(root)) || has_drive(source)
}

fn has_drive(source: &str) -> bool {
    matches!(source.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic())
}

/// Whether the last part of a path is a name with an ending such as `.png`.
fn has_ending(source: &str) -> bool {
    let last = source.rsplit(['/', '\\']).next().unwrap_or_default();
    last.rsplit_once('.').is_some_and(|(name, ending)| {
        let letters = ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
        !name.is_empty()
            && !name.ends_with(char::is_whitespace)
            && (1..=10).contains(&ending.len())
            && letters
    })
}

fn strip_file_scheme(source: &str) -> &str {
    match source.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("file://") => &source[7..],
        _ => source,
    }
}

fn is_path(source: &str) -> bool {
    let drive = has_drive(source);
    let has_scheme = !drive && source.split(['/', '\\']).next().is_some_and(|first| first.contains(':'));
    let path = drive || source.starts_with("\\\\") || source.contains('/');
    path && !has_scheme && !source.split(['/', '\\']).any(|segment| segment == "..")
}

/// Whether the host after `https://` has several labels, and is none of this machine or its network by name or number.
fn is_public(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if authority.contains('@') || authority.starts_with('[') {
        return false;
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let labels: Vec<_> = host.split('.').collect();
    let spelled = labels.iter().all(|label| {
        !label.is_empty()
            && label.chars().all(|character| character.is_alphanumeric() || matches!(character, '-' | '_'))
    });
    let Some(last) = labels.last().filter(|_| spelled && labels.len() > 1) else { return false };
    // A host that ends in a number is an address: of four decimal numbers, or of an old form that hides one.
    if last.starts_with(|character: char| character.is_ascii_digit()) {
        return is_public_address(&labels);
    }
    !matches!(*last, "local" | "localhost" | "internal" | "localdomain" | "lan" | "home")
        && host != "home.arpa"
        && !host.ends_with(".home.arpa")
}

fn is_public_address(labels: &[&str]) -> bool {
    let plain = labels.iter().all(|label| !(label.len() > 1 && label.starts_with('0')));
    let numbers: Option<Vec<u8>> = labels.iter().map(|label| label.parse().ok()).collect();
    match numbers.as_deref() {
        Some([a, b, _, _]) if plain => !matches!(
            (*a, *b),
            (0 | 10 | 127 | 224..=255, _)
                | (100, 64..=127)
                | (169, 254)
                | (172, 16..=31)
                | (192, 168)
                | (198, 18 | 19)
        ),
        _ => false,
    }
}
