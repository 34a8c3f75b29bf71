//! The system prompt: our own text, the project's rules, the directory.

use std::path::{Path, PathBuf};

use quipu_protocol::Trust;

/// Bytes that are read of one file of rules; the rest is left out, with a note.
const RULES_LIMIT: usize = 1 << 20;
/// The first of these in a directory counts.
const RULES_NAMES: [&str; 5] = ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"];

/// Our own system prompt, without the project's rules.
pub const SYSTEM_PROMPT: &str = include_str!("prompts/system.md");

/// A file of rules that a person keeps for agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The absolute path of the file.
    pub path: PathBuf,
    /// Its content, cut after a limit.
    pub text: String,
    /// Whose words these are: the user's own file, or one of the project.
    pub trust: Trust,
}

/// The files of rules for a directory: first the user's own (`home`), then from the root of its repository down to `cwd`, or
/// `cwd` alone where there is none; in each directory the first of `AGENTS.override.md`, `AGENTS.md`, `AGENTS.MD`, `CLAUDE.md`,
/// `CLAUDE.MD`. Directories above the repository count where they are in `above`.
///
/// Files that are left out are named in the second list, with why: those above that nobody accepted, of another user, behind a
/// link that leads out of their repository, and those that cannot be read.
pub fn find_rules(home: &Path, cwd: &Path, above: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let mut places: Vec<&Path> = cwd.ancestors().collect();
    places.push(home);
    places.reverse();
    let root = cwd.ancestors().find(|place| place.join(".git").exists()).unwrap_or(cwd);
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
        let bounds = match place {
            own if own == home => Bounds::Own,
            place if place.starts_with(root) => Bounds::Within(root),
            place if above.iter().any(|one| one == place) => Bounds::Within(place),
            _ => {
                problems.push(format!(
                    "{} is not loaded because it is above {}; to load it, add its directory to `rules.above` in \
                     settings.json",
                    path.display(),
                    root.display()
                ));
                continue;
            }
        };
        seen.push(key);
        match bounds.open(&path).and_then(read_rules) {
            Ok(text) => {
                let trust = if place == home { Trust::Owner } else { Trust::Project };
                rules.push(Rules { path, text, trust });
            }
            Err(error) => {
                problems.push(format!("could not read {}, so it is not loaded: {error}", path.display()));
            }
        }
    }
    (rules, problems)
}

/// Files of rules that somebody of the user's own names, wherever they are: each that can be read, and why others cannot. The trust
/// of those in `home` is the owner's.
pub fn read_rules_at(home: &Path, paths: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let (mut rules, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        match Bounds::Own.open(path).and_then(read_rules) {
            Ok(text) => {
                let trust = if path.starts_with(home) { Trust::Owner } else { Trust::Project };
                rules.push(Rules { path: path.clone(), text, trust });
            }
            Err(error) => {
                problems.push(format!("could not read {}, so it is not loaded: {error}", path.display()));
            }
        }
    }
    (rules, problems)
}

/// Where a file of rules may come from.
enum Bounds<'a> {
    /// The user's own: links may lead anywhere, as those to a collection of settings do.
    Own,
    /// Links stay below this.
    Within(&'a Path),
}

impl Bounds<'_> {
    fn open(&self, path: &Path) -> std::io::Result<std::fs::File> {
        use std::os::unix::fs::MetadataExt as _;
        let target = path.canonicalize()?;
        let mut owners = vec![nix::unistd::geteuid().as_raw(), 0];
        if let Self::Within(root) = self {
            let root = root.canonicalize()?;
            if !target.starts_with(&root) {
                let text = format!("it links to {}, which is outside {}", target.display(), root.display());
                return Err(std::io::Error::other(text));
            }
            if owners[0] == 0 {
                // An administrator who works in somebody's directory.
                owners.push(std::fs::metadata(&root)?.uid());
            }
        }
        let file = std::fs::File::open(&target)?;
        let owner = file.metadata()?.uid();
        if !owners.contains(&owner) {
            return Err(std::io::Error::other(format!("it belongs to another user (uid {owner})")));
        }
        Ok(file)
    }
}

