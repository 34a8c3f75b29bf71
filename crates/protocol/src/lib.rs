//! The words that every crate of Quipu speaks: messages, content, usage, commands, events, model errors, ids.
//!
//! Plain data. This crate does no IO, knows no clock and no randomness, and must not know how anything is
//! stored, sent or drawn. Wire names follow Pi's session format, so that a [`Message`] serialises to the JSON
//! that Pi reads.

mod command;
mod content;
mod entry;
mod error;
mod event;
mod files;
mod ids;
mod json;
mod message;
mod model;

pub use command::*;
pub use content::*;
pub use entry::*;
pub use error::*;
pub use event::*;
pub use files::*;
pub use ids::*;
pub use json::*;
pub use message::*;
pub use model::*;
