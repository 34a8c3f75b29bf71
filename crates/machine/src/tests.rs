//! The machine under every order of events: a simulated world answers its effects at random.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use quipu_protocol::{
    AbortTarget, Answer, AskId, Command, Content, Delta, Epoch, FileChange, FileState, Json, Model,
    ModelError, MoveFiles, MoveReport, Provenance, QueueMode, Refusal, Scope, SessionStart, Setting,
    Summarize, ToolResultMessage, Unknown, Usage, UserInput,
};
use quipu_testkit::events::EventLaws;
use quipu_transcript::Prune;

use super::*;

/// A run, and the request that it sends.
type RunRequest = (RunId, Arc<ModelRequest>);
/// A move as the machine wants it.
type OrderedMove = (RunId, NodeId, MoveOrder, Vec<PlanOp>, Epoch);

mod background;
mod diagram;
mod early_calls;
mod fallback;
mod forgetting;
mod shell_profile;
mod starts;
mod stored;
mod tuning;

use starts::{in_shell, pruning, start, with_sources};

/// What the world does next; the numbers choose among what is possible.
#[derive(Debug, Clone, Copy)]
enum Move {
    Prompt(u8),
    Abort,
    AbortTool(u8),
    Unqueue,
    Unrecorded,
    Continue,
    Compact,
    AbortCompaction,
    Jump(u8, bool),
    Set(u8),
    Look,
    Answer(u8, bool),
    Commit(u8),
    Stream,
    Prepare(u8),
    Tool(u8),
    Askers(bool),
    Expire(u8),
    End(u8),
    Shell(bool),
    Policy,
    Judge(u8),
    Source,
    Forget(u8),
    Refresh(u8),
    Fallback(u8),
}

fn a_change() -> FileChange {
    let unknown = || FileState::unknown(Unknown::Secret);
    FileChange { path: "a".into(), before: unknown(), after: unknown() }
}

/// A choice from which on all calls of an answer only read.
const READS: u8 = 190;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => any::<u8>().prop_map(Move::Prompt),
        1 => Just(Move::Abort),
        1 => any::<u8>().prop_map(Move::AbortTool),
        1 => Just(Move::Unqueue),
        1 => Just(Move::Continue),
        1 => Just(Move::Unrecorded),
        1 => Just(Move::Compact),
        1 => Just(Move::AbortCompaction),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, sums)| Move::Jump(which, sums)),
        2 => any::<u8>().prop_map(Move::Set),
        6 => Just(Move::Look),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, yes)| Move::Answer(which, yes)),
        12 => any::<u8>().prop_map(Move::Commit),
        12 => Just(Move::Stream),
        6 => any::<u8>().prop_map(Move::Prepare),
        8 => any::<u8>().prop_map(Move::Tool),
        1 => any::<bool>().prop_map(Move::Askers),
        1 => any::<u8>().prop_map(Move::Expire),
        4 => any::<u8>().prop_map(Move::End),
        2 => any::<bool>().prop_map(Move::Shell),
        1 => Just(Move::Policy),
        2 => any::<u8>().prop_map(Move::Judge),
        2 => Just(Move::Source),
        2 => any::<u8>().prop_map(Move::Forget),
        8 => any::<u8>().prop_map(Move::Refresh),
        6 => any::<u8>().prop_map(Move::Fallback),
    ];
    prop::collection::vec(one, 0..120)
}

/// What the policy says of a call.
fn decided(choice: u8, call: ToolCall, touches: Touches) -> CheckedCall {
    match choice % 3 {
        0 => CheckedCall::Refused("no".into()),
        1 => CheckedCall::Ask {
            call,
            touches,
            question: "?".into(),
            subject: "x".into(),
            scopes: vec![Scope::Once],
            rules: Vec::new(),
        },
        _ => CheckedCall::Ready { call, touches },
    }
}

struct FakeCall {
    run: RunId,
    left: VecDeque<CallEvent>,
    end: CallEnd,
    cancelled: bool,
    /// Nothing of it came yet.
    fresh: bool,
}

struct World {
    machine: Machine,
    laws: EventLaws,
    /// With the run whose next request is recorded along with it, and that request.
    commits: VecDeque<(Tag, Plan, Option<RunRequest>)>,
    call: Option<FakeCall>,
    /// A stretch that is being summed up, and whether that was cancelled.
    summary: Option<(RunId, bool)>,
    /// A place that is being looked at: from, to, and whether what is left is wanted.
    look: Option<(RunId, NodeId, NodeId, bool)>,
    /// With how many commits are made before it.
    moving: Option<(OrderedMove, usize)>,
    /// A run of which hooks are asked whether it goes on, and how often they went on with it.
    ending: Option<(RunId, u32)>,
    /// A run of which hooks are asked what they add to its beginning.
    starting: Option<RunId>,
    /// Every node: its parent and its entry.
    tree: HashMap<NodeId, (Option<NodeId>, Arc<Entry>)>,
    /// Nodes that a person had forgotten.
    forgotten: Vec<NodeId>,
    /// A run whose children are to end before it goes elsewhere.
    clear: Option<RunId>,
    /// A run before whose next call sources are asked, and whether that was cancelled.
    refresh: Option<(RunId, bool)>,
    /// A run for which another model is looked for.
    fallback: Option<FallbackRequest>,
    /// Which sessions have a message to themselves that waits for an answer.
    waits: std::collections::HashSet<SessionId>,
    /// How often a call took the session elsewhere.
    departures: u32,
    prepares: VecDeque<(RunId, Vec<ToolCall>)>,
    judges: VecDeque<(RunId, AskId, ToolCall, Touches)>,
    /// Changes of the policy.
    policies: u64,
    planning: bool,
    tools: Vec<(RunId, usize, ToolCall)>,
    /// What was said that calls touch, by run and place.
    touches: HashMap<(RunId, usize), Touches>,
    asks: Vec<AskId>,
    replies: HashMap<u64, u32>,
    /// Lines that run in the shell, and how many were done.
    shells: Vec<RunId>,
    ran: u64,
    /// Calls beside the conversation: where each has its row; and how many were done.
    sides: Vec<(SessionId, RunId, Option<RunId>)>,
    sided: u64,
    /// How many of their reservations are free.
    released: u64,
    sent: u64,
    nodes: u64,
    /// What is durable: where each session's ref stands.
    refs: HashMap<SessionId, NodeId>,
    inbox: Vec<(SessionId, quipu_protocol::ItemId)>,
    /// The rows of steps that are durable: session, run, key; a model call has no key.
    steps: std::collections::HashSet<(SessionId, RunId, String)>,
    /// The request in the row of each run's model call.
    asked: HashMap<RunId, Arc<ModelRequest>>,
    requests: Vec<Arc<Vec<Arc<Message>>>>,
    /// What each run cost.
    spent: HashMap<RunId, f64>,
    /// Calls that were made to sum up, and those of them that stand in a node.
    summaries: (u32, u32),
    /// What the last commit of nodes said that would be asked.
    foreseen: Option<Arc<ModelRequest>>,
    stopped: u32,
    finishing: bool,
    seed: u8,
    /// What tools return.
    output: String,
    /// From which state to which other one, and upon what.
    steps_taken: std::collections::BTreeSet<diagram::Transition>,
}

/// Eight calls.
const MAX_COST: f64 = 2.0;
const COST: f64 = 0.25;

