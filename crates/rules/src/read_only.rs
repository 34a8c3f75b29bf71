//! Which command lines only read: judged by a fixed set of rules, part by part, as the user's own are.

use std::sync::LazyLock;

use crate::judge::{Place, RuleSet, Verdict};
use crate::{Effect, Rule};

/// Patterns of commands that only read, and of options with which they write.
const PATTERNS: &str = include_str!("read_only.txt");

/// The effect and the pattern of each line.
fn patterns() -> impl Iterator<Item = (Effect, &'static str)> {
    let lines = PATTERNS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| match line.split_once(' ')? {
        ("allow", pattern) => Some((Effect::Allow, pattern)),
        ("deny", pattern) => Some((Effect::Deny, pattern)),
        _ => None,
    })
}

/// What does not read only, of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` {why}")]
pub struct WritingPart {
    /// The part as it was written.
    pub part: String,
    /// What is known of it.
    pub why: &'static str,
}

static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    // A test parses each of them.
    let rule = |(effect, pattern)| Rule::parse(&format!("bash({pattern})")).ok().map(|rule| (effect, rule));
    RuleSet::new(patterns().filter_map(rule).collect())
});

/// Whether a command line of `bash` only reads. What is not known to read only does not.
///
/// # Errors
/// The first part that is not known to read only.
pub fn read_only(command: &str, place: &Place<'_>) -> Result<(), WritingPart> {
    let judged = RULES.command(command, place);
    let Some(part) = judged.decisive().filter(|_| judged.verdict != Verdict::Allow) else { return Ok(()) };
    let why = match judged.verdict {
        Verdict::Unclear => part.why.unwrap_or("cannot be judged from its text"),
        _ => "is not known to read only",
    };
    Err(WritingPart { part: part.part.clone(), why })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{RULES, read_only};
    use crate::judge::Place;

    fn reads(command: &str) -> bool {
        let true_path = |path: &Path| -> PathBuf { path.to_path_buf() };
        let place =
            Place { cwd: Path::new("/work"), home: Some(Path::new("/home/me")), true_path: &true_path };
        read_only(command, &place).is_ok()
    }

    #[test]
    fn each_pattern_is_a_rule() {
        let count = super::PATTERNS.lines().filter(|line| !line.starts_with('#')).count();
        assert!(RULES.get(count - 1).is_some() && RULES.get(count).is_none());
    }

    #[test]
    fn commands_that_read_are_read_only() {
        for command in [
            "ls -la src && cat Cargo.toml",
            "rg -n 'fn main' crates | head -20",
            "git status --short; git log --oneline -5",
            "git diff HEAD~1 -- src/lib.rs",
            "find . -name '*.rs' | xargs wc -l | sort -n | tail",
            "sed -n '10,20p' src/lib.rs",
            "cd src && grep -rn TODO . 2>/dev/null",
            "timeout 5 git blame src/lib.rs",
            "bash -c 'ls | wc -l'",
            "for f in a b; do cat \"$f\"; done",
            "test -f Cargo.toml && echo yes",
        ] {
            assert!(reads(command), "{command}");
        }
    }

    #[test]
    fn commands_that_may_write_are_not_read_only() {
        for command in [
            "touch a",
            "echo x > a",
            "ls >> list.txt",
            "cat a | tee b",
            "ls; rm -rf target",
            "ls $(touch a)",
            "cat <(touch a)",
            "find . -delete",
            "find . -exec rm {} +",
            "find . | xargs rm",
            "sort -o a a",
            "sort --outp=a a",
            "sed -i s/a/b/ a",
            "sed -n -i 1p a",
            "sed -n 'w out' a",
            "awk 'BEGIN { system(\"touch a\") }'",
            "git diff --output=a",
            "git log --outp=a",
            "git -c core.pager=evil log",
            "git diff --ext-diff",
            "git grep -O./evil x",
            "git grep --open-files-in-pager=./evil x",
            "sed -n -zi 1p a",
            "sed -n --in-place 1p a",
            "date --set=2020-01-01",
            "git branch new",
            "git branch -D old",
            "git stash",
            "git config user.name x",
            "git commit -m x",
            "rg --pre ./evil x",
            "uniq in out",
            "cargo test",
            "python3 -c 'open(\"a\",\"w\")'",
            "./ls",
            "$cmd",
            "eval ls",
            "PATH=. ls",
            "ls() { rm -rf .; }; ls",
            "sudo cat a",
            "bash script.sh",
        ] {
            assert!(!reads(command), "{command}");
        }
    }
}
