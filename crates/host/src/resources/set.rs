//! What lies in the places of a user and of a project.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::agent::{AgentFile, agent_tables, agents_in};
use super::files::{Step, text_of, walk};
use super::frontmatter::split;
use super::path_rules::PathRules;
use super::places::{Place, PlaceKind};
use super::skill::{Skill, skills_in};
use super::template::{Template, TemplateOrigin, templates_in};

/// Files of rules of one place at most.
const MOST_RULES: usize = 100;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceSet {
    /// The skills, the first of each name.
    pub skills: Vec<Skill>,
    /// The templates, the first of each name.
    pub templates: Vec<Template>,
    /// The agents, the first of each name.
    pub agents: Vec<AgentFile>,
    /// Files of rules, beside those of the directories themselves.
    pub rules: Vec<PathBuf>,
    /// Files of rules that are for some files only.
    pub path_rules: Vec<PathRules>,
    /// Whether a person decided that nothing of the project is used, `AGENTS.md` included.
    pub leaves_project: bool,
    /// What is wrong with others, for people.
    pub problems: Vec<String>,
}

impl ResourceSet {
    /// All that lies in these places.
    pub(super) fn of(places: &[Place]) -> Self {
        let mut set = Self::default();
        for place in places.iter().filter(|place| place.path.is_dir()) {
            match place.kind {
                PlaceKind::Skills => set.skills.extend(skills_in(place, &mut set.problems)),
                PlaceKind::Templates => set.templates.extend(templates_in(place, &mut set.problems)),
                PlaceKind::Agents => set.agents.extend(agents_in(place, &mut set.problems)),
                PlaceKind::AgentTables => set.agents.extend(agent_tables(place, &mut set.problems)),
                PlaceKind::Rules => set.rules.extend(quipu::rules_files_in(&place.path)),
                PlaceKind::RuleFiles => set.add_rule_files(place),
            }
        }
        set
    }

    /// Adds the `.md` files of a place.
    fn add_rule_files(&mut self, place: &Place) {
        let within = place.within.as_deref();
        let mut count = 0;
        walk(&place.path, within, &mut |path, is_directory, _| {
            if !is_directory && path.extension().is_some_and(|kind| kind == "md") && count < MOST_RULES {
                count += 1;
                let front = text_of(path, within).ok().and_then(|text| Some(split(&text).ok()?.0));
                match front.filter(|front| front.has("paths")).map(|front| front.patterns("paths")) {
                    Some(patterns) if patterns.is_empty() => self.problems.push(format!(
                        "the rules {} are not used: their `paths` name no files",
                        path.display()
                    )),
                    Some(patterns) => {
                        self.path_rules.push(PathRules::new(path.to_owned(), place.scope, patterns));
                    }
                    None => self.rules.push(path.to_owned()),
                }
            }
            Step::Enter
        });
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
            && self.templates.is_empty()
            && self.agents.is_empty()
            && self.rules.is_empty()
            && self.path_rules.is_empty()
    }

    /// The same with those of another, of which those count that have a name of their own.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.skills.extend(other.skills);
        self.templates.extend(other.templates);
        self.agents.extend(other.agents);
        self.rules.extend(other.rules);
        self.path_rules.extend(other.path_rules);
        self.leaves_project |= other.leaves_project;
        self.problems.extend(other.problems);
        self
    }

    /// The first of each name. The same file twice, or the same bytes, is no problem.
    pub(super) fn distinct(mut self) -> Self {
        let mut skills: BTreeMap<String, PathBuf> = BTreeMap::new();
        let problems = &mut self.problems;
        self.skills.retain(|skill| is_first(&mut skills, &skill.name, &skill.path, "skill", problems));
        let mut agents: BTreeMap<String, PathBuf> = BTreeMap::new();
        self.agents
            .retain(|agent| is_first(&mut agents, &agent.definition.name, &agent.path, "agent", problems));
        let mut templates: BTreeMap<String, PathBuf> = BTreeMap::new();
        self.templates.retain(|template| match &template.origin {
            TemplateOrigin::BuiltIn(_) => !templates.contains_key(&template.name),
            TemplateOrigin::File { path, .. } => {
                is_first(&mut templates, &template.name, path, "template", problems)
            }
        });
        self
    }
}

fn is_first(
    known: &mut BTreeMap<String, PathBuf>,
    name: &str,
    path: &Path,
    what: &str,
    problems: &mut Vec<String>,
) -> bool {
    let Some(first) = known.get(name) else {
        known.insert(name.to_owned(), path.to_owned());
        return true;
    };
    let is_same = first.canonicalize().ok() == path.canonicalize().ok()
        || text_of(first, None).is_ok_and(|text| text_of(path, None).as_ref() == Ok(&text));
    if !is_same {
        problems.push(format!(
            "the {what} {} is not used: {} has the same name",
            path.display(),
            first.display()
        ));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::places::{UserBases, project_places, user_places};

    #[test]
    fn first_of_a_name_counts_and_copies_are_no_problem() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        let write = |path: &str, text: &str| {
            let path = top.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let skill = |text: &str| format!("---\ndescription: {text}\n---\n");
        write("own/skills/a/SKILL.md", &skill("ours"));
        write("home/.agents/skills/a/SKILL.md", &skill("ours"));
        write("home/.claude/skills/a/SKILL.md", &skill("another"));
        write("home/.claude/CLAUDE.md", "mine");
        write("home/.claude/rules/deep/x.md", "rule");
        write("home/.claude/rules/y.md", "---\npaths: src/**\n---\nrule");
        write("home/.codex/prompts/b.md", "text");
        write("project/.claude/commands/b.md", "other text");
        write("project/.agents/skills/c/SKILL.md", &skill("third"));
        let bases = UserBases::of_environment(&|_| None, Some(&top.join("home")));
        let own = user_places(&top.join("own"), &bases);
        let project = top.join("project");
        let set = ResourceSet::of(&own);
        let set = set.with(ResourceSet::of(&project_places(&project, &project, &own))).distinct();
        let skills: Vec<_> = set.skills.iter().map(|skill| (&*skill.name, &*skill.description)).collect();
        assert_eq!(skills, [("a", "ours"), ("c", "third")]);
        assert_eq!(set.templates.len(), 1);
        assert_eq!(set.rules, [top.join("home/.claude/CLAUDE.md"), top.join("home/.claude/rules/deep/x.md")]);
        let text = set.problems.join("\n");
        assert!(text.contains("has the same name"), "{text}");
        assert_eq!(set.problems.len(), 2, "{text}");
        assert_eq!(set.path_rules[0].patterns, ["src/**"]);
    }
}
