//! The placeholder: how it is written and recognised, what its id is made of, and which secret it stands for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const OPENING: &str = "[REDACTED:";
const LONGEST_KIND: usize = 32;
const ID_DIGITS: usize = 8;
/// Bytes of secrets found by pattern that are remembered; a process that meets more still seals them.
const REMEMBERED_BYTES: usize = 64 << 20;
/// What an entry of the map costs beside its text, roughly.
const ENTRY_BYTES: usize = 64;

/// Makes ids out of secrets.
pub(crate) struct IdKey(Hmac<Sha256>);

impl IdKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        // HMAC fills a short key with zeros up to the block; done here, there is no length to be wrong.
        let mut block = [0; 64];
        block[..32].copy_from_slice(key);
        Self(Hmac::new(&block.into()))
    }

    /// The first four bytes of HMAC-SHA256(key, secret). Never change this: ids are in stored nodes.
    pub(crate) fn id(&self, secret: &str) -> u32 {
        let mut mac = self.0.clone();
        mac.update(secret.as_bytes());
        let hash: [u8; 32] = mac.finalize().into_bytes().into();
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    }
}

impl IdKey {
    /// The first eight bytes of HMAC-SHA256(key, a mark of its own and the text), in digits. Never change this: they are in
    /// stored nodes.
    pub(crate) fn fingerprint(&self, text: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(b"fingerprint\0");
        mac.update(text.as_bytes());
        let hash: [u8; 32] = mac.finalize().into_bytes().into();
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A kind that a placeholder can hold.
pub(crate) fn kind(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let kind: String = text.chars().map(fits).collect();
    let kind = kind.trim_matches(['-', '_']);
    let kind = kind.get(..LONGEST_KIND).unwrap_or(kind);
    if kind.is_empty() { "credential".to_owned() } else { kind.to_owned() }
}

/// The placeholder of an id.
pub(crate) fn write(kind: &str, id: u32) -> String {
    format!("{OPENING}{kind}:{id:08x}]")
}

/// The first placeholder at or after `from`. One cannot overlap another: an opening bracket is only at its start.
pub(crate) fn next(text: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        // Most texts have no bracket, and to look for one takes nothing to be made ready.
        let start = at + memchr::memchr(b'[', text.as_bytes().get(at..)?)?;
        if !text.as_bytes()[start..].starts_with(OPENING.as_bytes()) {
            at = start + 1;
            continue;
        }
        let body = &text.as_bytes()[start + OPENING.len()..];
        let in_kind = |b: &&u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let kind = body.iter().take(LONGEST_KIND + 1).take_while(in_kind).count();
        let rest = &body[kind..];
        if (1..=LONGEST_KIND).contains(&kind)
            && rest.first() == Some(&b':')
            && rest.get(ID_DIGITS + 1) == Some(&b']')
            && rest[1..=ID_DIGITS].iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Some(start..start + OPENING.len() + kind + ID_DIGITS + 2);
        }
        at = start + OPENING.len();
    }
}

/// Whether a text holds a placeholder, which stands for a secret.
pub fn has_placeholder(text: &str) -> bool {
    next(text, 0).is_some()
}

/// Which secret each id stands for.
#[derive(Default)]
pub(crate) struct Memory {
    by_id: HashMap<u32, MemoryEntry>,
    bytes: usize,
}

enum MemoryEntry {
    One(Arc<str>),
    /// Two secrets have this id. Better no answer than the wrong one.
    Ambiguous,
}

impl Memory {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Keeps a secret that was found, as long as there is room; whether it took some.
    pub(crate) fn remember(&mut self, id: u32, secret: &str) -> bool {
        match self.by_id.get(&id) {
            Some(MemoryEntry::Ambiguous) => false,
            Some(MemoryEntry::One(present)) if **present == *secret => false,
            Some(MemoryEntry::One(_)) => {
                self.by_id.insert(id, MemoryEntry::Ambiguous);
                false
            }
            None if self.bytes + secret.len() + ENTRY_BYTES > REMEMBERED_BYTES => false,
            None => {
                self.bytes += secret.len() + ENTRY_BYTES;
                self.by_id.insert(id, MemoryEntry::One(secret.into()));
                true
            }
        }
    }

