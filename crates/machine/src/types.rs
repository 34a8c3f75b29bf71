//! Inputs and effects of the machine.

use std::sync::Arc;
use std::time::Duration;

use quipu_dag::{Blob, NewChunk};
use quipu_protocol::{
    Ack, AskId, BashExecutionMessage, CallEnd, CallEvent, CallRecord, Command, Compaction, Entry, Epoch,
    Event, ItemId, Json, MergeSide, Message, Model, ModelRequest, MoveFiles, MoveReport, NodeId, Notice,
    Outcome, Provenance, QueuedItem, Refusal, RunId, Scope, SessionId, StepInfo, Thinking, ToolCall,
    ToolSpec, Touches, UnixMs, UserInput,
};
use quipu_transcript::{FilePlan, Measure, Prune};

use super::hooked::Interventions;
use super::{
    BackgroundNote, CacheExpiry, CompactionSettings, ConversationBrief, EpochReason, FallbackRequest,
    FallbackResult, FinishedCall, HookPrompt, JumpTarget, KillError, Limits, LiveChanges, NoSummary,
    PlanSwitch, PruneSettings, RecordedRequest, RefreshResult, Refreshes, ReplyId, SessionPlace,
    ShellRunError, SideCall, Stretch, Summary,
};

/// Values for a command that the machine cannot create: it has no randomness and does no IO.
#[derive(Debug, Clone)]
pub struct CommandContext {
    pub run: RunId,
    pub item: ItemId,
    /// The inbox that holds the message under `item` already.
    pub stored: Option<SessionId>,
    /// The model that the command names, if it exists.
    pub model: Option<Arc<Model>>,
    /// The version of the policy, if the command is about permissions.
    pub policy: Option<PolicyVersion>,
    /// What the command makes of plan mode, if it switches it.
    pub plan: Option<PlanSwitch>,
    /// What hooks did to the command.
    pub hooks: Vec<Json>,
}

/// What happened: a command of a front, or the answer to an effect that the machine asked for.
#[derive(Debug)]
pub enum MachineInput {
    Command {
        command: Command,
        reply: ReplyId,
        fresh: CommandContext,
    },
    Committed {
        tag: Tag,
        result: Result<Vec<NodeId>, CommitError>,
    },
    Prepared {
        run: RunId,
        calls: Vec<CheckedCall>,
        /// What hooks and policies did to each of the calls; shorter where they did nothing to those behind.
        interventions: Vec<Interventions>,
    },
    Call {
        run: RunId,
        event: CallEvent,
    },
    CallEnded {
        run: RunId,
        end: Box<CallEnd>,
        record: Option<Box<CallRecord>>,
        money: CallMoney,
        /// What hooks did to the request and to the answer.
        hooks: Vec<Json>,
        /// Where the answer comes from, if a hook put it in the place of what was streamed.
        replaced: Option<Provenance>,
    },
    /// The call was not made, because it could not be recorded or a limit was reached. The run ends with `outcome`.
    CallNotMade {
        run: RunId,
        outcome: Outcome,
    },
    Summarized {
        run: RunId,
        result: Result<Summary, Box<NoSummary>>,
    },
    /// What hooks add to the input of a run.
    RunStartDecided {
        run: RunId,
        prompt: Option<Box<HookPrompt>>,
    },
    /// Whether hooks continue a run that the model ended, and with which input.
    RunEndDecided {
        run: RunId,
        more: Option<Box<HookPrompt>>,
    },
    /// The target of a jump, resolved.
    TargetResolved {
        run: RunId,
        result: Result<Box<JumpTarget>, Refusal>,
    },
    /// The session stands elsewhere, or why it does not. Answer to `Effect::Move`.
    Moved {
        run: RunId,
        result: Result<Box<MoveResult>, Refusal>,
    },
    /// All children of the run were killed, or why the session cannot leave.
    ChildrenKilled {
        run: RunId,
        result: Result<(), KillError>,
    },
    ToolOutput {
        run: RunId,
        slot: usize,
        tail: Arc<str>,
    },
    ToolDone {
        run: RunId,
        slot: usize,
        done: Box<FinishedCall>,
    },
    /// The policy changed after the call was checked, so the call did not start.
    ToolHeld {
        run: RunId,
        slot: usize,
        prepared: CheckedCall,
        /// Which policies asked or denied.
        policies: Vec<Json>,
    },
    /// The current version of the policy.
    Policy(PolicyVersion),
    /// A change that is not recorded.
    Tuned(LiveChanges),
    /// The current decision on a call that waits for an answer.
    Judged {
        run: RunId,
        ask: AskId,
        prepared: CheckedCall,
        /// Which policies asked or denied.
        policies: Vec<Json>,
    },
    /// Output of a shell line.
    ShellOutput {
        run: RunId,
        tail: Arc<str>,
    },
    /// A shell line ended, or why it did not run.
    ShellEnded {
        run: RunId,
        end: Result<ShellResult, ShellRunError>,
    },
    AskExpired {
        ask: AskId,
    },
    /// Number of subscribers that answer questions.
    Askers(usize),
    /// A notice from outside of the run.
    Notice(Notice),
    /// A background command ended.
    Background(Box<BackgroundNote>),
    /// A side call starts.
    SideBegun,
    /// A side call ended.
    SideEnded(Box<SideCall>),
    /// A tool source or context source changed.
    SourcesChanged,
    /// A person had these nodes forgotten.
    Forgotten(Vec<NodeId>),
    /// A person had something forgotten that the prompt, or the text before the conversation, tells, or what is being recorded of them.
    PromptForgotten,
    /// Which model continues a run.
    FallbackFound(RunId, FallbackResult),
    /// The current values of the sources; `None` when the refresh was aborted.
    Refreshed {
        run: RunId,
        result: Option<Box<RefreshResult>>,
    },
}

