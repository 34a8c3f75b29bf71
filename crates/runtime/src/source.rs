//! Which session a conversation has.

use std::any::Any;

use futures_util::future::BoxFuture;
use quipu::Session;
use quipu::protocol::UnixMs;

use crate::conversation_rules::TurnCause;
use crate::keys::SessionKey;
use crate::queue::MessageGroup;

/// Which session a conversation has.
pub trait SessionSource: Send + Sync + 'static {
    /// The open session of a conversation: the same one each time, until somebody resets it.
    fn session<'a>(
        &'a self,
        key: &'a SessionKey,
    ) -> BoxFuture<'a, Result<SourcedSession, quipu_host::Failure>>;

    /// The same for a run of messages of this group: what its sender may use holds from its first call on. By default that is nobody's
    /// concern.
    fn session_for<'a>(
        &'a self,
        key: &'a SessionKey,
        _group: &'a MessageGroup,
    ) -> BoxFuture<'a, Result<SourcedSession, quipu_host::Failure>> {
        self.session(key)
    }

    /// Waits until no front works in the conversation by itself; none does before what this returns is dropped. A run has it before
    /// it takes its place among those that run, so that it holds up nobody meanwhile.
    fn claim<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, ConversationClaim> {
        let _ = key;
        Box::pin(std::future::ready(ConversationClaim::default()))
    }

    /// A turn of a conversation is about to begin, whose message came at this time: it begins anew where it is to.
    fn renew<'a>(
        &'a self,
        key: &'a SessionKey,
        at: UnixMs,
    ) -> BoxFuture<'a, Result<(), quipu_host::Failure>> {
        let _ = (key, at);
        Box::pin(std::future::ready(Ok(())))
    }

    /// A prompt with this cause is about to become part of this open session, or its run is over: what people say and wait for keeps a
    /// conversation going.
    fn heard<'a>(
        &'a self,
        key: &'a SessionKey,
        session: &'a Session,
        cause: TurnCause,
    ) -> BoxFuture<'a, Result<(), quipu_host::Failure>> {
        let _ = (key, session, cause);
        Box::pin(std::future::ready(Ok(())))
    }

    /// A turn of a conversation became part of this open session: a branch, where another process took the one that the conversation had.
    /// The conversation goes on in it.
    fn follow<'a>(
        &'a self,
        key: &'a SessionKey,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<(), quipu_host::Failure>> {
        let _ = (key, session);
        Box::pin(std::future::ready(Ok(())))
    }

    /// What it does beside runs, such as closing what nobody uses: polled while messages are taken. It never ends.
    fn tend(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Keeps a conversation for one run, until it is dropped.
#[derive(Default)]
pub struct ConversationClaim(#[expect(dead_code, reason = "it is held")] Option<Box<dyn Any + Send + Sync>>);

impl ConversationClaim {
    /// What holds for as long as this is there.
    pub fn held(by: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(by)))
    }
}

/// An open session, which stays open as long as this is there.
pub struct SourcedSession {
    /// The session.
    pub session: Session,
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl SourcedSession {
    /// A session that is held open by this.
    pub fn held(session: Session, by: impl Any + Send + Sync) -> Self {
        Self { session, _held: Some(Box::new(by)) }
    }
}

impl From<Session> for SourcedSession {
    fn from(session: Session) -> Self {
        Self { session, _held: None }
    }
}
