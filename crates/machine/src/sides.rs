//! Calls of a model beside the conversation: of hooks and of sources. Each becomes a node with the next commit of the session,
//! or when that ends: by itself it would stand between a move of the session and what undoes it. Until then its row tells of it.

use quipu_protocol::RunId;

use super::{Draft, Machine, PlanOp, RunMoney};

/// A call beside the conversation, or a child session, that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct SideCall {
    /// The id of its row among the open steps of the store, not that of the run that pays.
    pub id: RunId,
    /// The run that pays for it; `None` for none.
    pub run: Option<RunId>,
    /// US dollars that it cost, or may have cost.
    pub cost: f64,
    /// What is kept of it; nothing where nothing was sent.
    pub drafts: Vec<Draft>,
    /// Done in the transaction that keeps it.
    pub ops: Vec<PlanOp>,
}

/// Calls beside the conversation.
#[derive(Default)]
pub(super) struct Sides {
    /// How many are under way.
    open: usize,
    /// Those that are over and are no node yet.
    over: Vec<SideCall>,
}

impl Sides {
    /// Whether one is under way.
    pub(super) fn run(&self) -> bool {
        self.open > 0
    }

    /// Whether some that are over are no nodes yet.
    pub(super) fn wait(&self) -> bool {
        !self.over.is_empty()
    }

    /// What of those waits for a commit.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> &[SideCall] {
        &self.over
    }
}

impl Machine {
    /// What the run may still spend, without what calls beside the conversation cost; `None` where nothing limits it, and for
    /// one that is over.
    pub fn money_of(&self, run: &RunId) -> Option<RunMoney> {
        self.run.as_ref().filter(|current| current.id == *run).and_then(|run| self.limits.money(run))
    }

    /// US dollars that a run may cost.
    pub fn max_cost(&self) -> Option<f64> {
        self.limits.max_cost
    }

    /// Whether the session has a name under which something can be recorded, and does not end.
    pub fn takes_sides(&self) -> bool {
        self.has_ref && self.closing.is_none()
    }

    /// Whether the session is about to end.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub(super) fn side_begun(&mut self) {
        self.sides.open += 1;
    }

    pub(super) fn side_ended(&mut self, call: SideCall) {
        self.sides.open = self.sides.open.saturating_sub(1);
        if let Some(run) = self.run.as_mut().filter(|run| call.run.as_ref() == Some(&run.id)) {
            run.side_cost += call.cost;
        }
        if !call.drafts.is_empty() || !call.ops.is_empty() {
            self.sides.over.push(call);
        }
        self.stop_if_closing();
    }

    /// Those that are over go with the commit that is made now.
    pub(super) fn take_sides(&mut self) {
        for SideCall { drafts, ops, .. } in self.sides.over.drain(..) {
            self.unsaved.extend(drafts);
            self.deferred_ops.extend(ops);
        }
    }
}