/// The usage of a call; some providers claim nothing, too little or far too much.
fn usage(choice: u8) -> Usage {
    let total_tokens = [0, 1, 40, 1_000, u64::MAX][usize::from(choice) % 5];
    let cost = quipu_protocol::Cost { total: COST, ..Default::default() };
    Usage { total_tokens, cost, ..Usage::default() }
}

impl World {
    fn new() -> Self {
        Self::of(start())
    }

    fn of(start: Start) -> Self {
        let output = if start.prune.enabled { "ok ".repeat(800) } else { "ok".into() };
        Self {
            machine: Machine::new(start),
            laws: EventLaws::default(),
            commits: VecDeque::new(),
            call: None,
            summary: None,
            look: None,
            moving: None,
            ending: None,
            starting: None,
            tree: HashMap::new(),
            forgotten: Vec::new(),
            clear: None,
            refresh: None,
            fallback: None,
            waits: Default::default(),
            departures: 0,
            prepares: VecDeque::new(),
            judges: VecDeque::new(),
            policies: 0,
            planning: false,
            tools: Vec::new(),
            touches: HashMap::new(),
            asks: Vec::new(),
            replies: HashMap::new(),
            shells: Vec::new(),
            ran: 0,
            sides: Vec::new(),
            sided: 0,
            released: 0,
            sent: 0,
            nodes: 0,
            refs: HashMap::new(),
            inbox: Vec::new(),
            steps: std::collections::HashSet::new(),
            asked: HashMap::new(),
            requests: Vec::new(),
            spent: HashMap::new(),
            summaries: (0, 0),
            foreseen: None,
            stopped: 0,
            finishing: false,
            seed: 0,
            output,
            steps_taken: std::collections::BTreeSet::new(),
        }
    }

    fn give(&mut self, input: MachineInput) {
        self.sent += 1;
        let (before, why) = (diagram::state(&self.machine), diagram::kind(&input));
        let effects = self.machine.on(i64::try_from(self.sent).unwrap(), input);
        let after = diagram::state(&self.machine);
        if before != after {
            self.steps_taken.insert((before, after, why));
        }
        for effect in effects {
            self.perform(effect);
        }
    }

