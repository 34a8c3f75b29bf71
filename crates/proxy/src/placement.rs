//! A conversation into its session: what the store has of it stays where it is, and what is new becomes nodes.

use quipu_archive::{ConversationDigest, LiveChange, LiveConversation, LiveEntry};
use quipu_protocol::{
    AssistantMessage, Entry, Epoch, Json, Message, NodeId, SessionId, SessionStart, StepInfo, UnixMs,
};
use quipu_seal::Sealer;

use crate::item::{Item, groups};

/// Where a session begins.
#[derive(Debug, Clone)]
pub(crate) struct SessionOrigin {
    pub(crate) session: SessionId,
    pub(crate) parent: Option<SessionId>,
    pub(crate) cwd: String,
    pub(crate) provider: String,
    pub(crate) model: String,
}

impl SessionOrigin {
    pub(crate) fn start(&self, agent: &str) -> SessionStart {
        SessionStart {
            session: self.session.clone(),
            cwd: self.cwd.clone(),
            agent: agent.to_owned(),
            parent_session: self.parent.clone(),
            epoch: Epoch { provider: self.provider.clone(), model: self.model.clone(), ..Epoch::default() },
        }
    }
}

/// How many of these items the session has: up to the last that is the end of a node.
pub(crate) fn known(session: &LiveConversation, items: &[Item]) -> usize {
    let is_known = |item: &Item| item.counts && session.find(item.digest).is_some();
    items.iter().rposition(is_known).map_or(0, |at| at + 1)
}

/// Adds what is new of a conversation that goes on from `after`; the node at its end, and the digest there.
pub(crate) fn place(
    change: &mut LiveChange<'_>,
    session: &LiveConversation,
    origin: &SessionOrigin,
    (after, items): (ConversationDigest, &[Item]),
    model: &AssistantMessage,
    time: UnixMs,
    sealer: &Sealer,
) -> (NodeId, ConversationDigest) {
    let base = change.base(origin.start(session.agent()), time);
    let known = known(session, items);
    let before = match known {
        0 => after,
        known => items[known - 1].digest,
    };
    let mut at = change.find(before).unwrap_or(base);
    let mut digest = before;
    for group in groups(&items[known..]) {
        let Some(next) = group.digest() else { continue };
        // Context that does not count is not on the way of the digests: it has one of its own.
        let own = match group.counts() {
            true => next,
            false if group.is_context() => next.then("context", &sealer.seal(&group.text())),
            false => continue,
        };
        if own != next
            && let Some(known) = change.find(own)
        {
            at = known;
            continue;
        }
        let Some(entry) = group.entry(model, time) else { continue };
        let entry = LiveEntry {
            entry: sealed(entry, sealer),
            step: StepInfo::default(),
            digest: own,
            id: Some(format!(
                "{}-{}",
                origin.session.as_str().chars().take(64).collect::<String>(),
                &own.hex()[..16]
            )),
            time,
        };
        at = change.append(at, entry);
        digest = next;
    }
    (at, digest)
}

/// An entry with its secrets sealed.
pub(crate) fn sealed(entry: Entry, sealer: &Sealer) -> Entry {
    let Entry::Message(message) = &entry else { return entry };
    let Ok(json) = Json::of(message) else { return entry };
    let sealed = sealer.seal_json(&json);
    if sealed == json {
        return entry;
    }
    match sealed.read::<Message>() {
        Ok(message) => Entry::Message(message),
        Err(_) => Entry::Message(Message::Other(sealed)),
    }
}
