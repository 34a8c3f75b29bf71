//! The hooks of a session at its moves, its shell lines, its compactions, its beginning and its ends.

use std::collections::HashSet;
use std::sync::Arc;

use quipu_machine::HookPrompt;
use quipu_protocol::{
    AssistantMessage, Content, Json, Message, ModelRequest, Provenance, RunId, StopReason, UserInput,
};
use quipu_seal::Sealer;
use tokio_util::sync::CancellationToken;

use super::chain::{HookOutcome, Opening, VerdictSize, beside, blocked, failed, record};
use super::{
    CompactionRequest, CompactionVerdict, END_TIME, HOOK_REQUEST, HookEffect, HookError, HookFailure,
    HookPoint, HookRecord, Hooks, MessageVerdict, MoveRequest, MoveVerdict, RequestVerdict, RunEnd,
    RunEndVerdict, RunStart, RunStartAddition, RunStartVerdict, SessionOrigin, ShellLine, ShellVerdict,
    StartVerdict,
};
use crate::calls::{ContentSize, seal_answer, strip_pictures};

/// What hooks made of a step; with what they did, and what people should know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookResult<T> {
    pub(crate) value: T,
    pub(crate) records: Vec<HookRecord>,
    pub(crate) notices: Vec<String>,
}

impl<T> HookResult<T> {
    fn of(value: T) -> Self {
        Self { value, records: Vec::new(), notices: Vec::new() }
    }

    /// What they did, as it is kept.
    pub(crate) fn kept_records(&self) -> Vec<Json> {
        kept(&self.records)
    }
}

/// What hooks did, as it is kept.
pub(crate) fn kept(records: &[HookRecord]) -> Vec<Json> {
    records.iter().filter_map(|record| Json::of(record).ok()).collect()
}

/// What becomes of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HookedCompaction {
    Summarize,
    Supplied(String, Provenance),
    Blocked(String),
}

impl VerdictSize for () {
    fn size(&self) -> ContentSize {
        ContentSize::default()
    }
}

impl VerdictSize for StartVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Add(text) => ContentSize::of_text(text),
        }
    }
}

impl VerdictSize for MoveVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Block { reason } => ContentSize::of_text(reason),
        }
    }
}

impl VerdictSize for ShellVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Replace(text) | Self::Block { reason: text } => ContentSize::of_text(text),
        }
    }
}

impl VerdictSize for CompactionVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Supply(text) | Self::Block { reason: text } => ContentSize::of_text(text),
        }
    }
}

impl VerdictSize for RunStartVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Add(RunStartAddition { beside, system }) => {
                let text = [beside, system].into_iter().flatten().map(String::len).sum();
                ContentSize { text, images: 0 }
            }
        }
    }
}

impl VerdictSize for RequestVerdict {
    fn size(&self) -> ContentSize {
        // Measured where it is sealed.
        ContentSize::default()
    }
}

impl VerdictSize for MessageVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Replace(content) => ContentSize::of(content),
        }
    }
}

impl VerdictSize for RunEndVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Continue { prompt } => ContentSize::of_text(prompt),
        }
    }
}

impl Hooks {
    /// The session begins. What hooks say waits for the first prompt.
    pub(crate) async fn session_start(&self, origin: SessionOrigin, cancel: &CancellationToken) {
        let mut opening = Opening::default();
        for hook in self.hooks.iter() {
            let cx = self.context(None);
            let work = async { hook.session_start(origin, &cx).await };
            match self.call(HookPoint::SessionStart, &**hook, &cx, cancel, Box::pin(work)).await {
                HookOutcome::Cancelled => break,
                HookOutcome::Verdict(StartVerdict::Pass) => {}
                HookOutcome::Verdict(StartVerdict::Add(text)) => {
                    let text = self.sealer.seal(&text);
                    if !text.trim().is_empty() {
                        opening.texts.push((hook.name().to_owned(), beside(hook.name(), &text)));
                    }
                }
                HookOutcome::Failed(why) => {
                    opening.notices.push(failed(hook.name(), HookPoint::SessionStart, &why));
                }
            }
        }
        self.opening.send_replace(Some(opening));
    }

