//! What a person has forgotten while a session is open is in no request that is made from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mailbox;
use quipu_machine::{JumpTarget, MachineInput};
use quipu_protocol::{Message, NodeId};
use quipu_store::{Graph, HiddenSnapshot};
use quipu_transcript::{forget_sources, forgotten_compaction, forgotten_message, summarize_anew};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::task::Task;

/// Nodes of one commit at most, about: the newest are looked at again when the session stands elsewhere.
const NEWEST: usize = 64;

/// Tells work that was begun earlier what was forgotten since.
pub(super) struct ForgottenWatch {
    store: Arc<dyn Graph>,
    looks: watch::Receiver<u64>,
    input: mailbox::Sender<MachineInput>,
    version: u64,
    /// How often something was forgotten that the call under way is made of, and how often when this began.
    hits: (Arc<AtomicU64>, u64),
}

impl ForgottenWatch {
    /// Whether something is forgotten that the call which is about to be sent is made of. Where anything is, the session looks.
    pub(super) async fn is_hit(&mut self, cancel: &CancellationToken) -> bool {
        let hidden = self.store.hidden();
        if hidden.is_empty() || hidden.problem().is_some() {
            return false;
        }
        self.look(cancel).await;
        let (hits, before) = &self.hits;
        hits.load(Ordering::SeqCst) != *before
    }

    /// Whether something was forgotten since this was asked last. Then the session has looked it through, and stopped what it
    /// concerns.
    pub(super) async fn asked(&mut self, cancel: &CancellationToken) -> bool {
        let hidden = self.store.hidden();
        if hidden.is_empty() || hidden.problem().is_some() || hidden.version() == self.version {
            return false;
        }
        self.version = hidden.version();
        self.look(cancel).await;
        true
    }

    /// Has the session look its conversation through, and waits until it has.
    async fn look(&mut self, cancel: &CancellationToken) {
        let before = *self.looks.borrow();
        let follow = async {
            // Before each input the list is looked at.
            if self.input.send(MachineInput::Forgotten(Vec::new())).await.is_ok() {
                drop(self.looks.wait_for(|looks| *looks > before).await);
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = follow => {}
        }
    }
}

impl Task {
    /// What was forgotten until now, for work that begins.
    pub(super) fn forgotten_since(&self) -> ForgottenWatch {
        let (store, looks) = (self.caller.store.clone(), self.forgotten.looks.subscribe());
        let hits = self.forgotten.hits.clone();
        let hits = (hits.clone(), hits.load(Ordering::SeqCst));
        ForgottenWatch { store, looks, input: self.input.clone(), version: self.forgotten.version, hits }
    }

    /// Takes out of the conversation, and out of what sources gave to the prompt, what is hidden now.
    pub(super) fn follow_forgotten(&mut self) {
        self.take_out_forgotten();
        self.forgotten.looks.send_modify(|looks| *looks += 1);
    }

    fn take_out_forgotten(&mut self) {
        let hidden = self.caller.store.hidden();
        if hidden.is_empty() {
            self.forgotten.hidden = hidden;
            return;
        }
        let (version, head) = (hidden.version(), self.machine.head());
        let is_new = version != self.forgotten.version;
        // What nobody can read says nothing of this session.
        let pending = self.machine.pending_opening();
        if (!is_new && head == self.forgotten.head && pending.is_none()) || hidden.problem().is_some() {
            return;
        }
        let says = |text: &str, told: &[NodeId]| {
            text.lines().any(|line| hidden.hides_line(line)) || told.iter().any(|node| hidden.hides(node))
        };
        // What sources give although it was forgotten long ago outdates nothing again.
        let before = std::mem::replace(&mut self.forgotten.hidden, hidden.clone());
        let says_now = |line: &str| hidden.hides_line(line) && !before.hides_line(line);
        let goes_now = |node: &&NodeId| hidden.hides(node) && !before.hides(node);
        let told = self.machine.opening_nodes().iter().filter(goes_now);
        let told: Vec<NodeId> = if is_new { told.copied().collect() } else { Vec::new() };
        let is_said = pending.is_some_and(|(text, told)| says(text, told))
            || !told.is_empty()
            || (is_new && self.machine.system_text().lines().any(says_now));
        (self.forgotten.version, self.forgotten.head) = (version, head);
        let all = self.machine.nodes();
        let looked_at = if is_new { all } else { &all[all.len().saturating_sub(NEWEST)..] };
        let left = self.machine.left_nodes();
        let summed = self.machine.summed_nodes();
        let all = looked_at.iter().chain(left).chain(&told).chain(&summed);
        let nodes: Vec<NodeId> = all.filter(|node| hidden.hides(node)).copied().collect();
        if !nodes.is_empty() {
            self.give(MachineInput::Forgotten(nodes));
        }
        if is_said {
            self.give(MachineInput::PromptForgotten);
        }
        if self.machine.is_call_outdated() {
            self.forgotten.hits.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What was read of the graph, without what was forgotten while it was on its way.
    pub(super) fn without_forgotten(&self, mut input: MachineInput) -> MachineInput {
        let hidden = match &input {
            MachineInput::TargetResolved { .. } | MachineInput::Moved { .. } => self.caller.store.hidden(),
            _ => return input,
        };
        if hidden.is_empty() || hidden.problem().is_some() {
            return input;
        }
        match &mut input {
            MachineInput::TargetResolved { result: Ok(target), .. } => {
                let JumpTarget { left, nodes, .. } = &mut **target;
                hide(&hidden, left, nodes);
            }
            MachineInput::Moved { result: Ok(done), .. } => {
                if let Some(place) = &mut done.place {
                    hide(&hidden, &mut place.messages, &place.nodes);
                    let is_summary = place.nodes.first().is_some_and(|first| hidden.hides(first));
                    if let Some(compacted) = place.compacted.take_if(|_| is_summary) {
                        place.compacted = Some(Arc::new(forgotten_compaction(&compacted)));
                    }
                    let told = place.compacted.as_ref();
                    if let Some(left) = told.and_then(|told| forget_sources(told, |node| hidden.hides(node)))
                    {
                        summarize_anew(&mut place.messages, &left);
                        place.compacted = Some(Arc::new(left));
                    }
                }
            }
            _ => {}
        }
        input
    }

    fn give(&mut self, input: MachineInput) {
        for effect in self.machine.on(self.clock.now(), input) {
            self.perform(effect);
        }
    }
}

fn hide(hidden: &HiddenSnapshot, messages: &mut [Arc<Message>], nodes: &[NodeId]) {
    for (message, node) in messages.iter_mut().zip(nodes) {
        if hidden.hides(node) {
            *message = Arc::new(forgotten_message(message));
        }
    }
}
