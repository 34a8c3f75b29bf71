//! Skills: directories with a `SKILL.md` that a model reads when a task needs it.

use std::path::{Path, PathBuf};

use super::files::{Step, in_one_line, slug, text_of, walk};
use super::frontmatter::{Frontmatter, split};
use super::places::{Place, ResourceScope};

/// The file of a skill in its directory.
pub(super) const SKILL_FILE: &str = "SKILL.md";
/// Skills of one place at most.
const MOST_SKILLS: usize = 500;
/// Characters of a description that are used.
pub(super) const MOST_DESCRIPTION: usize = 1_024;
/// What frontmatter may say that has no counterpart here, and why it has no effect.
const NO_COUNTERPART: &[(&str, &str)] = &[
    ("allowed-tools", "your permissions decide which tools run"),
    ("disallowed-tools", "your permissions decide which tools run"),
    ("model", "the model of the session is used"),
    ("effort", "the thinking level of the session is used"),
    ("context", "it runs in the session itself"),
    ("agent", "it runs in the session itself"),
    ("hooks", "hooks belong into settings.json"),
    ("paths", "it is offered for all files"),
    ("shell", "commands run with the tool bash"),
];

/// A skill that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name, as it is typed.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// The path of its file.
    pub path: PathBuf,
    /// Whose it is.
    pub scope: ResourceScope,
    /// The package that it is of.
    pub package: Option<String>,
    /// Whether it is in the prompt.
    pub for_model: bool,
    /// Whether it is a command.
    pub for_person: bool,
    /// What is typed behind its name, for people.
    pub hint: String,
    /// What its file says that has no effect here.
    pub notes: Vec<String>,
    /// Nothing of it may lie outside of this directory.
    pub(super) within: Option<PathBuf>,
    /// The directory in which skills lie.
    pub(super) place: PathBuf,
    /// Bytes of its file.
    pub(super) bytes: u64,
}

