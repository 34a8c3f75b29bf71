//! Which sessions that a past sums up were removed. All sessions are listed once; after that, moves of refs tell whether that changed.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use quipu_protocol::SessionId;
use quipu_store::{Graph, RefLogPlace, RefName, SessionQuery, StoreError};

/// The sessions of a past that were removed.
#[derive(Debug, Default)]
pub(crate) struct RemovedSessions {
    gone: HashSet<SessionId>,
    known: Mutex<KnownRefs>,
}

/// How the refs of its sessions stand.
#[derive(Debug, Default)]
struct KnownRefs {
    /// How many sessions were looked for.
    count: usize,
    names: HashSet<RefName>,
    /// Those of them that another program moves: of these the log of moves does not tell.
    foreign: Vec<RefName>,
    /// Whether nothing is known of some of the sessions.
    has_unknown: bool,
    /// Until where moves are known.
    until: Option<RefLogPlace>,
}

impl RemovedSessions {
    /// Looks for these sessions. One of which nothing is known was not removed: a past may come without its sessions.
    pub(crate) async fn read<'a>(
        store: &dyn Graph,
        of: impl ExactSizeIterator<Item = &'a SessionId>,
    ) -> Result<Self, StoreError> {
        let of: HashSet<&SessionId> = of.collect();
        let mut known = KnownRefs { count: of.len(), ..KnownRefs::default() };
        if of.is_empty() {
            return Ok(Self { gone: HashSet::new(), known: Mutex::new(known) });
        }
        // Before they are listed: a move in between is seen twice rather than never.
        known.until = Some(store.ref_changes(None).await?.until);
        let rows = store.sessions(SessionQuery { children: true, ..SessionQuery::default() }).await?;
        let mut missing = of.clone();
        for row in rows.iter().filter(|row| of.contains(&row.id)) {
            missing.remove(&row.id);
            known.add(&row.agent, &row.id, &row.name);
        }
        let mut gone = HashSet::new();
        for id in missing {
            let query = SessionQuery { id: Some(id.clone()), ..SessionQuery::default() };
            let rows = store.sessions(query).await?;
            known.has_unknown |= rows.is_empty();
            rows.iter().for_each(|row| known.add(&row.agent, &row.id, &row.name));
            if !rows.is_empty() && rows.iter().all(|row| row.head.is_none()) {
                gone.insert(id.clone());
            }
        }
        Ok(Self { gone, known: Mutex::new(known) })
    }

    /// Whether the same of these sessions are removed still. Reads the moves of refs since it was asked last; lists sessions only where
    /// one of these moves is of them, or where they are others.
    pub(crate) async fn is_same<'a>(
        &self,
        store: &dyn Graph,
        of: impl ExactSizeIterator<Item = &'a SessionId>,
    ) -> Result<bool, StoreError> {
        let (until, foreign) = {
            let known = self.known();
            if known.count == 0 && of.len() == 0 {
                return Ok(true);
            }
            (known.until, known.foreign.clone())
        };
        let changes = store.ref_changes(until).await?;
        let mut is_known = self.known().allows(of.len(), changes.names.as_deref());
        for name in &foreign {
            is_known = is_known && store.head(name).await?.is_some();
        }
        if is_known {
            self.known().until = Some(changes.until);
            return Ok(true);
        }
        let Self { gone, known } = Self::read(store, of).await?;
        if gone != self.gone {
            return Ok(false);
        }
        *self.known() = known.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(true)
    }

    pub(crate) fn contains(&self, session: &SessionId) -> bool {
        self.gone.contains(session)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gone.is_empty()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownRefs> {
        // Nothing can break down while it is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownRefs {
    fn add(&mut self, agent: &str, session: &SessionId, name: &RefName) {
        if *name != RefName::of_agent(agent, session) {
            self.foreign.push(name.clone());
        }
        self.names.insert(name.clone());
    }

    /// Whether refs that came to stand or were removed change nothing for so many sessions.
    fn allows(&self, count: usize, changed: Option<&[RefName]>) -> bool {
        let Some(changed) = changed.filter(|_| count == self.count) else { return false };
        changed.is_empty() || (!self.has_unknown && changed.iter().all(|name| !self.names.contains(name)))
    }
}
