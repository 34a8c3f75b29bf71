//! The sources that a session has: their names, and what is known of each.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use quipu_machine::{EpochReason, Refreshes};
use quipu_protocol::Epoch;

use super::absent::AbsentTool;
use super::gather::GivenTool;
use super::{ContextSource, SourceVersion, ToolSource};
use crate::resume::Past;

/// Bytes of the name of a source at most.
const NAME: usize = 128;

/// A source of tools, and what is known of it.
pub(super) struct ToolSlot {
    pub(super) name: String,
    pub(super) source: Arc<dyn ToolSource>,
    pub(super) version: SourceVersion,
    /// Ours: its tools are no news of a program's, and need no record.
    pub(super) is_ours: bool,
}

/// A source of context that is installed, or that a record names.
pub(super) struct ContextSlot {
    pub(super) name: String,
    pub(super) installed: Option<InstalledContext>,
}

pub(super) struct InstalledContext {
    pub(super) source: Arc<dyn ContextSource>,
    pub(super) version: SourceVersion,
    pub(super) wants: Refreshes,
}

/// The name and the version of a source, where it can be installed.
pub(super) fn installed(
    names: &mut HashSet<String>,
    notices: &mut Vec<String>,
    reported: Option<(String, SourceVersion)>,
) -> Option<(String, SourceVersion)> {
    let why = match &reported {
        None => "A source is ignored: it panicked when Quipu asked for its name.".to_owned(),
        Some((name, _)) if name.is_empty() || name.len() > NAME || name.chars().any(char::is_control) => {
            format!(
                "A source is ignored: its name has {} bytes; a name must have 1 to {NAME} bytes and no control \
                 characters.",
                name.len()
            )
        }
        Some((name, _)) if !names.insert(name.clone()) => {
            format!("A second source with the name {name} is ignored.")
        }
        Some(_) => return reported,
    };
    notices.push(why);
    None
}

/// The context sources of a session: those that its record names, in that order, then those that it does not.
pub(super) fn slots(
    sources: &[Arc<dyn ContextSource>],
    past: Option<&Past>,
    notices: &mut Vec<String>,
) -> Vec<ContextSlot> {
    let mut names = HashSet::new();
    let mut found: Vec<(String, InstalledContext)> = sources
        .iter()
        .filter_map(|source| {
            let named = AssertUnwindSafe(|| (source.name().to_owned(), source.version()));
            let (name, version) = installed(&mut names, notices, catch_unwind(named).ok())?;
            let wants = |reason| catch_unwind(AssertUnwindSafe(|| source.wants(reason))).unwrap_or_default();
            let wants = Refreshes {
                compaction: wants(EpochReason::Compaction),
                model_change: wants(EpochReason::ModelChange),
                run: wants(EpochReason::Run),
            };
            Some((name, InstalledContext { source: source.clone(), version, wants }))
        })
        .collect();
    let record = past.and_then(|past| past.epoch.context.as_ref());
    let mut slots = Vec::new();
    for name in record.map(|record| &*record.sources).unwrap_or_default() {
        let at = found.iter().position(|(found, _)| found == name);
        slots.push(ContextSlot { name: name.clone(), installed: at.map(|at| found.remove(at).1) });
    }
    slots.extend(found.into_iter().map(|(name, one)| ContextSlot { name, installed: Some(one) }));
    slots
}

/// The tools of a source that the session had when it was written last, standing in for themselves.
pub(super) fn had(slot: &ToolSlot, past: Option<&Epoch>) -> Vec<GivenTool> {
    let Some(past) = past.filter(|_| !slot.is_ours) else { return Vec::new() };
    let names = past.tool_sources.get(&slot.name).map(Vec::as_slice).unwrap_or_default();
    let specs = names.iter().filter_map(|name| past.tools.iter().find(|spec| spec.name == *name));
    specs
        .map(|spec| {
            let tool = AbsentTool { spec: spec.clone(), source: slot.name.clone() };
            GivenTool { tool: Arc::new(tool), spec: spec.clone() }
        })
        .collect()
}
