//! One session for one program, which drives it by commands and reads its events: the RPC mode.
//!
//! `docs/rpc.md` describes the lines; `quipu-rpc` reads and writes them.

mod active;
mod changing;
mod front;
mod output;
mod prompts;
mod pump;
mod reading;
mod replacing;
mod settings;
mod state;
mod work;

pub use front::{RpcEnd, RpcFront};
