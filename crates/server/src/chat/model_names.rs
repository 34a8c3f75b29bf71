//! Models that a request can name: the agent as it is set up, or with another model.

use std::sync::Arc;

use http::StatusCode;
use quipu_host::{Home, callable_models};
use quipu_protocol::Model;
use serde_json::{Value, json};

use crate::answer::{Answer, ApiError, json_answer};
use crate::front::Front;
use crate::path::decoded;

/// The agent with the model of the session or of the settings.
pub(super) const AGENT: &str = "quipu";

fn name_of(model: &Model) -> String {
    format!("{}/{}", model.provider, model.id)
}

fn item(id: &str, owner: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": owner })
}

fn unknown(name: &str) -> ApiError {
    let message = format!(
        "the model `{name}` does not exist or has no credential; GET /v1/models lists those that can be used"
    );
    let error = ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message);
    ApiError { param: Some("model"), ..error }
}

async fn callable(home: &Home) -> Vec<Arc<Model>> {
    home.sources().models().gather().await;
    let home = home.clone();
    // Reads files, and may ask servers of this machine.
    tokio::task::spawn_blocking(move || callable_models(&home)).await.unwrap_or_default()
}

/// The model that a request names; `None` for the agent's own.
pub(super) async fn named(home: &Home, name: &str) -> Result<Option<Arc<Model>>, ApiError> {
    if name == AGENT {
        return Ok(None);
    }
    let models = callable(home).await;
    let exact = models.iter().find(|model| name_of(model) == name);
    let mut by_id = models.iter().filter(|model| model.id == name);
    match (exact, by_id.next(), by_id.next()) {
        // One id of several providers says too little.
        (Some(model), _, _) | (None, Some(model), None) => Ok(Some(model.clone())),
        _ => Err(unknown(name)),
    }
}

/// `GET /v1/models`.
pub(crate) async fn models_answer(front: &Front) -> Answer {
    let mut items = vec![item(AGENT, AGENT)];
    let models = callable(&front.home).await;
    items.extend(models.iter().map(|model| item(&name_of(model), &model.provider)));
    json_answer(StatusCode::OK, &json!({ "object": "list", "data": items }))
}

/// `GET /v1/models/NAME`, with the name as it stands in the path.
pub(crate) async fn model_answer(front: &Front, name: &str) -> Result<Answer, ApiError> {
    let name = decoded(name).ok_or_else(|| unknown(name))?;
    let found = match named(&front.home, &name).await? {
        Some(model) => item(&name_of(&model), &model.provider),
        None => item(AGENT, AGENT),
    };
    Ok(json_answer(StatusCode::OK, &found))
}
