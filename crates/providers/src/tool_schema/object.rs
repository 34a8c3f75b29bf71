//! The root of a schema: servers want an object, not a union.

use serde_json::{Map, Value, json};

/// Keywords whose members are alternatives, or parts.
pub(super) const UNIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Rounds of unions within unions at most.
const MOST_ROUNDS: usize = 16;
/// Variants of one round at most.
const MOST_VARIANTS: usize = 256;
/// References that lead from one to the next at most.
const MOST_HOPS: usize = 16;

/// A schema, or what it refers to in the same document.
fn resolved(whole: &Value, schema: &Value) -> Value {
    let mut at = schema;
    for _ in 0..MOST_HOPS {
        let Some(Value::String(reference)) = at.get("$ref") else { return at.clone() };
        let Some(target) = reference.strip_prefix('#').and_then(|path| whole.pointer(path)) else { break };
        at = target;
    }
    let mut rest = at.clone();
    if let Value::Object(members) = &mut rest {
        members.shift_remove("$ref");
    }
    rest
}

/// Makes the root an object whose properties are those of all variants; whether that changed anything.
pub(super) fn flatten(value: &mut Value) -> bool {
    let whole = value.clone();
    let Value::Object(root) = value else { return false };
    let mut changed = false;
    if root.contains_key("$ref")
        && let Value::Object(target) = resolved(&whole, &whole)
    {
        root.shift_remove("$ref");
        for (name, member) in target.into_iter().filter(|(name, _)| name != "$ref") {
            root.entry(name).or_insert(member);
        }
        changed = true;
    }
    // A variant may be a union itself; each round takes one level away.
    let mut rounds = 0;
    while UNIONS.iter().any(|union| root.contains_key(*union)) {
        merge_variants(root, &whole, rounds);
        changed = true;
        rounds += 1;
        // A union that leads to itself.
        if rounds == MOST_ROUNDS {
            UNIONS.iter().for_each(|union| drop(root.shift_remove(*union)));
        }
    }
    let is_object = root.get("type").and_then(Value::as_str) == Some("object");
    if !is_object {
        root.insert("type".into(), "object".into());
        // What the other types say holds for no object.
        for keyword in
            ["items", "prefixItems", "enum", "const", "minLength", "maxLength", "pattern", "format"]
        {
            root.retain(|name, _| name != keyword);
        }
        changed = true;
    }
    // An object without properties is taken as it is.
    if !root.get("properties").is_some_and(Value::is_object) && (changed || root.contains_key("properties")) {
        root.insert("properties".into(), json!({}));
        changed = true;
    }
    if root.get("required").is_some_and(|required| !is_list_of_names(required)) {
        root.retain(|name, _| name != "required");
        changed = true;
    }
    changed
}

fn is_list_of_names(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

fn names(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Takes the unions of the root apart by one level.
fn merge_variants(root: &mut Map<String, Value>, whole: &Value, round: usize) {
    let mut properties = match root.get("properties") {
        Some(Value::Object(own)) => own.clone(),
        _ => Map::new(),
    };
    let mut required = names(root.get("required"));
    let base_required = required.clone();
    let mut inner: Vec<Value> = Vec::new();
    let mut open = false;
    for union in UNIONS {
        let Some(Value::Array(variants)) = root.shift_remove(union) else { continue };
        let variants: Vec<Map<String, Value>> = variants
            .iter()
            .take(MOST_VARIANTS)
            .filter_map(|one| match resolved(whole, one) {
                Value::Object(members) => Some(members),
                _ => None,
            })
            .collect();
        let mut common: Option<Vec<String>> = None;
        for variant in variants {
            // An alternative without a type may be anything.
            if let Some(Value::Object(own)) = variant.get("properties") {
                for (name, schema) in own {
                    let both = match properties.get(name) {
                        Some(before) => united(before, schema),
                        None => schema.clone(),
                    };
                    properties.insert(name.clone(), both);
                }
            }
            let own = names(variant.get("required"));
            if union == "allOf" {
                required.extend(own);
            } else {
                common = Some(match common {
                    None => own,
                    Some(before) => before.into_iter().filter(|name| own.contains(name)).collect(),
                });
            }
            open |= variant.get("additionalProperties") != Some(&Value::Bool(false));
            for nested in UNIONS.iter().filter_map(|union| variant.get(*union)?.as_array()) {
                inner.extend(nested.iter().take(MOST_VARIANTS).cloned());
            }
        }
        // What a variant within a variant wants, others do not.
        required.extend(common.filter(|_| round == 0).unwrap_or_default());
    }
    inner.truncate(MOST_VARIANTS);
    required.retain(|name| properties.contains_key(name) || base_required.contains(name));
    let mut seen = std::collections::HashSet::new();
    required.retain(|name| seen.insert(name.clone()));
    root.insert("type".into(), "object".into());
    root.insert("properties".into(), Value::Object(properties));
    root.shift_remove("required");
    if !required.is_empty() {
        root.insert("required".into(), json!(required));
    }
    if open && root.get("additionalProperties") == Some(&Value::Bool(false)) {
        root.insert("additionalProperties".into(), Value::Bool(true));
    }
    if !inner.is_empty() {
        root.insert("anyOf".into(), Value::Array(inner));
    }
}

/// A property that two variants have: the values of both, where these are listed; else the first, unless they differ.
fn united(one: &Value, other: &Value) -> Value {
    if one == other {
        return one.clone();
    }
    let listed = |value: &Value| match (value.get("const"), value.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    };
    let Some((mut values, more)) = listed(one).zip(listed(other)) else {
        return one.clone();
    };
    values.extend(more);
    let mut all: Vec<Value> = Vec::with_capacity(values.len());
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    let mut both = one.as_object().cloned().unwrap_or_default();
    both.shift_remove("const");
    both.insert("enum".into(), Value::Array(all));
    Value::Object(both)
}
