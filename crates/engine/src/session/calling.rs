//! A call of the model with the hooks around it: they see the request before it is recorded, the beginning of each answer, and the
//! answer before it is stored.

use std::sync::Arc;

use crate::mailbox;
use futures_util::FutureExt as _;
use quipu_machine::MachineInput;
use quipu_protocol::{Json, ModelError, ModelErrorKind, ModelRequest, Notice, Outcome, RunId};
use quipu_providers::{CallEvent, ResponseHead};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::calls::{CallJob, Caller, ChangePayload, ChangedPayload, HookedCall};
use crate::hooks::{HookedPayload, Hooks, Payload, kept};
use crate::toolbox::{Toolbox, tell};

/// Beginnings of answers that wait for hooks at most.
pub(super) const HEADS: usize = 16;

/// A call with hooks around it.
pub(super) struct HookedOrder {
    pub(super) caller: Arc<Caller>,
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) input: mailbox::Sender<MachineInput>,
    pub(super) cancel: CancellationToken,
}

/// What hooks did to a request, as it is kept; payloads are made while the call is.
type Records = Arc<std::sync::Mutex<Vec<Json>>>;

impl HookedOrder {
    /// Makes the call, and gives its end.
    pub(super) async fn make(
        self,
        mut order: CallJob,
        events: mailbox::Sender<(RunId, CallEvent)>,
    ) -> MachineInput {
        let (run, records) = (order.run.clone(), Records::default());
        if let Err(why) = self.change(&mut order, &records).await {
            let outcome = Outcome::Failed(ModelError::new(ModelErrorKind::InvalidRequest, why));
            return MachineInput::CallNotMade { run, outcome };
        }
        if self.toolbox.hooks.is_empty() {
            return self.caller.make(order, events).await;
        }
        let end = self.caller.make(order, events).await;
        let records = records.lock().map(|mut records| std::mem::take(&mut *records)).unwrap_or_default();
        self.ended(end, records).await
    }

    /// Lets hooks change the request, or takes what they made of it before, where that has no answer.
    async fn change(&self, order: &mut CallJob, records: &Records) -> Result<(), String> {
        let hooks = &self.toolbox.hooks;
        let (requests, payloads) = (hooks.change_requests(), hooks.change_payloads());
        if !requests && !payloads && !self.caller.has_unanswered() {
            return Ok(());
        }
        let Some(before) = self.caller.body_id(&order.request) else { return Ok(()) };
        match self.caller.sent_before(&order.request, before).await {
            Ok(Some(again)) => {
                (order.hooked, order.recorded) = (Some(again), None);
                return Ok(());
            }
            Ok(None) => {}
            Err(why) => {
                let text = format!(
                    "Cannot resend the request that hooks changed, because it cannot be read back: {why}. Quipu builds \
                     a new one."
                );
                drop(self.input.send(MachineInput::Notice(Notice::Note { text })).await);
            }
        }
        if !requests && !payloads {
            return Ok(());
        }
        let plain = order.request.clone();
        if requests {
            let hooked = hooks.before_request(&order.run, plain.clone(), &self.cancel).await;
            keep(records, hooked.kept_records());
            tell(&self.input, hooked.notices).await;
            order.request = hooked.value?;
        }
        let is_changed = !Arc::ptr_eq(&plain, &order.request);
        let change = payloads.then(|| self.payload_hooks(order.run.clone(), records.clone()));
        if is_changed || change.is_some() {
            // What was recorded with the commit before it is not what is sent.
            order.recorded = None;
        }
        order.hooked = Some(HookedCall { before, change, payload: None, is_changed });
        Ok(())
    }

    /// Asks hooks what becomes of the bytes of a request.
    fn payload_hooks(&self, run: RunId, records: Records) -> ChangePayload {
        let (toolbox, input, cancel) = (self.toolbox.clone(), self.input.clone(), self.cancel.clone());
        Arc::new(move |request, bytes| {
            let (toolbox, input, cancel) = (toolbox.clone(), input.clone(), cancel.clone());
            let (run, records) = (run.clone(), records.clone());
            async move {
                let asked = change_bytes(&toolbox.hooks, &run, &request, &bytes, &cancel).await;
                let (changed, did, notices) = asked;
                keep(&records, did);
                tell(&input, notices).await;
                changed
            }
            .boxed()
        })
    }

    /// The end of a call as hooks leave it.
    async fn ended(&self, end: MachineInput, mut hooks: Vec<Json>) -> MachineInput {
        match end {
            MachineInput::CallEnded { run, mut end, record, money, .. } => {
                let mut replaced = None;
                if end.error.is_none() {
                    let hooked = self.toolbox.hooks.message_end(&run, &mut end.message, &self.cancel).await;
                    hooks.extend(hooked.kept_records());
                    replaced = hooked.value;
                    self.toolbox.answered_by(replaced.clone());
                    tell(&self.input, hooked.notices).await;
                }
                MachineInput::CallEnded { run, end, record, money, hooks, replaced }
            }
            end => end,
        }
    }
}

/// Shows hooks how answers begin, until the call is over.
pub(super) async fn show_responses(
    toolbox: Arc<Toolbox>,
    run: RunId,
    mut shown: mpsc::Receiver<ResponseHead>,
    input: mailbox::Sender<MachineInput>,
    cancel: CancellationToken,
) {
    while let Some(head) = shown.recv().await {
        tell(&input, toolbox.hooks.response(&run, head, &cancel).await).await;
    }
}

fn keep(records: &Records, did: Vec<Json>) {
    // Nothing can break down while it is held.
    records.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(did);
}

/// What hooks make of the bytes of a request, with what they did, and what people should know.
async fn change_bytes(
    hooks: &Hooks,
    run: &RunId,
    request: &ModelRequest,
    bytes: &bytes::Bytes,
    cancel: &CancellationToken,
) -> (Result<ChangedPayload, ModelError>, Vec<Json>, Vec<String>) {
    let unchanged =
        || ChangedPayload { body: bytes.clone(), headers: Default::default(), removed: Vec::new() };
    let shown = std::str::from_utf8(bytes).ok().and_then(|text| Json::parse(text).ok());
    let Some(body) = shown else {
        let text = "Hooks do not see the body of this request: the model's API does not use JSON.";
        return (Ok(unchanged()), Vec::new(), vec![text.to_owned()]);
    };
    let model = &request.model;
    let payload = Payload {
        api: model.api.clone(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        body: body.clone(),
        headers: Default::default(),
    };
    let hooked = hooks.before_send(run, payload, cancel).await;
    let (did, notices) = (kept(&hooked.records), hooked.notices);
    let changed = hooked.value.map(|HookedPayload { payload, removed }| {
        let body = match payload.body == body {
            // To the byte.
            true => bytes.clone(),
            false => payload.body.get().to_owned().into(),
        };
        ChangedPayload { body, headers: payload.headers, removed }
    });
    (changed.map_err(|why| ModelError::new(ModelErrorKind::InvalidRequest, why)), did, notices)
}
