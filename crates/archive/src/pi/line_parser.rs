//! The work on a line that needs no other line, on any core: parsing, migrating and sealing it, and encoding and hashing
//! its parts for the place where it seems to belong.

use std::sync::Arc;

use quipu_protocol::{Json, SessionId, UnixMs};
use quipu_seal::Sealer;

use super::entry::{self, Head, Line, Parent};
use super::{AGENT, VERSION};
use crate::Problem;
use crate::built_node::NodeParts;
use crate::lines::{self, Place};

/// Parses the lines of one file.
#[derive(Clone)]
pub(super) struct LineParser {
    pub(super) version: u64,
    pub(super) session: SessionId,
    pub(super) sealer: Arc<Sealer>,
    /// The session's own time, for entries that have none.
    pub(super) time: UnixMs,
}

/// A parsed line of the file.
pub(super) struct ParsedLine {
    pub(super) place: Place,
    pub(super) problems: Vec<Problem>,
    pub(super) what: LineContent,
}

pub(super) enum LineContent {
    /// No entry.
    Nothing,
    /// An entry that is not looked at before those before it are placed.
    Text(Json),
    /// An entry that was prepared in advance.
    Ready(Box<PreparedEntry>),
}

/// An entry that was prepared before the entries before it are placed.
pub(super) struct PreparedEntry {
    pub(super) head: Head<'static>,
    pub(super) ready: EntryText,
    /// `None` when they depend on other entries.
    pub(super) parts: Option<NodeParts>,
}

/// The text of an entry as it is stored.
pub(super) struct EntryText {
    pub(super) text: Json,
    /// As it was before its secrets were sealed.
    pub(super) unsealed: Option<Json>,
    pub(super) number: u64,
    /// Its place in the file.
    pub(super) n: u64,
}

impl LineParser {
    /// All that can be done with a line of a file alone. In version 1 each entry takes its id from the one before.
    pub(super) fn make(&self, line: &lines::Line<'_>, is_ahead: bool) -> ParsedLine {
        let place = line.place;
        let (json, problems) = line.object();
        let what = match json {
            None => LineContent::Nothing,
            Some(json) if !is_ahead || self.version < 2 => LineContent::Text(json),
            Some(json) => {
                // Of the objects before it the first is the header.
                let ready = self.ready(json, place.number, place.objects, None);
                self.prepare(ready)
            }
        };
        ParsedLine { place, problems, what }
    }

    /// The line as it is kept; `before` is the id of the entry before it.
    pub(super) fn ready(&self, json: Json, number: u64, n: u64, before: Option<&str>) -> EntryText {
        let migrated = if self.version < VERSION {
            entry::migrated(json.get(), self.version, &self.session, n, before)
        } else {
            None
        };
        let json = migrated.and_then(|text| Json::parse(&text).ok()).unwrap_or(json);
        let sealed = self.sealer.seal_json(&json);
        let unsealed = (sealed != json).then_some(json);
        EntryText { text: sealed, unsealed, number, n }
    }

    fn prepare(&self, ready: EntryText) -> LineContent {
        let Some(line) = Line::read(ready.text.get()) else { return LineContent::Text(ready.text) };
        // What a compaction keeps is found among the entries before it.
        let parts = (line.head.kind != "compaction").then(|| self.parts(&line, &ready, false, &|_| None));
        let head = line.head.into_owned();
        LineContent::Ready(Box::new(PreparedEntry { head, ready, parts }))
    }

    /// The parts of an entry that hangs where it says, or at the root.
    pub(super) fn parts(
        &self,
        line: &Line<'_>,
        ready: &EntryText,
        at_root: bool,
        find: &dyn Fn(&str) -> Option<quipu_protocol::NodeId>,
    ) -> NodeParts {
        let follows = match &line.head.parent {
            Parent::Id(id) if !at_root => Some(id.as_ref()),
            Parent::Id(_) | Parent::Nothing | Parent::Unreadable => None,
        };
        let time = line.head.timestamp.unwrap_or(self.time);
        let unsealed = ready.unsealed.as_ref().map(Json::get);
        let (entry, step) = line.entry(ready.n, follows, time, unsealed, find);
        NodeParts::new(AGENT, &entry, &step)
    }
}
