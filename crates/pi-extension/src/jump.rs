//! `tobe`: where it would go, and how it is kept.
//!
//! The order is that of the second version of the protocol that other programs follow: a departure below the call, the
//! message to itself below the target, then the head and the row of the log together. Only what comes last makes the jump,
//! so a crash before it leaves nodes that nothing leads to, and none after it loses anything.

use std::sync::Arc;

use quipu_dag::{Blob, Node, NodeRecord, quoted};
use quipu_history::{
    COUNTED, INCARNATE, LegalTarget, carryover, carryover_note, count_left, legal_target, line_of,
};
use quipu_protocol::{Json, NodeId};
use quipu_seal::Sealer;
use quipu_store::{Action, Commit, Graph, LineageEnd};
use serde::Serialize;

use crate::entering::lineage_of;
use crate::error::HelperError;
use crate::requests::{Jump, Plan};
use crate::sessions::{OpenSessions, SessionState, now, publish};
use crate::tools::Archive;

/// Where a call would go.
#[derive(Debug, Serialize)]
pub(crate) struct PlannedJump {
    /// The node.
    target: NodeId,
    /// What a person is asked.
    question: String,
    /// The message to itself as the conversation will hold it.
    note: String,
    /// The same without its marks, as the log of actions keeps it.
    message: String,
    /// The entry of this session to go to; `None` for the beginning of the session or for `enters`.
    entry: Option<String>,
    /// What stands at the node, where it is of another session: it becomes a branch of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    enters: Option<Vec<Json>>,
}

/// A jump that happened.
#[derive(Debug, Serialize)]
pub(crate) struct KeptJump {
    departure: NodeId,
    carryover: NodeId,
    /// The place of the next entry.
    count: u64,
}

/// Looks where a call would go.
pub(crate) async fn plan(
    store: &Arc<dyn Graph>,
    sealer: &Sealer,
    sessions: &OpenSessions,
    request: &Plan,
) -> Result<PlannedJump, HelperError> {
    let session = sessions.find(&request.session).await?;
    let message = carryover(&sealer.seal(&request.carryover_message))?;
    let (head, root, cwd) = {
        let state = session.lock().await;
        (head_of(&state, request.leaf.as_deref())?, state.live.root(), state.cwd.clone())
    };
    let archive = Archive { store: Arc::clone(store), head, cwd };
    let node = archive.sight().find(&**store, &request.target_node_hash).await?;
    let LegalTarget { illegal, nearest, .. } = legal_target(&**store, node).await?;
    if let Some(why) = illegal {
        let instead = nearest.map_or(String::new(), |near| {
            format!(" The nearest earlier node that you can go to is {}.", near.short())
        });
        return Err(HelperError::Refused(format!("You cannot go to {}: {why}.{instead}", node.short())));
    }
    let (entry, is_ours) = own_entry(&**store, &session.lock().await.live, node, root).await?;
    let line = line_of(&**store, node).await?;
    let enters = if is_ours { None } else { Some(lineage_of(store, node).await?) };
    let question = if is_ours {
        let (messages, turns) = count_left(&**store, head, node).await?;
        let more = if messages >= COUNTED { " or more" } else { "" };
        format!(
            "Go back to {} ({line}), leaving {messages}{more} message(s) behind, {turns} of them yours? Files stay as \
             they are.",
            node.short()
        )
    } else {
        format!(
            "Go to {} ({line}) of another session? Its conversation becomes a branch of this one. Files stay as they \
             are.",
            node.short()
        )
    };
    let note = carryover_note(&message, None);
    Ok(PlannedJump { target: node, question, note, message, entry, enters })
}

/// The entry of a node, and whether the session has it.
async fn own_entry(
    store: &dyn Graph,
    live: &quipu_archive::pi::LiveSession,
    node: NodeId,
    root: NodeId,
) -> Result<(Option<String>, bool), HelperError> {
    if node == root {
        return Ok((None, true));
    }
    let found = store.nodes(&[node]).await?.into_iter().flatten().next();
    let id = found.and_then(|node| node.record.external_id);
    let is_ours = id.as_deref().is_some_and(|id| live.node_of(id) == Some(node));
    Ok((id.filter(|_| is_ours), is_ours))
}

