//! The refs of sessions that were imported.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Commit, RefExpectation, RefMove, StoreError};

use super::super::node_builder::BuiltSession;
use super::FileImport;
use crate::import_cache::Mark;
use crate::lineages::{main_ref, tips};
use crate::{ArchiveError, Report};

impl FileImport<'_> {
    /// Moves the session's ref, and notes what was imported.
    pub(super) async fn finish(
        &self,
        placed: BuiltSession,
        note: Option<Mark>,
    ) -> Result<Report, ArchiveError> {
        let BuiltSession { mut report, last, nodes, tips, .. } = placed;
        if self.options.dry_run {
            report.head = self.store.head(&main_ref(self.agent, &report.session)).await?;
            return Ok(report);
        }
        if report.added > 0 {
            let moves = self.inner(&report.session, &nodes, &tips).await?;
            if !moves.is_empty() {
                self.store.commit(Commit { moves, ..Commit::default() }).await?;
            }
        }
        if let Some(last) = last {
            report.head = Some(self.move_main(&report.session, last, &nodes, note).await?);
        }
        Ok(report)
    }

    /// The same for several sessions with one commit, where each would wait for what is written beside it.
    pub(super) async fn finish_all(&self, all: Vec<BuiltSession>) -> Result<Vec<Report>, ArchiveError> {
        let heads = if self.options.dry_run { None } else { self.move_together(&all).await? };
        if let Some(heads) = heads {
            let all = all.into_iter().zip(heads);
            return Ok(all.map(|(placed, head)| Report { head, ..placed.report }).collect());
        }
        let mut reports = Vec::with_capacity(all.len());
        for placed in all {
            reports.push(self.finish(placed, None).await?);
        }
        Ok(reports)
    }

    /// Where the refs of these sessions stand then; `None` where another import moved one of them meanwhile.
    async fn move_together(&self, all: &[BuiltSession]) -> Result<Option<Vec<Option<NodeId>>>, ArchiveError> {
        let mut heads = Vec::with_capacity(all.len());
        let mut moves = Vec::new();
        for BuiltSession { report, last, nodes, tips, .. } in all {
            if report.added > 0 {
                moves.extend(self.inner(&report.session, nodes, tips).await?);
            }
            let mut head = None;
            if let Some(last) = last {
                let (found, to) = self.head(&report.session, *last, nodes).await?;
                if found != Some(to) {
                    let name = main_ref(self.agent, &report.session);
                    moves.push(RefMove::swap(name, found, to, "import"));
                }
                head = Some(to);
            }
            heads.push(head);
        }
        if moves.is_empty() {
            return Ok(Some(heads));
        }
        match self.store.commit(Commit { moves, ..Commit::default() }).await {
            Ok(()) => Ok(Some(heads)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// How refs go of ends that are none. They come from another import of the session that is under way, or was stopped
    /// while its last commit was.
    async fn inner(
        &self,
        session: &SessionId,
        nodes: &HashSet<NodeId>,
        ends: &HashMap<NodeId, SessionId>,
    ) -> Result<Vec<RefMove>, ArchiveError> {
        let heads = tips(&**self.store, self.agent, session).await?.into_iter();
        let inner = heads.filter(|head| nodes.contains(&head.node) && !ends.contains_key(&head.node));
        let leave =
            |name| RefMove { name, expect: RefExpectation::Any, to: None, fence: None, why: "import".into() };
        Ok(inner.map(|head| leave(head.name)).collect())
    }

    /// Where the session's own ref stands, and where it is to stand: at the last item of the file, unless the store has one
    /// that the file does not know and that is later.
    async fn head(
        &self,
        session: &SessionId,
        last: (UnixMs, NodeId),
        nodes: &HashSet<NodeId>,
    ) -> Result<(Option<NodeId>, NodeId), ArchiveError> {
        let found = self.store.head(&main_ref(self.agent, session)).await?;
        let current = match found.filter(|node| !nodes.contains(node)) {
            None => None,
            Some(node) => {
                let nodes = self.store.nodes(&[node]).await?;
                nodes.into_iter().flatten().next().map(|node| (node.record.timestamp, node.id))
            }
        };
        Ok((found, current.filter(|current| *current > last).unwrap_or(last).1))
    }

    async fn move_main(
        &self,
        session: &SessionId,
        last: (UnixMs, NodeId),
        nodes: &HashSet<NodeId>,
        note: Option<Mark>,
    ) -> Result<NodeId, ArchiveError> {
        loop {
            let (found, head) = self.head(session, last, nodes).await?;
            let stays = found == Some(head);
            if stays && note.is_none() {
                return Ok(head);
            }
            let mut batch = Commit::default();
            if !stays {
                let name = main_ref(self.agent, session);
                batch.moves.push(RefMove::swap(name, found, head, "import"));
            }
            if let Some(note) = &note {
                batch.actions.push(note.action(found, Some(head)));
            }
            match self.store.commit(batch).await {
                Ok(()) => return Ok(head),
                // Another import was faster: whose item is later is looked at again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
