//! `quipu agents`: the sub-agents that the model of a session can send.

use std::io::Write as _;

use clap::{Args, Subcommand};
use quipu::{AgentMode, LeftWorktree, MergeConflict, WorktreeError, WorktreeMerge, WorktreeState};
use quipu_host::Home;
use quipu_host::resources::{AgentFile, all_resources, project_decision, project_resources};
use quipu_host::settings::AgentTool;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::args::StoreArg;
use crate::confirm::confirm;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, counted, note, one_line, printable};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    action: Option<AgentsAction>,
    /// Print JSON for programs: one object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AgentsAction {
    /// Take what a sub-agent changed in its worktree over into the files of the repository: all of it, or nothing where files
    /// conflict. Nothing is committed. The worktree and its branch go.
    Merge {
        /// The id of the worktree, its beginning, or the session that worked in it.
        id: String,
    },
    /// Remove a worktree and its branch, with all that was changed there.
    Discard {
        /// The id of the worktree, its beginning, or the session that worked in it.
        id: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) fn run(args: &AgentsArgs) -> Result<(), Failure> {
    match &args.action {
        None => list(args),
        Some(AgentsAction::Merge { id }) => merge(id),
        Some(AgentsAction::Discard { id, yes }) => discard(id, *yes),
    }
}

fn failed(error: &WorktreeError) -> Failure {
    let WorktreeError::Conflicts(conflicts) = error else { return Failure::failed(error.to_string()) };
    for MergeConflict { path, why } in conflicts {
        note(format!("{}: {}", printable(&path.display().to_string()), printable(why)));
    }
    Failure::failed(format!(
        "nothing was merged, because of {}; make these files agree, here or on the branch, and merge again",
        counted(conflicts.len() as u64, "conflict")
    ))
}

fn merge(id: &str) -> Result<(), Failure> {
    let worktrees = home(&StoreArg::default())?.worktrees();
    let WorktreeMerge { files, same, left } =
        worktrees.merge(id, &CancellationToken::new()).map_err(|error| failed(&error))?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    for file in &files {
        writeln!(out, "{} {}", file.how.word(), printable(&file.path.display().to_string()))?;
    }
    out.flush()?;
    if same > 0 {
        note(format!("{} had the same content already.", counted(same as u64, "file")));
    }
    note(match left {
        Some(why) => format!("warning: the worktree could not be removed: {}", printable(&why)),
        None if files.is_empty() => "Nothing was to be changed. The worktree is removed.".to_owned(),
        None => "Merged; nothing was committed. The worktree and its branch are removed.".to_owned(),
    });
    Ok(())
}

fn discard(id: &str, yes: bool) -> Result<(), Failure> {
    let worktrees = home(&StoreArg::default())?.worktrees();
    let info = worktrees.find(id).map_err(|error| failed(&error))?;
    if !yes {
        let question = format!("Remove the worktree {} and all that was changed in it?", info.id);
        confirm(&question, "a worktree is removed", "nothing was removed")?;
    }
    worktrees.discard(&info.id, &CancellationToken::new()).map_err(|error| failed(&error))?;
    note(format!("The worktree {} and its branch are removed.", info.id));
    Ok(())
}

/// The worktrees that are there.
fn list_worktrees(home: &Home, json: bool, out: &mut dyn std::io::Write) -> Result<(), Failure> {
    let left = home.worktrees().list(&CancellationToken::new()).map_err(|error| failed(&error))?;
    let paint = Paint::stdout();
    if !left.is_empty() && !json {
        writeln!(out, "{}", paint.bold("Worktrees"))?;
    }
    for LeftWorktree { info, state } in &left {
        let (word, what) = match state {
            WorktreeState::InUse => ("in use", "a sub-agent works in it, or it is being merged".to_owned()),
            WorktreeState::Changed(diff) => ("changed", diff.stat()),
            WorktreeState::Interrupted => (
                "interrupted",
                "Quipu ended before its changes were committed; a merge takes them".to_owned(),
            ),
            WorktreeState::Gone => ("gone", "its directory or its branch is gone".to_owned()),
        };
        if json {
            let row = json!({
                "worktreeId": info.id,
                "state": word,
                "session": info.session,
                "agent": info.agent,
                "title": info.title,
                "repository": info.top.display().to_string(),
                "path": info.tree.display().to_string(),
                "branch": info.branch,
                "base": info.base,
            });
            writeln!(out, "{row}")?;
            continue;
        }
        let about = if info.title.is_empty() { &info.agent } else { &info.title };
        writeln!(out, "{}  {}  {}", paint.bold(&info.id), one_line(about, 60), one_line(&what, 120))?;
        let path = info.tree.display().to_string();
        writeln!(
            out,
            "    {}",
            paint.dim(&one_line(&format!("{} of {}", info.branch, info.top.display()), 160))
        )?;
        writeln!(out, "    {}", paint.dim(&one_line(&path, 160)))?;
    }
    if !left.is_empty() && !json {
        writeln!(
            out,
            "{}",
            paint.dim("`quipu agents merge ID` takes one over, `quipu agents discard ID` removes it.")
        )?;
    }
    Ok(())
}

