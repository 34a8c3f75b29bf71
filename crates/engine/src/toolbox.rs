//! Tools as effects: looked up, validated, approved; then run on the true values and sealed.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quipu_protocol::{
    Content, Json, Notice, Provenance, RunId, Scope, ToolCall, ToolResultMessage, ToolSpec,
};
use quipu_seal::Sealer;
use quipu_store::StoreError;
use quipu_tools::{Invocation, Preparation, Tool, ToolContext, ToolOutput, Touches};
use quipu_workspace::{Access, Approval, OutputPlace, ProcessRegistry, Reach, Want};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::calls::{ContentSize, seal_content};
use crate::clock::Clock;
use crate::files::{Begun, CallPlace, Keeper, Noticed};
use crate::hooks::{HookRecord, HookedCall, Hooks, MoveRequest, kept};
use crate::outputs::Outputs;
use crate::policy::{Decision, Grant, Policy, Proposal};
use crate::travel::{Standing, Tobe, Travel, Trip};
use quipu_machine::{ClearError, Done, Input, Prepared};
use quipu_transcript::WorkspaceNote;

/// How long a cancelled tool may take to come back before it is dropped.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of a file that are read to learn a secret that a placeholder stands for.
const LEARN_LIMIT: u64 = 16 << 20;

/// Bytes of one result at most, text, images and details together.
const RESULT_LIMIT: usize = 64 << 20;
/// The model is told this when a tool panicked.
const BROKE_DOWN: &str =
    "The tool failed inside, and whether it took effect is unknown. This is a bug of the tool.";

/// The model is told this when a tool or a policy panicked over a call.
const NOT_PREPARED: &str =
    "The call was not run: checking it failed inside. This is a bug of the tool or of the policy.";

/// The model is told this when what a file was could not be stored.
const NOT_KEPT: &str = "The call was not run, because what the file was before it could not be stored";

/// What is told to people, once for a session; behind it why.
const OPEN_TO_COMMANDS: &str = "Commands of this session do not run in namespaces: the network, sockets with a path, secrets in your home \
    directory, git's configuration and most caches are open to them";

/// What is known of the changes of a call where what files were is not kept.
const NOT_WATCHED: &str = "what tools changed is not kept, because `files.enabled` is false";

/// The model is told this of calls that stand behind one that would go elsewhere, whether that goes or not.
const BEHIND_TOBE: &str = "The call was not run: `tobe` stands before it in the same answer, and nothing behind that is \
                           run. Make it again if it is still wanted.";

/// The model is told this when the rules changed in the moment in which its call was to begin.
const RULES_CHANGED: &str = "The call was not run, because the user changed the permissions just then. Make it again if it is still wanted.";

/// A person is told this of a call that was allowed already.
const LEADS_ELSEWHERE: &str =
    "asked again, because the name came to lead to another file than the one that was allowed";

/// The same, where the name leads to what it led to.
const HAS_OTHER_NAMES: &str = "asked again, because since it was allowed the file came to have other names (hard links), \
                               which may lie elsewhere";

/// The tools of a session and what they may use.
pub(crate) struct Toolbox {
    tools: HashMap<String, Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    pub(crate) parts: ToolboxParts,
    /// Where the session stands, for tools that look at the graph.
    pub(crate) standing: Standing,
    /// Looks at the files that calls change.
    keeper: Option<Arc<Keeper>>,
    /// The files of the calls of the current batch, as they were when these were decided: what may be opened beyond the
    /// policy's bounds, once it is approved.
    shown: Mutex<HashMap<String, Vec<Approval>>>,
    /// The policy's rules by which the current batch was decided.
    decided_by: AtomicU64,
    /// What takes the session elsewhere, where the model may.
    tobe: Option<Arc<Tobe>>,
    /// The call of the current batch that would, and where.
    trip: Mutex<Option<(String, Trip)>>,
    pub(crate) hooks: Hooks,
    /// What hooks did to the calls of the current batch.
    hooked: Mutex<HashMap<String, Hooked>>,
}

/// What hooks did to a call.
#[derive(Clone, Default)]
struct Hooked {
    /// What a person is asked before it runs, whatever the policy says.
    question: Option<String>,
    records: Vec<HookRecord>,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox").field("tools", &self.tools.keys()).finish_non_exhaustive()
    }
}

