//! Texts as numbers of words and pieces of words, as models of the BERT family have them (WordPiece).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization::UnicodeNormalization as _;

/// What a `tokenizer.json` says, as far as it is done here.
#[derive(Debug)]
pub(super) struct WordPiece {
    pieces: HashMap<String, u32>,
    unknown: Option<u32>,
    /// What a piece begins with that is not the first of its word.
    prefix: String,
    /// Characters of a word at most; a longer one is unknown.
    longest: usize,
    clean: bool,
    spread_han: bool,
    strip_accents: bool,
    lowercase: bool,
}

#[derive(Deserialize)]
struct File {
    model: ModelPart,
    #[serde(default)]
    normalizer: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct ModelPart {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default = "hashes")]
    continuing_subword_prefix: String,
    #[serde(default = "hundred")]
    max_input_chars_per_word: usize,
    #[serde(default)]
    vocab: Value,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
    #[serde(default)]
    special: bool,
}

fn hashes() -> String {
    "##".into()
}

fn hundred() -> usize {
    100
}

impl WordPiece {
    /// Reads a `tokenizer.json`.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(json)
            .map_err(|error| format!("it is not a valid tokenizer.json ({error})"))?;
        let kind = file.model.kind.as_deref().unwrap_or("WordPiece");
        if kind != "WordPiece" {
            return Err(format!(
                "the type {kind:?} is not supported; only \"WordPiece\" is. Use a model with that tokenizer, or set search.semantic.endpoint"
            ));
        }
        let Value::Object(vocab) = file.model.vocab else {
            return Err("its vocabulary is not an object".into());
        };
        let mut pieces = HashMap::with_capacity(vocab.len());
        for (piece, id) in vocab {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            pieces.insert(piece, id.ok_or("its vocabulary has an invalid id")?);
        }
        let own = file.added_tokens.iter().find(|added| !added.special && !added.content.starts_with('['));
        if let Some(AddedToken { content, .. }) = own {
            return Err(format!("it has added tokens ({content:?}), which are not supported"));
        }
        let unknown = file.model.unk_token.and_then(|token| pieces.get(&token).copied());
        let mut tokenizer = Self {
            pieces,
            unknown,
            prefix: file.model.continuing_subword_prefix,
            longest: file.model.max_input_chars_per_word,
            clean: false,
            spread_han: false,
            strip_accents: false,
            lowercase: false,
        };
        for step in steps(file.normalizer.as_ref(), "normalizers") {
            tokenizer.add_normalizer(step)?;
        }
        let split: Vec<_> = steps(file.pre_tokenizer.as_ref(), "pretokenizers").collect();
        match split.as_slice() {
            [one] if of_type(one) == "BertPreTokenizer" => Ok(tokenizer),
            [] => Err("it names no pre-tokenizer; only \"BertPreTokenizer\" is supported".into()),
            [first, ..] => Err(format!(
                "the pre-tokenizer {:?} is not supported; only \"BertPreTokenizer\" is",
                of_type(first)
            )),
        }
    }

    fn add_normalizer(&mut self, step: &Value) -> Result<(), String> {
        match of_type(step) {
            "BertNormalizer" => {
                let flag = |name: &str| step.get(name).and_then(Value::as_bool);
                self.clean |= flag("clean_text").unwrap_or(true);
                self.spread_han |= flag("handle_chinese_chars").unwrap_or(true);
                let lowercase = flag("lowercase").unwrap_or(true);
                self.strip_accents |= flag("strip_accents").unwrap_or(lowercase);
                self.lowercase |= lowercase;
                Ok(())
            }
            "Lowercase" => {
                self.lowercase = true;
                Ok(())
            }
            other => Err(format!("the normalizer {other:?} is not supported; only \"BertNormalizer\" is")),
        }
    }

    /// How many numbers there can be: one more than the highest.
    pub(super) fn rows(&self) -> u64 {
        self.pieces.values().max().map_or(0, |id| u64::from(*id) + 1)
    }

    /// At most so many numbers of pieces of `text`. What is unknown is left out.
    pub(super) fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let text = self.normalized(text);
        for word in words(&text) {
            self.add_word(word, &mut found);
            if found.len() >= most {
                break;
            }
        }
        found.truncate(most);
        found.retain(|id| Some(*id) != self.unknown);
        found
    }

    /// The longest pieces from the left; nothing when one is missing.
    fn add_word(&self, word: &str, found: &mut Vec<u32>) {
        let before = found.len();
        if word.chars().count() > self.longest {
            return;
        }
        let (mut from, mut piece) = (0, String::new());
        while from < word.len() {
            let mut to = word.len();
            let id = loop {
                piece.clear();
                if from > 0 {
                    piece.push_str(&self.prefix);
                }
                piece.push_str(&word[from..to]);
                if let Some(id) = self.pieces.get(piece.as_str()) {
                    break Some(*id);
                }
                match word[from..to].char_indices().next_back() {
                    Some((at, _)) if at > 0 => to = from + at,
                    _ => break None,
                }
            };
            let Some(id) = id else {
                found.truncate(before);
                return;
            };
            found.push(id);
            from = to;
        }
    }

    fn normalized(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if self.clean && (c == '\0' || c == '\u{fffd}' || is_control(c)) {
                continue;
            }
            if self.clean && c.is_whitespace() {
                out.push(' ');
            } else if self.spread_han && is_han(c) {
                out.extend([' ', c, ' ']);
            } else {
                out.push(c);
            }
        }
        if self.strip_accents && !out.is_ascii() {
            let is_mark = |c: &char| get_general_category(*c) == GeneralCategory::NonspacingMark;
            out = out.nfd().filter(|c| !is_mark(c)).collect();
        }
        // Character by character: what stands beside one changes nothing.
        if self.lowercase { out.chars().flat_map(char::to_lowercase).collect() } else { out }
    }
}