/// The result of a shell line, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellResult {
    /// The end of what it printed.
    pub output: String,
    /// `None` when it was killed.
    pub code: Option<i32>,
    pub cut: bool,
    /// Where all of it is, when it is long.
    pub path: Option<String>,
}

/// A tool call after lookup, validation and the policy.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckedCall {
    /// It runs with these arguments, which hooks may have changed, on these paths.
    Ready { call: ToolCall, touches: Touches },
    /// It needs a permission.
    Ask {
        call: ToolCall,
        touches: Touches,
        question: String,
        subject: Arc<str>,
        scopes: Vec<Scope>,
        rules: Vec<String>,
    },
    /// It does not run. The text is the result for the model.
    Refused(String),
}

/// Why a commit failed.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitError {
    /// Another process moved the ref; `fresh` is the id of a new branch.
    Conflict { fresh: SessionId },
    /// Any other failure.
    Failed(String),
}

/// The purpose of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Tag {
    /// The first messages of a run.
    Start { reply: Option<ReplyId> },
    /// An item for a queue.
    Queue { reply: ReplyId, item: QueuedInput, follow_up: bool },
    /// Items removed from the queues: at once, so that no turn takes them as well.
    Unqueue { reply: ReplyId, items: Vec<(Queue, QueuedInput)> },
    /// An answer of the model.
    Assistant,
    /// One result of a batch, stored until the batch is done.
    Result { run: RunId, turn: u32, slot: usize },
    /// The results of a batch.
    Results,
    /// Queued messages between two turns.
    Between,
    /// The first node of a session that is compacted before its first message.
    Named,
    /// A compaction, or the record of a failed one.
    Compacted,
    /// The cost of the summary of a failed jump.
    Jumped,
    /// A pruning of tool results.
    Pruned,
    /// A change of the model or thinking level.
    Changed,
    /// A failed call, and the epoch of what is tried in its place.
    FellBack,
    /// An epoch with new values of the sources.
    Refreshed,
    /// The last try to commit unsaved entries before the session ends.
    Closing,
    /// Deletion of the record of a request that is not sent.
    Unsent { op: PlanOp },
    /// A shell line starts.
    ShellBegins { reply: ReplyId, session: SessionId, run: RunId },
    /// A shell line ended while the session is busy: stored until it can become a node.
    ShellEnds { shell: Box<FinishedShell> },
    /// Shell lines become nodes; `ended` just ended.
    Noted { ended: Option<RunId> },
    /// A shell line starts before the session has its first node.
    NotedBegin { reply: ReplyId, run: RunId },
}

/// A finished shell line that is not a node yet.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedShell {
    pub run: RunId,
    pub draft: Draft,
    /// Removes its row.
    pub forget: PlanOp,
}

/// An entry to commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub entry: Arc<Entry>,
    pub step: StepInfo,
    /// States of files that the step names and that are not in the store yet.
    pub states: Vec<NewChunk>,
    /// What the entry names and that is not in the store yet.
    pub blobs: Vec<Blob>,
}

impl Draft {
    pub fn new(entry: Entry) -> Self {
        Self::of(entry, StepInfo::default())
    }

    pub fn of(entry: Entry, step: StepInfo) -> Self {
        Self { entry: Arc::new(entry), step, states: Vec::new(), blobs: Vec::new() }
    }

