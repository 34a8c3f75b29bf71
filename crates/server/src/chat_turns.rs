//! The turns of requests for one conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use quipu_runtime::SessionKey;
use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::answer::ApiError;

/// Conversations whose turns are remembered before those without any are forgotten.
const NAMES: usize = 10_000;

/// What requests for an answer share.
pub(crate) struct Chats {
    pub(crate) places: Arc<Semaphore>,
    pub(crate) turns: ChatTurns,
}

impl Chats {
    /// So many requests at once, of which so many wait for one conversation.
    pub(crate) fn new(most: usize, waiting: usize) -> Self {
        let turns = ChatTurns { waiting, turns: Mutex::default() };
        Self { places: Arc::new(Semaphore::new(most)), turns }
    }
}

/// Requests for one conversation are answered one after the other.
pub(crate) struct ChatTurns {
    waiting: usize,
    turns: Mutex<HashMap<SessionKey, Arc<tokio::sync::Mutex<()>>>>,
}

impl ChatTurns {
    /// Waits for the turn of a request.
    pub(crate) async fn turn(&self, key: &SessionKey) -> Result<OwnedMutexGuard<()>, ApiError> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            if turns.len() > NAMES {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            let turn = turns.entry(key.clone()).or_default();
            // The map, the one that is answered, and those that wait.
            if Arc::strong_count(turn) > self.waiting + 1 {
                let message =
                    format!("{} requests wait for this session already; try again later", self.waiting);
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "session_busy", message));
            }
            turn.clone()
        };
        Ok(turn.lock_owned().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turn_of_a_conversation_is_waited_for_by_few() {
        let chats = Chats::new(9, 2);
        let (me, you) = (SessionKey::parse("me").unwrap(), SessionKey::parse("you").unwrap());
        let turns = &chats.turns;
        let first = turns.turn(&me).await.unwrap();
        let mut second = std::pin::pin!(turns.turn(&me));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        let mut third = std::pin::pin!(turns.turn(&me));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert_eq!(turns.turn(&me).await.unwrap_err().code, "session_busy");
        drop(turns.turn(&you).await.unwrap());
        drop(first);
        drop(second.await.unwrap());
        drop(third.await.unwrap());
        drop(turns.turn(&me).await.unwrap());
    }
}
