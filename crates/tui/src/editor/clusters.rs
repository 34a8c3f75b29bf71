//! Where a cursor may stand: between grapheme clusters, and on both sides of a chip.

use std::sync::Arc;
use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

/// Characters that stand for a chip in the text of a [`Buffer`](super::buffer::Buffer). Unicode gives them no
/// meaning, and what comes from outside never gets into a text as one of them.
pub(super) const CHIPS: std::ops::RangeInclusive<char> = '\u{10F000}'..='\u{10FFFD}';

pub(super) fn is_chip(character: char) -> bool {
    CHIPS.contains(&character)
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// The end of the cluster that begins at a boundary; the end of the text for the end.
pub(super) fn after(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    match (bytes.get(at), bytes.get(at + 1)) {
        (None, _) => return text.len(),
        (Some(b'\n'), _) => return at + 1,
        (Some(byte), next) if is_plain(*byte) && next.is_none_or(u8::is_ascii) => return at + 1,
        _ => {}
    }
    let cluster = text[at..].graphemes(true).next().unwrap_or_default();
    let mut characters = cluster.char_indices();
    match characters.next() {
        Some((_, first)) if is_chip(first) => at + first.len_utf8(),
        _ => at + characters.find(|(_, one)| is_chip(*one)).map_or(cluster.len(), |(chip, _)| chip),
    }
}

/// The beginning of the cluster that ends at a boundary; 0 for 0.
pub(super) fn before(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let (Some(last), previous) = (at.checked_sub(1), at.checked_sub(2)) else { return 0 };
    if is_plain(bytes[last]) && previous.is_none_or(|previous| bytes[previous].is_ascii()) {
        return last;
    }
    if let Some(chip) = text[..at].chars().next_back().filter(|one| is_chip(*one)) {
        return at - chip.len_utf8();
    }
    let found = GraphemeCursor::new(at, text.len(), true).prev_boundary(text, 0).ok().flatten().unwrap_or(0);
    let inside = text[found..at].char_indices().rfind(|(_, one)| is_chip(*one));
    inside.map_or(found, |(chip, one)| found + chip + one.len_utf8())
}

/// Whether a cursor may stand there.
pub(super) fn is_boundary(text: &str, at: usize) -> bool {
    if at == 0 || at == text.len() {
        return true;
    }
    if !text.is_char_boundary(at) {
        return false;
    }
    text[..at].chars().next_back().is_some_and(is_chip)
        || text[at..].chars().next().is_some_and(is_chip)
        || GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(true)
}

/// The first place at or after `at` where a cursor may stand.
pub(super) fn snap(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !is_boundary(text, at) {
        at += 1;
    }
    at
}

/// What a cluster is for motions over words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Space,
    Word,
    Sign,
    Chip,
}

/// Of the cluster that begins at `at`; a space at the end.
pub(super) fn class(text: &str, at: usize) -> Class {
    match text[at..].chars().next() {
        None => Class::Space,
        Some(one) if one.is_whitespace() => Class::Space,
        Some(one) if is_chip(one) => Class::Chip,
        Some(one) if one.is_alphanumeric() || one == '_' => Class::Word,
        // What is neither a sign of ASCII nor a general one, such as emoji or a mark alone, belongs to words.
        Some(one) if one.is_ascii() || is_sign(one) => Class::Sign,
        Some(_) => Class::Word,
    }
}

fn is_sign(one: char) -> bool {
    matches!(one, '\u{A1}'..='\u{BF}' | '\u{2010}'..='\u{205E}' | '\u{3001}'..='\u{3020}' | '\u{FF01}'..='\u{FF0F}')
}

/// The end of the word at or after `at`: spaces before it are passed.
pub(super) fn word_end(text: &str, at: usize) -> usize {
    let mut at = at;
    while at < text.len() && class(text, at) == Class::Space {
        at = after(text, at);
    }
    let kind = class(text, at);
    loop {
        let next = after(text, at);
        if at == text.len() || class(text, at) != kind {
            return at;
        }
        if kind == Class::Chip {
            return next;
        }
        at = next;
    }
}

/// The beginning of the word at or before `at`: spaces behind it are passed.
pub(super) fn word_start(text: &str, at: usize) -> usize {
    let mut at = at;
    while at > 0 && class(text, before(text, at)) == Class::Space {
        at = before(text, at);
    }
    let Some(kind) = (at > 0).then(|| class(text, before(text, at))) else { return 0 };
    loop {
        let previous = before(text, at);
        if at == 0 || class(text, previous) != kind {
            return at;
        }
        if kind == Class::Chip {
            return previous;
        }
        at = previous;
    }
}

/// The beginning of the line that `at` is in.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The end of the line that `at` is in, before its newline.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline)
}

/// A long paste: shown as its label, and given as its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chip {
    /// Of printable ASCII.
    pub(super) label: String,
    pub(super) content: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `|` where a cursor may stand.
    fn check(text: &str, expect: &str) {
        let marks = |places: &[usize]| {
            let mut marked = String::new();
            for (at, one) in text.char_indices() {
                if places.contains(&at) {
                    marked.push('|');
                }
                marked.push(one);
            }
            marked + "|"
        };
        let (mut forth, mut back) = (vec![0], vec![text.len()]);
        while forth[forth.len() - 1] < text.len() {
            forth.push(after(text, forth[forth.len() - 1]));
        }
        while back[back.len() - 1] > 0 {
            back.push(before(text, back[back.len() - 1]));
        }
        back.reverse();
        assert_eq!(forth, back);
        assert_eq!(marks(&forth), expect);
        let all: Vec<usize> = (0..=text.len()).filter(|at| is_boundary(text, *at)).collect();
        assert_eq!(forth, all);
    }

    #[test]
    fn boundaries() {
        check("ab", "|a|b|");
        check("e\u{301}x", "|e\u{301}|x|");
        check("👩‍👩‍👧a", "|👩‍👩‍👧|a|");
        check("🇩🇪🇫🇷", "|🇩🇪|🇫🇷|");
        check("a\n\u{301}b", "|a|\n|\u{301}|b|");
        check("\u{10F000}\u{301}\u{10F001}", "|\u{10F000}|\u{301}|\u{10F001}|");
        check("\u{600}\u{10F000}x", "|\u{600}|\u{10F000}|x|");
        check("नमस्ते", "|न|म|स्ते|");
    }

    #[test]
    fn words() {
        let check = |text: &str, expect: &[usize]| {
            let mut ends = vec![word_end(text, 0)];
            while ends[ends.len() - 1] < text.len() {
                ends.push(word_end(text, ends[ends.len() - 1]));
            }
            assert_eq!(ends, expect, "{text}");
        };
        check("one  two_2, x", &[3, 10, 11, 13]);
        check("a.b(c)", &[1, 2, 3, 4, 5, 6]);
        check("\u{10F000}\u{10F001}a", &[4, 8, 9]);
        check("  ", &[2]);
        assert_eq!(word_start("one  two, ", 10), 8);
        assert_eq!(word_start("one  two", 8), 5);
        assert_eq!(word_start("one  ", 5), 0);
        assert_eq!(word_start("", 0), 0);
    }
}
