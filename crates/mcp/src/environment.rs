//! Variables of the environment in a configuration: `${NAME}` and `${NAME:-default}`.

/// Names of variables that are not set and have no default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVariables(pub Vec<String>);

/// The text with each variable's value in its place. `$` without a brace, and what is no name, stay as they are.
///
/// # Errors
/// Variables that are not set.
pub fn expanded(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, MissingVariables> {
    let mut out = String::with_capacity(text.len());
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, behind) = rest.split_at(at);
        out.push_str(before);
        let inside = &behind[2..];
        let Some(end) = inside.find('}') else {
            rest = behind;
            break;
        };
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inside[..end], None),
        };
        if !is_name(name) {
            out.push_str("${");
            rest = inside;
            continue;
        }
        match variable(name).filter(|value| default.is_none() || !value.is_empty()) {
            Some(value) => out.push_str(&value),
            None => match default {
                Some(default) => out.push_str(default),
                None => missing.push(name.to_owned()),
            },
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    if missing.is_empty() { Ok(out) } else { Err(MissingVariables(missing)) }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_other_agents_do() {
        let variable = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let check =
            |text: &str, expect: &str| assert_eq!(expanded(text, &variable).unwrap(), expect, "{text}");
        check("https://${HOST}/x", "https://example.com/x");
        check("${NONE:-a b}${HOST}", "a bexample.com");
        check("${EMPTY:-d}|${EMPTY}", "d|");
        check("$HOST ${} ${a b} ${HOST", "$HOST ${} ${a b} ${HOST");
        check("${NONE:-}", "");
        let missing = expanded("${ONE} ${HOST} ${TWO}", &variable).unwrap_err();
        assert_eq!(missing.0, ["ONE", "TWO"]);
    }
}
