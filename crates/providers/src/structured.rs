//! Answers of a form, where a server can hold its model to that.

use quipu_protocol::{Json, ModelRequest};
use serde_json::{Value, json};

use crate::CallOptions;

/// What the form is called on the wire.
const NAME: &str = "output";

/// The JSON Schema that a request's answer is to fit. `compat.supportsOutputSchema` of the model comes before what its API does.
/// Summaries and the like have no tools, and no form.
pub(crate) fn format(request: &ModelRequest, options: &CallOptions, by_default: bool) -> Option<Value> {
    let schema = options.output_schema.as_ref().filter(|_| !request.tools.is_empty())?;
    let own = request.model.compat.as_ref().map(Json::value).unwrap_or_default();
    let is_known = own.get("supportsOutputSchema").and_then(Value::as_bool).unwrap_or(by_default);
    let schema = schema.value();
    // The root of a form is an object on every wire; what else it may say differs, so it is not strict.
    (is_known && schema.get("type").and_then(Value::as_str) == Some("object"))
        .then(|| json!({ "name": NAME, "schema": schema, "strict": false }))
}
