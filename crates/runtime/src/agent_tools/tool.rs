//! The calls of these tools.

use std::future::Future;
use std::pin::Pin;

use quipu::protocol::{Json, ToolSpec};
use quipu::{Invocation, Tool, ToolContext, ToolOutput};
use quipu_outbound::MediaCheck;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::Caller;
use super::{AgentTool, AgentTools, history, send};
use crate::keys::SessionKey;
use crate::replies::{PostedMessage, ToolPost, sendable_file};

/// Bytes of a message that a tool sends.
const MESSAGE: usize = 64 << 10;
/// Media of a message.
const MEDIA: usize = 16;

/// One of the tools, in the session of a conversation.
pub(super) struct ConversationTool {
    which: AgentTool,
    own: SessionKey,
    tools: AgentTools,
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    session: Option<String>,
    limit: Option<u64>,
    text: Option<String>,
    /// Seconds that `sessions_send` waits for an answer.
    wait: Option<f64>,
    #[serde(default)]
    media: Vec<String>,
    to: Option<String>,
}

impl ConversationTool {
    pub(super) fn new(which: AgentTool, own: SessionKey, tools: AgentTools) -> Self {
        let text = || json!({ "type": "string" });
        let (description, properties, required): (&str, Value, &[&str]) = match which {
            AgentTool::SessionsList => {
                ("List the conversations that you can see.", json!({ "limit": { "type": "integer" } }), &[])
            }
            AgentTool::SessionsHistory => (
                "Read the newest messages of a conversation.",
                json!({ "session": text(), "limit": { "type": "integer" } }),
                &["session"],
            ),
            AgentTool::SessionsSend => (
                "Say something in another conversation, and wait for the answer.",
                json!({
                    "session": text(),
                    "text": text(),
                    "wait": { "type": "number", "description": "Seconds, 30 by default; 0 does not wait" },
                }),
                &["session", "text"],
            ),
            AgentTool::SessionStatus => {
                ("Model, size and state of this conversation or another.", json!({ "session": text() }), &[])
            }
            AgentTool::Message => (
                "Send a message to the chat now. Do not repeat it in your answer.",
                json!({
                    "text": text(),
                    "media": { "type": "array", "items": text(), "description": "Files of the workspace" },
                    "to": { "type": "string", "description": "Another chat than this one" },
                }),
                &[],
            ),
        };
        let parameters = json!({ "type": "object", "properties": properties, "required": required });
        let spec = ToolSpec {
            name: which.name().into(),
            description: description.into(),
            parameters: Json::from(parameters),
        };
        Self { which, own, tools, spec }
    }

    async fn call(&self, call: Invocation, cx: &ToolContext) -> Result<String, String> {
        let arguments: Arguments = serde_json::from_value(call.args.value())
            .map_err(|error| format!("Invalid arguments: {error}"))?;
        let (conversations, sessions) =
            self.tools.bound().ok_or("The conversations of this process are ending. Nothing was done.")?;
        let group = conversations.running_group(&self.own);
        let (own, tools) = (self.own.clone(), self.tools.clone());
        let caller = Caller { own, conversations, sessions, group, tools };
        let session = |name: Option<String>| name.ok_or_else(|| "`session` is missing.".to_owned());
        match self.which {
            AgentTool::SessionsList => history::list(&caller, arguments.limit).await,
            AgentTool::SessionsHistory => {
                history::read(&caller, &session(arguments.session)?, arguments.limit).await
            }
            AgentTool::SessionStatus => history::status(&caller, arguments.session.as_deref()).await,
            AgentTool::SessionsSend => {
                let text = arguments.text.unwrap_or_default();
                send::send(&caller, &session(arguments.session)?, text, arguments.wait).await
            }
            AgentTool::Message => self.message(&caller, &call, arguments, cx).await,
        }
    }

    async fn message(
        &self,
        caller: &Caller,
        call: &Invocation,
        arguments: Arguments,
        cx: &ToolContext,
    ) -> Result<String, String> {
        let Arguments { text, media: names, to, .. } = arguments;
        let text = text.unwrap_or_default();
        if text.len() > MESSAGE || names.len() > MEDIA {
            return Err(format!(
                "A message has at most {MESSAGE} bytes and {MEDIA} files. Nothing was sent."
            ));
        }
        let media = names.iter().map(|name| sendable_file(name, &cx.cwd, &cx.access));
        let media: Vec<String> = media.collect::<Result<_, _>>()?;
        let replies = caller.conversations.replies().ok_or("Nothing delivers messages here.")?;
        // As answers are: secrets that the call was given back reach no chat.
        let text = caller.conversations.sealed(&text);
        let message = PostedMessage { call: (cx.run.clone(), call.id.clone()), text, media, names, to };
        let (cwd, access) = (cx.cwd.clone(), cx.access.clone());
        let files = MediaCheck::new(move |name| sendable_file(name, &cwd, &access).ok());
        match replies.post_of_tool(&self.own, message, files).await {
            Ok(ToolPost::Sent { parts: 1 }) => Ok("Sent.".to_owned()),
            Ok(ToolPost::Sent { parts }) => Ok(format!("Sent, as {parts} messages.")),
            Ok(ToolPost::Repeated) => {
                Ok("This was sent already, before the process was restarted. It is not sent again."
                    .to_owned())
            }
            Err(error) => Err(format!("Nothing was sent: {error}.")),
        }
    }
}

impl Tool for ConversationTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            // What is about to be stored is waited for: it would come after the next start otherwise.
            let done = match self.which {
                AgentTool::Message if !cx.cancel.is_cancelled() => Some(self.call(call, cx).await),
                _ => cx.cancel.run_until_cancelled(self.call(call, cx)).await,
            };
            match done {
                Some(Ok(text)) => ToolOutput::text(text),
                Some(Err(why)) => ToolOutput::error(why),
                None => ToolOutput::error("Operation aborted"),
            }
        })
    }
}
