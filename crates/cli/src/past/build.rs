//! What a past is to have: estimated, made, checked.

use std::io::Write as _;

use quipu_host::now;
use quipu_past::prove::mark_ungrounded;
use quipu_past::{
    BuildProgress, BuildSize, ExtractiveSummary, PastCheck, PastPlan, Summariser as _, build_past,
};
use serde_json::{Value, json};

use super::{PastOptions, PastStore};
use crate::exit::Failure;
use crate::print::{Progress, note, printable};

/// Gaps and faults that are printed without `--json`.
const SHOWN: usize = 20;

async fn plan(past: &PastStore) -> Result<PastPlan, Failure> {
    let planned = PastPlan::make(&*past.store, &past.scope, &ExtractiveSummary.method(), now()).await;
    Ok(planned.map_err(quipu_host::Failure::from)?)
}

pub(super) async fn estimate(of: &PastOptions) -> Result<(), Failure> {
    let past = of.open().await?;
    let size = plan(&past).await?.size();
    tell(&past, &size, of.out.json, ["to make", "to put back", "to supersede"])
}

pub(super) async fn build(of: &PastOptions) -> Result<(), Failure> {
    let past = of.open_to_write().await?;
    let plan = plan(&past).await?;
    let shown = Progress::new();
    let mut progress = |at: BuildProgress| shown.show(&format!("{} of {} chunks", at.done, at.of));
    let built = build_past(&*past.store, &past.scope, &ExtractiveSummary, &plan, now(), &mut progress).await;
    shown.clear();
    let size = built.map_err(quipu_host::Failure::from)?;
    let marked =
        mark_ungrounded(&*past.store, &past.scope, now()).await.map_err(quipu_host::Failure::from)?;
    let ungrounded = marked.iter().filter(|verdict| !verdict.is_grounded()).count();
    if ungrounded > 0 {
        note(format!(
            "{ungrounded} chunks say what their sources do not, and are kept out of covers; `quipu past prove` names them."
        ));
    }
    tell(&past, &size, of.out.json, ["made", "put back", "superseded"])
}

fn size_json(past: &PastStore, size: &BuildSize) -> Value {
    let mut value = json!(size);
    value["scope"] = json!(past.scope);
    // Sentences of the sources need no model.
    value["calls"] = 0.into();
    value["cost"] = 0.into();
    value
}

fn tell(
    past: &PastStore,
    size: &BuildSize,
    as_json: bool,
    [made, restored, superseded]: [&str; 3],
) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    if as_json {
        writeln!(out, "{}", size_json(past, size))?;
        return Ok(());
    }
    let BuildSize { leaves, parents, standing, nodes, sessions, .. } = size;
    writeln!(
        out,
        "{}: {leaves} chunks of nodes and {parents} above them {made}, {standing} are there; {nodes} nodes of {sessions} sessions",
        printable(&past.scope.name())
    )?;
    for (count, words) in [
        (size.restored, restored),
        (size.superseded, superseded),
        (size.retracted, "retracted, and not made again"),
    ] {
        if count > 0 {
            writeln!(out, "  {count} chunks {words}")?;
        }
    }
    if size.open > 0 {
        writeln!(out, "  {} nodes of conversations that may go on: they are left for later", size.open)?;
    }
    if size.untimed > 0 {
        writeln!(out, "  {} nodes have no known time, and are left out", size.untimed)?;
    }
    writeln!(out, "  no model is asked; cost $0")?;
    Ok(out.flush()?)
}

pub(super) async fn check(of: &PastOptions) -> Result<(), Failure> {
    let past = of.open().await?;
    let plan = plan(&past).await?;
    let found = plan.check();
    let faults = &plan.index().faults;
    let size = plan.size();
    let mut out = crate::console::stdout();
    if of.out.json {
        let gaps: Vec<Value> = found
            .gaps
            .iter()
            .map(|gap| json!({ "range": gap.span.key(), "nodes": gap.nodes, "lateFor": gap.late_for }))
            .collect();
        let faulty: Vec<Value> = faults
            .iter()
            .map(|faulty| json!({ "node": faulty.node, "fault": faulty.fault.to_string() }))
            .collect();
        let whole = json!({
            "scope": past.scope, "gaps": gaps, "levels": found.levels, "roots": found.roots,
            "outdated": found.outdated, "open": size.open, "untimed": size.untimed, "faults": faulty,
            "faultCount": plan.index().fault_count,
        });
        writeln!(out, "{whole}")?;
        return Ok(());
    }
    writeln!(out, "{}: {}", printable(&past.scope.name()), density(&found))?;
    for gap in found.gaps.iter().take(SHOWN) {
        let late = gap.late_for.as_ref().map_or_else(String::new, |key| format!("; late for {key}"));
        writeln!(out, "  no summary of {} nodes in {}{late}", gap.nodes, gap.span)?;
    }
    if found.gaps.len() > SHOWN {
        writeln!(out, "  … and {} more ranges without one", found.gaps.len() - SHOWN)?;
    }
    if found.outdated > 0 {
        writeln!(out, "  {} chunks will be superseded by the next build", found.outdated)?;
    }
    for faulty in faults.iter().take(SHOWN) {
        writeln!(out, "  node {}: {}", faulty.node.short(), printable(&faulty.fault.to_string()))?;
    }
    if plan.index().fault_count > faults.len().min(SHOWN) {
        writeln!(out, "  … {} nodes have a fault", plan.index().fault_count)?;
    }
    out.flush()?;
    if !found.gaps.is_empty() {
        note("`quipu past build` makes what is missing.");
    }
    Ok(())
}

fn density(found: &PastCheck) -> String {
    let levels = found.levels.iter().enumerate().filter(|(_, count)| **count > 0);
    let levels: Vec<String> = levels.map(|(level, count)| format!("{count} on level {level}")).collect();
    if levels.is_empty() {
        return "no chunk yet".to_owned();
    }
    format!("{}; {} without a parent", levels.join(", "), found.roots)
}
