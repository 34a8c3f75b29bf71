//! Reading a file of rules, and what it imports.

use std::path::{Path, PathBuf};

use quipu_protocol::Trust;

use crate::rules_imports::mentioned_files;

/// Bytes that are read of one file of rules; the rest is left out, with a note.
const RULES_LIMIT: usize = 1 << 20;
/// What stands in the place of the rest.
const REST: &str = "[The rest of this file is not shown: it is larger than 1 MiB.]";
/// Files that import each other: how deep, how many, and how many bytes together.
const DEPTH: usize = 5;
const IMPORTS: usize = 100;
const IMPORT_BYTES: usize = 1 << 20;

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

/// Whether a text of rules is the beginning of its file alone.
pub fn are_rules_cut(text: &str) -> bool {
    text.ends_with(REST)
}

/// Where a file of rules may come from.
pub(crate) enum Bounds<'a> {
    /// The user's own: links may lead anywhere, as those to a collection of settings do.
    Own,
    /// Links stay below `root`; imports there, or below one of `more`.
    Within {
        /// A directory.
        root: &'a Path,
        /// Directories that the user accepts beside it.
        more: &'a [PathBuf],
    },
}

impl Bounds<'_> {
    /// Opens a file that was found in its place.
    fn open(&self, path: &Path) -> std::io::Result<std::fs::File> {
        let target = path.canonicalize()?;
        if let Self::Within { root, .. } = self {
            let root = root.canonicalize()?;
            if !target.starts_with(&root) {
                let text = format!("it links to {}, which is outside {}", target.display(), root.display());
                return Err(std::io::Error::other(text));
            }
        }
        self.open_owned(&target)
    }

    /// Opens a file unless it belongs to somebody else.
    fn open_owned(&self, target: &Path) -> std::io::Result<std::fs::File> {
        use std::os::unix::fs::MetadataExt as _;
        let mut owners = vec![nix::unistd::geteuid().as_raw(), 0];
        if let (Self::Within { root, .. }, 0) = (self, owners[0]) {
            // An administrator who works in somebody's directory.
            owners.push(std::fs::metadata(root)?.uid());
        }
        let file = std::fs::File::open(target)?;
        let owner = file.metadata()?.uid();
        if !owners.contains(&owner) {
            return Err(std::io::Error::other(format!("it belongs to another user (uid {owner})")));
        }
        Ok(file)
    }

    /// Whether a file may be imported.
    fn allows(&self, target: &Path) -> bool {
        let is_below = |place: &Path| place.canonicalize().is_ok_and(|place| target.starts_with(place));
        match self {
            Self::Own => true,
            Self::Within { root, more } => is_below(root) || more.iter().any(|place| is_below(place)),
        }
    }
}

/// Reads files of rules, each once.
#[derive(Default)]
pub(crate) struct RulesReader {
    pub(crate) rules: Vec<Rules>,
    pub(crate) problems: Vec<String>,
    seen: Vec<PathBuf>,
    imports: usize,
    import_bytes: usize,
}

impl RulesReader {
    /// Whether the file was read.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.seen.contains(&key(path))
    }

    /// Reads a file, and what it imports.
    pub(crate) fn add(&mut self, path: &Path, bounds: &Bounds<'_>, trust: Trust) {
        let key = key(path);
        if self.seen.contains(&key) {
            return;
        }
        self.seen.push(key.clone());
        match bounds.open(path).and_then(read_rules) {
            Ok(content) => self.take(path, &key, content, bounds, trust, 0),
            Err(error) => self.unread(path, &error),
        }
    }

    fn unread(&mut self, path: &Path, error: &std::io::Error) {
        self.problems.push(format!("could not read {}, so it is not loaded: {error}", path.display()));
    }

    fn take(
        &mut self,
        path: &Path,
        target: &Path,
        content: RulesText,
        bounds: &Bounds<'_>,
        trust: Trust,
        depth: usize,
    ) {
        if content.is_cut {
            self.problems
                .push(format!("{} is larger than 1 MiB; only its beginning is loaded", path.display()));
        }
        let named = mentioned_files(&content.text);
        self.rules.push(Rules { path: path.to_owned(), text: content.text, trust });
        for name in named {
            let Some(found) = resolve(&name, target) else {
                if looks_like_file(&name) {
                    self.problems.push(format!("{} imports {name}, which does not exist", path.display()));
                }
                continue;
            };
            if self.seen.contains(&found) {
                continue;
            }
            let limit = self.limit(depth);
            let refused = if !bounds.allows(&found) {
                Some(
                    "it is outside the project; to load it, add its directory to `rules.above` in settings.json",
                )
            } else {
                limit
            };
            if let Some(why) = refused {
                let (path, found) = (path.display(), found.display());
                self.problems.push(format!("{path} imports {found}, which is not loaded: {why}"));
                if limit.is_some() {
                    return;
                }
                continue;
            }
            self.seen.push(found.clone());
            self.imports += 1;
            match bounds.open_owned(&found).and_then(read_rules) {
                Ok(content) => {
                    self.import_bytes += content.text.len();
                    self.take(&found, &found, content, bounds, trust, depth + 1);
                }
                Err(error) => self.unread(&found, &error),
            }
        }
    }
}

impl RulesReader {
    /// Why nothing more is imported.
    fn limit(&self, depth: usize) -> Option<&'static str> {
        match self {
            _ if depth >= DEPTH => Some("imports may be 5 levels deep"),
            _ if self.imports >= IMPORTS => Some("100 files are imported already"),
            _ if self.import_bytes >= IMPORT_BYTES => Some("imported files have 1 MiB already"),
            _ => None,
        }
    }
}

