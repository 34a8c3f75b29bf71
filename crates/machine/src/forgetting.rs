//! What a person had forgotten leaves the conversation that requests are made of; its nodes stay.

use std::sync::Arc;

use quipu_protocol::{ModelRequest, NodeId};
use quipu_transcript::{forgotten_compaction, forgotten_message, sent_tokens};

use super::Machine;

/// A request that is recorded with the commit before it: this very one, not one that says the same.
#[derive(Debug, Clone)]
pub struct RecordedRequest(pub Arc<ModelRequest>);

impl PartialEq for RecordedRequest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Machine {
    /// The nodes that the next request is made of, in their order.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The text of the system prompt that requests have now.
    pub fn system_text(&self) -> &str {
        &self.prefix.system
    }

    /// From here on no request has what these nodes say.
    pub(super) fn forget(&mut self, forgotten: &[NodeId]) {
        let mut is_changed = false;
        for (message, node) in self.messages.iter_mut().zip(&self.nodes) {
            if forgotten.contains(node) {
                let left = forgotten_message(message);
                is_changed |= left != **message;
                *message = Arc::new(left);
            }
        }
        let is_summary = self.nodes.first().is_some_and(|first| forgotten.contains(first));
        if let Some(compacted) = self.compacted.take_if(|_| is_summary) {
            self.compacted = Some(Arc::new(forgotten_compaction(&compacted)));
        }
        if !is_changed {
            return;
        }
        self.estimated = self.messages.iter().map(|message| sent_tokens(message)).sum();
        if let Some(request) = self.next.take() {
            // What the last commit recorded is not what is asked.
            self.revoke_pending_call(request);
        }
    }
}
