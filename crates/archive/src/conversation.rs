//! Conversations of programs that are recorded while they run, such as through a proxy. They lie in the store as imported ones do:
//! a first node, items below it, `AGENT/SESSION` where the program stands and a ref at the end of each branch. Each node keeps
//! a digest of the conversation up to it, so that the next request of the program finds its place, also after a restart.

use std::collections::{HashMap, HashSet};

use quipu_dag::sha256;
use quipu_protocol::{BlobId, Entry, Json, NodeId, SessionId, SessionStart, StepInfo, UnixMs};
use quipu_store::{Commit, Graph, LineageEnd, RefMove, RefName, SessionQuery, StoreError};

use crate::built_node::NodeParts;
use crate::lineages;

/// Where a node keeps its digest.
const EXTRA: &str = "conversation";
/// Nodes that are read at once at most.
const MOST: usize = 4_096;

/// A digest of a conversation up to some point: 16 bytes, written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ConversationDigest([u8; 16]);

impl ConversationDigest {
    /// The digest behind another piece of the conversation.
    #[must_use]
    pub fn then(self, kind: &str, text: &str) -> Self {
        let mut bytes = Vec::with_capacity(18 + kind.len() + text.len());
        bytes.extend_from_slice(&self.0);
        bytes.extend_from_slice(kind.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(text.as_bytes());
        let mut short = [0; 16];
        short.copy_from_slice(&sha256(&bytes)[..16]);
        Self(short)
    }

    /// As text.
    pub fn hex(self) -> String {
        quipu_protocol::hex(&self.0)
    }

    /// From its text; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

/// An entry to append.
#[derive(Debug, Clone)]
pub struct LiveEntry {
    /// What it means; sealed.
    pub entry: Entry,
    /// How the step went.
    pub step: StepInfo,
    /// The conversation up to it.
    pub digest: ConversationDigest,
    /// The program's own id of it.
    pub id: Option<String>,
    /// When it was; later than its parent in any case.
    pub time: UnixMs,
}

/// A session of another program, with what the store has of it.
#[derive(Debug)]
pub struct LiveConversation {
    agent: String,
    session: SessionId,
    base: Option<NodeId>,
    nodes: HashMap<ConversationDigest, NodeId>,
    digests: HashMap<NodeId, ConversationDigest>,
    times: HashMap<NodeId, UnixMs>,
    ends: HashSet<NodeId>,
    head: Option<NodeId>,
}

/// The id under which a session is stored: the program's own where it can name a session, else one made from it.
pub fn live_session_id(id: &str) -> SessionId {
    lineages::session_id(id)
}

impl LiveConversation {
    /// A session as the store has it; an empty one where it has none.
    ///
    /// # Errors
    /// What the store says.
    pub async fn load(store: &dyn Graph, agent: &str, session: &SessionId) -> Result<Self, StoreError> {
        let mut live = Self {
            agent: agent.to_owned(),
            session: session.clone(),
            base: None,
            nodes: HashMap::new(),
            digests: HashMap::new(),
            times: HashMap::new(),
            ends: HashSet::new(),
            head: store.head(&lineages::main_ref(agent, session)).await?,
        };
        let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
        let row = store.sessions(query).await?.into_iter().find(|row| row.agent == agent);
        let Some(row) = row else { return Ok(live) };
        live.base = Some(row.base);
        for tip in lineages::tips(store, agent, session).await? {
            live.ends.insert(tip.node);
            live.walk(store, tip.node).await?;
        }
        if let Some(head) = live.head {
            live.walk(store, head).await?;
        }
        live.walk(store, row.base).await?;
        Ok(live)
    }

    /// Takes in what leads to a node.
    async fn walk(&mut self, store: &dyn Graph, tip: NodeId) -> Result<(), StoreError> {
        let mut from = Some(tip);
        let mut count = 64;
        while let Some(start) = from.take().filter(|start| !self.times.contains_key(start)) {
            let nodes = store.lineage(start, LineageEnd::Count(count)).await?;
            let parts: Vec<BlobId> =
                nodes.iter().filter_map(|node| node.record.parts.last().copied()).collect();
            let parts = store.blobs(&parts).await?;
            let mut parts = parts.into_iter();
            let mut found: Vec<(NodeId, Option<NodeId>, UnixMs, Option<ConversationDigest>)> = Vec::new();
            for node in nodes {
                let part = if node.record.parts.is_empty() { None } else { parts.next().flatten() };
                let digest = part.and_then(|blob| quipu_transcript::extra_of(&blob, EXTRA));
                let digest = digest.and_then(|json| json.read::<String>().ok());
                let digest = digest.and_then(|text| ConversationDigest::parse(&text));
                found.push((node.id, node.record.parent, node.record.timestamp, digest));
            }
            for (node, parent, time, digest) in found.into_iter().rev() {
                if self.times.insert(node, time).is_some() {
                    return Ok(());
                }
                from = parent;
                if let Some(digest) = digest {
                    self.digests.insert(node, digest);
                    self.nodes.entry(digest).or_insert(node);
                }
            }
            count = (count * 4).min(MOST);
        }
        Ok(())
    }

    /// The program that runs it.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.session
    }

    /// Its first node; `None` where the store has nothing of it.
    pub fn base(&self) -> Option<NodeId> {
        self.base
    }

    /// Where its program stands.
    pub fn head(&self) -> Option<NodeId> {
        self.head
    }

    /// The node at the end of a conversation.
    pub fn find(&self, digest: ConversationDigest) -> Option<NodeId> {
        self.nodes.get(&digest).copied()
    }

    /// The conversation up to one of its nodes.
    pub fn digest(&self, node: NodeId) -> Option<ConversationDigest> {
        self.digests.get(&node).copied()
    }

    /// Its ref.
    pub fn main_ref(&self) -> RefName {
        lineages::main_ref(&self.agent, &self.session)
    }

    /// A change, to be committed with [`LiveConversation::commit`].
    pub fn change(&self) -> LiveChange<'_> {
        let plan = LivePlan { commit: Commit::default(), base: None, added: Vec::new(), head: self.head };
        LiveChange { session: self, plan }
    }

