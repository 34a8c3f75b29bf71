//! Sessions over HTTP and WebSocket, for the programs of this machine: the lines of `quipu_runtime::Desk` as frames of a
//! WebSocket or as an event stream, messages and replies of conversations, an API that clients of chat completions speak, health and
//! metrics.
//!
//! Listens at a loopback address or a socket, never elsewhere. Knows no terminal and no words of a command line; what sessions
//! do is the desk's. `docs/server.md` describes the routes.

mod access;
mod answer;
mod body;
mod chat;
mod chat_turns;
mod conversation_routes;
mod conversations;
mod error;
mod event_clients;
mod event_routes;
mod front;
mod limits;
mod line_meter;
mod listener;
mod metrics;
mod options;
mod path;
mod routes;
mod serve;
mod stall;
mod web_socket;

pub use access::Access;
pub use error::ServerError;
pub use limits::{SERVER_LIMITS, ServerLimits};
pub use listener::{ServerAddress, ServerListener};
pub use options::ServerOptions;
pub use serve::serve;
