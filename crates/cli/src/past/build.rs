//! What a past is to have: estimated, made, checked.

use std::io::Write as _;
use std::sync::Arc;

use quipu_host::jobs::models_for_jobs;
use quipu_host::past::{FinishedBuild, PastWriters};
use quipu_past::{BuildEnd, BuildProgress, BuildSize, PastCheck, SummaryModel as _};
use serde_json::{Value, json};

use super::{BuildArgs, PastOptions, PastStore};
use crate::exit::{Exit, Failure};
use crate::print::{Progress, counted, dollars, note, printable};

/// Gaps and faults that are printed without `--json`.
const SHOWN: usize = 20;

/// Who makes the summaries.
async fn writers(past: &PastStore, extractive: bool) -> Result<PastWriters, Failure> {
    if extractive {
        return Ok(PastWriters::Rules);
    }
    let runner = models_for_jobs(&past.home, Arc::clone(&past.store));
    Ok(PastWriters::of(&past.home, &past.store, runner).await?)
}

pub(super) async fn estimate(args: &BuildArgs) -> Result<(), Failure> {
    let past = args.of.open().await?;
    let writers = writers(&past, args.extractive).await?;
    let plan = writers.plan(&*past.store, &past.scope).await?;
    let end = BuildEnd { size: plan.size(), cost: writers.summaries().cost(&plan), ..BuildEnd::default() };
    tell(&past, &writers, &end, args.of.out.json, &ESTIMATED)
}

pub(super) async fn build(args: &BuildArgs) -> Result<(), Failure> {
    let past = args.of.open_to_write().await?;
    let writers = writers(&past, args.extractive).await?;
    let shown = Progress::new();
    let mut progress = |at: BuildProgress| {
        let mut line = format!("{} of {}", at.done, chunks(at.of));
        if at.calls > 0 {
            line.push_str(&format!(", {}, {}", counted(at.calls as u64, "call"), dollars(at.cost)));
        }
        shown.show(&line);
    };
    let built = writers.build(&past.store, &past.scope, &mut progress).await;
    shown.clear();
    let FinishedBuild { end, ungrounded, warning } = built?;
    if let Some(why) = warning {
        note(format!("warning: the chunks could not be checked against their sources: {}", printable(&why)));
    }
    if ungrounded > 0 {
        note(format!(
            "{} say what their sources do not, and are kept out of covers; `quipu past prove` names them.",
            chunks(ungrounded)
        ));
    }
    tell(&past, &writers, &end, args.of.out.json, &BUILT)?;
    let Some(stop) = end.stop else { return Ok(()) };
    let left = format!(
        "{}; {} left, which cost at most {}",
        printable(&stop.why),
        counted((stop.left.leaves + stop.left.parents) as u64, "chunk"),
        dollars(stop.left_cost)
    );
    let exit = if stop.is_budget { Exit::Limit } else { Exit::Failed };
    Err(Failure::new(exit, format!("{left}. What is made stays; the next build goes on from there.")))
}

/// The words for what is to be done, or was.
struct BuildWords {
    made: &'static str,
    restored: &'static str,
    superseded: &'static str,
    at_most: &'static str,
}

const ESTIMATED: BuildWords =
    BuildWords { made: "to make", restored: "to put back", superseded: "to supersede", at_most: "at most " };
const BUILT: BuildWords =
    BuildWords { made: "made", restored: "put back", superseded: "superseded", at_most: "" };

fn chunks(count: usize) -> String {
    counted(count as u64, "chunk")
}

fn build_json(past: &PastStore, writers: &PastWriters, end: &BuildEnd) -> Value {
    let mut value = json!(end.size);
    value["scope"] = json!(past.scope);
    value["cost"] = if end.cost == 0.0 { 0.into() } else { end.cost.into() };
    let Some(model) = writers.model() else { return value };
    value["model"] = model.name().into();
    let replaced = end.replaced.iter().map(|one| json!({ "range": one.range, "why": one.why }));
    value["replaced"] = replaced.collect();
    value["replacedCount"] = end.replaced_count.into();
    value["left"] = end.stop.as_ref().map_or(Value::Null, |stop| {
        let mut left = json!(stop.left);
        left["cost"] = stop.left_cost.into();
        json!({ "why": stop.why, "budget": stop.is_budget, "left": left })
    });
    value
}