    /// The same, with the id under which somebody else's inbox had it.
    #[must_use]
    pub fn from_inbox(mut self, item: &ItemId) -> Self {
        if let Ok(item) = quipu_protocol::Json::of(item) {
            self.step.extra.insert(INBOX_ITEM.to_owned(), item);
        }
        self
    }

    /// A user message.
    pub fn user_message(input: UserInput, now: UnixMs) -> Self {
        let UserInput { content, provenance, added } = input;
        let message =
            quipu_protocol::UserMessage { content: quipu_protocol::Body::Blocks(content), timestamp: now };
        let step = StepInfo { provenance: Some(provenance), added, ..StepInfo::default() };
        Self::of(Entry::Message(quipu_protocol::Message::User(message)), step)
    }
}

/// A change to the small operational tables, in the same transaction as the nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanOp {
    Put {
        queue: Queue,
        item: QueuedInput,
    },
    /// Does nothing when another process took the item already.
    Take {
        session: SessionId,
        item: ItemId,
    },
    /// A tool call is about to start.
    Announce {
        run: RunId,
        key: String,
        call: ToolCall,
    },
    /// A tool call is done.
    Keep {
        run: RunId,
        key: String,
        done: Box<FinishedCall>,
    },
    /// The steps of this run are nodes now. `session` when it is not the plan's own.
    Forget {
        run: RunId,
        session: Option<SessionId>,
    },
    /// A request that a commit recorded as about to be sent is not. Another call of the run may have its row by then, which stays.
    Revoke {
        request: RecordedRequest,
    },
    /// The pending message of the session to itself is answered.
    ClearSelfMessage,
    /// Releases the reservation of a side call; its node has the cost.
    Release {
        id: Arc<str>,
        /// Billionths of a US dollar that it may have cost besides.
        charged: i64,
    },
    /// A shell line: about to start, or done.
    Shell {
        /// Whose row it is.
        session: Option<SessionId>,
        run: RunId,
        shell: Box<BashExecutionMessage>,
        done: bool,
    },
}

impl PlanOp {
    /// The item that it puts into a queue.
    pub fn put_item(&self) -> Option<&ItemId> {
        match self {
            Self::Put { item, .. } => Some(&item.id),
            Self::Take { .. }
            | Self::Announce { .. }
            | Self::Keep { .. }
            | Self::Forget { .. }
            | Self::Revoke { .. }
            | Self::Shell { .. }
            | Self::Release { .. }
            | Self::ClearSelfMessage => None,
        }
    }
}

/// Where a message waits: steering messages are sent after the current turn, follow-ups when the run would end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Steering,
    FollowUp,
}

/// Nodes to append to the session, and what goes with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub session: SessionId,
    /// Where the ref must stand; `None` when the session's ref does not exist yet.
    pub expect: Option<NodeId>,
    /// The parent of the first draft.
    pub parent: Option<NodeId>,
    pub drafts: Vec<Draft>,
    /// How many of the drafts an earlier commit left unsaved.
    pub carried: usize,
    pub ops: Vec<PlanOp>,
    /// Whether it must survive power loss.
    pub power: bool,
}

/// Under which name the node of a prompt keeps its id in the inbox that it came from, where that is not the session's own.
pub const INBOX_ITEM: &str = "inboxItem";

/// A message that waits for its turn; it is stored already.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedInput {
    pub id: ItemId,
    /// The session whose inbox holds it; another than the current one after a branch.
    pub session: SessionId,
    pub input: UserInput,
    /// Somebody else's inbox holds it: it stays there until it is part of the session.
    pub is_lent: bool,
}

impl QueuedInput {
    /// The item as events show it.
    pub fn queued(&self) -> QueuedItem {
        QueuedItem { id: self.id.clone(), text: quipu_transcript::typed_text(&self.input.content) }
    }
}

/// A move of the session, or a label or name to record.
#[derive(Debug, Clone, PartialEq)]
pub enum MoveOrder {
    /// Before a user message, after any other node.
    Jump {
        to: NodeId,
        label: Option<String>,
        /// What is added there.
        added: Vec<Draft>,
        files: MoveFiles,
    },
    /// After a node, with a message to itself, as a call of the model requests.
    Tobe(Box<TobeOrder>),
    Undo {
        steps: u32,
        files: MoveFiles,
    },
    Redo {
        steps: u32,
        files: MoveFiles,
    },
    Merge {
        from: NodeId,
        note: String,
        side: Option<MergeSide>,
        files: MoveFiles,
    },
    UndoCompaction,
    Label {
        node: NodeId,
        /// Empty to take it away.
        text: String,
    },
    Rename {
        name: String,
    },
}

