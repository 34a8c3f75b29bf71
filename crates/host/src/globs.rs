//! Patterns of paths as packages and files of rules write them: `*`, `?`, `**`, `{a,b}`.

use quipu_tools::Glob;

/// Bytes of a pattern that are read; a longer one fits nothing.
const MOST_BYTES: usize = 512;

/// A pattern of paths below a directory, with `/` between names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathGlob {
    /// `None` where the text is no pattern: it fits nothing.
    glob: Option<Glob>,
}

impl PathGlob {
    /// Reads a pattern. One that ends in `/` means all below that directory; brackets stand for themselves.
    pub(crate) fn new(text: &str) -> Self {
        let text = text.trim();
        let text = text.strip_prefix("./").unwrap_or(text).trim_start_matches('/');
        if text.is_empty() || text.len() > MOST_BYTES {
            return Self { glob: None };
        }
        let mut whole = format!("/{}", text.replace('\\', r"\\").replace('[', r"\["));
        if whole.ends_with('/') {
            whole.push_str("**");
        }
        Self { glob: Glob::parse(&whole).ok() }
    }

    /// Whether a relative path fits as a whole.
    pub(crate) fn fits(&self, path: &str) -> bool {
        self.glob.as_ref().is_some_and(|glob| glob.matches(path))
    }
}

/// The parts of a text between commas that are not in braces.
pub(crate) fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_the_paths_that_they_mean() {
        for (pattern, path, expect) in [
            ("src/**/*.ts", "src/a/b/c.ts", true),
            ("src/**/*.ts", "src/c.ts", true),
            ("src/**/*.ts", "lib/c.ts", false),
            ("*.md", "README.md", true),
            ("*.md", "docs/README.md", false),
            ("**/*.md", "README.md", true),
            ("docs/", "docs/a/b", true),
            ("docs", "docs/a", false),
            ("./src/*.{ts,tsx}", "src/a.tsx", true),
            ("src/*.{ts,tsx}", "src/a.js", false),
            ("{a,b/{c,d}}/x", "b/d/x", true),
            ("a?c", "abc", true),
            ("**", "x/y", true),
            ("", "x", false),
            ("{a", "a", false),
            ("app/[id]/*.tsx", "app/[id]/page.tsx", true),
            ("app/[id]/*.tsx", "app/i/page.tsx", false),
        ] {
            assert_eq!(PathGlob::new(pattern).fits(path), expect, "{pattern} on {path}");
        }
        // What would become endless ends: braces that multiply, and wildcards in a row.
        assert!(PathGlob::new(&"{a,b}".repeat(60)).fits(&"ab".repeat(30)));
        assert!(!PathGlob::new(&"*a".repeat(200)).fits(&("a".repeat(4_000) + "b")));
        assert!(!PathGlob::new(&"a".repeat(600)).fits(&"a".repeat(600)));
        assert_eq!(split_at_commas("a,{b,c},d"), ["a", "{b,c}", "d"]);
    }
}
