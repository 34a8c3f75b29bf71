//! What a run that is owed has said, as its session has it.

use std::collections::HashSet;

use quipu::View;
use quipu::protocol::{AuthorClass, Entry, Message, NodeId, Origin, Provenance, StopReason};
use quipu::store::{LineageEnd, StoreError, decode_nodes};

use super::Replies;
use super::rows::OwedReply;

/// What stands behind the beginning of a turn, the oldest first.
pub(crate) struct SaidMessages {
    pub(crate) messages: Vec<SaidMessage>,
    /// Somebody else asked something behind that, which is left out.
    pub(crate) is_left: bool,
    /// The session went to another node since the last message was taken.
    pub(super) is_moved: bool,
    /// The number of the next reply.
    pub(super) next: u32,
}

pub(crate) struct SaidMessage {
    pub(crate) node: NodeId,
    pub(crate) message: Message,
    /// Its replies are stored.
    pub(crate) is_taken: bool,
}

impl SaidMessages {
    /// Whether the last of it is the end of an answer.
    pub(crate) fn is_answered(&self) -> bool {
        match self.messages.last().map(|last| &last.message) {
            None => true,
            // A session that is opened again records the answer that a crash ended as a failed one.
            Some(Message::Assistant(answer)) => !matches!(
                answer.stop_reason,
                StopReason::ToolUse | StopReason::Aborted | StopReason::Pending | StopReason::Error
            ),
            Some(_) => false,
        }
    }
}

impl Replies {
    /// The messages of a run that is owed. `prompts`: how many prompts of it are part of a session.
    pub(crate) async fn said(
        &self,
        owed: &OwedReply,
        view: &View,
        prompts: usize,
    ) -> Result<SaidMessages, StoreError> {
        let store = &*self.0.store;
        let until = owed.base.map_or(LineageEnd::Root, LineageEnd::Node);
        let behind = async |from: NodeId| match store.lineage(from, until).await {
            // The run went back to before its prompt.
            Err(StoreError::Missing { .. }) => store.lineage(from, LineageEnd::Root).await,
            nodes => nodes,
        };
        let mut nodes = match view.head {
            Some(head) => behind(head).await?,
            None => Vec::new(),
        };
        let mut taken = HashSet::new();
        for last in &owed.taken {
            match behind(*last).await {
                Ok(nodes) => taken.extend(nodes.iter().map(|node| node.id)),
                // It was removed.
                Err(StoreError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(base) = owed.base {
            let before: HashSet<NodeId> = match nodes.first().is_some_and(|first| first.id == base) {
                true => [base].into(),
                false => store.lineage(base, LineageEnd::Root).await?.iter().map(|node| node.id).collect(),
            };
            nodes.retain(|node| !before.contains(&node.id));
        }
        let is_moved = owed.taken.last().is_none_or(|last| !nodes.iter().any(|node| node.id == *last));
        let entries = decode_nodes(store, &nodes).await?;
        let next = owed.next.unwrap_or_default();
        let mut said = SaidMessages { messages: Vec::new(), is_left: false, is_moved, next };
        if owed.next.is_none() {
            // As earlier versions counted.
            let answers = nodes.iter().zip(&entries).filter_map(|(node, decoded)| match &decoded.entry {
                Entry::Message(Message::Assistant(answer)) => Some((node.id, answer.stop_reason)),
                _ => None,
            });
            for (node, reason) in answers.take(usize::try_from(owed.answers).unwrap_or(usize::MAX)) {
                taken.insert(node);
                said.next += u32::from(!matches!(reason, StopReason::Error | StopReason::Aborted));
            }
        }
        let mut is_first = true;
        let is_asked = entries.iter().map(|decoded| {
            let is_prompt = matches!(&decoded.entry, Entry::Message(Message::User(_)));
            // The first is that of the turn, whoever said it.
            is_prompt && (std::mem::take(&mut is_first) || is_from_outside(decoded.step.provenance.as_ref()))
        });
        let is_asked: Vec<bool> = is_asked.collect();
        let known = nodes.iter().zip(&is_asked).filter(|(node, asked)| **asked && taken.contains(&node.id));
        let mut left = prompts.saturating_sub(known.count());
        for ((node, decoded), is_asked) in nodes.iter().zip(entries).zip(is_asked) {
            let is_taken = taken.contains(&node.id);
            if !is_taken && is_asked {
                if left == 0 {
                    said.is_left = true;
                    break;
                }
                left -= 1;
            }
            if let Entry::Message(message) = decoded.entry {
                said.messages.push(SaidMessage { node: node.id, message, is_taken });
            }
        }
        Ok(said)
    }
}

/// Whether a prompt is none that a run makes for itself.
fn is_from_outside(by: Option<&Provenance>) -> bool {
    by.is_none_or(|by| match by.origin {
        Origin::Model | Origin::Tool | Origin::Hook | Origin::Child => false,
        Origin::Process => by.author != AuthorClass::System,
        Origin::Person | Origin::Schedule | Origin::Channel | Origin::Import => true,
    })
}
