//! The chunks of a past as its ref has them: read from the nodes, with what is wrong with them.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use quipu_protocol::{AuthorClass, NodeId, Origin, Provenance, SessionId, UnixMs};
use quipu_store::{Graph, HiddenSnapshot, Seq};
use quipu_transcript::{DecodedEntry, decode};

use crate::chunk::PastRecord;
use crate::pages::Pages;
use crate::proof_record::{ChunkVerdict, GROUNDING_RULES, ProofRecord};
use crate::record::{StoredRecord, is_of_a_person, read_chunk};
use crate::removed::RemovedSessions;
use crate::work::{is_work_of_chunks, is_work_of_nodes};
use crate::writer::EXTRACTOR;
use crate::{
    ChunkFault, MemoryChunk, PastError, PastId, PastScope, ReviewState, SummaryMethod, TimeRange, WorkId,
};

/// Faults that are kept; more are counted.
const FAULTS: usize = 1_000;
/// Digits of an id at least, where somebody writes one.
const FEWEST_DIGITS: usize = 6;
/// Digits of an id behind a range that several chunks have.
const KEY_DIGITS: usize = 8;

/// Who wrote a chunk, as far as its node shows; the first have the say where several claim the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkAuthor {
    /// A build: its work is that of what it names.
    Build,
    /// A person.
    Person,
    /// A model, with a tool.
    Agent,
    /// Another program.
    Foreign,
}

/// What is known of a chunk without its words and sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Its id.
    pub id: PastId,
    /// The node that holds it; the last, where several do.
    pub node: NodeId,
    /// When that was written.
    pub made: UnixMs,
    /// Its place among all nodes of the store.
    pub(crate) seq: Seq,
    /// 0 for a summary of nodes.
    pub level: u32,
    /// Its span.
    pub span: TimeRange,
    /// Its children, without those that have a fault.
    pub children: Vec<PastId>,
    /// What it names as its children besides.
    pub lost: Vec<PastId>,
    /// How many nodes it sums up itself.
    pub sources: usize,
    /// The session of its sources, where they are of one.
    pub session: Option<SessionId>,
    /// Who wrote it.
    pub author: ChunkAuthor,
    /// The class of its author; what another program wrote is untrusted, whatever its node says.
    pub class: AuthorClass,
    /// How it was made.
    pub method: SummaryMethod,
    /// What it was made of.
    pub work: Option<WorkId>,
    /// Bytes of its summary.
    pub bytes: usize,
    /// What people made of it.
    pub state: ReviewState,
    /// Whether another one stands in its place.
    pub is_superseded: bool,
    /// Whether it was a person who put that there.
    pub is_replaced: bool,
    /// Whether its words are looked for in its sources before it is served: not those that the compiler copied, nor those of
    /// a person.
    pub needs_grounding: bool,
    /// Whether it sums up a session that was removed since, itself or through other chunks.
    pub is_removed: bool,
}

impl ChunkEntry {
    fn review(&mut self, state: ReviewState) {
        self.state = state;
        // What a person finds good is shown, also where one had put another in its place.
        if state == ReviewState::Reviewed && self.is_replaced {
            (self.is_superseded, self.is_replaced) = (false, false);
        }
    }

    /// Whether it is shown: nobody took it back, no other one stands in its place, and what it sums up was not removed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_standing() && !self.is_removed
    }

    /// Whether it was shown before what it sums up was removed: a build puts others in its place.
    pub(crate) fn is_standing(&self) -> bool {
        !self.is_superseded && self.state != ReviewState::Retracted
    }

    /// Whether a person took it back, or put another one in its place: it is not made again.
    #[must_use]
    pub fn is_taken_back(&self) -> bool {
        self.is_replaced || self.state == ReviewState::Retracted
    }
}

/// A fault, and the node that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultyNode {
    /// The node.
    pub node: NodeId,
    /// What is wrong.
    pub fault: ChunkFault,
}

