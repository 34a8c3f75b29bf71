//! Jumps of conversations, as the store has them: for who confirms them, and for who looks.

use quipu_archive::{ConversationDigest, LiveConversation, LiveEntry};
use quipu_history::INCARNATE;
use quipu_protocol::{Body, Content, Entry, Message, NodeId, SessionId, StepInfo, UnixMs, UserMessage};
use quipu_store::{Action, Graph, LineageEnd, Op, RefExpectation, RefMove, StoreError, decode_whole};
use quipu_transcript::FORGOTTEN;

use crate::exchange::now;
use crate::jump::{AskedJump, Edit, JumpPlan, MARK, REFS, carryover, carryover_digest, plan_ref, row};

/// Characters of the beginning of an id at least.
const SHORTEST: usize = 4;
/// Nodes among which a question is looked for before the answer to it: a client puts pieces of context behind it.
const BEHIND: usize = 64;

/// Why a jump cannot be confirmed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Nothing is asked for by this name.
    #[error("no jump is asked for as `{0}`")]
    Unknown(String),
    /// More than one is.
    #[error("`{0}` may be several jumps; say more of it")]
    Several(String),
    /// The point to go back to is not in the store any more.
    #[error("the node {0} is not in the store")]
    Gone(NodeId),
    /// Nobody knows what of it was forgotten.
    #[error("{UNREADABLE}, so nothing is confirmed: {0}")]
    Unreadable(String),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How far a jump is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JumpState {
    /// It waits for a confirmation.
    Asked {
        /// By which it is confirmed.
        id: String,
        /// Where it would go.
        target: NodeId,
        /// Pieces of the conversation that it would leave out.
        messages: usize,
        /// When it was asked for.
        at: UnixMs,
    },
    /// Requests are changed.
    Active {
        /// Where the last one went.
        target: NodeId,
        /// How many jumps there are.
        jumps: usize,
        /// When the last one was confirmed.
        at: UnixMs,
    },
}

/// A conversation that has a jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxiedSession {
    /// The program.
    pub agent: String,
    /// Its session.
    pub session: SessionId,
    /// How far its jumps are: an active one, one that is asked for, or both.
    pub jumps: Vec<JumpState>,
}

/// What was confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmation {
    /// The session.
    pub session: SessionId,
    /// Where it went.
    pub target: NodeId,
    /// The message that stands there now.
    pub carryover: NodeId,
}

/// Why nothing of a jump is used while that cannot be read.
pub(crate) const UNREADABLE: &str =
    "nobody knows what of a jump was forgotten while the list of it cannot be read";

/// By which a jump is confirmed that this node asks for.
pub(crate) fn short_id(node: NodeId) -> String {
    node.to_string().chars().take(8).collect()
}

/// The conversations that have jumps, by name.
///
/// # Errors
/// What the store says.
pub async fn sessions(store: &dyn Graph) -> Result<Vec<ProxiedSession>, StoreError> {
    let all = plans(store).await?;
    let jumps = |plan: JumpPlan| {
        let active = plan.edits.last().map(|edit| JumpState::Active {
            target: edit.target,
            jumps: plan.edits.len(),
            at: edit.at,
        });
        let asked = plan.asked.map(|AskedJump { id, target, messages, at, .. }| JumpState::Asked {
            id,
            target,
            messages,
            at,
        });
        active.into_iter().chain(asked).collect::<Vec<_>>()
    };
    let all =
        all.into_iter().map(|((agent, session), plan)| ProxiedSession { agent, session, jumps: jumps(plan) });
    Ok(all.filter(|session| !session.jumps.is_empty()).collect())
}

async fn plans(store: &dyn Graph) -> Result<Vec<((String, SessionId), JumpPlan)>, StoreError> {
    let mut out = Vec::new();
    for head in store.heads(REFS).await? {
        let name = head.name.as_str().strip_prefix(REFS).and_then(|name| name.split_once('/'));
        let Some((agent, session)) = name else { continue };
        let session = SessionId::from(session);
        let open = store.pending(&row(agent, &session)).await?;
        let plan = open.jump.as_ref().and_then(JumpPlan::read).unwrap_or_default();
        out.push(((agent.to_owned(), session), plan));
    }
    Ok(out)
}

/// The one that is meant by an id: the one of exactly this name, else the only one whose name begins so.
fn meant<T>(id: &str, all: Vec<T>, names: impl Fn(&T) -> [Option<&str>; 2]) -> Result<T, StateError> {
    let named = |one: &T, is_meant: &dyn Fn(&str) -> bool| names(one).into_iter().flatten().any(is_meant);
    let begins = |name: &str| id.len() >= SHORTEST && name.starts_with(id);
    let is_exact = all.iter().any(|one| named(one, &|name| name == id));
    let mut found: Vec<T> = all
        .into_iter()
        .filter(|one| if is_exact { named(one, &|name| name == id) } else { named(one, &begins) })
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => Err(StateError::Several(id.to_owned())),
        (None, _) => Err(StateError::Unknown(id.to_owned())),
    }
}

