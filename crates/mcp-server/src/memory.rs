//! The tools of memory, which take the place of `search` where memory is on.

use std::path::Path;
use std::sync::Arc;

use quipu_history::{BEGIN_HISTORY, framed};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

use crate::archive::{Archive, Page};
use crate::desk::{MemoryCall, MemoryDesk, MemoryToolSpec};
use crate::error::CallError;
use crate::reach::Reach;

/// The definitions of the tools, as the protocol has them.
pub(crate) async fn definitions(
    desk: &dyn MemoryDesk,
    archive: &Archive,
    directory: &Path,
    reach: &Reach,
) -> Vec<Tool> {
    let tool = |spec: MemoryToolSpec| {
        let schema = match spec.schema {
            Value::Object(members) => members,
            _ => JsonObject::new(),
        };
        let annotations = ToolAnnotations::from_raw(None, Some(spec.read_only), None, None, Some(false));
        Tool::new(spec.name, spec.description, Arc::new(schema)).with_annotations(annotations)
    };
    let projects: Option<Vec<String>> = reach.projects().into_iter().collect();
    desk.tools(archive.store().ok(), directory, projects).await.into_iter().map(tool).collect()
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
    let store = archive.store();
    // One that this client is not offered says itself why.
    let all = desk.tools(store.as_ref().ok().cloned(), directory, None).await;
    if !all.iter().any(|spec| spec.name == name) {
        return None;
    }
    let store = match store {
        Ok(store) => store,
        Err(error) => return Some(Err(error)),
    };
    // One `None` stands for every session.
    let projects: Option<Vec<String>> = reach.projects().into_iter().collect();
    let answer = desk.call(MemoryCall { store, directory, projects, name, args }).await?;
    Some(Ok(Page { text: framed(BEGIN_HISTORY, &answer.to_string()), next: None }))
}
