//! What models of others may not do.

use std::sync::Arc;

use quipu_protocol::{Json, Model};
use reqwest::Url;

/// Why a model of another source is not used beside those that are `known` of its provider, as the end of a sentence:
/// whoever lists models does not decide where a person's keys go.
pub(crate) fn obstacle(model: &Model, known: &[Arc<Model>]) -> Option<&'static str> {
    if model.base_url.contains(['{', '}']) {
        return Some("is ignored: its base URL names variables");
    }
    let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
    let own = origin(&model.base_url);
    let is_elsewhere =
        !known.is_empty() && !known.iter().any(|known| own.is_some() && origin(&known.base_url) == own);
    is_elsewhere.then_some("is ignored: the key of this provider would go to another server")
}

/// The model, with headers that stand for nothing else: a value that a person writes may name a variable or a command,
/// one of another source may not.
pub(crate) fn literal(model: &Arc<Model>) -> Arc<Model> {
    let Some(serde_json::Value::Object(mut headers)) = model.headers.as_ref().map(Json::value) else {
        return model.clone();
    };
    for value in headers.values_mut() {
        if let Some(text) = value.as_str() {
            let escaped = text.replace('$', "$$");
            *value = match escaped.strip_prefix('!') {
                Some(rest) => format!("$!{rest}").into(),
                None => escaped.into(),
            };
        }
    }
    let headers = Json::from(serde_json::Value::Object(headers));
    Arc::new(Model { headers: Some(headers), ..Model::clone(model) })
}