/// Every chunk of a past.
#[derive(Debug, Default)]
pub struct PastIndex {
    chunks: Vec<ChunkEntry>,
    by_id: HashMap<PastId, usize>,
    /// Chunks that sum up what was forgotten: nobody is shown them, and others take their place.
    forgotten: HashSet<PastId>,
    /// What chunks of builds were made of whose own node was forgotten: it is not summed up again.
    forgotten_works: HashSet<WorkId>,
    /// Nodes that such chunks sum up, by the chunk.
    pub(crate) forgotten_sources: HashMap<PastId, Vec<NodeId>>,
    /// What was found when chunks were checked.
    verdicts: HashMap<PastId, ChunkVerdict>,
    /// The last proof.
    pub proof: Option<ProofRecord>,
    /// Made when the first one is asked for.
    keys: OnceLock<HashMap<PastId, String>>,
    /// Chunks of builds by what they were made of, and leaves by their session, in the order of all.
    works: HashMap<WorkId, Vec<usize>>,
    leaves: HashMap<SessionId, Vec<usize>>,
    /// The parent of each chunk that has one which is shown.
    pub(crate) owners: HashMap<PastId, PastId>,
    /// What chunks name as a child, and have not.
    pub(crate) lost: HashSet<PastId>,
    /// Sessions with leaves that were removed.
    pub(crate) removed: RemovedSessions,
    /// The first faults that were found.
    pub faults: Vec<FaultyNode>,
    /// How many there are.
    pub fault_count: usize,
    pub(crate) head: Option<NodeId>,
    pub(crate) listed: Option<String>,
    pub(crate) last: UnixMs,
}

