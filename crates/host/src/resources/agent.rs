//! Agents that the model can send: Markdown files with a head, and TOML files and tables.

use std::path::{Path, PathBuf};

use quipu::{AgentDefinition, AgentMode};
use serde_json::Value;

use super::files::{Step, in_one_line, slug, text_of, walk};
use super::frontmatter::{Frontmatter, split};
use super::places::{Place, ResourceScope};

/// Agents of one place at most.
const MOST_AGENTS: usize = 200;
/// Characters of a description that are used.
const MOST_DESCRIPTION: usize = 1_000;
/// The file that holds tables of agents.
const TABLES: &str = "config.toml";

/// Names that files use for tools, in lower case, and the names that these have here. `apply_patch` takes the place of `edit` and
/// `write` with some models.
const TOOLS: &[(&str, &[&str])] = &[
    ("read", &["read"]),
    ("edit", &["edit", "apply_patch"]),
    ("multiedit", &["edit", "apply_patch"]),
    ("write", &["write", "apply_patch"]),
    ("notebookedit", &["edit", "apply_patch"]),
    ("bash", &["bash"]),
    ("glob", &["find"]),
    ("webfetch", &["web_fetch"]),
    ("websearch", &["web_search"]),
    ("agent", &["task"]),
    ("task", &["task"]),
];

/// Members of a file that have no effect here, with the reason.
const NO_EFFECT: &[(&str, &str)] = &[
    ("hooks", "hooks belong into settings.json"),
    ("mcpServers", "the servers of the session are used"),
    ("mcp_servers", "the servers of the session are used"),
    ("skills", "the skills of the session are listed"),
    ("memory", "it has the memory of the session"),
    ("background", "its call waits for it"),
    ("initialPrompt", "the prompt of the call is the first"),
    ("nickname_candidates", "it has one name"),
];

/// An agent that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFile {
    /// What it is.
    pub definition: AgentDefinition,
    /// The path of its file.
    pub path: PathBuf,
    /// Whose it is.
    pub scope: ResourceScope,
    /// What its file says that has no effect here.
    pub notes: Vec<String>,
}

/// The agents in a place, and what is wrong with others.
pub(super) fn agents_in(place: &Place, problems: &mut Vec<String>) -> Vec<AgentFile> {
    let within = place.within.as_deref();
    let mut files = Vec::new();
    let is_whole = walk(&place.path, within, &mut |path, is_directory, _| {
        if is_directory {
            return Step::Enter;
        }
        if path.extension().is_some_and(|kind| kind == "md" || kind == "toml") {
            files.push(path.to_owned());
        }
        Step::Skip
    });
    if !is_whole || files.len() > MOST_AGENTS {
        let place = place.path.display();
        problems.push(format!("{place} holds too much; only the first {MOST_AGENTS} agents in it are used"));
    }
    files.truncate(MOST_AGENTS);
    let mut agents = Vec::new();
    for path in files {
        let read = || {
            let text = text_of(&path, within)?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            match path.extension().is_some_and(|kind| kind == "toml") {
                true => of_table(&table_of(&text)?, &stem),
                false => of_markdown(&text, &stem),
            }
        };
        match read() {
            Ok(Some((definition, notes))) => {
                agents.push(AgentFile { definition, path: path.clone(), scope: place.scope, notes });
            }
            // Another page that lies there.
            Ok(None) => {}
            Err(why) => problems.push(format!("the agent {} is not used: {why}", path.display())),
        }
    }
    agents
}

/// The agents of the tables `[agents.NAME]` of a file in a place.
pub(super) fn agent_tables(place: &Place, problems: &mut Vec<String>) -> Vec<AgentFile> {
    let (path, within) = (place.path.join(TABLES), place.within.as_deref());
    if !path.is_file() {
        return Vec::new();
    }
    let table = text_of(&path, within).and_then(|text| table_of(&text));
    let table = match table {
        Ok(table) => table,
        Err(why) => {
            problems.push(format!("the agents of {} are not used: {why}", path.display()));
            return Vec::new();
        }
    };
    let tables = table.get("agents").and_then(Value::as_object).into_iter().flatten();
    let mut agents = Vec::new();
    for (name, value) in tables.filter(|(_, value)| value.is_object()).take(MOST_AGENTS) {
        let mut file = path.clone();
        let mut read = || {
            let mut value = value.clone();
            if let Some(named) = value.get("config_file").and_then(Value::as_str).map(str::to_owned) {
                file = place.path.join(&named);
                let mut whole = table_of(&text_of(&file, within)?)?;
                if let (Some(members), Some(own)) = (whole.as_object_mut(), value.as_object()) {
                    // What stands in the table counts more.
                    members.extend(own.clone());
                }
                value = whole;
            }
            of_table(&value, name)
        };
        match read() {
            Ok(Some((definition, notes))) => {
                agents.push(AgentFile { definition, path: file, scope: place.scope, notes });
            }
            Ok(None) => {}
            Err(why) => problems.push(format!(
                "the agent {} of {} is not used: {why}",
                in_one_line(name, 60),
                path.display()
            )),
        }
    }
    agents
}