    fn command(&mut self, command: Command) {
        let reply = ReplyId(self.sent);
        self.replies.insert(reply.0, 0);
        let named = |id: &str| {
            let (id, api, provider, context_window) = (id.into(), "a".into(), "p".into(), 48);
            Arc::new(Model { id, api, provider, context_window, ..Model::default() })
        };
        let model = match &command {
            Command::Set { setting: Setting::Model { id, .. } } if id != "none" => Some(named(id)),
            _ => None,
        };
        let fresh = CommandContext {
            run: format!("r{}", self.sent).into(),
            item: format!("i{}", self.sent).into(),
            stored: None,
            model,
            policy: None,
            plan: match &command {
                // Every other time with a model for plans.
                Command::Set { setting: Setting::Plan { on } } => Some(PlanSwitch {
                    on: *on,
                    model: self.sent.is_multiple_of(2).then(|| (named("plans"), None)),
                }),
                _ => None,
            },
            hooks: Vec::new(),
        };
        self.give(MachineInput::Command { command, reply, fresh });
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Emit { event, .. } => {
                if let Event::AskClosed { ask, .. } = &event {
                    self.asks.retain(|open| open != ask);
                }
                self.laws.take(&event).unwrap();
            }
            Effect::Reply(id, _) => {
                *self.replies.get_mut(&id.0).expect("a reply to a command") += 1;
            }
            Effect::Commit { tag, plan, next } => {
                let records = self.machine.run().cloned().zip(next.clone());
                if !matches!(
                    tag,
                    Tag::Queue { .. }
                        | Tag::Unqueue { .. }
                        | Tag::Result { .. }
                        | Tag::Unsent { .. }
                        | Tag::ShellBegins { .. }
                        | Tag::ShellEnds { .. }
                ) {
                    self.foreseen = next;
                }
                let moves = !plan.drafts.is_empty();
                assert!(!moves || self.commits_nodes() == 0, "one commit of nodes at a time");
                self.commits.push_back((tag, plan, records));
            }
            Effect::Call { run, head, request, .. } => {
                assert!(self.call.is_none(), "one call at a time");
                assert_eq!(
                    self.refs.get(self.machine.session()),
                    Some(&head),
                    "only what is committed is sent"
                );
                let spent = self.spent.get(&run).copied().unwrap_or_default();
                assert!(spent < MAX_COST, "nothing is asked when the money is spent");
                quipu_transcript::check_conversation(&request.messages).unwrap();
                assert!(!self.is_shell() || shell_profile::is_plain(&request), "no tools and no calls");
                let told = self.lineage(head).into_iter().rev().find_map(|(_, entry)| match entry {
                    Entry::Epoch(epoch) => Some(epoch.model),
                    Entry::Session(start) => Some(start.epoch.model),
                    _ => None,
                });
                let begins = self.lineage(head).into_iter().rev().find_map(|(_, entry)| match entry {
                    Entry::Epoch(epoch) => Some(epoch),
                    Entry::Session(start) => Some(start.epoch),
                    _ => None,
                });
                let prompt = begins.and_then(|epoch| epoch.system).map(|id| id.0[0].to_string());
                assert_eq!(
                    prompt.unwrap_or_default(),
                    *request.system,
                    "what it begins with stands before it"
                );
                let asked = request.model.id.clone();
                assert!(
                    told.is_none_or(|told| told == asked || told.is_empty()),
                    "who is asked stands before it"
                );
                if let Some(foreseen) = self.foreseen.take() {
                    assert!(Arc::ptr_eq(&foreseen, &request), "what was foreseen is not made again");
                }
                self.requests.push(request.messages.clone());
                self.seed = self.seed.wrapping_mul(31).wrapping_add(17);
                self.steps.insert((self.machine.session().clone(), run.clone(), String::new()));
                self.asked.insert(run.clone(), request);
                let (left, end) =
                    answer(if self.finishing { 0 } else { self.seed }, self.sent, self.is_shell());
                self.call = Some(FakeCall { run, left, end, cancelled: false, fresh: true });
            }
            Effect::AskRunStart { run, .. } => {
                assert!(self.starting.is_none() && self.call.is_none() && self.commits_nodes() == 0);
                self.starting = Some(run);
            }
            Effect::AskRunEnd { run, again, .. } => {
                assert!(self.ending.is_none() && self.call.is_none() && self.commits_nodes() == 0);
                assert!(again <= 3, "at most three times in a row");
                self.ending = Some((run, again));
            }
            Effect::Move { run, head, order, ops, epoch } => {
                assert!(self.moving.is_none() && self.call.is_none() && self.commits_nodes() == 0);
                self.moving = Some(((run, head, order, ops, *epoch), self.commits.len()));
            }
            Effect::ResolveTarget { run, from, to, left } => {
                assert!(self.look.is_none() && self.call.is_none() && self.commits_nodes() == 0);
                assert_eq!(self.refs.get(self.machine.session()), Some(&from));
                self.look = Some((run, from, to, left));
            }
            Effect::Prepare { run, calls } => self.prepares.push_back((run, calls)),
            Effect::Judge { run, ask, call, touches } => {
                assert!(self.asks.contains(&ask), "only what is open is judged again");
                self.judges.push_back((run, ask, call, touches));
            }
            Effect::RunTool { run, slot, call, .. } => {
                let only_reads = matches!(self.touches.get(&(run.clone(), slot)), Some(Touches::Reads(_)));
                let announced = self.commits.iter().all(|(_, plan, _)| plan.drafts.is_empty());
                assert!(announced || only_reads, "what can have effects is announced first");
                let goes = self.touches.get(&(run.clone(), slot)) == Some(&Touches::Session);
                let alone = self.tools.iter().all(|tool| tool.0 != run);
                assert!(alone || !goes, "calls before one that goes elsewhere have ended");
                self.tools.push((run, slot, call));
            }
            Effect::Summarize { run, head, stretch, .. } => {
                assert!(self.call.is_none() && self.summary.is_none(), "one call at a time");
                assert_eq!(self.refs.get(self.machine.session()), Some(&head));
                assert!(
                    !stretch.history.is_empty() || !stretch.turn.is_empty(),
                    "there is something to sum up"
                );
                self.steps.insert((self.machine.session().clone(), run.clone(), String::new()));
                self.summary = Some((run, false));
            }
            Effect::CancelCall => {
                if let Some((_, cancelled)) = &mut self.summary {
                    *cancelled = true;
                }
                if let Some(call) = &mut self.call {
                    call.cancelled = true;
                }
            }
            Effect::RunShell { run } => self.shells.push(run),
            Effect::CancelShell { run } => assert!(self.shells.contains(&run), "it runs"),
            Effect::CancelTool { .. } | Effect::CancelPrepare | Effect::UseModel(_) => {}
            Effect::Refresh { run, reasons, .. } => {
                assert!(self.refresh.is_none() && self.call.is_none() && self.commits_nodes() == 0);
                assert!(!reasons.is_empty() && self.tools.iter().all(|tool| tool.0 != run));
                self.refresh = Some((run, false));
            }
            Effect::FindFallback(request) => {
                assert!(self.call.is_none() && self.commits_nodes() == 0);
                assert!(request.from < 2, "it looks no further than the list");
                // The answer to a run that was stopped meanwhile comes to nothing.
                self.fallback = Some(request);
            }
            Effect::CancelRefresh => {
                if let Some((_, cancelled)) = &mut self.refresh {
                    *cancelled = true;
                }
            }
            Effect::UseSources => {}
            Effect::KillChildren { run } => {
                assert!(
                    self.clear.is_none()
                        && self.call.is_none()
                        && self.tools.iter().all(|tool| tool.0 != run)
                );
                self.clear = Some(run);
            }
            Effect::AskDeadline { ask, .. } => self.asks.push(ask),
            Effect::Stop => self.stopped += 1,
        }
    }

    fn commit(&mut self, choice: u8) {
        if let Some((_, before)) = &mut self.moving {
            let Some(left) = before.checked_sub(1) else { return self.look() };
            *before = left;
        }
        let Some((tag, plan, records)) = self.commits.pop_front() else { return };
        let result = match choice {
            _ if self.finishing => self.durable(&plan),
            0..8 => Err(CommitError::Failed("the disk is full".into())),
            8..14 if !plan.drafts.is_empty() => {
                Err(CommitError::Conflict { fresh: format!("b{}", self.sent).into() })
            }
            _ => self.durable(&plan),
        };
        if let (Ok(_), Some((run, request))) = (&result, records) {
            self.steps.insert((plan.session, run.clone(), String::new()));
            self.asked.insert(run, request);
        }
        if let Some(call) = &self.call {
            let is_row = |(_, run, key): &(_, RunId, String)| *run == call.run && key.is_empty();
            assert!(self.steps.iter().any(is_row), "a call that is under way has its row");
        }
        self.give(MachineInput::Committed { tag, result });
    }

    fn durable(&mut self, plan: &Plan) -> Result<Vec<NodeId>, CommitError> {
        self.ops(&plan.session, &plan.ops);
        let summed = |draft: &&Draft| {
            draft.step.call.is_some() && matches!(&*draft.entry, Entry::Compaction(_) | Entry::Meta(_))
        };
        self.summaries.1 += u32::try_from(plan.drafts.iter().filter(summed).count()).unwrap();
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut parent = plan.parent;
        for draft in &plan.drafts {
            let id = self.node(parent, draft.entry.clone());
            parent = Some(id);
            nodes.push(id);
        }
        if let Some(last) = nodes.last() {
            assert_eq!(
                plan.expect.as_ref(),
                self.refs.get(&plan.session),
                "the ref is where the plan expects it"
            );
            self.refs.insert(plan.session.clone(), *last);
        }
        Ok(nodes)
    }

    fn ops(&mut self, session: &SessionId, ops: &[PlanOp]) {
        for op in ops {
            match op {
                PlanOp::Put { item, .. } => self.inbox.push((item.session.clone(), item.id.clone())),
                PlanOp::Take { session: holder, item } => {
                    let at = self.inbox.iter().position(|(of, id)| of == holder && id == item);
                    let tried =
                        |op: &&PlanOp| matches!(op, PlanOp::Take { item: other, .. } if other == item);
                    let twice = ops.iter().filter(tried).count() > 1;
                    assert!(at.is_some() || twice, "what is taken is there, once");
                    at.map(|at| self.inbox.remove(at));
                }
                PlanOp::Announce { run, key, .. } => {
                    assert!(self.steps.insert((session.clone(), run.clone(), key.clone())));
                }
                PlanOp::Keep { run, key, .. } => {
                    let row = (session.clone(), run.clone(), key.clone());
                    assert!(self.steps.contains(&row), "a result is kept for a call that was announced");
                }
                PlanOp::Forget { run, session: other } => {
                    let session = other.as_ref().unwrap_or(session);
                    self.steps.retain(|(of, other, _)| of != session || other != run);
                }
                PlanOp::Revoke { request } => {
                    let is_there =
                        |run: &RunId| self.asked.get(run).is_some_and(|asked| Arc::ptr_eq(asked, &request.0));
                    self.steps.retain(|(_, run, key)| !key.is_empty() || !is_there(run));
                }
                PlanOp::ClearSelfMessage => drop(self.waits.remove(session)),
                PlanOp::Release { .. } => self.released += 1,
                PlanOp::Shell { session: other, run, .. } => {
                    let session = other.as_ref().unwrap_or(session);
                    self.steps.insert((session.clone(), run.clone(), "shell".into()));
                }
            }
        }
    }

    fn node(&mut self, parent: Option<NodeId>, entry: Arc<Entry>) -> NodeId {
        self.nodes += 1;
        let mut id = [0; 32];
        id[..8].copy_from_slice(&self.nodes.to_be_bytes());
        self.tree.insert(NodeId(id), (parent, entry));
        NodeId(id)
    }

    /// Each call of the last answer has one result there.
    fn is_whole(&self, at: NodeId) {
        let (mut called, mut answered) = (Vec::new(), Vec::new());
        for (_, entry) in self.lineage(at) {
            match entry {
                Entry::Message(Message::Assistant(answer)) => {
                    called = answer.tool_calls().map(|call| call.id.clone()).collect();
                    answered.clear();
                }
                Entry::Message(Message::ToolResult(result)) => answered.push(result.tool_call_id),
                _ => {}
            }
        }
        called.sort();
        answered.sort();
        assert_eq!(called, answered, "what is left is a whole turn");
    }

    fn is_shell(&self) -> bool {
        self.machine.prefix.epoch.profile.is_some()
    }

    fn commits_nodes(&self) -> usize {
        self.commits.iter().filter(|(_, plan, _)| !plan.drafts.is_empty()).count()
    }

    fn lineage(&self, of: NodeId) -> Vec<(NodeId, Entry)> {
        let mut lineage = Vec::new();
        let mut next = Some(of);
        while let Some(id) = next {
            let (parent, entry) = &self.tree[&id];
            let entry = (**entry).clone();
            let decoded = quipu_transcript::DecodedEntry { entry, step: Default::default() };
            let is_forgotten = self.forgotten.contains(&id);
            let shown = if is_forgotten { quipu_transcript::forgotten(decoded) } else { decoded };
            lineage.push((id, shown.entry));
            next = *parent;
        }
        lineage.reverse();
        lineage
    }

    /// What a session would be resumed with at a node.
    fn place(&self, at: NodeId) -> SessionPlace {
        let lineage = self.lineage(at);
        let mut place = SessionPlace {
            messages: Vec::new(),
            nodes: Vec::new(),
            compacted: None,
            old: 0,
            prunes: Vec::new(),
            epoch: Epoch::default(),
        };
        let mut at_compaction = None;
        for at in quipu_transcript::context(&lineage) {
            let (node, entry) = &lineage[at];
            if let Entry::Meta(json) = entry {
                place.prunes.extend(Prune::of_entry(json).map(|prune| (place.messages.len(), prune)));
            }
            let Some(message) = quipu_transcript::message_of(entry) else { continue };
            if let Entry::Compaction(compaction) = entry {
                place.compacted = Some(Arc::new(compaction.clone()));
                at_compaction = Some(at);
            }
            place.old += usize::from(at_compaction.is_some_and(|compaction| at <= compaction));
            place.nodes.push(*node);
            place.messages.push(Arc::new(message.into_owned()));
        }
        place
    }

    /// A session that is opened at its head has the conversation that this one has.
    fn is_as_resumed(&self) {
        let head = self.machine.head().unwrap();
        assert_eq!(self.refs.get(self.machine.session()), Some(&head));
        let SessionPlace { mut messages, nodes, compacted, old, prunes, .. } = self.place(head);
        let has_pointers = prunes.iter().any(|(_, prune)| prune.style.is_pointer());
        assert!(self.machine.prune.enabled || !has_pointers);
        let left = PruneState::of(&prunes, &mut messages, &nodes, old, 0);
        assert_eq!(nodes, self.machine.nodes);
        assert_eq!(messages, self.machine.messages);
        assert_eq!((&compacted, left.old), (&self.machine.compacted, self.machine.left.old));
        let estimated: u64 = messages.iter().map(|message| sent_tokens(message)).sum();
        assert_eq!(estimated, self.machine.estimated);
    }

    fn look(&mut self) {
        if let Some(run) = self.clear.take() {
            self.seed = self.seed.wrapping_mul(31).wrapping_add(17);
            let fails = self.seed.is_multiple_of(7) && !self.finishing;
            let result = if fails { Err(KillError::StillRunning) } else { Ok(()) };
            return self.give(MachineInput::ChildrenKilled { run, result });
        }
        if let Some((moving, _)) = self.moving.take_if(|(_, before)| *before == 0) {
            return self.make_move(moving);
        }
        let Some((run, from, to, left)) = self.look.take() else { return };
        let lineage = self.lineage(to);
        let session = lineage.iter().rev().find_map(|(_, entry)| match entry {
            Entry::Session(start) => Some(start.session.clone()),
            _ => None,
        });
        if session.as_ref() != Some(self.machine.session()) {
            return self
                .give(MachineInput::TargetResolved { run, result: Err(Refusal::NotInSession { node: to }) });
        }
        let at = self.stands(to);
        let kept: Vec<NodeId> = self.lineage(at).iter().map(|(id, _)| *id).collect();
        let mut behind = self.lineage(from);
        behind.retain(|(id, _)| left && !kept.contains(id));
        let messages =
            behind.iter().filter_map(|(id, entry)| Some((id, quipu_transcript::message_of(entry)?)));
        let (left, nodes) = messages.map(|(id, message)| (Arc::new(message.into_owned()), *id)).unzip();
        let target = JumpTarget { at, left, nodes, files: Default::default() };
        self.give(MachineInput::TargetResolved { run, result: Ok(Box::new(target)) });
    }

    /// Before what somebody said, behind everything else.
    fn stands(&self, to: NodeId) -> NodeId {
        match &self.tree[&to] {
            (Some(parent), entry) if matches!(&**entry, Entry::Message(Message::User(_))) => *parent,
            _ => to,
        }
    }

    /// What requests begin with that are made there.
    fn epoch_at(&self, at: NodeId) -> Epoch {
        let lineage = self.lineage(at).into_iter().rev();
        let mut epochs = lineage.filter_map(|(_, entry)| match entry {
            Entry::Epoch(epoch) => Some(epoch),
            Entry::Session(start) => Some(start.epoch),
            _ => None,
        });
        epochs.next().unwrap_or_default()
    }

    /// What moves sessions beside the machine did its work, or did not.
    fn make_move(&mut self, (run, head, order, ops, epoch): OrderedMove) {
        self.seed = self.seed.wrapping_mul(31).wrapping_add(17);
        let session = self.machine.session().clone();
        // Another process was faster: who jumps does so in a session of its own.
        let loses = matches!(order, MoveOrder::Jump { .. }) && self.seed.is_multiple_of(5) && !self.finishing;
        let branched = loses.then(|| SessionId::from(format!("j{}", self.nodes)));
        let elsewhere = self.refs.get(&session) != Some(&head);
        if elsewhere || (!loses && self.seed.is_multiple_of(4) && !self.finishing) {
            let result = Err(Refusal::NotMoved { why: "no".into() });
            return self.give(MachineInput::Moved { run, result });
        }
        let summed = order.drafts().filter(|draft| draft.step.call.is_some()).count();
        self.summaries.1 += u32::try_from(summed).unwrap();
        let (mut notes, mut goes, mut ends, mut drafts) = (false, false, Vec::new(), Vec::new());
        let at = match order {
            MoveOrder::Jump { to, added, .. } => {
                (goes, drafts) = (true, added);
                self.stands(to)
            }
            MoveOrder::Tobe(order) => {
                let changed = order.ends.iter().any(|draft| !draft.step.files.is_empty());
                assert!(order.files.is_none() || !changed, "nobody agreed to what would become of it");
                self.departures += 1;
                (goes, ends, drafts) = (true, order.ends, vec![order.message]);
                order.to
            }
            MoveOrder::Label { .. } | MoveOrder::Rename { .. } => {
                (notes, drafts) = (true, vec![Draft::new(Entry::Meta(Json::object()))]);
                head
            }
            MoveOrder::Undo { .. }
            | MoveOrder::Redo { .. }
            | MoveOrder::Merge { .. }
            | MoveOrder::UndoCompaction => {
                // Back to some place of this session behind its first node.
                let lineage = self.lineage(head);
                let own =
                    lineage.iter().rposition(|(_, entry)| matches!(entry, Entry::Session(_))).unwrap_or(0);
                let places = &lineage[own..];
                places[usize::from(self.seed) % places.len()].0
            }
        };
        self.ops(&session, &ops);
        let mut from = head;
        let mut ended = Vec::new();
        for draft in &ends {
            from = self.node(Some(from), draft.entry.clone());
            ended.push(from);
        }
        let waits = !ended.is_empty();
        if waits {
            self.is_whole(from);
        }
        let mut to = at;
        if let Some(fresh) = &branched {
            let start = SessionStart {
                session: fresh.clone(),
                cwd: String::new(),
                agent: AGENT.into(),
                parent_session: Some(session.clone()),
                epoch: epoch.clone(),
            };
            to = self.node(Some(to), Arc::new(Entry::Session(start)));
        }
        if goes && self.epoch_at(to) != epoch {
            to = self.node(Some(to), Arc::new(Entry::Epoch(epoch)));
        }
        let mut added = Vec::new();
        for draft in drafts {
            to = self.node(Some(to), draft.entry);
            added.push(to);
        }
        let session = branched.clone().unwrap_or(session);
        self.refs.insert(session.clone(), to);
        match (notes, waits) {
            (true, _) => {}
            (false, true) => drop(self.waits.insert(session.clone())),
            (false, false) => drop(self.waits.remove(&session)),
        }
        let (steps, files, problems) = (Vec::new(), Vec::new(), Vec::new());
        let moved = MoveReport { from, to, prompt: None, steps, files, problems };
        let mut place = self.place(to);
        place.epoch = self.epoch_at(to);
        let place = (!notes).then(|| Box::new(place));
        let pending_self_message = self.waits.contains(&session);
        let done =
            MoveResult { moved, ended, added, place, pending_self_message, name: None, branched, at: 0 };
        self.give(MachineInput::Moved { run, result: Ok(Box::new(done)) });
    }

    fn stream(&mut self) {
        if let Some((run, cancelled)) = self.summary.take() {
            self.seed = self.seed.wrapping_mul(31).wrapping_add(17);
            let made = || Calls { usage: usage(0), records: vec![record()], assumed: 0.0 };
            let result = match self.seed % 5 {
                _ if cancelled => Err(Box::new(NoSummary { why: None, made: made() })),
                3 if !self.finishing => Err(Box::new(NoSummary { why: Some("no".into()), made: made() })),
                2 if !self.finishing => {
                    // The store did not take its record, so there is no row either.
                    self.steps.remove(&(self.machine.session().clone(), run.clone(), String::new()));
                    Err(Box::new(NoSummary { why: Some("no".into()), made: Calls::default() }))
                }
                1 if !self.finishing => {
                    // A source gave it, and nobody was called.
                    self.steps.remove(&(self.machine.session().clone(), run.clone(), String::new()));
                    let supplied_by = Some("a source".into());
                    Ok(Summary {
                        text: "in short".into(),
                        made: Calls::default(),
                        supplied_by,
                        hooks: Vec::new(),
                        provenance: None,
                        parts: Vec::new(),
                    })
                }
                _ => Ok(Summary {
                    text: "in short".into(),
                    made: made(),
                    supplied_by: None,
                    hooks: Vec::new(),
                    provenance: None,
                    parts: Vec::new(),
                }),
            };
            let calls = match &result {
                Ok(summary) => &summary.made,
                Err(none) => &none.made,
            };
            *self.spent.entry(run.clone()).or_default() += calls.usage.cost.total;
            self.summaries.0 += u32::from(!calls.records.is_empty());
            return self.give(MachineInput::Summarized { run, result });
        }
        let Some(mut call) = self.call.take() else { return };
        call.fresh = false;
        if call.cancelled {
            call.end.error = Some(ModelError::new(ModelErrorKind::Aborted, "aborted"));
            call.end.message.content.clear();
            call.left.clear();
        }
        match call.left.pop_front() {
            Some(event) => {
                let run = call.run.clone();
                self.call = Some(call);
                self.give(MachineInput::Call { run, event });
            }
            None => {
                *self.spent.entry(call.run.clone()).or_default() += COST;
                let replaced =
                    self.machine.has_hooks && self.sent.is_multiple_of(3) && call.end.error.is_none();
                if replaced {
                    let said = Content::text(call.end.message.text());
                    call.end.message.content.retain(|block| !matches!(block, Content::Text(_)));
                    call.end.message.content.insert(0, said);
                }
                self.give(MachineInput::CallEnded {
                    run: call.run,
                    end: Box::new(call.end),
                    record: None,
                    money: CallMoney::default(),
                    hooks: Vec::new(),
                    replaced: replaced.then(|| Provenance::hook("h")),
                });
            }
        }
    }

    fn prepare(&mut self, choice: u8) {
        let Some((run, calls)) = self.prepares.pop_front() else { return };
        let calls = calls
            .into_iter()
            .enumerate()
            .map(|(place, call)| {
                let leaves = [0, 1, 0, 2][usize::from(choice) / 20 % 4];
                let touches = match (usize::from(choice) + place) % 4 {
                    _ if choice < READS && place == leaves => Touches::Session,
                    _ if choice >= READS => Touches::Reads(vec!["f".into()]),
                    0 => Touches::Nothing,
                    1 => Touches::Anything,
                    2 => Touches::Reads(vec!["f".into()]),
                    _ => Touches::Writes(vec!["f".into()]),
                };
                self.touches.insert((run.clone(), place), touches.clone());
                match (usize::from(choice) / 4 + place) % 5 {
                    _ if choice >= READS => CheckedCall::Ready { call, touches },
                    // As the toolbox sees to it.
                    _ if place > leaves => CheckedCall::Refused("behind".into()),
                    0 => CheckedCall::Refused("no".into()),
                    1 => CheckedCall::Ask {
                        call,
                        touches,
                        question: "?".into(),
                        subject: "x".into(),
                        scopes: vec![Scope::Once],
                        rules: Vec::new(),
                    },
                    _ => CheckedCall::Ready { call, touches },
                }
            })
            .collect();
        self.give(MachineInput::Prepared { run, calls, interventions: Vec::new() });
    }

    fn tool(&mut self, choice: u8) {
        if self.tools.is_empty() {
            return;
        }
        let (run, slot, call) = self.tools.remove(usize::from(choice) % self.tools.len());
        if self.policies > 0 && choice % 4 == 2 && !self.finishing {
            let touches = self.touches.get(&(run.clone(), slot)).cloned().unwrap_or(Touches::Nothing);
            let (prepared, policies) = (decided(choice / 4, call, touches), Vec::new());
            return self.give(MachineInput::ToolHeld { run, slot, prepared, policies });
        }
        let result = ToolResultMessage {
            tool_call_id: call.id,
            tool_name: call.name,
            content: vec![Content::text(&*self.output)],
            details: None,
            usage: None,
            is_error: false,
            timestamp: 0,
        };
        let goes = self.touches.get(&(run.clone(), slot)) == Some(&Touches::Session);
        let jump = (goes && choice % 3 == 1 && !self.finishing).then(|| self.jump(&run, choice)).flatten();
        let done = Box::new(FinishedCall {
            result,
            interventions: Interventions { policies: vec![Json::object()], ..Interventions::default() },
            provenance: Provenance::tool(),
            added: Vec::new(),
            started: 0,
            duration_ms: 0,
            files: if choice.is_multiple_of(5) { vec![a_change()] } else { Vec::new() },
            note: Box::default(),
            states: Vec::new(),
            terminate: choice == 255,
            jump,
        });
        self.give(MachineInput::ToolDone { run, slot, done });
    }

    /// Some node of the session, where it would say something to itself; `None` while the session is still to be stored,
    /// and only calls of a run that is over end.
    fn jump(&mut self, run: &RunId, choice: u8) -> Option<Box<ToolJump>> {
        let head = self.machine.head()?;
        let lineage = self.lineage(head);
        let session = self.machine.session();
        let begins = |(_, entry): &(NodeId, Entry)| match entry {
            Entry::Session(start) => start.session == *session,
            _ => false,
        };
        let first = lineage.iter().rposition(begins)?;
        let own = &lineage[first..];
        let to = own[usize::from(choice) % own.len()].0;
        let fresh = RunId::from(format!("t{}", self.sent));
        let spent = self.spent.get(run).copied().unwrap_or_default();
        self.spent.insert(fresh.clone(), spent);
        let files = choice.is_multiple_of(3).then(Arc::default);
        let carryover = "I was there".into();
        Some(Box::new(ToolJump { run: fresh, to, carryover, log: Json::object(), files }))
    }

    fn play(&mut self, next: Move) {
        match next {
            Move::Prompt(choice) => {
                let when = [QueueMode::Now, QueueMode::Steer, QueueMode::FollowUp][usize::from(choice) % 3];
                let input = if choice == 7 {
                    UserInput::from(" ")
                } else {
                    UserInput::from(format!("say {}", self.sent))
                };
                self.command(Command::Prompt { input, when });
            }
            Move::Abort => self.command(Command::Abort { target: AbortTarget::Run }),
            Move::AbortTool(choice) => {
                let call = self
                    .tools
                    .get(usize::from(choice) % self.tools.len().max(1))
                    .map(|tool| tool.2.id.clone());
                self.command(Command::Abort {
                    target: AbortTarget::Tool(call.unwrap_or_else(|| "none".into())),
                });
            }
            Move::Unqueue => self.command(Command::Unqueue { items: Vec::new() }),
            Move::Unrecorded => {
                if let Some(call) = self.call.take_if(|call| call.fresh) {
                    let outcome = Outcome::StoreFailed("the disk is full".into());
                    self.give(MachineInput::CallNotMade { run: call.run, outcome });
                }
            }
            Move::Continue => self.command(Command::Continue),
            Move::Compact => self.command(Command::Compact { focus: None }),
            Move::Jump(which, sums) => {
                let mut ids: Vec<NodeId> = self.tree.keys().copied().collect();
                ids.sort();
                let to = ids.get(usize::from(which) % ids.len().max(1)).copied();
                let summary = sums.then(Summarize::default);
                let label = which.is_multiple_of(5).then(|| "here".to_owned());
                let files = match which % 3 {
                    0 => MoveFiles::Restore { overwrite: false },
                    _ => MoveFiles::Keep,
                };
                let to = to.unwrap_or(NodeId([9; 32]));
                match which % 7 {
                    0 => self.command(Command::Undo { steps: 1, files }),
                    1 => self.command(Command::Rename { name: "name".into() }),
                    2 => self.command(Command::Label { node: to, text: None }),
                    _ => self.command(Command::Jump { to, summary, label, files }),
                }
            }
            Move::Set(which) => {
                let id = ["m", "n", "o", "none"][usize::from(which) % 4].to_owned();
                let setting = match which % 5 {
                    0 => Setting::Thinking { level: quipu_protocol::Thinking::High },
                    1 => {
                        self.planning = !self.planning;
                        Setting::Plan { on: self.planning }
                    }
                    _ => Setting::Model { provider: "p".into(), id },
                };
                self.command(Command::Set { setting });
            }
            Move::Look => self.look(),
            Move::AbortCompaction => self.command(Command::Abort { target: AbortTarget::Compaction }),
            Move::Answer(which, yes) => {
                let ask = self.asks.get(usize::from(which) % self.asks.len().max(1)).cloned();
                let answer = if yes { Answer::once() } else { Answer::Deny { reason: None } };
                self.command(Command::Answer { ask: ask.unwrap_or_else(|| "none".into()), answer });
            }
            Move::Source => self.give(MachineInput::SourcesChanged),
            Move::Forget(which) => {
                let nodes = &self.machine.nodes;
                let node = nodes.get(usize::from(which) % nodes.len().max(1)).copied();
                self.forgotten.extend(node);
                self.give(MachineInput::Forgotten(node.into_iter().collect()));
                if self.machine.next.is_none() {
                    // What was recorded for it is taken back.
                    self.foreseen = None;
                }
            }
            Move::Refresh(choice) => self.refresh(choice),
            Move::Fallback(choice) => self.fall_back(choice),
            Move::Commit(choice) => self.commit(choice),
            Move::Stream => self.stream(),
            Move::Prepare(choice) => self.prepare(choice),
            Move::Tool(choice) => self.tool(choice),
            Move::End(choice) => self.decide_end(choice),
            Move::Askers(some) => self.give(MachineInput::Askers(usize::from(some))),
            Move::Policy => {
                self.policies += 1;
                let mode = Some(format!("mode {}", self.policies % 3));
                self.give(MachineInput::Policy(PolicyVersion { number: self.policies, mode }));
            }
            Move::Judge(choice) => {
                if let Some((run, ask, call, touches)) = self.judges.pop_front() {
                    let prepared = decided(choice, call, touches);
                    self.give(MachineInput::Judged { run, ask, prepared, policies: Vec::new() });
                }
            }
            Move::Shell(true) => {
                self.command(Command::Shell {
                    line: format!("ls {}", self.sent),
                    hidden: self.sent.is_multiple_of(3),
                });
            }
            Move::Shell(false) => self.shell_ends(),
            Move::Expire(which) => {
                if let Some(ask) = self.asks.get(usize::from(which) % self.asks.len().max(1)).cloned() {
                    self.give(MachineInput::AskExpired { ask });
                }
            }
        }
    }

    /// Sources say what they have; sometimes it is what they had.
    fn refresh(&mut self, choice: u8) {
        let Some((run, cancelled)) = self.refresh.take() else { return };
        let number = choice % 3;
        let refreshed = RefreshResult {
            system: number.to_string().into(),
            prompt: Some(BlobId([number; 32])),
            context: None,
            tools: Arc::new([]),
            tool_sources: Default::default(),
            blobs: Vec::new(),
        };
        let fails = cancelled || choice.is_multiple_of(11);
        self.give(MachineInput::Refreshed { run, result: (!fails).then(|| Box::new(refreshed)) });
    }

    /// The next model that can be called; sometimes there is none.
    fn fall_back(&mut self, choice: u8) {
        let Some(FallbackRequest { run, from, tried }) = self.fallback.take() else { return };
        let model = Model { id: format!("other-{from}"), ..(**tried.first().unwrap()).clone() };
        let model = (!choice.is_multiple_of(4)).then(|| Arc::new(model));
        let next = if model.is_some() { from + 1 } else { 2 };
        self.give(MachineInput::FallbackFound(run, FallbackResult { next, model, notes: Vec::new() }));
    }

    /// A line that was begun in the shell is done.
    fn shell_ends(&mut self) {
        let Some(run) = self.shells.pop() else { return };
        self.ran += 1;
        let end = match self.ran.is_multiple_of(4) {
            true => Err(ShellRunError::NotStarted { why: "no shell".into() }),
            false => Ok(ShellResult { output: "ok".into(), code: Some(0), cut: false, path: None }),
        };
        self.give(MachineInput::ShellOutput { run: run.clone(), tail: "o".into() });
        self.give(MachineInput::ShellEnded { run, end });
    }

    fn side_begins(&mut self) {
        if self.machine.head().is_none() || self.machine.closing.is_some() {
            return;
        }
        let (session, row) =
            (self.machine.session().clone(), RunId::from(format!("side{}", self.sided + self.sent)));
        self.sent += 1;
        self.steps.insert((session.clone(), row.clone(), "runner".into()));
        self.sides.push((session, row, self.machine.run().cloned()));
        self.give(MachineInput::SideBegun);
    }

    fn side_ends(&mut self) {
        let Some((session, row, run)) = self.sides.pop() else { return };
        self.sided += 1;
        let entry = Entry::Meta(Json::from(&serde_json::json!({ "type": "custom", "customType": "side" })));
        let (id, forget) = (row.clone(), PlanOp::Forget { run: row, session: Some(session) });
        let release = PlanOp::Release { id: "r".into(), charged: 0 };
        let (drafts, ops) = (vec![Draft::new(entry)], vec![forget, release]);
        self.give(MachineInput::SideEnded(Box::new(SideCall { id, run, cost: 0.0, drafts, ops })));
    }

    fn decide_end(&mut self, choice: u8) {
        if let Some(run) = self.starting.take() {
            let adds = choice.is_multiple_of(2);
            let prompt = adds.then(|| {
                let input = UserInput::from(format!("beside {}", self.sent));
                Box::new(HookPrompt { input, hooks: vec![Json::object()] })
            });
            return self.give(MachineInput::RunStartDecided { run, prompt });
        }
        let Some((run, again)) = self.ending.take() else { return };
        let wants = !self.finishing && !choice.is_multiple_of(3);
        let more = wants.then(|| {
            let input = UserInput::from(format!("go on {again}"));
            Box::new(HookPrompt { input, hooks: vec![Json::object()] })
        });
        self.give(MachineInput::RunEndDecided { run, more });
    }

    fn finish(&mut self) {
        self.finishing = true;
        for _ in 0..2000 {
            if !self.commits.is_empty() {
                self.commit(0);
            } else if self.call.is_some() || self.summary.is_some() {
                self.stream();
            } else if self.starting.is_some() || self.ending.is_some() {
                self.decide_end(0);
            } else if self.look.is_some() || self.clear.is_some() || self.moving.is_some() {
                self.look();
            } else if self.refresh.is_some() {
                self.refresh(1);
            } else if self.fallback.is_some() {
                self.fall_back(1);
            } else if !self.prepares.is_empty() {
                self.prepare(8);
            } else if !self.tools.is_empty() {
                self.tool(0);
            } else if let Some(ask) = self.asks.first().cloned() {
                self.give(MachineInput::AskExpired { ask });
            } else if !self.shells.is_empty() {
                self.shell_ends();
            } else if !self.sides.is_empty() {
                self.side_ends();
            } else {
                return;
            }
        }
        panic!("the machine never came to rest");
    }
}

