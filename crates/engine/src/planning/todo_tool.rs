//! `todo` as a tool of a model: its to-do list, which people see.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use quipu_protocol::{Json, ToolSpec};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};
use quipu_transcript::{TODO_ITEMS, TODO_TEXT, TODO_TOOL, TodoList, TodoStatus};
use serde_json::json;

static SPEC: LazyLock<ToolSpec> = LazyLock::new(|| {
    let parameters = json!({
        "type": "object",
        "properties": { "items": { "type": "array", "items": {
            "type": "object",
            "properties": {
                "text": { "type": "string" },
                "status": { "enum": ["pending", "in_progress", "done"] }
            },
            "required": ["text", "status"]
        } } },
        "required": ["items"]
    });
    ToolSpec {
        name: TODO_TOOL.into(),
        description: "Replace your to-do list; for longer tasks".into(),
        parameters: Json::from(&parameters),
    }
});

/// Replaces the list.
pub(super) struct TodoTool;

impl TodoTool {
    fn replace(mut list: TodoList) -> ToolOutput {
        if list.items.len() > TODO_ITEMS {
            let count = list.items.len();
            return ToolOutput::error(format!("The list has {count} items; the limit is {TODO_ITEMS}."));
        }
        for item in &mut list.items {
            item.text = item.text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        for (at, item) in list.items.iter().enumerate() {
            let (at, characters) = (at + 1, item.text.chars().count());
            if characters > TODO_TEXT {
                return ToolOutput::error(format!(
                    "Item {at} has {characters} characters; the limit is {TODO_TEXT}."
                ));
            }
            if characters == 0 {
                return ToolOutput::error(format!("Item {at} has no text."));
            }
        }
        let open = list.items.iter().filter(|item| item.status != TodoStatus::Done).count();
        let says = match open {
            0 => "Nothing is left to do.".to_owned(),
            open => format!("{open} of {} left.", list.items.len()),
        };
        ToolOutput { details: list.details(), ..ToolOutput::text(says) }
    }
}

impl Tool for TodoTool {
    fn spec(&self) -> &ToolSpec {
        &SPEC
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        _: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        let list = serde_json::from_value::<TodoList>(call.args.value());
        let output =
            list.map_or_else(|error| ToolOutput::error(format!("Invalid arguments: {error}")), Self::replace);
        Box::pin(std::future::ready(output))
    }
}
