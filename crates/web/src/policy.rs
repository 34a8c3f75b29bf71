//! Hosts that no rule allows are asked about before they are reached.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{Grant, GrantError, PolicyContext, PolicyError, ToolPolicy, ToolRequest, ToolVerdict};
use quipu_protocol::{Json, Scope};
use quipu_seal::has_placeholder;

use crate::access::{HostDecision, WebAccess, checked_url};
use crate::fetch::FETCH;
use crate::frame::shown_url;
use crate::search::SEARCH;

/// Asks about the hosts of [`WebFetch`](crate::WebFetch), and keeps secrets out of what is sent.
#[derive(Debug)]
pub struct WebPolicy {
    access: Arc<WebAccess>,
}

impl WebPolicy {
    /// For the tools that reach what `access` lets them reach.
    pub fn new(access: Arc<WebAccess>) -> Self {
        Self { access }
    }

    fn verdict(&self, name: &str, arguments: &Json) -> ToolVerdict {
        // Sealed: where a secret would be sent, its placeholder stands.
        if has_placeholder(arguments.get()) || member(arguments, "url").or_else(|| member(arguments, "query")).is_some_and(|text| has_placeholder(&text)) {
            let reason = "The call was not made: it holds a secret, which this tool does not send to servers.".to_owned();
            return ToolVerdict::Deny { reason };
        }
        let allow = ToolVerdict::Allow { grants: Vec::new() };
        if name == SEARCH {
            return allow;
        }
        // What is no address is told by the tool, which sends nothing then.
        let Some(Ok((url, host))) = member(arguments, "url").map(|text| checked_url(&text)) else { return allow };
        match self.access.decide(&host) {
            HostDecision::Allowed => allow,
            HostDecision::Denied(reason) => ToolVerdict::Deny { reason },
            HostDecision::Asked { may_last } => {
                let name = host.name();
                let lasting = if may_last { " A yes for the session is for this host." } else { "" };
                ToolVerdict::Ask {
                    question: format!("Allow fetching {} from {name}?{lasting}", shown_url(&url)),
                    scopes: if may_last { vec![Scope::Once, Scope::Session] } else { vec![Scope::Once] },
                }
            }
        }
    }
}

fn member(arguments: &Json, name: &str) -> Option<String> {
    arguments.value().get(name)?.as_str().map(str::to_owned)
}

impl ToolPolicy for WebPolicy {
    fn name(&self) -> &str {
        "web"
    }

    fn version(&self) -> u64 {
        self.access.version()
    }

    fn decide<'a>(
        &'a self,
        request: &'a ToolRequest<'a>,
        _: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
        let name = request.call.name.as_str();
        let verdict = match name {
            FETCH | SEARCH => self.verdict(name, &request.call.arguments),
            _ => ToolVerdict::NoOpinion,
        };
        Box::pin(std::future::ready(Ok(verdict)))
    }

    fn grant(&self, grant: Grant, scope: Scope) -> BoxFuture<'_, Result<Scope, GrantError>> {
        let arguments: Option<serde_json::Value> = serde_json::from_str(&grant.subject).ok();
        let url = arguments.as_ref().and_then(|value| value.get("url")?.as_str());
        let host = url.and_then(|text| checked_url(text).ok()).map(|(_, host)| host);
        let scope = match (scope, host) {
            (Scope::Session, Some(host)) if grant.tool == FETCH => {
                self.access.allow(&host);
                Scope::Session
            }
            _ => Scope::Once,
        };
        Box::pin(std::future::ready(Ok(scope)))
    }
}
