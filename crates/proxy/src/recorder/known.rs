//! Sessions that the recorder has at hand.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use quipu_archive::{ConversationDigest, LiveConversation};
use quipu_protocol::{BlobId, ChunkId, NodeId, SessionId};
use quipu_store::{Graph, LineageEnd, Resolution, Scope, StoreError};
use quipu_transcript::extra_of;

use crate::jump::{JumpPlan, REFS, plan_ref, row};
use crate::session::Profile;

/// Sessions that are held at most.
const HELD: usize = 64;
/// Answers that are held for requests that go on from them.
const ANSWERS: usize = 4_096;

/// Where an answer keeps what its request looked like.
pub(super) const PROFILE: &str = "profile";
/// Nodes from the end of a session in which it is looked for.
const PROFILED: usize = 16;

/// A program and its session.
pub(super) type Name = (String, SessionId);

/// Where the store has a session, and what its last exchange looked like.
pub(super) struct KnownSession {
    pub(super) live: LiveConversation,
    pub(super) profile: Option<Profile>,
    /// The body that was kept last.
    pub(super) body: Option<ChunkId>,
    used: u64,
}

#[derive(Default)]
pub(super) struct KnownSessions {
    all: HashMap<Name, KnownSession>,
    /// Those that have a jump, as the store last said.
    jumps: HashSet<String>,
    answers: HashMap<String, (Name, ConversationDigest)>,
    clock: u64,
}

impl KnownSessions {
    /// Finds out which conversations have jumps.
    pub(super) async fn look(&mut self, store: &dyn Graph) -> Result<(), StoreError> {
        let heads = store.heads(REFS).await?;
        self.jumps = heads.into_iter().map(|head| head.name.as_str().to_owned()).collect();
        Ok(())
    }

    /// Whether any conversation has a jump, as far as is known.
    pub(super) fn has_jumps(&self) -> bool {
        !self.jumps.is_empty()
    }

    /// A conversation has a jump from now on.
    pub(super) fn has_jump(&mut self, (agent, session): &Name) {
        self.jumps.insert(plan_ref(agent, session).as_str().to_owned());
    }

    /// The jumps of a conversation, as the store has them now: others confirm them too.
    pub(super) async fn plan(
        &self,
        store: &dyn Graph,
        (agent, session): &Name,
    ) -> Result<JumpPlan, StoreError> {
        if !self.jumps.contains(plan_ref(agent, session).as_str()) {
            return Ok(JumpPlan::default());
        }
        let open = store.pending(&row(agent, session)).await?;
        Ok(open.jump.as_ref().and_then(JumpPlan::read).unwrap_or_default())
    }

    /// What is known may not be so.
    pub(super) fn forget(&mut self) {
        self.all.clear();
    }

    /// A session, loaded when it is not at hand.
    pub(super) async fn get(
        &mut self,
        store: &dyn Graph,
        name: &Name,
    ) -> Result<&mut KnownSession, StoreError> {
        self.clock += 1;
        let used = self.clock;
        if self.all.len() >= HELD
            && !self.all.contains_key(name)
            && let Some(oldest) =
                self.all.iter().min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone())
        {
            self.all.remove(&oldest);
        }
        let known = match self.all.entry(name.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let live = LiveConversation::load(store, &name.0, &name.1).await?;
                let profile = profile(store, live.head()).await?;
                place.insert(KnownSession { live, profile, body: None, used })
            }
        };
        known.used = used;
        Ok(known)
    }

    /// An answer that later requests may go on from by its id.
    pub(super) fn answered(&mut self, id: &str, name: &Name, digest: ConversationDigest) {
        if self.answers.len() >= ANSWERS {
            self.answers.clear();
        }
        self.answers.insert(id.to_owned(), (name.clone(), digest));
    }

    /// The conversation up to an answer.
    pub(super) async fn of_answer(
        &mut self,
        store: &dyn Graph,
        agent: &str,
        id: &str,
    ) -> Result<Option<(Name, ConversationDigest)>, StoreError> {
        if let Some(found) = self.answers.get(id) {
            return Ok(Some(found.clone()));
        }
        let spelling = format!("ext:{id}").into();
        let candidates = match store.resolve(&spelling, &Scope::default()).await? {
            Resolution::One(candidate) => vec![candidate],
            Resolution::Many(candidates) => candidates,
            Resolution::None => Vec::new(),
        };
        for candidate in candidates {
            let Some(session) = candidate.session else { continue };
            let name = (agent.to_owned(), session);
            if let Some(digest) = self.get(store, &name).await?.live.digest(candidate.node) {
                return Ok(Some((name, digest)));
            }
        }
        Ok(None)
    }
}

/// What the last request of a conversation looked like, as its answer says.
async fn profile(store: &dyn Graph, head: Option<NodeId>) -> Result<Option<Profile>, StoreError> {
    let Some(head) = head else { return Ok(None) };
    let nodes = store.lineage(head, LineageEnd::Count(PROFILED)).await?;
    let parts: Vec<BlobId> = nodes.iter().filter_map(|node| node.record.parts.last().copied()).collect();
    let parts = store.blobs(&parts).await?;
    let written = parts.iter().rev().flatten().find_map(|blob| extra_of(blob, PROFILE));
    Ok(written.and_then(|json| Profile::parse(&json.read::<String>().ok()?)))
}
