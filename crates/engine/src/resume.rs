//! A session read back, and what a dead process left open brought to an end.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_dag::{Blob, Verdict};
use quipu_protocol::{
    AssistantMessage, BashExecutionMessage, BlobId, Body, CallId, CallRecord, Checkpoint, ChunkId,
    Compaction, Content, Entry, Epoch, Json, Message, NodeId, Notice, Provenance, RunId, SessionId, StepInfo,
    StopReason, ToolCall, ToolResultMessage, UnixMs, UserMessage,
};
use quipu_seal::Sealer;
use quipu_store::{
    Commit, Durability, Graph, LineageEnd, Op, RefName, SessionRow, Step, StepCall, StepState, StoreError,
    decode_all, decode_nodes,
};
use quipu_transcript::{
    COMPACTION, ContextEdits, DecodedEntry, Measure, Prune, SettingChanges, context, counts,
    forgotten_message, message_of, retained_messages,
};
use serde::Deserialize;

use crate::agents::TASK_TOOL;
use crate::arrival::{TRAVEL_TOOL, awaited};
use crate::commit::{Committer, KeptResult, SHELL};
use crate::error::OpenError;
use crate::files::{InterruptedCall, RecoveredChanges, after_a_crash, listing_of};
use crate::identity::{Prompt, shared_blob};
use crate::runner::{LeftCall, SAME_CALLS, agent_session, left_calls};
use quipu_machine::{
    Calls, CommitError, Draft, Interventions, MEASURED, Plan, PlanOp, QueuedInput, failed_summary_json,
    step_of,
};

/// What a session was when it was opened.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) head: Option<NodeId>,
    pub(crate) has_ref: bool,
    /// The name of the session; empty for none.
    pub(crate) name: String,
    /// The conversation so far.
    pub(crate) messages: Vec<Arc<Message>>,
    /// The node of each of them.
    pub(crate) nodes: Vec<NodeId>,
    /// The compaction that it begins with.
    pub(crate) compacted: Option<Arc<Compaction>>,
    /// How many of the messages are its summary and what it kept.
    pub(crate) old: usize,
    /// What was counted before that compaction.
    pub(crate) measured: Option<Measure>,
    /// Where results are left out, with the number of messages before it; the messages are whole.
    pub(crate) prunes: Vec<(usize, Prune)>,
    /// The session of the node that it was read from.
    pub(crate) session: Option<SessionId>,
    pub(crate) epoch: Epoch,
    pub(crate) prompt: Prompt,
    /// What the epoch names as the prompt, or as a part of it, and the store does not have.
    pub(crate) lost_prompt: Option<BlobId>,
    pub(crate) last_time: UnixMs,
    pub(crate) last_body: Option<ChunkId>,
    /// The call after which nothing came, where hooks had changed it and it has no answer.
    pub(crate) unanswered_call: Option<CallRecord>,
    pub(crate) steering: Vec<QueuedInput>,
    pub(crate) follow_up: Vec<QueuedInput>,
    /// A message to itself at its end waits for its answer.
    pub(crate) pending_self_message: bool,
    /// The calls of the last answer that have no result on the lineage, with their place.
    open_calls: Vec<(usize, ToolCall)>,
    /// The run of that answer: steps of other runs say nothing about its calls.
    open_run: Option<RunId>,
}

impl Past {
    /// The notice about a prompt that is lost.
    pub(crate) fn lost_prompt_notice(&self) -> Option<Notice> {
        let lost = self.lost_prompt?;
        Some(Notice::Note {
            text: format!(
                "The system prompt of this session ({lost}) is missing from the store. The session continues with the \
                 prompt of a new session."
            ),
        })
    }
}

pub(crate) fn read_past(store: &dyn Graph, head: NodeId) -> BoxFuture<'_, Result<Past, OpenError>> {
    // As in [`Engine::open`](crate::Engine::open).
    Box::pin(gather_past(store, head))
}

