//! Jobs with a schedule: a prompt in a session of its own, or work that is built in.

mod deliver;
mod handler;
mod prompt;
mod work;

pub use handler::ScheduledHandler;
pub use work::{BuiltInWork, WorkEnd};
