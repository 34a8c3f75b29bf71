//! Model wires: encode a request, send it, decode the answer; the catalogue of models and the credentials.
//!
//! One folder per wire. It must not know sessions, nodes or tools beyond their declarations. Vendors are named
//! here and nowhere else. Retrying the same bytes is this crate's business; another key or another model is
//! not.

mod provider;

pub use provider::*;
