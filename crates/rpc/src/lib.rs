//! Event streams for other programs: what a session does, as lines that a program can read.
//!
//! The forms are Pi's, so that what reads Pi reads us; `docs/json-events.md` describes them. Pure: events go in,
//! lines come out. This crate does no IO, knows no clock, and must not know the engine or how anything is stored:
//! a front subscribes, folds and writes.

mod json_events;
mod line;

pub use json_events::{JsonEvents, SessionHeader};
