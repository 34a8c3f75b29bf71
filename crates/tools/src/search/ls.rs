//! The tool that lists a directory.

use std::future::Future;
use std::pin::Pin;

use quipu_protocol::ToolSpec;
use quipu_workspace::{FileError, MOST_ENTRIES, file_key};
use serde::Deserialize;
use serde_json::json;

use super::grep::{directory_touched, here};
use super::{ResultLines, entered, limit, until_cancelled};
use crate::file_call::{FileArguments, FileCall};
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, spec};

/// Entries at most, where the call says nothing.
const ENTRIES: usize = 500;

/// `ls {path?, limit?}`: the entries of a directory.
#[derive(Debug)]
pub struct Ls {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default = "here")]
    path: String,
    limit: Option<f64>,
}

impl FileArguments for Arguments {
    fn path(&self) -> &str {
        &self.path
    }
}

impl Ls {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "Default: the working directory" },
                "limit": { "type": "integer", "description": "Entries at most (500)" },
            },
        });
        let description =
            "List a directory, hidden files too; directories end with /. Ends at 500 entries or 50KB.";
        Self { spec: spec("ls", description, &parameters) }
    }
}

impl Default for Ls {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Ls {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        Touches::Reads(directory_touched::<Arguments>(args, cx))
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
            until_cancelled(cx, call.run(list)).await
        })
    }
}

fn list(call: &FileCall<Arguments>) -> Result<ToolOutput, FileError> {
    let most = limit(call.arguments.limit, ENTRIES);
    let (path, real) = (&call.path, file_key(&call.path));
    entered(&call.access, path, &real)?;
    if !real.is_dir() {
        let why = if real.exists() { "Not a directory" } else { "Path not found" };
        return Ok(ToolOutput::error(format!("{why}: {}", path.display())));
    }
    let entries = match std::fs::read_dir(&real) {
        Ok(entries) => entries,
        Err(error) => return Ok(ToolOutput::error(format!("Cannot read directory: {error}"))),
    };
    let mut names = Vec::new();
    for entry in entries.flatten().take(MOST_ENTRIES) {
        if call.cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    let total = names.len();
    names.sort_by_cached_key(|name| (name.to_lowercase(), name.clone()));
    let mut lines = ResultLines::default();
    let mut shown = 0;
    for name in &names {
        // A link that leads nowhere is left out.
        let Ok(found) = std::fs::metadata(real.join(name)) else { continue };
        if shown == most {
            break;
        }
        shown += 1;
        let slash = if found.is_dir() { "/" } else { "" };
        if !lines.push(&format!("{name}{slash}")) {
            break;
        }
    }
    let (mut notices, mut details) = (Vec::new(), Vec::new());
    if shown == most && total > most {
        notices.push(format!("{most} entries limit reached. Use limit={} for more", most * 2));
        details.push(("entryLimitReached", most as u64));
    }
    Ok(lines.output("(empty directory)", notices, &details))
}
