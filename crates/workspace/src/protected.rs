//! Which files configure programs that act outside of a sandbox.

use std::path::Path;

/// The lines of a table, without its remarks.
pub(crate) fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The names, below a directory where commands may write.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    lines(include_str!("protected.txt"))
}

/// Whether a path below a directory where commands may write configures programs that act outside the sandbox: git, agents,
/// editors, shells.
pub fn configures(below: &Path) -> bool {
    names().any(|name| below.starts_with(name)) || of_modules(below)
}

/// `.git/modules/NAME/hooks` and `config`, at any depth.
fn of_modules(below: &Path) -> bool {
    below.strip_prefix(".git/modules").is_ok_and(|rest| {
        rest.components().skip(1).any(|part| ["hooks", "config"].iter().any(|name| part.as_os_str() == *name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_configures_programs_is_known_by_its_path() {
        for path in
            [".git/hooks/pre-commit", ".git/config", "AGENTS.md", ".claude/settings.json", ".ssh/config"]
        {
            assert!(configures(Path::new(path)), "{path}");
        }
        for path in [".git/modules/a/hooks/x", ".git/modules/a/modules/b/config"] {
            assert!(configures(Path::new(path)), "{path}");
        }
        for path in [
            "",
            ".git",
            ".git/index",
            ".git/configuration",
            "src/AGENTS.md",
            ".git/modules/config/HEAD",
            ".env",
        ] {
            assert!(!configures(Path::new(path)), "{path}");
        }
    }
}
