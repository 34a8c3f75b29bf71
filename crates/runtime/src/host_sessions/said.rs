//! When a person last said something in a conversation.

use quipu::protocol::{Json, SessionId, UnixMs};
use quipu::store::{Commit, Durability, InboxItem, Op, OpenWork, SessionRow, StoreError, conversation_inbox};
use serde::{Deserialize, Serialize};

use super::Inner;
use crate::keys::SessionKey;

/// The row of an inbox that says when a person last said something.
pub(super) const SAID: &str = "said";

/// What the row says.
#[derive(Serialize, Deserialize)]
struct SaidRow {
    /// In which session it was: another one may be that of the conversation by now.
    session: SessionId,
    at: UnixMs,
}

/// When a person last said something in this session of a conversation. In one that the system began nobody did since it began; where it is
/// not known, as a version before this one had it, whatever was written last counts.
pub(super) fn last_said(work: &OpenWork, session: &SessionRow) -> UnixMs {
    let row = work.inbox.iter().find(|row| row.id.as_str() == SAID);
    match row.and_then(|row| row.input.read::<SaidRow>().ok()) {
        Some(said) if said.session == session.id => said.at.max(session.created),
        Some(_) => session.created,
        None => session.updated,
    }
}

impl Inner {
    /// A person says something in a conversation, which has this session. Resolved = it survives the end of the process.
    pub(super) async fn person_said(
        &self,
        key: &SessionKey,
        session: &SessionId,
        at: UnixMs,
    ) -> Result<(), StoreError> {
        let inbox = conversation_inbox(&key.to_string());
        let work = self.store.pending(&inbox).await?;
        let has_row = work.inbox.iter().any(|row| row.id.as_str() == SAID);
        let take = Op::InboxTake { session: inbox.clone(), item: SAID.into() };
        let input = Json::of(&SaidRow { session: session.clone(), at }).unwrap_or_default();
        let item = InboxItem { id: SAID.into(), queue: key.to_string(), input };
        let ops =
            has_row.then_some(take).into_iter().chain([Op::InboxPut { session: inbox, item }]).collect();
        match self.store.commit(Commit { ops, durability: Durability::Process, ..Commit::default() }).await {
            // Another process said so at the same time.
            Ok(()) | Err(StoreError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
