//! One commit, applied within a transaction that the writer opened.

use std::collections::HashSet;

use quipu_dag::{Blob, Node, Verdict, write_parts_list};
use quipu_protocol::{BlobId, Hex, NodeId};
use rusqlite::{Connection, OptionalExtension as _, params};
use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

use super::chunks::{self, EncodedChunk};
use super::failure::{Failure, Outcome};
use super::index::NodeHint;
use super::{rows, spend};
use crate::bulk::FileId;
use crate::load::BuildIdHasher;
use crate::{
    Action, BLOB_LIMIT, Commit, Durability, Fence, Op, Owner, RefExpectation, RefMove, RefName, SpooledNodes,
    StepCall, StepState, StoreError,
};

/// Bytes of a ref's name, an id, a queue's name at most.
const NAME_LIMIT: usize = 1024;
/// Nodes of a commit that are looked through one by one.
const FEW: usize = 64;
/// Bytes of a call's id at most; models choose it.
const CALL_LIMIT: u64 = 64 << 10;

/// What a commit is, for who traces it.
pub(super) fn span(commit: &Commit) -> Span {
    debug_span!(
        "commit",
        node = commit.nodes.last().map(|node| display(node.id)),
        nodes = commit.nodes.len(),
        refs = commit.moves.len(),
        ops = commit.ops.len(),
        durable = commit.durability == Durability::Power,
        error = Empty,
    )
}

/// It was not made.
pub(super) fn failed(span: &Span, error: &StoreError) {
    span.record("error", display(error));
}

/// Refuses what is beyond the limits, before anything is queued.
pub(super) fn check_limits(commit: &Commit) -> Result<(), StoreError> {
    let beyond =
        |what: String, size: usize, limit: u64| Err(StoreError::TooLarge { what, size: size as u64, limit });
    let within = |what: &str, size: usize, limit: u64| match size as u64 <= limit {
        true => Ok(()),
        false => beyond(what.to_owned(), size, limit),
    };
    let name = |what: &str, text: &str| within(what, text.len(), NAME_LIMIT as u64);
    for blob in &commit.blobs {
        if blob.content.len() as u64 > BLOB_LIMIT {
            let what = format!("the content of a blob of type {}", blob.kind);
            return beyond(what, blob.content.len(), BLOB_LIMIT);
        }
    }
    for node in &commit.nodes {
        within("the parts list of a node", node.record.parts.len() * 67, BLOB_LIMIT)?;
        let config = node.config.as_ref().map_or(0, String::len);
        let signatures = node.thought_signatures.as_ref().map_or(0, String::len);
        within("a node's configuration", config + signatures, BLOB_LIMIT)?;
    }
    for moved in &commit.moves {
        name("the name of a ref", moved.name.as_str())?;
    }
    for action in &commit.actions {
        within("the metadata of an action", action.metadata.as_ref().map_or(0, String::len), BLOB_LIMIT)?;
    }
    for op in &commit.ops {
        match op {
            Op::InboxPut { session, item } => {
                name("the name of a session", session.as_str())?;
                name("the name of a queue", &item.queue)?;
                name("the id of an input", item.id.as_str())?;
                within("an input", item.input.get().len(), BLOB_LIMIT)?;
            }
            Op::StepPut { session, step } => {
                name("the name of a session", session.as_str())?;
                name("the name of a run", step.run.as_str())?;
                if let StepCall::Tool(call) = &step.call {
                    within("the id of a call", call.as_str().len(), CALL_LIMIT)?;
                }
                within("the data of a step", step.data.as_ref().map_or(0, Vec::len), BLOB_LIMIT)?;
            }
            Op::Renew { id, .. } | Op::Release { id, .. } | Op::Spend { id, .. } => {
                name("the name of a reservation", &id.0)?;
            }
            Op::JumpPut { session, jump } => {
                name("the name of a session", session.as_str())?;
                name("the stage of a jump", &jump.stage)?;
                within("the plan of a jump", jump.plan.get().len(), BLOB_LIMIT)?;
            }
            Op::InboxTake { .. } | Op::StepRemove { .. } | Op::RunRemove { .. } | Op::JumpRemove { .. } => {}
        }
    }
    Ok(())
}

