//! The hooks of a session, called one after the other.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu_protocol::{AddedBlock, Content, Json, Provenance, RunId, ToolCall, ToolResultMessage, UserInput};
use quipu_seal::Sealer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::context::Asker;
use super::system::HookSections;
use super::{
    CallVerdict, HOOK_IMAGES, HOOK_TEXT, Hook, HookContext, HookEffect, HookError, HookFailure, HookPoint,
    HookRecord, InputVerdict, ResultVerdict,
};
use crate::calls::{ContentSize, seal_content};
use crate::runner::Backend;
use crate::spans;
use crate::travel::SessionView;

/// The hooks of a session.
pub(crate) struct Hooks {
    pub(super) hooks: Arc<[Arc<dyn Hook>]>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) cwd: PathBuf,
    standing: SessionView,
    asker: OnceLock<Asker>,
    runner: OnceLock<Arc<dyn Backend>>,
    /// What hooks say in the system prompt.
    pub(super) sections: Arc<HookSections>,
    /// The texts of hooks for the beginning of the session; `None` as long as they are being asked.
    pub(super) opening: watch::Sender<Option<Opening>>,
}

/// The texts of hooks for the beginning of the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    /// Stands beside the first prompt: the hook, and its text.
    pub(crate) texts: Vec<(String, String)>,
    /// What people should know.
    pub(crate) notices: Vec<String>,
}

/// A call as hooks left it.
#[derive(Debug, Clone)]
pub(crate) struct HookedCall {
    pub(crate) call: ToolCall,
    /// Why it does not run.
    pub(crate) blocked: Option<String>,
    /// What a person is to be asked first.
    pub(crate) question: Option<String>,
    pub(crate) records: Vec<HookRecord>,
}

impl HookedCall {
    /// No hook has seen it.
    pub(crate) fn of(call: ToolCall) -> Self {
        Self { call, blocked: None, question: None, records: Vec::new() }
    }
}

/// An input as hooks left it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HookedInput {
    Say(UserInput),
    Handled,
    Blocked(String),
}

/// What hooks did to a result.
#[derive(Debug, Default)]
pub(crate) struct HookedResult {
    pub(crate) records: Vec<HookRecord>,
    /// Where its text comes from, when that is no tool any more.
    pub(crate) provenance: Option<Provenance>,
    /// Blocks that hooks added.
    pub(crate) added: Vec<AddedBlock>,
    /// What people should know.
    pub(crate) notices: Vec<String>,
}

impl HookedResult {
    fn replaced_by(&mut self, hook: &str) {
        self.provenance = Some(Provenance::hook(hook));
        self.added.clear();
    }
}

/// A verdict that may be too long.
pub(super) trait VerdictSize {
    fn size(&self) -> ContentSize;
}

impl VerdictSize for InputVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass | Self::Handled => ContentSize::default(),
            Self::Replace(input) => ContentSize::of(&input.content),
            Self::Add(text) | Self::Block { reason: text } => ContentSize::of_text(text),
        }
    }
}

impl VerdictSize for CallVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Replace(arguments) => ContentSize::of_text(arguments.get()),
            Self::Ask { question: text } | Self::Block { reason: text } => ContentSize::of_text(text),
        }
    }
}

impl VerdictSize for ResultVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Replace { content, .. } => ContentSize::of(content),
            Self::Append(text) => ContentSize::of_text(text),
        }
    }
}

/// Why a verdict is too long to be taken, where it is.
fn excess(ContentSize { text, images }: ContentSize) -> Option<String> {
    match (text > HOOK_TEXT, images > HOOK_IMAGES) {
        (true, _) => Some(format!("it returned {text} bytes; the limit is {HOOK_TEXT}")),
        (false, true) => Some(format!("it returned {images} bytes of images; the limit is {HOOK_IMAGES}")),
        (false, false) => None,
    }
}

/// What came of one hook.
pub(super) enum HookOutcome<T> {
    Verdict(T),
    /// Why it has no effect.
    Failed(String),
    /// The step is not wanted any more.
    Cancelled,
}

impl Hooks {
    pub(crate) fn new(
        hooks: Vec<Arc<dyn Hook>>,
        sealer: Arc<Sealer>,
        cwd: PathBuf,
        standing: SessionView,
        sections: Arc<HookSections>,
    ) -> Self {
        let opening = watch::channel(None).0;
        let (asker, runner) = (OnceLock::new(), OnceLock::new());
        Self { hooks: hooks.into(), sealer, cwd, standing, asker, runner, sections, opening }
    }

