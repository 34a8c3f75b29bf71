//! Who works in a conversation: a run, or a front by itself, one after the other in the order in which they came.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::keys::SessionKey;

/// The conversations that somebody works in, or is about to.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<SessionKey, Arc<tokio::sync::Mutex<()>>>>);

/// Keeps others from working in a conversation.
pub(super) struct Claim {
    _turn: OwnedMutexGuard<()>,
    _seat: Seat,
}

/// One who works in a conversation, or waits for that. The last one takes it off the list.
struct Seat {
    claims: Arc<Claims>,
    key: SessionKey,
}

impl Claims {
    /// Waits until nobody else works in a conversation.
    pub(super) async fn claim(self: &Arc<Self>, key: &SessionKey) -> Claim {
        let turn = self.all().entry(key.clone()).or_default().clone();
        let seat = Seat { claims: self.clone(), key: key.clone() };
        Claim { _turn: turn.lock_owned().await, _seat: seat }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.claims.all();
        if all.get(&self.key).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn claims_are_given_in_order_and_forgotten() {
        let claims = Arc::new(Claims::default());
        let (me, you) = (SessionKey::parse("me").unwrap(), SessionKey::parse("you").unwrap());
        let first = claims.claim(&me).await;
        let mut second = Box::pin(claims.claim(&me));
        let mut third = Box::pin(claims.claim(&me));
        assert!(poll!(second.as_mut()).is_pending() && poll!(third.as_mut()).is_pending());
        drop(claims.claim(&you).await);
        assert_eq!(claims.all().len(), 1, "what nobody works in is not kept");
        drop(first);
        assert!(poll!(third.as_mut()).is_pending());
        let second = second.await;
        // One that waited and left leaves nothing behind either.
        drop(third);
        drop(second);
        assert!(claims.all().is_empty());
    }
}
