//! The tool that writes a file.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use quipu_protocol::ToolSpec;
use quipu_workspace::resolve;
use serde::Deserialize;
use serde_json::json;

use crate::file_call::{FileArguments, FileCall, touched_files};
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, spec};

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

impl FileArguments for Arguments {
    fn path(&self) -> &str {
        &self.path
    }

    /// The file may be new, so its name is taken as it is written.
    fn resolve(cwd: &Path, path: &str) -> PathBuf {
        resolve(cwd, path)
    }
}

impl Write {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "path": { "type": "string" }, "content": { "type": "string" } },
            "required": ["path", "content"],
        });
        let description = "Create or replace a whole file, with its directories.";
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
            call.run(|call| {
                let Arguments { path, content } = &call.arguments;
                call.access.write_file(&call.path, content.as_bytes(), None)?;
                Ok(ToolOutput::text(format!("Successfully wrote to {path}")))
            })
            .await
        })
    }
}
