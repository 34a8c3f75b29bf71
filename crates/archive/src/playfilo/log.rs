//! Rows of the log of actions, as they are kept here.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use quipu_protocol::NodeId;
use quipu_seal::Sealer;
use quipu_store::{
    Action, ActionQuery, Commit, ForeignDatabase, ForeignRows, ForeignValue, Graph, StoreError,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::sealed;
use crate::{ProblemKind, Report};

/// Rows of one commit.
const TOGETHER: usize = 500;
/// Characters of the kind of a row, and bytes of what it carries.
const KIND: usize = 100;
const CARRIED: usize = 1 << 20;
/// Our own rows tell of the store in which they are.
const OURS: &str = "QUIPU_";

/// What nodes are here, by what they are there.
pub(super) type Here = HashMap<NodeId, NodeId>;

/// Reads the rows in their order, some at a time, until nobody takes them any more.
pub(super) fn read(
    database: &ForeignDatabase,
    here: &Here,
    sealer: &Sealer,
    report: &mut Report,
    rows: &mpsc::Sender<Vec<Action>>,
) -> io::Result<()> {
    const COLUMNS: [&str; 6] = ["id", "timestamp", "action_type", "from_node", "to_node", "metadata"];
    let have = database.columns("action_log")?;
    if !COLUMNS.iter().all(|name| have.iter().any(|column| column == name)) {
        return Ok(());
    }
    let mut some = Vec::new();
    let asked =
        ForeignRows { table: "action_log", columns: &COLUMNS, only: None, order: &["id"], most: None };
    database.rows(asked, &mut |row| {
        some.extend(action(row, here, sealer, report));
        some.len() < TOGETHER || rows.blocking_send(std::mem::take(&mut some)).is_ok()
    })?;
    if !some.is_empty() {
        // Nobody takes them: that is told elsewhere.
        drop(rows.blocking_send(some));
    }
    Ok(())
}

fn action(row: &[ForeignValue<'_>], here: &Here, sealer: &Sealer, report: &mut Report) -> Option<Action> {
    let [id, timestamp, kind, from, to, metadata] = row else { return None };
    let number = id.integer().unwrap_or_default();
    let kind: String = kind.text().unwrap_or_default().chars().take(KIND).collect();
    if kind.starts_with(OURS) {
        report.skip("action written by Quipu");
        return None;
    }
    let mut node = |value: &ForeignValue<'_>| {
        let text = value.text().filter(|text| !text.is_empty())?;
        let Ok(there) = text.parse::<NodeId>() else {
            let detail = format!("action {number}: {text} is not a node id");
            report.problem(0, ProblemKind::Orphan, &detail);
            return None;
        };
        let known = here.get(&there).copied();
        if known.is_none() {
            let detail = format!("action {number}: node {there} is missing");
            report.problem(0, ProblemKind::Orphan, &detail);
        }
        // The log keeps the name of what is gone.
        Some(known.unwrap_or(there))
    };
    let (from, to) = (node(from), node(to));
    let mut carried = metadata.text().map(std::borrow::Cow::into_owned);
    if carried.as_ref().is_some_and(|carried| carried.len() > CARRIED) {
        let detail = format!("action {number}: its metadata is longer than 1 MiB and is skipped");
        report.problem(0, ProblemKind::TooLong, &detail);
        carried = None;
    }
    let metadata = carried.map(|text| {
        let kept = sealed(&text, sealer);
        report.sealed += u64::from(kept != text);
        kept
    });
    Some(Action { timestamp: super::number(timestamp), kind, from, to, metadata })
}

/// Rows that the store has, each as often as it is there.
#[derive(Default)]
struct Known(HashMap<[u8; 32], u64>);

impl Known {
    async fn of(store: &dyn Graph) -> Result<Self, StoreError> {
        const PAGE: usize = 10_000;
        let (mut known, mut before) = (Self::default(), None);
        loop {
            let query = ActionQuery { before, limit: Some(PAGE), ..ActionQuery::default() };
            let page = store.actions(query).await?;
            for logged in page.iter().filter(|logged| !logged.action.kind.starts_with(OURS)) {
                *known.0.entry(key(&logged.action)).or_default() += 1;
            }
            before = page.last().map(|last| last.id);
            if page.len() < PAGE {
                return Ok(known);
            }
        }
    }

    /// Whether it has the row; each counts once.
    fn take(&mut self, action: &Action) -> bool {
        match self.0.get_mut(&key(action)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}

fn key(action: &Action) -> [u8; 32] {
    let Action { timestamp, kind, from, to, metadata } = action;
    let mut hash = Sha256::new();
    hash.update(timestamp.to_le_bytes());
    for text in [Some(kind), metadata.as_ref()] {
        hash.update([u8::from(text.is_some())]);
        hash.update(text.map_or(0, |text| text.len() as u64).to_le_bytes());
        hash.update(text.map_or("", String::as_str));
    }
    for node in [from, to] {
        hash.update([u8::from(node.is_some())]);
        hash.update(node.map_or([0; 32], |node| node.0));
    }
    hash.finalize().into()
}

/// Adds the rows that the store does not have. Gives how many those were; none is written in a dry run.
pub(super) async fn add(
    store: &Arc<dyn Graph>,
    mut rows: mpsc::Receiver<Vec<Action>>,
    dry_run: bool,
) -> Result<u64, StoreError> {
    let (mut known, mut added) = (None, 0);
    while let Some(mut actions) = rows.recv().await {
        let known = match &mut known {
            Some(known) => known,
            none => none.insert(Known::of(&**store).await?),
        };
        actions.retain(|action| !known.take(action));
        added += actions.len() as u64;
        if !dry_run && !actions.is_empty() {
            store.commit(Commit { actions, ..Commit::default() }).await?;
        }
    }
    Ok(added)
}