async fn gather_past(store: &dyn Graph, head: NodeId) -> Result<Past, OpenError> {
    let (mut lineage, mut steps) = read_context(store, head).await?;
    // What is forgotten while it is read counts.
    let hidden = store.hidden();
    if let Some(why) = hidden.problem() {
        return Err(OpenError::Forgotten(why.to_owned()));
    }
    let mut past = Past { head: Some(head), has_ref: true, last_time: steps.last_time, ..Past::default() };
    for (at, (_, entry)) in lineage.iter().enumerate() {
        match entry {
            Entry::Session(start) => {
                past.session = Some(start.session.clone());
                past.epoch = start.epoch.clone();
            }
            Entry::Epoch(epoch) => past.epoch = epoch.clone(),
            Entry::Compaction(compaction) => {
                let measured = steps.infos[at].extra.get(MEASURED);
                past.measured = measured.and_then(|measured| measured.read().ok());
                if let Some(Checkpoint { session, epoch }) = &compaction.checkpoint {
                    past.session = Some(session.clone());
                    past.epoch = epoch.clone();
                }
            }
            Entry::Message(Message::Assistant(answer)) => {
                past.open_calls = match answer.stop_reason {
                    StopReason::Error | StopReason::Aborted => Vec::new(),
                    StopReason::Stop
                    | StopReason::Length
                    | StopReason::ToolUse
                    | StopReason::Deferred
                    | StopReason::Pending => answer.tool_calls().cloned().enumerate().collect(),
                };
                let step = std::mem::take(&mut steps.infos[at]);
                past.open_run = step.run;
                let has_failed = matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
                past.unanswered_call =
                    step.call.clone().filter(|call| has_failed && call.before_hooks.is_some());
                if let Some(call) = step.call {
                    past.last_body = Some(call.body);
                }
            }
            Entry::Message(Message::ToolResult(result)) => {
                if let Some(at) = past.open_calls.iter().position(|(_, call)| call.id == result.tool_call_id)
                {
                    past.open_calls.remove(at);
                }
            }
            Entry::Message(Message::User(_)) => past.open_calls.clear(),
            Entry::Message(_) | Entry::Meta(_) => {}
        }
    }
    if past.session.is_none()
        && let Some((first, _)) = lineage.first()
    {
        // The compaction is another program's, and does not say it.
        let changed = SettingChanges::default();
        let standing = standing(store, *first, changed).await?;
        past.session = standing.session;
        if past.epoch == Epoch::default() {
            past.epoch = standing.epoch;
        }
    }
    let edits = ContextEdits::of(lineage.iter().map(|(_, entry)| entry));
    let mut compacted = None;
    let shown = context(&lineage);
    past.messages.reserve(shown.len());
    for at in shown {
        let (node, entry) = &mut lineage[at];
        if let Entry::Meta(json) = entry {
            past.prunes.extend(Prune::of_entry(json).map(|prune| (past.messages.len(), prune)));
        }
        let message = match &mut *entry {
            // Each place is shown once, so that the message need not be copied.
            Entry::Message(message) => Some(Cow::Owned(std::mem::replace(message, nothing_said()))),
            entry => message_of(entry),
        };
        let message = message.and_then(|message| edits.apply(steps.ids[at].as_deref(), message));
        let Some(message) = message else { continue };
        // An edit of it may say the same again.
        let message = if hidden.hides(node) { forgotten_message(&message) } else { message.into_owned() };
        past.messages.push(Arc::new(message));
        if let Entry::Compaction(compaction) = entry {
            past.compacted = Some(Arc::new(compaction.clone()));
            compacted = Some(at);
            past.messages.extend(retained_messages(compaction).into_iter().map(Arc::new));
        }
        past.nodes.resize(past.messages.len(), *node);
        if compacted.is_some_and(|compaction| at <= compaction) {
            past.old = past.messages.len();
        }
    }
    for (named, place) in
        [(past.epoch.system, &mut past.prompt.system), (past.epoch.identity, &mut past.prompt.identity)]
    {
        let Some(named) = named else { continue };
        *place = store.blobs(&[named]).await?.into_iter().flatten().find(is_as_named).map(shared_blob);
        past.lost_prompt = past.lost_prompt.or(place.is_none().then_some(named));
    }
    Ok(past)
}

/// The messages of the context at a node: the summary of the last compaction first, where there is one. Results are whole, also
/// where requests leave them out.
///
/// # Errors
/// `Store`; `Forgotten`.
pub async fn context_messages(store: &dyn Graph, head: NodeId) -> Result<Vec<Arc<Message>>, OpenError> {
    Ok(read_past(store, head).await?.messages)
}

/// What stands where a message was taken out.
fn nothing_said() -> Message {
    Message::User(UserMessage { content: Body::Text(String::new()), timestamp: 0 })
}