    /// The texts of hooks for the beginning of the session, once.
    pub(crate) async fn take_opening(&self) -> Opening {
        let mut opening = self.opening.subscribe();
        // The sender is ours.
        drop(opening.wait_for(Option::is_some).await);
        let mut taken = Opening::default();
        self.opening.send_if_modified(|opening| {
            taken = opening.as_mut().map(std::mem::take).unwrap_or_default();
            false
        });
        taken
    }

    /// The prompt beside which it was to stand was not sent.
    pub(crate) fn put_opening_back(&self, texts: Vec<(String, String)>) {
        self.opening.send_if_modified(|opening| {
            opening.get_or_insert_default().texts.splice(..0, texts);
            false
        });
    }

    /// The session ends; gives what people should know.
    pub(crate) async fn session_end(&self) -> Vec<String> {
        let (mut notices, never) = (Vec::new(), CancellationToken::new());
        let all = async {
            for hook in self.hooks.iter() {
                let cx = self.context(None);
                let work = async { hook.session_end(&cx).await };
                if let HookOutcome::Failed(why) =
                    self.call(HookPoint::SessionEnd, &**hook, &cx, &never, Box::pin(work)).await
                {
                    notices.push(failed(hook.name(), HookPoint::SessionEnd, &why));
                }
            }
        };
        if tokio::time::timeout(END_TIME, all).await.is_err() {
            let limit = END_TIME.as_secs();
            notices.push(format!("Hooks did not finish within {limit} s after the session ended."));
        }
        notices
    }

    /// Why a move is not made, where it is not.
    pub(crate) async fn before_move(
        &self,
        run: Option<&RunId>,
        request: &MoveRequest,
        cancel: &CancellationToken,
    ) -> HookResult<Option<String>> {
        let mut hooked = HookResult::of(None);
        for hook in self.hooks.iter() {
            let cx = self.context(run);
            let work = async { hook.before_move(request, &cx).await };
            let (why, did) =
                match self.call(HookPoint::BeforeMove, &**hook, &cx, cancel, Box::pin(work)).await {
                    HookOutcome::Cancelled => break,
                    HookOutcome::Verdict(MoveVerdict::Pass) => continue,
                    HookOutcome::Verdict(MoveVerdict::Block { reason }) => {
                        (self.sealer.seal(&reason).into_owned(), HookEffect::Blocked)
                    }
                    HookOutcome::Failed(why) => {
                        hooked.notices.push(failed(hook.name(), HookPoint::BeforeMove, &why));
                        (why, HookEffect::Failed)
                    }
                };
            hooked.records.push(record(hook.name(), HookPoint::BeforeMove, did, None));
            if did == HookEffect::Blocked || hook.on_failure() == HookFailure::Block {
                hooked.value = Some(blocked(hook.name(), &why));
                break;
            }
        }
        hooked
    }

    /// The line that runs, or why none does.
    pub(crate) async fn shell_line(&self, mut line: ShellLine) -> HookResult<Result<String, String>> {
        let (mut hooked, never) = (HookResult::of(()), CancellationToken::new());
        for hook in self.hooks.iter() {
            let cx = self.context(None);
            let work = async { hook.shell_line(&line, &cx).await };
            let did = match self.call(HookPoint::ShellLine, &**hook, &cx, &never, Box::pin(work)).await {
                HookOutcome::Cancelled | HookOutcome::Verdict(ShellVerdict::Pass) => continue,
                HookOutcome::Verdict(ShellVerdict::Replace(text)) => {
                    line.line = self.sealer.seal(&text).into_owned();
                    HookEffect::Replaced
                }
                HookOutcome::Verdict(ShellVerdict::Block { reason }) => {
                    let why = blocked(hook.name(), &self.sealer.seal(&reason));
                    return HookResult { value: Err(why), records: hooked.records, notices: hooked.notices };
                }
                HookOutcome::Failed(why) => {
                    hooked.notices.push(failed(hook.name(), HookPoint::ShellLine, &why));
                    if hook.on_failure() == HookFailure::Block {
                        let value = Err(blocked(hook.name(), &why));
                        return HookResult { value, records: hooked.records, notices: hooked.notices };
                    }
                    HookEffect::Failed
                }
            };
            hooked.records.push(record(hook.name(), HookPoint::ShellLine, did, None));
        }
        HookResult { value: Ok(line.line), records: hooked.records, notices: hooked.notices }
    }

