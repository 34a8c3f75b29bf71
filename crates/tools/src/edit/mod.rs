//! The tool that edits a file.

mod apply;
mod compare;
mod diff;
mod view;

pub(crate) use apply::{Piece, splice};
pub use diff::changed_lines;
pub(crate) use diff::details;
pub(crate) use view::{View, loose};

use std::future::Future;
use std::pin::Pin;

use quipu_protocol::{Json, ToolSpec};
use quipu_workspace::FileError;
use serde::Deserialize;
use serde_json::json;

use crate::file_call::{FileArguments, FileCall, touched_files};
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, spec};

/// Bytes of a file that can be edited.
const FILE_LIMIT: u64 = 32 << 20;

/// `edit {path, edits: [{oldText, newText}]}`: replaces texts that occur once. All are looked for in the file as
/// it was; all or none are made.
#[derive(Debug)]
pub struct Edit {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    edits: Vec<Replacement>,
}

impl FileArguments for Arguments {
    fn path(&self) -> &str {
        &self.path
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replacement {
    pub(crate) old_text: String,
    pub(crate) new_text: String,
}

impl Edit {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "edits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "oldText": { "type": "string" },
                            "newText": { "type": "string" },
                        },
                        "required": ["oldText", "newText"],
                    },
                },
            },
            "required": ["path", "edits"],
        });
        let description = "Replace texts in a file. Each oldText must occur exactly once; \
             edits must not overlap. One call for all changes of a file.";
        Self { spec: spec("edit", description, &parameters) }
    }
}

impl Default for Edit {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        Touches::Writes(touched_files::<Arguments>(args, cx))
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let call: FileCall<Arguments> = match FileCall::new(&call, cx) {
                Ok(call) => call,
                Err(output) => return output,
            };
            if call.arguments.edits.is_empty() {
                return ToolOutput::error(
                    "Edit tool input is invalid. edits must contain at least one replacement.",
                );
            }
            call.run(edit).await
        })
    }
}

fn edit(call: &FileCall<Arguments>) -> Result<ToolOutput, FileError> {
    let FileCall { arguments: Arguments { path, edits }, path: target, access, cancel } = call;
    let refused = |error: FileError| match error {
        FileError::NotFound { .. } | FileError::Denied { .. } => {
            Ok(ToolOutput::error(format!("Could not edit file: {path}. Error code: {}.", error.code())))
        }
        other => Err(other),
    };
    let (old, stamp) = match access.read_to_change(target, FILE_LIMIT, cancel) {
        Ok(read) => read,
        Err(error) => return refused(error),
    };
    let new = match apply::apply(&old, edits, path, cancel) {
        Ok(new) => new,
        Err(text) => return Ok(ToolOutput::error(text)),
    };
    call.check_cancelled()?;
    if let Err(error) = access.write_file(target, &new, Some(&stamp)) {
        return refused(error);
    }
    let details = diff::details(&view::View::new(&old).text, &view::View::new(&new).text, path);
    Ok(ToolOutput {
        details: details.and_then(|details| Json::of(&details).ok()),
        ..ToolOutput::text(format!("Successfully replaced {} block(s) in {path}.", edits.len()))
    })
}
