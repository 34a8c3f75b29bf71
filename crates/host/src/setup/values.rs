//! Values of other agents in our units.

use quipu_policy::canonical;
use serde_json::Value;

use super::servers::is_secret_name;

/// How a value is said here: what a word that begins with `@` in the table stands for.
///
/// # Errors
/// What is wrong with it.
pub(super) fn converted(how: &str, value: &Value) -> Result<Value, String> {
    match how {
        "percent" => percent(value),
        "seconds" => seconds(value),
        "tools" => tools(value),
        _ => Err("there is no such unit".to_owned()),
    }
}

/// A share of one, in whole percent.
fn percent(value: &Value) -> Result<Value, String> {
    match value.as_f64() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 100"
        )]
        Some(share) if (0.0..=1.0).contains(&share) => Ok(Value::from((share * 100.0).round() as u64)),
        _ => Err("it is not a share between 0 and 1".to_owned()),
    }
}

/// A time as `1h30m`, `90s` or `500ms`, in whole seconds; a number without a unit is minutes.
fn seconds(value: &Value) -> Result<Value, String> {
    let bad = || "it is not a time such as 5m or 90s".to_owned();
    let text = match value {
        Value::String(text) => text.trim().to_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => return Err(bad()),
    };
    let mut rest = text.as_str();
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits =
            rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| bad())?;
        let unit = behind.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        sum += number
            * match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "" | "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return Err(bad()),
            };
        rest = behind;
    }
    if text.is_empty() || sum > 1e12 {
        return Err(bad());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no number has a sign, and it is below 1e12"
    )]
    Ok(Value::from(sum.ceil() as u64))
}

/// Names of tools, as they are called here.
fn tools(value: &Value) -> Result<Value, String> {
    let bad = || "it is not a list of names".to_owned();
    let names = value.as_array().ok_or_else(bad)?;
    names.iter().map(|name| name.as_str().map(|name| Value::from(canonical(name))).ok_or_else(bad)).collect()
}

/// A text with the variables of the environment that it names as `${NAME}`; `$${NAME}` stands for `${NAME}`.
///
/// # Errors
/// Which variable is not set, or is secret by its name.
fn with_variables(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(fits)
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
    };
    let (mut whole, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('$') {
        whole.push_str(before);
        let (is_escaped, inner) = match behind.strip_prefix("${") {
            Some(inner) => (true, Some(inner)),
            None => (false, behind.strip_prefix('{')),
        };
        match inner.and_then(|inner| inner.split_once('}')).filter(|(name, _)| is_name(name)) {
            Some((name, behind)) => {
                if is_escaped {
                    whole.push_str(&format!("${{{name}}}"));
                } else if is_secret_name(name) {
                    return Err(format!("the variable {name} is secret by its name, and not copied"));
                } else {
                    let value = env(name).filter(|value| !value.is_empty());
                    whole.push_str(&value.ok_or_else(|| format!("the variable {name} is not set"))?);
                }
                rest = behind;
            }
            None => {
                whole.push('$');
                rest = behind;
            }
        }
    }
    whole.push_str(rest);
    Ok(whole)
}

/// Puts variables of the environment into all texts of a value. One that cannot be made whole becomes null, so that whatever reads it
/// next refuses it, and is in `left` with its names and the reason.
pub(crate) fn put_in_variables(
    value: &mut Value,
    key: &str,
    env: &dyn Fn(&str) -> Option<String>,
    left: &mut Vec<(String, String)>,
) {
    match value {
        Value::String(text) => match with_variables(text, env) {
            Ok(whole) => *text = whole,
            Err(why) => {
                left.push((key.to_owned(), why));
                *value = Value::Null;
            }
        },
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                put_in_variables(item, &format!("{key}[{at}]"), env, left);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                put_in_variables(member, &format!("{key}.{name}"), env, left);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_said_in_units_of_ours() {
        let good = [
            ("percent", json!(0.3), json!(30)),
            ("percent", json!(0.29), json!(29)),
            ("percent", json!(1), json!(100)),
            ("seconds", json!("5m"), json!(300)),
            ("seconds", json!(" 1H30m "), json!(5_400)),
            ("seconds", json!("90s"), json!(90)),
            ("seconds", json!("1500ms"), json!(2)),
            ("seconds", json!(10), json!(600)),
            ("seconds", json!("0.5h"), json!(1_800)),
            ("tools", json!(["exec", "web_*", "Read"]), json!(["bash", "web_*", "read"])),
        ];
        for (how, theirs, ours) in good {
            assert_eq!(converted(how, &theirs), Ok(ours), "{how} {theirs}");
        }
        let bad = [
            ("percent", json!("0.3")),
            ("percent", json!(30)),
            ("percent", json!(-0.1)),
            ("seconds", json!("")),
            ("seconds", json!("soon")),
            ("seconds", json!("5 m")),
            ("seconds", json!("1.2.3s")),
            ("seconds", json!("5y")),
            ("seconds", json!("-5m")),
            ("seconds", json!(true)),
            ("seconds", json!("9".repeat(400))),
            ("tools", json!("exec")),
            ("tools", json!([1])),
        ];
        for (how, theirs) in bad {
            assert!(converted(how, &theirs).is_err(), "{how} {theirs}");
        }
    }

    #[test]
    fn variables_are_put_into_texts() {
        let env = |name: &str| match name {
            "MODEL" => Some("a/b".to_owned()),
            "EMPTY" => Some(String::new()),
            "API_KEY" => Some("hunter2".to_owned()),
            _ => None,
        };
        for (text, whole) in [
            ("x", "x"),
            ("${MODEL}", "a/b"),
            ("p/${MODEL}-$1-${MODEL}", "p/a/b-$1-a/b"),
            ("$${MODEL}", "${MODEL}"),
            ("${model} ${} ${1A} ${MODEL", "${model} ${} ${1A} ${MODEL"),
        ] {
            assert_eq!(with_variables(text, &env).as_deref(), Ok(whole), "{text}");
        }
        for (text, name) in [("${EMPTY}", "EMPTY"), ("a ${NONE}", "NONE"), ("${API_KEY}", "API_KEY")] {
            let why = with_variables(text, &env).unwrap_err();
            assert!(why.contains(name) && !why.contains("hunter2"), "{why}");
        }
    }
}
