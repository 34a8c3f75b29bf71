//! What `.gitignore` files leave out.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::FileStamp;

/// Bytes of such a file that are read.
const LIMIT: u64 = 1 << 20;
/// What such a file is called.
pub(super) const NAME: &CStr = c".gitignore";
/// Steps that matching one pattern may take.
const STEPS: usize = 20_000;

/// The patterns that hold for a directory: its own, and those of the directories above it.
#[derive(Debug, Clone, Default)]
pub(super) struct IgnoreRules(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    /// Bytes of a path that lead to the directory of these patterns, with the slash.
    prefix: usize,
    rules: Vec<Rule>,
    above: IgnoreRules,
}

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    pattern: Vec<u8>,
    /// It takes back what one before it leaves out.
    negated: bool,
    only_directories: bool,
    /// It is held against the whole path, and not only the name.
    anchored: bool,
}

/// A file with patterns for a whole repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    path: PathBuf,
    /// As it is, if it is there.
    stamp: Option<FileStamp>,
}

/// What holds for everything in a repository and for everybody: `info/exclude`, and the user's own file.
pub(super) fn sources(root: &Path) -> Vec<Source> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let files = [user.map(|config| config.join("git/ignore")), Some(root.join(".git/info/exclude"))];
    let source = |path: PathBuf| {
        let stamp = path.symlink_metadata().ok().map(|found| FileStamp::from(&found));
        Source { path, stamp }
    };
    files.into_iter().flatten().map(source).collect()
}

impl IgnoreRules {
    /// What these say.
    pub(super) fn above(sources: &[Source]) -> Self {
        sources.iter().fold(Self::default(), |above, source| above.with(&source.path, 0))
    }

    /// The same with the patterns of a directory; `path` is its own, relative to the root.
    pub(super) fn below(self, directory: &Path, path: &Path) -> Self {
        let prefix = path.as_os_str().len();
        self.with(&directory.join(".gitignore"), if prefix == 0 { 0 } else { prefix + 1 })
    }

    fn with(self, file: &Path, prefix: usize) -> Self {
        // Most directories have none; looking for it is quicker than opening it.
        if !file.symlink_metadata().is_ok_and(|found| found.is_file()) {
            return self;
        }
        let Some(text) = crate::open::read_small(file, LIMIT) else { return self };
        let rules: Vec<Rule> = text.lines().filter_map(Rule::of).collect();
        if rules.is_empty() { self } else { Self(Some(Arc::new(Level { prefix, rules, above: self }))) }
    }

    /// Whether a path relative to the root is left out. Those above it are not.
    pub(super) fn has(&self, path: &[u8], is_directory: bool) -> bool {
        let mut at = self;
        while let Some(level) = &at.0 {
            let path = path.get(level.prefix..).unwrap_or_default();
            if let Some(rule) = level.rules.iter().rev().find(|rule| rule.is_for(path, is_directory)) {
                return !rule.negated;
            }
            at = &level.above;
        }
        false
    }
}

impl Rule {
    fn of(line: &str) -> Option<Self> {
        let mut text = line.trim_end_matches('\r');
        while text.ends_with(' ') && !text.ends_with("\\ ") {
            text = &text[..text.len() - 1];
        }
        if text.starts_with('#') {
            return None;
        }
        let negated = text.starts_with('!');
        let text = text.strip_prefix('!').unwrap_or(text);
        let only_directories = text.ends_with('/');
        let text = text.strip_suffix('/').unwrap_or(text);
        let anchored = text.contains('/');
        let pattern = text.strip_prefix('/').unwrap_or(text).as_bytes().to_vec();
        (!pattern.is_empty()).then_some(Self { pattern, negated, only_directories, anchored })
    }

    fn is_for(&self, path: &[u8], is_directory: bool) -> bool {
        if self.only_directories && !is_directory {
            return false;
        }
        let name = match memchr::memrchr(b'/', path) {
            Some(at) if !self.anchored => &path[at + 1..],
            _ => path,
        };
        matches(&self.pattern, name, &mut STEPS.clone())
    }
}

/// Whether a pattern is for a text: `*` and `?` for anything but `/`, `**/` for any directories, `[...]`.
fn matches(pattern: &[u8], text: &[u8], steps: &mut usize) -> bool {
    let Some(left) = steps.checked_sub(1) else { return false };
    *steps = left;
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', b'/', rest @ ..] => {
            matches(rest, text, steps)
                || memchr::memchr_iter(b'/', text).any(|at| matches(rest, &text[at + 1..], steps))
        }
        [b'*', b'*'] => true,
        [b'*', rest @ ..] => {
            let end = memchr::memchr(b'/', text).unwrap_or(text.len());
            (0..=end).any(|at| matches(rest, &text[at..], steps))
        }
        [b'?', rest @ ..] => {
            text.first().is_some_and(|byte| *byte != b'/') && matches(rest, &text[1..], steps)
        }
        [b'[', rest @ ..] => match (class(rest), text) {
            (Some((is_in, rest)), [byte, after @ ..]) => {
                *byte != b'/' && is_in(*byte) && matches(rest, after, steps)
            }
            (Some(_), []) => false,
            (None, _) => text.first() == Some(&b'[') && matches(rest, &text[1..], steps),
        },
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
            text.first() == Some(byte) && matches(rest, &text[1..], steps)
        }
    }
}

/// The bytes that a class stands for, and the pattern behind it; `None` when it does not end.
fn class(pattern: &[u8]) -> Option<(impl Fn(u8) -> bool + '_, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let pattern = &pattern[usize::from(negated)..];
    // A bracket that comes first is one of the bytes.
    let end = 1 + memchr::memchr(b']', pattern.get(1..)?)?;
    let (inside, rest) = (&pattern[..end], &pattern[end + 1..]);
    let is_in = move |byte: u8| {
        let (mut at, mut found) = (0, false);
        while at < inside.len() {
            match inside[at..] {
                [from, b'-', to, ..] => {
                    found |= (from..=to).contains(&byte);
                    at += 3;
                }
                [one, ..] => {
                    found |= one == byte;
                    at += 1;
                }
                [] => break,
            }
        }
        found != negated
    };
    Some((is_in, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |line: &str, path: &str, is_directory: bool, expect: bool| {
            let found = Rule::of(line).is_some_and(|rule| rule.is_for(path.as_bytes(), is_directory));
            assert_eq!(found, expect, "{line} {path}");
        };
        check("*.o", "a/b.o", false, true);
        check("/*.o", "a/b.o", false, false);
        check("a/*.o", "a/b.o", false, true);
        check("a/*", "a/b/c", false, false);
        check("a/**", "a/b/c", false, true);
        check("**/c", "a/b/c", false, true);
        check("a/**/c", "a/c", false, true);
        check("build/", "x/build", true, true);
        check("build/", "x/build", false, false);
        check("[a-c]?", "bx", false, true);
        check("[!a-c]?", "bx", false, false);
        check("[]x]", "]", false, true);
        check("[", "[", false, true);
        check("\\#a", "#a", false, true);
        check("#a", "#a", false, false);
        check("a ", "a", false, true);
        check("", "a", false, false);
        check(&"*a".repeat(40), &"a".repeat(200), false, true);
        check(&format!("{}b", "*a".repeat(40)), &"a".repeat(200), false, false);
    }
}
