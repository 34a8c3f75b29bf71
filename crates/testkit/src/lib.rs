//! What tests share: a model server on the loopback address that answers by a script and keeps what it was
//! asked, and the laws of a session's events.
//!
//! The server speaks just enough HTTP to misbehave in every way that a real server does: any status, headers and bytes,
//! halves of anything, silence, a reset connection. This crate must not know the crates that it helps to
//! test, beyond the words of `protocol`; what is wrong in a test is a panic here.

pub mod events;
mod gate;
mod reply;
mod server;
mod stream;

pub use gate::Gate;
pub use reply::Reply;
pub use server::{Captured, FakeServer};
pub use stream::Answer;