/// A move that a call of the model requests.
#[derive(Debug, Clone, PartialEq)]
pub struct TobeOrder {
    pub to: NodeId,
    /// Ends the turn that is left: written where the session stands before it goes.
    pub ends: Vec<Draft>,
    /// What the model says to itself there: the first node of the next run.
    pub message: Draft,
    /// For the log of actions: a JSON object.
    pub log: Json,
    /// What is done to files, as it was agreed, where they go along.
    pub files: Option<Arc<FilePlan>>,
}

impl MoveOrder {
    /// What the order has written, in the order of [`MoveResult::ended`] and then [`MoveResult::added`].
    pub fn drafts(&self) -> impl Iterator<Item = &Draft> {
        let (ends, added): (&[Draft], &[Draft]) = match self {
            Self::Jump { added, .. } => (&[], added),
            Self::Tobe(order) => (&order.ends, std::slice::from_ref(&order.message)),
            Self::Undo { .. }
            | Self::Redo { .. }
            | Self::Merge { .. }
            | Self::UndoCompaction
            | Self::Label { .. }
            | Self::Rename { .. } => (&[], &[]),
        };
        ends.iter().chain(added)
    }
}

/// Where a session stands after a move, and what was recorded of it.
#[derive(Debug, Clone, PartialEq)]
pub struct MoveResult {
    pub moved: MoveReport,
    /// The nodes that end what was left, one for each of [`TobeOrder::ends`].
    pub ended: Vec<NodeId>,
    /// The nodes of what the order adds, each for one draft; none where the session stayed.
    pub added: Vec<NodeId>,
    /// The conversation there; `None` if it did not change.
    pub place: Option<Box<SessionPlace>>,
    /// Whether a message of the session to itself waits there for its answer.
    pub pending_self_message: bool,
    /// The new name, if it changed.
    pub name: Option<String>,
    /// The branch, if another process continued the session.
    pub branched: Option<SessionId>,
    /// The time of the head.
    pub at: UnixMs,
}

/// An effect that the session task carries out.
#[derive(Debug)]
pub enum Effect {
    Emit {
        event: Event,
        /// The run in which it happened; the event that ends a run still belongs to it.
        run: Option<RunId>,
    },
    Reply(ReplyId, Result<Ack, Refusal>),
    Commit {
        tag: Tag,
        plan: Plan,
        /// The model request that follows if nothing comes between: its record is stored along, a later `Call` sends it.
        next: Option<Arc<ModelRequest>>,
    },
    /// Record the request unless it is recorded, then send it. Answers: `Call`…, `CallEnded`.
    Call {
        run: RunId,
        head: NodeId,
        request: Arc<ModelRequest>,
        /// What the run may still spend.
        money: Option<RunMoney>,
    },
    /// Record and send the model calls that summarize a stretch. Answer: `Summarized`.
    Summarize {
        run: RunId,
        head: NodeId,
        model: Arc<Model>,
        thinking: Thinking,
        stretch: Box<Stretch>,
    },
    /// Ask the hooks what they add to the input of a run. Answer: `RunStartDecided`.
    AskRunStart {
        run: RunId,
        /// The input and what stands beside it.
        prompt: Vec<Draft>,
    },
    /// Ask the hooks whether to continue a run that the model ended. Answer: `RunEndDecided`.
    AskRunEnd {
        run: RunId,
        /// The last message of the conversation.
        last: Option<Arc<Message>>,
        /// How often in a row hooks continued this run.
        again: u32,
    },
    /// Move the session from `head`. Answer: `Moved`.
    Move {
        run: RunId,
        head: NodeId,
        order: MoveOrder,
        /// Done in the same transaction.
        ops: Vec<PlanOp>,
        /// What requests begin with from then on: written where another stood.
        epoch: Box<Epoch>,
    },
    /// Find the target of a jump from `from`, and the messages that it leaves. Answer: `TargetResolved`.
    ResolveTarget {
        run: RunId,
        from: NodeId,
        to: NodeId,
        /// Whether the messages that are left are needed.
        left: bool,
    },
    /// Look up and validate calls, and ask the policy. Answer: `Prepared`.
    Prepare {
        run: RunId,
        calls: Vec<ToolCall>,
    },
    /// Answers: `ToolOutput`…, `ToolDone`; or `ToolHeld`.
    RunTool {
        run: RunId,
        turn: u32,
        slot: usize,
        call: ToolCall,
        touches: Touches,
        /// Whether a person allowed it, so that the policy does not ask again.
        approved: bool,
    },
    /// Ask the policy again about a call that waits for an answer. Answer: `Judged`.
    Judge {
        run: RunId,
        ask: AskId,
        call: ToolCall,
        touches: Touches,
    },
    /// Kill the child processes that the run's calls left running. Answer: `ChildrenKilled`.
    KillChildren {
        run: RunId,
    },
    /// Use the model that was chosen last for all further requests.
    UseModel(Arc<Model>),
    /// Ask the sources that changed, and those that subscribe to one of these reasons. Answer: `Refreshed`.
    Refresh {
        run: RunId,
        reasons: Vec<EpochReason>,
        model: Arc<Model>,
        brief: ConversationBrief,
    },
    CancelRefresh,
    /// Find the next model that can be called. Answer: `FallbackFound`.
    FindFallback(FallbackRequest),
    /// Use the last values of the sources from now on.
    UseSources,
    CancelCall,
    /// Cancel the preparation of calls.
    CancelPrepare,
    CancelTool {
        slot: usize,
    },
    /// Run a shell line. Answers: `ShellOutput`, then `ShellEnded`.
    RunShell {
        run: RunId,
    },
    CancelShell {
        run: RunId,
    },
    /// Answer: `AskExpired`.
    AskDeadline {
        ask: AskId,
        after: Duration,
    },
    /// The session is over.
    Stop,
}

