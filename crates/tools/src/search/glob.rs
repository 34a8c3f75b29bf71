//! Patterns of file names as regular expressions.

use regex::{Regex, RegexBuilder};

/// Bytes of a pattern.
const LONGEST: usize = 4 << 10;

/// A pattern of names or paths: `*`, `?`, `**`, `[…]` and `{a,b}`.
#[derive(Debug, Clone)]
pub struct Glob {
    regex: Regex,
    /// It is about paths, and not only about names.
    has_slash: bool,
}

impl Glob {
    /// Reads a pattern. One with `/` is about paths, at any depth unless it begins with `/`.
    ///
    /// # Errors
    /// Why it is none, for the model.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        let bad = |why: &'static str| GlobError { pattern: pattern.to_owned(), why };
        if pattern.is_empty() || pattern.len() > LONGEST {
            return Err(bad("it is empty, or longer than 4 KiB"));
        }
        let (start, rest) = match pattern.strip_prefix('/') {
            Some(rest) => ("^", rest),
            None if pattern.starts_with("**/") || !pattern.contains('/') => ("^", pattern),
            None => ("^(?:.*/)?", pattern),
        };
        let mut source = format!("(?s){start}");
        expression(rest, &mut source).map_err(bad)?;
        source.push('$');
        let built = RegexBuilder::new(&source).size_limit(4 << 20).build();
        let regex = built.map_err(|_| bad("it is too large, or a bracket in it is not right"))?;
        Ok(Self { regex, has_slash: pattern.contains('/') })
    }

    /// Whether it is about a relative path.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(if self.has_slash { path } else { name })
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        (self.regex.as_str(), self.has_slash) == (other.regex.as_str(), other.has_slash)
    }
}

impl Eq for Glob {}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The pattern {pattern:?} cannot be used: {why}")]
pub struct GlobError {
    pattern: String,
    why: &'static str,
}

fn expression(pattern: &str, out: &mut String) -> Result<(), &'static str> {
    let chars: Vec<char> = pattern.chars().collect();
    let (mut at, mut open) = (0, 0_u32);
    while let Some(&char) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match char {
            '*' if next == Some('*') => {
                let begins = at == 0 || chars.get(at - 1) == Some(&'/');
                if begins && chars.get(at + 2) == Some(&'/') {
                    out.push_str("(?:.*/)?");
                    at += 2;
                } else {
                    out.push_str(".*");
                    at += 1;
                }
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' => {
                let negated = matches!(next, Some('!' | '^'));
                let from = at + 1 + usize::from(negated);
                // A bracket that comes first is one of the characters.
                let end = (from + 1..chars.len()).find(|at| chars.get(*at) == Some(&']'));
                let Some(end) = end else { return Err("a `[` in it is not closed") };
                out.push_str(if negated { "[^/" } else { "[" });
                for char in chars.get(from..end).unwrap_or_default() {
                    if matches!(char, '[' | ']' | '\\' | '^' | '&' | '~') {
                        out.push('\\');
                    }
                    out.push(*char);
                }
                out.push(']');
                at = end;
            }
            '{' => {
                open += 1;
                out.push_str("(?:");
            }
            '}' if open > 0 => {
                open -= 1;
                out.push(')');
            }
            ',' if open > 0 => out.push('|'),
            '\\' if next.is_some() => {
                at += 1;
                out.push_str(&regex::escape(&next.map(String::from).unwrap_or_default()));
            }
            char => out.push_str(&regex::escape(&char.to_string())),
        }
        at += 1;
    }
    if open > 0 { Err("a `{` in it is not closed") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names_and_paths() {
        let check = |pattern: &str, path: &str, expect: bool| {
            assert_eq!(Glob::parse(pattern).unwrap().matches(path), expect, "{pattern} {path}");
        };
        check("*.rs", "a/b.rs", true);
        check("*.rs", "a/b.rsx", false);
        check("*.{ts,tsx}", "a/b.tsx", true);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "x/src/a.rs", true);
        check("/src/*.rs", "x/src/a.rs", false);
        check("src/*.rs", "src/a/b.rs", false);
        check("src/**/*.rs", "src/a/b.rs", true);
        check("src/**/*.rs", "src/b.rs", true);
        check("**/b.rs", "b.rs", true);
        check("[a-c]?.md", "bx.md", true);
        check("[!a-c]x", "bx", false);
        check("[!a-c]x", "dx", true);
        check("[]]", "]", true);
        check("a+b(1).txt", "a+b(1).txt", true);
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("é?", "éa", true);
        for bad in ["", "[a", "{a", "[z-a]"] {
            assert!(Glob::parse(bad).is_err(), "{bad}");
        }
    }
}