fn tell(
    past: &PastStore,
    writers: &PastWriters,
    end: &BuildEnd,
    as_json: bool,
    words: &BuildWords,
) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    let size = &end.size;
    if as_json {
        writeln!(out, "{}", build_json(past, writers, end))?;
        return Ok(());
    }
    let BuildSize { leaves, parents, standing, nodes, sessions, .. } = *size;
    writeln!(
        out,
        "{}: {} of nodes and {parents} above them {}, {standing} {} there; {} of {}",
        printable(&past.scope.name()),
        chunks(leaves),
        words.made,
        if standing == 1 { "is" } else { "are" },
        counted(nodes as u64, "node"),
        counted(sessions as u64, "session"),
    )?;
    for (count, words) in [
        (size.restored, words.restored),
        (size.superseded, words.superseded),
        (size.retracted, "taken back, and not made again"),
    ] {
        if count > 0 {
            writeln!(out, "  {} {words}", chunks(count))?;
        }
    }
    if size.open > 0 {
        let open = counted(size.open as u64, "node");
        writeln!(out, "  {open} of conversations that may go on, left for later")?;
    }
    if size.untimed > 0 {
        let untimed = counted(size.untimed as u64, "node");
        writeln!(out, "  {untimed} of no known time, left out")?;
    }
    match writers.model() {
        None => writeln!(out, "  no model is asked; cost $0")?,
        Some(model) => {
            let (calls, at_most) = (counted(size.calls as u64, "call"), words.at_most);
            writeln!(
                out,
                "  {calls} of {}: {} tokens sent, {at_most}{} answered; cost {at_most}{}",
                printable(&model.name()),
                size.input_tokens,
                size.output_tokens,
                dollars(end.cost)
            )?;
            if size.recorded > 0 {
                let recorded = counted(size.recorded as u64, "answer");
                writeln!(out, "  {recorded} to earlier calls used, without another call")?;
            }
        }
    }
    for one in end.replaced.iter().take(SHOWN) {
        writeln!(out, "  {}: extractive, {}", one.range, printable(&one.why))?;
    }
    if end.replaced_count > end.replaced.len().min(SHOWN) {
        writeln!(out, "  … {} are extractive because the model gave none", chunks(end.replaced_count))?;
    }
    if sessions == 0 {
        note(format!("No session belongs to {}.", printable(&past.scope.name())));
    }
    Ok(out.flush()?)
}

pub(super) async fn check(of: &PastOptions) -> Result<(), Failure> {
    let past = of.open().await?;
    // Without a model that can be asked, what is missing is missing all the same.
    let writers = writers(&past, false).await.unwrap_or(PastWriters::Rules);
    let plan = writers.plan(&*past.store, &past.scope).await?;
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
        let taken: Vec<Value> = found
            .retracted
            .iter()
            .map(|gap| json!({ "range": gap.span.key(), "nodes": gap.nodes }))
            .collect();
        let whole = json!({
            "scope": past.scope, "gaps": gaps, "retracted": taken, "levels": found.levels, "roots": found.roots,
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
    for gap in found.retracted.iter().take(SHOWN) {
        writeln!(out, "  taken back, and not made again: {} nodes in {}", gap.nodes, gap.span)?;
    }
    if found.retracted.len() > SHOWN {
        writeln!(out, "  … and {} more ranges that were taken back", found.retracted.len() - SHOWN)?;
    }
    if found.outdated > 0 {
        writeln!(out, "  {} chunks will be superseded by the next build", found.outdated)?;
    }
    for faulty in faults.iter().take(SHOWN) {
        writeln!(out, "  node {}: {}", faulty.node.short(), printable(&faulty.fault.to_string()))?;
    }
    let more = plan.index().fault_count.saturating_sub(faults.len().min(SHOWN));
    if more > 0 {
        writeln!(out, "  … and {more} more faults")?;
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
