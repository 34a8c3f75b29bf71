//! A proxy on this machine for clients that cannot be extended: it passes their calls of models on, byte for byte, and keeps
//! each conversation as a session in the graph. On request it leaves messages of a conversation out of later requests, as a
//! jump does.
//!
//! It must not know the engine, sessions at work, files of users or the words of a command line.

mod activity;
mod answer;
mod body;
mod chains;
mod exchange;
mod forward;
mod headers;
mod inspection;
mod item;
mod jump;
mod limits;
mod local_answer;
mod origin;
mod packed;
mod placement;
mod recorder;
mod refusal;
mod server;
mod session;
mod state;
mod tee;
mod upstream;
mod wire_kind;
mod wires;

pub use limits::{PROXY_LIMITS, ProxyLimits};
pub use recorder::{ModelLookup, ProxyCounts, RecorderOptions, StoreOpenError, StoreOpener};
pub use server::{ProxyError, ProxyOptions, serve};
pub use state::{Confirmation, JumpState, ProxiedSession, StateError, confirm, release, sessions};
pub use upstream::{UpstreamError, Upstreams};
pub use wire_kind::WireKind;
