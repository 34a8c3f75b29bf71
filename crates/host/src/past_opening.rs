//! The past before the conversation of a session: which summaries stand there, and since when.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{Context, ContextAsk, ContextSource, EpochReason, Opening, OpeningAsk, SourceError};
use quipu_memory::active::without_additions;
use quipu_past::cover::Charge;
use quipu_past::delay::CoverDelay;
use quipu_past::{CoverStock, PastError, PastIndex, PastScope, ServedCover};
use quipu_protocol::{Content, EpochOpening, Message, NodeId, OpeningBoundary, UnixMs};
use quipu_store::{Graph, RefName};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::now;
use crate::settings::TimeSettings;

/// The source, as records name it.
pub const PAST_SOURCE: &str = "past";
/// Characters of a token, and tokens of an image.
pub const PAST_CHARGE: Charge = Charge { characters: 4, image: 1_600 };
/// The share of the model's window that the past has at most.
const SHARE: u64 = 8;
/// Tokens that it has at most, whatever is set: the text, and the state with what waits, must have room in a record.
const MOST: u64 = 20_000;
/// How long a call waits for it: a long past is read as a whole once.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of an earlier question that count.
const QUESTION: usize = 2_000;

/// Gives sessions the past of their project.
pub(crate) struct PastOpening {
    store: Arc<dyn Graph>,
    scope: PastScope,
    settings: TimeSettings,
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
        Some(known) if (known.head, known.hidden) == (head, hidden) => {
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

/// What a session keeps of its past: stored with the text, so that it is the same when the session is opened later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpeningState {
    /// Whose past it is.
    pub scope: PastScope,
    /// What ends later is no past.
    pub boundary: UnixMs,
    /// What was asked by then: chunks with its words are shown in more detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What is served, without its text.
    pub served: ServedCover,
    /// What the next run will serve, if that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<ServedCover>,
}

impl OpeningState {
    /// The state in a record, with the text that is served; `None` where it is of another source, or cannot be read.
    #[must_use]
    pub fn of(opening: &EpochOpening) -> Option<Self> {
        if opening.source != PAST_SOURCE {
            return None;
        }
        let mut state: Self = serde_json::from_str(opening.state.as_deref()?).ok()?;
        state.served.text.clone_from(&opening.text);
        Some(state)
    }
}

impl PastOpening {
    pub(crate) fn new(store: Arc<dyn Graph>, scope: PastScope, settings: TimeSettings) -> Self {
        Self { store, scope, settings, read: Arc::default() }
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
        let budget = self.settings.tokens.min(share).min(MOST);
        let is_renewed = match ask.reason {
            EpochReason::Run => false,
            EpochReason::Start
            | EpochReason::Compaction
            | EpochReason::ModelChange
            | EpochReason::Source
            | EpochReason::Forgotten => true,
        };
        // Another question alone is no reason to have a long conversation read anew.
        let is_short = |state: &OpeningState| ask.tokens <= state.served.cost;
        let question = match &known {
            Some(state) if !is_renewed && !is_short(state) => state.question.clone(),
            _ => questions(&ask.earlier),
        };
        let cover = stock.serve(budget, question.as_deref(), boundary);
        // A question that changes nothing of what is served next is no news.
        let question = match &known {
            Some(state) if *state.pending.as_ref().unwrap_or(&state.served) == cover => {
                state.question.clone()
            }
            _ => question,
        };
        let may_stay = |cover: &ServedCover| cover.cost <= budget && stock.allows(cover);
        let delay = known.filter(|state| {
            // What waits is what is served next.
            let next = state.pending.as_ref().unwrap_or(&state.served);
            self.settings.delay && !is_renewed && may_stay(&state.served) && may_stay(next)
        });
        let mut delay = match delay {
            Some(state) => CoverDelay::resumed(state.served, state.pending),
            None => CoverDelay::default(),
        };
        let served = delay.turn(cover).clone();
        let pending = delay.pending().cloned();
        let nodes = served.members.iter().chain(pending.iter().flat_map(|cover| &cover.members));
        let mut nodes: Vec<NodeId> = nodes.map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let text = served.text.clone();
        let served = ServedCover { text: String::new(), ..served };
        let state = OpeningState { scope: self.scope.clone(), boundary, question, served, pending };
        let state = serde_json::to_string(&state).map_err(SourceError::new)?;
        let boundary = self.settings.boundary.clone();
        let boundary = boundary.map(|(assistant, user)| OpeningBoundary { assistant, user });
        Ok(Some(Opening { text, boundary, nodes, state: Some(state) }))
    }
}

/// What the user asked before, as one text; `None` where that was nothing.
fn questions(earlier: &[Arc<Message>]) -> Option<String> {
    let said = earlier.iter().filter_map(|message| match &**message {
        Message::User(user) => {
            let blocks = user.content.blocks();
            let text = without_additions(blocks.iter().filter_map(Content::as_text));
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

    fn context<'a>(&'a self, _: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        Box::pin(std::future::ready(Ok(Context::default())))
    }

    fn opening<'a>(&'a self, ask: &'a OpeningAsk) -> BoxFuture<'a, Result<Option<Opening>, SourceError>> {
        Box::pin(self.opened(ask))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use quipu_past::{ChunkDraft, DraftAuthor, TimeRange, write_chunk};

    use super::*;

    const DAY: UnixMs = 86_400_000;

    async fn write(store: &dyn Graph, day: i64) {
        let span = TimeRange::new(day * DAY, day * DAY + 1);
        let summary = format!("Something of day {day}.");
        let (children, sources, supersedes) = (Vec::new(), Vec::new(), Vec::new());
        let draft = ChunkDraft { author: DraftAuthor::Person, summary, span, children, sources, supersedes };
        write_chunk(store, &PastScope::All, draft, day * DAY).await.unwrap();
    }

    #[tokio::test]
    async fn past_is_read_on_where_nobody_waits_any_more() {
        let store = quipu_store::in_memory().unwrap();
        write(&*store, 20_000).await;
        let settings = TimeSettings { is_on: true, tokens: 1_000, delay: true, boundary: None };
        let opening = PastOpening::new(Arc::clone(&store), PastScope::All, settings);
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
