//! Skills, templates and agents of packages.

use std::path::Path;

use super::agent::agents_in;
use super::files::{slug, text_of};
use super::places::{Place, PlaceKind, ResourceScope};
use super::set::ResourceSet;
use super::skill::skill_of;
use super::template::{TemplateOrigin, template_of};
use crate::Home;
use crate::packages::{AGENTS, PackageContent, usable_packages};

/// What a package in a directory gives, as sessions get it.
pub fn package_resources(name: &str, root: &Path, content: &PackageContent) -> ResourceSet {
    let mut set = ResourceSet::default();
    for path in &content.skills {
        let file = root.join(path);
        let directory = file.parent().unwrap_or(root);
        let is_whole = file.file_name().is_some_and(|name| name == super::skill::SKILL_FILE);
        let parent = directory.parent().filter(|parent| is_whole && parent.starts_with(root));
        let place = Place {
            kind: PlaceKind::Skills,
            scope: ResourceScope::Package,
            path: parent.unwrap_or(directory).to_owned(),
            within: Some(root.to_owned()),
            nested: false,
            dollars: false,
            files: true,
        };
        match skill_of(&file, &place) {
            Ok(mut skill) => {
                skill.package = Some(name.to_owned());
                skill.notes.extend(hidden(&file));
                set.skills.push(skill);
            }
            Err(why) => {
                set.problems.push(format!("the skill {path} of the package {name} is not used: {why}"));
            }
        }
    }
    if !content.agents.is_empty() {
        let place = Place {
            kind: PlaceKind::Agents,
            scope: ResourceScope::Package,
            path: root.join(AGENTS),
            within: Some(root.to_owned()),
            nested: false,
            dollars: false,
            files: false,
        };
        let mut agents = agents_in(&place, &mut set.problems);
        agents.iter_mut().for_each(|agent| agent.notes.extend(hidden(&agent.path)));
        set.agents = agents;
    }
    for template in &content.templates {
        let file = root.join(&template.path);
        let typed: Vec<String> = template.name.split(':').map(slug).collect();
        let read = || {
            if typed.iter().any(String::is_empty) {
                return Err("its name cannot be typed".to_owned());
            }
            let text = text_of(&file, Some(root))?;
            let origin = TemplateOrigin::File {
                path: file.clone(),
                scope: ResourceScope::Package,
                package: Some(name.to_owned()),
                within: Some(root.to_owned()),
            };
            template_of(typed.join(":").chars().take(64).collect(), &text, origin, false)
        };
        match read() {
            Ok(mut template) => {
                template.notes.extend(hidden(&file));
                set.templates.push(template);
            }
            Err(why) => {
                let path = &template.path;
                set.problems.push(format!("the template {path} of the package {name} is not used: {why}"));
            }
        }
    }
    set
}

/// What a person should know of characters that are not seen.
fn hidden(file: &Path) -> Option<String> {
    let text = text_of(file, None).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let count = text.chars().filter(|letter| *letter != '\r' && quipu_mcp::is_invisible(*letter)).count();
    (count > 0).then(|| format!("its text has {count} invisible characters, which a model reads"))
}

/// What all packages give that are as they were accepted.
pub(super) fn of_packages(home: &Home) -> ResourceSet {
    let (packages, problems) = usable_packages(home);
    let empty = ResourceSet { problems, ..ResourceSet::default() };
    packages.iter().fold(empty, |set, package| {
        set.with(package_resources(&package.name, &package.root, &package.content))
    })
}
