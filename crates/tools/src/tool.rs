//! What a tool is.

use std::borrow::Cow;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use quipu_protocol::{CallId, Content, Json, RunId, SessionId, ToolSpec, Touches};
use quipu_workspace::{Access, OutputPlace, Sandbox};
use tokio_util::sync::CancellationToken;

use crate::background::BackgroundCommands;

/// Something that the model can run.
pub trait Tool: Send + Sync + 'static {
    /// Its declaration for the model.
    fn spec(&self) -> &ToolSpec;

    /// What the call would touch, for ordering calls of one batch. `args` are valid for the schema.
    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        let _ = (args, cx);
        Touches::Nothing
    }

    /// What can be done for a call before it may run, in the time that its announcement takes to be stored: work for a
    /// thread that may block. Nothing that could be noticed may come of it, for the call may never run, or run
    /// first. `call` is valid and allowed; it may hold placeholders where [`run`](Self::run) gets secrets.
    fn prepare(&self, call: &Invocation, cx: &ToolContext) -> Option<Preparation> {
        let _ = (call, cx);
        None
    }

    /// A run is left, and nothing that its calls started may go on: ends what they left running. Blocks for some
    /// milliseconds.
    fn end_run(&self, run: &RunId) {
        let _ = run;
    }

    /// Runs it. Failure is a result with `is_error`, never a panic. When `cx.cancel` fires it returns soon, with
    /// every process that it started gone.
    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;
}

/// Work that makes a call quicker.
pub type Preparation = Box<dyn FnOnce() + Send>;

/// One call to run.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The call.
    pub id: CallId,
    /// The arguments, checked against the schema, secrets put back.
    pub args: Json,
}

/// What a tool may use.
#[derive(Clone)]
pub struct ToolContext {
    /// The session that the call belongs to, where it is in one.
    pub session: Option<SessionId>,
    /// The run that the call belongs to.
    pub run: RunId,
    /// The directory that relative paths start from.
    pub cwd: PathBuf,
    /// Environment for child processes, beyond what is inherited: name and value; `None` removes.
    pub env: Arc<[(String, Option<String>)]>,
    /// Where whole outputs are kept, such as a long command's, and what seals them.
    pub outputs: OutputPlace,
    /// Told the tail of the output so far (at most 50 KB), not more often than every 100 ms.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
    /// Fires when the call must stop.
    pub cancel: CancellationToken,
    /// Whether the model takes images.
    pub sees_images: bool,
    /// Where files may be read and written; a tool that opens files opens them through this.
    pub access: Access,
    /// What confines commands, if anything does; a tool that starts processes starts them in it.
    pub sandbox: Option<Arc<Sandbox>>,
    /// The background commands of the session, where it may have some.
    pub background: Option<BackgroundCommands>,
}

impl ToolContext {
    /// A path as this machine names it, where commands run in a container that has another name for it.
    pub(crate) fn outside<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let outside = self.sandbox.as_ref().and_then(|sandbox| sandbox.path_outside(Path::new(path)));
        outside.map_or(Cow::Borrowed(path), |path| Cow::Owned(path.to_string_lossy().into_owned()))
    }
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// Text and images, for the model.
    pub content: Vec<Content>,
    /// For fronts, never for the model.
    pub details: Option<Json>,
    /// Whether it failed.
    pub is_error: bool,
    /// When every call of a batch says so, the run ends without another model call.
    pub terminate: bool,
}

impl ToolOutput {
    /// A text result.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// A failure, told in text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], is_error: true, ..Self::default() }
    }
}
