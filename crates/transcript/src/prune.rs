//! Old results of tools that a request names instead of holding: the graph keeps them, and `recall` reads them.

use std::num::NonZeroU32;
use std::sync::Arc;

use quipu_protocol::{BashExecutionMessage, Content, Json, Message, NodeId, ToolResultMessage};
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

/// What a session records when it begins to leave out results: all before a node, and larger than a size. Where they are
/// pointed to, failures stay. Requests from there on follow from it and the messages alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prune {
    /// The first message that is left alone, with all after it.
    pub before: NodeId,
    /// Characters (UTF-16 code units, 4,800 for an image) above which a result is left out; at least 2,000 count.
    pub min_characters: u64,
    /// What stands in the place of a result.
    #[serde(default, skip_serializing_if = "PruneStyle::is_pointer")]
    pub style: PruneStyle,
    /// Whose results these are.
    #[serde(default, skip_serializing_if = "ToolGlobs::is_everything")]
    pub tools: ToolGlobs,
    /// Which are left alone at the beginning.
    #[serde(default, skip_serializing_if = "PruneStart::is_first")]
    pub from: PruneStart,
}

/// What stands in the place of a result that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PruneStyle {
    /// Its beginning and its end, and how `recall` reads it.
    #[default]
    Pointer,
    /// So many characters of its beginning and of its end.
    Trim {
        /// Of its beginning.
        head: u64,
        /// Of its end.
        tail: u64,
    },
    /// A text.
    Clear(String),
    /// Nothing: every message before the node is left out, whoever said it.
    Omit,
}

impl PruneStyle {
    /// Whether the model reads what is left out with `recall`.
    #[must_use]
    pub fn is_pointer(&self) -> bool {
        matches!(self, Self::Pointer)
    }
}

/// Where results begin that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PruneStart {
    /// At the first message.
    #[default]
    First,
    /// At the first message of the user: what was read before it stays.
    User,
}

impl PruneStart {
    fn is_first(&self) -> bool {
        matches!(self, Self::First)
    }

    /// How many messages stand before it.
    fn skipped(self, messages: &[Arc<Message>]) -> usize {
        match self {
            Self::First => 0,
            Self::User => messages
                .iter()
                .position(|message| matches!(**message, Message::User(_)))
                .unwrap_or(messages.len()),
        }
    }
}

/// Names of tools, in which `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolGlobs {
    /// Only these, where there are some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl ToolGlobs {
    fn is_everything(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether a tool is meant; one that is denied never is.
    #[must_use]
    pub fn has(&self, tool: &str) -> bool {
        let is_one = |globs: &[String]| globs.iter().any(|glob| is_match(glob, tool));
        !is_one(&self.deny) && (self.allow.is_empty() || is_one(&self.allow))
    }
}

