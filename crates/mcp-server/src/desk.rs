//! Who has the tools of memory.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use quipu_store::Graph;
use serde_json::Value;

/// A tool, as a desk declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryToolSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
    /// Whether it changes nothing.
    pub read_only: bool,
}

/// A call of one of the tools.
pub struct MemoryCall<'a> {
    /// The store that the client looks at.
    pub store: Arc<dyn Graph>,
    /// The directory whose memories are meant.
    pub directory: &'a Path,
    /// The directories whose sessions the client may see; `None` for all.
    pub projects: Option<Vec<String>>,
    /// The tool.
    pub name: &'a str,
    /// Its arguments.
    pub args: &'a Value,
}

/// The answer of a call: `None` for a name that is none of a tool of memory, or where memory is off.
pub type MemoryAnswer<'a> = Pin<Box<dyn Future<Output = Option<Value>> + Send + 'a>>;

/// The tools that there are.
pub type MemoryToolList<'a> = Pin<Box<dyn Future<Output = Vec<MemoryToolSpec>> + Send + 'a>>;

/// Who has the tools of memory.
pub trait MemoryDesk: Send + Sync + 'static {
    /// The tools for a directory and a store, where there is one yet; none where memory is off there. For a client that may see
    /// the sessions of these directories; `None` for all.
    fn tools<'a>(
        &'a self,
        store: Option<Arc<dyn Graph>>,
        directory: &'a Path,
        projects: Option<Vec<String>>,
    ) -> MemoryToolList<'a>;

    /// Runs one. A failure is an answer too.
    fn call<'a>(&'a self, call: MemoryCall<'a>) -> MemoryAnswer<'a>;
}
