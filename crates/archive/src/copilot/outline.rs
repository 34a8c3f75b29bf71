//! The first event of a file.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use quipu_protocol::UnixMs;

use crate::ArchiveError;
use crate::intake::{LINE_LIMIT, Outline};
use crate::json::{Members, time_of};
use crate::lineages::session_id;
use crate::lines::Lines;

/// Events that are looked at for a header.
const BEFORE: u64 = 100;
/// Bytes of the file that names a session.
const NAMES: u64 = 1 << 20;

/// What a file says of its session.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) session: String,
    pub(super) cwd: String,
    pub(super) time: Option<UnixMs>,
}

impl Header {
    /// Reads an event; `None` when it is no header.
    pub(super) fn of(event: &Members<'_>) -> Option<Self> {
        if event.string("type")? != "session.start" {
            return None;
        }
        let data = Members::of(event.get("data")?)?;
        let context = data.get("context").and_then(Members::of);
        let time = data.string("startTime").or_else(|| event.string("timestamp"));
        Some(Self {
            session: data.string("sessionId").filter(|id| !id.is_empty())?.into_owned(),
            cwd: context.and_then(|context| Some(context.string("cwd")?.into_owned())).unwrap_or_default(),
            time: time.and_then(|text| time_of(&text)),
        })
    }

    /// The first header of a file, from where that stands.
    pub(super) fn find(file: &mut File) -> std::io::Result<Option<Self>> {
        let mut lines = Lines::new(BufReader::with_capacity(64 << 10, file), LINE_LIMIT);
        while let Some(line) = lines.next()?
            && line.place.number <= BEFORE
        {
            let text = String::from_utf8_lossy(line.bytes);
            if let Some(header) = Members::of(text.trim_ascii()).as_ref().and_then(Self::of) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }
}

pub(super) fn outline(file: &mut File, path: &Path) -> Result<Outline, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let idle = crate::intake::idle(file).map_err(fail)?;
    let Some(header) = Header::find(file).map_err(fail)? else {
        let empty = file.metadata().map_err(fail)?.len() == 0;
        let why = if empty { "it is empty" } else { "it does not start with `session.start`" };
        return Err(ArchiveError::NotASession { path: path.to_owned(), why });
    };
    Ok(Outline::alone(session_id(&header.session), idle))
}

/// The name that the user gave to the session, which stands beside its events.
pub(super) fn name(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path.parent()?.join("workspace.yaml")).ok()?.take(NAMES).read_to_string(&mut text).ok()?;
    let value =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim);
    if value("user_named") != Some("true") {
        return None;
    }
    let name = value("name")?;
    // Words that need no quotes have none; those in quotes are spelled as in JSON.
    let name = match name.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => crate::json::text_of(name).unwrap_or_else(|| name.to_owned()),
    };
    Some(name).filter(|name| !name.is_empty() && name != "|" && name != ">")
}
