//! Requests of sessions put together again, with the models of the user's files. Nothing is sent.

use std::sync::Arc;

use quipu::reassembled_request;
use quipu_past::PastError;
use quipu_past::prove::{JudgeFut, RequestJudge, RequestVerdict, first_difference};
use quipu_protocol::{CallRecord, ChunkId, Model, ModelRequest};
use quipu_providers::{Provider, Settings};
use quipu_store::{Graph, StoreError};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Home;

/// In the place of a key: bytes are made, and go nowhere.
const NO_KEY: &str = "none";

/// Compares requests with what the graph gives for the models as they are known here now.
pub struct RecordedRequests {
    store: Arc<dyn Graph>,
    settings: Settings,
}

impl RecordedRequests {
    /// With the models of a home.
    #[must_use]
    pub fn new(home: &Home, store: Arc<dyn Graph>) -> Self {
        Self { store, settings: home.settings() }
    }

    fn provider(&self, call: &CallRecord) -> Result<(Arc<Model>, Arc<dyn Provider>), String> {
        let model = self.settings.find_again(&call.provider, &call.model);
        let model = model.map_err(|_| "its model is not known here any more".to_owned())?.model;
        if model.api != call.api {
            return Err("its model is called in another way now".to_owned());
        }
        let provider = self.settings.provider_for(&model, Some(NO_KEY));
        Ok((model, provider.map_err(|_| "nothing here can write requests for its model".to_owned())?))
    }

    async fn compare(&self, call: &CallRecord) -> Result<RequestVerdict, PastError> {
        let unchecked = |why: &str| Ok(RequestVerdict::Unchecked(why.to_owned()));
        let (model, provider) = match self.provider(call) {
            Ok(found) => found,
            Err(why) => return Ok(RequestVerdict::Unchecked(why)),
        };
        let made = match reassembled_request(&*self.store, call.head, call.system, model).await {
            Ok(made) => made,
            Err(quipu::OpenError::Store(StoreError::Missing { .. })) => {
                return unchecked("a node that it was made of is missing");
            }
            Err(quipu::OpenError::Store(StoreError::Erased { .. } | StoreError::Corrupt { .. })) => {
                return unchecked("something that stood in it was erased, or is damaged");
            }
            Err(quipu::OpenError::Store(error)) => return Err(error.into()),
            Err(_) => return unchecked("the conversation before it cannot be read"),
        };
        if made.has_lost {
            return unchecked("something that stood in it was forgotten or erased");
        }
        let Ok(body) = provider.encode(&made.request) else {
            return unchecked("nothing here can write requests for its model");
        };
        // What hooks made of it is theirs; what it was before is known by its hash.
        let wanted = call.before_hooks.unwrap_or(call.body);
        if hash(&body) == wanted {
            return Ok(RequestVerdict::Equal);
        }
        if call.before_hooks.is_some() {
            return Ok(RequestVerdict::Different(
                "the body before hooks, of which the hash alone is known".to_owned(),
            ));
        }
        let recorded = match self.store.chunk(call.body, 0..u64::MAX).await {
            Ok(recorded) => recorded,
            Err(StoreError::Missing { .. } | StoreError::Erased { .. }) => {
                return unchecked("its bytes are not kept");
            }
            Err(StoreError::Corrupt { .. }) => return unchecked("its bytes are damaged"),
            Err(error) => return Err(error.into()),
        };
        let at = first_difference(&recorded, &body);
        // What money leaves of an answer stands in no node: it is taken as it was.
        if let Some(output) = limit_at(&recorded, &at)
            && let Ok(limited) = provider.encode(&limited(&made.request, output))
            && hash(&limited) == wanted
        {
            return Ok(RequestVerdict::Equal);
        }
        Ok(RequestVerdict::Different(at))
    }
}

impl RequestJudge for RecordedRequests {
    fn judge<'a>(&'a self, call: &'a CallRecord) -> JudgeFut<'a> {
        Box::pin(self.compare(call))
    }
}

fn hash(bytes: &[u8]) -> ChunkId {
    ChunkId(Sha256::digest(bytes).into())
}

/// The most tokens of an answer, where those are what differs.
fn limit_at(recorded: &[u8], at: &str) -> Option<u64> {
    let name = at.rsplit('/').next()?.to_lowercase();
    let is_limit = name.contains("max") && name.contains("token");
    let body: Value = serde_json::from_slice(recorded).ok().filter(|_| is_limit)?;
    body.pointer(at)?.as_u64()
}

/// The same request for a model that answers no more than that, as calls within a budget have it.
fn limited(request: &ModelRequest, output: u64) -> ModelRequest {
    let model = Model { max_tokens: output, ..(*request.model).clone() };
    ModelRequest { model: Arc::new(model), ..request.clone() }
}