/// Whether a name is one that a pattern means; letters count in any case.
fn is_match(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.trim().to_lowercase(), name.to_lowercase());
    let Some((first, rest)) = glob.split_once('*') else { return glob == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let Some((middle, last)) = rest.rsplit_once('*') else { return left.ends_with(rest) };
    for part in middle.split('*') {
        let Some((_, behind)) = left.split_once(part) else { return false };
        left = behind;
    }
    left.ends_with(last)
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
        let skipped = self.from.skipped(messages);
        for (message, node) in messages.iter_mut().zip(nodes).take(until).skip(skipped) {
            if let Some((pointer, tokens)) = self.instead(message, *node) {
                *message = Arc::new(pointer);
                // Whole turns are no results.
                pruned.results += u64::from(self.style != PruneStyle::Omit);
                pruned.tokens = pruned.tokens.saturating_add(tokens);
            }
        }
        pruned
    }

    /// One that leaves out all that was said before a message.
    #[must_use]
    pub fn omitting(before: NodeId) -> Self {
        let (tools, from) = Default::default();
        Self { before, min_characters: 0, style: PruneStyle::Omit, tools, from }
    }

    /// What it would save of these messages, each with its place: estimated tokens. Nothing is changed.
    pub fn savings<'a>(
        &'a self,
        messages: &'a [Arc<Message>],
        nodes: &'a [NodeId],
    ) -> impl Iterator<Item = (usize, u64)> + 'a {
        let until = nodes.iter().position(|node| *node == self.before).unwrap_or(0);
        let all = messages.iter().zip(nodes).enumerate().take(until).skip(self.from.skipped(messages));
        all.filter_map(|(at, (message, node))| Some((at, self.instead(message, *node)?.1)))
    }

    /// What stands in place of a message, and the estimated tokens that this saves.
    fn instead(&self, message: &Message, node: NodeId) -> Option<(Message, u64)> {
        if self.style == PruneStyle::Omit {
            return (!is_omitted(message)).then(|| (omitted(), sent_tokens(message)));
        }
        let Message::ToolResult(result) = message else { return None };
        if !self.tools.has(&result.tool_name) {
            return None;
        }
        let text = match &self.style {
            PruneStyle::Pointer if is_prunable(message, self.min_characters) => words(result, node),
            PruneStyle::Pointer | PruneStyle::Omit => return None,
            PruneStyle::Trim { head, tail } => trimmed(result, self.min_characters, *head, *tail)?,
            PruneStyle::Clear(text) => text.clone(),
        };
        let short =
            Message::ToolResult(ToolResultMessage { content: vec![Content::text(text)], ..result.clone() });
        let saved = sent_tokens(message).saturating_sub(sent_tokens(&short));
        // Where nothing is saved, it stays.
        (self.style.is_pointer() || saved > 0).then_some((short, saved))
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

/// Where the newest `turns` turns of the user begin: the place of the message that begins them. `None` when there are no more.
pub fn newest_turns<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Arc<Message>> + ExactSizeIterator,
    turns: NonZeroU32,
) -> Option<usize> {
    let users = messages.enumerate().rev().filter(|(_, message)| matches!(***message, Message::User(_)));
    let nth = usize::try_from(turns.get() - 1).unwrap_or(usize::MAX);
    users.map(|(at, _)| at).nth(nth)
}

/// What no request has.
fn omitted() -> Message {
    Message::BashExecution(BashExecutionMessage {
        command: String::new(),
        output: String::new(),
        exit_code: None,
        cancelled: false,
        truncated: false,
        full_output_path: None,
        exclude_from_context: Some(true),
        timestamp: 0,
    })
}

fn is_omitted(message: &Message) -> bool {
    matches!(message, Message::BashExecution(bash) if bash.exclude_from_context == Some(true))
}

