//! `task`: a sub-agent works on something in a session of its own, and its last answer is the result.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use quipu_protocol::{Json, Limit, Outcome, RunId, ToolSpec, Touches};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};
use quipu_transcript::one_line;
use quipu_workspace::file_key;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::agents::{AgentDefinition, AgentSettings, TASK_TOOL};
use crate::runner::{
    AgentEnd, AgentOrder, AgentReport, Backend, RUNNER_REQUEST, RunnerError, UsedWorktree, WORKTREE,
};
use crate::worktrees::{MergeConflict, WorktreeEnd, WorktreeError, WorktreeInfo, WorktreeMerge};

/// Bytes of the list of agents in the declaration at most.
const LIST: usize = 2 << 10;
/// What descriptions of agents are cut to where they do not fit, one after the other.
const CUTS: [usize; 5] = [300, 150, 80, 40, 0];
/// Bytes of the text that comes back at most.
const ANSWER: usize = 32 << 10;
/// Characters of a title.
const TITLE: usize = 80;
/// Files of a merge that are listed.
const SHOWN: usize = 50;
/// Characters of why another model answered.
const REPLACED: usize = 400;
/// Names of agents in an error.
const NAMED: usize = 40;

/// Sends sub-agents for a session.
pub(crate) struct TaskTool {
    spec: ToolSpec,
    agents: Vec<Arc<AgentDefinition>>,
    settings: Arc<AgentSettings>,
    backend: OnceLock<Arc<dyn Backend>>,
    permits: Arc<Semaphore>,
    /// How many the run began.
    begun: Mutex<(Option<RunId>, u32)>,
}

#[derive(Deserialize)]
struct Args {
    agent: Option<String>,
    #[serde(default)]
    prompt: String,
    description: Option<String>,
    #[serde(default)]
    worktree: bool,
    merge: Option<String>,
}

impl TaskTool {
    pub(crate) fn new(settings: Arc<AgentSettings>) -> Self {
        let mut agents: Vec<Arc<AgentDefinition>> = Vec::new();
        for agent in &settings.agents {
            if agents.iter().all(|known| known.name != agent.name) {
                agents.push(Arc::new(agent.clone()));
            }
        }
        let mut properties = serde_json::json!({
            "prompt": { "type": "string" },
            "description": { "type": "string", "description": "3-5 words" }
        });
        let mut description =
            "A sub-agent works on `prompt` in a context of its own and returns its last answer. It \
                               does not see this conversation. Several calls run at once."
                .to_owned();
        let mut required = vec!["prompt"];
        if settings.worktrees.is_some() {
            properties["worktree"] = serde_json::json!({ "type": "boolean" });
            properties["merge"] = serde_json::json!({ "type": "string" });
            required.clear();
            description.push_str(
                " `worktree`: it works in a git worktree from HEAD; `merge` alone, with its id, takes over what it changed.",
            );
        }
        if !agents.is_empty() {
            properties["agent"] = serde_json::json!({ "type": "string" });
            description.push_str(&format!("\nAgents:\n{}", listing(&agents)));
        }
        let parameters =
            serde_json::json!({ "type": "object", "properties": properties, "required": required });
        let spec = ToolSpec { name: TASK_TOOL.into(), description, parameters: Json::from(&parameters) };
        let permits = Arc::new(Semaphore::new(settings.limits.max_at_once.max(1)));
        Self { spec, agents, settings, backend: OnceLock::new(), permits, begun: Mutex::default() }
    }

    /// How it begins sessions once its own is open.
    pub(crate) fn runs_through(&self, backend: Arc<dyn Backend>) {
        // Each session has its own tool.
        drop(self.backend.set(backend));
    }

    /// The agent of a name; an error for the model where there is none.
    fn agent(&self, name: &str) -> Result<Arc<AgentDefinition>, String> {
        let is_it = |agent: &&Arc<AgentDefinition>| agent.name.eq_ignore_ascii_case(name.trim());
        self.agents.iter().find(is_it).cloned().ok_or_else(|| {
            let names: Vec<&str> = self.agents.iter().take(NAMED).map(|agent| &*agent.name).collect();
            let known = match names.as_slice() {
                [] => "There are no agents with names; leave `agent` out.".to_owned(),
                names => format!("Known agents: {}.", names.join(", ")),
            };
            format!("There is no agent `{}`. {known}", one_line(name, TITLE))
        })
    }

