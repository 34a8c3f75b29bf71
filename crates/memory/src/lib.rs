//! Memory: notes in Markdown that people own, the search over them and over every session, and what is distilled from them.
//!
//! A memory is a directory ([`MemoryPlace`]). What is in it can be read and edited with any editor; every change of it is a node
//! of the graph, with the class of its author ([`AuthorClass`]) and the nodes that it came from.

pub mod active;
mod author;
mod citation;
pub mod context;
pub mod dream;
mod error;
pub mod files;
pub mod flush;
mod forgotten;
mod home;
mod lock;
pub mod notes;
mod place;
mod project;
pub mod search;
mod taint;

pub use author::AuthorClass;
pub use citation::{Citation, CitationError};
pub use error::MemoryError;
pub use forgotten::ForgetList;
pub use home::{LostMemory, MemoryChoices, MemoryHome, MoveLock, ProjectChoice};
pub use place::{MemoryKind, MemoryPlace};
pub use project::{project_root, project_tree, project_trees};
pub use taint::{class_of_node, class_of_turn};
