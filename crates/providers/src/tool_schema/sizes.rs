//! Schemas without the keywords that bound how long a string or a list is: some servers refuse them.

use serde_json::Value;

use super::{each_schema, each_schema_mut};

/// Keywords that are not taken.
const DROPPED: [&str; 6] = ["minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"];

/// Whether a schema has one of them.
pub(super) fn has(value: &Value) -> bool {
    let Value::Object(members) = value else { return false };
    let mut found = DROPPED.iter().any(|name| members.contains_key(*name));
    each_schema(members, &mut |inner| found |= has(inner));
    found
}

/// Takes them out.
pub(super) fn drop_from(value: &mut Value) {
    let Value::Object(members) = value else { return };
    members.retain(|name, _| !DROPPED.contains(&name.as_str()));
    each_schema_mut(members, &mut drop_from);
}
