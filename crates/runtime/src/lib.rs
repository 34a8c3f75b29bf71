//! Sessions served to programs: a [`Desk`] holds many of them open, and speaks lines of JSON with whoever connects; an
//! [`RpcFront`] has one, which a program drives by the commands of another agent. And what a server of many conversations is
//! built of: names of conversations ([`SessionKey`]), [`Lanes`] in which their runs take turns, and a queue of messages for
//! each ([`SessionQueue`]).
//!
//! Fronts of another protocol of lines use [`Lines`] and [`write_lines`]. Stands on `quipu-host`, as every front does. It knows no socket and no
//! terminal: a front gives it something to read and something to write. `docs/serve.md` and `docs/rpc.md` describe the lines,
//! `docs/runtime.md` the rest.

mod agent_tools;
mod conversation_rules;
mod desk;
mod heartbeat;
mod host_sessions;
mod inbox_rows;
mod keys;
mod lanes;
mod lines;
mod queue;
mod replies;
mod rpc;
mod run;
mod source;
#[cfg(test)]
mod testing;
mod wording;

pub use agent_tools::{AgentTool, AgentTools, SessionVisibility};
pub use conversation_rules::*;
pub use desk::{Desk, DeskLease, LeaseError, SESSIONS, ServeEnd, SessionObserver, SessionRequest};
pub use heartbeat::*;
pub use host_sessions::{
    BindMode, BorrowedConversation, ConversationBinding, ConversationObserver, ConversationOpener,
    ConversationTools, HostSessionLimits, HostSessions, ImportedConversation, KnownConversation, audience_of,
    bind_conversation, conversations, place_of,
};
pub use keys::{
    AGENT_ID_LIMIT, AgentId, DEFAULT_ACCOUNT, DEFAULT_AGENT, DirectKeys, DirectScope, IdentityLinks,
    KEY_LIMIT, KeyError, KeyPlace, LinkError, RoomKind, SessionKey,
};
pub use lanes::{
    CRON_LANE, LaneError, LanePriority, LaneSettings, LaneStatus, LaneTask, LaneTicket, LaneWarning,
    LaneWarnings, Lanes, MAIN_LANE, NESTED_CRON_LANE, SUBAGENT_LANE, TaskHandle, nested_lane, session_lane,
};
pub use lines::{LINE_LIMIT, Line, Lines, write_lines};
pub use queue::*;
pub use replies::{
    AckPatience, MESSAGE_TOOL, PostError, PostOutcome, REPLY_LIMIT, RefusedReply, Replies, ReplyRoute,
    ReplyRoutes, ReplyTiming, SESSIONS_CHANNEL, SentMessage, offered_block,
};
pub use rpc::{RpcEnd, RpcFront};
pub use run::{Acceptance, AgentLoad, Conversations, Run, RunError, RunEvent, RunOutcome, RunRequest};
pub use source::{ConversationClaim, SessionSource, SourcedSession};
pub use wording::Wording;
