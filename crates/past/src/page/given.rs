//! The covers that sessions were really given, as their records have them; and why, where that can be told.

use std::collections::HashMap;

use quipu_dag::Node;
use quipu_protocol::{Entry, Epoch, Message, NodeId, SessionId, UnixMs};
use quipu_store::{Graph, SessionRow, decode_nodes};

use super::RequestOpening;
use crate::cover::{Decision, Verdict};
use crate::pages::PAGE;
use crate::{CoverSearch, CoverStock, OpeningState, PastError, PastScope, ServedCover};

/// Covers of a page at most, and chunks of all of them.
const COVERS: usize = 500;
const MEMBERS: usize = 40_000;
/// Covers whose choice is told, and decisions of each.
const PLANS: usize = 20;
const DECISIONS: usize = 500;

/// A cover, from the node that gave it to the next one.
#[derive(Debug)]
pub(super) struct GivenCover {
    /// The beginning of the session, or the epoch.
    pub(super) epoch: NodeId,
    pub(super) session: SessionId,
    /// When the first request with it was answered.
    pub(super) at: UnixMs,
    /// How many requests had it, and the node that answers the first of them and the last.
    pub(super) answers: usize,
    pub(super) first: NodeId,
    pub(super) last: NodeId,
    pub(super) state: OpeningState,
    /// What was asked by its end: where another cover waits then, that was chosen for it.
    asked: CoverQuestion,
    /// Why its chunks would be chosen now; `None` where that gives another cover.
    pub(super) plan: Option<Vec<Decision>>,
}

/// What a cover was chosen for, and what it could cost.
#[derive(Debug, Clone)]
struct CoverQuestion {
    question: Option<String>,
    budget: Option<u64>,
}

impl CoverQuestion {
    fn of(state: &OpeningState) -> Self {
        Self { question: state.question.clone(), budget: state.budget }
    }
}

/// Those of all sessions of a past.
#[derive(Debug)]
pub(super) struct GivenCovers {
    scope: PastScope,
    /// By time.
    pub(super) covers: Vec<GivenCover>,
    /// Older ones that are too many for the page.
    pub(super) left_out: usize,
    /// Covers of another past that these sessions were given.
    pub(super) elsewhere: usize,
    /// The request that was asked for, and the choice of its cover.
    pub(super) request: Option<RequestOpening>,
    pub(super) request_plan: Option<Vec<Decision>>,
    /// The cover that the page shows first.
    pub(super) chosen: Option<usize>,
    open: Option<GivenCover>,
    /// What the walk is in.
    session: SessionId,
}

impl GivenCovers {
    pub(super) fn new(scope: &PastScope, request: Option<RequestOpening>) -> Self {
        Self {
            scope: scope.clone(),
            covers: Vec::new(),
            left_out: 0,
            elsewhere: 0,
            request,
            request_plan: None,
            chosen: None,
            open: None,
            session: scope.session(),
        }
    }

    /// What sessions began with, by their first nodes.
    pub(super) async fn first_covers(
        store: &dyn Graph,
        rows: &[SessionRow],
    ) -> Result<HashMap<NodeId, OpeningState>, PastError> {
        let mut firsts = HashMap::new();
        // Sessions of other programs have none.
        let own: Vec<NodeId> = rows.iter().filter(|row| !row.model.is_empty()).map(|row| row.base).collect();
        for some in own.chunks(PAGE) {
            let nodes: Vec<_> = store.nodes(some).await?.into_iter().flatten().collect();
            let decoded = decode_nodes(store, &nodes).await?;
            for (node, decoded) in nodes.iter().zip(decoded) {
                if let Entry::Session(start) = &decoded.entry
                    && let Some(state) = state_of(&start.epoch)
                {
                    firsts.insert(node.id, state);
                }
            }
        }
        Ok(firsts)
    }

    pub(super) fn begin(&mut self, row: &SessionRow, first: Option<OpeningState>) {
        self.session = row.id.clone();
        self.put(row.base, first);
    }

    /// The next node of a session.
    pub(super) fn take(&mut self, node: &Node, entry: &Entry) {
        match entry {
            Entry::Epoch(epoch) => self.put(node.id, state_of(epoch)),
            Entry::Message(answer @ Message::Assistant(_)) => {
                let Some(open) = &mut self.open else { return };
                if open.answers == 0 {
                    let known = [answer.timestamp(), node.record.timestamp].into_iter().find(|at| *at > 0);
                    (open.at, open.first) = (known.unwrap_or_default(), node.id);
                }
                open.answers += 1;
                open.last = node.id;
            }
            Entry::Session(_) | Entry::Message(_) | Entry::Compaction(_) | Entry::Meta(_) => {}
        }
    }

