//! Where motions lead, and what text objects are.

use std::ops::Range;

use super::super::clusters::{Class, after, before, class, line_end, line_start};

/// What an operator takes of a motion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// Up to the place.
    Before,
    /// The place too.
    With,
    /// All lines from one to the other.
    Lines,
}

/// A search for a character in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CharacterSearch {
    pub(super) character: char,
    pub(super) back: bool,
    /// To the place beside it.
    pub(super) till: bool,
}

impl CharacterSearch {
    /// Where it leads; `again` when it was searched for already, so that one beside the cursor does not count.
    pub(super) fn from(self, text: &str, at: usize, count: usize, again: bool) -> Option<usize> {
        let (start, end) = (line_start(text, at), line_end(text, at));
        if self.back {
            let limit = if self.till && again { before(text, at) } else { at };
            let line = text.get(start..limit.max(start))?;
            let (place, found) = line.rmatch_indices(self.character).nth(count.checked_sub(1)?)?;
            Some(start + place + if self.till { found.len() } else { 0 })
        } else {
            let mut from = after(text, at).min(end);
            if self.till && again {
                from = after(text, from).min(end);
            }
            let (place, _) = text[from..end].match_indices(self.character).nth(count.checked_sub(1)?)?;
            Some(if self.till { before(text, from + place) } else { from + place })
        }
    }
}

fn kind(text: &str, at: usize, big: bool) -> Class {
    match class(text, at) {
        Class::Sign | Class::Chip if big => Class::Word,
        other => other,
    }
}

/// An empty line, where motions over words stop.
fn is_empty_line(text: &str, at: usize) -> bool {
    text.as_bytes().get(at) == Some(&b'\n') && (at == 0 || text.as_bytes()[at - 1] == b'\n')
}

/// The beginning of the next word.
pub(super) fn next_word(text: &str, at: usize, big: bool) -> usize {
    let mut at = at;
    let first = kind(text, at, big);
    if first == Class::Space {
        at = after(text, at);
    }
    while at < text.len() && first != Class::Space && kind(text, at, big) == first {
        at = after(text, at);
    }
    while at < text.len() && kind(text, at, big) == Class::Space && !is_empty_line(text, at) {
        at = after(text, at);
    }
    at
}

/// The last cluster of the word at or after the next one.
pub(super) fn word_last(text: &str, at: usize, big: bool) -> usize {
    let mut at = after(text, at);
    while at < text.len() && kind(text, at, big) == Class::Space {
        at = after(text, at);
    }
    if at == text.len() { before(text, at) } else { run_last(text, at, big) }
}

/// The last cluster of the word, or of the spaces, at a place.
pub(super) fn run_last(text: &str, at: usize, big: bool) -> usize {
    let (mut at, what) = (at, kind(text, at, big));
    loop {
        let next = after(text, at);
        if next == text.len() || kind(text, next, big) != what {
            return at;
        }
        at = next;
    }
}

/// The beginning of the word at or before the one before.
pub(super) fn previous_word(text: &str, at: usize, big: bool) -> usize {
    let mut at = before(text, at);
    while at > 0 && kind(text, at, big) == Class::Space && !is_empty_line(text, at) {
        at = before(text, at);
    }
    let first = kind(text, at, big);
    while at > 0 && first != Class::Space {
        let previous = before(text, at);
        if kind(text, previous, big) != first {
            break;
        }
        at = previous;
    }
    at
}

/// The first cluster of a line that is no space.
pub(super) fn first_of_line(text: &str, at: usize) -> usize {
    let (mut at, end) = (line_start(text, at), line_end(text, at));
    while at < end && class(text, at) == Class::Space {
        at = after(text, at);
    }
    at
}

/// The beginning of a line by its number from 1; of the last when there are fewer.
pub(super) fn line(text: &str, number: usize) -> usize {
    match number.checked_sub(2) {
        None => 0,
        Some(newline) => text
            .match_indices('\n')
            .nth(newline)
            .map_or_else(|| line_start(text, text.len()), |(at, _)| at + 1),
    }
}

