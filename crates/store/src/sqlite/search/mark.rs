//! Where words stand in a text, and what to show of it.

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::text::is_spaceless;
use crate::Excerpt;

/// Places in one text that are looked at.
const PLACES: usize = 5_000;
/// Bytes of an excerpt, about.
const EXCERPT: usize = 160;
/// Bytes of it before the first word.
const BEFORE: usize = 40;
/// How BM25 weighs repetition and length.
const REPETITION: f64 = 1.2;
const LENGTH: f64 = 0.75;

/// A word, or words between quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    /// As it was typed.
    pub(super) text: String,
    /// Its words, folded; none for signs alone.
    pub(super) tokens: Vec<String>,
}

/// Where a term stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) range: Range<usize>,
    pub(super) term: usize,
}

/// The words of a text, folded as the index does: letters and digits, without case and diacritics.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = (Range<usize>, Cow<'_, str>)> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    // Whole texts are read for each hit, and most of them are ASCII: bytes are looked at as long as they are.
    std::iter::from_fn(move || {
        loop {
            let byte = bytes.get(at)?;
            if byte.is_ascii_alphanumeric() {
                break;
            }
            if byte.is_ascii() {
                at += 1;
                continue;
            }
            let character = text[at..].chars().next()?;
            if character.is_alphanumeric() {
                break;
            }
            at += character.len_utf8();
        }
        let from = at;
        let (mut is_ascii, mut is_lower) = (true, true);
        while let Some(byte) = bytes.get(at) {
            if byte.is_ascii_alphanumeric() {
                is_lower &= !byte.is_ascii_uppercase();
                at += 1;
                continue;
            }
            if byte.is_ascii() {
                break;
            }
            let character = text[at..].chars().next()?;
            let alone = is_spaceless(character);
            if at > from && (alone || !character.is_alphanumeric() && !is_combining_mark(character)) {
                break;
            }
            is_ascii = false;
            at += character.len_utf8();
            if alone {
                break;
            }
        }
        let word = &text[from..at];
        let folded = match (is_ascii, is_lower) {
            (true, true) => Cow::Borrowed(word),
            (true, false) => Cow::Owned(word.to_ascii_lowercase()),
            (false, _) => Cow::Owned(
                word.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect(),
            ),
        };
        Some((from..at, folded))
    })
}

/// Where the terms stand as whole words, in order, and how many words the text has.
pub(super) fn by_words(text: &str, terms: &[Term]) -> (Vec<Place>, usize) {
    let mut places = Vec::new();
    // How far each term is, and where it began.
    let mut begun: Vec<Vec<usize>> = vec![Vec::new(); terms.len()];
    let mut count = 0;
    for (range, token) in tokens(text) {
        count += 1;
        if places.len() >= PLACES {
            continue;
        }
        for (n, term) in terms.iter().enumerate() {
            let begun = &mut begun[n];
            if begun.is_empty() && term.tokens.first().is_none_or(|first| *first != token) {
                continue;
            }
            // The starts of the last words that could be the beginning of this term, the longest first.
            let length = term.tokens.len();
            begun.push(range.start);
            if begun.len() > length {
                begun.remove(0);
            }
            while !begun.is_empty() && !ends_with(text, begun, range.end, &term.tokens) {
                begun.remove(0);
            }
            if begun.len() == length && length > 0 {
                places.push(Place { range: begun[0]..range.end, term: n });
                begun.clear();
            }
        }
    }
    places.sort_by_key(|place| (place.range.start, place.term));
    (places, count)
}

/// Whether the words that begin at these places are the first of `wanted`.
fn ends_with(text: &str, begun: &[usize], end: usize, wanted: &[String]) -> bool {
    tokens(&text[begun[0]..end]).zip(wanted).all(|((_, token), wanted)| token == *wanted)
}

/// Where the terms stand as they are, without case, in order; `None` when one is missing.
pub(super) fn by_substrings(text: &str, terms: &[Term]) -> Option<Vec<Place>> {
    let folded = FoldedText::new(text);
    let mut places = Vec::new();
    for (n, term) in terms.iter().enumerate() {
        let wanted = FoldedText::new(&term.text).text;
        let mut found = false;
        let mut at = 0;
        while let Some(start) = folded.text[at..].find(&wanted) {
            let start = at + start;
            at = start + wanted.len();
            found = true;
            places.push(Place { range: folded.source(start)..folded.source(at), term: n });
            if places.len() >= PLACES {
                break;
            }
        }
        if !found {
            return None;
        }
    }
    places.sort_by_key(|place| (place.range.start, place.term));
    Some(places)
}

/// Text without case, and where each byte of it comes from.
struct FoldedText {
    text: String,
    /// Empty when both have the same places.
    sources: Vec<usize>,
}

impl FoldedText {
    fn new(text: &str) -> Self {
        if text.is_ascii() {
            return Self { text: text.to_ascii_lowercase(), sources: Vec::new() };
        }
        let mut folded = String::with_capacity(text.len());
        let mut sources = Vec::with_capacity(text.len() + 1);
        for (at, c) in text.char_indices() {
            folded.extend(c.to_lowercase());
            sources.resize(folded.len(), at);
        }
        sources.push(text.len());
        Self { text: folded, sources }
    }

    fn source(&self, at: usize) -> usize {
        self.sources.get(at).copied().unwrap_or(at)
    }
}

