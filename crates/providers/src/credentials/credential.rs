//! What a source gives.

use std::fmt;
use std::sync::Arc;

use quipu_protocol::UnixMs;

use super::secret::Secret;
use super::sign::Sign;

/// A credential of one provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Credential {
    /// A stable name for it, for records and notices: an account, a variable. At most 128 characters, and nothing of the
    /// secret.
    pub identity: String,
    /// How it is sent.
    pub scheme: Scheme,
    /// Where calls go with it, in place of the model's base URL.
    pub base_url: Option<String>,
    /// Headers that go with it. Those that `models.json` sets win over them.
    pub headers: Vec<(String, HeaderText)>,
    /// How long it can be used.
    pub expiry: Expiry,
    /// Secrets that belong to it and are not sent, such as a refresh token: they are sealed where they occur.
    pub sealed: Vec<Secret>,
}

impl Credential {
    /// One that is good until it is refused, and changes nothing else of a call.
    pub fn new(identity: impl Into<String>, scheme: Scheme) -> Self {
        Self {
            identity: identity.into(),
            scheme,
            base_url: None,
            headers: Vec::new(),
            expiry: Expiry::UntilRefused,
            sealed: Vec::new(),
        }
    }

    /// Each secret in it.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let own = match &self.scheme {
            Scheme::Key(secret) | Scheme::Bearer(secret) | Scheme::Header { value: secret, .. } => {
                Some(secret)
            }
            Scheme::Signer(_) | Scheme::None => None,
        };
        let headers = self.headers.iter().filter_map(|(_, text)| match text {
            HeaderText::Secret(secret) => Some(secret),
            HeaderText::Plain(_) => None,
        });
        own.into_iter().chain(headers)
    }

    /// Whether requests with it are the same as with `other`.
    pub(crate) fn is_sent_as(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.base_url == other.base_url && self.headers == other.headers
    }

    /// Calls `learn` with each secret that has to be sealed where it occurs.
    pub(crate) fn teach(&self, mut learn: impl FnMut(&str)) {
        self.secrets().filter(|secret| secret.is_sealed()).for_each(|secret| learn(secret.expose()));
        self.sealed.iter().for_each(|secret| learn(secret.expose()));
        if let Scheme::Signer(signer) = &self.scheme {
            signer.secrets().iter().for_each(|secret| learn(secret.expose()));
        }
    }
}

/// How a credential is sent.
#[derive(Clone)]
pub enum Scheme {
    /// In the wire's own header for keys.
    Key(Secret),
    /// As `Authorization: Bearer`.
    Bearer(Secret),
    /// In a header of this name.
    Header {
        /// The name of the header.
        name: String,
        /// The whole value.
        value: Secret,
    },
    /// By headers that are made from the finished request.
    Signer(Arc<dyn Sign>),
    /// No credential is sent.
    None,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(_) => f.write_str("Key(…)"),
            Self::Bearer(_) => f.write_str("Bearer(…)"),
            Self::Header { name, .. } => write!(f, "Header({name:?}, …)"),
            Self::Signer(_) => f.write_str("Signer(…)"),
            Self::None => f.write_str("None"),
        }
    }
}

/// Signers are the same when they are one and the same.
impl PartialEq for Scheme {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(one), Self::Key(other)) | (Self::Bearer(one), Self::Bearer(other)) => one == other,
            (Self::Header { name, value }, Self::Header { name: other, value: than }) => {
                name == other && value == than
            }
            (Self::Signer(one), Self::Signer(other)) => Arc::ptr_eq(one, other),
            (Self::None, Self::None) => true,
            (
                Self::Key(_) | Self::Bearer(_) | Self::Header { .. } | Self::Signer(_) | Self::None,
                Self::Key(_) | Self::Bearer(_) | Self::Header { .. } | Self::Signer(_) | Self::None,
            ) => false,
        }
    }
}

/// The value of a header that goes with a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// One that anybody may read.
    Plain(String),
    /// One that is sealed.
    Secret(Secret),
}

impl HeaderText {
    /// The value.
    pub fn expose(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(secret) => secret.expose(),
        }
    }
}

/// How long a credential can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Until a server refuses it.
    #[default]
    UntilRefused,
    /// Until this time (milliseconds since the epoch). Ten seconds before it, the next call fetches another.
    At(UnixMs),
    /// For one attempt: each fetches its own.
    Once,
}

impl Expiry {
    /// Milliseconds before its end in which a credential is not used for a new attempt.
    const MARGIN: UnixMs = 10_000;

    /// Whether an attempt that begins `now` can use it.
    pub(crate) fn allows(self, now: UnixMs) -> bool {
        match self {
            Self::UntilRefused => true,
            Self::At(at) => now.saturating_add(Self::MARGIN) < at,
            Self::Once => false,
        }
    }
}