/// A move of a ref, as the log of refs keeps it.
pub(super) struct LoggedRefMove {
    name: RefName,
    old: Option<NodeId>,
    new: Option<NodeId>,
    /// Milliseconds since the epoch.
    at: i64,
    why: String,
    /// Whether the log can tell of it a few commits later: the new node leads back to the old one, or the ref is one
    /// that anybody may overwrite.
    pub(super) can_wait: bool,
}

/// Writes moves to the log of refs.
pub(super) fn log_moves(connection: &Connection, moves: &[LoggedRefMove], writer: &str) -> Outcome<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO quipu_reflog (ref, old, new, at, writer, why) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for moved in moves {
        statement.execute(params![
            moved.name.as_str(),
            moved.old.map(|id| id.0),
            moved.new.map(|id| id.0),
            moved.at,
            writer,
            moved.why
        ])?;
    }
    Ok(())
}

/// What a commit left to be written.
#[derive(Default)]
pub(super) struct CommitEffects {
    /// For [`log_moves`].
    pub(super) moves: Vec<LoggedRefMove>,
    /// What nodes mean, for the index.
    pub(super) hints: Vec<(NodeId, NodeHint)>,
    /// The row number that each node of the commit was given; 0 for one that was there.
    pub(super) seqs: Vec<i64>,
}

/// Applies a commit: objects before the refs that stand at them.
pub(super) fn apply(
    connection: &Connection,
    commit: &Commit,
    chunks: &[EncodedChunk],
) -> Outcome<CommitEffects> {
    let there = insert_blobs(connection, &commit.blobs)?;
    let new: HashSet<&BlobId, BuildIdHasher> = commit.blobs.iter().map(|blob| &blob.id).collect();
    let seqs = insert_nodes(connection, &commit.nodes, |blob| new.contains(blob))?;
    let revives = revives(commit, &seqs);
    chunks::insert(connection, chunks, &commit.chunks, revives)?;
    if revives && !there.is_empty() {
        revive(connection, commit, &seqs, &there)?;
    }
    let mut hints = commit.hints.clone();
    if let Some(spooled) = &commit.spooled {
        hints.extend(insert_spooled(connection, spooled)?);
    }
    for action in &commit.actions {
        log(connection, action)?;
    }
    let mut moves = Vec::with_capacity(commit.moves.len());
    for moved in &commit.moves {
        let moved = move_ref(connection, moved, &commit.nodes)?;
        // One that was not there and is to go has not moved.
        moves.extend(Some(moved).filter(|moved| moved.old.is_some() || moved.new.is_some()));
    }
    // After the refs: who lost a race is told so, and not that an input is gone which the winner took.
    for op in &commit.ops {
        operate(connection, op)?;
    }
    Ok(CommitEffects { moves, hints, seqs })
}

/// Whether what was erased is there again by this commit: when it is said anew; not when an import meets it again.
fn revives(commit: &Commit, seqs: &[i64]) -> bool {
    commit.spooled.is_none() && (seqs.iter().any(|seq| *seq > 0) || !commit.ops.is_empty())
}

/// Puts texts back that were erased and are said anew.
fn revive(connection: &Connection, commit: &Commit, seqs: &[i64], blobs: &[&Blob]) -> Outcome<()> {
    let new = commit.nodes.iter().zip(seqs).filter(|(_, seq)| **seq > 0);
    let named: HashSet<&BlobId, BuildIdHasher> = new.flat_map(|(node, _)| parts_of(node)).collect();
    for blob in blobs.iter().filter(|blob| named.contains(&blob.id)) {
        // What a copy of an erased row says is not what was said.
        if blob.verify() == Verdict::Valid && super::erased::is_erased_blob(connection, &blob.id)? {
            connection
                .prepare_cached("UPDATE blobs SET content = ?2 WHERE hash = ?1")?
                .execute(params![blob.id.hex().as_str(), blob.content])?;
            super::erased::forget(connection, &blob.id.0)?;
        }
    }
    Ok(())
}

/// Gives those that were there already.
fn insert_blobs<'a>(connection: &Connection, blobs: &'a [Blob]) -> Outcome<Vec<&'a Blob>> {
    let mut there = Vec::new();
    if blobs.is_empty() {
        return Ok(there);
    }
    let mut statement =
        connection.prepare_cached("INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)")?;
    for blob in blobs {
        debug_assert!(!matches!(blob.verify(), Verdict::Corrupt(_)), "the id of {blob:?} is wrong");
        if statement.execute(params![blob.id.hex().as_str(), blob.kind, blob.content])? == 0 {
            there.push(blob);
        }
    }
    Ok(there)
}

