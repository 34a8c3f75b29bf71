//! Changes of a memory as nodes: who wrote a line, and what it came from.
//!
//! Each memory is a session of its own, with the directory of the memory as its directory. A change is a message of the type
//! [`CHANGE`] with the files before and after, the class of its author and the nodes that it came from. The texts of files are only
//! in these states, so that a search of sessions finds no line that was taken out of the files.

mod changes;
mod forget;
mod ledger;
mod node;
mod notebook;
mod observe;
mod pass;
mod review;
mod shape;

/// Bytes of one note that a model adds, at most.
pub const NOTE_BYTES: usize = 4_000;

pub use forget::FoundLine;
pub use ledger::{LineAuthor, LineRange};
pub use node::{CHANGE, NoteChange, session_of};
pub use notebook::{NoteAuthor, Notebook, WrittenNote};
pub use observe::UnexplainedChange;
pub use review::LinesToReview;
pub use shape::{FileShapes, TextShape};