/// The node of the entry where a session stands.
pub(crate) fn head_of(state: &SessionState, leaf: Option<&str>) -> Result<NodeId, HelperError> {
    match leaf {
        None => Ok(state.live.root()),
        Some(leaf) => state.live.node_of(leaf).ok_or_else(|| {
            HelperError::Refused("The last entry of this session is not in the graph yet; try again.".into())
        }),
    }
}

/// Keeps a jump: the departure, the entries that lead to the message to itself, then the row of the log with the head.
pub(crate) async fn jump(
    store: &Arc<dyn Graph>,
    sessions: &OpenSessions,
    request: &Jump,
) -> Result<KeptJump, HelperError> {
    let session = sessions.find(&request.session).await?;
    let mut state = session.lock().await;
    let done = keep(store, &mut state, request).await;
    if let Err(error) = &done {
        sessions.give_up(&request.session, state, error).await;
    }
    done
}

async fn keep(
    store: &Arc<dyn Graph>,
    state: &mut SessionState,
    request: &Jump,
) -> Result<KeptJump, HelperError> {
    let from = head_of(state, Some(&request.from))?;
    let before = store.lineage(from, LineageEnd::Count(1)).await?;
    let after = before.last().map_or(0, |node| node.record.timestamp + 1);
    let departure = departure(from, request.target, now().max(after));
    let (departed, batch) = (departure.0.id, departure);
    let batch = Commit { nodes: vec![batch.0], blobs: vec![batch.1], ..Commit::default() };
    store.commit(batch).await?;
    state.take_in(request.first, &request.entries).await?;
    let carried = state.live.node_of(&request.carryover).ok_or_else(|| {
        HelperError::Malformed(format!("no entry has the id \"{}\" of the message", request.carryover))
    })?;
    let metadata = serde_json::json!({
        "carryover_message": request.message, "target": request.target, "agent": quipu_archive::pi::AGENT,
        "session": request.session, "cwd": state.cwd, "v": 1,
    });
    let row = Action {
        timestamp: now(),
        kind: INCARNATE.into(),
        from: Some(departed),
        to: Some(carried),
        metadata: Some(metadata.to_string()),
    };
    publish(&**store, carried, vec![row]).await?;
    Ok(KeptJump { departure: departed, carryover: carried, count: state.live.count() })
}

/// The node of a departure, in the form that other programs know, and its one part.
fn departure(from: NodeId, target: NodeId, timestamp: i64) -> (Node, Blob) {
    let text = quoted(&format!("Incarnation initiated → {}", target.short()));
    // The members in canonical order.
    let content = [
        r#"{"content":[{"text":"#,
        &text,
        r#","type":"text"}],"isError":false,"toolCallId":"tobe_departure","toolName":"tobe"}"#,
    ]
    .concat();
    let blob = Blob::from_canonical("tool_result", content);
    let record = NodeRecord {
        parent: Some(from),
        role: "toolResult".into(),
        parts: vec![blob.id],
        timestamp,
        external_id: None,
        system_prompt: None,
    };
    (Node::new(record, None, None), blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the reference.
    #[test]
    fn departure_has_the_hash_of_other_programs() {
        let id = |text: &str| text.parse::<NodeId>().unwrap();
        let from = id("04bb023c7558de5b0e61da4800fd0918bdc6bdff7ac2dbbcb2f72d79f3777a96");
        let (node, blob) = departure(from, id(&"a".repeat(64)), 1_700_000_002_000);
        assert_eq!(blob.id.to_string(), "26d43244d1e021880aee7a5d6124793887fa31d87a2dff570a5ec6c10609b2d7");
        assert_eq!(node.id, id("1848f9948b9c0a6c752d7a0e43a51a6459ff0e5d08c773ac52cbdd67967c6f3c"));
    }
}
