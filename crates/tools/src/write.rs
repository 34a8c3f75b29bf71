//! The tool that writes a file.

use std::future::Future;
use std::pin::Pin;

use quipu_protocol::ToolSpec;
use quipu_workspace::{FileError, file_key, resolve};
use serde::Deserialize;
use serde_json::json;

use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, arguments, file_work, path_argument, spec};

/// `write {path, content}`: makes the content the file's, byte for byte. Directories are made; the change is
/// atomic.
#[derive(Debug)]
pub struct Write {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

impl Write {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "path": { "type": "string" }, "content": { "type": "string" } },
            "required": ["path", "content"],
        });
        let description = "Create a file or replace all of its content. Parent directories are made.";
        Self { spec: spec("write", description, &parameters) }
    }
}

impl Default for Write {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        let paths = path_argument(args).map(|path| file_key(&resolve(&cx.cwd, path)));
        Touches::Writes(paths.into_iter().collect())
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let Arguments { path, content } = match arguments(&call.args) {
                Ok(arguments) => arguments,
                Err(error) => return ToolOutput::error(error),
            };
            let (target, access, cancel) = (resolve(&cx.cwd, &path), cx.access.clone(), cx.cancel.clone());
            file_work(move || {
                if cancel.is_cancelled() {
                    return Err(FileError::Cancelled);
                }
                access.write_file(&target, content.as_bytes(), None)?;
                Ok(ToolOutput::text(format!("Successfully wrote to {path}")))
            })
            .await
        })
    }
}
