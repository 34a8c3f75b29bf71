//! Changes of rows in an inbox of the store. A row may be gone that is to be taken: a session takes rows with commits of its own, and
//! a task may end between a commit and what it remembers of it.

use quipu::protocol::{ItemId, SessionId};
use quipu::store::{Commit, Durability, Graph, InboxItem, Op, StoreError};

/// A row that leaves, one that comes, or one that replaces another.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowChange {
    /// The row that leaves.
    pub(crate) take: Option<ItemId>,
    /// The row that comes.
    pub(crate) put: Option<InboxItem>,
    /// What comes does so also where the row that it replaces is gone.
    pub(crate) is_needed: bool,
}

impl RowChange {
    /// A row leaves.
    pub(crate) fn take(item: ItemId) -> Self {
        Self { take: Some(item), ..Self::default() }
    }

    /// A row comes.
    pub(crate) fn put(item: InboxItem) -> Self {
        Self { put: Some(item), ..Self::default() }
    }

    fn ops(&self, inbox: &SessionId) -> impl Iterator<Item = Op> {
        let take = self.take.clone().map(|item| Op::InboxTake { session: inbox.clone(), item });
        let put = self.put.clone().map(|item| Op::InboxPut { session: inbox.clone(), item });
        take.into_iter().chain(put)
    }

    /// What is left of it where the row that leaves is gone.
    fn of_gone(&mut self) {
        self.take = None;
        self.put.take_if(|_| !self.is_needed);
    }
}

/// Makes all of these changes, or none where a row is gone that is to leave.
///
/// # Errors
/// `Missing` where one is gone, and what the store says.
pub(crate) async fn change_rows(
    store: &dyn Graph,
    inbox: &SessionId,
    changes: &[RowChange],
    durability: Durability,
) -> Result<(), StoreError> {
    let ops: Vec<Op> = changes.iter().flat_map(|change| change.ops(inbox)).collect();
    if ops.is_empty() {
        return Ok(());
    }
    store.commit(Commit { ops, durability, ..Commit::default() }).await
}

/// Makes these changes in one commit, with what is left of those whose rows are gone.
///
/// # Errors
/// What the store says.
pub(crate) async fn change_rows_that_are_there(
    store: &dyn Graph,
    inbox: &SessionId,
    mut changes: Vec<RowChange>,
    durability: Durability,
) -> Result<(), StoreError> {
    loop {
        let error = match change_rows(store, inbox, &changes, durability).await {
            Err(error @ StoreError::Missing { .. }) => error,
            done => return done,
        };
        let there = store.pending(inbox).await?.inbox;
        let is_gone = |change: &&mut RowChange| {
            change.take.as_ref().is_some_and(|item| there.iter().all(|row| row.id != *item))
        };
        let gone = changes.iter_mut().filter(is_gone).map(RowChange::of_gone).count();
        if gone == 0 {
            // It misses something else.
            return Err(error);
        }
    }
}
