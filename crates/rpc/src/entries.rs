//! What is read out of a session's entries: the tree, what can be forked, and sums.

use std::collections::HashMap;

use quipu_protocol::{Content, Message};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::forms::{ContextFill, plain_number};
use crate::line::quoted;

/// The entries of a session, each the line of a session file, in the order of the file.
#[derive(Debug, Default)]
pub struct SessionEntries {
    lines: Vec<String>,
    heads: Vec<EntryHead>,
}

/// What places an entry.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EntryHead {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    parent_id: Option<String>,
    timestamp: Option<String>,
    target_id: Option<String>,
    label: Option<String>,
}

/// A message that a session can be forked from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    /// The entry of the message.
    pub entry_id: String,
    /// Its text.
    pub text: String,
}

/// What a session holds and cost, on all its branches.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStats {
    /// The file that the session is written to as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<String>,
    /// Its id.
    pub session_id: String,
    user_messages: u64,
    assistant_messages: u64,
    tool_calls: u64,
    tool_results: u64,
    total_messages: u64,
    tokens: TokenSums,
    #[serde(serialize_with = "plain_number")]
    cost: f64,
    /// How full the context is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<ContextFill>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenSums {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    total: u64,
}

/// The parts of an entry that are added up.
#[derive(Debug, Deserialize)]
struct CountedEntry<'a> {
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct CountedMessage<'a> {
    #[serde(default)]
    role: String,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CountedUsage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cost: CountedCost,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CountedCost {
    total: f64,
}

#[derive(Debug, Deserialize)]
struct CountedBlock {
    #[serde(rename = "type", default)]
    kind: String,
}

impl SessionEntries {
    /// Those of these lines.
    pub fn new(lines: Vec<String>) -> Self {
        let heads = lines.iter().map(|line| serde_json::from_str(line).unwrap_or_default()).collect();
        Self { lines, heads }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Where an entry stands.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.heads.iter().position(|head| head.id.as_deref() == Some(id))
    }

    /// The id of an entry.
    pub fn id(&self, at: usize) -> Option<&str> {
        self.heads.get(at)?.id.as_deref()
    }

    /// The id of the last entry, which is the leaf.
    pub fn leaf(&self) -> Option<&str> {
        self.heads.last()?.id.as_deref()
    }

    /// Whether the last entry is a compaction.
    pub fn ends_compacted(&self) -> bool {
        self.heads.last().is_some_and(|head| head.kind == "compaction")
    }

    /// The text of a message of the user; `None` for another entry.
    pub fn user_text(&self, at: usize) -> Option<String> {
        let entry: CountedEntry<'_> = serde_json::from_str(self.lines.get(at)?).ok()?;
        match Message::parse(entry.message?.get()).ok()? {
            Message::User(message) => {
                Some(message.content.blocks().iter().filter_map(Content::as_text).collect())
            }
            _ => None,
        }
    }

    /// All from a place on, as `get_entries` answers.
    pub fn list(&self, from: usize) -> String {
        let entries = self.lines.get(from..).unwrap_or_default().join(",");
        format!("{{\"entries\":[{entries}],\"leafId\":{}}}", self.leaf_text())
    }

    fn leaf_text(&self) -> String {
        self.leaf().map_or_else(|| "null".into(), quoted)
    }

