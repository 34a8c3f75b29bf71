//! Answers of a form, where a server can hold its model to that.

mod subset;

use std::sync::LazyLock;

use quipu_protocol::{Json, Model, ModelRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CallOptions;
use crate::model_rows::ModelRow;
use crate::search;

/// What the form is called on the wire.
const NAME: &str = "output";

/// Models whose servers take a form without being told that they do.
static TABLE: LazyLock<Vec<ModelRow>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Table {
        rows: Vec<ModelRow>,
    }
    let table = serde_json::from_str(include_str!("../data/output_schema.json"));
    table.map(|Table { rows }| rows).unwrap_or_default()
});

/// What a server does about forms where nobody has said anything of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormDefault {
    /// Every server of the API takes them.
    Taken,
    /// The models of the table do.
    Listed,
}

/// The JSON Schema that a request's answer is to fit. `compat.supportsOutputSchema` of the model comes before what is known of
/// it. Summaries and the like have no tools, and no form.
fn wanted(request: &ModelRequest, options: &CallOptions, default: FormDefault) -> Option<Value> {
    let schema = options.output_schema.as_ref().filter(|_| !request.tools.is_empty())?;
    let model = &*request.model;
    let own = model.compat.as_ref().map(Json::value).unwrap_or_default();
    let own = own.get("supportsOutputSchema").and_then(Value::as_bool);
    let is_known = || default == FormDefault::Taken || is_listed(model);
    let schema = schema.value();
    // The root of a form is an object on every wire.
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    (own.unwrap_or_else(is_known) && is_object).then_some(schema)
}

fn is_listed(model: &Model) -> bool {
    TABLE.iter().any(|row| row.covers(model))
}

/// The form with its name. What a schema may say differs, so it is not strict.
pub(crate) fn format(request: &ModelRequest, options: &CallOptions, default: FormDefault) -> Option<Value> {
    let schema = wanted(request, options, default)?;
    Some(json!({ "name": NAME, "schema": schema, "strict": false }))
}

/// The schema alone, for models of the table. Not beside a search of the provider, whose answers have citations.
pub(crate) fn schema(request: &ModelRequest, options: &CallOptions) -> Option<Value> {
    wanted(request, options, FormDefault::Listed).filter(|_| !search::is_offered(request, options.web_search))
}

/// The same for a server that takes a part of JSON Schema only and refuses the rest: what can be left out is, since the answer
/// is checked anyway. `None` for a schema that cannot be said so.
pub(crate) fn plain_schema(request: &ModelRequest, options: &CallOptions) -> Option<Value> {
    subset::of(&schema(request, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_the_table_are_in_the_catalogue() {
        assert!(!TABLE.is_empty());
        TABLE.iter().for_each(|row| row.check(|_| true));
    }
}
