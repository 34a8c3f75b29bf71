//! Tools that models of this wire call with plain text, in place of arguments.

use quipu_protocol::{Json, Model, ToolCall, ToolSpec};
use serde_json::Value;

/// The language of the grammars.
pub(super) const SYNTAX: &str = "lark";

/// Tools that these models were trained on, and the grammar of the text of each.
const KNOWN: [(&str, &str); 1] = [("apply_patch", include_str!("../../data/apply_patch.lark"))];

/// The tools of a request that are called with plain text.
#[derive(Default)]
pub(super) struct TextTools(Vec<(&'static str, &'static str)>);

impl TextTools {
    /// Those of the known tools that are declared with a string `input` and no other argument. None where the model does not
    /// take such tools.
    pub(super) fn of(tools: &[ToolSpec], are_taken: bool) -> Self {
        let is_declared = |name: &str| tools.iter().any(|tool| tool.name == name && takes_input_alone(tool));
        Self(KNOWN.into_iter().filter(|(name, _)| are_taken && is_declared(name)).collect())
    }

    /// The grammar of a tool that is called with plain text.
    pub(super) fn form_of(&self, name: &str) -> Option<&'static str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, grammar)| *grammar)
    }

    /// The text of a call of such a tool. A call with other arguments has none.
    pub(super) fn input_of(&self, call: &ToolCall) -> Option<String> {
        self.form_of(&call.name)?;
        match call.arguments.value() {
            Value::Object(mut members) if members.len() == 1 => match members.remove("input") {
                Some(Value::String(input)) => Some(input),
                Some(_) | None => None,
            },
            _ => None,
        }
    }
}

/// Whether the model is of a family that was trained on the tool `apply_patch`: those take it as text of a grammar, and the
/// catalogue says which.
pub fn is_trained_on_patches(model: &Model) -> bool {
    let compat = model.compat.as_ref().map(Json::value).unwrap_or_default();
    compat.get("supportsOpenAIGrammarTools").and_then(Value::as_bool).unwrap_or(false)
}

fn takes_input_alone(tool: &ToolSpec) -> bool {
    let schema = tool.parameters.value();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|all| {
        all.len() == 1 && all.get("input").and_then(|input| input.get("type")?.as_str()) == Some("string")
    })
}