/// The rest of a run's cost limit.
#[derive(Debug, Clone, Copy)]
pub struct RunMoney {
    pub left: f64,
    pub limit: f64,
}

/// The effect of a call on the cost limit.
#[derive(Debug, Default)]
pub struct CallMoney {
    /// US dollars that it may have cost besides what the answer tells.
    pub assumed: f64,
    /// Why it was not sent once more: the run ends so.
    pub refused: Option<Outcome>,
}

/// What tells one state of the permissions from the next; open questions are decided again when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyVersion {
    /// Changes whenever a decision may change.
    pub number: u64,
    /// The permission mode, in one word; `None` where there is none.
    pub mode: Option<String>,
}

/// A jump that a tool call requests, resolved before anything changes.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolJump {
    /// The run that continues there.
    pub run: RunId,
    /// The target node.
    pub to: NodeId,
    /// The text of the message to itself.
    pub carryover: String,
    /// For the log of actions: a JSON object.
    pub log: Json,
    /// What is done to files, as it was agreed, where they go along.
    pub files: Option<Arc<FilePlan>>,
}

/// The call of a batch that requests a jump.
#[derive(Debug)]
pub(super) struct PendingToolJump {
    pub(super) slot: usize,
    pub(super) jump: ToolJump,
}

/// The prefix of all requests until the next epoch.
#[derive(Debug, Clone)]
pub struct Prefix {
    pub model: Arc<Model>,
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    pub epoch: Epoch,
}

/// The initial state of a machine.
pub struct Start {
    pub session: SessionId,
    pub cwd: String,
    /// `None` before the session's first commit; then `first` is committed with the first message.
    pub head: Option<NodeId>,
    /// Whether the session's ref exists.
    pub has_ref: bool,
    /// Committed with the next commit, before anything else: the session node, a new epoch.
    pub first: Vec<Draft>,
    /// The conversation so far.
    pub messages: Vec<Arc<Message>>,
    /// The node of each of them.
    pub nodes: Vec<NodeId>,
    /// The compaction that the conversation begins with.
    pub compacted: Option<Arc<Compaction>>,
    /// How many of the messages are its summary and what it kept.
    pub old: usize,
    /// What was counted before that compaction.
    pub measured: Option<Measure>,
    /// Where the lineage says that results are left out: with the number of messages before it.
    pub prunes: Vec<(usize, Prune)>,
    pub prune: PruneSettings,
    /// What is left out when the provider's cache has expired; `None` for nothing.
    pub cache_expiry: Option<Arc<CacheExpiry>>,
    pub compaction: CompactionSettings,
    pub prefix: Prefix,
    pub steering: Vec<QueuedInput>,
    pub follow_up: Vec<QueuedInput>,
    /// Whether a message of the session to itself waits at the end of the conversation.
    pub pending_self_message: bool,
    /// Notes that go with the first request.
    pub reminders: Vec<Draft>,
    pub limits: Limits,
    pub ask_deadline: Duration,
    pub policy: PolicyVersion,
    pub refreshes: Refreshes,
    /// Why sources are asked before the first call.
    pub due: Vec<EpochReason>,
    /// How many models can continue a run in place of its own.
    pub fallbacks: usize,
    /// The model that the session had before plan mode, where plan mode has one of its own.
    pub before_plan: Option<Arc<Model>>,
    /// Whether there are hooks.
    pub has_hooks: bool,
    /// Whether hooks can change a request just before it is sent, so that it cannot be recorded earlier.
    pub hooks_change_requests: bool,
}
