//! The words that every crate of Quipu speaks: messages, content, usage, commands, events, model errors, ids.
//!
//! Plain data. This crate does no IO, knows no clock and no randomness, and must not know how anything is
//! stored, sent or drawn. Wire names follow Pi's session format, so that a [`Message`] serialises to the JSON
//! that Pi reads.

mod agent_id;
mod ask;
mod background;
mod call;
mod child;
mod command;
mod content;
mod entry;
mod error;
mod event;
mod files;
mod frame;
mod ids;
mod input;
mod json;
mod limit;
mod message;
mod model;
mod moves;
mod pause;
mod provenance;
mod refusal;
mod server_tool;
mod slash_command;
mod snapshot;
mod tagged;
mod thinking;

pub use agent_id::*;
pub use ask::*;
pub use background::*;
pub use call::*;
pub use child::*;
pub use command::*;
pub use content::*;
pub use entry::*;
pub use error::*;
pub use event::*;
pub use files::*;
pub use frame::*;
pub use ids::*;
pub use input::*;
pub use json::*;
pub use limit::*;
pub use message::*;
pub use model::*;
pub use moves::*;
pub use pause::*;
pub use provenance::*;
pub use refusal::*;
pub use server_tool::*;
pub use slash_command::*;
pub use snapshot::*;
pub use thinking::*;

/// The version of the JSON form of [`Command`], [`Ack`], [`Envelope`], [`Snapshot`], [`Ask`], [`Answer`] and [`Notice`]. A
/// later version of this program may add types and members to what it sends without another number.
pub const PROTOCOL_VERSION: u32 = 2;