/// An agent of a file, with notes on what of it has no effect; nothing for a file that is not about one.
type ReadAgent = Option<(AgentDefinition, Vec<String>)>;

fn of_markdown(text: &str, stem: &str) -> Result<ReadAgent, String> {
    let (front, body) = split(text).map_err(|error| error.to_string())?;
    if !front.has("name") && !front.has("description") {
        return match front == Frontmatter::default() {
            true => Ok(None),
            false => Err("it has no `description` between two lines `---`".to_owned()),
        };
    }
    let description = front.text("description").ok_or("it has no `description` between two lines `---`")?;
    let mut notes = without_effect(|name| front.has(name));
    let (name, description) = named(front.text("name").as_deref().unwrap_or(stem), &description, &mut notes)?;
    let tools = front.has("tools").then(|| tool_list(&front, "tools", &mut notes));
    let denied_tools = match front.has("disallowedTools") {
        true => tool_list(&front, "disallowedTools", &mut notes).unwrap_or_default(),
        false => Vec::new(),
    };
    let mode = front.text("permissionMode").or_else(|| front.text("mode"));
    let thinking = front.text("effort").or_else(|| front.text("thinking"));
    let turns = front.text("maxTurns").and_then(|turns| turns.parse().ok()).filter(|turns| *turns > 0);
    let definition = AgentDefinition {
        name,
        description,
        prompt: body.trim().to_owned(),
        tools: tools.flatten(),
        denied_tools,
        model: model(front.text("model")),
        thinking: thinking.and_then(|word| level(&word, &mut notes)),
        mode: mode.map_or(AgentMode::Inherit, |word| mode_of(&word, &mut notes)),
        worktree: front.text("isolation").is_some_and(|word| isolates(&word, &mut notes)),
        max_turns: turns,
    };
    Ok(Some((definition, notes)))
}

/// Whether an agent works in a worktree of its own.
fn isolates(word: &str, notes: &mut Vec<String>) -> bool {
    let is_worktree = word == "worktree";
    if !is_worktree {
        let word = in_one_line(word, 40);
        notes.push(format!("`isolation: {word}` has no effect: only `worktree` is known"));
    }
    is_worktree
}

fn of_table(table: &Value, fallback: &str) -> Result<ReadAgent, String> {
    let text =
        |name: &str| table.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let description = text("description").ok_or("it has no `description`")?;
    let prompt = text("developer_instructions").ok_or("it has no `developer_instructions`")?;
    let mut notes = without_effect(|name| table.get(name).is_some());
    let (name, description) = named(text("name").unwrap_or(fallback), description, &mut notes)?;
    let definition = AgentDefinition {
        name,
        description,
        prompt: prompt.to_owned(),
        model: model(text("model").map(str::to_owned)),
        thinking: text("model_reasoning_effort").and_then(|word| level(word, &mut notes)),
        mode: text("sandbox_mode").map_or(AgentMode::Inherit, |word| mode_of(word, &mut notes)),
        ..AgentDefinition::default()
    };
    Ok(Some((definition, notes)))
}

fn table_of(text: &str) -> Result<Value, String> {
    toml::from_str::<Value>(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: it is not valid TOML: {}", in_one_line(error.message(), 200))
    })
}

fn without_effect(has: impl Fn(&str) -> bool) -> Vec<String> {
    let said = NO_EFFECT.iter().filter(|(name, _)| has(name));
    said.map(|(name, why)| format!("`{name}` has no effect: {why}")).collect()
}

fn named(written: &str, description: &str, notes: &mut Vec<String>) -> Result<(String, String), String> {
    let name = slug(written);
    if name.is_empty() {
        return Err(format!("`{}` cannot be used as a name", in_one_line(written, 60)));
    }
    if name != written {
        notes.push(format!("its name `{}` is written `{name}`", in_one_line(written, 60)));
    }
    Ok((name, in_one_line(description, MOST_DESCRIPTION)))
}

/// The names that the tools of a list have here; `None` for all.
fn tool_list(front: &Frontmatter, member: &str, notes: &mut Vec<String>) -> Option<Vec<String>> {
    let mut tools: Vec<String> = Vec::new();
    // Rules may have spaces.
    let mut in_rule = false;
    for word in front.words(member) {
        let word = word.trim_matches(['"', '\'']);
        if in_rule {
            in_rule = !word.contains(')');
            continue;
        }
        in_rule = word.contains('(') && !word.contains(')');
        if word == "*" {
            return None;
        }
        if word.contains(['(', ')']) {
            notes.push(format!(
                "`{}` in `{member}` is left out: rules for a tool belong into settings.json",
                in_one_line(word, 60)
            ));
            continue;
        }
        let lower = word.to_ascii_lowercase();
        match TOOLS.iter().find(|(name, _)| *name == lower) {
            Some((_, ours)) => tools.extend(ours.iter().map(|&name| name.to_owned())),
            // Tools of servers keep their case.
            None if word.contains("__") => tools.push(word.to_owned()),
            None => tools.push(lower),
        }
    }
    Some(tools)
}

fn model(written: Option<String>) -> Option<String> {
    written.filter(|name| !name.eq_ignore_ascii_case("inherit"))
}

