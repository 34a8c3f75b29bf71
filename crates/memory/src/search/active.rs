//! The search that active memory asks before a reply.

use futures_util::future::BoxFuture;
use quipu_protocol::SessionId;

use super::{HitPlace, MemoryNotes, MemoryQuestion};
use crate::active::{ActiveHit, ActiveSearch, ActiveSearchError};

impl ActiveSearch for MemoryNotes {
    fn search<'a>(
        &'a self,
        session: &'a str,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ActiveHit>, ActiveSearchError>> {
        Box::pin(async move {
            let question = MemoryQuestion {
                text: query.to_owned(),
                projects: self.projects.clone(),
                nested: self.nested,
                asking: Some(SessionId::from(session)),
                limit,
                ..MemoryQuestion::default()
            };
            let answer =
                self.search.search(&question).await.map_err(|error| ActiveSearchError(error.to_string()))?;
            let hit = |hit: super::MemoryHit| ActiveHit {
                source: match &hit.place {
                    HitPlace::Node { node, .. } => node.short(),
                    HitPlace::Note { citation, .. } => citation.to_string(),
                },
                text: hit.snippet,
                author: hit.author,
            };
            if let Some(observer) = &self.observer {
                observer.found(query, Some(&SessionId::from(session)), &answer.hits);
            }
            Ok(answer.hits.into_iter().map(hit).collect())
        })
    }
}