/// How the steps of a lineage went, beside their entries.
struct Steps {
    infos: Vec<StepInfo>,
    /// Their writers' own ids.
    ids: Vec<Option<String>>,
    last_time: UnixMs,
}

/// The end of a lineage, root first: from its last checkpoint, or from what the compaction there keeps, and no
/// further back.
async fn read_context(store: &dyn Graph, head: NodeId) -> Result<(Vec<(NodeId, Entry)>, Steps), OpenError> {
    let nodes = store.lineage(head, LineageEnd::Checkpoint).await?;
    let last_time = nodes.last().map_or(0, |node| node.record.timestamp);
    let parent = nodes.first().and_then(|first| first.record.parent);
    let after = decode_all(store, nodes).await?;
    let last = after.iter().rev().find_map(|(_, one)| match &one.entry {
        // What it holds itself needs no node.
        Entry::Compaction(compaction) => {
            Some(compaction.first_kept.filter(|_| compaction.retained_tail.is_none()))
        }
        Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => None,
    });
    let mut before = Vec::new();
    if let Some(Some(first)) = last
        && let Some(parent) = parent
        && after.iter().all(|(node, _)| node.id != first)
    {
        let nodes = match store.lineage(parent, LineageEnd::Node(first)).await {
            // It points nowhere, so all that there is counts as kept.
            Err(StoreError::Missing { .. }) => store.lineage(parent, LineageEnd::Root).await?,
            nodes => nodes?,
        };
        before = decode_all(store, nodes).await?;
    }
    let count = before.len() + after.len();
    let mut lineage = Vec::with_capacity(count);
    let mut steps = Steps { infos: Vec::with_capacity(count), ids: Vec::with_capacity(count), last_time };
    for (node, DecodedEntry { entry, step }) in before.into_iter().chain(after) {
        lineage.push((node.id, entry));
        steps.infos.push(step);
        steps.ids.push(node.record.external_id);
    }
    Ok((lineage, steps))
}

/// Answers that are read for the model that they name.
const ANSWERS: usize = 8;
/// In so many nodes, and then in so many before them, an answer is looked for.
const ANSWER_WITHIN: [usize; 3] = [16, 256, 4_096];

/// How a session stands at a node.
#[derive(Default)]
pub(crate) struct SessionStatus {
    pub(crate) session: Option<SessionId>,
    pub(crate) epoch: Epoch,
}

/// The epoch that a session stands in.
///
/// # Errors
/// What the store says.
pub async fn last_epoch(store: &dyn Graph, row: &SessionRow) -> Result<Option<Epoch>, OpenError> {
    let Some(head) = row.head else { return Ok(None) };
    Ok(Some(epoch_of(store, head).await?))
}

/// Whether a text is the one that its id names: of one that was erased, the id stands with another content.
fn is_as_named(blob: &Blob) -> bool {
    !matches!(blob.verify(), Verdict::Corrupt(_))
}

/// Whether a part of the system prompt that an epoch names is missing from the store, or was erased.
///
/// # Errors
/// What the store says.
pub async fn has_lost_prompt(store: &dyn Graph, epoch: &Epoch) -> Result<bool, OpenError> {
    let named: Vec<BlobId> = epoch.system.into_iter().chain(epoch.identity).collect();
    Ok(!store.blobs(&named).await?.iter().all(|blob| blob.as_ref().is_some_and(is_as_named)))
}

/// The credential that the newest call of the session was made with, where its provider had several: the provider, and the
/// identity. Looks at the last nodes only.
///
/// # Errors
/// What the store says.
pub async fn last_credential(store: &dyn Graph, head: NodeId) -> Result<Option<(String, String)>, OpenError> {
    let mut nodes = match store.lineage(head, LineageEnd::Count(ANSWER_WITHIN[0])).await {
        Err(StoreError::Missing { .. }) => return Ok(None),
        nodes => nodes?,
    };
    nodes.retain(|node| node.record.role == "assistant");
    let newest = nodes.split_off(nodes.len().saturating_sub(1));
    let decoded = decode_nodes(store, &newest).await?;
    let call = decoded.into_iter().next().and_then(|answer| answer.step.call);
    Ok(call.and_then(|call| Some((call.provider, call.attempts.into_iter().next_back()?.credential?))))
}

