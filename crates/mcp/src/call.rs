//! A tool of a server, as the session has it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quipu_protocol::ToolSpec;
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput, Touches};
use serde_json::json;

use crate::client::{Progress, RequestOptions};
use crate::deciders::Deciders;
use crate::definition::Definition;
use crate::error::RequestError;
use crate::limits::CALL_TOTAL;
use crate::result::output;
use crate::server::Server;
use crate::store::DefinitionStore;
use crate::visible::one_line;

/// The shortest time between two reports of progress.
const REPORTS: Duration = Duration::from_millis(100);

/// A tool with the definition that the model has.
pub(crate) struct ServerTool {
    pub(crate) spec: ToolSpec,
    pub(crate) definition: Definition,
    pub(crate) server: Arc<Server>,
    /// Its name in the store of definitions.
    pub(crate) key: String,
    pub(crate) store: Arc<dyn DefinitionStore>,
    pub(crate) deciders: Arc<Deciders>,
}

impl Tool for ServerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Nobody knows what a server does; what it says of itself is no promise.
    fn touches(&self, _: &serde_json::Value, _: &ToolContext) -> Touches {
        Touches::Anything
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            tokio::select! {
                output = self.call(call, cx) => output,
                () = cx.cancel.cancelled() => ToolOutput::error("Operation aborted"),
            }
        })
    }
}

impl ServerTool {
    async fn call(&self, call: Invocation, cx: &ToolContext) -> ToolOutput {
        let server = self.server.name();
        let client = match self.server.client(self.server.config().startup).await {
            Ok(client) => client,
            Err(why) => {
                return ToolOutput::error(format!(
                    "The call was not made: the MCP server {server} is not running: {why}"
                ));
            }
        };
        if let Some(listing) = self.server.listing() {
            let now = listing.definitions.iter().find(|one| one.name == self.definition.name);
            match now {
                Some(now) if now.hash == self.definition.hash => {}
                Some(_) => {
                    return ToolOutput::error(format!(
                        "The call was not made: the MCP server {server} changed the definition of this tool just now. \
                         The next request has the new one."
                    ));
                }
                None => {
                    return ToolOutput::error(format!(
                        "The call was not made: the MCP server {server} has no such tool any more."
                    ));
                }
            }
        }
        // Whoever may decide allowed it with this definition.
        if let Err(error) = self.store.accept(&self.key, &self.definition.name, &self.definition.hash) {
            return ToolOutput::error(format!(
                "The call was not made: its definition could not be accepted: {error}"
            ));
        }
        let params = json!({ "name": self.definition.name, "arguments": call.args.value() });
        let options = RequestOptions {
            idle: self.server.config().call,
            total: CALL_TOTAL,
            cancel: cx.cancel.clone(),
            progress: Some(throttled(cx.progress.clone())),
            elicitor: self.deciders.elicitor(&call.id, server),
        };
        match client.request("tools/call", params, options).await {
            Ok(result) => output(&result),
            Err(error) => self.failure(error),
        }
    }

    fn failure(&self, error: RequestError) -> ToolOutput {
        let server = self.server.name();
        ToolOutput::error(match error {
            RequestError::Cancelled => "Operation aborted".to_owned(),
            RequestError::Closed(why) => format!(
                "The MCP server {server} ended in the middle of the call: {why}. Whether the call took effect is unknown. \
                 The server is started again."
            ),
            RequestError::Timeout(limit) => format!(
                "The MCP server {server} gave no answer within {} s and was asked to stop the call. Whether it took effect \
                 is unknown.",
                limit.as_secs_f64()
            ),
            RequestError::Refused { code, message, pages } => {
                let mut text = format!("The MCP server {server} refused the call: {message} (error {code})");
                for (message, url) in pages {
                    text.push_str(&format!(
                        "\nThe user should open a page first: {} {url}",
                        one_line(&message, 300)
                    ));
                }
                text
            }
            RequestError::Unreachable(why) => {
                format!(
                    "The MCP server {server} could not be asked: {why}. Whether the call took effect is unknown."
                )
            }
            RequestError::Invalid(why) => {
                format!("The MCP server {server} gave an answer that is not valid: {why}")
            }
            RequestError::Unauthorized { status, .. } => {
                format!("The call was not made: the MCP server {server} wants a login (HTTP {status}).")
            }
        })
    }
}

/// Reports not more often than is of use.
fn throttled(progress: Progress) -> Progress {
    let last: Mutex<Option<Instant>> = Mutex::new(None);
    Arc::new(move |text| {
        let due = {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let due = last.is_none_or(|last| last.elapsed() >= REPORTS);
            if due {
                *last = Some(Instant::now());
            }
            due
        };
        if due {
            progress(text);
        }
    })
}