fn of_type(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The steps of a sequence, or the one step.
fn steps<'a>(part: Option<&'a Value>, member: &str) -> impl Iterator<Item = &'a Value> {
    let part = part.filter(|part| !part.is_null());
    let inside = part.filter(|part| of_type(part) == "Sequence");
    let many = inside.and_then(|part| part.get(member)).and_then(Value::as_array);
    let one = part.filter(|_| inside.is_none());
    one.into_iter().chain(many.into_iter().flatten())
}

/// Between spaces; each sign of punctuation is a word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().flat_map(|chunk| {
        let mut rest = chunk;
        std::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let end = if is_punctuation(first) {
                first.len_utf8()
            } else {
                rest.find(is_punctuation).unwrap_or(rest.len())
            };
            let (word, after) = rest.split_at(end);
            rest = after;
            Some(word)
        })
    })
}

fn is_punctuation(c: char) -> bool {
    use GeneralCategory as G;
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    matches!(
        get_general_category(c),
        G::ConnectorPunctuation
            | G::DashPunctuation
            | G::OpenPunctuation
            | G::ClosePunctuation
            | G::InitialPunctuation
            | G::FinalPunctuation
            | G::OtherPunctuation
    )
}

fn is_control(c: char) -> bool {
    use GeneralCategory as G;
    if matches!(c, '\t' | '\n' | '\r') {
        return false;
    }
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    matches!(get_general_category(c), G::Control | G::Format | G::PrivateUse | G::Surrogate)
}