/// The epoch that a node stands in.
///
/// # Errors
/// What the store says.
pub async fn epoch_at(store: &dyn Graph, node: NodeId) -> Result<Epoch, OpenError> {
    epoch_of(store, node).await
}

/// The epoch that a node stands in. Reads no further back than its last compaction, and without one no more than
/// thousands of nodes.
pub(crate) async fn epoch_of(store: &dyn Graph, node: NodeId) -> Result<Epoch, OpenError> {
    let mut changes = SettingChanges::default();
    let (mut before, mut is_complete) = (Some(node), false);
    for count in ANSWER_WITHIN {
        let Some(from) = before else { break };
        let mut nodes = match store.lineage(from, LineageEnd::Count(count)).await {
            // A lineage of another program may begin in the middle.
            Err(StoreError::Missing { .. }) if from != node => break,
            nodes => nodes?,
        };
        let compaction = nodes.iter().rposition(|node| node.record.role == COMPACTION);
        nodes.drain(..compaction.unwrap_or(0));
        before = nodes.first().and_then(|first| first.record.parent);
        // The newest answer tells which model another program asked; ours stand in an epoch. What stands for an answer,
        // such as a note that a request failed, need not name one.
        let answers = nodes.iter().rev().filter(|node| node.record.role == "assistant");
        let answers: Vec<NodeId> = answers.take(ANSWERS).map(|node| node.id).collect();
        nodes.retain(|node| {
            [quipu_transcript::INTERNAL, COMPACTION].contains(&node.record.role.as_str())
                || answers.contains(&node.id)
        });
        nodes.reverse();
        for some in nodes.chunks(64) {
            for decoded in decode_nodes(store, some).await? {
                if let Entry::Message(Message::Assistant(answer)) = &decoded.entry {
                    is_complete |= decoded.step.call.is_some() || changes.earlier_answer(answer);
                }
                if let Some(standing) = standing_of(&decoded.entry, &mut changes) {
                    return Ok(changes.applied_to(standing.epoch));
                }
            }
        }
        if is_complete || compaction.is_some() {
            break;
        }
    }
    let Some(before) = before else { return Ok(changes.applied_to(Epoch::default())) };
    let epoch = standing(store, before, changes).await?.epoch;
    if epoch.model.is_empty() { answered_before(store, before, epoch).await } else { Ok(epoch) }
}

/// With the model of an answer up to `node`: compactions of other programs do not say what came before them.
async fn answered_before(store: &dyn Graph, node: NodeId, epoch: Epoch) -> Result<Epoch, OpenError> {
    let mut nodes = match store.lineage(node, LineageEnd::Count(ANSWER_WITHIN[1])).await {
        Err(StoreError::Missing { .. }) => return Ok(epoch),
        nodes => nodes?,
    };
    nodes.retain(|node| node.record.role == "assistant");
    let newest = nodes.split_off(nodes.len().saturating_sub(ANSWERS));
    let mut changes = SettingChanges::default();
    for decoded in decode_nodes(store, &newest).await?.iter().rev() {
        if let Entry::Message(Message::Assistant(answer)) = &decoded.entry {
            changes.earlier_answer(answer);
        }
    }
    Ok(changes.applied_to(epoch))
}

/// How a session stands at a node, by the nearest entries that say so. `changes` came after it.
async fn standing(
    store: &dyn Graph,
    node: NodeId,
    mut changes: SettingChanges,
) -> Result<SessionStatus, OpenError> {
    let nodes = match store.settings(node).await {
        // A lineage of another program may begin in the middle.
        Err(StoreError::Missing { .. }) => Vec::new(),
        nodes => nodes?,
    };
    let (mut session, mut epoch) = (None, None);
    for decoded in decode_nodes(store, &nodes).await? {
        if epoch.is_some() {
            // What is older only says whose it is.
            let found = standing_of(&decoded.entry, &mut SettingChanges::default());
            session = session.or(found.and_then(|found| found.session));
        } else if let Some(found) = standing_of(&decoded.entry, &mut changes) {
            (session, epoch) = (found.session, Some(found.epoch));
        }
    }
    Ok(SessionStatus { session, epoch: changes.applied_to(epoch.unwrap_or_default()) })
}

