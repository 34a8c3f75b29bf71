//! Makes what a plan says is missing, a commit at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Graph, decode_nodes};

use crate::model::{asked_model, first_line, judged, leaf_ask, leaf_instead, parent_ask, parent_instead};
use crate::plan::{PlannedChunk, PlannedProgress, PlannedSources};
use crate::record::read_chunks;
use crate::source::{SourceText, source_of};
use crate::writer::PastWriter;
use crate::{
    AskRefusal, BuildSize, ChildSummary, ChunkSource, MemoryChunk, PastCursor, PastError, PastId, PastIndex,
    PastPlan, PastScope, RefusedSummary, ReviewState, SUMMARY_LIMIT, Summariser, SummaryMethod, SummaryModel,
};

/// Chunks of one commit at most, and nodes that are read for them.
const BATCH: usize = 64;
const BATCH_NODES: usize = 4_096;
/// Chunks that are superseded by one node.
const SUPERSEDED: usize = 1_000;
/// How often in a row a build plans anew because somebody else wrote to the past, before it has committed anything.
const TRIES: usize = 8;
/// Summaries in the place of a model's that are listed one by one.
const TOLD: usize = 1_000;
/// Requests in a row that a model takes for invalid ones, at which a build ends.
const INVALID_IN_A_ROW: usize = 3;

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BuildProgress {
    /// Chunks that are committed.
    pub done: usize,
    /// Chunks that there are to make and to put back.
    pub of: usize,
    /// Calls of a model that were made.
    pub calls: usize,
    /// US dollars that they cost.
    pub cost: f64,
}

/// Who makes summaries.
#[derive(Clone, Copy)]
pub enum Summaries<'a> {
    /// Rules, which cost nothing.
    Rules(&'a dyn Summariser),
    /// A model, one call for each.
    Model(&'a dyn SummaryModel),
}

impl Summaries<'_> {
    /// Plans the past of a scope for them.
    ///
    /// # Errors
    /// What the store says.
    pub async fn plan(
        self,
        store: &dyn Graph,
        scope: &PastScope,
        now: UnixMs,
    ) -> Result<PastPlan, PastError> {
        self.plan_from(&mut PastCursor::default(), store, scope, now).await
    }

    /// The same, where a build has planned it before and left a cursor: only what is new is read.
    ///
    /// # Errors
    /// What the store says.
    pub async fn plan_from(
        self,
        cursor: &mut PastCursor,
        store: &dyn Graph,
        scope: &PastScope,
        now: UnixMs,
    ) -> Result<PastPlan, PastError> {
        match self {
            Self::Rules(rules) => cursor.plan(store, scope, &rules.method(), now).await,
            Self::Model(model) => cursor.plan_for(store, scope, model, now).await,
        }
    }

    /// Builds a plan of theirs: [`build_past`], or [`build_with_model`].
    ///
    /// # Errors
    /// As theirs.
    pub async fn build(
        self,
        store: &dyn Graph,
        scope: &PastScope,
        plan: &PastPlan,
        now: UnixMs,
        progress: &mut (dyn FnMut(BuildProgress) + Send),
    ) -> Result<BuildEnd, PastError> {
        build(store, scope, self, plan, now, progress).await
    }

    /// US dollars that the calls of a plan cost, each answer with as many tokens as it may have.
    #[must_use]
    pub fn cost(self, plan: &PastPlan) -> f64 {
        match self {
            Self::Rules(_) => 0.0,
            Self::Model(model) => plan.calls().map(|call| model.price(call.input, call.output)).sum(),
        }
    }
}

/// A summary by rules in the place of one that a model did not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedSummary {
    /// The range of the chunk.
    pub range: String,
    /// Why.
    pub why: String,
}

/// Why a build ended before it had made all.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildStop {
    /// Whether that is for want of money.
    pub is_budget: bool,
    /// For people.
    pub why: String,
    /// What is left.
    pub left: BuildSize,
    /// US dollars that it costs, as a plan says.
    pub left_cost: f64,
}

/// What a build did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildEnd {
    /// What it made, with the calls and tokens that a model's provider counted.
    pub size: BuildSize,
    /// US dollars.
    pub cost: f64,
    /// Where the model gave no summary: the first ones.
    pub replaced: Vec<ReplacedSummary>,
    /// How many.
    pub replaced_count: usize,
    /// `None` where all is made.
    pub stop: Option<BuildStop>,
    /// The last node that it committed.
    pub head: Option<NodeId>,
}