fn answer(choice: u8, serial: u64, is_shell: bool) -> (VecDeque<CallEvent>, CallEnd) {
    let said = if is_shell { shell_profile::said(choice / 4) } else { "hello" };
    // There they are rare.
    let calls = if is_shell && choice % 16 != 1 { 0 } else { choice % 4 };
    let blank = AssistantMessage {
        content: Vec::new(),
        api: "a".into(),
        provider: "p".into(),
        model: "m".into(),
        usage: usage(choice / 3),
        stop_reason: StopReason::Stop,
        timestamp: 0,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    };
    let mut message = AssistantMessage { content: vec![Content::text(said)], ..blank.clone() };
    for place in 0..calls {
        message.content.push(Content::ToolCall(ToolCall {
            id: format!("c{serial}-{}", place % 2).into(),
            name: "t".into(),
            arguments: Json::object(),
            thought_signature: None,
            namespace: None,
        }));
        message.stop_reason = StopReason::ToolUse;
    }
    let mut events = VecDeque::new();
    let mut error = None;
    if choice % 11 == 10 {
        let why = ModelError::new(ModelErrorKind::Overloaded, "overloaded");
        if choice.is_multiple_of(2) {
            events.push_back(CallEvent::Started(Box::new(blank.clone())));
        }
        events.push_back(CallEvent::Retry { attempt: 2, delay: Duration::ZERO, error: why });
    }
    match choice % 13 {
        12 => error = Some(ModelError::new(ModelErrorKind::Server, "broken")),
        11 => message.stop_reason = StopReason::Length,
        10 if choice.is_multiple_of(3) => {
            error = Some(ModelError::new(ModelErrorKind::ContextOverflow, "too long"));
        }
        _ => {
            events.push_back(CallEvent::Started(Box::new(blank)));
            events.push_back(CallEvent::Delta(Delta::TextStarted { index: 0 }));
            events.push_back(CallEvent::Delta(Delta::Text { index: 0, text: said.into() }));
            events.push_back(CallEvent::Delta(Delta::TextEnded { index: 0 }));
        }
    }
    (events, CallEnd { message, error, attempts: Vec::new(), charges: Vec::new(), unknown: Vec::new() })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_order_of_events_keeps_the_laws(
        moves in moves(), jumps in prop::collection::vec((any::<u8>(), any::<bool>()), 0..6), prunes in any::<bool>(),
        sources in any::<bool>(), has_hooks in any::<bool>(), is_shell in any::<bool>(),
    ) {
        let start = Start { has_hooks, ..if prunes { pruning() } else { start() } };
        let start = if is_shell { in_shell(start) } else { start };
        let mut world = World::of(if sources { with_sources(start) } else { start });
        for (at, next) in moves.into_iter().enumerate() {
            world.seed = world.seed.wrapping_add(u8::try_from(at % 251).unwrap());
            world.play(next);
        }
        world.finish();
        world.laws.finish().unwrap();
        prop_assert!(world.machine.run().is_none());
        prop_assert!(world.replies.values().all(|count| *count == 1), "each command is answered once: {:?}", world.replies);
        let conversation = quipu_transcript::project_messages(world.machine.messages.iter().cloned());
        quipu_transcript::check_conversation(&conversation).unwrap();
        prop_assert_eq!(world.machine.messages.len(), world.machine.nodes.len(), "each message has its node");
        let waiting = world.machine.steering.iter().chain(&world.machine.follow_up);
        let mut waiting: Vec<_> = waiting.map(|item| (item.session.clone(), item.id.clone())).collect();
        waiting.sort();
        world.inbox.sort();
        prop_assert_eq!(&world.inbox, &waiting, "the queues are what is stored");
        // The next prompt works whatever happened before; where the queue and a compaction take its money, the one after.
        world.command(Command::Prompt { input: "again".into(), when: QueueMode::Now });
        world.finish();
        if world.spent.values().any(|spent| *spent >= MAX_COST) && conversation_end(&world).is_none() {
            world.command(Command::Prompt { input: "and again".into(), when: QueueMode::Now });
            world.finish();
        }
        world.laws.finish().unwrap();
        prop_assert!(matches!(conversation_end(&world).as_deref(), Some("hello" | "exit")));
        prop_assert!(!world.machine.pending_self_message, "what the session said to itself is answered");
        prop_assert!(!world.waits.contains(world.machine.session()));
        prop_assert!(world.steps.is_empty(), "steps that are nodes are rows no more: {:?}", world.steps);
        prop_assert_eq!(world.summaries.0, world.summaries.1, "each summary that was paid for is told");
        let is_shell = |entry: &Entry| matches!(entry, Entry::Message(Message::BashExecution(_)));
        let by_hand = world.tree.values().filter(|(_, entry)| is_shell(entry));
        prop_assert_eq!(by_hand.count() as u64, world.ran, "what was run by hand is a node, once");
        world.is_as_resumed();
        for (which, sums) in jumps {
            world.play(Move::Jump(which, sums));
            world.finish();
            world.is_as_resumed();
        }
        world.laws.finish().unwrap();
        prop_assert_eq!(world.summaries.0, world.summaries.1);
    }

    #[test]
    fn calls_beside_the_conversation_become_nodes_once(
        moves in moves(), sides in prop::collection::vec(0_u8..4, 0..120), closes in any::<bool>(),
    ) {
        let mut world = World::of(start());
        let mut sides = sides.into_iter();
        for next in moves {
            world.play(next);
            match sides.next() {
                Some(0) => world.side_begins(),
                Some(1) => world.side_ends(),
                Some(_) | None => {}
            }
        }
        if closes {
            world.command(Command::Close);
        }
        world.finish();
        // What could not be written goes with the next commit.
        let is_owed = !world.machine.unsaved.is_empty() || !world.machine.deferred_ops.is_empty();
        if is_owed && !closes {
            world.command(Command::Prompt { input: "again".into(), when: QueueMode::Now });
            world.finish();
        }
        world.laws.finish().unwrap();
        let is_side = |entry: &Entry| matches!(entry, Entry::Meta(json) if json.get().contains("\"side\""));
        let kept = world.tree.values().filter(|(_, entry)| is_side(entry)).count() as u64;
        let waiting = world.machine.unsaved.iter().filter(|draft| is_side(&draft.entry)).count() as u64;
        // Those that ended since the last commit are rows until the next one, or until the session ends.
        let rests: Vec<_> = world.machine.sides.waiting().iter().map(|call| call.id.clone()).collect();
        let over = world.sided - rests.len() as u64;
        prop_assert_eq!((kept, waiting, world.released), (over, 0, over), "each is a node and free, once");
        prop_assert!(!closes || rests.is_empty(), "none is left behind: {:?}", rests);
        prop_assert_eq!(world.steps.len(), rests.len(), "only these are rows: {:?}", world.steps);
        prop_assert_eq!(world.stopped, u32::from(closes), "the session waits for them");
        if !closes && world.refs.contains_key(world.machine.session()) {
            world.is_as_resumed();
        }
    }

    #[test]
    fn closing_at_any_moment_ends_the_session_once(
        moves in moves(), prunes in any::<bool>(), has_hooks in any::<bool>(),
    ) {
        let mut world = World::of(Start { has_hooks, ..if prunes { pruning() } else { start() } });
        for next in moves {
            world.play(next);
        }
        world.command(Command::Close);
        world.command(Command::Prompt { input: "late".into(), when: QueueMode::Steer });
        world.finish();
        world.laws.finish().unwrap();
        prop_assert_eq!(world.stopped, 1);
        prop_assert!(world.replies.values().all(|count| *count == 1), "each command is answered once: {:?}", world.replies);
        let said = world.machine.unsaved.iter().any(|draft| matches!(&*draft.entry, Entry::Message(_)));
        prop_assert!(!said && world.steps.is_empty(), "what an earlier commit could not keep is kept: {:?}", world.steps);
        prop_assert!(world.machine.shells.is_empty(), "what was run by hand is a node");
    }
}

