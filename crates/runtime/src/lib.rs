//! Sessions served to programs: a [`Desk`] holds many of them open, and speaks lines of JSON with whoever connects.
//!
//! Fronts of another protocol of lines use [`Lines`] and [`write_lines`]. Stands on `quipu-host`, as every front does. It knows no socket and no terminal: a front gives it something to read and
//! something to write. `docs/serve.md` describes the lines.

mod desk;
mod lines;

pub use desk::{Desk, SESSIONS, ServeEnd, Wording};
pub use lines::{LINE_LIMIT, Line, Lines, write_lines};
