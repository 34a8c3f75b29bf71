//! Tools as effects: looked up, validated, approved; then run on the true values and sealed.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::mailbox;
use futures_util::FutureExt as _;
use quipu_protocol::{
    Content, Json, KillReason, Notice, Provenance, RunId, SessionId, ToolCall, ToolResultMessage, ToolSpec,
};
use quipu_store::StoreError;
use quipu_tools::{
    BackgroundCommands, BackgroundTool, Invocation, Preparation, Tool, ToolContext, ToolOutput, Touches,
};
use quipu_workspace::{Access, Approval, OutputPlace};
use tokio_util::sync::CancellationToken;

use crate::bound_files::ShownPrograms;
use crate::calls::{ContentSize, seal_content};
use crate::files::{CallBaseline, CallPlace, CommandChanges, FileSnapshotter};
use crate::hooks::{HookEffect, HookRecord, HookedCall, Hooks, MoveRequest, kept};
use crate::policies::{ChainResult, DecidedCall, Policies, command_of};
use crate::policy::Proposal;
use crate::sources::ToolSet;
pub(crate) use crate::toolbox_parts::ToolboxParts;
use crate::travel::{PlannedJump, SessionView, Tobe, Travel};
use quipu_machine::{CheckedCall, FinishedCall, Interventions, KillError, MachineInput};
use quipu_transcript::WorkspaceNote;

/// How long a cancelled tool may take to come back before it is dropped.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of a file that are read to learn a secret that a placeholder stands for.
const LEARN_LIMIT: u64 = 16 << 20;

/// Bytes of one result at most, text, images and details together.
const RESULT_LIMIT: usize = 64 << 20;
/// The result for the model when a tool panicked.
const BROKE_DOWN: &str =
    "The tool panicked, and whether it took effect is unknown. This is a bug in the tool.";

/// The result for the model when a tool or a policy panicked over a call.
const NOT_PREPARED: &str =
    "The call was not run: the check before it panicked. This is a bug in the tool or in the policy.";

/// The result for the model when the state of a file could not be stored.
const NOT_KEPT: &str = "The call was not run, because the previous content of the file could not be stored";

/// A notice for people, once for a session; the reason follows.
const OPEN_TO_COMMANDS: &str = "Commands of this session do not run in namespaces: they can use the network, sockets \
                                with a path, secrets in your home directory, git's configuration and most caches";

/// What is known of the changes of a call where what files were is not kept.
const NOT_WATCHED: &str = "changes by tools are not saved, because `files.enabled` is false";

/// The result for the model of calls behind one that would go elsewhere, whether that goes or not.
const BEHIND_TOBE: &str =
    "The call was not run: calls after `tobe` in the same answer do not run. Repeat it if you still need it.";

/// The result for the model when the rules changed just before its call was to begin.
const RULES_CHANGED: &str = "The call was not run, because the user changed the permissions just then. Repeat it if \
                             you still need it.";

/// The tools of a session and what they may use.
pub(crate) struct Toolbox {
    tools: Mutex<Arc<ToolSet>>,
    /// Tools that went away, whose calls of this run may have left something running.
    retired: Mutex<Option<RetiredTools>>,
    pub(crate) parts: ToolboxParts,
    /// Where the session stands, for tools that look at the graph.
    pub(crate) standing: SessionView,
    /// Looks at the files that calls change.
    pub(crate) snapshotter: Option<Arc<FileSnapshotter>>,
    /// The files of the calls of the current batch, as they were when these were decided: what may be opened beyond the
    /// policy's bounds, once it is approved.
    shown: Mutex<HashMap<String, Vec<Approval>>>,
    /// The programs of commands as they were then.
    pub(crate) programs: ShownPrograms,
    /// The policy's rules by which the current batch was decided.
    pub(crate) decided_by: AtomicU64,
    /// What takes the session elsewhere, where the model may.
    tobe: Option<Arc<Tobe>>,
    /// The call of the current batch that would, and where.
    planned_jump: Mutex<Option<(String, PlannedJump)>>,
    pub(crate) hooks: Hooks,
    /// The chain of policies, where there are others than the permissions.
    pub(crate) policies: Option<Policies>,
    pub(crate) background: BackgroundCommands,
    /// What hooks and policies did to the calls of the current batch.
    hooked: Mutex<HashMap<String, CallInterventions>>,
    /// The hook whose words the current answer is, where it is not the model's.
    answered_by: Mutex<Option<Provenance>>,
}

