//! Nodes of a conversation to items.

use std::collections::HashMap;

use quipu_protocol::{
    AssistantMessage, Body, CustomMessage, Entry, Json, Message, StopReason, ToolResultMessage, UnixMs,
    UserMessage,
};
use quipu_seal::Sealer;

use super::content::Said;
use crate::ProblemKind;
use crate::export::{Files, begin, record, time_of_number, title};
use crate::intake::{Follows, Item, Outline, Placer, Stop};
use crate::json::{Members, text_of};

/// Members of a conversation that stay as long as it does.
const KEPT: [&str; 5] =
    ["conversation_id", "conversation_template_id", "gizmo_id", "gizmo_type", "conversation_origin"];
/// Those that are told elsewhere.
const TOLD: [&str; 6] = ["id", "title", "create_time", "update_time", "mapping", "current_node"];

/// A node of the tree.
struct Node<'a> {
    id: String,
    parent: Option<String>,
    said: Option<Said<'a>>,
}

/// What a node follows among those that are items.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    Node(usize),
    /// A node that is not in the file.
    Missing(usize),
}

pub(super) fn read(
    conversation: &Members<'_>,
    outline: &Outline,
    files: &mut Files,
    sealer: &Sealer,
    out: &mut Placer,
) -> Result<(), Stop> {
    let time = conversation.get("create_time").and_then(time_of_number);
    let owner = begin(conversation, outline, time, &KEPT, &TOLD, out);
    let nodes = nodes(conversation, out);
    let places: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).collect();
    let mut reader =
        Reader { out, files, sealer, owner, nodes: &nodes, before: Vec::new(), head: None, time };
    reader.before = reader.resolve(&places);
    let current = conversation.string("current_node").and_then(|id| places.get(id.as_ref()).copied());
    reader.head = current.and_then(|at| match nodes[at].said {
        Some(_) => Some(at),
        None => match reader.before[at] {
            Before::Node(at) => Some(at),
            Before::Nothing | Before::Missing(_) => None,
        },
    });
    reader.all()?;
    title(out, owner, outline.session.as_str(), conversation.get("title").and_then(text_of).as_deref())
}

/// The nodes, in the order of the file.
fn nodes<'a>(conversation: &Members<'a>, out: &mut Placer) -> Vec<Node<'a>> {
    let mapping = conversation.get("mapping").and_then(Members::of).unwrap_or_else(|| Members(Vec::new()));
    let mut nodes = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (at, (id, node)) in mapping.0.into_iter().enumerate() {
        let line = at as u64 + 1;
        let Some(members) = Members::of(node) else {
            out.report.problem(line, ProblemKind::NotAnEntry, node);
            continue;
        };
        let id = id.into_owned();
        if !seen.insert(id.clone()) {
            out.report.problem(
                line,
                ProblemKind::NotAnEntry,
                "a second node with this id in one conversation",
            );
            continue;
        }
        let message = members.get("message").filter(|message| *message != "null");
        let said = message.and_then(Said::of);
        if said.is_none() {
            match message {
                Some(other) => out.report.problem(line, ProblemKind::NotAnEntry, other),
                None => out.report.skip("node without a message"),
            }
        }
        let said = said.filter(|said| {
            let is_unfinished = said.is_unfinished();
            if is_unfinished {
                out.unfinished(line, &id);
            }
            !is_unfinished
        });
        let parent = members.string("parent").filter(|parent| !parent.is_empty()).map(Into::into);
        nodes.push(Node { id, parent, said });
    }
    nodes
}

struct Reader<'a, 'b> {
    out: &'b mut Placer,
    files: &'b mut Files,
    sealer: &'b Sealer,
    owner: usize,
    nodes: &'b [Node<'a>],
    before: Vec<Before>,
    /// Where the conversation stands.
    head: Option<usize>,
    /// Of the conversation.
    time: Option<UnixMs>,
}

impl Reader<'_, '_> {
    /// What each node follows: the nearest node above it that has a message.
    fn resolve(&self, places: &HashMap<&str, usize>) -> Vec<Before> {
        let mut found: Vec<Option<Before>> = vec![None; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut path = Vec::new();
            let mut at = start;
            let mut is_open = vec![start];
            let before = loop {
                if let Some(before) = found[at] {
                    break before;
                }
                path.push(at);
                let Some(parent) = &self.nodes[at].parent else { break Before::Nothing };
                let Some(next) = places.get(parent.as_str()).copied() else { break Before::Missing(at) };
                if self.nodes[next].said.is_some() {
                    break Before::Node(next);
                }
                // Nodes without messages that follow each other in a circle.
                if is_open.len() > self.nodes.len() {
                    break Before::Nothing;
                }
                is_open.push(next);
                at = next;
            };
            for at in path {
                found[at] = Some(before);
            }
        }
        found.into_iter().map(|before| before.unwrap_or(Before::Nothing)).collect()
    }

