//! What a dream needs of its surroundings.

use futures_util::future::BoxFuture;
use quipu_protocol::{NodeId, UnixMs};

use super::line_class::LineClass;
use super::{DistilAsk, DreamError};
use crate::AuthorClass;

/// What the operations of a host return.
pub type DreamFut<'a, T> = BoxFuture<'a, Result<T, DreamError>>;

/// Notes of a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteFile {
    /// Relative to the directory of the memory, with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was changed last.
    pub modified: UnixMs,
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeText {
    /// Its text.
    pub text: String,
    /// Whose words these are.
    pub class: AuthorClass,
}

/// What became of a file that a dream wants to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    /// It is written, and the change is recorded.
    Written,
    /// It is not what the dream read any more. Nothing was written.
    Changed,
}

/// The files, authors and models of one memory.
pub trait DreamHost: Send + Sync {
    /// The notes of days: files `memory/YYYY-MM-DD[-name].md`. No symbolic links.
    fn notes(&self) -> DreamFut<'_, Vec<NoteFile>>;

    /// The text of a file; `None` where there is none. One that is too long, or no text, is an error.
    fn read<'a>(&'a self, path: &'a str) -> DreamFut<'a, Option<String>>;

    /// Whose each line of a file is, for the text that was read.
    fn classes<'a>(&'a self, path: &'a str, text: &'a str) -> DreamFut<'a, Vec<LineClass>>;

    /// What a node says; `None` where it does not exist, or says nothing.
    fn node(&self, node: NodeId) -> DreamFut<'_, Option<NodeText>>;

    /// Whether a person had a text forgotten.
    ///
    /// # Errors
    /// Where that cannot be read: what it hides must not come back.
    fn is_forgotten(&self, text: &str) -> Result<bool, DreamError>;

    /// Writes a file, where it is still `before`, and records the change with where it came from.
    fn write<'a>(
        &'a self,
        path: &'a str,
        before: Option<&'a str>,
        after: &'a str,
        sources: &'a [NodeId],
    ) -> DreamFut<'a, WriteResult>;

    /// Asks a model; `None` where there is none, or nothing may be paid. Why it failed is an error, which stops nothing.
    fn distil<'a>(&'a self, ask: &'a DistilAsk) -> DreamFut<'a, Option<String>>;

    /// The day of a time, counted from 1970-01-01, where the person lives.
    fn day_of(&self, at: UnixMs) -> i64;
}
