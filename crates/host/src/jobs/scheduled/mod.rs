//! Jobs with a schedule: a prompt in a session of its own, or work that is built in.

mod deliver;
mod handler;
mod prompt;

pub use handler::{BuiltInWork, ScheduledHandler, WorkEnd};
