//! Secrets found and replaced, and put back for a running tool.
//!
//! Pure: no IO, no clock, no randomness; the key of the ids comes in as an argument. It must not know messages
//! or stores: text and JSON text go in and come out.
//!
//! # What is found
//! 1. Credentials that the program holds ([`Sealer::know`]), as they are and as base64 (standard and URL-safe, at
//!    each of the three alignments that an embedding text can give them, with and without padding), URL-encoded
//!    and JSON-escaped. Base64 that is broken into lines is not looked into.
//! 2. Common kinds by pattern: the table `patterns.json`, whose rows begin at a keyword. An assignment such as
//!    `password = "…"` counts only when its value looks like a secret and not like a word, a path or a template.
//!
//! 3. Text inside of PNG pictures is left out of them ([`without_text`]), whatever it says.
//!
//! A known credential wins over a pattern that it overlaps, except over one that contains it whole: then more
//! would leak. Otherwise the leftmost and longest wins.
//!
//! # The placeholder
//! `[REDACTED:kind:id]`: `kind` is 1 to 32 of `a-z 0-9 - _`; `id` is the first 8 hexadecimal digits of
//! HMAC-SHA256(key, the replaced text). Ids are stored for ever, so this never changes. The kind is not part of
//! the hash: a secret keeps its id when a later version names its kind better, and [`Sealer::unseal`] looks at
//! the id only. What is hashed and remembered is the exact text that was replaced, so an encoded spelling has its
//! own id and comes back in that spelling.
//!
//! # Laws
//! - `seal(seal(x)) == seal(x)`; a placeholder inside a text is left alone and acts as a wall for all matching.
//! - `unseal(seal(x)) == x` for a text without foreign placeholders, for the life of the process. Two limits:
//!   beyond 64 MB of distinct secrets new ones are sealed and not remembered, and two secrets that share an id
//!   (one pair in four thousand million) are not told apart; both then give [`UnresolvedPlaceholder`], never a wrong value.
//! - Time and memory are linear in the text.

mod edit;
mod json;
mod known_secrets;
mod patterns;
mod picture;
mod placeholder;
mod stream;
mod words;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use quipu_protocol::Json;

use edit::{Edit, apply};
use json::{Escapes, StringHints};
use known_secrets::KnownSecrets;
use patterns::{Candidate, Patterns};
pub use picture::without_text;
pub use placeholder::has_placeholder;
use placeholder::{IdKey, Memory};
pub use stream::SealStream;

/// Replaces secrets by `[REDACTED:kind:id]` and remembers them, for the life of the process, to put them back.
///
/// Shared by reference between threads; no lock is held while text is searched.
///
/// ```
/// let sealer = quipu_seal::Sealer::new([7; 32]);
/// sealer.know("api-key", "correct horse battery");
/// let sealed = sealer.seal("key: correct horse battery");
/// assert!(sealed.starts_with("key: [REDACTED:api-key:"));
/// assert_eq!(sealer.unseal(&sealed).unwrap(), "key: correct horse battery");
/// ```
pub struct Sealer {
    key: IdKey,
    known: RwLock<Arc<KnownSecrets>>,
    memory: Mutex<Memory>,
}

/// A placeholder whose secret this process has not seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{placeholder} stands for a secret that this process has not seen; read the file that holds it first"
)]
pub struct UnresolvedPlaceholder {
    /// The placeholder.
    pub placeholder: String,
}

