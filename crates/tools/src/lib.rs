//! The Tool trait and the built-in tools: read, write, edit, bash.
//!
//! Over `quipu-workspace`, which does the guarded IO. A tool knows its arguments and its context; it must not
//! know sessions, models, stores or how its result is drawn.

mod tool;

pub use tool::*;
