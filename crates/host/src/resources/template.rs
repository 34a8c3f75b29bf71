//! Prompt templates: Markdown files that become a prompt when a person types their name.

use std::path::{Path, PathBuf};

use super::files::{Step, in_one_line, slug, text_of, walk};
use super::frontmatter::{HINT, split};
use super::places::{Place, ResourceScope};
use super::skill::without_counterpart;

/// Templates of one place at most.
const MOST_TEMPLATES: usize = 500;
/// Characters of a description that are used.
const MOST_DESCRIPTION: usize = 120;
const REVIEW: &str = include_str!("builtin/review.md");
const INIT: &str = include_str!("builtin/init.md");

/// A template that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Its name, as it is typed.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// What is typed behind its name, for people.
    pub hint: String,
    /// Where it comes from.
    pub origin: TemplateOrigin,
    /// What its file says that has no effect here.
    pub notes: Vec<String>,
    /// Whether it has lines for a shell.
    pub has_commands: bool,
    /// Names of its arguments, by their positions.
    pub(super) arguments: Vec<String>,
    /// Whether `$$` stands for one `$` in it.
    pub(super) dollars: bool,
    bytes: u64,
}

impl Template {
    /// Bytes of its text.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Where a template comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateOrigin {
    /// Quipu itself: its text.
    BuiltIn(&'static str),
    /// A file.
    File {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        scope: ResourceScope,
        /// The package that it is of.
        package: Option<String>,
        /// Nothing may lie outside of this directory.
        within: Option<PathBuf>,
    },
}

impl TemplateOrigin {
    /// The text as it is now.
    pub(super) fn text(&self) -> Result<String, String> {
        match self {
            Self::BuiltIn(text) => Ok((*text).to_owned()),
            Self::File { path, within, .. } => {
                text_of(path, within.as_deref()).map_err(|why| format!("{}: {why}", path.display()))
            }
        }
    }

    /// The path of the file; `None` for one of Quipu itself.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn(_) => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// Whose it is: `built-in`, `user`, `project`, `package`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::BuiltIn(_) => "built-in",
            Self::File { scope, .. } => scope.word(),
        }
    }
}

/// The templates that Quipu brings along.
pub(super) fn built_in() -> Vec<Template> {
    let texts = [("init", INIT), ("review", REVIEW)];
    let read = |(name, text): (&str, &'static str)| {
        template_of(name.to_owned(), text, TemplateOrigin::BuiltIn(text), false).ok()
    };
    texts.into_iter().filter_map(read).collect()
}

/// The templates in a place, and what is wrong with others.
pub(super) fn templates_in(place: &Place, problems: &mut Vec<String>) -> Vec<Template> {
    let within = place.within.as_deref();
    let mut files = Vec::new();
    let is_whole = walk(&place.path, within, &mut |path, is_directory, _| {
        if is_directory {
            return if place.nested { Step::Enter } else { Step::Skip };
        }
        if path.extension().is_some_and(|kind| kind == "md") {
            files.push(path.to_owned());
        }
        Step::Skip
    });
    if !is_whole || files.len() > MOST_TEMPLATES {
        let place = place.path.display();
        problems.push(format!(
            "{place} holds too much; only the first {MOST_TEMPLATES} templates in it are used"
        ));
    }
    files.truncate(MOST_TEMPLATES);
    let mut templates = Vec::new();
    for path in files {
        let below = path.strip_prefix(&place.path).unwrap_or(&path).with_extension("");
        let words: Vec<String> = below.iter().map(|word| slug(&word.to_string_lossy())).collect();
        let name: String = words.join(":").chars().take(64).collect();
        let read = || {
            if words.iter().any(String::is_empty) {
                return Err("its name cannot be typed".to_owned());
            }
            let text = text_of(&path, within)?;
            let (scope, within) = (place.scope, place.within.clone());
            let origin = TemplateOrigin::File { path: path.clone(), scope, package: None, within };
            template_of(name, &text, origin, place.dollars)
        };
        match read() {
            Ok(template) => templates.push(template),
            Err(why) => problems.push(format!("the template {} is not used: {why}", path.display())),
        }
    }
    templates
}

pub(super) fn template_of(
    name: String,
    text: &str,
    origin: TemplateOrigin,
    dollars: bool,
) -> Result<Template, String> {
    let (front, body) = split(text).map_err(|error| error.to_string())?;
    let first =
        body.lines().map(|line| line.trim().trim_start_matches('#').trim()).find(|line| !line.is_empty());
    let Some(first) = first else { return Err("it is empty".to_owned()) };
    let described = front.text("description");
    let description = match &described {
        Some(text) => in_one_line(text, MOST_DESCRIPTION),
        None => in_one_line(first, 60),
    };
    let description = if description.is_empty() { name.clone() } else { description };
    let has_commands = super::expand::has_commands(body);
    let mut notes = without_counterpart(&front);
    if has_commands {
        notes.push(
            "its `!` commands are not run by Quipu: the model runs them with its tool, as you permit"
                .to_owned(),
        );
    }
    Ok(Template {
        name,
        description,
        hint: in_one_line(&front.text(HINT).unwrap_or_default(), 100),
        origin,
        notes,
        has_commands,
        arguments: front.words("arguments"),
        dollars,
        bytes: text.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::places::PlaceKind;

    #[test]
    fn templates_are_named_by_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        std::fs::create_dir_all(top.join("Git/more")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(top.join(name), text).unwrap();
        write("Fix.md", "---\nargument-hint: [issue] [-v]\nmodel: opus\n---\n# Fix it\n$1");
        write("Git/commit.md", "---\ndescription: Commit\n---\n!`git status`");
        write("Git/more/x.md", "x");
        write("empty.md", "---\ndescription: x\n---\n");
        write("broken.md", "---\ndescription");
        write("note.txt", "no");
        let place = |nested| Place {
            kind: PlaceKind::Templates,
            scope: ResourceScope::User,
            path: top.to_owned(),
            within: None,
            nested,
            dollars: false,
            files: false,
        };
        let mut problems = Vec::new();
        let found = templates_in(&place(true), &mut problems);
        let seen: Vec<_> = found.iter().map(|one| (&*one.name, &*one.description, &*one.hint)).collect();
        let expect =
            [("fix", "Fix it", "[issue] [-v]"), ("git:commit", "Commit", ""), ("git:more:x", "x", "")];
        assert_eq!(seen, expect);
        assert!(found[1].has_commands && found[0].notes[0].contains("`model` has no effect"), "{found:?}");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(templates_in(&place(false), &mut Vec::new()).len(), 1);
    }

    #[test]
    fn built_in_templates_are_read() {
        let names: Vec<_> = built_in().into_iter().map(|one| (one.name, one.notes)).collect();
        assert_eq!(names, [("init".to_owned(), Vec::new()), ("review".to_owned(), Vec::new())]);
    }
}
