//! Values as JSON Schema compares them.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::NAMED;

/// Some values, with commas between them.
pub(super) fn listed(values: &[Value]) -> String {
    let mut shown: Vec<String> = values.iter().take(NAMED).map(Value::to_string).collect();
    if values.len() > NAMED {
        shown.push(format!("and {} more", values.len() - NAMED));
    }
    shown.join(", ")
}

/// Whether a type, or one of several, has this name.
pub(crate) fn names_type(types: &Value, name: &str) -> bool {
    match types {
        Value::String(one) => one == name,
        Value::Array(several) => several.iter().any(|one| one == name),
        _ => false,
    }
}

/// Whether a value is of a type, or of one of several.
pub(crate) fn is_of(value: &Value, types: &Value) -> bool {
    match value {
        Value::Null => names_type(types, "null"),
        Value::Bool(_) => names_type(types, "boolean"),
        Value::Number(number) => {
            let whole = !number.is_f64() || number.as_f64().is_some_and(|n| n.fract() == 0.0);
            names_type(types, "number") || whole && names_type(types, "integer")
        }
        Value::String(_) => names_type(types, "string"),
        Value::Array(_) => names_type(types, "array"),
        Value::Object(_) => names_type(types, "object"),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

pub(super) fn order(a: &Number, b: &Number) -> Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // Neither is NaN: JSON has none.
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
    }
}

/// Whether a number is a whole multiple of another.
pub(super) fn is_multiple(number: &Number, of: &Number) -> bool {
    match (whole(number), whole(of)) {
        (_, Some(0)) => false,
        (Some(number), Some(of)) => number % of == 0,
        _ => {
            let quotient = number.as_f64().unwrap_or_default() / of.as_f64().unwrap_or_default();
            // 0.3 is three times 0.1 for who wrote it.
            (quotient - quotient.round()).abs() <= f64::EPSILON * 4.0 * quotient.abs().max(1.0)
        }
    }
}

/// Whether two values are equal as JSON Schema sees it: 1 and 1.0 are, and members have no order.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => canonical(a) == canonical(b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// A text that equal values have in common.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(0.0) => "0".into(),
            Some(float) if float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(canonical).collect();
            format!("[{}]", list.join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            members.sort_unstable();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}

/// The beginning of a text that is long.
pub(super) fn cut(mut text: String, characters: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(characters) {
        text.truncate(at);
        text.push('…');
    }
    text
}