    /// Counts one more of the run; `false` where it has had its share.
    fn counts(&self, run: &RunId) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.0.as_ref() != Some(run) {
            *begun = (Some(run.clone()), 0);
        }
        begun.1 = begun.1.saturating_add(1);
        begun.1 <= self.settings.limits.max_per_run
    }

    async fn send(&self, call: Invocation, cx: &ToolContext) -> Result<ToolOutput, String> {
        let args: Args =
            call.args.read().map_err(|error| format!("The arguments cannot be read: {error}."))?;
        if let Some(id) = args.merge.as_deref().filter(|id| !id.trim().is_empty()) {
            return self.merge(id, cx).await;
        }
        let agent = match args.agent.as_deref().filter(|name| !name.trim().is_empty()) {
            Some(name) => Some(self.agent(name)?),
            None => None,
        };
        if args.prompt.trim().is_empty() {
            return Err("`prompt` is empty. Write what the sub-agent should do.".into());
        }
        if args.prompt.len() > RUNNER_REQUEST {
            let bytes = args.prompt.len();
            return Err(format!("`prompt` has {bytes} bytes; the limit is {RUNNER_REQUEST}."));
        }
        if !self.counts(&cx.run) {
            let most = self.settings.limits.max_per_run;
            return Err(format!(
                "This run has begun {most} sub-agents, which is the limit (`agents.maxPerRun`). Do the rest yourself."
            ));
        }
        let wants_worktree = args.worktree || agent.as_ref().is_some_and(|agent| agent.worktree);
        let worktrees = match (wants_worktree, &self.settings.worktrees) {
            (true, Some(worktrees)) => Some(worktrees.clone()),
            (true, None) => {
                let cwd = cx.cwd.display();
                return Err(format!(
                    "The sub-agent was not begun: it is to work in a git worktree, and {cwd} was in no git repository when the session was opened."
                ));
            }
            (false, _) => None,
        };
        let backend = self.backend.get().ok_or("The session is not open.")?;
        let seal = |text: &str| backend.sealer().seal(text).into_owned();
        let order = AgentOrder {
            call: call.id,
            run: cx.run.clone(),
            agent,
            title: one_line(&seal(args.description.as_deref().unwrap_or_default()), TITLE),
            prompt: seal(&args.prompt),
            limits: self.settings.limits.clone(),
            worktrees,
            permits: self.permits.clone(),
            progress: cx.progress.clone(),
            cancel: cx.cancel.clone(),
        };
        let name = order.name().to_owned();
        match backend.agent(order).await {
            Ok(report) => Ok(output(&name, report)),
            Err(error) => Err(unmade(&error)),
        }
    }
}

impl TaskTool {
    /// Takes over what a sub-agent changed in its worktree.
    async fn merge(&self, id: &str, cx: &ToolContext) -> Result<ToolOutput, String> {
        let worktrees = self.settings.worktrees.clone().ok_or_else(|| no_worktree(id))?;
        let (id, cwd, access, cancel) = (id.to_owned(), cx.cwd.clone(), cx.access.clone(), cx.cancel.clone());
        let work = move || worktrees.merge_within(&id, &cwd, &access, &cancel);
        let merged = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
        merged.map(merge_output).map_err(|error| unmerged(&error))
    }
}

fn no_worktree(id: &str) -> String {
    format!("There is no worktree `{}`.", one_line(id, TITLE))
}

/// What a merge did, for the model.
fn merge_output(report: WorktreeMerge) -> ToolOutput {
    let WorktreeMerge { files, same, left } = report;
    let mut shown = match files.len() {
        0 => "Nothing was to be changed".to_owned(),
        1 => "1 file was changed".to_owned(),
        count => format!("{count} files were changed"),
    };
    if same > 0 {
        shown.push_str(&format!("; {same} were the same already"));
    }
    shown.push_str(". Nothing was committed.");
    for file in files.iter().take(SHOWN) {
        shown.push_str(&format!("\n{} {}", file.how.word(), file.path.display()));
    }
    if files.len() > SHOWN {
        shown.push_str(&format!("\n[{} more]", files.len() - SHOWN));
    }
    match left {
        Some(why) => shown.push_str(&format!("\nThe worktree could not be removed: {why}.")),
        None => shown.push_str("\nThe worktree and its branch were removed."),
    }
    ToolOutput::text(shown)
}

