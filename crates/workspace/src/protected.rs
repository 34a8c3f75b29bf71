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
    // As a file it says where git's settings are.
    below == Path::new(".git") || names().any(|name| below.starts_with(name)) || of_repositories(below)
}

/// Whether a text names a place where well-known programs keep secrets.
pub fn names_secret(text: &str) -> bool {
    lines(include_str!("secrets.txt")).any(|name| {
        let ends = text
            .match_indices(name)
            .filter(|(at, _)| text.get(..*at).is_some_and(|before| before.ends_with('/')));
        let rest = ends.map(|(at, _)| text.get(at + name.len()..).unwrap_or_default());
        rest.into_iter()
            .any(|rest| !rest.starts_with(|char: char| char.is_alphanumeric() || "-_.".contains(char)))
    })
}

/// Settings and hooks of submodules and worktrees, at any depth, and what leads to settings elsewhere.
fn of_repositories(below: &Path) -> bool {
    let Ok(rest) = below.strip_prefix(".git") else { return false };
    let mut names = rest.components().map(std::path::Component::as_os_str);
    let first = names.next().and_then(|name| name.to_str());
    match first {
        Some("commondir") => true,
        Some("modules" | "worktrees") => names.skip(1).any(|name| {
            ["hooks", "config", "config.worktree", "commondir"].iter().any(|known| name == *known)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_secrets_are_known_in_a_text() {
        for text in
            ["cat: /home/a/.ssh/id_rsa: No such file", "~/.netrc", "open '/root/.config/gh/hosts.yml'"]
        {
            assert!(names_secret(text), "{text}");
        }
        for text in ["", "a.ssh", "x/.sshd", "/.config/ghost", "/.awsome/x"] {
            assert!(!names_secret(text), "{text}");
        }
    }

    #[test]
    fn configuration_files_are_recognized_by_path() {
        for path in
            [".git/hooks/pre-commit", ".git/config", "AGENTS.md", ".claude/settings.json", ".ssh/config"]
        {
            assert!(configures(Path::new(path)), "{path}");
        }
        for path in [
            ".git",
            ".git/commondir",
            ".git/worktrees/a/commondir",
            ".git/modules/a/commondir",
            ".git/modules/a/hooks/x",
            ".git/modules/a/modules/b/config",
            ".husky/pre-commit",
        ] {
            assert!(configures(Path::new(path)), "{path}");
        }
        for path in [
            "",
            ".git/index",
            ".git/worktrees/commondir/HEAD",
            ".git/configuration",
            "src/AGENTS.md",
            ".git/modules/config/HEAD",
            ".env",
        ] {
            assert!(!configures(Path::new(path)), "{path}");
        }
    }
}
