//! The hooks of a session at the bytes of a request, and at the beginning of the answer.

use std::collections::BTreeMap;

use quipu_protocol::{Json, RunId};
use quipu_providers::{HeaderChanges, ResponseHead};
use quipu_seal::Sealer;
use tokio_util::sync::CancellationToken;

use super::chain::{Called, Measured, blocked, failed, record};
use super::steps::Hooked;
use super::{
    HOOK_HEADERS, HOOK_REQUEST, HookEffect, HookError, HookFailure, HookPoint, Hooks, Payload, PayloadChange,
    SendVerdict,
};
use crate::calls::ContentSize;

/// A request in its bytes as hooks left it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookedPayload {
    pub(crate) payload: Payload,
    /// Headers that are left out.
    pub(crate) removed: Vec<String>,
}

impl Measured for SendVerdict {
    fn size(&self) -> ContentSize {
        // Measured where it is sealed.
        ContentSize::default()
    }
}

impl Hooks {
    /// Whether the bytes of a request can become other ones.
    pub(crate) fn change_payloads(&self) -> bool {
        self.hooks.iter().any(|hook| hook.changes_payloads())
    }

    /// The bytes that are sent, or why none are.
    pub(crate) async fn before_send(
        &self,
        run: &RunId,
        payload: Payload,
        cancel: &CancellationToken,
    ) -> Hooked<Result<HookedPayload, String>> {
        let (mut records, mut notices) = (Vec::new(), Vec::new());
        let mut all = HookedPayload { payload, removed: Vec::new() };
        for hook in self.hooks.iter().filter(|hook| hook.changes_payloads()) {
            let cx = self.context(Some(run));
            let work = async {
                match hook.before_send(&all.payload, &cx).await? {
                    SendVerdict::Pass => Ok(SendVerdict::Pass),
                    SendVerdict::Change(change) => {
                        sealed_change(change, &self.sealer).map(SendVerdict::Change)
                    }
                }
            };
            let did = match self.call(HookPoint::BeforeSend, &**hook, &cx, cancel, Box::pin(work)).await {
                Called::Cancelled => break,
                Called::Verdict(SendVerdict::Pass) => continue,
                Called::Verdict(SendVerdict::Change(PayloadChange { body, set_headers, remove_headers })) => {
                    if let Some(body) = body {
                        all.payload.body = body;
                    }
                    for name in remove_headers {
                        all.payload.headers.remove(&name);
                        if !all.removed.contains(&name) {
                            all.removed.push(name);
                        }
                    }
                    all.removed.retain(|name| !set_headers.contains_key(name));
                    all.payload.headers.extend(set_headers);
                    HookEffect::Replaced
                }
                Called::Failed(why) => {
                    notices.push(failed(hook.name(), HookPoint::BeforeSend, &why));
                    if hook.on_failure() == HookFailure::Block {
                        return Hooked { value: Err(blocked(hook.name(), &why)), records, notices };
                    }
                    HookEffect::Failed
                }
            };
            records.push(record(hook.name(), HookPoint::BeforeSend, did, None));
        }
        Hooked { value: Ok(all), records, notices }
    }

    /// A server begins to answer; gives what people should know.
    pub(crate) async fn response(
        &self,
        run: &RunId,
        mut head: ResponseHead,
        cancel: &CancellationToken,
    ) -> Vec<String> {
        for (_, value) in &mut head.headers {
            *value = self.sealer.seal(value).into_owned();
        }
        let mut notices = Vec::new();
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let work = async { hook.response(&head, &cx).await };
            match self.call(HookPoint::Response, &**hook, &cx, cancel, Box::pin(work)).await {
                Called::Cancelled => break,
                Called::Verdict(()) => {}
                Called::Failed(why) => notices.push(failed(hook.name(), HookPoint::Response, &why)),
            }
        }
        notices
    }
}

/// A change that can be made, with placeholders in the place of secrets.
fn sealed_change(change: PayloadChange, sealer: &Sealer) -> Result<PayloadChange, HookError> {
    let PayloadChange { body, set_headers, remove_headers } = change;
    if let Some(body) = &body {
        let bytes = body.get().len();
        if bytes > HOOK_REQUEST {
            let most = HOOK_REQUEST;
            return Err(HookError::new(format!("it returned a body of {bytes} bytes; the limit is {most}")));
        }
    }
    let names = remove_headers.iter().map(String::len).sum::<usize>();
    let bytes = set_headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() + names;
    if bytes > HOOK_HEADERS {
        let most = HOOK_HEADERS;
        return Err(HookError::new(format!("it returned {bytes} bytes of headers; the limit is {most}")));
    }
    let set = set_headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(problem) = (HeaderChanges { set, removed: remove_headers.clone() }).problem() {
        return Err(HookError::new(problem));
    }
    let seal = |(name, value): (String, String)| (name, sealer.seal(&value).into_owned());
    let set_headers: BTreeMap<String, String> = set_headers.into_iter().map(seal).collect();
    Ok(PayloadChange { body: body.map(|body: Json| sealer.seal_json(&body)), set_headers, remove_headers })
}
