//! What goes into the machine and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use quipu_dag::{Blob, NewChunk};
use quipu_protocol::{
    Ack, AskId, BashExecutionMessage, CallEnd, CallEvent, CallRecord, Command, Compaction, CompactionReason,
    Entry, Epoch, Event, ItemId, Json, MergeSide, Message, Model, ModelRequest, MoveFiles, Moved, NodeId,
    Notice, Outcome, Provenance, Queued, Refused, RunId, Scope, SessionId, StepInfo, Thinking, ToolCall,
    ToolSpec, Touches, UnixMs, Usage, UserInput,
};
use quipu_transcript::{FilePlan, Measure, Prune, TouchedFiles};
use serde::{Deserialize, Serialize};

use super::hooked::Interventions;
use super::{
    ClearError, CompactionSettings, Done, EpochReason, HookPrompt, Limits, PruneSettings, Refreshed,
    Refreshes, ShellRunError, SideCall,
};

/// Names the place in the task where the sender of a command waits for its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyId(pub u64);

/// Ids made outside, since the machine has no randomness.
#[derive(Debug, Clone)]
pub struct Fresh {
    pub run: RunId,
    pub item: ItemId,
    /// The model that the command names, as it was found outside.
    pub model: Option<Arc<Model>>,
    /// Which rules the policy goes by, where the command is about them.
    pub policy: Option<PolicyVersion>,
    /// What hooks did to the command.
    pub hooks: Vec<Json>,
}

/// What the machine is told.
#[derive(Debug)]
pub enum Input {
    Command {
        command: Command,
        reply: ReplyId,
        fresh: Fresh,
    },
    Committed {
        tag: Tag,
        result: Result<Vec<NodeId>, CommitError>,
    },
    Prepared {
        run: RunId,
        calls: Vec<Prepared>,
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
    /// The call was not made, since it could not be recorded or a limit was reached; the run ends so.
    CallNotMade {
        run: RunId,
        outcome: Outcome,
    },
    Summarized {
        run: RunId,
        result: Result<Summary, Box<NoSummary>>,
    },
    /// What hooks say to the model beside what begins a run.
    RunStartDecided {
        run: RunId,
        beside: Option<Box<HookPrompt>>,
    },
    /// Whether hooks go on with a run that the model ended, and with what.
    RunEndDecided {
        run: RunId,
        more: Option<Box<HookPrompt>>,
    },
    /// What there is at the node to which the session is to go.
    Looked {
        run: RunId,
        result: Result<Box<Target>, Refused>,
    },
    /// What became of a move.
    Moved {
        run: RunId,
        result: Result<Box<MoveDone>, Refused>,
    },
    /// Nothing that the run started runs any more, or why nobody can leave.
    Cleared {
        run: RunId,
        result: Result<(), ClearError>,
    },
    ToolOutput {
        run: RunId,
        slot: usize,
        tail: Arc<str>,
    },
    ToolDone {
        run: RunId,
        slot: usize,
        done: Box<Done>,
    },
    /// The policy decides otherwise by now than when the call was looked up, and so it was not begun.
    ToolHeld {
        run: RunId,
        slot: usize,
        prepared: Prepared,
        /// Which policies asked or denied.
        policies: Vec<Json>,
    },
    /// Which rules the policy goes by now.
    Policy(PolicyVersion),
    /// What the policy decides now of a call that waits for an answer.
    Judged {
        run: RunId,
        ask: AskId,
        prepared: Prepared,
        /// Which policies asked or denied.
        policies: Vec<Json>,
    },
    /// What a person's line printed so far.
    ShellOutput {
        run: RunId,
        tail: Arc<str>,
    },
    /// A person's line is done, or why it did not run.
    ShellEnded {
        run: RunId,
        end: Result<ShellDone, ShellRunError>,
    },
    AskExpired {
        ask: AskId,
    },
    /// How many subscribers can answer questions.
    Askers(usize),
    /// What somebody beside the run wants people to know.
    Told(Notice),
    /// A call beside the conversation begins.
    SideBegun,
    /// One is over.
    SideEnded(Box<SideCall>),
    /// A source of tools or of context has something else now.
    SourcesChanged,
    /// What sources give now; `None` when asking them was stopped.
    Refreshed {
        run: RunId,
        result: Option<Box<Refreshed>>,
    },
}

/// What came of a person's line in the shell, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellDone {
    /// The end of what it printed.
    pub output: String,
    /// `None` when it was killed.
    pub code: Option<i32>,
    /// Whether something of the output is left out.
    pub cut: bool,
    /// Where all of it is, when it is long.
    pub path: Option<String>,
}