/// What an entry says of all settings; a change of one of them is taken into `changes`.
fn standing_of(entry: &Entry, changes: &mut SettingChanges) -> Option<SessionStatus> {
    match entry {
        Entry::Session(start) => {
            Some(SessionStatus { session: Some(start.session.clone()), epoch: start.epoch.clone() })
        }
        Entry::Epoch(epoch) => Some(SessionStatus { session: None, epoch: epoch.clone() }),
        Entry::Compaction(Compaction { checkpoint: Some(Checkpoint { session, epoch }), .. }) => {
            Some(SessionStatus { session: Some(session.clone()), epoch: epoch.clone() })
        }
        Entry::Meta(json) => {
            changes.earlier(json);
            None
        }
        Entry::Message(_) | Entry::Compaction(_) => None,
    }
}

impl Past {
    /// The calls of the last answer that nothing answers on this lineage.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        self.open_calls.iter().map(|(_, call)| call.name.clone()).collect()
    }
}

/// Takes the queues over and turns steps that a dead process left into nodes: kept results as they are, the rest
/// as interrupted.
pub(crate) async fn recover(
    store: &dyn Graph,
    committer: &mut Committer,
    id: &SessionId,
    past: &mut Past,
    sealer: &Arc<Sealer>,
    now: UnixMs,
) -> Result<Vec<Notice>, OpenError> {
    let pending = store.pending(id).await?;
    for item in pending.inbox {
        // An input that cannot be read stays where it is; nothing is lost.
        let Ok(input) = item.input.read() else { continue };
        let waiting = QueuedInput { id: item.id, session: id.clone(), input, is_lent: false };
        if item.queue == "followUp" { past.follow_up.push(waiting) } else { past.steering.push(waiting) }
    }
    past.pending_self_message = match pending.jump.as_ref().and_then(awaited) {
        // Labels and changes of the model may stand behind it.
        Some(carryover) => past.nodes.iter().rposition(|node| *node == carryover).is_some_and(|at| {
            let after = &past.messages[at + 1..];
            !after.iter().any(|message| matches!(&**message, Message::Assistant(answer) if counts(answer)))
        }),
        None => false,
    };
    if pending.steps.is_empty() {
        return Ok(Vec::new());
    }
    let runs: Vec<RunId> = pending.steps.iter().map(|step| step.run.clone()).collect();
    let sent = pending.steps.iter().find(|step| step.call == StepCall::Model).and_then(sent_call);
    let mut interrupted = Vec::new();
    let (mut drafts, mut open) = (Vec::new(), Vec::new());
    for (slot, call) in std::mem::take(&mut past.open_calls) {
        let ours = |step: &&Step| Some(&step.run) == past.open_run.as_ref() && is_slot(&step.call, slot);
        let step = pending.steps.iter().find(ours);
        let mut draft = result_draft(&call, step, now);
        if call.name == TASK_TOOL && !step.is_some_and(|step| step.state == StepState::Done) {
            name_agent(store, id, past.open_run.as_ref(), &call, &mut draft).await?;
        }
        drafts.push(draft);
        open.push(step);
        if !step.is_some_and(|step| step.state == StepState::Done) {
            interrupted.push((call.name, call.id));
        }
    }
    let left: Vec<InterruptedCall<'_>> = drafts
        .iter()
        .zip(open)
        .map(|(draft, step)| match step {
            Some(step) if step.state != StepState::Done => InterruptedCall::Open(step),
            Some(_) | None => InterruptedCall::Done(&draft.step.files),
        })
        .collect();
    let salvaged = after_a_crash(store, sealer, &left, listing_of(&pending.steps)).await;
    for (draft, RecoveredChanges { files, note }) in drafts.iter_mut().zip(salvaged) {
        draft.step.files.extend(files);
        note.put_into(&mut draft.step);
    }
    for (draft, command) in pending.steps.iter().filter_map(|step| shell_draft(step, now)) {
        drafts.push(draft);
        interrupted.extend(command.map(|command| (format!("!{command}"), CallId::from(SHELL))));
    }
    if let Some((_, record, None)) = &sent {
        past.unanswered_call = Some(record.clone()).filter(|record| record.before_hooks.is_some());
    }
    let (mut answer_lost, mut releases) = (false, Vec::new());
    // Before the session's own: the next body is kept as the difference to that.
    for LeftCall { draft, is_lost, ops } in left_calls(&pending.steps) {
        answer_lost |= is_lost;
        drafts.push(draft);
        releases.extend(ops);
    }
    let early = early_drafts(&pending.steps, sent.as_ref().map(|(_, record, _)| record), past.head);
    let model_call = sent.is_some() || answer_lost || !early.is_empty();
    drafts.extend(sent.map(|(run, record, summary)| unanswered_draft(run, record, summary, now)));
    drafts.extend(early);
    if drafts.is_empty() {
        let ops = runs.into_iter().map(|run| Op::RunRemove { session: id.clone(), run }).collect();
        store.commit(Commit { ops, durability: Durability::Process, ..Commit::default() }).await?;
        return Ok(Vec::new());
    }
    let plan = Plan {
        session: id.clone(),
        expect: past.head,
        parent: past.head,
        carried: 0,
        ops: runs.into_iter().map(|run| PlanOp::Forget { run, session: None }).chain(releases).collect(),
        power: true,
        drafts,
    };
    let entries: Vec<Arc<Entry>> = plan.drafts.iter().map(|draft| draft.entry.clone()).collect();
    let last_body = plan.drafts.iter().rev().find_map(|draft| Some(draft.step.call.as_ref()?.body));
    let nodes = committer.commit(plan, None).await.map_err(|error| broken(id, error))?;
    past.head = nodes.last().copied().or(past.head);
    past.last_time = committer.last_time();
    past.last_body = last_body.or(past.last_body);
    for (entry, node) in entries.iter().zip(nodes) {
        let Some(message) = message_of(entry) else { continue };
        past.messages.push(Arc::new(message.into_owned()));
        past.nodes.push(node);
    }
    if interrupted.is_empty() && !model_call {
        return Ok(Vec::new());
    }
    Ok(vec![Notice::Interrupted { calls: interrupted, model_call }])
}

