//! A tool made of a closure.

use std::future::Future;
use std::pin::Pin;

use quipu_protocol::{Json, ToolSpec, Touches};

use crate::{Invocation, Tool, ToolContext, ToolOutput};

/// What a call with these arguments touches.
type TouchFn = Box<dyn Fn(&serde_json::Value) -> Touches + Send + Sync>;

/// A tool made of a closure: the arguments of a call go in, its result comes out.
///
/// ```
/// use quipu_tools::{FunctionTool, ToolOutput};
/// use serde_json::{Value, json};
///
/// let parameters = json!({
///     "type": "object",
///     "properties": { "item": { "type": "string" } },
///     "required": ["item"],
/// });
/// let count = FunctionTool::new("count", "How many of an item are left.", parameters, |args: Value| async move {
///     match args["item"].as_str() {
///         Some("rope") => ToolOutput::text("7 left"),
///         _ => ToolOutput::error("There is no such item."),
///     }
/// });
/// ```
///
/// Its calls count as touching nothing, so they run side by side; say otherwise with
/// [`with_touches`](Self::with_touches). When a call is cancelled, the future is dropped. Implement [`Tool`] for a tool
/// that needs its [`ToolContext`].
pub struct FunctionTool<F> {
    spec: ToolSpec,
    function: F,
    touches: Option<TouchFn>,
}

impl<F, R> FunctionTool<F>
where
    F: Fn(serde_json::Value) -> R + Send + Sync + 'static,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    /// A tool with this name and description. `parameters` is the JSON Schema of its arguments, which are checked
    /// against it before each call.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: impl Into<Json>,
        function: F,
    ) -> Self {
        let spec =
            ToolSpec { name: name.into(), description: description.into(), parameters: parameters.into() };
        Self { spec, function, touches: None }
    }

    /// The same, where `touches` gives the files of a call: calls that touch the same ones keep their order.
    #[must_use]
    pub fn with_touches(
        mut self,
        touches: impl Fn(&serde_json::Value) -> Touches + Send + Sync + 'static,
    ) -> Self {
        self.touches = Some(Box::new(touches));
        self
    }
}

impl<F, R> Tool for FunctionTool<F>
where
    F: Fn(serde_json::Value) -> R + Send + Sync + 'static,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, _: &ToolContext) -> Touches {
        self.touches.as_ref().map_or(Touches::Nothing, |touches| touches(args))
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        let result = (self.function)(call.args.value());
        Box::pin(async move {
            let cancelled = ToolOutput::error("The call was cancelled.");
            cx.cancel.run_until_cancelled(result).await.unwrap_or(cancelled)
        })
    }
}