/// Whether all blobs are there that nodes need which wait in a file. They stay, so this needs no lock.
pub(super) fn check_spooled(
    connection: &Connection,
    spooled: &SpooledNodes,
    file: Option<FileId>,
) -> Outcome<()> {
    if spooled.count() == 0 || file.is_some_and(|file| spooled.are_ready_for(file)) {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    let mut has_blob = transaction.prepare_cached("SELECT 1 FROM blobs WHERE hash = ?1")?;
    for blob in spooled.blobs() {
        if !has_blob.exists([blob.hex().as_str()])? {
            return Err(Failure::Missing(format!("blob {}, which nodes of an import need,", blob.short())));
        }
    }
    Ok(())
}

fn insert_spooled(connection: &Connection, spooled: &SpooledNodes) -> Outcome<Vec<(NodeId, NodeHint)>> {
    let mut all_hints = Vec::new();
    let mut first = 0;
    loop {
        let (nodes, hints): (Vec<Node>, Vec<Option<NodeHint>>) =
            spooled.nodes_from(first)?.into_iter().unzip();
        if nodes.is_empty() {
            return Ok(all_hints);
        }
        insert_nodes(connection, &nodes, |blob| spooled.has_blob(blob))?;
        all_hints.extend(nodes.iter().zip(hints).filter_map(|(node, hints)| Some((node.id, hints?))));
        first += nodes.len();
    }
}

/// `new` tells which blobs came with them. Gives back the row number of each; 0 of one that was there.
fn insert_nodes(connection: &Connection, nodes: &[Node], new: impl Fn(&BlobId) -> bool) -> Outcome<Vec<i64>> {
    let mut seqs = Vec::with_capacity(nodes.len());
    if nodes.is_empty() {
        return Ok(seqs);
    }
    let mut has_blob = connection.prepare_cached("SELECT 1 FROM blobs WHERE hash = ?1")?;
    let mut has_node = connection.prepare_cached("SELECT 1 FROM nodes WHERE id = ?1")?;
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO nodes (id, parent_id, role, parts_list, timestamp, config_json, thought_signatures, \
         system_prompt_hash, external_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    if nodes.len() > FEW {
        // In the order of the index, or each would be looked for on another page of it.
        let mut there: Vec<_> =
            nodes.iter().flat_map(|node| parts_of(node).map(move |part| (part, node))).collect();
        there.retain(|(part, _)| !new(part));
        there.sort_unstable_by_key(|(part, _)| *part);
        there.dedup_by_key(|(part, _)| *part);
        for (part, node) in there {
            if !has_blob.exists([part.hex().as_str()])? {
                return Err(no_part(part, node));
            }
        }
    }
    let mut placed: HashSet<&NodeId, BuildIdHasher> =
        HashSet::with_capacity_and_hasher(nodes.len(), BuildIdHasher);
    for node in nodes {
        debug_assert!(!matches!(node.verify(), Verdict::Corrupt(_)), "the id of {node:?} is wrong");
        let record = &node.record;
        let parent = record.parent.as_ref().map(NodeId::hex);
        let parent = parent.as_ref().map(Hex::as_str);
        if let Some(parent) = parent
            && record.parent.as_ref().is_none_or(|parent| !placed.contains(parent))
            && !has_node.exists([parent])?
        {
            return Err(Failure::Missing(format!(
                "node {}, the parent of node {},",
                &parent[..12],
                node.id.short()
            )));
        }
        for part in parts_of(node).filter(|_| nodes.len() <= FEW) {
            if !new(part) && !has_blob.exists([part.hex().as_str()])? {
                return Err(no_part(part, node));
            }
        }
        let inserted = insert.execute(params![
            node.id.hex().as_str(),
            parent,
            record.role,
            write_parts_list(&record.parts),
            record.timestamp,
            node.config,
            node.thought_signatures,
            record.system_prompt.as_ref().map(BlobId::hex).as_ref().map(Hex::as_str),
            record.external_id
        ])?;
        seqs.push(if inserted > 0 { connection.last_insert_rowid() } else { 0 });
        placed.insert(&node.id);
    }
    Ok(seqs)
}

fn parts_of(node: &Node) -> impl Iterator<Item = &BlobId> {
    node.record.parts.iter().chain(&node.record.system_prompt)
}

fn no_part(part: &BlobId, node: &Node) -> Failure {
    Failure::Missing(format!("blob {}, a part of node {},", part.short(), node.id.short()))
}

fn log(connection: &Connection, action: &Action) -> Outcome<()> {
    connection
        .prepare_cached(
            "INSERT INTO action_log (timestamp, action_type, from_node, to_node, metadata) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            action.timestamp,
            action.kind,
            action.from.as_ref().map(NodeId::to_string),
            action.to.as_ref().map(NodeId::to_string),
            action.metadata
        ])?;
    Ok(())
}

fn operate(connection: &Connection, op: &Op) -> Outcome<()> {
    match op {
        Op::InboxPut { session, item } => {
            connection
                .prepare_cached(
                    "INSERT OR IGNORE INTO quipu_inbox (session, name, queue, item) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![session.as_str(), item.id.as_str(), item.queue, item.input.get()])?;
        }
        Op::InboxTake { session, item } => {
            let taken = connection
                .prepare_cached("DELETE FROM quipu_inbox WHERE session = ?1 AND name = ?2")?
                .execute([session.as_str(), item.as_str()])?;
            if taken == 0 {
                return Err(Failure::Missing(format!("input {item} of session {session}")));
            }
        }
        Op::StepPut { session, step } => {
            connection
                .prepare_cached(
                    "INSERT INTO quipu_step (session, run, call, state, result) VALUES (?1, ?2, ?3, ?4, ?5) \
                     ON CONFLICT (session, run, call) DO UPDATE SET state = excluded.state, result = excluded.result",
                )?
                .execute(params![
                    session.as_str(),
                    step.run.as_str(),
                    write_call(&step.call),
                    write_state(step.state),
                    step.data
                ])?;
        }
        Op::StepRemove { session, run, call, data } => {
            connection
                .prepare_cached(
                    "DELETE FROM quipu_step WHERE session = ?1 AND run = ?2 AND call = ?3 \
                     AND (?4 IS NULL OR result = ?4)",
                )?
                .execute(params![session.as_str(), run.as_str(), write_call(call), data])?;
        }
        Op::RunRemove { session, run } => {
            connection
                .prepare_cached("DELETE FROM quipu_step WHERE session = ?1 AND run = ?2")?
                .execute([session.as_str(), run.as_str()])?;
        }
        Op::Renew { id, expires } => spend::renew(connection, id, *expires)?,
        Op::Release { id, charged } => spend::release(connection, id, *charged)?,
        Op::Spend { id, amount } => spend::spend(connection, id, *amount)?,
        Op::JumpPut { session, jump } => {
            connection
                .prepare_cached(
                    "INSERT INTO quipu_jump (session, stage, plan) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (session) DO UPDATE SET stage = excluded.stage, plan = excluded.plan",
                )?
                .execute([session.as_str(), &jump.stage, jump.plan.get()])?;
        }
        Op::JumpRemove { session } => {
            connection
                .prepare_cached("DELETE FROM quipu_jump WHERE session = ?1")?
                .execute([session.as_str()])?;
        }
    }
    Ok(())
}

/// A model may call its tool call anything, so the two kinds are told apart by a prefix.
fn write_call(call: &StepCall) -> String {
    match call {
        StepCall::Model => "model".to_owned(),
        StepCall::Early => "early".to_owned(),
        StepCall::Tool(call) => format!("tool:{call}"),
    }
}

pub(super) fn read_call(text: &str) -> Option<StepCall> {
    match text {
        "model" => Some(StepCall::Model),
        "early" => Some(StepCall::Early),
        _ => text.strip_prefix("tool:").map(|call| StepCall::Tool(call.into())),
    }
}

fn write_state(state: StepState) -> &'static str {
    match state {
        StepState::Sent => "sent",
        StepState::Announced => "announced",
        StepState::Running => "running",
        StepState::Done => "done",
    }
}

pub(super) fn read_state(text: &str) -> Option<StepState> {
    Some(match text {
        "sent" => StepState::Sent,
        "announced" => StepState::Announced,
        "running" => StepState::Running,
        "done" => StepState::Done,
        _ => return None,
    })
}

/// `new` are the nodes that came with the move.
fn move_ref(connection: &Connection, moved: &RefMove, new: &[Node]) -> Outcome<LoggedRefMove> {
    let name = moved.name.as_str();
    if let Some(fence) = moved.fence {
        let holder = holder(connection, &moved.name)?;
        if holder.as_ref().is_none_or(|holder| holder.fence != fence) {
            let owner = holder.map(|holder| holder.owner).unwrap_or_default();
            return Err(StoreError::Fenced { name: moved.name.clone(), owner }.into());
        }
    }
    let row: Option<String> = connection
        .prepare_cached("SELECT node_id FROM refs WHERE name = ?1")?
        .query_row([name], |row| Ok(rows::text(row, 0)?.unwrap_or_default().into_owned()))
        .optional()?;
    let found: Option<NodeId> = row.as_deref().and_then(|text| text.parse().ok());
    let as_expected = match moved.expect {
        RefExpectation::Any => true,
        RefExpectation::Absent => row.is_none(),
        RefExpectation::At(node) => found == Some(node),
    };
    if !as_expected {
        return Err(StoreError::Conflict { name: moved.name.clone(), found }.into());
    }
    match &moved.to {
        Some(to) => {
            // In a large commit, which may move as many refs as it has nodes, the table knows it sooner.
            let is_new = new.len() <= FEW && new.iter().any(|node| node.id == *to);
            let to = to.to_string();
            if !is_new && !connection.prepare_cached("SELECT 1 FROM nodes WHERE id = ?1")?.exists([&to])? {
                return Err(Failure::Missing(format!("node {}, where ref `{name}` should go,", &to[..12])));
            }
            connection
                .prepare_cached(
                    "INSERT INTO refs (name, node_id) VALUES (?1, ?2) \
                     ON CONFLICT (name) DO UPDATE SET node_id = excluded.node_id",
                )?
                .execute([name, &to])?;
        }
        None => {
            connection.prepare_cached("DELETE FROM refs WHERE name = ?1")?.execute([name])?;
        }
    }
    // Down from the new node to where the ref stood; parents come before children.
    let below =
        |to| new.iter().rev().fold(to, |at, node| if at == Some(node.id) { node.record.parent } else { at });
    let appended = found.is_some() && moved.to.is_some() && moved.to != found && below(moved.to) == found;
    Ok(LoggedRefMove {
        name: moved.name.clone(),
        old: found,
        new: moved.to,
        at: rows::now(),
        why: moved.why.clone(),
        can_wait: appended || (moved.expect == RefExpectation::Any && moved.to.is_some()),
    })
}

struct Holder {
    owner: String,
    fence: Fence,
    /// Milliseconds since the epoch.
    expires: i64,
}

fn holder(connection: &Connection, name: &RefName) -> Outcome<Option<Holder>> {
    let mut statement =
        connection.prepare_cached("SELECT owner, fence, expires FROM quipu_lease WHERE ref = ?1")?;
    let holder = statement.query_row([name.as_str()], |row| {
        let fence: i64 = row.get(1)?;
        Ok(Holder { owner: row.get(0)?, fence: Fence(fence.unsigned_abs()), expires: row.get(2)? })
    });
    Ok(holder.optional()?)
}

/// The end of a lease that was given back: past by every clock, also one that was set back since.
const GIVEN_BACK: i64 = i64::MIN;

/// Takes, renews or (with a `ttl` of 0 ms) gives back a lease.
pub(super) fn lease(connection: &Connection, name: &RefName, owner: &Owner, ttl: i64) -> Outcome<Fence> {
    let now = rows::now();
    let held = holder(connection, name)?;
    let fence = match &held {
        None => Fence(1),
        Some(holder) if holder.expires <= now => Fence(holder.fence.0 + 1),
        Some(holder) if holder.owner == owner.0 => holder.fence,
        Some(holder) => {
            return Err(StoreError::Fenced { name: name.clone(), owner: holder.owner.clone() }.into());
        }
    };
    let expires = if ttl == 0 { GIVEN_BACK } else { now.saturating_add(ttl) };
    connection
        .prepare_cached(
            "INSERT INTO quipu_lease (ref, owner, fence, expires) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (ref) \
             DO UPDATE SET owner = excluded.owner, fence = excluded.fence, expires = excluded.expires",
        )?
        .execute(params![name.as_str(), owner.0, i64::try_from(fence.0).unwrap_or(i64::MAX), expires])?;
    Ok(fence)
}
