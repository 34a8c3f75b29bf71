//! Texts that nobody may read.

use std::fmt;

/// A text that stands in no debug form, error or record.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    /// Whether it is sealed where it occurs.
    kind: SecretKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretKind {
    Secret,
    Placeholder,
}

impl Secret {
    /// Keeps a text out of `Debug` output and logs.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: SecretKind::Secret }
    }

    /// A word that stands where a secret is wanted and is none: servers on this machine take any. It occurs in ordinary
    /// text, so it is not sealed.
    pub fn placeholder(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: SecretKind::Placeholder }
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.kind == SecretKind::Secret
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
