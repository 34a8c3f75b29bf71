//! Questions of a session, put to the person in front of the client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quipu::Session;
use quipu_protocol::{Answer, Ask, AskKind, AskOption, CallId, Command, Json, Permission, Scope};
use serde_json::{Value, json};

use crate::calls;
use crate::link::SessionLink;

const REJECT: &str = "reject";
const YES: &str = "yes";

/// The option of a plan that asks for a text afterwards.
const REFUSE: &str = "refuse";
/// The option of a plan whose text a person edits afterwards.
const EDIT: &str = "edit";

/// Puts questions of one session.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) link: Arc<SessionLink>,
    pub(crate) session: Session,
    pub(crate) cwd: PathBuf,
    /// A person refused a plan, and is asked for the reason next, where the client has no field for it.
    pub(crate) has_refused: Arc<AtomicBool>,
}

/// A call at work: its tool and arguments.
pub(crate) type CallAtWork = (CallId, String, Json);

impl Asker {
    /// Puts a question and takes the answer to the session. `call` is the one that it is about.
    pub(crate) async fn put(self, ask: Arc<Ask>, call: Option<CallAtWork>) {
        let answer = self.answer(&ask, call).await;
        let answer = if ask.takes(&answer) { answer } else { Answer::Cancel };
        // A question that is not open any more needs no answer.
        drop(self.session.send(Command::Answer { ask: ask.id.clone(), answer }).await);
    }

    async fn answer(&self, ask: &Ask, call: Option<CallAtWork>) -> Answer {
        let Some(name) = self.link.name() else { return Answer::Cancel };
        match &ask.kind {
            AskKind::Permission(asked) => {
                let shown = shown_call(&self.link, asked, call, &self.cwd);
                let chosen = self.choose(name, shown, &permission_options(asked)).await;
                match chosen.as_deref().map(scope_named) {
                    Some(Some(scope)) => Answer::Allow { scope },
                    Some(None) => Answer::no(),
                    None => Answer::Cancel,
                }
            }
            AskKind::Confirm { title, text } => {
                self.confirm(name, &ask.id.to_string(), title, text, call.as_ref()).await
            }
            AskKind::OpenUrl { title, url } => {
                self.confirm(name, &ask.id.to_string(), title, url, call.as_ref()).await
            }
            AskKind::Choose { title, options } => {
                let options: Vec<&AskOption> = options
                    .iter()
                    .filter(|option| self.link.abilities.has_forms || option.id != EDIT)
                    .collect();
                let details = options.iter().filter_map(|option| option.detail.as_deref());
                let shown = self.shown_question(&ask.id.to_string(), title, details.collect(), call.as_ref());
                let offered: Vec<Value> = options.iter().map(|option| choice(option)).collect();
                match self.choose(name, shown, &offered).await {
                    Some(option) => {
                        self.has_refused.store(option == REFUSE, Ordering::Relaxed);
                        Answer::Choose { option }
                    }
                    None => Answer::Cancel,
                }
            }
            AskKind::Text { title, placeholder, secret } if self.link.abilities.has_forms && !secret => {
                let field = json!({ "type": "string", "title": title, "description": placeholder });
                self.text(name, title, &field).await
            }
            AskKind::Edit { title, text } if self.link.abilities.has_forms => {
                let field = json!({ "type": "string", "title": title, "default": text });
                self.text(name, title, &field).await
            }
            // Who said no to a plan is asked what should change.
            AskKind::Text { .. } if self.has_refused.swap(false, Ordering::Relaxed) => {
                Answer::Text { text: String::new() }
            }
            AskKind::Form { title, schema } if self.link.abilities.has_forms => {
                match self.fill(name, title, &schema.value()).await {
                    Some(value) => Answer::Form { value: Json::from(&value) },
                    None => Answer::Cancel,
                }
            }
            AskKind::Text { .. } | AskKind::Edit { .. } | AskKind::Form { .. } => Answer::Cancel,
        }
    }

    /// Lets a person choose; `None` where nobody did.
    async fn choose(&self, session: &str, call: Value, options: &[Value]) -> Option<String> {
        let params = json!({ "sessionId": session, "toolCall": call, "options": options });
        let answer = self.link.connection.request("session/request_permission", &params).await.ok()?;
        let outcome = answer.get("outcome")?;
        if outcome.get("outcome").and_then(Value::as_str) != Some("selected") {
            return None;
        }
        let chosen = outcome.get("optionId").and_then(Value::as_str)?;
        let is_offered = options.iter().any(|option| option["optionId"] == chosen);
        is_offered.then(|| chosen.to_owned())
    }

