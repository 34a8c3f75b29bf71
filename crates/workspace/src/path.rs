//! Paths as models write them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use unicode_normalization::UnicodeNormalization;

/// Symbolic links that are followed one after the other, as systems do.
pub(crate) const LINKS: usize = 40;

/// The absolute path that `raw` means for someone who stands in `cwd` (absolute).
///
/// Unicode spaces become plain ones, one leading `@` (a mention) goes unless something of that very name exists,
/// `~` and `~/` are the home directory, a `file:` URL is decoded, anything else relative starts at `cwd`. `..`
/// and symbolic links are left to the system.
pub fn resolve(cwd: &Path, raw: &str) -> PathBuf {
    let spaced: String = raw.chars().map(|c| if is_unicode_space(c) { ' ' } else { c }).collect();
    let plain = match spaced.strip_prefix('@') {
        Some(stripped) => {
            let first = Path::new(&spaced).components().next().map(|part| cwd.join(part));
            match first {
                Some(first) if first.symlink_metadata().is_ok() => spaced.as_str(),
                _ => stripped,
            }
        }
        None => spaced.as_str(),
    };
    absolute(cwd, plain)
}

fn absolute(cwd: &Path, plain: &str) -> PathBuf {
    if let Some(path) = from_file_url(plain) {
        return path;
    }
    if let Some(below) = plain.strip_prefix('~')
        && (below.is_empty() || below.starts_with('/'))
        && let Some(home) = std::env::home_dir()
    {
        return home.join(below.trim_start_matches('/'));
    }
    cwd.join(plain)
}

/// [`resolve`], and when nothing is there, the spellings under which macOS keeps such names: a narrow space
/// before AM and PM, decomposed accents, a typographic apostrophe; last, the text exactly as given. The first
/// that exists, else the plain one.
pub fn resolve_existing(cwd: &Path, raw: &str) -> PathBuf {
    let path = resolve(cwd, raw);
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    if exists(&path) {
        return path;
    }
    let mut tries = Vec::new();
    if let Some(text) = path.to_str() {
        let narrow = ["AM.", "PM.", "am.", "pm."].iter().fold(text.to_owned(), |text, half| {
            text.replace(&format!(" {half}"), &format!("\u{202f}{half}"))
        });
        let decomposed: String = text.nfd().collect();
        let curly = |text: &str| text.replace('\'', "\u{2019}");
        tries.extend([narrow, curly(text), curly(&decomposed), decomposed].map(PathBuf::from));
    }
    tries.push(absolute(cwd, raw));
    tries.into_iter().find(|tried| exists(tried)).unwrap_or(path)
}

/// What orders calls that touch files: two paths have one key exactly when they lead to one file. Symbolic links
/// are followed; for a file that does not exist yet, its nearest existing directory's true path and the rest.
/// (Hard links to one file have different keys.)
pub fn file_key(path: &Path) -> PathBuf {
    let path = follow_links(path);
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut at = path.as_path();
    while let (Some(parent), Some(name)) = (at.parent(), at.file_name()) {
        missing.push(name);
        at = parent;
        if let Ok(real) = at.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
    }
    path
}

/// Where a chain of symbolic links ends, whether or not anything is there.
pub(crate) fn follow_links(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let Ok(target) = path.read_link() else { break };
        path = match path.parent() {
            Some(parent) => parent.join(target),
            None => target,
        };
    }
    path
}

/// [`file_key`] and [`leads_through`](crate::leads_through) of many paths that mostly begin alike: each name of them is
/// looked up once.
#[derive(Debug, Default)]
pub struct FileKeys {
    /// Where symbolic links lead; nowhere for all else.
    links: HashMap<PathBuf, Option<PathBuf>>,
    /// Keys of directories.
    directories: HashMap<PathBuf, PathBuf>,
}

impl FileKeys {
    /// What [`file_key`] says.
    pub fn key(&mut self, path: &Path) -> PathBuf {
        // Elsewhere the spelling has a say.
        let plain = |path: &Path| {
            let names: PathBuf = path.components().filter(|part| *part != Component::ParentDir).collect();
            path.is_absolute() && names.as_os_str() == path.as_os_str()
        };
        let mut end = path.to_path_buf();
        for _ in 0..LINKS {
            if !plain(&end) {
                return file_key(path);
            }
            let Some(target) = self.link(&end) else { break };
            end = end.parent().map_or(target.clone(), |parent| parent.join(target));
        }
        match (end.parent(), end.file_name()) {
            (Some(parent), Some(name)) => self.directory(parent).join(name),
            _ => end,
        }
    }