/// Confirms the jump that is asked for by this id, or in this session; the beginning of either is enough.
///
/// # Errors
/// `Unknown`, `Several`, `Gone`; what the store says.
pub async fn confirm(store: &dyn Graph, id: &str) -> Result<Confirmation, StateError> {
    let asked = plans(store).await?.into_iter().filter_map(|(name, plan)| Some((name, plan.asked?)));
    let ((agent, session), asked) = meant(id, asked.collect(), |((_, session), asked)| {
        [Some(asked.id.as_str()), Some(session.as_str())]
    })?;
    if let Some(why) = store.hidden().problem() {
        return Err(StateError::Unreadable(why.to_owned()));
    }
    let mut live = LiveConversation::load(store, &agent, &session).await?;
    let asked = AskedJump { note: note_now(store, &asked).await?, ..asked };
    let edit = Edit {
        keep: asked.keep.clone(),
        cut: asked.question.clone(),
        with_answer: true,
        carryover: carryover(&asked.note),
        question: asked.question.clone(),
        line: asked.line.clone(),
        target: asked.target,
        at: now(),
    };
    let carryover = confirmation(store, &mut live, &asked, edit).await?;
    let carryover = carryover.ok_or(StateError::Gone(asked.target))?;
    Ok(Confirmation { session, target: asked.target, carryover })
}

/// What is to be said to the model at the target: nothing of it where a person had the question forgotten meanwhile.
pub(crate) async fn note_now(store: &dyn Graph, asked: &AskedJump) -> Result<String, StoreError> {
    let hidden = store.hidden();
    if hidden.is_empty() {
        return Ok(asked.note.clone());
    }
    // The id is that of the last piece of context, where the client puts some behind the question.
    let nodes = store.lineage(asked.departure, LineageEnd::Count(BEHIND)).await?;
    let decoded = decode_whole(store, &nodes).await?;
    let asks = |entry: &Entry| match entry {
        Entry::Message(Message::User(user)) => user.content.text().trim_start().starts_with(MARK),
        _ => false,
    };
    let question = nodes.iter().zip(&decoded).rev().find(|(_, one)| asks(&one.entry));
    // Nobody knows whether one that is not found was forgotten.
    let is_hidden = hidden.problem().is_some() || question.is_none_or(|(node, _)| hidden.hides(&node.id));
    Ok(if is_hidden { FORGOTTEN.to_owned() } else { asked.note.clone() })
}

/// Requests of the session go out as they come again; how many sessions that were.
///
/// # Errors
/// `Unknown`, `Several`; what the store says.
pub async fn release(store: &dyn Graph, id: &str) -> Result<SessionId, StateError> {
    let ((agent, session), _) = meant(id, plans(store).await?, |((_, session), plan)| {
        [plan.asked.as_ref().map(|asked| asked.id.as_str()), Some(session.as_str())]
    })?;
    let name = plan_ref(&agent, &session);
    let why = "release".into();
    let leave = RefMove { name, expect: RefExpectation::Any, to: None, fence: None, why };
    let ops = vec![Op::JumpRemove { session: row(&agent, &session) }];
    store.commit(quipu_store::Commit { moves: vec![leave], ops, ..quipu_store::Commit::default() }).await?;
    Ok(session)
}

/// The message to oneself becomes a node below the target, and the jump is in force, in one transaction. `None` where the
/// target is not there.
pub(crate) async fn confirmation(
    store: &dyn Graph,
    live: &mut LiveConversation,
    asked: &AskedJump,
    edit: Edit,
) -> Result<Option<NodeId>, StoreError> {
    let Some(keep) = ConversationDigest::parse(&edit.keep) else { return Ok(None) };
    let Some(parent) = live.find(keep) else { return Ok(None) };
    let time = now();
    let content = Body::Blocks(vec![Content::text(edit.carryover.clone())]);
    let entry = LiveEntry {
        entry: Entry::Message(Message::User(UserMessage { content, timestamp: time })),
        step: StepInfo::default(),
        digest: carryover_digest(keep, &edit.carryover),
        id: Some(uuid::Uuid::new_v4().to_string()),
        time,
    };
    let mut change = live.change();
    let carryover = change.append(parent, entry);
    change.stand_at(carryover);
    let mut next = change.finish();
    let mut edits = asked.before.clone();
    edits.push(edit);
    let plan = JumpPlan { edits, asked: None };
    let session = live.id().clone();
    next.commit.ops.push(plan.put(live.agent(), &session));
    next.commit.moves.push(RefMove::publish(plan_ref(live.agent(), &session), carryover, "jump"));
    next.commit.actions.push(Action {
        timestamp: time,
        kind: INCARNATE.into(),
        from: Some(asked.departure),
        to: Some(carryover),
        metadata: Some(asked.note.clone()),
    });
    live.commit(store, next).await?;
    Ok(Some(carryover))
}