fn is_han(c: char) -> bool {
    matches!(c,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2b73f}' | '\u{2b740}'..='\u{2b81f}' | '\u{2b920}'..='\u{2ceaf}'
        | '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PIECES: &str = "[PAD] [UNK] [CLS] fix the red button ##s un ##fix ##able cafe nai ##ve ! ? . , - _ ( ) → « » 全 \
                          文 検 索 über uber strasse straße ß i ##̇ x ##1 1 ##2 2 a b c d e f g h ##a ##b ##c ##d ##e ' \" \
                          ` ~ $ + < = > ^ | 한 ##국 ᄒ ##ᅡ ##ᆫ ά α ς σ fi ﬁ";

    fn file(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let vocab: serde_json::Map<String, Value> =
            PIECES.split_whitespace().enumerate().map(|(id, piece)| (piece.to_owned(), json!(id))).collect();
        let mut file = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [{ "id": 0, "content": "[PAD]", "special": true }],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                "lowercase": true
            },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 20, "vocab": vocab
            }
        });
        change(&mut file);
        file.to_string().into_bytes()
    }

    /// As the library that writes such files parts these texts (tokenizers 0.23.3).
    #[test]
    fn texts_are_parted_as_the_writers_of_such_files_do() {
        let tokenizer = WordPiece::read(&file(|_| ())).unwrap();
        assert_eq!(tokenizer.rows(), 76);
        for (text, pieces) in [
            ("Fix the red buttons!", vec![3, 4, 5, 6, 7, 14]),
            ("unfixable café, NAÏVE?", vec![8, 9, 10, 11, 17, 12, 13, 15]),
            ("全文検索 of x12", vec![25, 26, 27, 28, 36, 37, 39]),
            ("ÜBER straße", vec![30, 32]),
            ("  \t\n ", vec![]),
            ("a\0b\u{fffd}c\u{200b}d", vec![41, 50, 51, 52]),
            ("don't (a-b_c) «d» →e", vec![54, 20, 41, 18, 42, 19, 43, 21, 23, 44, 24, 22, 53]),
            ("x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1", vec![]),
            ("İ i", vec![34, 34]),
            ("한국", vec![]),
            ("ά Σ ς", vec![71, 73, 72]),
            ("ﬁx", vec![]),
            ("`~$+<=>^|", vec![56, 57, 58, 59, 60, 61, 62, 63, 64]),
            ("a\u{a0}b\u{2003}c", vec![41, 42, 43]),
            ("e\u{301}a\u{30a}", vec![45, 49]),
            ("\u{85}a\u{2028}b\u{3000}c", vec![41, 42, 43]),
            ("unfixablez the", vec![4]),
        ] {
            assert_eq!(tokenizer.pieces(text, 512), pieces, "{text:?}");
        }
        assert_eq!(tokenizer.pieces("fix the red", 2), [3, 4]);
        let plain = WordPiece::read(&file(|file| file["normalizer"] = Value::Null)).unwrap();
        assert_eq!(plain.pieces("Fix the über", 512), [4, 29]);
        let kept = file(|file| file["normalizer"]["strip_accents"] = json!(false));
        assert_eq!(WordPiece::read(&kept).unwrap().pieces("ÜBER", 512), [29]);
        let sequence = file(|file| {
            let steps = json!([file["normalizer"], { "type": "Lowercase" }]);
            file["normalizer"] = json!({ "type": "Sequence", "normalizers": steps });
        });
        assert_eq!(WordPiece::read(&sequence).unwrap().pieces("Fix", 512), [3]);
    }

    #[test]
    fn other_tokenizers_are_refused() {
        let check = |change: fn(&mut Value), said: &str| {
            let error = WordPiece::read(&file(change)).unwrap_err();
            assert!(error.contains(said), "{error}");
        };
        check(|file| file["model"]["type"] = json!("Unigram"), "\"Unigram\"");
        check(|file| file["model"]["vocab"] = json!([["a", -1.0]]), "vocabulary is not an object");
        check(|file| file["model"]["vocab"]["a"] = json!(-1), "an invalid id");
        check(|file| file["model"]["vocab"]["a"] = json!(1_u64 << 40), "an invalid id");
        check(|file| file["model"] = json!(7), "tokenizer.json");
        check(|file| file["normalizer"]["type"] = json!("Precompiled"), "\"Precompiled\"");
        check(|file| file["pre_tokenizer"] = json!({ "type": "Metaspace" }), "\"Metaspace\"");
        check(|file| file["pre_tokenizer"] = Value::Null, "no pre-tokenizer");
        check(
            |file| file["added_tokens"] = json!([{ "id": 9, "content": "new york", "special": false }]),
            "\"new york\"",
        );
        assert!(WordPiece::read(b"{").unwrap_err().contains("tokenizer.json"));
    }
}
