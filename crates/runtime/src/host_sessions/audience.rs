//! For whom the session of a conversation works.

use quipu_host::{ChatGroup, ConversationPlace, Sender, SessionAudience};

use crate::keys::{AgentId, DEFAULT_AGENT, DirectKeys, KeyPlace, SessionKey};
use crate::queue::Authority;

/// The agent of a conversation.
pub(super) fn agent_of(key: &SessionKey) -> &str {
    key.agent().map_or(DEFAULT_AGENT, AgentId::as_str)
}

/// For whom a session of a conversation works, where nobody says who sent a message: the agent, and the group that the conversation is in.
#[must_use]
pub fn audience_of(key: &SessionKey) -> SessionAudience {
    let (agent, sender) = (Some(agent_of(key).to_owned()), Some(Sender::default()));
    SessionAudience { agent, group: group_of(key), sender, is_known_only: false }
}

/// The conversation of a key, as sandboxes of a scope tell them apart.
#[must_use]
pub fn place_of(key: &SessionKey) -> ConversationPlace {
    let is_main = key.is_main(&DirectKeys::default().main_key);
    ConversationPlace { agent: agent_of(key).to_owned(), name: key.to_string(), is_main }
}

/// The group that a conversation is in.
pub(super) fn group_of(key: &SessionKey) -> Option<ChatGroup> {
    match key.place() {
        KeyPlace::Room { channel, peer, .. } => {
            Some(ChatGroup { channel: channel.clone(), room: peer.clone() })
        }
        _ => None,
    }
}

/// Who sent a message, as far as its rights say so. The name that people see is left out: anybody can have it.
pub(super) fn sender_of(authority: &Authority) -> Sender {
    authority.sender.as_deref().map(Sender::of_id).unwrap_or_default()
}
