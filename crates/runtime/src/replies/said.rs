//! What a run that is owed has said, as its session has it.

use std::collections::HashSet;

use quipu::INBOX_ITEM;
use quipu::View;
use quipu::protocol::{AuthorClass, Entry, ItemId, Message, NodeId, Origin, StepInfo, StopReason};
use quipu::store::{LineageEnd, StoreError, decode_nodes};

use super::Replies;
use super::rows::OwedReply;

/// What stands behind the beginning of a turn, the oldest first.
pub(crate) struct SaidMessages {
    pub(crate) messages: Vec<SaidMessage>,
    /// Somebody else asked something last; that is left out.
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
    /// The messages of a run that is owed.
    pub(crate) async fn said(&self, owed: &OwedReply, view: &View) -> Result<SaidMessages, StoreError> {
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
            let before = match nodes.first().is_some_and(|first| first.id == base) {
                true => Ok(Vec::new()),
                false => store.lineage(base, LineageEnd::Root).await,
            };
            let before: HashSet<NodeId> = match before {
                Ok(before) => before.iter().map(|node| node.id).chain([base]).collect(),
                // It was removed: what is its own is not known.
                Err(StoreError::Missing { .. }) => nodes.iter().map(|node| node.id).collect(),
                Err(error) => return Err(error),
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
        // Whose messages these are.
        let mut is_own = owed.next.is_none();
        let mut is_first = true;
        for (node, decoded) in nodes.iter().zip(entries) {
            let Entry::Message(message) = decoded.entry else { continue };
            let is_taken = taken.contains(&node.id);
            if is_taken {
                is_own = true;
            } else if matches!(message, Message::User(_)) && owed.next.is_some() {
                is_own = match asked_by(&decoded.step) {
                    PromptSource::Inbox(item) => owed.has_prompt(&item),
                    PromptSource::Run => is_own || is_first && !owed.taken.is_empty(),
                    PromptSource::Others => false,
                };
                said.is_left = !is_own;
            }
            is_first = false;
            if is_own {
                said.messages.push(SaidMessage { node: node.id, message, is_taken });
            }
        }
        Ok(said)
    }
}

impl Replies {
    /// Whether a prompt is one of a turn that is owed; nothing for one that a run made for itself.
    pub(super) async fn is_own_prompt(
        &self,
        owed: &OwedReply,
        node: NodeId,
    ) -> Result<Option<bool>, StoreError> {
        let store = &*self.0.store;
        let nodes: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
        let Some(decoded) = decode_nodes(store, &nodes).await?.pop() else { return Ok(None) };
        Ok(match asked_by(&decoded.step) {
            PromptSource::Inbox(item) => Some(owed.has_prompt(&item)),
            PromptSource::Run => None,
            PromptSource::Others => Some(false),
        })
    }
}

/// Where a prompt comes from.
enum PromptSource {
    /// A message of a conversation, by its id in the inbox.
    Inbox(ItemId),
    /// A run made it for itself.
    Run,
    /// Somebody spoke in the session.
    Others,
}

fn asked_by(step: &StepInfo) -> PromptSource {
    if let Some(item) = step.extra.get(INBOX_ITEM) {
        return PromptSource::Inbox(item.read::<String>().unwrap_or_default().into());
    }
    let is_own = step.provenance.as_ref().is_some_and(|by| match by.origin {
        Origin::Model | Origin::Tool | Origin::Child => true,
        Origin::Process => by.author == AuthorClass::System,
        // A hook that makes a run go on says of which; one that changes what somebody said does not.
        Origin::Hook => step.run.is_some(),
        Origin::Person | Origin::Schedule | Origin::Channel | Origin::Import => false,
    });
    if is_own { PromptSource::Run } else { PromptSource::Others }
}
