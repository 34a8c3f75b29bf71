//! What is done with a line alone, on any core: it is parsed, migrated and sealed, and its parts are encoded and hashed
//! as they will be if it stands and hangs where it seems to.

use std::sync::Arc;

use quipu_protocol::{Json, SessionId, UnixMs};
use quipu_seal::Sealer;

use super::entry::{self, Head, Line, Parent};
use super::{AGENT, VERSION};
use crate::Problem;
use crate::built::Parts;
use crate::lines::{self, Place};

/// What must be known of a file to make its lines ready.
#[derive(Clone)]
pub(super) struct Maker {
    pub(super) version: u64,
    pub(super) session: SessionId,
    pub(super) sealer: Arc<Sealer>,
    /// The session's own time, for entries that have none.
    pub(super) time: UnixMs,
}

/// A line of the file.
pub(super) struct Made {
    pub(super) place: Place,
    pub(super) problems: Vec<Problem>,
    pub(super) what: What,
}

/// What a line holds.
pub(super) enum What {
    /// No entry.
    Nothing,
    /// An entry that is not looked at before those before it are placed.
    Text(Json),
    /// An entry that was made ready.
    Ready(Box<Ahead>),
}

/// An entry that was made ready before those before it are placed.
pub(super) struct Ahead {
    pub(super) head: Head<'static>,
    pub(super) ready: Ready,
    /// `None` when they depend on other entries.
    pub(super) parts: Option<Parts>,
}

/// An entry as it is kept.
pub(super) struct Ready {
    pub(super) text: Json,
    /// As it was before its secrets were sealed.
    pub(super) unsealed: Option<Json>,
    pub(super) number: u64,
    /// Its place in the file.
    pub(super) n: u64,
}

impl Maker {
    /// All that can be done with a line of a file alone. In version 1 each entry takes its id from the one before.
    pub(super) fn make(&self, line: &lines::Line<'_>, is_ahead: bool) -> Made {
        let place = line.place;
        let (json, problems) = line.object();
        let what = match json {
            None => What::Nothing,
            Some(json) if !is_ahead || self.version < 2 => What::Text(json),
            Some(json) => {
                // Of the objects before it the first is the header.
                let ready = self.ready(json, place.number, place.objects, None);
                self.ahead(ready)
            }
        };
        Made { place, problems, what }
    }

    /// The line as it is kept; `before` is the id of the entry before it.
    pub(super) fn ready(&self, json: Json, number: u64, n: u64, before: Option<&str>) -> Ready {
        let migrated = if self.version < VERSION {
            entry::migrated(json.get(), self.version, &self.session, n, before)
        } else {
            None
        };
        let json = migrated.and_then(|text| Json::parse(&text).ok()).unwrap_or(json);
        let sealed = self.sealer.seal_json(&json);
        let unsealed = (sealed != json).then_some(json);
        Ready { text: sealed, unsealed, number, n }
    }

    fn ahead(&self, ready: Ready) -> What {
        let Some(line) = Line::read(ready.text.get()) else { return What::Text(ready.text) };
        // What a compaction keeps is found among the entries before it.
        let parts = (line.head.kind != "compaction").then(|| self.parts(&line, &ready, false, &|_| None));
        let head = line.head.into_owned();
        What::Ready(Box::new(Ahead { head, ready, parts }))
    }

    /// The parts of an entry that hangs where it says, or at the root.
    pub(super) fn parts(
        &self,
        line: &Line<'_>,
        ready: &Ready,
        at_root: bool,
        find: &dyn Fn(&str) -> Option<quipu_protocol::NodeId>,
    ) -> Parts {
        let follows = match &line.head.parent {
            Parent::Id(id) if !at_root => Some(id.as_ref()),
            Parent::Id(_) | Parent::Nothing | Parent::Unreadable => None,
        };
        let time = line.head.timestamp.unwrap_or(self.time);
        let unsealed = ready.unsealed.as_ref().map(Json::get);
        let (entry, step) = line.entry(ready.n, follows, time, unsealed, find);
        Parts::new(AGENT, &entry, &step)
    }
}
