//! The Model Context Protocol, as a server: other agents search and read the graph.
//!
//! Knows the store and how the graph is looked at; knows no session at work, no model, no files of the user and no words of a
//! command line. Nothing here writes to the graph but a desk of memory, where one is given. What is shown is framed as an archive, bounded and in pages.

mod archive;
mod blames;
mod commits;
mod desk;
mod error;
mod handler;
mod http;
mod in_flight;
mod lines;
mod memory;
mod place;
mod prompts;
mod reach;
mod read;
mod resources;
mod roots;
mod search;
mod stdio;
mod tools;
mod why;

pub use archive::{ServerOptions, StoreOpener};
pub use commits::{CommitReport, credit_committed_lines};
pub use desk::{MemoryAnswer, MemoryCall, MemoryDesk, MemoryToolList, MemoryToolSpec};
pub use error::{ServeError, StoreOpenError};
pub use handler::GraphServer;
pub use http::{Access, serve_http};
pub use quipu_loopback::BearerToken;
pub use reach::ScopeSetting;
pub use stdio::{StdioEnd, serve_stdio};
