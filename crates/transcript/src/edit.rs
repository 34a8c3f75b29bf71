//! Entries by which another program takes messages out of a context, or puts other words in their place.

use std::borrow::Cow;
use std::collections::HashMap;

use quipu_protocol::{Body, Entry, Json, Message};
use serde::Deserialize;

use crate::own_part::present;

/// The edits of a lineage, by the writer's own id of the message. `None` leaves the message out.
#[derive(Debug, Default)]
pub struct ContextEdits(HashMap<String, Option<Body>>);

impl ContextEdits {
    /// Those that stand among these entries, root first: the last one for a message counts. One that cannot be read
    /// changes nothing.
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut edits = Self::default();
        for entry in entries {
            if let Entry::Meta(json) = entry
                && let Some((target, replacement)) = edit(json)
            {
                edits.0.insert(target, replacement);
            }
        }
        edits
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The message as it is shown; `None` when it is left out. Only what a user, a model, a tool or an extension said can
    /// be edited.
    pub fn apply<'a>(&self, own_id: Option<&str>, message: Cow<'a, Message>) -> Option<Cow<'a, Message>> {
        let Some(edit) = own_id.and_then(|id| self.0.get(id)) else { return Some(message) };
        match &*message {
            Message::User(_) | Message::Assistant(_) | Message::ToolResult(_) | Message::Custom(_) => {}
            Message::BashExecution(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Other(_) => return Some(message),
        }
        let body = edit.as_ref()?.clone();
        let mut message = message.into_owned();
        match &mut message {
            Message::User(user) => user.content = body,
            Message::Custom(custom) => custom.content = body,
            Message::Assistant(answer) => answer.content = body.blocks().into_owned(),
            Message::ToolResult(result) => result.content = body.blocks().into_owned(),
            Message::BashExecution(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Other(_) => {}
        }
        Some(Cow::Owned(message))
    }
}

fn edit(json: &Json) -> Option<(String, Option<Body>)> {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename = "context_edit", rename_all = "camelCase")]
    struct Edit {
        target_id: String,
        #[serde(default, deserialize_with = "present")]
        replacement: Option<Json>,
    }
    #[derive(Deserialize)]
    struct Replacement {
        content: Body,
    }
    // Most entries are something else: told apart without reading them.
    if !json.get().contains("\"context_edit\"") {
        return None;
    }
    let Edit { target_id, replacement } = json.read().ok()?;
    let replacement = replacement?;
    if replacement.get() == "null" {
        return Some((target_id, None));
    }
    let Replacement { content } = replacement.read().ok()?;
    Some((target_id, Some(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_edit_of_a_message_counts_unreadable_edit_is_none() {
        let check = |edits: &[&str], message: &str, expect: Option<&str>| {
            let edits = edits.iter().map(|edit| Entry::Meta(Json::parse(edit).unwrap())).collect::<Vec<_>>();
            let edits = ContextEdits::of(&edits);
            let read = |text: &str| serde_json::from_str::<Message>(text).unwrap();
            let shown = edits.apply(Some("a"), Cow::Owned(read(message))).map(Cow::into_owned);
            assert_eq!(shown, expect.map(read), "{message}");
            assert!(edits.apply(None, Cow::Owned(read(message))).is_some());
        };
        let omit = r#"{"type":"context_edit","targetId":"a","replacement":null}"#;
        let other = r#"{"type":"context_edit","targetId":"b","replacement":null}"#;
        let text = r#"{"type":"context_edit","targetId":"a","replacement":{"content":"new"}}"#;
        let user = r#"{"role":"user","content":"old","timestamp":1}"#;
        let edited = r#"{"role":"user","content":"new","timestamp":1}"#;
        check(&[omit], user, None);
        check(&[omit, other, text], user, Some(edited));
        check(&[text, omit], user, None);
        check(&[other], user, Some(user));
        for bad in [
            r#"{"type":"context_edit","targetId":"a"}"#,
            r#"{"type":"context_edit","targetId":1,"replacement":null}"#,
            r#"{"type":"context_edit","targetId":"a","replacement":{"content":1}}"#,
            r#"{"type":"context_edit","targetId":"a","replacement":"new"}"#,
            r#"{"type":"label","targetId":"a","label":"\"context_edit\""}"#,
        ] {
            check(&[bad], user, Some(user));
        }
        let result = |content: &str| {
            format!(
                r#"{{"role":"toolResult","toolCallId":"c","toolName":"n","content":{content},"isError":false,"timestamp":1}}"#
            )
        };
        let wrapped = result(r#"[{"type":"text","text":"new"}]"#);
        check(&[text], &result("[]"), Some(&wrapped));
        let custom = r#"{"role":"custom","customType":"t","content":"old","display":true,"timestamp":1}"#;
        check(&[text], custom, Some(&custom.replace("old", "new")));
        for kept in [
            r#"{"role":"bashExecution","command":"c","output":"o","cancelled":false,"truncated":false,"timestamp":1}"#,
            r#"{"role":"compactionSummary","summary":"s","tokensBefore":1,"timestamp":1}"#,
            r#"{"role":"system","content":"s"}"#,
        ] {
            check(&[omit], kept, Some(kept));
        }
    }
}
