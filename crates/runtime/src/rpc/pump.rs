//! From the events of a session to the lines that the program reads.

use std::sync::Arc;

use quipu::Events;
use quipu::store::Graph;
use quipu_protocol::{CompactionResult, Event, NodeId};
use quipu_rpc::JsonEvents;

use super::active::ShownSession;
use super::output::Output;

/// Letters of a node's hash that name its entry where it has no id of its own.
const NAME: usize = 16;

/// Shows events until the session ends, or nobody reads any more.
pub(super) async fn show_events(
    mut events: Events,
    mut fold: JsonEvents,
    shown: Arc<ShownSession>,
    store: Arc<dyn Graph>,
    output: Output,
) {
    let mut notices = 0_u64;
    while let Some(envelope) = events.next().await {
        match &envelope.event {
            Event::RunStarted => shown.prompt_answered(envelope.run.as_ref()).await,
            Event::CompactionEnded { result, .. } => {
                if let CompactionResult::Done { compaction, .. } = &**result
                    && let Some(kept) = compaction.first_kept
                {
                    fold.name_entry(kept, entry_name(&*store, kept).await);
                }
            }
            _ => {}
        }
        shown.note(&envelope.event);
        let mut lines = fold.fold(&envelope);
        match &envelope.event {
            Event::AskOpened { ask } => {
                lines.push(quipu_rpc::ask_line(ask, ask.deadline.map(|_| shown.ask_deadline)));
            }
            Event::Ui { ui } => {
                notices += 1;
                lines.push(quipu_rpc::ui_line(&format!("n{notices}"), ui));
            }
            _ => {}
        }
        for line in lines {
            if !output.send(line).await {
                shown.end();
                return;
            }
        }
        shown.tell(&envelope);
    }
    shown.end();
}

/// What the entry of a node is called.
pub(super) async fn entry_name(store: &dyn Graph, node: NodeId) -> String {
    let found = store.nodes(&[node]).await.ok();
    let own = found.and_then(|nodes| nodes.into_iter().flatten().next()?.record.external_id);
    own.unwrap_or_else(|| node.to_string().chars().take(NAME).collect())
}