    /// The end of a session.
    pub(super) fn end(&mut self) {
        self.put(NodeId([0; 32]), None);
    }

    /// Another cover takes the place of the one that is given.
    fn put(&mut self, epoch: NodeId, state: Option<OpeningState>) {
        let session = self.session.clone();
        let next = state.filter(|state| !state.served.members.is_empty()).map(|state| GivenCover {
            epoch,
            session,
            at: 0,
            answers: 0,
            first: epoch,
            last: epoch,
            asked: CoverQuestion::of(&state),
            state,
            plan: None,
        });
        // An epoch for another reason gives the same again.
        if let (Some(open), Some(next)) = (&mut self.open, &next)
            && open.state.served.members == next.state.served.members
            && open.state.scope == next.state.scope
        {
            open.state.pending.clone_from(&next.state.pending);
            open.asked = next.asked.clone();
            return;
        }
        let ended = std::mem::replace(&mut self.open, next);
        match ended.filter(|cover| cover.answers > 0) {
            None => {}
            Some(cover) if cover.state.scope != self.scope => self.elsewhere += 1,
            Some(cover) => {
                self.covers.push(cover);
                if self.covers.len() >= 2 * COVERS {
                    self.cut();
                }
            }
        }
    }

    /// Leaves the newest.
    fn cut(&mut self) {
        self.covers.sort_by_key(|cover| std::cmp::Reverse((cover.at, cover.epoch)));
        let mut room = MEMBERS;
        let kept = self.covers.iter().take(COVERS).take_while(|cover| {
            let count = cover.state.served.members.len();
            let fits = count <= room;
            room = room.saturating_sub(count);
            fits
        });
        let kept = kept.count();
        self.left_out += self.covers.len() - kept;
        self.covers.truncate(kept);
    }

    /// Puts them in order, chooses the one that is shown first, and looks why the newest, and that one, are as they are: `before` is
    /// the moment that the page is of.
    pub(super) async fn explain(
        &mut self,
        stock: &CoverStock,
        search: &CoverSearch<'_>,
        (before, asking): (Option<UnixMs>, Option<&SessionId>),
    ) {
        self.cut();
        self.covers.reverse();
        // What was given at the moment of the page, where it is of one.
        let until = before.unwrap_or(UnixMs::MAX);
        self.chosen = match &self.request {
            Some(_) => None,
            None => self.covers.iter().rposition(|cover| cover.at <= until),
        };
        if let Some(RequestOpening { opening: Some(state), .. }) = &self.request {
            self.request_plan = plan_of(stock, search, (state, None), asking).await;
        }
        let newest = self.covers.len().saturating_sub(PLANS);
        for at in (newest..self.covers.len()).chain(self.chosen.filter(|at| *at < newest)) {
            let GivenCover { state, session, .. } = &self.covers[at];
            let plan = plan_of(stock, search, (state, self.waited(at)), Some(session)).await;
            self.covers[at].plan = plan;
        }
    }

    /// What was asked when a cover waited: during the one before it in its session.
    fn waited(&self, at: usize) -> Option<&CoverQuestion> {
        let session = &self.covers.get(at)?.session;
        let before = self.covers[..at].iter().rev().find(|before| before.session == *session);
        before.map(|before| &before.asked)
    }
}

fn state_of(epoch: &Epoch) -> Option<OpeningState> {
    let mut state = OpeningState::of(epoch.context.as_ref()?.opening.as_ref()?)?;
    // A page has no words of it: those of its chunks are in the page already.
    state.served = ServedCover { text: String::new(), ..state.served };
    Some(state)
}

/// Why the chunks of a cover were chosen, where the same are chosen from the chunks of now by what is found now: what a search found
/// then is not kept.
async fn plan_of(
    stock: &CoverStock,
    search: &CoverSearch<'_>,
    (state, waited): (&OpeningState, Option<&CoverQuestion>),
    asking: Option<&SessionId>,
) -> Option<Vec<Decision>> {
    let own = CoverQuestion::of(state);
    for CoverQuestion { question, budget } in [Some(&own), waited].into_iter().flatten() {
        let Some(budget) = *budget else { continue };
        let question = question.as_deref();
        // As a session does: by words of summaries alone where the index cannot be read.
        let about = match question {
            Some(question) => stock.about(search, question, asking).await.ok(),
            None => None,
        };
        let cover = about.as_ref().unwrap_or(stock).cover_before(budget, question, state.boundary).cover;
        let chosen = cover.members.iter().map(|member| member.id);
        if chosen.eq(state.served.members.iter().map(|member| member.node)) {
            return Some(first_decisions(&cover.decisions, DECISIONS));
        }
    }
    None
}