impl BuildEnd {
    fn replace(&mut self, planned: &PlannedChunk, why: String) {
        self.replaced_count += 1;
        if self.replaced.len() < TOLD {
            self.replaced.push(ReplacedSummary { range: planned.span.key(), why });
        }
    }

    /// Adds what was made of a plan; the rest is as that plan says.
    fn add(&mut self, made: BuildSize) {
        let before = self.size;
        self.size = BuildSize {
            leaves: before.leaves + made.leaves,
            parents: before.parents + made.parents,
            restored: before.restored + made.restored,
            superseded: before.superseded + made.superseded,
            bytes: before.bytes + made.bytes,
            calls: before.calls,
            input_tokens: before.input_tokens,
            output_tokens: before.output_tokens,
            recorded: before.recorded,
            ..made
        };
    }
}

/// What a chunk of the plan became.
#[derive(Clone, Copy)]
struct MadeChunk {
    id: PastId,
    node: NodeId,
}

/// A summary, and how it came about.
type MadeSummary = (String, SummaryMethod);

/// Why a chunk was not made.
enum Unmade {
    Refused(AskRefusal),
    Error(PastError),
}

impl From<PastError> for Unmade {
    fn from(error: PastError) -> Self {
        Self::Error(error)
    }
}

/// Makes the chunks of a plan that are missing, the finest first, and commits them as it goes. Cut off at any time, it loses what it
/// had not committed; planned and built again, it makes only that. Where somebody else wrote to the past meanwhile, it plans anew.
///
/// # Errors
/// `BadSummary` where the summariser gives nothing, or too much; `Busy` where others write to the same past again and again; `Store`.
/// What was committed before stays.
pub async fn build_past(
    store: &dyn Graph,
    scope: &PastScope,
    summariser: &dyn Summariser,
    plan: &PastPlan,
    now: UnixMs,
    progress: &mut (dyn FnMut(BuildProgress) + Send),
) -> Result<BuildSize, PastError> {
    Ok(build(store, scope, Summaries::Rules(summariser), plan, now, progress).await?.size)
}

/// The same with summaries by a model, each committed before the next one is asked for. Where the answer is none, the summary is made by
/// rules and says so. Ends early where there is no money left, or no answer comes.
///
/// # Errors
/// `Busy` where others write to the same past again and again; `Store`. What was committed before stays.
pub async fn build_with_model(
    store: &dyn Graph,
    scope: &PastScope,
    model: &dyn SummaryModel,
    plan: &PastPlan,
    now: UnixMs,
    progress: &mut (dyn FnMut(BuildProgress) + Send),
) -> Result<BuildEnd, PastError> {
    build(store, scope, Summaries::Model(model), plan, now, progress).await
}

async fn build(
    store: &dyn Graph,
    scope: &PastScope,
    by: Summaries<'_>,
    plan: &PastPlan,
    now: UnixMs,
    progress: &mut (dyn FnMut(BuildProgress) + Send),
) -> Result<BuildEnd, PastError> {
    let mut end = BuildEnd::default();
    let mut done = 0;
    let mut anew: Option<PastPlan> = None;
    let mut tried = 0;
    loop {
        let plan = anew.as_ref().unwrap_or(plan);
        let mut run = BuildRun::new(store, scope, by, plan, (now, end.head));
        let ran = run.run(&mut end, &mut done, progress).await;
        let made = run.reached;
        end.head = run.head.or(end.head);
        end.add(plan.size_of(0..made));
        // What comes forward may be disturbed again.
        tried = if run.has_saved { 1 } else { tried + 1 };
        match ran {
            Ok(()) => break,
            Err(Unmade::Error(PastError::Busy(_))) if tried < TRIES => {
                anew = Some(by.plan(store, scope, now).await?);
            }
            Err(Unmade::Error(error)) => return Err(error),
            Err(Unmade::Refused(refusal)) => {
                let rest = plan.size_of(made..plan.chunks.len());
                let calls = plan.chunks.get(made..).unwrap_or_default().iter().filter_map(|chunk| chunk.call);
                let left_cost = match by {
                    Summaries::Rules(_) => 0.0,
                    Summaries::Model(model) => calls.map(|call| model.price(call.input, call.output)).sum(),
                };
                let (is_budget, why) = match refusal {
                    AskRefusal::Budget(why) => (true, why),
                    AskRefusal::Failed(why) | AskRefusal::Never(why) | AskRefusal::Invalid(why) => {
                        (false, why)
                    }
                };
                end.stop = Some(BuildStop { is_budget, why, left: rest, left_cost });
                break;
            }
        }
    }
    Ok(end)
}

