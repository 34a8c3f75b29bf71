//! Definitions that nobody has accepted are asked about before they are used.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{Grant, GrantError, PolicyContext, PolicyError, ToolPolicy, ToolRequest, ToolVerdict};
use quipu_protocol::Scope;

use crate::definition::PREFIX;
use crate::source::{McpSource, McpTools};
use crate::store::Acceptance;
use crate::visible::one_line;

/// Characters of a description in a question.
const DESCRIPTION: usize = 600;

/// Asks about tools of servers whose definition is new, or is another one than was accepted.
pub struct McpPolicy {
    tools: Arc<McpTools>,
    /// Whether new definitions are asked about; changed ones always are.
    asks_new: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for McpPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpPolicy").finish_non_exhaustive()
    }
}

impl McpPolicy {
    /// For the tools of a source.
    pub fn new(source: &McpSource, asks_new: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self { tools: source.shared(), asks_new }
    }

    fn verdict(&self, name: &str) -> ToolVerdict {
        let Some(tool) = self.tools.offered_as(name) else { return ToolVerdict::NoOpinion };
        let why = match self.tools.acceptance(&tool) {
            Acceptance::Accepted => return ToolVerdict::NoOpinion,
            Acceptance::Changed => "the server changed its definition since it was allowed",
            Acceptance::New if (self.asks_new)() => "it is new here",
            Acceptance::New => return ToolVerdict::NoOpinion,
        };
        let description = one_line(&tool.definition.description, DESCRIPTION);
        let hidden = if tool.definition.is_suspicious {
            " Its definition has invisible characters, which are shown by number and not sent to the model."
        } else {
            ""
        };
        let (tool, server) = (one_line(&tool.definition.name, 128), tool.server.name());
        ToolVerdict::Ask {
            question: format!(
                "Allow the tool {tool} of the MCP server {server}? Asked because {why}.{hidden} The server describes it as: \
                 {description}"
            ),
            scopes: vec![Scope::Once, Scope::Session, Scope::Always],
        }
    }
}

impl ToolPolicy for McpPolicy {
    fn name(&self) -> &str {
        "mcp"
    }

    fn version(&self) -> u64 {
        self.tools.version()
    }

    fn decide<'a>(
        &'a self,
        request: &'a ToolRequest<'a>,
        cx: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
        if !request.call.name.starts_with(PREFIX) {
            return Box::pin(std::future::ready(Ok(ToolVerdict::NoOpinion)));
        }
        // Whoever is asked about the call is also asked what its server wants to know.
        self.tools.deciders().remember(&request.call.id, cx);
        Box::pin(std::future::ready(Ok(self.verdict(&request.call.name))))
    }

    /// The call that is allowed accepts the definition; nothing else is to be kept.
    fn grant(&self, _: Grant, scope: Scope) -> BoxFuture<'_, Result<Scope, GrantError>> {
        Box::pin(std::future::ready(Ok(scope)))
    }
}