    async fn confirm(
        &self,
        session: &str,
        id: &str,
        title: &str,
        text: &str,
        call: Option<&CallAtWork>,
    ) -> Answer {
        let shown = self.shown_question(id, title, vec![text], call);
        let options = [option(YES, "Yes", "allow_once"), option(REJECT, "No", "reject_once")];
        match self.choose(session, shown, &options).await {
            Some(chosen) => Answer::Confirm { yes: chosen == YES },
            None => Answer::Cancel,
        }
    }

    async fn text(&self, session: &str, title: &str, field: &Value) -> Answer {
        let schema = json!({ "type": "object", "properties": { "text": field }, "required": ["text"] });
        let filled = self.fill(session, title, &schema).await;
        let text = filled.and_then(|filled| filled.get("text").and_then(Value::as_str).map(str::to_owned));
        text.map_or(Answer::Cancel, |text| Answer::Text { text })
    }

    /// Lets a person fill in a form; `None` where nobody did.
    async fn fill(&self, session: &str, title: &str, schema: &Value) -> Option<Value> {
        let params =
            json!({ "mode": "form", "sessionId": session, "message": title, "requestedSchema": schema });
        let answer = self.link.connection.request("elicitation/create", &params).await.ok()?;
        let is_accepted = answer.get("action").and_then(Value::as_str) == Some("accept");
        answer.get("content").filter(|content| is_accepted && content.is_object()).cloned()
    }

    /// A question that is about no permission, as a call that waits.
    fn shown_question(&self, id: &str, title: &str, texts: Vec<&str>, call: Option<&CallAtWork>) -> Value {
        let name = call.map_or_else(|| format!("question-{id}"), |(call, ..)| self.link.call(call));
        let texts = texts.into_iter().filter(|text| !text.is_empty()).map(calls::text_content);
        json!({
            "toolCallId": name, "title": title, "kind": "other", "status": "pending",
            "content": texts.collect::<Vec<_>>(),
        })
    }
}

fn shown_call(link: &SessionLink, asked: &Permission, call: Option<CallAtWork>, cwd: &Path) -> Value {
    let name = link.call(&asked.call);
    let question = if asked.question.contains(&*asked.subject) {
        asked.question.clone()
    } else {
        format!("{}\n\n{}", asked.question, asked.subject)
    };
    let arguments = call.map_or_else(Json::object, |(_, _, arguments)| arguments);
    calls::asked(&name, (&asked.tool, &arguments), cwd, &question)
}

fn option(id: &str, name: &str, kind: &str) -> Value {
    json!({ "optionId": id, "name": name, "kind": kind })
}

fn choice(choice: &AskOption) -> Value {
    let kind = if choice.id == REFUSE { "reject_once" } else { "allow_once" };
    option(&choice.id, &choice.label, kind)
}

/// What a person can say to a permission.
fn permission_options(asked: &Permission) -> Vec<Value> {
    let rules = asked.rules.join(", ");
    let allow = |scope: &Scope| match scope {
        Scope::Once => option("once", "Allow once", "allow_once"),
        Scope::Session => option("session", "Allow this call in this session", "allow_always"),
        Scope::SessionRule => {
            option("sessionRule", &format!("Allow {rules} in this session"), "allow_always")
        }
        Scope::Always => option("always", "Always allow this call in this directory", "allow_always"),
        Scope::ProjectRule => {
            option("projectRule", &format!("Always allow {rules} in this directory"), "allow_always")
        }
        Scope::AlwaysRule => {
            option("alwaysRule", &format!("Always allow {rules} in every directory"), "allow_always")
        }
    };
    asked.scopes.iter().map(allow).chain([option(REJECT, "Reject", "reject_once")]).collect()
}

fn scope_named(id: &str) -> Option<Scope> {
    serde_json::from_value(Value::String(id.to_owned())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_of_a_permission_is_an_option() {
        let scopes = vec![
            Scope::Once,
            Scope::Session,
            Scope::SessionRule,
            Scope::Always,
            Scope::ProjectRule,
            Scope::AlwaysRule,
        ];
        let asked = Permission {
            call: "c1".into(),
            tool: "bash".into(),
            question: "Allow?".into(),
            subject: "cargo test".into(),
            scopes: scopes.clone(),
            rules: vec!["bash(cargo test *)".into()],
        };
        let options = permission_options(&asked);
        let named: Vec<Option<Scope>> =
            options.iter().map(|option| scope_named(option["optionId"].as_str().unwrap())).collect();
        let expect: Vec<Option<Scope>> = scopes.into_iter().map(Some).chain([None]).collect();
        assert_eq!(named, expect);
        assert_eq!(options[4]["name"], "Always allow bash(cargo test *) in this directory");
        assert_eq!(options[6]["kind"], "reject_once");
    }
}
