//! Which command lines only read: judged by a fixed set of rules, part by part, as the user's own are.

use std::sync::LazyLock;

use crate::judge::{Place, RuleSet, Verdict};
use crate::{Effect, Rule};

/// Commands that only read, whatever their arguments are: those that write or run something by an option are not here, or
/// [`OPTIONS`] denies that option.
const READERS: &[&str] = &[
    "cat *",
    "head *",
    "tail *",
    "wc *",
    "nl *",
    "tac *",
    "rev *",
    "cut *",
    "tr *",
    "paste *",
    "comm *",
    "join *",
    "column *",
    "fold *",
    "expand *",
    "ls *",
    "stat *",
    "file *",
    "du *",
    "df *",
    "realpath *",
    "readlink *",
    "basename *",
    "dirname *",
    "seq *",
    "grep *",
    "egrep *",
    "fgrep *",
    "rg *",
    "find *",
    "fd *",
    "fdfind *",
    "sort *",
    "uniq",
    "uniq -c",
    "uniq -d",
    "uniq -u",
    "diff *",
    "cmp *",
    "sed -n *",
    "awk *",
    "jq *",
    "od *",
    "hexdump *",
    "strings *",
    "cksum *",
    "md5sum *",
    "sha1sum *",
    "sha256sum *",
    "which *",
    "type *",
    "id",
    "whoami",
    "uname *",
    "nproc",
    "date",
    "date +*",
    "ps *",
    "git status *",
    "git log *",
    "git diff *",
    "git show *",
    "git blame *",
    "git grep *",
    "git rev-parse *",
    "git rev-list *",
    "git ls-files *",
    "git ls-tree *",
    "git merge-base *",
    "git describe *",
    "git cat-file -p *",
    "git cat-file -t *",
    "git cat-file -s *",
    "git branch",
    "git branch -a",
    "git branch -r",
    "git branch -v",
    "git branch -vv",
    "git branch -av",
    "git branch --list",
    "git branch --show-current",
    "git tag",
    "git tag -l",
    "git tag --list",
    "git remote",
    "git remote -v",
    "git stash list",
    "git worktree list",
    "git reflog",
    "git config --list",
    "git config -l",
];

/// Options with which such a command writes.
const OPTIONS: &[&str] = &["sed *-i*", "sed *-Ei*", "file *-C*", "file *--co*", "git *--ou*", "date *-s*"];

/// What does not read only, of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` {why}")]
pub struct NotReadOnly {
    /// The part as it was written.
    pub part: String,
    /// What is known of it.
    pub why: &'static str,
}

static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    let rule = |effect: Effect, pattern: &&str| {
        // A test parses each of them.
        Rule::parse(&format!("bash({pattern})")).ok().map(|rule| (effect, rule))
    };
    let readers = READERS.iter().filter_map(|pattern| rule(Effect::Allow, pattern));
    let options = OPTIONS.iter().filter_map(|pattern| rule(Effect::Deny, pattern));
    RuleSet::new(readers.chain(options).collect())
});

/// Whether a command line of `bash` only reads. What is not known to read only does not.
///
/// # Errors
/// The first part that is not known to read only.
pub fn read_only(command: &str, place: &Place<'_>) -> Result<(), NotReadOnly> {
    let judged = RULES.command(command, place);
    let Some(part) = judged.decisive().filter(|_| judged.verdict != Verdict::Allow) else { return Ok(()) };
    let why = match judged.verdict {
        Verdict::Unclear => part.why.unwrap_or("cannot be judged from its text"),
        _ => "is not known to read only",
    };
    Err(NotReadOnly { part: part.part.clone(), why })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{OPTIONS, READERS, RULES, read_only};
    use crate::judge::Place;

    fn reads(command: &str) -> bool {
        let true_path = |path: &Path| -> PathBuf { path.to_path_buf() };
        let place =
            Place { cwd: Path::new("/work"), home: Some(Path::new("/home/me")), true_path: &true_path };
        read_only(command, &place).is_ok()
    }

    #[test]
    fn each_pattern_is_a_rule() {
        let count = READERS.len() + OPTIONS.len();
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
