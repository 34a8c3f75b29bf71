//! Plan mode, in which only calls that read may run until a person accepts a plan; and the model's to-do list.

mod gate;
mod plan_model;
mod plan_tool;
mod todo_tool;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::{Provenance, ToolSpec, UserInput};
use quipu_seal::Sealer;
use quipu_tools::Tool;
use quipu_transcript::{PLAN_OFF, PLAN_ON, PLAN_TOOL, TODO_TOOL, plan_mode_of};
use quipu_workspace::Sandbox;

use crate::engine::SessionOptions;
use crate::hooks::Asker;
use crate::planning_settings::PlanningSettings;
use crate::resume::Past;

use self::gate::PlanGate;
pub use self::plan_model::PLANS_PURPOSE;
pub(crate) use self::plan_model::{PlanRoute, epoch_plan, plan_model, plan_route};
use self::plan_tool::PlanTool;
use self::todo_tool::TodoTool;

/// Under which name the notes of plan mode stand beside messages.
const NOTE: &str = "plan mode";

/// Tells the session that the policy changed.
pub(crate) type Announcer = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Whether a session is in plan mode.
#[derive(Default)]
pub(crate) struct PlanMode {
    is_on: AtomicBool,
    /// Counts the changes.
    changes: AtomicU64,
    /// A note that it is on was sent to the model, and none yet that it is off.
    owes_note: AtomicBool,
    front: OnceLock<(Asker, Announcer)>,
    /// Sandboxes for commands that read, each behind the one that it was made from: that of the session, and those of sub-agents
    /// in worktrees. Kept when plan mode ends: what was started in them still runs there.
    reading: Mutex<Vec<(Arc<Sandbox>, Arc<Sandbox>)>>,
}

/// Sandboxes for commands that read, at most.
const READING: usize = 16;

impl PlanMode {
    /// `noted` is what the last note to the model says.
    fn new(is_on: bool, noted: Option<bool>) -> Self {
        let owes_note = !is_on && noted == Some(true);
        Self { is_on: is_on.into(), owes_note: owes_note.into(), ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Switches it; whether that changes anything. The policy has another version behind it then.
    pub(crate) fn set(&self, on: bool) -> bool {
        let is_change = self.is_on.swap(on, Ordering::SeqCst) != on;
        if is_change {
            self.owes_note.store(!on, Ordering::SeqCst);
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        is_change
    }

    fn reading_sandbox(&self, session: Arc<Sandbox>) -> Arc<Sandbox> {
        let mut made = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reading)) = made.iter().find(|(of, _)| Arc::ptr_eq(of, &session)) {
            return reading.clone();
        }
        let reading = Arc::new(session.reading());
        if made.len() == READING {
            made.remove(0);
        }
        made.push((session, reading.clone()));
        reading
    }

    /// A person accepted a plan: the result of the call says that it is off.
    async fn leave(&self) {
        let is_change = self.set(false);
        self.owes_note.store(false, Ordering::SeqCst);
        if let (true, Some((_, announce))) = (is_change, self.front.get()) {
            announce().await;
        }
    }

    /// How people are asked, and how the session learns of a change.
    pub(crate) fn asks_through(&self, asker: Asker, announcer: Announcer) {
        // Each session has its own, and begins once.
        drop(self.front.set((asker, announcer)));
    }

    /// Puts what the model should know beside a message. Whether that says that it is off, which is said once.
    pub(crate) fn note_beside(&self, input: &mut UserInput) -> bool {
        if input.content.is_empty() {
            return false;
        }
        if self.is_on() {
            input.add(PLAN_ON, Provenance::quipu().named(NOTE));
            return false;
        }
        let left = self.owes_note.swap(false, Ordering::SeqCst);
        if left {
            input.add(PLAN_OFF, Provenance::quipu().named(NOTE));
        }
        left
    }

    /// The message was not taken.
    pub(crate) fn note_was_lost(&self) {
        self.owes_note.store(!self.is_on(), Ordering::SeqCst);
    }
}

impl std::fmt::Debug for PlanMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanMode").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

/// With what plan mode and to-do lists make of a session, and its plan mode.
pub(crate) fn with_planning(
    mut options: SessionOptions,
    past: Option<&Past>,
    sealer: &Arc<Sealer>,
    depth: u32,
) -> (SessionOptions, Option<Arc<PlanMode>>) {
    if depth > 0 {
        // Its policy is the parent's, with the gate of plan mode; plans and lists are the parent's alone.
        let planning = std::mem::take(&mut options.planning);
        let is_parents =
            |name: &str| (planning.plan && name == PLAN_TOOL) || (planning.todo && name == TODO_TOOL);
        options.tools.retain(|tool| !is_parents(&tool.spec().name));
        return (options, None);
    }
    let PlanningSettings { plan, start, todo, named_model: _ } = options.planning;
    // Other tools would change the beginning of every request of a session that was begun without them.
    let had: &[ToolSpec] = past.map_or(&[], |past| &past.epoch.tools);
    let began_without = |name: &str| !had.is_empty() && had.iter().all(|spec| spec.name != name);
    let mode = plan.then(|| {
        let noted = past.and_then(|past| plan_mode_of(&past.messages));
        let switched = past.and_then(|past| past.epoch.plan.as_ref()).map(|plan| plan.on);
        Arc::new(PlanMode::new(start.or(switched).or(noted).unwrap_or_default(), noted))
    });
    let is_free = |name: &str| options.tools.iter().all(|tool| tool.spec().name != name);
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if todo && is_free(TODO_TOOL) && !began_without(TODO_TOOL) {
        tools.push(Arc::new(TodoTool));
    }
    if let Some(mode) = &mode {
        if is_free(PLAN_TOOL) && !began_without(PLAN_TOOL) {
            let wait: Duration = options.ask_deadline;
            tools.push(Arc::new(PlanTool::new(mode.clone(), sealer.clone(), wait)));
        }
        options.policy = Arc::new(PlanGate::new(options.policy, mode.clone()));
    }
    options.tools.extend(tools);
    (options, mode)
}