/// A call that is valid and on which the permissions decided; or the reason for the model why it does not run.
pub(crate) type LookupResult = Result<DecidedCall, CallRefusal>;

/// The text for the model instead of a result.
pub(crate) struct CallRefusal(String);

impl From<&str> for CallRefusal {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Tools that went away in a run.
type RetiredTools = (RunId, Vec<Arc<dyn Tool>>);

/// What hooks and policies did to a call.
#[derive(Clone, Default)]
pub(crate) struct CallInterventions {
    /// What a person is asked before it runs, whatever the policy says.
    question: Option<String>,
    records: Vec<HookRecord>,
    policies: Vec<Json>,
    /// What steps behind the permissions want to be asked, in the question that a person was shown last.
    pub(crate) questions: Vec<String>,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox")
            .field("tools", &self.set().names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Toolbox {
    pub(crate) fn new(
        tools: Arc<ToolSet>,
        parts: ToolboxParts,
        standing: SessionView,
        snapshotter: Option<FileSnapshotter>,
        tobe: Option<Arc<Tobe>>,
        (hooks, policies): (Hooks, Option<Policies>),
        background: BackgroundCommands,
    ) -> Self {
        let (tools, retired) = (Mutex::new(tools), Mutex::default());
        let snapshotter = snapshotter.map(Arc::new);
        let (shown, planned_jump) = (Mutex::default(), Mutex::default());
        let decided_by = AtomicU64::new(0);
        let (hooked, answered_by) = (Mutex::default(), Mutex::default());
        Self {
            tools,
            retired,
            parts,
            standing,
            snapshotter,
            shown,
            programs: ShownPrograms::default(),
            decided_by,
            tobe,
            planned_jump,
            hooks,
            policies,
            background,
            hooked,
            answered_by,
        }
    }

    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        self.set().specs().clone()
    }

    pub(crate) fn set(&self) -> Arc<ToolSet> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.set().get(name).cloned()
    }

    /// These are the tools from now on. Calls that run are not touched.
    pub(crate) fn use_tools(&self, tools: &Arc<ToolSet>, run: Option<&RunId>) {
        let before =
            std::mem::replace(&mut *self.tools.lock().unwrap_or_else(PoisonError::into_inner), tools.clone());
        let Some(run) = run else { return };
        let stays = |tool: &Arc<dyn Tool>| tools.all().any(|one| Arc::ptr_eq(one, tool));
        let went: Vec<Arc<dyn Tool>> = before.all().filter(|tool| !stays(tool)).cloned().collect();
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *retired {
            Some((of, tools)) if of == run => tools.extend(went),
            _ => *retired = Some((run.clone(), went)),
        }
    }

    pub(crate) fn context(
        &self,
        run: &RunId,
        cancel: CancellationToken,
        progress: Arc<dyn Fn(&str) + Send + Sync>,
        access: Access,
    ) -> ToolContext {
        ToolContext {
            session: self.session(),
            run: run.clone(),
            cwd: self.parts.cwd.clone(),
            env: self.parts.env.clone(),
            outputs: self.output_place(),
            progress,
            cancel,
            sees_images: self.parts.sees_images.load(Ordering::Relaxed),
            access,
            sandbox: self.parts.policy.sandbox(),
            background: self.find(BackgroundTool::NAME).map(|_| self.background.clone()),
        }
    }

    /// The session: it stands somewhere before its first call.
    fn session(&self) -> Option<SessionId> {
        self.standing.get().map(|view| view.borrow().session.clone())
    }

    /// Where whole outputs of the session go.
    pub(crate) fn output_place(&self) -> OutputPlace {
        self.parts.outputs.place(&self.session().unwrap_or_else(|| "".into()), &self.parts.sealer)
    }