fn list(args: &AgentsArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    let cwd = current_dir()?;
    let project = project_resources(&home, &cwd);
    let decision = project.as_ref().and_then(|project| project_decision(&home, project));
    let set = all_resources(&home, project.as_ref().filter(|_| decision == Some(true)));
    let unused = project.as_ref().filter(|project| decision != Some(true) && !project.set.agents.is_empty());
    let mut rows: Vec<(&AgentFile, bool)> = set.agents.iter().map(|agent| (agent, true)).collect();
    rows.extend(unused.iter().flat_map(|project| &project.set.agents).map(|agent| (agent, false)));
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    for (agent, used) in &rows {
        if args.json {
            writeln!(out, "{}", json_of(agent, *used))?;
            continue;
        }
        let name = format!("{:<24}", one_line(&agent.definition.name, 60));
        let scope =
            if *used { agent.scope.word().to_owned() } else { format!("{}, not used", agent.scope.word()) };
        writeln!(out, "{}  {scope}  {}", paint.bold(&name), one_line(&limits(agent), 120))?;
        let path = agent.path.display().to_string();
        for text in [agent.definition.description.as_str(), path.as_str()] {
            writeln!(out, "    {}", paint.dim(&one_line(text, 160)))?;
        }
        for text in &agent.notes {
            writeln!(out, "    {}", paint.dim(&format!("note: {}", one_line(text, 160))))?;
        }
    }
    list_worktrees(&home, args.json, &mut out)?;
    out.flush()?;
    let problems = set.problems.iter().chain(unused.iter().flat_map(|project| &project.set.problems));
    for problem in problems.filter(|problem| problem.starts_with("the agent")) {
        note(format!("warning: {}", printable(problem)));
    }
    if !args.json {
        let tool = home.config_in(&cwd).agents.tool;
        note(match (tool, set.agents.is_empty()) {
            (AgentTool::Off, _) => "The model cannot send sub-agents: `agents.tool` is `off`.",
            (AgentTool::Auto, true) => {
                "There are no agents, so the model has no tool for them. `quipu config set agents.tool on` gives it one without."
            }
            (AgentTool::Auto | AgentTool::On, _) => "The model sends sub-agents with the tool `task`.",
        });
    }
    if let Some(project) = unused {
        note(format!(
            "The agents of {} are not used; `quipu config trust` shows them and accepts them.",
            project.root.display()
        ));
    }
    Ok(())
}

/// The model and what it may do, in one line.
fn limits(agent: &AgentFile) -> String {
    let definition = &agent.definition;
    let mut parts = Vec::new();
    parts.extend(definition.model.as_ref().map(|model| format!("model {model}")));
    parts.extend(definition.tools.as_ref().map(|tools| format!("tools {}", tools.join(", "))));
    if !definition.denied_tools.is_empty() {
        parts.push(format!("without {}", definition.denied_tools.join(", ")));
    }
    parts.extend(mode(definition.mode).map(str::to_owned));
    parts.extend(definition.worktree.then(|| "in a worktree".to_owned()));
    parts.extend(definition.max_turns.map(|turns| format!("{turns} turns")));
    parts.join("; ")
}

fn mode(mode: AgentMode) -> Option<&'static str> {
    match mode {
        AgentMode::Inherit => None,
        AgentMode::ReadOnly => Some("read-only"),
        AgentMode::Unasked => Some("asks nobody"),
    }
}

fn json_of(agent: &AgentFile, used: bool) -> Value {
    let definition = &agent.definition;
    json!({
        "name": definition.name,
        "description": definition.description,
        "scope": agent.scope.word(),
        "path": agent.path.display().to_string(),
        "model": definition.model,
        "tools": definition.tools,
        "deniedTools": definition.denied_tools,
        "mode": mode(definition.mode),
        "worktree": definition.worktree,
        "maxTurns": definition.max_turns,
        "notes": agent.notes,
        "used": used,
    })
}
