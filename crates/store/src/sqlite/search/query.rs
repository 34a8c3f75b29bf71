//! What somebody typed, as conditions that the index understands. Nothing of it reaches the index unquoted.

use super::mark::{self, Term};
use super::text::spread;
use crate::SHORTEST_SUBSTRING;

/// Trigrams that one substring is looked up by at most; what they give is compared with the text in any case.
const TRIGRAMS: usize = 12;

/// Words are parted by spaces; quotes hold words together; a quote that is not closed reaches to the end.
pub(super) fn terms(words: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for (n, piece) in words.replace('\0', " ").split('"').enumerate() {
        let texts: Vec<&str> =
            if n % 2 == 1 { vec![piece.trim()] } else { piece.split_whitespace().collect() };
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let tokens = mark::tokens(text).map(|(_, token)| token.into_owned()).collect();
            let term = Term { text: text.to_owned(), tokens };
            if !terms.contains(&term) {
                terms.push(term);
            }
        }
    }
    terms
}

/// A string of the index's language: nothing inside has a meaning.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\0', " ").replace('"', "\"\""))
}

/// All of these words, in what nodes say; `None` when there is no word among them.
pub(super) fn by_words(terms: &[Term]) -> Option<String> {
    let words: Vec<String> =
        terms.iter().filter(|term| !term.tokens.is_empty()).map(|term| quoted(&spread(&term.text))).collect();
    (!words.is_empty()).then(|| format!("text : ({})", words.join(" AND ")))
}

/// Texts that hold all of these can hold the substrings; `None` when none is long enough.
pub(super) fn by_substrings(terms: &[Term]) -> Option<String> {
    let mut trigrams = Vec::new();
    for term in terms {
        let characters: Vec<char> = term.text.chars().collect();
        let windows = characters.len().saturating_sub(SHORTEST_SUBSTRING - 1);
        // The first and the last, and some between.
        let count = windows.min(TRIGRAMS);
        for n in 0..count {
            let at = if count > 1 { n * (windows - 1) / (count - 1) } else { 0 };
            let trigram = quoted(&characters[at..at + SHORTEST_SUBSTRING].iter().collect::<String>());
            if !trigrams.contains(&trigram) {
                trigrams.push(trigram);
            }
        }
    }
    (!trigrams.is_empty()).then(|| trigrams.join(" AND "))
}

/// One of these, among the tags and paths of a node.
pub(super) fn about(any: impl Iterator<Item = String>) -> String {
    format!("about : ({})", any.map(|tag| quoted(&tag)).collect::<Vec<_>>().join(" OR "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_characters_are_never_operators() {
        let texts = |words: &str| terms(words).into_iter().map(|term| term.text).collect::<Vec<_>>();
        assert_eq!(texts("  fix  the \"red button\" fix"), ["fix", "the", "red button"]);
        assert_eq!(texts("a\"b c\"d \"open end"), ["a", "b c", "d", "open end"]);
        assert_eq!(texts("\"\" \" \" \0"), Vec::<String>::new());
        assert_eq!(
            by_words(&terms("NEAR(a, b) OR text:x* - ^y ' ; --")).unwrap(),
            "text : (\"NEAR(a,\" AND \"b)\" AND \"OR\" AND \"text:x*\" AND \"^y\")"
        );
        assert_eq!(by_words(&terms("-> ::")), None);
        assert_eq!(by_words(&terms("検索x")).unwrap(), "text : (\" 検  索 x\")");
        assert_eq!(by_substrings(&terms("ab")), None);
        assert_eq!(by_substrings(&terms("a\"b")), None);
        assert_eq!(by_substrings(&terms("a->b cd")).unwrap(), "\"a->\" AND \"->b\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        let long: String = ('一'..).take(1_000).collect();
        assert_eq!(by_substrings(&terms(&long)).unwrap().matches("AND").count(), TRIGRAMS - 1);
    }
}