/// Why a merge was not made, for the model.
fn unmerged(error: &WorktreeError) -> String {
    let WorktreeError::Conflicts(conflicts) = error else { return format!("Not merged: {error}.") };
    let mut shown = format!("Not merged, and nothing was changed: {} conflicts.", conflicts.len());
    for MergeConflict { path, why } in conflicts.iter().take(SHOWN) {
        shown.push_str(&format!("\n{}: {why}", path.display()));
    }
    shown.push_str("\nMake these files agree, here or with `git` on the branch, and merge again.");
    shown
}

impl Tool for TaskTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        let id = args.get("merge").and_then(serde_json::Value::as_str).filter(|id| !id.trim().is_empty());
        let (Some(id), Some(worktrees)) = (id, &self.settings.worktrees) else { return Touches::Nothing };
        match worktrees.touched(id, &cx.cwd, &cx.cancel) {
            Ok(paths) => Touches::Writes(paths.iter().map(|path| file_key(path)).collect()),
            // It leads nowhere, as the merge says.
            Err(WorktreeError::Unknown(_) | WorktreeError::Ambiguous(_)) => Touches::Nothing,
            // Nobody knows what it would change.
            Err(_) => Touches::Anything,
        }
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move { self.send(call, cx).await.unwrap_or_else(ToolOutput::error) })
    }
}

