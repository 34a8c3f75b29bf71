//! What a compaction keeps, what it sums up, and the words that carry the rest. Pure: the engine makes the calls.

mod branch;
mod cut;
mod files;
mod note;
mod safeguard;
mod text;
mod tokens;

pub use branch::*;
pub use cut::*;
pub use files::*;
pub use note::*;
pub use safeguard::*;
pub use text::*;
pub use tokens::*;
