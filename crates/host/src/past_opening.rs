//! The past before the conversation of a session: which summaries stand there, and since when.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{ContextSource, EpochReason, Opening, OpeningAsk, SourceError};
use quipu_memory::active::without_quotes;
use quipu_past::cover::Charge;
use quipu_past::delay::CoverDelay;
use quipu_past::{
    CoverDetail, CoverSearch, CoverStock, OpeningState, PAST_SOURCE, PastError, PastIndex, PastScope,
    ServedCover,
};
use quipu_protocol::{Content, Message, NodeId, OpeningBoundary, SessionId, UnixMs};
use quipu_store::{Graph, RefName, WordVectors};
use tokio::sync::Mutex;

use crate::now;
use crate::settings::TimeSettings;

/// Characters of a token, and tokens of an image.
pub const PAST_CHARGE: Charge = Charge { characters: 4, image: 1_600 };
/// The share of the model's window that the past has at most.
const SHARE: u64 = 8;
/// Tokens that it has at most, whatever is set: the text, and the state with what waits, must have room in a record.
const MOST: u64 = 20_000;
/// How long a call waits for it: a long past is read as a whole once.
const DEADLINE: Duration = Duration::from_secs(30);
/// How many times as long as at the last change past and conversation must be before another cover is served: so all changes
/// together cost no more than twice the longest request.
const GROWTH: u64 = 2;
/// Bytes of an earlier question that count.
const QUESTION: usize = 2_000;

/// Gives sessions the past of their project.
pub(crate) struct PastOpening {
    store: Arc<dyn Graph>,
    scope: PastScope,
    settings: TimeSettings,
    /// The second signal of relevance, where there is a model.
    words: Option<Arc<dyn WordVectors>>,
    /// What was read last.
    read: Arc<Mutex<Option<ReadPast>>>,
}

struct ReadPast {
    head: Option<NodeId>,
    /// The version of what is forgotten.
    hidden: u64,
    index: PastIndex,
    stock: Arc<CoverStock>,
}

/// Reads the past as it is now, unless it was read so already; of one that was read before, what came.
async fn read_past(
    store: &dyn Graph,
    scope: &PastScope,
    read: &Mutex<Option<ReadPast>>,
) -> Result<Arc<CoverStock>, PastError> {
    let mut read = read.lock().await;
    let (head, hidden) = (store.head(&scope.ref_name()).await?, store.hidden().version());
    let known = match read.take() {
        // A session may have been removed since, which moves no head.
        Some(known)
            if (known.head, known.hidden) == (head, hidden) && known.index.is_removed_same(store).await? =>
        {
            let stock = Arc::clone(&known.stock);
            *read = Some(known);
            return Ok(stock);
        }
        known => known.filter(|known| known.hidden == hidden),
    };
    let (index, known) = match known {
        Some(ReadPast { index, stock, .. }) => (index.read_on(store, scope).await?, Some(stock)),
        None => (PastIndex::read(store, scope).await?, None),
    };
    let stock = CoverStock::read_on(store, scope, &index, PAST_CHARGE, known.as_deref()).await?;
    let stock = Arc::new(stock);
    *read = Some(ReadPast { head, hidden, index, stock: Arc::clone(&stock) });
    Ok(stock)
}

impl PastOpening {
    pub(crate) fn new(
        store: Arc<dyn Graph>,
        scope: PastScope,
        settings: TimeSettings,
        words: Option<Arc<dyn WordVectors>>,
    ) -> Self {
        Self { store, scope, settings, words, read: Arc::default() }
    }

    /// What is served for these questions, by words and meaning; by words alone where the index cannot be read.
    async fn cover(
        &self,
        stock: &CoverStock,
        (question, asking): (Option<&str>, Option<&SessionId>),
        (budget, boundary): (u64, UnixMs),
    ) -> ServedCover {
        let Some(question) = question else { return stock.serve(budget, None, boundary) };
        let (store, scope, words) = (&*self.store, &self.scope, self.words.clone());
        let search = CoverSearch { store, scope, words, detail: CoverDetail::Chunks };
        let about = stock.about(&search, question, asking).await;
        about.as_ref().unwrap_or(stock).serve(budget, Some(question), boundary)
    }

    /// The past as it is now. It is read again only where it changed, and goes on being read where nobody waits for it any more: the
    /// next call finds what this one did not wait for.
    async fn stock(&self) -> Result<Arc<CoverStock>, SourceError> {
        let (store, scope, read) = (Arc::clone(&self.store), self.scope.clone(), Arc::clone(&self.read));
        let reading = tokio::spawn(async move { read_past(&*store, &scope, &read).await });
        reading.await.map_err(SourceError::new)?.map_err(SourceError::new)
    }