    pub(crate) fn shown(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Approval>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hooked(&self) -> std::sync::MutexGuard<'_, HashMap<String, CallInterventions>> {
        self.hooked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Validation, then the permissions, on each call. Reads only. With what a tool does meanwhile for a call that is
    /// allowed and alone; between several, one may change what another finds when it begins.
    pub(crate) fn prepare(
        &self,
        run: &RunId,
        calls: &[HookedCall],
    ) -> (Vec<LookupResult>, Option<Preparation>) {
        self.shown().clear();
        self.programs.clear();
        self.hooked().clear();
        *self.planned_jump() = None;
        if let Some(policies) = &self.policies {
            policies.forget_askers();
        }
        // Before anything is decided: what changes meanwhile is found when a call begins.
        self.decided_by.store(self.rules(), Ordering::SeqCst);
        let cx = self.context(run, CancellationToken::new(), Arc::new(|_| {}), Access::default());
        let broke_down = |_| Err(CallRefusal::from(NOT_PREPARED));
        let one = |hooked| {
            catch_unwind(AssertUnwindSafe(|| self.prepare_one(hooked, &cx))).unwrap_or_else(broke_down)
        };
        let leaves = |one: &HookedCall| self.tobe.is_some() && one.call.name == Tobe::NAME;
        let up_to = calls.iter().position(leaves).map_or(calls.len(), |at| at + 1);
        let (run, behind) = calls.split_at(up_to);
        let behind = behind.iter().map(|_| Err(CallRefusal::from(BEHIND_TOBE)));
        let looked: Vec<LookupResult> = run.iter().map(one).chain(behind).collect();
        let preparation = match looked.as_slice() {
            [Ok(decided)] if decided.is_ready() => self.find(&decided.call.name).and_then(|tool| {
                let DecidedCall { call, touches, .. } = decided;
                let call = Invocation { id: call.id.clone(), args: call.arguments.clone() };
                let own = self.preparation(&*tool, &call, &cx);
                self.with_prefetch(own, touches)
            }),
            _ => None,
        };
        (looked, preparation)
    }

    /// What a tool gets ready, and a look at what the call may change.
    fn with_prefetch(&self, own: Option<Preparation>, touches: &Touches) -> Option<Preparation> {
        let Some(snapshotter) = self.snapshotter.clone() else { return own };
        let look: Preparation = match touches {
            Touches::Anything => Box::new(move || snapshotter.ahead()),
            Touches::Writes(paths) => {
                let (paths, access) = (paths.clone(), self.parts.policy.access());
                Box::new(move || snapshotter.ahead_of(&paths, &access))
            }
            Touches::Nothing | Touches::Reads(_) | Touches::Input(_) | Touches::Session => return own,
        };
        Some(Box::new(move || {
            if let Some(own) = own {
                own();
            }
            look();
        }))
    }

    fn prepare_one(&self, hooked: &HookedCall, cx: &ToolContext) -> LookupResult {
        let HookedCall { call, blocked, question, records } = hooked;
        if let Some(reason) = blocked {
            return Err(CallRefusal(reason.clone()));
        }
        let tools = self.set();
        let tool = tools.get(&call.name).ok_or_else(|| CallRefusal(tools.missing(&call.name)))?;
        let arguments = quipu_tools::validate(tool.spec(), &call.arguments)
            .map_err(|error| CallRefusal(error.to_string()))?;
        let call = ToolCall { arguments, ..call.clone() };
        if question.is_some() || !records.is_empty() {
            let (question, records) = (question.clone(), records.clone());
            let hooked = CallInterventions { question, records, ..CallInterventions::default() };
            self.hooked().insert(identity(&call), hooked);
        }
        let travel = match self.tobe.as_ref().filter(|_| call.name == Tobe::NAME) {
            Some(tobe) => Some(self.plan_jump(tobe, &call).map_err(CallRefusal)?),
            None => None,
        };
        let touches = self.sealed(tool.touches(&call.arguments.value(), cx));
        // Looked at first: what comes to be another file while it is decided is found when the call begins.
        self.show(&call, &touches);
        Ok(self.decide(call, touches, travel))
    }

    /// What is approved is what runs: these files as they are now, wherever their names lead by then.
    pub(crate) fn show(&self, call: &ToolCall, touches: &Touches) {
        let files = files(touches).iter().cloned().map(Approval::of).collect();
        self.shown().insert(identity(call), files);
        if let Some(command) = command_of(call).filter(|_| *touches == Touches::Anything) {
            self.programs.show(identity(call), &command, &self.parts.cwd);
        }
    }

    /// Asks the permissions.
    fn decide(&self, call: ToolCall, touches: Touches, travel: Option<Travel>) -> DecidedCall {
        let (cwd, policy) = (&self.parts.cwd, &self.parts.policy);
        let proposal = Proposal { call: &call, cwd, touches: &touches, travel: travel.as_ref() };
        let decision = policy.decide(&proposal);
        let hook_asks = self.hooked().get(&identity(&call)).and_then(|hooked| hooked.question.clone());
        match &self.policies {
            None => DecidedCall::alone(call, touches, decision, hook_asks),
            Some(policies) => policies.begin((call, touches), decision, hook_asks, travel),
        }
    }

    /// Asks the permissions once more of a call that was prepared.
    pub(crate) fn judge(&self, call: &ToolCall, touches: &Touches) -> LookupResult {
        let planned = |(planned, planned_jump): &(String, PlannedJump)| {
            (*planned == identity(call)).then(|| planned_jump.travel.clone())
        };
        let travel = self.planned_jump().as_ref().and_then(planned);
        let decide = || self.decide(call.clone(), touches.clone(), travel);
        catch_unwind(AssertUnwindSafe(decide)).map_err(|_| NOT_PREPARED.into())
    }

    /// What becomes of a call, where there are no policies but the permissions.
    pub(crate) fn prepared(&self, looked: LookupResult) -> CheckedCall {
        let prepared = || match looked {
            Ok(decided) => decided.prepared(&*self.parts.policy),
            Err(CallRefusal(text)) => CheckedCall::Refused(text),
        };
        catch_unwind(AssertUnwindSafe(prepared)).unwrap_or_else(|_| CheckedCall::Refused(NOT_PREPARED.into()))
    }

    /// The same with the policies behind them.
    pub(crate) async fn conclude(
        &self,
        run: &RunId,
        looked: LookupResult,
        cancel: &CancellationToken,
        people: &mailbox::Sender<MachineInput>,
    ) -> ChainResult {
        let Some(policies) = &self.policies else { return ChainResult::of(self.prepared(looked)) };
        let decided = match looked {
            Ok(decided) => decided,
            Err(CallRefusal(text)) => return ChainResult::of(CheckedCall::Refused(text)),
        };
        let (named, origin) = (identity(&decided.call), self.origin_of(&decided.call));
        let work = AssertUnwindSafe(policies.conclude(run, decided, &origin, cancel)).catch_unwind();
        let broke_down = |_| ChainResult::of(CheckedCall::Refused(NOT_PREPARED.into()));
        let mut concluded = work.await.unwrap_or_else(broke_down);
        tell(people, std::mem::take(&mut concluded.notices)).await;
        if !concluded.records.is_empty() {
            self.keep_records(named, &concluded.records);
        }
        concluded
    }

    /// A person is about to be asked about a call: a yes covers these questions of the steps behind the permissions.
    pub(crate) fn shows(&self, ChainResult { prepared, questions, .. }: &ChainResult) {
        if let CheckedCall::Ask { call, .. } = prepared
            && !questions.is_empty()
        {
            self.hooked().entry(identity(call)).or_default().questions.clone_from(questions);
        }
    }

    /// Keeps what policies decided until the call is done. Models repeat whole calls, and what is decided again may be what
    /// was decided before.
    fn keep_records(&self, named: String, records: &[Json]) {
        let mut hooked = self.hooked();
        let kept = &mut hooked.entry(named).or_default().policies;
        for record in records {
            if !kept.contains(record) {
                kept.push(record.clone());
            }
        }
    }

    /// Who made a call.
    fn origin_of(&self, call: &ToolCall) -> Provenance {
        let hooked = self.hooked();
        let records = hooked.get(&identity(call)).map(|hooked| &*hooked.records).unwrap_or_default();
        let changed = records.iter().rev().find(|record| record.did == HookEffect::Replaced);
        let answered = || self.answered_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match changed {
            Some(record) => Provenance::hook(&record.hook),
            None => answered().unwrap_or_else(Provenance::model),
        }
    }

    /// Whose words the answer is whose calls come next.
    pub(crate) fn answered_by(&self, hook: Option<Provenance>) {
        *self.answered_by.lock().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// Which rules the policy goes by now. One that fails inside decides each call anew.
    pub(crate) fn rules(&self) -> u64 {
        let look = AssertUnwindSafe(|| self.parts.policy.version().number);
        catch_unwind(look).unwrap_or(u64::MAX)
    }

    /// Looks at where a call would take the session. Blocks.
    fn plan_jump(&self, tobe: &Arc<Tobe>, call: &ToolCall) -> Result<Travel, String> {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return Err(NOT_PREPARED.into());
        };
        let planned_jump = runtime.block_on(tobe.plan(&call.arguments))?;
        let travel = planned_jump.travel.clone();
        *self.planned_jump() = Some((identity(call), planned_jump));
        Ok(travel)
    }

    fn planned_jump(&self) -> std::sync::MutexGuard<'_, Option<(String, PlannedJump)>> {
        self.planned_jump.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was approved of a call that takes the session elsewhere.
    fn take_planned_jump(&self, call: &ToolCall) -> Option<PlannedJump> {
        self.planned_jump()
            .take_if(|(planned, _)| *planned == identity(call))
            .map(|(_, planned_jump)| planned_jump)
    }

    /// Runs a prepared call and seals what it returns.
    pub(crate) async fn run(
        &self,
        place: CallPlace,
        slot: usize,
        (call, touches, approved): (ToolCall, Touches, bool),
        cancel: CancellationToken,
        outputs: mailbox::Sender<MachineInput>,
    ) -> MachineInput {
        let by = self.rules();
        let held = self.held(&place.run, (&call, &touches, approved), &cancel, &outputs).await;
        if let Some(ChainResult { prepared, records: policies, .. }) = held {
            return MachineInput::ToolHeld { run: place.run, slot, prepared, policies };
        }
        let started = self.parts.clock.now();
        let watch = Instant::now();
        let mut noticed = CommandChanges::default();
        let (stop, people) = (cancel.clone(), outputs.clone());
        let CallInterventions { records: mut hooks, policies, .. } =
            self.hooked().get(&identity(&call)).cloned().unwrap_or_default();
        let (output, jump) = match self.take_planned_jump(&call) {
            Some(planned_jump) => {
                match self.hinders(&place.run, &planned_jump, &stop, &people, &mut hooks).await {
                    Some(why) => (ToolOutput::error(why), None),
                    None => planned_jump.begin(),
                }
            }
            None => (self.output(&place, slot, (&call, by), cancel, outputs, &mut noticed).await, None),
        };
        let CommandChanges { files, states, note, .. } = noticed;
        let ToolOutput { mut content, details, is_error, terminate } = limited(output);
        seal_content(&mut content, &self.parts.sealer);
        let details = details.map(|details| self.parts.sealer.seal_json(&details));
        let mut result = ToolResultMessage {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content,
            details,
            usage: None,
            is_error,
            timestamp: self.parts.clock.now(),
        };
        let (mut provenance, mut added) = (Provenance::tool(), Vec::new());
        // Its output goes with the session that leaves.
        if !self.hooks.is_empty() && jump.is_none() {
            let hooked = self.hooks.tool_result(&place.run, &call, &mut result, &stop).await;
            hooks.extend(hooked.records);
            (provenance, added) = (hooked.provenance.unwrap_or(provenance), hooked.added);
            tell(&people, hooked.notices).await;
            if let Some(bytes) = excess(&result.content, result.details.as_ref()) {
                let text = format!(
                    "The tool ran, but hooks changed its result to {bytes} bytes. The limit is {RESULT_LIMIT}, so the \
                     result was dropped."
                );
                (result.content, result.details, result.is_error) = (vec![Content::text(text)], None, true);
                (provenance, added) = (Provenance::quipu(), Vec::new());
            }
        }
        let done = FinishedCall {
            result,
            interventions: Interventions { hooks: kept(&hooks), policies },
            provenance,
            added,
            started,
            duration_ms: u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX),
            files,
            states,
            note: Box::new(note),
            terminate,
            jump,
        };
        MachineInput::ToolDone { run: place.run, slot, done: Box::new(done) }
    }

