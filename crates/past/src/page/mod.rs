//! A past as one page of HTML that needs nothing else: its chunks by time and level, what a cover of them serves and why, what they
//! stand on, and what was proven.

mod columns;
mod evidence;
mod given;
mod html;

use std::io::{self, Write};
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Graph, WordVectors};

use crate::cover::Charge;
use crate::{CoverDetail, CoverSearch, CoverStock, OpeningState, PastCover, PastError, PastIndex, PastScope};

use columns::PageColumns;
use evidence::PageEvidence;
use given::GivenCovers;

/// Which cover the page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageAsk {
    /// What it may cost.
    pub budget: u64,
    /// How it is charged.
    pub charge: Charge,
    /// The question that it is chosen for, if any.
    pub about: Option<String>,
    /// The session that asks it, if one does: nothing of it is found.
    pub asking: Option<SessionId>,
    /// The first moment of the present: what ends later is not served. `None` for now.
    pub boundary: Option<UnixMs>,
    /// The node whose request the page is to show, if any.
    pub request: Option<RequestOpening>,
    /// When the page is made.
    pub now: UnixMs,
}

/// What stood before the conversation in the request of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOpening {
    /// The node.
    pub node: NodeId,
    /// The past in that request; `None` where there was none.
    pub opening: Option<OpeningState>,
}

/// What a page shows.
#[derive(Debug)]
pub struct PastPage {
    scope: String,
    ask: PageAsk,
    columns: PageColumns,
    evidence: PageEvidence,
    given: GivenCovers,
    cover: PastCover,
    proof: Option<crate::ProofRecord>,
    faults: usize,
}

/// What a page has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageSize {
    /// Chunks.
    pub chunks: usize,
    /// Summaries that are shortened, as there are too many for one page.
    pub shortened: usize,
    /// Sources of which the page has the beginning.
    pub excerpts: usize,
    /// Covers that sessions were given.
    pub given: usize,
    /// Covers that sessions were given and that are not in the page, as there are too many.
    pub given_left_out: usize,
}

impl PastPage {
    /// Reads what a page shows: the chunks that are shown, and every session of the scope once. The cover is the one that a session
    /// has that begins at the boundary, for the same question and budget; `words` is the second signal of its search.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read(
        store: &dyn Graph,
        scope: &PastScope,
        index: &PastIndex,
        ask: PageAsk,
        words: Option<Arc<dyn WordVectors>>,
    ) -> Result<Self, PastError> {
        let columns = PageColumns::read(store, scope, index).await?;
        let mut given = GivenCovers::new(scope, ask.request.clone());
        let evidence = PageEvidence::read(store, scope, &columns, &mut given).await?;
        let stock = CoverStock::read(store, scope, index, ask.charge).await?;
        let search = CoverSearch { store, scope, words, detail: CoverDetail::Chunks };
        let boundary = ask.boundary.unwrap_or(ask.now);
        let cover = match ask.about.as_deref() {
            Some(about) => {
                let drawn = stock.about(&search, about, ask.asking.as_ref()).await?;
                drawn.cover_before(ask.budget, Some(about), boundary)
            }
            None => stock.cover_before(ask.budget, None, boundary),
        };
        given.explain(&stock, &search, (ask.boundary, ask.asking.as_ref())).await;
        drop(stock);
        let scope = scope.name();
        Ok(Self {
            scope,
            ask,
            columns,
            evidence,
            given,
            cover,
            proof: index.proof.clone(),
            faults: index.fault_count,
        })
    }

    /// What it has.
    #[must_use]
    pub fn size(&self) -> PageSize {
        let Self { columns, evidence, given, .. } = self;
        PageSize {
            chunks: columns.len(),
            shortened: columns.shortened,
            excerpts: evidence.excerpts(),
            given: given.covers.len(),
            given_left_out: given.left_out,
        }
    }

    /// Writes the page.
    ///
    /// # Errors
    /// What it is written to says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        html::write(self, out)
    }
}
