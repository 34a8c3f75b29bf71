//! What is written into the configuration of an agent, as data.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// What is to be written so that an agent calls its hooks.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The files, in no order.
    pub files: Vec<ConfigurationFile>,
    /// What the person has to do in the agent after that; `None` where nothing is left.
    pub remark: Option<&'static str>,
}

/// A file of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigurationFile {
    /// Where it lies: the first place whose variable is set counts.
    pub places: &'static [ConfigurationPlace],
    /// What it is to hold.
    pub content: ConfigurationContent,
}

/// A place that an environment variable names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigurationPlace {
    /// The variable that holds a directory.
    pub variable: &'static str,
    /// The file below that directory.
    pub path: &'static str,
}

/// What a file is to hold.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigurationContent {
    /// The file is Quipu's own and holds this text.
    Own(String),
    /// The file is the user's JSON; these values stand in it beside what is there.
    Json(Vec<JsonAddition>),
}

/// A value of a JSON file.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonAddition {
    /// The members that lead to it from the top; those that are missing are made as objects.
    pub members: Vec<String>,
    /// How it is added there.
    pub value: JsonValue,
}

/// How a value is added.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonValue {
    /// As an element of the list that the members lead to, which is made where it is missing. An equal element is not added again.
    Element(Value),
    /// As the member itself.
    Member(Value),
}

impl ConfigurationFile {
    /// The path of the file, by the environment; `None` where none of the variables is set.
    pub fn path(&self, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        self.places.iter().find_map(|place| Some(variable(place.variable)?.join(place.path)))
    }
}

/// The command line of a hook, for a shell: without the program, or where it fails, the agent sees nothing of it.
pub(crate) fn command(program: &Path, agent: &str, event: &str) -> String {
    format!("{} hook {agent} {event} 2>/dev/null || true", quoted(&program.to_string_lossy()))
}

/// A word of a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Hooks in the form that several agents share: groups by event, each with a matcher of tools and a list of commands.
pub(crate) fn grouped_hooks(
    program: &Path,
    agent: &str,
    events: &[(&str, Option<&str>)],
    timeout: u64,
) -> Vec<JsonAddition> {
    let addition = |(event, matcher): &(&str, Option<&str>)| {
        let hook =
            json!({ "type": "command", "command": command(program, agent, event), "timeout": timeout });
        let mut group = json!({ "hooks": [hook] });
        if let Some(matcher) = matcher {
            group["matcher"] = json!(matcher);
        }
        JsonAddition {
            members: vec!["hooks".to_owned(), (*event).to_owned()],
            value: JsonValue::Element(group),
        }
    };
    events.iter().map(addition).collect()
}

/// A plugin in JavaScript that calls the hooks, with what the plugins share in place of its line `// ASK`.
pub(crate) fn plugin(text: &str, program: &Path, agent: &str) -> String {
    let ask = include_str!("plugin_ask.js").trim_end();
    let ask =
        ask.replace("\"AGENT\"", &literal(agent)).replace("\"QUIPU\"", &literal(&program.to_string_lossy()));
    text.replace("// ASK", &ask)
}

/// A literal of JavaScript, which JSON is.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}
