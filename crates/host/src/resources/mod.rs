//! What a user and a project keep for agents beside settings: skills, prompt templates, sub-agents, and the files of rules of other agents.
//!
//! A table of places says where they lie. Skills are listed in the system prompt, and the model reads them when a task needs
//! one; skills and templates are commands. What a project brings along is used once a person trusts it. Nothing is run here: what
//! a skill or a template wants to run, the model runs with its tools, as permissions have it.

mod agent;
mod commands;
mod expand;
mod files;
mod frontmatter;
mod listing;
mod nested;
mod package;
mod path_rules;
mod places;
mod rule_list;
mod set;
mod skill;
mod template;
mod trust;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use agent::AgentFile;
pub(crate) use expand::command_words;
pub use listing::SKILLS_BUDGET;
pub(crate) use listing::SkillsSource;
pub(crate) use nested::NestedRules;
pub use package::package_resources;
pub use path_rules::PathRules;
pub use places::ResourceScope;
pub(crate) use places::UserBases;
pub use rule_list::found_rules;
pub(crate) use rule_list::rules_above;
pub use set::ResourceSet;
pub use skill::Skill;
pub use template::{Template, TemplateOrigin};
pub use trust::ProjectResources;

use crate::settings::project_root;
use crate::{Failure, Home, OpenRequest};

/// What of all this a place remembers. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResourceMemory {
    bases: UserBases,
    /// Problems that were reported.
    told: Arc<Mutex<BTreeSet<String>>>,
}

impl ResourceMemory {
    /// With the directories of other agents that an environment names.
    pub(crate) fn new(bases: UserBases) -> Self {
        Self { bases, told: Arc::default() }
    }

    /// Those of the texts that were not told before.
    fn new_ones(&self, texts: Vec<String>) -> Vec<String> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        texts.into_iter().filter(|text| told.insert(text.clone())).collect()
    }
}

/// The skills, templates and files of rules that are the user's own.
pub fn user_resources(home: &Home) -> ResourceSet {
    ResourceSet::of(&places::user_places(&home.dir, &home.resources.bases))
}

/// What the project that `cwd` is in brings along; `None` where it brings nothing, or what is there is the user's own.
pub fn project_resources(home: &Home, cwd: &Path) -> Option<ProjectResources> {
    let root = project_root(cwd);
    if std::env::home_dir().is_some_and(|own| own == root) {
        return None;
    }
    let own = places::user_places(&home.dir, &home.resources.bases);
    let set = ResourceSet::of(&places::project_places(root, cwd, &own));
    let levels = cwd.ancestors().take_while(|level| level.starts_with(root) && **level != home.dir);
    let mut open_rules: Vec<PathBuf> = levels.flat_map(quipu::rules_files_in).collect();
    open_rules.reverse();
    if home.config_in(cwd).persona {
        let files = crate::persona::workspace_paths(cwd).filter(|path| path.is_file());
        let files: Vec<PathBuf> = files.filter(|path| !open_rules.contains(path)).collect();
        open_rules.extend(files);
    }
    let is_empty = set.is_empty() && open_rules.is_empty();
    (!is_empty).then(|| ProjectResources::new(root.to_owned(), set.distinct(), open_rules))
}

/// Whether a person decided that what a project brings along is used; `None` where nobody did.
pub fn project_decision(home: &Home, project: &ProjectResources) -> Option<bool> {
    project.decision(home)
}

/// Uses what a project brings along from now on.
///
/// # Errors
/// Where the permissions cannot be written.
pub fn trust_resources(home: &Home, project: &ProjectResources) -> Result<(), Failure> {
    project.decide(home, true)
}

/// Uses nothing of what a project brings along from now on, `AGENTS.md` included.
///
/// # Errors
/// Where the permissions cannot be written.
pub fn refuse_resources(home: &Home, project: &ProjectResources) -> Result<(), Failure> {
    project.decide(home, false)
}

/// All that counts in a directory as a person decided about its project; and what the project brings along, where that is not used.
pub fn resources_in(home: &Home, cwd: &Path) -> (ResourceSet, Option<ProjectResources>) {
    let project = project_resources(home, cwd);
    let is_used = project.as_ref().is_some_and(|project| project.decision(home) == Some(true));
    let mut set = all_resources(home, project.as_ref().filter(|_| is_used));
    set.leaves_project = project.as_ref().is_some_and(|project| project.is_refused(home));
    (set, project.filter(|_| !is_used))
}

/// All that counts in a directory: the user's own, then that of the project where `project` is some, that of packages, and that of
/// Quipu itself.
pub fn all_resources(home: &Home, project: Option<&ProjectResources>) -> ResourceSet {
    let built_in = ResourceSet { templates: template::built_in(), ..ResourceSet::default() };
    let project = project.map(|project| project.set.clone()).unwrap_or_default();
    user_resources(home).with(project).with(package::of_packages(home)).with(built_in).distinct()
}

/// The resources of a session in `cwd`, offered as commands. A person is asked about those of a project.
///
/// # Errors
/// [`FailureKind::Asks`](crate::FailureKind::Asks) where that has to be answered first.
pub(crate) fn of_session(home: &Home, request: &OpenRequest, cwd: &Path) -> Result<ResourceSet, Failure> {
    let project =
        project_resources(home, cwd).filter(|project| !project.set.is_empty() || !request.no_context_files);
    let is_used = match &project {
        Some(project) => project.is_used(home, request)?,
        None => false,
    };
    let mut set = all_resources(home, project.as_ref().filter(|_| is_used));
    set.leaves_project = project.is_some_and(|project| project.is_refused(home));
    let mut problems = set.problems.clone();
    problems.extend(commands::offer(home.commands(), &set));
    for problem in home.resources.new_ones(problems) {
        home.warn(problem);
    }
    Ok(set)
}

/// Bytes of the skills of a set in the system prompt.
pub fn skills_bytes(set: &ResourceSet) -> usize {
    SkillsSource::new(&set.skills).0.map_or(0, |source| source.bytes())
}

/// Directories of the user's skills and of packages, which tools may read: where they lie, and where links in them lead.
pub(crate) fn readable(home: &Home) -> Vec<PathBuf> {
    let places = places::user_places(&home.dir, &home.resources.bases);
    let skills = places.into_iter().filter(|place| place.kind == places::PlaceKind::Skills);
    let mut directories: Vec<PathBuf> = crate::packages::package_roots(home);
    for place in skills.filter(|place| place.path.is_dir()) {
        directories.extend(place.path.canonicalize());
        let entries = std::fs::read_dir(&place.path).into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())).take(500);
        directories
            .extend(links.filter_map(|link| link.path().canonicalize().ok()).filter(|path| path.is_dir()));
        directories.push(place.path);
    }
    directories.sort_unstable();
    directories.dedup();
    directories
}