struct BuildRun<'a> {
    store: &'a dyn Graph,
    scope: &'a PastScope,
    by: Summaries<'a>,
    plan: &'a PastPlan,
    now: UnixMs,
    writer: PastWriter<'a>,
    made: Vec<Option<MadeChunk>>,
    /// Chunks of the plan before this place are committed.
    reached: usize,
    has_saved: bool,
    head: Option<NodeId>,
    /// Requests in a row that the model took for invalid ones.
    invalid: AtomicUsize,
}

impl<'a> BuildRun<'a> {
    fn new(
        store: &'a dyn Graph,
        scope: &'a PastScope,
        by: Summaries<'a>,
        plan: &'a PastPlan,
        (now, step): (UnixMs, Option<NodeId>),
    ) -> Self {
        let writer = PastWriter::new(store, scope, &plan.index).after(step);
        let made = vec![None; plan.chunks.len()];
        Self {
            store,
            scope,
            by,
            plan,
            now,
            writer,
            made,
            reached: 0,
            has_saved: false,
            head: None,
            invalid: AtomicUsize::new(0),
        }
    }

    async fn run(
        &mut self,
        end: &mut BuildEnd,
        done: &mut usize,
        progress: &mut (dyn FnMut(BuildProgress) + Send),
    ) -> Result<(), Unmade> {
        let of = *done + self.plan.chunks.iter().filter(|chunk| chunk.is_pending()).count();
        let mut tell = |done: usize, end: &BuildEnd| {
            progress(BuildProgress { done, of, calls: end.size.calls, cost: end.cost });
        };
        tell(*done, end);
        while self.reached < self.plan.chunks.len() {
            let batch = self.next_batch(self.reached);
            let after = batch.end;
            let made = self.make(batch, end).await?;
            if after == self.plan.chunks.len() {
                for of in self.plan.orphans.chunks(SUPERSEDED) {
                    self.writer.supersede(of.to_vec(), self.now);
                }
            }
            self.save().await?;
            *done += made;
            self.has_saved |= made > 0;
            self.reached = after;
            tell(*done, end);
        }
        // Where nothing is wanted any more.
        if self.plan.chunks.is_empty() {
            for of in self.plan.orphans.chunks(SUPERSEDED) {
                self.writer.supersede(of.to_vec(), self.now);
            }
            self.save().await?;
        }
        Ok(())
    }

    /// Commits, unless something was forgotten meanwhile that it may tell.
    async fn save(&mut self) -> Result<(), Unmade> {
        self.check_hidden()?;
        let stood = self.writer.stands();
        self.writer.save().await?;
        if self.writer.stands() != stood {
            self.head = self.writer.stands();
        }
        Ok(())
    }

    fn check_hidden(&self) -> Result<(), PastError> {
        if self.store.hidden().version() == self.plan.hidden {
            return Ok(());
        }
        Err(PastError::Busy(self.scope.session()))
    }

    /// Chunks from here on, as many as are made together: of a model's, one.
    fn next_batch(&self, start: usize) -> std::ops::Range<usize> {
        let most = match self.by {
            Summaries::Rules(_) => BATCH,
            Summaries::Model(_) => 1,
        };
        let (mut end, mut made, mut nodes) = (start, 0, 0);
        while let Some(chunk) = self.plan.chunks.get(end) {
            if made == most || nodes > BATCH_NODES {
                break;
            }
            if let (PlannedProgress::Missing, PlannedSources::Nodes { nodes: of, .. }) =
                (chunk.progress, &chunk.of)
            {
                nodes += of.len();
            }
            made += usize::from(chunk.is_pending());
            end += 1;
        }
        start..end
    }

    async fn make(&mut self, batch: std::ops::Range<usize>, end: &mut BuildEnd) -> Result<usize, Unmade> {
        let mut done = 0;
        let texts = self.texts(batch.clone()).await?;
        let mut summaries = self.child_summaries(batch.clone()).await?;
        for at in batch {
            let planned = &self.plan.chunks[at];
            let chunk = match planned.progress {
                PlannedProgress::Standing(id) => {
                    let known = self.plan.index.get(&id);
                    self.made[at] = known.map(|known| MadeChunk { id, node: known.node });
                    continue;
                }
                PlannedProgress::Retracted => continue,
                PlannedProgress::Former(id) => {
                    let Some(node) = self.plan.index.get(&id).map(|known| known.node) else { continue };
                    let Some(former) = read_chunks(self.store, self.scope, &[node]).await?.pop() else {
                        continue;
                    };
                    MemoryChunk { supersedes: planned.supersedes.clone(), ..former }
                }
                PlannedProgress::Missing => self.summed_up(planned, &texts, &summaries, end).await?,
            };
            let (node, id) = (self.writer.chunk(&chunk, self.now), chunk.id());
            self.made[at] = Some(MadeChunk { id, node });
            // A parent in the same commit is made of it.
            summaries.insert(id, ChildSummary { span: chunk.span, summary: chunk.summary });
            done += 1;
        }
        Ok(done)
    }