impl Skill {
    /// Bytes of its file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The directory that paths in it are relative to.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

/// What a frontmatter says that has no effect here.
pub(super) fn without_counterpart(front: &Frontmatter) -> Vec<String> {
    let said = NO_COUNTERPART.iter().filter(|(name, _)| front.has(name));
    said.map(|(name, why)| format!("`{name}` has no effect: {why}")).collect()
}

/// The skills in a place, and what is wrong with others.
pub(super) fn skills_in(place: &Place, problems: &mut Vec<String>) -> Vec<Skill> {
    let within = place.within.as_deref();
    let mut files = Vec::new();
    let is_whole = walk(&place.path, within, &mut |path, is_directory, depth| {
        if is_directory {
            let file = path.join(SKILL_FILE);
            if file.is_file() {
                files.push(file);
                // What lies in a skill is its own.
                return Step::Skip;
            }
            return Step::Enter;
        }
        if place.files && depth == 0 && path.extension().is_some_and(|kind| kind == "md") {
            files.push(path.to_owned());
        }
        Step::Skip
    });
    if !is_whole || files.len() > MOST_SKILLS {
        problems.push(format!(
            "{} holds too much; only the first {MOST_SKILLS} skills in it are used",
            place.path.display()
        ));
    }
    files.truncate(MOST_SKILLS);
    let mut skills = Vec::new();
    for path in files {
        let is_named = path.file_name().is_some_and(|name| name == SKILL_FILE);
        match skill_of(&path, place) {
            Ok(skill) => skills.push(skill),
            // Another file may be any page.
            Err(_) if !is_named => {}
            Err(why) => problems.push(format!("the skill {} is not used: {why}", path.display())),
        }
    }
    skills
}

pub(super) fn skill_of(path: &Path, place: &Place) -> Result<Skill, String> {
    let text = text_of(path, place.within.as_deref())?;
    let (front, _) = split(&text).map_err(|error| error.to_string())?;
    let directory =
        if path.file_name().is_some_and(|name| name == SKILL_FILE) { path.parent() } else { None };
    let fallback = directory.and_then(Path::file_name).or_else(|| path.file_stem()).unwrap_or_default();
    let written = front.text("name").unwrap_or_else(|| fallback.to_string_lossy().into_owned());
    let name = slug(&written);
    if name.is_empty() {
        return Err(format!("`{}` cannot be typed as a name", in_one_line(&written, 60)));
    }
    let Some(description) = front.text("description") else {
        return Err("it has no `description` between two lines `---`".to_owned());
    };
    let mut notes = without_counterpart(&front);
    if name != written {
        notes.push(format!("its name `{}` is typed as `{name}`", in_one_line(&written, 60)));
    }
    if description.chars().count() > MOST_DESCRIPTION {
        notes.push(format!("its description is cut after {MOST_DESCRIPTION} characters"));
    }
    let more = front.text("when_to_use").map_or(String::new(), |more| format!(" {more}"));
    Ok(Skill {
        name,
        description: in_one_line(&format!("{description}{more}"), MOST_DESCRIPTION),
        path: path.to_owned(),
        scope: place.scope,
        package: None,
        for_model: front.flag("disable-model-invocation") != Some(true),
        for_person: front.flag("user-invocable") != Some(false),
        hint: in_one_line(&front.text(super::frontmatter::HINT).unwrap_or_default(), 100),
        notes,
        within: place.within.clone(),
        place: place.path.clone(),
        bytes: text.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::places::PlaceKind;

    fn place(path: &Path, files: bool) -> Place {
        let path = path.to_owned();
        let (kind, scope) = (PlaceKind::Skills, ResourceScope::User);
        Place { kind, scope, path, within: None, nested: false, dollars: false, files }
    }

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn skills_are_found_with_what_their_files_say() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        write(
            top.join("one/SKILL.md"),
            "---\nname: One\ndescription: First.\nallowed-tools: Bash\n---\nDo it.",
        );
        write(top.join("one/inner/SKILL.md"), "---\ndescription: part of one\n---\n");
        write(
            top.join("group/two/SKILL.md"),
            "---\ndescription: Second.\ndisable-model-invocation: true\n---\n",
        );
        write(top.join("three.md"), "---\ndescription: Third.\n---\n");
        write(top.join("README.md"), "# no skill");
        write(top.join(".hidden/SKILL.md"), "---\ndescription: no\n---\n");
        write(top.join("bad/SKILL.md"), "---\nname: bad\n---\n");
        write(top.join("half/SKILL.md"), "---\nname: ha");
        let mut problems = Vec::new();
        let skills = skills_in(&place(top, true), &mut problems);
        let names: Vec<_> = skills.iter().map(|skill| (&*skill.name, skill.for_model)).collect();
        assert_eq!(names, [("two", false), ("one", true), ("three", true)]);
        assert_eq!(skills[1].notes.len(), 2, "{:?}", skills[1].notes);
        assert!(problems.iter().any(|one| one.contains("bad/SKILL.md is not used: it has no `description`")));
        assert!(problems.iter().any(|one| one.contains("line 1: `---` is not closed")), "{problems:?}");
        assert_eq!(problems.len(), 2);
        assert_eq!(skills_in(&place(top, false), &mut Vec::new()).len(), 2);
    }

    #[test]
    fn skill_of_a_project_that_links_outside_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        write(dir.path().join("secret/SKILL.md"), "---\ndescription: Secret.\n---\n");
        std::fs::create_dir_all(root.join("skills/file")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("skills/linked")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret/SKILL.md"), root.join("skills/file/SKILL.md"))
            .unwrap();
        let mut problems = Vec::new();
        let place = Place { within: Some(root.clone()), ..place(&root.join("skills"), false) };
        assert_eq!(skills_in(&place, &mut problems), []);
        assert!(problems.iter().all(|one| one.contains("is outside")) && problems.len() == 2, "{problems:?}");
    }
}
