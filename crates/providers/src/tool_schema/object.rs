//! The root of a schema: servers want an object, not a union.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// Keywords whose members are alternatives, or parts.
pub(super) const UNIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Rounds of unions within unions at most.
const MOST_ROUNDS: usize = 16;
/// Variants of one round at most.
const MOST_VARIANTS: usize = 256;
/// References that lead from one to the next at most.
const MOST_HOPS: usize = 16;

/// A schema, or what it refers to in the same document; one that leads nowhere still has its `$ref`.
fn resolved<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let mut at = schema;
    for _ in 0..MOST_HOPS {
        let Some(Value::String(reference)) = at.get("$ref") else { return at };
        let Some(target) = reference.strip_prefix('#').and_then(|path| whole.pointer(path)) else { break };
        at = target;
    }
    at
}

/// Makes the root an object whose properties are those of all variants; whether that changed anything.
pub(super) fn flatten(value: &mut Value) -> bool {
    let Value::Object(root) = value else { return false };
    let mut changed = false;
    let is_union = |root: &Map<String, Value>| UNIONS.iter().any(|union| root.contains_key(*union));
    if root.contains_key("$ref") || is_union(root) {
        let whole = Value::Object(root.clone());
        if root.shift_remove("$ref").is_some()
            && let Value::Object(target) = resolved(&whole, &whole)
        {
            for (name, member) in target.iter().filter(|(name, _)| *name != "$ref") {
                if !root.contains_key(name) {
                    root.insert(name.clone(), member.clone());
                }
            }
        }
        if is_union(root) {
            merge_unions(root, &whole);
        }
        changed = true;
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

fn names(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Alternatives, or parts, of one union.
type Variants<'a> = (&'static str, Vec<&'a Value>);

/// Replaces the unions of the root by the properties of their variants, and of the unions within these.
fn merge_unions(root: &mut Map<String, Value>, whole: &Value) {
    let taken: Vec<(&'static str, Value)> =
        UNIONS.into_iter().filter_map(|union| Some((union, root.shift_remove(union)?))).collect();
    let mut layer: Vec<Variants<'_>> = taken
        .iter()
        .filter_map(|(union, list)| Some((*union, list.as_array()?.iter().take(MOST_VARIANTS).collect())))
        .collect();
    // What is merged stays merged: a union that leads to itself ends, and one that is named often costs little.
    let mut merged = HashSet::new();
    for round in 0..MOST_ROUNDS {
        let inner = merge_variants(root, whole, &layer, round, &mut merged);
        if inner.is_empty() {
            break;
        }
        layer = vec![("anyOf", inner)];
    }
}

/// Merges one level of variants into the root; the variants of the unions that they hold are what is left.
fn merge_variants<'a>(
    root: &mut Map<String, Value>,
    whole: &'a Value,
    layer: &[Variants<'a>],
    round: usize,
    merged: &mut HashSet<*const Value>,
) -> Vec<&'a Value> {
    let mut properties = match root.get_mut("properties") {
        Some(Value::Object(own)) => std::mem::take(own),
        _ => Map::new(),
    };
    let mut required: Vec<String> = names(root.get("required")).map(str::to_owned).collect();
    let base_required: HashSet<String> = required.iter().cloned().collect();
    let mut inner: Vec<&Value> = Vec::new();
    let mut open = false;
    for (union, variants) in layer {
        let mut common: Option<Vec<&str>> = None;
        let mut here = HashSet::new();
        for variant in variants.iter().copied().map(|one| resolved(whole, one)) {
            let address = std::ptr::from_ref(variant);
            let Value::Object(members) = variant else { continue };
            if !here.insert(address) {
                continue;
            }
            if *union == "allOf" {
                required.extend(names(members.get("required")).map(str::to_owned));
            } else if round == 0 {
                // What a variant within a variant wants, others do not.
                let own: HashSet<&str> = names(members.get("required")).collect();
                common = Some(match common {
                    None => names(members.get("required")).collect(),
                    Some(before) => before.into_iter().filter(|name| own.contains(name)).collect(),
                });
            }
            open |= members.get("additionalProperties") != Some(&Value::Bool(false));
            if !merged.insert(address) {
                continue;
            }
            // An alternative without a type may be anything.
            for (name, schema) in members.get("properties").and_then(Value::as_object).into_iter().flatten() {
                match properties.get_mut(name) {
                    Some(before) => unite(before, schema),
                    None => drop(properties.insert(name.clone(), schema.clone())),
                }
            }
            let nested = UNIONS.iter().filter_map(|union| members.get(*union)?.as_array()).flatten();
            inner.extend(nested.take(MOST_VARIANTS.saturating_sub(inner.len())));
        }
        required.extend(common.into_iter().flatten().map(str::to_owned));
    }
    required.retain(|name| properties.contains_key(name) || base_required.contains(name));
    let mut seen = HashSet::new();
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
    inner
}

/// A property that two variants have: the values of both, where these are listed; else the first stays.
fn unite(one: &mut Value, other: &Value) {
    let Some((mut values, more)) = listed(one).zip(listed(other)).filter(|(one, other)| one != other) else {
        return;
    };
    values.extend(more);
    let values = distinct(values);
    if let Value::Object(both) = one {
        both.shift_remove("const");
        both.insert("enum".into(), Value::Array(values));
    }
}

/// The values that a schema lists.
pub(super) fn listed(value: &Value) -> Option<Vec<Value>> {
    match (value.get("const"), value.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

/// The values, each of them once.
pub(super) fn distinct(values: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(value.to_string())).collect()
}
