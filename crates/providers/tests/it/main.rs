//! Tests of the crate through its public door.

mod encode;
mod http;
mod recordings;
mod settings;
