//! Conversations that begin anew: when somebody says so, and when the settings do.

use quipu::protocol::{SessionId, UnixMs};
use quipu::store::{Commit, Durability, Op, REPLY_OUTBOX, SessionQuery, StoreError, conversation_inbox};
use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::JoinError;

use super::said::last_said;
use super::{HostSessions, Inner, ROW, Slot, SlotState, named_session};
use crate::conversation_rules::{ConversationTimes, ResetPolicy, ResetSettings, SessionOwner};
use crate::keys::SessionKey;
use crate::replies::OWED;

impl HostSessions {
    /// The conversation goes on in a new session; the one that it had stays in the history. Waits for the end of a run.
    ///
    /// # Errors
    /// What the store says; nothing changed then.
    pub async fn reset(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.reset_from(key, None).await
    }

    /// The same; with a session, only while the conversation has that one.
    pub(super) async fn reset_from(
        &self,
        key: &SessionKey,
        only: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        let (slot, state) = self.0.locked_slot(key).await;
        // Once it is begun it ends, also where nobody waits any more: else the session would stay open that the conversation has no more.
        let (inner, key, only) = (self.0.clone(), key.clone(), only.cloned());
        let reset = tokio::spawn(async move { inner.reset_locked(&key, &slot, state, only.as_ref()).await });
        match reset.await.map_err(JoinError::try_into_panic) {
            Ok(reset) => reset,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The process ends.
            Err(Err(_)) => std::future::pending().await,
        }
    }

    /// Whether a run of a conversation owes an answer, of any process: one that a killed process left is still to be continued.
    ///
    /// # Errors
    /// What the store says.
    pub async fn owes(&self, key: &SessionKey) -> Result<bool, StoreError> {
        self.0.owes(key).await
    }

    /// Begins a conversation anew where the settings say so.
    pub(super) async fn renew_at(&self, key: &SessionKey, now: UnixMs) -> Result<(), StoreError> {
        let settings = ResetSettings::from(&self.0.home.config().resets);
        if settings == ResetSettings::default() {
            return Ok(());
        }
        let zone = quipu_host::local_zone();
        // Its hour was checked.
        let Ok(policy) = settings.resolve(key, SessionOwner::Program, &zone) else { return Ok(()) };
        if policy == ResetPolicy::default() {
            return Ok(());
        }
        let work = self.0.store.pending(&conversation_inbox(&key.to_string())).await?;
        let Some(id) = named_session(&work) else { return Ok(()) };
        let query = SessionQuery { id: Some(id.clone()), ..SessionQuery::default() };
        let Some(row) = self.0.store.sessions(query).await?.into_iter().next() else { return Ok(()) };
        let times = ConversationTimes { started: row.created, last_said: Some(last_said(&work, &row)) };
        if policy.due(&times, now).is_some() && !self.0.owes(key).await? {
            self.reset_from(key, Some(&id)).await?;
        }
        Ok(())
    }
}

impl Inner {
    async fn reset_locked(
        &self,
        key: &SessionKey,
        slot: &Slot,
        mut state: OwnedRwLockWriteGuard<SlotState>,
        only: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        let stored = self.stored(key).await?;
        if only.is_some() && stored.as_ref() != only {
            return Ok(());
        }
        if stored.is_some() {
            let ops = vec![Op::InboxTake { session: conversation_inbox(&key.to_string()), item: ROW.into() }];
            let commit = Commit { ops, durability: Durability::Power, ..Commit::default() };
            match self.store.commit(commit).await {
                // Somebody else was faster.
                Ok(()) | Err(StoreError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(open) = state.open.take() {
            open.session.shutdown().await;
        }
        self.forget(key, slot, &mut state);
        self.freed.notify_waiters();
        Ok(())
    }

    /// Whether a run of a conversation owes an answer, of any process: it is said in the session that has the prompt, and lost with it.
    async fn owes(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let queue = key.to_string();
        let rows = self.store.pending(&REPLY_OUTBOX.into()).await?.inbox;
        Ok(rows.iter().any(|row| row.queue == queue && row.id.as_str().starts_with(OWED)))
    }
}
