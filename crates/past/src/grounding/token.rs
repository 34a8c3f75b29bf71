//! Words of a text with their places, without the marks around them.

use std::ops::Range;

/// A word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) start: usize,
    pub(super) text: &'a str,
    /// What stood between it and the word after it, without spaces.
    pub(super) after: &'a str,
    pub(super) begins_sentence: bool,
}

impl Token<'_> {
    pub(super) fn place(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }
}

/// Stands for each byte of what was taken out of a text.
pub(super) const TAKEN: char = '\u{1}';
/// Words whose full stop ends no sentence.
const SHORT: [&str; 13] =
    ["mr", "mrs", "ms", "dr", "prof", "st", "vs", "e.g", "i.e", "ca", "approx", "incl", "nr"];

pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut ends_sentence = true;
    let mut lines_from = 0;
    for (start, chunk) in chunks(text) {
        if text.get(lines_from..start).is_some_and(|between| between.contains('\n')) {
            ends_sentence = true;
        }
        lines_from = start;
        let Some((from, to)) = core(chunk) else {
            // A mark alone, or what was taken out.
            if chunk.contains(TAKEN) {
                ends_sentence = chunk.ends_with(['.', '!', '?', ':']);
            } else if let Some(last) = tokens.last_mut() {
                last.after = chunk;
            }
            continue;
        };
        let (word, after) = (&chunk[from..to], &chunk[to..]);
        tokens.push(Token { start: start + from, text: word, after, begins_sentence: ends_sentence });
        let is_short = SHORT.contains(&word.to_lowercase().as_str());
        ends_sentence = after.contains(['!', '?', ':']) || after.contains('.') && !is_short;
    }
    tokens
}

/// Runs without spaces, and apart at marks that stand between words without one.
fn chunks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut chunks = Vec::new();
    let mut start = None;
    let letters: Vec<(usize, char)> = text.char_indices().collect();
    for (n, (at, c)) in letters.iter().enumerate() {
        let next = letters.get(n + 1).map(|(_, next)| *next);
        let before = n.checked_sub(1).map(|before| letters[before].1);
        let is_apart = matches!(c, '\u{2014}' | '\u{2026}' | '\u{2192}' | '|')
            || *c == '\u{2013}'
                && !(before.is_some_and(char::is_numeric) && next.is_some_and(char::is_numeric))
            || *c == TAKEN && before != Some(TAKEN)
            || *c == '(' && next != Some(')') && start.is_some();
        if c.is_whitespace() || is_apart {
            if let Some(start) = start.take() {
                chunks.push((start, &text[start..*at]));
            }
            start = (is_apart && !matches!(c, '|' | '\u{2014}' | '\u{2026}' | '\u{2192}')).then_some(*at);
        } else if start.is_none() {
            start = Some(*at);
        }
    }
    if let Some(start) = start {
        chunks.push((start, &text[start..]));
    }
    chunks.into_iter()
}

/// Where the word is in a chunk.
fn core(chunk: &str) -> Option<(usize, usize)> {
    let opens =
        |c: char| "([{<\"'\u{201c}\u{201e}\u{2018}\u{ab},;:*!?=+>|\u{2013}`".contains(c) || c == TAKEN;
    let closes = |c: char| {
        ".,;:!?)]}>\"'\u{201c}\u{201d}\u{2019}\u{bb}*=-\u{2013}/|<`\u{2026}".contains(c) || c == TAKEN
    };
    let from = chunk.len() - chunk.trim_start_matches(opens).len();
    let mut to = chunk.trim_end_matches(closes).len();
    // A call keeps its parentheses, and C++ its signs.
    if chunk.get(to..).is_some_and(|rest| rest.starts_with("()")) {
        to += 2;
    }
    let word = chunk.get(from..to)?;
    word.chars().any(char::is_alphanumeric).then_some((from, to))
}

/// A range of the text that is in marks: where it is with them, what is between them, and whether the marks are those of code.
pub(super) struct MarkedText<'a> {
    pub(super) inner: Range<usize>,
    pub(super) text: &'a str,
    pub(super) is_code: bool,
}

/// What is in quotation marks or backticks, and the text with [`TAKEN`] in the place of it.
pub(super) fn marked(text: &str) -> (Vec<MarkedText<'_>>, String) {
    let mut found = Vec::new();
    let mut rest = text.as_bytes().to_vec();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let begin = at + c.len_utf8();
        let before = text[..at].chars().next_back();
        let close = match c {
            '`' => Some('`'),
            '"' => Some('"'),
            '\u{201c}' => Some('\u{201d}'),
            '\u{201e}' => Some('\u{201c}'),
            '\u{ab}' => Some('\u{bb}'),
            '\u{2018}' if !before.is_some_and(char::is_alphanumeric) => Some('\u{2019}'),
            _ => None,
        };
        // A quote ends in its paragraph.
        let end = close.and_then(|close| {
            let paragraph = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end);
            text[begin..paragraph].find(close).map(|end| (begin + end, close.len_utf8()))
        });
        match end {
            Some((end, width)) if !text[begin..end].trim().is_empty() => {
                found.push(MarkedText { inner: begin..end, text: &text[begin..end], is_code: c == '`' });
                rest[at..end + width].fill(TAKEN as u8);
                at = end + width;
            }
            _ => at = begin,
        }
    }
    // Whole characters were taken out.
    let rest = String::from_utf8(rest).unwrap_or_else(|_| text.to_owned());
    (found, rest)
}