impl PastIndex {
    /// Reads the past of a scope as its ref stands now.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read(store: &dyn Graph, scope: &PastScope) -> Result<Self, PastError> {
        let mut index = Self::default();
        let Some(head) = store.head(&scope.ref_name()).await? else { return Ok(index) };
        index.head = Some(head);
        if let Some(node) = store.nodes(&[head]).await?.into_iter().flatten().next() {
            (index.listed, index.last) = (node.record.external_id, node.record.timestamp);
        }
        let Some(root) = store.ancestor(head, 0).await? else { return Ok(index) };
        let mut pages = Pages::below(store, root, head).await?;
        let hidden = store.hidden();
        while let Some(piece) = pages.next().await? {
            for stored in &piece.nodes {
                // What a person had forgotten is shown to nobody; what was made of it is known by its id.
                let decoded = decode(&stored.node, &piece.objects);
                let at = (stored.node.id, stored.node.record.timestamp, stored.seq);
                index.take(&decoded, at, scope, &hidden);
            }
        }
        index.drop_forgotten();
        (0..index.chunks.len()).for_each(|at| index.list(at));
        index.removed = RemovedSessions::read(store, index.leaves.keys()).await?;
        index.drop_removed();
        index.check_children();
        Ok(index)
    }

    fn take(
        &mut self,
        decoded: &DecodedEntry,
        at: (NodeId, UnixMs, Seq),
        scope: &PastScope,
        hidden: &HiddenSnapshot,
    ) {
        match StoredRecord::of(decoded) {
            None => {}
            Some(Err(fault)) => self.fault(at.0, fault),
            Some(Ok(stored)) => self.take_record(stored, at, scope, hidden),
        }
    }

    pub(crate) fn take_record(
        &mut self,
        stored: StoredRecord,
        (node, made, seq): (NodeId, UnixMs, Seq),
        scope: &PastScope,
        hidden: &HiddenSnapshot,
    ) {
        let StoredRecord { record, text, from } = stored;
        let is_of_a_person = from.as_ref().is_some_and(is_of_a_person);
        match record {
            PastRecord::Supersede { of } if is_of_a_person => self.supersede(node, &of, ChunkAuthor::Person),
            PastRecord::Supersede { of } if from == Some(Provenance::quipu()) => {
                self.supersede(node, &of, ChunkAuthor::Build);
            }
            // Whoever it was that wrote the others: they are obeyed by nobody.
            PastRecord::Supersede { .. } | PastRecord::Grounding { .. } | PastRecord::Proof(_)
                if from != Some(Provenance::quipu()) =>
            {
                self.fault(node, ChunkFault::NoAuthority);
            }
            // Told apart by who wrote it above.
            PastRecord::Supersede { .. } => {}
            PastRecord::Grounding { rules: GROUNDING_RULES, of } => {
                self.verdicts.extend(of.into_iter().map(|verdict| (verdict.chunk, verdict)));
            }
            // By other rules.
            PastRecord::Grounding { .. } => {}
            // With the questions of one that was forgotten.
            PastRecord::Proof(_) if hidden.hides(&node) => {}
            PastRecord::Proof(proof) => self.proof = Some(*proof),
            PastRecord::Review { .. } if !is_of_a_person => self.fault(node, ChunkFault::NoAuthority),
            PastRecord::Review { of, state } => match self.by_id.get(&of) {
                Some(at) => self.chunks[*at].review(state),
                None if self.forgotten.contains(&of) => {}
                None => self.fault(node, ChunkFault::NoChunk(of)),
            },
            PastRecord::Chunk(record) => match read_chunk(*record, text, from.as_ref(), scope) {
                Err(fault) => self.fault(node, fault),
                Ok(chunk) => {
                    let author = self.author_of(&chunk, from.as_ref());
                    self.note_forgotten(&chunk, author, node, hidden);
                    if author == ChunkAuthor::Foreign && chunk.work.is_some() {
                        self.fault(node, ChunkFault::ForeignWork);
                    }
                    self.supersede(node, &chunk.supersedes, author);
                    let needs_grounding = needs_grounding(author, &chunk.method, from.as_ref());
                    self.put(&chunk, author, needs_grounding, (node, made, seq));
                }
            },
        }
    }

    fn note_forgotten(
        &mut self,
        chunk: &MemoryChunk,
        author: ChunkAuthor,
        node: NodeId,
        hidden: &HiddenSnapshot,
    ) {
        let is_told = chunk.sources.iter().any(|source| hidden.hides(&source.node));
        let is_itself = hidden.hides(&node);
        if is_told || is_itself {
            self.forgotten.insert(chunk.id());
        }
        // Of one that tells what was forgotten, the rest is summed up again.
        if is_itself && !is_told && author == ChunkAuthor::Build {
            self.forgotten_works.extend(chunk.work);
            let sources: Vec<NodeId> = chunk.sources.iter().map(|source| source.node).collect();
            self.forgotten_sources.insert(chunk.id(), sources);
        }
    }

    /// A build wrote what has the work of its sources or children, and a node that says so. Nobody can be known by more than that.
    fn author_of(&self, chunk: &MemoryChunk, from: Option<&Provenance>) -> ChunkAuthor {
        let Some(from) = from else { return ChunkAuthor::Foreign };
        match (&chunk.method, from.origin, chunk.work) {
            (SummaryMethod::Extractive { .. }, Origin::Process, Some(work))
            | (SummaryMethod::Model { .. }, Origin::Model, Some(work))
                if self.is_work_of(chunk, work) =>
            {
                ChunkAuthor::Build
            }
            (SummaryMethod::Person, _, None) if is_of_a_person(from) => ChunkAuthor::Person,
            (SummaryMethod::Agent, Origin::Model, None) => ChunkAuthor::Agent,
            _ => ChunkAuthor::Foreign,
        }
    }

    fn is_work_of(&self, chunk: &MemoryChunk, work: WorkId) -> bool {
        if chunk.level == 0 {
            return chunk.children.is_empty() && is_work_of_nodes(work, &chunk.method, &chunk.sources);
        }
        let children = chunk.children.iter().map(|child| self.get(child)?.work);
        let Some(works) = children.collect::<Option<Vec<WorkId>>>() else { return false };
        chunk.sources.is_empty() && is_work_of_chunks(work, &chunk.method, chunk.level, &works)
    }

    /// Takes out what sums up something that a person had forgotten since, itself or through other chunks.
    fn drop_forgotten(&mut self) {
        if self.forgotten.is_empty() {
            return;
        }
        loop {
            let before = self.forgotten.len();
            for chunk in &self.chunks {
                if chunk.children.iter().any(|child| self.forgotten.contains(child)) {
                    self.forgotten.insert(chunk.id);
                }
            }
            if self.forgotten.len() == before {
                break;
            }
        }
        for chunk in self.chunks.iter().filter(|chunk| chunk.is_superseded) {
            self.forgotten_sources.remove(&chunk.id);
        }
        self.chunks.retain(|chunk| !self.forgotten.contains(&chunk.id));
        self.by_id = self.chunks.iter().enumerate().map(|(at, chunk)| (chunk.id, at)).collect();
    }

    fn put(
        &mut self,
        chunk: &MemoryChunk,
        author: ChunkAuthor,
        needs_grounding: bool,
        (node, made, seq): (NodeId, UnixMs, Seq),
    ) {
        let id = chunk.id();
        if let Some(at) = self.by_id.get(&id) {
            let known = &mut self.chunks[*at];
            // Made again: it is wanted again. A copy by somebody who has less say changes nothing.
            if author <= known.author {
                known.is_superseded = known.is_replaced;
                (known.node, known.made, known.seq) = (node, made, seq);
                (known.author, known.class, known.work) =
                    (author, class_by(chunk, author), work_by(chunk, author));
                // Who says the same again does not make it true.
                known.needs_grounding &= needs_grounding;
            }
            return;
        }
        self.by_id.insert(id, self.chunks.len());
        self.chunks.push(ChunkEntry {
            id,
            node,
            made,
            seq,
            level: chunk.level,
            span: chunk.span,
            children: chunk.children.clone(),
            lost: Vec::new(),
            sources: chunk.sources.len(),
            session: chunk.session.clone(),
            author,
            class: class_by(chunk, author),
            method: chunk.method.clone(),
            work: work_by(chunk, author),
            bytes: chunk.summary.len(),
            state: ReviewState::Made,
            is_superseded: false,
            is_replaced: false,
            needs_grounding,
            is_removed: false,
        });
    }

    /// Lists a chunk by what it was made of and by its session.
    pub(crate) fn list(&mut self, at: usize) {
        let Some(chunk) = self.chunks.get(at) else { return };
        if let Some(work) = chunk.work {
            self.works.entry(work).or_default().push(at);
        }
        if let (0, Some(session)) = (chunk.level, &chunk.session) {
            self.leaves.entry(session.clone()).or_default().push(at);
        }
    }

    /// Whether the same sessions are removed as when it was read.
    ///
    /// # Errors
    /// What the store says.
    pub async fn is_removed_same(&self, store: &dyn Graph) -> Result<bool, PastError> {
        Ok(self.removed.is_same(store, self.leaves.keys()).await?)
    }

    /// Sessions that leaves are of.
    pub(crate) fn sessions(&self) -> HashSet<SessionId> {
        self.leaves.keys().cloned().collect()
    }

    /// Hides what sums up a session that was removed, and the chunks above it: not what a person wrote.
    fn drop_removed(&mut self) {
        if self.removed.is_empty() {
            return;
        }
        let mut gone: HashSet<PastId> = HashSet::new();
        loop {
            let before = gone.len();
            for chunk in self.chunks.iter_mut().filter(|chunk| chunk.author != ChunkAuthor::Person) {
                let is_of_it = chunk.session.as_ref().is_some_and(|session| self.removed.contains(session));
                if is_of_it || chunk.children.iter().any(|child| gone.contains(child)) {
                    chunk.is_removed = true;
                    gone.insert(chunk.id);
                }
            }
            if gone.len() == before {
                break;
            }
        }
    }

    /// A person may put another chunk in the place of any, a build in that of what builds made, and nobody else.
    fn supersede(&mut self, node: NodeId, of: &[PastId], by: ChunkAuthor) {
        let mut is_refused = false;
        for id in of {
            match self.by_id.get(id).and_then(|at| self.chunks.get_mut(*at)) {
                Some(chunk) if by == ChunkAuthor::Person => {
                    (chunk.is_superseded, chunk.is_replaced) = (true, true);
                }
                Some(chunk) if by == ChunkAuthor::Build && chunk.author == ChunkAuthor::Build => {
                    chunk.is_superseded = true;
                }
                Some(_) => is_refused = true,
                None if self.forgotten.contains(id) => {}
                None => self.fault(node, ChunkFault::NoChunk(*id)),
            }
        }
        if is_refused {
            self.fault(node, ChunkFault::NoAuthority);
        }
    }

    fn fault(&mut self, node: NodeId, fault: ChunkFault) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS {
            self.faults.push(FaultyNode { node, fault });
        }
    }

    /// A child that is not there, reaches beyond its parent, or has two parents is no child. Who has more say has it, then who was
    /// first. Ids are hashes of what they name, so no chunk is below itself.
    fn check_children(&mut self) {
        let mut parents: Vec<usize> =
            (0..self.chunks.len()).filter(|at| !self.chunks[*at].children.is_empty()).collect();
        parents.sort_by_key(|at| self.chunks[*at].author);
        let mut faults = Vec::new();
        for at in parents {
            let (id, span, is_live) = (self.chunks[at].id, self.chunks[at].span, self.chunks[at].is_live());
            let named = std::mem::take(&mut self.chunks[at].children);
            let (mut children, mut lost) = (Vec::with_capacity(named.len()), Vec::new());
            let mut seen = HashSet::new();
            for child in named {
                let fault = match self.by_id.get(&child) {
                    None => Some(ChunkFault::MissingChild(child)),
                    Some(found) if !span.covers(self.chunks[*found].span) => {
                        Some(ChunkFault::WideChild(child))
                    }
                    // Two versions of a parent have the same children; only one of them is live.
                    Some(_) if !seen.insert(child) || (is_live && self.owners.contains_key(&child)) => {
                        Some(ChunkFault::SharedChild(child))
                    }
                    Some(_) => None,
                };
                match fault {
                    None => {
                        if is_live {
                            self.owners.insert(child, id);
                        }
                        children.push(child);
                    }
                    Some(fault) => {
                        lost.push(child);
                        self.lost.insert(child);
                        faults.push((at, fault));
                    }
                }
            }
            let chunk = &mut self.chunks[at];
            (chunk.children, chunk.lost) = (children, lost);
        }
        faults.sort_by_key(|(at, _)| *at);
        for (at, fault) in faults {
            self.fault(self.chunks[at].node, fault);
        }
    }

    /// Every chunk, in the order in which they were made.
    pub fn chunks(&self) -> impl Iterator<Item = &ChunkEntry> {
        self.chunks.iter()
    }

    /// A chunk by its id.
    #[must_use]
    pub fn get(&self, id: &PastId) -> Option<&ChunkEntry> {
        self.by_id.get(id).and_then(|at| self.chunks.get(*at))
    }

    /// Its place in the order in which chunks were made.
    pub(crate) fn place(&self, id: &PastId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    pub(crate) const fn count(&self) -> usize {
        self.chunks.len()
    }

    /// What a build made of this, whatever became of it.
    pub(crate) fn of_work(&self, work: &WorkId) -> impl DoubleEndedIterator<Item = &ChunkEntry> {
        self.works.get(work).into_iter().flatten().filter_map(|at| self.chunks.get(*at))
    }

    /// What sums up nodes of a session.
    pub(crate) fn leaves_of(&self, session: &SessionId) -> impl Iterator<Item = &ChunkEntry> {
        self.leaves.get(session).into_iter().flatten().filter_map(|at| self.chunks.get(*at))
    }

    /// Whether a chunk tells what was forgotten.
    pub(crate) fn tells_forgotten(&self, id: &PastId) -> bool {
        self.forgotten.contains(id)
    }

    pub(crate) fn forgotten_count(&self) -> usize {
        self.forgotten.len() + self.forgotten_sources.len()
    }

    /// After chunks came: keys are to be told from theirs.
    pub(crate) fn forget_keys(&mut self) {
        self.keys = OnceLock::new();
    }

    /// Whether a chunk that a build had made of this was forgotten itself.
    pub(crate) fn is_forgotten(&self, work: &WorkId) -> bool {
        self.forgotten_works.contains(work)
    }

    /// What was found when the chunk was checked; `None` where it was not yet.
    #[must_use]
    pub fn verdict(&self, id: &PastId) -> Option<&ChunkVerdict> {
        self.verdicts.get(id)
    }

    /// Chunks that are shown.
    pub fn live(&self) -> impl Iterator<Item = &ChunkEntry> {
        self.chunks.iter().filter(|chunk| chunk.is_live())
    }

    /// Chunks that are shown and have no parent that is, by time.
    #[must_use]
    pub fn roots(&self) -> Vec<&ChunkEntry> {
        let owned: HashSet<PastId> = self.live().flat_map(|chunk| chunk.children.iter().copied()).collect();
        let mut roots: Vec<&ChunkEntry> = self.live().filter(|chunk| !owned.contains(&chunk.id)).collect();
        roots.sort_by_key(|chunk| (chunk.span, chunk.id));
        roots
    }

    /// How a chunk is named for people: its range; with digits of its id where others that are shown have the same.
    #[must_use]
    pub fn key(&self, chunk: &ChunkEntry) -> String {
        let keys = self.keys.get_or_init(|| self.all_keys());
        keys.get(&chunk.id).cloned().unwrap_or_else(|| format!("{}@{}", chunk.span.key(), chunk.id.digits()))
    }

    fn all_keys(&self) -> HashMap<PastId, String> {
        let mut counts: HashMap<TimeRange, usize> = HashMap::new();
        for chunk in self.live() {
            *counts.entry(chunk.span).or_default() += 1;
        }
        // As many digits as tell an id from its neighbours in their order, and so from all others.
        let mut ids: Vec<PastId> = self.chunks.iter().map(|chunk| chunk.id).collect();
        ids.sort_unstable();
        let shared: Vec<usize> = ids.windows(2).map(|pair| shared_digits(pair[0], pair[1])).collect();
        let digits: HashMap<PastId, usize> = (0..ids.len())
            .map(|at| {
                let before = at.checked_sub(1).and_then(|before| shared.get(before));
                let most = before.into_iter().chain(shared.get(at)).max().copied().unwrap_or(0);
                (ids[at], (most + 1).max(KEY_DIGITS))
            })
            .collect();
        let key = |chunk: &ChunkEntry| {
            let range = chunk.span.key();
            if chunk.is_live() && counts.get(&chunk.span) == Some(&1) {
                return range;
            }
            let all = chunk.id.digits();
            let end = digits.get(&chunk.id).copied().unwrap_or(KEY_DIGITS).min(all.len());
            format!("{range}@{}", &all[..end])
        };
        self.chunks.iter().map(|chunk| (chunk.id, key(chunk))).collect()
    }

    /// The chunk that somebody means: by a range, of those that are shown the most specific one; by a key that was printed, that
    /// one; by the first digits of its id, whichever.
    ///
    /// # Errors
    /// `NoChunk`, `Ambiguous`, `NothingThere`; `Range` where it is neither.
    pub fn find(
        &self,
        text: &str,
        now: UnixMs,
        zone: &jiff::tz::TimeZone,
        scope: &PastScope,
    ) -> Result<&ChunkEntry, PastError> {
        let text = text.trim();
        if let Some((_, digits)) = text.rsplit_once('@')
            && is_digits(digits)
        {
            return self.by_digits(digits, scope);
        }
        // A year has four digits, and so has no id.
        match TimeRange::parse(text, now, zone) {
            Ok(range) => self
                .most_specific(range)
                .ok_or_else(|| PastError::NothingThere { range: range.key(), scope: scope.name() }),
            Err(_) if is_digits(text) => self.by_digits(text, scope),
            Err(error) => Err(error.into()),
        }
    }

    /// Of the chunks that are shown and lie in the range in part, the one with the highest [`score`](TimeRange::score); of equals
    /// the finest, then that with the lowest id.
    #[must_use]
    pub fn most_specific(&self, range: TimeRange) -> Option<&ChunkEntry> {
        let there = self.live().filter(|chunk| range.overlap(chunk.span) > 0);
        there.max_by_key(|chunk| {
            (range.score(chunk.span), std::cmp::Reverse(chunk.level), std::cmp::Reverse(chunk.id))
        })
    }

    fn by_digits(&self, digits: &str, scope: &PastScope) -> Result<&ChunkEntry, PastError> {
        let digits = digits.to_lowercase();
        let mut found = self.chunks.iter().filter(|chunk| chunk.id.digits().starts_with(&digits));
        let short = || digits.chars().take(64).collect();
        match (found.next(), found.count()) {
            (Some(chunk), 0) => Ok(chunk),
            (None, _) => Err(PastError::NoChunk { id: short(), scope: scope.name() }),
            (Some(_), more) => {
                Err(PastError::Ambiguous { id: short(), scope: scope.name(), count: more + 1 })
            }
        }
    }
}