/// What became of looking a call up, validating it and asking the policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// It may run.
    Ready { call: ToolCall, touches: Touches },
    /// It may run when someone says yes.
    Ask { call: ToolCall, touches: Touches, question: String, subject: Arc<str>, scopes: Vec<Scope> },
    /// It will not run; the model is told why.
    Refused(String),
}

/// Why a commit failed.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitError {
    /// Another process moved the ref; `fresh` names a session to branch into.
    Conflict { fresh: SessionId },
    /// Anything else, for people.
    Failed(String),
}

/// What a commit was for.
#[derive(Debug, Clone, PartialEq)]
pub enum Tag {
    /// The messages that begin a run.
    Start { reply: Option<ReplyId> },
    /// An item for a queue.
    Queue { reply: ReplyId, item: Waiting, follow_up: bool },
    /// Items taken back: out of their queues at once, so that no turn takes them as well.
    Unqueue { reply: ReplyId, items: Vec<(Queue, Waiting)> },
    /// An answer of the model.
    Assistant,
    /// One result of a batch, kept until the batch is done.
    Result { run: RunId, turn: u32, slot: usize },
    /// The results of a batch.
    Results,
    /// Queued messages between two turns.
    Between,
    /// What is compacted before anything was said in it: its first node.
    Named,
    /// A compaction, or that it came to nothing.
    Compacted,
    /// What the summary of a jump cost that came to nothing.
    Jumped,
    /// That results are left out from here on.
    Pruned,
    /// Another model, or another level of thinking.
    Changed,
    /// What sources made of what requests begin with.
    Refreshed,
    /// Before the session ends: what an earlier commit could not keep.
    Closing,
    /// The record of a request that is not sent after all is taken back.
    Unsent { session: SessionId, run: RunId },
    /// A line of the user's begins in the shell, beside all else.
    ShellBegins { reply: ReplyId, session: SessionId, run: RunId },
    /// One is done while something is under way: kept until it can be a node.
    ShellEnds { ran: Box<Ran> },
    /// Lines of the shell become nodes, of which this one just ended.
    Noted { ended: Option<RunId> },
    /// One begins before the session has a name.
    NotedBegin { reply: ReplyId, run: RunId },
}

/// A line that the user ran in the shell, done, and no node yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
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

    /// What the user says.
    pub fn said(input: UserInput, now: UnixMs) -> Self {
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
        item: Waiting,
    },
    /// Does nothing when the item is gone: another process that went on with the session took it.
    Take {
        session: SessionId,
        item: ItemId,
    },
    /// A tool call is about to run.
    Announce {
        run: RunId,
        key: String,
        call: ToolCall,
    },
    /// A tool call is done.
    Keep {
        run: RunId,
        key: String,
        done: Box<Done>,
    },
    /// The steps of this run are nodes now. `session` when it is not the plan's own.
    Forget {
        run: RunId,
        session: Option<SessionId>,
    },
    /// The message to itself, with which the session went elsewhere, is answered.
    Arrive,
    /// What was reserved for a call beside the conversation is free: its node tells what it cost.
    Release {
        id: Arc<str>,
        /// Billionths of a US dollar that it may have cost besides.
        charged: i64,
    },
    /// A line of the user's in the shell: about to run, or done.
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
            | Self::Shell { .. }
            | Self::Release { .. }
            | Self::Arrive => None,
        }
    }
}

/// Which queue.
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

/// An input that waits in a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub id: ItemId,
    /// The session whose inbox holds it; another than the current one after a branch.
    pub session: SessionId,
    pub input: UserInput,
}

impl Waiting {
    /// It, for people.
    pub fn queued(&self) -> Queued {
        Queued { id: self.id.clone(), text: self.input.text() }
    }
}

