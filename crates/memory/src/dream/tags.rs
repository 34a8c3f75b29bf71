//! Words for what a text is about.

use std::collections::HashSet;

use quipu_store::SIGNAL_TAGS;
use unicode_normalization::UnicodeNormalization as _;

/// Letters of a tag.
const LENGTH: std::ops::RangeInclusive<usize> = 3..=32;
/// Words that say nothing about a subject, of several languages, and endings of files.
const STOP: &str = " about after again against all also always and any are because been before being between both but can \
could did does doing done down during each else every few for from further get got had has have having her here him his how \
into its itself just like made make many may more most much must not now off once only other our out over own same see she \
should some such than that the their them then there these they this those through too under until use used user using very \
via want was way were what when where which while who why will with would you your yes aber als auch auf aus bei das dass dem \
den der des die doch ein eine einem einen einer eines er es für hat ich ihr ihre ist kann mit nach nicht noch nur oder sein \
seine sich sie sind und uns von vor war was wenn wie wir wird zu zum zur avec ce cette dans des elle est et il ils je la le les \
leur mais nous ou par pas pour que qui sont sur une vous con del el en las los más para pero por que una y \
cpp css csv html jpg json jsx log lua md mdx pdf png py rs sh sql toml ts tsx txt xml yaml yml ";
/// Words that count even before compound ones.
const GLOSSARY: [&str; 24] = [
    "api",
    "auth",
    "backup",
    "budget",
    "build",
    "cache",
    "config",
    "database",
    "deadline",
    "deploy",
    "design",
    "docker",
    "error",
    "key",
    "migration",
    "password",
    "performance",
    "preference",
    "project",
    "release",
    "schedule",
    "security",
    "test",
    "token",
];

fn is_cjk(letter: char) -> bool {
    matches!(u32::from(letter), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF)
}

fn is_tag(word: &str) -> bool {
    let count = word.chars().count();
    let least = if word.chars().any(is_cjk) { 2 } else { *LENGTH.start() };
    // Also dates, times and versions.
    let is_number = word.chars().all(|letter| letter.is_ascii_digit() || ".-:/".contains(letter));
    (least..=*LENGTH.end()).contains(&count) && !is_number && !STOP.contains(&format!(" {word} "))
}

/// At most eight tags of a text, each once: known subjects, compound names, other words.
#[must_use]
pub fn concept_tags(text: &str) -> Vec<String> {
    let text: String = text.nfkc().collect::<String>().to_lowercase().replace('_', "-");
    let is_joint = |letter: char| ".-/:".contains(letter);
    let tokens: Vec<&str> = text
        .split(|letter: char| !(letter.is_alphanumeric() || is_joint(letter)))
        .map(|token| token.trim_matches(is_joint))
        .filter(|token| !token.is_empty())
        .collect();
    let words = tokens.iter().flat_map(|token| token.split(is_joint));
    let known = words.clone().filter(|word| GLOSSARY.contains(word));
    let compound = tokens.iter().copied().filter(|token| token.contains(is_joint));
    let mut seen = HashSet::new();
    known
        .chain(compound)
        .chain(words.clone())
        .filter(|word| is_tag(word) && seen.insert((*word).to_owned()))
        .take(SIGNAL_TAGS)
        .map(str::to_owned)
        .collect()
}

/// The words of a text, for comparing it with another.
pub(super) fn words(text: &str) -> HashSet<String> {
    text.nfkc()
        .collect::<String>()
        .to_lowercase()
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The same without words that say nothing.
pub(super) fn content_words(text: &str) -> HashSet<String> {
    words(text)
        .into_iter()
        .filter(|word| is_tag(word) || word.chars().any(|letter| letter.is_ascii_digit()))
        .collect()
}

/// How much of two sets of words is common to both, from 0 to 1.
pub(super) fn overlap(a: &HashSet<String>, b: &HashSet<String>) -> f64 {
    let both = a.intersection(b).count();
    let all = a.len() + b.len() - both;
    if all == 0 { 0.0 } else { super::signals::to_float(both) / super::signals::to_float(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_subjects_then_names_then_words() {
        let tags = concept_tags(
            "The deploy of crates/store_x on 2026-05-01 needs the flag --release, not 1.2.3 or 42.",
        );
        assert_eq!(tags, ["deploy", "release", "crates/store-x", "crates", "store", "needs", "flag"]);
        assert_eq!(concept_tags("und the 日本 of a"), ["日本"]);
        assert!(concept_tags(&"word".repeat(20)).is_empty());
        assert_eq!(concept_tags("alpha beta gamma delta epsilon zeta eta theta iota").len(), SIGNAL_TAGS);
    }

    #[test]
    fn overlap_is_the_common_share() {
        let of = |a: &str, b: &str| overlap(&words(a), &words(b));
        assert_eq!(of("a b c", "A, b; c!"), 1.0);
        assert_eq!(of("a b", "c d"), 0.0);
        assert_eq!(of("", ""), 0.0);
        assert!((of("a b c", "a b d") - 0.5).abs() < 1e-12);
    }
}
