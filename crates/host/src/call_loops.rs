//! Calls that go in circles: reported to the model, then rejected.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use quipu::{
    BackgroundTool, CallVerdict, CompactionRequest, CompactionVerdict, Hook, HookContext, HookError,
    ResultVerdict, RunEnd, RunEndVerdict,
};
use quipu_policy::{LoopCall, LoopCallKind, LoopDetector, LoopDigest, LoopSettings, LoopVerdict};
use quipu_protocol::{CallId, Content, RunId, TextContent, ToolCall, ToolResultMessage};
use sha2::{Digest as _, Sha256};

/// Runs that are watched at a time; of more, the oldest is forgotten.
const MOST_RUNS: usize = 64;
/// Warnings of a run that wait for the results of their calls.
const MOST_WAITING: usize = 1_024;

/// Watches the calls of each run.
pub(crate) struct CallLoops {
    settings: LoopSettings,
    runs: Mutex<VecDeque<(RunId, WatchedRun)>>,
}

struct WatchedRun {
    detector: LoopDetector,
    /// What stands behind the results of calls that run.
    warnings: HashMap<CallId, String>,
}

impl CallLoops {
    /// What a session's records call it.
    pub(crate) const NAME: &str = "loop detection";

    pub(crate) fn new(settings: LoopSettings) -> Self {
        Self { settings, runs: Mutex::default() }
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<(RunId, WatchedRun)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_run<T>(&self, run: &RunId, work: impl FnOnce(&mut WatchedRun) -> T) -> Option<T> {
        let mut runs = self.runs();
        if !runs.iter().any(|(of, _)| of == run) {
            if runs.len() == MOST_RUNS {
                runs.pop_front();
            }
            let detector = LoopDetector::new(self.settings);
            runs.push_back((run.clone(), WatchedRun { detector, warnings: HashMap::new() }));
        }
        runs.iter_mut().find(|(of, _)| of == run).map(|(_, watched)| work(watched))
    }

    fn before(&self, call: &ToolCall, cx: &HookContext) -> CallVerdict {
        let Some(run) = &cx.run else { return CallVerdict::Pass };
        let is_known = cx.tools.contains(&call.name);
        let kind = match is_known {
            false => LoopCallKind::UnknownTool,
            true if is_poll(call) => LoopCallKind::Poll,
            true => LoopCallKind::Other,
        };
        let arguments = arguments_digest(call);
        let checked = LoopCall { id: call.id.as_str(), tool: &call.name, arguments, kind };
        let verdict = self.with_run(run, |watched| match watched.detector.before(&checked) {
            LoopVerdict::Pass => CallVerdict::Pass,
            LoopVerdict::Warn(finding) => {
                if watched.warnings.len() < MOST_WAITING {
                    watched.warnings.insert(call.id.clone(), finding.to_string());
                }
                CallVerdict::Pass
            }
            LoopVerdict::Block(finding) => CallVerdict::Block { reason: finding.to_string() },
        });
        verdict.unwrap_or(CallVerdict::Pass)
    }

    fn after(&self, call: &ToolCall, result: &ToolResultMessage, cx: &HookContext) -> ResultVerdict {
        let Some(run) = &cx.run else { return ResultVerdict::Pass };
        let digest = result_digest(call, result);
        let warning = self.with_run(run, |watched| {
            watched.detector.after(call.id.as_str(), digest);
            watched.warnings.remove(&call.id)
        });
        match warning.flatten() {
            Some(text) => ResultVerdict::Append(format!("\n\n[{text}]")),
            None => ResultVerdict::Pass,
        }
    }
}

impl Hook for CallLoops {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn tool_call<'a>(
        &'a self,
        call: &'a ToolCall,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        Box::pin(async move { Ok(self.before(call, cx)) })
    }

    fn tool_result<'a>(
        &'a self,
        call: &'a ToolCall,
        result: &'a ToolResultMessage,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        Box::pin(async move { Ok(self.after(call, result, cx)) })
    }

    fn before_compaction<'a>(
        &'a self,
        _: &'a CompactionRequest,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        if let Some(run) = &cx.run {
            self.with_run(run, |watched| watched.detector.compacted());
        }
        Box::pin(std::future::ready(Ok(CompactionVerdict::Pass)))
    }

    fn run_end<'a>(
        &'a self,
        _: &'a RunEnd,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        if let Some(run) = &cx.run {
            self.runs().retain(|(of, _)| of != run);
        }
        Box::pin(std::future::ready(Ok(RunEndVerdict::Pass)))
    }
}

/// Whether a call asks how something is that runs elsewhere.
fn is_poll(call: &ToolCall) -> bool {
    let action = call.arguments.value().get("action").and_then(|action| action.as_str()).map(str::to_owned);
    call.name == BackgroundTool::NAME
        && action.is_none_or(|action| matches!(&*action, "list" | "output" | "wait" | "log"))
}

/// The arguments, whatever the order of their members.
fn arguments_digest(call: &ToolCall) -> LoopDigest {
    let text = call.arguments.get();
    quipu_dag::hash_json(text).unwrap_or_else(|_| Sha256::digest(text.as_bytes()).into())
}

/// What a result says, without how long something has been running.
fn result_digest(call: &ToolCall, result: &ToolResultMessage) -> LoopDigest {
    let mut hash = Sha256::new();
    hash.update(if result.is_error { "error:" } else { "" });
    for content in &result.content {
        match content {
            Content::Text(TextContent { text, .. }) if call.name == BackgroundTool::NAME => {
                for word in text.split_inclusive([' ', '\n']).filter(|word| !is_time(word)) {
                    hash.update(word);
                }
            }
            Content::Text(TextContent { text, .. }) => hash.update(text),
            other => hash.update(quipu_protocol::Json::of(other).unwrap_or_default().get()),
        }
    }
    hash.finalize().into()
}

/// Whether a word is a time, such as `12s.]`.
fn is_time(word: &str) -> bool {
    let word = word.trim_end().trim_end_matches([']', '.', ',', ':']);
    let number = word.trim_end_matches(['s', 'm', 'h']);
    number.len() < word.len() && number.parse::<f64>().is_ok()
}