    /// Why hooks do not let a call take the session elsewhere.
    async fn hinders(
        &self,
        run: &RunId,
        planned_jump: &PlannedJump,
        stop: &CancellationToken,
        people: &mailbox::Sender<MachineInput>,
        records: &mut Vec<HookRecord>,
    ) -> Option<String> {
        if self.hooks.is_empty() {
            return None;
        }
        let request = MoveRequest::Tobe { to: planned_jump.travel.target };
        let hooked = self.hooks.before_move(Some(run), &request, stop).await;
        tell(people, hooked.notices).await;
        records.extend(hooked.records);
        if stop.is_cancelled() { Some("Operation aborted".to_owned()) } else { hooked.value }
    }

    /// The session ends.
    pub(crate) async fn close(&self) {
        self.background.close().await;
        if let Some(snapshotter) = &self.snapshotter {
            snapshotter.close().await;
        }
    }

    /// Ends all that the calls of a run left running.
    pub(crate) async fn kill_children(self: &Arc<Self>, run: &RunId) -> Result<(), KillError> {
        let (toolbox, run) = (self.clone(), run.clone());
        let work = move || {
            toolbox.set().all().for_each(|tool| tool.end_run(&run));
            let retired = toolbox.retired.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some((of, tools)) = retired.filter(|(of, _)| *of == run) {
                tools.iter().for_each(|tool| tool.end_run(&of));
            }
        };
        self.background.kill_all(KillReason::Move).await;
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| KillError::StillRunning)
    }

