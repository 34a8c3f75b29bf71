//! Sessions served to programs: a [`Desk`] holds many of them open, and speaks lines of JSON with whoever connects; an
//! [`RpcFront`] has one, which a program drives by the commands of another agent.
//!
//! Fronts of another protocol of lines use [`Lines`] and [`write_lines`]. Stands on `quipu-host`, as every front does. It knows no socket and no
//! terminal: a front gives it something to read and something to write. `docs/serve.md` and `docs/rpc.md` describe the lines.

mod desk;
mod lines;
mod rpc;
mod wording;

pub use desk::{Desk, SESSIONS, ServeEnd};
pub use lines::{LINE_LIMIT, Line, Lines, write_lines};
pub use rpc::{RpcEnd, RpcFront};
pub use wording::Wording;