    /// When the lineage of the session begins, where it is one already.
    async fn beginning(&self, ask: &OpeningAsk) -> Result<Option<UnixMs>, SourceError> {
        let Some(session) = &ask.cx.session else { return Ok(None) };
        let head = self.store.head(&RefName::session(session)).await.map_err(SourceError::new)?;
        let Some(head) = head else { return Ok(None) };
        let root = self.store.ancestor(head, 0).await.map_err(SourceError::new)?;
        let Some(root) = root else { return Ok(None) };
        let nodes = self.store.nodes(&[root]).await.map_err(SourceError::new)?;
        Ok(nodes.into_iter().flatten().next().map(|node| node.record.timestamp))
    }

    async fn opened(&self, ask: &OpeningAsk) -> Result<Option<Opening>, SourceError> {
        // A session that began without it goes on without it.
        if ask.before.is_none() && ask.reason != EpochReason::Start {
            return Ok(None);
        }
        let stock = self.stock().await?;
        let known = ask.before.as_ref().and_then(OpeningState::of).filter(|state| state.scope == self.scope);
        let boundary = match &known {
            Some(state) => state.boundary,
            // Also where a state is lost, as what it told was forgotten: what the session said itself is no past of it.
            None => {
                let times = [self.beginning(ask).await?, ask.first];
                times.into_iter().flatten().filter(|at| *at > 0).min().unwrap_or_else(now)
            }
        };
        let share = if ask.window == 0 { u64::MAX } else { ask.window / SHARE };
        let beside = self.settings.boundary.as_ref();
        let beside = beside.map_or(0, |(assistant, user)| PAST_CHARGE.of(assistant) + PAST_CHARGE.of(user));
        let budget = self.settings.tokens.min(share).min(MOST).saturating_sub(beside);
        let is_renewed = match ask.reason {
            EpochReason::Run => false,
            EpochReason::Start
            | EpochReason::Compaction
            | EpochReason::ModelChange
            | EpochReason::Source
            | EpochReason::Forgotten => true,
        };
        let may_stay = |cover: &ServedCover| cover.cost <= budget && stock.allows(cover);
        let kept = known.filter(|state| !is_renewed && may_stay(&state.served) && may_stay(state.next()));
        let size = |cover: &ServedCover| ask.tokens.saturating_add(cover.cost);
        // All that stands behind a change is read anew: it has to be worth that.
        let is_worth =
            kept.as_ref().is_none_or(|state| size(&state.served) >= state.changed_at.saturating_mul(GROWTH));
        let (cover, question, chosen_within) = match &kept {
            Some(state) if !is_worth => (state.next().clone(), state.question.clone(), state.budget),
            _ => {
                let question = questions(&ask.earlier);
                let asked = (question.as_deref(), ask.cx.session.as_ref());
                let cover = self.cover(&stock, asked, (budget, boundary)).await;
                match &kept {
                    // A question that changes nothing of what is served next is no news, and neither is another budget.
                    Some(state) if *state.next() == cover => (cover, state.question.clone(), state.budget),
                    _ => (cover, question, Some(budget)),
                }
            }
        };
        let changed_at = match &kept {
            Some(state) if *state.next() == cover => state.changed_at,
            // The first question may change it at any time.
            None if question.is_none() => 0,
            _ => size(&cover),
        };
        let mut delay = match kept {
            Some(state) if self.settings.delay => CoverDelay::resumed(state.served, state.pending),
            _ => CoverDelay::default(),
        };
        let served = delay.turn(cover).clone();
        let pending = delay.pending().cloned();
        let nodes = served.members.iter().chain(pending.iter().flat_map(|cover| &cover.members));
        let mut nodes: Vec<NodeId> = nodes.map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let text = served.text.clone();
        let served = ServedCover { text: String::new(), ..served };
        let scope = self.scope.clone();
        let state =
            OpeningState { scope, boundary, question, budget: chosen_within, served, pending, changed_at };
        let state = serde_json::to_string(&state).map_err(SourceError::new)?;
        let boundary = self.settings.boundary.clone();
        let boundary = boundary.map(|(assistant, user)| OpeningBoundary { assistant, user });
        Ok(Some(Opening { text, boundary, nodes, state: Some(state) }))
    }
}

/// What the user asked before, as one text; `None` where that was nothing.
pub(crate) fn questions(earlier: &[Arc<Message>]) -> Option<String> {
    let said = earlier.iter().filter_map(|message| match &**message {
        Message::User(user) => {
            let blocks = user.content.blocks();
            let text = without_quotes(blocks.iter().filter_map(Content::as_text));
            Some(text[..text.floor_char_boundary(QUESTION)].to_owned())
        }
        _ => None,
    });
    let text = said.collect::<Vec<_>>().join("\n");
    (!text.trim().is_empty()).then_some(text)
}

