//! The tool that finds tools: it stands in the prompt where their definitions would be too many.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use quipu_protocol::{Json, ToolSpec};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};
use serde::Deserialize;
use serde_json::json;

use crate::definition::Definition;
use crate::limits::SEARCH_RESULTS;
use crate::server::Server;

/// What the model calls to search.
pub(crate) const NAME: &str = "mcp_search";
/// Longer texts are no words to search for.
const QUERY_BYTES: usize = 1_000;
/// Bytes of a description in what it finds.
const DESCRIPTION: usize = 600;

/// A tool that is there to be called or found.
#[derive(Debug, Clone)]
pub(crate) struct OfferedTool {
    /// Its name for the model.
    pub(crate) name: String,
    pub(crate) definition: Definition,
    pub(crate) server: Arc<Server>,
    /// The name of the server in the store of definitions.
    pub(crate) key: String,
}

/// What is searched.
pub(crate) trait ToolIndex: Send + Sync {
    /// All tools that are known, by server and name.
    fn offered(&self) -> Vec<OfferedTool>;

    /// These can be called from the next request on.
    fn load(&self, names: &[String]);
}

/// Finds tools by words, and makes them callable.
pub(crate) struct SearchTool {
    spec: ToolSpec,
    tools: Weak<dyn ToolIndex>,
}

#[derive(Deserialize)]
struct Arguments {
    query: String,
}

impl SearchTool {
    /// For servers with so many tools each.
    pub(crate) fn new(servers: &[(String, usize)], tools: Weak<dyn ToolIndex>) -> Self {
        let listed: Vec<String> =
            servers.iter().map(|(name, count)| format!("{name} ({count} tools)")).collect();
        let description = format!(
            "Finds tools of MCP servers by words and makes them callable. Their definitions are not in this prompt: search \
             before you conclude that there is no tool for something. Servers: {}.",
            listed.join(", ")
        );
        let parameters = Json::from(json!({
            "type": "object",
            "properties": { "query": {
                "type": "string",
                "description": "Words of the name or the description of a tool, or the name of a server",
            } },
            "required": ["query"],
            "additionalProperties": false,
        }));
        Self { spec: ToolSpec { name: NAME.into(), description, parameters }, tools }
    }
}

impl Tool for SearchTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        _: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let query = match call.args.read::<Arguments>() {
                Ok(arguments) if arguments.query.len() <= QUERY_BYTES => arguments.query,
                Ok(_) => return ToolOutput::error(format!("The query has more than {QUERY_BYTES} bytes.")),
                Err(error) => return ToolOutput::error(format!("Invalid arguments: {error}")),
            };
            let Some(tools) = self.tools.upgrade() else {
                return ToolOutput::error("The MCP servers of this session are closed.");
            };
            let all = tools.offered();
            let found = matches(&query, &all);
            if found.is_empty() {
                return ToolOutput::text(format!(
                    "No tool matches {query:?}. Use other words, or the name of a server."
                ));
            }
            tools.load(&found.iter().map(|one| one.name.clone()).collect::<Vec<_>>());
            let mut text = format!(
                "{} of {} tools match. They can be called from your next answer on:\n",
                found.len(),
                all.len()
            );
            for one in found {
                let spec = one.definition.spec(&one.name);
                let mut description = spec.description;
                description.truncate(description.floor_char_boundary(DESCRIPTION));
                text.push_str(&format!("\n{}: {description}\nparameters: {}\n", one.name, spec.parameters));
            }
            ToolOutput::text(text)
        })
    }
}

/// The tools that have most of the words, the best first; of equal ones the first by name.
fn matches<'a>(query: &str, tools: &'a [OfferedTool]) -> Vec<&'a OfferedTool> {
    let words: Vec<String> = words(query).collect();
    let mut scored: Vec<(usize, &OfferedTool)> = tools
        .iter()
        .map(|tool| {
            let name: Vec<String> = self::words(&tool.name).collect();
            let description = tool.definition.description.to_lowercase();
            let score = words.iter().map(|word| {
                let in_name = if name.contains(word) {
                    4
                } else {
                    usize::from(name.iter().any(|part| part.contains(word.as_str()))) * 2
                };
                in_name + usize::from(description.contains(word.as_str()))
            });
            let exact = if tool.name == query.trim() { 1_000 } else { 0 };
            (score.sum::<usize>() + exact, tool)
        })
        .filter(|(score, _)| *score > 0)
        .collect();
    scored.sort_by(|(one, a), (other, b)| other.cmp(one).then_with(|| a.name.cmp(&b.name)));
    scored.into_iter().take(SEARCH_RESULTS).map(|(_, tool)| tool).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty() && *word != "mcp");
    words.map(str::to_lowercase).collect::<Vec<_>>().into_iter()
}
