//! Prompts that a server offers to people: listed with its tools, and asked for by their names.

use quipu_protocol::Json;
use serde_json::{Map, Value, json};

use crate::client::{Client, RequestOptions};
use crate::error::RequestError;
use crate::limits::{LIST_PAGES, PROMPT_BYTES, SERVER_PROMPTS};
use crate::visible::{one_line, stripped};

/// A prompt that a server offers. Texts are those of the server, made visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPrompt {
    /// Its name, as the server knows it.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// Its arguments.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// Whether the prompt needs it.
    pub is_required: bool,
}

impl ServerPrompt {
    fn read(value: &Value) -> Option<Self> {
        let name = value["name"].as_str().filter(|name| (1..=200).contains(&name.len()))?;
        let arguments = value["arguments"].as_array().map(Vec::as_slice).unwrap_or_default();
        let argument = |one: &Value| {
            let name = one["name"].as_str().filter(|name| (1..=200).contains(&name.len()))?;
            let is_required = one["required"].as_bool().unwrap_or(false);
            Some(PromptArgument { name: name.to_owned(), is_required })
        };
        Some(Self {
            name: name.to_owned(),
            description: one_line(value["description"].as_str().unwrap_or_default(), 500),
            arguments: arguments.iter().take(20).filter_map(argument).collect(),
        })
    }

    /// What is typed behind its name, for people.
    pub fn hint(&self) -> String {
        let one = |argument: &PromptArgument| {
            let name = one_line(&argument.name, 40);
            if argument.is_required { name } else { format!("[{name}]") }
        };
        self.arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// The arguments for words that a person typed: `NAME=VALUE`, or in their order. What is left of the words is part of the last.
    ///
    /// # Errors
    /// The arguments that are missing.
    pub fn arguments_of(&self, words: &[String]) -> Result<Map<String, Value>, Vec<String>> {
        let mut given = Map::new();
        let mut rest = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if self.arguments.iter().any(|one| one.name == name) => {
                    given.insert(name.to_owned(), value.into());
                }
                _ => rest.push(word.as_str()),
            }
        }
        let open: Vec<&str> = self
            .arguments
            .iter()
            .map(|one| one.name.as_str())
            .filter(|name| !given.contains_key(*name))
            .collect();
        for (at, name) in open.iter().enumerate() {
            let is_last = at + 1 == open.len();
            let value = match rest.get(at..) {
                Some(words) if is_last => words.join(" "),
                Some([word, ..]) => (*word).to_owned(),
                Some([]) | None => String::new(),
            };
            if !value.is_empty() {
                given.insert((*name).to_owned(), value.into());
            }
        }
        let required = self.arguments.iter().filter(|one| one.is_required);
        let missing: Vec<String> =
            required.filter(|one| !given.contains_key(&one.name)).map(|one| one.name.clone()).collect();
        if missing.is_empty() { Ok(given) } else { Err(missing) }
    }
}

impl Client {
    /// The prompts that it offers.
    pub(crate) async fn list_prompts(
        &self,
        limit: std::time::Duration,
    ) -> Result<Vec<ServerPrompt>, RequestError> {
        let (mut prompts, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..LIST_PAGES {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = self.request("prompts/list", params, RequestOptions::within(limit)).await?;
            let page = page.value();
            let listed = page["prompts"].as_array().map(Vec::as_slice).unwrap_or_default();
            prompts.extend(listed.iter().filter_map(ServerPrompt::read));
            if prompts.len() >= SERVER_PROMPTS {
                prompts.truncate(SERVER_PROMPTS);
                break;
            }
            match page["nextCursor"].as_str().filter(|next| !next.is_empty()) {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        Ok(prompts)
    }
}

/// The text of `prompts/get`: what its messages say, without characters that a person does not see.
///
/// # Errors
/// Where it has no text, or too much.
pub(crate) fn prompt_text(result: &Json) -> Result<String, RequestError> {
    let value = result.value();
    let messages = value["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut parts = Vec::new();
    for message in messages.iter().take(100) {
        let content = &message["content"];
        let text = match content["type"].as_str() {
            Some("text") => content["text"].as_str().map(stripped),
            Some("resource") => content["resource"]["text"].as_str().map(stripped),
            Some(other) => Some(format!("[{} is left out]", one_line(other, 40))),
            None => None,
        };
        let is_assistant = message["role"] == "assistant";
        parts.extend(text.map(|text| if is_assistant { format!("Assistant: {text}") } else { text }));
    }
    let text = parts.join("\n\n");
    if text.trim().is_empty() {
        return Err(RequestError::Invalid("the prompt has no text".into()));
    }
    if text.len() > PROMPT_BYTES {
        return Err(RequestError::Invalid(format!("the prompt has more than {} KiB", PROMPT_BYTES >> 10)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt() -> ServerPrompt {
        let value = json!({ "name": "review", "description": "Re\u{200b}views.\nAll", "arguments": [
            { "name": "file", "required": true }, { "name": "depth" }, { "no": "name" },
        ]});
        ServerPrompt::read(&value).unwrap()
    }

    #[test]
    fn words_become_arguments() {
        let prompt = prompt();
        assert_eq!(
            (prompt.hint().as_str(), prompt.description.as_str()),
            ("file [depth]", "Re\\u{200b}views. All")
        );
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            prompt.arguments_of(&words).map(Value::Object)
        };
        assert_eq!(of(&["a.rs"]), Ok(json!({ "file": "a.rs" })));
        assert_eq!(of(&["a.rs", "very", "deep"]), Ok(json!({ "file": "a.rs", "depth": "very deep" })));
        assert_eq!(of(&["depth=2", "a=b.rs"]), Ok(json!({ "depth": "2", "file": "a=b.rs" })));
        assert_eq!(of(&["depth=2"]), Err(vec!["file".to_owned()]));
        assert_eq!(ServerPrompt::read(&json!({ "name": "" })), None);
    }

    #[test]
    fn text_of_a_prompt_is_bounded_and_visible() {
        let of = |messages: Value| prompt_text(&Json::from(json!({ "messages": messages })));
        let text = of(json!([
            { "role": "user", "content": { "type": "text", "text": "Re\u{e0041}ad it." } },
            { "role": "assistant", "content": { "type": "text", "text": "Well." } },
            { "role": "user", "content": { "type": "image", "data": "x" } },
        ]));
        assert_eq!(text.unwrap(), "Read it.\n\nAssistant: Well.\n\n[image is left out]");
        assert!(of(json!([])).is_err());
        let bomb =
            json!([{ "role": "user", "content": { "type": "text", "text": "x".repeat(PROMPT_BYTES + 1) } }]);
        assert!(of(bomb).unwrap_err().to_string().contains("more than"));
    }
}
