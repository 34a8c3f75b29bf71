//! A model server on the loopback address that answers by a script and keeps what it was asked.
//!
//! It speaks just enough HTTP to misbehave in every way that a real server does: any status, headers and bytes,
//! halves of anything, silence, a reset connection. It must not know the crates that it helps to test; what is
//! wrong in a test is a panic here.

mod gate;
mod reply;
mod server;
mod stream;

pub use gate::Gate;
pub use reply::Reply;
pub use server::{Captured, FakeServer};
pub use stream::Answer;
