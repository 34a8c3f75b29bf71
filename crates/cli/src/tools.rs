//! `quipu tools`: the tools that a session offers, stage by stage, and which rule removed the others.

use std::io::Write as _;

use quipu_host::{ChangedSchema, FilteredTools, RemovalRule, ToolName, agent_request};

use crate::args::{Task, ToolsArgs};
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, note, printable};

/// The tools that the engine begins with.
const BASE: [&str; 4] = ["read", "bash", "edit", "write"];
/// Those that stand in their place, or beside them, and work on the same files and commands.
const REPLACEMENTS: [&str; 5] = ["background", "apply_patch", "grep", "find", "ls"];

pub(crate) async fn run(args: &ToolsArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let task = Task {
        session: args.session.clone(),
        store: args.out.store.clone(),
        model: args.model.clone(),
        ..Task::default()
    };
    let mut request = crate::home::request(&task, &current_dir()?)?;
    if let Some(id) = &args.agent {
        if home.config().named_agent(id).is_none() {
            note(format!("no settings name the agent `{id}`: it has what every session has"));
        }
        request = agent_request(&home, &request, id);
    }
    request.audience.group.clone_from(&args.group);
    request.audience.sender.clone_from(&args.sender);
    let started = crate::home::open_as(&home, &task, request).await?;
    let model = format!("{}/{}", started.model.provider, started.model.id);
    let found = started.tool_filter.as_ref().and_then(|filter| filter.last());
    // Nothing was said in it, so nothing is stored.
    started.opened.session.shutdown().await;
    let report =
        ToolReport { model, found: found.ok_or_else(|| Failure::failed("the session has no tools"))? };
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        writeln!(out, "{}", report.json())?;
    } else {
        for line in report.lines(Paint::stdout()) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}

/// The tools of a session.
struct ToolReport {
    model: String,
    found: FilteredTools,
}

/// A stage of the pipeline: its name, how many tools leave it, and what it does.
struct Stage {
    name: &'static str,
    count: usize,
    text: String,
}

impl ToolReport {
    fn stages(&self) -> [Stage; 7] {
        let FilteredTools { tools, report, changed_schemas } = &self.found;
        let count = |fits: &dyn Fn(&ToolName) -> bool| tools.iter().filter(|tool| fits(tool)).count();
        let is_own = |tool: &ToolName| tool.source().is_none();
        let is_base = |tool: &ToolName| is_own(tool) && BASE.contains(&tool.shown());
        let is_work = |tool: &ToolName| is_base(tool) || is_own(tool) && REPLACEMENTS.contains(&tool.shown());
        let (kept, removed, rewritten) = (report.kept.len(), report.removed.len(), changed_schemas.len());
        let stage = |name, count, text: String| Stage { name, count, text };
        [
            stage("base", BASE.len(), BASE.join(", ")),
            stage("replacements", count(&is_work), "by the settings, the sandbox and the model".into()),
            stage("own", count(&is_own), "Quipu's other tools".into()),
            stage("channel's", tools.len(), "tools of MCP servers and other sources".into()),
            stage("policy", kept, format!("{removed} removed")),
            stage("schema", kept, format!("{rewritten} rewritten for the API of the model")),
            stage("abort", kept, "each stops when its run does".into()),
        ]
    }

    fn json(&self) -> serde_json::Value {
        let FilteredTools { tools, report, changed_schemas } = &self.found;
        let stages = self.stages();
        let stages =
            stages.iter().map(|stage| serde_json::json!({ "stage": stage.name, "tools": stage.count }));
        let offered = tools.iter().filter(|tool| report.kept.iter().any(|name| name == tool.shown()));
        let offered =
            offered.map(|tool| serde_json::json!({ "tool": tool.shown(), "source": tool.source() }));
        let removed = report.removed.iter().map(|one| {
            let entry = match &one.rule {
                RemovalRule::Denied(entry) => Some(entry),
                RemovalRule::NotAllowed => None,
            };
            let rule = if entry.is_some() { "denied" } else { "notAllowed" };
            let step = one.scope.to_string();
            serde_json::json!({ "tool": one.tool, "step": step, "rule": rule, "entry": entry })
        });
        let changed = changed_schemas.iter().map(|ChangedSchema { tool, changes }| {
            let changes: Vec<&str> = changes.iter().map(|change| change.words()).collect();
            serde_json::json!({ "tool": tool, "changes": changes })
        });
        serde_json::json!({
            "model": self.model,
            "stages": stages.collect::<Vec<_>>(),
            "offered": offered.collect::<Vec<_>>(),
            "removed": removed.collect::<Vec<_>>(),
            "schemas": changed.collect::<Vec<_>>(),
            "warnings": report.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    fn lines(&self, paint: Paint) -> Vec<String> {
        let FilteredTools { tools, report, changed_schemas } = &self.found;
        let mut lines = vec![format!("tools for {}", paint.bold(&printable(&self.model)))];
        for Stage { name, count, text } in self.stages() {
            lines.push(format!("  {name:<12}  {count:>3}  {text}"));
        }
        lines.push("offered".to_owned());
        for tool in tools.iter().filter(|tool| report.kept.iter().any(|name| name == tool.shown())) {
            let source = tool.source().map(|source| format!(" ({source})")).unwrap_or_default();
            lines.push(printable(&format!("  {}{source}", tool.shown())).to_string());
        }
        if report.kept.is_empty() {
            lines.push("  none".to_owned());
        }
        if !report.removed.is_empty() {
            lines.push("removed".to_owned());
            lines.extend(report.removed.iter().map(|one| printable(&format!("  {one}"))));
        }
        if !changed_schemas.is_empty() {
            lines.push("schemas that are not sent as they are".to_owned());
        }
        for ChangedSchema { tool, changes } in changed_schemas {
            let changes: Vec<&str> = changes.iter().map(|change| change.words()).collect();
            lines.push(printable(&format!("  {tool}: {}", changes.join("; "))).to_string());
        }
        lines
    }
}
