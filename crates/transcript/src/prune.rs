//! Old results of tools that a request names instead of holding: the graph keeps them, and `recall` reads them.

use std::sync::Arc;

use quipu_protocol::{Content, Json, Message, NodeId, ToolResultMessage};
use serde::{Deserialize, Serialize};

use crate::compact::{estimate_tokens, sent_tokens};
use crate::project::is_settled;

/// What an entry is called that says from where on results are left out.
const KIND: &str = "quipu.prune";
/// Characters at the beginning and at the end of a result that stay.
const SHOWN: usize = 300;
/// Results of fewer characters are never left out: what stands in their place would not be much shorter.
const LEAST: u64 = 2_000;
/// UTF-16 code units that count as one token.
const CHARACTERS: u64 = 4;

/// What a session records when it begins to leave out results: all before a node, and larger than a size. Failures
/// stay. Requests from there on follow from it and the messages alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prune {
    /// The first message that is left alone, with all after it.
    pub before: NodeId,
    /// Characters (UTF-16 code units, 4,800 for an image) above which a result is left out; at least 2,000 count.
    pub min_characters: u64,
}

/// The effect of a prune on a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneReport {
    /// Results that are left out.
    pub results: u64,
    /// Estimated tokens that they had more than what stands in their place.
    pub tokens: u64,
    /// How many messages were looked at: the others were left alone.
    pub until: usize,
}

impl Prune {
    /// The entry that records it.
    pub fn entry(&self) -> Json {
        Json::from(&serde_json::json!({ "type": "custom", "customType": KIND, "data": self }))
    }

    /// What an entry records, if it is one of these.
    pub fn of_entry(entry: &Json) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            r#type: String,
            custom_type: String,
            data: Prune,
        }
        // Most entries are labels and the like: told apart without reading them.
        if !entry.get().contains(KIND) {
            return None;
        }
        let Fields { r#type, custom_type, data } = entry.read().ok()?;
        (r#type == "custom" && custom_type == KIND).then_some(data)
    }

    /// Puts a pointer in the place of each result that is left out. `nodes` are those of `messages`. Does nothing where
    /// `before` is not among the nodes: then all that it spoke of is summed up already.
    pub fn apply(&self, messages: &mut [Arc<Message>], nodes: &[NodeId]) -> PruneReport {
        let until = nodes.iter().position(|node| *node == self.before).unwrap_or(0);
        let mut pruned = PruneReport { until, ..PruneReport::default() };
        for (message, node) in messages.iter_mut().zip(nodes).take(until) {
            if let Some((pointer, tokens)) = self.pointer(message, *node) {
                *message = Arc::new(pointer);
                pruned.results += 1;
                pruned.tokens = pruned.tokens.saturating_add(tokens);
            }
        }
        pruned
    }

    /// What stands in place of a message, and the estimated tokens that this saves.
    fn pointer(&self, message: &Message, node: NodeId) -> Option<(Message, u64)> {
        let Message::ToolResult(result) = message else { return None };
        if !is_prunable(message, self.min_characters) {
            return None;
        }
        let pointer = Message::ToolResult(ToolResultMessage {
            content: vec![Content::text(words(result, node))],
            ..result.clone()
        });
        let saved = sent_tokens(message).saturating_sub(sent_tokens(&pointer));
        Some((pointer, saved))
    }
}

/// Whether a message can be left out: a result that is no failure and has more characters (UTF-16 code units, 4,800
/// for an image).
pub fn is_prunable(message: &Message, min_characters: u64) -> bool {
    let Message::ToolResult(result) = message else { return false };
    let characters = || estimate_tokens(message).saturating_mul(CHARACTERS);
    !result.is_error && characters() > min_characters.max(LEAST)
}

/// Where the last `turns` turns begin (at least one): the place of the answer that begins them. `None` when there are
/// no more.
pub fn last_turns(messages: &[Arc<Message>], turns: u64) -> Option<usize> {
    let mut left = turns.max(1);
    messages.iter().rposition(|message| {
        if let Message::Assistant(answer) = &**message
            && is_settled(answer.stop_reason)
        {
            left -= 1;
        }
        left == 0
    })
}