fn read_rules(file: std::fs::File) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let mut file = file.take(RULES_LIMIT as u64 + 1);
    file.read_to_end(&mut bytes)?;
    let cut = bytes.len() > RULES_LIMIT;
    bytes.truncate(RULES_LIMIT);
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end();
    Ok(if cut {
        format!("{text}\n[The rest of this file is not shown: it is larger than 1 MiB.]")
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
    let mut text = system_base(base, append);
    for rules in rules {
        text.push_str("\n\n");
        text.push_str(&rules_section(rules));
    }
    text.push_str("\n\n");
    text.push_str(&system_end(cwd));
    text
}

/// What a system prompt begins with, before the sections of context sources: for
/// [`SessionOptions::system`](crate::SessionOptions::system).
pub fn system_base(base: &str, append: &[String]) -> String {
    let mut text = base.trim_end().to_owned();
    for more in append {
        text.push_str("\n\n");
        text.push_str(more.trim_end());
    }
    text
}

/// What a system prompt ends with, behind the sections of context sources: for
/// [`SessionOptions::system_end`](crate::SessionOptions::system_end).
pub fn system_end(cwd: &Path) -> String {
    format!("Working directory: {}\n", cwd.display())
}

/// A file of rules as a section of the system prompt.
pub(crate) fn rules_section(rules: &Rules) -> String {
    format!("<project_rules path=\"{}\">\n{}\n</project_rules>", rules.path.display(), rules.text)
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
        std::fs::create_dir(root.join("a/.git")).unwrap();
        std::fs::write(root.join("a/CLAUDE.md"), "upper").unwrap();
        std::fs::write(root.join("AGENTS.md"), "above").unwrap();
        std::fs::write(sub.join("AGENTS.md"), "unseen").unwrap();
        std::fs::write(sub.join("AGENTS.override.md"), "lower").unwrap();
        let texts = |rules: &[Rules]| rules.iter().map(|rules| rules.text.clone()).collect::<Vec<_>>();
        let (rules, problems) = find_rules(&home, &sub, &[]);
        assert_eq!(texts(&rules), ["mine", "upper", "lower"]);
        assert!(
            matches!(&problems[..], [one] if one.contains("it is above") && one.contains("rules.above")),
            "{problems:?}"
        );
        let (accepted, problems) = find_rules(&home, &sub, std::slice::from_ref(&root));
        assert_eq!(
            (texts(&accepted), problems),
            (["mine", "above", "upper", "lower"].map(String::from).to_vec(), vec![])
        );
        // Without a repository: the directory alone.
        std::fs::remove_dir(root.join("a/.git")).unwrap();
        let (alone, problems) = find_rules(&home, &sub, &[]);
        assert_eq!((texts(&alone), problems.len()), (vec!["mine".to_owned(), "lower".to_owned()], 2));
        let prompt = system_prompt("Base.\n", &["More.".into()], &rules[..1], Path::new("/w"));
        let path = home.join("AGENTS.md");
        let expect = format!(
            "Base.\n\nMore.\n\n<project_rules path=\"{}\">\nmine\n</project_rules>\n\nWorking directory: /w\n",
            path.display()
        );
        assert_eq!(prompt, expect);
    }

    #[test]
    fn worktree_inside_repository_reads_rules_once() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().canonicalize().unwrap();
        let tree = main.join("trees/one");
        std::fs::create_dir_all(main.join(".git/worktrees/one")).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(tree.join(".git"), format!("gitdir: {}\n", main.join(".git/worktrees/one").display()))
            .unwrap();
        std::fs::write(main.join("AGENTS.md"), "main").unwrap();
        std::fs::write(tree.join("AGENTS.md"), "tree").unwrap();
        let (rules, _) = find_rules(&main.join("nohome"), &tree, &[]);
        assert_eq!(rules.iter().map(|rules| &*rules.text).collect::<Vec<_>>(), ["tree"]);
    }

    #[test]
    fn links_that_lead_out_of_the_repository_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (home, repository) = (root.join("home"), root.join("r"));
        for made in [&home, &repository.join(".git"), &repository.join("docs")] {
            std::fs::create_dir_all(made).unwrap();
        }
        std::fs::write(root.join(".netrc"), "machine a login b password c").unwrap();
        let link = |to: &str, place: &Path| {
            let at = place.join("AGENTS.md");
            drop(std::fs::remove_file(&at));
            std::os::unix::fs::symlink(to, at).unwrap();
        };
        for to in ["../.netrc", "/etc/passwd", "docs/../../.netrc"] {
            link(to, &repository);
            let (rules, problems) = find_rules(&home, &repository, &[]);
            assert_eq!(rules, vec![], "{to}");
            assert!(matches!(&problems[..], [one] if one.contains("it links to")), "{problems:?}");
        }
        // Within it, and the user's own, they are as good as files.
        std::fs::write(repository.join("docs/rules.md"), "inside").unwrap();
        link("docs/rules.md", &repository);
        std::fs::write(root.join("mine.md"), "mine").unwrap();
        link("../mine.md", &home);
        let (rules, problems) = find_rules(&home, &repository, &[]);
        assert_eq!(rules.iter().map(|one| &*one.text).collect::<Vec<_>>(), ["mine", "inside"]);
        assert_eq!(problems, vec![""; 0]);
    }

    #[test]
    fn files_of_other_users_are_left_out() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("note: only an administrator can give files away, so this is not tested");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = root.join("AGENTS.md");
        std::fs::write(&path, "theirs").unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let (rules, problems) = find_rules(&root.join("h"), &root, &[]);
        assert_eq!(rules, vec![]);
        assert!(matches!(&problems[..], [one] if one.contains("another user (uid 65534)")), "{problems:?}");
        // A directory that is all theirs, in which an administrator works.
        std::os::unix::fs::chown(&root, Some(65_534), None).unwrap();
        assert_eq!(find_rules(&root.join("h"), &root, &[]).0.len(), 1);
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("AGENTS.md")).unwrap();
        assert_eq!(find_rules(&dir.path().join("h"), dir.path(), &[]), (vec![], vec![]));
    }
}