/// Or the laws above would say nothing of it. What all of them did is drawn in the documents.
#[test]
fn some_orders_of_events_take_the_session_elsewhere() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut departures, mut steps_taken) = (0, std::collections::BTreeSet::new());
    for round in 0..3_200 {
        let tree = moves().new_tree(&mut runner).unwrap();
        let has_hooks = round % 3 == 0;
        let start = Start { has_hooks, ..if round % 4 == 3 { pruning() } else { start() } };
        let mut world = World::of(if round % 4 == 1 { with_sources(start) } else { start });
        for (at, next) in proptest::strategy::ValueTree::current(&tree).into_iter().enumerate() {
            world.seed = world.seed.wrapping_add(u8::try_from(at % 251).unwrap());
            world.play(next);
        }
        world.finish();
        departures += world.departures;
        steps_taken.append(&mut world.steps_taken);
    }
    assert!(departures > 2, "{departures}");
    diagram::is_documented(&steps_taken);
}

fn conversation_end(world: &World) -> Option<String> {
    match quipu_transcript::project_messages(world.machine.messages.iter().cloned())
        .last()
        .map(|message| &**message)
    {
        Some(Message::Assistant(answer)) => Some(answer.text()),
        _ => None,
    }
}

#[test]
fn failed_unqueue_leaves_item_in_inbox_of_branch() {
    let mut world = World::new();
    world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
    world.commit(255);
    world.command(Command::Prompt { input: "and this".into(), when: QueueMode::Steer });
    world.commit(255);
    while world.commits.is_empty() {
        world.stream();
    }
    // The ref was moved: what is queued goes along, while somebody takes it back and the store refuses that.
    world.commit(8);
    world.command(Command::Unqueue { items: Vec::new() });
    world.commit(255);
    world.commit(0);
    world.finish();
    assert_eq!(world.inbox, Vec::new(), "it was said, and waits no more");
    world.laws.finish().unwrap();
}

