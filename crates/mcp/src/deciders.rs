//! Who decided on a call: the same person answers what its server asks while it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use quipu::PolicyContext;
use quipu_protocol::{Answer, AskKind, CallId};

use crate::elicit::{Elicitation, ElicitationAnswer, Elicitor};
use crate::visible::one_line;

/// Calls that are remembered.
const CALLS: usize = 256;
/// Characters of what a server asks.
const QUESTION: usize = 1_000;

/// What asks, by call.
#[derive(Debug, Default)]
pub(crate) struct Deciders(Mutex<HashMap<CallId, PolicyContext>>);

impl Deciders {
    /// Whoever decides on a call can be asked while it runs.
    pub(crate) fn remember(&self, call: &CallId, cx: &PolicyContext) {
        let mut deciders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if deciders.len() >= CALLS {
            deciders.clear();
        }
        deciders.insert(call.clone(), cx.clone());
    }

    pub(crate) fn elicitor(&self, call: &CallId, server: &str) -> Option<Arc<dyn Elicitor>> {
        let cx = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(call)?;
        Some(Arc::new(SessionElicitor { cx, server: server.to_owned() }))
    }
}

/// Puts the questions of a server to whoever is in front of the session.
struct SessionElicitor {
    cx: PolicyContext,
    server: String,
}

impl Elicitor for SessionElicitor {
    fn elicit(&self, request: Elicitation) -> BoxFuture<'static, ElicitationAnswer> {
        let (cx, server) = (self.cx.clone(), self.server.clone());
        Box::pin(async move {
            let title =
                |message: &str| format!("The MCP server {server} asks: {}", one_line(message, QUESTION));
            let kind = match request {
                Elicitation::Form { message, schema } => AskKind::Form { title: title(&message), schema },
                Elicitation::Page { message, url } => AskKind::OpenUrl { title: title(&message), url },
            };
            match cx.ask(kind, Answer::Cancel, None).await {
                Ok(Answer::Form { value }) => ElicitationAnswer::Accept(Some(value)),
                Ok(Answer::Confirm { yes: true }) => ElicitationAnswer::Accept(None),
                Ok(Answer::Confirm { yes: false } | Answer::Deny { .. }) => ElicitationAnswer::Decline,
                Ok(_) | Err(_) => ElicitationAnswer::Cancel,
            }
        })
    }
}
