//! Tool calls as clients show them: titles, kinds, places, changes and results.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use quipu_protocol::{Content, Json, ToolResultMessage};
use serde_json::{Value, json};

/// Bytes of a text in a result that a client is shown at most: its end.
const SHOWN: usize = 64 << 10;
/// Bytes of output of a command at work that a client is shown at most: its end.
pub(crate) const TAIL: usize = 8 << 10;
/// Bytes of arguments that are passed on as they are.
const RAW: usize = 64 << 10;
/// Bytes of a file whose content is shown beside a new one.
const BEFORE: u64 = 1 << 20;
/// Characters of a title.
const TITLE: usize = 300;

/// The kind of a tool, by its name.
pub(crate) fn kind(tool: &str) -> &'static str {
    match tool {
        "read" => "read",
        "edit" | "write" | "apply_patch" => "edit",
        "bash" | "background" => "execute",
        "grep" | "find" | "ls" | "web_search" | "search_history" | "mcp_search" => "search",
        "web_fetch" => "fetch",
        "plan" => "switch_mode",
        "todo" | "recall" | "life" | "trace" => "think",
        _ => "other",
    }
}

/// A call in one line.
pub(crate) fn title(tool: &str, arguments: &Json) -> String {
    let value = arguments.value();
    let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let line = match tool {
        "bash" => text("command").map(str::to_owned),
        "apply_patch" => Some(format!("Edit {}", quipu_host::files_of_patch(arguments.get()).join(", "))),
        "read" => text("path").map(|path| format!("Read {path}")),
        "edit" => text("path").map(|path| format!("Edit {path}")),
        "write" => text("path").map(|path| format!("Write {path}")),
        "todo" => Some("Update the to-do list".to_owned()),
        "plan" => Some("Hand in a plan".to_owned()),
        _ => ["command", "url", "query", "pattern", "path", "description", "prompt"]
            .iter()
            .find_map(|name| text(name))
            .map(|about| format!("{tool}: {about}")),
    };
    quipu_host::one_line(&line.unwrap_or_else(|| tool.to_owned()), TITLE)
}

/// A path from the directory of the session, as text.
fn at(cwd: &Path, path: &str) -> String {
    cwd.join(path).to_string_lossy().into_owned()
}

/// Files that a call names, the first line where it has one.
fn locations(tool: &str, arguments: &Json, cwd: &Path) -> Vec<Value> {
    if tool == "apply_patch" {
        let files = quipu_host::files_of_patch(arguments.get());
        return files.iter().map(|file| json!({ "path": at(cwd, file) })).collect();
    }
    if !matches!(tool, "read" | "edit" | "write" | "grep" | "find" | "ls") {
        return Vec::new();
    }
    let value = arguments.value();
    let Some(path) = value.get("path").and_then(Value::as_str) else { return Vec::new() };
    let mut location = json!({ "path": at(cwd, path) });
    if let Some(line) = value.get("offset").and_then(Value::as_u64) {
        location["line"] = line.into();
    }
    vec![location]
}