/// Where a session is to go, or what is to be noted of it.
#[derive(Debug, Clone, PartialEq)]
pub enum MoveOrder {
    /// Before the node when somebody said it, else behind it.
    Jump {
        to: NodeId,
        label: Option<String>,
        /// What is added there.
        added: Vec<Draft>,
        files: MoveFiles,
    },
    /// Behind a node, with a message to itself: a call of the model wants it.
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

/// A move that a call of the model wants.
#[derive(Debug, Clone, PartialEq)]
pub struct TobeOrder {
    pub to: NodeId,
    /// Ends the turn that is left: written where the session stands before it goes.
    pub ends: Vec<Draft>,
    /// The message to itself.
    pub message: Draft,
    /// For the log of actions: a JSON object.
    pub log: Json,
    /// What is done to files, as it was agreed, where they go along.
    pub files: Option<Arc<FilePlan>>,
}

impl MoveOrder {
    /// What the order has written, in the order of [`MoveDone::ended`] and then [`MoveDone::added`].
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

/// A move that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct MoveDone {
    pub moved: Moved,
    /// The nodes that end what was left, one for each of [`TobeOrder::ends`].
    pub ended: Vec<NodeId>,
    /// The nodes of what the order adds, each for one draft; none where the session stayed.
    pub added: Vec<NodeId>,
    /// What there is; `None` where the conversation is what it was.
    pub place: Option<Box<Place>>,
    /// A message to itself waits there for its answer.
    pub waits: bool,
    /// The name that it has now, where that is another.
    pub name: Option<String>,
    /// The session that it is now, where another process went on with the one that it was.
    pub branched: Option<SessionId>,
    /// The time of the node where it stands.
    pub at: UnixMs,
}

/// What the machine wants done.
#[derive(Debug)]
pub enum Effect {
    Emit {
        event: Event,
        /// The run in which it happened; the event that ends a run still belongs to it.
        run: Option<RunId>,
    },
    Reply(ReplyId, Result<Ack, Refused>),
    Commit {
        tag: Tag,
        plan: Plan,
        /// What will be asked when this is committed and nothing comes between: recorded in the same transaction as
        /// about to be sent, so that sending it needs none of its own. It is not sent before a `Call` says so.
        next: Option<Arc<ModelRequest>>,
    },
    /// Record if it is not yet, then send. Answers: `Call`…, `CallEnded`.
    Call {
        run: RunId,
        head: NodeId,
        request: Arc<ModelRequest>,
        /// What the run may still spend.
        money: Option<RunMoney>,
    },
    /// Record and send the calls that sum a stretch up. Answer: `Summarized`.
    Summarize {
        run: RunId,
        head: NodeId,
        model: Arc<Model>,
        thinking: Thinking,
        stretch: Box<Stretch>,
    },
    /// Ask the hooks what they add to what begins a run. Answer: `RunStartDecided`.
    AskRunStart {
        run: RunId,
        /// What is said.
        said: Vec<Arc<Entry>>,
    },
    /// Ask the hooks whether the run goes on, which the model ended. Answer: `RunEndDecided`.
    AskRunEnd {
        run: RunId,
        /// The last message of the conversation.
        last: Option<Arc<Message>>,
        /// How often in a row hooks went on with this run before.
        again: u32,
    },
    /// Move the session, which stands at `head`. Answer: `Moved`.
    Move {
        run: RunId,
        head: NodeId,
        order: MoveOrder,
        /// Done in the same transaction.
        ops: Vec<PlanOp>,
        /// What requests begin with from then on: written where another stood.
        epoch: Box<Epoch>,
    },
    /// Find a node, and what is left behind when the session goes there from `from`. Answer: `Looked`.
    Look {
        run: RunId,
        from: NodeId,
        to: NodeId,
        /// Whether what is left behind is wanted.
        left: bool,
    },
    /// Look up, validate, ask the policy. Answer: `Prepared`.
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
        /// Whether a person allowed it: what the policy asks does not count then.
        approved: bool,
    },
    /// Put a call that waits for an answer to the policy again. Answer: `Judged`.
    Judge {
        run: RunId,
        ask: AskId,
        call: ToolCall,
        touches: Touches,
    },
    /// End all that the run's calls left running. Answer: `Cleared`.
    Clear {
        run: RunId,
    },
    /// Requests go to the model that was chosen last from now on.
    UseModel(Arc<Model>),
    /// Ask sources that changed, and those that want to be asked at one of these. Answer: `Refreshed`.
    Refresh {
        run: RunId,
        reasons: Vec<EpochReason>,
        model: Arc<Model>,
    },
    CancelRefresh,
    /// What sources gave last holds from now on.
    UseSources,
    CancelCall,
    /// How the looking up ends does not matter any more.
    CancelPrepare,
    CancelTool {
        slot: usize,
    },
    /// Run a person's line. Answers: `ShellOutput`, then `ShellEnded`.
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

/// What may be left of the limit of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunMoney {
    pub left: f64,
    pub limit: f64,
}