fn words(result: &ToolResultMessage, node: NodeId) -> String {
    let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
    let text = texts.join("\n");
    let characters = text.chars().count();
    let images = result.content.iter().filter(|block| matches!(block, Content::Image(_))).count();
    let images = match images {
        0 => String::new(),
        1 => " and an image".into(),
        more => format!(" and {more} images"),
    };
    let mut words = format!(
        "[This result is left out to save room: {characters} characters{images}. It is kept whole: read it with \
         recall({{\"hash\":\"{}\",\"context_budget\":0}}).]",
        node.short()
    );
    let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    if characters > 2 * SHOWN {
        let (head, tail) = (&text[..at(SHOWN)], &text[at(characters - SHOWN)..]);
        words.push_str(&format!("\n{head}\n[… {} characters …]\n{tail}", characters - 2 * SHOWN));
    } else if characters > 0 {
        words.push('\n');
        words.push_str(&text);
    }
    words
}

#[cfg(test)]
mod tests {
    use quipu_protocol::{AssistantMessage, ImageContent};

    use super::*;

    fn result(content: Vec<Content>, is_error: bool) -> Arc<Message> {
        Arc::new(Message::ToolResult(ToolResultMessage {
            tool_call_id: "c".into(),
            tool_name: "t".into(),
            content,
            details: None,
            usage: None,
            is_error,
            timestamp: 0,
        }))
    }

    fn node(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn text(message: &Message) -> &str {
        let Message::ToolResult(result) = message else { return "" };
        result.content[0].as_text().unwrap_or_default()
    }

    #[test]
    fn pruning_takes_only_old_large_results() {
        let long = format!("{}{}", "é".repeat(2_000), "😀 end");
        let image = Content::Image(ImageContent { data: "AAAA".into(), mime_type: "image/png".into() });
        let original = [
            Arc::new(Message::user("x".repeat(9_000), 0)),
            result(vec![Content::text(&*long)], false),
            result(vec![Content::text(&*long)], true),
            result(vec![Content::text("short")], false),
            result(vec![Content::text("a picture"), image], false),
            Arc::new(Message::Assistant(AssistantMessage::default())),
            result(vec![Content::text(&*long)], false),
        ];
        let nodes: Vec<NodeId> = (0..7).map(node).collect();
        let mut messages = original.to_vec();
        let prune = Prune { before: node(5), min_characters: 0 };
        let pruned = prune.apply(&mut messages, &nodes);
        assert_eq!((pruned.results, pruned.until), (2, 5));
        let same = |at: &usize| Arc::ptr_eq(&original[*at], &messages[*at]);
        assert_eq!((0..7).filter(same).collect::<Vec<_>>(), [0, 2, 3, 5, 6]);
        let saved = |at: usize| estimate_tokens(&original[at]) - estimate_tokens(&messages[at]);
        assert_eq!(pruned.tokens, saved(1) + saved(4));
        let said = text(&messages[1]);
        assert!(said.contains("2005 characters. It is kept whole"), "{said}");
        assert!(said.contains("\"010101010101\"") && said.ends_with("é😀 end"), "{said}");
        assert!(
            text(&messages[4]).contains("9 characters and an image.")
                && text(&messages[4]).ends_with("\na picture")
        );

        // Again, it finds nothing; nor where the node is gone.
        let before = messages.clone();
        assert_eq!(prune.apply(&mut messages, &nodes), PruneReport { until: 5, ..PruneReport::default() });
        let gone = Prune { before: node(9), ..prune };
        assert_eq!(gone.apply(&mut original.to_vec(), &nodes), PruneReport::default());
        assert!(before.iter().zip(&messages).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn prune_is_recorded_by_an_entry() {
        let prune = Prune { before: node(7), min_characters: 4_000 };
        assert_eq!(Prune::of_entry(&prune.entry()), Some(prune));
        for other in [
            r#"{"type":"label","label":"quipu.prune"}"#,
            r#"{"type":"custom","customType":"quipu.prune"}"#,
            r#"{"type":"custom","customType":"quipu.prune","data":{"before":"x","minCharacters":1}}"#,
            r#"["quipu.prune"]"#,
        ] {
            assert_eq!(Prune::of_entry(&Json::parse(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn turns_are_counted_from_the_end() {
        let answer = || Arc::new(Message::Assistant(AssistantMessage::default()));
        let user = || Arc::new(Message::user("hi", 0));
        let messages = [user(), answer(), user(), answer(), answer()];
        let check = |turns, expect| assert_eq!(last_turns(&messages, turns), expect, "{turns}");
        check(0, Some(4));
        check(1, Some(4));
        check(2, Some(3));
        check(3, Some(1));
        check(4, None);
        assert_eq!(last_turns(&[], 1), None);
    }
}