    /// Commits a change, and takes it in.
    ///
    /// # Errors
    /// What the store says; `Conflict` where another process moved the session meanwhile: load it again.
    pub async fn commit(&mut self, store: &dyn Graph, plan: LivePlan) -> Result<(), StoreError> {
        let LivePlan { mut commit, base, added, head } = plan;
        let mut ends = self.ends.clone();
        for (node, parent) in
            base.map(|(node, _)| (node, None)).into_iter().chain(added.iter().map(AddedNode::edge))
        {
            if let Some(parent) = parent
                && ends.remove(&parent)
                && self.ends.contains(&parent)
            {
                commit.moves.push(lineages::tip_departure(&self.agent, &self.session, parent));
            }
            ends.insert(node);
        }
        for end in ends.difference(&self.ends) {
            commit.moves.push(lineages::tip_arrival(&self.agent, &self.session, *end));
        }
        if let Some(to) = head.filter(|_| head != self.head) {
            commit.moves.push(RefMove::swap(self.main_ref(), self.head, to, "proxy"));
        }
        store.commit(commit).await?;
        (self.ends, self.head) = (ends, head);
        if let Some((node, time)) = base {
            self.base = Some(node);
            self.times.insert(node, time);
        }
        for AddedNode { node, digest, time, .. } in added {
            self.times.insert(node, time);
            self.digests.insert(node, digest);
            self.nodes.entry(digest).or_insert(node);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct AddedNode {
    node: NodeId,
    parent: NodeId,
    digest: ConversationDigest,
    time: UnixMs,
}

impl AddedNode {
    fn edge(&self) -> (NodeId, Option<NodeId>) {
        (self.node, Some(self.parent))
    }
}

/// What a change adds. More may be added to its commit.
#[derive(Debug)]
pub struct LivePlan {
    /// What goes to the store in one transaction; nodes and refs of the session are in it.
    pub commit: Commit,
    base: Option<(NodeId, UnixMs)>,
    added: Vec<AddedNode>,
    head: Option<NodeId>,
}

impl LivePlan {
    /// How many entries it adds.
    pub fn len(&self) -> usize {
        self.added.len()
    }

    /// Whether it adds no entry.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }
}

/// A change while it is put together.
#[derive(Debug)]
pub struct LiveChange<'a> {
    session: &'a LiveConversation,
    plan: LivePlan,
}

impl LiveChange<'_> {
    /// The first node, made of `start` where there is none yet.
    pub fn base(&mut self, start: SessionStart, time: UnixMs) -> NodeId {
        if let Some(node) = self.session.base.or(self.plan.base.map(|(node, _)| node)) {
            return node;
        }
        let parts = NodeParts::new(&self.session.agent, &Entry::Session(start), &StepInfo::default());
        let built = parts.build(None, time, None);
        let node = built.node.id;
        built.add_to(&mut self.plan.commit);
        self.plan.base = Some((node, time));
        node
    }

    /// The node at the end of a conversation, where the store or this change has it.
    pub fn find(&self, digest: ConversationDigest) -> Option<NodeId> {
        let added = self.plan.added.iter().find(|added| added.digest == digest).map(|added| added.node);
        added.or_else(|| self.session.find(digest))
    }

    /// Appends an entry below a node of the session or of this change.
    pub fn append(&mut self, parent: NodeId, entry: LiveEntry) -> NodeId {
        let LiveEntry { entry, mut step, digest, id, time } = entry;
        let before = self.plan.added.iter().find(|added| added.node == parent).map(|added| added.time);
        let before = before.or_else(|| self.session.times.get(&parent).copied());
        let base = self.plan.base.filter(|(node, _)| *node == parent).map(|(_, time)| time);
        let time = before.or(base).map_or(time, |before| time.max(before.saturating_add(1)));
        step.extra.insert(EXTRA.to_owned(), Json::of(&digest.hex()).unwrap_or_default());
        let built = NodeParts::new(&self.session.agent, &entry, &step).build(Some(parent), time, id);
        let node = built.node.id;
        built.add_to(&mut self.plan.commit);
        self.plan.added.push(AddedNode { node, parent, digest, time });
        node
    }

    /// The program stands at this node.
    pub fn stand_at(&mut self, node: NodeId) {
        self.plan.head = Some(node);
    }

    /// What is to be committed.
    pub fn finish(self) -> LivePlan {
        self.plan
    }
}
