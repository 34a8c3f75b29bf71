//! Who calls a tool, and what that one may see.

use super::AgentTools;
use crate::host_sessions::HostSessions;
use crate::keys::SessionKey;
use crate::queue::MessageGroup;
use crate::run::Conversations;

/// Who calls.
pub(super) struct Caller {
    pub(super) own: SessionKey,
    pub(super) conversations: Conversations,
    pub(super) sessions: HostSessions,
    /// Where the messages of the run came from; `None` where that is not known.
    pub(super) group: Option<MessageGroup>,
    pub(super) tools: AgentTools,
}

impl Caller {
    /// A conversation that the caller may see; the same error for one that it may not see and one that there is not.
    pub(super) fn other(&self, name: &str) -> Result<SessionKey, String> {
        let unknown =
            || format!("There is no conversation `{name}` that you can see. `sessions_list` lists them.");
        let key = SessionKey::parse(name).map_err(|_| unknown())?;
        if self.sees(&key) { Ok(key) } else { Err(unknown()) }
    }

    pub(super) fn sees(&self, key: &SessionKey) -> bool {
        let is_owner = self.group.as_ref().is_some_and(|group| group.authority.is_owner);
        self.tools.sees(&self.own, is_owner, key)
    }
}