/// What a call did to what may be spent.
#[derive(Debug, Default)]
pub struct CallMoney {
    /// US dollars that it may have cost besides what the answer tells.
    pub assumed: f64,
    /// Why it was not sent once more: the run ends so.
    pub refused: Option<Outcome>,
}

/// Which rules a policy goes by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyVersion {
    /// Another number whenever something may be decided otherwise.
    pub number: u64,
    /// How much is asked, in a word for people; `None` where there is no such word.
    pub mode: Option<String>,
}

/// Where a call takes its session, found before anything is given up.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaving {
    /// The run that goes on from there.
    pub run: RunId,
    /// The node that it goes on from.
    pub to: NodeId,
    /// What is said there, as the conversation holds it.
    pub carryover: String,
    /// For the log of actions: a JSON object.
    pub log: Json,
    /// What is done to files, as it was agreed, where they go along.
    pub files: Option<Arc<FilePlan>>,
}

/// The call of a batch that leaves.
#[derive(Debug)]
pub(super) struct Going {
    pub(super) slot: usize,
    pub(super) leaving: Leaving,
}

/// What notes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To stand in place of the beginning of the context.
    Compaction,
    /// To tell what a branch held that was left.
    Branch,
}

/// What has to be summed up.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    pub purpose: Purpose,
    /// Why, where it is compacted.
    pub reason: Option<CompactionReason>,
    /// What the compaction before said in short.
    pub previous: Option<String>,
    /// Whole turns.
    pub history: Vec<Arc<Message>>,
    /// The beginning of a turn whose end stays.
    pub turn: Vec<Arc<Message>>,
    /// What to look at above all.
    pub focus: Option<String>,
    /// Tokens that a request may have, its answer included.
    pub window: u64,
    /// Tokens of the answer at most.
    pub max_tokens: u64,
    /// US dollars that the run may still spend.
    pub dollars: Option<f64>,
}

/// The calls that were made for a summary.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Calls {
    pub usage: Usage,
    pub records: Vec<CallRecord>,
    /// US dollars that they may have cost besides.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub assumed: f64,
}

fn is_zero(dollars: &f64) -> bool {
    *dollars == 0.0
}

impl Calls {
    /// US dollars that they cost, or may have cost.
    pub fn cost(&self) -> f64 {
        self.usage.cost.total + self.assumed
    }
}

/// A summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub text: String,
    pub made: Calls,
    /// Who gave it in place of the model.
    pub supplied_by: Option<String>,
    /// The hook that supplied it, where one did.
    pub hooks: Vec<Json>,
    /// Where it comes from, when that is no model.
    pub provenance: Option<Provenance>,
}

/// There is none.
#[derive(Debug, Clone, PartialEq)]
pub struct NoSummary {
    /// In one line; `None` when it was stopped.
    pub why: Option<String>,
    pub made: Calls,
}

/// Where a session would stand, and what it would leave behind.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The node that it would go on from.
    pub at: NodeId,
    /// What would be left behind, where that is wanted.
    pub left: Vec<Arc<Message>>,
    /// The files that were touched there.
    pub files: TouchedFiles,
}

/// What there is where a session stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The conversation there.
    pub messages: Vec<Arc<Message>>,
    /// The node of each of them.
    pub nodes: Vec<NodeId>,
    /// The compaction that it begins with.
    pub compacted: Option<Arc<Compaction>>,
    /// How many of the messages are its summary and what it kept.
    pub old: usize,
    /// Where the lineage says that results are left out; the messages are whole.
    pub prunes: Vec<(usize, Prune)>,
    pub epoch: Epoch,
}

/// What every request of this session begins with, until the next epoch.
#[derive(Debug, Clone)]
pub struct Prefix {
    pub model: Arc<Model>,
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    pub epoch: Epoch,
}

/// Everything that a machine starts from.
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
    pub compaction: CompactionSettings,
    pub prefix: Prefix,
    pub steering: Vec<Waiting>,
    pub follow_up: Vec<Waiting>,
    /// A message to itself at the end of the conversation waits for its answer.
    pub waits: bool,
    pub limits: Limits,
    pub ask_deadline: Duration,
    pub policy: PolicyVersion,
    pub refreshes: Refreshes,
    /// Why sources are asked before the first call.
    pub due: Vec<EpochReason>,
    /// Whether there are hooks, which are asked whether a run goes on that the model ended.
    pub has_hooks: bool,
    /// Whether a request can become another one just before it is sent, so that none is recorded before that.
    pub hooks_change_requests: bool,
}
