//! What a person has forgotten while a session is open is in no request that is made from then on.

use quipu_machine::MachineInput;
use quipu_protocol::NodeId;

use super::task::{ForgottenMark, Task};

/// Nodes of one commit at most, about: the newest are looked at again when the session stands elsewhere.
const NEWEST: usize = 64;

impl Task {
    /// Takes out of the conversation, and out of what sources gave to the prompt, what is hidden now.
    pub(super) fn follow_forgotten(&mut self) {
        let hidden = self.caller.store.hidden();
        if hidden.is_empty() {
            return;
        }
        let (version, head) = (hidden.version(), self.machine.head());
        let is_new = version != self.forgotten.version;
        // What nobody can read says nothing of this session.
        if (!is_new && head == self.forgotten.head) || hidden.problem().is_some() {
            return;
        }
        self.forgotten = ForgottenMark { version, head };
        let all = self.machine.nodes();
        let looked_at = if is_new { all } else { &all[all.len().saturating_sub(NEWEST)..] };
        let left = self.machine.left_nodes();
        let nodes: Vec<NodeId> =
            looked_at.iter().chain(left).filter(|node| hidden.hides(node)).copied().collect();
        if !nodes.is_empty() {
            self.give(MachineInput::Forgotten(nodes));
        }
        let is_told = || self.machine.opening_nodes().iter().any(|node| hidden.hides(node));
        if is_new && (self.machine.system_text().lines().any(|line| hidden.hides_line(line)) || is_told()) {
            self.give(MachineInput::SourcesChanged);
        }
    }

    fn give(&mut self, input: MachineInput) {
        for effect in self.machine.on(self.clock.now(), input) {
            self.perform(effect);
        }
    }
}
