//! A server on this machine that does not have what was asked of it: what it says of itself tells what to correct.

use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;

use crate::failure::quote;
use crate::net::{self, LocalRoute};
use crate::target::Target;

/// How long the server may take to list its models.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of the list that are read at most.
const MAX_LIST: usize = 256 << 10;
/// Models that are named at most.
const NAMED: usize = 5;

/// The APIs that there are, one a line.
const APIS: &str = include_str!("../data/wires.txt");

/// What to correct after an answer of 404 to `body`, as a sentence. Asks a server on this machine for its models, without
/// a credential, and no other.
pub(crate) async fn hint(target: &Target, body: &[u8]) -> Option<String> {
    // Vectors of texts are no API of a model that answers.
    if !target.is_local() || target.url.path().ends_with("/embeddings") {
        return None;
    }
    let models = tokio::time::timeout(PATIENCE, listed(&target.url)).await.ok()??;
    // The one that servers on this machine have.
    let spoken = APIS.lines().find(|api| api.ends_with("-completions"))?;
    if !target.url.path().ends_with("/chat/completions") {
        return Some(format!(
            "This server has no {}; it lists its models as servers with the API {spoken:?} do. If it is one, set \"api\": \
             {spoken:?} for it in models.json.",
            target.url.path()
        ));
    }
    #[derive(Deserialize)]
    struct Request {
        model: String,
    }
    let Request { model } = serde_json::from_slice(body).ok()?;
    if models.is_empty() || models.contains(&model) {
        return None;
    }
    let named: Vec<_> = models.iter().take(NAMED).map(|id| quote(id)).collect();
    let more = if models.len() > NAMED { ", …" } else { "" };
    Some(format!("This server has no model {}; it has {}{more}.", quote(&model), named.join(", ")))
}

/// The models of a server; `None` where it has no such list.
async fn listed(url: &Url) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<ListedModel>,
    }
    #[derive(Deserialize)]
    struct ListedModel {
        id: String,
    }
    let place = url.join("/v1/models").ok()?;
    let client = net::client(&place, LocalRoute::Direct).ok()?;
    let mut response =
        client.get(place).send().await.ok().filter(|response| response.status().is_success())?;
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_LIST {
            return None;
        }
    }
    let list: List = serde_json::from_slice(&text).ok()?;
    Some(list.data.into_iter().map(|model| model.id).collect())
}