impl Sealer {
    /// `key` makes the ids: the same secret under the same key has the same id in every process.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            key: IdKey::new(&key),
            known: RwLock::new(KnownSecrets::shared(Vec::new())),
            memory: Mutex::default(),
        }
    }

    /// Adds a credential that the program holds; it is found also as base64, URL-encoded and JSON-escaped.
    ///
    /// White space around it is not part of it. A secret shorter than 8 characters is ignored: such a text also
    /// stands in ordinary words (`test`, `ollama`), and replacing those would spoil files without hiding anything
    /// that guessing does not find. `kind` becomes lower case with `-` for what a placeholder cannot hold.
    pub fn know(&self, kind: &str, secret: &str) {
        self.know_all(kind, [secret]);
    }

    /// Adds several credentials as [`Sealer::know`] does.
    pub fn know_all<'a>(&self, kind: &str, secrets: impl IntoIterator<Item = &'a str>) {
        let there = self.known();
        let is_new = |secret: &&str| {
            secret.chars().count() >= known_secrets::SHORTEST
                && !there.entries().iter().any(|(present, _)| **present == **secret)
        };
        let secrets: Vec<&str> = secrets.into_iter().map(str::trim).filter(is_new).collect();
        if secrets.is_empty() {
            return;
        }
        let kind = placeholder::kind(kind);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut entries = known.entries().to_vec();
        let mut memory = self.memory();
        for spelling in secrets.into_iter().flat_map(known_secrets::spellings) {
            let spelling: Arc<str> = spelling.into();
            if !entries.iter().any(|(present, _)| *present == spelling) {
                let id = self.key.id(&spelling);
                memory.remember_always(id, &spelling);
                entries.push((spelling, placeholder::write(&kind, id).into()));
            }
        }
        *known = KnownSecrets::shared(entries);
    }

    /// 16 digits by which this key knows a text again, and of which nobody without the key makes the text by guessing.
    ///
    /// ```
    /// let sealer = quipu_seal::Sealer::new([7; 32]);
    /// let mark = sealer.fingerprint("the door opens with 1234");
    /// assert_eq!(mark, sealer.fingerprint("the door opens with 1234"));
    /// assert_ne!(mark, quipu_seal::Sealer::new([8; 32]).fingerprint("the door opens with 1234"));
    /// ```
    pub fn fingerprint(&self, text: &str) -> String {
        self.key.fingerprint(text)
    }

    /// `text` with every secret replaced. Idempotent.
    pub fn seal<'a>(&self, text: &'a str) -> Cow<'a, str> {
        apply(text, &self.secrets(text))
    }

    /// The same for every string inside a JSON text, keys included; other bytes stay as they are.
    ///
    /// Each string is one text, and its member's name counts as what stands before it (`{"password":"…"}`).
    /// Member order, numbers, white space, the spelling of escapes outside of what is replaced and lone
    /// surrogates stay.
    pub fn seal_json(&self, json: &Json) -> Json {
        let known = self.known();
        // Keywords stand in a string as they are, unless it spells letters or slashes otherwise than it must; so does what
        // stands around them, where nothing is escaped.
        let look = |raw: &str, escapes: Escapes| {
            let (has_keyword, has_row) = Patterns::table().look(raw);
            let may_hold = match escapes {
                Escapes::None => has_row,
                Escapes::Short => has_keyword,
                Escapes::Spelled => true,
            };
            StringHints { may_hold: may_hold || known.may_stand_in(raw), tells: has_keyword }
        };
        let sealed = json::rewrite::<std::convert::Infallible>(json.get(), &look, &mut |name, text| {
            // The name as it will stand beside the value, or a second pass would read it differently.
            let name = name.map(|name| self.seal(name));
            Ok(match name {
                Some(name) if Patterns::table().look(&name).0 => self.secrets_of_member(&name, text),
                Some(_) | None => self.secrets(text),
            })
        });
        match sealed {
            Ok(sealed) => json::reread(json, sealed),
        }
    }

    /// `text` with every placeholder replaced by its secret.
    ///
    /// # Errors
    /// The first placeholder that cannot be resolved.
    pub fn unseal<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, UnresolvedPlaceholder> {
        Ok(apply(text, &self.resolved(text)?))
    }

    /// The same for every string inside a JSON text.
    ///
    /// # Errors
    /// The first placeholder that cannot be resolved.
    pub fn unseal_json(&self, json: &Json) -> Result<Json, UnresolvedPlaceholder> {
        let all = StringHints { may_hold: true, tells: false };
        let unsealed = json::rewrite(json.get(), &|_, _| all, &mut |_, text| self.resolved(text))?;
        Ok(json::reread(json, unsealed))
    }

    fn known(&self) -> Arc<KnownSecrets> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All secrets of a text, in order, with the placeholders that replace them; they are remembered.
    fn secrets(&self, text: &str) -> Vec<Edit> {
        self.found(text, true)
    }

    /// Keeps a secret that was found, to put it back; whether it is new and there was room.
    fn remember(&self, secret: &str) -> bool {
        let id = self.key.id(secret);
        self.memory().remember(id, secret)
    }

    /// All secrets of a text, in order, with the placeholders that replace them.
    fn found(&self, text: &str, remember: bool) -> Vec<Edit> {
        let known = self.known();
        let mut edits = Vec::new();
        let mut rest = 0;
        while let Some(wall) = placeholder::next(text, rest) {
            self.search(text, rest..wall.start, &known, remember, &mut edits);
            rest = wall.end;
        }
        self.search(text, rest..text.len(), &known, remember, &mut edits);
        edits.sort_unstable_by_key(|edit| edit.range.start);
        edits
    }

    /// Adds the secrets of one piece without placeholders. What is left between them is searched again until
    /// nothing is found, for only then is sealing idempotent: a second pass sees exactly those pieces.
    fn search(
        &self,
        text: &str,
        piece: Range<usize>,
        known: &KnownSecrets,
        remember: bool,
        edits: &mut Vec<Edit>,
    ) {
        let mut pieces = vec![(piece, 0)];
        while let Some((piece, depth)) = pieces.pop() {
            // What stands behind the piece once all is sealed: nothing, or a placeholder.
            let after = if piece.end == text.len() { "" } else { "[" };
            let part = &text[piece.clone()];
            let mut chosen = choose(&known.find(part), Patterns::table().find(part, after));
            if chosen.is_empty() || depth == DEEPEST {
                continue;
            }
            chosen.sort_unstable_by_key(|(range, _)| range.start);
            let mut left = piece.start;
            for (range, source) in chosen {
                let range = piece.start + range.start..piece.start + range.end;
                pieces.push((left..range.start, depth + 1));
                left = range.end;
                let with = match source {
                    Source::Known(index) => known.placeholder(index),
                    Source::Pattern(row) => {
                        let secret = &text[range.clone()];
                        let id = self.key.id(secret);
                        if remember {
                            self.memory().remember(id, secret);
                        }
                        placeholder::write(Patterns::table().kind(row), id).into()
                    }
                };
                edits.push(Edit { range, with });
            }
            pieces.push((left..piece.end, depth + 1));
        }
    }

    /// All secrets of the value of a JSON member, its name read as that of an assignment.
    fn secrets_of_member(&self, name: &str, value: &str) -> Vec<Edit> {
        let assignment = format!("{name}=\"{value}\"");
        let from = name.len() + 2;
        let until = from + value.len();
        let mut edits = self.secrets(&assignment);
        if edits.iter().any(|e| {
            e.range.start < until && e.range.end > until || e.range.start < from && e.range.end > from
        }) {
            // Something runs over the edge, which is ours and not the text's.
            return self.secrets(value);
        }
        edits.retain(|edit| edit.range.start >= from && edit.range.end <= until);
        for edit in &mut edits {
            edit.range = edit.range.start - from..edit.range.end - from;
        }
        edits
    }

    fn resolved(&self, text: &str) -> Result<Vec<Edit>, UnresolvedPlaceholder> {
        let mut edits = Vec::new();
        let mut rest = 0;
        while let Some(range) = placeholder::next(text, rest) {
            rest = range.end;
            let secret = self.memory().secret(&text[range.clone()]);
            let with = secret
                .ok_or_else(|| UnresolvedPlaceholder { placeholder: text[range.clone()].to_owned() })?;
            edits.push(Edit { range, with });
        }
        Ok(edits)
    }
}

