//! The lines of a text that match.

use regex::bytes::{Regex, RegexBuilder};

/// Bytes of an expression.
const LONGEST: usize = 16 << 10;

/// What lines are looked for.
#[derive(Debug)]
pub(super) enum Matcher {
    /// Bytes as they are, which is quicker.
    Text(Box<memchr::memmem::Finder<'static>>),
    Expression(Regex),
}

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("The pattern is empty, or longer than 16 KiB")]
    Length,
    #[error("The pattern is no regular expression: {0}. Set literal to look for it as it is")]
    Syntax(String),
}

/// How a pattern is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternFlags {
    pub(super) literal: bool,
    pub(super) ignore_case: bool,
}

impl Matcher {
    pub(super) fn new(pattern: &str, flags: PatternFlags) -> Result<Self, PatternError> {
        if pattern.is_empty() || pattern.len() > LONGEST {
            return Err(PatternError::Length);
        }
        let is_plain = flags.literal || regex::escape(pattern) == pattern;
        if is_plain && !flags.ignore_case && !pattern.contains('\n') {
            return Ok(Self::Text(Box::new(memchr::memmem::Finder::new(pattern.as_bytes()).into_owned())));
        }
        let source = if flags.literal { regex::escape(pattern) } else { pattern.to_owned() };
        let mut builder = RegexBuilder::new(&source);
        builder.case_insensitive(flags.ignore_case).multi_line(true).crlf(true).size_limit(8 << 20);
        builder.build().map(Self::Expression).map_err(|error| {
            let text = error.to_string();
            // The expression itself, which the model knows, comes first.
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            PatternError::Syntax(last.to_owned())
        })
    }

    fn find(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Text(finder) => finder.find(text),
            Self::Expression(regex) => regex.find(text).map(|found| found.start()),
        }
    }

    /// The next line at or after `from` that matches; `from` is where a line begins.
    fn next_line(&self, text: &[u8], mut from: usize) -> Option<(usize, usize)> {
        while from <= text.len() {
            let rest = text.get(from..)?;
            let at = from + self.find(rest)?;
            let start = memchr::memrchr(b'\n', text.get(..at)?).map_or(0, |before| before + 1);
            let end = memchr::memchr(b'\n', text.get(at..)?).map_or(text.len(), |after| at + after);
            // What spans lines, or is nothing behind the last one, is in none of them.
            let is_line = start < text.len() || text.is_empty();
            if is_line && text.get(start..end).is_some_and(|line| self.find(line).is_some()) {
                return Some((start, end));
            }
            from = end + 1;
        }
        None
    }
}

/// One that matches, or stands near one that does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownLine {
    /// From 1.
    pub(super) number: u64,
    /// Where it stands in the text.
    pub(super) span: (usize, usize),
    pub(super) is_match: bool,
}

/// The lines of a text that match, at most so many, each with so many lines around it.
pub(super) fn matching(
    matcher: &Matcher,
    text: &[u8],
    most: usize,
    context: usize,
) -> (Vec<ShownLine>, usize) {
    let (mut shown, mut found, mut from) = (Vec::new(), 0, 0);
    let (mut counted, mut number) = (0, 1_u64);
    while found < most
        && let Some((start, end)) = matcher.next_line(text, from)
    {
        number += memchr::memchr_iter(b'\n', text.get(counted..start).unwrap_or_default()).count() as u64;
        counted = start;
        found += 1;
        let mut before = Vec::new();
        let mut at = start;
        while before.len() < context && at > 0 {
            let line_end = at - 1;
            let line =
                memchr::memrchr(b'\n', text.get(..line_end).unwrap_or_default()).map_or(0, |found| found + 1);
            before.push((line, line_end));
            at = line;
        }
        let first = number - before.len() as u64;
        for (number, span) in (first..).zip(before.into_iter().rev()) {
            shown.push(ShownLine { number, span, is_match: false });
        }
        shown.push(ShownLine { number, span: (start, end), is_match: true });
        let mut at = end + 1;
        for after in 1..=context as u64 {
            if at >= text.len() {
                break;
            }
            let line_end = memchr::memchr(b'\n', text.get(at..).unwrap_or_default())
                .map_or(text.len(), |found| at + found);
            shown.push(ShownLine { number: number + after, span: (at, line_end), is_match: false });
            at = line_end + 1;
        }
        from = end + 1;
    }
    (shown, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pattern: &str, text: &str, context: usize) -> Vec<(u64, bool)> {
        let flags = PatternFlags { literal: false, ignore_case: false };
        let matcher = Matcher::new(pattern, flags).unwrap();
        let (shown, _) = matching(&matcher, text.as_bytes(), 100, context);
        shown.iter().map(|line| (line.number, line.is_match)).collect()
    }

    #[test]
    fn matches_stay_within_one_line() {
        assert_eq!(numbers("b", "a\nb\nc\nb", 0), [(2, true), (4, true)]);
        assert_eq!(numbers("^b$", "ab\nb\r\nb\n", 0), [(2, true), (3, true)]);
        assert_eq!(numbers("a\\s+b", "a\nb\na b\n", 0), [(3, true)]);
        assert_eq!(numbers("^$", "a\n\nb\n", 0), [(2, true)]);
        assert_eq!(numbers("x*", "a\nb\n", 0), [(1, true), (2, true)]);
        assert_eq!(numbers("b", "a\nb\nc\n", 1), [(1, false), (2, true), (3, false)]);
        assert_eq!(numbers("a", "", 0), []);
        assert!(Matcher::new("(", PatternFlags { literal: false, ignore_case: false }).is_err());
    }
}
