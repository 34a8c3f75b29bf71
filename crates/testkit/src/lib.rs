//! What tests need and no user does: a fake model server, a proxy and an authority for it, and the laws of event
//! streams; another program on the same store, which knows nothing of ours; and the repository's documents.
//!
//! A dev-dependency only. It must not know the engine: it speaks HTTP on one side and `quipu-protocol` on the
//! other. The server listens on the loopback address, answers by a script and keeps what it was asked; it
//! speaks just enough HTTP to misbehave in every way that a real server does. What is wrong in a test is a
//! panic here.

mod documents;
mod drill;
pub mod events;
pub mod frames;
mod gate;
mod gateway;
mod listener;
mod memory;
mod neighbour;
mod peers;
mod proxy;
mod reply;
mod server;
mod spans;
mod stream;
mod tls;

pub use documents::{CodeBlock, CodeSpan, Document, documents, repository};
pub use drill::accepted_until_killed;
pub use gate::Gate;
pub use gateway::{AGENT_FORM, GatewayDatabase, STATE_FORM};
pub use memory::{ProcessMemory, process_memory};
pub use neighbour::{Act, Neighbour, context_of, endless_database, path_of};
pub use peers::{needs_peers, peer_files, peer_modules, peer_python, skip_without};
pub use proxy::FakeProxy;
pub use reply::Reply;
pub use server::{CapturedRequest, FakeServer};
pub use spans::{SpanCollector, SpanGuard, SpanRecord};
pub use stream::{Answer, Wire};
pub use tls::{Authority, Identity, Validity};