fn level(word: &str, notes: &mut Vec<String>) -> Option<quipu_protocol::Thinking> {
    let level = quipu_providers::parse_level(word);
    if level.is_none() {
        notes.push(format!(
            "`{}` is no level of thinking; that of the session is used",
            in_one_line(word, 40)
        ));
    }
    level
}

fn mode_of(word: &str, notes: &mut Vec<String>) -> AgentMode {
    match word {
        "default" | "inherit" | "workspace-write" => AgentMode::Inherit,
        "plan" | "read-only" => AgentMode::ReadOnly,
        "dontAsk" | "unasked" => AgentMode::Unasked,
        other => {
            notes.push(format!(
                "`{}` has no effect: an agent may do no more than the session",
                in_one_line(other, 40)
            ));
            AgentMode::Inherit
        }
    }
}

/// Whether a path is one of an agent, for people.
pub(super) fn shown(agent: &AgentFile, root: &Path) -> String {
    let path = agent.path.strip_prefix(root).unwrap_or(&agent.path).display();
    format!("agent     {path}  {}", in_one_line(&agent.definition.description, 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::places::PlaceKind;
    use quipu_protocol::Thinking;

    fn place(path: &Path, kind: PlaceKind) -> Place {
        let (path, scope) = (path.to_owned(), ResourceScope::User);
        Place { kind, scope, path, within: None, nested: false, dollars: false, files: false }
    }

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn agent_files_of_every_form_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        write(
            top.join("agents/review.md"),
            "---\nname: code-reviewer\ndescription: Reviews code.\ntools: Read, Grep, Edit, Bash(git *)\nmodel: haiku\n\
             permissionMode: plan\nmaxTurns: 7\nhooks:\n  a: b\n---\nYou review.\n",
        );
        write(
            top.join("agents/free.md"),
            "---\ndescription: Free.\nmodel: inherit\npermissionMode: bypassPermissions\n---\n",
        );
        write(
            top.join("agents/deep/explorer.toml"),
            "name = 'explorer'\ndescription = 'Reads.'\ndeveloper_instructions = 'Read only.'\n\
             model_reasoning_effort = 'high'\nsandbox_mode = 'read-only'\n",
        );
        write(top.join("agents/README.md"), "# no agent");
        write(top.join("agents/half.md"), "---\nname: half\n---\n");
        write(top.join("agents/broken.toml"), "name = 'x'\ndescription = ");
        let mut problems = Vec::new();
        let agents = agents_in(&place(&top.join("agents"), PlaceKind::Agents), &mut problems);
        let names: Vec<_> = agents.iter().map(|agent| &*agent.definition.name).collect();
        assert_eq!(names, ["explorer", "free", "code-reviewer"]);
        let [explorer, free, reviewer] = &*agents else { panic!() };
        assert_eq!(
            (explorer.definition.mode, explorer.definition.thinking),
            (AgentMode::ReadOnly, Some(Thinking::High))
        );
        assert_eq!((&free.definition.model, free.definition.mode), (&None, AgentMode::Inherit));
        assert!(free.notes[0].contains("no more than the session"), "{:?}", free.notes);
        let reviewer_tools = reviewer.definition.tools.as_deref().unwrap();
        assert_eq!(reviewer_tools, ["read", "grep", "edit", "apply_patch"], "a tool with a rule is left out");
        assert_eq!((reviewer.definition.mode, reviewer.definition.max_turns), (AgentMode::ReadOnly, Some(7)));
        assert_eq!((&*reviewer.definition.prompt, reviewer.notes.len()), ("You review.", 2));
        let text = problems.join("\n");
        assert!(text.contains("half.md is not used: it has no `description`"), "{text}");
        assert!(text.contains("broken.toml is not used: line 2"), "{text}");
        assert_eq!(problems.len(), 2, "{text}");
    }

    #[test]
    fn agent_tables_name_files_and_keep_to_their_root() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("project");
        write(
            top.join("config.toml"),
            "[agents]\nmax_depth = 2\n[agents.a]\ndescription = 'A.'\ndeveloper_instructions = 'Do a.'\n\
             [agents.b]\ndescription = 'B.'\nconfig_file = 'agents/b.toml'\n\
             [agents.c]\ndescription = 'C.'\nconfig_file = '../outside.toml'\n",
        );
        write(top.join("agents/b.toml"), "developer_instructions = 'Do b.'\nmodel = 'small'\n");
        write(dir.path().join("outside.toml"), "developer_instructions = 'Leave.'\n");
        let mut problems = Vec::new();
        let place = Place { within: Some(top.clone()), ..place(&top, PlaceKind::AgentTables) };
        let agents = agent_tables(&place, &mut problems);
        let found: Vec<_> =
            agents.iter().map(|one| (&*one.definition.name, &*one.definition.prompt)).collect();
        assert_eq!(found, [("a", "Do a."), ("b", "Do b.")]);
        assert_eq!(agents[1].definition.model.as_deref(), Some("small"));
        assert!(problems[0].contains("the agent c of") && problems[0].contains("outside"), "{problems:?}");
    }
}
