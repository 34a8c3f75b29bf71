//! What becomes of a model's streamed text on its way to a chat.
//!
//! Reasoning and control tags are stripped ([`TagStripper`]), directives are parsed out ([`DirectiveParser`]), a silent reply
//! stays unsent ([`SilenceGate`]), the rest is cut into blocks that fit a message ([`Chunker`]), joined and paced
//! ([`ReplyStream`]), and offered to a [`MessageSink`] under one key for each reply ([`Outbox`]).
//!
//! Plain state machines: time comes in as an argument. This crate does no IO, knows no clock and no randomness, and must not
//! know any chat, how a model is called, or where a state is stored.

mod block;
mod chunk;
mod coalesce;
mod directives;
mod duplicates;
mod markers;
mod media;
mod offer;
mod outbox;
mod pacing;
mod repeat;
mod silence;
mod sink;
mod stream;
mod tags;

pub use block::{Block, ReplyKey, ReplyTarget};
pub use chunk::{BreakPreference, Chunk, ChunkOptions, Chunker, units};
pub use coalesce::{CoalesceOptions, Coalescer, Seam};
pub use directives::{Directive, DirectiveParser, parse_directives};
pub use duplicates::{SentTexts, normalized};
pub use media::{MediaCheck, NamedFile, media_source};
pub use offer::Offer;
pub use outbox::{Delivery, DeliveryError, Outbox, Part, PartState, Progress};
pub use pacing::{Pacer, PacingOptions};
pub use silence::{SILENT_TOKEN, SilenceGate, is_silent, is_silent_prefix, without_silent_token};
pub use sink::{Acknowledgement, MessageSink, SinkError, SinkFuture};
pub use stream::{DrainPoint, ReplyMode, ReplyStream, StreamInput, StreamOptions, StreamOutput};
pub use tags::{Segment, TagOptions, TagStripper, visible_text};
