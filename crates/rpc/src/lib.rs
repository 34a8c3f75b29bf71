//! Event streams for other programs: what a session does, as lines that a program can read.
//!
//! The forms are Pi's, so that what reads Pi reads us; `docs/json-events.md` describes them. Pure: events go in,
//! lines come out, and the lines that answer questions are read. This crate does no IO, knows no clock, and must not know the engine or how anything is stored:
//! a front subscribes, folds and writes.

mod answers;
mod json_events;
mod line;

pub use answers::{ANSWER_LIMIT, AskAnswer, BadAnswer, LineAnswer, ask_line, read_answer};
pub use json_events::{JsonEvents, SessionHeader};
