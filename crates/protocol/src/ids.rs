//! Identifiers. Content hashes are 32 bytes, never hex, in memory; everything else is a short string.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text is not 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lowercase hexadecimal digits")]
pub struct NotAHash;

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// All 64 hexadecimal digits.
            pub fn hex(&self) -> Hex {
                Hex::of(&self.0)
            }

            /// The first twelve hexadecimal digits: what people are shown.
            pub fn short(&self) -> String {
                self.hex().as_str().chars().take(12).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.hex().as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.short())
            }
        }

        impl FromStr for $name {
            type Err = NotAHash;
            fn from_str(text: &str) -> Result<Self, NotAHash> {
                parse_hash(text).map(Self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

/// The 64 hexadecimal digits of a hash, in lower case; needs no memory of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex([u8; 64]);

/// The two digits of each byte.
const PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// The hexadecimal digits of these bytes, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| PAIRS[usize::from(*byte)]).map(char::from).collect()
}

impl Hex {
    fn of(hash: &[u8; 32]) -> Self {
        let mut text = [0; 64];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(hash) {
            *pair = PAIRS[usize::from(*byte)];
        }
        Self(text)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        // They are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What each byte is worth as a digit; 255 for those that are none.
const DIGITS: [u8; 256] = {
    let mut worth = [255; 256];
    let mut digit: u8 = 0;
    while digit < 16 {
        worth[if digit < 10 { b'0' + digit } else { b'a' + digit - 10 } as usize] = digit;
        digit += 1;
    }
    worth
};

fn parse_hash(text: &str) -> Result<[u8; 32], NotAHash> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(NotAHash) };
    let pairs: &[[u8; 2]; 32] = pairs.try_into().map_err(|_| NotAHash)?;
    // Looked at once, at the end: every row that is read has several of these.
    let mut wrong = 0;
    let out = pairs.map(|[high, low]| {
        let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
        wrong |= high | low;
        high << 4 | low
    });
    if wrong > 15 { Err(NotAHash) } else { Ok(out) }
}

hash_id!(
    /// The id of a node: SHA-256 of its canonical record.
    NodeId
);
hash_id!(
    /// The id of a blob: SHA-256 of the canonical form of its type and content.
    BlobId
);
hash_id!(
    /// The id of a chunk of plain bytes (file contents, images, request bodies): SHA-256 of the bytes.
    ChunkId
);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

text_id!(
    /// A session: one lineage with a ref of its own. A UUIDv7 unless the caller chose a name.
    SessionId
);
text_id!(
    /// One run of the agent: from a prompt until it settles. Every effect of the run carries it.
    RunId
);
text_id!(
    /// A tool call, as the model named it. Unique only within one assistant message.
    CallId
);
text_id!(
    /// A message while it is being streamed, before it has a node.
    MessageId
);
text_id!(
    /// An item that waits in a queue of the session.
    ItemId
);
text_id!(
    /// A question to the person in front.
    AskId
);
text_id!(
    /// A background command of a session, such as `b1`.
    BackgroundId
);

/// Milliseconds since the Unix epoch.
pub type UnixMs = i64;
