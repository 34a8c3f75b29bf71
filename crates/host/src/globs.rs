//! Patterns of paths as packages and files of rules write them: `*`, `?`, `**`, `{a,b}`.

/// Bytes of a pattern that are read; a longer one fits nothing.
const MOST_BYTES: usize = 512;
/// What the braces of a pattern become at most.
const MOST_ALTERNATIVES: usize = 64;

/// A pattern of paths below a directory, with `/` between names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathGlob {
    alternatives: Vec<Vec<String>>,
}

impl PathGlob {
    /// Reads a pattern. One that ends in `/` means all below that directory.
    pub(crate) fn new(text: &str) -> Self {
        let text = text.trim();
        let text = text.strip_prefix("./").unwrap_or(text).trim_start_matches('/');
        if text.is_empty() || text.len() > MOST_BYTES {
            return Self { alternatives: Vec::new() };
        }
        let whole = if text.ends_with('/') { format!("{text}**") } else { text.to_owned() };
        let names = |text: String| {
            let mut names: Vec<String> =
                text.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect();
            names.dedup_by(|one, other| one == "**" && other == "**");
            names
        };
        let mut alternatives = Vec::new();
        alternatives_of(&whole, &mut alternatives);
        Self { alternatives: alternatives.into_iter().map(names).filter(|names| !names.is_empty()).collect() }
    }

    /// Whether a relative path fits as a whole.
    pub(crate) fn fits(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let is_any = |want: &String| want == "**";
        self.alternatives.iter().any(|wants| fits(wants, &names, |want, name| fits_name(want, name), is_any))
    }
}

/// What a pattern with braces stands for, one after the other.
fn alternatives_of(text: &str, found: &mut Vec<String>) {
    if found.len() >= MOST_ALTERNATIVES {
        return;
    }
    let Some((open, close)) = braces(text) else {
        found.push(text.to_owned());
        return;
    };
    let (before, inner, after) = (&text[..open], &text[open + 1..close], &text[close + 1..]);
    for part in split_at_commas(inner) {
        alternatives_of(&format!("{before}{part}{after}"), found);
    }
}

/// Where the first pair of braces opens and closes.
fn braces(text: &str) -> Option<(usize, usize)> {
    let open = text.find('{')?;
    let mut depth = 0_usize;
    for (at, letter) in text[open..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return Some((open, open + at)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
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

fn fits_name(want: &str, name: &str) -> bool {
    let (want, name): (Vec<char>, Vec<char>) = (want.chars().collect(), name.chars().collect());
    fits(&want, &name, |want, letter| want == letter || *want == '?', |want| *want == '*')
}

/// Whether wants fit a text as a whole, in a time of their lengths multiplied.
fn fits<W, T>(wants: &[W], text: &[T], is: impl Fn(&W, &T) -> bool, any: impl Fn(&W) -> bool) -> bool {
    let (mut want, mut at) = (0, 0);
    // Where the last wildcard stood, and how much of the text it took.
    let mut last: Option<(usize, usize)> = None;
    while let Some(one) = text.get(at) {
        match wants.get(want) {
            Some(star) if any(star) => {
                last = Some((want, at));
                want += 1;
            }
            Some(wanted) if is(wanted, one) => {
                want += 1;
                at += 1;
            }
            _ => {
                let Some((star, taken)) = last else { return false };
                last = Some((star, taken + 1));
                want = star + 1;
                at = taken + 1;
            }
        }
    }
    wants.get(want..).unwrap_or_default().iter().all(any)
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
            ("{a", "{a", true),
        ] {
            assert_eq!(PathGlob::new(pattern).fits(path), expect, "{pattern} on {path}");
        }
        // What would become endless ends: braces that multiply, and wildcards in a row.
        let bomb = PathGlob::new(&"{a,b}".repeat(60));
        assert!(bomb.alternatives.len() <= MOST_ALTERNATIVES);
        assert!(!PathGlob::new(&"*a".repeat(200)).fits(&("a".repeat(4_000) + "b")));
        assert!(!PathGlob::new(&"a".repeat(600)).fits("a"));
        assert_eq!(split_at_commas("a,{b,c},d"), ["a", "{b,c}", "d"]);
    }
}