    async fn output(
        &self,
        place: &CallPlace,
        slot: usize,
        (call, by): (&ToolCall, u64),
        cancel: CancellationToken,
        outputs: mailbox::Sender<MachineInput>,
        noticed: &mut CommandChanges,
    ) -> ToolOutput {
        let tools = self.set();
        let Some(tool) = tools.get(&call.name) else {
            return ToolOutput::error(tools.missing(&call.name));
        };
        let people = outputs.clone();
        let (sealer, owner) = (self.parts.sealer.clone(), place.run.clone());
        let progress = Arc::new(move |tail: &str| {
            let tail = sealer.seal(tail).into();
            // A tail that finds the mailbox full is left out: a newer one follows, and the result holds all.
            drop(outputs.try_send(MachineInput::ToolOutput { run: owner.clone(), slot, tail }));
        });
        let approved = self.shown().get(&identity(call)).cloned().unwrap_or_default();
        let access = self.parts.policy.access().approving(approved);
        let mut cx = self.context(&place.run, cancel.clone(), progress, access);
        let args = match self.unseal(tool.as_ref(), call, &cx).await {
            Ok(args) => args,
            Err(text) => return ToolOutput::error(text),
        };
        let touches = tool.touches(&args.value(), &cx);
        if self.snapshotter.is_none()
            && matches!(touches, Touches::Anything | Touches::Input(_) | Touches::Writes(_))
        {
            noticed.note = WorkspaceNote::unknown(NOT_WATCHED);
        }
        let is_command = self.fit_context(&mut cx, &touches, &people).await;
        let is_background = call.name == BackgroundTool::NAME;
        let begun = match self.begin(place, call, touches, &cx.access, &people).await {
            Ok(begun) => begun,
            Err(error) => return ToolOutput::error(format!("{NOT_KEPT}: {error}")),
        };
        let call = Invocation { id: call.id.clone(), args };
        // A tool that breaks down must not leave the run waiting for ever.
        let work = async {
            // What it may do was found out by these rules, and looking at the files may have taken a while.
            if self.rules() == by { tool.run(call, &cx).await } else { ToolOutput::error(RULES_CHANGED) }
        };
        let work = AssertUnwindSafe(work).catch_unwind();
        let overdue = async {
            cancel.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let output = tokio::select! {
            output = work => output.unwrap_or_else(|_| ToolOutput::error(BROKE_DOWN)),
            () = overdue => ToolOutput::error("Operation aborted (the tool did not stop in time and was dropped)"),
        };
        if is_command && let Some(why) = cx.sandbox.as_ref().and_then(|sandbox| sandbox.lacks_namespaces()) {
            tell(&people, Some(format!("{OPEN_TO_COMMANDS} ({why})."))).await;
        }
        if let (Some(snapshotter), Some(begun)) = (&self.snapshotter, begun) {
            *noticed = if begun.is_command {
                let mut noticed = snapshotter.after_command(place).await;
                tell(&people, noticed.notice.take()).await;
                noticed
            } else {
                let (files, states) = snapshotter.after(place, begun, &cx.access).await;
                CommandChanges { files, states, ..CommandChanges::default() }
                    .with(snapshotter.background_changes(place.run.clone()).await)
            };
        } else if is_background && let Some(snapshotter) = &self.snapshotter {
            *noticed = snapshotter.background_changes(place.run.clone()).await;
        }
        output
    }

    /// Looks at the files that the call may change.
    async fn begin(
        &self,
        place: &CallPlace,
        call: &ToolCall,
        touches: Touches,
        access: &Access,
        people: &mailbox::Sender<MachineInput>,
    ) -> Result<Option<CallBaseline>, StoreError> {
        match (&self.snapshotter, touches) {
            (Some(snapshotter), Touches::Anything | Touches::Input(_)) => {
                tell(people, snapshotter.before_command(place, call).await?).await;
                Ok(Some(CallBaseline::command()))
            }
            (Some(snapshotter), Touches::Writes(paths)) => {
                snapshotter.before(place, call, paths, access).await.map(Some)
            }
            (_, Touches::Nothing | Touches::Reads(_) | Touches::Writes(_) | Touches::Session)
            | (None, Touches::Anything | Touches::Input(_)) => Ok(None),
        }
    }

    /// The arguments with secrets put back. A placeholder from an earlier process is looked up in the files that
    /// the call touches.
    async fn unseal(&self, tool: &dyn Tool, call: &ToolCall, cx: &ToolContext) -> Result<Json, String> {
        if let Ok(arguments) = self.parts.sealer.unseal_json(&call.arguments) {
            return Ok(arguments);
        }
        if let Touches::Reads(paths) | Touches::Writes(paths) = tool.touches(&call.arguments.value(), cx) {
            for path in paths {
                self.learn(path).await;
            }
        }
        let unsealed = self.parts.sealer.unseal_json(&call.arguments);
        unsealed.map_err(|error| format!("The call was not run: {error}."))
    }

    async fn learn(&self, path: PathBuf) {
        let sealer = self.parts.sealer.clone();
        let read = tokio::task::spawn_blocking(move || {
            let found = quipu_workspace::read_whole(&path, LEARN_LIMIT, &CancellationToken::new());
            if let Ok((bytes, _)) = found {
                drop(sealer.seal(&String::from_utf8_lossy(&bytes)));
            }
        });
        // A file that cannot be read teaches nothing; the placeholder then stays unresolved and the call says so.
        drop(read.await);
    }
}

/// What people should know.
pub(crate) async fn tell(people: &mailbox::Sender<MachineInput>, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        // The session is over when nobody listens.
        drop(people.send(MachineInput::Notice(Notice::Note { text })).await);
    }
}

/// The output, or an error in its place: one that the store refuses would stop the session for good.
fn limited(output: ToolOutput) -> ToolOutput {
    match excess(&output.content, output.details.as_ref()) {
        None => output,
        Some(bytes) => ToolOutput::error(format!(
            "The tool ran and returned {bytes} bytes. The limit is {RESULT_LIMIT}, so the result was dropped."
        )),
    }
}

/// How many bytes a result has, where these are too many.
fn excess(content: &[Content], details: Option<&Json>) -> Option<usize> {
    let bytes = ContentSize::of(content).total() + details.map_or(0, |details| details.get().len());
    (bytes > RESULT_LIMIT).then_some(bytes)
}

/// The files that a call says it touches.
pub(crate) fn files(touches: &Touches) -> &[PathBuf] {
    match touches {
        Touches::Reads(paths) | Touches::Writes(paths) => paths,
        Touches::Nothing | Touches::Anything | Touches::Input(_) | Touches::Session => &[],
    }
}

/// Tells a call from others; models repeat ids.
pub(crate) fn identity(call: &ToolCall) -> String {
    format!("{}\n{}\n{}", call.id, call.name, call.arguments)
}
