//! Tools of a personal agent: what a run can do with the conversations of its agent, and with its own chat.

mod caller;
mod history;
mod send;
mod tool;

use std::sync::{Arc, Mutex, PoisonError};

use quipu::Tool;

use crate::host_sessions::{HostSessions, WeakSessions};
use crate::keys::{AgentId, DEFAULT_AGENT, SessionKey};
use crate::replies::MESSAGE_TOOL;
use crate::run::{Conversations, WeakConversations};
use tool::ConversationTool;

/// A tool of conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentTool {
    /// `sessions_list`: which conversations there are.
    SessionsList,
    /// `sessions_history`: what was said in one.
    SessionsHistory,
    /// `sessions_send`: says something in another one.
    SessionsSend,
    /// `session_status`: how one is.
    SessionStatus,
    /// `message`: sends something to the chat while the run goes on.
    Message,
}

impl AgentTool {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::SessionsList, Self::SessionsHistory, Self::SessionsSend, Self::SessionStatus, Self::Message];

    /// What models call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionsList => "sessions_list",
            Self::SessionsHistory => "sessions_history",
            Self::SessionsSend => "sessions_send",
            Self::SessionStatus => "session_status",
            Self::Message => MESSAGE_TOOL,
        }
    }
}

/// Which conversations a run sees besides its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionVisibility {
    /// None.
    Own,
    /// Those of its agent, where the owner wrote to it.
    #[default]
    Agent,
    /// All, where the owner wrote to it.
    All,
}

/// The tools of conversations. Made before the sessions that have them, and bound to the conversations when these are there. Cheap to
/// clone; it keeps neither alive.
#[derive(Clone)]
pub struct AgentTools(Arc<SharedTools>);

struct SharedTools {
    offered: Vec<AgentTool>,
    visibility: SessionVisibility,
    bound: Mutex<Option<(WeakConversations, WeakSessions)>>,
}

impl AgentTools {
    /// These tools.
    #[must_use]
    pub fn new(offered: impl IntoIterator<Item = AgentTool>, visibility: SessionVisibility) -> Self {
        let offered = offered.into_iter().collect();
        Self(Arc::new(SharedTools { offered, visibility, bound: Mutex::default() }))
    }

    /// The tools of the session of a conversation, for [`OpenRequest::added_tools`](quipu_host::OpenRequest::added_tools).
    #[must_use]
    pub fn of(&self, key: &SessionKey) -> Vec<Arc<dyn Tool>> {
        let tool = |which: &AgentTool| -> Arc<dyn Tool> {
            Arc::new(ConversationTool::new(*which, key.clone(), self.clone()))
        };
        self.0.offered.iter().map(tool).collect()
    }

    /// The conversations that they are about. The last call counts; before the first, each call of a tool fails.
    pub fn bind(&self, conversations: &Conversations, sessions: &HostSessions) {
        let bound = (conversations.downgrade(), sessions.downgrade());
        *self.0.bound.lock().unwrap_or_else(PoisonError::into_inner) = Some(bound);
    }

    /// What they are about, as long as it is there.
    fn bound(&self) -> Option<(Conversations, HostSessions)> {
        let bound = self.0.bound.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (conversations, sessions) = bound?;
        Some((conversations.upgrade()?, sessions.upgrade()?))
    }

    /// Whether a run of one conversation sees another.
    fn sees(&self, own: &SessionKey, is_owner: bool, other: &SessionKey) -> bool {
        let agent = |key: &SessionKey| key.agent().map_or(DEFAULT_AGENT, AgentId::as_str).to_owned();
        own == other
            || is_owner
                && match self.0.visibility {
                    SessionVisibility::Own => false,
                    SessionVisibility::Agent => agent(own) == agent(other),
                    SessionVisibility::All => true,
                }
    }
}

#[cfg(test)]
mod tests;
