//! The Agent Client Protocol, version 1: sessions for editors and other clients, over a stream of lines.
//!
//! The words of the protocol stay in this crate: what a client says becomes commands of a session, and events become its
//! updates. It knows no terminal, no socket and no command line. `docs/acp.md` describes what is supported.

mod agent;
mod asks;
mod calls;
mod client_files;
mod client_terminal;
mod connection;
mod follow;
mod input;
mod link;
mod opening;
mod options;
mod params;
mod prompt;
mod replay;
mod servers;
mod session;
mod updates;
mod wire;

pub use agent::{AcpAgent, SESSIONS};
pub use quipu_runtime::ServeEnd;