fn key(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The true path of a regular file that a text in `from` names.
fn resolve(name: &str, from: &Path) -> Option<PathBuf> {
    let path_of = |name: &str| match name.strip_prefix("~/") {
        Some(rest) => Some(std::env::home_dir()?.join(rest)),
        None => Some(from.parent()?.join(name)),
    };
    let file = |name: &str| path_of(name)?.canonicalize().ok().filter(|path| path.is_file());
    // The end of a sentence is no part of a name.
    file(name).or_else(|| file(name.trim_end_matches(|c: char| ",;:.!?)]}'\"".contains(c))))
}

/// Whether a name that leads nowhere was meant as a file.
fn looks_like_file(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| ",;:.!?)]}'\"".contains(c));
    ["./", "../", "~/", "/"].iter().any(|start| name.starts_with(start))
        || Path::new(name).extension().is_some_and(|kind| kind.eq_ignore_ascii_case("md"))
}

/// What was read of a file.
struct RulesText {
    text: String,
    is_cut: bool,
}

fn read_rules(file: std::fs::File) -> std::io::Result<RulesText> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let mut file = file.take(RULES_LIMIT as u64 + 1);
    file.read_to_end(&mut bytes)?;
    let is_cut = bytes.len() > RULES_LIMIT;
    bytes.truncate(RULES_LIMIT);
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end();
    let text = if is_cut { format!("{text}\n{REST}") } else { text.into() };
    Ok(RulesText { text, is_cut })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find_rules;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn names(rules: &[Rules]) -> Vec<String> {
        rules.iter().map(|one| one.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn imports_follow_their_file_and_end_in_cycles() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join(".git/HEAD"), "");
        write(
            &root.join("CLAUDE.md"),
            "See @docs/a.md, and `@docs/code.md`.\n```\n@docs/code.md\n```\nwrite to a@b.md",
        );
        write(&root.join("docs/a.md"), "@../CLAUDE.md @b.md @a.md @missing.md @someone");
        write(&root.join("docs/b.md"), "end");
        write(&root.join("docs/code.md"), "never");
        let (rules, problems) = find_rules(&root.join("home"), &root, &[]);
        assert_eq!(names(&rules), ["CLAUDE.md", "a.md", "b.md"]);
        assert!(
            matches!(&problems[..], [one] if one.contains("missing.md, which does not exist")),
            "{problems:?}"
        );
    }

    #[test]
    fn imports_of_a_project_stay_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("project");
        write(&root.join(".git/HEAD"), "");
        write(&top.join("secret.txt"), "secret");
        write(&root.join("AGENTS.md"), "@../secret.txt @link.md");
        std::os::unix::fs::symlink("../secret.txt", root.join("link.md")).unwrap();
        let (rules, problems) = find_rules(&root.join("home"), &root, &[]);
        assert_eq!(names(&rules), ["AGENTS.md"]);
        assert!(problems.iter().all(|one| one.contains("outside the project")), "{problems:?}");
        assert_eq!(problems.len(), 2);
        // Where the user accepts that directory, and in a file of the user's own.
        let (rules, _) = find_rules(&root.join("home"), &root, std::slice::from_ref(&top));
        assert_eq!(names(&rules), ["AGENTS.md", "secret.txt"]);
        write(&root.join("home/AGENTS.md"), "@../../secret.txt");
        let (rules, _) = find_rules(&root.join("home"), &root, &[]);
        assert_eq!(names(&rules), ["AGENTS.md", "secret.txt", "AGENTS.md"]);
    }

    #[test]
    fn chain_of_imports_ends_at_its_limits() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join(".git/HEAD"), "");
        write(&root.join("AGENTS.md"), "@1.md");
        for depth in 1..9 {
            write(&root.join(format!("{depth}.md")), &format!("@{}.md", depth + 1));
        }
        let (rules, problems) = find_rules(&root.join("home"), &root, &[]);
        assert_eq!(names(&rules), ["AGENTS.md", "1.md", "2.md", "3.md", "4.md", "5.md"]);
        assert!(problems[0].contains("5 levels deep"), "{problems:?}");
        let wide: String = (0..300).map(|at| format!("@wide{at}.md ")).collect();
        write(&root.join("AGENTS.md"), &wide);
        for at in 0..300 {
            write(&root.join(format!("wide{at}.md")), "x");
        }
        let (rules, problems) = find_rules(&root.join("home"), &root, &[]);
        assert_eq!(rules.len(), 101);
        assert!(problems.len() == 1 && problems[0].contains("100 files"), "{problems:?}");
    }

    #[test]
    fn large_file_is_cut_with_a_notice_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join("AGENTS.md"), &"x".repeat(RULES_LIMIT + 9));
        let (rules, problems) = find_rules(&root.join("home"), &root, &[]);
        assert!(rules[0].text.len() < RULES_LIMIT + 99);
        assert!(problems[0].contains("AGENTS.md is larger than 1 MiB"), "{problems:?}");
    }

    #[test]
    fn rules_below_are_found_on_the_way_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join(".git/HEAD"), "");
        write(&root.join("AGENTS.md"), "top");
        write(&root.join("a/CLAUDE.md"), "a");
        write(&root.join("a/CLAUDE.local.md"), "mine");
        write(&root.join("a/b/AGENTS.md"), "b");
        write(&root.join("a/other/.git/HEAD"), "");
        write(&root.join("a/other/AGENTS.md"), "another project");
        let found = |path: &str| names(&crate::find_rules_below(&root, &root.join(path), &[]).0);
        assert_eq!(found("a/b/new.rs"), ["CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"]);
        assert_eq!(found("a/other/x"), ["CLAUDE.md", "CLAUDE.local.md"]);
        assert_eq!(found("x"), Vec::<String>::new());
        assert_eq!(found("../elsewhere"), Vec::<String>::new());
    }
}
