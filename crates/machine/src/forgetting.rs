//! What a person had forgotten leaves the conversation that requests are made of; its nodes stay.

use std::sync::Arc;

use quipu_protocol::{Event, ModelRequest, NodeId, Notice};
use quipu_transcript::{
    forget_sources, forgotten_compaction, forgotten_message, sent_tokens, source_nodes, summarize_anew,
};

use super::jump::OutdatedSummary;
use super::{Effect, Machine, Phase};

/// What people are told when it is too late to make a summary anew.
const STORED: &str = "Something was forgotten while a summary of it was being stored. The summary may still say it: undo it, or \
    have what it says forgotten as well.";

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

    /// The nodes that the text before the conversation tells.
    pub fn opening_nodes(&self) -> &[NodeId] {
        let opening = self.prefix.epoch.context.as_ref().and_then(|context| context.opening.as_ref());
        opening.filter(|opening| !opening.text.is_empty()).map_or(&[], |opening| &opening.nodes)
    }

    /// The nodes whose words the summary of the last compaction repeats.
    pub fn summed_nodes(&self) -> Vec<NodeId> {
        self.compacted.as_ref().map_or_else(Vec::new, |compacted| source_nodes(compacted))
    }

    /// Whether a call is under way that is made of something which was forgotten since.
    pub fn is_call_outdated(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_outdated && matches!(run.phase, Phase::Calling { .. }))
    }

    /// From here on no request has what these nodes say. Those of the text before the conversation go with what its source gives next.
    pub(super) fn forget(&mut self, forgotten: &[NodeId]) {
        let mut changed = Vec::new();
        for (place, (message, node)) in self.messages.iter_mut().zip(&self.nodes).enumerate() {
            if forgotten.contains(node) {
                let left = forgotten_message(message);
                if left != **message {
                    changed.push(place);
                }
                *message = Arc::new(left);
            }
        }
        let is_summary = self.nodes.first().is_some_and(|first| forgotten.contains(first));
        if let Some(compacted) = self.compacted.take_if(|_| is_summary) {
            self.compacted = Some(Arc::new(forgotten_compaction(&compacted)));
        }
        let summary = self.compacted.as_ref();
        if let Some(left) =
            summary.and_then(|summary| forget_sources(summary, |node| forgotten.contains(node)))
        {
            summarize_anew(&mut self.messages, &left);
            self.compacted = Some(Arc::new(left));
            changed.push(0);
        }
        self.outdate(forgotten, &changed);
        if changed.is_empty() {
            return;
        }
        self.estimated = self.messages.iter().map(|message| sent_tokens(message)).sum();
        if let Some(request) = self.next.take() {
            // What the last commit recorded is not what is asked.
            self.revoke_pending_call(request);
        }
    }

    /// What is being made of what was forgotten is not used: an answer and a summary are asked for again.
    fn outdate(&mut self, forgotten: &[NodeId], changed: &[usize]) {
        let is_stored = self.committing.is_some();
        let is_told = self.opening_nodes().iter().any(|node| forgotten.contains(node));
        let Some(run) = &mut self.run else { return };
        let summary = match &mut run.phase {
            Phase::Calling { .. } => {
                run.is_outdated |= !changed.is_empty() || is_told;
                OutdatedSummary::Unaffected
            }
            Phase::Compacting(compacting) => match (compacting.outdate(changed), is_stored) {
                (false, _) => OutdatedSummary::Unaffected,
                (true, true) => OutdatedSummary::Stored,
                (true, false) => OutdatedSummary::Pending,
            },
            Phase::Jumping(jumping) => jumping.outdate(forgotten),
            _ => OutdatedSummary::Unaffected,
        };
        match summary {
            OutdatedSummary::Unaffected => {}
            OutdatedSummary::Pending => self.out.push(Effect::CancelCall),
            OutdatedSummary::Stored => self.emit(Event::from(Notice::Note { text: STORED.to_owned() })),
        }
    }
}