/// The empty line before or behind a place, or the text's end.
pub(super) fn paragraph(text: &str, at: usize, back: bool) -> usize {
    let mut at = line_start(text, at);
    loop {
        let was_empty = line_end(text, at) == at;
        at = match back {
            true if at == 0 => return 0,
            true => line_start(text, at - 1),
            false if line_end(text, at) == text.len() => return text.len(),
            false => line_end(text, at) + 1,
        };
        if line_end(text, at) == at && !was_empty {
            return at;
        }
    }
}

const BRACKETS: [(u8, u8); 3] = [(b'(', b')'), (b'[', b']'), (b'{', b'}')];

/// The bracket that belongs to the first one at or behind a place in its line.
pub(super) fn other_bracket(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_bracket = |byte: &u8| BRACKETS.iter().any(|(open, close)| [*open, *close].contains(byte));
    let from = at + bytes[at..line_end(text, at)].iter().position(is_bracket)?;
    let (open, close) = *BRACKETS.iter().find(|(open, close)| [*open, *close].contains(&bytes[from]))?;
    let mut depth = 0_usize;
    let mut closes = |byte: u8, deeper: u8, higher: u8| {
        if byte == deeper {
            depth += 1;
        } else if byte == higher {
            depth -= 1;
        }
        depth == 0
    };
    if bytes[from] == open {
        (from..bytes.len()).find(|at| closes(bytes[*at], open, close))
    } else {
        (0..=from).rev().find(|at| closes(bytes[*at], close, open))
    }
}

/// What `i` or `a` and a character stand for.
pub(super) fn object(text: &str, at: usize, around: bool, which: char) -> Option<Range<usize>> {
    match which {
        'w' | 'W' => Some(word_object(text, at, around, which == 'W')),
        '"' | '\'' | '`' => quoted(text, at, around, which),
        '(' | ')' | 'b' => bracketed(text, at, around, 0),
        '[' | ']' => bracketed(text, at, around, 1),
        '{' | '}' | 'B' => bracketed(text, at, around, 2),
        _ => None,
    }
}

fn word_object(text: &str, at: usize, around: bool, big: bool) -> Range<usize> {
    let (first, last) = (line_start(text, at), line_end(text, at));
    let run = |from: usize| {
        let what = kind(text, from, big);
        let (mut start, mut end) = (from, from);
        while start > first && kind(text, before(text, start), big) == what {
            start = before(text, start);
        }
        while end < last && kind(text, end, big) == what {
            end = after(text, end);
        }
        start..end
    };
    if at >= last {
        return at..at;
    }
    let inner = run(at);
    if !around {
        return inner;
    }
    // The spaces behind it, or those before it where there are none.
    if inner.end < last && (kind(text, inner.end, big) == Class::Space || kind(text, at, big) == Class::Space)
    {
        return inner.start..run(inner.end).end;
    }
    if inner.start > first && kind(text, before(text, inner.start), big) == Class::Space {
        return run(before(text, inner.start)).start..inner.end;
    }
    inner
}

fn quoted(text: &str, at: usize, around: bool, quote: char) -> Option<Range<usize>> {
    let (first, last) = (line_start(text, at), line_end(text, at));
    let places: Vec<usize> = text[first..last].match_indices(quote).map(|(place, _)| first + place).collect();
    let pair = places.chunks_exact(2).find(|pair| at <= pair[1])?;
    Some(if around { pair[0]..pair[1] + 1 } else { pair[0] + 1..pair[1] })
}

fn bracketed(text: &str, at: usize, around: bool, which: usize) -> Option<Range<usize>> {
    let (open, close) = BRACKETS[which];
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let start = (0..=at.min(bytes.len().checked_sub(1)?)).rev().find(|place| {
        let byte = bytes[*place];
        if byte == close && *place != at {
            depth += 1;
        } else if byte == open {
            if depth == 0 {
                return true;
            }
            depth -= 1;
        }
        false
    })?;
    let end = other_bracket(text, start)?;
    Some(if around { start..end + 1 } else { start + 1..end })
}
