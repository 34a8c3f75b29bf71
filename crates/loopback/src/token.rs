//! The secret of a server.

use std::sync::Arc;

/// A secret that clients send as `Authorization: Bearer …`.
#[derive(Clone)]
pub struct BearerToken(Arc<str>);

impl BearerToken {
    /// A token; `None` for text that is too short to be a secret.
    pub fn new(text: &str) -> Option<Self> {
        (text.len() >= 16).then(|| Self(text.into()))
    }

    /// Whether this value of an `Authorization` header holds the token. The name of the scheme may be in any case.
    pub fn is_sent_as(&self, header: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let (Some(scheme), Some(given)) = (header.get(..SCHEME.len()), header.get(SCHEME.len()..)) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME) && self.is(given)
    }

    /// Compares without telling by its time where they differ.
    fn is(&self, text: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differ = own.iter().zip(text).fold(0, |differ, (a, b)| differ | (a ^ b));
        own.len() == text.len() && differ == 0
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_the_whole_value_behind_the_scheme() {
        let token = BearerToken::new("0123456789abcdef").unwrap();
        for (header, is_it) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdeg", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("Bearer ", false),
            ("", false),
        ] {
            assert_eq!(token.is_sent_as(header.as_bytes()), is_it, "{header}");
        }
        assert!(BearerToken::new("short").is_none());
        assert_eq!(format!("{token:?}"), "BearerToken(…)");
    }
}