fn is_digits(text: &str) -> bool {
    text.len() >= FEWEST_DIGITS && text.len() <= 64 && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// How many first digits two ids have in common.
fn shared_digits(a: PastId, b: PastId) -> usize {
    let digits = |id: PastId| id.0.into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits(a).zip(digits(b)).take_while(|(a, b)| a == b).count()
}

/// Whether the words of a chunk are to be looked for in its sources: neither copied by the compiler nor said by a person.
fn needs_grounding(author: ChunkAuthor, method: &SummaryMethod, from: Option<&Provenance>) -> bool {
    match (author, method) {
        (ChunkAuthor::Build, SummaryMethod::Extractive { .. }) => {
            from.and_then(|from| from.name.as_deref()) != Some(EXTRACTOR)
        }
        (ChunkAuthor::Person, _) => false,
        _ => true,
    }
}

/// What another program wrote may say anything of itself.
fn class_by(chunk: &MemoryChunk, author: ChunkAuthor) -> AuthorClass {
    if author == ChunkAuthor::Foreign { AuthorClass::Untrusted } else { chunk.class }
}

fn work_by(chunk: &MemoryChunk, author: ChunkAuthor) -> Option<WorkId> {
    chunk.work.filter(|_| author == ChunkAuthor::Build)
}