impl Toolbox {
    pub(crate) fn new(
        tools: Vec<Arc<dyn Tool>>,
        parts: ToolboxParts,
        standing: Standing,
        keeper: Option<Keeper>,
        tobe: Option<Arc<Tobe>>,
        hooks: Hooks,
    ) -> Self {
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        let tools = tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect();
        let keeper = keeper.map(Arc::new);
        let (shown, trip) = (Mutex::default(), Mutex::default());
        let decided_by = AtomicU64::new(0);
        let hooked = Mutex::default();
        Self { tools, specs, parts, standing, keeper, shown, decided_by, tobe, trip, hooks, hooked }
    }

    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    fn context(
        &self,
        run: &RunId,
        cancel: CancellationToken,
        progress: Arc<dyn Fn(&str) + Send + Sync>,
        access: Access,
    ) -> ToolContext {
        ToolContext {
            run: run.clone(),
            cwd: self.parts.cwd.clone(),
            env: self.parts.env.clone(),
            outputs: self.output_place(),
            progress,
            cancel,
            sees_images: self.parts.sees_images.load(Ordering::Relaxed),
            access,
            sandbox: self.parts.policy.sandbox(),
        }
    }

    /// Where whole outputs of the session go.
    pub(crate) fn output_place(&self) -> OutputPlace {
        // A session stands somewhere before its first call.
        let session = self.standing.get().map(|view| view.borrow().session.clone());
        self.parts.outputs.place(&session.unwrap_or_else(|| "".into()), &self.parts.sealer)
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Approval>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hooked(&self) -> std::sync::MutexGuard<'_, HashMap<String, Hooked>> {
        self.hooked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Validation, then policy, on each call. Reads only. With what a tool does meanwhile for a call that is allowed and
    /// alone; between several, one may change what another finds when it begins.
    pub(crate) fn prepare(&self, run: &RunId, calls: &[HookedCall]) -> (Vec<Prepared>, Option<Preparation>) {
        self.shown().clear();
        self.hooked().clear();
        *self.trip() = None;
        // Before anything is decided: what changes meanwhile is found when a call begins.
        self.decided_by.store(self.rules(), Ordering::SeqCst);
        let cx = self.context(run, CancellationToken::new(), Arc::new(|_| {}), Access::default());
        let broke_down = |_| Prepared::Refused(NOT_PREPARED.into());
        let one = |hooked| {
            catch_unwind(AssertUnwindSafe(|| self.prepare_one(hooked, &cx))).unwrap_or_else(broke_down)
        };
        let leaves = |one: &HookedCall| self.tobe.is_some() && one.call.name == Tobe::NAME;
        let up_to = calls.iter().position(leaves).map_or(calls.len(), |at| at + 1);
        let (run, behind) = calls.split_at(up_to);
        let behind = behind.iter().map(|_| Prepared::Refused(BEHIND_TOBE.into()));
        let prepared: Vec<Prepared> = run.iter().map(one).chain(behind).collect();
        let preparation = match prepared.as_slice() {
            [Prepared::Ready { call, touches }] => self.tools.get(&call.name).and_then(|tool| {
                let call = Invocation { id: call.id.clone(), args: call.arguments.clone() };
                let own = catch_unwind(AssertUnwindSafe(|| tool.prepare(&call, &cx))).unwrap_or_default();
                self.with_a_look_ahead(own, touches)
            }),
            _ => None,
        };
        (prepared, preparation)
    }

    /// What a tool gets ready, and a look at what the call may change.
    fn with_a_look_ahead(&self, own: Option<Preparation>, touches: &Touches) -> Option<Preparation> {
        let Some(keeper) = self.keeper.clone() else { return own };
        let look: Preparation = match touches {
            Touches::Anything => Box::new(move || keeper.ahead()),
            Touches::Writes(paths) => {
                let (paths, access) = (paths.clone(), self.parts.policy.access());
                Box::new(move || keeper.ahead_of(&paths, &access))
            }
            Touches::Nothing | Touches::Reads(_) | Touches::Session => return own,
        };
        Some(Box::new(move || {
            if let Some(own) = own {
                own();
            }
            look();
        }))
    }

    fn prepare_one(&self, hooked: &HookedCall, cx: &ToolContext) -> Prepared {
        let HookedCall { call, blocked, question, records } = hooked;
        if let Some(reason) = blocked {
            return Prepared::Refused(reason.clone());
        }
        let Some(tool) = self.tools.get(&call.name) else {
            return Prepared::Refused(format!("Tool {} not found", call.name));
        };
        let arguments = match quipu_tools::validate(tool.spec(), &call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Prepared::Refused(error.to_string()),
        };
        let call = ToolCall { arguments, ..call.clone() };
        if question.is_some() || !records.is_empty() {
            let hooked = Hooked { question: question.clone(), records: records.clone() };
            self.hooked().insert(identity(&call), hooked);
        }
        let travel = match self.tobe.as_ref().filter(|_| call.name == Tobe::NAME) {
            Some(tobe) => match self.plan_trip(tobe, &call) {
                Ok(travel) => Some(travel),
                Err(text) => return Prepared::Refused(text),
            },
            None => None,
        };
        let touches = tool.touches(&call.arguments.value(), cx);
        // Looked at first: what comes to be another file while it is decided is found when the call begins.
        self.show(&call, &touches);
        self.decide(call, touches, travel.as_ref())
    }

    /// What is approved is what runs: these files as they are now, wherever their names lead by then.
    fn show(&self, call: &ToolCall, touches: &Touches) {
        let files = files(touches).iter().cloned().map(Approval::of).collect();
        self.shown().insert(identity(call), files);
    }

    /// Asks the policy.
    fn decide(&self, call: ToolCall, touches: Touches, travel: Option<&Travel>) -> Prepared {
        let proposal = Proposal { call: &call, cwd: &self.parts.cwd, touches: &touches, travel };
        let decision = self.parts.policy.decide(&proposal);
        let question = self.hooked().get(&identity(&call)).and_then(|hooked| hooked.question.clone());
        match decision {
            Decision::Allow => match question {
                None => Prepared::Ready { call, touches },
                Some(question) => {
                    let (question, subject) = (question, call.arguments.get().to_owned());
                    let scopes = vec![Scope::Once];
                    Prepared::Ask { call, touches, question, subject: subject.into(), scopes }
                }
            },
            Decision::Deny { reason } => Prepared::Refused(reason),
            Decision::Ask { question, subject } => self.question(call, touches, question, subject),
        }
    }

    fn question(&self, call: ToolCall, touches: Touches, question: String, subject: String) -> Prepared {
        let grant = Grant { tool: call.name.clone(), subject };
        let scopes = self.parts.policy.scopes(&grant);
        Prepared::Ask { call, touches, question, subject: grant.subject.into(), scopes }
    }

    /// Asks the policy once more of a call that was prepared.
    pub(crate) fn judge(&self, call: &ToolCall, touches: &Touches) -> Prepared {
        let planned =
            |(planned, trip): &(String, Trip)| (*planned == identity(call)).then(|| trip.travel.clone());
        let travel = self.trip().as_ref().and_then(planned);
        let decide = || self.decide(call.clone(), touches.clone(), travel.as_ref());
        catch_unwind(AssertUnwindSafe(decide)).unwrap_or_else(|_| Prepared::Refused(NOT_PREPARED.into()))
    }

    /// Which rules the policy goes by now. One that fails inside decides each call anew.
    fn rules(&self) -> u64 {
        let look = AssertUnwindSafe(|| self.parts.policy.version().number);
        catch_unwind(look).unwrap_or(u64::MAX)
    }

    /// What holds a call back that is about to begin, where the rules changed since it was prepared, or its files since a
    /// person allowed it.
    fn held(&self, run: &RunId, call: &ToolCall, touches: &Touches, approved: bool) -> Option<Prepared> {
        if approved && let Some(now) = self.exchanged(run, call, touches) {
            self.show(call, &now);
            let led_elsewhere = now != *touches;
            return match self.judge(call, &now) {
                Prepared::Ready { .. } if !led_elsewhere => self.asked_again(call, now),
                Prepared::Ask { call, touches, question, subject, scopes } => {
                    let why = if led_elsewhere { LEADS_ELSEWHERE } else { HAS_OTHER_NAMES };
                    let question = format!("{question} ({why})");
                    Some(Prepared::Ask { call, touches, question, subject, scopes })
                }
                held @ (Prepared::Ready { .. } | Prepared::Refused(_)) => Some(held),
            };
        }
        if self.rules() == self.decided_by.load(Ordering::SeqCst) {
            return None;
        }
        match self.judge(call, touches) {
            Prepared::Ready { .. } => None,
            Prepared::Ask { .. } if approved => None,
            held @ (Prepared::Ask { .. } | Prepared::Refused(_)) => Some(held),
        }
    }

    /// The question of a call whose file came to have other names, where the policy goes by a yes to what was shown.
    fn asked_again(&self, call: &ToolCall, touches: Touches) -> Option<Prepared> {
        let access = self.parts.policy.access();
        let want = if matches!(touches, Touches::Reads(_)) { Want::Read } else { Want::Write };
        if files(&touches).iter().all(|path| access.reach(path, want) == Reach::Free) {
            return None;
        }
        let what = if want == Want::Read { "read" } else { "change" };
        let paths: Vec<_> = files(&touches).iter().map(|path| path.to_string_lossy()).collect();
        let (subject, question) =
            (paths.join("\n"), format!("{what} {}: {HAS_OTHER_NAMES}", paths.join(", ")));
        Some(self.question(call.clone(), touches, question, subject))
    }

    /// What an approved call touches by now, where these are not the files that were approved.
    fn exchanged(&self, run: &RunId, call: &ToolCall, touches: &Touches) -> Option<Touches> {
        if files(touches).is_empty() {
            return None;
        }
        let tool = self.tools.get(&call.name)?;
        let cx = self.context(run, CancellationToken::new(), Arc::new(|_| {}), Access::default());
        let look = AssertUnwindSafe(|| tool.touches(&call.arguments.value(), &cx));
        let now = catch_unwind(look).ok()?;
        let holds = self.shown().get(&identity(call)).is_some_and(|files| files.iter().all(Approval::holds));
        (now != *touches || !holds).then_some(now)
    }

    /// Looks at where a call would take the session. Blocks.
    fn plan_trip(&self, tobe: &Arc<Tobe>, call: &ToolCall) -> Result<Travel, String> {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return Err(NOT_PREPARED.into());
        };
        let trip = runtime.block_on(tobe.plan(&call.arguments))?;
        let travel = trip.travel.clone();
        *self.trip() = Some((identity(call), trip));
        Ok(travel)
    }