/// So many decisions, those about what is served before others.
pub(super) fn first_decisions(decisions: &[Decision], most: usize) -> Vec<Decision> {
    let mut first = decisions.to_vec();
    first.sort_by_key(|one| !matches!(one.verdict, Verdict::Chosen(_)));
    first.truncate(most);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cover::{Choice, SplitCause};
    use crate::{PastId, ServedMember};

    fn state(scope: PastScope, members: usize) -> OpeningState {
        let member = |at: usize| {
            let id = u8::try_from(at % 256).unwrap();
            ServedMember { node: NodeId([id; 32]), id: PastId([id; 32]), key: String::new(), cost: 1 }
        };
        let members = (0..members).map(member).collect();
        let served = ServedCover { members, ..ServedCover::default() };
        OpeningState {
            scope,
            boundary: 1,
            question: None,
            budget: None,
            served,
            pending: None,
            changed_at: 0,
        }
    }

    fn cover(at: UnixMs, members: usize) -> GivenCover {
        let node = NodeId([1; 32]);
        let state = state(PastScope::All, members);
        GivenCover {
            epoch: node,
            session: "s".into(),
            at,
            answers: 1,
            first: node,
            last: node,
            asked: CoverQuestion::of(&state),
            state,
            plan: None,
        }
    }

    #[test]
    fn covers_of_a_page_are_the_newest_within_its_room() {
        let mut given = GivenCovers::new(&PastScope::All, None);
        given.covers = (0..2 * COVERS).map(|at| cover(at as UnixMs, 1)).collect();
        given.cut();
        assert_eq!((given.covers.len(), given.left_out), (COVERS, COVERS));
        assert!(given.covers.iter().all(|cover| cover.at >= COVERS as UnixMs));
        given.covers = (0..10).map(|at| cover(at, MEMBERS / 4)).collect();
        given.cut();
        assert_eq!(given.covers.len(), 4);
        assert_eq!(given.left_out, COVERS + 6);
    }

    #[test]
    fn question_of_a_cover_that_waits_is_kept_beside_its_own() {
        let mut given = GivenCovers::new(&PastScope::All, None);
        let asked = |members: usize, question: &str, pending: Option<usize>| OpeningState {
            question: Some(question.to_owned()),
            budget: Some(members as u64),
            pending: pending.map(|members| state(PastScope::All, members).served),
            ..state(PastScope::All, members)
        };
        let mut put = |state: Option<OpeningState>| {
            given.put(NodeId([2; 32]), state);
            given.open.iter_mut().for_each(|open| open.answers += 1);
        };
        put(Some(asked(2, "one", None)));
        put(Some(OpeningState { budget: Some(9), ..asked(2, "two", Some(3)) }));
        put(Some(asked(3, "three", Some(4))));
        put(None);
        // One of another session at the same time stands between them.
        given.covers.insert(1, GivenCover { session: "other".into(), ..cover(1, 1) });
        let [first, _, second] = &given.covers[..] else { panic!("{given:?}") };
        assert_eq!((first.state.question.as_deref(), first.state.budget), (Some("one"), Some(2)));
        assert_eq!(first.state.pending.as_ref().unwrap().members.len(), 3);
        assert_eq!(second.state.question.as_deref(), Some("three"));
        let waited = given.waited(2).unwrap();
        assert_eq!((waited.question.as_deref(), waited.budget), (Some("two"), Some(9)));
        assert!(given.waited(0).is_none() && given.waited(1).is_none());
    }

    #[test]
    fn decisions_about_what_is_served_come_first() {
        let split = Verdict::Split(SplitCause::Width);
        let chosen = Verdict::Chosen(Choice::Leaf);
        let one = |id: u8, verdict| Decision { id: NodeId([id; 32]), level: 0, verdict };
        let all = [one(1, split), one(2, chosen), one(3, split), one(4, chosen)];
        assert_eq!(first_decisions(&all, 3), [all[1], all[3], all[0]]);
        assert_eq!(first_decisions(&all, 9).len(), 4);
    }

    #[test]
    fn cover_of_another_past_is_counted_and_not_shown() {
        let mut given = GivenCovers::new(&PastScope::All, None);
        let other = PastScope::Agent("other".to_owned());
        for scope in [other, PastScope::All] {
            given.put(NodeId([2; 32]), Some(state(scope, 2)));
            given.open.iter_mut().for_each(|open| open.answers = 1);
        }
        // One that no request had, and the end.
        given.put(NodeId([3; 32]), Some(state(PastScope::All, 3)));
        given.end();
        assert_eq!((given.covers.len(), given.elsewhere), (1, 1));
    }
}
