//! The system prompt: our own text, the project's rules, the directory.

use std::path::{Path, PathBuf};

/// Bytes that are read of one file of rules; the rest is left out and said.
const RULES_LIMIT: usize = 1 << 20;
/// The first of these in a directory counts.
const RULES_NAMES: [&str; 5] = ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"];

/// Our own system prompt, without the project's rules.
pub const SYSTEM_PROMPT: &str = include_str!("prompts/system.md");

/// A file of rules that a person keeps for agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// The files of rules for a directory: first the user's own (`home`), then from the root of the file system down
/// to `cwd`; in each directory the first of `AGENTS.override.md`, `AGENTS.md`, `AGENTS.MD`, `CLAUDE.md`,
/// `CLAUDE.MD`. Files that cannot be read are named in the second list.
pub fn find_rules(home: &Path, cwd: &Path) -> (Vec<Rules>, Vec<String>) {
    let mut places: Vec<&Path> = cwd.ancestors().collect();
    places.push(home);
    places.reverse();
    let worktree = nested_worktree(cwd);
    let (mut rules, mut problems, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        // A worktree inside its main repository has the same files twice; its own count.
        if let Some((root, main)) = &worktree
            && place.starts_with(main)
            && !place.starts_with(root)
            && let Ok(relative) = place.strip_prefix(main)
            && RULES_NAMES.iter().any(|name| root.join(relative).join(name).is_file())
        {
            continue;
        }
        let Some(path) = RULES_NAMES.iter().map(|name| place.join(name)).find(|path| path.is_file()) else {
            continue;
        };
        let key = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        match read_rules(&path) {
            Ok(text) => rules.push(Rules { path, text }),
            Err(error) => {
                problems.push(format!("{} could not be read and is left out: {error}", path.display()));
            }
        }
    }
    (rules, problems)
}

fn read_rules(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path)?.take(RULES_LIMIT as u64 + 1);
    file.read_to_end(&mut bytes)?;
    let cut = bytes.len() > RULES_LIMIT;
    bytes.truncate(RULES_LIMIT);
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end();
    Ok(if cut {
        format!("{text}\n[The rest of this file is left out: it is larger than 1 MiB.]")
    } else {
        text.into()
    })
}

/// The worktree that `cwd` is in and its main repository, when the one lies inside the other.
fn nested_worktree(cwd: &Path) -> Option<(PathBuf, PathBuf)> {
    let root = cwd.ancestors().find(|place| place.join(".git").exists())?;
    let text = std::fs::read_to_string(root.join(".git")).ok()?;
    let git_dir = root.join(text.strip_prefix("gitdir:")?.trim());
    let main =
        git_dir.ancestors().find(|place| place.file_name().is_some_and(|name| name == ".git"))?.parent()?;
    let main = main.canonicalize().ok()?;
    let root = root.canonicalize().ok()?;
    (root != main && root.starts_with(&main)).then_some((root, main))
}

/// Puts a system prompt together. The same inputs give the same bytes: no date, nothing of the machine but the
/// directory.
pub fn system_prompt(base: &str, append: &[String], rules: &[Rules], cwd: &Path) -> String {
    let mut text = base.trim_end().to_owned();
    for more in append {
        text.push_str("\n\n");
        text.push_str(more.trim_end());
    }
    for rules in rules {
        text.push_str(&format!(
            "\n\n<project_rules path=\"{}\">\n{}\n</project_rules>",
            rules.path.display(),
            rules.text
        ));
    }
    text.push_str(&format!("\n\nWorking directory: {}\n", cwd.display()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_from_home_then_from_the_root_down() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (home, sub) = (root.join("home"), root.join("a/b"));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(home.join("AGENTS.md"), "\u{feff}mine\n").unwrap();
        std::fs::write(root.join("a/CLAUDE.md"), "upper").unwrap();
        std::fs::write(sub.join("AGENTS.md"), "unseen").unwrap();
        std::fs::write(sub.join("AGENTS.override.md"), "lower").unwrap();
        let (rules, problems) = find_rules(&home, &sub);
        let texts: Vec<&str> = rules.iter().map(|rules| &*rules.text).collect();
        assert_eq!((texts, problems), (vec!["mine", "upper", "lower"], vec![]));
        let prompt = system_prompt("Base.\n", &["More.".into()], &rules[..1], Path::new("/w"));
        let path = home.join("AGENTS.md");
        let expect = format!(
            "Base.\n\nMore.\n\n<project_rules path=\"{}\">\nmine\n</project_rules>\n\nWorking directory: /w\n",
            path.display()
        );
        assert_eq!(prompt, expect);
    }

    #[test]
    fn a_worktree_inside_its_repository_does_not_see_the_same_rules_twice() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().canonicalize().unwrap();
        let tree = main.join("trees/one");
        std::fs::create_dir_all(main.join(".git/worktrees/one")).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(tree.join(".git"), format!("gitdir: {}\n", main.join(".git/worktrees/one").display()))
            .unwrap();
        std::fs::write(main.join("AGENTS.md"), "main").unwrap();
        std::fs::write(tree.join("AGENTS.md"), "tree").unwrap();
        let (rules, _) = find_rules(&main.join("nohome"), &tree);
        assert_eq!(rules.iter().map(|rules| &*rules.text).collect::<Vec<_>>(), ["tree"]);
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("AGENTS.md")).unwrap();
        assert_eq!(find_rules(&dir.path().join("h"), dir.path()), (vec![], vec![]));
    }
}
