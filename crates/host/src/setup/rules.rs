//! Permission rules of another agent in our words.

use quipu::rules::Rule;
use serde_json::Value;

/// A rule in our words; `None` for one that nothing here corresponds to.
///
/// `Tool`, `Tool(what)`: names are in lower case, `cmd:*` is a prefix, paths and hosts stand alone.
pub(super) fn rule(theirs: &str) -> Option<String> {
    let theirs = theirs.trim();
    if theirs.starts_with("mcp__") {
        return Some(theirs.to_owned());
    }
    let (tool, what) = match theirs.split_once('(') {
        Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?.trim())),
        None => (theirs, None),
    };
    let tool = match tool {
        "Bash" => "bash",
        "Read" | "NotebookRead" => "read",
        "Edit" | "MultiEdit" => "edit",
        "Write" | "NotebookEdit" => "write",
        "Grep" => "grep",
        "Glob" => "find",
        "LS" => "ls",
        "WebFetch" => "network",
        "WebSearch" => "web_search",
        _ => return None,
    };
    let Some(what) = what.filter(|what| !what.is_empty()) else { return Some(tool.to_owned()) };
    let what = match tool {
        "bash" => match what.strip_suffix(":*") {
            Some(prefix) => format!("{prefix}*"),
            None => what.to_owned(),
        },
        "network" => what.strip_prefix("domain:")?.trim().to_owned(),
        // A path from the root of the file system has two slashes there; one with one slash begins at the directory of the file.
        _ => match what.strip_prefix("//") {
            Some(rest) => format!("/{rest}"),
            None if what.starts_with('/') => return None,
            None => what.to_owned(),
        },
    };
    let rule = format!("{tool}({what})");
    Rule::parse(&rule).is_ok().then_some(rule)
}

/// The texts of a list.
pub(super) fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_said_in_our_words() {
        for (theirs, ours) in [
            ("Bash(git status:*)", Some("bash(git status*)")),
            ("Bash(npm run test)", Some("bash(npm run test)")),
            ("Bash", Some("bash")),
            ("Read(//etc/hosts)", Some("read(/etc/hosts)")),
            ("Edit(docs/**)", Some("edit(docs/**)")),
            ("Edit(/docs/**)", None),
            ("Bash(a; b)", None),
            ("WebFetch(domain:example.com)", Some("network(example.com)")),
            ("WebFetch(x)", None),
            ("mcp__server__tool", Some("mcp__server__tool")),
            ("Task(Explore)", None),
            ("Bash(open", None),
        ] {
            assert_eq!(rule(theirs).as_deref(), ours, "{theirs}");
        }
    }
}