/// The piece of a text that has most of the terms.
pub(super) fn excerpt(text: &str, places: &[Place]) -> Excerpt {
    let mut best: Option<(usize, usize)> = None;
    for (n, first) in places.iter().enumerate() {
        let mut terms: Vec<usize> = places[n..]
            .iter()
            .take_while(|place| place.range.start < first.range.start + EXCERPT - BEFORE)
            .take(64)
            .map(|place| place.term)
            .collect();
        terms.sort_unstable();
        terms.dedup();
        if best.is_none_or(|(count, _)| terms.len() > count) {
            best = Some((terms.len(), first.range.start));
        }
    }
    let start = best.map_or(0, |(_, start)| start);
    let mut from = text.floor_char_boundary(start.saturating_sub(BEFORE));
    if from > 0
        && let Some(space) = text[from..start].find(char::is_whitespace)
    {
        from += space;
    }
    let mut to = text.ceil_char_boundary((from + EXCERPT).min(text.len()));
    if to < text.len()
        && let Some(space) = text[start..to].rfind(char::is_whitespace)
        && space > EXCERPT / 2
    {
        to = start + space;
    }
    flat(text, from..to, places)
}

/// A piece of text on one line. A mark ends where the piece does.
fn flat(text: &str, piece: Range<usize>, places: &[Place]) -> Excerpt {
    let mut excerpt = Excerpt::default();
    // Where each byte of the piece went.
    let mut went = Vec::with_capacity(piece.len() + 1);
    for c in text[piece.clone()].chars() {
        let at = excerpt.text.len();
        if c.is_whitespace() || c.is_control() {
            if !excerpt.text.is_empty() && !excerpt.text.ends_with(' ') {
                excerpt.text.push(' ');
            }
        } else {
            excerpt.text.push(c);
        }
        went.resize(went.len() + c.len_utf8(), at);
    }
    went.push(excerpt.text.len());
    excerpt.text.truncate(excerpt.text.trim_end().len());
    let end = excerpt.text.len();
    for Place { range, .. } in places {
        if range.start < piece.start || range.start >= piece.end {
            continue;
        }
        let mark =
            went[range.start - piece.start].min(end)..went[range.end.min(piece.end) - piece.start].min(end);
        match excerpt.marks.last_mut() {
            Some(last) if last.end >= mark.start => last.end = last.end.max(mark.end),
            _ if mark.is_empty() => {}
            _ => excerpt.marks.push(mark),
        }
    }
    excerpt.cut_before = !text[..piece.start].trim().is_empty();
    excerpt.cut_after = !text[piece.end..].trim().is_empty();
    excerpt
}

/// How well a text of so many words fits: BM25. `rarity` is that of each term.
pub(super) fn score(places: &[Place], words: usize, average: f64, rarity: &[f64]) -> f64 {
    let mut counts = vec![0.0; rarity.len()];
    for place in places {
        counts[place.term] += 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "a weight")]
    let length = 1.0 - LENGTH + LENGTH * words as f64 / average.max(1.0);
    counts
        .iter()
        .zip(rarity)
        .map(|(count, rarity)| rarity * count * (REPETITION + 1.0) / (count + REPETITION * length))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::query::terms;
    use super::*;

    fn marked(excerpt: &Excerpt) -> String {
        let mut shown = excerpt.text.clone();
        for mark in excerpt.marks.iter().rev() {
            shown.insert(mark.end, ']');
            shown.insert(mark.start, '[');
        }
        format!(
            "{}{shown}{}",
            if excerpt.cut_before { "…" } else { "" },
            if excerpt.cut_after { "…" } else { "" }
        )
    }

    #[test]
    fn words_are_marked_as_the_index_finds_them() {
        let check = |text: &str, words: &str, expect: &str| {
            let (places, _) = by_words(text, &terms(words));
            assert_eq!(marked(&excerpt(text, &places)), expect, "{words} in {text}");
        };
        check("Fix the  RED\n\tbutton", "red fix", "[Fix] the [RED] button");
        check("red red button, red", "\"red button\"", "red [red button], red");
        check("a_b a b_c", "a_b", "[a_b] [a b]_c");
        check("Crème brûlée cre\u{300}me", "creme", "[Crème] brûlée [cre\u{300}me]");
        check("全文検索の話", "検索", "全文[検索]の話");
        check("a\u{1b}[31mred", "red", "a [31mred");
        check("nothing", "else", "nothing");
        check("", "else", "");
        let long = format!("{} needle {}", "word ".repeat(100), "tail ".repeat(100));
        let (places, count) = by_words(&long, &terms("needle"));
        assert_eq!(count, 201);
        let shown = marked(&excerpt(&long, &places));
        assert!(
            shown.starts_with("…word") && shown.contains(" [needle] ") && shown.ends_with("tail…"),
            "{shown}"
        );
        assert!(shown.len() < 200);
    }

    #[test]
    fn parts_are_marked_without_case() {
        let check = |text: &str, words: &str, expect: Option<&str>| {
            let shown = by_substrings(text, &terms(words)).map(|places| marked(&excerpt(text, &places)));
            assert_eq!(shown.as_deref(), expect, "{words} in {text}");
        };
        check("getUserName(x)", "userna", Some("get[UserNa]me(x)"));
        check("İstanbul ÄÖÜ x", "äö ÜnIx", None);
        check("İstanbul ÄÖÜ x", "äö \"ü x\"", Some("İstanbul [ÄÖÜ x]"));
        check("fn a() -> u8", "\"-> u\"", Some("fn a() [-> u]8"));
    }

    #[test]
    fn shorter_text_with_more_matches_ranks_higher() {
        let of = |text: &str| {
            let (places, words) = by_words(text, &terms("needle hay"));
            score(&places, words, 10.0, &[2.0, 0.1])
        };
        assert!(of("needle in hay") > of("a needle in a lot of hay, hay, hay and more of the same"));
        assert!(of("needle needle hay") > of("needle hay hay"));
    }
}
