//! The system prompt: our own text, the project's rules, the directory.

use std::path::{Path, PathBuf};

use quipu_protocol::Trust;

use crate::rules_file::{Bounds, RulesReader};

/// The first of these in a directory counts.
const RULES_NAMES: [&str; 5] = ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"];
/// Stands beside that one: what a person notes for themselves.
const LOCAL_NAME: &str = "CLAUDE.local.md";

/// Directories of packages that others wrote.
const PACKAGES: [&str; 5] = ["node_modules", "vendor", "third_party", "site-packages", "bower_components"];

/// Our own system prompt, without the project's rules.
pub const SYSTEM_PROMPT: &str = include_str!("prompts/system.md");

pub use crate::rules_file::Rules;

/// The files of rules for a directory: first the user's own (`home`), then from the root of its repository down to `cwd`, or
/// `cwd` alone where there is none; in each directory the first of `AGENTS.override.md`, `AGENTS.md`, `AGENTS.MD`, `CLAUDE.md`,
/// `CLAUDE.MD`. Directories above the repository count where they are in `above`.
///
/// A file imports others with `@path`, to a depth of five; they follow it. A file of the project imports from its repository and
/// from `above` alone. The second list is for people: files that are cut, and those that are left out, with why: those above that nobody accepted, of another user, behind a
/// link that leads out of their repository, and those that cannot be read.
pub fn find_rules(home: &Path, cwd: &Path, above: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let mut places: Vec<&Path> = cwd.ancestors().collect();
    places.push(home);
    places.reverse();
    let root = repository(cwd);
    let worktree = nested_worktree(cwd);
    let mut reader = RulesReader::default();
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
        let own = place == home;
        for path in rules_files_in(place) {
            let bounds = match place {
                _ if own => Bounds::Own,
                place if place.starts_with(root) => Bounds::Within { root, more: above },
                place if above.iter().any(|one| one == place) => Bounds::Within { root: place, more: above },
                _ if reader.knows(&path) => continue,
                _ => {
                    reader.problems.push(format!(
                        "{} is not loaded because it is above {}; to load it, add its directory to `rules.above` in \
                         settings.json",
                        path.display(),
                        root.display()
                    ));
                    continue;
                }
            };
            reader.add(&path, &bounds, if own { Trust::Owner } else { Trust::Project });
        }
    }
    (reader.rules, reader.problems)
}

/// The directory of the repository that `cwd` is in; `cwd` itself where there is none.
fn repository(cwd: &Path) -> &Path {
    cwd.ancestors().find(|place| place.join(".git").exists()).unwrap_or(cwd)
}

/// The files of rules in a directory: the first of the names that count, and the notes beside it.
pub fn rules_files_in(place: &Path) -> impl Iterator<Item = PathBuf> {
    let first = RULES_NAMES.iter().map(|name| place.join(name)).find(|path| path.is_file());
    first.into_iter().chain(Some(place.join(LOCAL_NAME)).filter(|path| path.is_file()))
}

/// Files of rules below `cwd` on the way to `path`: those that a session reads when it first works there. Bounds and
/// problems are those of [`find_rules`]. A directory with its own repository is another project, and so are hidden ones and those where
/// packages of others lie (`node_modules`, `vendor` and the like): nothing of them is read.
pub fn find_rules_below(cwd: &Path, path: &Path, above: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let root = repository(cwd);
    let Ok(relative) = path.strip_prefix(cwd) else { return Default::default() };
    let mut reader = RulesReader::default();
    let mut place = cwd.to_path_buf();
    for part in relative.components() {
        place.push(part);
        let is_of_others = part.as_os_str().as_encoded_bytes().starts_with(b".")
            || PACKAGES.iter().any(|name| part.as_os_str() == *name);
        if is_of_others || !place.is_dir() || place.join(".git").exists() {
            break;
        }
        for path in rules_files_in(&place) {
            reader.add(&path, &Bounds::Within { root, more: above }, Trust::Project);
        }
    }
    (reader.rules, reader.problems)
}

/// Files of rules that are the user's own, wherever they are: each that is there and can be read, and why others cannot.
pub fn read_own_rules(paths: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let mut reader = RulesReader::default();
    for path in paths.iter().filter(|path| path.is_file()) {
        reader.add(path, &Bounds::Own, Trust::Owner);
    }
    (reader.rules, reader.problems)
}

/// Files of rules of a project in this directory, with what they import.
pub fn read_project_rules(root: &Path, paths: &[PathBuf], above: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let mut reader = RulesReader::default();
    for path in paths.iter().filter(|path| path.is_file()) {
        reader.add(path, &Bounds::Within { root, more: above }, Trust::Project);
    }
    (reader.rules, reader.problems)
}

/// Files of rules that somebody of the user's own names, wherever they are: each that can be read, and why others cannot. The trust
/// of those in `home` is the owner's.
pub fn read_rules_at(home: &Path, paths: &[PathBuf]) -> (Vec<Rules>, Vec<String>) {
    let mut reader = RulesReader::default();
    for path in paths {
        reader.add(path, &Bounds::Own, if path.starts_with(home) { Trust::Owner } else { Trust::Project });
    }
    (reader.rules, reader.problems)
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
        text.push_str(&rules_text(rules));
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

/// A file of rules as the model reads it.
pub fn rules_text(rules: &Rules) -> String {
    format!("<project_rules path=\"{}\">\n{}\n</project_rules>", rules.path.display(), rules.text)
}

/// The text of a file of rules as the model reads it, without what stands around it; `None` for any other text.
pub fn rules_content(section: &str) -> Option<&str> {
    let (_, content) = section.strip_prefix("<project_rules path=\"")?.split_once("\">\n")?;
    content.strip_suffix("\n</project_rules>")
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