    /// What becomes of a compaction.
    pub(crate) async fn before_compaction(
        &self,
        run: &RunId,
        request: &CompactionRequest,
        cancel: &CancellationToken,
    ) -> HookResult<HookedCompaction> {
        let mut hooked = HookResult::of(HookedCompaction::Summarize);
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let work = async { hook.before_compaction(request, &cx).await };
            let (value, did) =
                match self.call(HookPoint::BeforeCompaction, &**hook, &cx, cancel, Box::pin(work)).await {
                    HookOutcome::Cancelled => break,
                    HookOutcome::Verdict(CompactionVerdict::Pass) => continue,
                    HookOutcome::Verdict(CompactionVerdict::Supply(text)) => {
                        let text = self.sealer.seal(&text).into_owned();
                        let provenance = Provenance::hook(hook.name());
                        (HookedCompaction::Supplied(text, provenance), HookEffect::Replaced)
                    }
                    HookOutcome::Verdict(CompactionVerdict::Block { reason }) => {
                        let why = blocked(hook.name(), &self.sealer.seal(&reason));
                        (HookedCompaction::Blocked(why), HookEffect::Blocked)
                    }
                    HookOutcome::Failed(why) => {
                        hooked.notices.push(failed(hook.name(), HookPoint::BeforeCompaction, &why));
                        match hook.on_failure() {
                            HookFailure::Pass => continue,
                            HookFailure::Block => {
                                (HookedCompaction::Blocked(blocked(hook.name(), &why)), HookEffect::Failed)
                            }
                        }
                    }
                };
            hooked.records.push(record(hook.name(), HookPoint::BeforeCompaction, did, None));
            hooked.value = value;
            break;
        }
        hooked
    }

    /// What stands beside the prompt that begins a run.
    pub(crate) async fn before_run(
        &self,
        run: &RunId,
        start: &RunStart,
        cancel: &CancellationToken,
    ) -> HookResult<Option<Box<HookPrompt>>> {
        let (mut hooked, mut texts) = (HookResult::of(None), Vec::new());
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let work = async { hook.before_run(start, &cx).await };
            match self.call(HookPoint::BeforeRun, &**hook, &cx, cancel, Box::pin(work)).await {
                HookOutcome::Cancelled => break,
                HookOutcome::Verdict(RunStartVerdict::Pass) => {}
                HookOutcome::Verdict(RunStartVerdict::Add(RunStartAddition { beside: text, system })) => {
                    if let Some(system) = system {
                        // The next request begins with it.
                        self.sections.set(hook.name(), &self.sealer.seal(&system));
                    }
                    let text = text.unwrap_or_default();
                    let text = self.sealer.seal(&text);
                    if !text.trim().is_empty() {
                        texts.push((hook.name(), beside(hook.name(), &text)));
                        let did = record(hook.name(), HookPoint::BeforeRun, HookEffect::Added, None);
                        hooked.records.push(did);
                    }
                }
                HookOutcome::Failed(why) => {
                    hooked.notices.push(failed(hook.name(), HookPoint::BeforeRun, &why));
                }
            }
        }
        if !texts.is_empty() {
            let hooks = hooked.kept_records();
            hooked.value = Some(Box::new(HookPrompt { input: input_of(texts), hooks }));
        }
        hooked
    }

    /// Whether a request can become another one.
    pub(crate) fn change_requests(&self) -> bool {
        self.hooks.iter().any(|hook| hook.changes_requests())
    }

    /// The request that is sent, or why none is.
    pub(crate) async fn before_request(
        &self,
        run: &RunId,
        mut request: Arc<ModelRequest>,
        cancel: &CancellationToken,
    ) -> HookResult<Result<Arc<ModelRequest>, String>> {
        let (mut records, mut notices) = (Vec::new(), Vec::new());
        for hook in self.hooks.iter().filter(|hook| hook.changes_requests()) {
            let cx = self.context(Some(run));
            let work = async {
                match hook.before_request(&request, &cx).await? {
                    RequestVerdict::Pass => Ok(RequestVerdict::Pass),
                    RequestVerdict::Replace(messages) => {
                        sealed_messages(messages, &request.messages, &self.sealer)
                            .map(RequestVerdict::Replace)
                    }
                }
            };
            let did = match self.call(HookPoint::BeforeRequest, &**hook, &cx, cancel, Box::pin(work)).await {
                HookOutcome::Cancelled => break,
                HookOutcome::Verdict(RequestVerdict::Pass) => continue,
                HookOutcome::Verdict(RequestVerdict::Replace(messages)) => {
                    request = Arc::new(ModelRequest { messages: Arc::new(messages), ..(*request).clone() });
                    HookEffect::Replaced
                }
                HookOutcome::Failed(why) => {
                    notices.push(failed(hook.name(), HookPoint::BeforeRequest, &why));
                    if hook.on_failure() == HookFailure::Block {
                        return HookResult { value: Err(blocked(hook.name(), &why)), records, notices };
                    }
                    HookEffect::Failed
                }
            };
            records.push(record(hook.name(), HookPoint::BeforeRequest, did, None));
        }
        HookResult { value: Ok(request), records, notices }
    }

    /// What an answer becomes; where that comes from if it is another one, with what hooks did to it, and what people should know.
    pub(crate) async fn message_end(
        &self,
        run: &RunId,
        message: &mut AssistantMessage,
        cancel: &CancellationToken,
    ) -> HookResult<Option<Provenance>> {
        let mut hooked = HookResult::of(None);
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let seen = message.clone();
            let work = async {
                match hook.message_end(&seen, &cx).await? {
                    MessageVerdict::Replace(content) if !content.iter().all(can_be_said) => {
                        Err(HookError::new("it returned content other than text, thinking and tool calls"))
                    }
                    verdict => Ok(verdict),
                }
            };
            let (content, did) =
                match self.call(HookPoint::MessageEnd, &**hook, &cx, cancel, Box::pin(work)).await {
                    HookOutcome::Cancelled => break,
                    HookOutcome::Verdict(MessageVerdict::Pass) => continue,
                    HookOutcome::Verdict(MessageVerdict::Replace(content)) => {
                        (Some(content), HookEffect::Replaced)
                    }
                    HookOutcome::Failed(why) => {
                        hooked.notices.push(failed(hook.name(), HookPoint::MessageEnd, &why));
                        let guards = hook.on_failure() == HookFailure::Block;
                        let text = || vec![Content::text(blocked(hook.name(), &why))];
                        (guards.then(text), HookEffect::Failed)
                    }
                };
            if let Some(content) = content {
                hooked.value = Some(Provenance::hook(hook.name()));
                replace_answer(message, content);
                seal_answer(message, &self.sealer);
            }
            hooked.records.push(record(hook.name(), HookPoint::MessageEnd, did, None));
        }
        hooked
    }

    /// A turn ended; gives what people should know.
    pub(crate) async fn turn_end(&self, run: &RunId, turn: u32, cancel: &CancellationToken) -> Vec<String> {
        let mut notices = Vec::new();
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let work = async { hook.turn_end(turn, &cx).await };
            match self.call(HookPoint::TurnEnd, &**hook, &cx, cancel, Box::pin(work)).await {
                HookOutcome::Cancelled => break,
                HookOutcome::Verdict(()) => {}
                HookOutcome::Failed(why) => notices.push(failed(hook.name(), HookPoint::TurnEnd, &why)),
            }
        }
        notices
    }

    /// With what a run continues, where it does. All hooks are asked, and the model is given what all of them want.
    pub(crate) async fn run_end(
        &self,
        run: &RunId,
        end: &RunEnd,
        cancel: &CancellationToken,
    ) -> HookResult<Option<Box<HookPrompt>>> {
        let (mut hooked, mut texts) = (HookResult::of(None), Vec::new());
        for hook in self.hooks.iter() {
            let cx = self.context(Some(run));
            let work = async { hook.run_end(end, &cx).await };
            match self.call(HookPoint::RunEnd, &**hook, &cx, cancel, Box::pin(work)).await {
                HookOutcome::Cancelled => break,
                HookOutcome::Verdict(RunEndVerdict::Pass) => {}
                HookOutcome::Verdict(RunEndVerdict::Continue { prompt }) => {
                    texts.push((hook.name(), beside(hook.name(), &self.sealer.seal(&prompt))));
                    let did = record(hook.name(), HookPoint::RunEnd, HookEffect::Added, None);
                    hooked.records.push(did);
                }
                HookOutcome::Failed(why) => {
                    hooked.notices.push(failed(hook.name(), HookPoint::RunEnd, &why));
                }
            }
        }
        if !texts.is_empty() && !cancel.is_cancelled() {
            let input = input_of(texts);
            hooked.value = Some(Box::new(HookPrompt { input, hooks: hooked.kept_records() }));
        }
        hooked
    }
}

