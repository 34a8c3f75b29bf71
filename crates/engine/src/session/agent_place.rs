//! Where a sub-agent works: in the directory of its parent, or in a git worktree of its own.

use quipu_machine::SideCall;
use quipu_protocol::SessionId;
use tokio_util::sync::CancellationToken;

use super::Session;
use super::live_agents::{Drive, DriveParts};
use crate::agent_policy::AgentPolicy;
use crate::children::Children;
use crate::context::system_end;
use crate::engine::SessionOptions;
use crate::error::OpenError;
use crate::runner::{
    AgentOrder, AgentReport, RunnerError, SAME_CALLS, UsedWorktree, agent_draft, agent_session,
};
use crate::worktree_policy::WorktreePolicy;
use crate::worktrees::{Worktree, WorktreeInfo, WorktreeOrder};

/// Names that are tried for a worktree.
const NAMES: u32 = 64;

/// A sub-agent to begin.
pub(super) struct AgentPlan {
    pub(super) children: Children,
    /// Its options in the directory of its parent.
    pub(super) options: SessionOptions,
    pub(super) order: AgentOrder,
    pub(super) parent: SessionId,
    pub(super) depth: u32,
    pub(super) parts: DriveParts,
}

impl AgentPlan {
    /// Begins it, and lets it work to its end.
    pub(super) async fn run(self) -> Result<AgentReport, RunnerError> {
        let Self { children, mut options, order, parent, depth, parts } = self;
        let mut worktree = match &order.worktrees {
            Some(_) => Some(make(&children, &order, &parent, &parts.cancel).await?),
            None => None,
        };
        if let Some(made) = &worktree {
            options = match within(options, &children, &order, &made.info) {
                Some(options) => options,
                None => {
                    drop_unused(worktree).await;
                    let why = "the permissions of this session are for its own directory only".to_owned();
                    return Err(RunnerError::NoWorktree { why });
                }
            };
        }
        let info = worktree.as_ref().map(|made| made.info.clone());
        let session = match begin(&children, options, &order, &parent, depth, info.as_ref()).await {
            Ok(session) => session,
            Err(error) => {
                drop_unused(worktree).await;
                return Err(error);
            }
        };
        if let Some(made) = &mut worktree {
            // Without it the worktree is found by its own name alone.
            drop(made.begun(session.view().session));
        }
        let report = Drive { order, session, parts }.go().await;
        let Some(worktree) = worktree else { return report };
        let info = worktree.info.clone();
        let finish = move || worktree.finish(&CancellationToken::new());
        let end = match tokio::task::spawn_blocking(finish).await {
            Ok(end) => end.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        Ok(AgentReport { worktree: Some(UsedWorktree { info, end }), ..report? })
    }
}

/// A worktree that nobody worked in goes again.
async fn drop_unused(worktree: Option<Worktree>) {
    if let Some(worktree) = worktree {
        let work = move || drop(worktree.remove(&CancellationToken::new()));
        drop(tokio::task::spawn_blocking(work).await);
    }
}

async fn make(
    children: &Children,
    order: &AgentOrder,
    parent: &SessionId,
    cancel: &CancellationToken,
) -> Result<Worktree, RunnerError> {
    let Some(worktrees) = order.worktrees.clone() else { return Err(RunnerError::Closed) };
    let stop = cancel.child_token();
    let (cwd, agent, title) = (children.options().cwd.clone(), order.name().to_owned(), order.title.clone());
    let (parent, run, call) = (parent.clone(), order.run.clone(), order.call.clone());
    let stopped = stop.clone();
    let work = move || {
        let mut names = (0..NAMES).map(|nth| {
            let session = agent_session(&parent, &run, &call, nth);
            let hash: String = session.as_str().chars().rev().take(8).collect();
            format!("wt-{hash}")
        });
        let order = WorktreeOrder { cwd: &cwd, agent: &agent, title: &title, names: &mut names };
        worktrees.make(order, &stopped)
    };
    let mut work = tokio::task::spawn_blocking(work);
    let made = tokio::select! {
        made = &mut work => made,
        () = order.cancel.cancelled() => {
            stop.cancel();
            work.await
        }
    };
    match made {
        Ok(Ok(worktree)) => Ok(worktree),
        _ if order.cancel.is_cancelled() || cancel.is_cancelled() => Err(RunnerError::Aborted),
        Ok(Err(error)) => Err(RunnerError::NoWorktree { why: error.to_string() }),
        Err(error) => Err(RunnerError::NoWorktree { why: error.to_string() }),
    }
}

/// The options of a session that works in a worktree; `None` where the permissions cannot be those of another directory.
fn within(
    options: SessionOptions,
    children: &Children,
    order: &AgentOrder,
    info: &WorktreeInfo,
) -> Option<SessionOptions> {
    let (parent, directory) = (children.options(), info.directory());
    let policy = WorktreePolicy::of(parent.policy.clone(), &directory, (&info.tree, &info.top), &parent.cwd)?;
    let before = system_end(&parent.cwd);
    let system = options.system.unwrap_or_default();
    let base: String = info.base.chars().take(12).collect();
    let place = format!(
        "{}This is a git worktree of your own, on the branch {} from commit {base} of {}. Work in it, and leave the files of {} as \
         they are. What you change here is committed when you end.\n",
        system_end(&directory),
        info.branch,
        info.top.display(),
        info.top.display(),
    );
    let system = match system.rsplit_once(&before) {
        Some((head, tail)) => format!("{head}{place}{tail}"),
        None => format!("{}\n\n{place}", system.trim_end()),
    };
    Some(SessionOptions {
        cwd: directory,
        system: Some(system),
        policy: AgentPolicy::of(policy, order.agent.as_deref()),
        ..options
    })
}

/// Begins the session of a sub-agent.
async fn begin(
    children: &Children,
    options: SessionOptions,
    order: &AgentOrder,
    parent: &SessionId,
    depth: u32,
    worktree: Option<&WorktreeInfo>,
) -> Result<Session, RunnerError> {
    for nth in 0..SAME_CALLS {
        let id = Some(agent_session(parent, &order.run, &order.call, nth));
        let options = SessionOptions { id, ..options.clone() };
        let mark = agent_draft(order, depth, parent, worktree);
        match children.engine().begin_child(options, Some(parent.clone()), mark, depth).await {
            // Another call of the run had this id.
            Err(OpenError::Exists(_)) => {}
            begun => return Ok(begun?),
        }
    }
    Err(RunnerError::NotRecorded { why: format!("{SAME_CALLS} calls of the run have the same id") })
}

/// What a run gets of a sub-agent: its cost, and its session with where that ended.
pub(super) fn settled(
    id: quipu_protocol::RunId,
    run: Option<quipu_protocol::RunId>,
    report: Option<&AgentReport>,
) -> SideCall {
    let draft = report.map(|report| crate::runner::ended_draft(run.clone(), report));
    let cost = report.map_or(0.0, |report| report.cost);
    SideCall { id, run, cost, drafts: draft.into_iter().collect(), ops: Vec::new() }
}
