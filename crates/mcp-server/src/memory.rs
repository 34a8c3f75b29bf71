//! The tools of memory, which take the place of `search` where memory is on.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use quipu_history::{BEGIN_HISTORY, framed};
use quipu_store::Graph;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

use crate::archive::{Archive, Page};
use crate::error::CallError;
use crate::reach::Reach;

/// A tool, as a desk declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryToolSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
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

/// Who has the tools of memory.
pub trait MemoryDesk: Send + Sync + 'static {
    /// The tools for a directory; none where memory is off there.
    fn tools(&self, directory: &Path) -> Vec<MemoryToolSpec>;

    /// Runs one. A failure is an answer too.
    fn call<'a>(&'a self, call: MemoryCall<'a>) -> MemoryAnswer<'a>;
}

/// The definitions of the tools, as the protocol has them.
pub(crate) fn definitions(desk: &dyn MemoryDesk, directory: &Path) -> Vec<Tool> {
    let tool = |spec: MemoryToolSpec| {
        let schema = match spec.schema {
            Value::Object(members) => members,
            _ => JsonObject::new(),
        };
        let annotations = ToolAnnotations::from_raw(None, Some(spec.read_only), None, None, Some(false));
        Tool::new(spec.name, spec.description, Arc::new(schema)).with_annotations(annotations)
    };
    desk.tools(directory).into_iter().map(tool).collect()
}

/// Runs a tool of memory; `None` for a name that is none of one.
pub(crate) async fn run(
    desk: &dyn MemoryDesk,
    directory: &Path,
    archive: &Archive,
    reach: &Reach,
    name: &str,
    args: &Value,
) -> Option<Result<Page, CallError>> {
    if !desk.tools(directory).iter().any(|spec| spec.name == name) {
        return None;
    }
    let store = match archive.store() {
        Ok(store) => store,
        Err(error) => return Some(Err(error)),
    };
    // One `None` stands for every session.
    let projects: Option<Vec<String>> = reach.projects().into_iter().collect();
    let answer = desk.call(MemoryCall { store, directory, projects, name, args }).await?;
    Some(Ok(Page { text: framed(BEGIN_HISTORY, &answer.to_string()), next: None }))
}
