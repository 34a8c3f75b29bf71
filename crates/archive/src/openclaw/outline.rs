//! The header of a file, and what its name says.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use quipu_protocol::{Json, SessionId};

use crate::ArchiveError;
use crate::intake::{LINE_LIMIT, Outline};
use crate::json::Members;
use crate::lineages::session_id;
use crate::lines::Lines;

/// Lines before the header at most.
const BEFORE: u64 = 100;

/// The session of a header; `None` when the line is none. A topic of a chat has a file of its own that repeats the id of
/// its session: the name of the file tells them apart.
pub(super) fn session_of(header: &str, path: &Path) -> Option<SessionId> {
    let members = Members::of(header)?;
    if members.string("type")? != "session" {
        return None;
    }
    let id = members.string("id")?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.split(".jsonl").next().unwrap_or_default();
    let is_topic = stem.strip_prefix(id.as_ref()).is_some_and(|rest| rest.starts_with("-topic-"));
    Some(session_id(if is_topic { stem } else { &id }))
}

pub(super) fn outline(file: &mut File, path: &Path) -> Result<Outline, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let idle = crate::intake::idle(file).map_err(fail)?;
    let mut lines = Lines::new(BufReader::with_capacity(64 << 10, &mut *file), LINE_LIMIT);
    let mut empty = true;
    while let Some(line) = lines.next().map_err(fail)?
        && line.place.number <= BEFORE
    {
        let text = String::from_utf8_lossy(line.bytes);
        empty &= text.trim_ascii().is_empty() && !line.is_too_long();
        if Json::parse(&text).is_err() {
            continue;
        }
        let Some(session) = session_of(text.trim_ascii(), path) else { break };
        return Ok(Outline::alone(session, idle));
    }
    let why =
        if empty { "it is empty" } else { "its first line is not a header with type `session` and an id" };
    Err(ArchiveError::NotASession { path: path.to_owned(), why })
}
