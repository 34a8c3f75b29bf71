//! `quipu agents`: the sub-agents that the model of a session can send.

use std::io::Write as _;

use clap::Args;
use quipu::AgentMode;
use quipu_host::resources::{AgentFile, all_resources, project_decision, project_resources};
use quipu_host::settings::AgentTool;
use serde_json::{Value, json};

use crate::args::StoreArg;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, note, one_line, printable};

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Print JSON for programs: one object per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &AgentsArgs) -> Result<(), Failure> {
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
        "maxTurns": definition.max_turns,
        "notes": agent.notes,
        "used": used,
    })
}
