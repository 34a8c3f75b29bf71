//! What tests need and no user does: a fake model server, and the laws of event streams.
//!
//! A dev-dependency only. It must not know the engine: it speaks HTTP on one side and `quipu-protocol` on the
//! other.

pub mod events;