    async fn summed_up(
        &self,
        planned: &PlannedChunk,
        texts: &HashMap<NodeId, SourceText>,
        summaries: &HashMap<PastId, ChildSummary>,
        end: &mut BuildEnd,
    ) -> Result<MemoryChunk, Unmade> {
        let ((summary, method), children, sources, session) = match &planned.of {
            PlannedSources::Nodes { session, nodes, .. } => {
                let said: Vec<SourceText> =
                    nodes.iter().filter_map(|node| texts.get(node)).cloned().collect();
                let sources = nodes.iter().copied().map(ChunkSource::whole).collect();
                let made = match self.by {
                    Summaries::Rules(rules) => (rules.leaf(&said), rules.method()),
                    Summaries::Model(model) => self.asked_leaf(model, planned, &said, end).await?,
                };
                (made, Vec::new(), sources, Some(session.clone()))
            }
            PlannedSources::Children(children) => {
                let made = children.iter().filter_map(|child| self.made[*child]);
                let ids: Vec<PastId> = made.map(|made| made.id).collect();
                let said: Vec<ChildSummary> =
                    ids.iter().filter_map(|id| summaries.get(id)).cloned().collect();
                let made = match self.by {
                    Summaries::Rules(rules) => (rules.parent(&said), rules.method()),
                    Summaries::Model(model) => self.asked_parent(model, planned, &said, end).await?,
                };
                (made, ids, Vec::new(), None)
            }
        };
        if summary.trim().is_empty() || summary.len() > SUMMARY_LIMIT {
            return Err(PastError::BadSummary(planned.span.key()).into());
        }
        Ok(MemoryChunk {
            scope: self.scope.clone(),
            level: planned.level,
            span: planned.span,
            summary,
            children,
            sources,
            session,
            class: planned.class,
            method,
            work: Some(planned.work),
            supersedes: planned.supersedes.clone(),
        })
    }

    async fn asked_leaf(
        &self,
        model: &dyn SummaryModel,
        planned: &PlannedChunk,
        said: &[SourceText],
        end: &mut BuildEnd,
    ) -> Result<MadeSummary, Unmade> {
        let asked = asked_model(model);
        // There is nothing to ask about.
        if planned.call.is_none() && !planned.recorded {
            return Ok(leaf_instead(said, asked, None));
        }
        Ok(match self.asked(model, planned, leaf_ask(planned.work, said), end).await? {
            Ok(text) => (text, SummaryMethod::Model(asked)),
            Err(refusal) => leaf_instead(said, asked, Some(refusal)),
        })
    }

    async fn asked_parent(
        &self,
        model: &dyn SummaryModel,
        planned: &PlannedChunk,
        said: &[ChildSummary],
        end: &mut BuildEnd,
    ) -> Result<MadeSummary, Unmade> {
        let asked = asked_model(model);
        Ok(match self.asked(model, planned, parent_ask(planned.work, planned.level, said), end).await? {
            Ok(text) => (text, SummaryMethod::Model(asked)),
            Err(refusal) => parent_instead(said, asked, Some(refusal)),
        })
    }

    /// How often the model took the request for the chunk for an invalid one, in earlier builds.
    fn tries(&self, planned: &PlannedChunk, model: &dyn SummaryModel) -> u32 {
        let asked = asked_model(model);
        let former = self.plan.index.of_work(&planned.work);
        former.map(|former| former.method.tries_of(&asked)).max().unwrap_or(0)
    }

