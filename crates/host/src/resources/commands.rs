//! Skills and templates as commands.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_protocol::{CommandSpec, CommandValue, Content, Provenance, UserInput};

use super::expand::{Arguments, NamedFile, filled, named_files, with_arguments, with_commands};
use super::files::text_of;
use super::frontmatter::split;
use super::places::ResourceScope;
use super::set::ResourceSet;
use super::skill::Skill;
use super::template::{Template, TemplateOrigin};
use crate::Failure;
use crate::commands::{CommandCall, CommandHandler, CommandRegistry};

const SOURCES: [&str; 7] = [
    "your skill",
    "skill of the project",
    "your template",
    "template of the project",
    "template",
    "skill of a package",
    "template of a package",
];

/// Offers the skills and templates of a set in place of those that were offered before. What has its name already is not offered; why, for
/// people.
pub(super) fn offer(registry: &CommandRegistry, set: &ResourceSet) -> Vec<String> {
    for source in SOURCES {
        registry.remove(source);
    }
    let mut taken: Vec<(String, String)> =
        registry.list().into_iter().map(|spec| (spec.name, spec.source)).collect();
    let mut problems = Vec::new();
    let mut add = |name: String, hint: &str, help: &str, source: &str, handler: Arc<dyn CommandHandler>| {
        if let Some((_, owner)) = taken.iter().find(|(known, _)| *known == name) {
            return Some(owner.clone());
        }
        let help: String = help.chars().take(190).collect();
        let hint: String = hint.chars().take(190).collect();
        let spec = CommandSpec::new(name.clone(), help, source).with_arguments(hint);
        if let Err(error) = registry.register(spec, handler) {
            return Some(error.to_string());
        }
        taken.push((name, source.to_owned()));
        None
    };
    for template in &set.templates {
        let source = match &template.origin {
            TemplateOrigin::BuiltIn(_) => SOURCES[4],
            TemplateOrigin::File { scope: ResourceScope::User, .. } => SOURCES[2],
            TemplateOrigin::File { scope: ResourceScope::Project, .. } => SOURCES[3],
            TemplateOrigin::File { scope: ResourceScope::Package, .. } => SOURCES[6],
        };
        let handler = Arc::new(TemplateCommand(template.clone()));
        let owner = add(template.name.clone(), &template.hint, &template.description, source, handler);
        if let (Some(owner), Some(path)) = (owner, template.origin.path()) {
            let name = &template.name;
            problems.push(format!("the template {} is not used: /{name} is taken ({owner})", path.display()));
        }
    }
    for skill in set.skills.iter().filter(|skill| skill.for_person) {
        let source = match skill.scope {
            ResourceScope::User => SOURCES[0],
            ResourceScope::Project => SOURCES[1],
            ResourceScope::Package => SOURCES[5],
        };
        let hint = if skill.hint.is_empty() { "[TEXT]" } else { skill.hint.as_str() };
        let handler = Arc::new(SkillCommand(skill.clone()));
        let name = format!("skill:{}", skill.name).chars().take(64).collect();
        add(name, hint, &skill.description, source, handler.clone());
        // Where the short name is taken, the long one is there.
        add(skill.name.clone(), hint, &skill.description, source, handler);
    }
    problems
}

/// Refuses what belongs to another project than the session works in.
fn belongs_here(scope: ResourceScope, within: Option<&Path>, call: &CommandCall) -> Result<(), Failure> {
    let within = within.filter(|_| scope == ResourceScope::Project);
    let (Some(root), Some(session)) = (within, &call.session) else { return Ok(()) };
    if session.cwd().starts_with(root) {
        return Ok(());
    }
    let (root, cwd) = (root.display(), session.cwd().display());
    Err(Failure::request(format!("it belongs to the project {root}, and this session works in {cwd}")))
}

struct TemplateCommand(Template);

impl CommandHandler for TemplateCommand {
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
        Box::pin(std::future::ready(self.expand(call)))
    }
}

impl TemplateCommand {
    fn expand(&self, call: &CommandCall) -> Result<CommandValue, Failure> {
        let template = &self.0;
        if let TemplateOrigin::File { scope, within, .. } = &template.origin {
            belongs_here(*scope, within.as_deref(), call)?;
        }
        let text = template.origin.text().map_err(Failure::request)?;
        let (_, body) = split(&text).map_err(Failure::request)?;
        let arguments = Arguments::of(&call.arguments);
        let text = with_arguments(body, &arguments, &template.arguments, template.dollars);
        let text = text.map_err(Failure::request)?;
        let text = with_commands(text.trim());
        if text.trim().is_empty() {
            return Err(Failure::request("it is empty without arguments"));
        }
        let files = match &call.session {
            Some(session) => named_files(&text, session.cwd()),
            None => Vec::new(),
        };
        let source = match &template.origin {
            TemplateOrigin::File { scope: ResourceScope::Project | ResourceScope::Package, .. } => {
                Some(Provenance::tool().named(format!("template {}", template.name)))
            }
            TemplateOrigin::BuiltIn(_) | TemplateOrigin::File { scope: ResourceScope::User, .. } => None,
        };
        let mut parts = vec![(text, source)];
        for NamedFile { path, text } in files {
            parts.push((text, Some(Provenance::tool().named(format!("file {}", path.display())))));
        }
        Ok(CommandValue::Prompt { input: apart(parts) })
    }
}

struct SkillCommand(Skill);

impl CommandHandler for SkillCommand {
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
        Box::pin(std::future::ready(self.expand(call)))
    }
}

impl SkillCommand {
    fn expand(&self, call: &CommandCall) -> Result<CommandValue, Failure> {
        let Skill { name, path, scope, within, .. } = &self.0;
        belongs_here(*scope, within.as_deref(), call)?;
        let text = text_of(path, within.as_deref());
        let text = text.map_err(|why| Failure::request(format!("{}: {why}", path.display())))?;
        let (_, body) = split(&text).map_err(Failure::request)?;
        let arguments = Arguments::of(&call.arguments);
        let (body, is_used) = filled(body, &arguments, &[], false).map_err(Failure::request)?;
        let body = with_commands(body.trim());
        let (path, directory) = (path.display(), self.0.directory().display());
        let text = format!(
            "<skill name=\"{name}\" location=\"{path}\">\nReferences are relative to {directory}.\n\n{}\n</skill>",
            body.trim_end()
        );
        let source = match scope {
            ResourceScope::Project | ResourceScope::Package => {
                Some(Provenance::tool().named(format!("skill {name}")))
            }
            ResourceScope::User => None,
        };
        let mut parts = vec![(text, source)];
        if !is_used && !arguments.raw().is_empty() {
            parts.push((arguments.raw().to_owned(), None));
        }
        Ok(CommandValue::Prompt { input: apart(parts) })
    }
}

/// A message of texts with an empty line between them: those of a source are set apart, the others are the person's.
fn apart(parts: Vec<(String, Option<Provenance>)>) -> UserInput {
    let mut input = UserInput::new(Vec::new());
    let last = parts.len().saturating_sub(1);
    for (at, (mut text, source)) in parts.into_iter().enumerate() {
        // Blocks are joined by one line end.
        if at < last {
            text.push('\n');
        }
        match source {
            Some(source) => input.add(text, source),
            None => input.content.push(Content::text(text)),
        }
    }
    input
}
