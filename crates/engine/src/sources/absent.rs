//! Tools that are not there: those of a source that could not be asked when a session was opened, which has them in its
//! epoch all the same.

use std::pin::Pin;

use quipu_protocol::ToolSpec;
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};

/// Stands for a tool until its source can be asked.
pub(super) struct AbsentTool {
    pub(super) spec: ToolSpec,
    pub(super) source: String,
}

impl Tool for AbsentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        _: Invocation,
        _: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        let text = format!(
            "The tool {} is not available: its source {} failed when the session was opened. Continue without \
             it.",
            self.spec.name, self.source
        );
        Box::pin(std::future::ready(ToolOutput::error(text)))
    }
}
