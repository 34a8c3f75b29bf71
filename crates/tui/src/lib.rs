//! The terminal: what `quipu` opens without arguments.
//!
//! Lines go out, keys come in. Everything between is pure: `view` makes [`Line`]s of a state and a width, [`Key`]s
//! change the state, and only the outermost module reads and writes a terminal. Finished lines are printed once and
//! belong to the terminal; only the live part below them is drawn again.
//!
//! This crate must not know how anything is stored or sent: it holds a session's handle, as every front does.

mod key;
mod line;

pub use key::{Key, KeyCode, Modifiers};
pub use line::{Color, Line, Span, Style, width};
