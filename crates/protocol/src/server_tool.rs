//! What a provider's own tools did in an answer, such as its web search: blocks of messages that other readers leave alone.

use serde::{Deserialize, Serialize};

use crate::content::tag;
use crate::{Content, Json};

/// Characters of a summary at most.
const SUMMARY: usize = 300;
/// The `type` of such blocks.
const TYPE: &str = "serverTool";

/// A block about a tool that ran at the provider. JSON form: an object with the `type` `serverTool`, in
/// [`Content::Other`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename = "serverTool", rename_all = "camelCase")]
pub struct ServerToolBlock {
    /// The provider's name of the tool, such as `web_search`.
    #[serde(default)]
    pub tool: String,
    /// What was looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<String>,
    /// Addresses of what was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The provider's word for what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the provider sent, as JSON text, which it wants back unchanged. Absent where it wants nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl ServerToolBlock {
    /// The name of a search of the web.
    pub const SEARCH: &str = "web_search";

    /// A block of this tool that says nothing yet.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), ..Self::default() }
    }

    /// The block in the content of a message; `None` for another type of block.
    pub fn of(content: &Content) -> Option<Self> {
        match content {
            Content::Other(json) => Self::of_json(json),
            Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::ToolCall(_) => None,
        }
    }

    /// The same, of the JSON form.
    pub fn of_json(json: &Json) -> Option<Self> {
        let is_one = tag(json.get(), "\"type\"").is_some_and(|kind| kind == TYPE);
        is_one.then(|| json.read().ok()).flatten()
    }

    /// The block as content of a message.
    pub fn into_content(self) -> Content {
        Content::Other(Json::of(&self).unwrap_or_default())
    }

    /// Whether it is a search that was made, and not what it found.
    pub fn is_search(&self) -> bool {
        self.tool == Self::SEARCH && self.sources.is_empty() && self.error.is_none()
    }

    /// The summary, and the addresses of what was found, a line each.
    pub fn text(&self) -> String {
        let summary = Some(self.summary()).filter(|summary| !summary.is_empty());
        summary.iter().chain(&self.sources).map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// What it did, in a line for people; may be empty.
    pub fn summary(&self) -> String {
        let tool = if self.tool.starts_with("web_search") { "the web" } else { self.tool.as_str() };
        let line = match (&self.error, self.queries.is_empty(), self.sources.len()) {
            (Some(error), ..) => format!("the search of {tool} failed: {error}"),
            (None, false, _) => format!("searched {tool}: {}", self.queries.join("; ")),
            (None, true, 0) => return String::new(),
            (None, true, 1) => "found 1 page".to_owned(),
            (None, true, count) => format!("found {count} pages"),
        };
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(SUMMARY).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_survives_its_json_form() {
        let data = Some(r#"{"type":"web_search_call","n":1.0}"#.to_owned());
        let block = ServerToolBlock {
            queries: vec!["a\nb".into(), "c".into()],
            data,
            ..ServerToolBlock::new("web_search")
        };
        let content = block.clone().into_content();
        let text = serde_json::to_string(&content).unwrap();
        assert!(text.starts_with(r#"{"type":"serverTool","tool":"web_search","queries""#), "{text}");
        let again: Content = serde_json::from_str(&text).unwrap();
        assert_eq!(ServerToolBlock::of(&again), Some(block.clone()));
        assert_eq!(block.summary(), "searched the web: a b; c");
        assert_eq!(
            ServerToolBlock::of(&Content::Other(Json::parse(r#"{"type":"x","y":"serverTool"}"#).unwrap())),
            None
        );
        let failed =
            ServerToolBlock { error: Some("max_uses_exceeded".into()), ..ServerToolBlock::new("web_search") };
        assert_eq!(failed.summary(), "the search of the web failed: max_uses_exceeded");
    }
}
