//! A call whose bytes somebody changes before they are sent. What was recorded of it is what is sent again, as long as it has no
//! answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{CallRecord, ChunkId, ModelError, ModelErrorKind, ModelRequest, Outcome};
use quipu_providers::{Body, HeaderChanges};

use super::{CallJob, Caller};

/// Changes the bytes of a request, or says why it is not sent.
pub(crate) type ChangePayload = Arc<
    dyn Fn(Arc<ModelRequest>, Bytes) -> BoxFuture<'static, Result<ChangedPayload, ModelError>> + Send + Sync,
>;

/// A request in the bytes in which it is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChangedPayload {
    pub(crate) body: Bytes,
    /// Headers that are set, with placeholders for secrets.
    pub(crate) headers: BTreeMap<String, String>,
    /// Headers that are left out.
    pub(crate) removed: Vec<String>,
}

/// What others make of a call.
#[derive(Clone)]
pub(crate) struct HookedCall {
    /// The body that would be sent without them.
    pub(crate) before: ChunkId,
    /// Makes the payload; `None` for one that is sent once more.
    pub(crate) change: Option<ChangePayload>,
    /// What it made.
    pub(crate) payload: Option<ChangedPayload>,
    /// Whether anything is changed.
    pub(crate) is_changed: bool,
}

impl Caller {
    /// The SHA-256 of the body of a request. `None` when it has no bytes: whoever sends it finds out why.
    pub(crate) fn body_id(&self, request: &ModelRequest) -> Option<ChunkId> {
        let provider = self.provider();
        let made = std::panic::AssertUnwindSafe(|| provider.encode(request).ok());
        std::panic::catch_unwind(made).ok().flatten().map(|bytes| Body::of(bytes).id)
    }

    /// Whether a request was changed and has no answer yet.
    pub(crate) fn has_unanswered(&self) -> bool {
        self.unanswered().is_some()
    }

    /// What was recorded of this very request, whose body would be `before`, the last time that it was sent; where it has no
    /// answer.
    ///
    /// # Errors
    /// Why it cannot be read back, for people.
    pub(crate) async fn sent_before(
        &self,
        request: &ModelRequest,
        before: ChunkId,
    ) -> Result<Option<HookedCall>, String> {
        let found = self.unanswered().clone().filter(|record| {
            let model = &request.model;
            record.before_hooks == Some(before)
                && (&record.provider, &record.model, &record.api) == (&model.provider, &model.id, &model.api)
        });
        let Some(record) = found else { return Ok(None) };
        let bytes = self.store.chunk(record.body, 0..record.body_bytes).await;
        let body = Body::of(Bytes::from(bytes.map_err(|error| error.to_string())?));
        if body.id != record.body {
            return Err(format!("the stored bytes of {} do not match their hash", record.body));
        }
        let CallRecord { headers, removed_headers: removed, .. } = *record;
        let payload = Some(ChangedPayload { body: body.bytes, headers, removed });
        Ok(Some(HookedCall { before, change: None, payload, is_changed: true }))
    }

    /// Lets others change the bytes of an order, where they want to.
    pub(super) async fn change_payload(&self, order: &mut CallJob) -> Result<(), Outcome> {
        let Some(HookedCall { change: Some(change), .. }) = &order.hooked else { return Ok(()) };
        let change = change.clone();
        // Whoever sends it finds out why it has no bytes.
        let Ok(bytes) = self.provider().encode(&order.request) else { return Ok(()) };
        let changed = change(order.request.clone(), bytes.clone()).await;
        let payload = changed.map_err(Outcome::Failed)?;
        if let Some(hooked) = &mut order.hooked {
            hooked.is_changed |=
                payload.body != bytes || !payload.headers.is_empty() || !payload.removed.is_empty();
            hooked.payload = Some(payload);
        }
        Ok(())
    }

    /// What is changed of the headers, as it is sent.
    pub(super) fn header_changes(&self, record: &CallRecord) -> Result<HeaderChanges, ModelError> {
        let unseal = |(name, value): (&String, &String)| {
            let value = self.sealer.unseal(value).map_err(|error| {
                let text = format!("Cannot send the header {name}, which a hook set: {error}.");
                ModelError::new(ModelErrorKind::InvalidRequest, text)
            })?;
            Ok((name.clone(), value.into_owned()))
        };
        let set = record.headers.iter().map(unseal).collect::<Result<_, ModelError>>()?;
        Ok(HeaderChanges { set, removed: record.removed_headers.clone() })
    }
}

impl CallJob {
    /// The bytes that others made of it.
    pub(super) fn payload(&self) -> Option<&ChangedPayload> {
        self.hooked.as_ref()?.payload.as_ref()
    }
}