/// Whether a model can say it.
fn can_be_said(block: &Content) -> bool {
    matches!(block, Content::Text(_) | Content::Thinking(_) | Content::ToolCall(_))
}

/// A replacement for the answer of a model.
fn replace_answer(message: &mut AssistantMessage, mut content: Vec<Content>) {
    for block in &mut content {
        // A signature is of the model's own words.
        if !message.content.contains(block)
            && let Content::Thinking(thinking) = block
        {
            thinking.thinking_signature = None;
        }
    }
    message.content = content;
    message.stop_reason = match message.stop_reason {
        StopReason::ToolUse if message.tool_calls().next().is_none() => StopReason::Stop,
        StopReason::Stop if message.tool_calls().next().is_some() => StopReason::ToolUse,
        reason => reason,
    };
}

/// Messages as they may be sent; those that were there before are sealed already.
fn sealed_messages(
    messages: Vec<Arc<Message>>,
    before: &[Arc<Message>],
    sealer: &Sealer,
) -> Result<Vec<Arc<Message>>, HookError> {
    let known: HashSet<*const Message> = before.iter().map(Arc::as_ptr).collect();
    let (mut sealed, mut bytes) = (Vec::with_capacity(messages.len()), 0_usize);
    for message in messages {
        let json = Json::of(&message).map_err(HookError::new)?;
        bytes = bytes.saturating_add(json.get().len());
        if bytes > HOOK_REQUEST {
            return Err(HookError::new(format!("it returned more than {HOOK_REQUEST} bytes of messages")));
        }
        sealed.push(match known.contains(&Arc::as_ptr(&message)) {
            true => message,
            false => {
                let mut message: Message = sealer.seal_json(&json).read().map_err(HookError::new)?;
                strip_pictures(&mut message);
                Arc::new(message)
            }
        });
    }
    match quipu_transcript::check_conversation(&sealed) {
        Ok(()) => Ok(sealed),
        Err(why) => {
            Err(HookError::new(format!("it returned messages that are not a valid conversation: {why}")))
        }
    }
}

/// What hooks say: each text in a block of its own, with the hook that it comes from.
fn input_of(texts: Vec<(&str, String)>) -> UserInput {
    let source = texts.first().map_or_else(Provenance::quipu, |(hook, _)| Provenance::hook(hook));
    let mut input = UserInput::new(Vec::new()).from_source(source);
    for (hook, text) in texts {
        input.add(text, Provenance::hook(hook));
    }
    input
}
