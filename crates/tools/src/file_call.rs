//! The opening steps of read, write and edit: the arguments, the path that they name, the work off the async threads.

use std::path::{Path, PathBuf};

use quipu_workspace::{Access, FileError, file_key, resolve_existing};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{Invocation, ToolContext, ToolOutput, arguments};

/// Arguments that name one file.
pub(crate) trait FileArguments: DeserializeOwned + Send + 'static {
    /// The file, as the model wrote it.
    fn path(&self) -> &str;

    /// The path that such text stands for. A file that exists is also found by spellings close to its name.
    fn resolve(cwd: &Path, path: &str) -> PathBuf {
        resolve_existing(cwd, path)
    }
}

/// A call of a file tool, ready to run.
#[derive(Debug)]
pub(crate) struct FileCall<A> {
    pub(crate) arguments: A,
    /// The resolved path. It is checked when `access` opens it.
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) cancel: CancellationToken,
}

impl<A: FileArguments> FileCall<A> {
    /// Reads the arguments and resolves the path.
    ///
    /// # Errors
    /// The output of the call, when the arguments do not fit the tool.
    pub(crate) fn new(call: &Invocation, cx: &ToolContext) -> Result<Self, ToolOutput> {
        let arguments: A = arguments(&call.args).map_err(ToolOutput::error)?;
        let path = A::resolve(&cx.cwd, &cx.outside(arguments.path()));
        Ok(Self { arguments, path, access: cx.access.clone(), cancel: cx.cancel.clone() })
    }

    /// Runs `work` on a thread that may block, unless the call is cancelled before it starts. Dropping the future does
    /// not stop the work; it checks the cancel token itself.
    pub(crate) async fn run(
        self,
        work: impl FnOnce(&Self) -> Result<ToolOutput, FileError> + Send + 'static,
    ) -> ToolOutput {
        let checked = move || {
            self.check_cancelled()?;
            work(&self)
        };
        run_blocking(checked).await
    }

    /// # Errors
    /// [`FileError::Cancelled`] once the call is cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<(), FileError> {
        if self.cancel.is_cancelled() { Err(FileError::Cancelled) } else { Ok(()) }
    }
}

/// The key of the file that the arguments name, for [`Tool::touches`](crate::Tool::touches). Empty where they name none.
pub(crate) fn touched_files<A: FileArguments>(args: &serde_json::Value, cx: &ToolContext) -> Vec<PathBuf> {
    let path = args.get("path").and_then(serde_json::Value::as_str);
    path.map(|path| file_key(&A::resolve(&cx.cwd, &cx.outside(path)))).into_iter().collect()
}

/// Runs `work` on a thread that may block.
pub(crate) async fn run_blocking(
    work: impl FnOnce() -> Result<ToolOutput, FileError> + Send + 'static,
) -> ToolOutput {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => ToolOutput::error(error.to_string()),
        Err(_) => ToolOutput::error(
            "The tool panicked, which is a bug in Quipu. Check the file before you continue.",
        ),
    }
}