/// How often what is left between secrets is searched again. Three rounds are rare; the bound keeps the time
/// linear whatever the text.
const DEEPEST: u32 = 32;

/// Says how much it knows, never what.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).entries().len();
        let remembered = self.memory().len();
        f.debug_struct("Sealer")
            .field("known", &known)
            .field("remembered", &remembered)
            .finish_non_exhaustive()
    }
}

enum Source {
    /// Index of a known spelling.
    Known(usize),
    /// Row of the table.
    Pattern(usize),
}

/// What to replace, without overlaps. `known` is in order and free of overlaps.
fn choose(known: &[(Range<usize>, usize)], mut patterns: Vec<Candidate>) -> Vec<(Range<usize>, Source)> {
    let overlapping = |range: &Range<usize>| {
        let first = known.partition_point(|(k, _)| k.end <= range.start);
        let range = range.clone();
        known[first..].iter().map(|(k, _)| k).take_while(move |k| k.start < range.end)
    };
    patterns.retain(|p| {
        overlapping(&p.range)
            .all(|k| p.range.start <= k.start && p.range.end >= k.end && p.range.len() > k.len())
    });
    patterns.sort_unstable_by_key(|p| (p.range.start, usize::MAX - p.range.end, p.row));
    let mut end = 0;
    patterns.retain(|p| {
        let free = p.range.start >= end;
        if free {
            end = p.range.end;
        }
        free
    });
    let covered = |range: &Range<usize>| {
        let next = patterns.partition_point(|p| p.range.end <= range.start);
        patterns.get(next).is_some_and(|p| p.range.start < range.end)
    };
    known
        .iter()
        .filter(|(range, _)| !covered(range))
        .map(|(range, index)| (range.clone(), Source::Known(*index)))
        .chain(patterns.iter().map(|p| (p.range.clone(), Source::Pattern(p.row))))
        .collect()
}
