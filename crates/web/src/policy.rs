//! Hosts that no rule allows are asked about before they are reached.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{Grant, GrantError, PolicyContext, PolicyError, ToolPolicy, ToolRequest, ToolVerdict};
use quipu_protocol::{Json, Scope};
use quipu_seal::has_placeholder;

use crate::access::{HostDecision, WebAccess, checked_url};
use crate::frame::shown_url;
use crate::names::{FETCH, SEARCH};

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
        if has_placeholder(arguments.get())
            || member(arguments, "url")
                .or_else(|| member(arguments, "query"))
                .is_some_and(|text| has_placeholder(&text))
        {
            let reason =
                "The call was not made: it holds a secret, which this tool does not send to servers."
                    .to_owned();
            return ToolVerdict::Deny { reason };
        }
        let allow = ToolVerdict::Allow { grants: Vec::new() };
        if name == SEARCH && self.access.is_offline() {
            let reason = "The user keeps the session off the network, so nothing was searched.".to_owned();
            return ToolVerdict::Deny { reason };
        }
        if name == SEARCH {
            return allow;
        }
        // What is no address is told by the tool, which sends nothing then.
        let Some(Ok((url, host))) = member(arguments, "url").map(|text| checked_url(&text)) else {
            return allow;
        };
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

#[cfg(test)]
mod tests {
    use quipu_rules::{Effect, Host, Rule, RuleSet, Verdict};

    use super::*;
    use crate::HostJudge;

    struct Rules(RuleSet, bool);

    impl HostJudge for Rules {
        fn host(&self, host: &Host) -> Verdict {
            self.0.host(host).verdict
        }

        fn tool(&self, name: &str) -> Verdict {
            self.0.tool(name).verdict
        }

        fn is_offline(&self) -> bool {
            false
        }

        fn is_unasked(&self) -> bool {
            self.1
        }
    }

    fn policy(rules: &[(Effect, &str)], is_unasked: bool) -> WebPolicy {
        let entries = rules.iter().map(|(effect, text)| (*effect, Rule::parse(text).unwrap())).collect();
        WebPolicy::new(Arc::new(WebAccess::new(Arc::new(Rules(RuleSet::new(entries), is_unasked)))))
    }

    /// `allow`, `deny`, or how long a yes may hold.
    fn said(policy: &WebPolicy, url: &str) -> String {
        match policy.verdict(FETCH, &Json::from(serde_json::json!({ "url": url }))) {
            ToolVerdict::Allow { .. } => "allow".to_owned(),
            ToolVerdict::Deny { .. } => "deny".to_owned(),
            ToolVerdict::Ask { question, scopes } => {
                assert!(question.contains("public.example"), "{question}");
                format!("{scopes:?}")
            }
            ToolVerdict::NoOpinion => "nothing".to_owned(),
        }
    }

    #[test]
    fn rules_decide_which_hosts_are_asked_about() {
        let check = |rules: &[(Effect, &str)], is_unasked: bool, url: &str, expect: &str| {
            assert_eq!(said(&policy(rules, is_unasked), url), expect, "{rules:?} {url}");
        };
        let (page, lasting, once) = ("https://public.example/x", "[Once, Session]", "[Once]");
        check(&[], false, page, lasting);
        check(&[], true, page, "allow");
        check(&[(Effect::Allow, "network(public.example)")], false, page, "allow");
        check(&[(Effect::Allow, "network(public.example:80)")], false, page, lasting);
        check(&[(Effect::Allow, "web_fetch")], false, page, "allow");
        check(&[(Effect::Allow, "web_fetch"), (Effect::Ask, "network(*.example)")], true, page, once);
        check(&[(Effect::Allow, "network"), (Effect::Deny, "network(public.example)")], true, page, "deny");
        check(&[], true, "http://10.1.2.3/", "deny");
        check(&[(Effect::Allow, "web_fetch")], true, "http://x.localhost/", "deny");
        check(
            &[(Effect::Allow, "network")],
            true,
            "https://public.example/?k=[REDACTED:api-key:0123abcd]",
            "deny",
        );
        // The tool says what is wrong with it, and sends nothing.
        check(&[], false, "file:///etc/passwd", "allow");
    }

    #[tokio::test]
    async fn yes_for_the_session_is_for_one_host() {
        let policy = policy(&[], false);
        let subject = r#"{"url":"http://public.example/a"}"#.to_owned();
        let grant = Grant { tool: FETCH.to_owned(), subject };
        let before = policy.version();
        assert_eq!(policy.grant(grant, Scope::Session).await, Ok(Scope::Session));
        assert!(policy.version() > before);
        assert_eq!(said(&policy, "https://public.example/b"), "allow");
        assert_eq!(said(&policy, "https://public.example:8443/"), "[Once, Session]");
        assert_eq!(said(&policy, "https://www.public.example/"), "[Once, Session]");
    }
}
