//! Which sessions begin with messages of another one. Of a session that begins as no other does, only that is kept in memory; of
//! the others 8 bytes for each message.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::Arc;

use quipu_protocol::{SessionId, UnixMs};
use sha2::{Digest as _, Sha256};

use super::rows::{Row, Rows};
use crate::intake::Start;
use crate::json::Members;
use crate::lineages::session_id;

/// A session, and the session that it was copied from.
pub(super) struct SessionOrigin {
    pub(super) row: Row,
    pub(super) copied: Option<CopiedPrefix>,
    /// Its messages, each by its [`mark`]: the first, or all where another session begins with the same one.
    pub(super) marks: Vec<u64>,
}

/// The messages that a session repeats at its beginning: so many, of which the last is another one's own (a place among
/// the sessions). Those before it may be what the other repeats.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopiedPrefix {
    from: usize,
    count: usize,
}

/// Sessions, by the mark of their first message.
pub(super) type SessionsByMark = HashMap<u64, Vec<usize>>;

impl SessionOrigin {
    /// A session that comes after all others.
    pub(super) fn of(
        row: Row,
        rows: &Rows,
        all: &mut [Self],
        begins: &mut SessionsByMark,
    ) -> io::Result<Self> {
        let at = all.len();
        let mut one = Self { marks: marks(rows, &row, Some(1))?, row, copied: None };
        let Some(first) = one.marks.first() else { return Ok(one) };
        let same = begins.entry(*first).or_default();
        if !same.is_empty() {
            one.marks = marks(rows, &one.row, None)?;
        }
        // Of several the one that it shares most with; of equal ones the oldest.
        let mut most = CopiedPrefix { from: 0, count: 0 };
        for from in same.iter().rev() {
            let other = &mut all[*from];
            if other.marks.len() == 1 {
                other.marks = marks(rows, &other.row, None)?;
            }
            let alike = one.marks.iter().zip(&other.marks).take_while(|(own, other)| own == other);
            let count = alike.count();
            if count >= most.count {
                most = CopiedPrefix { from: *from, count };
            }
        }
        same.push(at);
        if let Some(copied) = most.owned(all) {
            let count = alike(rows, &all[copied.from].row, &one.row, copied.count)?;
            one.copied = CopiedPrefix { count, ..copied }.owned(all);
        }
        Ok(one)
    }

    /// What it is called in the store.
    pub(super) fn session(&self) -> SessionId {
        session_id(&self.row.id)
    }

    /// What it comes from.
    pub(super) fn parent(&self, all: &[Self]) -> Option<SessionId> {
        match self.copied {
            Some(CopiedPrefix { from, .. }) => Some(all[from].session()),
            None => self.row.parent.as_deref().map(session_id),
        }
    }

    /// The sessions whose own messages it repeats, in the order of the messages, each with which of its messages those are.
    pub(super) fn origins<'a>(&self, all: &'a [Self]) -> Vec<(&'a Self, std::ops::Range<usize>)> {
        let mut origins = Vec::new();
        let mut copied = self.copied;
        while let Some(CopiedPrefix { from, count }) = copied {
            let other = &all[from];
            copied = other.copied.map(|before| CopiedPrefix { count: before.count.min(count), ..before });
            origins.push((other, copied.map_or(0, |before| before.count)..count));
        }
        origins.reverse();
        origins
    }

    /// The messages that it repeats: the beginning of the session whose each is, and its id there.
    pub(super) fn repeated(
        &self,
        all: &[Self],
        rows: &Rows,
        start: impl Fn(&Self) -> Start,
    ) -> io::Result<Vec<(Arc<Start>, String)>> {
        let mut repeated = Vec::new();
        for (from, own) in self.origins(all) {
            let mut at = 0;
            let start = Arc::new(start(from));
            rows.messages(&from.row.id, Some(own.end), |message| {
                if at >= own.start {
                    repeated.push((Arc::clone(&start), message.id));
                }
                at += 1;
            })?;
        }
        Ok(repeated)
    }
}

impl CopiedPrefix {
    /// From the session whose own the last of the messages is; `None` where there are none.
    fn owned(mut self, all: &[SessionOrigin]) -> Option<Self> {
        while let Some(before) = all.get(self.from)?.copied.filter(|before| before.count >= self.count) {
            self.from = before.from;
        }
        (self.count > 0).then_some(self)
    }
}

/// The first messages of a session, so many at most, or all.
fn marks(rows: &Rows, session: &Row, most: Option<usize>) -> io::Result<Vec<u64>> {
    let mut marks = Vec::new();
    rows.messages(&session.id, most, |message| {
        marks.push(mark(message.created, &role(Members::of(&message.data).as_ref())));
    })?;
    Ok(marks)
}

/// Differs where time or role do. Where it does not, what the messages say is compared.
fn mark(time: UnixMs, role: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (time, role).hash(&mut hasher);
    hasher.finish()
}

/// Whose message it is.
pub(super) fn role(message: Option<&Members<'_>>) -> String {
    let role = message.and_then(|message| message.string("role"));
    role.unwrap_or_default().into_owned()
}

/// How many of the first messages of two sessions say the same.
fn alike(rows: &Rows, one: &Row, other: &Row, most: usize) -> io::Result<usize> {
    let said = |session: &Row| -> io::Result<Vec<[u8; 32]>> {
        let mut said = Vec::new();
        rows.conversation(&session.id, |message, parts| {
            let data = Members::of(&message.data).map(|data| data.without(&["parentID", "summary"]));
            let mut hash = Sha256::new();
            for text in
                std::iter::once(data.unwrap_or_default().get()).chain(parts.iter().map(|part| &**part))
            {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            said.push(hash.finalize().into());
            Ok::<_, io::Error>(said.len() < most)
        })?;
        Ok(said)
    };
    let (one, other) = (said(one)?, said(other)?);
    Ok(one.iter().zip(&other).take_while(|(one, other)| one == other).count())
}