impl ContextSource for PastOpening {
    fn name(&self) -> &str {
        PAST_SOURCE
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn wants(&self, reason: EpochReason) -> bool {
        matches!(reason, EpochReason::Run | EpochReason::Compaction | EpochReason::ModelChange)
    }

    fn opening<'a>(&'a self, ask: &'a OpeningAsk) -> BoxFuture<'a, Result<Option<Opening>, SourceError>> {
        Box::pin(self.opened(ask))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use quipu_dag::{Node, NodeRecord};
    use quipu_past::{ChunkDraft, DraftAuthor, ExtractiveSummary, PastPlan, Summariser as _, TimeRange};
    use quipu_past::{build_past, write_chunk};
    use quipu_protocol::{Entry, Epoch, SessionStart, StepInfo};
    use quipu_store::{Commit, RefExpectation, RefMove};
    use quipu_transcript::encode;

    use super::*;

    const DAY: UnixMs = 86_400_000;

    async fn write(store: &dyn Graph, day: i64) {
        let span = TimeRange::new(day * DAY, day * DAY + 1);
        let summary = format!("Something of day {day}.");
        let (children, sources, supersedes) = (Vec::new(), Vec::new(), Vec::new());
        let draft = ChunkDraft { author: DraftAuthor::Person, summary, span, children, sources, supersedes };
        write_chunk(store, &PastScope::All, draft, day * DAY).await.unwrap();
    }

    async fn say(store: &dyn Graph, session: &str, text: &str, at: UnixMs) {
        let session = SessionId::from(session);
        let name = RefName::session(&session);
        let epoch = Epoch { provider: "p".into(), model: "m".into(), ..Epoch::default() };
        let (cwd, agent) = ("/work".into(), "quipu".into());
        let start = SessionStart { session, cwd, agent, parent_session: None, epoch };
        let (mut commit, mut parent) = (Commit::default(), None);
        for entry in [Entry::Session(start), Entry::Message(Message::user(text, at))] {
            let encoded = encode(&entry, &StepInfo::default());
            let record = NodeRecord {
                parent,
                role: encoded.role,
                parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
                timestamp: at,
                external_id: None,
                system_prompt: None,
            };
            commit.blobs.extend(encoded.blobs);
            let node = Node::new(record, None, None);
            parent = Some(node.id);
            commit.nodes.push(node);
        }
        commit.moves.push(RefMove::swap(name, None, parent.unwrap(), "append"));
        store.commit(commit).await.unwrap();
    }

    #[tokio::test]
    async fn past_of_a_session_that_others_removed_is_not_served() {
        let store = quipu_store::in_memory().unwrap();
        say(&*store, "s7", "Please do task7.", 20_000 * DAY).await;
        say(&*store, "s8", "Please do task8.", 20_001 * DAY).await;
        let (scope, now) = (PastScope::All, 21_000 * DAY);
        let plan = PastPlan::make(&*store, &scope, &ExtractiveSummary.method(), now).await.unwrap();
        build_past(&*store, &scope, &ExtractiveSummary, &plan, now, &mut |_| {}).await.unwrap();
        let settings = TimeSettings { is_on: true, tokens: 1_000, delay: true, boundary: None };
        let opening = PastOpening::new(Arc::clone(&store), scope, settings, None);
        let served = async || opening.stock().await.unwrap().serve(1_000, None, now).text;
        let before = served().await;
        assert!(before.contains("task7") && before.contains("task8"), "{before}");
        let name = RefName::session(&SessionId::from("s7"));
        let expect = RefExpectation::Any;
        let mut commit = Commit::default();
        commit.moves.push(RefMove { name, expect, to: None, fence: None, why: "rm".into() });
        store.commit(commit).await.unwrap();
        let after = served().await;
        assert!(!after.contains("task7") && after.contains("task8"), "{after}");
    }

    #[tokio::test]
    async fn past_is_read_on_where_nobody_waits_any_more() {
        let store = quipu_store::in_memory().unwrap();
        write(&*store, 20_000).await;
        let settings = TimeSettings { is_on: true, tokens: 1_000, delay: true, boundary: None };
        let opening = PastOpening::new(Arc::clone(&store), PastScope::All, settings, None);
        // Whoever waited is gone at once.
        assert!(opening.stock().now_or_never().is_none());
        tokio::task::yield_now().await;
        let known = opening.read.lock().await.as_ref().map(|read| Arc::clone(&read.stock));
        let known = known.unwrap();
        assert!(Arc::ptr_eq(&known, &opening.stock().await.unwrap()));
        // What came is read, and what was read stays.
        write(&*store, 20_001).await;
        let now = opening.stock().await.unwrap().serve(1_000, None, 20_002 * DAY).text;
        assert!(now.contains("of day 20000") && now.contains("of day 20001"), "{now}");
    }
}
