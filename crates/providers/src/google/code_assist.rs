//! The `google-gemini-cli` wire: the same bodies and streams within others, at the server of the account that Gemini CLI
//! logs in to. Each request names a project, which that server says of an account.

use std::collections::BTreeMap;

use quipu_protocol::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use crate::access::{self, WireForm};
use crate::call;
use crate::credentials::{CredentialError, InvalidCredential, Scheme};
use crate::failure::quote;
use crate::logins::{LoginBody, LoginRequest};

/// The wire's name in catalogues and messages.
pub const API: &str = "google-gemini-cli";

/// The version of the API, with which all its paths begin.
const VERSION: &str = "v1internal";
/// Characters of a project at most.
const MAX_PROJECT: usize = 64;

/// What is put around a body on this wire. The model is part of the body.
pub(super) struct Form;

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        format!("{}/{VERSION}:streamGenerateContent?alt=sse", base_url.trim_end_matches('/'))
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        access::add_scheme(&mut all, scheme, access::BEARER)?;
        Ok(all)
    }
}

/// A project that a request can name.
///
/// # Errors
/// `InvalidRequest` when there is none, or its name cannot be one.
pub(crate) fn named_project(project: Option<String>) -> Result<String, ModelError> {
    let problem = match project {
        Some(project) if is_project(&project) => return Ok(project),
        Some(project) => format!("{:?} is not the id of a project", quote(&project)),
        None => "Calls with this account need a project, and none is known".to_owned(),
    };
    let text = format!("{problem}. Set GOOGLE_CLOUD_PROJECT, or use the login again, which asks for it.");
    Err(ModelError::new(ModelErrorKind::InvalidRequest, text))
}

fn is_project(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_');
    (1..=MAX_PROJECT).contains(&text.len()) && text.bytes().all(plain)
}

/// The project of the account that `token` belongs to, as its server says; `named` is the one that a person wants.
/// `owner` is the program that keeps the login.
///
/// # Errors
/// What the server says, and that the account has not been set up or has no project.
pub(crate) async fn project(
    base_url: &str,
    token: &str,
    named: Option<&str>,
    owner: &str,
) -> Result<String, CredentialError> {
    let url = format!("{}/{VERSION}:loadCodeAssist", base_url.trim_end_matches('/'));
    let mut body = json!({ "metadata":
        { "ideType": "IDE_UNSPECIFIED", "platform": "PLATFORM_UNSPECIFIED", "pluginType": "GEMINI" } });
    if let Some(named) = named {
        body["cloudaicompanionProject"] = named.into();
        body["metadata"]["duetProject"] = named.into();
    }
    let request = LoginRequest {
        what: "the project of the account",
        url: &url,
        headers: &BTreeMap::new(),
        body: LoginBody::Json(&body),
        bearer: Some(token),
    };
    let answered = async {
        let answer = request.send().await?;
        let object = answer.object()?;
        let project = object.get("cloudaicompanionProject").and_then(Value::as_str);
        match project.map(str::to_owned) {
            Some(project) if !is_project(&project) => {
                Err(answer.nonsense("\"cloudaicompanionProject\" is not the id of a project"))
            }
            project => Ok((project, object)),
        }
    };
    let (project, object) = answered.await.map_err(|error| match error.is_final() {
        true => CredentialError::NeedsLogin { what: format!("{error}. Log in with {owner} again.") },
        false => CredentialError::Unavailable { why: error.to_string() },
    })?;
    if object.get("currentTier").is_none_or(Value::is_null) {
        let why = obstacles(&object).unwrap_or_else(|| "it has not been set up".to_owned());
        let what = format!("This account cannot be used: {why}. Start {owner} once, which sets it up.");
        return Err(CredentialError::NeedsLogin { what });
    }
    project.or_else(|| named.map(str::to_owned)).ok_or_else(|| CredentialError::Unavailable {
        why: "this account has no project of its own; set GOOGLE_CLOUD_PROJECT to the id of one".into(),
    })
}

/// What the server says against an account.
fn obstacles(answer: &Map<String, Value>) -> Option<String> {
    let tiers = answer.get("ineligibleTiers")?.as_array()?;
    let reasons = tiers.iter().filter_map(|tier| tier.get("reasonMessage")?.as_str());
    let reasons: Vec<_> = reasons.map(|reason| quote(reason.trim_end_matches('.'))).collect();
    (!reasons.is_empty()).then(|| reasons.join("; ").chars().take(400).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_is_the_id_of_one() {
        for project in ["useful-name-b4rcs", "example.com:my-project", "p"] {
            assert_eq!(named_project(Some(project.to_owned())).as_deref(), Ok(project));
        }
        for project in ["", "a/b", "a\"b", "a\nb", &"p".repeat(65)] {
            let error = named_project(Some((*project).to_owned())).unwrap_err();
            assert!(error.message.contains("is not the id of a project"), "{error}");
        }
        assert!(named_project(None).unwrap_err().message.contains("Set GOOGLE_CLOUD_PROJECT"));
    }
}
