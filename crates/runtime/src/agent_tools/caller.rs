//! Who calls a tool, and what that one may see.

use super::AgentTools;
use crate::host_sessions::HostSessions;
use crate::keys::SessionKey;
use crate::queue::{MessageGroup, one_line};
use crate::run::Conversations;

/// Characters of a name that is told back, at most.
const NAME_CHARS: usize = 200;

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
    pub(super) async fn other(&self, name: &str) -> Result<SessionKey, String> {
        let unknown = || {
            let name = one_line(name, NAME_CHARS);
            format!("There is no conversation `{name}` that you can see. `sessions_list` lists them.")
        };
        let key = SessionKey::parse(name).map_err(|_| unknown())?;
        if key == self.own {
            return Ok(key);
        }
        if !self.sees(&key) {
            return Err(unknown());
        }
        match self.sessions.session_of(&key).await {
            Ok(Some(_)) => Ok(key),
            Ok(None) => Err(unknown()),
            Err(error) => Err(format!("The conversations cannot be read: {error}")),
        }
    }

    pub(super) fn sees(&self, key: &SessionKey) -> bool {
        let is_owner = self.group.as_ref().is_some_and(|group| group.authority.is_owner);
        self.tools.sees(&self.own, is_owner, key)
    }
}