    /// All as a tree, as `get_tree` answers.
    pub fn tree(&self) -> String {
        let places: HashMap<&str, usize> =
            self.heads.iter().enumerate().filter_map(|(at, head)| Some((head.id.as_deref()?, at))).collect();
        let mut labels: HashMap<&str, (&str, &str)> = HashMap::new();
        for head in self.heads.iter().filter(|head| head.kind == "label") {
            let Some(target) = head.target_id.as_deref() else { continue };
            match head.label.as_deref().filter(|label| !label.is_empty()) {
                Some(label) => {
                    labels.insert(target, (label, head.timestamp.as_deref().unwrap_or_default()));
                }
                None => {
                    labels.remove(target);
                }
            }
        }
        let mut roots = Vec::new();
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.heads.len()];
        for (at, head) in self.heads.iter().enumerate() {
            let parent = head.parent_id.as_deref().filter(|parent| head.id.as_deref() != Some(*parent));
            match parent.and_then(|parent| places.get(parent)).filter(|parent| **parent != at) {
                Some(parent) => below[*parent].push(at),
                None => roots.push(at),
            }
        }
        for children in &mut below {
            // Times of one form and one zone sort as texts.
            children.sort_by(|a, b| self.heads[*a].timestamp.cmp(&self.heads[*b].timestamp));
        }
        let mut out = String::with_capacity(self.lines.iter().map(|line| line.len() + 32).sum());
        out.push_str("{\"tree\":[");
        // A conversation is one long path: nothing here calls itself.
        let mut open: Vec<(Option<usize>, std::vec::IntoIter<usize>, bool)> =
            vec![(None, roots.into_iter(), true)];
        while let Some((node, children, is_first)) = open.last_mut() {
            match children.next() {
                Some(child) => {
                    if !std::mem::take(is_first) {
                        out.push(',');
                    }
                    out.push_str("{\"entry\":");
                    out.push_str(&self.lines[child]);
                    out.push_str(",\"children\":[");
                    let children = std::mem::take(&mut below[child]);
                    open.push((Some(child), children.into_iter(), true));
                }
                None => {
                    out.push(']');
                    if let Some(node) = *node {
                        if let Some((label, time)) =
                            self.heads[node].id.as_deref().and_then(|id| labels.get(id))
                        {
                            out.push_str(&format!(
                                ",\"label\":{},\"labelTimestamp\":{}",
                                quoted(label),
                                quoted(time)
                            ));
                        }
                        out.push('}');
                    }
                    open.pop();
                }
            }
        }
        out.push_str(",\"leafId\":");
        out.push_str(&self.leaf_text());
        out.push('}');
        out
    }

    /// The messages of the user on all branches.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        let messages = (0..self.len()).filter_map(|at| {
            let text = self.user_text(at).filter(|text| !text.is_empty())?;
            Some(ForkMessage { entry_id: self.id(at)?.to_owned(), text })
        });
        messages.collect()
    }

    /// The sums over all entries.
    pub fn stats(&self) -> SessionStats {
        let mut stats = SessionStats::default();
        for (head, line) in self.heads.iter().zip(&self.lines) {
            let Ok(entry) = serde_json::from_str::<CountedEntry<'_>>(line) else { continue };
            match head.kind.as_str() {
                "compaction" | "branch_summary" => stats.add(entry.usage),
                "message" => stats.count(entry.message),
                _ => {}
            }
        }
        stats
    }
}

impl SessionStats {
    fn count(&mut self, message: Option<&RawValue>) {
        let Some(message) =
            message.and_then(|raw| serde_json::from_str::<CountedMessage<'_>>(raw.get()).ok())
        else {
            return;
        };
        self.total_messages += 1;
        match message.role.as_str() {
            "user" => self.user_messages += 1,
            "toolResult" => {
                self.tool_results += 1;
                self.add(message.usage);
            }
            "assistant" => {
                self.assistant_messages += 1;
                let blocks = message.content.map(|raw| serde_json::from_str::<Vec<CountedBlock>>(raw.get()));
                let blocks = blocks.and_then(Result::ok).unwrap_or_default();
                self.tool_calls +=
                    u64::try_from(blocks.iter().filter(|block| block.kind == "toolCall").count())
                        .unwrap_or(0);
                self.add(message.usage);
            }
            _ => {}
        }
    }

    fn add(&mut self, usage: Option<&RawValue>) {
        let Some(usage) = usage.and_then(|raw| serde_json::from_str::<CountedUsage>(raw.get()).ok()) else {
            return;
        };
        let tokens = &mut self.tokens;
        tokens.input += usage.input;
        tokens.output += usage.output;
        tokens.cache_read += usage.cache_read;
        tokens.cache_write += usage.cache_write;
        tokens.total = tokens.input + tokens.output + tokens.cache_read + tokens.cache_write;
        self.cost += usage.cost.total;
    }
}

/// The text of the last answer of a conversation: its text blocks, without white space around them.
pub fn last_answer_text<'a>(messages: impl DoubleEndedIterator<Item = &'a Message>) -> Option<String> {
    let answer = messages.rev().find_map(|message| match message {
        Message::Assistant(answer) => {
            let is_empty = answer.content.is_empty();
            let aborted = answer.stop_reason == quipu_protocol::StopReason::Aborted;
            (!(aborted && is_empty)).then_some(answer)
        }
        _ => None,
    })?;
    let text: String = answer.content.iter().filter_map(Content::as_text).collect();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The line that lists both queues, without a newline.
pub fn queue_line(steering: &[String], follow_up: &[String]) -> String {
    let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(",");
    format!(
        "{{\"type\":\"queue_update\",\"steering\":[{}],\"followUp\":[{}]}}",
        list(steering),
        list(follow_up)
    )
}