/// What a session cannot be opened for when what was left of it could not be settled.
pub(crate) fn broken(session: &SessionId, error: CommitError) -> OpenError {
    let why = match error {
        CommitError::Failed(text) => text,
        CommitError::Conflict { .. } => "another process is writing to it; try again".into(),
    };
    OpenError::Broken { session: session.clone(), why }
}

pub(crate) fn sent_call(step: &Step) -> Option<(RunId, CallRecord, Option<Calls>)> {
    #[derive(Deserialize)]
    struct StoredSummary {
        summary: Option<Calls>,
    }
    let data = step.data.as_deref()?;
    let record = serde_json::from_slice(data).ok()?;
    let aside: Option<StoredSummary> = serde_json::from_slice(data).ok();
    Some((step.run.clone(), record, aside.and_then(|aside| aside.summary)))
}

fn is_slot(call: &StepCall, slot: usize) -> bool {
    match call {
        StepCall::Model | StepCall::Early => false,
        StepCall::Tool(key) => slot_of(key) == Some(slot),
    }
}

fn slot_of(key: &CallId) -> Option<usize> {
    key.as_str().rsplit_once('.')?.1.parse().ok()
}

/// Names the session of a sub-agent in the result of the call that sent it, where it began before the process ended.
async fn name_agent(
    store: &dyn Graph,
    parent: &SessionId,
    run: Option<&RunId>,
    call: &ToolCall,
    draft: &mut Draft,
) -> Result<(), StoreError> {
    let (mut found, Some(run)) = (None, run) else { return Ok(()) };
    for nth in 0..SAME_CALLS {
        let session = agent_session(parent, run, &call.id, nth);
        if store.head(&RefName::session(&session)).await?.is_none() {
            break;
        }
        found = Some(session);
    }
    let Entry::Message(Message::ToolResult(result)) = &*draft.entry else { return Ok(()) };
    let text = match &found {
        Some(session) => format!(
            "Interrupted: the agent's process ended before this call had a result. The sub-agent was not continued; what it \
             did is in its session. Check that before you repeat the call.\n\n[session {session}]"
        ),
        None => "Interrupted: the agent's process ended before the sub-agent began.".to_owned(),
    };
    let details =
        found.map(|session| Json::from(&serde_json::json!({ "child": session, "outcome": "interrupted" })));
    let result = ToolResultMessage { content: vec![Content::text(text)], details, ..result.clone() };
    draft.entry = Arc::new(Entry::Message(Message::ToolResult(result)));
    Ok(())
}

