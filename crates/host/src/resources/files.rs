//! Reading what others wrote: files and directories, within limits and bounds.

use std::path::{Path, PathBuf};

use crate::bounded_file;

/// Bytes of a skill or template at most.
pub(super) const FILE_BYTES: u64 = 256 << 10;
/// Entries of all directories below one place that are looked at.
const MOST_ENTRIES: usize = 5_000;
/// Directories below each other.
const MOST_DEPTH: usize = 6;

/// The text of a file, unless it is too large, no text, or lies outside of `within`.
pub(super) fn text_of(path: &Path, within: Option<&Path>) -> Result<String, String> {
    bounded(path, within)?;
    let bytes = bounded_file::read(path, FILE_BYTES).map_err(|error| error.in_words("256 KiB"))?;
    String::from_utf8(bytes).map_err(|_| "it is not text (UTF-8)".to_owned())
}

/// Whether a path leads to something in `within`.
fn bounded(path: &Path, within: Option<&Path>) -> Result<(), String> {
    let Some(within) = within else { return Ok(()) };
    let real = |path: &Path| path.canonicalize().map_err(|error| error.to_string());
    let (target, root) = (real(path)?, real(within)?);
    if target.starts_with(&root) {
        return Ok(());
    }
    Err(format!("it links to {}, which is outside {}", target.display(), root.display()))
}

/// What a walk through directories does with an entry.
pub(super) enum Step {
    /// It looks into the directory.
    Enter,
    /// It does not.
    Skip,
}

/// Goes through a directory and those below it, in the order of names; hidden ones and `node_modules` are passed over. `false` when there
/// is more than is looked at.
pub(super) fn walk(
    top: &Path,
    within: Option<&Path>,
    visit: &mut dyn FnMut(&Path, bool, usize) -> Step,
) -> bool {
    let mut left = MOST_ENTRIES;
    let mut seen = Vec::new();
    enter(top, within, 0, &mut left, &mut seen, visit)
}

fn enter(
    directory: &Path,
    within: Option<&Path>,
    depth: usize,
    left: &mut usize,
    seen: &mut Vec<PathBuf>,
    visit: &mut dyn FnMut(&Path, bool, usize) -> Step,
) -> bool {
    let Ok(real) = directory.canonicalize() else { return true };
    // A link back to where the walk has been.
    if seen.contains(&real) || bounded(directory, within).is_err() {
        return true;
    }
    seen.push(real);
    let Ok(entries) = std::fs::read_dir(directory) else { return true };
    let mut names: Vec<_> =
        entries.take(*left + 1).filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort_unstable();
    let mut is_whole = true;
    for name in names {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if name.as_encoded_bytes().starts_with(b".") || name == "node_modules" {
            continue;
        }
        let path = directory.join(name);
        let is_directory = path.is_dir();
        if let (Step::Enter, true) = (visit(&path, is_directory, depth), is_directory) {
            is_whole &= depth < MOST_DEPTH && enter(&path, within, depth + 1, left, seen, visit);
        }
    }
    is_whole
}

/// A name as a command may have it: lower case, what is no letter or digit as a hyphen.
pub(super) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.trim().chars().flat_map(char::to_lowercase) {
        match letter {
            'a'..='z' | '0'..='9' | '_' => slug.push(letter),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_end_matches('-').chars().take(60).collect()
}

/// A text in one line of at most so many characters, without those that a person does not see.
pub(super) fn in_one_line(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_seen = |letter: &char| !quipu_mcp::is_invisible(*letter);
    let line: String = words.join(" ").chars().filter(is_seen).collect();
    match line.char_indices().nth(most) {
        Some(_) => line.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_what_can_be_typed() {
        for (name, expect) in
            [("PDF Tools", "pdf-tools"), ("a--b_", "a-b_"), ("é!x", "x"), ("--", ""), ("a/b", "a-b")]
        {
            assert_eq!(slug(name), expect, "{name}");
        }
        assert_eq!(in_one_line("a\n  b\u{1b}[2J c", 5), "a b[…");
        assert_eq!(in_one_line("a\u{e0041}\u{200b}b\u{202e}", 5), "ab");
    }

    #[test]
    fn walk_ends_in_cycles_and_at_its_limits() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&top, top.join("a/b/back")).unwrap();
        std::os::unix::fs::symlink("/", top.join("out")).unwrap();
        let mut seen = Vec::new();
        let mut visit = |path: &Path, _, _| {
            seen.push(path.to_owned());
            Step::Enter
        };
        assert!(walk(&top, Some(&top), &mut visit));
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert!(text_of(&top.join("out"), Some(&top)).unwrap_err().contains("outside"));
    }
}
