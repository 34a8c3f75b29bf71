//! Paths that begin with what was typed.

use std::path::Path;

use crate::editor::Candidate;

/// Entries of a directory that are looked at for [`complete_path`].
const ENTRIES: usize = 10_000;

/// Paths that begin with what was typed, in order; those of directories end with a slash. A path is looked for below
/// `base`, and `~/` is the home directory. Hidden files only where a dot was typed. Reads one directory.
#[must_use]
pub fn complete_path(base: &Path, home: Option<&Path>, typed: &str) -> Vec<Candidate> {
    let (above, begun) = typed.rfind('/').map_or(("", typed), |slash| typed.split_at(slash + 1));
    let directory = match (above.strip_prefix("~/"), home) {
        (Some(below), Some(home)) => home.join(below),
        _ => base.join(above),
    };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let fits = |name: &str, any_case: bool| {
        (begun.starts_with('.') || !name.starts_with('.'))
            && if any_case {
                name.to_lowercase().starts_with(&begun.to_lowercase())
            } else {
                name.starts_with(begun)
            }
    };
    let mut names: Vec<String> = entries
        .flatten()
        .take(ENTRIES)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| fits(name, true))?;
            // A link to a directory is gone into as well.
            let slash = if entry.path().is_dir() { "/" } else { "" };
            Some(name + slash)
        })
        .collect();
    if names.iter().any(|name| fits(name, false)) {
        names.retain(|name| fits(name, false));
    }
    names.sort();
    names
        .into_iter()
        .map(|name| Candidate { text: format!("{above}{name}"), ..Candidate::default() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_with_what_was_typed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["src/main.rs", "src/editor/mod.rs", "README.md", ".github/ci.yml", ".git/config"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let paths = |typed: &str| -> Vec<String> {
            complete_path(dir.path(), Some(dir.path()), typed).into_iter().map(|found| found.text).collect()
        };
        assert_eq!(paths(""), ["README.md", "src/"]);
        assert_eq!(paths(".g"), [".git/", ".github/"]);
        assert_eq!(paths("~/src/M"), ["~/src/main.rs"]);
        assert_eq!(paths("src/e"), ["src/editor/"]);
        assert_eq!(paths("none/"), Vec::<String>::new());
    }
}