/// What a call changes, as its arguments have it; `reads` also looks at what a file holds now.
fn changes(tool: &str, arguments: &Json, cwd: &Path, reads: bool) -> Vec<Value> {
    let value = arguments.value();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(path) = text(&value, "path").map(|path| cwd.join(path)) else { return Vec::new() };
    match tool {
        "edit" => {
            let edits = value.get("edits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let shown = path.to_string_lossy();
            let diff = |edit: &Value| {
                let (old, new) = (text(edit, "oldText")?, text(edit, "newText")?);
                Some(json!({ "type": "diff", "path": shown, "oldText": old, "newText": new }))
            };
            edits.iter().filter_map(diff).collect()
        }
        "write" => {
            let Some(new) = text(&value, "content") else { return Vec::new() };
            let old = if reads { content_below(cwd, &path) } else { None };
            vec![json!({ "type": "diff", "path": path.to_string_lossy(), "oldText": old, "newText": new })]
        }
        _ => Vec::new(),
    }
}

/// The text of a file in the directory of the session.
fn content_below(cwd: &Path, path: &Path) -> Option<String> {
    let path: PathBuf = path.canonicalize().ok().filter(|path| path.starts_with(cwd))?;
    let (file, found) = quipu::Access::default().open_for_reading(&path).ok()?;
    let mut text = String::new();
    if found.len() > BEFORE {
        return None;
    }
    file.take(BEFORE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A call that the model made.
pub(crate) fn begun(
    name: &str,
    (tool, arguments): (&str, &Json),
    cwd: &Path,
    status: &str,
    reads: bool,
) -> Value {
    let mut content = changes(tool, arguments, cwd, reads);
    if tool == "plan"
        && let Some(plan) = arguments.value().get("text").and_then(Value::as_str)
    {
        content.push(text_content(plan));
    }
    let mut update = json!({
        "sessionUpdate": "tool_call", "toolCallId": name, "title": title(tool, arguments), "kind": kind(tool),
        "name": tool, "status": status, "content": content, "locations": locations(tool, arguments, cwd),
    });
    if arguments.get().len() <= RAW {
        update["rawInput"] = arguments.value();
    }
    update
}

/// A call about which a person is asked.
pub(crate) fn asked(name: &str, (tool, arguments): (&str, &Json), cwd: &Path, question: &str) -> Value {
    let mut call = begun(name, (tool, arguments), cwd, "pending", true);
    if let Some(members) = call.as_object_mut() {
        members.remove("sessionUpdate");
        if let Some(content) = members.get_mut("content").and_then(Value::as_array_mut) {
            content.insert(0, text_content(question));
        }
    }
    call
}

/// A call that began to run.
pub(crate) fn running(name: &str) -> Value {
    json!({ "sessionUpdate": "tool_call_update", "toolCallId": name, "status": "in_progress" })
}

/// The end of what a call printed so far.
pub(crate) fn output(name: &str, tail: &str) -> Value {
    let content = [text_content(&fenced("", end_of(tail, TAIL)))];
    json!({ "sessionUpdate": "tool_call_update", "toolCallId": name, "content": content })
}

/// What a call came to. What is in a terminal of the client stays there.
pub(crate) fn ended(
    name: &str,
    arguments: Option<&Json>,
    result: &ToolResultMessage,
    cwd: &Path,
    in_terminal: bool,
) -> Value {
    let tool = result.tool_name.as_str();
    let status = if result.is_error { "failed" } else { "completed" };
    let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": name, "status": status });
    if in_terminal {
        return update;
    }
    let details = result.details.as_ref().map(Json::value).unwrap_or_default();
    let patch = details.get("patch").and_then(Value::as_str).filter(|_| tool == "apply_patch");
    let is_changed = tool == "edit" || tool == "write";
    let mut content = Vec::new();
    if !result.is_error && is_changed {
        content = arguments.map(|arguments| changes(tool, arguments, cwd, false)).unwrap_or_default();
    } else if let Some(patch) = patch.filter(|_| !result.is_error) {
        content.push(text_content(&fenced("diff", end_of(patch, SHOWN))));
    }
    if tool == "write" && !result.is_error {
        // The content of before was shown when the call began, and is gone now.
        return update;
    }
    if content.is_empty() {
        let is_plain = matches!(kind(tool), "execute" | "read" | "search");
        content = blocks(&result.content, is_plain);
    }
    update["content"] = content.into();
    let line = details.get("firstChangedLine").and_then(Value::as_u64).filter(|_| tool == "edit");
    if let (Some(line), Some(arguments)) = (line, arguments) {
        let mut places = locations(tool, arguments, cwd);
        places.iter_mut().for_each(|place| place["line"] = line.into());
        update["locations"] = places.into();
    }
    update
}

/// The to-do list of a call as the plan of a client.
pub(crate) fn plan(arguments: &Json) -> Option<Value> {
    let value = arguments.value();
    let entry = |item: &Value| {
        let status = match item.get("status").and_then(Value::as_str)? {
            "done" => "completed",
            "in_progress" => "in_progress",
            _ => "pending",
        };
        let content = item.get("text").and_then(Value::as_str)?;
        Some(json!({ "content": content, "priority": "medium", "status": status }))
    };
    let entries: Vec<Value> = value.get("items")?.as_array()?.iter().filter_map(entry).collect();
    Some(json!({ "sessionUpdate": "plan", "entries": entries }))
}

fn blocks(content: &[Content], is_plain: bool) -> Vec<Value> {
    let block = |block: &Content| match block {
        Content::Text(text) => {
            let shown = end_of(&text.text, SHOWN);
            Some(if is_plain { text_content(&fenced("", shown)) } else { text_content(shown) })
        }
        Content::Image(image) => {
            let image = json!({ "type": "image", "data": image.data, "mimeType": image.mime_type });
            Some(json!({ "type": "content", "content": image }))
        }
        Content::Thinking(_) | Content::ToolCall(_) | Content::Other(_) => None,
    };
    content.iter().filter_map(block).collect()
}

pub(crate) fn text_content(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

/// The end of a text, from the beginning of a character.
fn end_of(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// A text as it is, in Markdown.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c: char| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: &Value) -> Json {
        Json::from(value)
    }

    #[test]
    fn edit_is_shown_as_a_diff_with_its_place() {
        let cwd = Path::new("/work");
        let edits = json!({ "path": "a.rs", "edits": [{ "oldText": "x", "newText": "y" }] });
        let call = begun("c1", ("edit", &arguments(&edits)), cwd, "pending", true);
        let diff = json!([{ "type": "diff", "path": "/work/a.rs", "oldText": "x", "newText": "y" }]);
        assert_eq!((&call["content"], &call["kind"]), (&diff, &json!("edit")));
        assert_eq!(call["locations"], json!([{ "path": "/work/a.rs" }]));
        assert_eq!(call["title"], "Edit a.rs");
    }

    #[test]
    fn fence_is_longer_than_those_within_it() {
        assert_eq!(fenced("", "a"), "```\na\n```");
        assert_eq!(fenced("diff", "```\n"), "````diff\n```\n````");
    }

    #[test]
    fn todo_list_is_a_plan() {
        let items =
            json!({ "items": [{ "text": "one", "status": "done" }, { "text": "two", "status": "pending" }] });
        let entries = json!([
            { "content": "one", "priority": "medium", "status": "completed" },
            { "content": "two", "priority": "medium", "status": "pending" },
        ]);
        assert_eq!(plan(&arguments(&items)).unwrap()["entries"], entries);
        assert_eq!(plan(&arguments(&json!({ "items": 7 }))), None);
    }
}