    fn trip(&self) -> std::sync::MutexGuard<'_, Option<(String, Trip)>> {
        self.trip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was approved of a call that takes the session elsewhere.
    fn departs(&self, call: &ToolCall) -> Option<Trip> {
        self.trip().take_if(|(planned, _)| *planned == identity(call)).map(|(_, trip)| trip)
    }

    /// Runs a prepared call and seals what it returns.
    pub(crate) async fn run(
        &self,
        place: CallPlace,
        slot: usize,
        (call, touches, approved): (ToolCall, Touches, bool),
        cancel: CancellationToken,
        outputs: mpsc::Sender<Input>,
    ) -> Input {
        let by = self.rules();
        if let Some(prepared) = self.held(&place.run, &call, &touches, approved) {
            return Input::ToolHeld { run: place.run, slot, prepared };
        }
        let started = self.parts.clock.now();
        let watch = Instant::now();
        let mut noticed = Noticed::default();
        let (stop, people) = (cancel.clone(), outputs.clone());
        let mut hooks = self.hooked().get(&identity(&call)).cloned().unwrap_or_default().records;
        let (output, leaving) = match self.departs(&call) {
            Some(trip) => match self.hinders(&place.run, &trip, &stop, &people, &mut hooks).await {
                Some(why) => (ToolOutput::error(why), None),
                None => trip.begin(),
            },
            None => (self.output(&place, slot, (&call, by), cancel, outputs, &mut noticed).await, None),
        };
        let Noticed { files, states, note, .. } = noticed;
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
        // What it said goes with the session that leaves.
        if !self.hooks.is_empty() && leaving.is_none() {
            let hooked = self.hooks.tool_result(&place.run, &call, &mut result, &stop).await;
            hooks.extend(hooked.records);
            (provenance, added) = (hooked.provenance.unwrap_or(provenance), hooked.added);
            for text in hooked.notices {
                tell(&people, Some(text)).await;
            }
            if let Some(bytes) = excess(&result.content, result.details.as_ref()) {
                let text = format!(
                    "The tool ran, and hooks made {bytes} bytes of its result. At most {RESULT_LIMIT} are kept, so it was \
                     left out."
                );
                (result.content, result.details, result.is_error) = (vec![Content::text(text)], None, true);
                (provenance, added) = (Provenance::quipu(), Vec::new());
            }
        }
        let done = Done {
            result,
            hooks: kept(&hooks),
            provenance,
            added,
            started,
            duration_ms: u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX),
            files,
            states,
            note: Box::new(note),
            terminate,
            leaving,
        };
        Input::ToolDone { run: place.run, slot, done: Box::new(done) }
    }

    /// Why hooks do not let a call take the session elsewhere.
    async fn hinders(
        &self,
        run: &RunId,
        trip: &Trip,
        stop: &CancellationToken,
        people: &mpsc::Sender<Input>,
        records: &mut Vec<HookRecord>,
    ) -> Option<String> {
        if self.hooks.is_empty() {
            return None;
        }
        let request = MoveRequest::Tobe { to: trip.travel.target };
        let hooked = self.hooks.before_move(Some(run), &request, stop).await;
        for text in hooked.notices {
            tell(people, Some(text)).await;
        }
        records.extend(hooked.records);
        if stop.is_cancelled() { Some("Operation aborted".to_owned()) } else { hooked.value }
    }

    /// The session ends.
    pub(crate) async fn close(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.close().await;
        }
    }

    /// Ends all that the calls of a run left running.
    pub(crate) async fn clear(self: &Arc<Self>, run: &RunId) -> Result<(), ClearError> {
        let (toolbox, run) = (self.clone(), run.clone());
        let work = move || toolbox.tools.values().for_each(|tool| tool.end_run(&run));
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| ClearError::StillRunning)
    }

    async fn output(
        &self,
        place: &CallPlace,
        slot: usize,
        (call, by): (&ToolCall, u64),
        cancel: CancellationToken,
        outputs: mpsc::Sender<Input>,
        noticed: &mut Noticed,
    ) -> ToolOutput {
        let Some(tool) = self.tools.get(&call.name) else {
            return ToolOutput::error(format!("Tool {} not found", call.name));
        };
        let people = outputs.clone();
        let (sealer, owner) = (self.parts.sealer.clone(), place.run.clone());
        let progress = Arc::new(move |tail: &str| {
            let tail = sealer.seal(tail).into();
            // A tail that finds the mailbox full is left out: a newer one follows, and the result holds all.
            drop(outputs.try_send(Input::ToolOutput { run: owner.clone(), slot, tail }));
        });
        let approved = self.shown().get(&identity(call)).cloned().unwrap_or_default();
        let access = self.parts.policy.access().approving(approved);
        let cx = self.context(&place.run, cancel.clone(), progress, access);
        let args = match self.unseal(tool.as_ref(), call, &cx).await {
            Ok(args) => args,
            Err(text) => return ToolOutput::error(text),
        };
        let touches = tool.touches(&args.value(), &cx);
        if self.keeper.is_none() && matches!(touches, Touches::Anything | Touches::Writes(_)) {
            noticed.note = WorkspaceNote::unknown(NOT_WATCHED);
        }
        let is_command = matches!(touches, Touches::Anything);
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
        if let (Some(keeper), Some(begun)) = (&self.keeper, begun) {
            *noticed = if begun.is_command {
                let mut noticed = keeper.after_command(place).await;
                tell(&people, noticed.told.take()).await;
                noticed
            } else {
                let (files, states) = keeper.after(place, begun, &cx.access).await;
                Noticed { files, states, ..Noticed::default() }
            };
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
        people: &mpsc::Sender<Input>,
    ) -> Result<Option<Begun>, StoreError> {
        match (&self.keeper, touches) {
            (Some(keeper), Touches::Anything) => {
                tell(people, keeper.before_command(place, call).await?).await;
                Ok(Some(Begun::command()))
            }
            (Some(keeper), Touches::Writes(paths)) => {
                keeper.before(place, call, paths, access).await.map(Some)
            }
            (_, Touches::Nothing | Touches::Reads(_) | Touches::Writes(_) | Touches::Session)
            | (None, Touches::Anything) => Ok(None),
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
async fn tell(people: &mpsc::Sender<Input>, text: Option<String>) {
    if let Some(text) = text {
        // The session is over when nobody listens.
        drop(people.send(Input::Told(Notice::Note { text })).await);
    }
}

/// The output, or an error in its place: one that the store refuses would stop the session for good.
fn limited(output: ToolOutput) -> ToolOutput {
    match excess(&output.content, output.details.as_ref()) {
        None => output,
        Some(bytes) => ToolOutput::error(format!(
            "The tool ran and returned {bytes} bytes. At most {RESULT_LIMIT} are kept, so the result was left out."
        )),
    }
}

/// How many bytes a result has, where these are too many.
fn excess(content: &[Content], details: Option<&Json>) -> Option<usize> {
    let bytes = ContentSize::of(content).total() + details.map_or(0, |details| details.get().len());
    (bytes > RESULT_LIMIT).then_some(bytes)
}

/// The files that a call says it touches.
fn files(touches: &Touches) -> &[PathBuf] {
    match touches {
        Touches::Reads(paths) | Touches::Writes(paths) => paths,
        Touches::Nothing | Touches::Anything | Touches::Session => &[],
    }
}

/// Tells a call from others; models repeat ids.
fn identity(call: &ToolCall) -> String {
    format!("{}\n{}\n{}", call.id, call.name, call.arguments)
}

/// What a toolbox is made of.
pub(crate) struct ToolboxParts {
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cwd: PathBuf,
    pub(crate) outputs: Outputs,
    pub(crate) env: Arc<[(String, Option<String>)]>,
    /// What people leave running in the shell.
    pub(crate) processes: Arc<ProcessRegistry>,
    /// Changes with the model.
    pub(crate) sees_images: AtomicBool,
}
