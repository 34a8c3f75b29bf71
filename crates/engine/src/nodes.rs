//! Entries become nodes. One writer for what a session appends, for what a move adds, and for notes.

use quipu_dag::{Node, NodeRecord};
use quipu_history::ListedIds;
use quipu_machine::Draft;
use quipu_protocol::{Entry, Epoch, Message, NodeId, UnixMs};
use quipu_store::{Commit, NewChunk};
use quipu_transcript::Listing;

use crate::clock::{Clock, fresh_id};
use crate::identity::Prompt;

/// Writes entries into a commit, each as the child of another.
pub(crate) struct NodeWriter<'a> {
    clock: &'a dyn Clock,
    /// The time of the last node, so that time order is lineage order.
    last: UnixMs,
    /// What the entries stand in; `None` for a session at rest, whose entries say it themselves.
    epoch: Option<&'a Epoch>,
    /// The texts of the system prompt, written with the node that begins an epoch.
    prompt: Option<&'a Prompt>,
    /// Ids of nodes before those that are written.
    listed: ListedIds,
}

impl<'a> NodeWriter<'a> {
    /// Writes nodes later than `last`.
    pub(crate) fn new(clock: &'a dyn Clock, last: UnixMs, listed: ListedIds) -> Self {
        Self { clock, last, epoch: None, prompt: None, listed }
    }

    /// The entries stand in an epoch of a session that is open.
    pub(crate) fn within(mut self, epoch: &'a Epoch, prompt: &'a Prompt) -> Self {
        (self.epoch, self.prompt) = (Some(epoch), Some(prompt));
        self
    }

    /// The time of the last node.
    pub(crate) fn last(&self) -> UnixMs {
        self.last
    }

    /// The epoch that the next entry stands in.
    pub(crate) fn epoch(&self) -> Option<&'a Epoch> {
        self.epoch
    }

    /// Writes an entry.
    pub(crate) fn write(&mut self, commit: &mut Commit, draft: &'a Draft, parent: Option<NodeId>) -> NodeId {
        self.last = self.clock.now().max(self.last.saturating_add(1));
        self.epoch = begun(&draft.entry).or(self.epoch);
        let id = fresh_id();
        let (parent_id, first_kept) = (self.listed.of(parent), self.listed.kept_by(&draft.entry));
        let listing = Listing { id: &id, parent: parent_id, first_kept, at: self.last };
        let encoded = quipu_transcript::encode_listed(&draft.entry, &draft.step, &listing);
        let record = NodeRecord {
            parent,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: self.last,
            external_id: Some(id),
            system_prompt: self.epoch.and_then(|epoch| epoch.system),
        };
        let config = match &*draft.entry {
            Entry::Message(Message::Assistant(_)) | Entry::Session(_) | Entry::Epoch(_) => {
                self.epoch.map(config)
            }
            Entry::Message(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
        };
        if let Entry::Session(_) | Entry::Epoch(_) = &*draft.entry {
            commit.blobs.extend(self.prompt.into_iter().flat_map(Prompt::blobs));
        }
        commit.blobs.extend(draft.blobs.iter().cloned());
        commit.blobs.extend(encoded.blobs);
        let chunks = encoded.chunks.into_iter();
        commit.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        commit.chunks.extend(draft.states.iter().cloned());
        let node = Node::new(record, config, None);
        self.listed.wrote(&node);
        let id = node.id;
        commit.nodes.push(node);
        id
    }
}

/// The epoch that an entry begins.
fn begun(entry: &Entry) -> Option<&Epoch> {
    match entry {
        Entry::Session(start) => Some(&start.epoch),
        Entry::Epoch(epoch) => Some(epoch),
        Entry::Message(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
    }
}

/// What other programs read about the writer of a node.
fn config(epoch: &Epoch) -> String {
    serde_json::json!({
        "agent": crate::AGENT,
        "model": { "provider": epoch.provider, "id": epoch.model },
        "thinkingLevel": epoch.thinking,
    })
    .to_string()
}