fn record() -> CallRecord {
    CallRecord {
        api: "a".into(),
        provider: "p".into(),
        model: "m".into(),
        local: true,
        projection: 1,
        head: NodeId([1; 32]),
        system: None,
        tools: quipu_protocol::ChunkId([2; 32]),
        body: quipu_protocol::ChunkId([3; 32]),
        body_bytes: 1,
        before_hooks: None,
        headers: std::collections::BTreeMap::new(),
        removed_headers: Vec::new(),
        started: 1,
        first_token_ms: None,
        duration_ms: None,
        attempts: Vec::new(),
    }
}

#[test]
fn a_run_that_was_stopped_pays_for_no_summary() {
    for stops in [false, true] {
        let mut world = World::new();
        // Until a context of 48 tokens is full before its next call.
        for _ in 0..20 {
            world.seed = 0;
            world.command(Command::Prompt {
                input: "so many words to say again and again".into(),
                when: QueueMode::Now,
            });
            if world.machine.compaction_is_due() {
                break;
            }
            world.finish();
            world.finishing = false;
        }
        assert!(world.machine.compaction_is_due());
        if stops {
            world.command(Command::Abort { target: AbortTarget::Run });
        }
        world.commit(255);
        assert_eq!((world.summary.is_some(), world.machine.run().is_none()), (!stops, stops));
        world.finish();
        world.laws.finish().unwrap();
    }
}

#[test]
fn old_results_are_pruned_and_restored_from_their_record() {
    let mut world = World::of(pruning());
    let mut pruned = 0;
    for turn in 0..12 {
        world.seed = 63;
        world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
        for _ in 0..40 {
            if let Some((Tag::Pruned, ..)) = world.commits.front() {
                pruned += 1;
                // The store is full once: the run ends, and requests hold what they held.
                if turn == 3 {
                    let before = world.machine.messages.clone();
                    world.commit(0);
                    assert_eq!((world.machine.run(), &world.machine.messages), (None, &before));
                    assert!(world.machine.unsaved.is_empty());
                }
            }
            if world.machine.run().is_none() {
                break;
            }
            world.commit(255);
            world.stream();
            world.prepare(READS);
            world.tool(0);
        }
        world.finish();
        world.finishing = false;
    }
    assert!(pruned > 2, "{pruned}");
    let left_out = |one: &Arc<Message>| matches!(&**one, Message::ToolResult(result) if result.content[0].as_text().unwrap().starts_with("[This result"));
    assert!(world.machine.messages.iter().any(left_out));
    world.laws.finish().unwrap();
}
