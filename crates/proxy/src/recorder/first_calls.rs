//! The first call of a session that its client names: a small one, such as for a title, may come before the conversation, and
//! is not what the session is about.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use quipu_archive::ConversationDigest;
use tokio::time::Instant;

use super::known::Name;
use crate::exchange::Exchange;
use crate::item::Item;
use crate::session::Profile;

/// How long a call without tools waits for the conversation that it may stand beside.
const WAIT: Duration = Duration::from_secs(3);
/// Calls that wait at most; further ones do not.
const HELD: usize = 16;
/// Conversations that are remembered at most while their first answer is under way.
const BEGUN: usize = 256;

struct HeldCall {
    name: Name,
    exchange: Exchange,
    until: Instant,
}

/// First calls that wait, and conversations whose first call is under way.
#[derive(Default)]
pub(super) struct FirstCalls {
    held: Vec<HeldCall>,
    begun: HashMap<Name, HashSet<ConversationDigest>>,
}

impl FirstCalls {
    /// A conversation with tools began, and is not kept yet.
    pub(super) fn begin(&mut self, name: Name, items: &[Item]) {
        if self.begun.len() >= BEGUN {
            self.begun.clear();
        }
        let says = items.iter().filter(|item| item.counts).map(|item| item.digest);
        self.begun.entry(name).or_default().extend(says);
    }

    pub(super) fn has_begun(&self, name: &Name) -> bool {
        self.begun.contains_key(name)
    }

    /// The conversation is kept: what is beside it is known by that.
    pub(super) fn is_kept(&mut self, name: &Name) {
        self.begun.remove(name);
    }

    /// Whether a call of a session of which nothing is kept is beside the conversation that began meanwhile.
    pub(super) fn is_beside(&self, name: &Name, profile: Profile, items: &[Item]) -> bool {
        let begun = self.begun.get(name).filter(|_| !profile.has_tools());
        begun.is_some_and(|says| !items.iter().any(|item| item.counts && says.contains(&item.digest)))
    }

    /// Lets a call wait; gives it back where too many wait.
    pub(super) fn hold(&mut self, name: Name, exchange: Exchange) -> Option<Exchange> {
        if self.held.len() >= HELD {
            return Some(exchange);
        }
        self.held.push(HeldCall { name, exchange, until: Instant::now() + WAIT });
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// When the first of them has waited long enough.
    pub(super) fn next(&self) -> Option<Instant> {
        self.held.iter().map(|call| call.until).min()
    }

    /// Those that have waited long enough, in the order in which they came.
    pub(super) fn due(&mut self) -> Vec<Exchange> {
        let now = Instant::now();
        self.taken(|call| call.until <= now)
    }

    /// Those of a session, or all.
    pub(super) fn of(&mut self, name: Option<&Name>) -> Vec<Exchange> {
        self.taken(|call| name.is_none_or(|name| *name == call.name))
    }

    fn taken(&mut self, is_taken: impl Fn(&HeldCall) -> bool) -> Vec<Exchange> {
        let (taken, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held).into_iter().partition(is_taken);
        self.held = held;
        taken.into_iter().map(|call| call.exchange).collect()
    }
}