    /// All nodes, each after what it follows, so that nothing has to wait.
    fn all(&mut self) -> Result<(), Stop> {
        let mut done = vec![false; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut path = vec![start];
            while let Some(at) = path.last().copied() {
                if !done[at]
                    && let Before::Node(before) = self.before[at]
                    && !done[before]
                    && path.len() <= self.nodes.len()
                {
                    path.push(before);
                    continue;
                }
                path.pop();
                if !std::mem::replace(&mut done[at], true) {
                    self.node(at)?;
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, at: usize) -> Result<(), Stop> {
        let node = &self.nodes[at];
        let Some(said) = &node.said else { return Ok(()) };
        let line = at as u64 + 1;
        let time = said.members.get("create_time").and_then(time_of_number).or(self.time);
        let blocks = match said.is_said() {
            true => said.blocks(line, self.files, self.sealer, &mut self.out.report),
            false => Vec::new(),
        };
        let call = said.call(&node.id).filter(|_| said.is_said());
        let timestamp = time.unwrap_or_default();
        let mut kept = Some(said.rest());
        let entry = match said.role.as_str() {
            "user" if !blocks.is_empty() => {
                Entry::Message(Message::User(UserMessage { content: Body::Blocks(blocks), timestamp }))
            }
            "assistant" if call.is_some() || !blocks.is_empty() => {
                let finish = said.metadata("finish_details").and_then(Members::of);
                let finish = finish.as_ref().and_then(|finish| finish.string("type"));
                Entry::Message(Message::Assistant(AssistantMessage {
                    stop_reason: match finish.as_deref() {
                        Some("interrupted") => StopReason::Aborted,
                        _ if call.is_some() => StopReason::ToolUse,
                        Some("max_tokens") => StopReason::Length,
                        _ => StopReason::Stop,
                    },
                    content: call.map_or(blocks, |call| vec![call]),
                    api: super::AGENT.into(),
                    provider: "openai".into(),
                    model: said.metadata("model_slug").and_then(text_of).unwrap_or_default(),
                    timestamp,
                    ..AssistantMessage::default()
                }))
            }
            "tool" if self.answers(at) => {
                let state = said.metadata("aggregate_result").and_then(Members::of);
                let state = state.as_ref().and_then(|state| state.string("status"));
                let Before::Node(call) = self.before[at] else { return Ok(()) };
                Entry::Message(Message::ToolResult(ToolResultMessage {
                    tool_call_id: self.nodes[call].id.as_str().into(),
                    tool_name: said.name.clone().unwrap_or_default(),
                    content: blocks,
                    details: said.metadata("aggregate_result").and_then(|result| Json::parse(result).ok()),
                    usage: None,
                    is_error: said.kind == "system_error"
                        || state.is_some_and(|state| state.contains("failed") || state.contains("exception")),
                    timestamp,
                }))
            }
            // A tool that says more, or that nobody asked.
            "tool" if !blocks.is_empty() => Entry::Message(Message::Custom(CustomMessage {
                custom_type: said.name.clone().unwrap_or_else(|| "tool".into()),
                content: Body::Blocks(blocks),
                display: true,
                details: None,
                timestamp,
            })),
            _ => {
                kept = None;
                record("message", &said.whole())
            }
        };
        let mut item = Item::new(node.id.clone(), entry, line);
        (item.owner, item.time, item.kept) = (self.owner, time, kept);
        item.is_head = self.head.is_none_or(|head| head == at);
        item.follows = match self.before[at] {
            Before::Nothing => Follows::Nothing,
            Before::Node(before) => Follows::Item(self.nodes[before].id.clone()),
            Before::Missing(from) => Follows::Item(self.nodes[from].parent.clone().unwrap_or_default()),
        };
        self.out.item(item)
    }

    /// Whether a message is the first that a tool says to its call.
    fn answers(&self, at: usize) -> bool {
        let Before::Node(before) = self.before[at] else { return false };
        let before = self.nodes[before].said.as_ref();
        before.is_some_and(|before| before.role == "assistant" && before.to.is_some() && before.is_said())
    }
}
