//! The tool that finds files by their names.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use quipu_protocol::ToolSpec;
use quipu_workspace::{FileError, file_key};
use serde::Deserialize;
use serde_json::json;

use super::glob::Glob;
use super::grep::{directory_touched, here};
use super::{ResultLines, Tree, entered, limit, shown, until_cancelled};
use crate::file_call::{FileArguments, FileCall};
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, spec};

/// Results at most, where the call says nothing.
const RESULTS: usize = 1000;

/// `find {pattern, path?, limit?}`: files and directories whose names match.
#[derive(Debug)]
pub struct Find {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default = "here")]
    path: String,
    limit: Option<f64>,
}

impl FileArguments for Arguments {
    fn path(&self) -> &str {
        &self.path
    }
}

impl Find {
    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "Such as *.ts or src/**/*.rs" },
                "path": { "type": "string", "description": "Directory; default: the working directory" },
                "limit": { "type": "integer", "description": "Results at most (1000)" },
            },
            "required": ["pattern"],
        });
        let description = "Find files and directories by name. Gives paths relative to the directory. Leaves out what \
             .gitignore leaves out. Ends at 1000 results or 50KB.";
        Self { spec: spec("find", description, &parameters) }
    }
}

impl Default for Find {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Find {
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
            until_cancelled(cx, call.run(find)).await
        })
    }
}

fn find(call: &FileCall<Arguments>) -> Result<ToolOutput, FileError> {
    let Arguments { pattern, limit: most, .. } = &call.arguments;
    let glob = match Glob::parse(pattern) {
        Ok(glob) => glob,
        Err(error) => return Ok(ToolOutput::error(error.to_string())),
    };
    let most = limit(*most, RESULTS);
    let real = file_key(&call.path);
    entered(&call.access, &call.path, &real)?;
    if !real.is_dir() {
        let why = if real.exists() { "Not a directory" } else { "Path not found" };
        return Ok(ToolOutput::error(format!("{why}: {}", call.path.display())));
    }
    let wanted = |path: &Path, _: bool| glob.matches(&shown(path));
    let tree = Tree::below(&real, &call.cancel, &wanted)?;
    let mut lines = ResultLines::default();
    let (mut notices, mut details) = (Vec::new(), Vec::new());
    for (path, is_directory) in tree.paths.iter().take(most) {
        let slash = if *is_directory { "/" } else { "" };
        if !lines.push(&format!("{}{slash}", shown(path))) {
            break;
        }
    }
    if tree.paths.len() > most {
        let more = most * 2;
        notices.push(format!("{most} results limit reached. Use limit={more} for more, or refine pattern"));
        details.push(("resultLimitReached", most as u64));
    }
    notices.extend(tree.notice());
    Ok(lines.output("No files found matching pattern", notices, &details))
}
