//! What stands on the user's side: who said it, and results of tools.

use quipu_protocol::{Content, ImageContent, Json, ToolResultMessage, UnixMs};

use crate::cut;
use crate::json::{Members, text_of};

/// What a text begins with that the program says in the user's place.
const NOT_THE_USER: [&str; 14] = [
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<skills_instructions>",
    "<apps_instructions>",
    "<plugins_instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<model_switch>",
    "<subagent_notification>",
    "<personality_spec>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions for",
    "<skill>",
];

/// Whether a text in the user's place is of the program: context that it adds by itself.
pub fn is_program_context(text: &str) -> bool {
    let text = text.trim_start();
    NOT_THE_USER.iter().any(|word| text.starts_with(word))
}

/// The elements of a list.
pub(super) fn list(text: &str) -> Vec<&str> {
    cut::elements(text).unwrap_or_default()
}

/// One element of a content: text or an image; anything else is kept whole.
pub(super) fn content(element: &str) -> Content {
    let known = || {
        let members = Members::known(element)?;
        match members.string("type")?.as_ref() {
            "input_text" | "output_text" | "text" => Some(Content::text(text_of(members.get("text")?)?)),
            "refusal" => Some(Content::text(text_of(members.get("refusal")?)?)),
            "input_image" => {
                let url = members.string("image_url")?;
                let (kind, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
                Some(Content::Image(ImageContent { data: data.to_owned(), mime_type: kind.to_owned() }))
            }
            _ => None,
        }
    };
    known().unwrap_or_else(|| Content::Other(Json::parse(element).unwrap_or_default()))
}

/// The elements of a message that the user said, as the record tells, or as their words tell where it does not.
pub(super) fn of_the_user<'a>(message: &Members<'a>) -> Vec<&'a str> {
    let elements = list(message.get("content").unwrap_or("[]"));
    let kinds: Vec<String> = message
        .get("internal_chat_message_metadata_passthrough")
        .and_then(|passed| serde_json::from_str(Members::of(passed)?.get("content_item_kinds")?).ok())
        .unwrap_or_default();
    let is_users = |(at, element): &(usize, &str)| match kinds.get(*at).map(String::as_str) {
        Some(kind) if kind != "unknown" => kind.starts_with("user."),
        _ => {
            let text = content(element);
            !is_program_context(text.as_text().unwrap_or_default())
        }
    };
    elements.into_iter().enumerate().filter(is_users).map(|(_, element)| element).collect()
}

/// The result of a call; `details` is what the screen showed of it.
pub(super) fn result(
    payload: &Members<'_>,
    call: &str,
    name: String,
    details: Option<Json>,
    timestamp: UnixMs,
) -> ToolResultMessage {
    let output = payload.get("output").unwrap_or("\"\"");
    let inner = Members::known(output);
    let body = inner.as_ref().and_then(|inner| inner.get("content")).unwrap_or(output);
    let content = match body.as_bytes().first() {
        Some(b'[') => list(body).into_iter().map(content).collect(),
        Some(b'"') => vec![Content::text(text_of(body).unwrap_or_default())],
        _ => vec![Content::text(body)],
    };
    let told = inner.as_ref().and_then(|inner| inner.get("success")).map(|success| success == "false");
    let shown = details.as_ref().and_then(|details| failed(details.get()));
    let is_error = told
        .or(shown)
        .unwrap_or_else(|| content.first().and_then(Content::as_text).is_some_and(says_that_it_failed));
    ToolResultMessage {
        tool_call_id: call.into(),
        tool_name: name,
        content,
        details,
        usage: None,
        is_error,
        timestamp,
    }
}

/// Whether what the screen showed was a failure; `None` where it does not say.
fn failed(item: &str) -> Option<bool> {
    let members = Members::known(item)?;
    if let Some(code) = members.get("exit_code").and_then(|code| code.parse::<i64>().ok()) {
        return Some(code != 0);
    }
    if let Some(success) = members.get("success") {
        return Some(success == "false");
    }
    match members.string("status")?.as_ref() {
        "failed" | "declined" => Some(true),
        "completed" => Some(false),
        _ => None,
    }
}

/// Reads the exit code from the words around an output.
fn says_that_it_failed(text: &str) -> bool {
    if text.starts_with('{') {
        let code = Members::of(text)
            .and_then(|members| Members::of(members.get("metadata")?)?.get("exit_code")?.parse::<i64>().ok());
        return code.is_some_and(|code| code != 0);
    }
    let head = text.split("Output:").next().unwrap_or_default();
    ["Process exited with code ", "Exit code: ", "exited with code "].iter().any(|words| {
        head.split_once(words).is_some_and(|(_, rest)| {
            let code: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
            code.parse::<i64>().is_ok_and(|code| code != 0)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_in_words() {
        let check = |text: &str, expect: bool| assert_eq!(says_that_it_failed(text), expect, "{text}");
        check("Chunk ID: 1\nProcess exited with code 3\nOutput:\nx", true);
        check("Chunk ID: 1\nProcess exited with code 0\nOutput:\nexited with code 3", false);
        check("Exit code: 1\nWall time: 0 seconds\nOutput:\n", true);
        check("{\"output\":\"x\",\"metadata\":{\"exit_code\":2}}", true);
        check("{\"output\":\"x\",\"metadata\":{\"exit_code\":0}}", false);
        check("all is well", false);
    }
}