/// The text of a result that has more characters, without its middle.
fn trimmed(result: &ToolResultMessage, most: u64, head: u64, tail: u64) -> Option<String> {
    let texts = result.content.iter().filter_map(|block| match block {
        Content::Text(text) => Some(text.text.as_str()),
        Content::Image(_) => Some("[image left out]"),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    let count = text.chars().count();
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (head, tail) = (size(head), size(tail));
    if count <= size(most) || head.saturating_add(tail) >= count {
        return None;
    }
    let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    Some(format!(
        "{}\n...\n{}\n\n[This result is shortened: its first {head} and last {tail} of {count} characters.]",
        &text[..at(head)],
        &text[at(count - tail)..]
    ))
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
        let prune = pointers(node(5), 0);
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
        let gone = Prune { before: node(9), ..prune.clone() };
        assert_eq!(gone.apply(&mut original.to_vec(), &nodes), PruneReport::default());
        assert!(before.iter().zip(&messages).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    fn pointers(before: NodeId, min_characters: u64) -> Prune {
        let (style, tools, from) = Default::default();
        Prune { before, min_characters, style, tools, from }
    }

    #[test]
    fn results_are_trimmed_and_cleared_behind_the_first_request() {
        let long = format!("{}{}", "é".repeat(3_000), "z".repeat(2_000));
        let image = Content::Image(ImageContent { data: "AAAA".into(), mime_type: "image/png".into() });
        let original = [
            result(vec![Content::text(&*long)], false),
            Arc::new(Message::user("x".repeat(9_000), 0)),
            result(vec![Content::text(&*long)], true),
            result(vec![Content::text("short"), image], false),
            result(vec![Content::text(&*long)], false),
            Arc::new(Message::Assistant(AssistantMessage::default())),
        ];
        let nodes: Vec<NodeId> = (0..6).map(node).collect();
        let style = PruneStyle::Trim { head: 10, tail: 20 };
        let trim = Prune { style, from: PruneStart::User, ..pointers(node(4), 4_000) };
        let mut messages = original.to_vec();
        assert_eq!(trim.savings(&messages, &nodes).map(|(at, _)| at).collect::<Vec<_>>(), [2]);
        assert_eq!(trim.apply(&mut messages, &nodes).results, 1, "failures as well");
        let expect = format!(
            "{}\n...\n{}\n\n[This result is shortened: its first 10 and last 20 of 5000 characters.]",
            "é".repeat(10),
            "z".repeat(20)
        );
        assert_eq!(text(&messages[2]), expect);
        assert_eq!(trim.apply(&mut messages, &nodes).results, 0, "once");
        let clear = Prune { style: PruneStyle::Clear("gone".into()), before: node(5), ..trim.clone() };
        assert_eq!(clear.apply(&mut messages, &nodes).results, 3);
        assert_eq!(clear.apply(&mut messages, &nodes).results, 0);
        let found: Vec<&str> = messages.iter().map(|message| text(message)).collect();
        assert_eq!(found[0], long);
        assert_eq!(found[1..], ["", "gone", "gone", "gone", ""]);
        // Neither where a tool is left alone, nor where nothing gets shorter.
        let tools = ToolGlobs { allow: Vec::new(), deny: vec!["T*".into()] };
        assert_eq!(Prune { tools, ..clear }.savings(&original, &nodes).count(), 0);
        let style = PruneStyle::Trim { head: u64::MAX, tail: 4_000 };
        assert_eq!(Prune { style, ..trim }.savings(&original, &nodes).count(), 0);
    }

    #[test]
    fn tools_are_named_by_patterns() {
        let check = |glob: &str, yes: &[&str], no: &[&str]| {
            assert!(yes.iter().all(|name| is_match(glob, name)), "{glob}");
            assert!(!no.iter().any(|name| is_match(glob, name)), "{glob}");
        };
        check("read", &["read", "READ"], &["reads", ""]);
        check("*", &["", "x"], &[]);
        check("mcp_*", &["mcp_", "mcp_a"], &["mcp", "xmcp_a"]);
        check("*_get", &["a_get", "_get"], &["get", "a_gets"]);
        check("a*b*c", &["abc", "axxbxxc"], &["ab", "acb", "abcd"]);
        check("a**b", &["ab", "axb"], &["a"]);
        let globs = ToolGlobs { allow: vec!["a*".into()], deny: vec!["ab".into()] };
        assert_eq!(["a", "ab", "b"].map(|name| globs.has(name)), [true, false, false]);
    }

    #[test]
    fn prune_is_recorded_by_an_entry() {
        let prune = pointers(node(7), 4_000);
        assert!(!prune.entry().get().contains("style"), "as before there were others");
        let tools = ToolGlobs { allow: vec!["re*".into()], deny: vec!["read".into()] };
        let trim = PruneStyle::Trim { head: 1, tail: 2 };
        let styles = [PruneStyle::Pointer, trim, PruneStyle::Clear("x".into()), PruneStyle::Omit];
        for style in styles {
            let prune = Prune { style, tools: tools.clone(), from: PruneStart::User, ..prune.clone() };
            assert_eq!(Prune::of_entry(&prune.entry()), Some(prune));
        }
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
    fn omitted_turns_leave_nothing_in_a_request() {
        let user = |text: &str| Arc::new(Message::user(text, 0));
        let original = [
            user("one"),
            Arc::new(Message::Assistant(AssistantMessage::default())),
            result(vec![Content::text("x")], false),
            user("two"),
            user("three"),
        ];
        let turns = |turns: u32| newest_turns(original.iter(), NonZeroU32::new(turns).unwrap());
        assert_eq!([1, 2, 3, 4].map(turns), [Some(4), Some(3), Some(0), None]);
        let nodes: Vec<NodeId> = (0..5).map(node).collect();
        let omit = Prune::omitting(node(3));
        let mut messages = original.to_vec();
        assert_eq!(omit.savings(&messages, &nodes).count(), 3);
        let report = omit.apply(&mut messages, &nodes);
        assert_eq!((report.results, report.until), (0, 3));
        let sent = crate::project_messages(messages.iter().cloned());
        assert_eq!(sent, [user("two"), user("three")]);
        assert_eq!(messages.iter().map(|message| sent_tokens(message)).sum::<u64>(), 2 + 1);
        assert_eq!(newest_turns(messages.iter(), NonZeroU32::new(3).unwrap()), None);
        // Again, it finds nothing.
        assert_eq!(omit.savings(&messages, &nodes).count(), 0);
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