fn result_draft(call: &ToolCall, step: Option<&Step>, now: UnixMs) -> Draft {
    let kept: Option<KeptResult> = step
        .filter(|step| step.state == StepState::Done)
        .and_then(|step| serde_json::from_slice(step.data.as_deref()?).ok());
    let run = step.map(|step| step.run.clone());
    let mut info = StepInfo { run, ..StepInfo::default() };
    let result = match kept {
        None => {
            info.provenance = Some(Provenance::quipu());
            interrupted_result(call, now)
        }
        Some(kept) => {
            (info.started, info.duration_ms) = (Some(kept.started), Some(kept.duration_ms));
            (info.provenance, info.added) = (Some(kept.provenance), kept.added);
            info.files = kept.files;
            kept.note.put_into(&mut info);
            Interventions { hooks: kept.hooks, policies: kept.policies }.record(&mut info);
            kept.result
        }
    };
    Draft::of(Entry::Message(Message::ToolResult(result)), info)
}

/// A line that the user ran in the shell, from its row; with the line when it was not known to have ended.
fn shell_draft(step: &Step, now: UnixMs) -> Option<(Draft, Option<String>)> {
    let StepCall::Tool(key) = &step.call else { return None };
    if key.as_str() != SHELL {
        return None;
    }
    let mut shell: BashExecutionMessage = serde_json::from_slice(step.data.as_deref()?).ok()?;
    let mut info = StepInfo {
        run: Some(step.run.clone()),
        provenance: Some(Provenance::shell()),
        ..StepInfo::default()
    };
    let mut interrupted = None;
    if step.state != StepState::Done {
        info.started = Some(shell.timestamp);
        shell.timestamp = now;
        shell.output =
            "[Interrupted: the agent's process ended before this command did. Its output is lost and \
                        whether it \
             took effect is unknown; check before repeating it.]"
                .into();
        interrupted = Some(shell.command.clone());
    }
    Some((Draft::of(Entry::Message(Message::BashExecution(shell)), info), interrupted))
}

fn interrupted_result(call: &ToolCall, now: UnixMs) -> ToolResultMessage {
    let text = if call.name == TRAVEL_TOOL {
        // Or the session would not stand here.
        "Interrupted: the agent's process ended before this call had a result. The session did not move."
    } else {
        "Interrupted: the agent's process ended before this call had a result. Whether it took effect is unknown; \
         check before repeating it."
    };
    ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: vec![Content::text(text)],
        details: None,
        usage: None,
        is_error: true,
        timestamp: now,
    }
}

/// A model call that was recorded and perhaps sent, and whose answer is not known. When it was to sum the context up,
/// it is kept beside the conversation, with those that were made for the same summary before it.
fn unanswered_draft(run: RunId, record: CallRecord, summary: Option<Calls>, now: UnixMs) -> Draft {
    const WHY: &str = "the process ended before the answer arrived; it may have been sent and charged";
    if let Some(Calls { usage, mut records, .. }) = summary {
        records.push(record);
        let entry = Entry::Meta(failed_summary_json(Some(WHY), &usage));
        return Draft::of(entry, step_of(Some(run), records));
    }
    let answer = AssistantMessage {
        api: record.api.clone(),
        provider: record.provider.clone(),
        model: record.model.clone(),
        stop_reason: StopReason::Error,
        timestamp: now,
        error_message: Some(WHY.into()),
        ..AssistantMessage::default()
    };
    let step =
        StepInfo { run: Some(run), started: Some(record.started), call: Some(record), ..StepInfo::default() };
    Draft::of(Entry::Message(Message::Assistant(answer)), step)
}

/// Calls that earlier versions began before their session could be opened, each as what is kept of it below `head`. That of `made`, a call of the session, became this call.
pub(crate) fn early_drafts(steps: &[Step], made: Option<&CallRecord>, head: Option<NodeId>) -> Vec<Draft> {
    const WHY: &str =
        "started before the session was opened, and not used; it may have been answered and charged";
    let early = steps.iter().filter(|step| step.call == StepCall::Early).filter_map(sent_call);
    let lost = early.filter(|(_, record, _)| made.is_none_or(|made| made.body != record.body));
    let draft = |(run, record, _): (RunId, CallRecord, _)| {
        // Where it was recorded there was no node of its lineage yet.
        let record = CallRecord { head: head.unwrap_or(record.head), ..record };
        let json =
            serde_json::json!({ "type": "custom", "customType": "quipu.early", "data": { "error": WHY } });
        Draft::of(Entry::Meta(quipu_protocol::Json::from(&json)), step_of(Some(run), vec![record]))
    };
    lost.map(draft).collect()
}