    /// The summary that a model gives, or why it gives none.
    async fn asked(
        &self,
        model: &dyn SummaryModel,
        planned: &PlannedChunk,
        ask: crate::SummaryAsk,
        end: &mut BuildEnd,
    ) -> Result<Result<String, RefusedSummary>, Unmade> {
        let reply = match model.recorded(&first_line(planned.work, planned.level)).await {
            Some(reply) => {
                end.size.recorded += 1;
                reply
            }
            None => match model.ask(&ask).await {
                Ok(reply) => {
                    self.invalid.store(0, Ordering::Relaxed);
                    end.size.calls += 1;
                    end.size.input_tokens += reply.input;
                    end.size.output_tokens += reply.output;
                    end.cost += reply.cost;
                    self.check_hidden()?;
                    reply
                }
                Err(AskRefusal::Never(why)) => {
                    end.size.calls += 1;
                    let refusal = RefusedSummary::new(&why, None);
                    end.replace(planned, why);
                    return Ok(Err(refusal));
                }
                Err(AskRefusal::Invalid(why)) => {
                    end.size.calls += 1;
                    // A model that takes none of them for valid is not asked for all of them.
                    if self.invalid.fetch_add(1, Ordering::Relaxed) + 1 >= INVALID_IN_A_ROW {
                        return Err(Unmade::Refused(AskRefusal::Invalid(why)));
                    }
                    let refusal = RefusedSummary::new(&why, Some(self.tries(planned, model) + 1));
                    end.replace(planned, why);
                    return Ok(Err(refusal));
                }
                Err(refusal) => return Err(Unmade::Refused(refusal)),
            },
        };
        match judged(&ask, &reply) {
            Ok(text) => Ok(Ok(text)),
            Err(why) => {
                end.replace(planned, why.words().to_owned());
                Ok(Err(RefusedSummary::new(why.words(), None)))
            }
        }
    }

    /// What the nodes say that the chunks of a batch are to be made of.
    async fn texts(&self, batch: std::ops::Range<usize>) -> Result<HashMap<NodeId, SourceText>, PastError> {
        let hidden = self.store.hidden();
        let mut texts = HashMap::new();
        for planned in &self.plan.chunks[batch] {
            let PlannedSources::Nodes { importer, nodes, .. } = &planned.of else { continue };
            if planned.progress != PlannedProgress::Missing {
                continue;
            }
            let importer = importer.as_deref();
            for some in nodes.chunks(BATCH_NODES) {
                let found: Vec<_> = self.store.nodes(some).await?.into_iter().flatten().collect();
                let decoded = decode_nodes(self.store, &found).await?;
                let said = found.iter().zip(decoded).filter(|(node, _)| !hidden.hides(&node.id));
                texts.extend(
                    said.filter_map(|(node, decoded)| Some((node.id, source_of(&decoded, importer)?.0))),
                );
            }
        }
        Ok(texts)
    }

    /// The summaries that are committed of the children of the chunks that are to be made of them.
    async fn child_summaries(
        &self,
        batch: std::ops::Range<usize>,
    ) -> Result<HashMap<PastId, ChildSummary>, PastError> {
        let missing =
            self.plan.chunks[batch].iter().filter(|chunk| chunk.progress == PlannedProgress::Missing);
        let children = missing.filter_map(|chunk| match &chunk.of {
            PlannedSources::Children(children) => Some(children),
            PlannedSources::Nodes { .. } => None,
        });
        let nodes = children.flatten().filter_map(|child| match self.plan.chunks[*child].progress {
            PlannedProgress::Standing(id) | PlannedProgress::Former(id) => {
                self.plan.index.get(&id).map(|known| known.node)
            }
            // One of the same commit is not there yet.
            PlannedProgress::Retracted | PlannedProgress::Missing => self.made[*child].map(|made| made.node),
        });
        let nodes: Vec<NodeId> = nodes.collect();
        let chunks = read_chunks(self.store, self.scope, &nodes).await?;
        Ok(chunks
            .into_iter()
            .map(|chunk| (chunk.id(), ChildSummary { span: chunk.span, summary: chunk.summary }))
            .collect())
    }
}

/// Says what a person made of a chunk. A chunk that is retracted is shown to nobody and not made again; those above it are made
/// without it by the next build.
///
/// # Errors
/// `NoChunk`, `Busy`, `Store`.
pub async fn set_review_state(
    store: &dyn Graph,
    scope: &PastScope,
    chunk: PastId,
    state: ReviewState,
    now: UnixMs,
) -> Result<NodeId, PastError> {
    let index = PastIndex::read(store, scope).await?;
    if index.get(&chunk).is_none() {
        return Err(PastError::NoChunk { id: chunk.short(), scope: scope.name() });
    }
    let mut writer = PastWriter::new(store, scope, &index);
    let node = writer.review(chunk, state, now);
    writer.save().await?;
    Ok(node)
}