    /// How hooks ask models.
    pub(crate) fn runs_through(&self, runner: Arc<dyn Backend>) {
        drop(self.runner.set(runner));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// How hooks ask people.
    pub(crate) fn asks_through(&self, asker: Asker) {
        // Each session has its own hooks, and begins once.
        drop(self.asker.set(asker));
    }

    pub(super) fn context(&self, run: Option<&RunId>) -> HookContext {
        let session = self.standing.get().map(|view| view.borrow().session.clone());
        let cx = HookContext::new(session, run.cloned(), self.cwd.clone(), self.asker.get().cloned());
        cx.running(self.runner.get().cloned())
    }

    pub(super) async fn call<T: VerdictSize>(
        &self,
        point: HookPoint,
        hook: &dyn Hook,
        cx: &HookContext,
        cancel: &CancellationToken,
        work: BoxFuture<'_, Result<T, HookError>>,
    ) -> HookOutcome<T> {
        let Ok(limit) = std::panic::catch_unwind(AssertUnwindSafe(|| hook.deadline())) else {
            return HookOutcome::Failed("it panicked, which is a bug in the hook".into());
        };
        let span = spans::hook(hook.name(), point.method());
        let work = work.instrument(span.clone());
        let called = tokio::select! {
            biased;
            () = cancel.cancelled() => HookOutcome::Cancelled,
            done = AssertUnwindSafe(work).catch_unwind() => match done {
                Err(_) => HookOutcome::Failed("it panicked, which is a bug in the hook".into()),
                Ok(Err(error)) => HookOutcome::Failed(self.sealer.seal(&error.to_string()).into_owned()),
                Ok(Ok(verdict)) => match excess(verdict.size()) {
                    Some(why) => HookOutcome::Failed(why),
                    None => HookOutcome::Verdict(verdict),
                },
            },
            () = cx.overdue(limit) => {
                HookOutcome::Failed(format!("it did not answer within {} s", limit.as_secs_f64()))
            }
        };
        match &called {
            HookOutcome::Verdict(_) => span.record("outcome", "done"),
            HookOutcome::Cancelled => span.record("outcome", "cancelled"),
            HookOutcome::Failed(why) => span.record("outcome", "failed").record("error", why.as_str()),
        };
        called
    }

    /// What an input becomes; with what people should know.
    pub(crate) async fn input(&self, mut input: UserInput) -> (HookedInput, Vec<String>) {
        let (mut notices, never) = (Vec::new(), CancellationToken::new());
        for hook in self.hooks.iter() {
            let cx = self.context(None);
            let work = async { hook.input(&input, &cx).await };
            match self.call(HookPoint::Input, &**hook, &cx, &never, Box::pin(work)).await {
                HookOutcome::Cancelled | HookOutcome::Verdict(InputVerdict::Pass) => {}
                HookOutcome::Verdict(InputVerdict::Replace(other)) => {
                    input = UserInput::new(other.content).from_source(Provenance::hook(hook.name()));
                    seal_content(&mut input.content, &self.sealer);
                }
                HookOutcome::Verdict(InputVerdict::Add(text)) => {
                    let text = self.sealer.seal(&text);
                    if !text.trim().is_empty() {
                        input.add(beside(hook.name(), &text), Provenance::hook(hook.name()));
                    }
                }
                HookOutcome::Verdict(InputVerdict::Handled) => return (HookedInput::Handled, notices),
                HookOutcome::Verdict(InputVerdict::Block { reason }) => {
                    return (HookedInput::Blocked(blocked(hook.name(), &self.sealer.seal(&reason))), notices);
                }
                HookOutcome::Failed(why) => match hook.on_failure() {
                    HookFailure::Pass => notices.push(failed(hook.name(), HookPoint::Input, &why)),
                    HookFailure::Block => {
                        return (HookedInput::Blocked(blocked(hook.name(), &why)), notices);
                    }
                },
            }
        }
        (HookedInput::Say(input), notices)
    }

    /// What calls become; with what people should know.
    pub(crate) async fn tool_calls(
        &self,
        run: &RunId,
        calls: Vec<ToolCall>,
        tools: &Arc<[String]>,
        cancel: &CancellationToken,
    ) -> (Vec<HookedCall>, Vec<String>) {
        let (mut hooked, mut notices) = (Vec::with_capacity(calls.len()), Vec::new());
        for call in calls {
            let mut one = HookedCall::of(call);
            for hook in self.hooks.iter() {
                if cancel.is_cancelled() || one.blocked.is_some() {
                    break;
                }
                self.tool_call(&**hook, (run, tools), &mut one, cancel, &mut notices).await;
            }
            hooked.push(one);
        }
        (hooked, notices)
    }

    async fn tool_call(
        &self,
        hook: &dyn Hook,
        (run, tools): (&RunId, &Arc<[String]>),
        one: &mut HookedCall,
        cancel: &CancellationToken,
        notices: &mut Vec<String>,
    ) {
        let mut cx = self.context(Some(run));
        cx.tools = tools.clone();
        let call = one.call.clone();
        let work = async { hook.tool_call(&call, &cx).await };
        let (did, arguments) = match self.call(HookPoint::ToolCall, hook, &cx, cancel, Box::pin(work)).await {
            HookOutcome::Cancelled | HookOutcome::Verdict(CallVerdict::Pass) => return,
            HookOutcome::Verdict(CallVerdict::Replace(arguments)) => {
                one.call.arguments = self.sealer.seal_json(&arguments);
                (HookEffect::Replaced, Some(one.call.arguments.clone()))
            }
            HookOutcome::Verdict(CallVerdict::Ask { question }) => {
                let question = self.sealer.seal(&question);
                let question = format!("{question} ({})", hook.name());
                // What one before it wants to be asked is asked as well.
                one.question = Some(match one.question.take() {
                    Some(before) => format!("{before} {question}"),
                    None => question,
                });
                (HookEffect::Asked, None)
            }
            HookOutcome::Verdict(CallVerdict::Block { reason }) => {
                one.blocked = Some(blocked(hook.name(), &self.sealer.seal(&reason)));
                (HookEffect::Blocked, None)
            }
            HookOutcome::Failed(why) => {
                notices.push(failed(hook.name(), HookPoint::ToolCall, &why));
                if hook.on_failure() == HookFailure::Block {
                    one.blocked = Some(blocked(hook.name(), &why));
                }
                (HookEffect::Failed, None)
            }
        };
        one.records.push(record(hook.name(), HookPoint::ToolCall, did, arguments));
    }

    /// What a result becomes; with what hooks did to it, and what people should know.
    pub(crate) async fn tool_result(
        &self,
        run: &RunId,
        call: &ToolCall,
        result: &mut ToolResultMessage,
        cancel: &CancellationToken,
    ) -> HookedResult {
        let mut hooked = HookedResult::default();
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let seen = result.clone();
            let work = async { hook.tool_result(call, &seen, &cx).await };
            let did = match self.call(HookPoint::ToolResult, &**hook, &cx, cancel, Box::pin(work)).await {
                HookOutcome::Cancelled => break,
                HookOutcome::Verdict(ResultVerdict::Pass) => continue,
                HookOutcome::Verdict(ResultVerdict::Replace { content, is_error }) => {
                    (result.content, result.is_error) = (content, is_error);
                    hooked.replaced_by(hook.name());
                    HookEffect::Replaced
                }
                HookOutcome::Verdict(ResultVerdict::Append(text)) => {
                    let added = AddedBlock::behind(&result.content, Provenance::hook(hook.name()));
                    hooked.added.push(added);
                    result.content.push(Content::text(beside(hook.name(), &text)));
                    HookEffect::Added
                }
                HookOutcome::Failed(why) => {
                    hooked.notices.push(failed(hook.name(), HookPoint::ToolResult, &why));
                    if hook.on_failure() == HookFailure::Block {
                        let text = blocked(hook.name(), &why);
                        (result.content, result.is_error) = (vec![Content::text(text)], true);
                        hooked.replaced_by(hook.name());
                    }
                    HookEffect::Failed
                }
            };
            seal_content(&mut result.content, &self.sealer);
            hooked.records.push(record(hook.name(), HookPoint::ToolResult, did, None));
        }
        hooked
    }
}

pub(super) fn record(hook: &str, point: HookPoint, did: HookEffect, arguments: Option<Json>) -> HookRecord {
    HookRecord { hook: hook.to_owned(), point, did, arguments }
}

/// What the model reads of a hook, so that nobody takes it for the words of the user or of a tool.
pub(super) fn beside(hook: &str, text: &str) -> String {
    format!("[Added by the hook {hook}]\n{text}")
}

pub(super) fn blocked(hook: &str, reason: &str) -> String {
    match reason.trim() {
        "" => format!("The hook {hook} blocked this and gave no reason."),
        _ => format!("The hook {hook} blocked this: {reason}"),
    }
}

pub(super) fn failed(hook: &str, point: HookPoint, why: &str) -> String {
    format!("The hook {hook} had no effect on {point}: {why}.")
}