    /// Keeps a credential of the program, whatever room there is.
    pub(crate) fn remember_always(&mut self, id: u32, secret: &Arc<str>) {
        let remembered = match self.by_id.get(&id) {
            Some(MemoryEntry::One(present)) if present != secret => MemoryEntry::Ambiguous,
            Some(MemoryEntry::Ambiguous) => MemoryEntry::Ambiguous,
            Some(MemoryEntry::One(_)) | None => MemoryEntry::One(Arc::clone(secret)),
        };
        self.by_id.insert(id, remembered);
    }

    /// The secret of a placeholder that [`next`] found.
    pub(crate) fn secret(&self, placeholder: &str) -> Option<Arc<str>> {
        let digits = placeholder.get(placeholder.len().checked_sub(ID_DIGITS + 1)?..placeholder.len() - 1)?;
        match self.by_id.get(&u32::from_str_radix(digits, 16).ok()?)? {
            MemoryEntry::One(secret) => Some(Arc::clone(secret)),
            MemoryEntry::Ambiguous => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_never_change() {
        let key = IdKey::new(&[7; 32]);
        assert_eq!(format!("{:08x}", key.id("correct horse battery")), "d6a8c0b6");
        // RFC 4231, test case 1: a 20-byte key is the same HMAC as that key with zeros behind it.
        let mut key = [0; 32];
        key[..20].copy_from_slice(&[0x0b; 20]);
        assert_eq!(format!("{:08x}", IdKey::new(&key).id("Hi There")), "b0344c61");
    }

    #[test]
    fn placeholders_are_recognised() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(next(text, 0).map(|r| &text[r]), expect, "{text}");
        check("a [REDACTED:k-1_b:0123abcd] b", Some("[REDACTED:k-1_b:0123abcd]"));
        check("[REDACTED:[REDACTED:k:00000000]", Some("[REDACTED:k:00000000]"));
        check("[REDACTED:k:0000000] [REDACTED:k:11111111]", Some("[REDACTED:k:11111111]"));
        for not in
            ["", "[REDACTED:", "[REDACTED::00000000]", "[REDACTED:K:00000000]", "[REDACTED:k:0000000G]"]
        {
            check(not, None);
        }
        check(&format!("[REDACTED:{}:00000000]", "k".repeat(33)), None);
        check("[REDACTED:k:é0000000]", None);
    }

    #[test]
    fn kinds_are_made_to_fit() {
        let check = |text: &str, expect: &str| assert_eq!(kind(text), expect);
        check("API key", "api-key");
        check("", "credential");
        check("--", "credential");
        check("ä:b", "b");
        check(&"x".repeat(99), &"x".repeat(32));
        check(&format!("{}é", "x".repeat(31)), &"x".repeat(31));
    }

    #[test]
    fn a_shared_id_gives_no_secret() {
        let mut memory = Memory::default();
        memory.remember(1, "first");
        assert_eq!(memory.secret("[REDACTED:k:00000001]").as_deref(), Some("first"));
        memory.remember(1, "second");
        assert_eq!(memory.secret("[REDACTED:k:00000001]"), None);
        memory.remember_always(1, &"first".into());
        assert_eq!(memory.secret("[REDACTED:k:00000001]"), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        let large = "x".repeat(REMEMBERED_BYTES / 2);
        memory.remember(1, &large);
        memory.remember(2, &large);
        assert_eq!(memory.len(), 1);
        memory.remember_always(3, &"credential".into());
        assert!(memory.secret("[REDACTED:k:00000003]").is_some());
    }
}