/// The agents, a line each, in at most so many bytes.
fn listing(agents: &[Arc<AgentDefinition>]) -> String {
    let render = |agents: &[Arc<AgentDefinition>], most: usize| {
        let line = |agent: &Arc<AgentDefinition>| match most {
            0 => agent.name.clone(),
            most => format!("{}: {}", agent.name, one_line(&agent.description, most)),
        };
        agents.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let fitting = CUTS.iter().map(|most| render(agents, *most)).find(|text| text.len() <= LIST);
    fitting.unwrap_or_else(|| {
        let mut fits = agents.len();
        while fits > 0 && render(&agents[..fits], 0).len() > LIST {
            fits -= 1 + fits / 16;
        }
        render(&agents[..fits], 0)
    })
}

/// Why no sub-agent began.
fn unmade(error: &RunnerError) -> String {
    match error {
        RunnerError::Aborted => "Operation aborted".into(),
        error => format!("The sub-agent was not begun: {error}."),
    }
}

/// The result for the model.
fn output(name: &str, report: AgentReport) -> ToolOutput {
    let AgentReport { session, head: _, end, text, turns, calls, cost, worktree, replaced } = report;
    let word = end.outcome().word();
    let why = match &end {
        AgentEnd::Ended(Outcome::Done) => None,
        AgentEnd::Ended(Outcome::Aborted) => Some("The user stopped the sub-agent.".to_owned()),
        AgentEnd::Ended(Outcome::Failed(error)) => Some(format!("The sub-agent failed: {error}.")),
        AgentEnd::Ended(Outcome::StoreFailed(why)) => {
            Some(format!("The sub-agent failed, because a step could not be stored: {why}."))
        }
        AgentEnd::Ended(Outcome::Limit(limit)) => {
            Some(format!("The sub-agent was stopped: it reached {}.", limit_text(limit)))
        }
        AgentEnd::Overdue(after) => Some(format!(
            "The sub-agent was stopped: it had not finished after {} (`agents.maxMinutes`).",
            duration(*after)
        )),
        AgentEnd::Stopped => Some("Operation aborted".to_owned()),
    };
    let mut shown = String::new();
    if let Some(why) = &why {
        shown.push_str(why);
        shown.push_str(if text.is_empty() { "" } else { " Its last answer:" });
        shown.push_str("\n\n");
    }
    let cut = text.floor_char_boundary(ANSWER);
    shown.push_str(&text[..cut]);
    if cut < text.len() {
        shown.push_str(&format!("\n\n[The first {cut} of {} bytes.]", text.len()));
    }
    if text.trim().is_empty() && why.is_none() {
        shown.push_str("The sub-agent ended without an answer.");
    }
    shown = format!("{}\n\n[session {session}]", shown.trim_end());
    let mut details = serde_json::json!({
        "child": session, "agent": name, "outcome": word, "turns": turns, "calls": calls, "cost": cost,
    });
    if let Some(replaced) = replaced {
        shown.push_str(&format!("\n[{}]", one_line(&replaced, REPLACED)));
        details["replacedModel"] = replaced.into();
    }
    if let Some(UsedWorktree { info, end }) = worktree {
        shown.push_str(&format!("\n[{}]", worktree_text(&info, &end)));
        details[WORKTREE] = serde_json::json!({
            "id": info.id, "path": info.tree, "branch": info.branch, "base": info.base, "changed": end != Ok(WorktreeEnd::Unchanged),
        });
    }
    let output = if why.is_none() { ToolOutput::text(shown) } else { ToolOutput::error(shown) };
    ToolOutput { details: Some(Json::from(&details)), ..output }
}

/// What became of a worktree, for the model.
fn worktree_text(info: &WorktreeInfo, end: &Result<WorktreeEnd, String>) -> String {
    let base: String = info.base.chars().take(12).collect();
    let mut text = match end {
        Ok(WorktreeEnd::Unchanged) => "Nothing was changed in its worktree, which is removed.".to_owned(),
        Ok(WorktreeEnd::Changed(diff)) => format!(
            "worktree {}: {}, on the branch {} from {base}, in {}. Nothing of it is here until it is merged: `merge` with its id.",
            info.id,
            diff.stat(),
            info.branch,
            info.tree.display()
        ),
        Err(why) => format!(
            "worktree {}: what was changed is in {}, and could not be committed to its branch {}: {why}.",
            info.id,
            info.tree.display(),
            info.branch
        ),
    };
    match info.uncommitted {
        Some(0) => {}
        Some(count) => {
            text.push_str(&format!(" It began without the {count} uncommitted changes of the repository."));
        }
        None => text.push_str(" It began without uncommitted changes of the repository."),
    }
    text
}

/// A limit with the setting that it comes from.
fn limit_text(limit: &Limit) -> String {
    match limit {
        Limit::Turns(turns) => format!("its limit of {turns} turns (`agents.maxTurns`)"),
        Limit::Cost(dollars) => {
            format!("its limit of ${dollars:.4} (`agents.maxCost`, or half of what was left of this run)")
        }
        Limit::Daily { budget, .. } => format!("the limit of ${budget:.2} a day"),
        Limit::Account(limit) => format!("a limit ({limit})"),
    }
}

fn duration(after: Duration) -> String {
    match after.as_secs() {
        seconds if seconds >= 120 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(count: usize, description: &str) -> Arc<AgentSettings> {
        let agent = |at: usize| AgentDefinition {
            name: format!("agent-{at}"),
            description: description.to_owned(),
            ..AgentDefinition::default()
        };
        Arc::new(AgentSettings { agents: (0..count).map(agent).collect(), ..AgentSettings::default() })
    }

    #[test]
    fn declaration_is_small_and_lists_every_agent_that_fits() {
        let none = TaskTool::new(agents(0, ""));
        let bytes = none.spec().description.len() + none.spec().parameters.get().len();
        assert!(bytes < 350, "{bytes}");
        assert!(!none.spec().parameters.get().contains("agent"));
        for count in [1, 10, 50, 1_000] {
            let tool = TaskTool::new(agents(count, &"word ".repeat(100)));
            let description = &tool.spec().description;
            assert!(description.len() <= LIST + 250, "{count}: {}", description.len());
            assert!(description.contains("agent-0"), "{description}");
        }
        assert!(TaskTool::new(agents(50, "d")).spec().description.contains("agent-49: d"));
    }

    #[test]
    fn run_begins_no_more_than_its_share() {
        let limits = crate::agents::AgentLimits { max_per_run: 2, ..Default::default() };
        let tool = TaskTool::new(Arc::new(AgentSettings { limits, ..AgentSettings::default() }));
        let (one, other) = (RunId::from("one"), RunId::from("other"));
        assert_eq!([tool.counts(&one), tool.counts(&one), tool.counts(&one)], [true, true, false]);
        assert!(tool.counts(&other), "another run counts anew");
    }
}