    /// Of one that is no link itself, or is followed.
    fn directory(&mut self, path: &Path) -> PathBuf {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return path.to_path_buf() };
        if let Some(known) = self.directories.get(path) {
            return known.clone();
        }
        let below = self.directory(parent).join(name);
        let key = match self.link(path) {
            Some(_) => path.canonicalize().unwrap_or(below),
            None => below,
        };
        self.directories.insert(path.to_path_buf(), key.clone());
        key
    }

    /// Where a symbolic link leads.
    pub(crate) fn link(&mut self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.links.get(path) {
            return known.clone();
        }
        let target = path.read_link().ok();
        self.links.insert(path.to_path_buf(), target.clone());
        target
    }
}

fn is_unicode_space(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// The path of a `file:` URL with an empty or local host.
fn from_file_url(text: &str) -> Option<PathBuf> {
    let rest = text.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return None;
    }
    let rest = rest.split(['?', '#']).next().unwrap_or(rest).as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    let mut at = 0;
    while at < rest.len() {
        let hex = rest.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (rest[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                at += 3;
            }
            (byte, _) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// Whether the path asks for a directory by its spelling.
pub(crate) fn names_a_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.is_empty() || bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_as_models_write_them() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        std::fs::create_dir(cwd.join("@types")).unwrap();
        let home = std::env::home_dir().unwrap();
        let check = |raw: &str, expect: PathBuf| assert_eq!(resolve(cwd, raw), expect, "{raw}");
        check("a/b", cwd.join("a/b"));
        check("/a", "/a".into());
        check("@a.txt", cwd.join("a.txt"));
        check("@types/x.ts", cwd.join("@types/x.ts"));
        check("@@a", cwd.join("@a"));
        check("~", home.clone());
        check("~/x", home.join("x"));
        check("~x", cwd.join("~x"));
        check("a\u{a0}b\u{3000}c\u{202f}d", cwd.join("a b c d"));
        check("file:///tmp/a%20b%zz", "/tmp/a b%zz".into());
        check("file://localhost/x", "/x".into());
        check("file://elsewhere/x", cwd.join("file://elsewhere/x"));
        check("", cwd.join(""));
    }

    /// Elsewhere the file system itself takes these spellings as one.
    #[cfg(target_os = "linux")]
    #[test]
    fn names_that_macos_makes_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        let check = |raw: &str, name: &str| {
            std::fs::write(cwd.join(name), "").unwrap();
            assert_eq!(resolve_existing(cwd, raw), cwd.join(name), "{raw}");
            std::fs::remove_file(cwd.join(name)).unwrap();
            assert_eq!(resolve_existing(cwd, raw), resolve(cwd, raw));
        };
        check("shot 9.41 AM.png", "shot 9.41\u{202f}AM.png");
        check("café", "cafe\u{301}");
        check("it's", "it\u{2019}s");
        check("l'été", "l\u{2019}e\u{301}te\u{301}");
        check("nbsp\u{a0}kept", "nbsp\u{a0}kept");
        check("@mention", "mention");
    }

    #[test]
    fn one_key_for_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        std::fs::create_dir(cwd.join("real")).unwrap();
        std::fs::write(cwd.join("real/f"), "").unwrap();
        std::os::unix::fs::symlink("real", cwd.join("dir")).unwrap();
        std::os::unix::fs::symlink("real/f", cwd.join("link")).unwrap();
        std::os::unix::fs::symlink("real/new", cwd.join("dangling")).unwrap();
        std::os::unix::fs::symlink("../real/down", cwd.join("real/down")).unwrap();
        std::os::unix::fs::symlink("nowhere", cwd.join("lost")).unwrap();
        let mut keys = FileKeys::default();
        let mut check = |path: &str, key: &str| {
            assert_eq!(file_key(&cwd.join(path)), cwd.join(key), "{path}");
            for _ in 0..2 {
                assert_eq!(keys.key(&cwd.join(path)), cwd.join(key), "{path}");
            }
        };
        check("real/f", "real/f");
        check("dir/f", "real/f");
        check("dir/../real/./f", "real/f");
        check("link", "real/f");
        check("dangling", "real/new");
        check("dir/new", "real/new");
        check("dir/a/b/new", "real/a/b/new");
        check("dir", "real");
        check("dir/", "real");
        check("dir/f/", "real/f");
        check("dir/../dir/a/../b", "dir/../dir/a/../b");
        check("real/down/x", "real/down/x");
        check("lost/x", "lost/x");
        check("lost", "nowhere");
        for path in ["/", "/..", "", "a", "dir/../real"] {
            assert_eq!(keys.key(Path::new(path)), file_key(Path::new(path)), "{path}");
        }
    }
}
